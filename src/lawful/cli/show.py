"""`lawful show`: what a network is, at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import console, note_reading, print_json, write_text
from lawful.cli.source import JsonOption, Named, takes_network
from lawful.errors import LawfulError


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(show)


@takes_network
def show(
    named: Named,
    svg: Annotated[Path | None, typer.Option(help="Draw the graph to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a network: layers, parameters, bottlenecks, dead and linear neurons, balances.

    Of a module that is no graph of scalar weights, or of weights that do not say how they are joined, the tensors.
    """
    from lawful.network.formats.contents import contents
    from lawful.network.modules.network import ModuleNetwork
    from lawful.network.summary import summarise
    from lawful.report.network import draw_graph, print_summary, print_tensors, summary_json, tensors_json

    try:
        found = named.anything()
    except LawfulError as reason:
        listed = contents(Path(named.text)) if named.model is None else None
        if listed is None or svg is not None:
            raise
        note_reading(listed)
        if as_json:
            print_json(tensors_json(listed, named.text, str(reason)))
        else:
            print_tensors(listed, named.text, str(reason), console())
        return
    if isinstance(found, ModuleNetwork):
        if svg is not None:
            found.to_dag()
        if as_json:
            print_json(tensors_json(found.reading, repr(found), found.obstacle))
        else:
            print_tensors(found.reading, repr(found), found.obstacle, console())
        return
    summary = summarise(found)
    if svg is not None:
        write_text(svg, draw_graph(found.to_dag()))
    if as_json:
        print_json(summary_json(summary))
    else:
        print_summary(summary, console())
