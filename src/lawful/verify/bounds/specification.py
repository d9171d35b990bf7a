"""A specification: nothing that it forbids occurs on any of its boxes, or this input shows that something does.

What is forbidden on a box is a union of cases, each an intersection of half-spaces `a · y + c · x <= bound` (without
its boundary if strict). The proof for a box is a tree of phases of neurons and halves of inputs, with multipliers
where bounds alone are not enough (`split_tree`). An input is evaluated in rationals. The statement repeats the
question, all of it: a certificate about another box or another threshold says so.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, lcm, nextafter
from typing import Any, NamedTuple

import numpy as np

from lawful.verify.bounds.boxes import Sides, read_box
from lawful.verify.bounds.network import Floats, PackedNetwork
from lawful.verify.bounds.packed import read_packed
from lawful.verify.bounds.split_tree import CaseRows, SizedTower, exclude
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import items, number, object_with_keys, rational, require, truth

# Of a question: each is read, and repeated in the statement.
MOST_BOXES, MOST_CASES, MOST_ROWS = 10_000, 10_000, 1_000


class SpecifiedCondition(NamedTuple):
    """`outputs · y + inputs · x <= bound`, or `<`."""

    outputs: list[Fraction]
    inputs: list[Fraction]
    bound: Fraction
    strict: bool

    def holds(self, x: list[Fraction], y: list[Fraction]) -> bool:
        """Whether an input and its outputs lie in it."""
        pairs = (*zip(self.outputs, y, strict=True), *zip(self.inputs, x, strict=True))
        total = sum((a * value for a, value in pairs), Fraction(0))
        return total < self.bound if self.strict else total <= self.bound


class SpecifiedRegion(NamedTuple):
    """A box and what is forbidden on it."""

    box: Sides
    cases: list[list[SpecifiedCondition]]

    def forbids(self, x: list[Fraction], y: list[Fraction]) -> bool:
        """Whether an input of the box leads into a case."""
        return any(all(condition.holds(x, y) for condition in case) for case in self.cases)


def check(body: dict[str, Any]) -> Finding:
    """Which of the two holds."""
    parts = object_with_keys(body, "certificate", "network regions input proofs")
    network = read_packed(parts["network"])
    inputs, outputs = network.layers[0].weight.shape[1], len(network.layers[-1].bias)
    regions = [_region(item, inputs, outputs) for item in items(parts["regions"], "regions", most=MOST_BOXES)]
    require(bool(regions), "nothing is forbidden: there is no question")
    facts: dict[str, Any] = {"regions": regions, "inputs": inputs, "of_outputs": outputs}
    if parts["input"] is not None:
        require(parts["proofs"] is None, "a certificate shows one of the two")
        facts["input"] = [_coordinate(item) for item in items(parts["input"], "input", length=inputs)]
        facts["outputs"], facts["at"] = _evaluate_input(facts["input"], regions, network)
        return Finding(facts, (network.digest,))
    proofs = items(parts["proofs"], "proofs", length=len(regions))
    facts["nodes"] = sum(_check_box(region, network, proof) for region, proof in zip(regions, proofs, strict=True))
    return Finding(facts, (network.digest,))


def _coordinate(value: object) -> Fraction:
    """A double, or any rational as text: a side such as [0.1, 0.1] has no double in it."""
    return rational(value, "input") if isinstance(value, str) else Fraction(number(value, "input"))


def _region(value: object, inputs: int, outputs: int) -> SpecifiedRegion:
    parts = object_with_keys(value, "regions", "box forbidden")
    box = read_box(parts["box"], inputs)
    cases = [
        [_condition(item, inputs, outputs) for item in items(case, "forbidden", most=MOST_ROWS)]
        for case in items(parts["forbidden"], "forbidden", most=MOST_CASES)
    ]
    require(bool(cases), "nothing is forbidden on a box: there is no question")
    return SpecifiedRegion(box, cases)


def _condition(value: object, inputs: int, outputs: int) -> SpecifiedCondition:
    """Coefficients by place: `{"outputs": [[0, "1"]], "inputs": [], ...}`."""
    parts = object_with_keys(value, "forbidden", "outputs inputs bound strict")
    rows = []
    for name, count in (("outputs", outputs), ("inputs", inputs)):
        row = [Fraction(0)] * count
        for pair in items(parts[name], "forbidden", most=count):
            place, number = items(pair, "forbidden", length=2)
            require(type(place) is int and 0 <= place < count and not row[place], f"it names {name} that are not there")
            row[place] = rational(number, "forbidden")
        rows.append(row)
    return SpecifiedCondition(
        rows[0], rows[1], rational(parts["bound"], "forbidden"), truth(parts["strict"], "forbidden")
    )


def _evaluate_input(
    point: list[Fraction], regions: list[SpecifiedRegion], network: PackedNetwork
) -> tuple[list[Fraction], int]:
    """The outputs at the input, and a box of which it is in a case."""
    outputs = network.evaluate(point)
    for at, region in enumerate(regions):
        inside = all(low <= x <= high for x, (low, high) in zip(point, region.box, strict=True))
        if inside and region.forbids(point, outputs):
            return outputs, at
    require(False, "the input is in none of the boxes with outputs that are forbidden there")
    raise AssertionError


def _check_box(region: SpecifiedRegion, network: PackedNetwork, proof: object) -> int:
    """Check the proof for one box; how many boxes were bounded. A single point needs none: it is evaluated."""
    if proof is None:
        require(all(low == high for low, high in region.box), "only a box of a single point needs no proof")
        point = [low for low, _ in region.box]
        require(not region.forbids(point, network.evaluate(point)), "the point leads to what is forbidden")
        return 1
    require(all(region.cases), "a case without conditions is every input")
    low = np.array([_below(end) for end, _ in region.box])
    high = np.array([-_below(-end) for _, end in region.box])
    cases = [_rows(case) for case in region.cases]
    longest = max(map(len, region.cases))
    tower = SizedTower(network.layers, np.maximum(np.abs(low), np.abs(high)), longest)
    return exclude(tower, low, high, cases, proof)


def _rows(case: list[SpecifiedCondition]) -> CaseRows:
    """A case in doubles: whole coefficients, and bounds rounded up, which only makes it larger."""
    scales = [lcm(*(a.denominator for a in (*row.outputs, *row.inputs))) for row in case]
    outputs = np.array([[_double(a * scale) for a in row.outputs] for row, scale in zip(case, scales, strict=True)])
    inputs = np.array([[_double(a * scale) for a in row.inputs] for row, scale in zip(case, scales, strict=True)])
    bounds: Floats = np.array([-_below(-row.bound * scale) for row, scale in zip(case, scales, strict=True)])
    return CaseRows(outputs, inputs, bounds)


def _double(value: Fraction) -> float:
    require(abs(value) < 2**1000 and Fraction(float(value)) == value, "a coefficient is no double")
    return float(value)


def _below(value: Fraction) -> float:
    """The largest double that is at most a fraction."""
    require(abs(value) < 2**1000, "a number of the question is too large")
    near = float(value)
    return near if Fraction(near) <= value else nextafter(near, -inf)
