"""No input of a box leads to forbidden outputs, or this one does.

What is forbidden is a union of cases, each an intersection of half-spaces `a · y <= bound` (without its boundary if
strict). That it never occurs is shown on the leaves of a tree of boxes: on each, every case has a half-space that no
output reaches. An input that leads there is evaluated in rationals.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

from lawful.verify.bounds.boxes import (
    MOST_HALVINGS,
    Sides,
    bounded,
    evaluated,
    halves,
    leaves_of,
    read_box,
    read_network,
    shown,
    widest,
)
from lawful.verify.bounds.layers import Floats, Places, Plain, nothing, plain_layers, shared_layers
from lawful.verify.core.finding import Finding, in_full, short
from lawful.verify.core.schema import afford, exactly, listed, need, numbers, rational, record, truth, wholes


def _coefficient(value: Fraction) -> str:
    return "" if value == 1 else f"{value}·"


class HalfSpace(NamedTuple):
    """`coefficients · y <= bound`, or `<`."""

    coefficients: list[Fraction]
    bound: Fraction
    strict: bool

    def __str__(self) -> str:
        terms = [f"{_coefficient(a)}Y_{place}" for place, a in enumerate(self.coefficients) if a]
        return f"{' + '.join(terms) or '0'} {'<' if self.strict else '<='} {self.bound}"

    def holds(self, outputs: list[Fraction]) -> bool:
        """Whether outputs lie in it."""
        total = sum((a * y for a, y in zip(self.coefficients, outputs, strict=True)), Fraction(0))
        return total < self.bound if self.strict else total <= self.bound


def check(body: dict[str, Any]) -> Finding:
    """Which of the two holds."""
    given = record(body, "certificate", "network box forbidden input tree")
    network = read_network(given["network"], "network")
    need(network.weights is not None, "the network has no weights")
    box = read_box(given["box"], len(network.inputs))
    cases = [
        [_half_space(item, len(network.outputs)) for item in listed(case, "forbidden", most=100)]
        for case in listed(given["forbidden"], "forbidden", most=1000)
    ]
    need(bool(cases) and all(cases), "nothing is forbidden, or everything is: there is no question")
    layers = plain_layers(network)
    facts: dict[str, Any] = {"box": box, "forbidden": cases}
    name = f"for f = {short(network.digest())}, "
    what = f"what is forbidden: {_words(cases)}"
    if given["input"] is not None:
        need(given["tree"] is None, "a certificate shows one of the two")
        facts["input"] = exactly(numbers(given["input"], "input", length=len(box)))
        facts["outputs"], case = _reached(facts["input"], box, layers, cases)
        statement = f"{name}an input of {shown(box)} leads into case {case + 1} of {what} (exact)"
    else:
        facts["leaves"] = excluded(given["tree"], box, layers, cases)
        statement = f"{name}no input of {shown(box)} leads into {what} ({facts['leaves']} boxes re-computed)"
    return Finding(statement, facts, (network.digest(),))


def _words(cases: list[list[HalfSpace]]) -> str:
    """The forbidden outputs in full: a statement is about the question that was asked, so it repeats it."""
    return in_full(" or ".join(" and ".join(map(str, case)) for case in cases))


def _half_space(value: object, outputs: int) -> HalfSpace:
    given = record(value, "forbidden", "coefficients bound strict")
    coefficients = [rational(item, "forbidden") for item in listed(given["coefficients"], "forbidden", length=outputs)]
    return HalfSpace(coefficients, rational(given["bound"], "forbidden"), truth(given["strict"], "forbidden"))


def _reached(
    point: list[Fraction], box: Sides, layers: list[Plain], cases: list[list[HalfSpace]]
) -> tuple[list[Fraction], int]:
    """The outputs at the input, and the case that they are in."""
    need(all(low <= x <= high for x, (low, high) in zip(point, box, strict=True)), "the input is outside the box")
    afford(100.0 * sum(len(row) for layer in layers for row in layer.rows))
    outputs = evaluated(layers, point)
    reached = [at for at, case in enumerate(cases) if all(space.holds(outputs) for space in case)]
    need(bool(reached), "the outputs at this input are not forbidden")
    return outputs, reached[0]


def excluded(value: object, box: Sides, layers: list[Plain], cases: list[list[HalfSpace]]) -> int:
    """Bound `a · y - bound` on every leaf; how many leaves there are."""
    tree = wholes(value, "tree", 0, len(box))
    leaves = leaves_of(tree, box)
    weights = sum(len(row) for layer in layers for row in layer.rows) + sum(map(len, cases)) * len(layers[-1].rows)
    afford(20.0 * weights + 0.1 * len(tree) * weights * len(layers))
    margins = [*layers, _rows([space for case in cases for space in case])]
    hidden = [
        Places([-1] * len(layer.rows), range(len(layer.rows)), [Fraction(1)] * len(layer.rows)) for layer in layers
    ]
    shared = shared_layers(nothing(margins), margins, hidden, len(box))
    open_, deeper = leaves, MOST_HALVINGS
    while open_:
        open_ = [leaf for leaf, ends in zip(open_, bounded(shared, open_), strict=True) if not _out_of(ends[0], cases)]
        need(not open_ or deeper > 0, f"{len(open_)} of the boxes may lead to forbidden outputs")
        open_, deeper = [half for leaf in open_ for half in halves(leaf, widest(leaf))], deeper - 1
    return len(leaves)


def _rows(spaces: list[HalfSpace]) -> Plain:
    """`a · y - bound` for each half-space, times what makes its numbers whole."""
    scales = [lcm(*(number.denominator for number in (*space.coefficients, space.bound))) for space in spaces]
    rows = [
        {place: a * scale for place, a in enumerate(space.coefficients) if a}
        for space, scale in zip(spaces, scales, strict=True)
    ]
    shifts = [-space.bound * scale for space, scale in zip(spaces, scales, strict=True)]
    return Plain(rows, shifts, [Fraction(1)] * len(spaces))


def _out_of(low: Floats, cases: list[list[HalfSpace]]) -> bool:
    """Whether every case has a half-space whose margin is positive, or zero if its boundary does not count."""
    margins = iter(low.tolist())
    found = []
    for case in cases:
        found.append(any([margin > 0 or (space.strict and margin >= 0) for space, margin in zip(case, margins)]))  # noqa: B905, C419
    return all(found)
