"""What a pruning does on inputs that were tried, beside what is proved; and the bounds that smaller sizes have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lawful.bounds.distance import bound_of_difference
from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.singular.spectrum import singularity
from lawful.network import Dag, Mlp
from lawful.pruning.neurons.bounds import box_of_samples
from lawful.pruning.neurons.prune import UNIT_BOX, Pruning, output_range, prune
from lawful.pruning.neurons.surrogates import Clock, Search
from lawful.types import Floats

SAMPLES = 1000
SECONDS = 5.0  # for the bound of both networks together


@dataclass(frozen=True, eq=False)
class PruningMeasurement:
    """Largest changes seen on random inputs from the box and on data, and how wide each output ranges there."""

    samples: int
    change: float
    on_data: float | None
    data: int
    output_range: Floats
    rank: int  # of the original's Jacobian (P0 Theorem 2)
    apart: float | None = None  # a certified bound of the distance of the two networks on the box, where it is smaller


def measure(pruning: Pruning, data: Floats | None = None, seed: int = 0) -> PruningMeasurement:
    """Evaluate both networks.

    >>> from lawful.network import Architecture
    >>> from lawful.pruning.neurons.prune import prune
    >>> found = measure(prune(Architecture.parse("2-3-1 relu bias").initialise()))
    >>> found.change, found.rank
    (0.0, 3)
    """
    batch = pruning.batch(SAMPLES, seed)
    return PruningMeasurement(
        SAMPLES,
        pruning.change_on(batch),
        None if data is None else pruning.change_on(data),
        0 if data is None else len(data),
        output_range(pruning.original, batch if data is None else data),
        singularity(pruning.original.to_dag()).rank,
        _apart(pruning, seed),
    )


def _apart(pruning: Pruning, seed: int) -> float | None:
    """What comparing the networks as a whole proves on the box, if it is less than what the steps add up to."""
    total = pruning.bound + pruning.rounding
    if pruning.box is None or pruning.around is not None or not pruning.bound:
        return None
    if not all(np.isfinite(end).all() for end in pruning.box):
        return None
    try:
        difference = bound_of_difference(pruning.original, pruning.network, pruning.box, seconds=SECONDS, seed=seed)
    except Unsupported:  # too large as dense layers, or slopes beyond 1
        return None
    return difference if difference < total else None


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
    curve = []
    for gone in sorted({round(part * search.most / max(points - 1, 1)) for part in range(points)}):
        point = search.without(gone)
        seen = None if data is None else float(np.abs(point.network.evaluate(data) - network.evaluate(data)).max())
        bounds = tuple((point.bounds + first.bound + first.rounding).tolist())
        curve.append(SizePoint(first.neurons_after - gone, point.network.parameters, bounds, seen))
    return tuple(curve)
