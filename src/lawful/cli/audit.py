"""`lawful audit` and `lawful diff`: everything we know about one network, or about two checkpoints of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import console, note_readings, print_json, will_write, write_text
from lawful.cli.source import (
    ActivationOption,
    InputOption,
    JsonOption,
    ModelBOption,
    ModelOption,
    Named,
    OrderOption,
    format_options,
    takes_network,
)
from lawful.cli.structure.laws import LossOption
from lawful.errors import LawfulError

if TYPE_CHECKING:
    import torch

DataOption = Annotated[Path | None, typer.Option(help="Samples: .npz with x and perhaps y, or .csv.")]


@takes_network
def audit(
    named: Named,
    data: DataOption = None,
    loss: LossOption = "full",
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    effort: Annotated[
        str | None, typer.Option(help="quick, normal or full: what is too large to ask. [default: normal]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only what takes seconds, as --effort quick.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Everything, however long, as --effort full.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Everything we know about a network, in order of consequence, and what to do about it."""
    from lawful.api.audit import audit as run
    from lawful.formats.queries.data import read_data
    from lawful.report.audit.audit import print_audit, to_json
    from lawful.report.audit.audit_page import audit_page

    if quick + full + (effort is not None) > 1:
        raise LawfulError("choose one of --effort, --quick and --full")
    if effort not in (None, "quick", "normal", "full"):
        raise LawfulError(f"--effort is quick, normal or full, not {effort[:20]!r}")
    will_write(html)
    effort = effort or ("quick" if quick else "full" if full else "normal")
    module = trained_module(named)
    if module is not None:
        from lawful.api.module_audit import audit_module

        size = named.input_text
        result: Any = audit_module(module, size, source=named.text, asked=of_module(named), effort=effort)
    else:
        found = named.network()
        samples = None if data is None else read_data(data, len(found.to_dag().inputs))
        result = run(found, source=named.text, asked=named.asked, data=samples, loss=loss, effort=effort)
    if html is not None:
        write_text(html, audit_page(result))
    if as_json:
        print_json(to_json(result))
    else:
        print_audit(result, console(80))
        if html is not None:
            typer.echo(f"page: {html}")


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


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="The earlier checkpoint.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The later checkpoint, of the same architecture.")],
    data: DataOption = None,
    loss: Annotated[
        str, typer.Option(help="With data that have y: mse, bce (logistic) or ce (cross-entropy).")
    ] = "mse",
    seconds: Annotated[
        float, typer.Option("--seconds", help="Seconds before the comparison of the functions gives up.")
    ] = 10.0,
    activation: ActivationOption = None,
    model: ModelOption = None,
    model_b: ModelBOption = None,
    order: OrderOption = None,
    input_size: InputOption = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with what changed, largest first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """What changed between two checkpoints, whether they are related, and how far that was from gradient flow."""
    from lawful.api.checkpoints.diff import diff as run
    from lawful.report.checkpoints.diff import page_of_difference
    from lawful.report.views import text, to_dict

    if html is not None:
        will_write(html)
    reading: dict[str, Any] = {"model": model, "model_b": model_b, "input": input_size, "activation": activation}
    found = run(first, second, data=data, loss=loss, seconds=seconds, order=order, **reading)
    note_readings(found.readings)
    if html is not None:
        write_text(html, page_of_difference(found, first, second, format_options(reading | {"order": order})))
    if as_json:
        print_json(to_dict(found))
    else:
        typer.echo(text(found))
        if html is not None:
            typer.echo(f"page: {html}")
