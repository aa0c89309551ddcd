"""Log lines: plain and JSON, with the request id of the task that writes them."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from specgrove.errors import ConfigError
from specgrove.telemetry.logs import request_id, request_scope, setup_logging

log = logging.getLogger("specgrove.test")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    """Leave the logger as it was: pytest's caplog and other tests need it."""
    logger = logging.getLogger("specgrove")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before[0], before[1], before[2]


def written(form: str, level: str = "INFO") -> io.StringIO:
    """A stream that the log goes to from now on."""
    stream = io.StringIO()
    setup_logging(level=level, form=form, stream=stream)  # type: ignore[arg-type]  # wrong values are tested too
    return stream


def test_json_lines_carry_fields_and_request_id() -> None:
    """One object a line; the caller's fields and the id of the request stand in it."""
    stream = written("json")
    with request_scope("req-1"):
        log.info("finished %s", "well", extra={"tokens": 12, "level": "forged"})

    entry = json.loads(stream.getvalue())

    assert (entry["message"], entry["level"], entry["logger"]) == ("finished well", "INFO", "specgrove.test")
    assert (entry["request_id"], entry["tokens"]) == ("req-1", 12)
    assert entry["time"].endswith("+00:00")


def test_plain_lines_are_one_line() -> None:
    """A line break in a message or a field cannot forge a second line."""
    stream = written("plain")
    with request_scope("req-2"):
        log.warning("first\nsecond", extra={"who": "a\r\nb"})
    assert stream.getvalue().endswith("WARNING specgrove.test: first\\nsecond request_id=req-2 who=a\\r\\nb\n")


@pytest.mark.parametrize("form", ["plain", "json"])
def test_tracebacks_are_kept(form: str) -> None:
    """An exception's traceback is in the log."""
    stream = written(form)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    assert "ValueError: broken" in stream.getvalue()


def test_no_request_no_id_and_levels_hold() -> None:
    """Outside of a request there is no request_id; lines below the level are dropped."""
    stream = written("json", level="warning")
    log.info("dropped")
    log.warning("kept")
    (line,) = stream.getvalue().splitlines()
    assert "request_id" not in json.loads(line)


async def test_each_task_has_its_own_id() -> None:
    """Concurrent requests do not mix their ids."""

    async def work(name: str) -> str:
        with request_scope(name):
            await asyncio.sleep(0)
            return request_id()

    assert list(await asyncio.gather(work("a"), work("b"))) == ["a", "b"]
    assert request_id() == ""


def test_setup_twice_writes_once() -> None:
    """Calling setup again replaces the first handler."""
    first = written("plain")
    second = written("plain")
    log.info("hello")
    assert first.getvalue() == ""
    assert second.getvalue().count("hello") == 1


@pytest.mark.parametrize(("level", "form", "word"), [("LOUD", "plain", "LOUD"), ("INFO", "xml", "xml")])
def test_mistakes_stop_the_start(level: str, form: str, word: str) -> None:
    """An unknown level or form is refused by name."""
    with pytest.raises(ConfigError, match=word):
        written(form, level)
