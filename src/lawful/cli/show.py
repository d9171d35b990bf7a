"""`lawful show` and `lawful convert`: what a network is, and the same function in another file format."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lawful.api.inputs import DrawOptions
from lawful.cli.output import console, note_readings, print_json, say, write_text
from lawful.cli.subcommand import ApiCall, JsonOption, Named, subcommand


@subcommand(reads=DrawOptions)
def show(
    call: ApiCall,
    svg: Annotated[Path | None, typer.Option(help="Draw the graph to this file.")] = None,
    program: Annotated[
        bool, typer.Option("--program", help="Print it as a program of the one table of operators instead.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a network: layers, parameters, bottlenecks, dead and linear neurons, balances.

    Of a module that is no graph of scalar weights, or of weights that do not say how they are joined, the tensors.
    """
    named = call.named
    from lawful.api.networks import show as describe
    from lawful.report.structure.network import draw_graph, print_summary, print_tensors, summary_json, tensors_json
    from lawful.sources.summary import TensorSummary

    if svg is not None:
        write_text(svg, draw_graph(named.source().to_dag()))
    if program:
        _show_program(named, as_json)
        return
    found = describe(named.text, **named.read_options)
    note_readings(found.readings)
    if isinstance(found, TensorSummary):
        print_json(tensors_json(found)) if as_json else print_tensors(found, console())
    elif as_json:
        print_json(summary_json(found))
    else:
        print_summary(found, console())


def _show_program(named: Named, as_json: bool) -> None:
    from lawful.api.networks import read_program
    from lawful.report.structure.network import program_json, program_text

    found = read_program(named.text, **named.read_options)
    say(as_json, program_json(found), program_text(found))


@subcommand()
def convert(call: ApiCall, as_json: JsonOption = False) -> None:
    """Write a network in another format; the function stays the same.

    Any module becomes an ONNX file; the other formats hold graphs of scalar weights.
    """
    named, out = call.named, call.options["out"]
    from lawful.api.networks import choose_form, write_opened
    from lawful.network import Architecture

    opened = named.anything()
    network = named.network() if isinstance(opened, Architecture) else choose_form(opened, out, named.input_text)
    written = write_opened(network, out, call.options["dtype"], named.input_text)
    stored = {key: value for key, value in asdict(written).items() if key != "note" or value}
    say(
        as_json,
        {"written": str(out), "parameters": network.parameters, "stored": stored},
        f"{written}: {network}, {network.parameters:,} parameters",
    )
