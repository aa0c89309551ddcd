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
from specgrove.training.problem import Forms, Problem

COUNT = Forms(
    (
        "Count from {0} to {1}.",
        "Count {2} from {0} to {1}.",
        "Write the numbers from {0} to {1}.",
        "List all numbers from {0} to {1}.",
        "Start at {0} and count to {1}.",
        "Please count from {0} to {1}.",
        "Say the numbers {0} to {1} in order.",
        "Give me the numbers from {0} {2} to {1}.",
    ),
    (
        "Please count {2} from {0} to {1}.",
        "List the numbers {0} to {1} in order.",
        "Start at {0} and write the numbers to {1}.",
        "Say all numbers from {0} {2} to {1}.",
        "Give me the numbers {0} to {1}.",
        "Count all numbers from {0} to {1}.",
    ),
).crossed(
    ("Count ", "Please count ", "Can you count "),
    ("from {0} to {1}", "{2} from {0} to {1}", "all numbers from {0} to {1}"),
    (".", ", please.", " for me."),
)
SORT = Forms(
    (
        "Sort these numbers: {0}",
        "Put these numbers in order: {0}",
        "Order the numbers {0}",
        "Sort {0} from small to large.",
        "Write these numbers from small to large: {0}",
        "Please sort the numbers {0}",
        "Which order do these numbers have: {0}",
        "Arrange {0} in order.",
    ),
    (
        "Please put the numbers {0} in order.",
        "Arrange these numbers from small to large: {0}",
        "Please order these numbers: {0}",
        "Write the numbers {0} in order.",
        "Sort the numbers {0} in order.",
        "Put {0} in order from small to large.",
    ),
).crossed(
    ("Sort ", "Order ", "Arrange ", "Please sort ", "Can you sort "),
    ("these numbers", "the numbers", "these numbers from small to large"),
    (": {0}", " {0}", ", please: {0}"),
)
REPEAT = Forms(
    (
        'Say "{0}" {1} times.',
        'Repeat the word "{0}" {1} times.',
        'Write "{0}" {1} times.',
        'Please write the word "{0}" {1} times.',
        'I need "{0}" {1} times, one a line.',
        'Write {1} lines of "{0}".',
        'Repeat "{0}" until you have it {1} times.',
        'The word "{0}", {1} times, please.',
    ),
    (
        'Please say "{0}" {1} times.',
        'Write the word "{0}" {1} times.',
        'I need the word "{0}" {1} times.',
        'Say the word "{0}" {1} times, one a line.',
        'Please repeat "{0}" {1} times.',
        'Repeat "{0}" {1} times.',
    ),
).crossed(
    ("Say ", "Write ", "Repeat ", "Please write ", "Can you say "),
    ('"{0}"', 'the word "{0}"'),
    (" {1} times.", " {1} times, one a line.", " {1} times, please."),
)
ECHO = Forms(
    (
        "Repeat after me:\n{0}",
        "Copy this:\n{0}",
        "Say exactly this:\n{0}",
        "Write this again:\n{0}",
        "Please copy this line:\n{0}",
        "Give this back as it is:\n{0}",
        "Echo:\n{0}",
        "Say this after me:\n{0}",
    ),
    (
        "Copy this line:\n{0}",
        "Please repeat after me:\n{0}",
        "Write exactly this:\n{0}",
        "Say this again:\n{0}",
        "Please give this back:\n{0}",
        "Copy exactly this:\n{0}",
    ),
).crossed(
    ("Repeat ", "Copy ", "Say ", "Please copy ", "Write "),
    ("this", "exactly this", "this line", "the next line"),
    (":\n{0}", ", please:\n{0}", " again:\n{0}"),
)
REVERSE = Forms(
    (
        "Reverse the order of these lines:\n{0}",
        "Write these lines backwards:\n{0}",
        "Reverse these lines:\n{0}",
        "Give me these lines from last to first:\n{0}",
        "Turn the order of these lines around:\n{0}",
        "Please write these lines in reverse order:\n{0}",
        "Last line first, please:\n{0}",
        "Put these lines in reverse:\n{0}",
    ),
    (
        "Please reverse these lines:\n{0}",
        "Write these lines from last to first:\n{0}",
        "Give me these lines in reverse order:\n{0}",
        "Put these lines backwards:\n{0}",
        "Please turn the order of these lines around:\n{0}",
        "Write these lines in reverse:\n{0}",
    ),
).crossed(
    ("Reverse ", "Turn around ", "Please reverse ", "Can you reverse "),
    ("these lines", "the lines", "the order of the lines", "the next lines"),
    (":\n{0}", ", please:\n{0}", " for me:\n{0}"),
)
JSON = Forms(
    (
        "Write JSON with {0}.",
        "Make a JSON object: {0}.",
        "Give me JSON with {0}.",
        "Please write a JSON object with {0}.",
        "As JSON: {0}.",
        "Put this into JSON: {0}.",
        "JSON, please: {0}.",
        "Turn this into a JSON object: {0}.",
    ),
    (
        "Please make JSON with {0}.",
        "Give me a JSON object: {0}.",
        "Write this as JSON: {0}.",
        "Put this into a JSON object: {0}.",
        "Turn this into JSON, please: {0}.",
        "Make JSON: {0}.",
    ),
).crossed(
    ("Write ", "Make ", "Give me ", "Please make ", "Can you write "),
    ("JSON", "a JSON object", "an object in JSON"),
    (" with {0}.", ": {0}.", " from {0}."),
)
BULLETS = Forms(
    (
        "Make a bullet list of {0}.",
        "List these items: {0}.",
        "Write a bullet list: {0}.",
        "Please list {0} with bullets.",
        "Put these items into a list: {0}.",
        "Turn this into bullets: {0}.",
        "A bullet list, please: {0}.",
        "Give me a bullet list of {0}.",
    ),
    (
        "Please make a bullet list: {0}.",
        "Give me bullets: {0}.",
        "Turn these items into a bullet list: {0}.",
        "List this with bullets: {0}.",
        "Write a list of bullets: {0}.",
        "Put this into a bullet list: {0}.",
    ),
).crossed(
    ("Write ", "Make ", "Give me ", "Please make ", "Can you write "),
    ("a bullet list", "a list with bullets", "bullets"),
    (" of {0}.", ": {0}.", " from {0}."),
)
MEMBERS = Forms(
    (
        "Name {0} {1}.",
        "List {0} {1}.",
        "Give me {0} {1}.",
        "Please name {0} {1}.",
        "Tell me {0} {1}.",
        "What are {0} {1}?",
        "Write down {0} {1}.",
        "I need {0} {1}.",
    ),
    (
        "Please list {0} {1}.",
        "Please tell me {0} {1}.",
        "Can you name {0} {1}?",
        "Write {0} {1}.",
        "Please give me {0} {1}.",
        "Name me {0} {1}, please.",
    ),
).crossed(
    ("Name ", "List ", "Tell me ", "Please list ", "Can you list ", "I want "),
    ("{0} {1}",),
    (".", ", please.", " for me."),
)
DEFINITION = Forms(
    (
        "What is {0} {1}?",
        "Define {1}.",
        "Explain the word {1}.",
        "What does {1} mean?",
        "Tell me what {0} {1} is.",
        "What is meant by {1}?",
        "Please explain what {0} {1} is.",
        "Say what {1} means.",
    ),
    (
        "Please define {1}.",
        "Explain what {0} {1} is.",
        "Tell me what {1} means.",
        "What does the word {1} mean?",
        "Please say what {0} {1} is.",
        "Explain {1}.",
    ),
).crossed(
    ("Define ", "Explain ", "Please explain ", "Can you explain "),
    ("{1}", "the word {1}", "what {0} {1} is", "what {1} means"),
    (".", ", please.", " to me."),
)
SAYING = Forms(
    (
        "Finish the saying: {0}",
        "Complete this saying: {0}",
        "How does this saying end: {0}",
        "Finish: {0}",
        "What comes after: {0}",
        "Complete: {0}",
        "Say the rest: {0}",
        "Go on: {0}",
    ),
    (
        "Complete the saying: {0}",
        "Finish this saying: {0}",
        "Please finish: {0}",
        "Please complete this saying: {0}",
        "How does the saying go on: {0}",
        "Say the rest of the saying: {0}",
    ),
).crossed(
    ("Finish ", "Complete ", "Please complete ", "Can you finish "),
    ("this", "the saying", "this saying", "these words"),
    (": {0}", ", please: {0}", " for me: {0}"),
)
GREETING = Forms(
    ("{0}", "{0}.", "{0}!", "{0}?", "{0}, Grove!", "{0}, Grove."),
    ("{0}, Grove?", "{0}, Grove", "Grove, {0}", "Grove, {0}!", "Grove! {0}", "Grove: {0}"),
).crossed(
    ("", "Oh, ", "Well, "),
    ("{0}",),
    ("", ".", "!", "?", " there!", ", friend!"),
)
REFUSED = Forms(
    (
        "{0}.",
        "Please {1}.",
        "Can you {1}?",
        "I want you to {1}.",
        "Could you {1}, please?",
        "{0}, please.",
        "I need you to {1}.",
        "You must {1}.",
    ),
    (
        "Please {1} now.",
        "Can you please {1}?",
        "Could you {1}?",
        "I want you to {1}, please.",
        "{0} now, please.",
        "Will you {1}?",
    ),
).crossed(
    ("Please ", "Can you ", "Could you ", "I want you to ", "Will you ", "You should "),
    ("{1}",),
    (".", ", please.", " for me.", " today."),
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
