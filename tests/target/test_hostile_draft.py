"""A hostile draft on a real Speculate stream: everything it sends is dropped and counted, nothing is disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from tests.pairs import VOCAB, Pair, ask, write_pair

from specgrove.core.cards import ReplicaCard
from specgrove.core.speculate import DraftPlan
from specgrove.rpc import codec
from specgrove.rpc.servers import SpeculateServer
from specgrove.v1 import speculation_pb2 as pb
from specgrove.v1.speculation_pb2_grpc import SpeculationServiceStub

PLAN = DraftPlan(branching=(2, 2), max_nodes=4)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target; its own card makes the draft's."""
    return write_pair(tmp_path_factory.mktemp("hostile"), likeness=1.0)


@pytest.fixture
async def pair(models: tuple[Path, Path]) -> AsyncIterator[Pair]:
    """A target without honest drafts."""
    made = Pair(models[0], plan=PLAN)
    yield made
    await made.settle()
    made.stop()


def hello(pair: Pair, token: str = "secret", **changes: object) -> pb.SpeculateRequest:
    """A greeting that the target accepts, unless changed."""
    fields = {"replica": "evil", "role": "draft", "pool": "p", "model": pair.target.engine.card} | changes
    return codec.encode_hello(ReplicaCard(**fields), token)  # type: ignore[arg-type]


Lie = Callable[[pb.DraftTree], None]


@dataclass(frozen=True)
class Attack:
    """What a hostile draft answers to every commit, and how it is counted."""

    name: str
    lie: Lie
    reason: str


def tree(tokens: list[int], parents: list[int]) -> Lie:
    """Answer with this tree."""

    def lie(message: pb.DraftTree) -> None:
        message.tree.tokens.extend(tokens)
        message.tree.parents.extend(parents)

    return lie


def wrong_hash(message: pb.DraftTree) -> None:
    """A good tree for another text."""
    tree([1], [-1])(message)
    message.prefix_hash ^= 1


def wrong_session(message: pb.DraftTree) -> None:
    """A tree for a session that is not there."""
    tree([1], [-1])(message)
    message.session = b"x" * 16


ATTACKS = (
    Attack("cycle", tree([1, 2], [1, 0]), "bad_tree"),
    Attack("own parent", tree([1], [0]), "bad_tree"),
    Attack("parent out of range", tree([1, 2], [-1, 7]), "bad_tree"),
    Attack("parent far below the root", tree([1], [-2]), "bad_tree"),
    Attack("unequal lengths", tree([1, 2], [-1]), "bad_tree"),
    Attack("duplicate sibling", tree([1, 1], [-1, -1]), "bad_tree"),
    Attack("token out of range", tree([VOCAB], [-1]), "bad_tree"),
    Attack("negative token", tree([-5], [-1]), "bad_tree"),
    Attack("too deep", tree([1, 2, 3], [-1, 0, 1]), "bad_tree"),
    Attack("too many nodes", tree(list(range(200)), [-1] * 200), "bad_tree"),
    Attack("wrong hash", wrong_hash, "stale"),
    Attack("unknown session", wrong_session, "closed"),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_lies_are_dropped_and_counted(pair: Pair, attack: Attack):
    """The request's text is the plain one, the stream lives on, and every lie is counted under its reason."""
    plain = await ask(pair.target, text="truth", max_tokens=24, ignore_eos=True)
    server = SpeculateServer(pair.target, pair.target.options.card)
    address = await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        stream = SpeculationServiceStub(channel).Speculate()
        await stream.write(hello(pair))
        welcome = await stream.read()
        liar = asyncio.create_task(lie_to_everything(stream, attack.lie))
        answer = await ask(pair.target, text="truth", max_tokens=24, ignore_eos=True)
        assert not liar.done(), "the stream of the hostile draft ended"
        liar.cancel()
    await server.stop(0)

    assert welcome.WhichOneof("content") == "welcome"
    assert answer.tokens == plain.tokens
    assert answer.ends[0].stats.num_drafts == 0
    assert set(pair.observer.refused) - {"lost"} == {attack.reason}


async def lie_to_everything(stream: grpc.aio.StreamStreamCall, lie: Lie) -> None:
    """Answer every commit with a lie about it."""
    epochs: dict[bytes, int] = {}
    while True:
        message = await stream.read()
        reply = pb.SpeculateRequest()
        for update in message.batch.updates:
            kind = update.WhichOneof("update")
            epochs[getattr(update, kind).session] = getattr(update, kind).epoch
            if kind == "committed":
                answer = reply.batch.messages.add().tree
                answer.session, answer.epoch = update.committed.session, update.committed.epoch
                answer.base_length, answer.prefix_hash = update.committed.length, update.committed.prefix_hash
                lie(answer)
        if reply.batch.messages:
            await stream.write(reply)


async def read_to_the_end(stream: grpc.aio.StreamStreamCall) -> None:
    """Raises what the stream ended with."""
    while await stream.read() is not grpc.aio.EOF:
        pass


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"token": "guess"}, grpc.StatusCode.UNAUTHENTICATED),
        ({"protocol_version": 99}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"noise_version": 99}, grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_who_may_not_draft_is_refused(pair: Pair, changes: dict[str, object], status: grpc.StatusCode):
    """A wrong cluster token or version ends the stream with the reason; the target keeps no link."""
    server = SpeculateServer(pair.target, pair.target.options.card)
    address = await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        stream = SpeculationServiceStub(channel).Speculate()
        await stream.write(hello(pair, **changes))  # type: ignore[arg-type]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await read_to_the_end(stream)
    await server.stop(0)

    assert refused.value.code() is status
    assert pair.target.load().drafts == ()
