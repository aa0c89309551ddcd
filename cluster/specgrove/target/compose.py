"""What one step runs, within its token budget. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PROMPT_SHARE = 0.25
"""Part of the budget that prompts keep when trees would fill it all."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Rows per decoding session (pending token included) and per prompt (0: not in this step)."""

    decodes: list[int]
    prompts: list[int]


def compose(trees: Sequence[int], prompts: Sequence[int], budget: int, *, most_prompt: int | None = None) -> Shares:
    """Share `budget` rows: one row for every decoding session, then tree nodes evenly, then prompt chunks in order.

    trees: nodes that each ready session could verify.  prompts: tokens that each prompt still needs.  most_prompt: rows
    of all prompts together, so that they do not hold up who decodes; None: what is left.
    A session always gets its one row, also when the sessions alone exceed the budget.
    """
    wanted = sum(prompts) if most_prompt is None else min(sum(prompts), most_prompt)
    kept_for_prompts = min(wanted, int(budget * PROMPT_SHARE))
    nodes = _even(trees, max(0, budget - len(trees) - kept_for_prompts))
    decodes = [1 + n for n in nodes]
    left = min(wanted, max(budget - sum(decodes), kept_for_prompts))
    chunks: list[int] = []
    for need in prompts:
        chunks.append(min(need, left))
        left -= chunks[-1]
    return Shares(decodes, chunks)


def _even(wishes: Sequence[int], room: int) -> list[int]:
    """Grant wishes up to an equal share each; what small wishes leave goes to the larger ones."""
    granted = [0] * len(wishes)
    order = sorted(range(len(wishes)), key=lambda i: wishes[i])
    for done, i in enumerate(order):
        granted[i] = min(wishes[i], room // (len(wishes) - done))
        room -= granted[i]
    return granted
