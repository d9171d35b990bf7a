"""Convolutions: linear layers on channels that are the same at every place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Step, index_fields
from lawful.symmetry.graphs.rules.arithmetic import add_values, multiply_fields
from lawful.symmetry.labels import on, varying
from lawful.symmetry.shifts import Shift


def convolution(
    step: Step,
    input: GraphMotion,
    weight: GraphMotion,
    bias: GraphMotion | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> GraphMotion:
    """`z[o] = Σ_{i, taps} W[o, i, tap] x[i, shifted]`: a linear layer on channels that is the same at every place.

    A gauge of the input acts on channels alone; with groups, on the channels of each group by itself. Kernel axes are
    pinned: moving taps is another function. Zero padding stays zero under any linear map.
    """
    geometry = tuple(str(each) for each in (stride, padding, dilation, groups))
    return _convolve(step, input, weight, bias, groups, outputs=0, geometry=geometry)


def _convolve(
    step: Step,
    input: GraphMotion,
    weight: GraphMotion,
    bias: GraphMotion | None,
    groups: int,
    outputs: int,
    geometry: tuple[str, ...] | None = None,
) -> GraphMotion:
    shape, spatial = step.shape, tuple(range(2, len(input.shape)))
    if len(input.shape) != len(weight.shape):
        step.pin(input, weight, bias)
        return GraphMotion(shape)
    inputs = input.shape[1] // groups
    channels = shape[1] // groups
    # weights as (group, output, input), whatever the layout of the parameter
    folded = (groups, channels, inputs) if outputs == 0 else (groups, inputs, channels)
    written: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    for field in weight.gauges:
        if any(d >= 2 for d in varying(field)):
            step.gauges.pin(field, step.name)
            continue
        for d in reversed(range(2, field.dim())):
            field = field.select(d, 0)
        field = field.reshape(folded)
        field = field if outputs == 0 else field.transpose(1, 2)
        (read if _changes(field, 2) else written).append(field)
    arriving: list[torch.Tensor] = []
    passing: list[torch.Tensor] = []
    for field in input.gauges:
        if any(d in varying(field) for d in (0, *spatial)):
            step.gauges.pin(field, step.name)
            continue
        line = field[(0, slice(None)) + (0,) * len(spatial)].reshape(groups, 1, inputs)
        (arriving if 1 in varying(field) else passing).append(line.expand(groups, channels, inputs))
    if inputs == 1 and groups > 1:  # depthwise: one input for each group, its scale varies with the group
        first, second = (written, read) if len(written) < 2 else (written[:1], written[1:])
        written, read = (first, second) if outputs == 0 else (second, first)
    if inputs == 1 and groups == 1 and weight.raw is not None:
        written, passing = _single_input(step, written, passing)
    for f, g in zip(arriving, read, strict=False):
        step.gauges.same(f, g, dual=True, line=[2])
    paired = min(len(arriving), len(read))
    for field in (*arriving[paired:], *read[paired:]):
        step.gauges.pin(field, step.name)
    out = [
        on([1], shape, field[:, :, 0].reshape(-1)) if varying(field) else field.reshape(-1)[0].expand(shape)
        for field in written
    ]
    gauges = multiply_fields(step, [field.reshape(-1)[0].expand(shape) for field in passing], out, dims=(), shape=shape)
    product = GraphMotion(shape, gauges, _convolved_shifts(step, input, weight, groups, outputs, geometry))
    if bias is None:
        return product
    return add_values(step, product, bias.reshaped((shape[1], *(1 for _ in spatial))))


def _changes(field: torch.Tensor, dim: int) -> bool:
    return dim in varying(field)


def _single_input(
    step: Step, written: list[torch.Tensor], passing: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """As for a linear layer with one input: the weight's own scale undoes the input's."""
    scale = [field for field in written if not varying(field)]
    if not scale or len(written) == len(scale):
        return written, passing
    if passing:
        step.gauges.same(scale[0], passing[0], dual=True)
    else:
        step.gauges.pin(scale[0], step.name)
    return [field for field in written if field is not scale[0]], passing[1:]


def _convolved_shifts(
    step: Step, input: GraphMotion, weight: GraphMotion, groups: int, outputs: int, geometry: tuple[str, ...] | None
) -> tuple[Shift, ...]:
    """A weight's shift moves its output channel by something that depends on the data at every place.

    A shift of the input that is constant in space would still be seen at a padded border: it is followed no further.
    """
    step.shifts.drop(step.settled(input).shifts if input.raw is None else ())
    if weight.raw is None or outputs != 0:
        step.pin(replace(weight, gauges=()))
        return ()
    shape = step.shape
    axes = [k for k, index in enumerate(weight.indices) if varying(index) in ((0,), ()) and k == 0]
    found = []
    for shift in step.parameter_shifts(weight, axes):
        line = shift.labels.reshape(weight.shape)[(slice(None),) + (0,) * (len(weight.shape) - 1)]
        labels = on([1], shape, line) if shape[1] > 1 else line.reshape(-1)[0].expand(shape)
        places = [d for d in range(len(shape)) if d != 1 or groups > 1]
        if geometry is not None and groups == 1 and _whole(step, weight):  # kernels of one size that read one value
            phases = step.shifts.phase_of((input, *geometry, weight.shape[1:]), shape, places)
        else:
            phases = step.shifts.phase(shape, places)
        found.append(Shift(labels, phases))
    return tuple(found)


def _whole(step: Step, weight: GraphMotion) -> bool:
    """Whether a raw parameter is as it was given: no entry moved, repeated or dropped."""
    own = index_fields(step.parameters[str(weight.raw)])
    return len(own) == len(weight.indices) and all(map(torch.equal, own, weight.indices))


def transposed_convolution(
    step: Step,
    input: GraphMotion,
    weight: GraphMotion,
    bias: GraphMotion | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> GraphMotion:
    """The same with the two channel axes of the weight exchanged: `W[i, o, tap]`."""
    return _convolve(step, input, weight, bias, groups, outputs=1)


def general_convolution(
    step: Step,
    input: GraphMotion,
    weight: GraphMotion,
    bias: GraphMotion | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> GraphMotion:
    """ATen's one convolution."""
    return _convolve(step, input, weight, bias, groups, outputs=1 if transposed else 0)
