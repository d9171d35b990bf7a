"""Truncation maps with right-angled cones: does an orthonormal basis of parting directions exist?"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lawful.papers.truncation.separation.separation import Hyperplane, OrderUndecided, parts, separate
from lawful.types import Floats

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
    found = rational_frame(best, cluster, others)
    return found or OrderUndecided(
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
