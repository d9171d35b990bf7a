"""Sums of products: linear layers, matrix products, convolutions, embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.labels import broadcast, flat, on, varying
from lawful.symmetry.motion import Motion, Shape, Step, index_fields
from lawful.symmetry.rules.elementwise import add_values, multiply_fields
from lawful.symmetry.shifts import LARGEST, Shift


def contract(step: Step, x: Motion, y: Motion, batch: int, sources: tuple[Motion, Motion] | None = None) -> Motion:
    """`z[b, i, j] = Σ_c x[b, i, c] y[b, c, j]`, with `batch` leading dimensions b (of size 1 where they broadcast).

    If x moves by M along c and y by −Mᵀ, then `Σ (Mx)y + x(−Mᵀy) = 0`: z does not move. M may depend on b but not on
    i or j, and must not mix different b. Gauges along i and j pass to z (they must not mix b where the other factor
    changes with b), those along b multiply, as in a product of numbers.
    A shift of x becomes `Σ_c u_c y[c, j]`: one unknown that the data weight along b and j. `sources` are the values
    that x and y are views of: two weights that read one of them move against each other.
    """
    shape = (*broadcast(x.shape[:batch], y.shape[:batch]), x.shape[-2], y.shape[-1])
    line = batch + 2
    left = [_placed(field, x.shape, shape, line, (batch, line)) for field in x.gauges]
    right = [_placed(field, y.shape, shape, line, (line, batch + 1)) for field in y.gauges]
    _one_wide(step, x, y, left, right)
    inner_left = [field for field in left if line in varying(field)]
    inner_right = [field for field in right if line in varying(field)]
    for f, g in zip(inner_left, inner_right, strict=False):
        step.gauges.same(f, g, dual=True, line=[line])
    paired = min(len(inner_left), len(inner_right))
    for field in (*inner_left[paired:], *inner_right[paired:]):
        step.gauges.pin(field, step.name)
    passing = []
    for fields, other in ((left, y), (right, x)):
        outer = [field.select(line, 0) for field in fields if line not in varying(field)]
        shared = [d for d in range(batch) if other.shape[d] > 1]
        carried = {d for field in other.gauges for d in _leading(field, batch)}
        for field in outer:
            step.gauges.blocks(field, [d for d in range(line) if d not in shared])
            step.gauges.tell_apart(field, set(shared) - carried)
        passing.append(outer)
    gauges = multiply_fields(step, *passing, dims=range(batch), shape=shape)
    return Motion(shape, gauges, _contract_shifts(step, x, y, shape, batch, sources))


def _leading(field: torch.Tensor, batch: int) -> list[int]:
    """The batch dimensions along which a field of a factor changes."""
    return [d for d in varying(field) if d < batch]


def _one_wide(step: Step, x: Motion, y: Motion, left: list[torch.Tensor], right: list[torch.Tensor]) -> None:
    """A weight with one input has a scale of its own besides those of its outputs: tie it to the input's scale."""
    for weight, fields, others in ((y, right, left), (x, left, right)):
        scale = [field for field in fields if not varying(field)]
        if weight.raw is None or x.shape[-1] != 1 or len(fields) == len(scale) or not scale:
            continue
        partner = [field for field in others if not varying(field)]
        if partner:
            step.gauges.same(scale[0], partner[0], dual=True)
            others[:] = [field for field in others if field is not partner[0]]
        else:
            step.gauges.pin(scale[0], step.name)
        fields[:] = [field for field in fields if field is not scale[0]]
        return


def _placed(labels: torch.Tensor, own: Shape, shape: Shape, line: int, places: tuple[int, int]) -> torch.Tensor:
    """Labels of a factor in the index space (b, i, j, c); its last two dimensions go to `places`."""
    batch = len(own) - 2
    whole = (*shape, 0)
    sizes = [1] * len(whole)
    for d in range(batch):
        sizes[d] = own[d]
    sizes[places[0]], sizes[places[1]] = own[-2], own[-1]
    if places[0] > places[1]:
        labels = labels.transpose(-1, -2)
    labels = labels.reshape(sizes)
    inner = own[-1] if places[1] == line else own[-2]
    return labels.expand(*shape, inner)


def _contract_shifts(
    step: Step, x: Motion, y: Motion, shape: Shape, batch: int, sources: tuple[Motion, Motion] | None
) -> tuple[Shift, ...]:
    found: list[Shift] = []
    for factor, other, dim, own, others, source in (
        (x, y, len(x.shape) - 1, batch, batch + 1, sources and sources[1]),
        (y, x, len(y.shape) - 2, batch + 1, batch, sources and sources[0]),
    ):
        if factor.raw is not None:  # entries that meet the same entry of the result move as one vector
            axes = [k for k, index in enumerate(factor.indices) if dim not in varying(index)]
            read_centred = factor is y and source is not None and source.centred and factor.shape[dim] > 1
            centred = read_centred and _in_order(step, factor, dim)
            parts = [
                shift.moved(shift.labels.narrow(dim, 0, 1), shift.phases.narrow(dim, 0, 1))
                for shift in step.parameter_shifts(factor, axes, centred=centred)
            ]
        else:
            parts = [step.shifts.summed(shift, dim) for shift in step.shifts.alive(factor.shifts)]
        moving = [d for d in (*range(batch), others) if d == others or other.shape[d] > 1]
        for shift in parts:
            labels, phases = shift.labels, shift.phases
            if dim == len(factor.shape) - 2:  # the row dimension was summed: what is left is a column index
                labels, phases = labels.transpose(-1, -2), phases.transpose(-1, -2)
            sizes = [*factor.shape[:batch], 1, 1]
            sizes[own] = shape[own]
            placed = replace(
                shift, labels=labels.reshape(sizes).expand(shape), phases=phases.reshape(sizes).expand(shape)
            )
            if source is not None and factor.raw is not None and _in_order(step, factor, dim):
                found.append(replace(placed, phases=step.shifts.phase_of((source, dim), shape, moving)))
            else:
                found += step.shifts.weighted([placed], moving)
    return tuple(found)


def _in_order(step: Step, factor: Motion, dim: int) -> bool:
    """Whether the entries of a raw parameter along a dimension are one of its axes, whole and in its own order."""
    along = [axis for axis, index in enumerate(factor.indices) if dim in varying(index)]
    if len(along) != 1 or varying(factor.indices[along[0]]) != (dim,):
        return False
    line = factor.indices[along[0]].movedim(dim, 0).reshape(factor.shape[dim], -1)[:, 0]
    return torch.equal(line, torch.arange(step.parameters[str(factor.raw)][along[0]]))


def _matrix(value: Motion, rank: int) -> Motion:
    """Leading dimensions of size 1 until the rank fits."""
    lead = (1,) * (rank - len(value.shape))
    return value.reshaped(lead + value.shape)


def matmul(step: Step, self: Motion, other: Motion) -> Motion:
    """Matrix product of stacks of matrices, or with a vector: `contract`."""
    x = self.reshaped((1, *self.shape)) if len(self.shape) == 1 else self
    y = other.reshaped((*other.shape, 1)) if len(other.shape) == 1 else other
    if self.zero or other.zero:
        return Motion(step.shape, zero=True)
    rank = max(len(x.shape), len(y.shape))
    return contract(step, _matrix(x, rank), _matrix(y, rank), rank - 2, (self, other)).reshaped(step.shape)


def mm(step: Step, self: Motion, mat2: Motion) -> Motion:
    """Matrix product."""
    return matmul(step, self, mat2)


def linear(step: Step, input: Motion, weight: Motion, bias: Motion | None = None) -> Motion:
    """`z = x Wᵀ + b`: anything acts on a hidden space, `W → W A⁻¹` where read, `W → A W`, `b → A b` where written."""
    product = matmul(step, input, weight.turned() if len(weight.shape) > 1 else weight)
    return product if bias is None else add_values(step, product, bias)


def addmm(step: Step, self: Motion, mat1: Motion, mat2: Motion, beta: float = 1, alpha: float = 1) -> Motion:
    """`b + x W`."""
    if beta != 1 or alpha != 1:
        step.pin(self, mat1, mat2)
        return Motion(step.shape)
    return add_values(step, matmul(step, mat1, mat2), self)


def baddbmm(step: Step, self: Motion, batch1: Motion, batch2: Motion, beta: float = 1, alpha: float = 1) -> Motion:
    """`b + x W`, stacked."""
    if alpha != 1 or beta not in (0, 1):
        step.pin(self, batch1, batch2)
        return Motion(step.shape)
    product = matmul(step, batch1, batch2)
    return product if beta == 0 else add_values(step, product, self)


def convolution(
    step: Step,
    input: Motion,
    weight: Motion,
    bias: Motion | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Motion:
    """`z[o] = Σ_{i, taps} W[o, i, tap] x[i, shifted]`: a linear layer on channels that is the same at every place.

    A gauge of the input acts on channels alone; with groups, on the channels of each group by itself. Kernel axes are
    pinned: moving taps is another function. Zero padding stays zero under any linear map.
    """
    geometry = tuple(str(each) for each in (stride, padding, dilation, groups))
    return _convolve(step, input, weight, bias, groups, outputs=0, geometry=geometry)


def _convolve(
    step: Step,
    input: Motion,
    weight: Motion,
    bias: Motion | None,
    groups: int,
    outputs: int,
    geometry: tuple[str, ...] | None = None,
) -> Motion:
    shape, spatial = step.shape, tuple(range(2, len(input.shape)))
    if len(input.shape) != len(weight.shape):
        step.pin(input, weight, bias)
        return Motion(shape)
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
    product = Motion(shape, gauges, _convolved_shifts(step, input, weight, groups, outputs, geometry))
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
    step: Step, input: Motion, weight: Motion, groups: int, outputs: int, geometry: tuple[str, ...] | None
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


def _whole(step: Step, weight: Motion) -> bool:
    """Whether a raw parameter is as it was given: no entry moved, repeated or dropped."""
    own = index_fields(step.parameters[str(weight.raw)])
    return len(own) == len(weight.indices) and all(map(torch.equal, own, weight.indices))


def transposed_convolution(
    step: Step,
    input: Motion,
    weight: Motion,
    bias: Motion | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Motion:
    """The same with the two channel axes of the weight exchanged: `W[i, o, tap]`."""
    return _convolve(step, input, weight, bias, groups, outputs=1)


def general_convolution(
    step: Step,
    input: Motion,
    weight: Motion,
    bias: Motion | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Motion:
    """ATen's one convolution."""
    return _convolve(step, input, weight, bias, groups, outputs=1 if transposed else 0)


def embedding(
    step: Step,
    weight: Motion,
    indices: Motion,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Motion:
    """`z[s] = W[ids[s]]`: anything acts on the width, the vocabulary is pinned.

    If every row of W moves by one vector, so does z, for all data; other shifts of W depend on the ids.
    """
    width = weight.shape[-1]
    gauges = []
    for field in weight.gauges:
        if 0 in varying(field):
            step.gauges.pin(field, step.name)
        else:
            gauges.append(field[0].expand(*indices.shape, width))
    shifts: tuple[Shift, ...] = ()
    if weight.raw is not None and padding_idx < 0:
        shifts = _embedding_shifts(step, weight, indices)
    else:
        step.pin(replace(weight, gauges=()))
    return Motion(step.shape, tuple(gauges), shifts)


def _embedding_shifts(step: Step, weight: Motion, indices: Motion) -> tuple[Shift, ...]:
    shape, name = step.shape, str(weight.raw)
    last = len(shape) - 1
    fixed = indices.known
    if fixed is not None and weight.shape[0] * weight.shape[1] <= LARGEST:
        found = step.shifts.parameter(name, weight.shape, (False, 0, 1), [0, 1])
        if found is None:
            return ()
        rows = found[0].labels.reshape(weight.shape)[fixed]
        step.shifts.read.append(flat(rows))
        return (Shift(rows.expand(shape), torch.zeros((), dtype=torch.int64).expand(shape)),)
    found = step.shifts.parameter(name, weight.shape, "rows", [1])
    if found is None:
        return ()
    if len(found) == 1:
        rest = found[0]  # (a vector over the ids that are not known, so that two tables read by one of them can part)
        step.shifts.directions[name] = [rest, step.shifts.common(rest, [1], weight.shape)]
    rest, mean = step.shifts.directions[name]
    still = torch.zeros((), dtype=torch.int64).expand(shape)
    return (
        Shift(mean.labels[0].expand(shape), still),
        Shift(rest.labels[0].expand(shape), step.shifts.phase_of((indices, "ids"), shape, range(last))),
    )
