"""No input of a box leads into a case: a tree of phases of neurons and halves of inputs, multipliers at its leaves.

Children `z <= 0` and `z >= 0`, or `x <= m` and `x >= m`, contain their parent whatever the file says, so the leaves
cover the box. A leaf is closed if its box or an interval is empty, or if some `w >= 0`, slopes in [s, 1] and `β >= 0`
make `Σ w (a · y + c · x - bound) - Σ β S z`, relaxed line by line, positive on its box: then not all conditions of the
case hold at an input of the leaf (weak duality, any such numbers do). On the way boxes are cut: a condition that is at
least `row · x + constant` leaves `row · x + constant <= 0` at every forbidden input, and a phase likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.verify.bounds.network import MOST_NUMBERS, Floats, Indices, rows_of
from lawful.verify.bounds.packed import unpacked
from lawful.verify.bounds.split_layers import (
    TINY,
    ULP,
    BoundedRows,
    PhaseLines,
    SizedTower,
    lines_of,
    substitute,
)
from lawful.verify.core.schema import integer, integers, items, limit_cost, numbers, object_with_keys, require

MOST_ROUNDS = 8
MOST_HALVINGS = 12  # of a leaf that is open here by a rounding
TOGETHER = 2_000_000  # numbers in the largest array of nodes that are checked together
# In elementary steps of 3e-7 s (what a whole check may take by what it may count). A multiplication of the count below
# took 7e-11 s on ACAS Xu (2e-4 steps), a node beside its products 50 µs and 0.2 µs a neuron.
PRICE, NODE_PRICE = 5e-4, 200


class CaseRows(NamedTuple):
    """Conditions `outputs · y + inputs · x <= bounds` of one case: doubles, the bounds rounded up."""

    outputs: Floats
    inputs: Floats
    bounds: Floats


class TreeEvidence(NamedTuple):
    """The tree in preorder, case after case, and the multipliers of its leaves, as they were written."""

    splits: list[int]
    middles: list[float]
    slopes: Floats
    pushes: Floats
    weights: Floats
    rounds: int
    tuned: dict[int, tuple[Indices, Floats]]


def read_evidence(value: object, tower: SizedTower, cases: list[CaseRows]) -> TreeEvidence:
    """The evidence for one box, with its sizes checked."""
    given = object_with_keys(value, "proof", "splits middles slopes pushes weights rounds tuned")
    splits = integers(given["splits"], "splits", -len(tower.xsize), 1 + tower.count)
    leaves, longest = splits.count(0), max(len(case.bounds) for case in cases)
    middles = numbers(given["middles"], "middles", length=sum(code < 0 for code in splits))
    slopes = unpacked(given["slopes"], "u1", leaves, tower.count) / 128
    pushes = unpacked(given["pushes"], "<f4", leaves, tower.count)
    weights = unpacked(given["weights"], "<f4", leaves, longest)
    for each in (pushes, weights):
        require(bool((np.isfinite(each) & (each >= 0)).all()), "a multiplier is negative or infinite")
    tuned: dict[int, tuple[Indices, Floats]] = {}
    slopes_tuned = 0
    for item in items(given["tuned"], "tuned", most=max(tower.depth, 1)):
        part = object_with_keys(item, "tuned", "layer neurons slopes")
        layer = integer(part["layer"], "tuned.layer", 1, tower.depth - 1)
        width = len(tower.biases[layer])
        neurons = np.array(integers(part["neurons"], "tuned.neurons", 0, width - 1, most=width), dtype=np.intp)
        require(layer not in tuned and len(set(neurons.tolist())) == len(neurons), "a neuron is tuned twice")
        slopes_tuned += 2 * len(neurons) * int(tower.cuts[layer])
        require(slopes_tuned <= MOST_NUMBERS, "a packed table is missing or too large")
        tuned[layer] = neurons, unpacked(part["slopes"], "u1", 2 * len(neurons), int(tower.cuts[layer])) / 128
    return TreeEvidence(
        splits, middles, slopes, pushes, weights, integer(given["rounds"], "rounds", 0, MOST_ROUNDS), tuned
    )


@dataclass
class TreeNodes:
    """Nodes of a tree: boxes, bounds of all sums, phases, whether nothing is left, and how often a leaf was halved."""

    low: Floats
    high: Floats
    least: Floats
    most: Floats
    phase: NDArray[np.int8]
    dead: NDArray[np.bool_]
    halved: Indices

    def take(self, which: Indices) -> TreeNodes:
        """Some of them, copied."""
        return TreeNodes(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


def _joined(parts: list[TreeNodes]) -> TreeNodes:
    return TreeNodes(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(TreeNodes)})


def exclude(tower: SizedTower, low: Floats, high: Floats, cases: list[CaseRows], value: object) -> int:
    """Check the evidence that no case is reached from the box; the number of nodes."""
    evidence = read_evidence(value, tower, cases)
    with np.errstate(all="ignore"):  # what is not finite is refused where it is used
        return _Check(tower, low, high, cases, evidence).run()


class _Check:
    def __init__(
        self, tower: SizedTower, low: Floats, high: Floats, cases: list[CaseRows], evidence: TreeEvidence
    ) -> None:
        self.tower, self.low, self.high, self.cases, self.evidence = tower, low, high, cases, evidence
        inner = [weight.size + 4 * max(weight.shape) for weight in tower.weights]  # of a sparse one: what is stored
        work = sum(2 * len(tower.biases[k]) * sum(inner[:k]) for k in range(tower.depth))
        each = PRICE * (work * evidence.rounds + 4 * sum(inner)) + NODE_PRICE + tower.count
        limit_cost(len(evidence.splits) * each + PRICE * 3 * work)  # the root is bounded up to three times
        widest = max(max(weight.shape) for weight in tower.weights)
        self.batch = int(np.clip(TOGETHER / (widest * (widest if evidence.rounds else 8)), 1, 256))

    def run(self) -> int:
        children, roots = self._tree()
        codes = np.array(self.evidence.splits, dtype=np.int64)
        leaf_of = np.cumsum(codes == 0) - 1
        middle_of = np.cumsum(codes < 0) - 1
        start, nodes = self._root(), 0
        for case, root in zip(self.cases, roots, strict=True):
            waiting: list[tuple[int, TreeNodes]] = [(root, start)]
            while waiting:
                group, waiting = waiting[-self.batch :], waiting[: -self.batch]
                require(True, "")  # the clock
                ids = np.array([number for number, _ in group], dtype=np.intp)
                here = _joined([each for _, each in group])
                nodes += len(ids)
                self._propagate(here, case)
                code = codes[ids]
                open_ = (code == 1) & ~here.dead
                leaf = np.flatnonzero((code == 0) & ~here.dead)
                if len(leaf):
                    open_[leaf] = ~self._closed(here.take(leaf), case, leaf_of[ids[leaf]])
                for row in np.flatnonzero(open_):
                    waiting += [(int(ids[row]), half) for half in self._halved(here.take(np.array([row])))]
                for row in np.flatnonzero((code != 0) & (code != 1) & ~here.dead):
                    number = int(ids[row])
                    for side in (0, 1):
                        child = here.take(np.array([row]))
                        if code[row] >= 2:
                            child.phase[0, code[row] - 2] = 1 if side else -1
                        else:
                            place, middle = -1 - int(code[row]), self.evidence.middles[middle_of[number]]
                            if side:
                                child.low[0, place] = max(child.low[0, place], middle)
                            else:
                                child.high[0, place] = min(child.high[0, place], middle)
                        waiting.append((int(children[number, side]), child))
        return nodes

    def _tree(self) -> tuple[Indices, list[int]]:
        """The children of every node, and the roots: one for each case."""
        stack: list[int] = []
        roots: list[int] = []
        children = np.full((len(self.evidence.splits), 2), -1)
        for number, code in enumerate(self.evidence.splits):
            if stack:
                side = int(children[stack[-1], 0] >= 0)
                children[stack.pop() if side else stack[-1], side] = number
            else:
                roots.append(number)
            if code not in (0, 1):
                stack.append(number)
        require(not stack and len(roots) == len(self.cases), "the tree is not whole")
        return children, roots

    def _root(self) -> TreeNodes:
        """The whole box. Sizes are measured twice: sums by terms alone grow with every layer, their bounds do not."""
        tower = self.tower
        size = np.concatenate([*tower.sizes[:-1], np.zeros(0)])[None]
        start = TreeNodes(
            self.low[None].copy(), self.high[None].copy(), -size, size.copy(), np.zeros((1, tower.count), np.int8),
            np.zeros(1, dtype=bool), np.zeros(1, dtype=np.intp),
        )  # fmt: skip
        self._bound_neurons(start)
        require(bool(np.isfinite(start.least).all() and np.isfinite(start.most).all()), "a number overflows")
        require(bool((start.least <= start.most).all()), "the whole box is empty")
        tower.measure(np.maximum(np.abs(start.least), np.abs(start.most))[0])
        size = np.concatenate([*tower.sizes[:-1], np.zeros(0)])[None]
        start.least, start.most = np.maximum(start.least, -size), np.minimum(start.most, size)
        self._bound_neurons(start)
        if self.evidence.tuned:
            self._bound_neurons(start, tuned=True)
        self._settle(start)
        require(not start.dead[0], "the whole box is empty")
        return start

    # What is known on nodes: these work in place

    def _propagate(self, nodes: TreeNodes, case: CaseRows) -> None:
        self._settle(nodes)
        for layer in self._linear() if not self.evidence.rounds else ():
            self._interval(nodes, layer)
        self._settle(nodes)
        for _ in range(self.evidence.rounds):
            for layer in self._linear():
                self._interval(nodes, layer)
            self._settle(nodes)
            self._contract(nodes, case)
            self._settle(nodes)
            self._bound_neurons(nodes)
            self._settle(nodes)
        if self.evidence.rounds:
            self._contract(nodes, case)
            self._settle(nodes)

    def _linear(self) -> list[int]:
        """Layers whose sums are linear in the inputs."""
        return [layer for layer, chain in enumerate(self.tower.chains) if chain.below < 0]

    def _settle(self, nodes: TreeNodes) -> None:
        """Use the phases, and note where nothing is left."""
        for each in (nodes.least, nodes.most, nodes.low, nodes.high):
            require(bool(np.isfinite(each).all()), "a number overflows")
        nodes.least = np.where(nodes.phase > 0, np.maximum(nodes.least, 0), nodes.least)
        nodes.most = np.where(nodes.phase < 0, np.minimum(nodes.most, 0), nodes.most)
        nodes.dead |= (nodes.least > nodes.most).any(axis=1) | (nodes.low > nodes.high).any(axis=1)
        nodes.most, nodes.high = np.maximum(nodes.least, nodes.most), np.maximum(nodes.low, nodes.high)

    def _interval(self, nodes: TreeNodes, layer: int) -> None:
        chain = self.tower.chains[layer]
        low, high = nodes.low, nodes.high
        if chain.below >= 0:
            slope = self.tower.slopes[chain.below]
            low, high = (self.tower.part(each, chain.below) for each in (nodes.least, nodes.most))
            low, high = np.where(low > 0, low, slope * low), np.where(high > 0, high, slope * high)
        least, most = (self.tower.part(each, layer) for each in (nodes.least, nodes.most))
        middle = (low / 2 + high / 2) @ chain.matrix.T + chain.shift
        width = (high / 2 - low / 2) @ chain.size.T + chain.lost
        np.maximum(least, middle - width, out=least)
        np.minimum(most, middle + width, out=most)

    def _bound_neurons(self, nodes: TreeNodes, *, tuned: bool = False) -> None:
        """Intervals, and a pass backwards for neurons that are loose or split, or tuned."""
        tower, lines = self.tower, list[PhaseLines]()
        for layer in range(tower.depth):
            require(True, "")  # the clock
            self._interval(nodes, layer)
            least, most, phase = (tower.part(each, layer) for each in (nodes.least, nodes.most, nodes.phase))
            slopes: Floats | None = None
            at, neuron = np.nonzero((((least < 0) & (most > 0)) | (phase != 0)) & (tower.slopes[layer] < 1))
            if tuned:  # of the one root
                neuron, slopes = self.evidence.tuned.get(layer, (np.zeros(0, np.intp), None))
                at = np.zeros(len(neuron), np.intp)
            if layer and len(at):
                twice, weight, bias = np.tile(at, 2), rows_of(tower.weights[layer], neuron), tower.biases[layer][neuron]
                exact = BoundedRows(
                    np.concatenate([weight, -weight]), np.concatenate([bias, -bias]), np.zeros(2 * len(at))
                )
                found = substitute(tower, exact, lines, twice, slopes)
                low = found.least(tower, nodes.low[twice], nodes.high[twice])
                least[at, neuron] = np.maximum(least[at, neuron], low[: len(at)])
                most[at, neuron] = np.minimum(most[at, neuron], -low[len(at) :])
            # Inside a pass an interval may be empty: the node is dead then, and any lines do.
            most_here = np.where(phase < 0, np.minimum(most, 0), most)
            least_here = np.where(phase > 0, np.maximum(least, 0), least)
            least[:], most[:] = least_here, most_here
            nodes.dead |= (least > most).any(axis=1)
            np.maximum(least, most, out=most)
            lines.append(lines_of(tower.slopes[layer], least, most))

    def _all_lines(self, nodes: TreeNodes) -> list[PhaseLines]:
        part = self.tower.part
        return [
            lines_of(self.tower.slopes[layer], part(nodes.least, layer), part(nodes.most, layer))
            for layer in range(self.tower.depth)
        ]

    def _combined(
        self,
        nodes: TreeNodes,
        case: CaseRows,
        weights: Floats,
        at: Indices,
        slopes: Floats | None = None,
        pushes: Floats | None = None,
    ) -> BoundedRows:
        """At most `Σ w (outputs · y + inputs · x - bound)`, for each row of weights, on node `at`."""
        tower = self.tower
        top, on_inputs = weights @ case.outputs, weights @ case.inputs
        size = (
            np.abs(case.outputs) @ (2 * tower.sizes[-1]) + 2 * np.abs(case.inputs) @ tower.xsize + np.abs(case.bounds)
        )
        start = BoundedRows(
            top @ tower.weights[-1], top @ tower.biases[-1] - weights @ case.bounds, tower.g * (weights @ size)
        )
        found = substitute(tower, start, self._all_lines(nodes), at, slopes, pushes)
        return found._replace(rows=found.rows + on_inputs)

    def _contract(self, nodes: TreeNodes, case: CaseRows) -> None:
        """Cut the boxes to where every condition may hold, and every phase of a sum that is linear in the inputs."""
        count, rows = len(nodes.low), len(case.bounds)
        at = np.repeat(np.arange(count), rows)
        self._cut(nodes, self._combined(nodes, case, np.tile(np.eye(rows), (count, 1)), at), at)
        for layer in self._linear():
            chain = self.tower.chains[layer]
            at, neuron = np.nonzero(self.tower.part(nodes.phase, layer))
            if len(at):
                sign = -nodes.phase[at, self.tower.cuts[layer] + neuron].astype(np.float64)
                on = sign[:, None] * rows_of(chain.matrix, neuron)
                self._cut(nodes, BoundedRows(on, sign * chain.shift[neuron], chain.lost[neuron]), at)

    def _cut(self, nodes: TreeNodes, rows: BoundedRows, at: Indices) -> None:
        """`rows · x + constant - lost <= 0` holds at every forbidden input of its node."""
        room = -rows.least(self.tower, nodes.low[at], nodes.high[at])  # what one coordinate can use up at most
        nodes.dead[at[room < 0]] = True
        on = rows.rows
        step = np.maximum(room, 0)[:, None] / np.abs(on) * (1 + 8 * ULP) + TINY
        owners, starts = np.unique(at, return_index=True)
        above = np.minimum.reduceat(np.where(on > 0, step, np.inf), starts)
        below = np.minimum.reduceat(np.where(on < 0, step, np.inf), starts)
        high = np.nextafter(nodes.low[owners] + above, np.inf)
        low = np.nextafter(nodes.high[owners] - below, -np.inf)
        nodes.low[owners] = np.maximum(nodes.low[owners], low)
        nodes.high[owners] = np.minimum(nodes.high[owners], high)

    def _closed(self, nodes: TreeNodes, case: CaseRows, leaf: Indices) -> NDArray[np.bool_]:
        """Whether the multipliers of each leaf exclude the case on it."""
        proof = self.evidence
        weights = proof.weights[leaf][:, : len(case.bounds)]
        found = self._combined(
            nodes, case, weights, np.arange(len(leaf)), proof.slopes[leaf], proof.pushes[leaf] * nodes.phase
        )
        return np.asarray(found.least(self.tower, nodes.low, nodes.high) > 0)

    def _halved(self, node: TreeNodes) -> list[TreeNodes]:
        """A leaf that is not closed: halves of its widest side, a few times: roundings differ from the maker's."""
        require(int(node.halved[0]) < MOST_HALVINGS, "a leaf of the tree may lead to what is forbidden")
        width = node.high[0] - node.low[0]
        place = int(np.argmax(width / np.where(self.high > self.low, self.high - self.low, 1.0)))
        require(bool(width[place] > 0), "a leaf of the tree may lead to what is forbidden")
        middle = node.low[0, place] / 2 + node.high[0, place] / 2
        halves = [node.take(np.zeros(1, np.intp)) for _ in range(2)]
        halves[0].high[0, place] = halves[1].low[0, place] = middle
        for half in halves:
            half.halved += 1
        return halves
