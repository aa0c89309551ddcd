"""A whole stream gathered into one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from specgrove.core.request import (
    ChoiceFinished,
    Chunk,
    Finished,
    FinishReason,
    GenerateEvent,
    RoundTrace,
    SpeculationStats,
    Started,
    TokenLogprob,
)
from specgrove.errors import ProtocolError


@dataclass(slots=True)
class Choice:
    """One finished choice."""

    index: int
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    traces: list[RoundTrace] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    stats: SpeculationStats = field(default_factory=SpeculationStats)


@dataclass(slots=True, kw_only=True)
class Completion:
    """The reply to one request."""

    started: Started
    choices: list[Choice]
    finished: Finished

    @property
    def text(self) -> str:
        """Text of the first choice."""
        return self.choices[0].text


class Gatherer:
    """Takes the events of one stream in order; `completion()` at the end."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._finished: Finished | None = None
        self._choices: dict[int, Choice] = {}

    def add(self, event: GenerateEvent) -> None:
        """One more event."""
        match event:
            case Started():
                self._started = event
            case Chunk():
                self._add_chunk(event)
            case ChoiceFinished():
                choice = self._choice(event.choice)
                choice.finish_reason, choice.stop_reason, choice.stats = event.reason, event.stop_reason, event.stats
            case Finished():
                self._finished = event

    def _choice(self, index: int) -> Choice:
        return self._choices.setdefault(index, Choice(index))

    def _add_chunk(self, chunk: Chunk) -> None:
        choice = self._choice(chunk.choice)
        choice.text += chunk.text
        choice.tokens.extend(chunk.tokens)
        choice.logprobs.extend(chunk.logprobs)
        if chunk.trace is not None:
            choice.traces.append(chunk.trace)

    def completion(self) -> Completion:
        """Raises ProtocolError when the stream had no beginning or no end."""
        if self._started is None or self._finished is None:
            raise ProtocolError("the server ended the stream without Started or Finished")
        choices = [self._choices[index] for index in sorted(self._choices)]
        return Completion(started=self._started, choices=choices, finished=self._finished)
