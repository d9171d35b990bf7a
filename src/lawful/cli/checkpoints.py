"""`lawful align`, and `lawful same` for checkpoints of modules: what two checkpoints of one architecture share."""

from __future__ import annotations

import time as clock
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import note_reading, print_json, will_write, write_certificate, write_text
from lawful.cli.source import ActivationOption, JsonOption, ModelOption, OrderOption, is_module, open_anything

if TYPE_CHECKING:
    from lawful.checkpoints.opening import CheckpointPair

SMALL = 50_000  # parameters up to which a piecewise-linear module is compared as a graph, exactly
TokensOption = Annotated[
    list[str] | None,
    typer.Option("--input", help="Size of an input without the batch: 3,8,8, or 8:int for token ids."),
]


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(align)


def align(
    first: Annotated[str, typer.Argument(metavar="A", help="The checkpoint to which B is brought.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another checkpoint of the same architecture.")],
    out: Annotated[Path | None, typer.Option(help="Write B, aligned, to this file.")] = None,
    model: ModelOption = None,
    input_size: TokensOption = None,
    activation: ActivationOption = None,
    order: OrderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring B as near to A as its function allows: order of units and heads, scales, rotations."""
    from lawful.checkpoints.verbs import align_pair
    from lawful.network.modules.save import write_weights
    from lawful.report.checkpoints import aligned_json, aligned_text

    will_write(out)
    found = align_pair(open_pair(first, second, model, input_size, activation, order))
    if out is not None:
        write_weights(found.weights, out, like=Path(second))
    written = None if out is None else str(out)
    if as_json:
        print_json(aligned_json(found, written))
    else:
        typer.echo(aligned_text(found, written))


def open_pair(
    first: str,
    second: str,
    model: str | None,
    sizes: list[str] | None,
    activation: str | None,
    order: str | None = None,
) -> CheckpointPair:
    """Two checkpoints: with a model, or whatever files, factories and folders say by themselves."""
    from lawful.checkpoints.opening import open_checkpoints
    from lawful.network import Mlp
    from lawful.network.modules.convert import module_reading, to_module
    from lawful.network.modules.network import ModuleNetwork

    given: Any = sizes or None
    if model is not None or is_module(first) or (Path(first) / "config.json").is_file():
        pair = open_checkpoints(first, second, model=model, input=given)
        for text in (first, second):
            note_reading(replace(module_reading(pair.architecture.module), source=text))
        return pair
    modules = []
    for text in (first, second):
        found = open_anything(text, activation=activation, order=order)
        if isinstance(found, ModuleNetwork):
            modules.append(found.module)
            given = given or found.input_shape
        elif isinstance(found, Mlp):
            modules.append(to_module(found))
            given = given or (found.widths[0],)
        else:
            return open_checkpoints(first, second, model=model, input=given)  # says what is missing
    return open_checkpoints(modules[0], modules[1], input=given)


def compares_weights(
    first: str,
    second: str,
    model: str | None,
    size: str | None,
    activation: str | None,
    order: str | None,
    *,
    balances: bool = False,
) -> bool:
    """Whether two networks are compared as checkpoints: modules that are large, or no graphs of scalar weights.

    Of a graph that shares or folds weights the function is right and the `balances` are not.
    """
    from lawful.network.modules.load import make_module
    from lawful.network.modules.network import ModuleNetwork

    if size is not None and ":" in size:
        return True
    named = model if model is not None else first if is_module(first) else None
    if named is not None:
        if sum(tensor.numel() for tensor in make_module(named).parameters()) > SMALL:
            return True
    elif not (Path(first) / "config.json").is_file() and activation is None:
        return False
    from lawful.cli.source import input_shape

    found = open_anything(first, model=model, shape=input_shape(size), activation=activation, order=order)
    if isinstance(found, ModuleNetwork):
        return True
    return balances and named is not None and found.reading is not None and bool(found.reading.entangled)


def same_by_weights(
    pair: CheckpointPair,
    certificate: Path | None,
    seed: int,
    as_json: bool,
    started: float,
    *,
    only_equal: bool = False,
) -> None:
    """Decide, report, save the evidence. Exit 0 equal, 1 different, 3 undecided.

    With `only_equal` any other verdict is left to somebody who knows better.
    """
    from lawful.checkpoints.certificate import copy_certificate
    from lawful.checkpoints.same import same_checkpoints
    from lawful.report.checkpoints import verdict_json, verdict_text

    found = same_checkpoints(pair.architecture, pair.first.state, pair.second.state, seed=seed)
    seconds = clock.perf_counter() - started
    if only_equal and found.verdict != "equal":
        return
    if certificate is not None and found.certified:
        write_certificate(certificate, copy_certificate(pair, found))
    if as_json:
        print_json(verdict_json(found, seconds))
    else:
        typer.echo(verdict_text(found, seconds))
    if certificate is not None and not found.certified:
        typer.echo(f"lawful: nothing that can be re-checked, so {certificate} was not written", err=True)
        raise typer.Exit(3)
    raise typer.Exit({"equal": 0, "different": 1, "undecided": 3}[found.verdict])


def kin(
    first: str,
    second: str,
    model: str | None,
    size: str | None,
    activation: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """How two checkpoints of a module are related, and what changed."""
    from lawful.checkpoints.kinship import kinship
    from lawful.report.checkpoints import kinship_json, kinship_text

    found = kinship(open_pair(first, second, model, None if size is None else [size], activation))
    if html is not None:
        from lawful.report.diff_page import kinship_page

        write_text(html, kinship_page(found, first, second))
    if as_json:
        print_json(kinship_json(found))
    else:
        typer.echo(kinship_text(found))
        if html is not None:
            typer.echo(f"page: {html}")


def file_tensors(texts: list[str]) -> list[dict[str, Any]]:
    """The floating tensors of files, in float64, for a certificate that is about them."""
    from lawful.network.modules.load import state_of

    return [
        {
            name: tensor.double().numpy()
            for name, tensor in state_of(Path(text))[0].items()
            if tensor.is_floating_point()
        }
        for text in texts
    ]
