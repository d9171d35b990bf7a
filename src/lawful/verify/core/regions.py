"""Two networks compared region by region, in the order of a walk through both: which sides exist is read, not searched.

`both` sides are walked, which is always allowed; one side is left out only with half-spaces that make it empty, by
Farkas: `y ≥ 0`, not zero, with `Σ y a = 0` and `Σ y c ≤ 0` over rows `a·x + c > 0`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flint import fmpq_mat

from lawful.verify.core.layers import CheckedStack, Row
from lawful.verify.core.numbers import ONE, ZERO, Span
from lawful.verify.core.schema import integers, items, limit_cost, require


@dataclass(frozen=True)
class _Place:
    """Which network, its layer, the affine functions that enter it, the maps of the networks before, and the region."""

    network: int
    layer: int
    values: list[Row]
    maps: list[list[Row]]
    rows: list[Row]


def check_regions(decisions: object, first: CheckedStack, second: CheckedStack, box: Sequence[Span]) -> int:
    """Replay the walk; the number of regions on which the two affine maps are identical."""
    regions = 0
    for _, (ours, theirs) in walk_regions(decisions, (first, second), box):
        require(ours == theirs, "the affine maps differ on a region")
        regions += 1
    return regions


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
    start = _Place(0, 0, identity, [], walls)
    waiting: list[tuple[_Place, list[Row], list[bool]]] = [(start, _layer_sums(nets, start), [])]
    steps = 0.0
    size = sum(len(layer) * (len(layer[0]) if layer else 0) for net in nets for layer in net.layers) * (inputs + 1)
    while waiting:
        place, affine, active = waiting.pop()
        if place.layer == len(nets[place.network].layers) - 1:
            maps = [*place.maps, affine]
            if len(maps) == len(nets):
                yield place.rows, maps
            else:
                after = _Place(place.network + 1, 0, identity, maps, place.rows)
                waiting.append((after, _layer_sums(nets, after), []))
            continue
        if nets[place.network].slopes[place.layer] == ONE:  # neurons that do not bend have no sides
            active = [True] * len(affine)
        if len(active) == len(affine):
            steps += size
            limit_cost(steps)
            after = _next_layer(nets, place, affine, active)
            waiting.append((after, _layer_sums(nets, after), []))
            continue
        row = affine[len(active)]
        if not any(row[:-1]):
            waiting.append((place, affine, [*active, row[-1] > 0]))
            continue
        sides = _read_sides(stated, place.rows, row)
        for on in reversed(sides):  # the active side is walked first
            rows = [*place.rows, row if on else [-entry for entry in row]] if len(sides) == 2 else place.rows
            waiting.append((replace(place, rows=rows), affine, [*active, on]))
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
    limit_cost(float(len(chosen)) ** 2 * len(row))
    require(_empty([*rows, outside], chosen), "a side that the proof calls empty is not shown to be")
    return [side == "on"]


def _layer_sums(nets: Sequence[CheckedStack], place: _Place) -> list[Row]:
    """The sums of a layer as affine functions of the input."""
    found = []
    width = nets[0].inputs + 1
    for row in nets[place.network].layers[place.layer]:
        total = [ZERO] * width
        for weight, value in zip(row[:-1], place.values, strict=True):
            if weight:
                total = [a + weight * b for a, b in zip(total, value, strict=True)]
        total[-1] += row[-1]
        found.append(total)
    return found


def _next_layer(nets: Sequence[CheckedStack], place: _Place, affine: list[Row], active: list[bool]) -> _Place:
    """The next layer, given which neurons are active."""
    slope = nets[place.network].slopes[place.layer]
    values = [row if on else [slope * entry for entry in row] for row, on in zip(affine, active, strict=True)]
    return replace(place, layer=place.layer + 1, values=values)


def _empty(rows: list[Row], support: list[int]) -> bool:
    """Whether the half-spaces `row·(x, 1) > 0` of the support have no common point."""
    chosen = [rows[k] for k in support]
    if not chosen:
        return False
    columns = fmpq_mat([[row[k] for row in chosen] for k in range(len(chosen[0]) - 1)])
    reduced, rank = columns.rref()
    if rank != len(chosen) - 1:
        return False
    table = reduced.tolist()
    pivots = [next(k for k, item in enumerate(table[line]) if item != 0) for line in range(rank)]
    free = next(k for k in range(len(chosen)) if k not in pivots)
    weights = [ZERO] * len(chosen)
    weights[free] = ONE
    for line, pivot in enumerate(pivots):
        weights[pivot] = -table[line][free]
    total = sum((weight * row[-1] for weight, row in zip(weights, chosen, strict=True)), ZERO)
    return all(weight >= 0 for weight in weights) and total <= 0
