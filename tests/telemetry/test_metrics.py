"""Metrics: names, values, one valid text for many replicas, and the price of a write."""

import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from specgrove.core.cards import Load
from specgrove.core.protocols import DraftObserver, TargetObserver
from specgrove.telemetry import catalog
from specgrove.telemetry.exposition import merge
from specgrove.telemetry.metrics import DraftMetrics, Metrics
from specgrove.telemetry.tally import Spec


def samples(text: str) -> dict[str, float]:
    """Values by name and labels (sorted), as a strict parser reads them."""
    out: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "model_name")
            key = f"{sample.name}[{labels}]"
            assert key not in out, f"{key} stands twice"
            out[key] = sample.value
    return out


def target(replica: str = "t1") -> Metrics:
    """The metrics of a target replica."""
    return Metrics(model_name="grove", replica=replica)


def round_of(metrics: Metrics, *, drafted: int, accepted: int, emitted: int) -> None:
    """Count one round of usual times."""
    metrics.committed(drafted=drafted, accepted=accepted, emitted=emitted, waited_s=0.001, other_s=0.002, gap_s=0.03)


def test_the_four_spec_decode_counters() -> None:
    """Drafts, draft tokens, accepted tokens and accepted by position follow the rounds."""
    metrics = target()
    round_of(metrics, drafted=8, accepted=3, emitted=4)
    round_of(metrics, drafted=8, accepted=1, emitted=2)
    metrics.committed(drafted=0, accepted=0, emitted=1, waited_s=0, other_s=None, gap_s=0.03)

    values = samples(metrics.exposition().decode())

    assert values["vllm:spec_decode_num_drafts_total[replica=t1]"] == 2
    assert values["vllm:spec_decode_num_draft_tokens_total[replica=t1]"] == 16
    assert values["vllm:spec_decode_num_accepted_tokens_total[replica=t1]"] == 4
    by_depth = [
        values[f"vllm:spec_decode_num_accepted_tokens_per_pos_total[position={i},replica=t1]"] for i in range(3)
    ]
    assert by_depth == [2, 1, 1]
    assert values["specgrove:rounds_total[replica=t1]"] == 3
    assert values["vllm:generation_tokens_total[replica=t1]"] == 7
    assert values["vllm:inter_token_latency_seconds_count[replica=t1]"] == 3
    assert values["specgrove:round_rest_seconds_count[replica=t1]"] == 2


def test_requests_and_gauges() -> None:
    """Finish reasons in vLLM's words, latencies, prefix cache and load."""
    metrics = target()
    metrics.prefilled(tokens=100, cached=64, ttft_s=0.2)
    metrics.finished("cancelled", prompt_tokens=100, completion_tokens=5, e2e_s=1.0)
    metrics.finished("length", prompt_tokens=0, completion_tokens=5, e2e_s=0.5)
    metrics.stepped(rows=20, sessions=2, forward_s=0.01, total_s=0.012)
    metrics.refused_tree("stale")
    metrics.refused_tree("bad_tree")
    metrics.observe_load(Load(running=2, waiting=1, kv_slots_used=25, kv_slots_total=100, drafts=("d1", "d2")))

    values = samples(metrics.exposition().decode())

    expected = {
        "vllm:request_success_total[finished_reason=abort,replica=t1]": 1,
        "vllm:request_success_total[finished_reason=length,replica=t1]": 1,
        "vllm:request_success_total[finished_reason=stop,replica=t1]": 0,
        "vllm:request_prompt_tokens_count[replica=t1]": 1,
        "vllm:request_generation_tokens_count[replica=t1]": 2,
        "vllm:prompt_tokens_total[replica=t1]": 100,
        "vllm:prefix_cache_queries_total[replica=t1]": 100,
        "vllm:prefix_cache_hits_total[replica=t1]": 64,
        "vllm:time_to_first_token_seconds_bucket[le=0.25,replica=t1]": 1,
        "vllm:time_to_first_token_seconds_bucket[le=0.1,replica=t1]": 0,
        "vllm:e2e_request_latency_seconds_sum[replica=t1]": 1.5,
        "vllm:num_requests_running[replica=t1]": 2,
        "vllm:num_requests_waiting[replica=t1]": 1,
        "vllm:kv_cache_usage_perc[replica=t1]": 0.25,
        "specgrove:live_drafts[replica=t1]": 2,
        "specgrove:stale_trees_total[replica=t1]": 1,
        "specgrove:refused_trees_total[reason=bad_tree,replica=t1]": 1,
    }
    assert expected == {key: values[key] for key in expected}


def test_a_draft_counts_by_target() -> None:
    """One draft serves several targets, and says so."""
    metrics = DraftMetrics(model_name="small", replica="d1")
    metrics.drafted(rows=4, seconds=0.002)
    metrics.proposed("t1", nodes=8, seconds=0.004)
    metrics.proposed("t2", nodes=4, seconds=0.002)
    metrics.observe_load(Load(running=3))

    values = samples(metrics.exposition().decode())

    assert values["specgrove:proposed_nodes_total[replica=d1,target=t1]"] == 8
    assert values["specgrove:proposed_trees_total[replica=d1,target=t2]"] == 1
    assert values["specgrove:draft_sessions[replica=d1]"] == 3
    assert values["vllm:kv_cache_usage_perc[replica=d1]"] == 0


def test_metrics_are_the_observers_of_core() -> None:
    """Both classes fit the protocols that target and draft call (mypy checks the signatures here)."""
    observed: TargetObserver = target()
    observed.refused_tree("stale")
    drafting: DraftObserver = DraftMetrics(model_name="m", replica="r")
    drafting.drafted(rows=1, seconds=0.1)


def test_merge_gives_one_family_for_all_replicas() -> None:
    """Two targets and a draft: one HELP and TYPE per family, all series kept, readable by a strict parser."""
    texts = []
    for name, rounds in (("t1", 1), ("t2", 2)):
        metrics = target(name)
        for _ in range(rounds):
            round_of(metrics, drafted=4, accepted=2, emitted=3)
        texts.append(metrics.exposition().decode())
    texts.append(DraftMetrics(model_name="small", replica="d1").exposition().decode())

    merged = merge(texts)

    values = samples(merged)
    assert [values[f"specgrove:rounds_total[replica={name}]"] for name in ("t1", "t2")] == [1, 2]
    heads = [line.split()[2] for line in merged.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    assert {"vllm:kv_cache_usage_perc[replica=d1]", "vllm:kv_cache_usage_perc[replica=t1]"} <= set(values)


def test_plain_joining_would_not_be_valid() -> None:
    """Negative control: without merge the families stand twice."""
    texts = [target(name).exposition().decode() for name in ("t1", "t2")]
    heads = [line.split()[2] for line in "".join(texts).splitlines() if line.startswith("# TYPE")]
    assert len(heads) == 2 * len(set(heads))


def test_merge_of_one_text_changes_no_value() -> None:
    """merge is the identity on values, and idempotent."""
    metrics = target()
    round_of(metrics, drafted=4, accepted=2, emitted=3)
    text = metrics.exposition().decode()
    assert samples(merge([text])) == samples(text)
    assert merge([merge([text]), text]) == merge([text])
    assert merge([]) == ""


def test_merge_keeps_odd_label_values_and_names_conflicts() -> None:
    """Braces, quotes and spaces in labels survive; a family of another type is left out with a comment."""
    odd = '# HELP a_total h\n# TYPE a_total counter\na_total{replica="x } y \\" {z"} 3\n'
    clash = '# TYPE a_total gauge\na_total{replica="r2"} 4\n'

    merged = merge([odd, clash, "bare 1\nbare2 2\n"])

    assert 'a_total{replica="x } y \\" {z"} 3\n' in merged
    assert 'replica="r2"' not in merged
    assert "# left out: a_total of type gauge" in merged
    assert "bare 1" in merged
    assert "bare2 2" in merged


@pytest.mark.parametrize("spec", [*catalog.TARGET, *catalog.DRAFT], ids=lambda spec: spec.name)
def test_each_metric_has_its_question(spec: Spec) -> None:
    """The query names the metric or one beside it, and the buckets ascend."""
    assert spec.name.startswith(("vllm:", "specgrove:"))
    assert spec.ask
    assert "vllm:" in spec.ask or "specgrove:" in spec.ask
    assert list(spec.buckets) == sorted(set(spec.buckets))
    assert bool(spec.buckets) == (spec.kind == "histogram")
    assert not spec.name.endswith("_total")


def test_a_bucket_holds_its_bound() -> None:
    """A value equal to a bound counts in that bucket, a value over all bounds only in +Inf."""
    metrics = target()
    metrics.prefilled(tokens=1, cached=0, ttft_s=0.5)
    metrics.prefilled(tokens=1, cached=0, ttft_s=1e9)
    values = samples(metrics.exposition().decode())
    name = "vllm:time_to_first_token_seconds_bucket"
    assert [values[f"{name}[le={le},replica=t1]"] for le in ("0.25", "0.5", "300.0", "+Inf")] == [0, 1, 1, 2]


def test_a_round_is_cheap_to_count() -> None:
    """The device thread can afford it: well under 50 microseconds a round, also on a busy machine."""
    metrics = target()
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(200):
            round_of(metrics, drafted=16, accepted=4, emitted=5)
        best = min(best, (time.perf_counter() - began) / 200)
    assert best < 50e-6
