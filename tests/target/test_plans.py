"""Plans that change while sessions run: the output never does, and off means no draft work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from pathlib import Path

import numpy as np
import pytest
from tests.oracle import Asked as Question
from tests.oracle import Oracle
from tests.pairs import VOCAB, Pair, ask, write_pair

from specgrove.core.request import Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.core.speculate import DraftPlan
from specgrove.errors import RequestError
from specgrove.planning.drafting import Drafting
from specgrove.planning.latency import KNOTS, LatencyModel, Work
from specgrove.planning.planner import PLAIN, Alike, Asked, Planner

CEILING = DraftPlan(branching=(4,) * 6, max_nodes=24)
PROMPTS = ["The cat", "Numbers: 1 2 3", "zzz", "a b a b a b", "Once upon a time there was", "x = (1 + 2) *"]


def believing(*, step_s: float = 0.02, level_s: float = 1e-4) -> Planner:
    """A planner that starts from such costs; steps of these tiny models soon tell it better."""
    model = LatencyModel.fit([(Work(n), step_s) for n in (*KNOTS, *KNOTS)])
    return Planner(model, most_nodes=24, most_depth=6, drafting=Drafting({1: level_s}))


class Restless(Planner):
    """Asks for something else after every round."""

    def asked(self, alike: Alike, session: Hashable) -> Asked:
        """Anything, or nothing."""
        return random.choice((PLAIN, Asked(1, 1), Asked(2, 7), Asked(6, 24), Asked(4, 4)))


class Plain(Planner):
    """Never asks for anything, not even to probe."""

    def asked(self, alike: Alike, session: Hashable) -> Asked:
        """Nothing."""
        return PLAIN


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and a fair draft."""
    return write_pair(tmp_path_factory.mktemp("pair"), likeness=0.9)


@pytest.fixture(scope="module")
def oracle(models: tuple[Path, Path]) -> Oracle:
    """The oracle of the target."""
    return Oracle(models[0], vocab_size=VOCAB)


def of_kind(made: type[Planner]) -> Planner:
    """A planner of another class with the same beliefs."""
    usual = believing()
    return made(usual.latency, most_nodes=24, most_depth=6, drafting=usual.drafting)


@pytest.mark.parametrize("made", [Planner, Restless], ids=["planned", "restless"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_text_is_the_oracles_under_changing_plans(models, oracle, made, temperature):
    """Sessions of all kinds, trees on and off and of every size; nothing that the draft sends is called hostile."""
    pair = Pair(models[0], plan=CEILING, planner=of_kind(made))
    pair.join(models[1])
    sampling = SamplingFields(temperature=temperature, seed=5)
    answers = await asyncio.gather(*(ask(pair.target, text=p, sampling=sampling, max_tokens=48) for p in PROMPTS))
    await pair.settle()
    pair.stop()

    for prompt, answer in zip(PROMPTS, answers, strict=True):
        tokens = list(pair.target.engine.codec.encode(prompt))
        found = oracle.differences(tokens, answer.tokens[0], Question(temperature=temperature, seed=5))
        assert [d for d in found if not d.near_tie] == []
    assert sum(answer.ends[0].stats.num_accepted_tokens for answer in answers) > 20
    assert set(pair.observer.refused) <= {"stale", "closed"}


async def test_off_means_that_drafts_hear_nothing(models):
    """Not even of the prompt."""
    pair = Pair(models[0], plan=CEILING, planner=of_kind(Plain))
    pair.join(models[1])
    draft, _ = pair.drafts["d"]
    heard: list[object] = []
    draft.received = lambda _, updates: heard.extend(updates)  # type: ignore[method-assign]  # listens in its place
    answer = await ask(pair.target, text="The cat", max_tokens=20)
    await pair.settle()
    pair.stop()

    assert heard == []
    assert answer.ends[0].stats.num_drafts == 0


async def test_requests_keep_their_own_limits(models):
    """A request that wants small trees gets none larger, and one that wants none gets none."""
    pair = Pair(models[0], plan=CEILING, planner=of_kind(Restless))
    pair.join(models[1])
    small, none = await asyncio.gather(
        ask(pair.target, text="zzz", max_tokens=40, speculation=Speculation(max_nodes=3, max_depth=2), trace=True),
        ask(pair.target, text="zzz", max_tokens=40, speculation=Speculation(mode="off")),
    )
    await pair.settle()
    pair.stop()

    trees = [chunk.trace.tree for chunk in small.chunks if chunk.trace is not None]
    assert max(len(tree) for tree in trees) in (1, 2, 3)
    assert max(tree.depth for tree in trees) <= 2
    assert none.ends[0].stats.num_drafts == 0


async def test_a_request_can_ask_for_a_shape(models):
    """Whatever is planned: trees of that shape, by that method. The text is the same for all of them."""
    pair = Pair(models[0], plan=CEILING, planner=of_kind(Plain))
    pair.join(models[1])
    shapes = {"chain": (1, 1, 1), "tree": (3, 1), "contrary": (1, 1, 1)}
    answers = {
        method: await ask(
            pair.target, text="zzz", max_tokens=60, trace=True, speculation=Speculation(branching=shape, method=method)
        )
        for method, shape in shapes.items()
    }
    await pair.settle()
    pair.stop()

    assert len({tuple(answer.tokens[0]) for answer in answers.values()}) == 1
    stats = {method: answer.ends[0].stats for method, answer in answers.items()}
    for method, shape in shapes.items():
        trees = [chunk.trace.tree for chunk in answers[method].chunks if chunk.trace is not None]
        assert max(tree.depth for tree in trees) == len(shape)
        assert max(len(tree) for tree in trees) == (6 if method == "tree" else 3)
    rates = {method: one.num_accepted_tokens / one.num_drafts for method, one in stats.items()}
    assert rates["contrary"] < 0.5 * rates["chain"]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (Speculation(branching=(4,) * 4), "speculation.branching"),
        (Speculation(branching=(1,) * 7), "speculation.branching"),
        (Speculation(method="magic"), "speculation.method"),
        (Speculation(branching=(2, 1), method="chain"), "speculation.branching"),
        (Speculation(branching=(1, 1), mode="off"), "speculation.branching"),
        (Speculation(method="tree", mode="off"), "speculation.method"),
    ],
)
async def test_shapes_over_the_limits_are_refused(models, asked, param):
    """By name, with the limits."""
    pair = Pair(models[0], plan=CEILING, planner=of_kind(Plain))
    with pytest.raises(RequestError) as caught:
        await ask(pair.target, text="zzz", max_tokens=5, speculation=asked)
    pair.stop()

    assert caught.value.param == param


async def test_an_ended_text_refuses_nothing(models):
    """Where a text ends nobody has judged the next token, so the draft that is the target itself is never refused."""
    pair = Pair(models[0], plan=CEILING, planner=believing())
    pair.join(models[0])
    for _ in range(40):
        await ask(pair.target, text="The cat", max_tokens=12)
    await pair.settle()
    known = await pair.target.share([])
    pair.stop()

    hits, trials = (sum(np.array(counts[name])[:, 0] for counts in known.values()) for name in ("hits", "trials"))
    assert trials.sum() > 20
    assert hits.tolist() == trials.tolist()


async def test_every_draft_has_its_own_estimate(models, tmp_path):
    """What a bad one brings says nothing about a good one beside it, and each is counted under its own weights."""
    bad = write_pair(tmp_path, likeness=0.0, seed=3)[1]
    planner = of_kind(Restless)
    pair = Pair(models[0], plan=CEILING, planner=planner)
    pair.join(models[1], "good")
    pair.join(bad, "bad")
    digests = {name: replica.engine.card.weights_digest[:8] for name, (replica, _) in pair.drafts.items()}
    shares: dict[str, float] = {}
    for _ in range(20):  # a busy machine lets drafts miss their time
        await asyncio.gather(*(ask(pair.target, text=prompt, max_tokens=150, ignore_eos=True) for prompt in PROMPTS))
        await pair.settle()
        for name, digest in digests.items():
            counts = [one.to_mapping() for kind, one in planner._estimates.items() if kind.startswith(digest)]
            hits, trials = (sum(np.array(one[part]).sum() for one in counts) for part in ("hits", "trials"))
            shares |= {name: hits / trials} if trials > 5 else {}
        if len(shares) == 2:
            break
    pair.stop()

    assert shares["good"] > 2 * shares["bad"]


async def test_profiles_of_another_form_are_left_out(models):
    """By a replica of another version."""
    pair = Pair(models[0], plan=CEILING, planner=believing())
    known = await pair.target.share([{"greedy 0": {"hits": [[1.0]]}}, {"greedy 0": 5}, {"x": {"counts": 1}}])
    pair.stop()

    assert known == {}


async def test_only_measurements_may_ask_for_wrong_drafts(models):
    """Where the configuration does not allow it, the method is not known; nor is any where nobody drafts."""
    pair = Pair(models[0], plan=CEILING, contrary=False)
    alone = Pair(models[0], plan=None)
    for one, asked, words in (
        (pair, Speculation(method="contrary"), "no drafting method 'contrary'; known: chain, tree"),
        (alone, Speculation(branching=(1, 1)), "branching is set, but no draft serves this model"),
    ):
        with pytest.raises(RequestError, match=words):
            await ask(one.target, text="zzz", max_tokens=5, speculation=asked)
        one.stop()
