"""One choice of a reply: what it adds to a stream piece by piece, and what it is as a whole."""

from __future__ import annotations

from typing import Any, Protocol

from specgrove.core.request import ChoiceFinished, Chunk, Started
from specgrove.http.replies.logprobs import Columns, chat_logprobs

Piece = dict[str, Any]


class Choice(Protocol):
    """The shape of one endpoint's choices."""

    def opening(self) -> Piece | None:
        """What a stream sends before the first text of this choice."""

    def delta(self, chunk: Chunk) -> Piece | None:
        """What a chunk adds to a stream; None when there is nothing to show yet."""

    def closing(self, end: ChoiceFinished) -> Piece:
        """The last piece, with the finish reason."""

    def whole(self, end: ChoiceFinished) -> Piece:
        """The choice as it stands in a reply that is not streamed."""


class ChatChoice:
    """A choice of /v1/chat/completions."""

    def __init__(self, index: int, started: Started, wants_logprobs: bool) -> None:
        self._index, self._wants_logprobs = index, wants_logprobs
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def opening(self) -> Piece | None:
        """The chunk with the role."""
        return self._piece({"role": "assistant", "content": ""})

    def delta(self, chunk: Chunk) -> Piece | None:
        """New text and, when asked for, its log-probabilities."""
        entries = chat_logprobs(chunk.logprobs) if self._wants_logprobs else []
        self._text.append(chunk.text)
        self._logprobs += entries
        if not chunk.text and not entries:
            return None
        return self._piece({"content": chunk.text}, logprobs=self._boxed(entries))

    def closing(self, end: ChoiceFinished) -> Piece:
        """An empty delta with the finish reason."""
        return self._piece({}, finish_reason=end.reason) | {"stop_reason": end.stop_reason}

    def whole(self, end: ChoiceFinished) -> Piece:
        """The whole message."""
        return {
            "index": self._index,
            "message": {"role": "assistant", "content": "".join(self._text), "refusal": None},
            "logprobs": self._boxed(self._logprobs),
            "finish_reason": end.reason,
            "stop_reason": end.stop_reason,
        }

    def _boxed(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        return {"content": entries, "refusal": None} if self._wants_logprobs else None

    def _piece(
        self, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> Piece:
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


class CompletionChoice:
    """A choice of /v1/completions. With `echo`, prompt_text and prompt_logprobs of Started come first."""

    def __init__(self, index: int, started: Started, wants_logprobs: bool) -> None:
        self._index, self._prompt = index, started.prompt_text
        self._text: list[str] = [started.prompt_text]
        self._columns = Columns() if wants_logprobs else None
        self._prompt_columns = self._columns.add(started.prompt_logprobs) if self._columns else None

    def opening(self) -> Piece | None:
        """The echoed prompt, if there is one."""
        return self._piece(self._prompt, logprobs=self._prompt_columns) if self._prompt else None

    def delta(self, chunk: Chunk) -> Piece | None:
        """New text and, when asked for, its log-probabilities."""
        columns = self._columns.add(chunk.logprobs) if self._columns else None
        self._text.append(chunk.text)
        if not chunk.text and not chunk.logprobs:
            return None
        return self._piece(chunk.text, logprobs=columns)

    def closing(self, end: ChoiceFinished) -> Piece:
        """An empty text with the finish reason."""
        return self._piece("", finish_reason=end.reason) | {"stop_reason": end.stop_reason}

    def whole(self, end: ChoiceFinished) -> Piece:
        """The whole text."""
        columns = self._columns.all if self._columns else None
        piece = self._piece("".join(self._text), logprobs=columns, finish_reason=end.reason)
        return piece | {"stop_reason": end.stop_reason}

    def _piece(self, text: str, *, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None) -> Piece:
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
