"""Claims of P2 about the gradient flow of truncation maps: velocities against autodiff (Sections 3 and 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lawful.figure import Figure, Panel, Series
from lawful.papers.truncation.clusters import synthetic
from lawful.papers.truncation.flow.field import Composed, Maps, Separated, Velocity
from lawful.papers.truncation.flow.integrate import integrate
from lawful.papers.truncation.flow.motion import run_flow
from lawful.types import Floats
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest


def rotations(rng: np.random.Generator, count: int, size: int) -> Floats:
    """Random orthogonal matrices."""
    return np.array([np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(count)])


def autodiff(points: Floats, targets: Floats, weights: Floats, maps: Maps) -> Velocity:
    """Minus the gradient of the Euclidean cost by PyTorch, R restricted to the orthogonal group."""
    import torch

    shifts, turns = (torch.tensor(array, requires_grad=True) for array in maps)
    at = torch.tensor(points)
    for shift, turn in zip(shifts, turns, strict=True):
        at = torch.relu((at + shift) @ turn.T) @ turn - shift
    cost: Any = 0.5 * (torch.tensor(weights)[:, None] * (at - torch.tensor(targets)) ** 2).sum()
    by_shift, by_turn = torch.autograd.grad(cost, (shifts, turns))
    full = (by_turn @ turns.transpose(1, 2)).detach().numpy()
    return Velocity(-by_shift.numpy(), -(full - np.swapaxes(full, 1, 2)) / 2)


def one_cluster(rng: np.random.Generator, size: int, count: int) -> tuple[Separated, Maps, Velocity]:
    """A random cluster with a random map, and autodiff's velocity for it."""
    points, target = rng.normal(size=(count, size)), rng.normal(size=size)
    maps = Maps(0.3 * rng.normal(size=(1, size)), rotations(rng, 1, size))
    exact = autodiff(points, np.tile(target, (count, 1)), np.full(count, 1 / count), maps)
    return Separated(points, target), maps, exact


def generator(field: Separated, maps: Maps, *, bare: float, factor: float = 0.5) -> Floats:
    """`⟨[H, factor (zvᵀ + vzᵀ − bare zzᵀ)]⟩` point by point: bare = 0 is the printed Theorem 3.2."""
    z = field.preactivations(maps)[0]
    v = maps.rotations[0] @ (maps.shifts[0] + field.target)
    total = np.zeros_like(maps.rotations[0])
    for point in z:
        matrix = factor * (np.outer(point, v) + np.outer(v, point) - bare * np.outer(point, point))
        on = np.diag((point > 0).astype(float))
        total += on @ matrix - matrix @ on
    return np.asarray(total / len(z))


@claim(
    "p2-theorem-3-2",
    "Theorem 3.2, (3.22)-(3.26)",
    "the cluster-separated flow is ∂β = −Rᵀ<1−H>R(β+ỹ), ∂R = ΩR, and both parts of ∂C are non-positive",
    erratum=Erratum(
        "Ω = <[H, M]> with M = (zvᵀ + vzᵀ)/2",
        "M = (zvᵀ + vzᵀ − zzᵀ)/2: (6.16) masks zzᵀ on both sides, but one side is bare",
        "autodiff at random states",
    ),
    size=Size("Q = 2 to 6, 100 points", "Q = 2 to 11, 100 points", "every Q"),
)
def theorem_3_2(full: bool) -> Outcome:
    """Compare both formulas with autodiff, then follow a run and watch the cost."""
    rng = np.random.default_rng(0)
    ours, printed = 0.0, np.inf
    for size in range(2, 12 if full else 7):
        field, maps, exact = one_cluster(rng, size, 100)
        found = field.velocity(maps)
        ours = largest(ours, *(float(np.abs(a - b).max()) for a, b in zip(found, exact, strict=True)))
        gap = np.abs(generator(field, maps, bare=0.0) - exact.generators[0]).max()
        printed = smallest(printed, float(gap / np.abs(exact.generators).max()))
    field, maps, _ = one_cluster(rng, 3, 40)
    run = integrate(field, maps, np.linspace(0.0, 4.0, 41))
    rise, part = float(np.diff(run.costs).max()), float(run.descent.max())
    figure = Figure(
        "The cost along the corrected flow, and its two parts.",
        (
            Panel((Series(run.costs, run.times),), "cost", "s", log_y=True),
            Panel((Series(run.descent[:, 0], run.times, "β"), Series(run.descent[:, 1], run.times, "R")), "∂C", "s"),
        ),
    )
    measured = {"error": ours, "printed_relative_error": printed, "largest_rise_of_cost": rise, "largest_part": part}
    return Outcome(ours < 1e-12 and rise <= 0 and part <= 0, measured, printed < 1e-6, figure)


@claim(
    "p2-sign",
    "(1.14), (4.1)",
    "the rotations follow ∂R = ΩR",
    erratum=Erratum("∂R = −ΩR in (1.14) and (4.1)", "∂R = ΩR, as in (3.21)", "finite differences of the cost"),
    size=Size("10 states in R^4", "50 states in R^4", "every Q"),
)
def sign(full: bool) -> Outcome:
    """Step along ±ΩR: the cost must fall along +."""
    rng = np.random.default_rng(0)
    falls = rises = True
    for _ in range(50 if full else 10):
        field, maps, _ = one_cluster(rng, 4, 60)
        turn = field.velocity(maps).generators[0]
        steps = [Maps(maps.shifts, ((np.eye(4) + step * turn) @ maps.rotations[0])[None]) for step in (1e-5, -1e-5)]
        before = field.cost(maps)
        falls &= field.cost(steps[0]) < before
        rises &= field.cost(steps[1]) > before
    return Outcome(falls and rises, {"cost_falls_along_plus": falls, "cost_rises_along_minus": rises}, not rises)


@claim(
    "p2-moments",
    "Corollary 3.5",
    "the velocity depends on the data through the moments of each sector up to degree two",
    erratum=Erratum(
        "first moments per sector suffice, and (3.38) has no factor ½",
        "second moments per sector are needed too, with the factor ½",
        "autodiff on two data sets with equal first moments; autodiff against (3.38)",
    ),
    size=Size("60 points in R^4", "200 points in R^8", "every Q"),
)
def moments(full: bool) -> Outcome:
    """Move two equal points apart along their ray: sectors and first moments stay, Ω changes."""
    rng = np.random.default_rng(0)
    size, count = (8, 200) if full else (4, 60)
    field, maps, exact = one_cluster(rng, size, count)
    z = field.preactivations(maps)[0]
    twins = [np.vstack([z, factors[0] * z[0], factors[1] * z[0]]) for factors in ((1.0, 1.0), (1.5, 0.5))]
    base, moved = (Separated(each @ maps.rotations[0] - maps.shifts[0], field.target) for each in twins)
    same_sectors = bool(((base.preactivations(maps) > 0) == (moved.preactivations(maps) > 0)).all())
    change = float(np.abs(base.velocity(maps).generators - moved.velocity(maps).generators).max())
    printed = float(np.abs(generator(field, maps, bare=0.0, factor=1.0) - exact.generators[0]).max())
    by_moments = float(np.abs(_from_moments(field, maps) - exact.generators[0]).max())
    measured = {"error_by_second_moments": by_moments, "error_of_3_38": printed,
                "change_at_equal_first_moments": change, "sectors_kept": same_sectors}  # fmt: skip
    return Outcome(by_moments < 1e-12 and same_sectors and change > 1e-6, measured, printed < 1e-6 or change < 1e-9)


def _from_moments(field: Separated, maps: Maps) -> Floats:
    """Ω from counts, first and second moments of each sector alone."""
    z = field.preactivations(maps)[0]
    v = maps.rotations[0] @ (maps.shifts[0] + field.target)
    total = np.zeros_like(maps.rotations[0])
    for sector in np.unique(z > 0, axis=0):
        inside = z[((z > 0) == sector).all(axis=1)]
        first, second = inside.sum(axis=0), inside.T @ inside
        difference = sector[:, None].astype(float) - sector[None]
        total += difference * 0.5 * (np.outer(first, v) + np.outer(v, first) - second)
    return np.asarray(total / len(z))


@claim(
    "p2-theorem-5-1",
    "Theorem 5.1",
    "the general flow of composed truncations equals autodiff, and reduces to Theorem 3.2 for separated clusters",
    erratum=Erratum(
        "(5.4): ∂β_l = −Σ_{l'>=l} <(P⁻_{l',Q})ᵀ(τ − ỹ)>",
        "∂β_l = +<(P⁻_{l,Q})ᵀ(τ − ỹ)>, summed over all clusters",
        "autodiff at random states",
    ),
    size=Size("Q = 2 to 5", "Q = 2 to 9", "every Q"),
)
def theorem_5_1(full: bool) -> Outcome:
    """Random composed maps against autodiff, printed and corrected; then separated clusters both ways."""
    rng = np.random.default_rng(0)
    ours, printed = 0.0, np.inf
    for size in range(2, 10 if full else 6):
        data = synthetic(size, 15, 1.0, seed=size)
        maps = Maps(0.4 * rng.normal(size=(size, size)), rotations(rng, size, size))
        targets = rng.normal(size=(size, size))[data.labels]
        exact = autodiff(data.points, targets, data.weights, maps)
        found = Composed(data.points, targets, data.weights).velocity(maps)
        ours = largest(ours, *(float(np.abs(a - b).max()) for a, b in zip(found, exact, strict=True)))
        # (5.4) as printed: minus sign, clusters l' >= l only, each with its own P⁻
        wrong = np.zeros_like(maps.shifts)
        for layer in range(size):
            for cluster in range(layer, size):
                inside = data.labels == cluster
                part = Composed(data.points[inside], targets[inside], data.weights[inside]).velocity(maps)
                wrong[layer] -= part.shifts[cluster]
        printed = smallest(printed, float(np.abs(wrong - exact.shifts).max()))
    data = synthetic(3, 10, 0.1)
    apart, whole = (run_flow(data, general=general, until=6.0, frames=4) for general in (False, True))
    gap = largest(float(np.abs(apart.images(k) - whole.images(k)).max()) for k in range(4))
    reduced = all(apart.separated)
    measured = {"error": ours, "printed_error": printed, "general_minus_separated": gap, "clusters_separated": reduced}
    return Outcome(ours < 1e-12 and reduced and gap < 1e-7, measured, printed < 1e-6)


CLAIMS = (theorem_3_2, sign, moments, theorem_5_1)
