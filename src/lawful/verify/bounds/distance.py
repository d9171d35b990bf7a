"""How far apart two networks are on a box: an exact difference from below, a tree of boxes from above.

The certificate holds the networks, the box, which neurons resemble which, and where boxes were halved: no slopes and no
bounds. Each leaf is bounded here anew, in float64 with errors that `relaxation` accounts for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from lawful.verify.bounds.boxes import (
    MOST_HALVINGS,
    MOST_NUMBERS,
    Sides,
    centres_and_radii,
    halves,
    leaves_of,
    middle_of,
    read_box,
    widest,
)
from lawful.verify.bounds.network import Floats, PackedNetwork, pack, read_weighted_network
from lawful.verify.bounds.pair import TINY, Places, Shared, deepen, share_layers
from lawful.verify.bounds.relaxation import UNIT, Ends, bounds, hidden_ends
from lawful.verify.core.finding import Finding, digest_of
from lawful.verify.core.schema import (
    check_clock,
    integers,
    items,
    limit_cost,
    matrix,
    numbers,
    object_with_keys,
    rational,
    require,
    word,
)


def check(body: dict[str, Any]) -> Finding:
    """The bounds that hold."""
    parts = object_with_keys(
        body, "certificate", "networks box outputs norm upper lower matching tree spectral", "near"
    )
    networks = [
        read_weighted_network(network, f"networks[{at}]")
        for at, network in enumerate(items(parts["networks"], "networks", length=2))
    ]
    inputs = len(networks[0].inputs)
    require(inputs == len(networks[1].inputs), "the networks have different numbers of inputs")
    count = len(networks[0].outputs)
    require(count == len(networks[1].outputs), "the networks have different numbers of outputs")
    box = read_box(parts["box"], inputs)
    outputs = integers(parts["outputs"], "outputs", 0, count - 1, most=count)
    require(bool(outputs) and len(set(outputs)) == len(outputs), "the outputs are not chosen once each")
    norm = word(parts["norm"], "norm", "inf", "1", "2")
    pair = tuple(map(pack, networks))
    facts: dict[str, Any] = {"outputs": outputs, "of_outputs": count, "norm": norm, "box": box}
    near: list[Sides] | None = None
    data: tuple[str, ...] = ()
    if "near" in parts:
        require(parts["lower"] is None and not parts["tree"], "boxes around samples are bounded from above, each whole")
        near, radius, data = around_samples(parts["near"], box)
        facts["near"] = {"samples": len(near), "radius": radius}
    if parts["lower"] is not None:
        facts["lower"] = _lower(parts["lower"], box, pair, outputs, norm)
    if parts["upper"] is not None:
        facts["upper"] = rational(parts["upper"], "upper")
        facts["leaves"] = _upper(facts["upper"], parts, pair, box, outputs, norm, near)
    require("lower" in facts or "upper" in facts, "the certificate states nothing")
    return Finding(facts, tuple(network.digest() for network in networks), data)


def around_samples(value: object, box: Sides) -> tuple[list[Sides], Fraction, tuple[str, ...]]:
    """The part of a box near each sample, how near, and the samples' digest."""
    parts = object_with_keys(value, "near", "samples radius")
    radius = rational(parts["radius"], "near.radius")
    require(radius >= 0, "a distance from samples is negative")
    samples = matrix(parts["samples"], "near.samples", columns=len(box))
    require(bool(samples), "there are no samples")
    boxes = []
    for sample in samples:
        point = list(map(Fraction, sample))
        require(all(low <= x <= high for x, (low, high) in zip(point, box, strict=True)), "a sample is outside the box")
        boxes.append([(max(low, x - radius), min(high, x + radius)) for x, (low, high) in zip(point, box, strict=True)])
    return boxes, radius, (digest_of("data", samples),)


# From below


def _lower(value: object, box: Sides, pair: tuple[PackedNetwork, ...], outputs: list[int], norm: str) -> Fraction:
    parts = object_with_keys(value, "lower", "input above")
    point = list(map(Fraction, numbers(parts["input"], "lower.input", length=len(box))))
    above = rational(parts["above"], "lower.above")
    require(above >= 0, "a bound from below is negative")
    require(all(low <= x <= high for x, (low, high) in zip(point, box, strict=True)), "the input is outside the box")
    ours, theirs = (network.evaluate(point) for network in pair)
    sizes = [abs(theirs[which] - ours[which]) for which in outputs]
    require(not within(sizes, above, norm), "the networks do not differ by more than stated at this input")
    return above


def within(sizes: Sequence[Fraction | float], most: Fraction, norm: str) -> bool:
    """Whether a norm of nonnegative numbers is at most a number."""
    if norm == "inf":
        return max(sizes) <= most
    if norm == "1":
        return sum(sizes) <= most
    return sum(size * size for size in sizes) <= most * most


# From above


def _matching(value: object, hidden: int) -> list[Places]:
    layers = []
    for item in items(value, "matching", length=hidden):
        parts = object_with_keys(item, "matching", "first second scale")
        scale = numbers(parts["scale"], "matching.scale")
        first, second = (
            np.array(integers(parts[side], f"matching.{side}", -1, length=len(scale)), dtype=np.intp)
            for side in ("first", "second")
        )
        layers.append(Places(first, second, np.array(scale)))
    return layers


def _upper(
    most: Fraction,
    given: dict[str, Any],
    pair: tuple[PackedNetwork, ...],
    box: Sides,
    outputs: list[int],
    norm: str,
    near: list[Sides] | None,
) -> int:
    """Bound every leaf of the tree, or every box around a sample; how many there are."""
    tree = integers(given["tree"], "tree", 0, len(box))
    require(most >= 0, "a bound from above is negative")
    depth = max(len(network.layers) for network in pair)
    matches = _matching(given["matching"], depth - 1)
    first, second = (deepen(network.layers, depth) for network in pair)
    weights = sum(layer.weight.size for layer in (*first, *second))
    limit_cost(20.0 * weights + 0.1 * len(near or tree) * weights * max(1, depth - 1))
    layers = share_layers(first, second, matches, len(box))
    if all(layer.same for layer in layers):
        return 0
    leaves = leaves_of(tree, box) if near is None else near
    cap = _cap(given["spectral"], layers, box, outputs)
    open_, deeper = leaves, MOST_HALVINGS
    while open_:
        open_ = [
            leaf for leaf, gaps in zip(open_, _gaps(layers, open_), strict=True)
            if not within([min(gaps[which], top) for which, top in zip(outputs, cap, strict=True)], most, norm)
        ]  # fmt: skip
        require(not open_ or deeper > 0, f"{len(open_)} of the boxes are not bounded as stated")
        open_, deeper = [half for leaf in open_ for half in halves(leaf, widest(leaf))], deeper - 1
    return len(leaves)


def _cap(value: object, layers: list[Shared], box: Sides, outputs: list[int]) -> list[Fraction | float]:
    """What singular values say of the gaps on the whole box, with the weights of the certificate."""
    if value is None:
        return [math.inf] * len(outputs)
    require(len(layers) > 1, "a network without hidden layers has no bilinear form")
    parts = object_with_keys(value, "spectral", "rows columns")
    below = layers[-2].W.shape
    rows = np.array(matrix(parts["rows"], "spectral.rows", rows=len(outputs), columns=1 + below[0]))
    columns = np.array(matrix(parts["columns"], "spectral.columns", rows=len(outputs), columns=1 + 2 * below[1]))
    limit_cost(40.0 * rows.size * columns.shape[1])
    require(bool((rows > 0).all() and (columns > 0).all()), "a weight of the bilinear form is not positive")
    middle = np.array([middle_of(*side) for side in box])
    centre, radius = middle[:, 0], middle[:, 1]
    ends = hidden_ends(layers, centre[None], radius[None])
    gaps = spectral_gaps(layers, ends, (centre, radius), outputs, Weights(rows, columns))
    return [Fraction(float(gap)) if np.isfinite(gap) else math.inf for gap in gaps]


def difference_bounds(layers: list[Shared], boxes: list[Sides]) -> Iterator[tuple[Floats, Floats]]:
    """For each box lower and upper bounds of the outputs of `g - f`, computed many boxes at a time."""
    width = max(max(layer.W.shape) for layer in layers)
    many = max(1, min(16, MOST_NUMBERS // (width * (1 + layers[0].W.shape[1]))))
    for start in range(0, len(boxes), many):
        check_clock()
        yield from zip(*bounds(layers, *centres_and_radii(boxes[start : start + many])), strict=True)


def _gaps(layers: list[Shared], boxes: list[Sides]) -> Iterator[list[Fraction | float]]:
    """For each box an upper bound of the size of each output's difference; an infinity stays one."""
    for low, high in difference_bounds(layers, boxes):
        sizes = np.maximum(np.maximum(high, -low), 0.0)
        yield [Fraction(float(size)) if np.isfinite(size) else math.inf for size in sizes]


# A bound of the difference of two networks by singular values, at the last hidden layer.
#
# Write `τ` for the slope with `φ(z) - φ(y) = τ (z - y)`: it lies between φ's two. If y and z have no different signs
# then `φ(y) = τ y`; otherwise both are at most `|z - y|`, and `|φ(y) - τ y|` is at most `(1 - slope) |z - y|`. So an
# output of `g - f` is, up to the latter, `Σ τ_j (V_j (z_j - y_j) + E_j y_j) + e`: bilinear in slopes and in what
# enters the layer. With both written as middles plus radii times numbers in [-1, 1] it is `[1, s] B [1, t] +
# constant`, which for any positive p and q is at most `|P^-1/2 B Q^-1/2| √(Σp Σq) + |constant|` by Cauchy's
# inequality: `Σ p_j s_j² <= Σp`.
#
# Rounding: every number of B is off by at most `slack` times the same expression in absolute values, and by what
# `pair` doubts of the weights; as s and t are at most 1, the sum of all these is added. The norm is bounded by `‖A‖² =
# ‖AᵀA‖` several times and a Frobenius norm at last; a product of matrices of Frobenius norm at most 1 is off by at
# most `(n + 1) 2^-53` in that norm.

# A Frobenius norm is at most sqrt(n) times the largest singular value: after ten squarings n^(1/2048), 1.005 for 10^5.
SQUARINGS = 10


class Weights(NamedTuple):
    """p and q of each output in question."""

    rows: Floats
    columns: Floats


class _Layer(NamedTuple):
    """Numbers that B is made of, or their absolute values."""

    V: Floats
    E: Floats
    W: Floats
    e: Floats
    b: Floats


def spectral_gaps(
    layers: Sequence[Shared], ends: Sequence[Ends], box: tuple[Floats, Floats], outputs: Sequence[int], given: Weights
) -> Floats:
    """Upper bounds of `|g - f|` on one box with this centre and radius, given the ends of its hidden layers."""
    with np.errstate(all="ignore"):
        gaps = [
            _gap(layers, ends, box, output, p, q)
            for output, p, q in zip(outputs, given.rows, given.columns, strict=True)
        ]
    return np.where(np.isfinite(gaps), gaps, np.inf)


def _gap(
    layers: Sequence[Shared], ends: Sequence[Ends], box: tuple[Floats, Floats], output: int, p: Floats, q: Floats
) -> float:
    below, last, here = layers[-2], layers[-1], ends[-1]
    middle, radius = _entering(layers, ends, box)
    slopes = below.slopes
    on = (here.y_low[0] >= 0) & (here.z_low[0] >= 0)
    off = (here.y_high[0] <= 0) & (here.z_high[0] <= 0)
    centre = np.where(on, 1.0, np.where(off, slopes, (1 + slopes) / 2))
    swing = np.where(on | off, 0.0, (1 - slopes) / 2)
    mixed = np.where(on | off, 0.0, (1 - slopes) * here.sizes[2][0])
    V, E, e = last.V[output], last.E[output], last.e[output]
    inner = _Layer(below.V, below.E, below.W, below.e, below.b)
    matrix, constant = _bilinear(V, E, e, inner, middle, radius, centre, swing)
    sizes = _Layer(*map(np.abs, inner))
    reach, total = _bilinear(abs(V), abs(E), abs(e), sizes, abs(middle) + radius, radius, centre, swing)
    slack = 4 * (sum(below.W.shape) + 16) * UNIT
    entering, count = np.abs(middle) + radius, below.W.shape[1]
    inner_lost = below.doubt @ entering[:count] + below.shift_doubt + TINY * (8 + entering.sum())
    outer_lost = last.doubt[output] @ here.sizes[0][0] + last.shift_doubt[output] + TINY * (8 + radius.sum())
    lost = slack * (reach.sum() + total) + (np.abs(E) @ mixed) * (1 + slack)
    lost += 2 * (np.abs(V) @ inner_lost + np.abs(E).sum() * TINY * (8 + entering.sum()) + outer_lost)
    norm = _norm(matrix / np.sqrt(p)[:, None] / np.sqrt(q))
    room = 1 + 4 * (len(p) + len(q)) * UNIT
    return float((norm * np.sqrt(p.sum() * q.sum()) + abs(constant)) * room + lost)


def _bilinear(
    V: Floats, E: Floats, e: float, inner: _Layer, at: Floats, radius: Floats, centre: Floats, swing: Floats
) -> tuple[Floats, float]:
    """B and the constant."""
    weights = np.hstack([V[:, None] * inner.E + E[:, None] * inner.W, V[:, None] * inner.V])
    shift = weights @ at + V * inner.e + E * inner.b
    matrix = np.zeros((1 + len(weights), 1 + weights.shape[1]))
    matrix[1:, 1:] = swing[:, None] * weights * radius
    matrix[1:, 0] = swing * shift
    matrix[0, 1:] = (centre @ weights) * radius
    return matrix, float(centre @ shift + e)


def _entering(layers: Sequence[Shared], ends: Sequence[Ends], box: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Middles and radii of what enters the last hidden layer: values of f, then differences."""
    if len(layers) == 2:
        nothing = np.zeros_like(box[0])
        return np.concatenate([box[0], nothing]), np.concatenate([box[1], nothing])
    h_low, h_high, _, _, D_low, D_high = (end[0] for end in ends[-2].activate(layers[-3].slopes))
    low, high = np.concatenate([h_low, D_low]), np.concatenate([h_high, D_high])
    middle = low / 2 + high / 2
    return middle, np.nextafter(np.maximum(high - middle, middle - low), np.inf)


def _norm(matrix: Floats) -> float:
    """At least the largest singular value."""
    room: float = 2 * (max(matrix.shape) + 8) * UNIT
    top = float(np.abs(matrix).max())
    if not 0 < top < math.inf:
        return top
    first = math.ldexp(1.0, math.frexp(top)[1])  # entries near 1: squares neither overflow nor vanish
    matrix, scales = matrix / first, []
    for _ in range(SQUARINGS):
        scales.append(math.ldexp(1.0, math.frexp(math.sqrt(np.sum(matrix * matrix)))[1]))
        matrix = (matrix / scales[-1]).T @ (matrix / scales[-1])
    norm = math.sqrt(np.sum(matrix * matrix)) * (1 + room)
    for scale in reversed(scales):
        norm = scale * math.sqrt(norm + room) * (1 + 4 * UNIT)
    return first * norm
