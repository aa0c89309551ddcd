"""`specgrove bench parity`: is what the server emits the target's own? Every difference is found and classified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import track

from specgrove import __version__
from specgrove.bench import report
from specgrove.bench.nearties import judge
from specgrove.bench.server import serving
from specgrove.bench.speed import MODEL, server_config
from specgrove.bench.workloads import load
from specgrove.client import ChatMessage, Client, Speculation
from specgrove.engine.inspect import codec as codec_of
from specgrove.engine.reference import Reference


def run(
    target: str,
    draft: str,
    *,
    prompts: Path | None,
    tokens: int,
    temperatures: Sequence[float],
    dtype: str,
    threads: int,
    speculative: Mapping[str, Any],
    epsilon: float | None,
    json_out: Path | None,
) -> dict[str, Any]:
    """Serve every prompt speculatively and plainly at every temperature; judge both outputs token by token.

    The plain output is the control: its near-ties are what the batch shape alone does. Raises ConfigError, Unavailable.
    """
    import torch

    torch.set_num_threads(threads)
    work = load(prompts)
    codec = codec_of(target)
    ids = [codec.encode_chat([ChatMessage("user", prompt.text)]) for prompt in work]
    longest = max(len(prompt) for prompt in ids) + tokens + 64
    config = server_config(
        target, draft, dtype=dtype, threads=threads, speculative=speculative, max_model_len=max(512, longest)
    )
    with serving(config) as served:
        outputs = {
            (mode, temperature): _outputs(served.client, ids, tokens=tokens, temperature=temperature, mode=mode)
            for temperature in temperatures
            for mode in ("off", "auto")
        }
    reference = Reference(target, None, dtype=dtype)
    rows = []
    for (mode, temperature), outs in outputs.items():
        judged = judge(reference, outs, temperature=temperature, vocab_size=codec.vocab_size, epsilon=epsilon)
        plain = outputs["off", temperature]
        equal = sum(mine[1] == other[1] for mine, other in zip(outs, plain, strict=True))
        rows.append({"speculation": mode, "temperature": temperature, "equal_to_plain": equal, **judged.summary()})
    out = {
        "bench": "parity",
        "specgrove": __version__,
        "settings": {
            "target": Path(target).name,
            "draft": Path(draft).name,
            "tokens": tokens,
            "dtype": dtype,
            "threads": threads,
            "speculative_config": dict(speculative),
            "prompts": len(ids),
        },
        "rows": rows,
    }
    if json_out is not None:
        report.write(json_out, out)
    return out


def _outputs(
    client: Client, ids: Sequence[Sequence[int]], *, tokens: int, temperature: float, mode: Any
) -> list[tuple[Sequence[int], list[int], int]]:
    """(prompt, output, seed) of every prompt."""
    outs = []
    for seed, prompt in enumerate(track(ids, f"T = {temperature}, speculation {mode}")):
        done = client.complete(
            MODEL,
            prompt,
            max_tokens=tokens,
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            repetition_penalty=1.0,
            seed=seed,
            speculation=Speculation(mode=mode),
        )
        outs.append((prompt, done.choices[0].tokens, seed))
    return outs


def table(out: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    settings = out["settings"]
    lines = [
        f"Target {settings['target']}, draft {settings['draft']}, {settings['dtype']}, {settings['prompts']} prompts "
        f"of {settings['tokens']} tokens.",
        "",
        "| T | speculation | outputs equal to plain | tokens | near ties | real differences | largest gap |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in out["rows"]:
        lines.append(
            f"| {row['temperature']} | {row['speculation']} | {row['equal_to_plain']} | {row['tokens']} | "
            f"{row['near_ties']} (gap up to {row['epsilon']}) | {row['real_differences']} | {row['largest_gap']} |"
        )
    return "\n".join(lines) + "\n"
