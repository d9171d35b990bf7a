"""Two networks compared region by region, in the order of a walk through both: which sides exist is read, not searched.

`both` sides are walked, which is always allowed; one side is left out only with half-spaces that make it empty, by
Farkas: `y ≥ 0`, not zero, with `Σ y a = 0` and `Σ y c ≤ 0` over rows `a·x + c > 0`. Invariant: the half-spaces of the
sides that wait and of the regions seen cover the box, up to walls. So continuous functions that agree on all regions
agree on the box. The cost is regions × weights × inputs, by the length of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flint import fmpq_mat

from lawful.verify.core.layers import CheckedStack, Row, activate, compose
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span
from lawful.verify.core.schema import integers, items, limit_cost, require, spend


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
    return all(weight >= 0 for weight in weights.values()) and total <= 0
