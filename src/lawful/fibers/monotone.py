"""Is a network monotone on a box: does no output fall, or rise, when given inputs grow?"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from lawful.bounds.attack import Candidates
from lawful.bounds.box_bounds import boxes_together
from lawful.bounds.branch_and_bound import Measure, Splitting, corners, run
from lawful.bounds.layers import Layer, exact_outputs, gradients, layers_of, zero_layers
from lawful.bounds.pair import align
from lawful.bounds.slopes import Growth, slope_bounds
from lawful.bounds.workers import workers
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.layers import Array, Stack, as_layers, floating, rational
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.comparison_proof import (
    Proof,
    RegionWalk,
    WalkPlace,
    identity_map,
    paired_layers,
    rational_point,
)
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.half_spaces import Point, walls
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, with_layers
from lawful.result import Shown
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
        stack = as_layers(dag)
        return None if sum(stack.widths[1:-1]) > MOST_NEURONS else cls(stack, directions, outputs)

    def walk(self, low: Floats, high: Floats, deadline: float) -> Proof | None:
        """The decisions that lead through all regions, or None when time is up; raises `WrongWay`."""
        free = np.flatnonzero(low < high)
        walk = _SlopeWalk(_without(self.stack.rational(), low, free), Domain(low[free], high[free]), deadline)
        walk.wanted = [(int(np.searchsorted(free, direction.input)), direction) for direction in self.directions]
        walk.outputs = self.outputs
        start = WalkPlace(0, 0, identity_map(walk.layers.stacks[0]), None)
        try:
            with np.errstate(all="ignore"):  # floats only guess
                walk.layer(start, walls(Domain(low[free], high[free])), rational_point(low[free] / 2 + high[free] / 2))
        except OutOfTime:
            return None
        except WrongWay as wrong:
            point = low.copy()
            point[free] = wrong.point
            raise WrongWay(np.clip(point, low, high), wrong.direction, wrong.output) from None
        return walk.decisions


class _SlopeWalk(RegionWalk):
    """The walk of a proof through one network; it looks at the slopes of every region."""

    wanted: Sequence[tuple[int, Growth]]
    outputs: Sequence[int]

    def __init__(self, stack: Stack, domain: Domain, deadline: float) -> None:
        super().__init__(paired_layers(stack, stack), domain, deadline)

    def layer(self, place: WalkPlace, rows: list[Array], point: Point) -> None:
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


STEPS = tuple(2.0**-k for k in (0, 1, 2, 4, 6, 9, 12, 16, 20, 26, 32))  # shares of a side to move an input by
Outputs = tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class MonotoneCheck(Shown):
    """Whether the outputs are monotone in the given directions on the box.

    *holds*: yes (bounds of slopes in float64, rounded outwards, and exact slopes on all regions of the leaves in
    `regions`); *violated*: `inputs` are two that differ in one of the directions only, and the exact `values` of
    `output` there go the wrong way.
    """

    status: Literal["holds", "violated", "undecided"]
    directions: tuple[Growth, ...]
    outputs: tuple[int, ...]
    inputs: tuple[Floats, Floats] | None
    output: int | None
    values: tuple[Outputs, Outputs] | None
    boxes: int
    seconds: float
    interrupted: bool
    box: tuple[Floats, Floats]
    tree: tuple[int, ...] = (0,)
    regions: tuple[LeafProof, ...] = ()


def read_directions(text: str, inputs: int) -> tuple[Growth, ...]:
    """Read `+0,-2`: outputs must not fall as input 0 grows, and must not rise as input 2 grows.

    >>> read_directions("0,-2", 3)
    (Growth(input=0, rising=True), Growth(input=2, rising=False))
    """
    directions = []
    for word in text.split(","):
        if not re.fullmatch(r"\s*[+-]?\d{1,9}\s*", word):
            raise LawfulError(f"--monotone takes numbers of inputs with signs such as +0,-2, not {text[:40]!r}")
        directions.append(Growth(abs(int(word)), "-" not in word))
    if wrong := [direction.input for direction in directions if direction.input >= inputs]:
        raise LawfulError(f"--monotone: there are inputs 0 to {inputs - 1}, not {wrong[0]}")
    if len({direction.input for direction in directions}) < len(directions):
        raise LawfulError(f"--monotone names an input twice: {text[:40]}")
    return tuple(directions)


def check_monotone(
    network: Mlp | Dag,
    box: tuple[ArrayLike, ArrayLike],
    directions: Sequence[Growth],
    *,
    output: int | None = None,
    seconds: float = 60.0,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> MonotoneCheck:
    """Search the box from both sides: bounds of slopes, and two inputs that show the contrary.

    >>> hat = Mlp([[[1.0], [1.0]], [[1.0, -2.0]]], [[0.0, -1.0], [0.0]])  # rises to 1, then falls
    >>> check_monotone(hat, ([-1.0], [0.9]), [Growth(0, True)]).status
    'holds'
    >>> check_monotone(hat, ([-1.0], [1.5]), [Growth(0, True)]).status
    'violated'
    """
    started = time.monotonic()
    layers = layers_of(network)
    low, high = corners(box, layers[0].weight.shape[1])
    count = len(layers[-1].weight)
    if output is not None and not 0 <= output < count:
        raise LawfulError(f"there are outputs 0 to {count - 1}, not {output}")
    if fixed := [direction.input for direction in directions if low[direction.input] == high[direction.input]]:
        raise LawfulError(f"input {fixed[0]} is a single number in this box: nothing can grow there")
    if not directions or not seconds >= 0:
        raise LawfulError("a monotone check needs at least one direction, and a time limit of at least 0 seconds")
    asked = _Question(layers, tuple(directions), tuple(range(count)) if output is None else (output,), low, high)
    deadline, rng = started + seconds, np.random.default_rng(seed)
    candidates = Candidates(low, high, asked.score)
    pair = align(zero_layers(layers), layers)
    way = partial(slope_bounds, directions=asked.directions, outputs=asked.outputs)
    with workers(pair, way, scheduler, threads) as bounder:
        measure = Measure(lambda bounds: np.maximum(-bounds.low, 0.0), lambda gaps: np.asarray(gaps.max(axis=1)))
        splitting = Splitting(low, high, measure, bounder, boxes_together(pair))
        splitting.settle(0.0)
        search = _Search(asked, splitting, candidates, ExactSlopes.of(network, asked.directions, asked.outputs))
        if len(splitting.open.value):
            candidates.sample(rng, min(deadline, started + max(2.0, 0.1 * seconds)))
            search.run(started, seconds)
    shown = asked.shown
    return MonotoneCheck(
        "violated" if shown else "holds" if search.is_closed else "undecided",
        asked.directions,
        asked.outputs,
        shown[0] if shown else None,
        shown[1] if shown else None,
        shown[2] if shown else None,
        splitting.bounded,
        time.monotonic() - started,
        search.ended == "interrupted",
        (low, high),
        (0,) if search.whole else tuple(splitting.preorder(0.0)),
        tuple(search.regions),
    )


@dataclass
class _Search:
    """Boxes first, which settle most questions at once; then the regions of the whole box, or of the leaves left."""

    asked: _Question
    splitting: Splitting
    candidates: Candidates
    exact: ExactSlopes | None
    ended: str = "closed"
    whole: bool = False  # whether all regions of the whole box were walked
    regions: list[LeafProof] = field(default_factory=list)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is left open."""
        return self.whole or (self.ended == "closed" and (self.splitting.stuck == -math.inf or bool(self.regions)))

    def run(self, started: float, seconds: float) -> None:
        """Halve boxes for a while, walk through regions for a while, and again."""
        self.halve(started + min(1.0, 0.2 * seconds))
        if self.open:
            self.walk_whole(started + 0.4 * seconds)
        if self.open:
            self.halve(started + 0.8 * seconds)
        if self.open:
            self.walk_leaves(started + seconds)

    @property
    def open(self) -> bool:
        """Whether there is still something to decide, and somebody to wait for the answer."""
        return not self.is_closed and self.asked.shown is None and self.ended != "interrupted"

    def halve(self, deadline: float) -> None:
        """Until time is up or no box is open; what is too small to be halved stays a leaf."""
        asked, candidates = self.asked, self.candidates
        self.ended = run(self.splitting, lambda: 0.0, lambda: asked.is_refuted(candidates), candidates.offer, deadline)

    def walk_whole(self, deadline: float) -> None:
        """All regions of the box, if there are few enough."""
        if (decisions := self.walk(self.asked.low, self.asked.high, deadline)) is not None:
            self.whole, self.regions = True, [LeafProof(0, decisions)]

    def walk_leaves(self, deadline: float) -> None:
        """The regions of every box that is left, if they are few."""
        proofs = []
        leaves = list(islice(open_leaves(self.splitting, self.asked.low, self.asked.high), MOST_LEAVES + 1))
        if len(leaves) > MOST_LEAVES:
            return
        for leaf in leaves:
            decisions = None if leaf is None else self.walk(leaf[1], leaf[2], deadline)
            if leaf is None or decisions is None:
                return
            proofs.append(LeafProof(leaf[0], decisions))
        self.ended, self.regions = "closed", proofs

    def walk(self, low: Floats, high: Floats, deadline: float) -> Proof | None:
        """Through the regions of one box; a slope of the wrong sign is shown by two inputs nearby."""
        if self.exact is None or self.asked.shown is not None:
            return None
        try:
            return self.exact.walk(low, high, time.perf_counter() + max(0.0, deadline - time.monotonic()))
        except WrongWay as wrong:
            self.asked.try_around(wrong.point, wrong.direction, wrong.output)
        except KeyboardInterrupt:
            self.ended = "interrupted"
        return None


@dataclass
class _Question:
    """What is asked, and what was found against it."""

    layers: tuple[Layer, ...]
    directions: tuple[Growth, ...]
    outputs: tuple[int, ...]
    low: Floats
    high: Floats
    shown: tuple[tuple[Floats, Floats], int, tuple[Outputs, Outputs]] | None = None
    best: float = 0.0

    def wrong(self, points: Floats) -> Floats:
        """How steeply each output goes the wrong way in each direction, of shape (points, directions, outputs)."""
        violations = np.zeros((len(points), len(self.directions), len(self.outputs)))
        columns, signs = (
            [direction.input for direction in self.directions],
            [-1.0 if d.rising else 1.0 for d in self.directions],
        )
        for place, output in enumerate(self.outputs):
            rows = np.zeros((len(points), len(self.layers[-1].weight)))
            rows[:, output] = 1.0
            violations[:, :, place] = gradients(self.layers, points, rows)[:, columns] * signs
        return violations

    def score(self, points: Floats) -> Floats:
        """The worst of them."""
        return np.asarray(self.wrong(points).max(axis=(1, 2))[:, None])

    def is_refuted(self, candidates: Candidates) -> bool:
        """Whether the best candidate, moved a little, goes the wrong way in exact arithmetic."""
        if self.shown is None and candidates.values[-1] > self.best:
            self.best = float(candidates.values[-1])
            point = candidates.points[-1]
            wrong = self.wrong(point[None])[0]
            direction, place = np.unravel_index(int(wrong.argmax()), wrong.shape)
            self.try_around(point, self.directions[int(direction)], self.outputs[int(place)])
        return self.shown is not None

    def try_around(self, point: Floats, direction: Growth, output: int) -> None:
        """Two inputs near a point, one with a larger coordinate."""
        here = tuple(exact_outputs(self.layers, point))
        for other in self.neighbours(point, direction.input):
            there = tuple(exact_outputs(self.layers, other))
            grows = other[direction.input] > point[direction.input]
            if there[output] != here[output] and (there[output] > here[output]) != (grows == direction.rising):
                if grows:  # the smaller input first
                    self.shown = (point.copy(), other), output, (here, there)
                else:
                    self.shown = (other, point.copy()), output, (there, here)
                return

    def neighbours(self, point: Floats, at: int) -> Iterator[Floats]:
        width = self.high[at] - self.low[at]
        for step in STEPS:
            for sign in (1.0, -1.0):
                other = point.copy()
                other[at] = min(max(point[at] + sign * step * width, self.low[at]), self.high[at])
                if other[at] != point[at]:
                    yield other


def certificate_of_monotone(found: MonotoneCheck, network: Mlp | Dag) -> dict[str, Any]:
    """What `lawful verify` needs to see that the outputs are monotone, or that they are not."""
    if found.status == "undecided":
        raise Unsupported("nothing is known of this question that a certificate could state")
    return {
        "kind": "monotone",
        "version": 1,
        "about": [digest(network)],
        "network": with_layers(network),
        "box": [[str(Fraction(float(end))) for end in side] for side in zip(*found.box, strict=True)],
        "rising": [direction.input for direction in found.directions if direction.rising],
        "falling": [direction.input for direction in found.directions if not direction.rising],
        "outputs": list(found.outputs),
        "inputs": None if found.inputs is None else [point.tolist() for point in found.inputs],
        "tree": None if found.inputs is not None else list(found.tree),
        "regions": [{"leaf": proof.leaf, "decisions": proof.decisions} for proof in found.regions],
    }
