"""`lawful audit`, `diff` and `explore`: everything we know about one network, or two checkpoints of it, on one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lawful.api.inputs import LOSS_HELP, DrawOptions, PairOptions
from lawful.cli.output import console, print_json, say, show, will_write, write_text
from lawful.cli.subcommand import ApiCall, JsonOption, Named, format_options, subcommand
from lawful.errors import LawfulError

if TYPE_CHECKING:
    import torch

    from lawful.api.audit import Audit
    from lawful.network import Dag, Mlp

DataOption = Annotated[Path | None, typer.Option(help="Samples: .npz with x and perhaps y, or .csv.")]


@subcommand(reads=DrawOptions)
def audit(
    call: ApiCall,
    data: DataOption = None,
    loss: Annotated[str, typer.Option(help=LOSS_HELP)] = "full",
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    effort: Annotated[
        str | None, typer.Option(help="quick, normal or full: what is too large to ask. [default: normal]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only what takes seconds, as --effort quick.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Everything, however long, as --effort full.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Everything we know about a network, in order of consequence, and what to do about it."""
    named = call.named
    from lawful.report.audit.audit import print_audit, to_json
    from lawful.report.audit.audit_page import audit_page

    if quick + full + (effort is not None) > 1:
        raise LawfulError("choose one of --effort, --quick and --full")
    if effort not in (None, "quick", "normal", "full"):
        raise LawfulError(f"--effort is quick, normal or full, not {effort[:20]!r}")
    will_write(html)
    effort = effort or ("quick" if quick else "full" if full else "normal")
    result = _audit(named, data, loss, effort)
    if html is not None:
        write_text(html, audit_page(result))
    if as_json:
        print_json(to_json(result))
    else:
        print_audit(result, console(80))
        if html is not None:
            typer.echo(f"page: {html}")


def _audit(named: Named, data: Path | None, loss: str = "full", effort: str = "normal") -> Audit:
    from lawful.api.audit import audit
    from lawful.formats.queries.data import read_data

    module = trained_module(named)
    if module is not None:
        from lawful.api.module_audit import audit_module  # brings PyTorch

        if data is not None:
            raise LawfulError("--data are for networks of layers: leave it out for this module")
        return audit_module(module, named.input_text, source=named.text, asked=of_module(named), effort=effort)
    network = named.network()
    samples = None if data is None else read_data(data, len(network.to_dag().inputs))
    return audit(network, source=named.text, asked=named.asked, data=samples, loss=loss, effort=effort)


def trained_module(named: Named) -> torch.nn.Module | None:
    """The module, where a graph of scalar weights would have other parameters than it has."""
    from lawful.network import Architecture
    from lawful.sources.modules.module_network import ModuleNetwork

    found = named.anything()
    if isinstance(found, ModuleNetwork):
        return found.module
    if isinstance(found, Architecture) or found.reading is None or not found.reading.entangled:
        return None
    from lawful.sources.opening import module_behind

    return module_behind(found.reading)


def of_module(named: Named) -> str:
    """How a command names the module: a seed and useless neurons are about graphs alone."""
    return replace(named, seed=0, drop_useless=False).asked


@subcommand(reads=PairOptions, without=("network",))
def diff(
    call: ApiCall,
    first: Annotated[str, typer.Argument(metavar="A", help="The earlier checkpoint.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The later checkpoint, of the same architecture.")],
    data: DataOption = None,
    loss: Annotated[
        str, typer.Option(help="With data that have y: mse, bce (logistic) or ce (cross-entropy).")
    ] = "mse",
    seconds: Annotated[
        float, typer.Option("--seconds", help="Seconds before the comparison of the functions gives up.")
    ] = 10.0,
    html: Annotated[Path | None, typer.Option(help="Write a page with what changed, largest first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """What changed between two checkpoints, whether they are related, and how far that was from gradient flow."""
    from lawful.report.checkpoints.diff import page_of_difference

    will_write(html)
    difference = call(first, second, data=data, loss=loss, seconds=seconds)
    if html is not None:
        write_text(html, page_of_difference(difference, first, second, format_options(call.options)))
    show(difference, as_json, {}, *([] if html is None else [f"page: {html}"]))


@subcommand(reads=DrawOptions)
def explore(
    call: ApiCall,
    html: Annotated[Path, typer.Option(help="Write the page to this file.")] = Path("explorer.html"),
    data: Annotated[Path | None, typer.Option(help="Samples to train on: .npz with x and y, or .csv.")] = None,
    other: Annotated[str | None, typer.Option("--other", help="A second network to lay over the first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page that trains, rescales and draws a network in the browser: laws, locks, regions, fiber.

    Convolutional networks and transformers are shown block by block; a graph that is not layered, or too large to move
    in a browser, by its audit.
    """
    named = call.named
    from lawful.api.explore import MOST_PARAMETERS
    from lawful.api.explore import explore as gather
    from lawful.formats.queries.data import read_data
    from lawful.network import Mlp
    from lawful.report.page.explorer import explorer_html

    will_write(html)
    module = trained_module(named)
    network = named.network() if module is None else None
    if network is None or not _is_layered(network) or network.parameters > MOST_PARAMETERS:
        from lawful.report.audit.audit_page import explore_page

        facts = _audit(named, data, effort="quick")
        write_text(html, explore_page(facts))
        _say_where(html, facts.parameters, as_json)
        return
    samples = None if data is None else read_data(data, len(network.to_dag().inputs))
    second = None if other is None else Named(other, seed=named.seed).network()
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
