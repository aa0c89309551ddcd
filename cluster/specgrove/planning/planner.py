"""What a target asks of its drafts, decided again and again from what was measured.

A state machine without clock or I/O: it is told what steps and rounds took and brought, and says how deep and how large
the next trees of each kind of session should be; nothing at all when plain decoding is predicted to be faster.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specgrove.planning.acceptance import AcceptanceEstimate, Visit
from specgrove.planning.budget import Budget, Floats, Gains, Group, Ints, RoundTime, best_budget, expected
from specgrove.planning.drafting import Drafting, DraftTimes
from specgrove.planning.latency import LatencyModel, Residual, Work

REPLAN_S = 0.1
"""Seconds between two decisions, unless the load changes."""
MARGIN = 0.03
"""Predicted gain from which a budget replaces the present one."""
SETTLED_S = 0.2
"""Seconds for which decisions must agree before drafting starts or ends."""
PROBE_S = 1.5
"""Seconds between two probes of a kind of sessions that does not draft."""
PROBE_ROUNDS = 3
"""Rounds of one session that a probe takes."""
PROBE_DEPTH, PROBE_NODES = 2, 4
"""A probe's tree: cheap, and tells much."""
FADE_S = 5.0
"""Seconds without drafting after which what was known of a draft weighs 1/e: it may have changed."""
REMEMBERED_STEPS = 256
"""Steps from which a latency model that no longer holds is brought up to date."""
ADOPT_BELOW = 20.0
"""Rounds from which a replica trusts its own counts alone."""
STALL = 2.0
"""How many times as long a decoding step may take for the sake of prompts."""
PROMPT_TOKENS = 16
"""Prompt tokens that every step may compute."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A tree's depth and number of nodes, the root not counted. No nodes: decode plainly."""

    depth: int = 0
    nodes: int = 0


PLAIN = Asked()


class Alike(NamedTuple):
    """Sessions that are planned together: whose estimate is theirs, and how large a tree each may have at most."""

    kind: str
    most_nodes: int
    most_depth: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A session that decodes: whom it is like, and its context in tokens."""

    alike: Alike
    context: int


@dataclass(slots=True)
class _Probe:
    """Of one kind of sessions: when it began, the session that drafts, and the rounds that it still may."""

    began: float
    session: Hashable = None
    rounds: int = PROBE_ROUNDS


@dataclass(slots=True)
class Planner:
    """Plans of one target replica. Not thread-safe."""

    latency: LatencyModel
    """The target's."""
    most_nodes: int
    most_depth: int
    drafting: Drafting
    """A draft that has not told how long its passes take."""
    step: Residual = field(default_factory=Residual)
    """Steps against the latency model."""
    round: Residual = field(default_factory=Residual)
    """Rounds with trees against the sum of their parts: what overlaps and what is lost between them."""
    budget: Budget | None = None
    _estimates: dict[str, AcceptanceEstimate] = field(default_factory=dict)
    _asked: dict[Alike, Asked] = field(default_factory=dict)
    _groups: dict[Alike, Group] = field(default_factory=dict)
    _adopted: set[str] = field(default_factory=set)
    """Kinds of which the beginning came from others."""
    _costs: _RoundCosts | None = None
    _steps: deque[tuple[Work, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_STEPS))
    _nodes: int = 0
    """Tree nodes of all sessions together."""
    _planned_at: float = float("-inf")
    _planned_for: int = 0
    _switching_since: float | None = None
    _probes: dict[str, _Probe] = field(default_factory=dict)
    _drafts: DraftTimes = field(init=False)

    def __post_init__(self) -> None:
        self._drafts = DraftTimes(self.drafting)

    # -- what happened ------------------------------------------------------------------------------------------------

    def stepped(self, work: Work, seconds: float) -> None:
        """A step of the target without prompts."""
        self.step.observe(self.latency.seconds(work), seconds)
        self._steps.append((work, seconds))
        if self.step.drifted and len(self._steps) == self._steps.maxlen:
            self.latency = self.latency.refreshed(self._steps, self.step.factor)
            self.step = Residual()
            self._steps.clear()

    def took_round(self, kind: str, seen: Sequence[Visit]) -> None:
        """A round with a tree: what was accepted of it."""
        self._estimate(kind).observe(seen)
        if (probe := self._probes.get(kind)) is not None:
            probe.rounds -= 1

    def drafted(self, draft: str, *, levels: int, draft_s: float, waited_s: float) -> None:
        """A tree came: `draft_s` of so many forward passes, one a level, `waited_s` since it was asked for."""
        self._drafts.observe(draft, levels, self._nodes / levels, draft_s=draft_s, waited_s=waited_s)

    def draft_came(self, draft: str, pass_s: Mapping[int, float]) -> None:
        """A draft connected, with what its passes take if it knows."""
        self._drafts.came(draft, pass_s)

    def draft_left(self, draft: str) -> None:
        """It serves no session any more."""
        self._drafts.left(draft)

    def cycled(self, work: Work, depth: int, seconds: float) -> None:
        """From one commit of a session with trees to the next; `work` is the step that verified its tree."""
        costs = _RoundCosts(self, work.sessions, work.context)
        nodes = work.tokens - work.sessions
        self.round.observe(float(costs(np.array([nodes]), depth)[0]) / self.round.factor, seconds)

    # -- what is to be done -------------------------------------------------------------------------------------------

    def due(self, sessions: int, now: float) -> bool:
        """Whether to decide again."""
        return sessions != self._planned_for or now - self._planned_at >= REPLAN_S

    def plan(self, standings: Sequence[Standing], now: float) -> None:
        """Decide for the sessions that decode now."""
        if not standings:
            return
        self._fade(now)
        self._planned_at, self._planned_for = now, len(standings)
        counts = Counter(one.alike for one in standings)
        before, self._groups = self._groups, {alike: self._group(alike, members) for alike, members in counts.items()}
        self._costs = _RoundCosts(self, len(standings), sum(one.context for one in standings))
        budget = self.budget = self._settled(before, self._costs, now)
        asked = dict(zip(counts, budget.nodes, strict=True))
        self._asked = {alike: Asked(budget.depth, nodes) for alike, nodes in asked.items() if nodes}
        self._nodes = sum(group.members * asked[alike] for alike, group in self._groups.items())
        drafting = {alike.kind for alike in self._asked}
        for kind in {alike.kind for alike in counts if alike.most_nodes}:
            if kind in drafting:
                self._probes.pop(kind, None)
            elif kind not in self._probes or now - self._probes[kind].began >= PROBE_S:
                self._probes[kind] = _Probe(now)

    def asked(self, alike: Alike, session: Hashable) -> Asked:
        """What the session's next tree should be.

        Of kinds that decode plainly one session drafts now and then, so that acceptance stays known.
        """
        asked = self._asked.get(alike, PLAIN)
        probe = self._probes.get(alike.kind)
        if asked.nodes or probe is None or probe.rounds <= 0:
            return asked
        if probe.session is None:
            probe.session = session
        if probe.session != session:
            return PLAIN
        return Asked(min(PROBE_DEPTH, alike.most_depth), min(PROBE_NODES, alike.most_nodes))

    @property
    def gain(self) -> float:
        """Predicted tokens per second over those of plain decoding, at the load of the last decision."""
        if self.budget is None or self._costs is None:
            return 1.0
        plain_s = float(self._costs(np.array([0]), 0)[0])
        return self.budget.goodput * plain_s / self._costs.sessions

    @property
    def nodes_per_session(self) -> float:
        """Of the last decision."""
        return self._nodes / self._planned_for if self._planned_for else 0.0

    def guess_length(self, chance: float, most: int, guessing: int) -> int:
        """Guessed tokens of each session, up to `most`, that make the present load's tokens per second largest.

        chance: of each token to be right after the ones before it.  guessing: sessions that guess, this one included;
        what one more token costs is what it costs for all of them.
        """
        if self.budget is None or self._costs is None:
            return most
        lengths = np.arange(most + 1)
        right = np.cumsum(np.concatenate([[0.0], np.power(chance, lengths[1:])]))
        seconds = self._costs(self._nodes + guessing * lengths, self.budget.depth)
        return int(((self.budget.tokens + guessing * right) / seconds).argmax())

    def prompt_room(self, sessions: int, context: int, most: int) -> int:
        """Prompt tokens, up to `most`, with which a step of decoding sessions takes at most STALL times as long.

        At least PROMPT_TOKENS, so that no prompt waits for ever.
        """
        tokens = np.arange(most + 1)
        seconds = self.latency.curve(sessions + tokens, sessions, context)
        return max(min(PROMPT_TOKENS, most), int(np.searchsorted(seconds, STALL * seconds[0], side="right")) - 1)

    def beats(self, tokens: float, nodes: int, alike: Alike) -> bool:
        """Whether a session that brings so many tokens with so many nodes of its own gains by not being drafted for.

        tokens: expected of a round without a draft. Compared as if every session were in its place.
        """
        group = self._groups.get(alike)
        if self.budget is None or self._costs is None or group is None:
            return False
        drafted = max(tokens, group.gains.tokens(self.budget.depth, self._asked.get(alike, PLAIN).nodes))
        plain_s = self._costs(np.array([nodes * self._costs.sessions]), 0)[0]
        return bool(tokens / plain_s > drafted / self.budget.seconds)

    # -- what equal replicas know --------------------------------------------------------------------------------------

    def known(self) -> dict[str, Any]:
        """Acceptance of every kind that was seen here, in plain values; nothing that only others have seen."""
        return {
            kind: estimate.to_mapping()
            for kind, estimate in self._estimates.items()
            if estimate.rounds >= ADOPT_BELOW and estimate.weight >= 1
        }

    def adopt(self, others: Iterable[Mapping[str, AcceptanceEstimate]]) -> None:
        """Start from what others know of kinds of which nothing much was seen here; once for each kind.

        What was adopted fades like everything else, and is not asked for again: others' old counts must not bring
        back what this replica has forgotten since.
        """
        found: dict[str, list[AcceptanceEstimate]] = {}
        for kinds in others:
            for kind, estimate in kinds.items():
                found.setdefault(kind, []).append(estimate)
        for kind in found.keys() - self._adopted:
            if self._estimate(kind).rounds < ADOPT_BELOW:
                self._adopted.add(kind)
                for estimate in found[kind]:
                    self._estimate(kind).merge(estimate)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _estimate(self, kind: str) -> AcceptanceEstimate:
        return self._estimates.setdefault(kind, AcceptanceEstimate())

    def _fade(self, now: float) -> None:
        """Forget slowly what is known of kinds that do not draft."""
        if self.budget is not None:
            drafting = {alike.kind for alike in self._asked}
            for kind, estimate in self._estimates.items():
                if kind not in drafting:
                    estimate.fade((now - self._planned_at) / FADE_S)

    def _group(self, alike: Alike, members: int) -> Group:
        nodes, depth = min(self.most_nodes, alike.most_nodes), min(self.most_depth, alike.most_depth)
        return Group(members, self._gains(alike.kind), nodes, depth)

    def _gains(self, kind: str) -> Gains:
        return Gains(self._estimate(kind).vector(), nodes=self.most_nodes, depth=self.most_depth)

    def _settled(self, before: Container[Alike], round_time: RoundTime, now: float) -> Budget:
        """The best budget, or the present one as long as it is nearly as good.

        Drafting starts and ends only when decisions have agreed for a while. Sessions that were not there before begin
        as is best.
        """
        members = list(self._groups.values())
        best = best_budget(members, round_time)
        if self.budget is None or not any(alike in before for alike in self._groups):
            return best
        present_nodes = [
            self._asked.get(alike, PLAIN).nodes if alike in before else nodes
            for alike, nodes in zip(self._groups, best.nodes, strict=True)
        ]
        present = expected(members, present_nodes, self.budget.depth, round_time)
        if best.goodput < present.goodput * (1 + MARGIN):
            self._switching_since = None
            return present
        if best.off == present.off:
            self._switching_since = None
            return best
        if self._switching_since is None:
            self._switching_since = now
        if now - self._switching_since < SETTLED_S:
            return present
        self._switching_since = None
        return best


@dataclass(frozen=True, slots=True)
class _RoundCosts:
    """Seconds of a round of so many sessions with so much context: one step, the levels of the trees, the network."""

    planner: Planner
    sessions: int
    context: int

    def __call__(self, nodes: Ints, depth: int) -> Floats:
        planner = self.planner
        step = planner.step.factor * planner.latency.curve(self.sessions + nodes, self.sessions, self.context)
        if depth == 0:
            return step
        return planner.round.factor * (step + planner._drafts.round_s(nodes / depth, depth))
