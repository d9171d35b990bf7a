"""The whole trade-off between the size of a network and the certified change of its outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.pruning.neurons.bounds import box_of_samples
from lawful.pruning.neurons.prune import UNIT_BOX, prune
from lawful.pruning.neurons.surrogates import Clock, Search
from lawful.types import Floats


@dataclass(frozen=True)
class SizePoint:
    """A size, and how far each output can be from the original's on the box (and is on the data)."""

    neurons: int
    parameters: int
    bounds: tuple[float, ...]
    on_data: float | None

    @property
    def bound(self) -> float:
        """The largest change of any output."""
        return max(self.bounds, default=0.0)


def size_curve(
    network: Mlp | Dag,
    *,
    box: tuple[ArrayLike, ArrayLike] | None = None,
    data: Floats | None = None,
    around: float | None = None,
    points: int = 12,
    tick: Callable[[str], None] = lambda words: None,
) -> tuple[SizePoint, ...]:
    """Sizes from the network without what is redundant down to one neuron a layer, each with its smallest bound found.

    >>> from lawful.network import Architecture
    >>> [point.neurons for point in size_curve(Architecture.parse("2-6-1 relu bias").initialise(), points=3)]
    [6, 4, 1]
    """
    if not isinstance(network, Mlp):
        raise Unsupported("a curve of sizes is for layered networks")
    if around is not None and (data is None or not around >= 0):
        raise LawfulError("a distance around the data is at least 0, and needs data")
    if box is None:
        box = UNIT_BOX if data is None else box_of_samples(data, around)
    first = prune(network, box=box, data=data)
    if not isinstance(first.network, Mlp) or first.box is None:
        raise AssertionError("a layered network on a box stays one")
    search = Search(first.network, first.box, data=data, around=around, clock=Clock(tick=tick))
    found = []
    for gone in sorted({round(part * search.most / max(points - 1, 1)) for part in range(points)}):
        point = search.without(gone)
        seen = None if data is None else float(np.abs(point.network.evaluate(data) - network.evaluate(data)).max())
        bounds = tuple((point.bounds + first.bound + first.rounding).tolist())
        found.append(SizePoint(first.neurons_after - gone, point.network.parameters, bounds, seen))
    return tuple(found)
