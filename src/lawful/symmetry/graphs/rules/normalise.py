"""Norms, means and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.graphs.rules.arithmetic import add_values, homogeneous, multiply
from lawful.symmetry.labels import varying
from lawful.symmetry.shifts import Shift


def _dims(given: Any, rank: int) -> list[int]:
    if given is None or given == []:
        return list(range(rank))
    return [d % rank for d in (given if isinstance(given, (list, tuple)) else [given])]


def _reduced(step: Step, self: GraphMotion, dim: Any, weight: float) -> GraphMotion:
    dims = _dims(dim, len(self.shape))
    x = self.square_of
    if x is not None:
        if all(set(varying(field)) <= set(dims) for field in x.gauges):
            for field in x.gauges:
                step.gauges.orthogonal(field, dims)
            step.shifts.drop(x.shifts)
            return GraphMotion(step.shape)
        self = homogeneous(replace(step, shape=self.shape), x, 2.0)
    self = step.settled(self)
    if self.zero:
        return GraphMotion(step.shape, zero=True)
    gauges = [step.levelled(field, dims).reshape(step.shape) for field in self.gauges]
    shifts: list[Shift] = []
    for shift in step.shifts.alive(self.shifts):
        steady = shift.constant and not set(varying(shift.labels)) & set(dims)
        for d in dims:
            shift = step.shifts.summed(shift, d)
        shift = shift.moved(shift.labels.reshape(step.shape), shift.phases.reshape(step.shape))
        shifts += step.shifts.scaled([shift], weight) if steady else step.shifts.weighted([shift], ())
    return GraphMotion(step.shape, tuple(gauges), tuple(shifts))


def mean(step: Step, self: GraphMotion, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> GraphMotion:
    """Average over dimensions; of x² over a whole field it is a norm, which orthogonal maps keep."""
    return _reduced(step, self, dim, 1.0)


def total(step: Step, self: GraphMotion, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> GraphMotion:
    """Sum over dimensions, as for the mean."""
    dims = _dims(dim, len(self.shape))
    return _reduced(step, self, dim, float(torch.Size([self.shape[d] for d in dims]).numel()))


def norm_along(
    step: Step, self: GraphMotion, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> GraphMotion:
    """`‖x‖₂` over dimensions: kept by orthogonal maps."""
    if ord not in (2, 2.0):
        step.pin(self)
        return GraphMotion(step.shape)
    squares = _reduced(step, GraphMotion(self.shape, square_of=step.settled(self)), dim, 1.0)
    return homogeneous(step, squares, 0.5)


def deviation(step: Step, self: GraphMotion, dim: Any = None, *rest: Any, **options: Any) -> GraphMotion:
    """`√var`, degree 1."""
    return _spread(step, self, dim, 1.0)


def variance(step: Step, self: GraphMotion, dim: Any = None, *rest: Any, **options: Any) -> GraphMotion:
    """Mean square about the mean, degree 2."""
    return _spread(step, self, dim, 2.0)


def _spread(step: Step, self: GraphMotion, dim: Any, degree: float) -> GraphMotion:
    """Constants along its dimensions are not seen; one scale along them passes, and scales of the others."""
    x = step.settled(self)
    dims = _dims(None if isinstance(dim, bool) else dim, len(x.shape))
    step.shifts.unseen(x.shifts, dims)
    levelled = (step.levelled(field, dims).reshape(step.shape) for field in x.gauges)
    return GraphMotion(step.shape, tuple(step.gauges.power(field, degree) for field in levelled))


def _affine(step: Step, x: GraphMotion, weight: GraphMotion | None, bias: GraphMotion | None) -> GraphMotion:
    """The gain and bias after a normalisation: a product and a sum."""
    if weight is not None:
        x = multiply(step, x, weight)
    return x if bias is None else add_values(step, x, bias)


def layer_norm(
    step: Step,
    input: GraphMotion,
    normalized_shape: Sequence[int],
    weight: GraphMotion | None = None,
    bias: GraphMotion | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> GraphMotion:
    """`(x − mean)/√(var + ε)`: orthogonal maps that fix the vector 1 commute with it; constants are not seen."""
    x = step.settled(input)
    dims = list(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    for field in x.gauges:
        if step.gauges.means:
            step.gauges.centre(field, dims)
        else:
            step.gauges.orthogonal(field, dims)
            step.gauges.keep_ones(field)
    step.shifts.unseen(x.shifts, dims)
    if step.gauges.means:
        return _affine(step, GraphMotion(x.shape), weight, bias)
    bare = weight is None and bias is None and len(dims) == 1
    return _affine(step, GraphMotion(x.shape, x.gauges, centred=bare), weight, bias)


def native_layer_norm(
    step: Step,
    input: GraphMotion,
    normalized_shape: Sequence[int],
    weight: GraphMotion | None,
    bias: GraphMotion | None,
    eps: float,
) -> tuple[GraphMotion, ...]:
    """The same with its statistics."""
    result = layer_norm(replace(step, shape=input.shape), input, normalized_shape, weight, bias, eps)
    return (result, *(GraphMotion(shape) for shape in step.shapes[1:]))


def rms_norm(
    step: Step,
    input: GraphMotion,
    normalized_shape: Sequence[int],
    weight: GraphMotion | None = None,
    eps: float | None = None,
) -> GraphMotion:
    """`x/√(mean x² + ε)`: orthogonal maps commute with it; shifts are seen."""
    x = step.settled(input)
    dims = list(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    for field in x.gauges:
        step.gauges.orthogonal(field, dims)
    step.shifts.drop(x.shifts)
    return _affine(step, GraphMotion(x.shape, x.gauges), weight, None)


def _by_channel(value: GraphMotion | None, rank: int) -> GraphMotion | None:
    """A vector over channels, laid along dimension 1."""
    return None if value is None else value.reshaped((*value.shape, *(1,) * (rank - 2)))


def batch_norm(
    step: Step,
    input: GraphMotion,
    weight: GraphMotion | None,
    bias: GraphMotion | None,
    running_mean: GraphMotion | None,
    running_var: GraphMotion | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> GraphMotion:
    """In train mode it does not see what is constant over batch and space (the bias before it is dead); ε pins scales.

    In eval mode it is the affine map `(x − μ)/σ · γ + β`: a diagonal gauge passes if a bias before it can absorb μ.
    """
    x, rank = step.settled(input), len(input.shape)
    if training:
        for field in x.gauges:
            step.gauges.pin(field, step.name, permutes=True)
        step.shifts.unseen(x.shifts, [d for d in range(rank) if d != 1])
        result = GraphMotion(step.shape, x.gauges)  # pinned, but they still permute
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
        result = GraphMotion(step.shape, kept, step.shifts.weighted(x.shifts, [1]))
    return _affine(step, result, _by_channel(weight, rank), _by_channel(bias, rank))


def native_batch_norm(
    step: Step,
    input: GraphMotion,
    weight: GraphMotion | None,
    bias: GraphMotion | None,
    running_mean: GraphMotion | None,
    running_var: GraphMotion | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[GraphMotion, ...]:
    """The same with its statistics."""
    here = replace(step, shape=input.shape)
    result = batch_norm(here, input, weight, bias, running_mean, running_var, training, momentum, eps)
    return (result, *(GraphMotion(shape) for shape in step.shapes[1:]))


def training_batch_norm(
    step: Step,
    input: GraphMotion,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> tuple[GraphMotion, ...]:
    """The same, named by its mode."""
    return native_batch_norm(step, input, weight, bias, running_mean, running_var, True, momentum, eps)


def statistics_batch_norm(
    step: Step, input: GraphMotion, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[GraphMotion, ...]:
    """The same without running statistics."""
    return native_batch_norm(step, input, weight, bias, None, None, training, momentum, eps)


def group_norm(
    step: Step,
    input: GraphMotion,
    num_groups: int,
    weight: GraphMotion | None = None,
    bias: GraphMotion | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> GraphMotion:
    """Layer normalisation of the channels and places of each group: ε pins scales, channels of one group permute.

    Whole groups could change places too; only those of a single channel are counted.
    """
    x, rank = step.settled(input), len(input.shape)
    shape = (x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    for field in x.gauges:
        step.gauges.pin(field, step.name, permutes=True)
        step.gauges.blocks(field.expand(x.shape).reshape(shape), range(2, len(shape)))
    grouped = [shift.moved(shift.labels.reshape(shape), shift.phases.reshape(shape)) for shift in x.shifts]
    step.shifts.unseen(grouped, range(2, len(shape)))
    return _affine(step, GraphMotion(step.shape, x.gauges), _by_channel(weight, rank), _by_channel(bias, rank))


def instance_norm(
    step: Step,
    input: GraphMotion,
    weight: GraphMotion | None,
    bias: GraphMotion | None,
    running_mean: GraphMotion | None,
    running_var: GraphMotion | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> GraphMotion:
    """Group normalisation with one channel in each group; with stored statistics it is batch normalisation's map."""
    if not use_input_stats:
        return batch_norm(step, input, weight, bias, running_mean, running_var, False, momentum, eps)
    return group_norm(step, input, input.shape[1], weight, bias, eps)


def weight_norm(step: Step, v: GraphMotion, g: GraphMotion, dim: int = 0) -> GraphMotion:
    """`W = g v/‖v‖`, row by row: W does not see the length of a row of v, and scales like g.

    Along the other axes a map must keep `‖v‖`: rotations pass. With `dim = −1` there is one length for all of v.
    """
    kept = list(g.gauges)
    for field in g.gauges:  # a product row by row: rows do not mix
        step.gauges.diagonal(field)
    others = [d for d in range(len(v.shape)) if d != dim]
    for field in v.gauges:
        if not varying(field) or set(varying(field)) & set(others):
            step.gauges.orthogonal(field, others)
            kept.append(field)
        else:
            step.gauges.diagonal(field)
    step.shifts.drop((*step.settled(v).shifts, *step.settled(g).shifts))
    return GraphMotion(step.shape, tuple(field.expand(step.shape) for field in kept))
