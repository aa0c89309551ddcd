"""Wrong verifiers, as people write them (papers/algorithms.md B and golden `mutations`). Each must fail the harness.

Every one drafts and judges the children of one node and returns the emitted token. They share nothing with the code
under test, so that a mistake there cannot hide here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.sampling.enumeration import Script, draw_without_replacement

Law = Sequence[float]
Verifier = Callable[[Law, Law, Script], int]


def norm(values: Law) -> list[float]:
    """Divided by the sum."""
    return [v / sum(values) for v in values]


def positive(p: Law, q: Law) -> list[float]:
    """(p - q)+, not normalised."""
    return [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]


def residual(p: Law, q: Law) -> list[float]:
    """norm((p - q)+), or p when nothing is left."""
    left = positive(p, q)
    return norm(left) if sum(left) > 1e-12 else list(p)


def zeroed(q: Law, token: int) -> list[float]:
    """Without one token, not normalised."""
    return [0.0 if v == token else w for v, w in enumerate(q)]


def right(p: Law, q: Law, script: Script, k: int = 2) -> int:
    """Recursive rejection without replacement, in plain Python: the control that must pass."""
    law, proposal = list(p), list(q)
    for token in draw_without_replacement(script, q, k):
        if script.accept(0, token, law[token] / proposal[token]):
            return token
        law, proposal = residual(law, proposal), norm(zeroed(proposal, token))
    return script.draw(0, law)


def no_residual_update(p: Law, q: Law, script: Script) -> int:
    """After a rejection goes on with P (B2)."""
    proposal = list(q)
    for token in draw_without_replacement(script, q, 2):
        if script.accept(0, token, p[token] / proposal[token]):
            return token
        proposal = norm(zeroed(proposal, token))
    return script.draw(0, p)


def unnormalised_residual(p: Law, q: Law, script: Script) -> int:
    """The second test uses (P - Q)+ as it is (B1)."""
    law, proposal = list(p), list(q)
    for token in draw_without_replacement(script, q, 2):
        if script.accept(0, token, law[token] / proposal[token]):
            return token
        left = positive(law, proposal)
        law, proposal = left if sum(left) > 1e-12 else law, norm(zeroed(proposal, token))
    return script.draw(0, law)


def residual_only_drop_token(p: Law, q: Law, script: Script) -> int:
    """Only the rejected token leaves the target's law, as if it had not been sampled (B2)."""
    law, proposal = list(p), list(q)
    for token in draw_without_replacement(script, q, 2):
        if script.accept(0, token, law[token] / proposal[token]):
            return token
        law, proposal = norm(zeroed(law, token)), norm(zeroed(proposal, token))
    return script.draw(0, law)


def correction_from_target(p: Law, q: Law, script: Script) -> int:
    """One child; the correction comes from P (B4)."""
    token = script.draw(0, q)
    return token if script.accept(0, token, p[token] / q[token]) else script.draw(0, p)


def wor_draws_with_wr_rule(p: Law, q: Law, script: Script) -> int:
    """Drawn without replacement, tested with Q throughout (B3)."""
    law = list(p)
    for token in draw_without_replacement(script, q, 2):
        if script.accept(0, token, law[token] / q[token]):
            return token
        law = residual(law, q)
    return script.draw(0, law)


def draft_not_renormalised(p: Law, q: Law, script: Script) -> int:
    """The rejected token is zeroed in Q, and Q is not renormalised (B3)."""
    law, proposal = list(p), list(q)
    for token in draw_without_replacement(script, q, 2):
        if script.accept(0, token, law[token] / proposal[token]):
            return token
        law, proposal = residual(law, proposal), zeroed(proposal, token)
    return script.draw(0, law)


def _judge(p: Law, q: Law, script: Script, children: Sequence[int]) -> int:
    law, proposal = list(p), list(q)
    for token in children:
        if script.accept(0, token, law[token] / proposal[token]):
            return token
        law, proposal = residual(law, proposal), norm(zeroed(proposal, token))
    return script.draw(0, law)


def topk_children_tested_as_samples(p: Law, q: Law, script: Script) -> int:
    """The two best of Q, judged as if drawn (B5; the dynamic-tree mistake)."""
    return _judge(p, q, script, sorted(range(len(q)), key=lambda v: -q[v])[:2])


def argmax_child_tested_as_sample(p: Law, q: Law, script: Script) -> int:
    """The best of Q, judged as if drawn: the commonest fatal error (papers/serving.md 0.1)."""
    return _judge(p, q, script, [max(range(len(q)), key=lambda v: q[v])])


def prune_by_sampled_probability(below: float) -> Verifier:
    """Drops drawn children whose own probability is low (B5)."""

    def verifier(p: Law, q: Law, script: Script) -> int:
        return _judge(p, q, script, [v for v in draw_without_replacement(script, q, 2) if q[v] >= below])

    return verifier


def discard_unlikely_draft(p: Law, q: Law, script: Script) -> int:
    """Stops drafting when the drawn token itself is not over one half, and draws plainly (papers/serving.md 0.1)."""
    token = script.draw(0, q)
    return _judge(p, q, script, [token] if q[token] > 0.5 else [])


def children_resorted_by_draft_probability(p: Law, q: Law, script: Script) -> int:
    """Drawn children are tested in the order of their probability (B5)."""
    return _judge(p, q, script, sorted(draw_without_replacement(script, q, 2), key=lambda v: (-q[v], v)))


def iid_draws_merged_wr_rule(p: Law, q: Law, script: Script) -> int:
    """Two independent draws, duplicates merged, tested with Q throughout (B6)."""
    first, second = script.draw(0, q), script.draw(0, q)
    law = list(p)
    for token in dict.fromkeys((first, second)):
        if script.accept(0, token, law[token] / q[token]):
            return token
        law = residual(law, q)
    return script.draw(0, law)


def draft_temperature_mismatch(p: Law, q: Law, script: Script) -> int:
    """One child, drawn at temperature 0.5 and tested with the law of temperature 1 (B7)."""
    token = script.draw(0, norm([w * w for w in q]))
    return token if script.accept(0, token, p[token] / q[token]) else script.draw(0, residual(p, q))


def one_attempt(p: Law, q: Law, script: Script) -> int | None:
    """A round of one child that gives up when nothing was accepted, to be run again with fresh luck."""
    token = script.draw(0, q)
    return token if script.accept(0, token, p[token] / q[token]) else None


def bonus_from_draft(p: Law, q: Law, script: Script) -> int:
    """Commits the first draft token unverified (B14)."""
    return script.draw(0, q)
