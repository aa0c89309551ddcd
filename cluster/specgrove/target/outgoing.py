"""What a target sends to clients and to its observer: events are queued during a step and delivered at its end."""

from __future__ import annotations

import time

from torch import Tensor

from specgrove.core.protocols import TargetObserver
from specgrove.core.request import ChoiceFinished, Chunk, Finished, GenerateEvent, RoundTrace, Started, TokenLogprob
from specgrove.engine.tokenizer import TextCodec
from specgrove.errors import SpecgroveError
from specgrove.sampling.verify import Verdict
from specgrove.target.job import Job
from specgrove.target.logprobs import token_logprobs
from specgrove.target.session import Session


class Outgoing:
    """The events of one step, in order."""

    def __init__(self, codec: TextCodec, observer: TargetObserver) -> None:
        self.observer = observer
        self._codec = codec
        self._events: list[tuple[Job, GenerateEvent | SpecgroveError]] = []

    def started(self, job: Job) -> None:
        """The prompt is computed."""
        now = time.perf_counter()
        self.observer.prefilled(tokens=len(job.prompt), cached=job.cached_tokens, ttft_s=now - job.arrived)
        for session in job.sessions:
            session.last_emit = now
        text = self._codec.decode(job.prompt, skip_special_tokens=False) if job.request.echo else ""
        self._send(
            job,
            Started(
                request_id=job.request.request_id,
                model=job.request.model,
                seed=job.params.seed,
                prompt_tokens=len(job.prompt),
                cached_tokens=job.cached_tokens,
                prompt_text=text,
                prompt_logprobs=tuple(job.prompt_logprobs),
            ),
        )

    def round(
        self,
        session: Session,
        verdict: Verdict,
        kept: list[int],
        text: str,
        logits: Tensor,  # [1 + nodes, vocab]
        *,
        forward_s: float,
    ) -> None:
        """One Chunk for a round of a session, while its tree is still there, and the round's numbers."""
        now = time.perf_counter()
        round_s, drafted = now - session.last_emit, len(session.tree)
        accepted = min(len(verdict.accepted), len(kept))
        trace = None
        if session.job.request.trace:
            trace = RoundTrace(
                tree=session.tree,
                accepted=verdict.accepted[:accepted],
                emitted=tuple(kept),
                draft=session.tree_from,
                draft_s=session.tree_draft_s,
                verify_s=forward_s,
                round_s=round_s,
            )
        logprobs: tuple[TokenLogprob, ...] = ()
        if session.job.request.logprobs is not None:
            judged = [0, *(node + 1 for node in verdict.accepted)][: len(kept)]
            logprobs = token_logprobs(logits[judged], kept, session.job.request.logprobs, self._codec)
        chunk = Chunk(choice=session.choice, tokens=tuple(kept), text=text, logprobs=logprobs, trace=trace)
        self._send(session.job, chunk)
        self.observer.committed(
            drafted=drafted,
            accepted=accepted,
            emitted=len(kept),
            waited_s=session.waited_s if drafted else 0.0,
            other_s=max(0.0, round_s - session.tree_draft_s - forward_s) if drafted else None,
            gap_s=round_s,
        )
        session.last_emit, session.waited_s = now, 0.0

    def choice_finished(self, session: Session) -> None:
        """One choice ended by itself."""
        stop = session.finished
        assert stop is not None
        event = ChoiceFinished(
            choice=session.choice,
            reason=stop.reason,
            stop_reason=stop.stop_reason,
            completion_tokens=session.generated,
            stats=session.stats,
        )
        self._send(session.job, event)
        self._count(session.job, stop.reason, session.generated, first=session.choice == 0)

    def evaluated(self, job: Job) -> None:
        """A request for no tokens: every choice ends at once."""
        for session in job.sessions:
            self._send(job, ChoiceFinished(choice=session.choice, reason="length"))
        self._count(job, "length", 0, first=True)

    def finished(self, job: Job) -> None:
        """Every choice ended."""
        completion = sum(session.generated for session in job.sessions)
        event = Finished(prompt_tokens=len(job.prompt), completion_tokens=completion, cached_tokens=job.cached_tokens)
        self._send(job, event)

    def broken_off(self, job: Job, error: SpecgroveError | None) -> None:
        """The job was cancelled, or failed with `error`."""
        completion = sum(session.generated for session in job.sessions)
        self._count(job, "cancelled" if error is None else "error", completion, first=True)
        if error is not None:
            self._events.append((job, error))

    def _count(self, job: Job, reason: str, completion: int, *, first: bool) -> None:
        self.observer.finished(
            reason,
            prompt_tokens=len(job.prompt) if first else 0,
            completion_tokens=completion,
            e2e_s=time.perf_counter() - job.arrived,
        )

    def _send(self, job: Job, event: GenerateEvent) -> None:
        self._events.append((job, event))

    def deliver(self) -> None:
        """Hand the queued events out, one call per job."""
        events, self._events = self._events, []
        by_job: dict[int, tuple[Job, list[GenerateEvent | SpecgroveError]]] = {}
        for job, event in events:
            by_job.setdefault(id(job), (job, []))[1].append(event)
        for job, own in by_job.values():
            job.emit(own)
