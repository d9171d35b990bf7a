"""Bounds of the difference of two networks on many boxes at once: forms forwards, then backwards where it matters."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from lawful.fibers.distance import forms as forward
from lawful.fibers.distance.backward import Box, Hidden, Roundings, both, paired, single, sizes
from lawful.fibers.distance.pair import NetworkPair
from lawful.fibers.distance.relaxations import ULP, Bounds, Planes, known_below, planes
from lawful.network.relaxation import Lines, lines
from lawful.types import Floats

Relaxation = TypeVar("Relaxation", Lines, Planes)
VERSIONS = ("low", "flat")
MOST_BOXES = 64
MOST_NUMBERS = 4_000_000  # in one of some twenty arrays


class BoxBounds(NamedTuple):
    """Bounds of `g − f` per box and output, how much each input moves neurons of unknown sign (`smear`)
    and the outputs themselves (`slant`), and the input that the bound points to."""

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


def hidden_bounds(pair: NetworkPair, low: Floats, high: Floats) -> list[Bounds]:
    """What is known of every hidden layer on one box, of shape (neurons,)."""
    known: list[Bounds] = []
    with np.errstate(all="ignore"):
        _bound(pair, low[None], high[None], known)
    return [Bounds(*(end[:, 0] for end in each)) for each in known]


def _bound(pair: NetworkPair, low: Floats, high: Floats, known: list[Bounds]) -> BoxBounds:
    centre = low / 2 + high / 2
    radius = np.maximum(high - centre, centre - low)
    box = Box(centre, radius + ULP * np.abs(radius))
    values = forward.start(*box)
    hidden: list[Hidden] = []
    rough: list[Roundings] = []
    smear = np.zeros_like(low)
    for number, layer in enumerate(pair.layers):
        forms = forward.affine(layer, values, number == 0)
        found = forward.bounds_of(forms).tightened()
        rough.append(sizes(layer, hidden[-1] if hidden else None, box))
        if number == len(pair.layers) - 1:
            return _outputs(pair, box, hidden, rough, found, smear)
        if number:
            found = _refined(pair, number, hidden, rough, box, found)
        known.append(found)
        smear += forward.smear(forms, found)
        slopes = layer.slopes[:, None]
        f, g = lines(found.y_low, found.y_high, slopes), lines(found.z_low, found.z_high, slopes)
        values = forward.activated(forms, found, f, g, slopes)
        hidden.append(Hidden(_turned(f), _turned(g), _turned(planes(found, f, g, slopes))))
    raise AssertionError("a pair has at least one layer")


def _turned(arrays: Relaxation) -> Relaxation:
    """From (neurons, boxes) to (boxes, neurons)."""
    return type(arrays)(*(np.ascontiguousarray(array.T) for array in arrays))


def _refined(
    pair: NetworkPair, number: int, hidden: list[Hidden], rough: list[Roundings], box: Box, found: Bounds
) -> Bounds:
    """Backward bounds for the neurons of unknown sign."""
    y_low, y_high, z_low, z_high, _, _ = found
    bent = ((y_low < 0) & (y_high > 0)) | ((z_low < 0) & (z_high > 0))
    bent &= (pair.layers[number].slopes != 1)[:, None]
    at, neuron = np.nonzero(bent.T)
    if not len(at):
        return found
    rows = np.zeros((2 * len(at), len(bent)))
    rows[np.arange(len(at)), neuron] = 1.0
    rows[len(at) + np.arange(len(at)), neuron] = -1.0
    twice = np.concatenate([at, at])
    layers = pair.layers[: number + 1]
    W, b, V, c = ([getattr(layer, name) for layer in layers] for name in "WbVc")
    f, g = [each.f for each in hidden], [each.g for each in hidden]
    f_rough, g_rough = [each.f for each in rough], [each.g for each in rough]
    of_y = [single(W, b, f, f_rough, rows, twice, version).least(box, twice) for version in VERSIONS]
    of_z = [single(V, c, g, g_rough, rows, twice, version).least(box, twice) for version in VERSIONS]
    of_d = [paired(layers, hidden, rough, rows, twice).least(box, twice)]
    ends = [end.copy() for end in found]
    for which, bounds in enumerate((of_y, of_z, of_d)):
        best = np.fmax.reduce(bounds)
        place = neuron, at
        ends[2 * which][place] = np.fmax(ends[2 * which][place], best[: len(at)])
        ends[2 * which + 1][place] = np.fmin(ends[2 * which + 1][place], -best[len(at) :])
    return Bounds(*ends).tightened()


def _outputs(
    pair: NetworkPair, box: Box, hidden: list[Hidden], rough: list[Roundings], found: Bounds, smear: Floats
) -> BoxBounds:
    boxes, outputs = len(box.centre), pair.outputs
    rows = np.tile(np.concatenate([np.eye(outputs), -np.eye(outputs)]), (boxes, 1))
    at = np.repeat(np.arange(boxes), 2 * outputs)
    joint = paired(pair.layers, hidden, rough, rows, at)
    apart = both(pair, hidden, rough, rows, at)
    best = np.fmax(joint.least(box, at), apart.least(box, at)).reshape(boxes, 2, outputs)
    low, high = np.fmax(found.d_low.T, best[:, 0]), np.fmin(found.d_high.T, -best[:, 1])
    low, high = known_below(low), -known_below(-high)
    worst = np.concatenate([low, -high], axis=1).argmin(axis=1) + np.arange(boxes) * 2 * outputs
    slant = np.abs(joint.coefficients).reshape(boxes, 2 * outputs, -1).sum(axis=1) * box.radius
    return BoxBounds(low, high, smear, slant, _corner(box, joint.coefficients[worst]))


def _corner(box: Box, coefficients: Floats) -> Floats:
    """Where a linear function is least."""
    return np.asarray(box.centre - box.radius * np.sign(coefficients))
