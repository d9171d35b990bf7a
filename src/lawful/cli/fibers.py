"""`lawful same` and its neighbours: which parameters are the same function."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lawful.cli.output import plain, print_json
from lawful.cli.source import ActivationOption, JsonOption, NetworkArgument, SeedOption, open_network
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.network import Dag, Mlp

BoxOption = Annotated[str | None, typer.Option("--box", help="Ask on the box lo,hi in every input, such as -1,1.")]
TimeOption = Annotated[float, typer.Option("--time", help="Seconds before a search gives up.")]


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command()(same)


def read_box(text: str | None) -> tuple[float, float] | None:
    """Read `lo,hi`.

    >>> read_box("-1,2.5")
    (-1.0, 2.5)
    """
    if text is None:
        return None
    number = r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*"
    if not re.fullmatch(f"{number},{number}", text):
        raise LawfulError(f"--box takes two numbers like -1,1, not {text[:40]!r}")
    low, high = (float(part) for part in text.split(","))
    if not low < high:
        raise LawfulError(f"--box needs lo < hi, not {text[:40]}")
    return low, high


def _open(text: str, seed: int, activation: str | None) -> Mlp | Dag:
    return open_network(text, seed=seed, activation=activation, drop_useless=True)


def same(
    first: Annotated[str, typer.Argument(metavar="A", help="File, module:factory, or architecture.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The network to compare it with.")],
    box: BoxOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Weights are the rationals that floats are.")] = False,
    tolerance: Annotated[float | None, typer.Option(help="Relative rounding of weights that is excused.")] = None,
    time: TimeOption = 60.0,
    certificate: Annotated[Path | None, typer.Option(help="Save the evidence for `lawful verify`.")] = None,
    activation: ActivationOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Are two networks the same function? Exit 0 equal, 1 different, 3 undecided."""
    from lawful.fibers import verdict as verdicts
    from lawful.fibers.same import same as decide
    from lawful.fibers.same import stack_of
    from lawful.report.fibers import verdict_text

    if not time > 0:
        raise LawfulError(f"--time takes a positive number of seconds, not {time}")
    networks = _open(first, seed, activation), _open(second, seed, activation)
    found = decide(*networks, box=read_box(box), exact=exact, tolerance=tolerance, seconds=time, seed=seed)
    result = verdicts.to_json(found)
    if certificate is not None:
        if found.verdict == "undecided" or found.method == "region search" and found.verdict == "equal":
            raise LawfulError(f"no certificate: {found.verdict} by {found.method} leaves nothing to re-check")
        saved = verdicts.certificate(found, stack_of(networks[0]), stack_of(networks[1]))
        certificate.write_text(json.dumps(plain(saved)), encoding="utf-8")
    if as_json:
        print_json(result)
    else:
        typer.echo(verdict_text(result))
    raise typer.Exit({"equal": 0, "different": 1, "undecided": 3}[found.verdict])
