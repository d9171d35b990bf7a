"""Every claim is broken on purpose once: a wrong formula, wrong data or a wrong rule changes its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lawful.fibers.regions.count import Complex
from lawful.fibers.shallow.fiber import LayerwiseFiber
from lawful.invariant_set.singular.spectrum import Singularity
from lawful.network import Architecture, Dag, Mlp
from lawful.papers.truncation.cumulative import TruncationMap
from lawful.papers.truncation.flow.field import Maps, Velocity
from lawful.papers.truncation.flow.predictions import Equilibrium
from lawful.training import Optimizer
from lawful.types import Floats
from reproduction import singular_runs
from reproduction.claim import Claim, Outcome, Verdict
from reproduction.claims import (
    all_claims,
    checkpoints,
    components,
    components_locks,
    components_training,
    fibers,
    fibers_composition,
    flow,
    flow_symmetries,
    laws,
    laws_beyond,
    laws_theory,
    leaky,
    leaky_identity,
    leaky_steps,
    leaky_symmetries,
    leaky_training,
    singular,
    singular_training,
    symmetry_counts,
    truncation,
    truncation_lemmas,
    truncation_limits,
    truncation_maps,
    truncation_times,
)
from reproduction.landscape import FlatPath

Wrong = Callable[[Any], Any]  # takes what is there, gives what is wrong
Patch = tuple[Any, str, Wrong]  # whose attribute, its name, what is wrong

ELSEWHERE = {  # broken in a test beside the code that they are about
    "p1-structural-laws-descent",  # tests/symmetry/test_training_claim.py
    "p4-scaled-disguises",  # tests/checkpoints/test_alignment_claims.py
    "p4-width-one",  # tests/fibers/test_small_widths.py
    "p4-facing",
}


def scaled(factor: float) -> Wrong:
    """The same function with another size."""
    return lambda original: lambda *given, **named: factor * original(*given, **named)


def always(value: Any) -> Wrong:
    """A function that answers without looking."""
    return lambda original: lambda *given, **named: value


def velocity(shifts: float, generators: float) -> Wrong:
    return lambda original: (
        lambda self, *given: Velocity(
            *(a * b for a, b in zip((shifts, generators), original(self, *given), strict=True))
        )
    )


def changed(**how: Wrong) -> Wrong:
    """The same result with some fields changed."""
    return lambda original: lambda *given, **named: _with(original(*given, **named), how)


def _with(found: Any, how: dict[str, Wrong]) -> Any:
    return replace(found, **{name: change(getattr(found, name)) for name, change in how.items()})


def first(factor: float) -> Wrong:
    """The first of several results, scaled."""

    def wrong(original: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            head, *rest = original(*given, **named)
            return (factor * head, *rest)

        return call

    return wrong


def straying(theta: Floats) -> Floats:
    """A path that leaves the flow a little."""
    return np.asarray(theta + 1e-3 * np.linspace(0, 1, len(theta))[:, None])


def straight(original: Any) -> Any:
    """Weights that all grow at the same rate, in place of a flow."""
    return lambda dag, *given: straying(np.tile(dag.theta, (50, 1)))


def miscounted(original: Any) -> Any:
    """One law more than there is."""

    def count(*given: Any, **named: Any) -> Any:
        found = original(*given, **named)
        return SimpleNamespace(
            proved=found.proved, status=found.status, laws=found.laws + 1, independent=found.independent + 1,
            dimensions=(*found.dimensions[:-1], found.dimensions[-1] - 1), parameters=found.parameters,
        )  # fmt: skip

    return count


def unproved(original: Any) -> Any:
    """A count that no certificate supports."""
    return always(SimpleNamespace(proved=False, status="open", laws=0, independent=0, dimensions=(0,), parameters=1))(0)


def fewer(count: int) -> Wrong:
    """Fewer cases, where one is enough to fail."""
    return lambda original: lambda *given, **named: original(count)


def small_graph(original: Any) -> Any:
    return lambda *given: Architecture.parse("2-2-1 relu").to_dag()


def printed_steps(original: Any) -> Any:
    return lambda layers, a=0.9: np.array(
        [1 / layers + a / layers * (0.25 - abs(k / layers - 0.5)) for k in range(1, layers + 1)]
    )


def forgets_second_moments(original: Any) -> Any:
    return lambda field, maps: truncation.generator(field, maps, bare=0.0)


def printed_theorem_3_2(original: Any) -> Any:
    """The velocity of Theorem 3.2 as printed, `½⟨[H, zvᵀ + vzᵀ]⟩`: M without −zzᵀ."""

    def wrong(self: Any, maps: Maps, active: Floats | None = None) -> Velocity:
        z = self.preactivations(maps)[0]
        on = (z > 0) if active is None else active[0]
        arrow = maps.rotations[0] @ (maps.shifts[0] + self.target)
        half = (np.outer((on * z).sum(axis=0), arrow) + (on * arrow).T @ z) / (2 * len(z))
        return Velocity(original(self, maps, active).shifts, (half - half.T)[None])

    return wrong


def larger_weights(original: Any) -> Any:
    """Another solution of the same equation."""

    def wrong(A: Floats, speed: Floats, depth: float) -> Floats:
        sigma = np.concatenate([np.maximum(A, 0), np.ones((1, A.shape[1]))])
        free = np.eye(len(sigma)) - sigma @ np.linalg.pinv(sigma)
        return np.asarray(original(A, speed, depth) + 5 * np.ones((len(A), len(sigma))) @ free)

    return wrong


def doubled_bias(original: Any) -> Any:
    return lambda A: np.concatenate([original(A)[..., :-1, :], 2 * original(A)[..., -1:, :]], axis=-2)


def slow(original: Any) -> Any:
    def wrong(*given: Any) -> Any:
        np.linalg.svd(given[1][:4])
        return original(*given)

    return wrong


def one_kernel_only(original: Any) -> Any:
    """Rows scaled at random: Proposition 3 needs both kernels, and this keeps neither."""

    def wrong(A: Floats) -> FlatPath:
        factors = np.random.default_rng(0).uniform(0.5, 1.5, size=len(A))
        factors[:8] = 0.0
        return FlatPath(A, factors)

    return wrong


def learns_at_once(original: Any) -> Any:
    """Training that reaches a loss of zero from everywhere."""
    return lambda start, inputs, targets, loss, rate, steps: (np.zeros(steps), start)


@cache
def few_runs(bias: bool = False) -> Any:
    """Shallow trainings that take a fraction of a second."""
    return singular_runs.breast_cancer_runs(singular_training.SHALLOW + " bias" * bias, 3, 100, 1.0)


def swapped_penalties(original: Any) -> Any:
    """What the nuclear norm did is called no penalty, and the other way round."""
    return lambda full, text="": replace(few_runs("bias" in text), penalties=("none", "l2", "l1", "nuclear"))


def without_bias(original: Any) -> Any:
    """The matrix of Theorem 6 without b bᵀ."""

    def wrong(mlp: Mlp, layer: int, rows: list[int]) -> Floats:
        bias = np.asarray(mlp.biases[layer])[rows]
        return np.asarray(original(mlp, layer, rows) - np.outer(bias, bias))

    return wrong


def uncompensated(original: Any) -> Any:
    """A translation that leaves the second biases where they are."""

    def wrong(mlp: Mlp, neuron: int, shift: float) -> Mlp:
        biases = [np.array(bias) for bias in mlp.biases]
        biases[0][neuron] += shift
        return Mlp(mlp.weights, biases)

    return wrong


def only(name: str) -> Wrong:
    """One entry of a table, expected to have one law more."""
    return lambda table: {name: (*table[name][:2], table[name][2] + 1)}


def not_a_number(original: Any) -> Any:
    """Momenta that are NaN: no error is measured, and none may be reported."""
    return lambda *given: [(A, np.full_like(B, np.nan)) for A, B in original(*given)]


def off(amount: Any) -> Wrong:
    return lambda value: value + amount


PATCHES: dict[str, list[Patch]] = {
    "p0-incidence": [(Dag, "incidence", lambda original: property(lambda self: -original.func(self)))],
    "p0-rescaling": [(Dag, "rescaled", lambda original: lambda self, factors: self.with_theta(1.001 * self.theta))],
    "p0-network-flow": [(components, "flow_residual", lambda original: lambda dag, slope: original(
        dag, slope + 1e-6 * dag.theta))],
    "p0-orbit-once": [(components, "rebalance", lambda original: lambda dag, c: original(dag, 1.0001 * c))],
    "p0-nonempty": [(components, "generic_point", lambda original: lambda graph, c: original(graph, 1.0001 * c))],
    "p0-edge-criterion": [
        (components, "some_graph", small_graph), (components, "some_balance", always([-1, 2])),
        (components, "components", lambda original: lambda *given: SimpleNamespace(
            connected=True, locked=original(*given).locked, minima={})),
    ],
    "p0-theorem-1": [(components_locks, "_stable_sets_allow", always(True)),
                     (components_locks, "least_square", always(0.0))],
    "p0-components": [
        (components_locks, "some_graph", small_graph), (components_locks, "some_balance", always([-1, 2])),
        (components_locks, "_classes", always(([1], [1]))), (components_locks, "_same_signs", always(True)),
        (components_locks, "combinations", lambda original: lambda points, size: list(original(points, size))[:8]),
    ],
    "p0-corollary-1": [(components_locks, "least_square", always(1.0))],
    "p0-corollary-2": [(components_locks, "least_square", scaled(2.0))],
    "p0-lemma-1-cases": [(components_locks, "least_square", scaled(2.0))],
    "p0-toy-dag": [(components_training, "toy", lambda original: lambda theta: original(1.01 * theta)),
                   (components_training, "_train_toy", lambda original: lambda *given: original(*given[:-1], 50))],
    "p0-figure-8": [(components_training, "descend", learns_at_once)],
    "p0-figure-9": [(components_training, "descend", learns_at_once)],
    "p0-figure-9b": [(components_training, "descend", learns_at_once)],
    "p0-rank": [(Singularity, "rank", lambda original: property(lambda self: self.hidden))],
    "p0-homology": [(singular, "connected_components", lambda original: lambda *given, **named: (
        original(*given, **named)[0] + 1, None))],
    "p0-singular-balance": [(singular, "exact_balance", lambda original: lambda dag: {
        name: value + Fraction(int((dag.theta == 0).any()), 1000) for name, value in original(dag).items()})],
    "p0-hessian": [(singular.torch.autograd.functional, "hessian", scaled(1.001))],
    "p0-figure-3c": [(singular_training, "paper_runs", lambda original: lambda text, *given: swapped_penalties(0)(0))],
    "p0-figure-3d": [(singular_training, "shallow_runs", swapped_penalties)],
    "p0-figure-6-7": [(singular_training, "shallow_runs", swapped_penalties)],
    "p0-figure-12": [(singular_training, "shallow_runs", swapped_penalties)],
    "p0-figure-13": [(singular_training, "shallow_runs", swapped_penalties)],
    "p0-conservation": [(flow, "integrate", changed(theta=straying)), (flow, "example_dags", fewer(1))],
    "p0-singular-invariant": [(flow, "integrate", changed(theta=straying)), (flow, "_singular_starts", fewer(1))],
    "p0-rank-constant": [(flow, "integrate", changed(theta=straying)), (flow, "_singular_starts", fewer(1))],
    "p0-figure-6-drift": [(flow, "integrate", changed(theta=straying))],
    "p1-orthogonality": [(laws, "trained", straight)],
    "p1-loss-span": [(laws, "LOSS_GRADIENTS", lambda table: table | {"cross-entropy": laws._squared})],
    "p1-example-2-3": [(laws, "count_laws", miscounted)],
    "p1-known-laws": [(laws, "trained", straight)],
    "p1-appendix-i-count": [(laws, "count_laws", unproved)],
    "p1-appendix-i-polynomial": [(laws, "count_laws", miscounted)],
    "p1-deep-formula": [(laws, "linear_laws", lambda original: lambda shape: original(shape) + 1),
                        (laws, "count_laws", lambda original: lambda what: original("2-2-2-2 linear"))],
    "p1-width-one": [(laws, "linear_laws", lambda original: laws.balanced_laws)],
    "p1-frobenius-relu": [(laws_theory, "count_laws", miscounted)],
    "p1-linear-two-steps": [(laws_theory, "count_laws", miscounted)],
    "p1-independent": [(laws_theory, "known_laws", lambda original: lambda dag, every_pair: original(dag))],
    "p1-lie-dimension": [(laws_theory, "count_laws", miscounted)],
    "p1-lie-algebra": [(laws_theory, "_skew", lambda original: lambda *given: np.abs(original(*given)))],
    "p1-no-more": [(laws_theory, "count_laws", unproved)],
    "p1-homogeneous": [(laws_theory, "involutivity", always(
        SimpleNamespace(dimension=1, involutive=True, gap=1e9)))],
    "p1-riemannian": [(laws_theory, "product_metric", scaled(1.001))],
    "p1-riemannian-polar": [(laws_theory, "polar_metric", scaled(1.001))],
    "p1-momentum": [(laws_beyond, "count_laws", miscounted)],
    "p1-modules": [(laws_beyond, "EXAMPLES", only("tanh"))],
    "p1-beyond-polynomial": [(laws_beyond, "count_laws", miscounted)],
    "p1-orthogonality-flow": [(flow, "integrate", changed(theta=straying))],
    "p1-finite-step": [(Optimizer, "parse", lambda original: lambda text: original(
        "sgd:0.05" if text == "flow" else text))],
    "p1-structural-counts": [(symmetry_counts, "BLOCKS", only("SwiGLU, one a unit"))],
    "p1-structural-shifts-and-numbers": [(symmetry_counts, "BEYOND", only("halves of one map"))],
    "p2-theorem-3-2": [(truncation.Separated, "velocity", velocity(1.0, 0.98))],
    "p2-sign": [(truncation.Separated, "velocity", velocity(1.0, -1.0))],
    "p2-moments": [(truncation, "_from_moments", forgets_second_moments)],
    "p2-theorem-5-1": [(truncation.Composed, "velocity", velocity(1.0, 0.98))],
    "p2-chain": [(TruncationMap, "__call__", scaled(1.001))],
    "p2-fixed-points": [(TruncationMap, "__call__", scaled(1.001))],
    "p2-aligned": [(TruncationMap, "__call__", scaled(1.001))],
    "p2-composition": [(truncation_maps, "truncate", scaled(1.001))],
    "p2-equilibria": [(truncation_times, "equilibrium", always(Equilibrium.REST))],
    "p2-finite-time-collapse": [(truncation.Separated, "velocity", printed_theorem_3_2)],
    "p2-truncation-times": [(truncation_times, "schedule", changed(times=lambda times: 1.0001 * times))],
    "p2-rates": [(truncation_times, "schedule", changed(rates=np.sort))],
    "p2-integral-of-motion": [(truncation_limits, "collapsed_flow", changed(drift=off(1e-6)))],
    "p2-spectral-gap": [(truncation_limits, "collapsed_flow", changed(gap=lambda gap: 1.05 * gap))],
    "p2-propagators": [(truncation_limits, "solve_ivp", lambda original: lambda *given, **named: SimpleNamespace(
        y=1.001 * original(*given, **named).y))],
    "p2-collapse-persists": [(truncation_limits, "collapsed_flow", changed(
        shifts=lambda path: np.repeat(path[:1], len(path), axis=0)))],
    "p2-clustered": [(truncation_limits, "clustered_weight", scaled(1 + 1e-6))],
    "p2-zero-loss": [(truncation_limits, "zero_loss_network", changed(loss=off(1e-9)))],
    "p2-lemmas": [(truncation_lemmas.Projections, "minus", scaled(1.001))],
    "p2-duhamel": [(truncation_lemmas, "quad_vec", lambda original: lambda *given, **named: (
        0.999 * original(*given, **named)[0], 0.0))],
    "p2-domains": [(truncation_lemmas.Projections, "minus", always(np.eye(2)))],
    "p3-integration-range": [(leaky_symmetries.LeakyResNet, "parameter_cost", lambda original: lambda self: (
        self.weights.square().sum()))],
    "p3-output-scaling": [(leaky_symmetries, "change_layers", lambda original: lambda *given, **named: (
        original(*given, **named)[0], 1.001 * original(*given, **named)[1]))],
    "p3-minimal-weights": [(leaky, "minimal_weights", larger_weights)],
    "p3-hamilton": [(leaky, "motion", first(1.001))],
    "p3-energy": [(leaky, "hamiltonian", scaled(1.0001))],
    "p3-theorem-4": [(leaky, "theorem_four", changed(distance_right=lambda right: 0.3 * right))],
    "p3-rate-bound": [(leaky, "motion", first(3.0))],
    "p3-gamma": [(leaky, "stable_norm", lambda original: lambda M, sigma, _: original(M, sigma, 1e-3))],
    "p3-irregular-steps": [(leaky_symmetries, "irregular", printed_steps)],
    "p3-balancedness": [(leaky, "lift", doubled_bias)],
    "p3-momentum-from-weights": [(leaky, "_pairs", not_a_number)],
    "p3-stable-rank": [(leaky_identity, "stable_rank", scaled(1.2))],
    "p3-stable-minima": [(leaky_identity, "minimise_identity_cost", changed(
        A=lambda A: A - 0.01, with_bias=lambda value: value + 0.01))],
    "p3-caratheodory": [(leaky_identity, "flat_path", one_kernel_only)],
    "p3-adaptive-cost": [(leaky_steps, "adapt_steps", slow)],
    "p3-learned-maps": [(leaky_training.LeakyResNet, "parameter_cost", lambda original: lambda self: (
        original(self) + self.out.square().sum()))],
    "p4-linear-neurons": [(laws_beyond, "trained", straight)],
    "p4-linear-neurons-flow": [(flow_symmetries, "layer_matrix", without_bias)],
    "p4-hiding-no-law": [(flow_symmetries, "_translation", lambda original: lambda mlp: original(mlp) + 0.1),
                         (flow_symmetries, "_brackets", always((0, 0)))],
    "p4-weights-determine": [(fibers, "polyhedral_complex", changed(
        facets=lambda facets: tuple(replace(facet, weight=1.001 * facet.weight) for facet in facets)))],
    "p4-normal-form": [(fibers, "difference_form", always(SimpleNamespace(residual=1)))],
    "p4-fiber-generic": [(LayerwiseFiber, "sample", lambda original: lambda self, *given: Mlp(
        original(self, *given).weights, [*original(self, *given).biases[:-1], original(self).biases[-1] + 1e-6]))],
    "p4-fiber-dimension": [(fibers, "fiber_dimension_at", lambda original: lambda *given: original(*given) + 1)],
    "p4-nonnegative-rank": [(fibers, "nonnegative_rank", always(2))],
    "p4-visible": [(Complex, "visible", lambda original: lambda self: self.facets)],
    "p4-all-patterns": [(fibers, "cells", lambda original: lambda stack: list(original(stack))[:-1])],
    "p4-translation": [(fibers_composition, "translate", uncompensated),
                       (fibers_composition, "same", always(SimpleNamespace(verdict="different")))],
    "p4-flips": [(fibers_composition, "flip_matrix", lambda original: lambda *given: np.abs(original(*given)))],
    "p4-complete": [(fibers_composition, "neighbours_on_the_fiber", always(SimpleNamespace(dimension=9, reached=[])))],
    "p4-identifiable": [(fibers_composition, "neighbours_on_the_fiber", always(SimpleNamespace(dimension=0)))],
    "p4-volume": [(fibers_composition, "identifiable_volume", scaled(1.05)),
                  (fibers_composition, "sampled_volume", lambda original: lambda first, second, samples, seed: original(
                      first, second, 2000, seed))],
    "p4-equivalence": [(fibers_composition, "same", always(SimpleNamespace(verdict="equal")))],
    "p4-not-localisable": [(fibers_composition, "not_localisable", changed(change=off(1e-6)))],
    "p4-barrier": [
        (checkpoints, "_trained", lambda original: lambda module, *given: module.eval()),
        (checkpoints, "merge_pair", always(SimpleNamespace(line=SimpleNamespace(barriers=(1.0, 1.0))))),
    ],
    "p4-children": [(checkpoints, "_taught", lambda original: lambda module, *given: module.eval()),
                    (checkpoints, "_share", always(0.5))],
}  # fmt: skip
MORE: list[tuple[str, list[Patch]]] = [  # a second way to be wrong
    ("p2-finite-time-collapse", [(truncation.Separated, "velocity", velocity(1.0, 3.0))]),
    ("p2-finite-time-collapse", [(truncation_times, "confirm", changed(time=off(9)))]),
    ("p3-hamilton", [(leaky, "hamiltonian", lambda original: lambda A, B, depth: original(A, 1.01 * B, depth))]),
    ("p3-theorem-4", [(leaky, "hamiltonian", scaled(1.0001))]),
]
CLAIMS = {claim.id: claim for claim in all_claims()}
EVERY = [*PATCHES.items(), *MORE]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("id", "patches"), EVERY, ids=[f"{id}-{each[-1][1]}" for id, each in EVERY])
def test_a_wrong_variant_fails(id: str, patches: list[Patch], monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, wrong in patches:
        there = vars(owner)[attribute] if isinstance(owner, type) and attribute in vars(owner) else None
        original = there if hasattr(there, "func") or isinstance(there, property) else getattr(owner, attribute)
        monkeypatch.setattr(owner, attribute, wrong(original))
    claim = CLAIMS[id]
    expected = Verdict.NOT_OBSERVED if claim.experiment else Verdict.REFUTED
    assert claim.verdict(claim.run(False)) == expected


PRINTED = {"p1-relu-span", "p1-independent-columns", "p3-stable-rank-proof"}


@pytest.mark.parametrize("id", sorted(PRINTED))
def test_where_both_formulas_are_written_out_the_printed_one_fails(id: str) -> None:
    """The printed formula is the wrong variant, run beside the right one: were it right, no erratum would be left."""
    found = CLAIMS[id].run(False)
    assert CLAIMS[id].verdict(found) == Verdict.CORRECTED
    assert CLAIMS[id].verdict(replace(found, printed_holds=True)) == Verdict.CONFIRMED
    assert CLAIMS[id].verdict(replace(found, holds=False)) == Verdict.REFUTED


# Networks over effective depths: what a run found is changed


def depths(monkeypatch: pytest.MonkeyPatch, rank: int, found: Any) -> None:
    monkeypatch.setattr(leaky_training, "_depths", lambda full: (rank, tuple(found)))


def verdict(claim: Claim) -> Verdict:
    return claim.verdict(claim.run(False))


@pytest.mark.parametrize("wrong", ["rank", "order", "spectrum", "momenta", "hamiltonian"])
def test_figure_one(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rank, found = leaky_training._depths(False)
    variants: dict[str, tuple[int, Any]] = {
        "rank": (rank + 1, found),
        "order": (rank, found[::-1]),
        "spectrum": (rank, [replace(e, singular_values=np.ones_like(e.singular_values)) for e in found]),
        "momenta": (rank, [replace(e, rank=1.3 * e.rank) for e in found]),
        "hamiltonian": (rank, [replace(e, coi=np.linspace(2, 2.5, len(e.coi))) for e in found]),
    }
    depths(monkeypatch, *variants[wrong])
    assert verdict(leaky_training.figure_one) == Verdict.NOT_OBSERVED


@pytest.mark.parametrize("wrong", [None, "momentum_norms", "product_norms", "speeds", "path_length"])
def test_figure_three(wrong: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constant lengths and momenta would confirm it; one quantity that grows like the root of the depth does not."""
    rank, found = leaky_training._depths(False)
    constant = {"path length": [5.0] * 3, "stable path length": [6.0] * 3, "‖B‖": [2.0] * 3, "‖Bσ(A)ᵀ‖": [2.0] * 3}
    names = dict(zip(("speeds", "path_length", "momentum_norms", "product_norms"), constant, strict=True))
    if wrong is not None:
        constant[names[wrong]] = [float(np.sqrt(e.effective_depth)) for e in found]
    monkeypatch.setattr(leaky_training, "bounded_values", lambda all_found: constant)
    depths(monkeypatch, rank, found)
    assert verdict(leaky_training.figure_three) == (Verdict.CONFIRMED if wrong is None else Verdict.NOT_OBSERVED)


def test_representations_that_stay_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    rank, found = leaky_training._depths(False)
    depths(monkeypatch, rank, [replace(e, negative_share=np.full_like(e.negative_share, 0.3)) for e in found])
    assert verdict(leaky_training.nonnegative) == Verdict.NOT_OBSERVED


# What is not observed would be seen if it were there


def test_an_intermediate_dimension_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(leaky_steps.figure_two) == Verdict.NOT_OBSERVED
    monkeypatch.setattr(leaky_steps, "_dimension", lambda spectra, p: 3 if p < 0.5 else 2)
    assert verdict(leaky_steps.figure_two) == Verdict.CONFIRMED
    runs = leaky_steps._rules(False, 1)
    monkeypatch.setattr(leaky_steps, "_rules", lambda full, seed: runs | {"adaptive": runs["equidistant"]})
    found = leaky_steps.figure_two.run(False)
    assert not found.holds
    assert not found.measured["shown"]["c: adaptive steps spread best"]


def test_an_advantage_of_two_percent_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve teachers suffice: ratios about 0.98 with a spread of 0.02 speak for the paper."""
    rng = np.random.default_rng(0)

    def errors(_: Any) -> dict[str, dict[int, float]]:
        return {"equidistant": {6: 1.0}, "irregular": {6: 0.98 + 0.02 * rng.normal()},
                "adaptive": {6: 0.98 + 0.02 * rng.normal()}}  # fmt: skip

    monkeypatch.setattr(leaky_steps, "_rules", lambda full, seed: None)
    monkeypatch.setattr(leaky_steps, "_test_errors", errors)
    assert leaky_steps.step_rules.verdict(leaky_steps.step_rules.run(True)) == Verdict.CONFIRMED


def test_the_order_of_pruning_curves_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rises = {"nuclear": 0.1, "l1": 0.1, "l2": 0.2, "none": 0.3}
    monkeypatch.setattr(singular_training, "runs_of", lambda text, full: few_runs())
    monkeypatch.setattr(singular_training, "pruning_rise", lambda runs, name, *given: np.array([rises[name]]))
    assert verdict(singular_training.figure_5) == Verdict.NOT_REPRODUCED  # on a stand-in
    rises["l2"] = 0.4
    assert verdict(singular_training.figure_5) == Verdict.NOT_OBSERVED


def test_skips_that_leave_fewer_neurons_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(text: str, full: bool) -> Any:
        less = 6 if "skip" in text else 0
        return replace(few_runs(), null=few_runs().null - less + np.arange(3)[None, :, None] % 2)

    monkeypatch.setattr(singular_training, "runs_of", runs)
    assert verdict(singular_training.skips) == Verdict.NOT_REPRODUCED
    monkeypatch.setattr(singular_training, "runs_of", lambda text, full: runs("", full))
    assert verdict(singular_training.skips) == Verdict.NOT_OBSERVED


def test_features_on_which_most_neurons_go_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(share: float) -> Outcome:
        three = replace(
            few_runs(), penalties=("nuclear", "l1", "none"), accuracy=np.ones((3, 3)),
            null=np.broadcast_to(90 * np.array([share, share, 0.0])[:, None, None], (3, *few_runs().null.shape[1:])),
        )  # fmt: skip
        monkeypatch.setattr(singular_training, "train", lambda *given, **named: three)
        return singular_training.figure_10_11.run(False)

    assert singular_training.figure_10_11.verdict(outcome(0.9)) == Verdict.NOT_REPRODUCED
    assert singular_training.figure_10_11.verdict(outcome(0.7)) == Verdict.NOT_OBSERVED


def test_every_claim_has_a_wrong_variant() -> None:
    """The lists above are complete: a new claim needs its own."""
    own = {  # tests of their own, above
        "p3-figure-1", "p3-figure-2", "p3-figure-3", "p3-nonnegative", "p3-step-rules", "p0-figure-5", "p0-skips",
        "p0-figure-10-11",
    }  # fmt: skip
    assert set(CLAIMS) - ELSEWHERE == (set(PATCHES) | PRINTED | own) - ELSEWHERE
    assert not ELSEWHERE & set(PATCHES)
