"""Filling a step: which sessions and prompts run now, and how they get KV rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specgrove.engine.batch import Segment
from specgrove.engine.runner import Engine
from specgrove.errors import CapacityError
from specgrove.target.compose import compose
from specgrove.target.drafts import Drafts
from specgrove.target.job import Job
from specgrove.target.session import Session


@dataclass(slots=True)
class Work:
    """One segment of a step, and whose it is: a prompt's, a decoding session's, or a preempted session's."""

    segment: Segment
    job: Job
    session: Session | None = None
    recomputes: bool = False


class Filler:
    """Composes steps of one engine."""

    def __init__(self, engine: Engine, drafts: Drafts, *, max_batched_tokens: int) -> None:
        self.engine = engine
        self.drafts = drafts
        self.max_batched_tokens = max_batched_tokens

    def fill(self, running: Sequence[Job], now: float) -> list[Work]:
        """Segments of the next step. Sessions whose tree is still on its way sit it out until their limit."""
        decoding = [session for job in running if job.prefilled for session in job.unfinished]
        ready = [session for session in decoding if self._ready(session, now)]
        prompts: list[Job | Session] = [session for session in decoding if session.behind]
        prompts += [job for job in running if not job.prefilled]
        needs = [p.behind if isinstance(p, Session) else p.remaining for p in prompts]
        most = self.drafts.plans.prompt_room(decoding, self.max_batched_tokens) if needs and decoding else None
        shares = compose([len(s.tree) for s in ready], needs, self.max_batched_tokens, most_prompt=most)
        work: list[Work] = []
        for session, rows in zip(ready, shares.decodes, strict=True):
            if (segment := self._decode(session, rows, work, decoding)) is not None:
                work.append(Work(segment, session.job, session))
        for prompt, rows in zip(prompts, shares.prompts, strict=True):
            if rows and (made := _prompt(prompt, rows)) is not None:
                work.append(made)
        return work

    def _ready(self, session: Session, now: float) -> bool:
        if session.behind:
            return False
        if not len(session.drafted):
            if session.wait_until > now:
                return False
            if session.wait_until:
                self.drafts.missed(session, now)
        session.join()
        return True

    def _decode(self, session: Session, rows: int, work: Sequence[Work], decoding: Sequence[Session]) -> Segment | None:
        """The session's rows. When the pool is full its tree goes first, then younger sessions are preempted."""
        if session.behind:
            return None  # preempted by an elder session of this very step
        while True:
            try:
                return session.segment(rows, self.engine.card.max_model_len)
            except CapacityError:
                if len(session.tree):
                    session.drop_tree()
                elif not self._preempt_younger(session, work, decoding):
                    return None

    def _preempt_younger(self, session: Session, work: Sequence[Work], decoding: Sequence[Session]) -> bool:
        """Free the KV of the youngest session that is younger than this one and not yet in this step."""
        busy = {id(w.session) for w in work}
        younger = [s for s in decoding if id(s) not in busy and not s.behind and _age(s) > _age(session)]
        if not younger:
            return False
        victim = max(younger, key=_age)
        victim.drop_tree()
        victim.rewind(self.engine.pool.open(()))
        return True


def _prompt(prompt: Job | Session, rows: int) -> Work | None:
    """Rows of a prompt or of a preempted session; None while the pool is full (running sessions end and make room)."""
    try:
        if isinstance(prompt, Session):
            return Work(prompt.catch_up(rows), prompt.job, prompt, recomputes=True)
        return Work(prompt.chunk(rows), prompt)
    except CapacityError:
        return None


def _age(session: Session) -> tuple[float, int]:
    """Order of arrival; larger is younger."""
    return (session.job.arrived, session.choice)
