"""What is known on a node: its box cut by conditions and phases, and its neurons bounded anew.

The order of these steps is part of the certificate: the checker repeats it. All bounds are rounded outwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.bounds.layers import rows_of
from lawful.bounds.split.layers import TINY, ULP, MergedLayers
from lawful.bounds.split.nodes import SearchNodes
from lawful.bounds.split.question import ForbiddenCases
from lawful.bounds.split.relaxation import InputRows, NeuronLines, PassStep, condition_rows, lines_of, substitute
from lawful.types import Floats, Indices, Mask

# The checker rounds in another order: what is empty here by less than this, relatively, may not be empty there.
EMPTY = 1e-7


class Propagation(NamedTuple):
    """Which nodes are empty, and what the last cut knew: every condition as a row on the inputs of its node."""

    empty: Mask
    conditions: InputRows
    at: Indices
    steps: list[PassStep]  # of the conditions, the first layer first


def propagate(
    layers: MergedLayers, cases: ForbiddenCases, nodes: SearchNodes, rounds: int, moves: Floats | None = None
) -> Propagation:
    """Cut and bound, in place, so many times, and cut once more; `moves` gets the loose neurons' rows on inputs.

    A cut costs one row for each condition, a bound one for each loose neuron: the last cut is nearly free, and closes
    most of the nodes that are closed at all.
    """
    empty = np.zeros(len(nodes), dtype=bool)
    for _ in range(rounds):
        if layers.depth:
            bound_by_intervals(layers, nodes, 0)
        np.maximum(nodes.least, nodes.most, out=nodes.most)
        empty |= contract(layers, cases, nodes).empty
        bound_neurons(layers, nodes, moves=moves)
        empty |= (nodes.least - nodes.most > 10 * EMPTY * layers.scale).any(axis=1)
        np.maximum(nodes.least, nodes.most, out=nodes.most)
    last = contract(layers, cases, nodes)
    return last._replace(empty=empty | last.empty)


def bound_by_intervals(layers: MergedLayers, nodes: SearchNodes, layer: int, *, first: bool = False) -> None:
    """A layer's sums from the intervals below it."""
    if layer == 0:
        low, high = nodes.low, nodes.high
    else:
        low, high = layers.part(nodes.least, layer - 1), layers.part(nodes.most, layer - 1)
        slope = layers.slopes[layer - 1]
        low, high = np.where(low > 0, low, slope * low), np.where(high > 0, high, slope * high)
    weight = layers.weights[layer]
    centre = (low / 2 + high / 2) @ weight.T + layers.biases[layer]
    radius = (high / 2 - low / 2) @ layers.absolute[layer].T + 2 * layers.rough[layer]
    least, most, phase = (layers.part(values, layer) for values in (nodes.least, nodes.most, nodes.phase))
    below = centre - radius if first else np.maximum(least, centre - radius)
    above = centre + radius if first else np.minimum(most, centre + radius)
    least[:], most[:] = (
        np.where(phase > 0, np.maximum(below, 0), below),
        np.where(phase < 0, np.minimum(above, 0), above),
    )


def bound_neurons(
    layers: MergedLayers, nodes: SearchNodes, *, first: bool = False, moves: Floats | None = None
) -> list[NeuronLines]:
    """Intervals for every layer, and a pass backwards for neurons that are loose or split; in place.

    `moves`, if given, gets how much each input moves each neuron, (nodes, neurons, inputs).
    """
    lines: list[NeuronLines] = []
    for layer in range(layers.depth):
        bound_by_intervals(layers, nodes, layer, first=first)
        if moves is not None and not layer:
            moves[:, : layers.sizes[0]] = rows_of(layers.absolute[0], np.arange(layers.sizes[0]))
        if layer:
            least, most, phase = (layers.part(values, layer) for values in (nodes.least, nodes.most, nodes.phase))
            needed = (((least < 0) & (most > 0)) | (phase != 0)) & (layers.slopes[layer] < 1)
            at, neuron = np.nonzero(needed)
            if len(at):
                below, above, rows = bound_sums(layers, nodes, lines, layer, at, neuron)
                meet(layers, nodes, layer, at, neuron, below, above)
                if moves is not None:
                    moves[at, layers.cuts[layer] + neuron] = np.abs(rows)
        lines.append(lines_of(layers, nodes, layer))
    return lines


def bound_sums(
    layers: MergedLayers, nodes: SearchNodes, lines: list[NeuronLines], layer: int, at: Indices, neuron: Indices
) -> tuple[Floats, Floats, Floats]:
    """Bounds of some sums of a layer by the usual slopes, each on one node, and the rows below them."""
    weight, bias, twice = rows_of(layers.weights[layer], neuron), layers.biases[layer][neuron], np.tile(at, 2)
    merging = np.tile(layers.rough[layer][neuron], 2)  # of the matrix, if it was merged
    start = InputRows(np.concatenate([weight, -weight]), np.concatenate([bias, -bias]), merging)
    on_inputs = substitute(layers, start, lines, twice)
    low = on_inputs.least(layers, nodes.low[twice], nodes.high[twice])
    return low[: len(at)], -low[len(at) :], on_inputs.rows[: len(at)]


def meet(
    layers: MergedLayers, nodes: SearchNodes, layer: int, at: Indices, neuron: Indices, below: Floats, above: Floats
) -> None:
    """Use further bounds of some neurons, in place."""
    place = at, neuron
    least, most, phase = (layers.part(values, layer) for values in (nodes.least, nodes.most, nodes.phase))
    below, above = np.maximum(least[place], below), np.minimum(most[place], above)
    least[place] = np.where(phase[place] > 0, np.maximum(below, 0), below)
    most[place] = np.where(phase[place] < 0, np.minimum(above, 0), above)


def contract(layers: MergedLayers, cases: ForbiddenCases, nodes: SearchNodes) -> Propagation:
    """Cut the boxes, in place, to where every condition and every phase of a first-layer neuron may hold.

    A condition is at least `row · x + constant`, which therefore is at most 0 at every forbidden input: its least
    value leaves some room, and no coordinate can use up more than that.
    """
    lines = [lines_of(layers, nodes, layer) for layer in range(layers.depth)]
    conditions, owners, steps = condition_rows(layers, cases, nodes, lines)
    empty = _cut(layers, nodes, conditions, owners)
    if layers.depth:
        at, neuron = np.nonzero(layers.part(nodes.phase, 0))
        if len(at):
            sign = -nodes.phase[at, neuron].astype(np.float64)
            rows, constant = sign[:, None] * rows_of(layers.weights[0], neuron), sign * layers.biases[0][neuron]
            empty |= _cut(layers, nodes, InputRows(rows, constant, layers.rough[0][neuron]), at)
    return Propagation(empty, conditions, owners, steps)


def _cut(layers: MergedLayers, nodes: SearchNodes, rows: InputRows, at: Indices) -> Mask:
    on, low, high = rows.rows, nodes.low[at], nodes.high[at]
    size = np.abs(on) @ layers.xsize + np.abs(rows.constant)
    room = -rows.least(layers, low, high)
    empty = np.zeros(len(nodes), dtype=bool)
    np.logical_or.at(empty, at, room < -EMPTY * size)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        step = np.where(on != 0, np.maximum(room, 0.0)[:, None] / np.abs(on) * (1 + 8 * ULP) + TINY, np.inf)
    owners, starts = np.unique(at, return_index=True)
    upper = np.nextafter(nodes.low[owners] + np.minimum.reduceat(np.where(on > 0, step, np.inf), starts), np.inf)
    lower = np.nextafter(nodes.high[owners] - np.minimum.reduceat(np.where(on < 0, step, np.inf), starts), -np.inf)
    new_low, new_high = np.maximum(nodes.low[owners], lower), np.minimum(nodes.high[owners], upper)
    empty[owners] |= (new_low - new_high > EMPTY * layers.width).any(axis=1)
    nodes.low[owners], nodes.high[owners] = new_low, np.maximum(new_low, new_high)
    return empty
