"""`lawful symmetries`: what acts on a module's parameters without changing its function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import print_json
from lawful.cli.source import JsonOption, NetworkArgument, is_module, open_module, open_source
from lawful.errors import LawfulError

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
    module, weights = _opened(network, model)
    found = read(module, input_size or None, mode=mode, check=check)  # type: ignore[arg-type]
    if values is not None:
        write_values(found, module, values)
    moved = None
    if apply is not None and out is not None:
        from lawful.symmetry.orbit import disguise

        moved = disguise(module, input_size or None, found, seed=apply)
        write_weights(moved.weights, out, like=weights)
    if as_json:
        print_json(symmetries_json(found) | ({} if moved is None else {"applied": moved.difference}))
    else:
        typer.echo(symmetries_text(found))
        if moved is not None:
            typer.echo(f"\n{out}: another member of the orbit; outputs differ by {moved.difference:.1e} of their size")


def _opened(network: str, model: str | None) -> tuple[Any, Path | None]:
    """The module that the user named, with the weights in a file if there is one."""
    if model is None:
        return (open_module(network) if is_module(network) else open_source(network)), None
    from lawful.cli.module_weights import load_weights

    module: torch.nn.Module = open_module(model)
    load_weights(module, Path(network))
    return module, Path(network)
