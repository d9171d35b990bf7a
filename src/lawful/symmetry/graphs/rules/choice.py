"""Values picked among others: masks, extrema, comparisons, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.graphs.rules.arithmetic import add_values, homogeneous, multiply
from lawful.symmetry.graphs.rules.elementwise import other_elementwise


def seen(step: Step, *values: Any, **options: Any) -> Any:
    """Sorting, products along a dimension: no gauge or shift that moves an entry passes."""
    step.pin(*values, *options.values())
    return step.plain()


def _is_zero(value: Any) -> bool:
    return value.zero if isinstance(value, GraphMotion) else isinstance(value, (int, float)) and value == 0


def _one_of(step: Step, x: Any, y: Any) -> GraphMotion:
    """An entry of x or one of y: both must be scaled alike (zero fits any scale), and shifts are seen."""
    given = [step.settled(value) for value in (x, y) if isinstance(value, GraphMotion)]
    if not all(isinstance(value, GraphMotion) or _is_zero(value) for value in (x, y)) or not given:
        return other_elementwise(step, x, y)
    for value in given:
        step.shifts.drop(value.shifts)
    still = [replace(value, shifts=(), square_of=None) for value in given]
    found = add_values(step, still[0], still[1]) if len(still) == 2 else step.spread(still[0])
    for field in found.gauges:
        step.gauges.diagonal(field)
    return replace(found, absorber=None)


def extreme_of_two(step: Step, self: Any, other: Any) -> GraphMotion:
    """`max(x, y)` and `min(x, y)`, degree 1 in both together."""
    return _one_of(step, self, other)


def compared(step: Step, self: Any, other: Any) -> GraphMotion:
    """`x > y`, degree 0 in both together: positive scales do not show."""
    return homogeneous(step, _one_of(step, self, other), 0.0)


def clamp(step: Step, self: GraphMotion, min: Any = None, max: Any = None) -> GraphMotion:
    """`max(x, 0)` or `min(x, 0)`, degree 1; any other bound is seen."""
    bounds = [bound for bound in (min, max) if bound is not None]
    if bounds and all(_is_zero(bound) for bound in bounds):
        return homogeneous(step, self)
    return other_elementwise(step, self, min, max)


def clamp_max(step: Step, self: GraphMotion, max: Any) -> GraphMotion:
    """`min(x, c)`."""
    return clamp(step, self, None, max)


def threshold(step: Step, self: GraphMotion, threshold: float, value: float) -> GraphMotion:
    """`x` above a threshold, a number below: with zeros it is ReLU."""
    return homogeneous(step, self) if threshold == value == 0 else other_elementwise(step, self)


def _along(step: Step, self: GraphMotion, dims: Sequence[int], *, diagonal: bool) -> GraphMotion:
    """What mixes entries along dimensions: one scale along them passes, and other gauges (scales, if diagonal)."""
    x = step.settled(self)
    step.shifts.drop(x.shifts)
    gauges = []
    for field in x.gauges:
        if diagonal:
            step.gauges.diagonal(field)
        level = step.levelled(field, dims)
        same = step.shapes[0] == x.shape
        gauges.append(level.expand(x.shape) if same else level.reshape(step.shapes[0]))
    return GraphMotion(step.shapes[0], tuple(gauges), zero=x.zero)


def extreme(step: Step, self: GraphMotion, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest or smallest along dimensions, degree 1; where it stands does not change with positive scales."""
    if isinstance(dim, GraphMotion):
        return _one_of(step, self, dim)
    rank = len(self.shape)
    dims = list(range(rank)) if dim in (None, []) else [d % rank for d in (dim if isinstance(dim, list) else [dim])]
    found = _along(step, self, dims, diagonal=True)
    return found if len(step.shapes) == 1 else (found, homogeneous(replace(step, shape=step.shapes[1]), found, 0.0))


def running_sum(step: Step, self: GraphMotion, dim: int, dtype: Any = None) -> GraphMotion:
    """`Σ_{s ≤ t} x[s]`: linear, and the same for all coordinates of the other dimensions."""
    return _along(step, self, [dim % max(len(self.shape), 1)], diagonal=False)


def transformed(step: Step, self: GraphMotion, n: Any = None, dim: int = -1, norm: Any = None) -> GraphMotion:
    """A Fourier transform along one dimension: linear, and the same for all coordinates of the others."""
    x = step.settled(self)
    step.shifts.drop(x.shifts)
    dim %= len(x.shape)
    return GraphMotion(step.shape, tuple(step.levelled(field, [dim]).expand(step.shape) for field in x.gauges))


def as_complex(step: Step, self: GraphMotion) -> GraphMotion:
    """Pairs `(a, b)` become `a + ib`: one scale for each pair passes (turning a pair conserves nothing)."""
    x = step.settled(self)
    step.shifts.drop(x.shifts)
    return GraphMotion(step.shape, tuple(step.levelled(field, [len(x.shape) - 1]).squeeze(-1) for field in x.gauges))


def as_real(step: Step, self: GraphMotion) -> GraphMotion:
    """`a + ib` becomes a pair."""
    return GraphMotion(step.shape, tuple(field.unsqueeze(-1).expand(step.shape) for field in step.settled(self).gauges))


def where(step: Step, condition: GraphMotion, self: Any, other: Any) -> GraphMotion:
    """One of two values entry by entry: scales pass that the condition does not see.

    Entries that a softmax will ignore (−∞) may hide part of a shift. A known mask is a product.
    """
    step.pin(condition)
    for kept, dropped in ((self, other), (other, self)):
        if isinstance(kept, GraphMotion) and _ignored(dropped):
            return _masked(step, kept)
        if isinstance(kept, GraphMotion) and _is_zero(dropped) and condition.known is not None:
            mask = condition.known if kept is self else ~condition.known
            return multiply(step, kept, GraphMotion(condition.shape, steady=True, known=mask))
    for value in (self, other):
        if isinstance(value, GraphMotion):
            lead = len(step.shape) - len(condition.shape)
            moving = [lead + d for d, size in enumerate(condition.shape) if size > 1]
            for field in step.spread(value).gauges:
                step.gauges.tell_apart(field, moving)
    return _one_of(step, self, other)


def masked_fill(step: Step, self: GraphMotion, mask: GraphMotion, value: Any) -> GraphMotion:
    """Entries replaced by a number."""
    return where(step, mask, value, self)


def _ignored(value: Any) -> bool:
    """A number so low that its exponential is exactly zero beside any other."""
    known = value.known if isinstance(value, GraphMotion) else value
    if isinstance(known, torch.Tensor) and known.numel() == 1:
        known = known.item()
    return isinstance(known, (int, float)) and known <= -1e30


def _masked(step: Step, x: GraphMotion) -> GraphMotion:
    x = step.spread(x)
    for field in x.gauges:
        step.gauges.pin(field, step.name)
    return GraphMotion(step.shape, shifts=tuple(replace(shift, masked=True) for shift in step.shifts.alive(x.shifts)))
