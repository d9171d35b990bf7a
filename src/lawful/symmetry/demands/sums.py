"""Sums and products, entry by entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from lawful.symmetry.demands.labels import varying
from lawful.symmetry.demands.motion import Array, Follower, Motion, Shape
from lawful.symmetry.demands.shifts import LARGEST, Shift


def add_values(follower: Follower, shape: Shape, x: Motion, y: Motion) -> Motion:
    """`z = x + y`: both must move alike, `M_x = M_y = M_z`; shifts add up.

    A value of zeros fits any gauge. Fields are matched by the axes along which they change; one without a partner is
    pinned, because the other summand stands still. Permutations pass where that is the same for all of them.
    """
    if x.zero or y.zero:
        moving = follower.spread(y if x.zero else x, shape)
        return replace(moving, zero=x.zero and y.zero)
    if len(y.gauges) < len(x.gauges):  # the fields of the one with fewer pick their partners
        x, y = y, x
    shapes = x.shape, y.shape
    x, y = follower.spread(x, shape), follower.spread(y, shape)
    waiting = list(y.gauges)
    values: list[torch.Tensor] = []
    still: list[torch.Tensor] = []
    for field in x.gauges:
        place = _partner(field, waiting)
        if place is None and len(x.gauges) == len(y.gauges) == 1 and not (varying(field) and varying(waiting[0])):
            place = 0
        if place is None:
            still += _pin(follower, field, shapes[1])
        else:
            other = waiting.pop(place)
            follower.gauges.same(field, other)
            values.append(min(field, other, key=_rank))
    for field in waiting:
        still += _pin(follower, field, shapes[0])
    matched = len(values) == len(x.gauges) == len(y.gauges) == 1
    absorber = (y.absorber or x.absorber) if matched else None
    return Motion(shape, (*values, *still), follower.shifts.plus(x.shifts, y.shifts), absorber=absorber)


def _rank(field: torch.Tensor) -> tuple[int, int]:
    """Which of two fields that move alike stands for both, whatever the order of the summands.

    In `x cos + rotate(x) sin` that has to be x for queries and keys alike: coordinate i of one meets i of the other.
    """
    return len(varying(field)), int(field[(0,) * field.dim()]) if field.numel() else 0


def _pin(follower: Follower, field: torch.Tensor, other: Shape) -> list[torch.Tensor]:
    """Pin a field beside a summand that does not move with it; it is kept if that is constant along its axes."""
    sizes = (1,) * (field.dim() - len(other)) + tuple(other)
    constant = bool(varying(field)) and all(sizes[d] == 1 for d in varying(field))
    follower.gauges.pin(field, "add", permutes=constant)
    return [field] if constant else []


def _partner(field: torch.Tensor, others: Sequence[torch.Tensor]) -> int | None:
    """The field that changes along the same axes, or else along some of them: where no label comes twice, first.

    (Beside a class token, the labels of patches change once along positions and always along channels.)
    """
    axes = set(varying(field))
    for place, other in enumerate(others):
        if axes == set(varying(other)):
            return place
    met = [place for place, other in enumerate(others) if axes & set(varying(other))]
    return min(met, key=lambda place: not _all_distinct(field, axes & set(varying(others[place]))), default=None)


def _all_distinct(field: torch.Tensor, axes: set[int]) -> bool:
    """Whether no label comes twice along some axes."""
    line = field[tuple(slice(None) if d in axes else 0 for d in range(field.dim()))]
    return len(torch.unique(line)) == line.numel()


def add_constant(follower: Follower, shape: Shape, x: Motion, constant: Array) -> Motion:
    """`x + c`: a linear gauge would have to fix c, unless a parameter in x can absorb it (`1 + γ`, `b − μ`)."""
    own_shape = x.shape
    x = follower.spread(x, shape)
    if x.zero:
        return Motion(shape)
    number = bool((constant == constant.flat[0]).all())
    absorbed = x.absorber is not None and own_shape == shape and len(x.gauges) == 1
    if absorbed and number:
        follower.gauges.recentre(str(x.absorber), float(constant.flat[0]))
        return x
    sizes = (1,) * (len(shape) - constant.ndim) + constant.shape
    if absorbed and not number:
        axes = varying(x.gauges[0])
        inside = tuple(shape[d] for d in axes)
        parameter = follower.shapes[str(x.absorber)]
        if all(size == 1 or d in axes for d, size in enumerate(sizes)) and np.prod(inside) == np.prod(parameter):
            values = np.broadcast_to(constant.reshape([sizes[d] for d in axes]), inside).reshape(parameter)
            follower.gauges.recentre(str(x.absorber), values.astype(np.float64))
            follower.gauges.tell_apart(x.gauges[0], [d for d in axes if sizes[d] > 1])
            return x
    if number:
        for field in x.gauges:
            follower.gauges.pin(field, "add", permutes=True)
        return replace(x, absorber=None)
    return add_values(follower, shape, replace(x, absorber=None), Motion(constant.shape))


def multiply_fields(
    follower: Follower,
    left: Sequence[torch.Tensor],
    right: Sequence[torch.Tensor],
    *,
    axes: Iterable[int],
    shape: Shape,
) -> tuple[torch.Tensor, ...]:
    """Fields of a product: scales along common axes (and of whole values) multiply, other fields pass."""
    inside, waiting, fields = set(axes), list(right), []
    for field in left:
        varying_axes = set(varying(field))
        place = next(
            (
                number
                for number, other in enumerate(waiting)
                if varying_axes & set(varying(other)) & inside or not (varying_axes or varying(other))
            ),
            None,
        )
        fields.append(field if place is None else follower.gauges.product(field, waiting.pop(place)).expand(shape))
    return (*fields, *waiting)


def multiply(follower: Follower, shape: Shape, x: Motion, y: Motion) -> Motion:
    """`z = x y`: scales multiply along common axes.

    A field of x along which y does not change passes whole (`y (Mx) = M (yx)`), elsewhere M must be diagonal. A shift
    of x is weighted by y: the data decide how, wherever y changes; where y is known to be zero nothing is left of it.
    """
    if x.zero or y.zero:
        return Motion(shape, zero=True)
    noisy = x.noise or y.noise
    moving, still = (_changing(value.shape, len(shape)) for value in (y, x))
    scalar = [value for value in (x, y) if value.raw is not None and torch.Size(value.shape).numel() == 1]
    x, y = follower.spread(x, shape), follower.spread(y, shape)
    for factor, axes in ((x, moving), (y, still)):
        for field in factor.gauges:
            if set(varying(field)) & set(axes):
                follower.gauges.diagonal(field)
    for factor, other, axes in ((x, y, moving), (y, x, still)):
        carried = {d for field in other.gauges for d in varying(field)}
        for field in factor.gauges if not noisy else ():
            follower.gauges.tell_apart(field, set(axes) - carried)
    if scalar and len(x.gauges) == len(y.gauges) == 1:  # a trained number times a value: one field, to match in sums
        gauges: tuple[torch.Tensor, ...] = (follower.gauges.product(x.gauges[0], y.gauges[0]).expand(shape),)
    else:
        gauges = multiply_fields(follower, x.gauges, y.gauges, axes=range(len(shape)), shape=shape)
    shifts = follower.shifts.weigh(_outside(x.shifts, y.known), moving)
    shifts += follower.shifts.weigh(_outside(y.shifts, x.known), still)
    return Motion(shape, gauges, shifts)


def _outside(shifts: Iterable[Shift], mask: Array | None) -> tuple[Shift, ...]:
    """What is left of shifts after a product with known numbers: none where those are zero, as in a pruning mask."""
    nonzero = None if mask is None or mask.size > LARGEST else torch.from_numpy(np.ascontiguousarray(mask != 0))
    if nonzero is None or bool(nonzero.all()):
        return tuple(shifts)
    return tuple(shift.move(shift.labels * nonzero.reshape(mask.shape), shift.phases) for shift in shifts)  # type: ignore[union-attr]


def _changing(shape: Shape, rank: int) -> list[int]:
    """The axes of a result along which a factor of this shape is more than one number."""
    return [rank - len(shape) + d for d, size in enumerate(shape) if size > 1]


def scale(follower: Follower, x: Motion, factor: float) -> Motion:
    """`z = k x` with a fixed number k: everything passes.

    But a constant that is added to z is no more a constant added to the parameter in x: that would be 1/k of it.
    """
    x = follower.settle(x)
    absorber = x.absorber if factor == 1 else None
    return replace(x, shifts=follower.shifts.scale(x.shifts, factor), known=None, absorber=absorber)


def homogeneous(follower: Follower, shape: Shape, x: Motion, degree: float) -> Motion:
    """`σ(a x) = a^k σ(x)` for a > 0, entry by entry: positive diagonals pass, shifts are seen."""
    x = follower.settle(x)
    follower.shifts.drop(x.shifts)
    return Motion(shape, tuple(follower.gauges.power(field, degree) for field in x.gauges), zero=x.zero)


def one_of(follower: Follower, shape: Shape, x: Motion, y: Motion) -> Motion:
    """An entry of x or one of y: both must be scaled alike (zero fits any scale), and shifts are seen."""
    settled = [follower.settle(value) for value in (x, y)]
    for value in settled:
        follower.shifts.drop(value.shifts)
    still = [replace(value, shifts=()) for value in settled]
    result = add_values(follower, shape, still[0], still[1])
    for field in result.gauges:
        follower.gauges.diagonal(field)
    return replace(result, absorber=None)
