"""Where a network stands: rank, cut-off neurons and singular values in one result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lawful.api.inputs import read_by
from lawful.invariant_set.singular.existence import SingularPoints, exact_balance, singular_points
from lawful.invariant_set.singular.spectrum import LARGEST_SPECTRUM, Singularity, Spectrum, singularity, spectrum
from lawful.result import Shown
from lawful.sources.opening import Source, open_free
from lawful.sources.provenance import answered


@dataclass(frozen=True, eq=False)
class SingularityReport(Shown):
    """Rank of J and cut-off neurons, singular values where they can be computed, and whether singular points exist."""

    tolerance: float
    singularity: Singularity
    spectrum: Spectrum | None
    exist: SingularPoints | None


def singular(network: Source, tolerance: float = 0.0, *, exist: bool = False, **reading: Any) -> SingularityReport:
    """Rank of the invariant set's Jacobian, cut-off neurons and singular values (P0 Theorem 2).

    >>> singular("3-4-2 relu").singularity.rank
    4
    """
    found = open_free(network, **read_by(**reading))
    dag = found.to_dag()
    values = spectrum(dag) if len(dag.hidden) <= LARGEST_SPECTRUM else None
    points = singular_points(dag, exact_balance(dag)) if exist else None
    return answered(SingularityReport(tolerance, singularity(dag, tolerance), values, points), found)
