"""Draft-ahead: what is grown while a tree is verified is the beginning of the next one, and changes no output."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.oracle import Asked, Oracle
from tests.pairs import VOCAB, Pair, Silent, ask, write_pair

from specgrove.core.prefix import PrefixHash
from specgrove.core.sampling import SamplingFields
from specgrove.core.speculate import Committed, DraftPlan, Opened
from specgrove.core.tree import TokenTree
from specgrove.draft import propose_loop
from specgrove.drafters import start
from specgrove.drafters.growth import Children
from specgrove.engine.loader import EngineOptions, load

PROMPTS = ["The cat", "Numbers: 1 2 3", "zzz", "a b a b a b"]
PLAN = DraftPlan(branching=(2, 1, 1), max_nodes=6)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and a draft that is mostly right, so that whole trees are accepted."""
    return write_pair(tmp_path_factory.mktemp("pair"), likeness=0.98)


def grown(plan, levels):
    """A growth after so many levels of a draft that offers tokens 10, 11, … at every node."""
    growth = start(plan)
    for _ in range(levels):
        growth.extend([Children([10, 11, 12, 13], [0.0, -1.0, -2.0, -3.0])] * len(growth.frontier))
    return growth


def test_a_finished_tree_is_grown_on_below_its_best_leaves():
    """Chains below two of the leaves; the plan's own nodes stay what they are."""
    growth = grown(PLAN, 3)
    before = growth.tree()
    assert growth.frontier == []

    growth.deepen(2)
    assert [growth.depths[node] for node in growth.frontier] == [3, 3]
    growth.extend([Children([10], [0.0])] * 2)
    growth.extend([Children([10], [0.0])] * 2)

    assert growth.frontier == []
    assert growth.tree().depth == 5
    assert growth.tree().trim(max_nodes=6, max_depth=3) == before


def test_a_new_root_keeps_what_is_below_it_and_goes_on():
    """Depths and parents count from there; the frontier is what was not run yet."""
    growth = grown(PLAN, 3)
    growth.deepen(2)
    growth.extend([Children([10], [0.0])] * 2)
    leaf = growth.tree().follow([10, 10, 10])[-1]
    renamed = growth.reroot(leaf)

    assert growth.tree() == TokenTree((10,), (-1,))
    assert list(renamed.values()) == [0]
    assert growth.frontier == [0]
    while growth.frontier:
        growth.extend([Children([10, 11], [0.0, -1.0])] * len(growth.frontier))
    assert growth.tree().depth == 3


def test_a_root_in_the_middle():
    """Siblings of the path are gone, its other children stay, elder first."""
    growth = grown(DraftPlan(branching=(2, 2, 2), max_nodes=14), 3)
    node = growth.tree().follow([11])[-1]
    growth.reroot(node)

    assert growth.tree() == TokenTree((10, 11, 10, 11, 10, 11), (-1, -1, 0, 0, 1, 1))


def slow(pair: Pair) -> None:
    """A target that takes long enough for its draft to grow ahead."""
    forward = pair.target.engine.forward

    def later(segments):
        time.sleep(0.015)
        return forward(segments)

    pair.target.engine.forward = later  # type: ignore[method-assign]  # replaced on purpose: a slow device


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("plan", [PLAN, DraftPlan(method="chain", branching=(1, 1))], ids=["tree", "chain"])
async def test_text_is_the_oracles_and_passes_are_saved(models, monkeypatch, temperature, plan):
    """With trees that begin with what was grown ahead: same text, as many tokens a round, fewer passes owed."""
    oracle = Oracle(models[0], vocab_size=VOCAB)
    sampling = SamplingFields(temperature=temperature, seed=5)
    owed: dict[int, int] = {}
    rounds: dict[int, float] = {}
    real = propose_loop.ProposeLoop.step
    for ahead in (0, 3):
        counted = 0

        def step(self, out, real=real):
            nonlocal counted
            counted += any(session.owes for session in self.sessions.values())
            real(self, out)

        monkeypatch.setattr(propose_loop.ProposeLoop, "step", step)
        pair = Pair(models[0], plan=plan, ahead=ahead)
        slow(pair)
        pair.join(models[1])
        answers = []
        for prompt in PROMPTS:
            answers.append(await ask(pair.target, text=prompt, sampling=sampling, max_tokens=60))
        together = await asyncio.gather(*(ask(pair.target, text=p, sampling=sampling, max_tokens=40) for p in PROMPTS))
        await pair.settle()
        pair.stop()

        for prompt, answer in zip(PROMPTS * 2, [*answers, *together], strict=True):
            tokens = list(pair.target.engine.codec.encode(prompt))
            found = oracle.differences(tokens, answer.tokens[0], Asked(temperature=temperature, seed=5))
            assert [d for d in found if not d.near_tie] == []
        assert set(pair.observer.refused) <= {"stale", "closed"}
        owed[ahead] = counted
        rounds[ahead] = sum(len(a.tokens[0]) for a in answers) / sum(a.ends[0].stats.rounds for a in answers)

    assert rounds[3] > 0.9 * rounds[0]
    assert owed[3] < 0.8 * owed[0]


def test_a_draft_that_outruns_its_target_does_not_grow_for_ever(models):
    """One token a round is committed, three levels a round could be grown ahead: the depth stays within the plan's."""
    engine = load(str(models[1]), EngineOptions(dtype="float32", threads=1, kv_slots=4096))
    plan = DraftPlan(branching=(1, 1, 1), max_nodes=3, ahead=3)
    prompt = engine.codec.encode("zzz")
    prefix = PrefixHash(prompt)
    loop, out = propose_loop.ProposeLoop(engine, max_batched_tokens=64, observer=Silent()), propose_loop.Outbox()
    loop.apply("t", [Opened(session=b"s", epoch=1, seq=0, tokens=prompt, plan=plan)], out)
    [session] = loop.sessions.values()
    depths = []
    for seq in range(1, 13):
        for _ in range(8):
            loop.step(out)
        assert session.growth is not None
        depths.append(max(session.growth.depths))
        token = session.growth.tree().tokens[0]
        prefix.extend([token])
        length = len(session.tokens) + 1
        commit = Committed(session=b"s", epoch=1, seq=seq, tokens=(token,), length=length, prefix_hash=prefix.value)
        loop.apply("t", [commit], out)

    assert max(depths) == 6
