"""What a pruning does on inputs that were tried, beside what is proved of it."""

from __future__ import annotations

from dataclasses import dataclass

from lawful.pruning.prune import Pruning, output_range
from lawful.singular.spectrum import singularity
from lawful.types import Floats

SAMPLES = 1000


@dataclass(frozen=True, eq=False)
class PruningMeasurement:
    """Largest changes seen on random inputs from the box and on data, and how wide each output ranges there."""

    samples: int
    change: float
    on_data: float | None
    data: int
    output_range: Floats
    rank: int  # of the original's Jacobian (P0 Theorem 2)


def measure(pruning: Pruning, data: Floats | None = None, seed: int = 0) -> PruningMeasurement:
    """Evaluate both networks.

    >>> from lawful.network import Architecture
    >>> from lawful.pruning.prune import prune
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
    )
