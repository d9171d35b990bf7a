"""Subcommands as functions that take whatever `lawful.open` takes, where no package has one of that name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from lawful.api.audit import Audit
from lawful.api.audit import audit as audit_network
from lawful.api.inputs import BOX, BOX_ASSUMED, input_shape, input_size, read_by
from lawful.api.old_names import renamed
from lawful.api.two_networks import TwoNetworks
from lawful.api.verification.checks import check_network
from lawful.bounds.distance import distance as bounded
from lawful.bounds.property import PropertyCheck
from lawful.bounds.result import Distance
from lawful.conservation.count import count_laws
from lawful.conservation.law_count import LawCount
from lawful.errors import LawfulError
from lawful.fibers.deep.identifiability import Identifiability
from lawful.fibers.deep.identifiability import identifiable as decide
from lawful.fibers.fingerprint import Canonical
from lawful.fibers.fingerprint import canonical as standard
from lawful.fibers.monotone import MonotoneCheck
from lawful.fibers.regions.count import FunctionGroups, RegionCount, count_regions, group_networks
from lawful.fibers.summary import DescribedFiber, describe_fiber
from lawful.formats.queries.box import box_of
from lawful.invariant_set.paths import Apart, Unsettled, WeightPath, find_path
from lawful.invariant_set.rebalance import Rebalanced
from lawful.invariant_set.rebalance import rebalance as balanced_at
from lawful.pruning.removable.activity import settle
from lawful.sources.contents import contents
from lawful.sources.files import Written, write
from lawful.sources.kinds import is_module
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source, module_behind, open, open_graph, open_module, open_pair, open_trained
from lawful.sources.provenance import answered, read_as
from lawful.sources.summary import Summary, TensorSummary, summarise

if TYPE_CHECKING:
    from lawful.api.module_audit import ModuleAudit
    from lawful.api.sweeps import Plan, Progress
    from lawful.checkpoints.representative.orbit_member import Representative
    from lawful.formats.queries.data import Data
    from lawful.symmetry import Symmetries


def show(network: Source, **reading: Any) -> Summary | TensorSummary:
    """Describe a network: layers, parameters, bottlenecks, dead and linear neurons, balances.

    Of a module that is no graph of scalar weights, or of weights that do not say how they are joined, the tensors.

    >>> show("3-4-1 relu bias").parameters
    21
    """
    try:
        found = open(network, **read_by(**reading))
    except LawfulError as reason:
        is_file = isinstance(network, (str, Path)) and reading.get("model") is None
        listed = contents(Path(network)) if is_file else None
        if listed is None:
            raise
        return read_as(TensorSummary(str(network), listed.layers, str(reason)), listed)
    if isinstance(found, ModuleNetwork):
        return answered(TensorSummary(repr(found), found.reading.layers, found.obstacle), found)
    return answered(settle(summarise(found), found), found)


def laws(network: Source, *, model: Any = None, input: Any = None, **question: Any) -> LawCount:
    """Count, find and prove the conservation laws of training: `lawful.conservation.count_laws` of any source.

    A module takes the size of its input, as in the other subcommands: `(3, 8, 8)`, `"8:int"` for token ids, or a list.

    >>> laws("6-5-6-4-3-6 linear").laws
    52
    """
    shape = input_shape(input)
    if model is not None:
        network = open(network, model=model, input_shape=input_size(input))
    return count_laws(network, **question if shape is None else {**question, "input_shape": shape})


def audit(
    network: Source,
    *,
    source: str = "network",
    data: Data | None = None,
    loss: str = "full",
    effort: str = "normal",
    model: Any = None,
    input: Any = None,
) -> Audit | ModuleAudit:
    """Everything we know about a network, in order of consequence, and what to do about it.

    Of a module whose weights are used at many places, or that is no graph of scalar weights: what its symmetries say.

    >>> audit("3-6-4-1 relu bias").components.connected
    True
    """
    found = open(network, model=model, input_shape=input_size(input))
    module = found.module if isinstance(found, ModuleNetwork) else None
    if module is None and found.reading is not None and found.reading.entangled:
        module = module_behind(found.reading)
    if module is None:
        return audit_network(found, source=source, data=data, loss=loss, effort=effort)
    from lawful.api.module_audit import audit_module

    if data is not None:
        raise LawfulError("data are for networks of layers: leave them out for this module")
    given = input if input is not None else getattr(found, "input_shape", None)
    return answered(audit_module(module, given, source=source, effort=effort), found)


def path(
    first: Source, second: Source, *, tolerance: float | None = None, model: Any = None, input: Any = None
) -> WeightPath | Apart | Unsettled:
    """A path between two networks that training could take, or the signs that forbid it (P0 Theorem 1).

    >>> path("2-3-1 relu", "2-3-1 relu").pieces
    1
    """
    if model is None and not (is_module(first) or is_module(second)):
        one, two = open_pair(first, second)
        return find_path(one, two, tolerance=tolerance)
    shape = input_size(input)
    trained = [
        open_trained(each, model=None if is_module(each) else model, input_shape=shape) for each in (first, second)
    ]
    return find_path(*trained, tolerance=tolerance, input=input)


def identifiable(network: Source, *, seed: int = 0, **reading: Any) -> Identifiability:
    """Does the function determine the parameters, up to order and scale of neurons? (P4 Theorem 5)"""
    found = _reduced(network, **reading)
    return answered(decide(found, seed=seed), found)


def fiber(network: Source, *, domain: str = "space", **reading: Any) -> DescribedFiber:
    """All parameters of one function: of one hidden layer or a generic bottleneck; what is known, of any other (P4)."""
    return describe_fiber(_reduced(network, **reading), domain)


def regions(
    network: Source,
    box: str | tuple[ArrayLike, ArrayLike] | None = None,
    *,
    facets: bool = False,
    each: bool = False,
    seconds: float = 60.0,
    **reading: Any,
) -> RegionCount:
    """Count the regions on which a network is affine, over all inputs or over a box.

    >>> from lawful.network import Mlp
    >>> regions(Mlp([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -1.0], [0.0]])).regions
    3
    """
    found = _reduced(network, **reading)
    if isinstance(box, str):
        box = box_of(box, found)
    return answered(count_regions(found, box, facets=facets, each=each, seconds=seconds), found)


def distance(
    first: Source,
    second: Source,
    box: str | tuple[ArrayLike, ArrayLike] | None = None,
    *,
    model: Any = None,
    input: Any = None,
    activation: str | None = None,
    order: str | None = None,
    seed: int = 0,
    **question: Any,
) -> Distance:
    """Bounds of the largest difference of two networks on a box (every input in [-1, 1] if none is given).

    >>> distance("2-3-1 relu", "2-3-1 relu", "-1,1", within=0.1).status
    'proved'
    """
    two = TwoNetworks(first, second, model, input=input, activation=activation, order=order)
    networks = two.graphs(seed=seed, drop_useless=True)
    where = BOX if box is None else box
    found = bounded(*networks, box_of(where, networks[0]) if isinstance(where, str) else where, seed=seed, **question)
    return found if box is not None else read_as(found, *(each.assuming(BOX_ASSUMED) for each in found.readings))


def canonical(network: Source, *, model: Any = None, input: Any = None) -> Canonical | Representative:
    """The standard member of a network's fiber: same function, fewest choices (P4 Section 6).

    Of a module that is no graph of scalar weights: balanced, with units and heads in the order of their size.
    """
    found = open(network, model=model, input_shape=input_size(input))
    if isinstance(found, ModuleNetwork):
        from lawful.api.checkpoints.representatives import representative

        return representative(network, "canonical", model=model, input=input)
    return standard(_reduced(network, model=model, input_shape=input_size(input)))


@renamed(target="balance")
def rebalance(
    network: Source,
    balance: Any = 0.0,
    *,
    objective: str | None = None,
    data: Any = None,
    model: Any = None,
    input: Any = None,
) -> Rebalanced | Representative:
    """Rescale neurons to a balance (P0); or, with an objective, use all symmetries of a module.

    `objective="norm"` finds the member of the orbit with the smallest norm, `"range"` one that quantises well, with the
    errors in 8 and 4 bits (on `data`) before and after.

    >>> rebalance("2-3-1 relu").reached
    True
    """
    if objective is None:
        return balanced_at(network, balance, input=input)
    from lawful.api.checkpoints.representatives import representative

    return representative(network, objective, data=data, model=model, input=input)


def fingerprint(
    networks: Sequence[Source] | Source, *, exact: bool = False, model: Any = None, input: Any = None
) -> FunctionGroups:
    """Hash networks so that equal functions get equal hashes, and group the duplicates.

    Modules, and everything if `exact`, are hashed by their exact numbers in a standard place: order, signs and powers
    of two do not count, rounding does.

    >>> fingerprint(["2-3-1 relu", "2-3-1 relu", "2-4-1 relu"]).groups
    (('2-3-1 relu', '2-3-1 relu'), ('2-4-1 relu',))
    """
    many = [networks] if isinstance(networks, (str, Path)) or not isinstance(networks, Sequence) else list(networks)
    names = [str(each) if isinstance(each, (str, Path)) else f"network {number}" for number, each in enumerate(many, 1)]
    reading = {"model": model, "input_shape": input_size(input)}
    if exact or any(isinstance(open(each, **reading), ModuleNetwork) for each in many):
        from lawful.api.checkpoints.orbit_hashes import orbit_fingerprints

        return orbit_fingerprints(many, names, model=model, input=input)
    opened = {name: _reduced(each, **reading) for name, each in zip(names, many, strict=True)}
    return answered(group_networks(names, opened.__getitem__), *opened.values())


def check(
    network: Source,
    specification: str | Path | None = None,
    *,
    monotone: str | None = None,
    box: str | None = None,
    output: int | None = None,
    seconds: float = 60.0,
    threads: int | None = None,
    seed: int = 0,
    **reading: Any,
) -> PropertyCheck | MonotoneCheck:
    """Check a VNN-LIB specification: no input in its box leads to the outputs that it describes.

    Or that outputs are monotone in some inputs on a box:

    >>> from lawful.network import Mlp
    >>> check(Mlp([[[1.0, -1.0]], [[2.0]]]), monotone="+0,-1", box="-1,1").status
    'holds'
    """
    found = _reduced(network, **reading)
    where = BOX if box is None and monotone is not None else box
    answer = answered(
        check_network(
            found,
            specification,
            monotone=monotone,
            box=where,
            output=output,
            seconds=seconds,
            scheduler=None,
            seed=seed,
            threads=threads,
        ),
        found,
    )
    return answer if where == box else read_as(answer, *(each.assuming(BOX_ASSUMED) for each in answer.readings))


def symmetries(network: Source, input: Any = None, **options: Any) -> Symmetries:
    """The symmetries of a network, read from its graph at any size, and the laws that training therefore conserves.

    >>> len(symmetries("3-4-2 relu").laws)
    4
    """
    from lawful.symmetry import symmetries as read

    opened = open_module(network)
    given = opened.input_shape if input is None else input
    return answered(read(opened.module, given, **options), opened, trained=options.get("mode", ""))


def sweep(plan: str | Path | Plan, out: str | Path, **options: Any) -> Progress:
    """Run a job over many inputs and keep every result at once; the same call goes on where it stopped."""
    from lawful.api.sweeps import Plan, read_plan, run_sweep

    return run_sweep(plan if isinstance(plan, Plan) else read_plan(Path(plan)), Path(out), **options)


def convert(network: Source, out: str | Path, *, dtype: str | None = None, seed: int = 0, **reading: Any) -> Written:
    """Write a network in another format; the file's ending chooses it, the function stays the same."""
    found = open_graph(network, seed=seed, **read_by(**reading))
    return answered(write(found, out, dtype=dtype), found)


def _reduced(network: Source, **reading: Any) -> Any:
    """The network with weights, without hidden nodes that change nothing."""
    return open_graph(network, drop_useless=True, **read_by(**reading))
