"""What a pruning does on inputs that were tried, beside what is proved of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.bounds.distance import bound_of_difference
from lawful.errors import Unsupported
from lawful.invariant_set.singular.spectrum import singularity
from lawful.pruning.neurons.prune import Pruning, output_range
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
        found = bound_of_difference(pruning.original, pruning.network, pruning.box, seconds=SECONDS, seed=seed)
    except Unsupported:  # too large as dense layers, or slopes beyond 1
        return None
    return found if found < total else None
