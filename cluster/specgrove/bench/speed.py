"""`specgrove bench speed`: five ways to the same tokens, interleaved in one run on the same prompts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from specgrove.bench import report
from specgrove.bench.measure import PLAIN, SPECULATIVE, Run, timed, variants
from specgrove.bench.nearties import judge
from specgrove.bench.peer import PEER, of_peer
from specgrove.bench.server import serving
from specgrove.bench.workloads import Prompt, load
from specgrove.client import ChatMessage
from specgrove.engine.inspect import codec as codec_of
from specgrove.engine.reference import Reference

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
    added_rtt_ms: float,
    peer: str | None,
    draft_exit: int | None,
    assisted_length: int,
    epsilon: float | None,
    seed: int,
    json_out: Path | None,
) -> dict[str, Any]:
    """Measure and return the report; written to `json_out` too, with the raw runs.

    `epsilon`: largest score gap that counts as a near-tie; None: by dtype. Raises ConfigError and Unavailable.
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
    config = server_config(
        target, draft, dtype=dtype, threads=threads, speculative=speculative, max_model_len=max(512, longest),
        quantization=quantization, draft_quantization=draft_quantization, added_rtt_ms=added_rtt_ms,
        draft_exit=draft_exit,
    )  # fmt: skip
    with serving(config) as client:
        ways = variants(client, MODEL, reference, temperature=temperature, length=assisted_length)
        if peer is not None:
            ways[PEER] = of_peer(peer, [prompt.text for prompt in work], temperature=temperature)
        runs = _interleave(ways, work, ids, tokens=tokens, repeats=repeats, seed=seed)
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
        "added_rtt_ms": added_rtt_ms,
        "draft_exit": draft_exit,
        "assisted_length": assisted_length,
        "prompts": [prompt.text for prompt in work],
        "seed": seed,
    }
    out = report.speed(settings, runs, judged, same_text(runs))
    if json_out is not None:
        report.write(json_out, out)
    return out


def _interleave(
    ways: Mapping[str, Any],
    work: Sequence[Prompt],
    ids: Sequence[Sequence[int]],
    *,
    tokens: int,
    repeats: int,
    seed: int,
) -> list[Run]:
    """Every way once per prompt and repeat, in random order, after one short warm-up each."""
    rng = random.Random(seed)
    runs: list[Run] = []
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("measuring", total=len(ways) * (1 + repeats * len(work)))
        for name, way in ways.items():
            way(ids[0], 0, min(tokens, WARM_UP_TOKENS))
            progress.update(task, advance=1, description=f"warm-up: {name}")
        for repeat in range(repeats):
            for index, prompt in enumerate(work):
                order = list(ways)
                rng.shuffle(order)
                for name in order:
                    runs.append(
                        timed(name, ways[name], ids[index], count=tokens, index=index, kind=prompt.kind, repeat=repeat)
                    )
                    progress.update(task, advance=1, description=name)
    return runs


def same_text(runs: Sequence[Run]) -> dict[str, int]:
    """How many (prompt, repeat) pairs got the same tokens speculatively and plainly."""
    plain = {(r.prompt, r.repeat): r.tokens for r in runs if r.variant == PLAIN}
    speculative = {(r.prompt, r.repeat): r.tokens for r in runs if r.variant == SPECULATIVE}
    equal = sum(plain[key] == speculative[key] for key in plain)
    return {"equal": equal, "of": len(plain)}
