"""The target's step loop: continuous batching with trees.

`StepLoop` is synchronous and single threaded; `target/replica.py` runs it on the device thread and feeds it. One call
of `step` is one forward pass: prompt chunks, trees of sessions whose tree has come, single tokens of the others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from specgrove.core.protocols import TargetObserver
from specgrove.core.speculate import DraftPlan
from specgrove.engine.runner import Engine
from specgrove.errors import DeadlineExceeded, SpecgroveError
from specgrove.planning.latency import Work as Load
from specgrove.sampling.verify import Verdict, VerifyJob, verify
from specgrove.target.drafts import Drafts
from specgrove.target.fill import Filler, Work
from specgrove.target.job import Job
from specgrove.target.logprobs import token_logprobs, unscored
from specgrove.target.outgoing import Outgoing
from specgrove.target.session import Session, open_sessions


class StepLoop:
    """Jobs and sessions of one target engine."""

    def __init__(
        self,
        engine: Engine,
        drafts: Drafts,
        observer: TargetObserver,
        *,
        plan: DraftPlan | None,
        max_num_seqs: int,
        max_batched_tokens: int,
    ) -> None:
        self.engine = engine
        self.drafts = drafts
        self.plan = plan
        self.max_num_seqs = max_num_seqs
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self._observer = observer
        self._filler = Filler(engine, drafts, max_batched_tokens=max_batched_tokens)
        self._out = Outgoing(engine.codec, observer)
        self._forward_s = 0.0

    def submit(self, job: Job) -> None:
        """Queue a request; it starts when there is room."""
        self.waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Drop a request at once: KV and draft sessions are freed, nothing more is sent."""
        if not job.over:
            self._out.broken_off(job, None)
            self._free(job)

    def fail_all(self, error: SpecgroveError) -> None:
        """End every request with `error` (a failed step, a stopping replica)."""
        for job in [*self.running, *self.waiting]:
            self._fail(job, error)
        self.drafts.flush()
        self._out.deliver()

    def step(self, now: float) -> float | None:
        """Run one step if anything is ready, and return 0; else how long nothing will be (None: until told)."""
        self._expire(now)
        self._admit(now)
        self.drafts.flush()  # drafts prepare new prompts while we compute them
        self.drafts.plans.replan(self.running, now)
        work = self._filler.fill(self.running, now)
        if work:
            self._run(work)
        self.drafts.flush()
        self._out.deliver()
        return 0.0 if work else self._idle_for(now)

    def _idle_for(self, now: float) -> float | None:
        ends = [s.wait_until for job in self.running for s in job.unfinished if s.wait_until > now]
        ends += [job.deadline for job in [*self.running, *self.waiting] if job.deadline is not None]
        return max(1e-4, min(ends) - now) if ends else None

    def _expire(self, now: float) -> None:
        for job in [*self.running, *self.waiting]:
            if job.deadline is not None and now >= job.deadline:
                self._fail(job, DeadlineExceeded("the request's deadline passed", param="timeout_s"))

    def _admit(self, now: float) -> None:
        """Start waiting requests in order while sessions and KV have room."""
        room = self.max_num_seqs - sum(max(1, len(job.unfinished)) for job in self.running)
        while self.waiting and self.waiting[0].request.n <= room:
            job = self.waiting[0]
            stats = self.engine.pool.stats()
            if self.running and stats.free + stats.cached < len(job.prompt):
                return
            self.waiting.popleft()
            room -= job.request.n
            job.sequence = self.engine.pool.open(() if job.scores_prompt else job.prompt)
            job.cached_tokens = job.sequence.length
            self.running.append(job)
            try:
                job.sessions = open_sessions(job, job.sequence, self.engine, self.plan)
            except SpecgroveError as error:
                self._fail(job, error)
                continue
            self.drafts.open(job.sessions[0], wants_tree=False, now=now)

    def _run(self, work: Sequence[Work]) -> None:
        begun = time.perf_counter()
        logits = self.engine.forward([w.segment for w in work])
        self._forward_s = time.perf_counter() - begun
        edges = [0]
        for w in work:
            edges.append(edges[-1] + len(w.segment.wanted))
        parts = [(w, logits[a:b]) for w, (a, b) in zip(work, pairwise(edges), strict=True)]
        decodes = [(w.session, own) for w, own in parts if w.session is not None and not w.recomputes]
        load = _load(work) if len(decodes) == len(work) else None
        self._verify(decodes, load)
        for w, own in parts:
            if w.session is None or w.recomputes:
                self._computed(w, own)
        seconds = time.perf_counter() - begun
        if load is not None:
            self.drafts.stepped(seconds)
            self.drafts.plans.stepped(load, seconds)
        rows = sum(len(w.segment.tokens) for w in work)
        self._observer.stepped(rows=rows, sessions=len(work), forward_s=self._forward_s, total_s=seconds)

    def _verify(self, decodes: Sequence[tuple[Session, Tensor]], load: Load | None) -> None:
        """Judge every tree, tell the drafts first (they can start at once), then send the text and settle the KV."""
        verdicts = verify([VerifyJob(s.sampler, s.tree, logits, len(s.tokens)) for s, logits in decodes])
        taken = [session.take(verdict) for (session, _), verdict in zip(decodes, verdicts, strict=True)]
        now = time.perf_counter()
        for (session, _), (kept, _) in zip(decodes, taken, strict=True):
            self.drafts.plans.took(session, kept, load, now)
            self.drafts.plans.guess(session)
            self._tell_draft(session)
        self.drafts.flush()
        for (session, logits), verdict, (kept, text) in zip(decodes, verdicts, taken, strict=True):
            self._out.round(session, verdict, kept, text, logits, forward_s=self._forward_s)
            session.settle(verdict, len(kept))
            if session.finished is not None:
                self._finish(session)

    def _tell_draft(self, session: Session) -> None:
        now = time.perf_counter()
        if session.finished is not None:
            self.drafts.close(session)
        elif session.link is not None:
            self.drafts.committed(session, now)
        else:
            self.drafts.open(session, wants_tree=True, now=now)

    def _computed(self, work: Work, logits: Tensor) -> None:
        """Commit prompt rows; when the prompt is complete, every choice draws its first token."""
        segment, job = work.segment, work.job
        segment.sequence.commit(range(len(segment.tokens)), segment.tokens)
        if work.recomputes or job.over:
            return
        if job.scores_prompt:
            self._score_prompt(job, work, logits)
        if job.remaining == 0:
            self._begin(job, logits[-1])

    def _score_prompt(self, job: Job, work: Work, logits: Tensor) -> None:
        """Log-probabilities of prompt tokens: row i judges token i + 1; nothing judges the first."""
        first, codec = work.segment.positions[0], self.engine.codec
        if first == 0:
            job.prompt_logprobs.append(unscored(job.prompt[0], codec))
        judged = job.prompt[first + 1 : first + 1 + len(work.segment.tokens)]
        job.prompt_logprobs += token_logprobs(logits[: len(judged)], judged, job.request.logprobs, codec)

    def _begin(self, job: Job, logits: Tensor) -> None:
        """The prompt is complete: give every choice its own KV and its first token."""
        assert job.sequence is not None
        self._out.started(job)
        if job.max_tokens == 0:
            self._out.evaluated(job)
            self._out.finished(job)
            self._free(job)
            return
        for session in job.sessions:
            if session.choice:
                session.sequence = job.sequence.fork()
        job.sequence, job.prefilled = None, True
        for session in job.sessions:
            session.drop_tree()
            verdict = Verdict((), (session.sampler.draw(logits, len(session.tokens)),))
            kept, text = session.take(verdict)
            self.drafts.plans.guess(session)
            self._tell_draft(session)
            session.begin_round()
            self._out.round(session, verdict, kept, text, logits[None], forward_s=self._forward_s)
            if session.finished is not None:
                self._finish(session)

    def _finish(self, session: Session) -> None:
        """One choice ended; with the last one the job ends."""
        self._out.choice_finished(session)
        session.sequence.release()
        session.closed = True
        if all(other.closed for other in session.job.sessions):
            self._out.finished(session.job)
            self._free(session.job)

    def _fail(self, job: Job, error: SpecgroveError) -> None:
        if not job.over:
            self._out.broken_off(job, error)
            self._free(job)

    def _free(self, job: Job) -> None:
        """Give back everything a job holds."""
        job.over = True
        for session in job.sessions:
            self.drafts.close(session)
            if job.prefilled:
                session.sequence.release()
        if job.sequence is not None:
            job.sequence.release()
        if job in self.running:
            self.running.remove(job)
        elif job in self.waiting:
            self.waiting.remove(job)


def _load(work: Sequence[Work]) -> Load:
    """What a step computes, for the planner."""
    tokens = sum(len(w.segment.tokens) for w in work)
    return Load(tokens, len(work), sum(w.segment.sequence.length for w in work))
