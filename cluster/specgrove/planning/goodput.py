"""Goodput in the form of the SmartSpec paper: one draft length for a whole batch (Liu et al., arXiv 2406.14066).

Goodput is the number of tokens that a step is expected to commit over the time that it takes. The formulas and the
published coefficients are in papers/serving.md, section 3(c).
"""

from __future__ import annotations

from dataclasses import dataclass

from specgrove.config.strict import Strict
from specgrove.errors import ConfigError


class Coefficients(Strict):
    """A linear model of step time, in any unit of time; KV tokens are batch times context."""

    c_kv: float
    """Target, per KV token."""
    c_c: float
    """Target, per computed token."""
    c_B: float = 0.0
    """Target, per request."""
    c_0: float
    """Target, per step."""
    c_sd: float = 0.0
    """Target, per step with speculation."""
    d_kv: float = 0.0
    """Draft, per KV token."""
    d_c: float = 0.0
    """Draft, per request's token in a pass."""
    d_k: float = 0.0
    """Draft, per drafted token of a request."""
    d_B: float = 0.0
    """Draft, per request."""
    d_0: float = 0.0
    """Draft, per step."""
    draft_fraction: float = 0.0
    """Draft time as a part of the target's, for drafts that are given so; added to the d coefficients."""
    overhead_fraction: float = 0.05
    """Bookkeeping of a step with speculation, as a part of the target's time."""

    def step_time(self, batch: int, context: int, length: int) -> float:
        """Time of a step in which each of `batch` requests verifies `length` drafted tokens; 0 is plain."""
        kv, tokens = batch * context, batch * (length + 1)
        target = self.c_kv * kv + self.c_c * tokens + self.c_B * batch + self.c_0
        if length == 0:
            return target
        target += self.c_sd
        draft = self.d_kv * kv + self.d_c * batch + self.d_k * length + self.d_B * batch + self.d_0
        return target * (1 + self.overhead_fraction + self.draft_fraction) + draft


@dataclass(frozen=True, slots=True)
class LengthChoice:
    """The draft length with the largest goodput, and the goodput of every length from 0 on."""

    length: int
    goodputs: tuple[float, ...]
    """Tokens per unit of time, by length."""

    @property
    def gain(self) -> float:
        """Over not speculating."""
        return self.goodputs[self.length] / self.goodputs[0]


def chain_tokens(alpha: float, length: int) -> float:
    """Expected tokens of a round when each of `length` drafted tokens is accepted with probability alpha in [0, 1]."""
    return float(length + 1) if alpha == 1 else (1 - alpha ** (length + 1)) / (1 - alpha)


def best_length(
    coefficients: Coefficients, *, alpha: float, batch: int, context: int, longest: int = 8
) -> LengthChoice:
    """Every length from 0 to `longest` is tried: goodput is no hill, because costs are staircases.

    Raises ConfigError for an alpha outside [0, 1], for sizes under 1, and where the predicted time is not positive.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha is a probability, got {alpha}", param="alpha")
    if batch < 1 or context < 0 or longest < 0:
        raise ConfigError("a batch has at least one request; context and length are at least 0", param="batch")
    goodputs = []
    for length in range(longest + 1):
        time = coefficients.step_time(batch, context, length)
        if time <= 0:
            raise ConfigError(
                f"the coefficients predict a step time of {time:g} at batch {batch} and length {length}",
                param="coefficients",
            )
        goodputs.append(batch * chain_tokens(alpha, length) / time)
    return LengthChoice(max(range(len(goodputs)), key=goodputs.__getitem__), tuple(goodputs))
