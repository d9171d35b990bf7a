"""Bounds of the difference of two networks on many boxes at once: intervals, then lines backwards where signs are open.

Idea: layer by layer, intervals from the layer below decide which neurons have an unknown sign; those alone are bounded
again by substituting lines and planes backwards to the inputs, and their relaxations follow from that. A row is a
vector of coefficients with the box that it belongs to: rows of many boxes are one matrix, and the first rows are single
neurons, so that the layer's own matrix is the first step.
Invariant: `y_low <= y <= y_high` (f), the same of z (g) and of `d = z − y` for every input of the box, roundings
included: computed coefficients change the function by no more than the error of each times the size of what it
multiplies, which is known for each layer and box (`Roundings`).
Cost: one pass backwards for every neuron of unknown sign (Zhang et al., *CROWN*, 2018); the planes around a difference
are those of Paulsen et al., *NeuroDiff*, 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lawful.bounds.pair import Layered, NetworkPair
from lawful.bounds.planes import ULP, Bounds, Planes, known_below, planes
from lawful.network.relaxation import TINY, Lines, lines
from lawful.types import Floats, Indices, Mask


class Box(NamedTuple):
    """Centres and radii of boxes, of shape (boxes, n); the radius is rounded up."""

    centre: Floats
    radius: Floats


class Roundings(NamedTuple):
    """What all roundings of one layer can change, per unit of a row's coefficient: (boxes, neurons) each."""

    f: Floats
    g: Floats
    difference: Floats


class Hidden(NamedTuple):
    """A hidden layer's relaxations, of shape (boxes, neurons)."""

    f: Lines
    g: Lines
    difference: Planes


class Units(NamedTuple):
    """What is to be bounded from below: single neurons of a layer, or their negatives, each on one box."""

    neurons: Indices
    signs: Floats
    at: Indices


class Rows(NamedTuple):
    """Linear functions of the input, one a row: `coefficients · x + constant ± error`."""

    coefficients: Floats
    constant: Floats
    error: Floats

    def least(self, box: Box, at: Indices) -> Floats:
        """A lower bound on the row's box."""
        size = np.abs(self.coefficients)
        centre, radius = box.centre[at], box.radius[at]
        reach = _dot(size, np.abs(centre) + radius) + np.abs(self.constant)
        error = self.error + 8 * (size.shape[-1] + 16) * ULP * reach + TINY
        return np.asarray(self.constant + _dot(self.coefficients, centre) - _dot(size, radius) - error)


def sizes(layer: Layered, below: Hidden | None, box: Box) -> Roundings:
    """Bounds for the roundings at one layer."""
    size_W, size_V, size_E = layer.sizes
    slack = 8 * (max(layer.W.shape) + 16) * ULP
    if below is None:
        h = k = np.abs(box.centre) + box.radius
        D = np.zeros_like(h)
    else:
        h, k, D = below.f.scale, below.g.scale, below.difference.scale
    lost = TINY * (1.0 + (h + k + D).sum(axis=1, keepdims=True))
    f = slack * (h @ size_W.T + np.abs(layer.b)) + lost
    g = slack * (k @ size_V.T + np.abs(layer.c)) + lost
    difference = slack * (D @ size_V.T + h @ size_E.T + np.abs(layer.e)) + h @ layer.doubt.T + layer.shift_doubt + lost
    return Roundings(f, g, difference)


def single(
    weights: list[Floats],
    biases: list[Floats],
    lines: list[Lines],
    rough: list[Floats],
    units: Units,
    versions: tuple[str, ...] = ("low",),
) -> Rows:
    """Pre-activations of the last given layer of one network as rows on its inputs, once for each version of lines."""
    at = units.at
    constant = np.tile(units.signs * biases[-1][units.neurons], (len(versions), 1))
    error = np.tile(rough[-1][at, units.neurons], (len(versions), 1))
    rows = np.tile(units.signs[:, None] * weights[-1][units.neurons], (len(versions), 1, 1))
    for number in range(len(weights) - 2, -1, -1):
        line = lines[number]
        negative = np.minimum(rows, 0.0)
        constant += _dot(negative, line.shift[at])
        rows -= negative
        for which, version in enumerate(versions):
            rows[which] *= getattr(line, version)[at]
        negative *= line.high[at]
        rows += negative
        constant += rows @ biases[number]
        error += _dot(np.abs(rows, out=negative), rough[number][at])
        rows = rows @ weights[number]
    return Rows(rows, constant, error)


def bound_differences(
    layers: Sequence[Layered],
    hidden: list[Hidden],
    rough: list[Roundings],
    units: Units,
    heard: list[Floats] | None = None,
) -> Rows:
    """Differences `z − y` at the last given layer as rows on the inputs; `heard` gets each hidden layer's share."""
    at, last = units.at, layers[-1]
    constant, error = units.signs * last.e[units.neurons], rough[-1].difference[at, units.neurons]
    on_h, on_D = (units.signs[:, None] * matrix[units.neurons] for matrix in (last.E, last.V))
    for number in range(len(layers) - 2, -1, -1):
        if heard is not None:
            heard.append(np.abs(on_h) + np.abs(on_D))
        layer, line, plane = layers[number], hidden[number].f, hidden[number].difference
        negative = np.minimum(on_h, 0.0)
        constant += _dot(negative, line.shift[at])
        on_h -= negative
        on_h *= line.low[at]
        negative *= line.high[at]
        on_y = on_h
        on_y += negative
        negative = np.minimum(on_D, 0.0, out=negative)
        on_D -= negative
        constant += _dot(on_D, plane.low_shift[at]) + _dot(negative, plane.high_shift[at])
        on_y += on_D * plane.low_y[at]
        on_y += negative * plane.high_y[at]
        on_D *= plane.low_d[at]
        negative *= plane.high_d[at]
        on_d = on_D
        on_d += negative
        constant += on_d @ layer.e + on_y @ layer.b
        error += _dot(np.abs(on_d, out=negative), rough[number].difference[at])
        on_h, on_D = on_d @ layer.E + on_y @ layer.W, on_d @ layer.V
        error += _dot(np.abs(on_y, out=negative), rough[number].f[at])
    return Rows(on_h, constant, error)


def both(layers: Sequence[Layered], hidden: list[Hidden], rough: list[Roundings], units: Units) -> Rows:
    """Differences `z − y` at the outputs as rows on the inputs, through the two networks separately."""
    against = units._replace(signs=-units.signs)
    f = single([a.W for a in layers], [a.b for a in layers], [a.f for a in hidden], [a.f for a in rough], against)
    g = single([a.V for a in layers], [a.c for a in layers], [a.g for a in hidden], [a.g for a in rough], units)
    return Rows(*(mine[0] + yours[0] for mine, yours in zip(f, g, strict=True)))


def _dot(first: Floats, second: Floats) -> Floats:
    return np.asarray(np.einsum("...rn,rn->...r", first, second))


VERSIONS = ("low", "flat", "high")
MOST_BOXES = 32
MOST_NUMBERS = 4_000_000  # in one of some twenty arrays


class BoxBounds(NamedTuple):
    """Bounds of `g − f` per box and output, how much each input moves the worst of them through neurons of unknown
    sign (`smear`) and all outputs directly (`slant`), and the input that the bound points to."""

    low: Floats
    high: Floats
    smear: Floats
    slant: Floats
    corner: Floats


def boxes_together(pair: NetworkPair) -> int:
    """How many boxes to bound at a time: many, unless their rows would fill the memory."""
    width = max(int(max(layer.W.shape)) for layer in pair.layers)
    return max(1, min(MOST_BOXES, MOST_NUMBERS // (width * (1 + pair.inputs))))


def bound(pair: NetworkPair, low: Floats, high: Floats) -> BoxBounds:
    """Sound bounds over boxes given by their corners, of shape (boxes, n)."""
    return bound_with_hidden(pair, low, high)[0]


def bound_with_hidden(pair: NetworkPair, low: Floats, high: Floats) -> tuple[BoxBounds, list[Bounds]]:
    """The same, and what is known of every hidden layer, of shape (boxes, neurons)."""
    with np.errstate(all="ignore"):
        return _bound(pair, low, high)


def _bound(pair: NetworkPair, low: Floats, high: Floats) -> tuple[BoxBounds, list[Bounds]]:
    centre = low / 2 + high / 2
    radius = np.maximum(high - centre, centre - low)
    box = Box(centre, radius + ULP * np.abs(radius))
    nothing = np.zeros_like(low)
    entering = Bounds(low, high, low, high, nothing, nothing)
    known: list[Bounds] = []
    hidden: list[Hidden] = []
    rough: list[Roundings] = []
    layers: list[Layered] = []
    moves: list[Floats] = []
    live: Mask | None = None
    for number, whole in enumerate(pair.layers):
        layer = whole if live is None else whole.hearing(live)
        layers.append(layer)
        rough.append(sizes(layer, hidden[-1] if hidden else None, box))
        ends = _sum_intervals(layer, entering, rough[-1]).tighten()
        if number == len(pair.layers) - 1:
            return _outputs(layers, box, hidden, rough, ends, moves), known
        ends, moved = _refine(layers, hidden, rough, box, ends)
        known.append(ends)
        # Neurons that are zero in both networks on all of these boxes send nothing, exactly.
        live = ~((ends.y_high <= 0) & (ends.z_high <= 0) & (layer.slopes == 0)).all(axis=0)
        if not live.all():
            layers[-1], rough[-1] = layer.only(live), Roundings(*(ends[:, live] for ends in rough[-1]))
            ends, moved = Bounds(*(end[:, live] for end in ends)), moved[:, live]
        moves.append(moved)
        slopes = layers[-1].slopes
        f, g = lines(ends.y_low, ends.y_high, slopes), lines(ends.z_low, ends.z_high, slopes)
        hidden.append(Hidden(f, g, planes(ends, f, g, slopes)))
        entering = apply_activation(ends, slopes)
    raise AssertionError("a pair has at least one layer")


def _sum_intervals(layer: Layered, entering: Bounds, rough: Roundings) -> Bounds:
    """`y = W h + b`, `z = V k + c`, `z − y = V (k − h) + E h + e` from intervals of what enters."""
    size_W, size_V, size_E = layer.sizes
    (h, h_width), (k, k_width), (D, D_width) = (
        (low / 2 + high / 2, high / 2 - low / 2) for low, high in zip(entering[::2], entering[1::2], strict=True)
    )
    y, y_width = h @ layer.W.T + layer.b, h_width @ size_W.T + rough.f
    z, z_width = k @ layer.V.T + layer.c, k_width @ size_V.T + rough.g
    d = D @ layer.V.T + h @ layer.E.T + layer.e
    d_width = D_width @ size_V.T + h_width @ size_E.T + rough.difference
    return Bounds(y - y_width, y + y_width, z - z_width, z + z_width, d - d_width, d + d_width)


def apply_activation(ends: Bounds, slopes: Floats) -> Bounds:
    """Intervals of `φ(y)`, `φ(z)` and their difference, which is d times a slope between φ's two."""
    on, off = (ends.y_low >= 0) & (ends.z_low >= 0), (ends.y_high <= 0) & (ends.z_high <= 0)
    least, most = np.where(on, 1.0, slopes), np.where(off, slopes, 1.0)
    h_low, h_high, k_low, k_high = (np.where(end > 0, end, slopes * end) for end in ends[:4])
    D_low = np.where(ends.d_low < 0, most, least) * ends.d_low
    D_high = np.where(ends.d_high > 0, most, least) * ends.d_high
    D_low, D_high = np.fmax(D_low, k_low - h_high), np.fmin(D_high, k_high - h_low)
    pairs = ((h_low, -1), (h_high, 1), (k_low, -1), (k_high, 1), (D_low, -1), (D_high, 1))
    return Bounds(*(end + side * 4 * ULP * np.abs(end) for end, side in pairs))


def _refine(
    layers: list[Layered], hidden: list[Hidden], rough: list[Roundings], box: Box, ends: Bounds
) -> tuple[Bounds, Floats]:
    """Backward bounds for the neurons of unknown sign, and how much each input moves these, (boxes, neurons, n).

    On small boxes one version of the lines finds most signs that intervals leave open: only what it leaves open too
    has the other versions and the planes, which are three quarters of the work.
    """
    loose = _loose(ends)
    if not hidden:
        (in_f, in_g), radius = loose, box.radius[:, None]
        moved = np.abs(layers[-1].W) * radius * in_f[..., None] + np.abs(layers[-1].V) * radius * in_g[..., None]
        return ends, moved
    moved = np.zeros((*loose[0].shape, box.radius.shape[1]))
    bends = layers[-1].slopes != 1
    at, neuron = np.nonzero((loose[0] | loose[1]) & bends)
    if not len(at):
        return ends, moved
    apart = _apart(layers, hidden, rough, _both_sides(at, neuron), VERSIONS[:1])
    tightened = _tighten(ends, at, neuron, [rows.least(box, np.tile(at, 2))[0] for rows in apart])
    loose = _loose(tightened)
    for rows, looseness in zip(apart, loose, strict=True):
        moved[at, neuron] += np.abs(rows.coefficients[0, : len(at)]) * box.radius[at] * looseness[at, neuron][:, None]
    at, neuron = np.nonzero((loose[0] | loose[1]) & bends)
    if not len(at):
        return tightened, moved
    units = _both_sides(at, neuron)
    best = [np.fmax.reduce(rows.least(box, units.at)) for rows in _apart(layers, hidden, rough, units, VERSIONS[1:])]
    joint = bound_differences(layers, hidden, rough, units).least(box, units.at)
    return _tighten(tightened, at, neuron, [*best, joint]), moved


def _loose(ends: Bounds) -> tuple[Mask, Mask]:
    """Where signs are unknown in f and in g."""
    return (ends.y_low < 0) & (ends.y_high > 0), (ends.z_low < 0) & (ends.z_high > 0)


def _both_sides(at: Indices, neuron: Indices) -> Units:
    return Units(np.tile(neuron, 2), np.repeat([1.0, -1.0], len(at)), np.tile(at, 2))


def _apart(
    layers: list[Layered], hidden: list[Hidden], rough: list[Roundings], units: Units, versions: tuple[str, ...]
) -> tuple[Rows, Rows]:
    """Neurons of f and of g as rows on the inputs, each through its own network."""
    W, b, V, c = ([getattr(layer, name) for layer in layers] for name in "WbVc")
    return (
        single(W, b, [layer.f for layer in hidden], [layer.f for layer in rough], units, versions),
        single(V, c, [layer.g for layer in hidden], [layer.g for layer in rough], units, versions),
    )


def _tighten(ends: Bounds, at: Indices, neuron: Indices, best: list[Floats]) -> Bounds:
    """The bounds with better ones of some neurons and of their negatives: of f, of g and perhaps of the difference."""
    tighter = [end.copy() for end in ends]
    for which, least in enumerate(best):
        low, high = tighter[2 * which], tighter[2 * which + 1]
        low[at, neuron] = np.fmax(low[at, neuron], least[: len(at)])
        high[at, neuron] = np.fmin(high[at, neuron], -least[len(at) :])
    return Bounds(*tighter).tighten()


def _outputs(
    layers: list[Layered], box: Box, hidden: list[Hidden], rough: list[Roundings], ends: Bounds, moves: list[Floats]
) -> BoxBounds:
    boxes, outputs = len(box.centre), len(layers[-1].W)
    output, signs = np.tile(np.arange(outputs), 2 * boxes), np.tile(np.repeat([1.0, -1.0], outputs), boxes)
    units = Units(output, signs, np.repeat(np.arange(boxes), 2 * outputs))
    heard: list[Floats] = []
    joint = bound_differences(layers, hidden, rough, units, heard)
    apart = both(layers, hidden, rough, units)
    best = np.fmax(joint.least(box, units.at), apart.least(box, units.at)).reshape(boxes, 2, outputs)
    low, high = known_below(np.fmax(ends.d_low, best[:, 0])), -known_below(-np.fmin(ends.d_high, -best[:, 1]))
    worst = np.concatenate([low, -high], axis=1).argmin(axis=1) + np.arange(boxes) * 2 * outputs
    slant = np.abs(joint.coefficients).reshape(boxes, 2 * outputs, -1).sum(axis=1) * box.radius
    smear = np.zeros_like(box.centre)
    for weight, moved in zip(reversed(heard), moves, strict=True):
        smear += np.einsum("bni,bn->bi", moved, weight[worst])
    corner = box.centre - box.radius * np.sign(joint.coefficients[worst])  # where the bound's linear function is least
    return BoxBounds(low, high, smear, slant, corner)
