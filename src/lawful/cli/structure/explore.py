"""`lawful explore`: one page on which a network can be touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lawful.cli.output import say, will_write, write_text
from lawful.cli.source import JsonOption, Named, open_network, takes_network
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.network import Dag, Mlp


@takes_network
def explore(
    named: Named,
    html: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("explorer.html"),
    data: Annotated[Path | None, typer.Option(help="Samples to train on: .npz with x and y, or .csv.")] = None,
    other: Annotated[str | None, typer.Option("--other", help="A second network to lay over the first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page that trains, rescales and draws a network in the browser: laws, locks, regions, fiber.

    Convolutional networks and transformers are shown block by block; a graph that is not layered, or too large to move
    in a browser, by its audit.
    """
    from lawful.api.explore import MOST_PARAMETERS
    from lawful.api.explore import explore as gather
    from lawful.cli.audit import of_module, trained_module
    from lawful.formats.queries.data import read_data
    from lawful.network import Mlp
    from lawful.report.page.explorer import explorer_html

    will_write(html)
    module = trained_module(named)
    if module is not None:
        from lawful.api.module_audit import audit_module
        from lawful.report.audit.module_page import blocks_page

        blocks = audit_module(module, named.input_text, source=named.text, asked=of_module(named), effort="quick")
        write_text(html, blocks_page(blocks))
        _say_where(html, blocks.parameters, as_json)
        return
    network = named.network()
    samples = None if data is None else read_data(data, len(network.to_dag().inputs))
    if not _is_layered(network) or network.parameters > MOST_PARAMETERS:
        from lawful.api.audit import audit
        from lawful.report.audit.audit_page import audit_page

        facts = audit(network, source=named.text, asked=named.asked, data=samples, effort="quick")
        write_text(html, audit_page(facts))
        _say_where(html, network.parameters, as_json)
        return
    second = None if other is None else open_network(other, seed=named.seed)
    layered = network if isinstance(network, Mlp) else Mlp.from_dag(network)
    found = gather(
        layered, source=named.text, asked=named.asked, data=samples, other=second, other_source=other or "",
        seed=named.seed,
    )  # fmt: skip
    write_text(html, explorer_html(found))
    _say_where(html, found.network.parameters, as_json)


def _is_layered(network: Mlp | Dag) -> bool:
    from lawful.network import Mlp

    try:
        return isinstance(network, Mlp) or bool(Mlp.from_dag(network))
    except LawfulError:
        return False


def _say_where(html: Path, parameters: int, as_json: bool) -> None:
    say(as_json, {"page": str(html), "parameters": parameters}, f"page: {html}")
