"""Which parameters are the same function: identifiability, fibers, regions, standard members and their hashes (P4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import AskedBox, DrawOptions, Help, ReadOptions, Seconds, Seed, open_options, takes
from lawful.errors import LawfulError, Unsupported
from lawful.result import with_evidence

if TYPE_CHECKING:
    from lawful.checkpoints.representative import Representative
    from lawful.fibers.deep.identifiability import Identifiability
    from lawful.fibers.fingerprint import Canonical
    from lawful.fibers.regions.count import FunctionGroups, RegionCount
    from lawful.fibers.summary import DescribedFiber
    from lawful.network import Dag, Mlp
    from lawful.network.reading import Reading
    from lawful.sources.opening import Source


@takes(ReadOptions)
def identifiable(network: Source, *, seed: Seed = 0, **reading: Unpack[ReadOptions]) -> Identifiability:
    """Does the function determine the parameters, up to order and scale of neurons? (P4 Theorem 5)"""
    from lawful.fibers.deep import identifiability
    from lawful.fibers.deep.identifiability import certificate
    from lawful.sources.provenance import with_provenance

    graph = _reduce(network, reading, seed)
    answer = with_provenance(identifiability.identifiable(graph, seed=seed), graph)
    return with_evidence(answer, lambda: certificate(graph, answer))


@takes(DrawOptions)
def fiber(
    network: Source,
    *,
    domain: Annotated[str, Help("For one hidden layer: space, or orthant.")] = "space",
    **reading: Unpack[DrawOptions],
) -> DescribedFiber:
    """All parameters of one function: of one hidden layer or a generic bottleneck; what is known, of any other (P4)."""
    from lawful.fibers.summary import describe_fiber

    return describe_fiber(_reduce(network, reading), domain, reading.get("seed", 0))


@takes(DrawOptions)
def regions(
    network: Source,
    box: AskedBox = None,
    *,
    facets: Annotated[bool, Help("Facets, gradient jumps and the balance at ridges.")] = False,
    each: Annotated[bool, Help("List every region in the JSON.")] = False,
    seconds: Seconds = 60.0,
    tick: Callable[[], None] = lambda: None,
    **reading: Unpack[DrawOptions],
) -> RegionCount:
    """Count the regions on which a network is affine, over all inputs or over a box.

    >>> from lawful.network import Mlp
    >>> regions(Mlp([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -1.0], [0.0]])).regions
    3
    """
    from lawful.fibers.regions.comparison_proof import certificate
    from lawful.fibers.regions.count import count_regions
    from lawful.formats.queries.box import box_of
    from lawful.sources.provenance import with_provenance

    graph = _reduce(network, reading)
    corners = box_of(box, graph) if isinstance(box, str) else box
    count = with_provenance(count_regions(graph, corners, facets=facets, each=each, seconds=seconds, tick=tick), graph)

    def evidence() -> dict[str, Any]:
        if not count.complete:
            raise Unsupported("the count is not complete")
        return certificate(graph, corners, count.regions, seconds)

    return with_evidence(count, evidence)


@takes(DrawOptions)
def canonical(network: Source, **reading: Unpack[DrawOptions]) -> Canonical | Representative:
    """The standard member of a network's fiber: same function, fewest choices (P4 Section 6).

    Of a module that is no graph of scalar weights: balanced, with neurons and heads in the order of their size.
    """
    from lawful.fibers import fingerprint as standard
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import open

    if isinstance(open(network, **_without_seed(reading)), ModuleNetwork):
        from lawful.api.checkpoints.orbits import representative

        return representative(network, "canonical", **_of_modules(reading))
    graph = _reduce(network, reading)
    member = standard.canonical(graph)
    return with_evidence(member, lambda **options: standard.certificate(graph, member, **options))


@takes(DrawOptions)
def fingerprint(
    networks: Sequence[Source] | Source,
    *,
    exact: Annotated[
        bool, Help("Hash exact numbers, as for modules: order, signs, powers of two do not count.")
    ] = False,
    tick: Callable[[], None] = lambda: None,
    **reading: Unpack[DrawOptions],
) -> FunctionGroups:
    """Hash networks so that equal functions get equal hashes, and group the duplicates.

    Modules, and everything if `exact`, are hashed by their exact numbers in a standard place: order, signs and powers
    of two do not count, rounding does.

    >>> fingerprint(["2-3-1 relu", "2-3-1 relu", "2-4-1 relu"]).groups
    (('2-3-1 relu', '2-3-1 relu'), ('2-4-1 relu',))
    """
    from lawful.api.two_networks import TwoNetworks
    from lawful.fibers.regions.count import group_networks
    from lawful.sources.provenance import describe, read_as

    is_one = isinstance(networks, (str, Path)) or not isinstance(networks, Sequence)
    sources = [networks] if is_one else list(networks)
    names = [
        str(source) if isinstance(source, (str, Path)) else f"network {number}"
        for number, source in enumerate(sources, 1)
    ]
    options = _of_modules(reading)
    if exact or any(TwoNetworks(source, source, **options).are_checkpoints() for source in sources):
        from lawful.api.checkpoints.orbits import orbit_fingerprints

        if reading.get("drop_useless"):
            raise LawfulError("drop_useless is for graphs of scalar weights: leave it out for modules and exact hashes")
        return orbit_fingerprints(sources, names, tick=tick, **options)
    named = dict(zip(names, sources, strict=True))
    readings: dict[str, Reading | None] = {}

    def read(name: str) -> Mlp | Dag:  # when its turn comes: thousands of networks do not fit into memory together
        graph = _reduce(named[name], reading)
        readings[name] = describe(graph).reading
        return graph

    groups = group_networks(names, read, tick)
    return read_as(groups, *(reading for reading in readings.values() if reading is not None))


def _of_modules(reading: DrawOptions) -> dict[str, Any]:
    """The options that say how to read a module."""
    return {option: reading.get(option) for option in ("model", "input", "activation", "order")}


def _without_seed(reading: DrawOptions) -> dict[str, Any]:
    return {option: value for option, value in open_options(reading).items() if option != "seed"}


def _reduce(network: Source, reading: ReadOptions | DrawOptions, seed: int | None = None) -> Mlp | Dag:
    """The network with weights, without hidden nodes that change nothing."""
    from lawful.sources.opening import open_graph

    drawn = {} if seed is None else {"seed": seed}
    return open_graph(network, **{**open_options(reading), **drawn, "drop_useless": True})
