"""Bounds of the slopes of a network in some of its inputs, on many boxes at once.

For two inputs of one box that differ in one coordinate, `φ(z') − φ(z) = τ (z' − z)` with τ between φ's two slopes, and
known where the sign of z is. So the outputs differ by `W τ … τ W` times the coordinate's difference, and an interval
for every τ gives one for the slope. Sums of numbers of one sign keep it however they are rounded: a slope that cannot
be negative is not called so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.bounds.box_bounds import BoxBounds, bound_with_hidden
from lawful.bounds.pair import NetworkPair
from lawful.bounds.planes import ULP, Bounds
from lawful.network.relaxation import TINY
from lawful.types import Floats


class Growth(NamedTuple):
    """An input in which outputs must not fall (`rising`), or must not rise."""

    input: int
    rising: bool


def slope_bounds(
    pair: NetworkPair, low: Floats, high: Floats, *, directions: tuple[Growth, ...], outputs: tuple[int, ...]
) -> BoxBounds:
    """Lower bounds of the slopes in their wanted direction, a column for each direction and output.

    The first network of the pair is nothing.
    """
    with np.errstate(all="ignore"):
        bounds, hidden = bound_with_hidden(pair, low, high)
        below, above = _slopes(pair, hidden, [direction.input for direction in directions], len(low))
    ways = [below[:, at] if direction.rising else -above[:, at] for at, direction in enumerate(directions)]
    wanted = np.concatenate([way[:, outputs] for way in ways], axis=1)
    columns = np.where(np.isnan(wanted), -np.inf, wanted)
    return BoxBounds(columns, columns, bounds.smear, bounds.slant, low / 2 + high / 2)


def _slopes(pair: NetworkPair, hidden: list[Bounds], inputs: list[int], boxes: int) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the slopes of all outputs, of shape (boxes, directions, outputs)."""
    low = high = np.repeat(pair.layers[0].V[:, inputs].T[None], boxes, axis=0)
    for below, layer, known in zip(pair.layers[:-1], pair.layers[1:], hidden, strict=True):
        least = np.where(known.z_low >= 0, 1.0, below.slopes)[:, None]
        most = np.where(known.z_high <= 0, below.slopes, 1.0)[:, None]
        low, high = _times(low, least, most), -_times(-high, least, most)
        low, high = _sum_below(layer.V, low, high), -_sum_below(layer.V, -high, -low)
    return low, high


def _times(low: Floats, least: Floats, most: Floats) -> Floats:
    """Lower bounds of the product of numbers at least `low` with factors between two nonnegative ones."""
    factor = np.where(low < 0, most, least)
    product = low * factor
    # What underflows is taken off as well: weights above may be as large as doubles are.
    rounded = np.where((factor == 0) | (factor == 1), 0.0, 4 * ULP * np.abs(product) + TINY)
    return np.asarray(np.where((low < 0) & (factor > 0), product - rounded, np.maximum(product - rounded, 0.0)))


def _sum_below(matrix: Floats, low: Floats, high: Floats) -> Floats:
    """Lower bounds of `matrix @ v` for `low <= v <= high`: what pulls up and what pulls down are summed apart."""
    positive, negative = np.maximum(matrix, 0.0).T, np.maximum(-matrix, 0.0).T
    up = np.maximum(low, 0.0) @ positive + np.maximum(-high, 0.0) @ negative
    down = np.maximum(-low, 0.0) @ positive + np.maximum(high, 0.0) @ negative
    pulled = (low < 0) @ (positive > 0).astype(np.float64) + (high > 0) @ (negative > 0).astype(np.float64) > 0
    room = 4 * (matrix.shape[1] + 8) * ULP
    return np.asarray(np.where(pulled, up - down - room * (up + down) - TINY, np.maximum(up * (1 - room) - TINY, 0.0)))
