"""Where a network stands: rank, cut-off neurons and singular values in one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lawful.api.inputs import read_by
from lawful.errors import Unsupported
from lawful.invariant_set.module_graph import Balanced, EntryGraph, graph_of, told
from lawful.invariant_set.singular.existence import SingularPoints, exact_balance, singular_points
from lawful.invariant_set.singular.scores import product_score
from lawful.invariant_set.singular.spectrum import LARGEST_SPECTRUM, Singularity, Spectrum, singularity, spectrum
from lawful.network import Architecture, Dag, Mlp
from lawful.result import Shown
from lawful.sources.opening import Source, open_free
from lawful.sources.opening import open as open_any
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class SingularityReport(Shown):
    """Rank of J and cut-off neurons, singular values where they can be computed, and whether singular points exist."""

    tolerance: float
    singularity: Singularity
    spectrum: Spectrum | None
    exist: SingularPoints | None
    scores: Floats | None = None  # of every neuron or channel, (P0 (29)): 0 for one that is cut off on a side
    beyond: tuple[str, ...] = ()  # why more than the balances may confine the training of a module


def singular(
    network: Source | Mlp | EntryGraph, tolerance: float = 0.0, *, exist: bool = False, **reading: Any
) -> SingularityReport:
    """Rank of the invariant set's Jacobian, cut-off neurons and singular values (P0 Theorem 2).

    A module whose weights lie on many edges (convolutions, attention) is asked on its scaling graph: what scales on its
    own are the neurons, entries of its parameters are the edges.

    >>> singular("3-4-2 relu").singularity.rank
    4
    """
    graph = network if isinstance(network, EntryGraph) else _graph(network, reading)
    balanced = graph if isinstance(graph, EntryGraph) else graph.to_dag()
    if isinstance(balanced, EntryGraph) and not len(balanced.hidden):
        raise Unsupported(
            "no channel of this module can be rescaled, so that it has no balances and J no rows: `lawful laws` and "
            "`lawful symmetries` say what else it conserves"
        )
    points = None
    if exist:
        if isinstance(balanced, EntryGraph):
            raise Unsupported("whether H(c) has singular points is decided where weights are edges one by one")
        points = singular_points(balanced, exact_balance(balanced))
    values = spectrum(balanced) if len(balanced.hidden) <= LARGEST_SPECTRUM else None
    beyond = balanced.beyond if isinstance(balanced, EntryGraph) else ()
    where = singularity(balanced, tolerance)
    report = SingularityReport(tolerance, where, values, points, product_score(balanced), beyond)
    return told(report, graph)


def _graph(network: Any, reading: Mapping[str, Any]) -> Mlp | Balanced:
    """The graph that a network's balances live on: its own, or the scaling graph of the module that it is."""
    chosen = read_by(**reading)
    if isinstance(network, (Mlp, Dag)):
        return open_free(network, **chosen)
    found = open_any(network, **chosen)
    return open_free(network, **chosen) if isinstance(found, Architecture) else graph_of(found, reading.get("input"))
