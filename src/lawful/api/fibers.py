"""Which parameters are the same function: identifiability, fibers, regions, standard members and their hashes (P4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from numpy.typing import ArrayLike

from lawful.api.inputs import DrawOptions, ReadOptions, open_options, takes
from lawful.errors import LawfulError
from lawful.fibers.deep.identifiability import Identifiability
from lawful.fibers.deep.identifiability import identifiable as decide_identifiable
from lawful.fibers.fingerprint import Canonical
from lawful.fibers.fingerprint import canonical as canonical_member
from lawful.fibers.regions.count import FunctionGroups, RegionCount, count_regions, group_networks
from lawful.fibers.summary import DescribedFiber, describe_fiber
from lawful.formats.queries.box import box_of
from lawful.network import Dag, Mlp
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source, open, open_graph
from lawful.sources.provenance import with_provenance

if TYPE_CHECKING:
    from lawful.checkpoints.representative.orbit_member import Representative


@takes(ReadOptions)
def identifiable(network: Source, *, seed: int = 0, **reading: Unpack[ReadOptions]) -> Identifiability:
    """Does the function determine the parameters, up to order and scale of neurons? (P4 Theorem 5)"""
    graph = _reduced(network, reading)
    return with_provenance(decide_identifiable(graph, seed=seed), graph)


@takes(DrawOptions)
def fiber(network: Source, *, domain: str = "space", **reading: Unpack[DrawOptions]) -> DescribedFiber:
    """All parameters of one function: of one hidden layer or a generic bottleneck; what is known, of any other (P4)."""
    return describe_fiber(_reduced(network, reading), domain)


@takes(DrawOptions)
def regions(
    network: Source,
    box: str | tuple[ArrayLike, ArrayLike] | None = None,
    *,
    facets: bool = False,
    each: bool = False,
    seconds: float = 60.0,
    **reading: Unpack[DrawOptions],
) -> RegionCount:
    """Count the regions on which a network is affine, over all inputs or over a box.

    >>> from lawful.network import Mlp
    >>> regions(Mlp([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -1.0], [0.0]])).regions
    3
    """
    graph = _reduced(network, reading)
    if isinstance(box, str):
        box = box_of(box, graph)
    return with_provenance(count_regions(graph, box, facets=facets, each=each, seconds=seconds), graph)


@takes(DrawOptions)
def canonical(network: Source, **reading: Unpack[DrawOptions]) -> Canonical | Representative:
    """The standard member of a network's fiber: same function, fewest choices (P4 Section 6).

    Of a module that is no graph of scalar weights: balanced, with neurons and heads in the order of their size.
    """
    if isinstance(open(network, **_without_seed(reading)), ModuleNetwork):
        from lawful.api.checkpoints.representatives import representative

        return representative(network, "canonical", **_of_modules(reading))
    return canonical_member(_reduced(network, reading))


@takes(DrawOptions)
def fingerprint(
    networks: Sequence[Source] | Source, *, exact: bool = False, **reading: Unpack[DrawOptions]
) -> FunctionGroups:
    """Hash networks so that equal functions get equal hashes, and group the duplicates.

    Modules, and everything if `exact`, are hashed by their exact numbers in a standard place: order, signs and powers
    of two do not count, rounding does.

    >>> fingerprint(["2-3-1 relu", "2-3-1 relu", "2-4-1 relu"]).groups
    (('2-3-1 relu', '2-3-1 relu'), ('2-4-1 relu',))
    """
    is_one = isinstance(networks, (str, Path)) or not isinstance(networks, Sequence)
    sources = [networks] if is_one else list(networks)
    names = [
        str(source) if isinstance(source, (str, Path)) else f"network {number}"
        for number, source in enumerate(sources, 1)
    ]
    options = _without_seed(reading)
    if exact or any(isinstance(open(source, **options), ModuleNetwork) for source in sources):
        from lawful.api.checkpoints.orbit_hashes import orbit_fingerprints

        if reading.get("drop_useless"):
            raise LawfulError("drop_useless is for graphs of scalar weights: leave it out for modules and exact hashes")
        return orbit_fingerprints(sources, names, **_of_modules(reading))
    graphs = {name: _reduced(source, reading) for name, source in zip(names, sources, strict=True)}
    return with_provenance(group_networks(names, graphs.__getitem__), *graphs.values())


def _of_modules(reading: DrawOptions) -> dict[str, Any]:
    """The options that say how to read a module."""
    return {option: reading.get(option) for option in ("model", "input", "activation", "order")}


def _without_seed(reading: DrawOptions) -> dict[str, Any]:
    return {option: value for option, value in open_options(reading).items() if option != "seed"}


def _reduced(network: Source, reading: ReadOptions | DrawOptions) -> Mlp | Dag:
    """The network with weights, without hidden nodes that change nothing."""
    return open_graph(network, **{**open_options(reading), "drop_useless": True})
