"""Recurrent layers, given to ATen as one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.labels import on
from lawful.symmetry.motion import Motion, Step


def _layers(weights: Sequence[Motion], biased: bool) -> Iterator[tuple[Motion, ...]]:
    """Input weight, hidden weight and, if there are, the two biases of each layer and direction."""
    each = 4 if biased else 2
    for start in range(0, len(weights), each):
        yield tuple(weights[start : start + each])


def gated(
    step: Step,
    input: Motion,
    hx: Any,
    params: Sequence[Motion],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Motion, ...]:
    """LSTM, GRU and tanh layers see every gauge, but of their two biases only the sum: one may move against the other.

    In a GRU that holds for the reset and update gates; the new state keeps its two biases apart.
    """
    step.pin(input, *(hx if isinstance(hx, (list, tuple)) else [hx]))
    for weight, hidden, *biases in _layers(params, has_biases):
        step.pin(weight, hidden)
        for bias in biases:
            step.pin(replace(bias, raw=None, indices=()))
        if biases:
            first, second = (step.settled(replace(bias, gauges=())) for bias in biases)
            both = step.shifts.plus(first.shifts, second.shifts)
            step.shifts.drop(both)
            if step.name == "gru":
                last = biases[0].shape[0] // 3
                for shift in (*first.shifts, *second.shifts):
                    step.shifts.vanish(shift.labels[-last:])
    return tuple(Motion(shape) for shape in step.shapes)


def rectified(
    step: Step,
    input: Motion,
    hx: Motion,
    params: Sequence[Motion],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Motion, ...]:
    """`h' = relu(W x + b + U h + c)` from h = 0: a positive diagonal D acts as `W → DW`, `U → DUD⁻¹`, b and c → Db, Dc.

    For one layer in one direction with a zero start; otherwise as for the gated ones.
    """
    if num_layers != 1 or bidirectional or not hx.zero or len(params[0].gauges) != 2 or len(params[1].gauges) != 2:
        given = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return gated(step, input, hx, params, *given)
    step.pin(input)
    weight, hidden, *biases = params
    units = weight.gauges[0][:, 0]
    for field in (weight.gauges[1],):
        step.gauges.pin(field, step.name)
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


def _states(units: torch.Tensor, shape: tuple[int, ...]) -> Motion:
    return Motion(shape, (on([len(shape) - 1], shape, units),))
