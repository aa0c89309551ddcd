"""The metrics of one replica process: cheap to write on the device thread, one text when asked.

The writing methods cost about a microsecond each and are to be called from one thread; `exposition` may be called
from any. `catalog.py` says what each metric means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from specgrove.core.cards import Load
from specgrove.telemetry import catalog
from specgrove.telemetry.tally import Distribution, Family, Number, Spec


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

    def _distribution(self, spec: Spec) -> Distribution:
        return self._families[spec.name].distribution()


class Metrics(ReplicaMetrics):
    """The metrics of one target replica: a core.protocols.TargetObserver."""

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
        self._rows = self._number(catalog.STEP_ROWS)
        self._sessions = self._number(catalog.STEP_SESSIONS)
        self._forward = self._distribution(catalog.STEP_FORWARD)
        self._step = self._distribution(catalog.STEP)
        self._first_token = self._distribution(catalog.FIRST_TOKEN)
        self._inter_token = self._distribution(catalog.INTER_TOKEN)
        self._e2e = self._distribution(catalog.E2E)
        self._tree_wait = self._distribution(catalog.TREE_WAIT)
        self._rest = self._distribution(catalog.ROUND_REST)
        self._prompt_lengths = self._distribution(catalog.REQUEST_PROMPT)
        self._output_lengths = self._distribution(catalog.REQUEST_GENERATION)
        self._planned = [self._number(catalog.PLANNED_NODES), self._number(catalog.PLANNED_DEPTH)]
        self._gain = self._number(catalog.PREDICTED_GAIN)
        self._sent, self._received = self._number(catalog.SPECULATE_SENT), self._number(catalog.SPECULATE_RECEIVED)
        for gauge in (catalog.RUNNING, catalog.WAITING, catalog.KV_USAGE, catalog.LIVE_DRAFTS):
            self._number(gauge)
        for reason in ("stop", "length", "abort", "error"):  # a rate needs the zero before the first event
            self._family(catalog.SUCCESS).number(reason)

    def stepped(self, *, rows: int, sessions: int, forward_s: float, total_s: float) -> None:
        """One step of the loop; times in seconds."""
        self._rows.value += rows
        self._sessions.value += sessions
        self._forward.observe(forward_s)
        self._step.observe(total_s)

    def committed(
        self, *, drafted: int, accepted: int, emitted: int, waited_s: float, other_s: float | None, gap_s: float
    ) -> None:
        """One round of one session, as in TargetObserver."""
        self._rounds.value += 1
        self._tokens.value += emitted
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
        self._tree_wait.observe(waited_s)
        if other_s is not None:
            self._rest.observe(other_s)

    def _add_positions(self, depth: int) -> None:
        family = self._family(catalog.ACCEPTED_PER_POS)
        for position in range(len(self._positions), depth):
            self._positions.append(family.number(str(position)))

    def speculated(self, sent: int, received: int) -> None:
        """Bytes to and from drafts. Called on the event loop alone."""
        self._sent.value += sent
        self._received.value += received

    def planned(self, *, nodes: float, depth: int, gain: float) -> None:
        """What drafts are asked for from now on."""
        for number, value in zip(self._planned, (nodes, depth), strict=True):
            number.set(value)
        self._gain.set(gain)

    def refused_tree(self, reason: str) -> None:
        """A tree was dropped; `stale` has a counter of its own, because it is nobody's fault."""
        if reason == "stale":
            self._stale.value += 1
        else:
            self._family(catalog.REFUSED_TREES).number(reason).value += 1

    def prefilled(self, *, tokens: int, cached: int, ttft_s: float) -> None:
        """A request got its first token: `tokens` in its prompt, `cached` of them found in the prefix cache."""
        self._prompt_tokens.value += tokens
        self._queries.value += tokens
        self._hits.value += cached
        self._first_token.observe(ttft_s)

    def finished(self, reason: str, *, prompt_tokens: int, completion_tokens: int, e2e_s: float) -> None:
        """A choice ended: stop, length, cancelled (vLLM's `abort`) or error.

        prompt_tokens: of the request, given with its first choice only; 0 with the others.
        """
        self._family(catalog.SUCCESS).number("abort" if reason == "cancelled" else reason).value += 1
        self._e2e.observe(e2e_s)
        if prompt_tokens:
            self._prompt_lengths.observe(prompt_tokens)
        self._output_lengths.observe(completion_tokens)

    def observe_load(self, load: Load) -> None:
        """The gauges, from what the replica reports with its heartbeat. May be called from any thread."""
        self._number(catalog.RUNNING).set(load.running)
        self._number(catalog.WAITING).set(load.waiting)
        self._number(catalog.KV_USAGE).set(_share(load))
        self._number(catalog.LIVE_DRAFTS).set(len(load.drafts))


class DraftMetrics(ReplicaMetrics):
    """The metrics of one draft replica: a core.protocols.DraftObserver."""

    def __init__(self, *, model_name: str, replica: str) -> None:
        super().__init__(catalog.DRAFT, model_name=model_name, replica=replica)
        self._rows = self._number(catalog.DRAFT_ROWS)
        self._forward = self._distribution(catalog.DRAFT_FORWARD)
        self._propose = self._distribution(catalog.PROPOSE)
        self._trees = self._family(catalog.PROPOSED_TREES)
        self._nodes = self._family(catalog.PROPOSED_NODES)
        for gauge in (catalog.DRAFT_SESSIONS, catalog.KV_USAGE):
            self._number(gauge)

    def drafted(self, *, rows: int, seconds: float) -> None:
        """One forward pass over so many rows."""
        self._rows.value += rows
        self._forward.observe(seconds)

    def proposed(self, target: str, *, nodes: int, seconds: float) -> None:
        """One tree sent to the target replica `target`; `seconds` of forward passes went into it."""
        self._trees.number(target).value += 1
        self._nodes.number(target).value += nodes
        self._propose.observe(seconds)

    def observe_load(self, load: Load) -> None:
        """The gauges; `running` is the number of sessions. May be called from any thread."""
        self._number(catalog.DRAFT_SESSIONS).set(load.running)
        self._number(catalog.KV_USAGE).set(_share(load))


def _share(load: Load) -> float:
    return load.kv_slots_used / load.kv_slots_total if load.kv_slots_total else 0.0
