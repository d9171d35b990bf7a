"""One pass backwards: a linear function of a layer becomes one of the inputs that is nowhere larger.

With `φ(z) = max(z, 0) + s min(z, 0)` and `l <= z <= u`, a positive coefficient takes a lower line of any slope in
[s, 1], a negative one the upper line through both ends. Where a phase `S z >= 0` is known, `-β S z` with `β >= 0` may
be added. Any such numbers give a bound, so the search may be as careless with them as it likes; roundings are added up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lawful.bounds.split.layers import TINY, ULP, MergedLayers
from lawful.bounds.split.nodes import SearchNodes
from lawful.bounds.split.question import ForbiddenCases
from lawful.types import Floats, Indices, Mask

TIE = 0.999  # the usual lower slope is 1 where u >= TIE·(-l): a tie must not flip with a rounding


class NeuronLines(NamedTuple):
    """Of one layer, (nodes, neurons): the loose neurons, upper slope and shift, and the usual lower slope."""

    loose: Mask
    up: Floats
    shift: Floats
    low: Floats


class PassStep(NamedTuple):
    """What a pass leaves at a layer: the coefficients on its activations and the lines that they met."""

    rows: Floats
    low: Floats
    up: Floats
    shift: Floats
    loose: Mask


def lines_of(layers: MergedLayers, nodes: SearchNodes, layer: int) -> NeuronLines:
    """The lines around a layer's activations."""
    low, high, slope = layers.part(nodes.least, layer), layers.part(nodes.most, layer), layers.slopes[layer]
    loose = (low < 0) & (high > 0) & (slope < 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        up = np.where(loose, (high - slope * low) / (high - low), np.where(low >= 0, 1.0, slope))
    # The line is lifted above both ends of the activation, whatever slope the division gave.
    shift = np.maximum(slope * low - up * low, high - up * high) + 8 * ULP * (np.abs(low) + np.abs(high))
    usual = np.where(loose, np.where(high >= -TIE * low, 1.0, slope), up)
    return NeuronLines(loose, up, np.where(loose, np.maximum(shift, 0.0), 0.0), usual)


class InputRows(NamedTuple):
    """Functions `rows · x + constant - lost` of the inputs, each at most what it stands for."""

    rows: Floats
    constant: Floats
    lost: Floats

    def least(self, layers: MergedLayers, low: Floats, high: Floats) -> Floats:
        """At most the least value of each on its box."""
        value = self.constant + np.einsum("pn,pn->p", np.maximum(self.rows, 0.0), low)
        value += np.einsum("pn,pn->p", np.minimum(self.rows, 0.0), high)
        lost = self.lost + layers.g * (np.abs(self.rows) @ layers.xsize + np.abs(self.constant))
        return np.asarray(value - 1.01 * lost - TINY)


def substitute(
    layers: MergedLayers,
    given: InputRows,
    lines: list[NeuronLines],
    at: Indices | None = None,
    slopes: list[Floats] | None = None,
    pushes: Floats | None = None,
    steps: list[PassStep] | None = None,
) -> InputRows:
    """Rows on the activations of the last layer of `lines`, as rows on the inputs.

    Row i belongs to node `at[i]`, to node i if nothing is said. `slopes` are lower slopes of loose neurons by layer,
    a row each; `pushes` are `S β` of all neurons. `steps`, if given, gets a `Step` a layer, the last one first.
    """
    rows, constant, lost = given
    for layer in range(len(lines) - 1, -1, -1):
        loose, up, shift, low = lines[layer] if at is None else NeuronLines(*(field[at] for field in lines[layer]))  # type: ignore[arg-type]
        if slopes is not None:
            low = np.where(loose, slopes[layer], up)
        if steps is not None:
            steps.append(PassStep(rows, low, up, shift, loose))
        size, negative = np.abs(rows), np.minimum(rows, 0.0)
        constant = constant + np.einsum("pn,pn->p", negative, shift)
        rows = (rows - negative) * low + negative * up
        if pushes is not None:
            rows = rows - layers.part(pushes, layer)
            size += np.abs(layers.part(pushes, layer))
        lost = lost + size @ layers.rough[layer]
        constant = constant + rows @ layers.biases[layer]
        rows = rows @ layers.weights[layer]
    return InputRows(rows, constant, lost)


class CaseBound(NamedTuple):
    """Lower bounds of `Σ w (a · y + c · x - bound)`, the rows on the inputs that they come from, and the steps."""

    value: Floats
    rows: Floats
    steps: list[PassStep]


def bound_case(
    layers: MergedLayers,
    cases: ForbiddenCases,
    nodes: SearchNodes,
    lines: list[NeuronLines],
    slope: Floats,
    push: Floats | None,
    weight: Floats,
) -> CaseBound:
    """A positive bound excludes the case on the node: no input there satisfies all of its conditions."""
    start = _on_outputs(layers, cases, nodes.case, weight)
    steps: list[PassStep] = []
    on_inputs = substitute(
        layers,
        start,
        lines,
        slopes=[layers.part(slope, layer) for layer in range(layers.depth)],
        pushes=None if push is None else push * nodes.phase,
        steps=steps,
    )
    on_inputs = on_inputs._replace(rows=on_inputs.rows + np.einsum("pk,pkn->pn", weight, cases.inputs[nodes.case]))
    return CaseBound(on_inputs.least(layers, nodes.low, nodes.high), on_inputs.rows, steps[::-1])


def _on_outputs(layers: MergedLayers, cases: ForbiddenCases, case: Indices, weight: Floats) -> InputRows:
    """`Σ w (a · y + c · x - bound)` without `c · x` as rows on the last activations; what is lost includes `c · x`."""
    top = np.einsum("pk,pkm->pm", weight, cases.outputs[case])
    constant = top @ layers.biases[-1] - np.einsum("pk,pk->p", weight, cases.bounds[case])
    size = 2 * np.abs(cases.outputs) @ layers.most[-1] + 2 * np.abs(cases.inputs) @ layers.xsize + np.abs(cases.bounds)
    lost = layers.g * np.einsum("pk,pk->p", weight, size[case]) + np.abs(top) @ layers.rough[-1]
    return InputRows(top @ layers.weights[-1], constant, lost)


def condition_rows(
    layers: MergedLayers, cases: ForbiddenCases, nodes: SearchNodes, lines: list[NeuronLines]
) -> tuple[InputRows, Indices, list[PassStep]]:
    """Every condition of a node's case alone, at most 0 at every forbidden input, whose it is, and its steps."""
    at, which = np.nonzero(cases.used[nodes.case])
    case = nodes.case[at]
    one = (np.arange(cases.used.shape[1]) == which[:, None]).astype(np.float64)
    steps: list[PassStep] = []
    on_inputs = substitute(layers, _on_outputs(layers, cases, case, one), lines, at, steps=steps)
    return on_inputs._replace(rows=on_inputs.rows + cases.inputs[case, which]), at, steps[::-1]
