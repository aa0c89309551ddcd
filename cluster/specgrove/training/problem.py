"""What every maker of problems returns, and how wordings are kept out of training."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from specgrove.errors import ConfigError
from specgrove.training.checks import Check

FEWEST_UNSEEN = 6
"""Every kind keeps at least so many wordings out of training."""
KEPT_OUT_ONE_IN = 6
"""Of combined wordings, one in so many."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, its written solution, how an answer is judged, and what identifies it.

    `canonical` decides the side of the held-out split: it names what is asked, not the people, the things or the
    wording, so that two problems that differ in those alone fall on the same side.
    """

    canonical: str
    question: str
    answer: str
    check: Check


@dataclass(frozen=True, slots=True)
class Forms:
    """Wordings of one kind: those that are trained on, and those that are only ever asked in evaluations.

    Raises ConfigError when fewer than FEWEST_UNSEEN are kept out, or one is on both sides.
    """

    trained: tuple[str, ...]
    unseen: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.unseen)) < FEWEST_UNSEEN or set(self.unseen) & set(self.trained):
            raise ConfigError(f"{self.trained[0]!r} needs {FEWEST_UNSEEN} other wordings that are not trained on")

    def crossed(self, *parts: Sequence[str]) -> Forms:
        """With every combination of one piece from each of `parts` as well; one in KEPT_OUT_ONE_IN is kept out.

        A model that has seen every piece in many places learns what each means, instead of whole sentences.
        """
        made = ["".join(pieces) for pieces in product(*parts)]
        kept = [form for form in made if hashlib.sha256(form.encode()).digest()[0] % KEPT_OUT_ONE_IN == 0]
        known = {*self.trained, *self.unseen}
        return Forms(
            (*self.trained, *(form for form in made if form not in kept and form not in known)),
            (*self.unseen, *(form for form in kept if form not in known)),
        )

    def pick(self, rng: random.Random, *, unseen: bool) -> str:
        """One wording of the side that is asked for."""
        return rng.choice(self.unseen if unseen else self.trained)


Maker = Callable[[random.Random, bool], Problem]
"""Draws a problem from a source; True: in a wording that is kept out of training."""
