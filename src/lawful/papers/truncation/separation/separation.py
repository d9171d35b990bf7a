"""When can one truncation map collapse a cluster and leave all others alone? Decided in rationals, with evidence.

Idea: a hyperplane parts two finite sets unless their convex hulls meet (P2 Section 5), and Farkas' lemma makes both
answers short: convex weights of one common point, or the normal of a hyperplane. Floats propose a support or a normal,
rationals confirm it in one pass over the points; only where hulls nearly touch does the exact simplex method run.

Invariant: nothing is answered that was not confirmed in rationals, at any scale of the data. Cost: usually one small
non-negative least squares problem; in the worst case an exact simplex run, bounded in steps (then *undecided*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from scipy.optimize import linprog, nnls

from lawful.exact.feasibility import Farkas, Integers, Solution, feasible, integers, solution
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.cumulative import TruncationMap
from lawful.papers.truncation.separation.touching_hulls import closeup
from lawful.types import Floats

LEVEL = 10.0  # weight of the hyperplane's level beside its normal


@dataclass(frozen=True, eq=False)
class Hyperplane:
    """Yes: `exact · x` is smaller on the cluster than on the rest, for all points, in rationals.

    `normal` is the same direction as a float vector of length 1; along it the cluster ends at `low`, the rest begins
    at `high` (equal where the gap is thinner than floats can tell).
    """

    exact: tuple[Fraction, ...]
    normal: Floats
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class CommonPoint:
    """No: the same point is a convex combination of the cluster and of the rest, so no hyperplane parts them."""

    inside: tuple[Fraction, ...]
    outside: tuple[Fraction, ...]
    point: Floats

    @property
    def pair(self) -> tuple[int, int] | None:
        """The rows of a point of the cluster and one of the rest that coincide, if that is what is shared."""
        inside, outside = ([row for row, weight in enumerate(each) if weight] for each in (self.inside, self.outside))
        return (inside[0], outside[0]) if len(inside) == len(outside) == 1 else None


@dataclass(frozen=True)
class OrderUndecided:
    """Neither found nor excluded, and why."""

    reason: str


def separate(cluster: Floats, others: Floats) -> Hyperplane | CommonPoint | OrderUndecided:
    """Part a cluster from the rest by a hyperplane, or exhibit a point in both convex hulls: exact, at any scale.

    Either `Σλ_i x_i = Σμ_j y_j` with convex weights has a solution, or Farkas' multipliers `(w, a, b)` of that system
    are a hyperplane: `w·x_i ≥ −a > b ≥ w·y_j`. Floating point proposes, rationals decide.

    >>> type(separate(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 1.0]]))).__name__
    'Hyperplane'
    >>> separate(np.array([[0.5, 0.5]]), np.array([[0.0, 0.0], [1.0, 1.0]])).point
    array([0.5, 0.5])
    >>> type(separate(np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([[1e-10, 0.5], [1.0, 0.2]]))).__name__
    'Hyperplane'
    """
    twins = _twins(cluster, others)
    if twins is not None:
        return twins
    quick = parting(cluster, others)
    if quick is not None:
        return quick
    near, far = _level(cluster, others)
    inside, outside, units = _integers(cluster, others)
    matrix = np.vstack([np.c_[inside.T, -outside.T], _row(1, cluster, 0, others), _row(0, cluster, 1, others)])
    wanted = [0] * cluster.shape[1] + [1, 1]
    support = _common_support(near, far)
    answer: Solution | Farkas | None = solution(matrix, wanted, support)
    if answer is None:
        close = closeup(inside, outside, support)
        if close.normal is not None:
            exact = tuple(value * unit for value, unit in zip(close.normal, units, strict=True))
            if parts(exact, cluster, others):
                return _hyperplane(exact, cluster, others)
        answer = feasible(matrix, wanted, close.support)
    match answer:
        case Farkas(multipliers):
            exact = tuple(-value * unit for value, unit in zip(multipliers, units, strict=False))
            return _hyperplane(exact, cluster, others)
        case Solution():
            return _common_point(answer, cluster, others)
    return OrderUndecided("the exact simplex method took too many steps")


def parting(cluster: Floats, others: Floats, *, exactly: bool = True) -> Hyperplane | None:
    """A hyperplane that floating point proposes and rationals confirm; None does not mean that there is none.

    With `exactly` false floating point confirms too: enough where a network that follows from it is tried out.
    """
    near, far = _level(cluster, others)
    scale = _scale(cluster, others).tolist()
    for direction in _directions(near, far):
        exact = tuple(Fraction(a) / Fraction(b) for a, b in zip(direction.tolist(), scale, strict=True))
        seen = (near @ direction).max() < (far @ direction).min()
        if any(exact) and (parts(exact, cluster, others) if exactly else seen):
            return _hyperplane(exact, cluster, others)
    return None


def separate_all(data: Clusters) -> tuple[Hyperplane | CommonPoint | OrderUndecided, ...]:
    """`separate` for every cluster."""
    return tuple(separate(data.cluster(number), data.others(number)) for number in range(data.count))


def parts(normal: Sequence[Fraction], cluster: Floats, others: Floats) -> bool:
    """Whether `normal · x` is smaller on the cluster than on the rest, in rationals."""
    inside, outside, units = _integers(cluster, others)
    weights = [value / unit for value, unit in zip(normal, units, strict=True)]
    common = lcm(*(weight.denominator for weight in weights))
    whole = np.array([int(weight * common) for weight in weights], dtype=object)
    return bool(max(inside @ whole) < min(outside @ whole))


def _integers(cluster: Floats, others: Floats) -> tuple[Integers, Integers, list[int]]:
    """The points in integers, and what each coordinate was multiplied by."""
    every = np.vstack([cluster, others, np.ones_like(others[:1])])  # the last row becomes the units
    found = integers(every)
    return found[: len(cluster)], found[len(cluster) : -1], found[-1].tolist()


def _scale(cluster: Floats, others: Floats) -> Floats:
    """The size of each coordinate, seen from one of the points."""
    size = np.maximum(np.abs(cluster - others[0]).max(axis=0), np.abs(others - others[0]).max(axis=0))
    return np.where((size > 0) & np.isfinite(size), size, 1.0)


def _level(cluster: Floats, others: Floats) -> tuple[Floats, Floats]:
    """The points seen from one of them, each coordinate of size 1."""
    scale = _scale(cluster, others)
    return (cluster - others[0]) / scale, (others - others[0]) / scale


def _directions(near: Floats, far: Floats) -> Iterator[Floats]:
    """Normals that may part the two: of largest margin in the Euclidean and in the sup-norm, and between the means."""
    yield from _widest(near, far)
    width = near.shape[1]
    rows = np.vstack([np.c_[near, np.ones(len(near)), np.ones(len(near))],
                      np.c_[-far, -np.ones(len(far)), np.ones(len(far))]])  # fmt: skip
    bounds = [(-1.0, 1.0)] * width + [(None, None), (0.0, None)]
    solved = linprog(np.r_[np.zeros(width + 1), -1.0], A_ub=rows, b_ub=np.zeros(len(rows)), bounds=bounds)
    if solved.x is not None and np.isfinite(solved.x).all():
        yield np.asarray(solved.x[:width])
    yield far.mean(axis=0) - near.mean(axis=0)


def _widest(near: Floats, far: Floats) -> Iterator[Floats]:
    """The normal of largest Euclidean margin, by Lawson and Hanson's least distance programming.

    The least `‖(w, t)‖` with `w·y + LEVEL t ≥ 1` on the far side and `≤ −1` on the near side; the level hardly counts.
    """
    rows = np.vstack([np.c_[-near, np.full(len(near), -LEVEL)], np.c_[far, np.full(len(far), LEVEL)]])
    system = np.vstack([rows.T, np.ones(len(rows))])
    with suppress(RuntimeError):  # too many iterations: the other proposals are left
        rest = system @ nnls(system, np.eye(len(system))[-1])[0]
        rest[-1] -= 1.0
        if rest[-1] < 0:
            yield np.asarray(rest[:-2] / -rest[-1])


def _common_support(near: Floats, far: Floats) -> list[int]:
    """The columns of a vertex at which the hulls meet, as floating point sees it."""
    equal = np.vstack([np.c_[near.T, -far.T], _row(1, near, 0, far), _row(0, near, 1, far)])
    wanted = np.r_[np.zeros(near.shape[1]), 1.0, 1.0]
    solved = linprog(np.zeros(equal.shape[1]), A_eq=equal, b_eq=wanted, bounds=(0.0, None), method="highs-ds")
    return [] if solved.x is None else np.flatnonzero(solved.x > 0).tolist()


def _row(near: int, cluster: Floats, far: int, others: Floats) -> list[int]:
    return [near] * len(cluster) + [far] * len(others)


def _hyperplane(exact: tuple[Fraction, ...], cluster: Floats, others: Floats) -> Hyperplane:
    largest = max(abs(value) for value in exact)
    direction = np.array([float(value / largest) for value in exact])
    normal = direction / np.linalg.norm(direction)
    return Hyperplane(exact, normal, float((cluster @ normal).max()), float((others @ normal).min()))


def _twins(cluster: Floats, others: Floats) -> CommonPoint | None:
    """A point that is in both."""
    rows = {tuple(row): number for number, row in reversed(list(enumerate(others.tolist())))}
    for number, row in enumerate(cluster.tolist()):
        if tuple(row) in rows:
            weights = [Fraction(0)] * (len(cluster) + len(others))
            weights[number] = weights[len(cluster) + rows[tuple(row)]] = Fraction(1)
            return CommonPoint(tuple(weights[: len(cluster)]), tuple(weights[len(cluster) :]), cluster[number].copy())
    return None


def _common_point(found: Solution, cluster: Floats, others: Floats) -> CommonPoint:
    weights = [found.entries.get(column, Fraction(0)) for column in range(len(cluster) + len(others))]
    inside, outside = weights[: len(cluster)], weights[len(cluster) :]
    point = np.array([float(value) for value in inside]) @ cluster
    return CommonPoint(tuple(inside), tuple(outside), point)


def cone_map(plane: Hyperplane, apex: Floats, cluster: Floats, others: Floats) -> TruncationMap:
    """The map that sends the cluster to `apex` (a point between the two faces) and fixes the rest.

    Its rows are `normal + ε u_r` with `u_1 … u_Q` the corners of a simplex orthogonal to the normal: a narrow cone.
    The widest ε that keeps all signs, halved, keeps the condition number down.
    """
    width = len(apex)
    level = float(plane.normal @ apex)
    if width == 1:
        return TruncationMap(plane.normal[:, None], -plane.normal * apex)
    basis = np.linalg.svd(plane.normal[None])[2][1:]  # orthonormal, orthogonal to the normal
    corners = _simplex(width) @ basis
    slopes_near = (cluster - apex) @ corners.T
    slopes_far = (others - apex) @ corners.T
    depth_near = level - cluster @ plane.normal
    depth_far = others @ plane.normal - level
    worst = max(
        float(np.max(slopes_near / np.maximum(depth_near, 1e-300)[:, None], initial=0.0)),
        float(np.max(-slopes_far / np.maximum(depth_far, 1e-300)[:, None], initial=0.0)),
        1e-3,
    )
    weight = plane.normal + corners / (2 * worst)
    weight = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    return TruncationMap(weight, -weight @ apex)


def _simplex(count: int) -> Floats:
    """`count` unit vectors in `count − 1` dimensions that sum to zero."""
    corners = np.eye(count) - 1.0 / count
    return np.asarray(corners @ np.linalg.svd(corners)[2][: count - 1].T / np.sqrt(1 - 1.0 / count))
