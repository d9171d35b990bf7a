"""Norms, means, pools, softmax, attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.labels import varying
from lawful.symmetry.motion import Motion, Step
from lawful.symmetry.rules.contract import contract
from lawful.symmetry.rules.elementwise import add_values, homogeneous, multiply
from lawful.symmetry.shifts import Shift


def _dims(given: Any, rank: int) -> list[int]:
    if given is None or given == []:
        return list(range(rank))
    return [d % rank for d in (given if isinstance(given, (list, tuple)) else [given])]


def _reduced(step: Step, self: Motion, dim: Any, weight: float) -> Motion:
    dims = _dims(dim, len(self.shape))
    x = self.square_of
    if x is not None:
        if all(set(varying(field)) <= set(dims) for field in x.gauges):
            for field in x.gauges:
                step.gauges.orthogonal(field, dims)
            step.shifts.drop(x.shifts)
            return Motion(step.shape)
        self = homogeneous(replace(step, shape=self.shape), x, 2.0)
    self = step.settled(self)
    if self.zero:
        return Motion(step.shape, zero=True)
    gauges = []
    for field in self.gauges:
        if set(varying(field)) & set(dims):
            step.gauges.pin(field, step.name)
        else:
            for d in dims:
                field = field.narrow(d, 0, 1)
            gauges.append(field.reshape(step.shape))
    shifts: list[Shift] = []
    for shift in step.shifts.alive(self.shifts):
        steady = shift.constant and not set(varying(shift.labels)) & set(dims)
        for d in dims:
            shift = step.shifts.summed(shift, d)
        shift = shift.moved(shift.labels.reshape(step.shape), shift.phases.reshape(step.shape))
        shifts += step.shifts.scaled([shift], weight) if steady else step.shifts.weighted([shift], ())
    return Motion(step.shape, tuple(gauges), tuple(shifts))


def mean(step: Step, self: Motion, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Motion:
    """Average over dimensions; of x² over a whole field it is a norm, which orthogonal maps keep."""
    return _reduced(step, self, dim, 1.0)


def total(step: Step, self: Motion, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Motion:
    """Sum over dimensions, as for the mean."""
    dims = _dims(dim, len(self.shape))
    return _reduced(step, self, dim, float(torch.Size([self.shape[d] for d in dims]).numel()))


def norm_along(
    step: Step, self: Motion, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Motion:
    """`‖x‖₂` over dimensions: kept by orthogonal maps."""
    if ord not in (2, 2.0):
        step.pin(self)
        return Motion(step.shape)
    return _reduced(step, Motion(self.shape, square_of=step.settled(self)), dim, 1.0)


def _affine(step: Step, x: Motion, weight: Motion | None, bias: Motion | None) -> Motion:
    """The gain and bias after a normalisation: a product and a sum."""
    if weight is not None:
        x = multiply(step, x, weight)
    return x if bias is None else add_values(step, x, bias)


def layer_norm(
    step: Step,
    input: Motion,
    normalized_shape: Sequence[int],
    weight: Motion | None = None,
    bias: Motion | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Motion:
    """`(x − mean)/√(var + ε)`: orthogonal maps that fix the vector 1 commute with it; constants are not seen."""
    x = step.settled(input)
    dims = list(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    for field in x.gauges:
        step.gauges.orthogonal(field, dims)
        step.gauges.keep_ones(field)
    step.shifts.unseen(x.shifts, dims)
    return _affine(step, Motion(x.shape, x.gauges), weight, bias)


def native_layer_norm(
    step: Step, input: Motion, normalized_shape: Sequence[int], weight: Motion | None, bias: Motion | None, eps: float
) -> tuple[Motion, ...]:
    """The same with its statistics."""
    result = layer_norm(replace(step, shape=input.shape), input, normalized_shape, weight, bias, eps)
    return (result, *(Motion(shape) for shape in step.shapes[1:]))


def rms_norm(
    step: Step, input: Motion, normalized_shape: Sequence[int], weight: Motion | None = None, eps: float | None = None
) -> Motion:
    """`x/√(mean x² + ε)`: orthogonal maps commute with it; shifts are seen."""
    x = step.settled(input)
    dims = list(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    for field in x.gauges:
        step.gauges.orthogonal(field, dims)
    step.shifts.drop(x.shifts)
    return _affine(step, Motion(x.shape, x.gauges), weight, None)


def _by_channel(value: Motion | None, rank: int) -> Motion | None:
    """A vector over channels, laid along dimension 1."""
    if value is None:
        return None
    shape = (*value.shape, *(1,) * (rank - 2))
    return replace(
        value,
        shape=shape,
        gauges=tuple(field.reshape(shape) for field in value.gauges),
        shifts=tuple(shift.moved(shift.labels.reshape(shape), shift.phases.reshape(shape)) for shift in value.shifts),
        indices=tuple(index.reshape(shape) for index in value.indices),
    )


def batch_norm(
    step: Step,
    input: Motion,
    weight: Motion | None,
    bias: Motion | None,
    running_mean: Motion | None,
    running_var: Motion | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Motion:
    """In train mode it does not see what is constant over batch and space (the bias before it is dead); ε pins scales.

    In eval mode it is the affine map `(x − μ)/σ · γ + β`: a diagonal gauge passes if a bias before it can absorb μ.
    """
    x, rank = step.settled(input), len(input.shape)
    if training:
        for field in x.gauges:
            step.gauges.pin(field, step.name, permutes=True)
        step.shifts.unseen(x.shifts, [d for d in range(rank) if d != 1])
        result = Motion(step.shape, x.gauges)  # pinned, but they still permute
    else:
        absorbed = x.absorber is not None and running_mean is not None and running_mean.known is not None
        for field in x.gauges:
            if absorbed:
                step.gauges.diagonal(field)
                step.gauges.tell_apart(field, [1])
            else:
                step.gauges.pin(field, step.name)
        if x.absorber is not None and running_mean is not None and running_mean.known is not None:
            step.gauges.recentre(x.absorber, -running_mean.known.double().cpu().numpy())
        kept = x.gauges if absorbed else ()
        result = Motion(step.shape, kept, step.shifts.weighted(x.shifts, [1]))
    return _affine(step, result, _by_channel(weight, rank), _by_channel(bias, rank))


def native_batch_norm(
    step: Step,
    input: Motion,
    weight: Motion | None,
    bias: Motion | None,
    running_mean: Motion | None,
    running_var: Motion | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Motion, ...]:
    """The same with its statistics."""
    here = replace(step, shape=input.shape)
    result = batch_norm(here, input, weight, bias, running_mean, running_var, training, momentum, eps)
    return (result, *(Motion(shape) for shape in step.shapes[1:]))


def training_batch_norm(
    step: Step, input: Motion, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Motion, ...]:
    """The same, named by its mode."""
    return native_batch_norm(step, input, weight, bias, running_mean, running_var, True, momentum, eps)


def statistics_batch_norm(
    step: Step, input: Motion, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Motion, ...]:
    """The same without running statistics."""
    return native_batch_norm(step, input, weight, bias, None, None, training, momentum, eps)


def group_norm(
    step: Step,
    input: Motion,
    num_groups: int,
    weight: Motion | None = None,
    bias: Motion | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Motion:
    """Layer normalisation of the channels and places of each group; gauges of its input are pinned."""
    x, rank = step.settled(input), len(input.shape)
    for field in x.gauges:
        step.gauges.pin(field, step.name)
    shape = (x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    grouped = [shift.moved(shift.labels.reshape(shape), shift.phases.reshape(shape)) for shift in x.shifts]
    step.shifts.unseen(grouped, range(2, len(shape)))
    return _affine(step, Motion(step.shape), _by_channel(weight, rank), _by_channel(bias, rank))


def instance_norm(
    step: Step,
    input: Motion,
    weight: Motion | None,
    bias: Motion | None,
    running_mean: Motion | None,
    running_var: Motion | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Motion:
    """Group normalisation with one channel in each group; with stored statistics it is batch normalisation's map."""
    if not use_input_stats:
        return batch_norm(step, input, weight, bias, running_mean, running_var, False, momentum, eps)
    return group_norm(step, input, input.shape[1], weight, bias, eps)


def weight_norm(step: Step, v: Motion, g: Motion, dim: int = 0) -> Motion:
    """`W = g v/‖v‖`, row by row: W does not see the length of a row of v, and scales like g.

    Along the other axes a map must keep `‖v‖`: rotations pass.
    """
    kept = list(g.gauges)
    others = [d for d in range(len(v.shape)) if d != dim % len(v.shape)]
    for field in v.gauges:
        if set(varying(field)) & set(others):
            step.gauges.orthogonal(field, others)
            kept.append(field)
        else:
            step.gauges.diagonal(field)
    step.shifts.drop((*step.settled(v).shifts, *step.settled(g).shifts))
    return Motion(step.shape, tuple(field.expand(step.shape) for field in kept))


def softmax(step: Step, self: Motion, dim: int, *rest: Any, **options: Any) -> Motion:
    """What is constant along its dimension is not seen; gauges are."""
    x = step.settled(self)
    for field in x.gauges:
        step.gauges.pin(field, step.name, permutes=True)
    step.shifts.unseen(x.shifts, [dim % len(x.shape)], softmax=True)
    return Motion(step.shape, x.gauges)  # pinned, but they still permute


def attention(
    step: Step,
    query: Motion,
    key: Motion,
    value: Motion,
    attn_mask: Motion | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Motion:
    """`softmax(q kᵀ) v` for each head.

    Queries and keys meet in one contraction (GL(d_head) for each head); values pass, head by head; what is constant
    along the keys does not show in the softmax: the key's bias is dead. Grouped heads repeat keys and values.
    """
    query, key, value = (step.settled(each) for each in (query, key, value))
    rank = len(query.shape)
    if rank > 2 and query.shape[-3] != key.shape[-3]:
        key, value = (_repeated(step, each, query.shape[-3] // each.shape[-3]) for each in (key, value))
    _note_heads(step, query, key, value)
    turned = replace(
        key,
        shape=(*key.shape[:-2], key.shape[-1], key.shape[-2]),
        gauges=tuple(field.transpose(-1, -2) for field in key.gauges),
        shifts=(),
    )
    step.shifts.drop(query.shifts)
    step.shifts.unseen(key.shifts, [rank - 2])
    step.shifts.drop(value.shifts)
    scores = contract(step, replace(query, shifts=()), turned, rank - 2)
    for field in scores.gauges:
        step.gauges.pin(field, step.name)
    if attn_mask is not None:
        mask = step.settled(attn_mask)
        for field in mask.gauges:
            step.gauges.pin(field, step.name)
        step.shifts.unseen(mask.shifts, [len(mask.shape) - 1])
    if rank > 2:
        _tie_heads(step, (query, key, value), attn_mask, rank - 3)
    gauges = []
    for field in value.gauges:
        if rank - 2 in varying(field):
            step.gauges.pin(field, step.name)
        else:
            step.gauges.blocks(field, [rank - 1])
            gauges.append(field.narrow(rank - 2, 0, 1).expand(step.shape))
    return Motion(step.shape, tuple(gauges))


def _note_heads(step: Step, *values: Motion) -> None:
    """Remember which coordinates belong to which head: whole heads may change places."""
    tables = []
    for value in values:
        rank = len(value.shape)
        if rank < 3 or len(value.gauges) != 1 or not set(varying(value.gauges[0])) <= {rank - 3, rank - 1}:
            return
        lead = (0,) * (rank - 3)
        tables.append(value.gauges[0][lead][:, 0].numpy().copy())
    step.gauges.attentions.append((tables[0], tables[1], tables[2]))


def _tie_heads(step: Step, values: Sequence[Motion], mask: Motion | None, dim: int) -> None:
    """Heads change places as wholes, if all of them can; a mask of their own tells them apart."""
    fields = [[field for field in value.gauges if dim in varying(field)] for value in values]
    place = dim - len(values[0].shape)
    alike = mask is None or len(mask.shape) < -place or mask.shape[place] == 1
    if alike and all(len(each) == 1 for each in fields):
        step.gauges.tie_heads(values[0].shape[dim], [each[0] for each in fields], dim)
    else:
        for each in fields:
            for field in each:
                step.gauges.tell_apart(field, [dim])


def _repeated(step: Step, value: Motion, times: int) -> Motion:
    shape = list(value.shape)
    shape[-3] *= times
    return replace(step, shape=tuple(shape)).regrouped(value, lambda labels: labels.repeat_interleave(times, -3))


def pool(step: Step, self: Motion, *rest: Any, **options: Any) -> Motion | tuple[Motion, ...]:
    """Averages over windows: any gauge of the channels passes."""
    return _pooled(step, self, largest=False)


def max_pool(step: Step, self: Motion, *rest: Any, **options: Any) -> Motion | tuple[Motion, ...]:
    """The largest in a window: positive diagonals pass."""
    return _pooled(step, self, largest=True)


def _pooled(step: Step, self: Motion, largest: bool) -> Motion | tuple[Motion, ...]:
    x, shape = step.settled(self), step.shapes[0]
    step.shifts.drop(x.shifts)
    spatial = next((int(letter) for letter in step.name if letter.isdigit()), len(shape) - 2)
    changed = [d for d in range(len(shape)) if shape[d] != x.shape[d] or d >= len(shape) - spatial]
    gauges = []
    for field in x.gauges:
        if set(varying(field)) & set(changed):
            step.gauges.pin(field, step.name)
            continue
        if largest:
            step.gauges.diagonal(field)
        for d in changed:
            field = field.narrow(d, 0, 1)
        gauges.append(field.expand(shape))
    result = Motion(shape, tuple(gauges))
    return result if len(step.shapes) == 1 else (result, *(Motion(other) for other in step.shapes[1:]))


def pad(step: Step, self: Motion, pad: Sequence[int], mode: Any = "constant", value: Any = 0) -> Motion:
    """A border of zeros is linear; any other constant is seen."""
    fill = mode if isinstance(mode, (int, float)) else value
    if fill and (mode == "constant" or isinstance(mode, (int, float))):
        step.pin(self)
        return Motion(step.shape)
    return _pooled(step, self, largest=False)  # type: ignore[return-value]
