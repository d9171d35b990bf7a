"""A true certificate of every kind, small enough to be checked hundreds of times."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import torch
from forging import Proof, saved

from lawful.bounds.distance import distance
from lawful.bounds.layers import layers_of
from lawful.bounds.result import certificate as of_distance
from lawful.bounds.slopes import Growth
from lawful.bounds.split.certificate import certificate_of_specification
from lawful.bounds.split.question import BoxQuestion, cases_of
from lawful.bounds.split.search import HalvingSearch, PhaseSearch
from lawful.conservation import HeavyBall, Metric, count_laws
from lawful.conservation.certificate import certificate as of_laws
from lawful.fibers.deep.identifiability import certificate as of_identifiable
from lawful.fibers.deep.identifiability import identifiable
from lawful.fibers.fingerprint import canonical
from lawful.fibers.fingerprint import certificate as of_canonical
from lawful.fibers.monotone import certificate_of_monotone as of_monotone
from lawful.fibers.monotone import check_monotone
from lawful.fibers.random_members import disguise, random_network
from lawful.fibers.regions.comparison_proof import certificate as of_regions
from lawful.fibers.regions.count import count_regions
from lawful.fibers.same import same
from lawful.fibers.verdict import certificate as of_same
from lawful.formats.queries.specification import ForbiddenHalfSpace, ForbiddenRegion
from lawful.invariant_set import (
    Unsettled,
    balanced_graph,
    components,
    find_path,
    path_certificate,
    rebalance_certificate,
)
from lawful.invariant_set.certificate import certificate as of_components
from lawful.invariant_set.certificate import singular_certificate as of_singular
from lawful.invariant_set.rebalance import rebalance
from lawful.invariant_set.singular.existence import exact_balance, singular_points
from lawful.network import Architecture, Mlp
from lawful.papers.leaky import LeakyResNet, TeacherTask, energies, trace
from lawful.papers.leaky.path import certificate as of_geodesic
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.separability import certificate as of_separation
from lawful.papers.truncation.separation import separate_aligned, separate_all
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels.certificate import certificate as channels_certificate
from lawful.pruning.neurons.certificate import certificate as of_pruning
from lawful.pruning.neurons.certificate import prune_with_certificate
from lawful.pruning.neurons.prune import prune
from lawful.pruning.removable.certificate import certificate as of_removable
from lawful.pruning.removable.decide import decide_neurons
from lawful.training import integrate, problem
from lawful.training.integration.runs import certificate as of_flow


def redundant() -> Mlp:
    """A constant neuron, a duplicate, one that is nearly constant, and one that is dead on the unit box."""
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(5, 2)), rng.normal(size=(2, 5))
    bias = rng.normal(size=5)
    first[1], first[2], bias[2] = 0.0, 2 * first[0], 2 * bias[0]
    first[3] *= 1e-3
    first[4], bias[4] = [0.25, -0.5], -2.0
    return Mlp([first, second], [bias, [0.5, -1.0]])


def _components() -> Proof:
    dag = Architecture.parse("1-2-2-1").to_dag().with_theta([1.0, 3.0, 2.0, 0.5, -1.0, 1.5, -2.0, 1.0])
    return of_components(components(dag))


def _toleranced() -> Proof:
    return of_components(components(Architecture.parse("2-3-1").to_dag(), [-3, 1, 0.25], tolerance=0.5))


def _shared(kernel: float, readers: tuple[float, float]) -> Any:
    """A kernel whose output two entries read."""
    layers = torch.nn.Conv1d(1, 1, 1, bias=False), torch.nn.Linear(2, 1)
    module = torch.nn.Sequential(layers[0], torch.nn.ReLU(), torch.nn.Flatten(), layers[1])
    with torch.no_grad():
        layers[0].weight.fill_(kernel)
        layers[1].weight.copy_(torch.tensor([readers]))
        layers[1].bias.zero_()
    return balanced_graph(module, (1, 2))


def _circle() -> Any:
    """A residual block: the stream feeds hidden units, and they feed it; the only way out is locked."""

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = {"e": (2, 1), "a": (1, 2), "b": (2, 1), "o": (1, 1)}
            for number, (name, size) in enumerate(sizes.items()):
                setattr(self, name, torch.nn.Linear(*size, bias=False))
                torch.nn.init.constant_(getattr(self, name).weight, [0.25, 0.5, 0.25, 2.0][number])

        def forward(self, x: torch.Tensor) -> Any:
            h = torch.relu(self.e(x))
            return self.o(torch.relu(h + self.b(torch.relu(self.a(h)))))

    return balanced_graph(Block(), (2,))


def _path_of(start: Any, stop: Any, tolerance: float | None = None) -> Proof:
    found = find_path(start, stop, tolerance=tolerance)
    assert not isinstance(found, Unsettled)
    return path_certificate(start, stop, found)


def _path(start: list[float], stop: list[float], text: str = "1-2-1") -> Proof:
    graph = Architecture.parse(text).to_dag()
    ends = graph.with_theta(start), graph.with_theta(stop)
    found = find_path(*ends)
    assert not isinstance(found, Unsettled)
    return path_certificate(*ends, found)


def _rebalance() -> Proof:
    network = Architecture.parse("2-3-2 relu bias").initialise(seed=0)
    return rebalance_certificate(network, rebalance(network, 0.25))


def _near() -> Proof:
    rng = np.random.default_rng(0)
    second = [[1, 2.0], [-1, -1], [1, -1]]
    network = Mlp([rng.normal(size=(2, 2)), second, rng.normal(size=(1, 3))], [[0.1, 0.2], [1, -1, 0], [0.0]])
    return of_laws(count_laws(network, level="near"))


def _data() -> Proof:
    network = Architecture.parse("2-2-1").initialise(seed=1)
    return of_laws(count_laws(network, level="data", data=np.random.default_rng(0).normal(size=(12, 2)).round(2)))


def _same(exact: bool) -> Proof:
    network = random_network(2, 3, 2, seed=1)
    twin = network.with_theta(network.theta) if exact else disguise(network)
    return of_same(same(network, twin, exact=exact, box=None if exact else (-1.0, 1.0)), network, twin)


def _different() -> Proof:
    network = random_network(2, 3, 1, seed=1)
    other = network.with_theta(network.theta * 1.01)
    return of_same(same(network, other, box=(-1.0, 1.0)), network, other)


def _distance(within: float | None) -> Proof:
    network = random_network(2, 3, 2, seed=1)
    other = network.with_theta(network.theta * 1.01)
    found = distance(network, other, ([-1.0, -1.0], [1.0, 1.0]), within=within, seconds=5.0)
    return of_distance(found, network, other)


def _monotone(*directions: Growth) -> Proof:
    network = Mlp([[[1.0, -2.0], [-1.0, 0.5]], [[1.0, -0.25]]], [[0.5, 0.25], [0.0]])
    return of_monotone(check_monotone(network, (-np.ones(2), np.ones(2)), directions, seconds=5.0), network)


def _specification(bound: int, *, halves: bool = False) -> Proof:
    """A union of two boxes; on the second the condition is about inputs too."""
    network = random_network(2, 4, 3, 2, seed=1)
    layers, one = layers_of(network), Fraction(1)
    low, high = (tuple(Fraction(end) for end in ends) for ends in ((-1, -1), (1, 1)))
    spaces = [ForbiddenHalfSpace((one, Fraction(-1, 3)), (), Fraction(bound, 10), strict=False)]
    mixed = [*spaces, ForbiddenHalfSpace((one, one), (one, one), Fraction(bound, 10), strict=True)]
    regions = [ForbiddenRegion(low, high, (tuple(spaces),)), ForbiddenRegion(low, high, (tuple(mixed),))]
    box = -np.ones(2), np.ones(2)
    if halves:
        question = BoxQuestion(layers, *box, cases_of(regions[0].forbidden, 2, 2))
        tree = HalvingSearch(question, lambda point: None, 5.0, 0).run().tree
        assert tree is not None
        return certificate_of_specification(network, regions[:1], point=None, proofs=[tree])
    outcomes = [
        PhaseSearch(
            BoxQuestion(layers, *box, cases_of(region.forbidden, 2, 2)), lambda point: point, 5.0, 0, full
        ).run()
        for region, full in zip(regions, (True, False), strict=True)
    ]
    proofs = [each.tree for each in outcomes if each.tree is not None]
    point = None if len(proofs) == 2 else outcomes[0].input
    return certificate_of_specification(network, regions, point=point, proofs=proofs if point is None else None)


def _flow(loss: str, decay: float) -> Proof:
    rng = np.random.default_rng(0)
    network = Architecture.parse("2-2-2 relu bias").initialise(seed=0)
    x = rng.normal(size=(4, 2)).round(2)
    y = np.array([0, 1, 1, 0]) if loss == "ce" else rng.uniform(size=(4, 2)).round(2)
    from lawful.network.dynamics import GradientFlow

    run = integrate(problem(network, x, y, loss), 0.5, GradientFlow(decay))
    return of_flow(network, x, y, loss, run, decay)


def _geodesic() -> Proof:
    rng = np.random.default_rng(0)
    network = LeakyResNet(0.3 * rng.normal(size=(3, 2, 3)), 2.0, softness=0.1)
    task = TeacherTask(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)))
    return of_geodesic(network, task, 0.1, energies(trace(network, task, 0.1)))


def _separation(aligned: bool, apart: bool) -> Proof:
    far, near = [[0.0, 0.0], [0.25, 0.125], [3.0, 2.0], [2.0, 3.0]], [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    data = Clusters(far if apart else near, [0, 0, 1, 1])
    answers = [separate_aligned(data.cluster(k), data.others(k)) for k in (0, 1)] if aligned else separate_all(data)
    return of_separation(data, answers)


def _singular(weights: list[float]) -> Proof:
    dag = Architecture.parse("1-2-1").to_dag().with_theta(weights)
    return of_singular(dag, singular_points(dag, exact_balance(dag)))


def _channels() -> Proof:
    """A convolution with a constant, a duplicate and a silent channel, normalised, with a residual sum."""
    torch.manual_seed(0)
    model = ChannelModel().eval()
    with torch.no_grad():
        model.one.weight[1] = 0.0
        model.one.weight[2], model.one.bias[2] = 2 * model.one.weight[3], 2 * model.one.bias[3]
        model.two.weight[:, 4] = 0.0
    return channels_certificate(prune_channels(model, [(2, 1, 5)]))


class ChannelModel(torch.nn.Module):
    """Two convolutions, a normalisation and a Linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Conv1d(1, 5, 2), torch.nn.Conv1d(5, 2, 2, bias=False)
        self.norm, self.last = torch.nn.BatchNorm1d(2), torch.nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.two(self.one(x).relu()))).flatten(1))


def _laws_of_module() -> Proof:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 1))
    return of_laws(count_laws(module, input_shape=(2,)))


def _identifiable(weights: list[Any], biases: list[Any], answer: bool) -> Proof:
    network = Mlp(weights, biases)
    found = identifiable(network)
    assert found.identifiable is answer
    return of_identifiable(network, found)


def _regions(box: tuple[float, float] | None) -> Proof:
    network = random_network(2, 3, 2, seed=1)
    return of_regions(network, box, count_regions(network, box).regions)


def _canonical() -> Proof:
    network = random_network(2, 3, 2, seed=1)
    return of_canonical(network, canonical(network))


BOTTLENECK = [[[1.0, 0.2], [0.3, 1.0]], [[1.0, -1.5], [-2.0, 1.1]], [[1.0, 3.0]]]


def unseen() -> Mlp:
    """1-2-2-1 whose first neuron of layer 2 is dead, which no interval tells: relu(x) − relu(x − 1) is at most 1."""
    return Mlp([[[1.0], [1.0]], [[1.0, -1.0], [1.0, 1.0]], [[1.0, 1.0]]], [[0.0, -1.0], [-1.5, -0.5], [0.0]])


def folded() -> Mlp:
    """1-2-2-1 whose outputs are not monotone in the first layer: other values there give the same output."""
    return Mlp([[[1.0], [-1.0]], [[2.0, 1.0], [-1.0, 1.0]], [[1.0, 1.0]]], [[0.0, 1.0], [-1.0, 0.5], [0.0]])


MAKERS: dict[str, Callable[[], Proof]] = {
    "components": _components,
    "components within a tolerance": _toleranced,
    "components of a module": lambda: of_components(components(_circle())),
    "connected module": lambda: of_components(components(_shared(1.0, (2.0, -2.0)))),
    "laws": lambda: of_laws(count_laws("2-2-2 linear")),
    "laws near": _near,
    "laws on data": _data,
    "laws of momentum": lambda: of_laws(count_laws("2-2-2 linear", flow=HeavyBall(0.5))),
    "laws of a metric": lambda: of_laws(count_laws("2-2-1 relu", flow=Metric(np.arange(1.0, 7.0)))),
    "laws of a module": _laws_of_module,
    "laws by a theorem": lambda: of_laws(count_laws("60-90-10 relu bias")),
    "linear laws by a theorem": lambda: of_laws(count_laws("60-90-10 linear")),
    "pruning": lambda: of_pruning(prune(redundant(), replayable=True)),
    "pruning on a box": lambda: of_pruning(prune(redundant(), tolerance=0.05, box=(-1.0, 1.0), replayable=True)),
    "channel pruning": _channels,
    "same exactly": lambda: _same(True),
    "same by weights": lambda: _same(False),
    "different": _different,
    "canonical": _canonical,
    "identifiable": lambda: _identifiable([[[1.0, 2.0], [1.0, -1.0]], [[1.0, 2.0]]], [[0.5, 0.0], [1.0]], True),
    "identifiable bottleneck": lambda: _identifiable(BOTTLENECK, [[0.1, 0.7], [-1.0, 1.0], [0.0]], True),
    "reversible": lambda: _identifiable([[[1.0], [1.0], [2.0]], [[1.0, 1.0, -1.0]]], [[0.5, 0.0, 3.0], [1.0]], False),
    "multiples": lambda: _identifiable([[[1.0], [2.0]], [[1.0, -1.0]]], [[0.5, 1.0], [0.0]], False),
    "hidden hyperplane": lambda: _identifiable(
        [[[1.0, 0.2], [0.3, 1.0]], [[1.0, -1.5]], [[1.0]]], [[0.1, 0.7], [-1.0], [0.0]], False
    ),
    "regions": lambda: _regions(None),
    "pruning of a dependent neuron": lambda: of_pruning(prune(unseen(), decide=5.0)),
    "removable": lambda: of_removable(unseen(), decide_neurons(unseen())),
    "needed by cases": lambda: of_removable(folded(), decide_neurons(folded())),
    "regions of a box": lambda: _regions((-1.0, 1.0)),
    "distance": lambda: _distance(None),
    "distance proved": lambda: _distance(0.5),
    "distance violated": lambda: _distance(1e-6),
    "distance near samples": lambda: prune_with_certificate(
        redundant(), tolerance=0.5, data=np.array([[0.5, -0.25], [0.75, 0.5]]), around=0.125
    )[1],
    "monotone": lambda: _monotone(Growth(0, rising=True), Growth(1, rising=False)),
    "not monotone": lambda: _monotone(Growth(0, rising=False)),
    "specification holds": lambda: _specification(-25),
    "specification holds by halves": lambda: _specification(-25, halves=True),
    "specification violated": lambda: _specification(100),
    "path": lambda: _path([1, 1, 1, 1], [1, -1, -1, 1]),
    "a longer path": lambda: _path([1, 2, 1, 1, 1, 1], [-1, 2, -1, 1, -1, -1], "1-3-1"),
    "no path for a lock": lambda: _path([0, 0, 1, 1], [0, 0, -1, 1]),
    "no path for a balance": lambda: _path([1, 1, 1, 1], [1, -1, -1, 2]),
    "path of a module": lambda: _path_of(_shared(1.0, (2.0, -2.0)), _shared(1.0, (-2.0, 2.0))),
    "path of a module within a tolerance": lambda: _path_of(_shared(2.0, (2.0, -1.0)), _shared(2.0, (-2.0, 1.5)), 2.0),
    "no path of a module": lambda: _path_of(_shared(3.0, (1.0, 1.0)), _shared(-3.0, (1.0, 1.0))),
    "rebalance": _rebalance,
    "singular": lambda: _singular([1.0, 2.0, 1.0, 1.0]),
    "not singular": lambda: _singular([1.0, 2.0, 3.0, 1.5]),
    "flow": lambda: _flow("mse", 0.0),
    "flow with decay": lambda: _flow("ce", 0.5),
    "geodesic": _geodesic,
    "separation": lambda: _separation(False, True),
    "no separation": lambda: _separation(False, False),
    "aligned separation": lambda: _separation(True, True),
    "no aligned separation": lambda: _separation(True, False),
}


@cache
def real(name: str) -> Proof:
    """A certificate as it is read from a file; copy before changing it."""
    return saved(MAKERS[name]())
