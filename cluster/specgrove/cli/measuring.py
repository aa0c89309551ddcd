"""`specgrove bench`, `eval` and `profile`: their options. The work is in modules that are imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from specgrove.cli.options import DEFAULT_SERVER, ApiKey, JsonOut, Server

bench = typer.Typer(no_args_is_help=True, help="Measure speed, and compare outputs.")
evaluate = typer.Typer(no_args_is_help=True, help="Score models through a running server.")


@evaluate.command("family")
def eval_family(
    server: Server = DEFAULT_SERVER,
    api_key: ApiKey = None,
    model: Annotated[list[str] | None, typer.Option(help="May be repeated. [default: all that are served]")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Kind of problem; may be repeated. [default: all]")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same problems.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Problems of each kind, in each half of the wordings.")] = 50,
    search: Annotated[int, typer.Option(min=0, help="Countdown problems that are also solved by tree search.")] = 0,
    json_out: JsonOut = None,
) -> None:
    """Ask fresh problems of every kind, in trained and in unseen wordings, and check every answer exactly."""
    from specgrove.cli.evaluate import evaluate_and_report

    evaluate_and_report(
        server, api_key, models=model or [], kinds=kind or [], seed=seed, count=count, search=search, json_out=json_out
    )


@evaluate.command("report")
def eval_report(
    trained: Annotated[Path, typer.Argument(help="What `train family` was given as OUT.")],
    scores: Annotated[Path, typer.Argument(help="What `eval family --json` wrote.")],
    out_dir: Annotated[Path, typer.Option("--out", help="Folder of family.md and its plots.")] = Path("docs"),
) -> None:
    """Write the family's page with tables and plots from what was measured."""
    from specgrove.bench.family_report import write

    typer.echo(str(write(trained, scores, out_dir)))


Target = Annotated[str, typer.Option(help="Bundled name, directory or hub id of the target.")]
Draft = Annotated[str, typer.Option(help="Bundled name, directory or hub id of the draft.")]
Prompts = Annotated[
    Path | None, typer.Option(help='One JSON object a line: {"prompt": "...", "kind": "..."}. [default: a set of ours]')
]
Speculative = Annotated[
    str, typer.Option(help="speculative_config as YAML, such as '{method: chain, num_speculative_tokens: 4}'.")
]
Bits = Annotated[str | None, typer.Option(help="int8 or int4: fewer bits for the target's weights.")]
DraftBits = Annotated[str | None, typer.Option(help="int8 or int4: fewer bits for the draft's weights.")]
Epsilon = Annotated[float | None, typer.Option(help="Largest score gap that is a near-tie. [default: by dtype]")]


@bench.command()
def speed(
    target: Target,
    draft: Draft,
    prompts: Prompts = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved repeats of everything.")] = 3,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each replica.")] = 2,
    speculative: Speculative = "{}",
    quantization: Bits = None,
    draft_quantization: DraftBits = None,
    draft_exit: Annotated[int | None, typer.Option(help="Depth at which a sorted draft stops. [default: full]")] = None,
    added_rtt_ms: Annotated[
        list[float] | None,
        typer.Option(min=0, help="Round trip to add between draft and target; may be repeated. [default: 0]"),
    ] = None,
    peer: Annotated[str | None, typer.Option(help="Another server, as http://host:port/v1, measured beside.")] = None,
    assisted_length: Annotated[int, typer.Option(min=1, help="The constant length for transformers' assistant.")] = 5,
    epsilon: Epsilon = None,
    seed: Annotated[int, typer.Option(help="Order of the interleaving and noise.")] = 0,
    json_out: JsonOut = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the ratios here (.svg, .png).")] = None,
) -> None:
    """Tokens per second: transformers plain and assisted, specgrove plain and speculative, interleaved."""
    from specgrove.bench import report
    from specgrove.bench import speed as measure
    from specgrove.cli.bench import speculative_config

    found = measure.run(
        target, draft, prompts=prompts, tokens=tokens, temperature=temperature, repeats=repeats, dtype=dtype,
        threads=threads, speculative=speculative_config(speculative), quantization=quantization,
        draft_quantization=draft_quantization, draft_exit=draft_exit, added_rtts_ms=added_rtt_ms or [0.0],
        peer=peer, assisted_length=assisted_length, epsilon=epsilon, seed=seed, json_out=json_out,
    )  # fmt: skip
    typer.echo(report.speed_table(found))
    if plot is not None:
        report.draw(found, plot)


@bench.command()
def parity(
    target: Target,
    draft: Draft,
    prompts: Prompts = None,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer.")] = 64,
    temperature: Annotated[list[float] | None, typer.Option(help="May be repeated. [default: 0 and 1]")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each replica.")] = 2,
    speculative: Speculative = "{}",
    epsilon: Epsilon = None,
    json_out: JsonOut = None,
) -> None:
    """Compare speculative and plain output with a recomputation, and classify every difference."""
    from specgrove.bench import parity as compare
    from specgrove.cli.bench import speculative_config

    found = compare.run(
        target, draft, prompts=prompts, tokens=tokens, temperatures=temperature or [0.0, 1.0], dtype=dtype,
        threads=threads, speculative=speculative_config(speculative), epsilon=epsilon, json_out=json_out,
    )  # fmt: skip
    typer.echo(compare.table(found))


@bench.command()
def ladder(
    target: Target = "grove-large",
    draft: Draft = "grove-draft",
    rung: Annotated[
        list[int] | None, typer.Option(help="Clients at once; may be repeated. [default: 1 to 256]")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Windows of every policy at each rung.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of a window.")] = 3.0,
    warm: Annotated[float, typer.Option(min=0, help="Seconds before a window that do not count.")] = 1.0,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each replica.")] = 2,
    bad: Annotated[bool, typer.Option(help="Also with a draft that is wrong on purpose.")] = True,
    recovery: Annotated[
        float, typer.Option(min=0, help="Seconds of each phase of a draft that turns bad and good.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(help="Order of the policies, questions and noise.")] = 0,
    json_out: JsonOut = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the rates here (.svg, .png).")] = None,
) -> None:
    """A closed loop of 1 to 256 clients: planned speculation against off, chains and trees of fixed shape."""
    from specgrove.bench.ladder import RUNGS
    from specgrove.cli.ladder import climb_and_report

    climb_and_report(
        target, draft, rungs=rung or RUNGS, repeats=repeats, seconds=seconds, warm_s=warm, tokens=tokens,
        temperature=temperature, dtype=dtype, threads=threads, bad=bad, recovery_s=recovery, seed=seed,
        json_out=json_out, plot=plot,
    )  # fmt: skip


def profile(
    model: Annotated[str, typer.Argument(help="Bundled name, directory or hub id.")],
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    seconds: Annotated[float, typer.Option(min=1, help="Time for measuring.")] = 60.0,
    quantization: Annotated[Literal["int8", "int4"] | None, typer.Option(help="As of a pool.")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="As `compile: true` of a pool.")] = False,
    depth: Annotated[int | None, typer.Option("--exit", min=1, help="An exit of a sorted model.")] = None,
    json_out: JsonOut = None,
    plot: Annotated[Path | None, typer.Option(help="Draw measured and predicted times here (.svg, .png).")] = None,
) -> None:
    """Measure forward passes of a model, fit the planner's latency model, and show its error on held-out passes."""
    from specgrove.cli.profile import profile_and_report
    from specgrove.engine.loader import EngineOptions

    options = EngineOptions(
        dtype=dtype, device=device, threads=threads, quantization=quantization, compile=compiled, exit=depth
    )
    profile_and_report(model, options, seconds=seconds, json_out=json_out, plot=plot)
