"""Log lines with a request id: plain for people, JSON (one object a line) for machines.

Fields go in `extra`: `log.info("finished", extra={"tokens": 12})`. The id of the request that a task works on is kept
in a context variable, so that no function has to carry it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from specgrove.errors import ConfigError

LogFormat = Literal["plain", "json"]
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "request_id"}
_request_id: ContextVar[str] = ContextVar("specgrove_request_id", default="")


def request_id() -> str:
    """Id of the request that this task works on; empty outside of one."""
    return _request_id.get()


@contextmanager
def request_scope(value: str) -> Iterator[None]:
    """Log lines of this task carry `value` as request_id until the block ends."""
    token = _request_id.set(value)
    try:
        yield
    finally:
        _request_id.reset(token)


def setup_logging(*, level: str = "INFO", form: LogFormat = "plain", stream: TextIO | None = None) -> None:
    """Send the log of `specgrove` and everything below it to `stream` (stderr). Calling it again replaces the first.

    Only our own logger is touched: Ray and uvicorn keep theirs. Raises ConfigError for an unknown level or form.
    """
    if level.upper() not in _LEVELS:
        raise ConfigError(f"no log level {level!r}; known: {', '.join(_LEVELS)}", param="log_level")
    if form not in ("plain", "json"):
        raise ConfigError(f"no log format {form!r}; known: plain, json", param="log_format")
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else PlainFormatter())
    logger = logging.getLogger("specgrove")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller gave in `extra`, and the request id when there is one."""
    fields = {name: value for name, value in vars(record).items() if name not in _OWN}
    known = getattr(record, "request_id", "") or _request_id.get()
    return ({"request_id": known} if known else {}) | fields


class PlainFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO specgrove.target: message key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it when the record carries one."""
        moment = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        # A value with a line break must not be able to forge a second log line.
        pairs = "".join(f" {name}={_one_line(value)}" for name, value in _fields(record).items())
        line = f"{moment} {record.levelname} {record.name}: {_one_line(record.getMessage())}{pairs}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, message, request_id and the caller's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The object as one line; values that JSON does not know are written as text."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name, value in _fields(record).items() if name not in entry}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _one_line(value: object) -> str:
    return str(value).replace("\r", "\\r").replace("\n", "\\n")
