"""`lawful explore`: one page on which a network can be touched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.output import print_json, will_write, write_text
from lawful.cli.source import JsonOption, Named, open_network, takes_network


def add_to(app: typer.Typer) -> None:
    """Register the subcommand."""
    app.command()(explore)


@takes_network
def explore(
    named: Named,
    html: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("explorer.html"),
    data: Annotated[Path | None, typer.Option(help="Samples to train on: .npz with x and y, or .csv.")] = None,
    other: Annotated[str | None, typer.Option("--other", help="A second network to lay over the first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page that trains, rescales and draws a network in the browser: laws, locks, regions, fiber."""
    from lawful.api.explore import explore as gather
    from lawful.formats.queries.data import read_data
    from lawful.report.page.explorer import explorer_html

    will_write(html)
    network = named.network()
    samples = None if data is None else read_data(data, len(network.to_dag().inputs))
    second = None if other is None else open_network(other, seed=named.seed)
    found = gather(network, source=named.text, data=samples, other=second, other_source=other or "", seed=named.seed)
    write_text(html, explorer_html(found))
    if as_json:
        print_json({"page": str(html), "parameters": found.network.parameters})
    else:
        typer.echo(f"page: {html}")
