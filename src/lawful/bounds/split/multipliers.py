"""Slopes, phase multipliers and weights of conditions that make a node's bound large: Adam, a few steps.

The bound is concave in the weights for fixed slopes and its gradient is read off at the minimiser: with x* the corner
where the row is least, and z*, y* the sums and outputs when every activation follows the line that its row met,
`∂/∂α = Λ⁺ z*`, `∂/∂β = -S z*`, `∂/∂w = a · y* + c · x* - bound`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.bounds.layers import rows_of
from lawful.bounds.split.layers import MergedLayers
from lawful.bounds.split.nodes import SearchNodes
from lawful.bounds.split.question import ForbiddenCases
from lawful.bounds.split.relaxation import CaseBound, InputRows, PassStep, bound_case, lines_of, substitute
from lawful.types import Floats, Indices

RATE, DECAY = 0.2, 0.96  # of slopes; multipliers and weights go half as fast. Chosen on ACAS Xu and sat_relu.
LEAST_SCALE = 1e-12
STABLE = (
    1e-7  # a neuron loose by less gets the slope of its sign: in the checker it may be loose, its slope was never tuned
)


class MultiplierGradient(NamedTuple):
    """Of a bound, a row for each node."""

    slope: Floats
    push: Floats
    weight: Floats


def follow(
    layers: MergedLayers, rows: Floats, steps: list[PassStep], low: Floats, high: Floats
) -> tuple[Floats, list[Floats], Floats]:
    """The minimiser x*, the sums z* of every layer, and what reaches the last matrix."""
    values = np.where(rows > 0, low, np.where(rows < 0, high, low / 2 + high / 2))
    point, sums = values, []
    for layer, step in enumerate(steps):
        total = values @ layers.weights[layer].T + layers.biases[layer]
        sums.append(total)
        values = np.where(step.rows >= 0, step.low * total, step.up * total + step.shift)
    return point, sums, values


def gradient_of(
    layers: MergedLayers, cases: ForbiddenCases, nodes: SearchNodes, found: CaseBound
) -> MultiplierGradient:
    """The gradient of `bound_case` in its multipliers."""
    point, sums, values = follow(layers, found.rows, found.steps, nodes.low, nodes.high)
    outputs = values @ layers.weights[-1].T + layers.biases[-1]
    weight = np.einsum("pkm,pm->pk", cases.outputs[nodes.case], outputs) - cases.bounds[nodes.case]
    weight = weight + np.einsum("pkn,pn->pk", cases.inputs[nodes.case], point)
    every = [
        np.where(step.loose, np.maximum(step.rows, 0) * total, 0.0)
        for step, total in zip(found.steps, sums, strict=True)
    ]
    flat = np.concatenate([*sums, np.zeros((len(nodes), 0))], axis=1)
    return MultiplierGradient(np.concatenate([*every, np.zeros((len(nodes), 0))], axis=1), -nodes.phase * flat, weight)


def optimise(layers: MergedLayers, cases: ForbiddenCases, sizes: Floats, nodes: SearchNodes, steps: int) -> Floats:
    """The best multipliers found stay in the nodes; returns their bounds. `sizes`: a typical size of each condition."""
    lines = [lines_of(layers, nodes, layer) for layer in range(layers.depth)]
    first = bound_case(layers, cases, nodes, lines, nodes.slope, nodes.push, nodes.weight)
    # A phase's multiplier is as large as the coefficients that it has to cancel: one scale for each layer.
    scale = np.concatenate(
        [np.tile(np.abs(step.rows).max(axis=1, keepdims=True), step.rows.shape[1]) for step in first.steps]
        + [np.zeros((len(nodes), 0))],
        axis=1,
    )
    scale = np.maximum(scale, LEAST_SCALE)
    norm, used = sizes[nodes.case], cases.used[nodes.case]
    slope, push, weight = nodes.slope.copy(), nodes.push / scale, nodes.weight * norm
    weight = weight / np.maximum(weight.sum(axis=1, keepdims=True), LEAST_SCALE)
    mean = [np.zeros_like(multiplier) for multiplier in (slope, push, weight)]
    square = [np.zeros_like(multiplier) for multiplier in (slope, push, weight)]
    best = np.full(len(nodes), -np.inf)
    for step in range(steps + 1):
        passed = bound_case(layers, cases, nodes, lines, slope, push * scale, weight / norm)
        better = (passed.value > best)[:, None]
        best = np.maximum(best, passed.value)
        nodes.slope = np.where(better, slope, nodes.slope)
        nodes.push = np.where(better, push * scale, nodes.push)
        nodes.weight = np.where(better, weight / norm, nodes.weight)
        if step == steps or bool((best > 0).all()):
            break
        gradient = gradient_of(layers, cases, nodes, passed)
        directions = (gradient.slope, gradient.push * scale, gradient.weight / norm)
        for value, change, m, v, rate in zip(
            (slope, push, weight), directions, mean, square, (RATE, RATE / 2, RATE / 2), strict=True
        ):
            m += 0.1 * (change - m)
            v += 0.01 * (change * change - v)
            value += (
                rate * DECAY**step * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.99 ** (step + 1))) + 1e-12)
            )
        np.clip(slope, layers.slope, 1.0, out=slope)
        np.maximum(push, 0.0, out=push)
        np.maximum(weight, 0.0, out=weight)
        weight *= used
        total = weight.sum(axis=1, keepdims=True)
        weight = np.where(
            total > LEAST_SCALE, weight / np.maximum(total, LEAST_SCALE), used / used.sum(axis=1, keepdims=True)
        )
    return best


def shorten(layers: MergedLayers, cases: ForbiddenCases, nodes: SearchNodes) -> Floats:
    """Round multipliers to what a certificate holds, in place; returns the bounds that are left."""
    rounded = np.round(nodes.slope * 128) / 128
    nodes.slope = np.where(
        nodes.least >= -STABLE * layers.scale, 1.0, np.where(nodes.most <= STABLE * layers.scale, layers.slope, rounded)
    )
    with np.errstate(over="ignore"):
        nodes.push, nodes.weight = (
            multiplier.astype(np.float32).astype(np.float64) for multiplier in (nodes.push, nodes.weight)
        )
    lines = [lines_of(layers, nodes, layer) for layer in range(layers.depth)]
    return bound_case(layers, cases, nodes, lines, nodes.slope, nodes.push, nodes.weight).value


def tune_sums(
    layers: MergedLayers, nodes: SearchNodes, layer: int, neuron: Indices, steps: int
) -> tuple[Floats, Floats, list[Floats]]:
    """Bounds of some sums of a layer on one node, each with slopes of its own; rounded slopes are returned too."""
    weight, bias = rows_of(layers.weights[layer], neuron), layers.biases[layer][neuron]
    merging = np.tile(layers.rough[layer][neuron], 2)  # of the matrix, if it was merged
    start = InputRows(np.concatenate([weight, -weight]), np.concatenate([bias, -bias]), merging)
    at = np.zeros(2 * len(neuron), dtype=np.intp)
    low, high = nodes.low[at], nodes.high[at]
    lines = [lines_of(layers, nodes, below) for below in range(layer)]
    slopes = [met.low[at] for met in lines]
    best, value = [met.copy() for met in slopes], np.full(len(at), -np.inf)
    square = [np.zeros_like(met) for met in slopes]
    for step in range(steps + 1):
        steps_back: list[PassStep] = []
        on_inputs = substitute(layers, start, lines, at, slopes, steps=steps_back)
        bound = on_inputs.least(layers, low, high)
        better = bound > value
        value = np.maximum(bound, value)
        for best_slope, slope in zip(best, slopes, strict=True):
            best_slope[better] = slope[better]
        if step == steps:
            break
        _, sums, _ = follow(layers, on_inputs.rows, steps_back[::-1], low, high)
        for below, (slope, v, met) in enumerate(zip(slopes, square, steps_back[::-1], strict=True)):
            change = np.where(met.loose, np.maximum(met.rows, 0) * sums[below], 0.0)
            v += 0.1 * (change * change - v)
            slope += 0.25 * 0.9**step * change / (np.sqrt(v / (1 - 0.9 ** (step + 1))) + 1e-12)
            np.clip(slope, layers.slopes[below], 1.0, out=slope)
    best = [np.round(met * 128) / 128 for met in best]
    bound = substitute(layers, start, lines, at, best).least(layers, low, high)
    return bound[: len(neuron)], -bound[len(neuron) :], best
