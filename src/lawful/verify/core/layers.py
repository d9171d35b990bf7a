"""Networks layer by layer in rationals: read, composed and bounded by intervals.

A value is an affine function of some variables, as a row with the constant last: of the inputs in a walk through
regions, of one parameter t along a line, or of nothing at an input. One product of matrices takes a layer from the
values that enter it to its sums (`compose`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from flint import fmpq_mat

from lawful.errors import Unsupported
from lawful.verify.core.dag import OUTPUT, CheckedDag, read_mlp
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span, activation_range, cost_of, exact, sum_range
from lawful.verify.core.schema import integers, items, limit_cost, numbers, require, spend

MOST_ENTRIES = 8_000_000  # of all levels of a graph: each is a rational of about 64 bytes
Row = list[Rational]  # the weights of a neuron, then its bias
Box = Sequence[Span]  # where the inputs live


@dataclass(frozen=True)
class CheckedStack:
    """Rows of every layer, biases at the end, and the slope after each but the last."""

    inputs: int
    layers: tuple[list[Row], ...]
    slopes: tuple[Rational, ...]

    @property
    def widths(self) -> list[int]:
        """Sizes of all layers, input first."""
        return [self.inputs, *(len(layer) for layer in self.layers)]

    @property
    def entries(self) -> list[Rational]:
        """All weights and biases."""
        return [entry for layer in self.layers for row in layer for entry in row]

    def with_rows(self, layer: int, rows: list[Row], above: list[Row]) -> CheckedStack:
        """Other rows in hidden layer `layer` (from 1) and in the one above it."""
        layers = list(self.layers)
        layers[layer - 1], layers[layer] = rows, above
        return replace(self, layers=tuple(layers))

    def without(self, layer: int, neuron: int, above: list[Row] | None = None) -> CheckedStack:
        """The network less one hidden neuron."""
        rows = [row for place, row in enumerate(self.layers[layer - 1]) if place != neuron]
        heads = [[*row[:neuron], *row[neuron + 1 :]] for row in above or self.layers[layer]]
        return self.with_rows(layer, rows, heads)


def read_layers(value: object, read: Callable[[object], CheckedDag] = read_mlp) -> tuple[CheckedStack, str]:
    """A network layer by layer, every double the rational that it is and a missing bias 0; and its digest."""
    dag = read(value)
    require(dag.weights is not None, "a network has no weights")
    return dag_as_layers(dag), dag.digest()


def dag_as_layers(dag: CheckedDag) -> CheckedStack:
    """A graph level by level: what later levels need passes through neurons of its own.

    The value of a ReLU neuron passes through one of them, any other value v through the pair
    `(σ(v) − σ(−v)) / (1 + slope) = v`. Outputs form the last level.
    """
    depth = max((dag.levels[node] for node in dag.hidden), default=0) + 1
    level = [depth if role == OUTPUT else dag.levels[node] for node, role in enumerate(dag.roles)]
    last_use = [max((level[head] for head, _ in edges), default=0) for edges in dag.out_of]
    weights = [exact(weight) for weight in dag.weights or ()]
    slope_of = {node: exact(slope) for node, slope in zip(dag.hidden, dag.slopes, strict=True)}
    known: dict[int, dict[int, Rational]] = {node: {place: ONE} for place, node in enumerate(dag.inputs)}
    width, entries, layers, slopes = len(known), 0, [], []
    for height in range(1, depth + 1):
        nodes = dag.outputs if height == depth else [node for node in dag.hidden if level[node] == height]
        used = {slope_of[node] for node in nodes} if height < depth else {ONE}
        require(len(used) == 1, "a level of the graph mixes activations")
        slope = used.pop()
        carried = [] if height == depth else [node for node in known if last_use[node] > height]
        size = (len(nodes) + 2 * len(carried)) * (width + 1)
        entries += size
        spend(20.0 * size)
        if entries > MOST_ENTRIES:  # skips past n levels make n³ entries of them
            raise Unsupported(f"the levels of a graph have more than {MOST_ENTRIES:,} entries together")
        rows: list[Row] = []
        fresh: dict[int, dict[int, Rational]] = {}
        for node in nodes:
            row = [ZERO] * (width + 1)
            for tail, edge in dag.into[node]:
                for place, share in {width: ONE}.items() if tail == dag.constant else known[tail].items():
                    row[place] += share * weights[edge]
            fresh[node] = {len(rows): ONE}
            rows.append(row)
        for node in carried:
            row = [known[node].get(place, ZERO) for place in range(width)] + [ZERO]
            if slope_of.get(node) == 0:
                fresh[node] = {len(rows): ONE}
                rows.append(row)
            else:
                require(slope != -1, "no pair of neurons carries a value through the absolute value")
                fresh[node] = {len(rows): ONE / (ONE + slope), len(rows) + 1: -ONE / (ONE + slope)}
                rows += [row, [-entry for entry in row]]
        layers.append(rows)
        slopes.append(slope)
        known, width = fresh, len(rows)
    return CheckedStack(len(dag.inputs), tuple(layers), tuple(slopes[:-1]))


def compose(rows: list[Row], values: Sequence[Row], variables: int) -> list[Row]:
    """The sums of a layer as affine functions, given those that enter it: `(W | b)` times the values and 1."""
    if not rows:
        return []
    spend(float(len(rows)) * (len(values) + 1) * (variables + 1))
    sums: list[Row] = (fmpq_mat(rows) * fmpq_mat([*values, [ZERO] * variables + [ONE]])).tolist()
    spend(sum(cost_of(row) for row in sums))
    return sums


def activate(value: Row, on: bool, slope: Rational) -> Row:
    """What a neuron sends on, given its sum and its side."""
    return value if on else [slope * entry for entry in value]


def evaluate(net: CheckedStack, point: Sequence[Rational], layers: int | None = None) -> list[Rational]:
    """The values behind some layers at a point; the outputs, unless told how many."""
    values = [[coordinate] for coordinate in point]
    for layer, slope in zip(net.layers[:layers], (*net.slopes, ONE), strict=False):
        values = [activate(total, total[0] > 0, slope) for total in compose(layer, values, 0)]
    return [value for (value,) in values]


def affine_range(row: Row, box: Sequence[Span]) -> Span:
    """The range of `w·x + b` on a box."""
    return sum_range(zip(row[:-1], box, strict=True), row[-1], row[-1])


def layer_ranges(net: CheckedStack, box: Sequence[Span], layers: int) -> list[Span]:
    """Ranges of the values behind the first layers, by interval arithmetic."""
    ranges = list(box)
    for rows, slope in zip(net.layers[:layers], net.slopes, strict=False):
        ranges = [activation_range(*affine_range(row, ranges), slope) for row in rows]
        spend(sum(cost_of(span) for span in ranges))
    return ranges


def read_box(value: object, inputs: int) -> tuple[list[Span], list[tuple[Fraction, ...]] | None]:
    """The domain as spans and as facts state it: all of space (None), or a box with finite ends."""
    if value is None:
        return [(None, None)] * inputs, None
    low, high = (numbers(corner, "box", length=inputs) for corner in items(value, "box", length=2))
    sides = list(zip(low, high, strict=True))
    require(all(a < b for a, b in sides), "the box is empty")
    return [(exact(a), exact(b)) for a, b in sides], [tuple(map(Fraction, side)) for side in sides]


# Two networks compared region by region, in the order of a walk through both: which sides exist is read, not searched.
#
# `both` sides are walked, which is always allowed; one side is left out only with half-spaces that make it empty, by
# Farkas: `y ≥ 0`, not zero, with `Σ y a = 0` and `Σ y c ≤ 0` over rows `a·x + c > 0`. Invariant: the half-spaces of
# the sides that wait and of the regions seen cover the box, up to walls. So continuous functions that agree on all
# regions agree on the box. The cost is regions × weights × inputs, by the length of the numbers.


def check_regions(decisions: object, first: CheckedStack, second: CheckedStack, box: Sequence[Span]) -> int:
    """Replay the walk; the number of regions on which the two affine maps are identical."""
    regions = 0
    for _, (ours, theirs) in walk_regions(decisions, (first, second), box):
        require(ours == theirs, "the affine maps differ on a region")
        regions += 1
    return regions


def check_surrogate(
    decisions: object, net: CheckedStack, layer: int, neuron: int, factors: Sequence[Rational], constant: Rational
) -> None:
    """An affine combination of its layer can take a neuron's place: no output changes for any input."""
    require(factors[neuron] == 0, "a neuron stands for itself")
    above = [
        [w + row[neuron] * factor for w, factor in zip(row, (*factors, constant), strict=True)]
        for row in net.layers[layer]
    ]
    check_regions(decisions, net, net.without(layer, neuron, above), [(None, None)] * net.inputs)


def walk_regions(
    decisions: object, nets: Sequence[CheckedStack], box: Sequence[Span]
) -> Iterator[tuple[list[Row], list[list[Row]]]]:
    """The regions that the decisions lead to: half-spaces `row·(x, 1) > 0`, and the affine map of each network there.

    Together they cover the box up to their walls; some may be empty.
    """
    listed = items(decisions, "decisions")
    inputs, neurons = nets[0].inputs, sum(sum(net.widths[1:-1]) for net in nets)
    # memory: walls and identity are inputs², and every side that waits holds its half-spaces and its sides
    limit_cost(100.0 * inputs**2 + 40.0 * neurons * min(neurons, listed.count("both")))
    stated = iter(listed)
    walls: list[Row] = []
    for k, (low, high) in enumerate(box):
        for sign, end in ((ONE, low), (-ONE, high)):
            if end is not None:
                walls.append([*(sign if place == k else ZERO for place in range(inputs)), -sign * end])
    identity = [[ONE if place == k else ZERO for place in range(inputs + 1)] for k in range(inputs)]
    # the layers of all networks one after the other, None being the slope of each last one
    layers = [pair for net in nets for pair in zip(net.layers, (*net.slopes, None), strict=True)]
    start = compose(layers[0][0], identity, inputs)
    waiting: list[tuple[int, list[Row], list[bool], list[list[Row]], list[Row]]] = [(0, start, [], [], walls)]
    while waiting:
        place, sums, active, maps, rows = waiting.pop()
        slope = layers[place][1]
        if slope is None or slope == ONE:  # outputs, and neurons that do not bend, have no sides
            active = [True] * len(sums)
        if len(active) < len(sums):
            row = sums[len(active)]
            if not any(row[:-1]):
                waiting.append((place, sums, [*active, row[-1] > 0], maps, rows))
                continue
            sides = _read_sides(stated, rows, row)
            for on in reversed(sides):  # the active side is walked first
                inside = [*rows, row if on else [-entry for entry in row]] if len(sides) == 2 else rows
                waiting.append((place, sums, [*active, on], maps, inside))
            continue
        values = [activate(row, on, slope) for row, on in zip(sums, active, strict=True)]
        if slope is None:
            maps, values = [*maps, sums], identity
        if place + 1 == len(layers):
            yield rows, maps
        else:
            waiting.append((place + 1, compose(layers[place + 1][0], values, inputs), [], maps, rows))
    require(next(stated, None) is None, "the proof goes on after all regions were seen")


def _read_sides(stated: Iterator[Any], rows: list[Row], row: Row) -> list[bool]:
    """The sides of a neuron that must be walked."""
    decision: Any = next(stated, None)
    if decision == "both":
        return [True, False]
    require(isinstance(decision, list) and len(decision) == 2, "the proof stops before all regions were seen")
    side, support = decision
    require(side in ("on", "off"), "a decision is both, on or off")
    outside = [-entry for entry in row] if side == "on" else row
    chosen = integers(support, "decisions", 0, len(rows), most=len(row))  # a minimal one is no longer
    spend(float(len(chosen)) ** 2 * len(row))
    require(_is_empty([*rows, outside], chosen), "a side that the proof calls empty is not shown to be")
    return [side == "on"]


def _is_empty(rows: list[Row], support: list[int]) -> bool:
    """Whether the half-spaces `row·(x, 1) > 0` of the support have no common point."""
    chosen = [rows[k] for k in support]
    if not chosen:
        return False
    columns = fmpq_mat([[row[k] for row in chosen] for k in range(len(chosen[0]) - 1)])
    reduced, rank = columns.rref()
    if rank != len(chosen) - 1:  # one combination of the support is zero, up to a factor
        return False
    table = reduced.tolist()
    pivots = [next(k for k, item in enumerate(line) if item != 0) for line in table[:rank]]
    (free,) = {*range(len(chosen))} - {*pivots}
    weights = {free: ONE} | {pivot: -line[free] for pivot, line in zip(pivots, table, strict=False)}
    total = sum((weight * chosen[k][-1] for k, weight in weights.items()), ZERO)
    # Farkas: Σ y a = 0 with y >= 0, so a common point would make 0 < Σ y (a·x + c) = Σ y c <= 0.
    return all(weight >= 0 for weight in weights.values()) and total <= 0
