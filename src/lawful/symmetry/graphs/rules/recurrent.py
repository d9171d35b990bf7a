"""Recurrent layers, given to ATen as one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.labels import on, varying


def _layers(weights: Sequence[GraphMotion], biased: bool) -> Iterator[tuple[GraphMotion, ...]]:
    """Input weight, hidden weight and, if there are, the two biases of each layer and direction."""
    each = 4 if biased else 2
    for start in range(0, len(weights), each):
        yield tuple(weights[start : start + each])


def _read_input(step: Step, input: GraphMotion, weights: Sequence[GraphMotion]) -> None:
    """Inputs are read by linear maps, `W x`: a gauge of the features acts on the columns of every W that reads them."""
    last = len(input.shape) - 1
    fields = [field for field in input.gauges if varying(field) == (last,)]
    columns = [field for weight in weights for field in weight.gauges if varying(field) == (1,)]
    whole = len(fields) == 1 and len(columns) == len(weights) and input.raw is None
    for field in input.gauges:
        if not whole or field is not fields[0]:
            step.gauges.pin(field, step.name)
    for column in columns:
        if whole:
            step.gauges.same(fields[0][(0,) * last], column[0], dual=True)
        else:
            step.gauges.pin(column, step.name)
    step.shifts.drop(step.settled(input).shifts)


def gated(
    step: Step,
    input: GraphMotion,
    hx: Any,
    params: Sequence[GraphMotion],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[GraphMotion, ...]:
    """LSTM, GRU and tanh layers see every gauge of their units, but permutations pass: rows of all gates, columns of U.

    Of their two biases they see only the sum: one may move against the other. In a GRU that holds for the reset and
    update gates; the new state keeps its two biases apart. Inputs are read by linear maps.
    """
    starts = hx if isinstance(hx, (list, tuple)) else [hx]
    if params[1].shape[0] % params[1].shape[1] or len(params) % (4 if has_biases else 2):
        raise TypeError("projected states are not followed")
    step.pin(*starts)
    directions = 2 if bidirectional else 1
    layers = list(_layers(params, has_biases))
    _read_input(step, input, [layer[0] for layer in layers[:directions]])
    below: torch.Tensor | None = None
    for first in range(0, len(layers), directions):
        units = [_units(step, layer, below) for layer in layers[first : first + directions]]
        below = torch.cat([each for each in units if each is not None]) if None not in units else None
    for layer in layers:
        _forget_shifts(step, layer)
    alike = below is not None and all(start.zero for start in starts)
    if not alike:
        return tuple(GraphMotion(shape) for shape in step.shapes)
    shape = step.shapes[0]
    return (_states(below, shape), *(GraphMotion(other) for other in step.shapes[1:]))  # type: ignore[arg-type]


def _units(step: Step, layer: Sequence[GraphMotion], below: torch.Tensor | None) -> torch.Tensor | None:
    """Labels of a layer's units: pinned, but they permute with the rows of every gate; None if not followed."""
    weight, hidden, *biases = layer
    width = hidden.shape[1]
    for part in layer:
        for field in part.gauges:
            if part is not weight or varying(field) != (1,) or below is not None:
                step.gauges.pin(field, step.name, permutes=True)
    fields = [field for part in (weight, hidden) for field in part.gauges if varying(field) == (0,)]
    columns = [field for field in hidden.gauges if varying(field) == (1,)]
    if len(fields) != 2 or len(columns) != 1 or width == 1:
        for field in (*fields, *columns, *(field for bias in biases for field in bias.gauges)):
            step.gauges.pin(field, step.name)
        return None
    units = step.gauges.fresh(width)
    step.gauges.pin(units, step.name, permutes=True)
    lines = [*(field[:, 0] for field in fields), *(field for bias in biases for field in bias.gauges)]
    for line in lines:
        for gate in line.reshape(-1, width):
            step.gauges.same(units, gate)
    step.gauges.same(units, columns[0][0], dual=True)
    if below is not None:
        for field in weight.gauges:
            if varying(field) == (1,):
                step.gauges.same(below, field[0], dual=True)
    return units


def _forget_shifts(step: Step, layer: Sequence[GraphMotion]) -> None:
    weight, hidden, *biases = (replace(part, gauges=()) for part in layer)
    step.pin(weight, hidden)
    if biases:
        first, second = (step.settled(bias) for bias in biases)
        step.shifts.drop(step.shifts.plus(first.shifts, second.shifts))
        if step.name == "gru":
            last = biases[0].shape[0] // 3
            for shift in (*first.shifts, *second.shifts):
                step.shifts.vanish(shift.labels[-last:])


def rectified(
    step: Step,
    input: GraphMotion,
    hx: GraphMotion,
    params: Sequence[GraphMotion],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[GraphMotion, ...]:
    """`h' = relu(W x + b + U h + c)` from h = 0: a positive diagonal D acts as `W → DW`, `U → DUD⁻¹`, b and c → Db, Dc.

    For one layer in one direction with a zero start; otherwise as for the gated ones.
    """
    if num_layers != 1 or bidirectional or not hx.zero or len(params[0].gauges) != 2 or len(params[1].gauges) != 2:
        given = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return gated(step, input, hx, params, *given)
    weight, hidden, *biases = params
    _read_input(step, input, [weight])
    units = weight.gauges[0][:, 0]
    step.gauges.diagonal(units)
    step.gauges.same(units, hidden.gauges[0][:, 0])
    step.gauges.same(units, hidden.gauges[1][0], dual=True)
    step.pin(*(replace(part, gauges=()) for part in (weight, hidden)))
    if biases:
        for bias in biases:
            step.gauges.same(units, bias.gauges[0])
        first, second = (step.settled(replace(bias, gauges=())) for bias in biases)
        step.shifts.drop(step.shifts.plus(first.shifts, second.shifts))
    return tuple(_states(units, shape) for shape in step.shapes)


def _states(units: torch.Tensor, shape: tuple[int, ...]) -> GraphMotion:
    return GraphMotion(shape, (on([len(shape) - 1], shape, units),))
