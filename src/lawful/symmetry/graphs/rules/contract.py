"""Sums of products: linear layers and matrix products."""

from __future__ import annotations

from dataclasses import replace

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Shape, Step
from lawful.symmetry.graphs.rules.arithmetic import add_values, multiply_fields, scale
from lawful.symmetry.labels import broadcast, compact, varying
from lawful.symmetry.shifts import Shift


def contract(
    step: Step, x: GraphMotion, y: GraphMotion, batch: int, sources: tuple[GraphMotion, GraphMotion] | None = None
) -> GraphMotion:
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
    for alone, others in ((inner_left[paired:], right), (inner_right[paired:], left)):
        for field in alone:
            _undone(step, field, others, line)
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
    return GraphMotion(shape, gauges, _contract_shifts(step, x, y, shape, batch, sources))


def _leading(field: torch.Tensor, batch: int) -> list[int]:
    """The batch dimensions along which a field of a factor changes."""
    return [d for d in varying(field) if d < batch]


def _undone(step: Step, field: torch.Tensor, others: list[torch.Tensor], line: int) -> None:
    """A gauge along the sum without a partner: one scale of the whole other factor undoes it, or nothing does."""
    whole = next((other for other in others if not varying(other)), None)
    if whole is None:
        step.gauges.pin(field, step.name)
        return
    step.gauges.diagonal(field)
    step.gauges.same(field, whole.expand(field.shape), dual=True, line=[line])
    others[:] = [other for other in others if other is not whole]


def _one_wide(step: Step, x: GraphMotion, y: GraphMotion, left: list[torch.Tensor], right: list[torch.Tensor]) -> None:
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
    step: Step,
    x: GraphMotion,
    y: GraphMotion,
    shape: Shape,
    batch: int,
    sources: tuple[GraphMotion, GraphMotion] | None,
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


def _in_order(step: Step, factor: GraphMotion, dim: int) -> bool:
    """Whether the entries of a raw parameter along a dimension are one of its axes, whole and in its own order."""
    along = [axis for axis, index in enumerate(factor.indices) if dim in varying(index)]
    if len(along) != 1 or varying(factor.indices[along[0]]) != (dim,):
        return False
    line = factor.indices[along[0]].movedim(dim, 0).reshape(factor.shape[dim], -1)[:, 0]
    return torch.equal(line, torch.arange(step.parameters[str(factor.raw)][along[0]]))


def _matrix(value: GraphMotion, rank: int) -> GraphMotion:
    """Leading dimensions of size 1 until the rank fits."""
    lead = (1,) * (rank - len(value.shape))
    return value.reshaped(lead + value.shape)


def matmul(step: Step, self: GraphMotion, other: GraphMotion) -> GraphMotion:
    """Matrix product of stacks of matrices, or with a vector: `contract`."""
    x = self.reshaped((1, *self.shape)) if len(self.shape) == 1 else self
    y = other.reshaped((*other.shape, 1)) if len(other.shape) == 1 else other
    if self.zero or other.zero:
        return GraphMotion(step.shape, zero=True)
    rank = max(len(x.shape), len(y.shape))
    return contract(step, _matrix(x, rank), _matrix(y, rank), rank - 2, (self, other)).reshaped(step.shape)


def mm(step: Step, self: GraphMotion, mat2: GraphMotion) -> GraphMotion:
    """Matrix product."""
    return matmul(step, self, mat2)


def grouped_product(
    step: Step, input: GraphMotion, weight: GraphMotion, offs: GraphMotion | None = None, *rest: object
) -> GraphMotion:
    """`z[s] = x[s] W[e(s)]`: rows in the order of the matrix (the expert) that reads each; data say where each begins.

    Nobody knows e(s). Rows are dealt out evenly, and stand for any rows of their expert: what happens to them one by
    one holds for these too, and what picks or adds up rows demands that all act alike.
    """
    count, rows = weight.shape[0], input.shape[0]
    if len(weight.shape) != 3 or len(input.shape) != 2 or rows < count or offs is None or any(rest):
        step.pin(input, weight)
        return GraphMotion(step.shape)
    expert = torch.arange(rows) * count // rows
    x = step.settled(input)
    if not all(torch.equal(field, field[_first(expert)][expert]) for field in x.gauges):
        x = replace(x, gauges=tuple(step.alike(field, 0).expand(x.shape) for field in x.gauges))
    step.shifts.drop(x.shifts)
    step.pin(replace(weight, gauges=()), offs)
    left = GraphMotion((rows, 1, x.shape[1]), tuple(field.reshape(rows, 1, -1) for field in x.gauges))
    right = GraphMotion((rows, *weight.shape[1:]), tuple(compact(field[expert]) for field in weight.gauges))
    product = contract(replace(step, shape=(rows, 1, weight.shape[2])), left, right, 1)
    return GraphMotion(step.shape, tuple(compact(field.reshape(step.shape)) for field in product.gauges))


def _first(expert: torch.Tensor) -> torch.Tensor:
    """The first row of each expert."""
    return torch.searchsorted(expert, torch.arange(int(expert[-1]) + 1))


def linear(step: Step, input: GraphMotion, weight: GraphMotion, bias: GraphMotion | None = None) -> GraphMotion:
    """`z = x Wᵀ + b`: anything acts on a hidden space, `W → W A⁻¹` where read, `W → A W`, `b → A b` where written."""
    product = matmul(step, input, weight.turned() if len(weight.shape) > 1 else weight)
    return product if bias is None else add_values(step, product, bias)


def addmm(
    step: Step, self: GraphMotion, mat1: GraphMotion, mat2: GraphMotion, beta: float = 1, alpha: float = 1
) -> GraphMotion:
    """`β b + α x W`."""
    return _plus_product(step, self, matmul(step, mat1, mat2), beta, alpha)


def baddbmm(
    step: Step, self: GraphMotion, batch1: GraphMotion, batch2: GraphMotion, beta: float = 1, alpha: float = 1
) -> GraphMotion:
    """`β b + α x W`, stacked."""
    return _plus_product(step, self, matmul(step, batch1, batch2), beta, alpha)


def _plus_product(step: Step, given: GraphMotion, product: GraphMotion, beta: float, alpha: float) -> GraphMotion:
    product = product if alpha == 1 else scale(step, product, float(alpha))
    if beta == 0:
        return product
    return add_values(step, product, given if beta == 1 else scale(step, given, float(beta)))
