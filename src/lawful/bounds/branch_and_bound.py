"""Best-first splitting: the boxes with the largest bounds are halved, many at a time, until the bounds suffice.

The rule that matters most is *where* to halve: along the coordinate that moves the neurons of unknown sign most.
Invariant: the leaves of the tree cover the box, and a box's bound is never worse than its parent's, so the largest
bound of the open, settled and unsplittable boxes holds on the whole box at any interruption. Cost: a bound a box.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lawful.bounds.box_bounds import BoxBounds
from lawful.errors import LawfulError
from lawful.types import Floats, Indices, Mask

ROUND = 128  # boxes halved at a time
MOST_OPEN = 4_000_000


class Measure(NamedTuple):
    """What is wanted of a box: numbers from its bounds, no larger for smaller boxes, and one number from those."""

    gaps: Callable[[BoxBounds], Floats]
    value: Callable[[Floats], Floats]
    slanted: bool = False  # whether affine outputs alone, without any unknown sign, can leave a box undecided


Bounder = Callable[[Sequence[tuple[Floats, Floats]]], list[BoxBounds]]


class Boxes(NamedTuple):
    """Boxes that wait: corners, gaps and their value, where to halve, node of the tree."""

    low: Floats
    high: Floats
    gaps: Floats
    value: Floats
    smear: Floats
    node: Indices

    def take(self, which: Indices) -> Boxes:
        """Some of them."""
        return Boxes(*(array[which] for array in self))  # type: ignore[arg-type]

    def append(self, other: Boxes) -> Boxes:
        """These and others."""
        return Boxes(*(np.concatenate(arrays) for arrays in zip(self, other, strict=True)))


class Splitting:
    """A tree of boxes that covers the given one; `open` boxes may still be halved, `done` ones need not be."""

    def __init__(self, low: Floats, high: Floats, measure: Measure, bounder: Bounder, together: int = 64) -> None:
        """Bound the whole box; later this many `together`."""
        self.measure: Measure = measure
        self.bounder: Bounder = bounder
        self.together: int = together
        self.ceiling: Floats | float = np.inf  # what is known of the gaps of all boxes together
        self.width: Floats = np.where(high > low, high - low, 1.0)
        self.tree: list[int] = [
            -1
        ]  # per node: the coordinate that was halved (children follow each other), −1 at a leaf
        self.children: list[int] = [0]
        self.bounded: int = 1
        self.open, self.corners = self._bound_boxes(low[None], high[None], np.inf, np.inf, np.zeros(1, dtype=np.intp))
        self.values: list[float] = [float(self.open.value[0])]  # per node
        self.done_gaps: Floats = np.full(self.open.gaps.shape[1], -np.inf)
        self.done_value = -np.inf
        self.stuck = -np.inf  # the largest bound of a box that is too small to halve

    @property
    def upper(self) -> float:
        """The value for the whole box."""
        return max(self.done_value, self.stuck, float(self.open.value.max(initial=-np.inf)))

    @property
    def gaps(self) -> Floats:
        """The gaps for the whole box."""
        return np.asarray(np.maximum(self.done_gaps, self.open.gaps.max(axis=0, initial=-np.inf)))

    def cap(self, ceiling: Floats) -> None:
        """Use a bound of the gaps on the whole box that was found in another way, before any box is halved."""
        self.ceiling = ceiling
        gaps = np.minimum(self.open.gaps, ceiling)
        self.open = self.open._replace(gaps=gaps, value=np.minimum(self.open.value, self.measure.value(gaps)))
        self.values = self.open.value.tolist()

    def settle(self, enough: float) -> None:
        """Put aside the boxes whose bound is small enough."""
        small = self.open.value <= enough
        if small.any():
            self.done_value = max(self.done_value, float(self.open.value[small].max()))
            self.done_gaps = np.maximum(self.done_gaps, self.open.gaps[small].max(axis=0))
            self.open = self.open.take(np.flatnonzero(~small))

    def step(self) -> Floats:
        """Halve the worst open boxes; returns points of the new boxes where the difference may be large."""
        worst = np.argsort(-self.open.value, kind="stable")[:ROUND]
        chosen = self.open.take(worst)
        middle = chosen.low / 2 + chosen.high / 2
        splittable = (chosen.low < middle) & (middle < chosen.high)
        can = splittable.any(axis=1)
        if not can.all():
            small = chosen.take(np.flatnonzero(~can))
            self.stuck = max(self.stuck, float(small.value.max()))
            self.done_gaps = np.maximum(self.done_gaps, small.gaps.max(axis=0))
        rest = self.open.take(np.delete(np.arange(len(self.open.value)), worst))
        if not can.any():
            self.open = rest
            return np.zeros((0, len(self.width)))
        chosen, middle, splittable = chosen.take(np.flatnonzero(can)), middle[can], splittable[can]
        along = self._along(chosen, splittable)
        low, high = _halves(chosen, middle, along)
        nodes = np.arange(len(self.tree), len(self.tree) + len(low))
        above = np.repeat(chosen.gaps, 2, axis=0), np.repeat(chosen.value, 2)
        fresh, points = self._bound_boxes(low, high, *above, nodes)
        for number, (node, coordinate) in enumerate(zip(chosen.node, along, strict=True)):
            self.tree[node], self.children[node] = int(coordinate), int(nodes[2 * number])
        self.tree += [-1] * len(nodes)
        self.children += [0] * len(nodes)
        self.values += fresh.value.tolist()
        self.bounded += len(nodes)
        self.open = rest.append(fresh)  # last, so that an interruption finds boxes that cover everything
        return points

    def _along(self, boxes: Boxes, splittable: Mask) -> Indices:
        """The coordinate to halve; the widest one where the smear says nothing."""
        smear = np.where(np.isfinite(boxes.smear), boxes.smear, 0.0)
        widest = (boxes.high - boxes.low) / self.width
        score = np.where(smear.max(axis=1, keepdims=True) > 0, smear, widest)
        return np.asarray(np.where(splittable, score, -1.0).argmax(axis=1))

    def _bound_boxes(
        self, low: Floats, high: Floats, gaps_above: Floats | float, value_above: Floats | float, nodes: Indices
    ) -> tuple[Boxes, Floats]:
        """Bounds of new boxes, no worse than their parents'."""
        chunks = [slice(at, at + self.together) for at in range(0, len(low), self.together)]
        outcomes = self.bounder([(low[chunk], high[chunk]) for chunk in chunks])
        bounds = BoxBounds(*(np.concatenate(parts) for parts in zip(*outcomes, strict=True)))
        gaps = np.minimum(self.measure.gaps(bounds), self.ceiling)
        value = np.minimum(self.measure.value(gaps), value_above)
        points = np.concatenate([low / 2 + high / 2, np.clip(bounds.corner, low, high)])
        return Boxes(low, high, np.minimum(gaps, gaps_above), value, self._smear(bounds), nodes), points

    def _smear(self, found: BoxBounds) -> Floats:
        if not self.measure.slanted:
            return found.smear
        shares = [np.nan_to_num(share) for share in (found.smear, found.slant)]
        totals = [share.sum(axis=1, keepdims=True) for share in shares]
        return np.asarray(
            sum(share / np.where(total > 0, total, 1.0) for share, total in zip(shares, totals, strict=True))
        )

    def preorder(self, enough: float | None = None) -> list[int]:
        """The tree for a certificate: 0 is a leaf, `1 + k` a box that was halved along coordinate k.

        What lies below a box whose own bound is `enough`, or as good as the whole one, is left out.
        """
        waiting, written, enough = [0], [], self.upper if enough is None else enough
        while waiting:
            node = waiting.pop()
            halved = self.tree[node] >= 0 and not self.values[node] <= enough
            written.append(self.tree[node] + 1 if halved else 0)
            if halved:
                waiting += [self.children[node] + 1, self.children[node]]
        return written


def _halves(boxes: Boxes, middle: Floats, along: Indices) -> tuple[Floats, Floats]:
    rows = np.arange(len(along))
    low, high = np.repeat(boxes.low, 2, axis=0), np.repeat(boxes.high, 2, axis=0)
    high[2 * rows, along] = low[2 * rows + 1, along] = middle[rows, along]
    return low, high


def corners(box: tuple[ArrayLike, ArrayLike], inputs: int) -> tuple[Floats, Floats]:
    """The ends of a box, checked; one number is every input's."""
    low, high = (np.array(end, dtype=np.float64) for end in box)
    low, high = (np.repeat(end, inputs) if end.ndim == 0 else end for end in (low, high))
    if low.shape != (inputs,) or high.shape != (inputs,):
        raise LawfulError(
            f"a box for {inputs} inputs has as many lower and upper ends, not {low.shape} and {high.shape}"
        )
    wrong = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high) & (low <= high)))
    if len(wrong):
        at = int(wrong[0])
        raise LawfulError(
            f"input {at} of the box goes from {low[at]} to {high[at]}: give finite lo <= hi "
            "(whether two networks agree everywhere is the question of `same`)"
        )
    return low, high


def norm_above(gaps: Floats, norm: float) -> Floats:
    """At least the norm of each row of nonnegative numbers (∞, 1 or 2)."""
    with np.errstate(over="ignore"):
        if norm == np.inf:
            return np.asarray(gaps.max(axis=1))
        size = gaps.sum(axis=1) if norm == 1 else _hypotenuse(gaps)
    return np.asarray(size * (1 + 4 * (gaps.shape[1] + 4) * 2.0**-52))


def _hypotenuse(gaps: Floats) -> Floats:
    largest = gaps.max(axis=1, keepdims=True)
    usual = (largest > 0) & (largest < np.inf)
    scaled = np.where(usual, gaps / np.where(usual, largest, 1.0), 0.0)
    return np.asarray(np.where(usual[:, 0], largest[:, 0] * np.sqrt((scaled**2).sum(axis=1)), largest[:, 0]))


def run(
    splitting: Splitting,
    enough: Callable[[], float],
    finished: Callable[[], bool],
    offer: Callable[[Floats], object],
    deadline: float,
    stalled: Callable[[], bool] = lambda: False,
) -> str:
    """Halve until all boxes are small enough, something else is known, or time is up; says which."""
    try:
        offer(splitting.corners)
        while True:
            splitting.settle(enough())
            if finished():
                return "finished"
            if not len(splitting.open.value):
                return "closed"
            if time.monotonic() >= deadline or len(splitting.open.value) > MOST_OPEN:
                return "time"
            if stalled():
                return "stalled"
            offer(splitting.step())
    except KeyboardInterrupt:
        return "interrupted"
