"""The bench: its arithmetic, its judge (with controls), its workloads; the whole of it in the slow form."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.live import Live
from tests.pairs import VOCAB, write_pair
from transformers import LlamaConfig, LlamaForCausalLM

from specgrove.bench import parity, report, speed
from specgrove.bench.bound import bound, bytes_per_token
from specgrove.bench.measure import ASSISTED, PLAIN, REFERENCE, SPECULATIVE, Run
from specgrove.bench.nearties import judge
from specgrove.bench.server import Served
from specgrove.bench.workloads import DEFAULT, load
from specgrove.client import Client
from specgrove.engine.reference import Reference
from specgrove.errors import ConfigError

PROMPT = [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """A tiny random pair as transformers runs it."""
    target, draft = write_pair(tmp_path_factory.mktemp("bench"), likeness=0.9, padding=0)
    return Reference(str(target), str(draft), dtype="float32")


def test_the_judge_accepts_the_targets_own_text(reference: Reference):
    """transformers' greedy text has no real difference; a changed token is one, and its gap is told."""
    tokens = list(reference.plain(PROMPT, 20, temperature=0.0, seed=0).tokens)
    changed = [*tokens[:7], (tokens[7] + 1) % VOCAB, *tokens[8:]]

    good = judge(reference, [(PROMPT, tokens, 0)], temperature=0.0, vocab_size=VOCAB)
    bad = judge(reference, [(PROMPT, changed, 0)], temperature=0.0, vocab_size=VOCAB)
    waved = judge(reference, [(PROMPT, changed, 0)], temperature=0.0, vocab_size=VOCAB, epsilon=1e9)

    assert (good.tokens, good.real) == (20, 0)
    assert bad.real >= 1
    assert bad.differences[0]["position"] == 7
    assert bad.largest_gap > 2e-5
    assert (waved.real, waved.near_ties) == (0, len(waved.differences))


def test_assisted_generation_is_the_same_text(reference: Reference):
    """Both assisted settings are real: same greedy tokens, exactly as many as asked for."""
    plain = reference.plain(PROMPT, 16, temperature=0.0, seed=0).tokens

    assert reference.assisted(PROMPT, 16, temperature=0.0, seed=0, schedule="default").tokens == plain
    assert reference.assisted(PROMPT, 16, temperature=0.0, seed=0, schedule="constant", length=3).tokens == plain
    assert len(plain) == 16


def runs() -> list[Run]:
    """Two prompts, each way once, with round times that are easy to add up."""
    seconds = {REFERENCE: 4.0, ASSISTED[0]: 2.0, ASSISTED[1]: 8.0, PLAIN: 3.0, SPECULATIVE: 1.5}
    stats = {
        "rounds": 3,
        "num_drafts": 2,
        "num_draft_tokens": 8,
        "num_accepted_tokens": 3,
        "accepted_per_pos": [2, 1],
        "stale_trees": 0,
    }
    rounds = [
        {"draft_s": 0.2, "verify_s": 0.3, "round_s": 0.6, "nodes": 4, "emitted": 3},
        {"draft_s": 0.2, "verify_s": 0.3, "round_s": 0.52, "nodes": 4, "emitted": 2},
    ]
    return [
        Run(
            variant=name,
            repeat=0,
            prompt=prompt,
            kind=kind,
            seconds=spent,
            tokens=[1] * 6,
            stats=stats if name == SPECULATIVE else None,
            rounds=rounds if name == SPECULATIVE else [],
        )
        for prompt, kind in enumerate(("code", "maths"))
        for name, spent in (seconds.items() if kind == "code" else reversed(seconds.items()))
    ]


def test_ratios_and_shares():
    """Throughput ratios, acceptance and the parts of a round are what the runs say."""
    judged = {"tokens": 6, "near_ties": 0, "epsilon": 0.25, "real_differences": 0, "largest_gap": 0.0}
    settings = {
        "target": "t",
        "draft": "d",
        "dtype": "bfloat16",
        "threads": 2,
        "temperature": 0.0,
        "tokens": 6,
        "prompts": ["a", "b"],
        "repeats": 1,
        "speculative_config": {},
    }
    out = report.speed(settings, runs(), {PLAIN: judged, SPECULATIVE: judged}, speed.same_text(runs()))
    out["wire"] = [report.wire(0.0, runs(), 600.0)]
    everything = out["throughput"]["all"]

    assert everything["relative_to_transformers_plain"][PLAIN] == pytest.approx(4 / 3)
    assert everything["speculative_over_plain"] == pytest.approx(2.0)
    assert everything["speculative_over_best_assisted"] == pytest.approx(2 / 1.5)
    assert out["speculation"]["acceptance_by_position"] == [1.0, 0.5]
    assert out["speculation"]["committed_per_round"] == 2.5
    assert out["speculation"]["median_ms"]["rest"] == pytest.approx(60.0)
    assert out["same_text_as_plain"] == {"equal": 2, "of": 2}
    for kind in ("all", "code", "maths"):
        assert f"| {kind} | 1.00 | 2.00 | 0.50 | 1.33 | 2.67 |" in report.speed_table(out)


def test_a_longer_wire():
    """Each round trip is held against its own plain runs, and then against the first; bytes count committed tokens."""
    slower = [replace(run, seconds=2 * run.seconds if run.variant == SPECULATIVE else run.seconds) for run in runs()]
    rows = [report.wire(0.0, runs(), 600.0), report.wire(5.0, slower, 1200.0)]

    assert [row["speculative_over_plain"] for row in rows] == [pytest.approx(2.0), pytest.approx(1.0)]
    assert [row["bytes_per_token"] for row in rows] == [50.0, 100.0]
    assert "| 5 ms | 1.00 | 0.50 | 100 |" in report._wire_table(rows)


def test_the_bound_of_plain_decoding(tmp_path: Path):
    """Tied embeddings are read as the head; an input embedding of its own is not read."""
    own, tied = (
        LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                     num_attention_heads=2, tie_word_embeddings=ties))
        for ties in (False, True)
    )  # fmt: skip

    assert bytes_per_token(own) == bytes_per_token(tied)
    found = bound(tied, tokens_per_s=10.0)
    assert found["bound_tokens_per_s"] * found["weight_bytes_per_token"] == pytest.approx(found["read_bytes_per_s"])
    assert found["plain_over_bound"] == pytest.approx(10.0 / found["bound_tokens_per_s"])
    assert 1e8 < found["read_bytes_per_s"] < 1e13


def test_a_servers_metrics(cluster: Live):
    """Counters and gauges, summed over replicas; histograms are left out."""
    with Client(cluster.grpc) as client:
        served = Served(client, cluster.http.removeprefix("http://"))
        before = served.metrics()
        done = client.complete("grove-large", "Count from 3 to 9.", max_tokens=8, temperature=0.0)
        after = served.metrics()

    grown = after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"]
    assert grown >= len(done.choices[0].tokens)
    assert after["specgrove:speculate_sent_bytes_total"] > before["specgrove:speculate_sent_bytes_total"]
    assert not [name for name in after if name.endswith("_bucket")]


def test_workloads(tmp_path: Path):
    """The default set covers code and maths; a file is read line by line, and a bad line is named."""
    assert {prompt.kind for prompt in DEFAULT} >= {"code", "maths"}
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"prompt": "a"}\n\n{"prompt": "b", "kind": "x"}\n')
    bad.write_text('{"prompt": "a"}\n{"text": "b"}\n')

    assert [(p.kind, p.text) for p in load(good)] == [("all", "a"), ("x", "b")]
    with pytest.raises(ConfigError, match="line 2"):
        load(bad)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_whole_bench(tmp_path: Path):
    """Both benches on the bundled family: real Ray, real gRPC, raw runs in the JSON, no real difference."""
    common = {"prompts": None, "dtype": "float32", "threads": 1, "speculative": {"method": "tree"}, "epsilon": None}
    out = speed.run(
        "grove-large",
        "grove-draft",
        tokens=8,
        temperature=0.0,
        repeats=1,
        quantization=None,
        draft_quantization=None,
        added_rtts_ms=(0.0, 2.0),
        peer=None,
        draft_exit=None,
        assisted_length=3,
        seed=0,
        json_out=tmp_path / "speed.json",
        **common,
    )
    judged = parity.run(
        "grove-small", "grove-draft", tokens=8, temperatures=(0.0, 1.0), json_out=tmp_path / "parity.json", **common
    )

    assert json.loads((tmp_path / "speed.json").read_text())["runs"]
    assert [row["added_rtt_ms"] for row in out["wire"]] == [0.0, 2.0]
    assert all(row["bytes_per_token"] > 4 for row in out["wire"])
    assert all(row["real_differences"] == 0 for row in out["judged"].values())
    assert all(row["real_differences"] == 0 for row in judged["rows"])
    assert parity.table(judged).count("|") > 20
