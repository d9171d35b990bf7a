"""`lawful symmetries`: what acts on a module's parameters without changing its function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lawful.cli.output import print_json
from lawful.cli.source import JsonOption, NetworkArgument, is_module, open_anything, open_module
from lawful.errors import LawfulError, Unsupported

if TYPE_CHECKING:
    import torch


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(symmetries)


def symmetries(
    network: NetworkArgument,
    model: Annotated[
        str | None, typer.Option(help="module:factory that the weights in the file NETWORK belong to.")
    ] = None,
    input_size: Annotated[
        list[str] | None,
        typer.Option("--input", help="Size of an input without the batch: 3,224,224, or 8:int for token ids."),
    ] = None,
    mode: Annotated[str, typer.Option(help="train (what training does) or eval (what the function is).")] = "train",
    check: Annotated[
        bool | None, typer.Option("--check/--no-check", help="Hold every generator against gradients.")
    ] = None,
    values: Annotated[Path | None, typer.Option(help="Write the values of all laws to this .npz file.")] = None,
    apply: Annotated[int | None, typer.Option(help="Seed of a random member of the group to apply.")] = None,
    out: Annotated[Path | None, typer.Option(help="With --apply: write the moved weights to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The symmetries of a network, read from its graph at any size, and the laws that training therefore conserves."""
    from lawful.cli.module_weights import write_values, write_weights
    from lawful.report.symmetries import symmetries_json, symmetries_text
    from lawful.symmetry import symmetries as read

    if (apply is None) != (out is None):
        raise LawfulError("--apply SEED and --out FILE go together")
    if mode not in ("train", "eval"):
        raise LawfulError(f"--mode is train or eval, not {mode[:20]!r}")
    module, own = _opened(network, model)
    given = input_size or own
    found = read(module, given, mode=mode, check=check)  # type: ignore[arg-type]
    if values is not None:
        write_values(found, module, values)
    moved = None
    if apply is not None and out is not None:
        from lawful.symmetry.orbit import disguise

        moved = disguise(module, given, found, seed=apply)
        write_weights(moved.weights, out, like=Path(network))
    if as_json:
        print_json(symmetries_json(found) | ({} if moved is None else {"applied": moved.difference}))
    else:
        typer.echo(symmetries_text(found))
        if moved is not None:
            typer.echo(f"\n{out}: another member of the orbit; outputs differ by {moved.difference:.1e} of their size")


def _opened(network: str, model: str | None) -> tuple[torch.nn.Module, list[str] | None]:
    """The module that the user named with its weights, and its input if the name itself says that."""
    from lawful.network import Architecture, Mlp
    from lawful.network.modules.convert import to_module
    from lawful.network.modules.load import fill, state_of
    from lawful.network.modules.network import ModuleNetwork

    if model is not None:
        module = open_module(model)
        fill(module, state_of(Path(network))[0])
        return module, None
    if is_module(network):
        return open_module(network), None
    found = open_anything(network)
    if isinstance(found, ModuleNetwork):
        return found.module, None
    if isinstance(found, Architecture):
        found = found.initialise(seed=0)
    if isinstance(found, Mlp):
        return to_module(found), [str(found.widths[0])]
    raise Unsupported("symmetries are read from modules and layered networks: this is a graph of scalar weights")
