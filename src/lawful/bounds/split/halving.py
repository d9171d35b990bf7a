"""One step of splitting inputs alone: cut and bound nodes once, and say along which input each is to be halved.

The rule that matters most is *where* to halve: along the input that moves the neurons of unknown sign most, each as
much as the condition nearest to being excluded depends on it. A relaxation is loose only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lawful.bounds.split.layers import TINY, MergedLayers
from lawful.bounds.split.nodes import SearchNodes, join
from lawful.bounds.split.propagate import propagate
from lawful.bounds.split.question import ForbiddenCases
from lawful.types import Floats, Indices, Mask


class HalvedNodes(NamedTuple):
    """Nodes after cutting and bounding, which of them are empty, the bound of the condition nearest to being excluded,
    rows on the inputs of that condition and of all together, (nodes, 2, inputs), and the input to halve."""

    nodes: SearchNodes
    empty: Mask
    bound: Floats
    rows: Floats
    along: Indices
    possible: Mask

    @staticmethod
    def concatenate(parts: Sequence[HalvedNodes]) -> HalvedNodes:
        """All of them."""
        nodes = join([part.nodes for part in parts])
        return HalvedNodes(
            nodes, *(np.concatenate(arrays) for arrays in zip(*(part[1:] for part in parts), strict=True))
        )


def halve(shared: tuple[MergedLayers, ForbiddenCases], nodes: SearchNodes) -> HalvedNodes:
    """Cut and bound nodes, in place."""
    layers, cases = shared
    with np.errstate(all="ignore"):  # what is not finite is never called empty
        moves = np.zeros((len(nodes), layers.count, layers.inputs))
        propagation = propagate(layers, cases, nodes, 1, moves)
        value = propagation.conditions.least(layers, nodes.low[propagation.at], nodes.high[propagation.at])
        order = np.lexsort((value, propagation.at))  # the last condition of each node is nearest to being excluded
        nearest = order[np.append(np.flatnonzero(np.diff(propagation.at[order])), len(order) - 1)]
        width = nodes.high - nodes.low
        smear = np.zeros_like(width)
        for layer, step in enumerate(propagation.steps):
            heard = np.abs(step.rows[nearest]) * step.loose[nearest]
            smear += np.einsum("pn,pni->pi", heard, layers.part(moves, layer))
        rows = propagation.conditions.rows[nearest]
        first_of = np.append(0, np.flatnonzero(np.diff(propagation.at)) + 1)
        every = np.add.reduceat(propagation.conditions.rows, first_of)
        # The condition itself counts as much as all neurons together, whatever the scales of both; the widest input
        # decides where neither says anything.
        score = _shares(smear * width) + _shares(np.abs(rows) * width) + 1e-9 * width / layers.width
        middle = nodes.low / 2 + nodes.high / 2
        score = np.where((nodes.low < middle) & (middle < nodes.high), np.nan_to_num(score), -1.0)
    directions = np.stack([rows, every], axis=1)
    return HalvedNodes(
        nodes, propagation.empty, value[nearest], directions, score.argmax(axis=1), score.max(axis=1) >= 0
    )


def _shares(values: Floats) -> Floats:
    return np.asarray(values / np.maximum(values.sum(axis=1, keepdims=True), TINY))
