"""The metrics of one replica process: cheap to write on the device thread, one text when asked.

The writing methods cost about a microsecond each and are to be called from one thread; `exposition` may be called
from any. `catalog.py` says what each metric means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from specgrove.core.cards import Load
from specgrove.core.request import FinishReason
from specgrove.telemetry import catalog
from specgrove.telemetry.tally import Family, Number, Spec

_VLLM_REASON: dict[FinishReason, str] = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}


class ReplicaMetrics:
    """The families of one process in a registry of its own. Base of Metrics and DraftMetrics."""

    def __init__(self, specs: Sequence[Spec], *, model_name: str, replica: str) -> None:
        self._families = {spec.name: Family(spec, (model_name, replica)) for spec in specs}
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's collector interface."""
        for family in self._families.values():
            yield family.collect()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _family(self, spec: Spec) -> Family:
        return self._families[spec.name]

    def _number(self, spec: Spec) -> Number:
        return self._families[spec.name].number()


class Metrics(ReplicaMetrics):
    """The metrics of one target replica."""

    def __init__(self, *, model_name: str, replica: str) -> None:
        super().__init__(catalog.TARGET, model_name=model_name, replica=replica)
        self._rounds = self._number(catalog.ROUNDS)
        self._tokens = self._number(catalog.GENERATION_TOKENS)
        self._drafts = self._number(catalog.NUM_DRAFTS)
        self._draft_tokens = self._number(catalog.NUM_DRAFT_TOKENS)
        self._accepted = self._number(catalog.NUM_ACCEPTED_TOKENS)
        self._positions: list[Number] = []
        self._stale = self._number(catalog.STALE_TREES)
        self._prompt_tokens = self._number(catalog.PROMPT_TOKENS)
        self._queries = self._number(catalog.PREFIX_QUERIES)
        self._hits = self._number(catalog.PREFIX_HITS)
        self._running = self._number(catalog.RUNNING)
        self._waiting = self._number(catalog.WAITING)
        self._kv_usage = self._number(catalog.KV_USAGE)
        self._live_drafts = self._number(catalog.LIVE_DRAFTS)
        self._first_token = self._family(catalog.FIRST_TOKEN).distribution()
        self._inter_token = self._family(catalog.INTER_TOKEN).distribution()
        self._e2e = self._family(catalog.E2E).distribution()
        self._tree_wait = self._family(catalog.TREE_WAIT).distribution()
        parts = self._family(catalog.ROUND_PART)
        self._draft_part = parts.distribution("draft")
        self._verify_part = parts.distribution("verify")
        self._rest_part = parts.distribution("rest")
        for reason in _VLLM_REASON.values():  # a rate needs the zero before the first event
            self._family(catalog.SUCCESS).number(reason)

    def observe_commit(
        self,
        *,
        emitted: int,
        drafted: int = 0,
        accepted: int = 0,
        gap_s: float | None = None,
        draft_s: float = 0.0,
        verify_s: float = 0.0,
    ) -> None:
        """One round of one choice.

        emitted: tokens committed.  drafted: nodes of the tree that was checked, 0 for a plain step.  accepted: nodes
        on the followed path.  gap_s: seconds since the previous commit of this choice, None for the first commit (it
        counts as time to first token instead).  draft_s, verify_s: forward seconds, as in RoundTrace; what is left of
        gap_s is the round's rest.
        """
        self._rounds.value += 1
        self._tokens.value += emitted
        if gap_s is not None:
            self._inter_token.observe(gap_s)
        if not drafted:
            return
        self._drafts.value += 1
        self._draft_tokens.value += drafted
        self._accepted.value += accepted
        if accepted > len(self._positions):
            self._add_positions(accepted)
        for position in range(accepted):
            self._positions[position].value += 1
        self._draft_part.observe(draft_s)
        self._verify_part.observe(verify_s)
        if gap_s is not None:
            self._rest_part.observe(max(0.0, gap_s - draft_s - verify_s))

    def _add_positions(self, depth: int) -> None:
        family = self._family(catalog.ACCEPTED_PER_POS)
        for position in range(len(self._positions), depth):
            self._positions.append(family.number(str(position)))

    def prompt_accepted(self, *, tokens: int, cached: int) -> None:
        """A prompt of `tokens` tokens was taken, `cached` of them found in the prefix cache."""
        self._prompt_tokens.value += tokens
        self._queries.value += tokens
        self._hits.value += cached

    def first_token(self, seconds: float) -> None:
        """A request's first token came `seconds` after its arrival."""
        self._first_token.observe(seconds)

    def request_finished(self, reason: FinishReason, seconds: float) -> None:
        """A request ended `seconds` after its arrival. `cancelled` is vLLM's `abort`."""
        self._family(catalog.SUCCESS).number(_VLLM_REASON[reason]).value += 1
        self._e2e.observe(seconds)

    def observe_load(self, load: Load) -> None:
        """The gauges, from what the replica reports with its heartbeat."""
        self._running.value = load.running
        self._waiting.value = load.waiting
        self._kv_usage.value = load.kv_slots_used / load.kv_slots_total if load.kv_slots_total else 0.0
        self._live_drafts.value = len(load.drafts)

    def stale_tree(self) -> None:
        """A tree came after its session had left it."""
        self._stale.value += 1

    def refused_tree(self, reason: str) -> None:
        """A tree was refused; `reason` is a short fixed word (cycle, duplicate, out_of_range, too_large…)."""
        self._family(catalog.REFUSED_TREES).number(reason).value += 1

    def tree_waited(self, seconds: float) -> None:
        """A session sat out steps for `seconds` until its tree came or its patience ended."""
        self._tree_wait.observe(seconds)


class DraftMetrics(ReplicaMetrics):
    """The metrics of one draft replica."""

    def __init__(self, *, model_name: str, replica: str) -> None:
        super().__init__(catalog.DRAFT, model_name=model_name, replica=replica)
        self._trees = self._number(catalog.PROPOSED_TREES)
        self._nodes = self._number(catalog.PROPOSED_NODES)
        self._propose = self._family(catalog.PROPOSE).distribution()
        self._queue = self._family(catalog.PROPOSE_QUEUE).distribution()
        self._sessions = self._number(catalog.DRAFT_SESSIONS)
        self._kv_usage = self._number(catalog.KV_USAGE)

    def observe_propose(self, *, nodes: int, draft_s: float, queued_s: float) -> None:
        """One tree was sent; the seconds are those of DraftTree."""
        self._trees.value += 1
        self._nodes.value += nodes
        self._propose.observe(draft_s)
        self._queue.observe(queued_s)

    def observe_load(self, load: Load) -> None:
        """The gauges; `running` is the number of sessions."""
        self._sessions.value = load.running
        self._kv_usage.value = load.kv_slots_used / load.kv_slots_total if load.kv_slots_total else 0.0
