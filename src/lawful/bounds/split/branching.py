"""Where to split: candidates among neurons and inputs, both children of each bounded once, the best product of gains.

Neither kind of split is enough: halves decide where few inputs matter, phases where many do. What finds the decision
variables of a problem is *which input moves most loose neurons of the first layer*, judged by what the child closes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.bounds.split.layers import MergedLayers
from lawful.bounds.split.nodes import SearchNodes, join
from lawful.bounds.split.propagate import bound_by_intervals, propagate
from lawful.bounds.split.question import ForbiddenCases
from lawful.bounds.split.relaxation import CaseBound, bound_case, lines_of
from lawful.types import Floats, Indices, Mask

LOOSE = 1e-7  # a neuron is counted as loose beyond this: ties at a kink are noise
PROGRESS = 0.1  # weight of neurons and widths that a split settles, beside its bound
TRIES = 32  # candidates of one node: batches share them


@dataclass(frozen=True)
class ChosenSplit:
    """A neuron or an input for every node, and whether there was any."""

    index: Indices
    neuron: Mask
    possible: Mask

    @staticmethod
    def none() -> ChosenSplit:
        """Of no nodes."""
        return ChosenSplit(np.zeros(0, np.intp), np.zeros(0, bool), np.zeros(0, bool))


@dataclass(frozen=True)
class CandidateSplit:
    """A split of every node, and for which of them it is one."""

    index: Indices
    fit: Mask
    neuron: bool


@dataclass
class Brancher:
    """Remembers how much neurons gained elsewhere (pseudo-costs)."""

    layers: MergedLayers
    cases: ForbiddenCases
    full: bool  # children are propagated; otherwise they are only bounded
    halves: bool  # whether inputs are candidates
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.gained, self.tried = np.zeros(self.layers.count), np.zeros(self.layers.count)

    def choose(self, nodes: SearchNodes, bound: Floats, found: CaseBound) -> ChosenSplit:
        """For every node the split whose two children gain most; `found` are the passes behind the bounds."""
        candidates = self._candidates(nodes, found)
        gains = np.stack([self._gain(nodes, bound, candidate) for candidate in candidates], axis=1)
        best = gains.argmax(axis=1)
        index = np.stack([candidate.index for candidate in candidates], axis=1)[np.arange(len(nodes)), best]
        neuron = np.array([candidate.neuron for candidate in candidates])[best]
        return ChosenSplit(index, neuron, gains.max(axis=1) >= 0)

    def _candidates(self, nodes: SearchNodes, found: CaseBound) -> list[CandidateSplit]:
        score = self._losses(nodes, found)
        count = min(max(2, TRIES // len(nodes)), self.layers.count)
        order = _largest(score, count)
        candidates = [_pick(score, order[:, i], True) for i in range(count)]
        if self.full and count:  # as many again that did well elsewhere, or were never tried
            known = np.where(self.tried > 0, self.gained / np.maximum(self.tried, 1), 1e3)
            likely = np.where(score > 0, known * (1 + 1e-3 * self.rng.random(score.shape)), 0.0)
            np.put_along_axis(likely, order, 0.0, axis=1)
            again = _largest(likely, count)
            candidates += [_pick(likely, again[:, i], True) for i in range(count)]
        if self.halves:
            width = nodes.high - nodes.low
            measures = [np.abs(found.rows) * width + 1e-9 * width]
            if self.full and self.layers.depth:
                first = self.layers.part(nodes.least, 0), self.layers.part(nodes.most, 0)
                small = LOOSE * self.layers.scale[: self.layers.sizes[0]]
                loose = ((first[0] < -small) & (first[1] > small)).astype(np.float64)
                measures.append(loose @ self.layers.absolute[0] * width + 1e-12 * width)
            middle = nodes.low / 2 + nodes.high / 2
            for measure in measures:
                measure = np.where((nodes.low < middle) & (middle < nodes.high), measure, 0.0)
                order = _largest(measure, min(2, measure.shape[1]))
                candidates += [_pick(measure, order[:, i], False) for i in range(order.shape[1])]
        return candidates or [CandidateSplit(np.zeros(len(nodes), np.intp), np.zeros(len(nodes), bool), False)]

    def _losses(self, nodes: SearchNodes, found: CaseBound) -> Floats:
        """How much each loose neuron's lines cost the bound."""
        score = np.zeros((len(nodes), self.layers.count))
        for layer, step in enumerate(found.steps):
            least, most, slope = (
                self.layers.part(nodes.least, layer),
                self.layers.part(nodes.most, layer),
                self.layers.slopes[layer],
            )
            lost = -np.minimum(step.rows, 0) * step.shift
            lost = lost + np.maximum(step.rows, 0) * np.maximum(-least * (step.low - slope), (1 - step.low) * most)
            small = LOOSE / 100 * self.layers.part(self.layers.scale[None], layer)
            free = (least < -small) & (most > small) & (slope < 1)
            free &= self.layers.part(nodes.phase, layer) == 0
            self.layers.part(score, layer)[:] = np.where(free, lost + 1e-30, 0.0)
        return score

    def _gain(self, nodes: SearchNodes, bound: Floats, candidate: CandidateSplit) -> Floats:
        sides = [nodes.child(candidate.index, candidate.neuron, side) for side in (0, 1)]
        both = join(sides)
        empty = np.zeros(len(both), dtype=bool)
        if self.full:
            empty = propagate(self.layers, self.cases, both, 1).empty
        elif not candidate.neuron:
            bound_by_intervals(self.layers, both, 0)
            both.most = np.maximum(both.least, both.most)
        lines = [lines_of(self.layers, both, layer) for layer in range(self.layers.depth)]
        value = bound_case(self.layers, self.cases, both, lines, both.slope, both.push, both.weight).value
        rise = np.maximum(np.minimum(value, 0).reshape(2, -1) - bound, 0)
        gain = rise / (np.abs(bound) + 0.01) + 1e-6
        if self.full:
            here, there = self._room(nodes), self._room(both).reshape(2, -1)
            gain = gain + PROGRESS * np.maximum(here - there, 0) / (here + 1e-12)
            gain = np.where(empty.reshape(2, -1), 1.0 + gain, gain)
        gain = np.where(np.isfinite(gain), gain, 1e-6)
        total = np.where(candidate.fit, gain[0] * gain[1], -1.0)
        if candidate.neuron:
            np.add.at(self.gained, candidate.index[candidate.fit], np.sqrt(total[candidate.fit]))
            np.add.at(self.tried, candidate.index[candidate.fit], 1.0)
        return np.asarray(total)

    def _room(self, nodes: SearchNodes) -> Floats:
        """How much of a node is open: loose neurons and free inputs."""
        small = LOOSE * self.layers.scale
        loose = (nodes.least < -small) & (nodes.most > small) & (self.layers.slope < 1)
        free = ((nodes.high - nodes.low) / self.layers.width).mean(axis=1)
        return np.asarray(free + (loose.mean(axis=1) if self.layers.count else 0.0))


def _largest(values: Floats, count: int) -> Indices:
    """The places of the largest entries of each row, the largest first."""
    if count >= values.shape[1]:
        return np.asarray(np.argsort(-values, axis=1)[:, :count])
    part = np.argpartition(-values, count - 1, axis=1)[:, :count] if count else np.zeros((len(values), 0), np.intp)
    return np.asarray(np.take_along_axis(part, np.argsort(-np.take_along_axis(values, part, axis=1), axis=1), axis=1))


def _pick(values: Floats, index: Indices, neuron: bool) -> CandidateSplit:
    return CandidateSplit(index, values[np.arange(len(index)), index] > 0, neuron)


def split(nodes: SearchNodes, branch: ChosenSplit) -> list[tuple[SearchNodes, SearchNodes]]:
    """Both children of each node: of those that split a neuron, and of those that halve an input."""
    which = [np.flatnonzero(branch.neuron), np.flatnonzero(~branch.neuron)]
    pairs: list[tuple[SearchNodes, SearchNodes] | None] = [None] * len(nodes)
    for rows, neuron in zip(which, (True, False), strict=True):
        parents = nodes.take(rows)
        pair = [parents.child(branch.index[rows], neuron, side) for side in (0, 1)]
        for number, row in enumerate(rows):
            one = np.array([number])
            pairs[row] = pair[0].take(one), pair[1].take(one)
    return [pair for pair in pairs if pair is not None]
