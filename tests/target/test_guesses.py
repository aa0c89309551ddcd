"""What a target guesses by itself: right or wrong, the text is the oracle's; good guesses save steps."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.oracle import Asked, Oracle
from tests.pairs import VOCAB, Pair, ask, write_pair

from specgrove.core.request import Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.core.speculate import DraftPlan
from specgrove.errors import RequestError
from specgrove.target.guesses import Chances, Guesses, LookupOptions

PROMPT = "one two three one two three one two"
CEILING = DraftPlan(branching=(3, 1, 1), max_nodes=9)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and a fair draft."""
    return write_pair(tmp_path_factory.mktemp("pair"), likeness=0.85)


@pytest.fixture(scope="module")
def oracle(models: tuple[Path, Path]) -> Oracle:
    """The oracle of the target."""
    return Oracle(models[0], vocab_size=VOCAB)


def letters(pair: Pair) -> SamplingFields:
    """Greedy, and nothing but letters and spaces, so that the answer is a text that can be predicted."""
    ids = pair.target.engine.codec.encode("abcdefghijklmnopqrstuvwxyz ")
    return SamplingFields(temperature=0.0, allowed_token_ids=tuple(ids))


def differences(oracle, pair, answer, **asked):
    """Real ones."""
    tokens = list(pair.target.engine.codec.encode(PROMPT))
    return [d for d in oracle.differences(tokens, answer.tokens[0], Asked(**asked)) if not d.near_tie]


async def test_predictions_are_counted(models):
    """A right one saves steps and a half right one some; the text is the same, and the counts tell which was which."""
    pair = Pair(models[0], plan=None)
    sampling = letters(pair)
    alone = await ask(pair.target, text=PROMPT, max_tokens=60, sampling=sampling)
    right = alone.text[0]
    half = right[:30] + "".join("x" if c != "x" else "y" for c in right[30:])
    found = {}
    for prediction in (right, half, "zz" + right[::-1]):
        answer = await ask(pair.target, text=PROMPT, max_tokens=60, sampling=sampling, prediction=prediction)
        assert answer.tokens == alone.tokens
        found[prediction] = answer.ends[0].stats
    await pair.settle()
    pair.stop()

    assert found[right].rounds < 6
    assert found[right].accepted_prediction_tokens == found[right].num_accepted_tokens > 50
    assert found[right].rejected_prediction_tokens == 0
    assert found[half].accepted_prediction_tokens >= 25
    assert found[half].rejected_prediction_tokens > 0
    assert found[right].rounds < found[half].rounds < alone.ends[0].stats.rounds


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("draft", [False, True])
async def test_wrong_guesses_change_nothing(models, oracle, temperature, draft):
    """Lookups in a text that repeats itself and a prediction of something else, alone and beside a draft's trees."""
    pair = Pair(models[0], plan=CEILING if draft else None, lookup=LookupOptions())
    if draft:
        pair.join(models[1])
    bias = dict.fromkeys(pair.target.engine.codec.encode("one"), 40.0)  # so few tokens that pairs of them come again
    sampling = SamplingFields(temperature=temperature, seed=3, logit_bias=bias)
    wrong = "one two three, and then something else entirely"
    answers = await asyncio.gather(
        *(ask(pair.target, text=PROMPT, sampling=sampling, max_tokens=60, prediction=p) for p in (None, wrong))
    )
    await pair.settle()
    pair.stop()

    for answer in answers:
        assert differences(oracle, pair, answer, temperature=temperature, seed=3, logit_bias=bias) == []
        assert answer.ends[0].stats.num_draft_tokens > 0


async def test_repetition_is_found(models):
    """A loop of greedy text is guessed from the text itself."""
    pair = Pair(models[0], plan=None, lookup=LookupOptions())
    answer = await ask(
        pair.target, text=PROMPT, max_tokens=150, sampling=SamplingFields(temperature=0.0, logit_bias={120: 50.0})
    )
    pair.stop()

    assert set(answer.tokens[0][5:]) == {120}
    assert answer.ends[0].stats.rounds < 40


async def test_limits_and_off_are_kept(models):
    """Small trees stay small with guesses in them, and off is off."""
    pair = Pair(models[0], plan=None, lookup=LookupOptions())
    small, none = await asyncio.gather(
        ask(pair.target, text=PROMPT, max_tokens=50, speculation=Speculation(max_nodes=2), trace=True),
        ask(pair.target, text=PROMPT, max_tokens=50, speculation=Speculation(mode="off"), prediction=PROMPT),
    )
    pair.stop()

    assert max(len(chunk.trace.tree) for chunk in small.chunks if chunk.trace is not None) <= 2
    assert none.ends[0].stats.num_draft_tokens == 0


async def test_a_prediction_that_is_no_text_is_refused(models):
    """By name."""
    pair = Pair(models[0], plan=None)
    with pytest.raises(RequestError, match="surrogate") as caught:
        await ask(pair.target, text=PROMPT, max_tokens=5, prediction="\ud800")
    pair.stop()

    assert caught.value.param == "prediction"


def test_the_client_knows_best():
    """Its prediction is asked before the text; the text where the prediction is left."""
    guesses = Guesses([1, 2, 3, 1, 2], lookup=LookupOptions(), prediction=[7, 8, 9])
    assert guesses.guess(2) == ((7, 8), "prediction")

    guesses.extend([3])
    assert guesses.guess(2) == ((1, 2), "lookup 3")
    assert Guesses([1, 2, 3], lookup=None).guess(4) == ((), "")


def test_chances_follow_what_happened():
    """From hope to what is seen, and back."""
    chances = Chances()
    hope = chances.of("lookup 2")
    for _ in range(30):
        chances.observe("lookup 2", 4, 0)
    assert chances.of("lookup 2") < hope / 3

    for _ in range(60):
        chances.observe("lookup 2", 4, 4)
    assert chances.of("lookup 2") > 0.9
    assert chances.of("prediction") == pytest.approx(0.9)
