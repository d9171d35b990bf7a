"""Branch and bound on phases of neurons and halves of inputs, for what halving inputs alone leaves open."""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from lawful.bounds.split.attack import NEAR, attack
from lawful.bounds.split.branching import Brancher, split
from lawful.bounds.split.layers import MergedLayers
from lawful.bounds.split.multipliers import optimise, shorten, tune_sums
from lawful.bounds.split.nodes import SearchNodes, join, middles
from lawful.bounds.split.propagate import bound_by_intervals, bound_neurons, meet, propagate
from lawful.bounds.split.question import BoxQuestion, Replay
from lawful.bounds.split.relaxation import bound_case, lines_of
from lawful.bounds.split.tree import Growing, LeafMultipliers, SplitTree, Tuned, widen
from lawful.types import Floats

ROUNDS = 2  # of cutting and bounding at a node
STEPS, ROOT_STEPS, TUNING_STEPS = 12, 40, 12
FEW_INPUTS = 12  # input halves of networks too large to bound anew are tried up to this many
SMALL = 6e6  # multiplications to bound all neurons of a node anew, above which the root's bounds are kept
TOGETHER = 3e6  # numbers in the largest array of a batch of nodes
MARGIN = 1e-7  # in units of the conditions' size: the checker's roundings must fit into it
TUNING_SHARE = 0.12  # of the time, for the root's bounds of one layer
MOST_NUMBERS = 200_000_000  # in all open nodes together: 1.6 GB
SAMPLES = 256  # for the size of conditions


class SearchOutcome(NamedTuple):
    """Without a tree or an input nothing was decided."""

    status: Literal["holds", "violated", "undecided"]
    input: Floats | None
    nodes: int
    tree: SplitTree | None
    why: str  # it ended


def search(
    question: BoxQuestion,
    replay: Replay,
    *,
    seconds: float,
    seed: int = 0,
    full: bool | None = None,
    most_nodes: float = np.inf,
) -> SearchOutcome:
    """Exclude every case, or find an input that `replay` confirms. `full` chooses whether nodes are bounded anew."""
    run = PhaseSearch(question, replay, time.monotonic() + seconds, seconds, seed, full)
    try:
        with np.errstate(all="ignore"):
            return run.run(most_nodes)
    except KeyboardInterrupt:
        return SearchOutcome("undecided", None, run.nodes, None, "interrupted")


class PhaseSearch:
    """One search; `nodes` counts."""

    def __init__(
        self, question: BoxQuestion, replay: Replay, deadline: float, seconds: float, seed: int, full: bool | None
    ) -> None:
        """Prepare; nothing is bounded yet."""
        self.question, self.replay, self.deadline, self.seconds, self.seed = question, replay, deadline, seconds, seed
        self.layers, self.cases = (
            MergedLayers(question.layers, question.low, question.high, question.cases.used.shape[1]),
            question.cases,
        )
        sizes, depth = self.layers.sizes, self.layers.depth
        work = sum(w.size * below for w, below in zip(self.layers.weights[1:-1], sizes, strict=False))
        few = self.layers.inputs <= FEW_INPUTS
        self.full = not depth or (bool(work <= SMALL or depth <= 1 or few) if full is None else full)
        widest = max([*sizes, self.layers.inputs, 1])
        numbers = (
            max([*sizes, 1]) * widest if self.full and depth > 1 else 8 * self.layers.count + 8 * self.layers.inputs
        )
        self.batch = int(np.clip(TOGETHER / numbers, 4, 256))
        self.sizes = self._sizes()
        rng = np.random.default_rng(seed)
        self.brancher = Brancher(self.layers, self.cases, self.full, few or self.full, rng)
        self.growing, self.tuned, self.nodes = Growing(), list[Tuned](), 0

    def _sizes(self) -> Floats:
        """How much each condition varies on the box: weights are in these units, so that scales change nothing."""
        low, high = self.question.low, self.question.high
        share = np.random.default_rng(0).random((SAMPLES, len(low)))
        points = low + share * (high - low)
        values = points
        for weight, bias, slope in zip(
            self.layers.weights, self.layers.biases, [*self.layers.slopes, np.ones(1)], strict=True
        ):
            total = values @ weight.T + bias
            values = np.where(total > 0, total, slope * total)
        rows = self.cases.rows(points, values)
        found = rows.std(axis=0) + 1e-3 * np.abs(rows).mean(axis=0)
        return np.where(self.cases.used & (found > 0) & np.isfinite(found), found, 1.0)

    def run(self, most_nodes: float) -> SearchOutcome:
        """The loop."""
        count, every = len(self.cases.bounds), list(range(len(self.cases.bounds)))
        point = attack(
            self.question, self.replay, every[:64], starts=16, steps=12, seed=self.seed, deadline=self.deadline
        )
        if point is not None:
            return SearchOutcome("violated", point, 0, None, "attack")
        roots = self._roots() if self.layers.measurable else None
        if roots is None or not (np.isfinite(roots.least).all() and np.isfinite(roots.most).all()):
            return SearchOutcome("undecided", None, 0, None, "the network's values are too large for float64")
        ticket, heap = itertools.count(), list[tuple[float, int, tuple[int, ...], SearchNodes]]()
        for case in every:
            heapq.heappush(heap, (0.0, next(ticket), (case,), roots.take(np.array([case]))))
        first = True
        each = 4 * self.layers.count + 2 * self.layers.inputs + 16
        while heap:
            if time.monotonic() > self.deadline:
                return SearchOutcome("undecided", None, self.nodes, None, "the time is up")
            if self.nodes >= most_nodes:
                return SearchOutcome("undecided", None, self.nodes, None, "more nodes were not allowed")
            if len(heap) * each > MOST_NUMBERS:
                return SearchOutcome("undecided", None, self.nodes, None, "too many boxes are open for the memory")
            size = max(self.batch, min(count, 256)) if first else self.batch
            group = [heapq.heappop(heap) for _ in range(min(size, len(heap)))]
            nodes, paths = join([item[3] for item in group]), [item[2] for item in group]
            nodes = replace(nodes, slope=nodes.slope.astype(np.float64), push=nodes.push.astype(np.float64))
            nodes, paths, bound = self._close(nodes, paths, ROOT_STEPS if len(paths[0]) == 1 else STEPS)
            if not paths:
                continue
            if first:
                first = False
                left = sorted({path[0] for path in paths} | {item[2][0] for item in heap})
                point = attack(
                    self.question, self.replay, left[:64], starts=64, steps=60, seed=self.seed + 1,
                    deadline=min(self.deadline, time.monotonic() + max(1.0, 0.2 * self.seconds)),
                )  # fmt: skip
                if point is not None:
                    return SearchOutcome("violated", point, self.nodes, None, "attack")
            point = self._offer(nodes)
            if point is not None:
                return SearchOutcome("violated", point, self.nodes, None, "node")
            branch = self.brancher.choose(nodes, bound)
            if not branch.possible.all():
                return SearchOutcome("undecided", None, self.nodes, None, "a box is too small to split")
            halves = middles(nodes, np.where(branch.neuron, 0, branch.index))
            for row, pair in enumerate(split(nodes, branch)):
                code = 2 + int(branch.index[row]) if branch.neuron[row] else -1 - int(branch.index[row])
                self.growing.splits[paths[row]] = code, float(halves[row])
                for side, child in enumerate(pair):
                    child = replace(child, slope=child.slope.astype(np.float32), push=child.push.astype(np.float32))
                    heapq.heappush(heap, (float(bound[row]), next(ticket), (*paths[row], side), child))
        tree = self.growing.written(
            self.layers, count, ROUNDS if self.full else 0, self.tuned, self.cases.bounds.shape[1]
        )
        return SearchOutcome("holds", None, self.nodes, tree, "closed")

    def _close(
        self, nodes: SearchNodes, paths: list[tuple[int, ...]], steps: int
    ) -> tuple[SearchNodes, list[tuple[int, ...]], Floats]:
        """Bound nodes and make leaves of those that are excluded; the others, and their bounds."""
        self.nodes += len(nodes)
        if self.full:
            empty = propagate(self.layers, self.cases, nodes, ROUNDS)
            for row in np.flatnonzero(empty):
                self.growing.leaves[paths[row]] = None
            rest = np.flatnonzero(~empty)
            nodes, paths = nodes.take(rest), [paths[row] for row in rest]
            if not paths:
                return nodes, paths, np.zeros(0)
        elif self.layers.depth:  # only signs change, and first sums where inputs were halved
            bound_by_intervals(self.layers, nodes, 0)
            nodes.most = np.maximum(nodes.least, nodes.most)
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
        return nodes.take(rest), [paths[row] for row in rest], bound[rest]

    def _offer(self, nodes: SearchNodes) -> Floats | None:
        """The corners where the nodes' own bounds are least, and the centres, as inputs."""
        lines = [lines_of(self.layers, nodes, layer) for layer in range(self.layers.depth)]
        rows = bound_case(self.layers, self.cases, nodes, lines, nodes.slope, nodes.push, nodes.weight).rows
        centre = nodes.low / 2 + nodes.high / 2
        corner = np.where(rows > 0, nodes.low, np.where(rows < 0, nodes.high, centre))
        points = np.clip(np.concatenate([corner, centre]), self.question.low, self.question.high)
        margins = self.cases.margins(self.question.layers, points).min(axis=1)
        for row in np.argsort(margins)[:2]:
            if margins[row] <= NEAR * (1 + np.abs(self.cases.bounds).max()):
                exact = self.replay(points[row])
                if exact is not None:
                    return exact
        return None

    def _roots(self) -> SearchNodes:
        """The whole box, once for each case."""
        layers, cases = self.layers, self.cases
        count, longest = cases.used.shape
        zeros = np.zeros((1, layers.count))
        one = SearchNodes(
            self.question.low[None].copy(), self.question.high[None].copy(), zeros.copy(), zeros.copy(),
            np.zeros((1, layers.count), np.int8), zeros.copy(), zeros.copy(), np.ones((1, longest)),
            np.zeros(1, np.intp),
        )  # fmt: skip
        bound_neurons(layers, one, first=True)
        # Sums bounded term by term grow with every layer, their bounds do not: measure again, then bound again.
        layers.measure(np.maximum(np.abs(one.least), np.abs(one.most))[0])
        bound_neurons(layers, one)
        if not self.full:
            self._tune(one)
        nodes = one.take(np.zeros(count, np.intp))
        nodes.case = np.arange(count)
        lines = [lines_of(layers, nodes, layer) for layer in range(layers.depth)]
        usual = [np.where(each.loose, each.low, 1.0) for each in lines]
        nodes.slope = np.concatenate([*usual, np.zeros((count, 0))], axis=1)
        options = [cases.used / self.sizes] + [
            (cases.used & (np.arange(longest) == k)) / self.sizes for k in range(longest)
        ]
        tries = np.stack(
            [bound_case(layers, cases, nodes, lines, nodes.slope, None, each).value for each in options], axis=1
        )
        present = np.stack([each.any(axis=1) for each in options], axis=1)
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
