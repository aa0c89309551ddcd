"""The commands and their options. Each one's work is in a module of its own, imported when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from specgrove.cli.console import err, show_error
from specgrove.errors import SpecgroveError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Serves language models faster by letting small drafts guess ahead, without changing a token.",
)
train = typer.Typer(no_args_is_help=True, help="Train the models that come with specgrove.")
bench = typer.Typer(no_args_is_help=True, help="Measure speed, and compare outputs.")
evaluate = typer.Typer(no_args_is_help=True, help="Score models through a running server.")
app.add_typer(train, name="train")
app.add_typer(evaluate, name="eval")
app.add_typer(bench, name="bench")

Server = Annotated[
    str, typer.Option("--server", envvar="SPECGROVE_SERVER", help="host:port of a running server's gRPC door.")
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="SPECGROVE_API_KEY", help="Key to present.", show_default=False)
]
JsonOut = Annotated[Path | None, typer.Option("--json", help="Write the report with raw runs here.")]
DEFAULT_SERVER = "127.0.0.1:9000"


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit status. Our own errors become one sentence, never a traceback."""
    try:
        app(list(arguments), prog_name="specgrove")
    except SpecgroveError as error:
        return show_error(error)
    except KeyboardInterrupt:
        err.print("stopped")
        return 130
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


@app.command()
def serve(
    model: Annotated[
        str | None,
        typer.Argument(help="Bundled name, directory or hub id of the target. None: the bundled family."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file instead of MODEL.")] = None,
    draft: Annotated[
        str | None, typer.Option(help="Model that drafts for MODEL; without it decoding is plain.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address of both doors. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="HTTP port. [default: 8000]")] = None,
    grpc_port: Annotated[int | None, typer.Option(help="gRPC port. [default: 9000]")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Longest session in tokens.")] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name under which clients ask for MODEL; may be given more than once.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Hub revision of MODEL.")] = None,
    api_key: Annotated[
        list[str] | None, typer.Option(help="Key that clients must present: a value, env:NAME or file:PATH.")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show what this line stands for; start nothing.")
    ] = False,
) -> None:
    """Serve models over HTTP and gRPC. Without arguments: the bundled family on loopback."""
    from specgrove.cli.line import ServeLine

    line = ServeLine(
        model=model, config=config, draft=draft, host=host, port=port, grpc_port=grpc_port, dtype=dtype, device=device,
        max_model_len=max_model_len, served_model_name=tuple(served_model_name or ()), revision=revision,
        api_key=tuple(api_key or ()),
    )  # fmt: skip
    if print_config:
        typer.echo(line.yaml(), nl=False)
        return
    from specgrove.cli.serve import serve_until_stopped

    serve_until_stopped(line.to_config())


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option(help="Served model. [default: the first one]")] = None,
    max_tokens: Annotated[int, typer.Option(min=0, help="Most tokens to generate.")] = 128,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy. [default: the model's]")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Send the prompt as a chat message.")] = False,
    speculation: Annotated[bool, typer.Option(help="Let drafts help; the text is the same either way.")] = True,
    show_tree: Annotated[
        bool, typer.Option("--show-tree", help="Show what each round drafted, kept and emitted.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    api_key: ApiKey = None,
) -> None:
    """Stream a completion from a running server."""
    from specgrove.cli.generate import Ask, stream

    ask = Ask(
        prompt=prompt, model=model, max_tokens=max_tokens, temperature=temperature, seed=seed, chat=chat,
        speculation=speculation, show_tree=show_tree,
    )  # fmt: skip
    stream(ask, server, api_key)


@app.command()
def models(server: Server = DEFAULT_SERVER, api_key: ApiKey = None) -> None:
    """List the models of a running server, with their replicas and drafts."""
    from specgrove.cli.models import show_models

    show_models(server, api_key)


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Option(help="Configuration to look at. [default: the bundled family]")] = None,
    server: Server = DEFAULT_SERVER,
    api_key: ApiKey = None,
) -> None:
    """Check versions, devices, models and pairs, switches and reachability; status 1 when something is wrong."""
    from specgrove.cli.doctor import examine

    raise typer.Exit(examine(config, server, api_key))


@train.command()
def family(
    out: Annotated[Path, typer.Argument(help="Directory for the models, one folder each.")],
    minutes: Annotated[float, typer.Option(min=0.1, help="Training time of all models together.")] = 240.0,
    seed: Annotated[int, typer.Option(help="Same seed, same data and first weights.")] = 0,
    resume: Annotated[bool, typer.Option(help="Go on from what an interrupted run left in OUT.")] = True,
) -> None:
    """Train the bundled family (two targets, one draft) on text that it makes itself."""
    from specgrove.cli.train import train_and_report

    train_and_report(out, minutes=minutes, seed=seed, resume=resume)


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
    draft_exit: Annotated[int | None, typer.Option(help="Depth at which a sorted draft stops. [default: full]")] = None,
    assisted_length: Annotated[int, typer.Option(min=1, help="The constant length for transformers' assistant.")] = 5,
    epsilon: Epsilon = None,
    seed: Annotated[int, typer.Option(help="Order of the interleaving and noise.")] = 0,
    json_out: JsonOut = None,
) -> None:
    """Tokens per second: transformers plain and assisted, specgrove plain and speculative, interleaved."""
    from specgrove.bench import report
    from specgrove.bench import speed as measure
    from specgrove.cli.bench import speculative_config

    found = measure.run(
        target, draft, prompts=prompts, tokens=tokens, temperature=temperature, repeats=repeats, dtype=dtype,
        threads=threads, speculative=speculative_config(speculative), draft_exit=draft_exit,
        assisted_length=assisted_length, epsilon=epsilon, seed=seed, json_out=json_out,
    )  # fmt: skip
    typer.echo(report.speed_table(found))


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
