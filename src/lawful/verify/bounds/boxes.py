"""Boxes of inputs and the trees that halve them: what distances, properties and directions have in common."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lawful.verify.bounds.network import Floats
from lawful.verify.core.schema import items, rational, require

MOST_HALVINGS = 3  # of a leaf that does not quite close here
MOST_NUMBERS = 4_000_000  # in the forms of the boxes that are bounded together
Sides = list[tuple[Fraction, Fraction]]


def read_box(value: object, inputs: int) -> Sides:
    """The sides of a box."""
    sides = []
    for side in items(value, "box", length=inputs):
        low, high = (rational(end, "box") for end in items(side, "box", length=2))
        require(low <= high, "a side of the box is inverted")
        sides.append((low, high))
    return sides


def leaves_of(tree: list[int], box: Sides) -> list[Sides]:
    """The boxes of a tree in preorder: 0 is a leaf, `1 + k` a box that is halved along input k."""
    waiting, leaves = [box], []
    for node in tree:
        require(bool(waiting), "the tree goes on after its end")
        here = waiting.pop()
        if node:
            waiting += reversed(halves(here, node - 1))
        else:
            leaves.append(here)
    require(not waiting, "the tree ends too early")
    return leaves


def halves(box: Sides, along: int) -> list[Sides]:
    """Both halves of a box."""
    low, high = box[along]
    middle = (low + high) / 2
    return [[*box[:along], side, *box[along + 1 :]] for side in ((low, middle), (middle, high))]


def widest(box: Sides) -> int:
    """The longest side."""
    return max(range(len(box)), key=lambda side: box[side][1] - box[side][0])


def centres_and_radii(boxes: list[Sides]) -> tuple[Floats, Floats]:
    """Centres and radii of boxes."""
    ends = np.array([[middle_of(*side) for side in box] for box in boxes], dtype=np.float64)
    return ends[:, :, 0], ends[:, :, 1]


def middle_of(low: Fraction, high: Fraction) -> tuple[float, float]:
    """A float near the middle of an interval, and one that is at least the distance to both ends."""
    middle = float((low + high) / 2)
    reach = max(high - Fraction(middle), Fraction(middle) - low)
    radius = float(reach)
    return middle, radius if Fraction(radius) >= reach else float(np.nextafter(radius, np.inf))
