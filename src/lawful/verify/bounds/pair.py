"""Two networks as matched layers: the matrices of both and of their difference, with what rescaling rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lawful.errors import Unsupported
from lawful.verify.bounds.network import Floats, Indices, PackedLayer
from lawful.verify.core.schema import limit_cost, require

MOST_ENTRIES = 60_000_000  # of all layers of a pair: three matrices of doubles, 1.4 GB
EXTREME = 2.0**960  # factors within this and its inverse are normal doubles, however they are divided
# The largest relative error of one rounding to nearest.
UNIT = 2.0**-53
TINY = 1e-312  # far more than underflows lose: each loses less than 1e-323


@dataclass(frozen=True, eq=False)
class Shared:
    """One layer of both: `y = W h + b`, `z = V k + c`, `z - y = V (k - h) + E h + e`.

    W and b are exact. V and c are off by less than 4 roundings, E and e by one more and by `doubt` and `shift_doubt`,
    which are all zero only if nothing was rounded before the difference.
    """

    W: Floats
    V: Floats
    E: Floats
    b: Floats
    c: Floats
    e: Floats
    slopes: Floats
    doubt: Floats
    shift_doubt: Floats

    @property
    def matrices(self) -> tuple[Floats, Floats]:
        """Of f and of g."""
        return self.W, self.V

    @property
    def biases(self) -> tuple[Floats, Floats]:
        """Of f and of g."""
        return self.b, self.c

    @property
    def same(self) -> bool:
        """Whether both are the same layer, exactly: a difference of doubles is zero only for equal ones."""
        return not (self.E.any() or self.e.any() or self.doubt.any() or self.shift_doubt.any())


class Places(NamedTuple):
    """Neurons of the two networks at each place of a hidden layer (−1: none), and a positive factor for the second."""

    first: Indices
    second: Indices
    scale: Floats

    @staticmethod
    def identity(count: int) -> Places:
        """Every neuron at its own place."""
        return Places(np.arange(count), np.arange(count), np.ones(count))


def deepen(layers: list[PackedLayer], depth: int) -> list[PackedLayer]:
    """The same function in more layers: what is below the outputs passes through neurons of slope 1."""
    width = layers[-1].weight.shape[1]
    extra = PackedLayer(np.eye(width), np.zeros(width), np.ones(width))
    return [*layers[:-1], *[extra] * (depth - len(layers)), layers[-1]]


def share_layers(
    first: list[PackedLayer], second: list[PackedLayer], matches: list[Places], inputs: int
) -> list[Shared]:
    """The pair after the matching."""
    limit_dense([len(mine.bias) + len(yours.bias) for mine, yours in zip(first, second, strict=True)], inputs)
    before, pairs = Places.identity(inputs), []
    for number, (mine, yours) in enumerate(zip(first, second, strict=True)):
        here = matches[number] if number < len(matches) else Places.identity(len(mine.bias))
        _check_match(here, mine, yours)
        W, b = _place(mine, before.first, here.first)
        V, c = _place(yours, before.second, here.second)
        V, doubt = _rescale(V, here.scale[:, None], before.scale)
        c, shift_doubt = _rescale(c, here.scale, np.ones(len(c)))
        slopes = np.ones(len(here.first))
        for places, layer in ((here.second, yours), (here.first, mine)):
            slopes[places >= 0] = layer.slopes[places[places >= 0]]
        pairs.append(Shared(W, V, V - W, b, c, c - b, slopes, doubt, shift_doubt))
        before = here
    return pairs


def beside_nothing(layers: list[PackedLayer], inputs: int) -> list[Shared]:
    """One network beside one of the same shape whose weights are all zero."""
    limit_dense([len(layer.bias) for layer in layers], inputs)
    pairs = []
    for layer in layers:
        V, c = _place(layer, np.arange(layer.weight.shape[1]), np.arange(len(layer.bias)))
        none, nothing = np.zeros_like(V), np.zeros_like(c)
        pairs.append(Shared(none, V, V, nothing, c, c, layer.slopes, none, nothing))
    return pairs


def limit_dense(widths: Sequence[int], inputs: int) -> None:
    """Refuse layers that are large as matrices, whatever their rows hold, and a pass through which takes too long.

    A pass bounds every row by all layers below it: some hundred of its products are one elementary step.
    """
    entries = products = 0
    for before, width in pairwise((inputs, *widths)):
        entries += width * before
        products += width * entries
    limit_cost(products / 300)
    if entries > MOST_ENTRIES:
        raise Unsupported(f"the layers have {entries:,} entries as matrices, more than {MOST_ENTRIES:,}")


def _check_match(match: Places, mine: PackedLayer, yours: PackedLayer) -> None:
    """Every neuron stands at exactly one place, next to one of the same slope or to none; factors are positive."""
    require(len(match.first) == len(match.second) == len(match.scale), "the matching is of two lengths")
    for places, layer in ((match.first, mine), (match.second, yours)):
        neurons = np.sort(places[places >= 0])
        require(np.array_equal(neurons, np.arange(len(layer.bias))), "the matching loses a neuron")
    require(bool((match.scale > 0).all()), "a factor of the matching is not positive")
    both = (match.first >= 0) & (match.second >= 0)
    same = mine.slopes[match.first[both]] == yours.slopes[match.second[both]]
    require(bool(same.all()), "matched neurons have different slopes")


def _place(layer: PackedLayer, below: Indices, here: Indices) -> tuple[Floats, Floats]:
    """Rows, columns and biases at their places, zero where there is no neuron."""
    rows, columns = here >= 0, below >= 0
    stored = layer.weight if isinstance(layer.weight, np.ndarray) else layer.weight.toarray()
    weight, bias = np.zeros((len(here), len(below))), np.zeros(len(here))
    weight[np.ix_(rows, columns)] = stored[np.ix_(here[rows], below[columns])]
    bias[rows] = layer.bias[here[rows]]
    return weight, bias


def _rescale(values: Floats, new: Floats, old: Floats) -> tuple[Floats, Floats]:
    """A neuron's factor multiplies what enters and divides what leaves; and what that may have rounded.

    A forger chooses factors: where one makes a weight underflow, what is left of it is far less than `TINY` off, and
    the factor that brings it back is accounted for wherever a coefficient acts on it.
    """
    with np.errstate(all="ignore"):
        factor = new / old
        require(bool(((factor > 1 / EXTREME) & (factor < EXTREME)).all()), "factors of the matching are too far apart")
        scaled = values * factor
        require(bool(np.isfinite(scaled).all()), "a number is too large for doubles")
        powers = (np.frexp(new)[0] == 0.5) & (np.frexp(old)[0] == 0.5)
        exact = powers & (scaled / factor == values)
    return scaled, np.where(exact, 0.0, 4 * UNIT * np.abs(scaled) + TINY)
