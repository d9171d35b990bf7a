"""A network as float64 matrices with bounds for every rounding, for checks of trees of phases and halves.

Every number of a pass is a double, and the argument is always the same: the *computed* row is taken as the definition
of the next function, and what was lost in computing it is bounded. A row on sums z with `|z| <= size` whose
coefficients were computed with a relative error g changes the function by at most `g |row| · size`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.verify.bounds.network import Floats, Indices, Matrix, PackedLayer, rows_of
from lawful.verify.core.schema import require

ULP = 2.0**-53
# Coefficients below the smallest normal double err by up to n·2^-1074 each and act on values of at most LARGEST:
# for widths below 10^6 this is under 10^-250 a layer, and TINY covers 10^9 of them.
LARGEST = 1e60
TINY = 1e-240


def fold_mirrors(layers: list[PackedLayer]) -> list[PackedLayer]:
    """The same function in real numbers with fewer bends: `max(-z, 0) = max(z, 0) - z`.

    Where two neurons of slope 0 compute z and -z, number for number, the second becomes linear and every reader adds
    its weight of the second to that of the first, if no such sum rounds. A neuron without readers becomes linear too.
    """
    folded = list(layers)
    for at in range(len(folded) - 1):
        weight, bias, slopes = folded[at]
        readers, slopes = folded[at + 1].weight, slopes.copy()
        pairs = mirrored_neurons(weight, bias, slopes)
        if len(pairs):
            one, two = readers[:, pairs[:, 0]], readers[:, pairs[:, 1]]
            total = one + two
            # Knuth's sum of two: nothing was rounded iff each part is the difference of the total and the other.
            rounded = _column_sizes(total - one - two) + _column_sizes(total - two - one) > 0
            pairs, two = pairs[~rounded], two[:, ~rounded]
            slopes[pairs[:, 1]] = 1.0
            readers = _add_columns(readers, pairs[:, 0], two)
        slopes[_column_sizes(readers) == 0] = 1.0
        folded[at], folded[at + 1] = PackedLayer(weight, bias, slopes), folded[at + 1]._replace(weight=readers)
    return folded


def mirrored_neurons(weight: Matrix, bias: Floats, slopes: Floats) -> Indices:
    """Pairs of neurons of slope 0 with sums z and -z, each neuron in one at most."""
    rows: dict[bytes, int] = {}
    pairs: list[tuple[int, int]] = []
    for neuron in np.flatnonzero(slopes == 0):
        row = np.append(rows_of(weight, np.array([neuron]))[0], bias[neuron])
        places = np.flatnonzero(row)
        name, mirror = (places.tobytes() + values.tobytes() for values in (row[places], -row[places]))
        if mirror in rows:
            pairs.append((rows.pop(mirror), int(neuron)))
        else:
            rows[name] = int(neuron)
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def _column_sizes(matrix: Matrix) -> Floats:
    return np.asarray(abs(matrix).sum(axis=0)).ravel()


def _add_columns(matrix: Matrix, places: Indices, columns: Matrix) -> Matrix:
    """The matrix with some more at some of its columns."""
    if isinstance(matrix, np.ndarray):
        found = matrix.copy()
        found[:, places] += columns
        return found
    row, column = columns.nonzero()
    values = np.asarray(columns[row, column]).ravel()
    return matrix + type(matrix)((values, (row, places[column])), shape=matrix.shape)


class LinearChain(NamedTuple):
    """A layer's sums on the last layer below that is not linear (`below`, -1 for the inputs): matrix and shift,
    what computing them and one product with them lost."""

    matrix: Matrix
    size: Matrix  # its absolute values
    shift: Floats
    lost: Floats
    below: int


class SizedTower:
    """Hidden layers `h = max(z, 0) + s min(z, 0)`, `z = W h + b`, a last linear layer, and sizes of all sums."""

    def __init__(self, layers: list[PackedLayer], xsize: Floats, longest: int) -> None:
        """`xsize` bounds the inputs; `longest` is the length of the longest case."""
        layers = fold_mirrors(layers)
        self.weights: list[Matrix] = [layer.weight for layer in layers]
        self.biases: list[Floats] = [layer.bias for layer in layers]
        self.slopes: list[Floats] = [layer.slopes for layer in layers[:-1]]
        self.linear = [bool((slopes == 1).all()) for slopes in self.slopes]
        require(bool((layers[-1].slopes == 1).all()), "the last layer is not linear")
        self.depth: int = len(layers) - 1
        self.cuts: NDArray[np.intp] = np.cumsum([0, *(len(bias) for bias in self.biases[:-1])])
        self.count: int = int(self.cuts[-1])
        self.xsize = xsize
        # Coefficients on inputs underflow as those on sums do: a weight may be tiny and what it acts on huge.
        require(bool((xsize <= LARGEST).all()), "the box is too large for this check")
        # A dot product of n terms errs by n ulp, twice a layer, and a constant passes two additions a layer: 2n + 4H.
        most = max(longest, *(max(weight.shape) for weight in self.weights))
        self.g: float = 2 * (most + 2 * self.depth + 16) * ULP
        self.measure(np.full(self.count, np.inf))

    def part(self, flat: NDArray[Any], layer: int) -> NDArray[Any]:
        """The columns of one hidden layer, a view."""
        return flat[..., self.cuts[layer] : self.cuts[layer + 1]]

    def measure(self, known: Floats) -> None:
        """`sizes[k] >= |W| |h| + |b|`, term by term, for all inputs of the box, given bounds of the sums' sizes."""
        self.sizes: list[Floats] = []
        values = self.xsize
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            self.sizes.append((abs(weight) @ values + np.abs(bias)) * (1 + 2 * self.g) + TINY)
            require(bool((self.sizes[-1] <= LARGEST).all()), "the network's values are too large for this check")
            if layer < self.depth:
                values = np.minimum(self.sizes[layer], self.part(known, layer))
        self.chains = [self._chain(layer) for layer in range(self.depth)]

    def _chain(self, layer: int) -> LinearChain:
        matrix, shift, below = self.weights[layer], self.biases[layer], layer - 1
        lost = np.zeros(len(shift))
        while below >= 0 and self.linear[below]:
            lost = lost + self.g * (abs(matrix) @ self.sizes[below])
            shift = shift + matrix @ self.biases[below]
            matrix, below = matrix @ self.weights[below], below - 1
        size = self.xsize if below < 0 else self.sizes[below]
        lost = 1.01 * (lost + self.g * (abs(matrix) @ size + np.abs(shift))) + TINY
        return LinearChain(matrix, abs(matrix), shift, lost, below)


class PhaseLines(NamedTuple):
    """Of one layer, (nodes, neurons): loose neurons, the upper line, and the usual lower slope."""

    loose: NDArray[np.bool_]
    up: Floats
    shift: Floats
    low: Floats


def lines_of(slope: Floats, least: Floats, most: Floats) -> PhaseLines:
    """Lines around a layer's activations; exact where a sign is known."""
    loose = (least < 0) & (most > 0) & (slope < 1)
    fixed = np.where(least >= 0, 1.0, slope)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        up = np.where(loose, np.clip((most - slope * least) / (most - least), slope, 1.0), fixed)
    # Whatever slope came out, the line is lifted above both ends of the convex activation, so above all between.
    lift = np.maximum(slope * least - up * least, most - up * most) + 8 * ULP * (np.abs(least) + np.abs(most))
    usual = np.where(loose, np.where(most >= -0.999 * least, 1.0, slope), fixed)
    return PhaseLines(loose, up, np.where(loose, np.maximum(lift, 0.0), 0.0), usual)


class BoundedRows(NamedTuple):
    """Functions `rows · x + constant - lost` of the inputs, each at most the function that it stands for."""

    rows: Floats
    constant: Floats
    lost: Floats

    def least(self, tower: SizedTower, low: Floats, high: Floats) -> Floats:
        """At most the least value of each on its box."""
        value = self.constant + np.einsum("pn,pn->p", np.maximum(self.rows, 0), low)
        value = value + np.einsum("pn,pn->p", np.minimum(self.rows, 0), high)
        lost = self.lost + tower.g * (np.abs(self.rows) @ tower.xsize + np.abs(self.constant))
        return np.asarray(value - 1.01 * lost - TINY)


def substitute(
    tower: SizedTower,
    rows: BoundedRows,
    lines: list[PhaseLines],
    at: Indices,
    slopes: Floats | None = None,
    pushes: Floats | None = None,
) -> BoundedRows:
    """Functions of the activations of the last layer of `lines` as functions of the inputs; row i is of node `at[i]`.

    A positive coefficient takes a lower line, whose slope is any number in [s, 1] (`slopes`, clipped to that), a
    negative one the upper line. `pushes` are `S β` with `β >= 0` where `S z >= 0` is known: `-S β z` is at most 0.
    """
    on, constant, lost = rows
    for layer in range(len(lines) - 1, -1, -1):
        size = np.abs(on)
        if not tower.linear[layer]:  # else both lines are the identity
            loose, up, shift, low = (each[at] for each in lines[layer])
            if slopes is not None:
                low = np.where(loose, np.clip(tower.part(slopes, layer), tower.slopes[layer], 1.0), up)
            negative = np.minimum(on, 0.0)
            constant = constant + np.einsum("pn,pn->p", negative, shift)
            on = (on - negative) * low + negative * up
        if pushes is not None:
            push = tower.part(pushes, layer)
            on, size = on - push, size + np.abs(push)
        lost = lost + tower.g * (size @ tower.sizes[layer])
        constant = constant + on @ tower.biases[layer]
        on = on @ tower.weights[layer]
    return BoundedRows(on, constant, lost)
