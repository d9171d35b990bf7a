"""Two networks as matched layers: exact rationals, then the floats nearest to them and to their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lawful.errors import CertificateError, Unsupported
from lawful.verify.core.dag import CheckedDag
from lawful.verify.core.schema import limit_cost, require

Floats = NDArray[np.float64]
MOST_ENTRIES = 60_000_000  # of all layers of a pair: three matrices of doubles, 1.4 GB
Row = dict[int, Fraction]


@dataclass(frozen=True, eq=False)
class Plain:
    """A layer of one network: sparse rows, biases and slopes, all exact."""

    rows: list[Row]
    bias: list[Fraction]
    slopes: list[Fraction]


@dataclass(frozen=True, eq=False)
class Shared:
    """One layer of both, rounded to nearest: `y = W h + b`, `z = V k + c`, `z - y = V (k - h) + E h + e`."""

    W: Floats
    V: Floats
    E: Floats
    b: Floats
    c: Floats
    e: Floats
    slopes: Floats
    same: bool  # decided in rationals

    @property
    def matrices(self) -> tuple[Floats, Floats]:
        """Of f and of g."""
        return self.W, self.V

    @property
    def biases(self) -> tuple[Floats, Floats]:
        """Of f and of g."""
        return self.b, self.c


def plain_layers(network: CheckedDag) -> list[Plain]:
    """The network layer by layer: a value that is needed later passes through a neuron of slope 1.

    Neurons of a layer are the nodes of its level in their order, then what passes; the last layer is the outputs.
    """
    level = [max(at, 1) if node in set(network.outputs) else at for node, at in enumerate(network.levels)]
    depth = max(1, *level)
    last = [max((level[head] for head, _ in network.out_of[node]), default=0) for node in range(len(level))]
    for node in network.outputs:
        last[node] = depth + 1
    carried, layers = list(network.inputs), []
    for step in range(1, depth + 1):
        place = {node: number for number, node in enumerate(carried)}
        fresh = [node for node, at in enumerate(level) if at == step and node != network.constant]
        nodes = network.outputs if step == depth else fresh + [node for node in carried if last[node] > step]
        rows: list[Row] = []
        bias: list[Fraction] = []
        for node in nodes:
            shift, row = Fraction(0), {}
            if node in place:
                row[place[node]] = Fraction(1)
            else:
                for tail, edge in network.into[node]:
                    if tail == network.constant:
                        shift += network.exact[edge]
                    elif network.exact[edge]:
                        row[place[tail]] = network.exact[edge]
            rows.append(row)
            bias.append(shift)
        own = [Fraction(1) if node in place else network.slope.get(node, Fraction(1)) for node in nodes]
        require(all(0 <= slope <= 1 for slope in own), "an activation has a slope that is not between 0 and 1")
        layers.append(Plain(rows, bias, own))
        carried = nodes
    return layers


def deepened(layers: list[Plain], depth: int, inputs: int) -> list[Plain]:
    """The same function in more layers: what is below the outputs passes through neurons of slope 1."""
    width = len(layers[-2].rows) if len(layers) > 1 else inputs
    one = Fraction(1)
    extra = Plain([{place: one} for place in range(width)], [Fraction(0)] * width, [one] * width)
    return [*layers[:-1], *[extra] * (depth - len(layers)), layers[-1]]


@dataclass(frozen=True, eq=False)
class Places:
    """Neurons of the two networks at each place of a hidden layer (−1: none), and a positive factor for the second."""

    first: Sequence[int]
    second: Sequence[int]
    scale: Sequence[Fraction]


def shared_layers(first: list[Plain], second: list[Plain], matches: list[Places], inputs: int) -> list[Shared]:
    """The pair after the matching, its differences taken before rounding."""
    before = Places(range(inputs), range(inputs), [Fraction(1)] * inputs)
    found = []
    _afford_dense([len(mine.rows) + len(yours.rows) for mine, yours in zip(first, second, strict=True)], inputs)
    for number, (mine, yours) in enumerate(zip(first, second, strict=True)):
        count = len(mine.rows)
        here = matches[number] if number < len(matches) else Places(range(count), range(count), [Fraction(1)] * count)
        _check_match(here, mine, yours)
        W, b = _moved(mine, before.first, here.first, before.scale, here.scale, rescaled=False)
        V, c = _moved(yours, before.second, here.second, before.scale, here.scale, rescaled=True)
        E = [
            {k: right.get(k, Fraction(0)) - left.get(k, Fraction(0)) for k in {*left, *right}}
            for left, right in zip(W, V, strict=True)
        ]
        e = [right - left for left, right in zip(b, c, strict=True)]
        slopes = [mine.slopes[i] if i >= 0 else yours.slopes[j] for i, j in zip(here.first, here.second, strict=True)]
        require(all(Fraction(float(slope)) == slope for slope in slopes), "a slope is no double")
        same = not any(e) and not any(any(row.values()) for row in E)
        W_, V_, E_ = (_matrix(rows, len(before.first)) for rows in (W, V, E))
        found.append(Shared(W_, V_, E_, _nearest(b), _nearest(c), _nearest(e), _nearest(slopes), same))
        before = here
    return found


def _afford_dense(widths: Sequence[int], inputs: int) -> None:
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


def _check_match(match: Places, mine: Plain, yours: Plain) -> None:
    """Every neuron stands at exactly one place, next to one of the same slope or to none; factors are positive."""
    for places, count in ((match.first, len(mine.rows)), (match.second, len(yours.rows))):
        require(sorted(place for place in places if place >= 0) == list(range(count)), "the matching loses a neuron")
    require(len(match.first) == len(match.second) == len(match.scale), "the matching is of two lengths")
    for i, j, scale in zip(match.first, match.second, match.scale, strict=True):
        require(scale > 0, "a factor of the matching is not positive")
        require(i < 0 or j < 0 or mine.slopes[i] == yours.slopes[j], "matched neurons have different slopes")


def _moved(
    layer: Plain,
    below: Sequence[int],
    here: Sequence[int],
    old: Sequence[Fraction],
    new: Sequence[Fraction],
    *,
    rescaled: bool,
) -> tuple[list[Row], list[Fraction]]:
    """Rows and biases at their places; a neuron's factor multiplies what enters and divides what leaves."""
    place = {neuron: number for number, neuron in enumerate(below) if neuron >= 0}
    rows: list[Row] = []
    bias: list[Fraction] = []
    for neuron, factor in zip(here, new, strict=True):
        if neuron < 0:
            rows.append({})
            bias.append(Fraction(0))
            continue
        scale = factor if rescaled else Fraction(1)
        given = layer.rows[neuron]
        rows.append({place[k]: weight * scale / (old[place[k]] if rescaled else 1) for k, weight in given.items()})
        bias.append(layer.bias[neuron] * scale)
    return rows, bias


def nothing(layers: list[Plain]) -> list[Plain]:
    """A network of as many layers that is zero and has no neurons."""
    outputs, none = len(layers[-1].rows), Fraction(0)
    empty: list[Row] = [{} for _ in range(outputs)]
    return [*(Plain([], [], []) for _ in layers[:-1]), Plain(empty, [none] * outputs, [none + 1] * outputs)]


def _nearest(values: Sequence[Fraction]) -> Floats:
    """Each rounded to the nearest double."""
    try:
        return np.array([float(value) for value in values], dtype=np.float64)
    except OverflowError:
        raise CertificateError("a number is too large for doubles") from None


def _matrix(rows: list[Row], width: int) -> Floats:
    entries = np.zeros((len(rows), width))
    for number, row in enumerate(rows):
        entries[number, list(row)] = _nearest(list(row.values()))
    return entries
