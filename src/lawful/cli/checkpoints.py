"""`lawful align`, and `lawful same` for checkpoints of modules: what two checkpoints of one architecture share."""

from __future__ import annotations

import time as clock
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import note_reading, print_json, will_write, write_certificate, write_text
from lawful.cli.source import (
    ActivationOption,
    JsonOption,
    ModelBOption,
    ModelOption,
    OrderOption,
    is_module,
    open_anything,
)
from lawful.errors import InvalidNetwork

if TYPE_CHECKING:
    from lawful.checkpoints.opening import ApartPair, CheckpointPair

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
    model_b: ModelBOption = None,
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
    found = align_pair(open_pair(first, second, model, input_size, activation, order, model_b))
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
    model_b: str | None = None,
) -> CheckpointPair:
    """Two checkpoints in one form."""
    from lawful.checkpoints.opening import ApartPair

    found = open_two(first, second, model, sizes, activation, order, model_b)
    if isinstance(found, ApartPair):
        raise InvalidNetwork(f"the checkpoints are of different architectures: {found.reason}")
    return found


def open_two(
    first: str,
    second: str,
    model: str | None,
    sizes: list[str] | None,
    activation: str | None,
    order: str | None = None,
    model_b: str | None = None,
) -> CheckpointPair | ApartPair:
    """Two checkpoints: with a model, or whatever files, factories and folders say by themselves."""
    from lawful.checkpoints.opening import CheckpointPair, open_both
    from lawful.network import Mlp
    from lawful.network.modules.convert import module_reading, to_module
    from lawful.network.modules.network import ModuleNetwork

    given: Any = sizes or None
    if model is not None or is_module(first) or (Path(first) / "config.json").is_file():
        pair = open_both(first, second, model=model, model_b=model_b, input=given)
        if isinstance(pair, CheckpointPair):
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
            return open_both(first, second, model=model, input=given)  # says what is missing
    return open_both(modules[0], modules[1], input=given)


def compares_weights(
    text: str,
    model: str | None,
    size: str | None,
    activation: str | None,
    order: str | None,
    *,
    balances: bool = False,
) -> bool:
    """Whether a network is compared as a checkpoint: a module that is large, or no graph of scalar weights.

    Of a graph that shares or folds weights the function is right and the `balances` are not.
    """
    from lawful.network.modules.load import make_module
    from lawful.network.modules.network import ModuleNetwork

    if size is not None and ":" in size:
        return True
    named = text if is_module(text) else model
    if named is not None:
        if sum(tensor.numel() for tensor in make_module(named).parameters()) > SMALL:
            return True
    elif not (Path(text) / "config.json").is_file() and activation is None and Path(text).suffix.lower() != ".onnx":
        return False
    from lawful.cli.source import input_shape

    found = open_anything(text, model=model, shape=input_shape(size), activation=activation, order=order)
    if isinstance(found, ModuleNetwork):
        return True
    return balances and named is not None and found.reading is not None and bool(found.reading.entangled)


def same_by_weights(
    pair: CheckpointPair | ApartPair,
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
    from lawful.checkpoints.apart import apart
    from lawful.checkpoints.certificate import copy_certificate
    from lawful.checkpoints.opening import ApartPair
    from lawful.checkpoints.verbs import decide
    from lawful.report.checkpoints import apart_json, apart_text, verdict_json, verdict_text

    if isinstance(pair, ApartPair):
        if only_equal:
            return
        other = apart(pair, seed=seed)
        verdict, seconds, certified = other.verdict, clock.perf_counter() - started, False
        print_json(apart_json(other, seconds)) if as_json else typer.echo(apart_text(other, seconds))
    else:
        pair, found = decide(pair, seed=seed)
        verdict, seconds, certified = found.verdict, clock.perf_counter() - started, found.certified
        if only_equal and verdict != "equal":
            return
        if certificate is not None and certified:
            write_certificate(certificate, copy_certificate(pair, found))
        words = pair.rewritten
        print_json(verdict_json(found, seconds, words)) if as_json else typer.echo(verdict_text(found, seconds, words))
    if certificate is not None and not certified:
        typer.echo(f"lawful: nothing that can be re-checked, so {certificate} was not written", err=True)
        raise typer.Exit(3)
    raise typer.Exit({"equal": 0, "different": 1, "undecided": 3}[verdict])


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
    from lawful.network.modules.save import translated_state

    return [
        {
            name: tensor.double().numpy()
            for name, tensor in translated_state(Path(text)).items()
            if tensor.is_floating_point()
        }
        for text in texts
    ]
