"""A scripted Backend: deterministic events, so that every reply is known in advance.

It has no model. One token is one byte of SCRIPT, so that characters of several bytes span tokens and commits; a commit
carries up to three tokens.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from specgrove.core.cards import Load, ModelCard, ReplicaCard
from specgrove.core.protocols import ModelStatus
from specgrove.core.request import (
    ChoiceFinished,
    Chunk,
    Finished,
    FinishReason,
    GenerateEvent,
    GenerateRequest,
    SpeculationStats,
    Started,
    TokenLogprob,
)
from specgrove.errors import ModelNotFound, RequestError

SCRIPT = "Grüße 🌳 aus dem Wald, wo Bäume zu Texten wachsen."
SCRIPT_BYTES = SCRIPT.encode()
MODEL = "grove"
SEED = 2**63 + 11
COMMIT = 3


def text_of(count: int) -> str:
    """The complete characters in the first `count` tokens."""
    return SCRIPT_BYTES[:count].decode(errors="ignore")


def card(name: str) -> ModelCard:
    """A model card of some small model."""
    return ModelCard(
        name=name,
        architecture="llama",
        parameters=1000,
        layers=2,
        hidden_size=8,
        vocab_size=256,
        vocab_hash="v",
        weights_digest="w",
        dtype="float32",
        max_model_len=512,
    )


def replica(name: str, role: str, model: str) -> ReplicaCard:
    """A replica card."""
    return ReplicaCard(replica=name, role=role, pool="p", model=card(model))  # type: ignore[arg-type]  # a word


class FakeBackend:
    """Serves MODEL. Set `before`, `after` or `hang` to break a reply before, after or in the middle of its text."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what happened and what was set."""
        self.requests: list[GenerateRequest] = []
        self.closed = 0
        self.before: Exception | None = None
        self.after: Exception | None = None
        self.hang_before = False
        self.hang = False
        self.reason: FinishReason | None = None
        self.state = "ready"
        self.logprob = -0.5
        self.fail_prompt: str | None = None

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """The script, cut by max_tokens and stops, for each choice; odd choices answer in capitals."""
        self.requests.append(request)
        try:
            if self.hang_before:
                await asyncio.Event().wait()
            if self.before is not None:
                raise self.before
            if self.fail_prompt is not None and request.text == self.fail_prompt:
                raise RequestError("this prompt is too long", param="prompt")
            if request.model != MODEL:
                raise ModelNotFound(f"there is no model {request.model!r}")
            async for event in self._events(request):
                yield event
        finally:
            self.closed += 1

    async def _events(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        prompt = request.text or "".join(chr(t) for t in request.tokens or ()) or "chat"
        yield Started(
            request_id=request.request_id,
            model=request.model,
            seed=SEED if request.sampling.seed is None else request.sampling.seed,
            prompt_tokens=len(prompt),
            cached_tokens=1,
            prompt_text=prompt if request.echo else "",
            prompt_logprobs=self._prompt_logprobs(prompt, request),
        )
        limit = len(SCRIPT_BYTES) if request.max_tokens is None else min(request.max_tokens, len(SCRIPT_BYTES))
        ends: dict[int, tuple[int, str | None]] = {}
        for first in range(0, limit, COMMIT):
            for choice in range(request.n):
                if choice not in ends:
                    last = min(first + COMMIT, limit)
                    shown, stop = self._cut(request, first, last, choice)
                    yield Chunk(
                        choice=choice,
                        tokens=tuple(SCRIPT_BYTES[first:last]),
                        text=shown,
                        logprobs=self._logprobs(first, last, request),
                    )
                    if stop is not None:
                        ends[choice] = (last, stop)
            await asyncio.sleep(0)
            if self.hang:
                await asyncio.Event().wait()
            if self.after is not None:
                raise self.after
        for choice in range(request.n):
            count, stop = ends.get(choice, (limit, None))
            yield self._end(choice, count, stop, limit)
        yield Finished(
            prompt_tokens=len(prompt),
            completion_tokens=sum(ends.get(choice, (limit, None))[0] for choice in range(request.n)),
            cached_tokens=1,
        )

    def _cut(self, request: GenerateRequest, first: int, last: int, choice: int) -> tuple[str, str | None]:
        """Text that became complete in this commit, and the stop string that ended the choice."""
        before, after = text_of(first), text_of(last)
        found = [(at, stop) for stop in request.stop if (at := SCRIPT.find(stop)) >= 0]
        edge, stop = min(found, default=(len(SCRIPT), ""))
        ended = stop if stop and edge + len(stop) <= len(after) else None
        return self._voice(after[:edge][len(before) :], choice), ended

    @staticmethod
    def _voice(text: str, choice: int) -> str:
        return text.upper() if choice % 2 else text

    def _end(self, choice: int, count: int, stop: str | None, limit: int) -> ChoiceFinished:
        whole = count == len(SCRIPT_BYTES)
        stats = SpeculationStats(
            rounds=5, num_drafts=4, num_draft_tokens=16, num_accepted_tokens=6, accepted_per_pos=[3, 2, 1],
            accepted_prediction_tokens=3, rejected_prediction_tokens=2,
        )  # fmt: skip
        return ChoiceFinished(
            choice=choice,
            reason=self.reason or ("stop" if stop is not None or whole else "length"),
            stop_reason=stop,
            completion_tokens=count,
            stats=stats,
        )

    def _logprobs(self, first: int, last: int, request: GenerateRequest) -> tuple[TokenLogprob, ...]:
        if request.logprobs is None:
            return ()
        return tuple(self._one(byte, request.logprobs) for byte in SCRIPT_BYTES[first:last])

    def _one(self, byte: int, k: int) -> TokenLogprob:
        raw = bytes([byte])
        top = tuple(TokenLogprob(i, chr(97 + i), bytes([97 + i]), -1.0 - i) for i in range(k))
        return TokenLogprob(byte, raw.decode(errors="replace"), raw, self.logprob, top)

    def _prompt_logprobs(self, prompt: str, request: GenerateRequest) -> tuple[TokenLogprob, ...]:
        if request.logprobs is None or not request.echo:
            return ()
        first = TokenLogprob(ord(prompt[0]), prompt[0], prompt[0].encode(), None)
        return (first, *(self._one(ord(c), request.logprobs) for c in prompt[1:]))

    async def models(self) -> Sequence[ModelStatus]:
        """One model with one target and one draft, and one that nobody serves."""
        target, draft = replica("t1", "target", MODEL), replica("d1", "draft", "small")
        up = ModelStatus(
            name=MODEL,
            replicas=(target,),
            loads=(Load(running=1, drafts=("d1",)),),
            drafts=(draft,),
            state=self.state,
            created=7,
        )
        down = ModelStatus(name="org/gone", replicas=(), loads=(), drafts=(), state="unavailable")
        return [up, down]

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """One token per byte."""
        return tuple(text.encode())

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        """The bytes as text."""
        return bytes(tokens).decode(errors="replace")
