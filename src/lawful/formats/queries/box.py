"""Boxes of inputs: typed as text, or read from `.npz` and VNN-LIB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming
from lawful.formats.queries.specification import input_bounds
from lawful.formats.tensors import npz
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.types import Floats

CORNERS = (("lower", "upper"), ("low", "high"), ("lo", "hi"), ("lb", "ub"), ("min", "max"))  # names in an `.npz`
WAYS = "lo,hi for all inputs; lo:hi,lo:hi,... one for each (a single number fixes it); an .npz or a .vnnlib file"


def read_box(text: str, inputs: int) -> tuple[Floats, Floats]:
    """The lower and the upper corner of a box in as many dimensions as the network has inputs.

    Typed decimals mean the nearest float64, as everywhere in Python; those of a VNN-LIB file are exact, and its box is
    rounded outward.

    >>> read_box("-1,1", 2)
    (array([-1., -1.]), array([1., 1.]))
    >>> read_box("0.6:0.68,-0.5:0.5,0.25", 3)
    (array([ 0.6 , -0.5 ,  0.25]), array([0.68, 0.5 , 0.25]))
    """
    ending = Path(text.removesuffix(".gz")).suffix.lower()
    if text.lower().endswith(".npz"):
        low, high = _from_npz(Path(text), inputs)
    elif ending == ".vnnlib":
        low, high = input_bounds(Path(text), inputs)
    else:
        low, high = _parse_text(text, inputs)
    if low.shape != (inputs,) or high.shape != (inputs,):
        raise LawfulError(f"{text[:80]}: a box of {low.size} coordinates, but the network has {inputs} inputs")
    wrong = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high) & (low <= high)))
    if len(wrong):
        at = int(wrong[0])
        infinite = not (np.isfinite(low[at]) and np.isfinite(high[at]))
        hint = " (on all inputs, `lawful same` compares two networks)" if infinite else ""
        raise LawfulError(f"{text[:80]}: coordinate {at} goes from {low[at]} to {high[at]}: give finite lo <= hi{hint}")
    return low, high


def box_of(text: str, network: Mlp | Dag) -> tuple[Floats, Floats]:
    """The corners of a box among the inputs of a network."""
    return read_box(text, network.widths[0] if isinstance(network, Mlp) else len(network.inputs))


def _parse_text(text: str, inputs: int) -> tuple[Floats, Floats]:
    parts = [part.strip() for part in text.split(",")]
    if ":" not in text and len(parts) == 2:
        low, high = (_number(part, text) for part in parts)
        return np.full(inputs, low), np.full(inputs, high)
    if ":" not in text and not (len(parts) == inputs == 1):
        raise LawfulError(f"{text[:60]!r} is not a box: {WAYS}")
    ends = [part.split(":") for part in parts]
    if any(len(pair) > 2 for pair in ends):
        raise LawfulError(f"{text[:60]!r} is not a box: {WAYS}")
    corners = np.array([[_number(pair[0], text), _number(pair[-1], text)] for pair in ends])
    return corners[:, 0], corners[:, 1]


def _number(word: str, text: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise LawfulError(f"{text[:60]!r} is not a box ({word[:20]!r} is no number): {WAYS}") from None


def _from_npz(path: Path, inputs: int) -> tuple[Floats, Floats]:
    with naming(path):
        arrays = npz.load_arrays(path)
    for names in CORNERS:
        if all(name in arrays for name in names):
            corners = [arrays[name] for name in names]
            if any(corner.dtype.kind not in "fiu" for corner in corners):
                raise LawfulError(f"{path}: the corners of a box are real numbers")
            first, second = (np.asarray(corner, dtype=np.float64).ravel() for corner in corners)
            return _spread(first, inputs), _spread(second, inputs)
    pairs = " or ".join("/".join(names) for names in CORNERS)
    raise LawfulError(f"{path}: a box has two arrays {pairs}, and this file has {', '.join(arrays)[:100] or 'none'}")


def _spread(corner: Floats, inputs: int) -> Floats:
    return np.full(inputs, corner[0]) if corner.size == 1 else corner
