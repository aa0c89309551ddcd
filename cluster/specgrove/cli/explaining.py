"""`specgrove explain`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

explain = typer.Typer(no_args_is_help=True, help="Show what the planner would choose from given numbers.")

Acceptance = Annotated[
    str | None,
    typer.Option(help="Probability that the child of each rank is the accepted one, such as 0.6,0.2,0.1."),
]
Matrix = Annotated[
    Path | None, typer.Option(help="JSON file with one list of acceptances per level, instead of --acceptance.")
]
Levels = Annotated[
    int | None, typer.Option("--depth", min=1, help="Most levels of the tree, the root included. [default: no limit]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@explain.command("tree")
def explain_tree(
    nodes: Annotated[int, typer.Option(min=1, help="Most nodes, the root (the last committed token) included.")],
    acceptance: Acceptance = None,
    matrix: Matrix = None,
    depth: Levels = None,
    as_json: AsJson = False,
) -> None:
    """The tree with the most expected tokens: Sequoia's dynamic program."""
    from specgrove.cli.explain import acceptance_of, show_tree

    show_tree(acceptance_of(acceptance, matrix), nodes=nodes, levels=depth, as_json=as_json)


@explain.command("size")
def explain_size(
    latency: Annotated[
        Path, typer.Option(help='JSON file: time of a target pass by tree nodes, such as {"1": 0.03, "8": 0.04}.')
    ],
    draft_cost: Annotated[float, typer.Option(min=0, help="Time of one draft pass, in the same unit.")],
    network: Annotated[float, typer.Option(min=0, help="Network time of a round, in the same unit.")] = 0.0,
    acceptance: Acceptance = None,
    matrix: Matrix = None,
    depth: Levels = None,
    as_json: AsJson = False,
) -> None:
    """The size and depth of the tree that pays most on a machine, or none."""
    from specgrove.cli.explain import acceptance_of, show_size

    known = acceptance_of(acceptance, matrix)
    show_size(known, latency, draft_cost=draft_cost, network=network, levels=depth, as_json=as_json)


@explain.command("goodput")
def explain_goodput(
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Probability that a drafted token is accepted.")],
    batch: Annotated[int, typer.Option(min=1, help="Requests in the step.")],
    context: Annotated[int, typer.Option(min=0, help="Tokens of context of each request.")],
    coefficients: Annotated[
        Path,
        typer.Option(
            help="JSON file with c_kv, c_c, c_B, c_0 of the target and d_kv, d_c, d_k, d_B, d_0 of the draft."
        ),
    ],
    longest: Annotated[int, typer.Option(min=0, help="Longest draft that is considered.")] = 8,
    as_json: AsJson = False,
) -> None:
    """The draft length with the largest goodput in SmartSpec's form; 0 is plain decoding."""
    from specgrove.cli.explain import show_goodput

    show_goodput(coefficients, alpha=alpha, batch=batch, context=context, longest=longest, as_json=as_json)
