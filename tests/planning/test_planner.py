"""The planner against simulated machines, whose best fixed policy is known."""

import random
from dataclasses import dataclass

import numpy as np
import pytest

from specgrove.planning.acceptance import AcceptanceEstimate, Visit
from specgrove.planning.drafting import Drafting, DraftTimes
from specgrove.planning.latency import KNOTS, LatencyModel, Work
from specgrove.planning.planner import PLAIN, PROBE_S, Alike, Asked, Planner, Standing
from specgrove.planning.tree_shape import grown

ALL = Alike("all", 32, 8)
GOOD, BAD = (0.8, 0.1, 0.04, 0.02), (0.05, 0.02, 0.01, 0.01)


@dataclass
class Machine:
    """Steps cost `base` and `per_token` beyond the free ones; drafting and network are not hidden behind anything."""

    base: float = 0.01
    free: int = 16
    per_token: float = 0.0003
    level_s: float = 0.002
    network_s: float = 0.0005

    def step_s(self, tokens):
        return self.base + self.per_token * max(0, tokens - self.free)

    def latency(self):
        return LatencyModel.fit([(Work(tokens), self.step_s(tokens)) for tokens in (*KNOTS, 24, 48, 96)] * 2)

    def round_s(self, sessions, drafting, asked):
        """One round of all sessions."""
        step = self.step_s(sessions + drafting * asked.nodes)
        return step + (asked.depth * self.level_s + self.network_s if drafting else 0.0)


def walk(rng, truth, parents):
    """Visits of one round through the best tree, and the tokens that it commits."""
    below = {}
    for node, parent in enumerate(parents):
        below.setdefault(parent, []).append(node)
    seen, node, depth = [], -1, 0
    while node in below:
        draw, taken = rng.random(), None
        for rank, chance in enumerate(truth[: len(below[node])]):
            if draw < chance:
                taken = rank
                break
            draw -= chance
        seen.append(Visit(depth, len(below[node]), taken))
        if taken is None:
            break
        node, depth = below[node][taken], depth + 1
    return seen, sum(visit.taken is not None for visit in seen) + 1


class Trees:
    """Best trees by what was asked for."""

    def __init__(self):
        self._made = {}

    def __getitem__(self, asked):
        if asked not in self._made:
            self._made[asked] = grown(GOOD, asked.nodes + 1, asked.depth + 1).parents
        return self._made[asked]


def run(machine, sessions, truths, seconds, *, fixed=None, seed=0, planner=None):
    """Tokens per second of each phase (one per truth, `seconds` each); what was asked for at the end of each."""
    rng, trees, now = random.Random(seed), Trees(), 0.0
    if planner is None:
        planner = Planner(machine.latency(), most_nodes=32, most_depth=8, drafting=Drafting({1: machine.level_s}))
    rates, asked_for = [], []
    for truth in truths:
        start, tokens = now, 0
        while now - start < seconds:
            if planner.due(sessions, now):
                planner.plan([Standing(ALL, 100)] * sessions, now)
            each = [fixed or planner.asked(ALL, number) for number in range(sessions)]
            largest = max(each, key=lambda asked: asked.nodes)
            drafting = sum(asked.nodes > 0 for asked in each)
            took = machine.round_s(sessions, drafting, largest) * rng.uniform(0.95, 1.05)
            now += took
            work = Work(sessions + drafting * largest.nodes, sessions, 100 * sessions)
            planner.stepped(work, machine.step_s(work.tokens))
            for asked in each:
                seen, committed = walk(rng, truth, trees[asked]) if asked.nodes else ([], 1)
                tokens += committed
                if asked.nodes:
                    planner.took_round("all", seen)
            if drafting:
                draft_s = largest.depth * machine.level_s
                planner.drafted("d", levels=largest.depth, draft_s=draft_s, waited_s=draft_s + machine.network_s)
                planner.cycled(work, largest.depth, took)
        rates.append(tokens / (now - start))
        asked_for.append(planner.asked(ALL, "nobody"))
    return rates, asked_for


FIXED = [PLAIN, *(Asked(depth, nodes) for depth, nodes in ((1, 1), (2, 2), (4, 4), (8, 8), (2, 6), (4, 16), (6, 32)))]


@pytest.mark.parametrize("sessions", [1, 4, 16, 64])
@pytest.mark.parametrize("truth", [GOOD, BAD], ids=["good draft", "bad draft"])
@pytest.mark.parametrize("free", [4, 64], ids=["few free tokens", "many free tokens"])
def test_planned_is_close_to_the_best_fixed_policy(sessions, truth, free):
    """At every load, also where that is not to draft at all."""
    machine = Machine(free=free)
    [_, planned], _ = run(machine, sessions, [truth, truth], 6.0)
    fixed = {asked: run(machine, sessions, [truth], 4.0, fixed=asked, seed=1)[0][0] for asked in FIXED}

    assert planned >= 0.93 * max(fixed.values()), fixed
    assert planned >= 0.96 * fixed[PLAIN]


def test_a_draft_that_turns_bad_and_good_again():
    """Drafting ends soon after the turn and is back within seconds, although nobody drafted in between."""
    rates, asked = run(Machine(), 8, [GOOD, BAD, GOOD], 8.0)
    plain = run(Machine(), 8, [GOOD], 8.0, fixed=PLAIN)[0][0]

    assert rates[0] > 1.3 * plain
    assert asked[1] == PLAIN
    assert rates[1] > 0.93 * plain
    assert asked[2].nodes > 0
    assert rates[2] > 1.2 * plain


def test_hidden_drafting_is_noticed():
    """Rounds that take less than their parts make drafting dearer on paper than it is; the planner learns that."""
    dear = Machine(level_s=0.02)
    hidden = Planner(dear.latency(), most_nodes=32, most_depth=8, drafting=Drafting({1: dear.level_s}))
    serial = Planner(dear.latency(), most_nodes=32, most_depth=8, drafting=Drafting({1: dear.level_s}))
    work = Work(1 + 4, 1, 100)
    for _ in range(300):
        hidden.cycled(work, 4, dear.step_s(5) + 0.001)
        serial.cycled(work, 4, dear.step_s(5) + 4 * dear.level_s)
    for planner in (hidden, serial):
        for _ in range(200):
            planner.took_round("all", [Visit(0, 1, 0), Visit(1, 1, 0), Visit(2, 1, None)])
        for step in range(5):
            planner.plan([Standing(ALL, 100)], 0.2 * step)

    assert not hidden.budget.off
    assert serial.budget.off


def test_kinds_are_told_apart():
    """Sessions that the draft guesses well draft, beside others that decode plainly."""
    planner = Planner(Machine(free=4).latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 0.001}))
    for _ in range(300):
        planner.took_round("easy", [Visit(0, 1, 0), Visit(1, 1, 0), Visit(2, 1, 0), Visit(3, 1, 0)])
        planner.took_round("hard", [Visit(0, 4, None)])
    standings = [Standing(Alike("easy", 16, 4), 50)] * 4 + [Standing(Alike("hard", 16, 4), 50)] * 4
    for step in range(5):
        planner.plan(standings, 0.2 * step)

    assert planner.asked(Alike("easy", 16, 4), 1).nodes >= 4
    first, second = (planner.asked(Alike("hard", 16, 4), session) for session in (1, 2))
    assert first.nodes > 0  # the probe
    assert second == PLAIN


def test_a_probe_ends_and_comes_again():
    """A few rounds of one session, and then nothing for a while."""
    planner = Planner(Machine().latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 10.0}))
    planner.plan([Standing(Alike("all", 16, 4), 50)], 0.0)
    assert planner.asked(ALL, 1).nodes > 0
    for _ in range(10):
        planner.took_round("all", [Visit(0, 2, 0)])
    assert planner.asked(ALL, 1) == PLAIN

    planner.plan([Standing(Alike("all", 16, 4), 50)], PROBE_S / 2)
    assert planner.asked(ALL, 1) == PLAIN
    planner.plan([Standing(Alike("all", 16, 4), 50)], PROBE_S + 0.1)
    assert planner.asked(ALL, 2).nodes > 0
    assert planner.asked(ALL, 1) == PLAIN


def test_limits_of_requests_are_kept_and_bind_nobody_else():
    """A client that wants small trees, or none, does not decide for others of its kind."""
    planner = Planner(Machine().latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 1e-5}))
    usual, small, off = (Alike("all", *limits) for limits in ((16, 4), (3, 2), (0, 0)))
    planner.plan([Standing(usual, 50)] * 6 + [Standing(small, 50), Standing(off, 50)], 0.0)

    assert 0 < planner.asked(small, 7).nodes <= 3
    assert planner.asked(off, 8) == PLAIN
    alone = Planner(Machine().latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 1e-5}))
    alone.plan([Standing(usual, 50)] * 8, 0.0)
    assert planner.asked(usual, 1).nodes >= alone.asked(usual, 1).nodes > 0


def test_levels_beyond_what_was_measured_go_on_rising():
    """With the last slope."""
    drafting = Drafting({1: 0.001, 64: 0.002, 128: 0.004})

    assert drafting.level_s(np.array([256.0]))[0] == pytest.approx(0.008)
    assert Drafting({1: 0.001}).level_s(np.array([256.0]))[0] == 0.001


def test_drafts_share_the_work_and_the_slowest_is_waited_for():
    """Two equal ones do half the nodes each; one that leaves no longer counts; each learns of its own trees alone."""
    passes = {1: 0.001, 64: 0.002, 128: 0.004}
    times = DraftTimes(Drafting({1: 0.5}))
    assert times.round_s(np.array([64.0]), 3)[0] == pytest.approx(1.5)
    times.came("a", passes)
    assert times.round_s(np.array([128.0, 1.0]), 2) == pytest.approx([0.008, 0.002])
    times.came("b", passes)
    assert times.round_s(np.array([128.0, 1.0]), 2) == pytest.approx([0.004, 0.002])
    for _ in range(200):
        times.observe("b", 2, 128.0, draft_s=0.012, waited_s=0.013)
    assert times.round_s(np.array([128.0]), 2)[0] == pytest.approx(0.013, rel=1e-3)
    times.left("b")
    assert times.round_s(np.array([128.0]), 2)[0] == pytest.approx(0.008)


def test_a_model_that_no_longer_holds_is_brought_up_to_date():
    """The machine got twice as slow, and larger steps three times: soon the predictions are right again."""
    machine = Machine()
    planner = Planner(machine.latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 0.001}))

    def now(tokens):
        return machine.step_s(tokens) * (3.0 if tokens > 8 else 2.0)

    rng = random.Random(0)
    for _ in range(2000):
        tokens = rng.choice((1, 2, 4, 8, 16, 32))
        planner.stepped(Work(tokens), now(tokens) * rng.uniform(0.95, 1.05))

    for tokens in (1, 8, 16, 32):
        assert planner.step.factor * planner.latency.seconds(Work(tokens)) == pytest.approx(now(tokens), rel=0.2)
    assert planner.latency.seconds(Work(128)) > 1.5 * machine.step_s(128)


def test_replicas_learn_from_each_other():
    """A new one starts from what another has counted; one that has counted itself does not change its mind."""

    def fresh():
        return Planner(Machine().latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 0.001}))

    old, new, other = fresh(), fresh(), fresh()
    for _ in range(100):
        old.took_round("greedy 0", [Visit(0, 8, None)])
        other.took_round("greedy 0", [Visit(0, 1, 0), Visit(1, 1, 0)])
    told = {kind: AcceptanceEstimate.from_mapping(counts) for kind, counts in old.known().items()}
    new.adopt([told])
    other.adopt([told])
    for planner in (new, other):
        planner.plan([Standing(Alike("greedy 0", 16, 4), 50)], 0.0)

    assert new.budget.off
    assert not other.budget.off
    assert fresh().known() == {}
    assert new.known() == {}  # it has seen nothing itself


def test_what_was_adopted_is_not_adopted_again():
    """Old counts of others must not bring back what was forgotten."""
    planner = Planner(Machine().latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 0.001}))
    bad = AcceptanceEstimate()
    for _ in range(100):
        bad.observe([Visit(0, 8, None)])
    for _ in range(5):
        planner.adopt([{"all": bad}])

    assert planner._estimate("all").weight == bad.weight


def test_prompts_do_not_hold_up_who_decodes():
    """As many prompt tokens as double a step, and a few in any case."""
    model = LatencyModel.fit([(Work(n), 0.01 + 0.001 * n) for n in KNOTS])
    planner = Planner(model, most_nodes=16, most_depth=4, drafting=Drafting({1: 0.001}))

    assert planner.prompt_room(1, 0, 512) == 16  # 0.011 s doubled would be 11 tokens
    assert planner.prompt_room(40, 0, 512) == 50
    assert planner.prompt_room(40, 0, 30) == 30
    assert planner.prompt_room(1, 0, 8) == 8


def test_guesses_are_as_long_as_pays_for_all_who_guess():
    """Long ones for one session that is nearly sure; short ones or none for many, whose tokens fill the free steps."""
    planner = Planner(Machine(free=16).latency(), most_nodes=16, most_depth=4, drafting=Drafting({1: 10.0}))
    planner.plan([Standing(Alike("all", 0, 0), 50)] * 8, 0.0)
    sure = [planner.guess_length(0.95, 24, guessing) for guessing in (1, 8)]
    unsure = [planner.guess_length(0.3, 24, guessing) for guessing in (1, 8)]

    assert sure[0] > unsure[0] >= 1
    assert sure[1] < sure[0]
    assert 8 + 8 * unsure[1] <= 24
    assert (
        Planner(Machine().latency(), most_nodes=1, most_depth=1, drafting=Drafting({1: 1.0})).guess_length(1, 24, 1)
        == 24
    )
