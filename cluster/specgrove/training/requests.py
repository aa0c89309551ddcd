"""Plain format requests, definitions, greetings and refusals: one small maker per kind.

Each maker draws one request from a seeded source and returns it with its reference answer and an exact checker. A word
to copy stands after the same character in the question and in the answer (a line break, a quote, a space): " red" and
"red" are two tokens, and a very small model learns to copy a token long before it learns which tokens spell alike.
"""

from __future__ import annotations

import json
import random

from specgrove.training import words
from specgrove.training.arithmetic import Problem
from specgrove.training.checks import json_equal, numbered_members, numbers_in_order, same_text


def _numbers(values: list[int]) -> str:
    return ", ".join(str(value) for value in values)


def count(rng: random.Random) -> Problem:
    """Count up or down between two numbers up to 40; now and then a long way."""
    low = rng.randint(1, 32)
    high = min(40, low + (rng.randint(2, 8) if rng.random() < 0.75 else rng.randint(9, 20)))
    down = rng.random() < 0.3
    first, last = (high, low) if down else (low, high)
    values = list(range(first, last - 1, -1) if down else range(first, last + 1))
    exact = "Count from {0} down to {1}." if down else "Count up from {0} to {1}."
    form = rng.choice(("Count from {0} to {1}.", exact))
    question = form.format(first, last)
    return Problem(question, question, _numbers(values), numbers_in_order(values))


def sort(rng: random.Random) -> Problem:
    """Sort three or four different numbers under 40."""
    values = rng.sample(range(1, 40), rng.randint(3, 4))
    form = rng.choice(("Sort these numbers: {0}", "Put these numbers in order: {0}"))
    ordered = sorted(values)
    given = _numbers(values)
    return Problem(f"sort {given}", form.format(given), _numbers(ordered), numbers_in_order(ordered))


def repeat(rng: random.Random) -> Problem:
    """Write a word two to nine times, one a line."""
    word, times = rng.choice(words.WORDS), rng.randint(2, 9)
    form = rng.choice(('Say "{0}" {1} times.', 'Repeat the word "{0}" {1} times.', 'Write "{0}" {1} times.'))
    question = form.format(word, times)
    answer = "\n".join([word] * times)
    return Problem(question, question, answer, same_text(answer))


def echo(rng: random.Random) -> Problem:
    """Give three to ten words, names and numbers back as they are; nothing teaches copying faster."""
    pool = (lambda: rng.choice(words.WORDS), lambda: rng.choice(words.NAMES), lambda: str(rng.randint(1, 40)))
    said = " ".join(rng.choices(pool, (6, 2, 2))[0]() for _ in range(rng.randint(3, 10)))
    form = rng.choice(("Repeat after me:\n{0}", "Copy this:\n{0}", "Say exactly this:\n{0}"))
    return Problem(f"echo {said}", form.format(said), said, same_text(said))


def reverse(rng: random.Random) -> Problem:
    """Give two to four lines of one word each back in reverse order."""
    chosen = rng.sample(words.WORDS, rng.randint(2, 4))
    form = rng.choice(("Reverse the order of these lines:\n{0}", "Write these lines backwards:\n{0}"))
    answer = "\n".join(reversed(chosen))
    return Problem(f"reverse {' '.join(chosen)}", form.format("\n".join(chosen)), answer, same_text(answer))


def json_object(rng: random.Random) -> Problem:
    """Write an object of two or three given fields."""
    age, likes = rng.randint(2, 60), rng.choice(words.CATEGORIES["animals"] + words.CATEGORIES["fruits"])
    fields: dict[str, object] = {"name": rng.choice(words.NAMES), "age": age}
    if rng.random() < 0.5:
        fields["likes"] = likes
    given = ", ".join(f"{key} {json.dumps(value)}" for key, value in fields.items())
    form = rng.choice(("Write JSON with {0}.", "Make a JSON object: {0}."))
    return Problem(f"json {given}", form.format(given), json.dumps(fields), json_equal(fields))


def bullets(rng: random.Random) -> Problem:
    """Turn two to four given words into a bullet list."""
    chosen = rng.sample(words.WORDS, rng.randint(2, 4))
    form = rng.choice(("Make a bullet list of {0}.", "List these items: {0}."))
    answer = "\n".join(f"- {word}" for word in chosen)
    return Problem(f"bullets {' '.join(chosen)}", form.format(", ".join(chosen)), answer, same_text(answer))


def members(rng: random.Random) -> Problem:
    """Name two to four members of a category, as a numbered list."""
    category = rng.choice(sorted(words.CATEGORIES))
    known, wanted = words.CATEGORIES[category], rng.randint(2, 4)
    form = rng.choice(("Name {0} {1}.", "List {0} {1}.", "Give me {0} {1}.", "Please name {0} {1}."))
    question = form.format(wanted, category)
    answer = "\n".join(f"{number}. {word}" for number, word in enumerate(known[:wanted], start=1))
    return Problem(question, question, answer, numbered_members(wanted, known))


def definition(rng: random.Random) -> Problem:
    """Say what a word means; the split is by wording, since a meaning cannot be guessed."""
    word = rng.choice(sorted(words.DEFINITIONS))
    answer = words.DEFINITIONS[word]
    article = answer.split()[0].lower()
    forms = (
        "What is {0} {1}?",
        "Define {1}.",
        "Explain the word {1}.",
        "What does {1} mean?",
        "Tell me what {0} {1} is.",
    )
    question = rng.choice(forms).format(article, word)
    return Problem(question, question, answer, same_text(answer))


def saying(rng: random.Random) -> Problem:
    """Complete a saying."""
    start = rng.choice(sorted(words.SAYINGS))
    whole = f"{start} {words.SAYINGS[start]}."
    answer = whole[0].upper() + whole[1:]
    forms = ("Finish the saying: {0}", "Complete this saying: {0}", "How does this saying end: {0}", "Finish: {0}")
    question = rng.choice(forms).format(start) + rng.choice(("", "..."))
    return Problem(question, question, answer, same_text(answer))


def greeting(rng: random.Random) -> Problem:
    """Answer a greeting, a thank-you or a question about the model itself."""
    said = rng.choice(sorted(words.GREETINGS))
    question = said + rng.choice(("", ".", "!", "?", ", Grove!", ", Grove."))
    return Problem(question, question, words.GREETINGS[said], same_text(words.GREETINGS[said]))


def refusal(rng: random.Random) -> Problem:
    """Say honestly that a request is out of reach."""
    if rng.random() < 0.4:
        question = rng.choice(words.REFUSED_QUESTIONS).format(rng.choice(words.PLACES))
    else:
        topic = rng.choice((rng.choice(words.THINGS), f"the {rng.choice(words.WORDS)}", rng.choice(words.PLACES)))
        task = rng.choice(words.REFUSED_TASKS).format(topic)
        question = rng.choice((f"{task[0].upper()}{task[1:]}.", f"Please {task}.", f"Can you {task}?"))
    return Problem(question, question, words.REFUSAL, same_text(words.REFUSAL))
