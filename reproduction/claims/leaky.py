"""Claims of paper 3 that need no training: Hamilton's equations, energies, Theorem 4, balancedness."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lawful.figure import Figure, Panel, Series
from lawful.papers.leaky.mechanics import lift, operator_norm
from lawful.types import Floats
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.mechanics import (
    hamiltonian,
    integrate,
    lagrangian,
    minimal_weights,
    motion,
    stable_norm,
    theorem_four,
)

DEPTH = 2.5


def _pairs(count: int, width: int, samples: int, seed: int = 0) -> list[tuple[Floats, Floats]]:
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=(width, samples)), rng.normal(size=(width, samples)) * 10 ** rng.uniform(-2, 0.5))
        for _ in range(count)
    ]


def _flow(seed: int, steps: int = 400) -> tuple[Floats, Floats]:
    """A Hamiltonian flow from a random start, short enough not to blow up."""
    rng = np.random.default_rng(seed)
    return integrate(rng.normal(size=(5, 8)), 0.05 * rng.normal(size=(5, 8)), DEPTH, until=0.6, steps=steps)


@claim(
    "p3-minimal-weights",
    "Section 2.2",
    "W = (LA + dA) σ(A)⁺ is the smallest matrix that moves A by dA, and its square norm splits into three terms",
    size=Size("15 draws, width 11, 6 samples", "100 draws, width 11, 6 samples"),
)
def minimal(full: bool) -> Outcome:
    """Compare with other solutions, and the three terms with the norm."""
    rng = np.random.default_rng(0)
    worst_fit = worst_sum = 0.0
    smallest_excess = np.inf
    for _ in range(100 if full else 15):
        A, velocity = rng.normal(size=(11, 6)), rng.normal(size=(11, 6))
        sigma, weight = lift(A), minimal_weights(A, velocity, DEPTH)
        worst_fit = largest(worst_fit, float(np.abs(weight @ sigma - DEPTH * A - velocity).max()))
        other = rng.normal(size=weight.shape)
        other += (DEPTH * A + velocity - other @ sigma) @ np.linalg.pinv(sigma)
        smallest_excess = smallest(smallest_excess, float(np.linalg.norm(other) - np.linalg.norm(weight)))
        total = lagrangian(A, velocity, DEPTH, 1e-10).total
        worst_sum = largest(worst_sum, abs(float(total) * 2 * DEPTH / float((weight**2).sum()) - 1))
    return Outcome(
        worst_fit < 1e-10 and smallest_excess > 0 and worst_sum < 1e-5,
        {"fit": worst_fit, "least_excess_of_others": smallest_excess, "three_terms": worst_sum},
    )


@claim(
    "p3-hamilton",
    "Section 2.4",
    "B σ(A)ᵀ-dynamics are Hamilton's equations, and 𝓗 is constant along them",
    size=Size("8 pairs, 3 flows", "50 pairs, 10 flows"),
)
def hamilton(full: bool) -> Outcome:
    """Gradients by autodiff, and the drift of 𝓗 along integrated flows."""
    worst = 0.0
    for a, b in _pairs(50 if full else 8, 6, 9):
        A, B = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
        sigma = torch.cat([A.relu(), torch.ones(1, 9, dtype=A.dtype)])
        (DEPTH / 2 * (B @ sigma.T).square().sum() - DEPTH * (B * A).sum()).backward()  # type: ignore[no-untyped-call]
        move, push = motion(a, b, DEPTH)
        for ours, autodiff in ((move, B.grad), (-push, A.grad)):
            exact: Any = autodiff
            worst = largest(worst, float(np.abs(ours - exact.numpy()).max() / np.abs(ours).max()))
    drifts = []
    for seed in range(10 if full else 3):
        energy = hamiltonian(*_flow(seed, 100), DEPTH)
        drifts.append(float(np.ptp(energy) / np.abs(energy).max()))
    return Outcome(
        worst < 1e-12 and largest(drifts) < 1e-8, {"autodiff_error": worst, "relative_drift": largest(drifts)}
    )


@claim(
    "p3-energy",
    "equation (2)",
    "where A lies in the range of K, 𝓗 = ‖dA‖²_K / (2L) - (L/2) ‖A‖²_K",
    size=Size("15 pairs", "100 pairs"),
)
def energy(full: bool) -> Outcome:
    """Wide representations, exact solves."""
    worst = 0.0
    for A, B in _pairs(100 if full else 15, 12, 5):
        K = lift(A).T @ lift(A)
        velocity = motion(A, B, DEPTH)[0]
        kinetic = np.trace(velocity @ np.linalg.solve(K, velocity.T)) / (2 * DEPTH)
        potential = -DEPTH / 2 * np.trace(A @ np.linalg.solve(K, A.T))
        error = abs(kinetic + potential - float(hamiltonian(A, B, DEPTH)))
        worst = largest(worst, float(error / (abs(kinetic) + abs(potential))))
    return Outcome(worst < 1e-9, {"relative_error": worst})


@claim(
    "p3-theorem-4",
    "Theorem 4, (3), (4)",
    "the γ-stable identity for 𝓗, the distance of the stable Hamiltonian, the rate of change, the bounds of the rank",
    size=Size("4 flows, 30 pairs, γ over six orders", "20 flows, 200 pairs, γ over six orders"),
)
def fourth(full: bool) -> Outcome:
    """Every side, on random pairs and along Hamiltonian flows, γ over six orders of magnitude."""
    violations: dict[str, float] = {}
    tightest = np.inf
    for seed in range(20 if full else 4):
        states, momenta = _flow(seed, 200)
        velocity, sizes = motion(states, momenta, DEPTH)[0], operator_norm(lift(states))
        for ratio in (1e-5, 1e-3, 1e-1, 10.0):
            steps = np.full(len(states), 1 / len(states))
            found = theorem_four(states, momenta, velocity, steps, DEPTH, ratio * sizes)
            for name, value in found.violations(1e-6).items():
                violations[name] = largest(value, violations.get(name, 0.0))
            tightest = smallest(tightest, float((found.distance_right / np.maximum(found.distance_left, 1e-12)).min()))
    worst = 0.0
    for A, B in _pairs(200 if full else 30, 6, 9, seed=1):
        gamma = 10 ** np.random.default_rng(0).uniform(-4, 2)
        velocity = motion(A, B, DEPTH)[0]
        shifted = stable_norm(velocity + gamma * DEPTH * B, lift(A), gamma) / (2 * DEPTH)
        potential = DEPTH / 2 * stable_norm(A, lift(A), gamma) + gamma * DEPTH / 2 * (B**2).sum()
        worst = largest(worst, float(abs(shifted - potential - hamiltonian(A, B, DEPTH)) / (shifted + potential)))
    return Outcome(
        worst < 1e-9 and not any(violations.values()),
        {"identity_error": worst, "violations": violations, "tightest_ratio_in_3": tightest},
    )


@claim(
    "p3-rate-bound",
    "A.2, proof of Theorem 4 (3)",
    "the speed is at most L(√(COI + 2𝓗/L) + 2√γ c) where the root is real",
    erratum=Erratum(
        "last lines: √(COI + 2𝓗/L + γ‖B‖²) + √γ c <= √(COI + 2𝓗/L + 2√γ c)",
        "√(COI + 2𝓗/L) + 2√γ c; the printed line puts √γ c inside the root and is not homogeneous",
        "random (A, B) with large √γ c",
    ),
    size=Size("600 pairs", "5000 pairs"),
)
def rate_bound(full: bool) -> Outcome:
    """Look for pairs that break each form."""
    rng = np.random.default_rng(3)
    ours = printed = -np.inf
    for _ in range(5000 if full else 600):
        A, B = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)) * 10 ** rng.uniform(-1, 1.5)
        sigma, velocity, gamma = lift(A), motion(A, B, DEPTH)[0], 10 ** rng.uniform(-2, 3)
        push = float(np.sqrt(gamma) * np.linalg.norm(B))
        excess = float(stable_norm(A, sigma, gamma) + 2 / DEPTH * hamiltonian(A, B, DEPTH))
        if excess < 0:
            continue
        speed = float(np.sqrt(stable_norm(velocity, sigma, gamma))) / DEPTH
        ours = largest(ours, (speed - np.sqrt(excess) - 2 * push) / speed)
        printed = largest(printed, (speed - np.sqrt(excess + 2 * push)) / speed)
    return Outcome(
        ours <= 1e-9, {"worst_excess": float(ours), "worst_excess_of_printed": float(printed)},
        printed_holds=bool(printed <= 1e-9),
    )  # fmt: skip


@claim(
    "p3-gamma",
    "after Theorem 4",
    "γ_p = γ_0 ‖σ(A_p)‖²_op = γ_0 ‖K_p‖_op scales with K, so that the stable energies of a scaled representation agree",
    erratum=Erratum(
        "γ_p = γ_0 ‖σ(A_p)‖²_op = γ_0 ‖K_p‖²_op", "‖σ(A_p)‖²_op = ‖K_p‖_op", "definition; scaling of a representation"
    ),
    size=Size("8 draws", "50 draws"),
)
def gamma_scale(full: bool) -> Outcome:
    """Compare the two norms, and the effect of scaling a representation without bias."""
    rng = np.random.default_rng(0)
    ours = printed = 0.0
    moved = {1: 0.0, 2: 0.0}  # by the power of ‖K‖_op
    for _ in range(50 if full else 8):
        A = rng.normal(size=(6, 9)) * 10 ** rng.uniform(0.2, 1)
        sigma = lift(A)
        operator, square = float(np.linalg.norm(sigma.T @ sigma, 2)), float(np.linalg.norm(sigma, 2) ** 2)
        ours, printed = largest(ours, abs(operator / square - 1)), largest(printed, abs(operator**2 / square - 1))
        plain = np.maximum(A, 0)
        for power in moved:
            low, high = (
                float(stable_norm(t * A, t * plain, 1e-3 * float(np.linalg.norm(t * plain, 2)) ** (2 * power)))
                for t in (1.0, 10.0)
            )
            moved[power] = largest(moved[power], abs(high / low - 1))
    return Outcome(
        ours < 1e-12 and moved[1] < 1e-9,
        {"error": ours, "error_of_printed": printed, "change_under_scaling": moved[1],
         "change_under_scaling_of_printed": moved[2]},
        printed_holds=bool(printed < 1e-9),
    )  # fmt: skip


@claim(
    "p3-momentum-from-weights",
    "Section 3.1",
    "at a critical point the weights alone give the momentum in the range of K: B = W σ(A) K⁺ / L",
    erratum=Erratum(
        "B_p = L⁻¹ W_p σ(A_p)⁺, which multiplies w × (w+1) by N × (w+1)",
        "B_p = L⁻¹ W_p (σ(A_p)⁺)ᵀ = L⁻¹ W_p σ(A_p) K_p⁺, up to the part of B outside the range of K",
        "shapes, and random (A, B)",
    ),
    size=Size("6 pairs", "30 pairs"),
)
def momentum_from_weights(full: bool) -> Outcome:
    """Recover the momentum from `W = L B σᵀ`; try the printed product."""
    worst, shapes_fit = 0.0, True
    for A, B in _pairs(30 if full else 6, 5, 9):
        sigma = lift(A)
        weight = DEPTH * B @ sigma.T
        inverse = np.linalg.pinv(sigma)
        range_part = B @ inverse @ sigma
        worst = largest(worst, float(np.abs(weight @ inverse.T / DEPTH - range_part).max() / np.abs(B).max()))
        shapes_fit &= weight.shape[1] == inverse.shape[0]
    return Outcome(worst < 1e-9, {"relative_error": worst, "printed_shapes_fit": shapes_fit}, printed_holds=shapes_fit)


@claim(
    "p3-balancedness",
    "Proposition 10",
    "along a geodesic ∂‖W_p‖² = 2L ‖b_p‖², with b the bias column",
    erratum=Erratum(
        "‖W_p‖² = ‖W_0‖² + L ∫ ‖b_q‖² dq",
        "‖W_p‖² = ‖W_0‖² + 2L ∫ ‖b_q‖² dq: the proof's last step drops a factor 2",
        "Hamilton's equations, integrated",
    ),
    size=Size("3 flows", "10 flows"),
)
def balancedness(full: bool) -> Outcome:
    """Integrate Hamilton's equations and compare both laws with `W = L B σ(A)ᵀ`."""
    ours = printed = 0.0
    panel: list[Series] = []
    for seed in range(10 if full else 3):
        states, momenta = _flow(seed, 2000)
        weights = DEPTH * momenta @ np.swapaxes(lift(states), -1, -2)
        size, bias = (weights**2).sum(axis=(1, 2)), (weights[:, :, -1] ** 2).sum(axis=1)
        h = 0.6 / 2000
        gained = DEPTH * h * np.concatenate([[0], np.cumsum((bias[1:] + bias[:-1]) / 2)])
        scale = np.ptp(size)
        ours = largest(ours, float(np.abs(size - size[0] - 2 * gained).max() / scale))
        printed = largest(printed, float(np.abs(size - size[0] - gained).max() / scale))
        panel = [Series(size, np.linspace(0, 0.6, len(size)), "‖W_p‖²"),
                 Series(size[0] + 2 * gained, np.linspace(0, 0.6, len(size)), "corrected"),
                 Series(size[0] + gained, np.linspace(0, 0.6, len(size)), "printed")]  # fmt: skip
    figure = Figure("The corrected law lies on the measured norm.", [Panel(panel, "balancedness", "p")])
    return Outcome(
        ours < 1e-5, {"relative_error": ours, "relative_error_of_printed": printed}, printed_holds=printed < 1e-5,
        figure=figure,
    )  # fmt: skip


CLAIMS = (minimal, hamilton, energy, fourth, rate_bound, gamma_scale, momentum_from_weights, balancedness)
