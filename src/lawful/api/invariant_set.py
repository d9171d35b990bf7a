"""Where training can go: components of the invariant set, paths inside it, other balances, singular points (P0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from lawful.api.inputs import DrawOptions, open_options, takes
from lawful.api.old_names import renamed
from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.balance import Balance, Number, Tolerance
from lawful.invariant_set.locks.components import Components
from lawful.invariant_set.locks.components import components as find_components
from lawful.invariant_set.module_graph import Balanced, EntryGraph, graph_of, told
from lawful.invariant_set.paths import Apart, Unsettled, WeightPath, find_path
from lawful.invariant_set.rebalance import Rebalanced
from lawful.invariant_set.rebalance import rebalance as rebalance_to
from lawful.invariant_set.singular.existence import SingularPoints, exact_balance, singular_points
from lawful.invariant_set.singular.scores import product_score
from lawful.invariant_set.singular.spectrum import LARGEST_SPECTRUM, Singularity, Spectrum, singularity, spectrum
from lawful.network import Architecture, Dag, Mlp
from lawful.result import Shown
from lawful.sources.opening import Source, open, open_free
from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.checkpoints.representative.orbit_member import Representative


@dataclass(frozen=True, eq=False)
class SingularityReport(Shown):
    """Rank of J and cut-off neurons, singular values where they can be computed, and whether singular points exist."""

    tolerance: float
    singularity: Singularity
    spectrum: Spectrum | None
    exist: SingularPoints | None
    scores: Floats | None = None  # of every neuron or channel, (P0 (29)): 0 for one that is cut off on a side
    beyond: tuple[str, ...] = ()  # why more than the balances may confine the training of a module


def balanced_graph(network: Any, reading: DrawOptions) -> Mlp | Balanced:
    """The graph that a network's balances live on: its own, or the scaling graph of the module that it is."""
    if isinstance(network, EntryGraph):
        return network
    options = open_options(reading)
    seed = options.pop("seed", 0)
    if isinstance(network, (Mlp, Dag)):
        return open_free(network, **options)
    opened = open(network, **options)
    return open_free(opened, seed=seed) if isinstance(opened, Architecture) else graph_of(opened, reading.get("input"))


@takes(DrawOptions)
def components(
    network: Source,
    balance: Balance | Mapping[str, Number] | Sequence[Number] | NDArray[np.float64] | None = None,
    *,
    tolerance: Tolerance = 0.0,
    **reading: Unpack[DrawOptions],
) -> Components:
    """The connected components of the invariant set: which weights can never change sign (P0 Theorem 1).

    Of another `balance` than the network's own if one is given; `tolerance` is the total error that it may have.

    >>> components("3-4-2 relu").connected
    True
    """
    return find_components(balanced_graph(network, reading), balance, tolerance=tolerance)


@takes(DrawOptions)
def path(
    first: Source, second: Source, *, tolerance: float | None = None, **reading: Unpack[DrawOptions]
) -> WeightPath | Apart | Unsettled:
    """A path between two networks that training could take, or the signs that forbid it (P0 Theorem 1).

    >>> path("2-3-1 relu", "2-3-1 relu").pieces
    1
    """
    graphs = (balanced_graph(network, reading) for network in (first, second))
    return find_path(*graphs, tolerance=tolerance)


@renamed(target="balance")
@takes(DrawOptions)
def rebalance(
    network: Source,
    balance: Any = 0.0,
    *,
    objective: str | None = None,
    data: Any = None,
    **reading: Unpack[DrawOptions],
) -> Rebalanced | Representative:
    """Rescale neurons to a balance (P0); or, with an objective, use all symmetries of a module.

    `objective="norm"` finds the member of the orbit with the smallest norm, `"range"` one that quantises well, with the
    errors in 8 and 4 bits (on `data`) before and after.

    >>> rebalance("2-3-1 relu").reached
    True
    """
    if objective is None:
        return rebalance_to(balanced_graph(network, reading), balance)
    from lawful.api.checkpoints.representatives import representative

    if reading.pop("drop_useless", False):
        raise LawfulError("drop_useless is for graphs of scalar weights: leave it out with an objective")
    return representative(network, objective, data=data, **reading)  # type: ignore[misc]


@takes(DrawOptions)
def singular(
    network: Source | Mlp | EntryGraph, tolerance: float = 0.0, *, exist: bool = False, **reading: Unpack[DrawOptions]
) -> SingularityReport:
    """Rank of the invariant set's Jacobian, cut-off neurons and singular values (P0 Theorem 2).

    A module whose weights lie on many edges (convolutions, attention) is asked on its scaling graph: what scales on its
    own are the neurons, entries of its parameters are the edges.

    >>> singular("3-4-2 relu").singularity.rank
    4
    """
    graph = balanced_graph(network, reading)
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
