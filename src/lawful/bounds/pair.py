"""Two networks side by side: neurons of the second in the order and scale of those of the first that they resemble."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment

from lawful.bounds.layers import Layer, pad_depth
from lawful.network.relaxation import TINY
from lawful.types import Floats, Indices, Mask

UNIT = 2.0**-53  # half the distance from 1 to the next double
SNAP = 1.1  # a neuron is rescaled only if that brings its weights closer by more than this factor


@dataclass(frozen=True, eq=False)
class Matching:
    """Which neuron of each network stands at each place of a hidden layer (−1: none), and the second one's factor."""

    first: Indices
    second: Indices
    scale: Floats


@dataclass(frozen=True, eq=False)
class Layered:
    """One layer of the pair: `y = W h + b`, `z = V k + c`, and `z − y = V (k − h) + E h + e`.

    `doubt` bounds `|E − (V − W)|` entry by entry, where V and W are meant exactly, and `shift_doubt` the same for e.
    """

    W: Floats
    b: Floats
    V: Floats
    c: Floats
    E: Floats
    e: Floats
    doubt: Floats
    shift_doubt: Floats
    slopes: Floats

    @cached_property
    def sizes(self) -> tuple[Floats, Floats, Floats]:
        """`|W|`, `|V|` and `|E|`."""
        return np.abs(self.W), np.abs(self.V), np.abs(self.E)

    def hearing(self, below: Mask) -> Layered:
        """What it does with some of the neurons below."""
        W, V, E, doubt = (matrix[:, below] for matrix in (self.W, self.V, self.E, self.doubt))
        return Layered(W, self.b, V, self.c, E, self.e, doubt, self.shift_doubt, self.slopes)

    def only(self, neurons: Mask) -> Layered:
        """Some of its neurons."""
        return Layered(*(getattr(self, field.name)[neurons] for field in fields(self)))

    @property
    def same(self) -> bool:
        """Whether the two layers are exactly equal."""
        return not (self.E.any() or self.e.any() or self.doubt.any() or self.shift_doubt.any())


@dataclass(frozen=True, eq=False)
class NetworkPair:
    """Two networks of one shape, and the matching of neurons that made it so."""

    layers: tuple[Layered, ...]
    matches: tuple[Matching, ...]
    first: tuple[Layer, ...]
    second: tuple[Layer, ...]

    @property
    def inputs(self) -> int:
        """How many inputs both have."""
        return int(self.layers[0].W.shape[1])

    @property
    def outputs(self) -> int:
        """How many outputs both have."""
        return len(self.layers[-1].W)

    @property
    def same(self) -> bool:
        """Whether the networks are equal after exact permutations and rescalings: their difference is 0."""
        return all(layer.same for layer in self.layers)


def align(first: tuple[Layer, ...], second: tuple[Layer, ...]) -> NetworkPair:
    """Match hidden neurons layer by layer: the best assignment on the cosines of rows `[W | b]`, then positive factors.

    >>> from lawful.bounds.layers import layers_of
    >>> from lawful.network import Mlp
    >>> one, other = Mlp([[[1.0], [-2.0]], [[3.0, 4.0]]]), Mlp([[[-1.0], [2.0]], [[8.0, 1.5]]])
    >>> pair = align(layers_of(one), layers_of(other))
    >>> pair.matches[0].second, pair.matches[0].scale, pair.same
    (array([1, 0]), array([0.5, 2. ]), True)
    """
    depth = max(len(first), len(second))
    ours, theirs = pad_depth(first, depth), pad_depth(second, depth)
    below = _identity(ours[0].weight.shape[1])
    layers, matches = [], []
    for number, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
        W, V = _columns(mine.weight, below.first), _columns(yours.weight, below.second)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = V / below.scale
            here = _match(mine, yours, W, scaled) if number < depth - 1 else _identity(len(mine.weight))
            W, b = _rows(W, here.first), _rows(mine.bias, here.first)
            plain, shift = _rows(V, here.second), _rows(yours.bias, here.second)
            V, c = _rows(scaled, here.second) * here.scale[:, None], shift * here.scale
            E, e = V - W, c - b
            exact = _powers_of_two(below.scale) and _powers_of_two(here.scale)
            exact_V = exact & (V / here.scale[:, None] * below.scale == plain)
            exact_c = exact & (c / here.scale == shift)
            doubt = np.where(_exact_difference(V, W, E), 0.0, 2 * UNIT * np.abs(E))
            doubt += np.where(exact_V, 0.0, 4 * UNIT * np.abs(V) + TINY)
            shift_doubt = np.where(_exact_difference(c, b, e), 0.0, 2 * UNIT * np.abs(e))
            shift_doubt += np.where(exact_c, 0.0, 4 * UNIT * np.abs(c) + TINY)
        slopes = np.where(here.first >= 0, _rows(mine.slopes, here.first), _rows(yours.slopes, here.second))
        layers.append(Layered(W, b, V, c, E, e, doubt, shift_doubt, slopes))
        if number < depth - 1:
            matches.append(here)
        below = here
    return NetworkPair(tuple(layers), tuple(matches), ours, theirs)


def _identity(count: int) -> Matching:
    return Matching(np.arange(count), np.arange(count), np.ones(count))


def _match(mine: Layer, yours: Layer, W: Floats, V: Floats) -> Matching:
    """The assignment, between neurons of one slope only; what is left over stands alone."""
    A, B = np.column_stack([W, mine.bias]), np.column_stack([V, yours.bias])
    first, second = [], []
    for slope in np.unique(np.concatenate([mine.slopes, yours.slopes])):
        rows, columns = np.flatnonzero(mine.slopes == slope), np.flatnonzero(yours.slopes == slope)
        chosen = linear_sum_assignment(-_directions(A[rows]) @ _directions(B[columns]).T)
        first += [*rows[chosen[0]], *np.delete(rows, chosen[0]), *[-1] * (len(columns) - len(chosen[1]))]
        second += [*columns[chosen[1]], *[-1] * (len(rows) - len(chosen[0])), *np.delete(columns, chosen[1])]
    order = np.argsort([place if place >= 0 else len(A) for place in first], kind="stable")
    ours, theirs = (np.array(places, dtype=np.intp)[order] for places in (first, second))
    scale = [_factor(A[i], B[j]) if i >= 0 and j >= 0 else 1.0 for i, j in zip(ours, theirs, strict=True)]
    return Matching(ours, theirs, np.array(scale))


def _directions(rows: Floats) -> Floats:
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def _factor(mine: Floats, yours: Floats) -> float:
    """The positive number that brings most of one row to the other: a weighted median of ratios, or 1 if that serves.

    >>> _factor(np.array([1.0, 2.0, 0.0]), np.array([0.5, 1.0, 9e-3]))
    2.0
    """
    used = yours != 0
    with np.errstate(over="ignore", under="ignore"):
        ratios = mine[used] / yours[used]
        order = np.argsort(ratios)
        weight = np.cumsum(np.abs(yours[used])[order] / (np.abs(yours).max() if used.any() else 1.0))
        if not used.any() or not np.isfinite(ratios).all():
            return 1.0
        factor = float(ratios[order][np.searchsorted(weight, weight[-1] / 2)])
        if not 0 < factor < np.inf or np.abs(mine - yours).sum() <= SNAP * np.abs(mine - factor * yours).sum():
            return 1.0
    return factor


def _powers_of_two(scale: Floats) -> bool:
    return bool((np.frexp(scale)[0] == 0.5).all())


def _exact_difference(a: Floats, b: Floats, difference: Floats) -> Floats:
    """Where the float `a − b` is the difference itself (Knuth's two-sum has no remainder)."""
    virtual = difference - a
    return np.asarray((a - (difference - virtual)) - (b + virtual) == 0)


def _columns(matrix: Floats, places: Indices) -> Floats:
    return _rows(matrix.T, places).T


def _rows(array: Floats, places: Indices) -> Floats:
    """Rows at their places, zero where there is none."""
    table = np.zeros((len(places), *array.shape[1:]))
    table[places >= 0] = array[places[places >= 0]]
    return table
