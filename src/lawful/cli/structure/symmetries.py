"""`lawful symmetries`: what acts on a module's parameters without changing its function."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import note_reading, print_json, will_write, write_text
from lawful.cli.source import InputsOption, JsonOption, Named, NetworkArgument, reads
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.symmetry import Symmetries


@reads("model", "activation", "order")
def symmetries(
    named: Named,
    network: NetworkArgument,
    input_size: InputsOption = None,
    mode: Annotated[
        str | None, typer.Option(help="train (what training does, and assumed) or eval (what the function is).")
    ] = None,
    check: Annotated[
        bool | None, typer.Option("--check/--no-check", help="Hold every generator against gradients.")
    ] = None,
    values: Annotated[Path | None, typer.Option(help="Write the values of all laws to this .npz file.")] = None,
    apply: Annotated[int | None, typer.Option(help="Seed of a random member of the group to apply.")] = None,
    out: Annotated[Path | None, typer.Option(help="With --apply: write the moved weights to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the spaces, largest first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The symmetries of a network, read from its graph at any size, and the laws that training therefore conserves."""
    from lawful.report.structure.symmetries import symmetries_json, symmetries_text
    from lawful.sources.checkpoints.save import write_weights
    from lawful.symmetry import symmetries as read

    if (apply is None) != (out is None):
        raise LawfulError("--apply SEED and --out FILE go together")
    if html is not None:
        will_write(html)
    if mode not in (None, "train", "eval"):
        raise LawfulError(f"--mode is train or eval, not {mode[:20]!r}")
    opened = _open(named.of(network), mode, values is not None or apply is not None)
    module = opened.module
    given = [part for each in input_size or () for part in each.split(";")] or opened.input_shape
    found = read(module, given, mode=mode or "train", check=check)  # type: ignore[arg-type]
    if values is not None:
        _write_values(found, module, values)
    moved = None
    if apply is not None and out is not None:
        from lawful.symmetry.orbit import disguise

        moved = disguise(module, given, found, seed=apply)
        write_weights(moved.weights, out, like=Path(network))
    if html is not None:
        from lawful.report.structure.symmetries import symmetries_page

        sizes = "".join(f" --input {shlex.quote(size)}" for size in input_size or ())
        write_text(html, symmetries_page(found, network, named.of(network).asked + sizes))
    if as_json:
        print_json(symmetries_json(found) | ({} if moved is None else {"applied": moved.difference}))
    else:
        typer.echo(symmetries_text(found))
        if html is not None:
            typer.echo(f"page: {html}")
        if moved is not None:
            typer.echo(f"\n{out}: another member of the orbit; outputs differ by {moved.difference:.1e} of their size")


def _open(named: Named, mode: str | None, weighed: bool) -> ModuleNetwork:
    """The module that the user named, with its weights."""
    from lawful.sources.opening import open_module

    found = open_module(named.text, model=named.model, activation=named.activation, order=named.order)
    told = found.reading.in_training(mode or "")
    drawn = weighed and told.format == "architecture"
    note_reading(told.assuming("random weights: PyTorch's default initialisation, seed 0") if drawn else told)
    return found


def _write_values(found: Symmetries, module: Any, out: Path) -> None:
    """All values of the laws at the module's weights, space by space: arrays `law00000`, ... and their `names`."""
    import zipfile

    import numpy as np

    from lawful.formats.io.writing import replacing

    theta = dict(module.named_parameters())
    if any(tensor.is_meta for tensor in theta.values()):
        raise LawfulError("a module on the meta device has no weights: its laws have no values")
    with replacing(out) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        names = []
        for number, (laws, values) in enumerate(found.laws.stream(theta)):
            names.append(" ".join(laws.parameters))
            with archive.open(f"law{number:05}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)
        with archive.open("names.npy", "w") as stream:
            np.lib.format.write_array(stream, np.array(names or [""]), allow_pickle=False)
