"""Exact slopes, region by region: for boxes on which intervals of slopes leave the sign open.

Slopes that vanish by cancellation, or neurons that change together at a kink, keep their intervals around zero however
small the box is. On a region the network is affine and its slopes are rationals; the regions of a box are walked
through as for a comparison of two networks, and the walk is the proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.bounds.branch_and_bound import Splitting
from lawful.bounds.slopes import Growth
from lawful.fibers.layers import Array, Stack, floating, rational
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.comparison_proof import Proof, _inputs, _layers, _Place, _Prover, _rationals
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.half_spaces import Point, walls
from lawful.fibers.skips_as_layers import layered
from lawful.network import Dag, Mlp
from lawful.types import Floats

MOST_NEURONS = 400  # the walk goes one call deeper for each
MOST_LEAVES = 512  # boxes left open whose regions are walked


class WrongWay(Exception):
    """A slope has the wrong sign on a region; `point` lies inside it."""

    def __init__(self, point: Floats, direction: Growth, output: int) -> None:
        super().__init__("a slope has the wrong sign")
        self.point, self.direction, self.output = point, direction, output


@dataclass(frozen=True)
class LeafProof:
    """The walk through all regions of one leaf of the tree of boxes."""

    leaf: int
    decisions: Proof


@dataclass(frozen=True, eq=False)
class ExactSlopes:
    """The question for whole regions: which outputs must not go the wrong way in which directions."""

    stack: Stack
    directions: tuple[Growth, ...]
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, network: Mlp | Dag, directions: tuple[Growth, ...], outputs: tuple[int, ...]) -> ExactSlopes | None:
        """None if the network has too many neurons."""
        dag = network.to_dag()
        if len(dag.hidden) > MOST_NEURONS:
            return None
        stack = layered(dag)
        return None if sum(stack.widths[1:-1]) > MOST_NEURONS else cls(stack, directions, outputs)

    def walk(self, low: Floats, high: Floats, deadline: float) -> Proof | None:
        """The decisions that lead through all regions, or None when time is up; raises `WrongWay`."""
        free = np.flatnonzero(low < high)
        walk = _SlopeWalk(_without(self.stack.rational(), low, free), Domain(low[free], high[free]), deadline)
        walk.wanted = [(int(np.searchsorted(free, each.input)), each) for each in self.directions]
        walk.outputs = self.outputs
        start = _Place(0, 0, _inputs(walk.layers.stacks[0]), None)
        try:
            with np.errstate(all="ignore"):  # floats only guess
                walk.layer(start, walls(Domain(low[free], high[free])), _rationals(low[free] / 2 + high[free] / 2))
        except OutOfTime:
            return None
        except WrongWay as wrong:
            point = low.copy()
            point[free] = wrong.point
            raise WrongWay(np.clip(point, low, high), wrong.direction, wrong.output) from None
        return walk.decisions


class _SlopeWalk(_Prover):
    """The walk of a proof through one network; it looks at the slopes of every region."""

    wanted: Sequence[tuple[int, Growth]]
    outputs: Sequence[int]

    def __init__(self, stack: Stack, domain: Domain, deadline: float) -> None:
        super().__init__(_layers(stack, stack), domain, deadline)

    def layer(self, place: _Place, rows: list[Array], point: Point) -> None:
        """One layer on one region."""
        affine = self.layers.enter(place)
        if not self.layers.is_last(place):
            self.neuron(place, affine, [], rows, point)
            return
        for column, growth in self.wanted:
            for output in self.outputs:
                slope = affine[output, column]
                if slope != 0 and (slope > 0) != growth.rising:
                    raise WrongWay(floating(np.array(point, dtype=object)), growth, output)


def _without(stack: Stack, low: Floats, free: Any) -> Stack:
    """The network as a function of the free inputs: the others are numbers, which go into the first biases."""
    fixed = np.delete(np.arange(len(low)), free)
    weight, bias = stack.weights[0], stack.biases[0]
    if len(fixed):
        bias = bias + weight[:, fixed] @ rational(low[fixed])
    return Stack((weight[:, free], *stack.weights[1:]), (bias, *stack.biases[1:]), stack.slopes)


def open_leaves(splitting: Splitting, low: Floats, high: Floats) -> Iterator[tuple[int, Floats, Floats] | None]:
    """The leaves of the tree whose bounds do not suffice: number in preorder and box; None if it has no float ends."""
    waiting = [(0, low, high, True)]
    number = 0
    while waiting:
        node, start, end, exact = waiting.pop()
        along = splitting.tree[node]
        if along < 0 or splitting.values[node] <= 0:
            if splitting.values[node] > 0:
                yield (number, start, end) if exact else None
            number += 1
            continue
        middle = start[along] / 2 + end[along] / 2
        whole = exact and Fraction(float(middle)) * 2 == Fraction(float(start[along])) + Fraction(float(end[along]))
        below, above = end.copy(), start.copy()
        below[along] = above[along] = middle
        child = splitting.children[node]
        waiting += [(child + 1, above, end, whole), (child, start, below, whole)]
