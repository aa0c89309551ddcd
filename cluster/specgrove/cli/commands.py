"""The commands and their options. Each one's work is in a module of its own, imported when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from specgrove.cli.console import err, show_error
from specgrove.cli.explaining import explain
from specgrove.cli.measuring import bench, evaluate, profile
from specgrove.cli.options import DEFAULT_SERVER, ApiKey, Server
from specgrove.errors import SpecgroveError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Serves language models faster by letting small drafts guess ahead, without changing a token.",
)
train = typer.Typer(no_args_is_help=True, help="Train the models that come with specgrove.")
app.add_typer(train, name="train")
app.add_typer(evaluate, name="eval")
app.add_typer(bench, name="bench")
app.add_typer(explain, name="explain")
app.command("profile")(profile)


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
    quantization: Annotated[str | None, typer.Option(help="int8 or int4: fewer bits for the targets' weights.")] = None,
    draft_quantization: Annotated[
        str | None, typer.Option(help="int8 or int4: fewer bits for the drafts' weights.")
    ] = None,
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
        api_key=tuple(api_key or ()), quantization=quantization, draft_quantization=draft_quantization,
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
