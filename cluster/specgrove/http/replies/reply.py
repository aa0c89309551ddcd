"""A whole reply: all choices of all prompts, from events to chunks or to one object."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specgrove.core.request import ChoiceFinished, Chunk, Finished, GenerateEvent, Started
from specgrove.errors import Cancelled, SpecgroveError
from specgrove.http.replies.choices import ChatChoice, Choice, CompletionChoice, Piece
from specgrove.http.replies.figures import speculative_decoding, usage


@dataclass(frozen=True, slots=True)
class Form:
    """What differs between the endpoints."""

    id_prefix: str
    whole: str
    """The `object` of a whole reply."""
    chunk: str
    """The `object` of a streamed one."""
    choice: Callable[[int, Started, bool], Choice]
    """(index, started, wants_logprobs) to the choice."""


CHAT = Form("chatcmpl-", "chat.completion", "chat.completion.chunk", ChatChoice)
COMPLETION = Form("cmpl-", "text_completion", "text_completion", CompletionChoice)


@dataclass(slots=True)
class _Row:
    """One choice in the making."""

    choice: Choice
    seed: int
    opened: bool = False
    tokens: int = 0
    end: ChoiceFinished | None = None


class Reply:
    """Feed it events; it keeps the books and gives back what a stream shows. Choices are numbered prompt by prompt."""

    def __init__(
        self, form: Form, *, reply_id: str, model: str, prompts: int, n: int, wants_logprobs: bool, seed: int | None
    ) -> None:
        self._form, self._n, self._wants_logprobs, self._seed = form, n, wants_logprobs, seed
        self._head = {"id": form.id_prefix + reply_id, "created": int(time.time()), "model": model}
        self._rows: list[_Row | None] = [None] * (prompts * n)
        self._prompt_tokens = [0] * prompts
        self._cached_tokens = [0] * prompts

    def on(self, prompt: int, event: GenerateEvent) -> list[Piece]:
        """Take one event in; returns the pieces of choices that a stream sends for it.

        The first piece of a choice waits for its first token, so that clients measure the time to it rightly.
        Raises Cancelled or SpecgroveError when the choice did not end well.
        """
        if isinstance(event, Started):
            self._start(prompt, event)
            return []
        if isinstance(event, Finished):
            self._cached_tokens[prompt] = event.cached_tokens
            return []
        row = self._row(prompt * self._n + event.choice)
        pieces = [] if row.opened else [row.choice.opening()]
        row.opened = True
        if isinstance(event, Chunk):
            row.tokens += len(event.tokens)
            pieces.append(row.choice.delta(event))
        else:
            _check_end(event)
            row.end, row.tokens = event, event.completion_tokens
            pieces.append(row.choice.closing(event) | self._own_metrics(row))
        return [piece for piece in pieces if piece is not None]

    def whole(self) -> dict[str, Any]:
        """The reply as one object; every choice must have ended."""
        choices = []
        for index in range(len(self._rows)):
            row = self._row(index)
            if row.end is None:
                raise SpecgroveError(f"choice {index} never ended")
            choices.append(row.choice.whole(row.end) | self._own_metrics(row))
        body = {**self._head, "object": self._form.whole, "choices": choices, "system_fingerprint": None}
        return body | {"usage": self.usage(), "metrics": self.metrics()}

    def chunk(self, choices: list[Piece]) -> dict[str, Any]:
        """One chunk of a stream around pieces of choices."""
        return {**self._head, "object": self._form.chunk, "choices": choices, "system_fingerprint": None}

    @property
    def complete(self) -> bool:
        """Whether every choice has ended."""
        return all(row is not None and row.end is not None for row in self._rows)

    def usage(self) -> dict[str, Any]:
        """The usage so far."""
        completion = sum(row.tokens for row in self._rows if row is not None)
        ended = [row.end.stats for row in self._rows if row is not None and row.end is not None]
        return usage(
            prompt_tokens=sum(self._prompt_tokens),
            completion_tokens=completion,
            cached_tokens=sum(self._cached_tokens),
            accepted_prediction=sum(stats.accepted_prediction_tokens for stats in ended),
            rejected_prediction=sum(stats.rejected_prediction_tokens for stats in ended),
        )

    def metrics(self) -> dict[str, Any]:
        """`seed` and `speculative_decoding` of a single choice; several choices carry their own (and null is here)."""
        seeds = {row.seed for row in self._rows if row is not None}
        only = self._rows[0] if len(self._rows) == 1 else None
        stats = speculative_decoding(only.end.stats) if only is not None and only.end is not None else None
        return {"seed": seeds.pop() if len(seeds) == 1 else None, "speculative_decoding": stats}

    def _start(self, prompt: int, event: Started) -> None:
        self._prompt_tokens[prompt] = event.prompt_tokens
        self._cached_tokens[prompt] = event.cached_tokens
        seed = event.seed if self._seed is None else self._seed  # a negative seed is told as it was sent
        for index in range(prompt * self._n, (prompt + 1) * self._n):
            self._rows[index] = _Row(self._form.choice(index, event, self._wants_logprobs), seed)

    def _row(self, index: int) -> _Row:
        row = self._rows[index]
        if row is None:
            raise SpecgroveError("the backend sent an event before Started")
        return row

    def _own_metrics(self, row: _Row) -> Piece:
        if len(self._rows) == 1 or row.end is None:
            return {}
        return {"metrics": {"seed": row.seed, "speculative_decoding": speculative_decoding(row.end.stats)}}


def _check_end(end: ChoiceFinished) -> None:
    """OpenAI's finish reasons are `stop` and `length`; the other ends are errors."""
    if end.reason == "cancelled":
        raise Cancelled("the request was cancelled")
    if end.reason == "error":
        raise SpecgroveError(f"choice {end.choice} ended with an error")
