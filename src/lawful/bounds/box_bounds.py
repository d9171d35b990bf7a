"""Bounds of the difference of two networks on many boxes at once: forms forwards, then backwards where it matters."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from lawful.bounds import forms as forward
from lawful.bounds.crown import Box, Hidden, Roundings, Units, both, paired, single, sizes
from lawful.bounds.pair import Layered, NetworkPair
from lawful.bounds.planes import ULP, Bounds, Planes, known_below, planes
from lawful.network.relaxation import Lines, lines
from lawful.types import Floats, Mask

Relaxation = TypeVar("Relaxation", Lines, Planes)
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
    """How many boxes to bound at a time: many, unless their forms would fill the memory."""
    width = max(int(max(layer.W.shape)) for layer in pair.layers)
    return max(1, min(MOST_BOXES, MOST_NUMBERS // (width * (1 + pair.inputs))))


def bound(pair: NetworkPair, low: Floats, high: Floats) -> BoxBounds:
    """Sound bounds over boxes given by their corners, of shape (boxes, n)."""
    with np.errstate(all="ignore"):
        return _bound(pair, low, high, [])


def bound_with_hidden(pair: NetworkPair, low: Floats, high: Floats) -> tuple[BoxBounds, list[Bounds]]:
    """The same, and what is known of every hidden layer, of shape (neurons, boxes)."""
    known: list[Bounds] = []
    with np.errstate(all="ignore"):
        return _bound(pair, low, high, known), known


def hidden_bounds(pair: NetworkPair, low: Floats, high: Floats) -> list[Bounds]:
    """What is known of every hidden layer on one box, of shape (neurons,)."""
    _, known = bound_with_hidden(pair, low[None], high[None])
    return [Bounds(*(end[:, 0] for end in each)) for each in known]


def _bound(pair: NetworkPair, low: Floats, high: Floats, known: list[Bounds]) -> BoxBounds:
    centre = low / 2 + high / 2
    radius = np.maximum(high - centre, centre - low)
    box = Box(centre, radius + ULP * np.abs(radius))
    values = forward.start(*box)
    hidden: list[Hidden] = []
    rough: list[Roundings] = []
    layers: list[Layered] = []
    moved: list[Floats] = []
    below: Mask | None = None
    for number, whole in enumerate(pair.layers):
        layer = whole if below is None else whole.hearing(below)
        forms = forward.affine(layer, values, number == 0)
        found = forward.bounds_of(forms).tightened()
        rough.append(sizes(layer, hidden[-1] if hidden else None, box))
        layers.append(layer)
        if number == len(pair.layers) - 1:
            return _outputs(layers, box, hidden, rough, found, moved)
        if number:
            found = _refined(layers, hidden, rough, box, found)
        known.append(found)
        below = ~((found.y_high <= 0) & (found.z_high <= 0) & (layer.slopes == 0)[:, None]).all(axis=1)
        layers[-1], rough[-1], forms, found = _without(below, layer, rough[-1], forms, found)
        moved.append(forward.moves(forms, found))
        slopes = layers[-1].slopes[:, None]
        f, g = lines(found.y_low, found.y_high, slopes), lines(found.z_low, found.z_high, slopes)
        values = forward.activated(forms, found, f, g, slopes)
        hidden.append(Hidden(_turned(f), _turned(g), _turned(planes(found, f, g, slopes))))
    raise AssertionError("a pair has at least one layer")


def _without(
    live: Mask, layer: Layered, rough: Roundings, forms: forward.Trio, found: Bounds
) -> tuple[Layered, Roundings, forward.Trio, Bounds]:
    """A layer without the neurons that are silent in both networks on all of these boxes: they send exactly zero."""
    if live.all():
        return layer, rough, forms, found
    kept = [forward.Form(form.low[:, live], form.high[:, live]) for form in forms]
    return (
        layer.only(live),
        Roundings(*(each[:, live] for each in rough)),
        forward.Trio(*kept),
        Bounds(*(end[live] for end in found)),
    )


def _turned(arrays: Relaxation) -> Relaxation:
    """From (neurons, boxes) to (boxes, neurons)."""
    return type(arrays)(*(np.ascontiguousarray(array.T) for array in arrays))


def _refined(layers: list[Layered], hidden: list[Hidden], rough: list[Roundings], box: Box, found: Bounds) -> Bounds:
    """Backward bounds for the neurons of unknown sign."""
    y_low, y_high, z_low, z_high, _, _ = found
    bent = ((y_low < 0) & (y_high > 0)) | ((z_low < 0) & (z_high > 0))
    bent &= (layers[-1].slopes != 1)[:, None]
    at, neuron = np.nonzero(bent.T)
    if not len(at):
        return found
    units = Units(np.tile(neuron, 2), np.repeat([1.0, -1.0], len(at)), np.tile(at, 2))
    W, b, V, c = ([getattr(layer, name) for layer in layers] for name in "WbVc")
    f, g = [each.f for each in hidden], [each.g for each in hidden]
    f_rough, g_rough = [each.f for each in rough], [each.g for each in rough]
    of_y = np.fmax.reduce(single(W, b, f, f_rough, units, VERSIONS).least(box, units.at))
    of_z = np.fmax.reduce(single(V, c, g, g_rough, units, VERSIONS).least(box, units.at))
    of_d = paired(layers, hidden, rough, units).least(box, units.at)
    ends = [end.copy() for end in found]
    for which, best in enumerate((of_y, of_z, of_d)):
        place = neuron, at
        ends[2 * which][place] = np.fmax(ends[2 * which][place], best[: len(at)])
        ends[2 * which + 1][place] = np.fmin(ends[2 * which + 1][place], -best[len(at) :])
    return Bounds(*ends).tightened()


def _outputs(
    layers: list[Layered], box: Box, hidden: list[Hidden], rough: list[Roundings], found: Bounds, moved: list[Floats]
) -> BoxBounds:
    boxes, outputs = len(box.centre), len(layers[-1].W)
    each, signs = np.tile(np.arange(outputs), 2 * boxes), np.tile(np.repeat([1.0, -1.0], outputs), boxes)
    units = Units(each, signs, np.repeat(np.arange(boxes), 2 * outputs))
    heard: list[Floats] = []
    joint = paired(layers, hidden, rough, units, heard)
    apart = both(layers, hidden, rough, units)
    best = np.fmax(joint.least(box, units.at), apart.least(box, units.at)).reshape(boxes, 2, outputs)
    low, high = np.fmax(found.d_low.T, best[:, 0]), np.fmin(found.d_high.T, -best[:, 1])
    low, high = known_below(low), -known_below(-high)
    worst = np.concatenate([low, -high], axis=1).argmin(axis=1) + np.arange(boxes) * 2 * outputs
    slant = np.abs(joint.coefficients).reshape(boxes, 2 * outputs, -1).sum(axis=1) * box.radius
    smear = np.zeros_like(box.centre)
    for weight, move in zip(reversed(heard), moved, strict=True):
        smear += np.einsum("inb,bn->bi", move, weight[worst])
    return BoxBounds(low, high, smear, slant, _corner(box, joint.coefficients[worst]))


def _corner(box: Box, coefficients: Floats) -> Floats:
    """Where a linear function is least."""
    return np.asarray(box.centre - box.radius * np.sign(coefficients))
