"""Sums, products and powers, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Shape, Step
from lawful.symmetry.labels import varying
from lawful.symmetry.shifts import LARGEST, Shift

Number = int | float


def add_values(step: Step, x: GraphMotion, y: GraphMotion, factor: float = 1.0) -> GraphMotion:
    """`z = x + k y`: both must move alike, `M_x = M_y = M_z`; shifts add up.

    A tensor of zeros fits any gauge. Fields are matched by the dimensions along which they change; one without a
    partner is pinned, because the other summand stands still. Permutations pass where that is the same for all of them.
    """
    if x.zero or y.zero:
        kept = step.spread(y if x.zero else x)
        shifts = step.shifts.scaled(kept.shifts, factor) if x.zero else kept.shifts
        return replace(kept, shifts=shifts, zero=x.zero and y.zero, steady=False)
    shapes = x.shape, y.shape
    x, y = step.spread(x), step.spread(y)
    waiting = list(y.gauges)
    found: list[torch.Tensor] = []
    still: list[torch.Tensor] = []
    for field in x.gauges:
        place = _partner(field, waiting)
        if place is None and len(x.gauges) == len(y.gauges) == 1 and not (varying(field) and varying(waiting[0])):
            place = 0
        if place is None:
            still += _pinned(step, field, shapes[1])
        else:
            other = waiting.pop(place)
            step.gauges.same(field, other)
            found.append(min(field, other, key=lambda labels: len(varying(labels))))
    for field in waiting:
        still += _pinned(step, field, shapes[0])
    shifts = step.shifts.plus(x.shifts, step.shifts.scaled(y.shifts, factor))
    matched = len(found) == len(x.gauges) == len(y.gauges) == 1
    absorber = y.absorber if matched and factor == 1 and y.absorber is not None else x.absorber if matched else None
    return GraphMotion(step.shape, (*found, *still), shifts, steady=x.steady and y.steady, absorber=absorber)


def _pinned(step: Step, field: torch.Tensor, other: Shape) -> list[torch.Tensor]:
    """Pin a field beside a summand that does not move with it; it is kept if that is constant along its dimensions."""
    sizes = (1,) * (field.dim() - len(other)) + tuple(other)
    constant = bool(varying(field)) and all(sizes[d] == 1 for d in varying(field))
    step.gauges.pin(field, step.name, permutes=constant)
    return [field] if constant else []


def _partner(field: torch.Tensor, others: Sequence[torch.Tensor]) -> int | None:
    """The field that changes along the same dimensions, or else along some of them: where no label comes twice, first.

    (Beside a class token, the labels of patches change once along positions and always along channels.)
    """
    own = set(varying(field))
    for place, other in enumerate(others):
        if own == set(varying(other)):
            return place
    met = [place for place, other in enumerate(others) if own & set(varying(other))]
    return min(met, key=lambda place: not _all_distinct(field, own & set(varying(others[place]))), default=None)


def _all_distinct(field: torch.Tensor, dims: set[int]) -> bool:
    """Whether no label comes twice along some dimensions."""
    line = field[tuple(slice(None) if d in dims else 0 for d in range(field.dim()))]
    return len(torch.unique(line)) == line.numel()


def multiply_fields(
    step: Step,
    left: Sequence[torch.Tensor],
    right: Sequence[torch.Tensor],
    *,
    dims: Iterable[int],
    shape: Shape,
    factor: float = 1.0,
) -> tuple[torch.Tensor, ...]:
    """Fields of a product: scales along common dimensions (and of whole values) multiply, other fields pass."""
    inside, waiting, found = set(dims), list(right), []
    for field in left:
        own = set(varying(field))
        place = next(
            (
                number
                for number, other in enumerate(waiting)
                if own & set(varying(other)) & inside or not (own or varying(other))
            ),
            None,
        )
        found.append(field if place is None else step.gauges.product(field, waiting.pop(place), factor).expand(shape))
    found += waiting if factor == 1 else [step.gauges.power(field, factor) for field in waiting]
    return tuple(found)


def multiply(step: Step, x: GraphMotion, y: GraphMotion, factor: float = 1.0) -> GraphMotion:
    """`z = x · y^k`, k = ±1: scales multiply along common dimensions.

    A field of x along which y does not change passes whole (`y (Mx) = M (yx)`), elsewhere M must be diagonal. A shift
    of x is weighted by y: the data decide how, wherever y changes; where y is known to be zero nothing is left of it.
    """
    if x.zero or (y.zero and factor == 1):
        return GraphMotion(step.shape, zero=True)
    moving, still = (_changing(value.shape, len(step.shape)) for value in (y, x))
    scalar = [value for value in (x, y) if value.raw is not None and torch.Size(value.shape).numel() == 1]
    x, y = step.spread(x), step.spread(y)
    for own, dims in ((x, moving), (y, still)):
        for field in own.gauges:
            if set(varying(field)) & set(dims):
                step.gauges.diagonal(field)
    for own, other, dims in ((x, y, moving), (y, x, still)):
        carried = {d for field in other.gauges for d in varying(field)}
        for field in own.gauges:
            step.gauges.tell_apart(field, set(dims) - carried)
    left, right = list(x.gauges), list(y.gauges)
    if scalar and len(left) == len(right) == 1:  # a trained number times a value: one field, so that sums can match it
        gauges: tuple[torch.Tensor, ...] = (step.gauges.product(left[0], right[0], factor).expand(step.shape),)
    else:
        gauges = multiply_fields(step, left, right, dims=range(len(step.shape)), shape=step.shape, factor=factor)
    shifts = step.shifts.weighted(_outside(x.shifts, y.known if factor == 1 else None), moving)
    if factor == 1:
        shifts += step.shifts.weighted(_outside(y.shifts, x.known), still)
    else:
        step.shifts.drop(y.shifts)
    return GraphMotion(step.shape, gauges, shifts, steady=x.steady and y.steady)


def _outside(shifts: Iterable[Shift], mask: torch.Tensor | None) -> tuple[Shift, ...]:
    """What is left of shifts after a product with known numbers: none where those are zero, as in a pruning mask."""
    kept = None if mask is None or mask.numel() > LARGEST else mask != 0
    if kept is None or bool(kept.all()):
        return tuple(shifts)
    return tuple(shift.moved(shift.labels * kept, shift.phases) for shift in shifts)


def _changing(shape: Shape, rank: int) -> list[int]:
    """The dimensions of a result along which a factor of this shape is more than one number."""
    return [rank - len(shape) + d for d, size in enumerate(shape) if size > 1]


def scale(step: Step, x: GraphMotion, factor: float) -> GraphMotion:
    """`z = k x` with a fixed number k: everything passes."""
    return replace(step.settled(x), shifts=step.shifts.scaled(step.settled(x).shifts, factor), square_of=None)


def add(step: Step, self: Any, other: Any, alpha: Number = 1) -> GraphMotion:
    """Sum of two values, or with a number; a constant next to a parameter moves the centre of its gauge."""
    if not isinstance(other, GraphMotion):
        return _plus_number(step, self, float(other) * alpha)
    if not isinstance(self, GraphMotion):
        return _plus_number(step, other, float(self))
    return add_values(step, self, other, alpha)


def _plus_number(step: Step, x: GraphMotion, number: float) -> GraphMotion:
    """`x + c`: a linear gauge would have to fix c, unless a parameter in x can absorb it (`1 + γ`)."""
    x = step.settled(x)
    if number and x.absorber is not None:
        step.gauges.recentre(x.absorber, number)
    elif number:
        for field in x.gauges:
            step.gauges.pin(field, step.name, permutes=True)
        return replace(x, zero=False, square_of=None)
    return x


def sub(step: Step, self: Any, other: Any, alpha: Number = 1) -> GraphMotion:
    """`x − y`."""
    if not isinstance(other, GraphMotion):
        return _plus_number(step, self, -float(other) * alpha)
    if not isinstance(self, GraphMotion):
        return _plus_number(step, scale(step, other, -alpha), float(self))
    return add_values(step, self, other, -alpha)


def rsub(step: Step, self: GraphMotion, other: Any, alpha: Number = 1) -> GraphMotion:
    """`y − x`."""
    return sub(step, other, self, alpha)


def mul(step: Step, self: Any, other: Any) -> GraphMotion:
    """Product of two values, or with a number; a value times itself may become part of a norm."""
    if not isinstance(other, GraphMotion):
        return scale(step, self, float(other))
    if not isinstance(self, GraphMotion):
        return scale(step, other, float(self))
    return square(step, self) if self is other else multiply(step, self, other)


def div(step: Step, self: Any, other: Any, rounding_mode: str | None = None) -> GraphMotion:
    """Quotient: logarithms of scales subtract; a shift of the denominator is seen."""
    if rounding_mode is not None:
        step.pin(self, other)
        return GraphMotion(step.shape)
    if not isinstance(other, GraphMotion):
        return scale(step, self, 1.0 / float(other)) if float(other) else seen_by(step, self)
    return multiply(step, self if isinstance(self, GraphMotion) else GraphMotion(()), other, -1.0)


def square(step: Step, self: GraphMotion) -> GraphMotion:
    """`x²`, kept open: its mean over a whole field is a norm, anything else is a power."""
    return GraphMotion(step.shape, square_of=step.settled(self))


def power(step: Step, self: Any, exponent: Any) -> GraphMotion:
    """`x^k`: diagonal, and the scale is taken to the power k (degree 2 for ReLU²)."""
    if isinstance(exponent, GraphMotion) or not isinstance(self, GraphMotion):
        return seen_by(step, self, exponent)
    if exponent == 2:
        return square(step, self)
    if exponent == 1:
        return self
    if exponent == 0:
        return seen_by(step, self)
    return homogeneous(step, self, float(exponent))


def homogeneous(step: Step, x: GraphMotion, degree: float = 1.0) -> GraphMotion:
    """`σ(a x) = a^k σ(x)` for a > 0, entry by entry: positive diagonals pass, shifts are seen."""
    x = step.settled(x)
    step.shifts.drop(x.shifts)
    return GraphMotion(step.shape, tuple(step.gauges.power(field, degree) for field in x.gauges), zero=x.zero)


def seen_by(step: Step, *values: Any) -> GraphMotion:
    """An operation that every gauge and shift changes."""
    step.pin(*values)
    return GraphMotion(step.shape)


def addcmul(
    step: Step, self: GraphMotion, tensor1: GraphMotion, tensor2: GraphMotion, value: Number = 1
) -> GraphMotion:
    """`x + k y z`."""
    return add_values(step, self, multiply(step, tensor1, tensor2), float(value))
