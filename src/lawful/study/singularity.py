"""Where a network stands: rank, cut-off neurons and singular values in one result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lawful.network.answers import answered
from lawful.network.opening import Source, open_free
from lawful.shown import Shown
from lawful.singular.existence import SingularPoints, exact_balance, singular_points
from lawful.singular.spectrum import LARGEST_SPECTRUM, Singularity, Spectrum, singularity, spectrum
from lawful.study.inputs import read_by


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
