"""Bounds of the difference of two networks on many boxes at once: intervals, then lines backwards where signs are open.

Idea: layer by layer, intervals from the layer below decide which neurons have an unknown sign; those alone are bounded
again by substituting lines and planes backwards to the inputs (`crown`), and their relaxations follow from that.
Invariant: `y_low <= y <= y_high` (f), the same of z (g) and of `d = z − y` for every input of the box, roundings
included. Cost: one pass backwards for every neuron of unknown sign (Zhang et al., *CROWN*, 2018); the planes around
a difference are those of Paulsen et al., *NeuroDiff*, 2020.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.bounds.crown import Box, Hidden, Roundings, Units, both, paired, single, sizes
from lawful.bounds.pair import Layered, NetworkPair
from lawful.bounds.planes import ULP, Bounds, known_below, planes
from lawful.network.relaxation import lines
from lawful.types import Floats, Mask

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
        ends = _sum_intervals(layer, entering, rough[-1]).tightened()
        if number == len(pair.layers) - 1:
            return _outputs(layers, box, hidden, rough, ends, moves), known
        ends, moved = _refine(layers, hidden, rough, box, ends)
        known.append(ends)
        # Neurons that are zero in both networks on all of these boxes send nothing, exactly.
        live = ~((ends.y_high <= 0) & (ends.z_high <= 0) & (layer.slopes == 0)).all(axis=0)
        if not live.all():
            layers[-1], rough[-1] = layer.only(live), Roundings(*(each[:, live] for each in rough[-1]))
            ends, moved = Bounds(*(end[:, live] for end in ends)), moved[:, live]
        moves.append(moved)
        slopes = layers[-1].slopes
        f, g = lines(ends.y_low, ends.y_high, slopes), lines(ends.z_low, ends.z_high, slopes)
        hidden.append(Hidden(f, g, planes(ends, f, g, slopes)))
        entering = activated(ends, slopes)
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


def activated(ends: Bounds, slopes: Floats) -> Bounds:
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
    """Backward bounds for the neurons of unknown sign, and how much each input moves these, (boxes, neurons, n)."""
    loose_y, loose_z = (ends.y_low < 0) & (ends.y_high > 0), (ends.z_low < 0) & (ends.z_high > 0)
    bends = layers[-1].slopes != 1
    if not hidden:
        last, radius = layers[-1], box.radius[:, None]
        moved = np.abs(last.W) * radius * loose_y[..., None] + np.abs(last.V) * radius * loose_z[..., None]
        return ends, moved
    moved = np.zeros((*loose_y.shape, box.radius.shape[1]))
    at, neuron = np.nonzero((loose_y | loose_z) & bends)
    if not len(at):
        return ends, moved
    units = Units(np.tile(neuron, 2), np.repeat([1.0, -1.0], len(at)), np.tile(at, 2))
    W, b, V, c = ([getattr(layer, name) for layer in layers] for name in "WbVc")
    of_f = single(W, b, [each.f for each in hidden], [each.f for each in rough], units, VERSIONS)
    of_g = single(V, c, [each.g for each in hidden], [each.g for each in rough], units, VERSIONS)
    of_d = paired(layers, hidden, rough, units)
    best = [
        np.fmax.reduce(of_f.least(box, units.at)), np.fmax.reduce(of_g.least(box, units.at)),
        of_d.least(box, units.at),
    ]  # fmt: skip
    tighter = [end.copy() for end in ends]
    for which, least in enumerate(best):
        low, high = tighter[2 * which], tighter[2 * which + 1]
        low[at, neuron] = np.fmax(low[at, neuron], least[: len(at)])
        high[at, neuron] = np.fmin(high[at, neuron], -least[len(at) :])
    found = Bounds(*tighter).tightened()
    for rows, low, high in ((of_f, found.y_low, found.y_high), (of_g, found.z_low, found.z_high)):
        loose = (low[at, neuron] < 0) & (high[at, neuron] > 0)
        moved[at, neuron] += np.abs(rows.coefficients[0, : len(at)]) * box.radius[at] * loose[:, None]
    return found, moved


def _outputs(
    layers: list[Layered], box: Box, hidden: list[Hidden], rough: list[Roundings], ends: Bounds, moves: list[Floats]
) -> BoxBounds:
    boxes, outputs = len(box.centre), len(layers[-1].W)
    each, signs = np.tile(np.arange(outputs), 2 * boxes), np.tile(np.repeat([1.0, -1.0], outputs), boxes)
    units = Units(each, signs, np.repeat(np.arange(boxes), 2 * outputs))
    heard: list[Floats] = []
    joint = paired(layers, hidden, rough, units, heard)
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
