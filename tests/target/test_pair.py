"""Target and draft loops together, against the oracle: same output whatever the draft does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch
from tests.oracle import Asked, Oracle
from tests.pairs import EOS, VOCAB, Pair, ask, write_pair

from specgrove.core.request import GenerateRequest, Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.core.speculate import DraftPlan

PLAN = DraftPlan(branching=(3, 2, 1, 1), max_nodes=12)
PROMPTS = ["The cat", "Numbers: 1 2 3", "zzz", "a b a b a b", "Once upon a time there was", "x = (1 + 2) *"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and a fair draft."""
    return write_pair(tmp_path_factory.mktemp("pair"), likeness=0.85)


@pytest.fixture(scope="module")
def oracle(models: tuple[Path, Path]) -> Oracle:
    """The oracle of the target."""
    return Oracle(models[0], vocab_size=VOCAB)


@pytest.fixture
async def pair(models: tuple[Path, Path]) -> AsyncIterator[Pair]:
    """A connected pair; its books are checked at the end."""
    made = Pair(models[0], plan=PLAN)
    made.join(models[1])
    yield made
    await made.settle()
    made.stop()


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_speculative_text_is_the_oracles(pair: Pair, oracle: Oracle, temperature: float):
    """Several sessions at once, greedy and seeded; trees are really used."""
    sampling = SamplingFields(temperature=temperature, seed=11)
    answers = await asyncio.gather(*(ask(pair.target, text=p, sampling=sampling, max_tokens=40) for p in PROMPTS))

    drafted = accepted = 0
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        tokens = list(pair.target.engine.codec.encode(prompt))
        asked = Asked(temperature=temperature, seed=11)
        assert [d for d in oracle.differences(tokens, answer.tokens[0], asked) if not d.near_tie] == []
        drafted += answer.ends[0].stats.num_drafts
        accepted += answer.ends[0].stats.num_accepted_tokens
    assert drafted > 20
    assert accepted > drafted / 2


async def test_the_oracle_rejects_another_text(pair: Pair, oracle: Oracle):
    """Negative control: one changed token, another seed, another choice or temperature is found."""
    answer = await ask(pair.target, text="The cat", sampling=SamplingFields(temperature=1.0, seed=3), max_tokens=30)
    tokens = list(pair.target.engine.codec.encode("The cat"))
    output = answer.tokens[0]
    changed = [*output[:9], (output[9] + 1) % EOS, *output[10:]]

    assert oracle.differences(tokens, output, Asked(temperature=1.0, seed=3)) == []
    assert oracle.differences(tokens, changed, Asked(temperature=1.0, seed=3))
    assert oracle.differences(tokens, output, Asked(temperature=1.0, seed=4))
    assert oracle.differences(tokens, output, Asked(temperature=1.0, seed=3, choice=1))
    assert oracle.differences(tokens, output, Asked(temperature=0.7, seed=3))
    assert oracle.continuation(tokens, 12, Asked(temperature=1.0, seed=3)) == output[:12]


async def test_choices_differ_and_are_each_the_oracles(pair: Pair, oracle: Oracle):
    """n = 3 is a fork with choice index; the prompt's KV is shared."""
    answer = await ask(
        pair.target, text=PROMPTS[4], n=3, sampling=SamplingFields(temperature=1.0, seed=5), max_tokens=30
    )
    tokens = list(pair.target.engine.codec.encode(PROMPTS[4]))

    assert len({tuple(t) for t in answer.tokens.values()}) == 3
    for choice, output in answer.tokens.items():
        assert oracle.differences(tokens, output, Asked(temperature=1.0, seed=5, choice=choice)) == []


async def test_penalties_and_filters_use_each_nodes_ancestors(pair: Pair, oracle: Oracle):
    """Penalties and filters at every position of accepted runs are the oracle's."""
    sampling = SamplingFields(
        temperature=0.8,
        top_p=0.9,
        top_k=40,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=0.3,
        seed=9,
    )
    asked = Asked(
        temperature=0.8,
        top_p=0.9,
        top_k=40,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=0.3,
        seed=9,
    )
    for prompt in PROMPTS:
        answer = await ask(pair.target, text=prompt, sampling=sampling, max_tokens=30)
        tokens = list(pair.target.engine.codec.encode(prompt))
        assert oracle.differences(tokens, answer.tokens[0], asked) == []


async def test_off_and_auto_give_the_same_text(pair: Pair):
    """Speculation off carries no tree and emits the same tokens; the request's limits on trees hold."""
    sampling = SamplingFields(temperature=1.0, seed=21)
    auto = await ask(pair.target, text="abc", sampling=sampling, max_tokens=40)
    off = await ask(pair.target, text="abc", sampling=sampling, max_tokens=40, speculation=Speculation(mode="off"))
    small = await ask(
        pair.target,
        text="abc",
        sampling=sampling,
        max_tokens=40,
        speculation=Speculation(max_nodes=2, max_depth=2),
        trace=True,
    )

    assert auto.tokens == off.tokens == small.tokens
    assert off.ends[0].stats.num_drafts == 0
    trees = [chunk.trace.tree for chunk in small.chunks if chunk.trace is not None and len(chunk.trace.tree)]
    assert trees
    assert max(len(tree) for tree in trees) <= 2


async def test_stop_strings_inside_accepted_runs(pair: Pair):
    """A stop string ends the text exactly before it, wherever the rounds were cut."""
    free = await ask(pair.target, text="stop here", max_tokens=60)
    whole = free.text[0]
    for at in (5, 11, 20):
        stop = whole[at : at + 3]
        answer = await ask(pair.target, text="stop here", max_tokens=60, stop=(stop,))
        assert answer.text[0] == whole[: whole.index(stop)]
        assert answer.ends[0].stop_reason == stop


@pytest.mark.parametrize("likeness", [0.0, 1.0])
async def test_any_draft_gives_the_same_text(models: tuple[Path, Path], tmp_path: Path, likeness: float):
    """A useless draft costs rounds, a perfect one saves them; neither changes a token."""
    target, draft = write_pair(tmp_path, likeness=likeness)
    pair = Pair(target, plan=PLAN)
    plain = await ask(pair.target, text="hello", max_tokens=150, ignore_eos=True)
    pair.join(draft)
    answer = await ask(pair.target, text="hello", max_tokens=150, ignore_eos=True)
    await pair.settle()
    pair.stop()

    assert answer.tokens == plain.tokens
    stats = answer.ends[0].stats
    mean_accepted = stats.num_accepted_tokens / stats.num_drafts
    assert mean_accepted > 3 if likeness == 1.0 else mean_accepted < 1


async def test_kills_cost_time_not_tokens(pair: Pair, oracle: Oracle):
    """The draft is cut off and connected again at random moments; every text stays the oracle's."""
    rng = random.Random(0)
    running = asyncio.ensure_future(
        asyncio.gather(
            *(
                ask(
                    pair.target,
                    text=p,
                    sampling=SamplingFields(temperature=1.0, seed=i),
                    max_tokens=150,
                    ignore_eos=True,
                )
                for i, p in enumerate(PROMPTS)
            )
        )
    )
    kills = 0
    while not running.done():
        await asyncio.sleep(rng.uniform(0.005, 0.05))
        replica = pair.kill("d")
        kills += 1
        await asyncio.sleep(rng.uniform(0, 0.02))
        pair.connect(replica, "d")
    for i, (prompt, answer) in enumerate(zip(PROMPTS, await running, strict=True)):
        tokens = list(pair.target.engine.codec.encode(prompt))
        assert oracle.differences(tokens, answer.tokens[0], Asked(temperature=1.0, seed=i)) == []
    assert kills >= 5


async def test_a_full_pool_preempts_and_changes_nothing(models: tuple[Path, Path], oracle: Oracle):
    """More sessions than the KV budget holds: the younger ones are computed again, texts stay the same."""
    pair = Pair(models[0], plan=PLAN, kv_slots=300)
    pair.join(models[1])
    answers = await asyncio.gather(*(ask(pair.target, text=p, max_tokens=100, ignore_eos=True) for p in PROMPTS))
    await pair.settle()
    pair.stop()
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        tokens = list(pair.target.engine.codec.encode(prompt))
        assert len(answer.tokens[0]) == 100
        assert [d for d in oracle.differences(tokens, answer.tokens[0], Asked()) if not d.near_tie] == []


async def test_cancelled_requests_free_everything(pair: Pair):
    """Closing the iterator after any number of events leaves no session and no KV behind."""
    for events in (1, 2, 5):
        stream = pair.target.generate(
            GenerateRequest(request_id="r", model="m", text="cancel me", max_tokens=200, ignore_eos=True)
        )
        for _ in range(events):
            await anext(stream)
        await stream.aclose()
    await pair.settle()


async def test_logprobs_and_echo(pair: Pair, oracle: Oracle):
    """Log-probabilities are raw and belong to the emitted tokens; echo scores the prompt."""
    answer = await ask(
        pair.target,
        text="score me",
        max_tokens=8,
        logprobs=2,
        echo=True,
        ignore_eos=True,
        sampling=SamplingFields(temperature=0.5, seed=1),
    )
    tokens = [*pair.target.engine.codec.encode("score me"), *answer.tokens[0]]
    with torch.inference_mode():
        rows = oracle.model(torch.tensor([tokens]), use_cache=False).logits[0, :, :VOCAB].log_softmax(-1)
    entries = [*answer.started.prompt_logprobs, *(lp for chunk in answer.chunks for lp in chunk.logprobs)]

    assert [entry.token for entry in entries] == tokens
    assert entries[0].logprob is None
    for i, entry in enumerate(entries[1:]):
        assert entry.logprob == pytest.approx(float(rows[i, entry.token]), abs=1e-4)
        assert [alternative.token for alternative in entry.top] == rows[i].topk(2).indices.tolist()
    assert answer.started.prompt_text == "score me"


@pytest.mark.parametrize("max_tokens", [0, 1, 2])
async def test_tiny_limits(pair: Pair, max_tokens: int):
    """0 evaluates the prompt only, 1 emits one token; both end with `length`."""
    answer = await ask(pair.target, text="tiny", max_tokens=max_tokens, ignore_eos=True)

    assert len(answer.tokens[0]) == max_tokens
    assert answer.ends[0].reason == "length"
    assert answer.finished.completion_tokens == max_tokens
