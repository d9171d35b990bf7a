"""Branch and bound over one box: nodes are bounded in batches, the worst first, closed, or split in two.

Two searches share this loop, a tree and a certificate. `HalvingSearch` splits inputs alone, as the bounds of a node
suggest: a node costs one pass backwards for each loose neuron, and for a few inputs that is hard to beat. `PhaseSearch`
also splits phases of neurons, chooses by looking ahead and optimises multipliers: ten times the cost of a node, and the
only way where conditions have to be combined or many inputs matter. Both cut boxes by the conditions, which is what
makes trees small (without it ACAS Xu's property 5 needs more boxes by an order of magnitude).

Invariant: the leaves of `growing` and the nodes of the heap cover the box, for every case.
"""

from __future__ import annotations

import heapq
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from lawful.bounds.layers import evaluate
from lawful.bounds.split.attack import attack, polish
from lawful.bounds.split.branching import Brancher, ChosenSplit, split
from lawful.bounds.split.certificate import Growing, LeafMultipliers, SplitTree, Tuned, widen
from lawful.bounds.split.halving import HalvedNodes, halve
from lawful.bounds.split.layers import MergedLayers
from lawful.bounds.split.multipliers import optimise, shorten, tune_sums
from lawful.bounds.split.nodes import SearchNodes, join, middles
from lawful.bounds.split.propagate import bound_by_intervals, bound_neurons, meet, propagate
from lawful.bounds.split.question import BoxQuestion, ForbiddenCases, Replay
from lawful.bounds.split.relaxation import bound_case, lines_of
from lawful.types import Floats, Indices

ROUNDS = 2  # of cutting and bounding at a node, where phases are split
STEPS, ROOT_STEPS, TUNING_STEPS = 12, 40, 12
FEW_INPUTS = 12  # input halves of networks too large to bound anew are tried up to this many
SMALL = 6e6  # multiplications to bound all neurons of a node anew, above which the root's bounds are kept,
LARGE = 1e9  # ... and above which they are kept although the inputs are few
TOGETHER = 3e6  # numbers in the largest array of a batch of nodes
MARGIN = 1e-7  # in units of the conditions' size: the checker's roundings must fit into it
TUNING_SHARE = 0.12  # of the time, for the root's bounds of one layer
MOST_NUMBERS = 200_000_000  # in all open nodes together: 1.6 GB
OFFER_EVERY = 16  # nodes: from their best points an attack goes on
SAMPLES = 256  # for the size of conditions
MORE_NODES = "more nodes were not allowed"
Path = tuple[int, ...]  # the case, then sides
Chunks = Sequence[tuple[SearchNodes]]


class SearchOutcome(NamedTuple):
    """Without a tree or an input nothing was decided."""

    status: Literal["holds", "violated", "undecided"]
    input: Floats | None
    nodes: int
    tree: SplitTree | None
    why: str  # it ended


class OpenNodes(NamedTuple):
    """Nodes that were not closed, their bounds, rows on inputs that lead down, (nodes, any number, inputs), and how to
    split them."""

    nodes: SearchNodes
    paths: list[Path]
    bound: Floats
    rows: Floats
    choose: Callable[[], ChosenSplit]


class TreeSearch(ABC):
    """A search that can be stopped after some nodes, and goes on where it was."""

    rounds: int  # of cutting and bounding that the checker repeats at every node

    def __init__(self, question: BoxQuestion, replay: Replay, seconds: float, seed: int) -> None:
        """Prepare; nothing is bounded yet. `seconds` is what all of it may take."""
        self.question, self.replay, self.seconds, self.seed = question, replay, seconds, seed
        self.deadline = time.monotonic() + seconds
        self.cases, self.layers = question.cases, question.layers
        self.growing, self.tuned, self.nodes = Growing(), list[Tuned](), 0
        self._ticket = itertools.count()
        self._heap: list[tuple[float, int, Path, SearchNodes]] | None = None
        self._attacked, self._next_offer, self.together = False, 0, 1

    @property
    def open(self) -> int:
        """How many nodes wait."""
        return len(self._heap or ())

    @abstractmethod
    def bound_roots(self) -> SearchNodes:
        """The whole box, once for each case."""

    @abstractmethod
    def close(self, nodes: SearchNodes, paths: list[Path]) -> OpenNodes:
        """Bound nodes and make leaves of those that are excluded; the others."""

    @property
    @abstractmethod
    def batch(self) -> int:
        """How many nodes are bounded together."""

    def run(self, most_nodes: float = np.inf) -> SearchOutcome:
        """Search on until this many nodes were bounded; an interruption is an outcome."""
        try:
            with np.errstate(all="ignore"):
                return self._run(most_nodes)
        except KeyboardInterrupt:
            return self._give_up("interrupted")

    def _give_up(self, why: str) -> SearchOutcome:
        return SearchOutcome("undecided", None, self.nodes, None, why)

    def begin(self) -> bool:
        """Bound the whole box, if that was not done; whether float64 is enough for that."""
        if self._heap is None and self.layers.measurable:
            with np.errstate(all="ignore"):
                roots = self.bound_roots()
            self.together = self._count_together(roots)
            if np.isfinite(roots.least).all() and np.isfinite(roots.most).all():
                self._heap = [
                    (0.0, next(self._ticket), (case,), roots.take(np.array([case]))) for case in range(len(roots))
                ]
        return self._heap is not None

    def _run(self, most_nodes: float) -> SearchOutcome:
        count = len(self.cases.bounds)
        if not self.begin() or self._heap is None:
            return self._give_up("the network's values are too large for float64")
        heap, size_of_one = self._heap, 4 * self.layers.count + 2 * self.layers.inputs + 16
        while heap:
            if time.monotonic() > self.deadline:
                return self._give_up("the time is up")
            if self.nodes >= most_nodes:
                return self._give_up(MORE_NODES)
            if len(heap) * size_of_one > MOST_NUMBERS:
                return self._give_up("too many boxes are open for the memory")
            group = [heapq.heappop(heap) for _ in range(min(self.batch, len(heap)))]
            left = self.close(join([item[3] for item in group]), [item[2] for item in group])
            if not left.paths:
                continue
            if not self._attacked:  # the root leaves something open: look longer
                self._attacked = True
                open_cases = sorted({path[0] for path in left.paths} | {item[2][0] for item in heap})
                point = attack(
                    self.question, self.replay, open_cases[:64], starts=64, steps=60, seed=self.seed + 1,
                    deadline=min(self.deadline, time.monotonic() + max(1.0, 0.2 * self.seconds)),
                )  # fmt: skip
                if point is not None:
                    return SearchOutcome("violated", point, self.nodes, None, "attack")
            # A descent costs as much as a few nodes: not from every small batch.
            point = self._offer(left) if self.nodes >= self._next_offer else None
            if point is not None:
                return SearchOutcome("violated", point, self.nodes, None, "node")
            branch = left.choose()
            if not branch.possible.all():
                return self._give_up("a box is too small to split")
            halves = middles(left.nodes, np.where(branch.neuron, 0, branch.index))
            for row, pair in enumerate(split(left.nodes, branch)):
                code = 2 + int(branch.index[row]) if branch.neuron[row] else -1 - int(branch.index[row])
                path = left.paths[row]
                self.growing.splits[path] = code, float(halves[row])
                for side, child in enumerate(pair):
                    heapq.heappush(heap, (float(left.bound[row]), next(self._ticket), (*path, side), child))
        tree = self.growing.written(self.layers, count, self.rounds, self.tuned, self.cases.bounds.shape[1])
        return SearchOutcome("holds", None, self.nodes, tree, "closed")

    def _offer(self, left: OpenNodes) -> Floats | None:
        """The corners where the nodes' own bounds are least, and the centres, as starts of a short descent."""
        self._next_offer = self.nodes + OFFER_EVERY
        nodes, rows = left.nodes, left.rows
        centre = nodes.low / 2 + nodes.high / 2
        low, high, middle = (end[:, None] for end in (nodes.low, nodes.high, centre))
        corners = np.where(rows > 0, low, np.where(rows < 0, high, middle)).reshape(-1, rows.shape[2])
        points = np.clip(np.concatenate([corners, centre]), self.question.low, self.question.high)
        return polish(self.question, self.replay, points, self.deadline)

    def bound_box(self) -> SearchNodes:
        """One node of the whole box, its neurons bounded."""
        layers, longest = self.layers, self.cases.used.shape[1]
        zeros = np.zeros((1, layers.count))
        one = SearchNodes(
            self.question.low[None].copy(), self.question.high[None].copy(), zeros.copy(), zeros.copy(),
            np.zeros((1, layers.count), np.int8), zeros.copy(), zeros.copy(), np.ones((1, longest)),
            np.zeros(1, np.intp),
        )  # fmt: skip
        bound_neurons(layers, one, first=True)
        if not layers.is_measured:
            # Sums bounded term by term grow with every layer, their bounds do not: measure again, then bound again.
            layers.measure(np.maximum(np.abs(one.least), np.abs(one.most))[0])
            bound_neurons(layers, one)
        return one

    def for_each_case(self, one: SearchNodes) -> SearchNodes:
        """A node once for each case."""
        count = len(self.cases.bounds)
        nodes = one.take(np.zeros(count, np.intp))
        nodes.case = np.arange(count)
        return nodes

    def _count_together(self, roots: SearchNodes) -> int:
        """How many nodes fit into a batch: each with some rows, or with two for every loose neuron of a layer.

        What is loose on a node was loose at the root, and the first layer's neurons need no row.
        """
        layers, few = self.layers, 4
        numbers, widest = 8 * (layers.count + layers.inputs), layers.inputs
        for layer in range(1, layers.depth if self.rounds else 0):
            widest, few = max(widest, layers.sizes[layer - 1]), 1
            least, most = layers.part(roots.least, layer)[0], layers.part(roots.most, layer)[0]
            numbers = max(numbers, 2 * int(((least < 0) & (most > 0)).sum()) * widest)
        return int(np.clip(TOGETHER / numbers, few, 256))


class HalvingSearch(TreeSearch):
    """Halves of inputs alone; `halver` bounds chunks of nodes, maybe elsewhere."""

    rounds = 1

    def __init__(self, question: BoxQuestion, replay: Replay, seconds: float, seed: int, workers: int = 1) -> None:
        """`workers` chunks of nodes are bounded at a time."""
        super().__init__(question, replay, seconds, seed)
        self.workers = workers
        self.halver: Callable[[Chunks], list[HalvedNodes]] = self.halve_here

    @property
    def batch(self) -> int:
        """As many as all workers take."""
        return self.together * self.workers

    @property
    def worker_context(self) -> tuple[MergedLayers, ForbiddenCases]:
        """What a worker needs beside the nodes."""
        return self.layers, self.cases

    def halve_here(self, chunks: Chunks) -> list[HalvedNodes]:
        """Bound the chunks one after the other."""
        return [halve(self.worker_context, *chunk) for chunk in chunks]

    def bound_roots(self) -> SearchNodes:
        """The whole box, once for each case."""
        return self.for_each_case(self.bound_box())

    def close(self, nodes: SearchNodes, paths: list[Path]) -> OpenNodes:
        """One round of cutting and bounding closes a node, or leaves it open."""
        self.nodes += len(nodes)
        starts = range(0, len(nodes), self.together)
        chunks = [(nodes.take(np.arange(at, min(at + self.together, len(nodes)))),) for at in starts]
        halved = HalvedNodes.concatenate(self.halver(chunks))
        for row in np.flatnonzero(halved.empty):
            self.growing.leaves[paths[row]] = None
        rest = np.flatnonzero(~halved.empty)
        branch = ChosenSplit(halved.along[rest], np.zeros(len(rest), bool), halved.possible[rest])
        return OpenNodes(
            halved.nodes.take(rest), [paths[row] for row in rest], halved.bound[rest], halved.rows[rest], lambda: branch
        )


class PhaseSearch(TreeSearch):
    """Phases of neurons and halves of inputs, with optimised multipliers."""

    def __init__(
        self, question: BoxQuestion, replay: Replay, seconds: float, seed: int, full: bool | None = None
    ) -> None:
        """`full` says whether all neurons of a node are bounded anew; chosen by the network's size if not given."""
        super().__init__(question, replay, seconds, seed)
        sizes, depth = self.layers.sizes, self.layers.depth
        work = sum(weight.size * below for weight, below in zip(self.layers.weights[1:-1], sizes, strict=False))
        few = self.layers.inputs <= FEW_INPUTS
        small = work <= SMALL or depth <= 1 or (few and work <= LARGE)
        self.full = not depth or (small if full is None else full)
        self.rounds = ROUNDS if self.full else 0
        self.sizes = self._sizes()
        rng = np.random.default_rng(seed)
        self.brancher = Brancher(self.layers, self.cases, self.full, few or self.full, rng)

    @property
    def batch(self) -> int:
        """All cases at first."""
        size = max(4, self.together)
        return max(size, min(len(self.cases.bounds), 256)) if not self.nodes else size

    def _sizes(self) -> Floats:
        """How much each condition varies on the box: weights are in these units, so that scales change nothing."""
        low, high = self.question.low, self.question.high
        points = low + np.random.default_rng(0).random((SAMPLES, len(low))) * (high - low)
        rows = self.cases.rows(points, evaluate(self.layers.simple, points))
        spread = rows.std(axis=0) + 1e-3 * np.abs(rows).mean(axis=0)
        return np.where(self.cases.used & (spread > 0) & np.isfinite(spread), spread, 1.0)

    def close(self, nodes: SearchNodes, paths: list[Path]) -> OpenNodes:
        """Propagate, optimise multipliers, and keep those of excluded nodes as a certificate holds them."""
        self.nodes += len(nodes)
        # Waiting nodes keep single precision: any multipliers are valid, and they are most of the memory.
        nodes = replace(nodes, slope=nodes.slope.astype(np.float64), push=nodes.push.astype(np.float64))
        if self.full:
            empty = propagate(self.layers, self.cases, nodes, ROUNDS).empty
            for row in np.flatnonzero(empty):
                self.growing.leaves[paths[row]] = None
            nodes, paths = _rest(nodes, paths, np.flatnonzero(~empty))
        elif self.layers.depth:  # only signs change, and first sums where inputs were halved
            bound_by_intervals(self.layers, nodes, 0)
            nodes.most = np.maximum(nodes.least, nodes.most)
        if paths:
            steps = ROOT_STEPS if len(paths[0]) == 1 else STEPS
            bound = optimise(self.layers, self.cases, self.sizes, nodes, steps)
            short = nodes.take(np.arange(len(nodes)))
            sure = (shorten(self.layers, self.cases, short) > MARGIN) & (bound > 0)
            for row in np.flatnonzero(sure):
                self.growing.leaves[paths[row]] = LeafMultipliers(
                    (short.slope[row] * 128).astype(np.uint8),
                    short.push[row].astype(np.float32),
                    short.weight[row].astype(np.float32),
                )
            rest = np.flatnonzero(~sure)
            (nodes, paths), bound = _rest(nodes, paths, rest), bound[rest]
        if not paths:
            return OpenNodes(nodes, paths, np.zeros(0), nodes.low[:, None], ChosenSplit.none)
        lines = [lines_of(self.layers, nodes, layer) for layer in range(self.layers.depth)]
        pass_back = bound_case(self.layers, self.cases, nodes, lines, nodes.slope, nodes.push, nodes.weight)

        def choose() -> ChosenSplit:
            chosen = self.brancher.choose(nodes, bound, pass_back)
            nodes.slope, nodes.push = nodes.slope.astype(np.float32), nodes.push.astype(np.float32)
            return chosen

        return OpenNodes(nodes, paths, bound, pass_back.rows[:, None], choose)

    def bound_roots(self) -> SearchNodes:
        """The whole box, once for each case, with the best simple weights of conditions: all of them, or one."""
        layers, cases, one = self.layers, self.cases, self.bound_box()
        if not self.full:
            self._tune(one)
        nodes = self.for_each_case(one)
        count, longest = cases.used.shape
        lines = [lines_of(layers, nodes, layer) for layer in range(layers.depth)]
        usual = [np.where(line.loose, line.low, 1.0) for line in lines]
        nodes.slope = np.concatenate([*usual, np.zeros((count, 0))], axis=1)
        options = [cases.used / self.sizes] + [
            (cases.used & (np.arange(longest) == k)) / self.sizes for k in range(longest)
        ]
        tries = np.stack(
            [bound_case(layers, cases, nodes, lines, nodes.slope, None, option).value for option in options], axis=1
        )
        present = np.stack([option.any(axis=1) for option in options], axis=1)
        best = np.where(present & np.isfinite(tries), tries, -np.inf).argmax(axis=1)
        nodes.weight = np.stack(options, axis=1)[np.arange(count), best]
        return nodes

    def _tune(self, one: SearchNodes) -> None:
        """The whole box's bounds of inner neurons with slopes of their own, kept for the certificate."""
        layers = self.layers
        for layer in range(1, layers.depth):
            bound_by_intervals(layers, one, layer)
            least, most = layers.part(one.least, layer), layers.part(one.most, layer)
            neuron = np.flatnonzero(((least < 0) & (most > 0) & (layers.slopes[layer] < 1))[0])
            if not len(neuron):
                continue
            cost = 6e-10 * 2 * len(neuron) * sum(weight.size for weight in layers.weights[:layer])  # seconds a step
            steps = int(np.clip(TUNING_SHARE * self.seconds / max(cost, 1e-12), 0, TUNING_STEPS))
            below, above, slopes = tune_sums(layers, one, layer, neuron, steps)
            meet(layers, one, layer, np.zeros(len(neuron), np.intp), neuron, below, above)
            self.tuned.append(widen(layers, layer, neuron, slopes))


def _rest(nodes: SearchNodes, paths: list[Path], rows: Indices) -> tuple[SearchNodes, list[Path]]:
    return nodes.take(rows), [paths[row] for row in rows]
