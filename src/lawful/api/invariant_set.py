"""Where training can go: components of the invariant set, paths inside it, other balances, singular points (P0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import DrawOptions, Help, open_options, rename, takes
from lawful.errors import LawfulError, Unsupported
from lawful.result import Shown, with_evidence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lawful.checkpoints.representative import Representative
    from lawful.invariant_set.balance import Balance, Number
    from lawful.invariant_set.locks.components import Components
    from lawful.invariant_set.module_graph import Balanced
    from lawful.invariant_set.paths import Apart, Unsettled, WeightPath
    from lawful.invariant_set.rebalance import Rebalanced
    from lawful.invariant_set.singular.existence import SingularPoints
    from lawful.invariant_set.singular.spectrum import Singularity, Spectrum
    from lawful.network import Mlp
    from lawful.sources.opening import Source
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


def balanced_graph(network: Any, reading: Mapping[str, Any], *, weights: bool = True) -> Mlp | Balanced:
    """The graph that a network's balances live on: its own, or the scaling graph of the module that it is.

    Without `weights` an architecture keeps none: of a balance that is given, those at random would mean nothing.
    """
    from lawful.invariant_set.module_graph import EntryGraph, graph_of
    from lawful.network import Architecture, Dag, Mlp
    from lawful.sources.opening import open, open_free

    if isinstance(network, EntryGraph):
        return network
    options = open_options(reading)
    seed = options.pop("seed", 0)
    if isinstance(network, (Mlp, Dag)):
        return open_free(network, **options)
    opened = open(network, **options)
    if isinstance(opened, Architecture):
        return open_free(opened, seed=seed) if weights else opened.to_dag()
    # A module that was read from a file is nobody else's: its weights need no copy.
    return graph_of(opened, reading.get("input"), shared=isinstance(network, (str, Path)))


@takes(DrawOptions)
def components(
    network: Source | Mlp | Balanced,
    balance: Balance | Mapping[str, Number] | Sequence[Number] | NDArray[np.float64] | None = None,
    *,
    tolerance: Annotated[float, Help("Total error of the balance to allow for; what it leaves open is exit 3.")] = 0.0,
    certified: bool = False,
    **reading: Unpack[DrawOptions],
) -> Components:
    """The connected components of the invariant set: which weights can never change sign (P0 Theorem 1).

    Of another `balance` than the network's own if one is given; `tolerance` is the total error that it may have. What
    is to be `certified` and too large for that is refused at once.

    >>> components("3-4-2 relu").connected
    True
    """
    from lawful.invariant_set import certificate
    from lawful.invariant_set.locks import components as locks

    graph = balanced_graph(network, reading, weights=balance is None)
    if certified:
        certificate.refuse_large(graph)
    answer = locks.components(graph, balance, tolerance=tolerance)
    return with_evidence(answer, lambda: certificate.certificate(answer))


@takes(DrawOptions)
def path(
    first: Source | Mlp | Balanced,
    second: Source | Mlp | Balanced,
    *,
    tolerance: Annotated[
        float | None, Help("Total difference of balance to allow for [default: rounding of weights].")
    ] = None,
    certified: bool = False,
    **reading: Unpack[DrawOptions],
) -> WeightPath | Apart | Unsettled:
    """A path between two networks that training could take, or the signs that forbid it (P0 Theorem 1).

    >>> path("2-3-1 relu", "2-3-1 relu").pieces
    1
    """
    from lawful.invariant_set import certificate
    from lawful.invariant_set.paths import Unsettled, find_path

    one, two = (balanced_graph(network, reading) for network in (first, second))
    if certified:
        certificate.refuse_large(one)
    answer = find_path(one, two, tolerance=tolerance)
    if isinstance(answer, Unsettled):
        return answer
    return with_evidence(answer, lambda: certificate.path_certificate(one, two, answer))


@rename(target="balance")
@takes(DrawOptions)
def rebalance(
    network: Source | Mlp | Balanced,
    balance: Any = 0.0,
    *,
    objective: Annotated[
        str | None, Help("norm: the smallest weights; range: those that quantise best; heads used too.")
    ] = None,
    data: Annotated[str | Path | Any, Help("With --objective: data on which rounded outputs count.")] = None,
    certified: bool = False,
    **reading: Unpack[DrawOptions],
) -> Rebalanced | Representative:
    """Rescale neurons to a balance, or to `"unlock"` signs (P0); with an objective, use all symmetries of a module.

    `objective="norm"` finds the member of the orbit with the smallest norm, `"range"` one that quantises well, with the
    errors in 8 and 4 bits (on `data`) before and after.

    >>> rebalance("2-3-1 relu").reached
    True
    """
    if objective is not None:
        from lawful.api.checkpoints.orbits import representative

        if reading.pop("drop_useless", False):
            raise LawfulError("drop_useless is for graphs of scalar weights: leave it out with an objective")
        return representative(network, objective, data=data, **reading)  # type: ignore[misc]
    if data is not None:
        raise LawfulError("--data goes with --objective")
    from lawful.invariant_set import unlock
    from lawful.invariant_set.certificate import rebalance_certificate
    from lawful.invariant_set.module_graph import as_dag
    from lawful.invariant_set.rebalance import rebalance as rebalance_to

    graph = balanced_graph(network, reading)
    if certified:
        as_dag(graph.to_dag())  # a certificate is about graphs of scalar weights: known before the work
    unlocks = isinstance(balance, str) and balance == "unlock"
    rescaled = unlock(graph) if unlocks else rebalance_to(graph, balance)
    return with_evidence(rescaled, lambda: rebalance_certificate(graph, rescaled))


@takes(DrawOptions)
def singular(
    network: Source | Mlp | Balanced,
    tolerance: Annotated[float, Help("Weights up to this size count as zero (the paper: 0.001).")] = 0.0,
    *,
    exist: Annotated[bool, Help("Decide whether H(c) has singular points at all.")] = False,
    **reading: Unpack[DrawOptions],
) -> SingularityReport:
    """Rank of the invariant set's Jacobian, cut-off neurons and singular values (P0 Theorem 2).

    A module whose weights lie on many edges (convolutions, attention) is asked on its scaling graph: what scales on its
    own are the neurons, entries of its parameters are the edges.

    >>> singular("3-4-2 relu").singularity.rank
    4
    """
    from lawful.invariant_set.certificate import singular_certificate
    from lawful.invariant_set.module_graph import EntryGraph, as_dag, with_readings
    from lawful.invariant_set.singular.existence import exact_balance, singular_points
    from lawful.invariant_set.singular.spectrum import LARGEST_SPECTRUM, product_score, singularity, spectrum

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
    report = with_readings(SingularityReport(tolerance, where, values, points, product_score(balanced), beyond), graph)
    if points is None or points.exist is None:
        return report
    return with_evidence(report, lambda: singular_certificate(as_dag(balanced), points))
