"""Claims of paper 3 about the cost of identity and its landscape: Propositions 1, 2 and 3."""

from __future__ import annotations

import numpy as np

from lawful.papers.leaky.mechanics import lift
from lawful.types import Floats
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.landscape import added_neuron_gain, flat_path, minimise_identity_cost
from reproduction.mechanics import identity_cost, stable_rank


@claim(
    "p3-stable-rank",
    "Proposition 1",
    "the cost of identity without bias is at least ‖A‖_*² / ‖A‖_F²",
    size=Size("60 draws", "500 draws"),
)
def bound_by_stable_rank(full: bool) -> Outcome:
    """Random representations of many shapes and scales; the bound must hold and be met by some."""
    rng = np.random.default_rng(0)
    slack = []
    for _ in range(500 if full else 60):
        samples = int(rng.integers(2, 7))
        A = rng.normal(size=(samples + int(rng.integers(0, 9)), samples)) + rng.uniform(-1, 3)
        slack.append(identity_cost(A, bias=False).value - float(stable_rank(A)))
    orthogonal = np.abs(np.eye(4))
    tight = identity_cost(orthogonal, bias=False).value - float(stable_rank(orthogonal))
    return Outcome(
        smallest(slack) > -1e-9 and abs(tight) < 1e-9, {"smallest_slack": smallest(slack), "slack_of_identity": tight}
    )


@claim(
    "p3-stable-rank-proof",
    "Proposition 1, proof",
    "the minimiser B = ‖A‖_F ‖A‖_*^(-1/2) √A gives ‖AB⁺‖² = ‖A‖_*² / ‖A‖_F²",
    erratum=Erratum(
        "‖AB⁺‖² = (‖A‖_*² / ‖A‖_F²) ‖√A‖_F²",
        "‖AB⁺‖² = (‖A‖_* / ‖A‖_F²) ‖√A‖_F², which is the bound since ‖√A‖_F² = ‖A‖_*",
        "direct evaluation",
    ),
    size=Size("10 draws", "100 draws"),
)
def stable_rank_proof(full: bool) -> Outcome:
    """Evaluate both expressions with a symmetric square root."""
    rng = np.random.default_rng(0)
    ours = printed = 0.0
    for _ in range(100 if full else 10):
        factor = rng.normal(size=(5, 5))
        A = factor @ factor.T
        values, vectors = np.linalg.eigh(A)
        root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
        nuclear, square = values.sum(), (values**2).sum()
        B = np.sqrt(square / nuclear) * root
        value = float((np.linalg.solve(B.T, A.T) ** 2).sum())
        ours = largest(
            ours, abs(value / (nuclear / square * (root**2).sum()) - 1), abs(value / (nuclear**2 / square) - 1)
        )
        printed = largest(printed, abs(value / (nuclear**2 / square * (root**2).sum()) - 1))
    return Outcome(ours < 1e-7, {"error": ours, "error_of_printed": printed}, printed_holds=bool(printed < 1e-7))


@claim(
    "p3-stable-minima",
    "Proposition 2, A.1",
    "stable minima of the cost of identity are non-negative, and both costs equal the rank",
    erratum=Erratum(
        "in the proof, ‖σ(A_i)‖² - 1 >= ‖A_i‖² + 1",
        "‖σ(A_i)‖² >= ‖A_i‖² + 1, with equality at stable minima",
        "from the two lines before it; measured at minima found by descent",
    ),
    size=Size("3 minima, width 24, 4 samples", "16 minima, width to 40, to 5 samples"),
)
def stable_minima(full: bool) -> Outcome:
    """Descend from random representations; look at signs, costs, ranks, added neurons and the proof's inequality."""
    shapes = [(24, 4), (40, 5)] if full else [(24, 4)]
    found = [
        minimise_identity_cost(np.random.default_rng(seed).normal(size=shape), seed=seed)
        for shape in shapes
        for seed in range(8 if full else 3)
    ]
    lowest = smallest(minimum.lowest_entry for minimum in found)
    off = largest(largest(abs(m.with_bias - m.rank), abs(m.without_bias - m.rank)) for m in found)
    gain = smallest(minimum.worst_gain for minimum in found)
    gap = largest(float(np.abs(minimum.proof_gap).max()) for minimum in found)
    printed = all(bool((minimum.proof_gap >= 1 - 1e-6).all()) for minimum in found)
    return Outcome(
        lowest > -1e-4 and off < 1e-5 and gain > -1e-6 and gap < 1e-5,
        {"ranks": [m.rank for m in found], "lowest_entry": lowest, "cost_minus_rank": off, "worst_added_neuron": gain,
         "largest_proof_gap": gap},
        printed_holds=printed,
    )  # fmt: skip


@claim(
    "p3-caratheodory",
    "Proposition 3",
    "with more than N(N+1) neurons, rows can be rescaled along a path of constant kernels and cost until one is zero, "
    "at local minima too; there the freed neuron lowers the cost only if the minimum has negative entries",
    size=Size("4 starts, width 24, 4 samples", "20 starts, width 24, 4 samples"),
)
def caratheodory(full: bool) -> Outcome:
    """Walk from minima found by descent and from random representations; try the freed neuron at the end.

    No minimum that descent finds has negative entries (the paper saw none either), so its freed neuron must not help;
    a representation with negative entries is the other case, and there it must.
    """
    count, drift, freed = 20 if full else 4, 0.0, []
    gains: dict[str, list[float]] = {"minima": [], "with_negative_entries": []}
    lowest = []
    for seed in range(count):
        start = np.random.default_rng(seed).normal(size=(24, 4))
        minimum = minimise_identity_cost(start, seed=seed)
        lowest.append(minimum.lowest_entry)
        for name, A, tolerance in (("minima", minimum.A, 1e-4), ("with_negative_entries", start, 1e-9)):
            path = flat_path(A)
            costs = [identity_cost(path.at(t), tolerance=tolerance).value for t in np.linspace(0, 1, 6)]
            drift = largest(drift, float(np.ptp(costs)) / costs[0])
            freed.append(path.freed)
            gains[name].append(_gain_of_freed(path.at(1.0), int(np.argmin(path.factors)), tolerance))
    return Outcome(
        drift < 1e-6 and largest(gains["with_negative_entries"]) < 0 and smallest(gains["minima"]) > -1e-3
        and smallest(lowest) > -1e-4 and smallest(freed) >= 4,
        {"relative_drift_of_cost": drift, "neurons_freed": freed, "changes_by_the_freed_neuron": gains,
         "lowest_entries_of_minima": lowest, "minima_with_negative_entries": sum(each < -1e-4 for each in lowest)},
    )  # fmt: skip


def _gain_of_freed(A: Floats, neuron: int, tolerance: float, size: float = 1e-3) -> float:
    """The change of the cost, over `size²`, when the freed neuron takes the best of many directions."""
    kernel = np.maximum(A, 0).T @ np.maximum(A, 0)
    trials = [*kernel, *np.random.default_rng(0).normal(size=(100, A.shape[1]))]
    best = trials[int(np.argmin([added_neuron_gain(A, z, tolerance=tolerance) for z in trials]))]
    _, values, right = np.linalg.svd(lift(A), full_matrices=False)
    inside = right[values > tolerance * values[0]]
    best = inside.T @ (inside @ best)
    filled = A.copy()
    filled[neuron] = size * best / np.linalg.norm(best)
    before, after = (identity_cost(each, tolerance=tolerance).value for each in (A, filled))
    return (after - before) / size**2


CLAIMS = (bound_by_stable_rank, stable_rank_proof, stable_minima, caratheodory)
