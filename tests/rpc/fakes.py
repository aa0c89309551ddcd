"""Stand-ins for what lies behind the servers: a backend, a hub, a sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from specgrove.core.cards import Load, ModelCard, ReplicaCard, Role
from specgrove.core.protocols import ModelStatus
from specgrove.core.request import (
    ChoiceFinished,
    Chunk,
    Finished,
    GenerateEvent,
    GenerateRequest,
    SpeculationStats,
    Started,
)
from specgrove.core.speculate import DraftMessage, Update
from specgrove.errors import ModelNotFound, Unauthenticated

MODEL = ModelCard(
    name="m", architecture="LlamaForCausalLM", parameters=10, layers=2, hidden_size=4, vocab_size=100, vocab_hash="ab",
    weights_digest="cd", dtype="float32", max_model_len=64, exits=(1, 2), trained_on="words", scores={"loss": 1.25},
)  # fmt: skip
TOKEN = "cluster token"
SESSION = b"s" * 16


def card(replica: str, role: Role) -> ReplicaCard:
    """A card of the one model."""
    return ReplicaCard(replica=replica, role=role, pool="pool", model=MODEL, served_names=("m",), draft_pools=("d",))


STATUS = ModelStatus(
    name="m",
    replicas=(card("t0", "target"),),
    loads=(Load(running=2, queued_tokens=2**40, draining=True, drafts=("d0",)),),
    drafts=(card("d0", "draft"),),
    state="ready",
    created=1_700_000_000,
)


class FakeBackend:
    """Counts up in tokens; `fail` is raised after `fail_after` chunks."""

    def __init__(self, *, fail: BaseException | None = None, fail_after: int = 0, pause_s: float = 0.0) -> None:
        self.fail, self.fail_after, self.pause_s = fail, fail_after, pause_s
        self.requests: list[GenerateRequest] = []
        self.sent = 0
        self.closed = asyncio.Event()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        self.requests.append(request)
        count = 4 if request.max_tokens is None else request.max_tokens
        try:
            if self.fail is not None and self.fail_after < 0:
                raise self.fail
            yield Started(request_id=request.request_id, model=request.model, seed=2**64 - 1, prompt_tokens=3)
            for i in range(count):
                if self.fail is not None and i == self.fail_after:
                    raise self.fail
                self.sent += 1
                yield Chunk(choice=0, tokens=(i,), text=f"{i} ")
                await asyncio.sleep(self.pause_s)
            stats = SpeculationStats(rounds=count, num_drafts=1, accepted_per_pos=[1, 0])
            yield ChoiceFinished(choice=0, reason="length", completion_tokens=count, stats=stats)
            yield Finished(prompt_tokens=3, completion_tokens=count)
        finally:
            self.closed.set()

    async def models(self) -> Sequence[ModelStatus]:
        return [STATUS]

    async def tokenize(self, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        if model != "m":
            raise ModelNotFound(f"no model {model!r} here", param="model")
        return ((1,) if add_special_tokens else ()) + tuple(text.encode())

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode()


class FakeHub:
    """Keeps what drafts send; `welcome` is sent to each right when it attaches."""

    def __init__(self, *, welcome: Sequence[Update] = ()) -> None:
        self.welcome = welcome
        self.cards: list[ReplicaCard] = []
        self.messages: list[DraftMessage] = []
        self.send: Callable[[Sequence[Update]], None] = lambda updates: None
        self.attached, self.gone, self.came = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def attach(self, card: ReplicaCard, token: str, send: Callable[[Sequence[Update]], None]) -> FakeHub:
        if token != TOKEN:
            raise Unauthenticated("wrong cluster token")
        self.cards.append(card)
        self.send = send
        send(self.welcome)
        self.attached.set()
        return self

    def received(self, messages: Sequence[DraftMessage]) -> None:
        self.messages.extend(messages)
        self.came.set()

    def lost(self) -> None:
        self.gone.set()


class FakeSink:
    """Keeps what targets send."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.batches: list[int] = []
        self.send: Callable[[Sequence[DraftMessage]], None] = lambda messages: None
        self.target: ReplicaCard | None = None
        self.linked, self.gone, self.came = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def connected(self, target: ReplicaCard, send: Callable[[Sequence[DraftMessage]], None]) -> None:
        self.target, self.send = target, send
        self.linked.set()

    def received(self, target: str, updates: Sequence[Update]) -> None:
        self.updates.extend(updates)
        self.batches.append(len(updates))
        self.came.set()

    def lost(self, target: str) -> None:
        self.gone.set()


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait until the condition holds; fails when it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)
