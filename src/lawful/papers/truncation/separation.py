"""When can one truncation map collapse a cluster and leave all others alone? Decided in rationals, with evidence.

Idea: exactly if a hyperplane parts the cluster from the others (hulls are disjoint), which a linear program decides in
floats; its answer is only a proposal. Invariant: *yes* is a hyperplane and *no* a common point of both hulls, each
checked in rational arithmetic on the points as they are stored; what neither proves is undecided. Touching hulls need a
closer look, because floats cannot tell a gap of one unit in the last place from none. Cost: one program in Q + 1
variables for each cluster. Aligned maps ask for more: an orthonormal basis of parting directions (P2 Section 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import flint
import numpy as np
from scipy.optimize import linprog, nnls

from lawful.exact.feasibility import Farkas, Integers, Solution, feasible, integers, solution
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.cumulative import TruncationMap
from lawful.types import Floats

# Hulls so close that floats see them touch: what parts them there, or more points that they share.

CLEAR = 1e-7  # a margin that a linear program in floats does not make up


@dataclass(frozen=True, eq=False)
class Closeup:
    """A normal that may part the two, or the points (near ones first) that may share one; nothing is decided here."""

    normal: tuple[Fraction, ...] | None
    support: list[int]


def closeup(near: Integers, far: Integers, touching: list[int]) -> Closeup:
    """Look at a place where floats see the hulls touch, between the points `touching`.

    In rationals the affine hulls of the touching points of the two sides are apart by a vector d, orthogonal to both.
    A hyperplane that contains their directions, has `w·d > 0` and leaves all other points clear, parts the two by
    `w·d`, however small d is. If there is none, the linear program's multipliers name the other points that count.

    >>> near, far = np.array([[0, 0], [-9, 10**30]], dtype=object), np.array([[1, 0], [7, 10**30]], dtype=object)
    >>> max(near @ (found := closeup(near, far, [0, 2])).normal) < min(far @ found.normal)
    True
    """
    inner = [column for column in touching if column < len(near)]
    outer = [column - len(near) for column in touching if column >= len(near)]
    if not inner or not outer:
        return Closeup(None, touching)
    one, two = near[inner[0]], far[outer[0]]
    along = [near[row] - one for row in inner[1:]] + [far[row] - two for row in outer[1:]]
    units = np.array([_size(column) for column in np.vstack([near - one, far - two]).T], dtype=object)
    span = _Span([_over(row, units) for row in along])
    apart = span.rest(_over(two - one, units))
    largest = max(abs(value) for value in apart)
    if not largest:
        return Closeup(None, touching)
    gap = np.array([float(value / largest) for value in apart])
    rows = np.vstack([_floats(near - one, units), -_floats(far - two, units), -gap])
    free = np.ones(len(rows))
    free[touching] = 0.0
    equal = np.c_[_floats(np.array(along, dtype=object), units), np.zeros(len(along))] if along else None
    solved = linprog(
        np.r_[np.zeros(len(gap)), -1.0], A_ub=np.c_[rows, free], b_ub=np.zeros(len(rows)), A_eq=equal,
        b_eq=None if equal is None else np.zeros(len(along)), bounds=[(-1.0, 1.0)] * len(gap) + [(0.0, None)],
    )  # fmt: skip
    if solved.x is None:
        return Closeup(None, touching)
    if solved.x[-1] > CLEAR:
        way = span.rest([Fraction(value) for value in solved.x[:-1].tolist()])
        return Closeup(tuple(value / unit for value, unit in zip(way, units, strict=True)), touching)
    counting = np.flatnonzero(np.abs(solved.ineqlin.marginals[:-1]) > CLEAR).tolist()
    return Closeup(None, sorted({*touching, *counting}))


class _Span:
    """The space of some rational vectors, for taking it out of others."""

    def __init__(self, vectors: list[list[Fraction]]) -> None:
        self.basis: Any = None
        if vectors:
            reduced, rank = flint.fmpq_mat([[_rational(value) for value in row] for row in vectors]).rref()
            self.basis = flint.fmpq_mat([[reduced[row, c] for c in range(len(vectors[0]))] for row in range(rank)])

    def rest(self, vector: list[Fraction]) -> list[Fraction]:
        """What is left of a vector, orthogonal to the space."""
        if self.basis is None or not self.basis.nrows():
            return vector
        column = flint.fmpq_mat([[_rational(value)] for value in vector])
        shares = (self.basis * self.basis.transpose()).solve(self.basis * column)
        left = column - self.basis.transpose() * shares
        return [Fraction(int(left[row, 0].p), int(left[row, 0].q)) for row in range(left.nrows())]


def _rational(value: Fraction) -> Any:
    return flint.fmpq(value.numerator, value.denominator)


def _size(column: Integers) -> int:
    """A power of two near the largest entry."""
    return 1 << max(int(max(abs(value) for value in column)).bit_length(), 1)


def _over(row: Integers, units: Integers) -> list[Fraction]:
    return [Fraction(int(value), int(unit)) for value, unit in zip(row, units, strict=True)]


def _floats(rows: Integers, units: Integers) -> Floats:
    return np.array([[float(value) for value in _over(row, units)] for row in rows]).reshape(-1, len(units))


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
        inside, outside = (
            [row for row, weight in enumerate(weights) if weight] for weights in (self.inside, self.outside)
        )
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
    scaled = integers(every)
    return scaled[: len(cluster)], scaled[len(cluster) : -1], scaled[-1].tolist()


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


# Truncation maps with right-angled cones: does an orthonormal basis of parting directions exist?

CANDIDATES = 5  # pairs of differences that are multiplied exactly


@dataclass(frozen=True, eq=False)
class Frame:
    """Yes: each vector of an orthogonal basis parts the cluster from the rest, in rationals.

    The rows of `rotation` are orthogonal up to rounding; made orthogonal exactly (Gram and Schmidt), they part. Along
    the rows the cluster ends at `low` and the rest begins at `high`.
    """

    rotation: Floats
    low: Floats
    high: Floats

    @property
    def margin(self) -> float:
        """The smallest gap."""
        return float((self.high - self.low).min())


@dataclass(frozen=True, eq=False)
class ObtusePair:
    """No: `(y₁ − x₁)·(y₂ − x₂) ≤ 0` for x in the cluster, y in the rest; inside an orthant all angles are acute."""

    inside: tuple[int, int]
    outside: tuple[int, int]
    product: float


def separate_aligned(
    cluster: Floats, others: Floats, *, guess: Floats | None = None, tries: int = 8, seed: int = 0
) -> Frame | ObtusePair | OrderUndecided:
    """The same with a right-angled cone, `R ∈ O(Q)`: does an orthonormal basis of parting directions exist?

    *Yes* if a search over rotations finds one (it starts from a cone about the widest gap, which alone suffices when
    the differences lie within the angle `arcsin(1/√Q)` of it); *no* if two differences make no acute angle (for Q = 2
    this decides every case); otherwise *undecided*: the question is that of completely positive matrices.

    >>> answer = separate_aligned(np.array([[0.0, 0.0]]), np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> type(answer).__name__, bool(answer.margin > 0)
    ('Frame', True)
    >>> separate_aligned(np.array([[0.0, 0.0]]), np.array([[2.0, 0.1], [-1.0, 0.1]])).product
    -1.99
    """
    pair = _obtuse(cluster, others)
    if pair is not None:
        return pair
    width = cluster.shape[1]
    rng = np.random.default_rng(seed)
    axis = others.mean(axis=0) - cluster.mean(axis=0)
    plane = separate(cluster, others)
    axes = [axis] if not isinstance(plane, Hyperplane) else [plane.normal, axis]
    starts = ([] if guess is None else [guess]) + [about(direction) for direction in axes]
    best, widest = np.eye(width), -np.inf
    for number in range(max(tries, len(starts))):
        turn = starts[number] if number < len(starts) else _spun(starts[number % len(starts)], rng)
        turned = _widen_gaps(turn, cluster, others)
        if (margin := gap(turned, cluster, others)) > widest:
            best, widest = turned, margin
        if widest > 0 and number + 1 >= len(starts):
            break
    frame = rational_frame(best, cluster, others)
    return frame or OrderUndecided(
        f"no two differences make an obtuse angle, and no frame was found in {tries} searches of O({width})"
    )


def about(axis: Floats) -> Floats:
    """The reflection that takes an axis to the diagonal (1, …, 1)/√Q: an orthant opens around the axis."""
    diagonal = np.full(len(axis), 1 / np.sqrt(len(axis)))
    length = float(np.linalg.norm(axis))
    mirror = axis / length - diagonal if length else np.zeros(len(axis))  # no direction: any rotation will do
    square = float(mirror @ mirror)
    return np.eye(len(axis)) if square < 1e-24 else np.eye(len(axis)) - 2 * np.outer(mirror, mirror) / square


def gap(rotation: Floats, cluster: Floats, others: Floats) -> float:
    """The smallest gap between the cluster and the rest along the rows of a matrix, in floating point."""
    return float(((others @ rotation.T).min(axis=0) - (cluster @ rotation.T).max(axis=0)).min())


def rational_frame(rotation: Floats, cluster: Floats, others: Floats) -> Frame | None:
    """The frame of a float matrix, if its rows, made orthogonal in rationals, all part the cluster from the rest."""
    vectors: list[list[Fraction]] = []
    for row in rotation.tolist():
        vector = [Fraction(value) for value in row]
        for other in vectors:
            share = _dot(vector, other) / _dot(other, other)
            vector = [a - share * b for a, b in zip(vector, other, strict=True)]
        if not any(vector) or not parts(vector, cluster, others):
            return None
        vectors.append(vector)
    return Frame(rotation, (cluster @ rotation.T).max(axis=0), (others @ rotation.T).min(axis=0))


def _dot(left: list[Fraction], right: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def _spun(rotation: Floats, rng: np.random.Generator) -> Floats:
    noise = rng.normal(size=rotation.shape)
    return np.asarray(np.linalg.qr(np.eye(len(rotation)) + 0.5 * (noise - noise.T))[0]) @ rotation


def _widen_gaps(rotation: Floats, cluster: Floats, others: Floats, sweeps: int = 12) -> Floats:
    """Turn pairs of rows (Jacobi sweeps) so that the smaller of their two gaps grows."""
    angles = np.concatenate([[0.0], *(sign * np.pi / 4 * 0.5 ** np.arange(1, 9) for sign in (1, -1))])
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    turned = rotation.copy()
    width = len(rotation)
    for _ in range(sweeps):
        before = gap(turned, cluster, others)
        for first in range(width):
            for second in range(first + 1, width):
                rows_a = cos * turned[first] + sin * turned[second]
                rows_b = cos * turned[second] - sin * turned[first]
                gaps = [(others @ rows.T).min(axis=0) - (cluster @ rows.T).max(axis=0) for rows in (rows_a, rows_b)]
                best = int(np.minimum(*gaps).argmax())
                turned[first], turned[second] = rows_a[best], rows_b[best]
        if gap(turned, cluster, others) <= before:
            break
    left, _, right = np.linalg.svd(turned)
    return np.asarray(left @ right)


def _obtuse(cluster: Floats, others: Floats, starts: int = 200) -> ObtusePair | None:
    """Look for two differences that make no acute angle: for one difference the worst partner is two maxima away."""
    rng = np.random.default_rng(0)
    total = len(cluster) * len(others)
    chosen = np.arange(total) if total <= starts else rng.choice(total, starts, replace=False)
    inside, outside = chosen // len(others), chosen % len(others)
    for _ in range(6):
        differences = others[outside] - cluster[inside]
        partner_out = (differences @ others.T).argmin(axis=1)
        partner_in = (differences @ cluster.T).argmax(axis=1)
        products = np.einsum("ij,ij->i", differences, others[partner_out] - cluster[partner_in])
        for worst in np.argsort(products)[:CANDIDATES]:
            ends = (int(inside[worst]), int(partner_in[worst])), (int(outside[worst]), int(partner_out[worst]))
            exact = _product(cluster[list(ends[0])], others[list(ends[1])])
            if exact <= 0:
                return ObtusePair(*ends, float(exact))
        inside, outside = partner_in, partner_out
    return None


def _product(inside: Floats, outside: Floats) -> Fraction:
    """`(y₁ − x₁)·(y₂ − x₂)` in rationals."""
    first, second = (
        [Fraction(b) - Fraction(a) for a, b in zip(x, y, strict=True)]
        for x, y in zip(inside.tolist(), outside.tolist(), strict=True)
    )
    return _dot(first, second)
