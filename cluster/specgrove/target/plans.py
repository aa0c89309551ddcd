"""What each session asks of its draft: a fixed plan, or whatever the planner finds best for the present load.

All state belongs to the device thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from specgrove.core.cards import ReplicaCard
from specgrove.core.protocols import TargetObserver
from specgrove.core.speculate import DraftPlan, DraftTree
from specgrove.planning.acceptance import Visit, visits
from specgrove.planning.goodput import chain_tokens
from specgrove.planning.latency import Work
from specgrove.planning.planner import Alike, Asked, Planner, Standing
from specgrove.target.guesses import Chances
from specgrove.target.job import Job
from specgrove.target.session import Session

LUCK_BOUNDS = (0.4, 0.7)
"""Sessions are planned together by how often a node's children hold what comes next: seldom, mostly, nearly always."""
MOST_AHEAD = 4
"""Most levels that a draft grows on while its tree is verified."""
LONGEST_GUESS = 24
"""Most tokens that a target guesses by itself."""
PRICE = 0.25
"""Without a planner: chance of being right from which a guessed token is worth checking."""
SMOOTHING = 0.1
"""Weight of the newest round in a session's luck."""


class Plans:
    """Plans of one target replica's sessions.

    planner: None for a fixed plan.  guess_tokens: length of every guess of the target's own; None for what pays.
    ahead: levels that drafts grow on meanwhile; None for some where drafts are apart.
    """

    def __init__(
        self,
        planner: Planner | None = None,
        observer: TargetObserver | None = None,
        *,
        guess_tokens: int | None = None,
        ahead: int | None = 0,
    ) -> None:
        self.planner = planner
        self._observer = observer
        self._guess_tokens = guess_tokens
        self._ahead = ahead
        self.chances = Chances()
        self.drafts: tuple[ReplicaCard, ...] = ()
        """Drafts that are connected."""
        self.apart = False
        """None of them shares its cores with the target."""
        self._guessing = 0
        """Sessions that guessed by themselves at the last decision."""
        self._luck = 0.6
        """Of new sessions: that of the others, lately."""

    def replan(self, running: Sequence[Job], now: float) -> None:
        """Decide again when it is time."""
        if self.planner is None:
            return
        decoding = [session for job in running if job.prefilled for session in job.unfinished]
        if not self.planner.due(len(decoding), now):
            return
        self._guessing = sum(bool(session.guess or session.coming[0]) for session in decoding)
        self.planner.plan([self._standing(session) for session in decoding], now)
        if (budget := self.planner.budget) is not None and self._observer is not None:
            self._observer.planned(nodes=self.planner.nodes_per_session, depth=budget.depth, gain=self.planner.gain)

    def prompt_room(self, decoding: Sequence[Session], most: int) -> int | None:
        """Prompt tokens that one step may compute beside sessions that decode; None where nothing is known."""
        if self.planner is None:
            return None
        return self.planner.prompt_room(len(decoding), sum(len(session.tokens) for session in decoding), most)

    def next(self, session: Session) -> DraftPlan | None:
        """The plan for the session's next tree, the present one as long as nothing changed; None: decode plainly."""
        ceiling = session.ceiling
        if ceiling is None:
            return None
        if self.planner is None or session.job.request.speculation.branching:
            return session.plan or replace(ceiling, ahead=self._levels_ahead(ceiling.max_depth))
        asked = self.planner.asked(self._alike(session), session.id)
        if not asked.nodes:
            return None
        nodes, depth = min(asked.nodes, ceiling.max_nodes), min(asked.depth, ceiling.max_depth)
        if session.asked != Asked(depth, nodes) or session.plan is None:
            session.asked = Asked(depth, nodes)
            session.plan_version += 1
            branching = tuple(min(width, nodes) for width in ceiling.branching[:depth])
            return replace(
                ceiling,
                version=session.plan_version,
                branching=branching,
                max_nodes=nodes,
                ahead=self._levels_ahead(depth),
            )
        return session.plan

    def _levels_ahead(self, depth: int) -> int:
        """A draft that has cores of its own would idle otherwise; one that shares them would slow the target down."""
        if self._ahead is not None:
            return self._ahead
        return min(depth, MOST_AHEAD) if self.apart else 0

    def arrived(self, session: Session, message: DraftTree, waited_s: float) -> None:
        """A tree came."""
        if self.planner is not None and message.levels and session.link is not None:
            draft = session.link.card.replica
            self.planner.drafted(draft, levels=message.levels, draft_s=message.draft_s, waited_s=waited_s)

    def guess(self, session: Session) -> None:
        """Let the session guess by itself, as many tokens as pay."""
        if session.guesses is None:
            return
        tokens, kind = session.guesses.guess(self._guess_tokens or LONGEST_GUESS)
        worth = self._worth(self.chances.of(kind)) if tokens else 0
        session.coming = (tokens[:worth], kind) if worth else ((), "")

    def pays_alone(self, session: Session) -> bool:
        """A guess so good that waiting for a draft's tree would not pay."""
        tokens, kind = session.coming
        if self.planner is None or not tokens or session.job.request.speculation.branching:
            return False
        expected = chain_tokens(self.chances.of(kind), len(tokens))
        return self.planner.beats(expected, len(tokens), self._alike(session))

    def _worth(self, chance: float) -> int:
        """Guessed tokens that pay, when each is right with this chance after the ones before it."""
        if self._guess_tokens is not None:
            return self._guess_tokens
        if self.planner is not None:
            return self.planner.guess_length(chance, LONGEST_GUESS, max(1, self._guessing))
        return LONGEST_GUESS if chance >= 1 else min(LONGEST_GUESS, int(math.log(PRICE) / math.log(chance)))

    def took(self, session: Session, emitted: Sequence[int], work: Work | None, now: float) -> None:
        """A round of the session, while its tree is still there. work: of a step without prompts."""
        asked_at, session.asked_at = session.asked_at, now
        if session.guess:
            self.chances.observe(session.guess_kind, *session.guessed(emitted))
        if self.planner is None or not len(session.drafted):
            return
        if work is not None and asked_at:
            self.planner.cycled(work, session.drafted.depth, now - asked_at)
        seen = _judged(session, emitted)
        if not seen:
            return
        self.planner.took_round(self._kind(session), seen)
        luck = sum(visit.taken is not None for visit in seen) / len(seen)
        session.luck = self._of(session) + SMOOTHING * (luck - self._of(session))
        self._luck += SMOOTHING / 10 * (luck - self._luck)

    def stepped(self, work: Work, seconds: float) -> None:
        """A step without prompts."""
        if self.planner is not None:
            self.planner.stepped(work, seconds)

    def _of(self, session: Session) -> float:
        return self._luck if session.luck is None else session.luck

    def _kind(self, session: Session) -> str:
        """Whose estimate is the session's: its draft's weights and exit, sampled or not, and how lucky it is.

        A session without a draft would be given the first, as far as anybody knows.
        """
        cards = (session.link.card,) if session.link is not None else self.drafts
        draft = f"{cards[0].model.weights_digest[:8]}/{cards[0].model.layers}" if cards else "none"
        level = sum(self._of(session) >= bound for bound in LUCK_BOUNDS)
        return f"{draft} {'sampled' if session.job.params.temperature > 0 else 'greedy'} {level}"

    def _alike(self, session: Session) -> Alike:
        ceiling = session.ceiling
        asks = session.job.request.speculation.branching
        nodes, depth = (0, 0) if ceiling is None or asks or not self.drafts else (ceiling.max_nodes, ceiling.max_depth)
        return Alike(self._kind(session), nodes, depth)

    def _standing(self, session: Session) -> Standing:
        return Standing(self._alike(session), len(session.tokens))


def _judged(session: Session, emitted: Sequence[int]) -> list[Visit]:
    """The nodes whose children the round judged.

    When all that was emitted was drafted, the text ended there: nothing was drawn below the last token. A tree that was
    cut to what fits says nothing, because missing children look like refused ones.
    """
    if session.cut:
        return []
    path = session.drafted.follow(emitted)
    seen = visits(session.drafted, path)
    return [visit for visit in seen if visit.depth < len(emitted)]
