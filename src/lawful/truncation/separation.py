"""When can one truncation map collapse a cluster and leave all others alone? Linear programs and their certificates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from lawful.exact.simplex import feasible, solution
from lawful.truncation.clusters import Clusters
from lawful.truncation.cumulative import TruncationMap
from lawful.types import Floats

FLAT = 1e-9  # directions and products below this share of the data's size are not worth trying
LARGE = 250_000  # entries of a system that is solved in rationals
SMALL = 20_000  # entries of a linear program that is solved in rationals if floats found nothing
Solver = Callable[[Sequence[Sequence[Fraction]], Sequence[Fraction]], list[Fraction] | None]


@dataclass(frozen=True, eq=False)
class Hyperplane:
    """Yes: `normal · x <= low` on the cluster and `>= high > low` on the rest, with |normal| = 1."""

    normal: Floats
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class CommonPoint:
    """No: the same point is a convex combination of the cluster and of the rest, exactly: no hyperplane parts them."""

    inside: tuple[Fraction, ...]
    outside: tuple[Fraction, ...]
    point: Floats


@dataclass(frozen=True)
class OrderUndecided:
    """Neither found nor excluded, and why."""

    reason: str


def separate(cluster: Floats, others: Floats) -> Hyperplane | CommonPoint | OrderUndecided:
    """Part a cluster from the rest by a hyperplane, or exhibit a point in both convex hulls.

    >>> type(separate(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 1.0]]))).__name__
    'Hyperplane'
    >>> separate(np.array([[0.5, 0.5]]), np.array([[0.0, 0.0], [1.0, 1.0]])).point
    array([0.5, 0.5])
    """
    every = np.vstack([cluster, others])
    centre = every.mean(axis=0)
    size = float(np.linalg.norm(every - centre, axis=1).max()) or 1.0
    near, far = (cluster - centre) / size, (others - centre) / size
    found = _widest(near, far)
    if found is not None:
        normal = found / np.linalg.norm(found)
        if parts(normal, cluster, others):
            return Hyperplane(normal, float((cluster @ normal).max()), float((others @ normal).min()))
    return _common(cluster, others, near, far)


def parts(normal: Floats, cluster: Floats, others: Floats) -> bool:
    """Whether `normal · x` is smaller on the cluster than on the rest, without any rounding."""
    weights = [Fraction(value) for value in normal.tolist()]

    def heights(points: Floats) -> list[Fraction]:
        shares = points @ normal  # floats find the rows that matter, fractions decide
        room = 1e-12 * float(np.abs(points).max(initial=0.0) * np.abs(normal).sum() + 1e-300)
        edge = shares.max() if points is cluster else shares.min()
        rows = points[np.abs(shares - edge) <= room].tolist()
        return [sum((w * Fraction(x) for w, x in zip(weights, row, strict=True)), Fraction(0)) for row in rows]

    return max(heights(cluster)) < min(heights(others))


def _widest(near: Floats, far: Floats) -> Floats | None:
    """A normal of largest margin in the sup-norm: max t with `w·x + c <= −t` near, `>= t` far, `|w|_∞ <= 1`."""
    width = near.shape[1]
    rows = np.vstack([np.c_[near, np.ones(len(near)), np.ones(len(near))],
                      np.c_[-far, -np.ones(len(far)), np.ones(len(far))]])  # fmt: skip
    bounds = [(-1.0, 1.0)] * width + [(None, None), (0.0, None)]
    solved = linprog(np.r_[np.zeros(width + 1), -1.0], A_ub=rows, b_ub=np.zeros(len(rows)), bounds=bounds)
    if solved.x is None or not np.linalg.norm(solved.x[:width]) > FLAT:
        return None
    return np.asarray(solved.x[:width])


def _common(cluster: Floats, others: Floats, near: Floats, far: Floats) -> CommonPoint | OrderUndecided:
    """A point of both hulls in rationals: floats guess which corners it needs, an exact solution decides."""
    equal = np.vstack([np.c_[near.T, -far.T], np.r_[np.ones(len(near)), np.zeros(len(far))],
                       np.r_[np.zeros(len(near)), np.ones(len(far))]])  # fmt: skip
    wanted = np.r_[np.zeros(near.shape[1]), 1.0, 1.0]
    solved = linprog(np.zeros(equal.shape[1]), A_eq=equal, b_eq=wanted, bounds=(0.0, None))
    guess = np.flatnonzero(solved.x > 0) if solved.x is not None else np.arange(0)
    tries = [(guess, solution)] if len(guess) and len(guess) * len(wanted) <= LARGE else []
    tries += [(np.arange(equal.shape[1]), feasible)] if equal.size <= SMALL else []
    for chosen, solve in tries:
        if (shares := _shares(cluster, others, chosen.tolist(), solve)) is not None:
            inside, outside = shares[: len(cluster)], shares[len(cluster) :]
            point = np.array([float(sum(s * Fraction(x) for s, x in zip(inside, column, strict=True)))
                              for column in cluster.T.tolist()])  # fmt: skip
            return CommonPoint(tuple(inside), tuple(outside), point)
    return OrderUndecided("the clusters touch within round-off: neither a gap nor an exact common point was found")


def _shares(cluster: Floats, others: Floats, chosen: list[int], solve: Solver) -> list[Fraction] | None:
    """Coefficients of one point as a convex combination of the chosen corners of both sides, exactly."""
    count, one, none = len(cluster), Fraction(1), Fraction(0)
    columns = []
    for number in chosen:
        own = number < count
        row = (cluster[number] if own else -others[number - count]).tolist()
        columns.append([*map(Fraction, row), one if own else none, none if own else one])
    found = solve(columns, [none] * cluster.shape[1] + [one, one])
    if found is None or min(found) < 0:
        return None
    shares = [none] * (count + len(others))
    for number, share in zip(chosen, found, strict=True):
        shares[number] = share
    return shares


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


# Aligned maps: right-angled cones


@dataclass(frozen=True, eq=False)
class Frame:
    """Yes: each row of the orthogonal `rotation` parts the cluster (`<= low`) from the rest (`>= high`)."""

    rotation: Floats
    low: Floats
    high: Floats

    @property
    def margin(self) -> float:
        """The smallest gap."""
        return float((self.high - self.low).min())


@dataclass(frozen=True, eq=False)
class ObtusePair:
    """No: `(y₁ − x₁)·(y₂ − x₂) < 0` for x in the cluster, y in the rest, but an orthant has no obtuse angles."""

    inside: tuple[int, int]
    outside: tuple[int, int]
    product: float


def separate_aligned(
    cluster: Floats, others: Floats, *, guess: Floats | None = None, tries: int = 8, seed: int = 0
) -> Frame | ObtusePair | OrderUndecided:
    """The same with a right-angled cone, `R ∈ O(Q)`: does an orthonormal basis of parting directions exist?

    *Yes* if a search over rotations finds one (it starts from a cone about the widest gap, which alone suffices when
    the differences lie within the angle `arcsin(1/√Q)` of it); *no* if two differences make an obtuse angle (for Q = 2
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
    best: Frame | None = None
    axis = others.mean(axis=0) - cluster.mean(axis=0)
    plane = separate(cluster, others)
    axes = [axis] if not isinstance(plane, Hyperplane) else [plane.normal, axis]
    starts = ([] if guess is None else [guess]) + [about(direction) for direction in axes]
    for number in range(max(tries, len(starts))):
        turn = starts[number] if number < len(starts) else _spun(starts[number % len(starts)], rng)
        frame = _improved(turn, cluster, others)
        if best is None or frame.margin > best.margin:
            best = frame
        if best.margin > 0 and number + 1 >= len(starts):
            break
    if best is not None and best.margin > 0:
        return best
    return OrderUndecided(f"no right angle is obtuse, and no frame was found in {tries} searches of O({width})")


def about(axis: Floats) -> Floats:
    """The reflection that takes an axis to the diagonal (1, …, 1)/√Q: an orthant opens around the axis."""
    diagonal = np.full(len(axis), 1 / np.sqrt(len(axis)))
    length = float(np.linalg.norm(axis))
    mirror = axis / length - diagonal if length else np.zeros(len(axis))  # no direction: any rotation will do
    square = float(mirror @ mirror)
    return np.eye(len(axis)) if square < 1e-24 else np.eye(len(axis)) - 2 * np.outer(mirror, mirror) / square


def framed(rotation: Floats, cluster: Floats, others: Floats) -> Frame:
    """The gaps along the rows of a rotation."""
    return Frame(rotation, (cluster @ rotation.T).max(axis=0), (others @ rotation.T).min(axis=0))


def _spun(rotation: Floats, rng: np.random.Generator) -> Floats:
    noise = rng.normal(size=rotation.shape)
    return np.asarray(np.linalg.qr(np.eye(len(rotation)) + 0.5 * (noise - noise.T))[0]) @ rotation


def _improved(rotation: Floats, cluster: Floats, others: Floats, sweeps: int = 12) -> Frame:
    """Turn pairs of rows (Jacobi sweeps) so that the smaller of their two gaps grows."""
    angles = np.concatenate([[0.0], *(sign * np.pi / 4 * 0.5 ** np.arange(1, 9) for sign in (1, -1))])
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    turned = rotation.copy()
    width = len(rotation)
    for _ in range(sweeps):
        before = framed(turned, cluster, others).margin
        for first in range(width):
            for second in range(first + 1, width):
                rows_a = cos * turned[first] + sin * turned[second]
                rows_b = cos * turned[second] - sin * turned[first]
                gaps = [(others @ rows.T).min(axis=0) - (cluster @ rows.T).max(axis=0) for rows in (rows_a, rows_b)]
                best = int(np.minimum(*gaps).argmax())
                turned[first], turned[second] = rows_a[best], rows_b[best]
        if framed(turned, cluster, others).margin <= before:
            break
    left, _, right = np.linalg.svd(turned)
    return framed(left @ right, cluster, others)


def _obtuse(cluster: Floats, others: Floats, starts: int = 200) -> ObtusePair | None:
    """Look for two differences at an obtuse angle: for one difference the worst partner is two maxima away."""
    rng = np.random.default_rng(0)
    size = float(np.abs(others).max() + np.abs(cluster).max()) or 1.0
    total = len(cluster) * len(others)
    chosen = np.arange(total) if total <= starts else rng.choice(total, starts, replace=False)
    inside, outside = chosen // len(others), chosen % len(others)
    for _ in range(6):
        differences = others[outside] - cluster[inside]
        partner_out = (differences @ others.T).argmin(axis=1)
        partner_in = (differences @ cluster.T).argmax(axis=1)
        products = np.einsum("ij,ij->i", differences, others[partner_out] - cluster[partner_in])
        worst = int(products.argmin())
        if products[worst] < -FLAT * size**2:
            pair = (int(inside[worst]), int(partner_in[worst])), (int(outside[worst]), int(partner_out[worst]))
            return ObtusePair(*pair, round(float(products[worst]), 12))
        inside, outside = partner_in, partner_out
    return None


def separate_all(data: Clusters) -> tuple[Hyperplane | CommonPoint | OrderUndecided, ...]:
    """`separate` for every cluster."""
    return tuple(separate(data.cluster(number), data.others(number)) for number in range(data.count))
