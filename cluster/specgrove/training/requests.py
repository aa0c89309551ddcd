"""Plain format requests, definitions, greetings and refusals: one small maker per kind.

Each maker draws one request from a seeded source and returns it with its reference answer and an exact checker. A word
to copy stands after the same character in the question and in the answer (a line break, a quote, a space): " red" and
"red" are two tokens, and a very small model learns to copy a token long before it learns which tokens spell alike.
"""

from __future__ import annotations

import json
import random

from specgrove.training import words
from specgrove.training.checks import json_equal, numbered_members, numbers_in_order, same_text
from specgrove.training.problem import Problem
from specgrove.training.request_forms import (
    BULLETS,
    COUNT,
    DEFINITION,
    ECHO,
    GREETING,
    JSON,
    MEMBERS,
    REFUSED,
    REPEAT,
    REVERSE,
    SAYING,
    SORT,
)


def _numbers(values: list[int]) -> str:
    return ", ".join(str(value) for value in values)


def count(rng: random.Random, unseen: bool) -> Problem:
    """Count up or down between two numbers up to 99; now and then a long way."""
    low = rng.randint(1, 90)
    high = min(99, low + (rng.randint(2, 6) if rng.random() < 0.8 else rng.randint(7, 20)))
    down = rng.random() < 0.4
    first, last = (high, low) if down else (low, high)
    values = list(range(first, last - 1, -1) if down else range(first, last + 1))
    question = COUNT.pick(rng, unseen=unseen).format(first, last, "down" if down else "up")
    return Problem(f"count {first} {last}", question, _numbers(values), numbers_in_order(values))


def sort(rng: random.Random, unseen: bool) -> Problem:
    """Sort three to five different numbers under 100."""
    values = rng.sample(range(1, 100), rng.randint(3, 5))
    ordered = sorted(values)
    given = _numbers(values)
    question = SORT.pick(rng, unseen=unseen).format(given)
    return Problem(f"sort {given}", question, _numbers(ordered), numbers_in_order(ordered))


def repeat(rng: random.Random, unseen: bool) -> Problem:
    """Write a word two to nine times, one a line."""
    word, times = rng.choice(words.WORDS), rng.randint(2, 9)
    answer = "\n".join([word] * times)
    question = REPEAT.pick(rng, unseen=unseen).format(word, times)
    return Problem(f"repeat {word} {times}", question, answer, same_text(answer))


def echo(rng: random.Random, unseen: bool) -> Problem:
    """Give three to ten words, names and numbers back as they are; nothing teaches copying faster."""
    pool = (lambda: rng.choice(words.WORDS), lambda: rng.choice(words.NAMES), lambda: str(rng.randint(1, 99)))
    said = " ".join(rng.choices(pool, (6, 2, 2))[0]() for _ in range(rng.randint(3, 10)))
    return Problem(f"echo {said}", ECHO.pick(rng, unseen=unseen).format(said), said, same_text(said))


def reverse(rng: random.Random, unseen: bool) -> Problem:
    """Give two to five lines of one word each back in reverse order."""
    chosen = rng.sample(words.WORDS, rng.randint(2, 5))
    answer = "\n".join(reversed(chosen))
    question = REVERSE.pick(rng, unseen=unseen).format("\n".join(chosen))
    return Problem(f"reverse {' '.join(chosen)}", question, answer, same_text(answer))


def json_object(rng: random.Random, unseen: bool) -> Problem:
    """Write an object of two or three given fields."""
    likes = rng.choice(words.CATEGORIES["animals"] + words.CATEGORIES["fruits"])
    every: dict[str, object] = {
        "name": rng.choice(words.NAMES),
        "age": rng.randint(2, 99),
        "likes": likes,
        "color": rng.choice(words.CATEGORIES["colors"]),
        "count": rng.randint(1, 99),
    }
    fields = {key: every[key] for key in rng.sample(sorted(every), rng.randint(2, 3))}
    given = ", ".join(f"{key} {json.dumps(value)}" for key, value in fields.items())
    question = JSON.pick(rng, unseen=unseen).format(given)
    return Problem(f"json {given}", question, json.dumps(fields), json_equal(fields))


def bullets(rng: random.Random, unseen: bool) -> Problem:
    """Turn two to five given words into a bullet list."""
    chosen = rng.sample(words.WORDS, rng.randint(2, 5))
    answer = "\n".join(f"- {word}" for word in chosen)
    question = BULLETS.pick(rng, unseen=unseen).format(", ".join(chosen))
    return Problem(f"bullets {' '.join(chosen)}", question, answer, same_text(answer))


def members(rng: random.Random, unseen: bool) -> Problem:
    """Name two to four members of a category, as a numbered list; the split is by wording."""
    category = rng.choice(sorted(words.CATEGORIES))
    known, wanted = words.CATEGORIES[category], rng.randint(2, 4)
    question = MEMBERS.pick(rng, unseen=unseen).format(wanted, category)
    answer = "\n".join(f"{number}. {word}" for number, word in enumerate(known[:wanted], start=1))
    return Problem(question, question, answer, numbered_members(wanted, known))


def definition(rng: random.Random, unseen: bool) -> Problem:
    """Say what a word means; the split is by wording, since a meaning cannot be guessed."""
    word = rng.choice(sorted(words.DEFINITIONS))
    answer = words.DEFINITIONS[word]
    question = DEFINITION.pick(rng, unseen=unseen).format(answer.split()[0].lower(), word)
    return Problem(question, question, answer, same_text(answer))


def saying(rng: random.Random, unseen: bool) -> Problem:
    """Complete a saying; the split is by wording."""
    start = rng.choice(sorted(words.SAYINGS))
    whole = f"{start} {words.SAYINGS[start]}."
    answer = whole[0].upper() + whole[1:]
    question = SAYING.pick(rng, unseen=unseen).format(start) + rng.choice(("", "..."))
    return Problem(question, question, answer, same_text(answer))


def greeting(rng: random.Random, unseen: bool) -> Problem:
    """Answer a greeting, a thank-you or a question about the model itself; the split is by wording."""
    said = rng.choice(sorted(words.GREETINGS))
    question = GREETING.pick(rng, unseen=unseen).format(said)
    return Problem(question, question, words.GREETINGS[said], same_text(words.GREETINGS[said]))


def refusal(rng: random.Random, unseen: bool) -> Problem:
    """Say honestly that a request is out of reach; the split is by wording."""
    if rng.random() < 0.4 and not unseen:
        question = rng.choice(words.REFUSED_QUESTIONS).format(rng.choice(words.PLACES))
    else:
        topic = rng.choice((rng.choice(words.THINGS), f"the {rng.choice(words.WORDS)}", rng.choice(words.PLACES)))
        task = rng.choice(words.REFUSED_TASKS).format(topic)
        question = REFUSED.pick(rng, unseen=unseen).format(f"{task[0].upper()}{task[1:]}", task)
    return Problem(question, question, words.REFUSAL, same_text(words.REFUSAL))
