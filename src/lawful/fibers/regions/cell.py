"""One region of a network in floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.fibers.regions.affine_maps import AffineMaps, Bits
from lawful.types import Floats, Mask


class OutOfTime(Exception):
    """The time limit ended a search; its caller turns it into *undecided*."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A full-dimensional region: the points with `rows[k]·(x, 1) ≥ 0` for all k, each the row of one hidden neuron.

    `pattern[l]` says which neurons of hidden layer l are active; `matrix x + offset` is the network here; `point` lies
    inside, at distance `radius` from the nearest side. In a box of few inputs the rows are the region's facets, and
    `tight[c, k]` says that corner c lies on facet k.
    """

    pattern: tuple[Bits, ...]
    point: Floats
    radius: float
    rows: Floats
    neurons: tuple[tuple[int, int], ...]
    matrix: Floats
    offset: Floats
    corners: Floats | None = None
    tight: Mask | None = None

    @property
    def key(self) -> bytes:
        """The activation pattern as bytes."""
        return key_of(self.pattern)


def key_of(pattern: tuple[Bits, ...]) -> bytes:
    """An activation pattern as bytes."""
    return np.concatenate(pattern).tobytes() if pattern else b""


def region_rows(maps: AffineMaps, pattern: tuple[Bits, ...]) -> list[Floats]:
    """The preactivations of every layer as functions of the input, turned so that they are not negative here."""
    found, below = [], maps.inputs()
    for number, bits in enumerate(pattern):
        rows = maps.layer(number, below)
        found.append(np.where(bits[:, None], rows.values, -rows.values))
        below = maps.activate(number, rows, bits)
    return found
