"""Half-spaces of outputs that no input of a box reaches: shown on the leaves of a tree of halves of inputs."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import NamedTuple

from lawful.verify.bounds.boxes import MOST_HALVINGS, Sides, bounded, halves, leaves_of, widest
from lawful.verify.bounds.layers import Floats, Places, Plain, nothing, shared_layers
from lawful.verify.core.schema import integers, limit_cost, require


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


def excluded(value: object, box: Sides, layers: list[Plain], cases: list[list[HalfSpace]]) -> int:
    """Bound `a · y - bound` on every leaf; how many leaves there are."""
    tree = integers(value, "tree", 0, len(box))
    leaves = leaves_of(tree, box)
    weights = sum(len(row) for layer in layers for row in layer.rows) + sum(map(len, cases)) * len(layers[-1].rows)
    limit_cost(20.0 * weights + 0.1 * len(tree) * weights * len(layers))
    margins = [*layers, _rows([space for case in cases for space in case])]
    hidden = [
        Places([-1] * len(layer.rows), range(len(layer.rows)), [Fraction(1)] * len(layer.rows)) for layer in layers
    ]
    shared = shared_layers(nothing(margins), margins, hidden, len(box))
    open_, deeper = leaves, MOST_HALVINGS
    while open_:
        open_ = [leaf for leaf, ends in zip(open_, bounded(shared, open_), strict=True) if not _out_of(ends[0], cases)]
        require(not open_ or deeper > 0, f"{len(open_)} of the boxes may lead to forbidden outputs")
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
