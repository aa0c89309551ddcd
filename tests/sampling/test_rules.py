"""The rules, exactly: every draw and every decision enumerated, against the golden values and against wrong rules."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest
import torch
from tests.sampling import wrong_verifiers as wrong
from tests.sampling.enumeration import (
    GOLDEN,
    Script,
    assert_lossless,
    close,
    draw_without_replacement,
    first_token_law,
    law,
    law_of,
    outcomes,
)

from specgrove.core.tree import TokenTree
from specgrove.errors import TreeError
from specgrove.sampling import rule_match, rule_recursive, rule_rejection
from specgrove.sampling.lemma import residual, try_in_turn, without
from specgrove.sampling.verdict import Verdict

PAIR_A = (GOLDEN["wor_verification_4tok"]["P"], GOLDEN["wor_verification_4tok"]["Q"])
PAIR_B = (GOLDEN["wor_verification_exampleB"]["P"], GOLDEN["wor_verification_exampleB"]["Q"])


def recursive(p: list[float], q: list[float], script: Script, k: int) -> Verdict:
    """k children drawn without replacement, judged by the rule under test."""
    children = draw_without_replacement(script, q, k)
    tree = TokenTree(tuple(children), (-1,) * k)
    laws = {-1: law(p)} | {node: law([1.0] + [0.0] * (len(p) - 1)) for node in range(k)}
    return rule_recursive.walk(tree, laws.__getitem__, lambda node: law(q), script)


def accept_by_rank(run, k: int) -> list[float]:
    """Unconditional probability that the child of each rank is the accepted one."""
    ranks = [0.0] * k
    for weight, verdict in outcomes(run):
        if verdict.accepted:
            ranks[verdict.accepted[0]] += weight
    return ranks


def test_single_draft_golden():
    """`rejection` on one token: law, acceptance, joint acceptance and residual."""
    golden = GOLDEN["single_draft_rejection"]
    p, q = golden["P"], golden["Q"]

    def run(script: Script) -> Verdict:
        tokens = [script.draw(0, q)]
        return rule_rejection.walk(
            tokens, lambda node: law(p if node == -1 else [1, 0, 0, 0]), lambda _: law(q), script
        )

    assert_lossless(lambda script: run(script).emitted[0], p)
    joint = law_of(lambda script: _pair(run(script)))
    assert close([joint.get((1, token), 0.0) for token in range(4)], golden["joint_accept_by_token"])
    assert close([sum(w for (hit, _), w in joint.items() if hit)], [golden["accept"]])
    assert close(residual(law(p), law(q)).tolist(), golden["residual"])


def _pair(verdict: Verdict) -> tuple[int, int]:
    return len(verdict.accepted), verdict.emitted[0]


@pytest.mark.parametrize("key", ["wor_verification_4tok", "wor_verification_exampleB"])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_recursive_golden(key: str, k: int):
    """`recursive_rejection` on one level: law and acceptance by rank for 1 to 4 children."""
    golden = GOLDEN[key]
    p, q, row = golden["P"], golden["Q"], golden["rows"][k - 1]
    assert_lossless(lambda script: recursive(p, q, script, k).emitted[0], p)
    assert close(accept_by_rank(lambda script: recursive(p, q, script, k), k), row["wor_accept_by_rank"])


@pytest.mark.parametrize("key", ["wor_verification_4tok", "wor_verification_exampleB"])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_with_replacement_golden(key: str, k: int):
    """The lemma with one law for every trial is SpecInfer's rule; its acceptance is the golden one."""
    golden = GOLDEN[key]
    p, q = golden["P"], golden["Q"]

    def run(script: Script) -> tuple[int | None, int]:
        trials = [(script.draw(0, q), law(q)) for _ in range(k)]
        index, left = try_in_turn(law(p), trials, script, 0)
        return index, script.draw(0, left) if index is None else trials[index][0]

    assert_lossless(lambda script: run(script)[1], p)
    accepted = sum(w for (index, _), w in law_of(run).items() if index is not None)
    assert close([accepted], [golden["rows"][k - 1]["wr_accept_total"]])


def test_intermediate_laws_golden():
    """Residuals and proposals after each rejection, step by step, on both published examples."""
    p, q = PAIR_A
    steps = GOLDEN["wor_verification_4tok"]["intermediate"]
    first = residual(law(p), law(q))
    assert close(first.tolist(), steps["R1"])
    for token in (2, 3):
        after = steps[f"after_rejecting_token_{token}"]
        assert close(without(law(q), [token]).tolist(), after["D2"])
        assert close(residual(first, without(law(q), [token])).tolist(), after["R2"])
    published = GOLDEN["wor_3tok_published"]
    left, proposal = residual(law([0.3, 0.4, 0.3]), law([0.6, 0.3, 0.1])), without(law([0.6, 0.3, 0.1]), [0])
    assert close(left.tolist(), published["residual"])
    assert close(proposal.tolist(), published["draft2"])
    ratios = (left / proposal).clamp(max=1)
    assert close(ratios[1:].tolist(), [published["accept_b"], published["accept_c"]])


def test_cover_property():
    """Uniform draws once the draft's support is used up: children that cover the target's support always hit."""
    for row in GOLDEN["cover_property"]["a"]:
        k, p, q = row["k"], [0, 0, 0.5, 0.5], [0.5, 0.5, 0, 0]
        assert_lossless(lambda script, k=k, p=p, q=q: recursive(p, q, script, k).emitted[0], p)
        ranks = accept_by_rank(lambda script, k=k, p=p, q=q: recursive(p, q, script, k), k)
        assert close([sum(ranks)], [row["accept_total"]])
    ranks = accept_by_rank(lambda script: recursive([1, 0], [0.5, 0.5], script, 2), 2)
    assert close([sum(ranks)], [GOLDEN["cover_property"]["b"]["wor"]])


def test_deterministic_children():
    """`match` and the one-hot lemma are one law: acceptance by rank is P of the child."""
    p, _ = PAIR_A
    tree = TokenTree((2, 3), (-1, -1))

    def match(script: Script) -> Verdict:
        return rule_match.walk(tree, lambda node: script.draw(0, p if node == -1 else [1, 0, 0, 0]))

    def one_hot(script: Script) -> tuple[int | None, int]:
        trials = [(token, law([float(v == token) for v in range(4)])) for token in tree.tokens]
        index, left = try_in_turn(law(p), trials, script, 0)
        return index, script.draw(0, left) if index is None else tree.tokens[index]

    wanted = GOLDEN["deterministic_children"]["accept_by_rank"]
    assert_lossless(lambda script: match(script).emitted[0], p)
    assert_lossless(lambda script: one_hot(script)[1], p)
    assert close(accept_by_rank(match, 2), wanted)
    ranks = law_of(lambda script: one_hot(script)[0])
    assert close([ranks[0], ranks[1]], wanted)


@pytest.mark.parametrize("name", ["two_drafts", "deterministic_then_sampled", "adaptive_count"])
def test_other_exact_proposals(name: str):
    """The lemma under two drafts, a one-hot child before a drawn one, and a count that looks at elder siblings."""
    p, q = PAIR_A
    golden = GOLDEN["other_exact_proposals"]

    def second(rejected: int) -> list[float] | None:
        if name == "two_drafts":
            return golden["two_drafts_q2"]
        if name == "adaptive_count" and rejected == 3:
            return None
        return without(law(q), [rejected]).tolist()

    def run(script: Script) -> tuple[int | None, int]:
        tokens: list[int] = []

        def trials():
            first = [0.0, 0.0, 1.0, 0.0] if name == "deterministic_then_sampled" else q
            for proposal in (first, lambda: second(tokens[0])):
                proposal = proposal() if callable(proposal) else proposal
                if proposal is None:
                    return
                tokens.append(script.draw(0, proposal))
                yield tokens[-1], law(proposal)

        index, left = try_in_turn(law(p), trials(), script, 0)
        return index, script.draw(0, left) if index is None else tokens[index]

    assert_lossless(lambda script: run(script)[1], p)
    ranks = law_of(lambda script: run(script)[0])
    assert close([ranks[0], ranks[1]], golden[name])


@pytest.mark.parametrize("row", GOLDEN["rsd_c_two_levels"]["rows"], ids=lambda row: str(row["branching"]))
def test_rsd_c_two_levels(row):
    """Two drafted levels: the joint law of two tokens is the target's, and tokens per round are the golden number."""
    golden = GOLDEN["rsd_c_two_levels"]
    b0, b1 = row["branching"]
    p_cond, q_cond = [law(x) for x in golden["P_cond"]], [law(x) for x in golden["Q_cond"]]
    p_root, q_root = law(golden["P_root"]), law(golden["Q_root"])

    def run(script: Script, hit: int) -> tuple[Verdict, tuple[int, ...]]:
        top = draw_without_replacement(script, q_root.tolist(), b0)
        below = draw_without_replacement(script, q_cond[top[hit]].tolist(), b1)
        tree = TokenTree((*top, *below), (-1,) * b0 + (hit,) * b1)
        verdict = rule_recursive.walk(
            tree,
            lambda node: p_root if node == -1 else p_cond[tree.tokens[node]],
            lambda node: q_root if node == -1 else q_cond[tree.tokens[node]],
            script,
        )
        if verdict.accepted and verdict.accepted[0] != hit:
            return verdict, ()
        emitted = list(verdict.emitted)
        if len(emitted) < 2:  # the next round, plainly
            emitted.append(script.draw(1, p_cond[emitted[-1]]))
        return verdict, tuple(emitted[:2])

    joint: dict[tuple[int, ...], float] = {}
    tokens = 0.0
    for hit in range(b0):  # children are drawn under this child only: those of the others would not be looked at
        for weight, (verdict, pair) in outcomes(lambda script, hit=hit: run(script, hit)):
            if (verdict.accepted or (-1,))[0] not in ((hit, -1) if hit == 0 else (hit,)):
                continue
            joint[pair] = joint.get(pair, 0.0) + weight
            tokens += weight * len(verdict.emitted)
    wanted = [float(p_root[a] * p_cond[a][b]) for a in range(3) for b in range(3)]
    assert close([joint.get((a, b), 0.0) for a in range(3) for b in range(3)], wanted)
    assert close([tokens], [row["block_efficiency"]])


def test_chain_joint_law():
    """`rejection` on a chain of two: the joint law of three tokens is the target's."""
    golden = GOLDEN["rsd_c_two_levels"]
    p_cond, q_cond = [law(x) for x in golden["P_cond"]], [law(x) for x in golden["Q_cond"]]
    p_root, q_root = law(golden["P_root"]), law(golden["Q_root"])

    def run(script: Script) -> tuple[int, ...]:
        first = script.draw(0, q_root)
        tokens = [first, script.draw(1, q_cond[first])]
        verdict = rule_rejection.walk(
            tokens,
            lambda node: p_root if node == -1 else p_cond[tokens[node]],
            lambda node: q_root if node == -1 else q_cond[tokens[node]],
            script,
        )
        emitted = list(verdict.emitted)
        while len(emitted) < 3:
            emitted.append(script.draw(0, p_cond[emitted[-1]]))
        return tuple(emitted)

    for (a, b, c), weight in law_of(run).items():
        assert close([weight], [float(p_root[a] * p_cond[a][b] * p_cond[b][c])])


MUTANTS = {
    "no_residual_update": wrong.no_residual_update,
    "unnormalised_residual": wrong.unnormalised_residual,
    "residual_only_drop_token": wrong.residual_only_drop_token,
    "correction_from_target": wrong.correction_from_target,
    "wor_draws_with_wr_rule": wrong.wor_draws_with_wr_rule,
    "topk_children_tested_as_samples": wrong.topk_children_tested_as_samples,
    "prune_by_sampled_probability": wrong.prune_by_sampled_probability(0.21),
    "prune_by_sampled_probability(<0.06)": wrong.prune_by_sampled_probability(0.06),
    "iid_draws_merged_wr_rule": wrong.iid_draws_merged_wr_rule,
    "draft_temperature_mismatch": wrong.draft_temperature_mismatch,
    "draft_not_renormalised": wrong.draft_not_renormalised,
    "children_resorted_by_draft_probability": wrong.children_resorted_by_draft_probability,
}
INVISIBLE = {("mutations", "unnormalised_residual")}
"""On the first pair this mutant is right by luck; that is why there are two pairs."""


@pytest.mark.parametrize(
    ("key", "row"),
    [(key, row) for key in ("mutations", "mutations_exampleB") for row in GOLDEN[key]["rows"]],
    ids=lambda x: x["name"] if isinstance(x, dict) else x,
)
def test_mutants_are_rejected(key: str, row):
    """Each wrong verifier has exactly its golden law, and the harness that passes our rules rejects it."""
    p, q = GOLDEN[key]["P"], GOLDEN[key]["Q"]
    mutant = MUTANTS[row["name"]]
    got = first_token_law(lambda script: mutant(p, q, script), 4)
    assert close([x / sum(got) for x in got], row["law"])
    if (key, row["name"]) in INVISIBLE:
        return
    with pytest.raises(AssertionError, match="emits"):
        assert_lossless(lambda script: mutant(p, q, script), p)


def test_every_mutant_is_rejected_somewhere():
    """The mutation score of the two pairs together is 100 %, and the right verifier passes on both."""
    named = {row["name"] for key in ("mutations", "mutations_exampleB") for row in GOLDEN[key]["rows"]}
    assert named == set(MUTANTS)
    for mutant in MUTANTS.values():
        laws = [first_token_law(lambda script, m=mutant, p=p, q=q: m(p, q, script), 4) for p, q in (PAIR_A, PAIR_B)]
        assert not all(close(got, p) for got, (p, _) in zip(laws, (PAIR_A, PAIR_B), strict=True))
    for p, q in (PAIR_A, PAIR_B):
        assert_lossless(lambda script, p=p, q=q: wrong.right(p, q, script), p)


@pytest.mark.parametrize(
    ("mutant", "emitted"),
    [(wrong.argmax_child_tested_as_sample, (5 / 6, 0, 1 / 6)), (wrong.discard_unlikely_draft, (0.70, 0.12, 0.18))],
)
def test_fatal_errors_of_reference_code(mutant, emitted):
    """The two mistakes of papers/serving.md 0.1 emit the laws computed there, and are rejected."""
    p, q = [0.5, 0.3, 0.2], [0.6, 0.3, 0.1]
    assert close(first_token_law(lambda script: mutant(p, q, script), 3), emitted)
    with pytest.raises(AssertionError, match="emits"):
        assert_lossless(lambda script: mutant(p, q, script), p)


def test_retry_selection_trap():
    """Running a round again because it accepted nothing draws from another law; so does trusting the draft."""
    golden = GOLDEN["retry_selection_trap"]
    p, q = PAIR_A
    attempt = law_of(lambda script: wrong.one_attempt(p, q, script))
    accepted = 1 - attempt[None]
    assert close([attempt[token] / accepted for token in range(4)], golden["with_retry"])
    assert close(first_token_law(lambda s: wrong.bonus_from_draft(p, q, s), 4), q)
    assert close(p, golden["correct"])


def test_match_is_lossless_for_any_tree():
    """`match` on every ordered pair of children and a second level: joint law of two tokens is the target's."""
    p_root, p_cond = [0.5, 0.3, 0.2], GOLDEN["rsd_c_two_levels"]["P_cond"]
    for top in permutations(range(3), 2):
        tree = TokenTree((*top, 1, 0, 2), (-1, -1, 0, 0, 1))

        def run(script: Script, tree: TokenTree = tree) -> tuple[int, ...]:
            verdict = rule_match.walk(
                tree, lambda node: script.draw(0, p_root if node == -1 else p_cond[tree.tokens[node]])
            )
            assert [tree.tokens[i] for i in verdict.accepted] == list(verdict.emitted[:-1])
            emitted = list(verdict.emitted)
            while len(emitted) < 2:
                emitted.append(script.draw(0, p_cond[emitted[-1]]))
            return tuple(emitted[:2])

        for (a, b), weight in law_of(run).items():
            assert close([weight], [p_root[a] * p_cond[a][b] / sum(p_cond[a])])


def test_match_counts():
    """A leafless tree gives one token, a perfect chain depth + 1, an adversarial draft one (B14, B16)."""
    said = {-1: 5, 0: 6, 1: 7}
    assert rule_match.walk(TokenTree(), said.__getitem__) == Verdict((), (5,))
    assert rule_match.walk(TokenTree.chain([5, 6]), said.__getitem__) == Verdict((0, 1), (5, 6, 7))
    assert rule_match.walk(TokenTree((1, 2, 3), (-1, -1, 0)), said.__getitem__) == Verdict((), (5,))
    siblings = TokenTree((9, 5, 6, 6), (-1, -1, 0, 1))
    assert rule_match.walk(siblings, {-1: 5, 1: 6, 3: 8}.__getitem__) == Verdict((1, 3), (5, 6, 8))


class _Luckless:
    """Rejects whatever it may (u close to 1) and draws the first token with mass."""

    def accept(self, depth: int, token: int, ratio: float) -> bool:
        return ratio > 1 - 2**-33

    def draw(self, depth: int, law) -> int:
        assert torch.isfinite(law).all()
        return int(law.nonzero()[0])


def test_numerically_equal_laws():
    """P equal to Q up to rounding and every trial rejected: the last law is drawn from, no NaN (B10)."""
    p = law([0.1, 0.2, 0.7])
    nearly = p * (1 - 1e-12)
    assert torch.equal(residual(nearly, p), nearly)
    for tokens in pairwise([1, 2, 0]):
        tree = TokenTree(tokens, (-1, -1))
        verdict = rule_recursive.walk(tree, lambda _: p * 0.9999, lambda _: p, _Luckless())
        assert len(verdict.emitted) >= 1
    assert rule_rejection.walk([1], lambda _: p * 0.9999, lambda _: p, _Luckless()).emitted == (0,)


def test_impossible_drafts_are_refused():
    """A token that its own law cannot draw is a TreeError, not a division by zero."""
    with pytest.raises(TreeError, match="token 1"):
        rule_rejection.walk([1], lambda _: law([0.5, 0.5]), lambda _: law([1, 0]), Script(()))
