"""`specgrove bench speed`: five ways to the same tokens, interleaved in one run on the same prompts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn, track

from specgrove.bench import report
from specgrove.bench.bound import bound
from specgrove.bench.measure import PLAIN, SPECULATIVE, Run, Variant, timed, variants
from specgrove.bench.nearties import judge
from specgrove.bench.peer import PEER, of_peer
from specgrove.bench.server import Served, serving
from specgrove.bench.workloads import Prompt, load
from specgrove.client import ChatMessage
from specgrove.engine.inspect import codec as codec_of
from specgrove.engine.reference import Reference
from specgrove.telemetry.catalog import SPECULATE_RECEIVED, SPECULATE_SENT

MODEL = "target"
WARM_UP_TOKENS = 8


def server_config(
    target: str,
    draft: str,
    *,
    dtype: str,
    threads: int,
    speculative: Mapping[str, Any],
    max_model_len: int,
    quantization: str | None = None,
    draft_quantization: str | None = None,
    added_rtt_ms: float = 0.0,
    draft_exit: int | None = None,
) -> dict[str, Any]:
    """One target and one draft replica on this machine."""
    pool = {"threads": threads, "max_model_len": max_model_len, "device": "cpu"}
    bits = {"quantization": quantization} if quantization else {}
    draft_bits = {"quantization": draft_quantization} if draft_quantization else {}
    exit = {} if draft_exit is None else {"exit": draft_exit}
    return {
        "models": {MODEL: {"source": target, "dtype": dtype}, "draft": {"source": draft, "dtype": dtype}},
        "targets": {MODEL: {"model": MODEL, **pool, **bits, "speculative_config": dict(speculative)}},
        "drafts": {"draft": {"model": "draft", **pool, **draft_bits, **exit, "added_rtt_ms": added_rtt_ms}},
    }


def run(
    target: str,
    draft: str,
    *,
    prompts: Path | None,
    tokens: int,
    temperature: float,
    repeats: int,
    dtype: str,
    threads: int,
    speculative: Mapping[str, Any],
    quantization: str | None,
    draft_quantization: str | None,
    added_rtts_ms: Sequence[float] = (0.0,),
    peer: str | None,
    draft_exit: int | None,
    assisted_length: int,
    epsilon: float | None,
    seed: int,
    json_out: Path | None,
) -> dict[str, Any]:
    """Measure and return the report; written to `json_out` too, with the raw runs.

    added_rtts_ms: round trips to add between draft and target. Everything is measured with the first; with each further
    one a server is started anew and only specgrove's two ways are, interleaved again, so that each has its own plain to
    be held against.  epsilon: largest score gap that counts as a near-tie; None: by dtype. Raises ConfigError and
    Unavailable.
    """
    import torch

    torch.set_num_threads(threads)
    if json_out is not None:
        report.writable(json_out)
    work = load(prompts)
    reference = Reference(target, draft, dtype=dtype)
    codec = codec_of(target)
    ids = [codec.encode_chat([ChatMessage("user", prompt.text)]) for prompt in work]
    longest = max(len(prompt) for prompt in ids) + tokens + 64
    wires: list[dict[str, float]] = []
    runs: list[Run] = []
    for rtt in added_rtts_ms:
        config = server_config(
            target, draft, dtype=dtype, threads=threads, speculative=speculative, max_model_len=max(512, longest),
            quantization=quantization, draft_quantization=draft_quantization, added_rtt_ms=rtt, draft_exit=draft_exit,
        )  # fmt: skip
        with serving(config) as served:
            ways = variants(served.client, MODEL, reference, temperature=temperature, length=assisted_length)
            if wires:
                ways = {name: ways[name] for name in (PLAIN, SPECULATIVE)}
            elif peer is not None:
                ways[PEER] = of_peer(peer, [prompt.text for prompt in work], temperature=temperature)
            _warm_up(ways, ids[0], min(tokens, WARM_UP_TOKENS))
            before = _wire_bytes(served)
            found = _interleave(ways, work, ids, tokens=tokens, repeats=repeats, seed=seed)
            wires.append(report.wire(rtt, found, _wire_bytes(served) - before))
        runs = runs or found
    judged = {}
    for name in (PLAIN, SPECULATIVE):
        outputs = [(ids[r.prompt], r.tokens, r.prompt) for r in runs if r.variant == name and r.repeat == 0]
        judged[name] = judge(
            reference, outputs, temperature=temperature, vocab_size=codec.vocab_size, epsilon=epsilon
        ).summary()
    settings = {
        "target": Path(target).name,
        "draft": Path(draft).name,
        "tokens": tokens,
        "temperature": temperature,
        "repeats": repeats,
        "dtype": dtype,
        "threads": threads,
        "speculative_config": dict(speculative),
        "quantization": quantization,
        "draft_quantization": draft_quantization,
        "added_rtts_ms": list(added_rtts_ms),
        "draft_exit": draft_exit,
        "assisted_length": assisted_length,
        "prompts": [prompt.text for prompt in work],
        "seed": seed,
    }
    out = report.speed(settings, runs, judged, same_text(runs)) | {"wire": wires}
    if quantization is None:
        out["bound"] = bound(reference.target, out["throughput"]["all"]["tokens_per_s"][PLAIN])
    if json_out is not None:
        report.write(json_out, out)
    return out


def _wire_bytes(served: Served) -> float:
    """Bytes between target and drafts so far, both ways."""
    metrics = served.metrics()
    return sum(metrics[f"{spec.name}_total"] for spec in (SPECULATE_SENT, SPECULATE_RECEIVED))


def _warm_up(ways: Mapping[str, Variant], prompt: Sequence[int], tokens: int) -> None:
    """Every way once, for a few tokens."""
    for way in track(ways.values(), "warm-up"):
        way(prompt, 0, tokens)


def _interleave(
    ways: Mapping[str, Variant],
    work: Sequence[Prompt],
    ids: Sequence[Sequence[int]],
    *,
    tokens: int,
    repeats: int,
    seed: int,
) -> list[Run]:
    """Every way once per prompt and repeat, in random order."""
    rng = random.Random(seed)
    runs: list[Run] = []
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("measuring", total=len(ways) * repeats * len(work))
        for repeat in range(repeats):
            for index, prompt in enumerate(work):
                for name in rng.sample(list(ways), len(ways)):
                    progress.update(task, description=name)
                    runs.append(
                        timed(name, ways[name], ids[index], count=tokens, index=index, kind=prompt.kind, repeat=repeat)
                    )
                    progress.update(task, advance=1)
    return runs


def same_text(runs: Sequence[Run]) -> dict[str, int]:
    """How many (prompt, repeat) pairs got the same tokens speculatively and plainly."""
    plain = {(r.prompt, r.repeat): r.tokens for r in runs if r.variant == PLAIN}
    speculative = {(r.prompt, r.repeat): r.tokens for r in runs if r.variant == SPECULATIVE}
    equal = sum(plain[key] == speculative[key] for key in plain)
    return {"equal": equal, "of": len(plain)}
