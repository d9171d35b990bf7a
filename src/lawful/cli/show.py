"""`lawful show`: what a network is, at a glance."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import console, print_json, write_text
from lawful.cli.source import (
    ActivationOption,
    DropOption,
    InputOption,
    JsonOption,
    NetworkArgument,
    input_shape,
    open_source,
)


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(show)


def show(
    network: NetworkArgument,
    svg: Annotated[Path | None, typer.Option(help="Draw the graph to this file.")] = None,
    activation: ActivationOption = None,
    drop_useless: DropOption = False,
    input_size: InputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a network: layers, parameters, bottlenecks, dead and linear neurons, balances."""
    from lawful.network.summary import summarise
    from lawful.report.network import draw_graph, print_summary

    found = open_source(network, activation=activation, drop_useless=drop_useless, shape=input_shape(input_size))
    summary = summarise(found)
    if svg is not None:
        write_text(svg, draw_graph(found.to_dag()))
    if as_json:
        low, middle, high = summary.balance or (None, None, None)
        print_json(
            asdict(summary) | {"balance": {"min": low, "median": middle, "max": high} if summary.balance else None}
        )
    else:
        print_summary(summary, console())
