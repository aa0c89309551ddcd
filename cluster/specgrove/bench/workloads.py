"""Prompts to measure on. The default set is ours: code, maths and prose, long enough answers for every model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from specgrove.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request of a workload. `kind` groups results."""

    kind: str
    text: str


DEFAULT = (
    Prompt("code", "Write a Python function that merges two sorted lists into one sorted list, with a docstring."),
    Prompt("code", "Write a Python class for a stack with push, pop, peek and is_empty methods."),
    Prompt("code", "Implement binary search in JavaScript and explain each step in comments."),
    Prompt("code", "Write a SQL query for the ten customers with the highest total order value, then explain it."),
    Prompt("maths", "Solve step by step: a train travels 180 km in 2.5 hours. What is its speed in metres per second?"),
    Prompt("maths", "Compute the derivative of x^3 * sin(x) step by step, naming each rule you use."),
    Prompt("maths", "List the first fifteen prime numbers and then their sum, step by step."),
    Prompt("prose", "Tell a short story about a lighthouse keeper who finds a message in a bottle."),
)


def load(path: Path | None) -> tuple[Prompt, ...]:
    """The default set, or a file with one JSON object per line: {"prompt": "...", "kind": "..."}.

    Raises ConfigError that names the line.
    """
    if path is None:
        return DEFAULT
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            prompts.append(Prompt(str(row.get("kind", "all")), str(row["prompt"])))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f'{path}, line {number}: expected {{"prompt": "…"}}, got {line[:60]!r}') from error
    if not prompts:
        raise ConfigError(f"{path} holds no prompts")
    return tuple(prompts)
