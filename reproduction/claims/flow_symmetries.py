"""Claims about what the symmetries of three-layer networks conserve along the flow (P4 Section 7, F.2, F.3)."""

from __future__ import annotations

import numpy as np

from lawful.figure import Figure, Panel, Series
from lawful.network import Mlp
from lawful.training import balances, integrate, layer_matrix, problem
from lawful.training.integration.trajectory import Trajectory
from lawful.types import Floats
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest

LINEAR = [0, 1, 2]  # the neurons of the second layer that act linearly


def _with_linear_neurons(seed: int) -> Mlp:
    """4-4-5-2 whose first three second-layer rows are positive, so linear on the orthant that layer 1 maps to."""
    rng = np.random.default_rng(seed)
    second, bias = rng.normal(size=(5, 4)), rng.normal(size=5)
    second[LINEAR], bias[LINEAR] = rng.uniform(0.05, 0.6, size=(3, 4)), rng.uniform(0.02, 0.2, size=3)
    weights = [rng.normal(size=(4, 4)), second, rng.normal(size=(2, 5))]
    return Mlp(weights, [rng.normal(size=4), bias, rng.normal(size=2)])


def _first_crossing(flow: Trajectory) -> float | None:
    names = {f"h2.{neuron}" for neuron in LINEAR}
    return next((kink.time for kink in flow.kinks if kink.neuron in names), None)


@claim(
    "p4-linear-neurons-flow",
    "Theorem 6, Propositions 35, 36",
    "the full matrix W W^T + b b^T - V^T V of neurons that act linearly is conserved while they do, "
    "and only its diagonal afterwards",
    size=Size("3 networks 4-4-5-2, time 0.5", "12 networks 4-4-5-2, time 2", "every three-layer network"),
)
def linear_neurons(full: bool) -> Outcome:
    """Follow flows in which neurons start linear and one crosses: off-diagonal drift before and after that time."""
    before, after, diagonal, crossings, curves = 0.0, 0.0, 0.0, 0, []
    for seed in range(12 if full else 3):
        network = _with_linear_neurons(seed)
        rng = np.random.default_rng(100 + seed)
        at = problem(network, rng.normal(size=(8, 4)), 2.0 * rng.normal(size=(8, 2)))
        flow = integrate(at, 2.0 if full else 0.5, snapshots=81)
        matrices = np.array([layer_matrix(network.with_theta(theta), 1, LINEAR) for theta in flow.theta])
        change = np.abs(matrices - matrices[0])
        moment = _first_crossing(flow)
        early = flow.times <= (np.inf if moment is None else moment)
        off = ~np.eye(len(LINEAR), dtype=bool)
        before = largest(before, float(change[early][:, off].max()))
        diagonal = largest(diagonal, float(change[:, ~off].max()))
        if moment is not None:
            crossings += 1
            after = largest(after, float(change[~early][:, off].max(initial=0.0)))
            curves.append(Series(np.maximum(change[:, off].max(axis=1), 1e-17), flow.times - moment))
    figure = Figure(
        "Off-diagonal entries of the matrix: conserved until a neuron stops being linear",
        [Panel(curves, "drift", "time since the first crossing", log_y=True, vertical=[0.0])],
    )
    return Outcome(
        before < 1e-9 and diagonal < 1e-9 and crossings > 0 and after > 1e-4,
        {"drift_while_linear": before, "drift_after_a_crossing": after, "drift_of_diagonal": diagonal,
         "flows_with_a_crossing": crossings},
        figure=figure,
    )  # fmt: skip


def _hiding(seed: int, wide: int) -> Mlp:
    """d-2-wide-1 with hyperplane 0 hidden: every second-layer row is positive on it, negative elsewhere, bias < 0."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, 3)), np.empty((wide, 2))
    second[:, 0], second[:, 1] = rng.uniform(0.5, 1.5, size=wide), -rng.uniform(0.5, 1.5, size=wide)
    biases = [rng.uniform(0.5, 1.0, size=2), -rng.uniform(0.2, 0.5, size=wide), rng.normal(size=1)]
    return Mlp([first, second, rng.normal(size=(1, wide))], biases)


def _brackets(network: Mlp, seed: int) -> tuple[int, int]:
    """Ranks of the gradient fields of outputs at θ, and of these with their Lie brackets `H_b ∇a − H_a ∇b`."""
    import torch

    dag, rng = network.to_dag(), np.random.default_rng(seed)
    theta, size = torch.tensor(network.theta, requires_grad=True), network.parameters
    fields, hessians = [], []
    for x in rng.normal(size=(2 * size, 1, 3)) * 2.0:
        output = dag.evaluate(torch.tensor(x), theta)[0, 0]
        (slope,) = torch.autograd.grad(output, theta, create_graph=True)
        rows = [
            torch.autograd.grad(part, theta, retain_graph=True, allow_unused=True, materialize_grads=True)[0]
            if part.requires_grad
            else torch.zeros(size)
            for part in slope
        ]
        fields.append(slope.detach().numpy())
        hessians.append(torch.stack(rows).numpy())
    pairs = rng.integers(len(fields), size=(4 * size, 2))
    brackets = [hessians[b] @ fields[a] - hessians[a] @ fields[b] for a, b in pairs]
    return tuple(  # type: ignore[return-value]
        int(np.linalg.matrix_rank(np.array(rows), tol=1e-8)) for rows in (fields, fields + brackets)
    )


@claim(
    "p4-hiding-no-law",
    "Proposition 37",
    "translating a hidden hyperplane is a symmetry that conserves nothing: gradients are orthogonal to it, "
    "but no function has gradients along it",
    size=Size("2 networks 3-2-3-1", "8 networks 3-2-3-1", "every hiding network"),
)
def hiding_no_law(full: bool) -> Outcome:
    """The symmetry costs one dimension of the gradients, and one bracket gives it back; balances are all the laws."""
    slope, change, missing, closed, moved, kept = 0.0, 0.0, set(), set(), np.inf, 0.0
    for seed in range(8 if full else 2):
        network = _hiding(seed, 3)
        rng = np.random.default_rng(seed)
        x, y = 2.0 * rng.normal(size=(40, 3)), rng.normal(size=(40, 1))
        at = problem(network, x, y)
        direction = _translation(network)
        slope = largest(slope, abs(float(direction @ at.evaluate(network.theta).gradient)))
        shifted = network.with_theta(network.theta + 0.05 * direction)
        change = largest(change, float(np.abs(shifted.evaluate(x) - network.evaluate(x)).max()))
        fields, algebra = _brackets(network, seed)
        laws = balances(network)
        missing.add(network.parameters - len(laws.names) - fields)
        closed.add(network.parameters - len(laws.names) - algebra)
        flow = integrate(at, 0.5, snapshots=11)
        kept = largest(kept, float(np.abs(laws.along(flow.theta) - laws.values(network.theta)).max()))
        candidates = np.array([_candidate(network.with_theta(theta)) for theta in flow.theta])
        moved = smallest(moved, float(np.abs(candidates - candidates[0]).max()))
    return Outcome(
        slope < 1e-12 and change < 1e-12 and missing == {1} and closed == {0} and kept < 1e-9 and moved > 1e-4,
        {"slope_along_the_symmetry": slope, "change_of_the_function": change, "dimension_lost": sorted(missing),
         "dimension_lost_after_one_bracket": sorted(closed), "drift_of_balances": kept,
         "drift_of_the_natural_candidate": moved},
    )  # fmt: skip


def _translation(network: Mlp) -> Floats:
    """`b1[0] += t`, `b2[j] −= t W2[j, 0]` as a direction in θ."""
    zero = [np.zeros_like(weight) for weight in network.weights]
    return Mlp(zero, [np.array([1.0, 0.0]), -network.weights[1][:, 0], np.zeros(1)]).theta


def _candidate(network: Mlp) -> float:
    """`b1[0] − Σ_j W2[j, 0] b2[j]`, whose gradient contains the symmetry's direction."""
    first, second = network.biases[0], network.biases[1]
    assert first is not None  # noqa: S101 (for the type checker)
    assert second is not None  # noqa: S101
    return float(first[0] - network.weights[1][:, 0] @ second)


CLAIMS = (linear_neurons, hiding_no_law)
