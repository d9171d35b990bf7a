"""A bug planted in each maker makes it state something false; the verifier, which shares no code with it, refuses."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from forging import REFUSED, Proof, saved
from real import folded, redundant

from lawful import verify
from lawful.bounds.distance import distance
from lawful.bounds.layers import layers_of
from lawful.bounds.result import certificate as of_distance
from lawful.bounds.slopes import Growth
from lawful.bounds.split.certificate import certificate_of_specification
from lawful.bounds.split.question import BoxQuestion, cases_of
from lawful.bounds.split.search import HalvingSearch, PhaseSearch
from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate as of_laws
from lawful.fibers.monotone import certificate_of_monotone as of_monotone
from lawful.fibers.monotone import check_monotone
from lawful.fibers.same import same
from lawful.fibers.verdict import certificate as of_same
from lawful.formats.queries.specification import ForbiddenHalfSpace, ForbiddenRegion
from lawful.invariant_set import components, find_path, path_certificate, rebalance_certificate
from lawful.invariant_set.certificate import certificate as of_components
from lawful.invariant_set.certificate import singular_certificate as of_singular
from lawful.invariant_set.rebalance import rebalance
from lawful.invariant_set.singular.existence import Refutation, exact_balance, singular_points
from lawful.network import Architecture, Mlp
from lawful.papers.leaky import LeakyResNet, TeacherTask, energies, trace
from lawful.papers.leaky.path import certificate as of_geodesic
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.separability import certificate as of_separation
from lawful.papers.truncation.separation import Hyperplane, separate_all
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels.certificate import certificate as of_channels
from lawful.pruning.neurons.certificate import certificate as of_pruning
from lawful.pruning.neurons.prune import prune
from lawful.pruning.neurons.rules import Change
from lawful.training import integrate, problem
from lawful.training.integration.runs import certificate as of_flow

Plant = pytest.MonkeyPatch


def part(name: str) -> Any:
    return importlib.import_module(f"lawful.{name}")


def locks(plant: Plant) -> Proof:
    """Every bottleneck seems to hold back one unit more than it does."""
    true = part("invariant_set.locks.components").stable_sets

    def wrong(side: Any, units: Any) -> Any:
        found = copy.copy(true(side, units))
        object.__setattr__(found, "value", [value + 1 for value in found.value])
        return found

    plant.setattr(part("invariant_set.locks.components"), "stable_sets", wrong)
    found = components(Architecture.parse("1-2-1").to_dag(), [0, 0])
    assert found.log2_components > 0
    return of_components(found)


def laws(plant: Plant) -> Proof:
    """Ranks come out one too small, and one law too many is called independent."""
    true = part("conservation.closure.lie_closure").rank
    plant.setattr(part("conservation.closure.lie_closure"), "rank", lambda *given: true(*given) - 1)
    independent = part("conservation.known.law").LawFamily.independent
    plant.setattr(part("conservation.known.law").LawFamily, "independent", lambda *given: independent(*given) + 1)
    count = count_laws("2-3-2 relu")
    assert (count.laws, count.status) == (4, "proved")
    return of_laws(count)


def module_laws(plant: Plant) -> Proof:
    """The last direction that brackets reach is lost, and a law counts twice to make up for it."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3), torch.nn.Linear(3, 1))
    true = part("conservation.certificate").module_certificate

    def wrong(count: Any, proof: Any) -> Proof:
        found: Proof = true(count, replace(proof, words=proof.words[:-1], columns=proof.columns[:-1]))
        return found | {"laws": count.laws + 1, "known": [*found["known"], found["known"][0]]}

    plant.setattr(part("conservation.certificate"), "module_certificate", wrong)
    return of_laws(count_laws(module, input_shape=(2,)))


def quiet(plant: Plant) -> Proof:
    """A neuron that bends in the box counts as quiet there: two different networks become equal."""
    first = Mlp([[[1.0], [-2.0]], [[1.0, 1.0]]], [[0.5, 0.25], [0.0]])
    second = Mlp([[[1.0]], [[1.0]]], [[0.5], [0.0]])
    wrong = lambda stack, layer, low, high: [1] if stack.widths[layer] == 2 else []  # noqa: E731
    for name in ("fibers.reparametrisations", "fibers.reduce"):
        plant.setattr(part(name), "quiet_neurons", wrong)
    for name in ("quick_refutation", "thorough_refutation"):
        plant.setattr(part("fibers.same"), name, lambda *_: None)
    verdict = same(first, second, box=(-1.0, 1.0), exact=True)
    assert verdict.verdict == "equal"
    return of_same(verdict, first, second)


def counterexample(plant: Plant) -> Proof:
    """Outputs at the counterexample are evaluated wrongly."""
    network = Architecture.parse("2-3-1 relu bias").initialise(seed=0)
    assert isinstance(network, Mlp)
    other = network.with_theta(network.theta * 1.5)
    verdict = same(network, other)
    assert verdict.verdict == "different"
    return of_same(verdict, network, network)


def distances(plant: Plant) -> Proof:
    network = Architecture.parse("2-3-1 relu bias").initialise(seed=0)
    assert isinstance(network, Mlp)
    other = network.with_theta(network.theta * 1.25)
    found = distance(network, other, ([-1.0, -1.0], [1.0, 1.0]), seconds=5.0)
    return of_distance(replace(found, upper=float(found.lower) / 2, lower=Fraction(0)), network, other)


def properties(plant: Plant) -> Proof:
    """Every box seems to be empty."""
    network = Architecture.parse("2-3-1 relu bias").initialise(seed=0)
    assert isinstance(network, Mlp)
    true = part("bounds.split.halving").propagate
    wrong = lambda *given: (found := true(*given))._replace(empty=np.ones(len(found.empty), bool))  # noqa: E731
    plant.setattr(part("bounds.split.halving"), "propagate", wrong)
    return everything_forbidden(network, HalvingSearch)


def everything_forbidden(network: Mlp, search: type[HalvingSearch] | type[PhaseSearch]) -> Proof:
    """What a search without truth says of a question whose answer is no."""
    everything = ((ForbiddenHalfSpace((Fraction(1),), (), Fraction(50), strict=False),),)
    question = BoxQuestion(layers_of(network), -np.ones(2), np.ones(2), cases_of(everything, 2, 1))
    found = search(question, lambda point: None, 5.0, 0).run()
    assert found.tree is not None
    box = (Fraction(-1),) * 2, (Fraction(1),) * 2
    return certificate_of_specification(network, [ForbiddenRegion(*box, everything)], point=None, proofs=[found.tree])


def phases(plant: Plant) -> Proof:
    """Every case seems to be excluded: the bounds of its conditions are too high."""
    network = Architecture.parse("2-3-1 relu bias").initialise(seed=0)
    true = part("bounds.split.multipliers").bound_case
    wrong = lambda *given: (found := true(*given))._replace(value=found.value + 1e6)  # noqa: E731
    plant.setattr(part("bounds.split.multipliers"), "bound_case", wrong)
    true_cut = part("bounds.split.search").propagate
    never = lambda *given: (cut := true_cut(*given))._replace(empty=np.zeros(len(cut.empty), bool))  # noqa: E731
    plant.setattr(part("bounds.split.search"), "propagate", never)
    assert isinstance(network, Mlp)
    return everything_forbidden(network, PhaseSearch)


def slopes(plant: Plant) -> Proof:
    """Bounds of slopes are too high."""
    network = Mlp([[[1.0], [-1.0]], [[1.0, 1.0]]])
    true = part("fibers.monotone").slope_bounds
    wrong = lambda *given, **more: (found := true(*given, **more))._replace(low=found.low + 100)  # noqa: E731
    plant.setattr(part("fibers.monotone"), "slope_bounds", wrong)
    found = check_monotone(network, ([-1.0], [1.0]), [Growth(0, rising=True)])
    assert found.status == "holds"
    return of_monotone(found, network)


def dead(plant: Plant) -> Proof:
    """A live neuron is called dead."""

    def wrong(dag: Any, *_: Any) -> Change:
        name = dag.names[dag.hidden[0]]
        return Change("dead", {name: None} if len(dag.hidden) == 5 else {})

    plant.setattr(part("pruning.neurons.prune"), "RULES", (wrong,))
    pruning = prune(redundant(), box=(-1.0, 1.0), replayable=True)
    assert pruning.neurons_after == 4
    return of_pruning(pruning)


def bound(plant: Plant) -> Proof:
    """Defects reach the outputs at half their size."""
    true = part("pruning.neurons.prune").defect_bound
    plant.setattr(part("pruning.neurons.prune"), "defect_bound", lambda *given: true(*given) / 2)
    pruning = prune(redundant(), tolerance=3.0, box=(-1.0, 1.0), replayable=True)
    assert pruning.bound > 0
    return of_pruning(pruning)


def refuted(plant: Plant) -> Proof:
    """Every set of neurons is called refuted."""
    wrong = lambda graph, dag, c, names: Refutation(names, True, names, True)  # noqa: E731
    plant.setattr(part("invariant_set.singular.existence"), "_decide", wrong)
    dag = Architecture.parse("1-2-1").to_dag().with_theta([1.0, 2.0, 1.0, 1.0])
    found = singular_points(dag, exact_balance(dag))
    assert found.exist is False
    return of_singular(dag, found)


def parted(plant: Plant) -> Proof:
    """Any direction seems to part any clusters."""
    plant.setattr(part("papers.truncation.separation"), "parts", lambda *_: True)
    data = Clusters([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1, 1])
    answers = [
        answer if isinstance(answer, Hyperplane) else Hyperplane((Fraction(1), Fraction(0)), np.ones(2), 0.0, 1.0)
        for answer in separate_all(data)
    ]
    return of_separation(data, answers)


def losses(plant: Plant) -> Proof:
    rng = np.random.default_rng(0)
    network = Architecture.parse("2-2-2 relu bias").initialise(seed=0)
    x, y = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    run = integrate(problem(network, x, y, "mse"), 0.5)
    return of_flow(network, x, y, "mse", replace(run, losses=run.losses / 2))


def stationary(plant: Plant) -> Proof:
    rng = np.random.default_rng(0)
    network = LeakyResNet(0.3 * rng.normal(size=(3, 2, 3)), 2.0)
    task = TeacherTask(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)))
    reading = energies(trace(network, task, 0.1))
    return of_geodesic(network, task, 0.1, replace(reading, stationarity=reading.stationarity / 10))


def through_a_lock(plant: Plant) -> Proof:
    """Locks are overlooked, and a path jumps from one sign to the other."""
    graph = Architecture.parse("1-2-1").to_dag()
    ends = graph.with_theta([0, 0, 1, 1]), graph.with_theta([0, 0, -1, 1])
    for name, wrong in (("_among", lambda *_: ()), ("free_flows", lambda *_: iter([])), ("_check", lambda *_: None)):
        plant.setattr(part("invariant_set.paths"), name, wrong)
    return path_certificate(*ends, find_path(*ends))


def rescaled(plant: Plant) -> Proof:
    """One weight is forgotten."""
    true = part("invariant_set.rebalance")._rescale

    def wrong(dag: Any, scales: Any) -> Any:
        theta = true(dag, scales).theta.copy()
        theta[0] = dag.theta[0]
        return dag.with_theta(theta)

    network = Architecture.parse("2-3-2 relu bias").initialise(seed=0)
    plant.setattr(part("invariant_set.rebalance"), "_rescale", wrong)
    done = rebalance(network)
    proof = rebalance_certificate(network, done)
    return proof | {"rounding": 1e-15, "residual": 1e-12}


def borders(plant: Plant) -> Proof:
    """A constant channel is folded although its reader pads with zeros."""
    weights = part("pruning.channels.weights").ChannelWeights

    def constant(self: Any, operation: Any, places: Any, facts: Any) -> bool:
        return None not in facts.values(operation.sources[0], places)

    plant.setattr(weights, "_foldable", constant)
    plant.setattr(part("pruning.channels.prune"), "compare_outputs", lambda *_: 0.0)
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 3, 1), torch.nn.ReLU(), torch.nn.Conv1d(3, 1, 3, padding=1))
    with torch.no_grad():
        model[0].weight[1], model[0].bias[1] = 0.0, 0.5
    return of_channels(prune_channels(model, [(2, 1, 4)]))


def fixed(plant: Plant) -> Proof:
    """Neurons that can be reversed together are not noticed."""
    true = part("fibers.shallow.roles").role_assignments
    only = lambda stack: replace(roles := true(stack), found=roles.found[:1], complete=True)  # noqa: E731
    plant.setattr(part("fibers.deep.identifiability"), "role_assignments", only)
    network = Mlp([[[1.0], [1.0], [2.0]], [[1.0, 1.0, -1.0]]], [[0.5, 0.0, 3.0], [1.0]])
    found = part("fibers.deep.identifiability").identifiable(network)
    assert found.identifiable
    return dict(part("fibers.deep.identifiability").certificate(network, found))


def missed(plant: Plant) -> Proof:
    """One side of every neuron of the last layer seems to be empty."""
    true = part("fibers.regions.comparison_proof").RegionWalk.look

    def wrong(self: Any, row: Any, unit: Any, rows: Any) -> Any:
        return true(self, row, unit, rows) if not rows else [0]

    plant.setattr(part("fibers.regions.comparison_proof").RegionWalk, "look", wrong)
    network = Mlp([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -1.0], None])
    return dict(part("fibers.regions.comparison_proof").certificate(network, None, 2))


def counted(plant: Plant) -> Proof:
    """The formula for one linear hidden layer is one too large."""
    true = part("conservation.theorems").balanced_laws
    plant.setattr(part("conservation.theorems"), "balanced_laws", lambda widths: true(widths) + 1)
    return dict(of_laws(count_laws("60-90-10 linear")))


def believed(plant: Plant) -> Proof:
    """Whatever could stand in for a neuron is believed to."""
    true = part("fibers.regions.comparison_proof").prove_by_regions
    wrong = lambda stack, other, domain, deadline: true(stack, stack, domain, deadline)  # noqa: E731
    plant.setattr(part("pruning.removable.decide"), "prove_by_regions", wrong)
    decided = part("pruning.removable.decide").decide_neurons(folded())
    return dict(part("pruning.removable.certificate").certificate(folded(), decided))


BUGS = (phases, fixed, missed, counted, borders, believed,
        locks, laws, module_laws, quiet, counterexample, distances, properties, slopes, dead, bound, refuted,
        parted, losses, stationary, through_a_lock, rescaled)  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_the_maker_is_noticed(bug: Callable[[Plant], Proof], monkeypatch: pytest.MonkeyPatch) -> None:
    proof = saved(bug(monkeypatch))
    with pytest.raises(REFUSED):
        verify(proof)


def test_every_kind_has_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = set()
    for bug in BUGS:
        with monkeypatch.context() as plant:
            kinds.add(bug(plant)["kind"])
    assert kinds == set(importlib.import_module("lawful.verify").KINDS)
