"""The records: the same for the same seed, disjoint by construction, and checked by checkers that can say no."""

from itertools import islice

import pytest

from specgrove.errors import ConfigError
from specgrove.training.checks import final_number, json_equal, numbered_members, numbers_in_order
from specgrove.training.records import KINDS, held_out, is_held_out, training


def test_held_out_is_deterministic_and_prefix_stable():
    """Parity runs name a seed and a count; a larger count must not change the first samples."""
    first, again = held_out(7, 30), held_out(7, 60)

    assert [s.messages for s in first] == [s.messages for s in again[:30]]
    assert [s.messages for s in first] != [s.messages for s in held_out(8, 30)]


def test_training_is_deterministic():
    """The same seed and part give the same stream."""
    one = [s.messages for s in islice(training(3, part=5), 50)]

    assert one == [s.messages for s in islice(training(3, part=5), 50)]
    assert one != [s.messages for s in islice(training(3, part=6), 50)]


def test_training_and_held_out_are_disjoint():
    """No held-out canonical form and no held-out question is ever trained on."""
    trained = list(islice(training(0), 5000))
    held = held_out(0, 300)

    assert not any(is_held_out(s.canonical) for s in trained)
    assert all(is_held_out(s.canonical) for s in held)
    trained_questions = {m["content"] for s in trained for m in s.messages if m["role"] == "user"}
    assert not trained_questions & {s.messages[-1]["content"] for s in held}


def test_every_kind_is_held_out():
    """As many as there are kinds, in a row, cover every kind."""
    assert {s.kind for s in held_out(0, len(KINDS))} == set(KINDS)


def test_reference_answers_pass_and_wrong_ones_fail():
    """Each checker takes its own reference, and refuses another sample's answer, a shortened one and nothing."""
    samples = held_out(2, 150)

    assert all(s.check(s.answer) for s in samples)
    for sample, other in zip(samples, samples[1:] + samples[:1], strict=True):
        assert not sample.check("")
        assert not sample.check(sample.answer[:-1])
        assert not sample.check(sample.answer + " and more")
        assert sample.answer.split()[-1] == other.answer.split()[-1] or not sample.check(other.answer)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (final_number(7), "3 + 4 = 7"),
        (final_number(7), "Answer: 77"),
        (final_number(7), "Answer: 7\nAnswer: 8"),
        (numbers_in_order([1, 2, 3]), "1, 3, 2"),
        (json_equal({"age": 3}), '{"age": "3"}'),
        (json_equal({"age": 3}), '{"age": 3, "age": 3}'),
        (json_equal({"age": 3}), "[]"),
        (json_equal({"age": 3}), "3"),
        (numbered_members(2, ["cat", "dog"]), "1. cat\n2. cat"),
        (numbered_members(2, ["cat", "dog"]), "1. cat\n2. cow"),
        (numbered_members(2, ["cat", "dog"]), "1. cat\n3. dog"),
    ],
)
def test_near_misses_are_wrong(check, text):
    """Negative controls: answers that a lenient checker would let through."""
    assert not check(text)


def test_other_orders_and_members_are_right():
    """Where several answers are right, all of them are."""
    assert json_equal({"name": "Mia", "age": 3})('{"age": 3, "name": "Mia"}')
    assert numbered_members(2, ["cat", "dog", "cow"])("1. cow\n2. cat")


def test_negative_count_is_refused():
    """With a sentence."""
    with pytest.raises(ConfigError, match="at least 0"):
        held_out(0, -1)
