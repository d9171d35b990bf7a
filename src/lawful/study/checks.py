"""Questions about one network on a box: a specification from a file, or monotone outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lawful.errors import LawfulError
from lawful.fibers.distance.certificate import certificate_of_property
from lawful.fibers.distance.monotone import MonotoneCheck, certificate_of_monotone, check_monotone, read_directions
from lawful.fibers.distance.property import PropertyCheck, check_property, forbidden_by
from lawful.network import Dag, Mlp
from lawful.network.formats.box import read_box
from lawful.network.formats.vnnlib_outputs import output_cases


def check_network(
    network: Mlp | Dag,
    specification: str | Path | None,
    *,
    monotone: str | None,
    box: str | None,
    output: int | None,
    seconds: float,
    scheduler: str | None,
    seed: int,
) -> PropertyCheck | MonotoneCheck:
    """One of the two questions; the other's options do not go with it."""
    inputs, outputs = (len(nodes) for nodes in (network.to_dag().inputs, network.to_dag().outputs))
    if (specification is None) == (monotone is None):
        raise LawfulError("give a specification, a .vnnlib file, or --monotone with --box, one of the two")
    if monotone is not None:
        if box is None:
            raise LawfulError("--monotone needs --box: lo,hi for all inputs, or lo:hi,lo:hi,... one for each")
        directions = read_directions(monotone, inputs)
        return check_monotone(
            network, read_box(box, inputs), directions,
            output=output, seconds=seconds, scheduler=scheduler, seed=seed,
        )  # fmt: skip
    if box is not None or output is not None:
        raise LawfulError("a specification names its own box and outputs: --box and --output go with --monotone")
    file = Path(str(specification))
    if file.suffix.lower() != ".vnnlib":
        raise LawfulError(f"{str(file)[:80]}: a specification is a .vnnlib file")
    forbidden = forbidden_by(output_cases(file), outputs)
    return check_property(
        network, read_box(str(file), inputs), forbidden, seconds=seconds, scheduler=scheduler, seed=seed
    )


def certificate_of_check(found: PropertyCheck | MonotoneCheck, network: Mlp | Dag) -> dict[str, Any]:
    """The evidence for either answer."""
    if isinstance(found, MonotoneCheck):
        return certificate_of_monotone(found, network)
    return certificate_of_property(found, network)
