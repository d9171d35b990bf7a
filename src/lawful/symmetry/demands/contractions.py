"""Sums of products: Einstein sums and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from lawful.program.program import Node
from lawful.symmetry.demands.labels import on, varying
from lawful.symmetry.demands.motion import Follower, Motion, Shape, index_fields
from lawful.symmetry.demands.scores import end_attention, read_scores
from lawful.symmetry.demands.shifts import Shift
from lawful.symmetry.demands.sums import multiply_fields


class SumLetters:
    """The axes of an Einstein sum: those of both factors and the result, of x alone, of y alone, and summed ones."""

    def __init__(self, spec: str, x: Shape, y: Shape) -> None:
        factors, out = spec.split("->")
        one, two = factors.split(",")
        self.x: str = one
        self.y: str = two
        self.out: str = out
        self.sizes: dict[str, int] = {**dict(zip(self.x, x, strict=True)), **dict(zip(self.y, y, strict=True))}
        self.batch: list[str] = [c for c in self.out if c in self.x and c in self.y]
        self.own: list[list[str]] = [
            [c for c in self.out if c in factor and c not in self.batch] for factor in (self.x, self.y)
        ]
        self.inner: list[str] = [c for c in self.x if c in self.y and c not in self.out]
        self.order: list[str] = [*self.batch, *self.own[0], *self.own[1], *self.inner]
        self.rank: int = len(self.order) - len(self.inner)
        self.whole: Shape = tuple(self.sizes[c] for c in self.order)
        self.shape: Shape = self.whole[: self.rank]
        self.line: list[int] = list(range(self.rank, len(self.order)))

    def axes(self, letters: Sequence[str]) -> list[int]:
        """Where letters stand in the axes of the sum."""
        return [self.order.index(c) for c in letters]

    def place(self, labels: torch.Tensor, own: Sequence[str]) -> torch.Tensor:
        """Labels of a factor with these letters in the axes of the sum; letters that it sums over may be missing."""
        present = [c for c in self.order if c in own]
        labels = labels.permute([list(own).index(c) for c in present])
        sizes = [labels.shape[present.index(c)] if c in present else 1 for c in self.order]
        return labels.reshape(sizes).expand(self.whole)

    def result(self, labels: torch.Tensor) -> torch.Tensor:
        """Labels of the result in the order of its own letters."""
        return labels.permute([self.order.index(c) for c in self.out])


def contract(follower: Follower, node: Node, x: Motion, y: Motion) -> Motion:
    """`z[b, i, j] = Σ_c x[b, i, c] y[b, c, j]`, where b, i, j and c are any number of axes each.

    If x moves by M along c and y by −Mᵀ, then `Σ (Mx)y + x(−Mᵀy) = 0`: z does not move. M may depend on b but not on
    i or j, and must not mix different b. Gauges along i and j pass to z (they must not mix b where the other factor
    changes with b), those along b multiply, as in a product of numbers.
    A shift of x becomes `Σ_c u_c y[c, j]`: one unknown that the data weight along b and j. Two weights that read one
    value move against each other.
    """
    if x.zero or y.zero:
        return Motion(node.shape, zero=True)
    x, y = _rows_alike(follower, x, y)
    letters = SumLetters(node["spec"], x.shape, y.shape)
    gauges, line = follower.gauges, letters.line
    left = [letters.place(field, letters.x) for field in x.gauges]
    right = [letters.place(field, letters.y) for field in y.gauges]
    wide = math.prod(letters.sizes[c] for c in letters.inner)
    _one_wide(follower, (x, y), wide, left, right)
    inner_left = [field for field in left if set(line) & set(varying(field))]
    inner_right = [field for field in right if set(line) & set(varying(field))]
    for f, g in zip(inner_left, inner_right, strict=False):
        gauges.same(f, g, dual=True, line=line)
    paired = min(len(inner_left), len(inner_right))
    for alone, fields, others, value in ((inner_left[paired:], left, right, x), (inner_right[paired:], right, left, y)):
        for field in alone:
            if others or value.raw is not None:
                _undone(follower, field, others, line)
            else:  # a fixed map of a moving value: one scale along the sum passes
                fields.append(follower.level(field, line).expand(field.shape))
    ended = _end_attention(follower, letters, x, y)
    passing = []
    shared = [d for d in range(len(letters.batch)) if letters.whole[d] > 1]
    for fields, other in ((left, right), (right, left)):
        outer = [_without(field, line) for field in fields if not set(line) & set(varying(field))]
        carried = {d for field in other for d in varying(field) if d in shared}
        for field in outer:
            gauges.blocks(field, [d for d in range(letters.rank) if d not in shared])
            if not ended:
                gauges.tell_apart(field, set(shared) - carried)
        passing.append(outer)
    result = multiply_fields(follower, *passing, axes=range(len(letters.batch)), shape=letters.shape)
    shifts = _contract_shifts(follower, node, letters, x, y)
    product = Motion(letters.shape, result, shifts).with_labels(node.shape, letters.result)
    if x.raw is None and y.raw is None and len(x.gauges) == len(y.gauges) == 1:
        fields = [letters.place(factor.gauges[0], axes) for factor, axes in ((x, letters.x), (y, letters.y))]
        scores = read_scores(fields, line, (letters.axes(letters.own[0]), letters.axes(letters.own[1])))
        return product if scores is None else replace(product, scores=scores.move(letters.result))
    return product


def _end_attention(follower: Follower, letters: SumLetters, x: Motion, y: Motion) -> bool:
    """Whether a product is that of attention's weights with values, whose heads are noted then."""
    for weights, weight_axes, values, their in ((x, letters.x, y, letters.y), (y, letters.y, x, letters.x)):
        scores = weights.scores
        if scores is None or not scores.soft or len(values.gauges) != 1 or values.raw is not None:
            continue
        keys = letters.place(scores.own[scores.key], weight_axes)
        coordinates = letters.axes([c for c in their if c in letters.out and c not in weight_axes])
        field = letters.place(values.gauges[0], their)
        if set(varying(keys)) <= set(letters.line) and not set(letters.line) & set(varying(field)):
            heads = letters.place(scores.heads, weight_axes)
            return end_attention(follower.gauges, scores, heads, field, coordinates)
    return False


def _without(field: torch.Tensor, line: Sequence[int]) -> torch.Tensor:
    for d in reversed(line):
        field = field.select(d, 0)
    return field


def _rows_alike(follower: Follower, x: Motion, y: Motion) -> tuple[Motion, Motion]:
    """Beside matrices that data picked for each row: rows stand for any rows of their matrix, and must act alike.

    Nobody knows which matrix reads which row. Rows are dealt out, and what happens to them one by one holds for the
    others too: within the rows of one matrix, gauges have to be the same.
    """
    owner, rows = (x.dealt, y) if x.dealt is not None else (y.dealt, x)
    if owner is None or rows.dealt is not None:  # (products of picked matrices are not dealt out)
        return x, y
    first = torch.full((int(owner.max()) + 1,), len(owner)).scatter_reduce(0, owner, torch.arange(len(owner)), "amin")
    place = first[owner]
    rows = follower.settle(rows)
    if not all(torch.equal(field, field[place]) for field in rows.gauges):
        rows = replace(rows, gauges=tuple(follower.alike(field, 0).expand(rows.shape) for field in rows.gauges))
    follower.shifts.drop(rows.shifts)
    rows = replace(rows, shifts=())
    return (x, rows) if x.dealt is not None else (rows, y)


def _undone(follower: Follower, field: torch.Tensor, others: list[torch.Tensor], line: Sequence[int]) -> None:
    """A gauge along the sum without a partner: one scale of the whole other factor undoes it, or nothing does."""
    whole = next((other for other in others if not varying(other)), None)
    if whole is None:
        follower.gauges.pin(field, "contract")
        return
    follower.gauges.diagonal(field)
    follower.gauges.same(field, whole.expand(field.shape), dual=True, line=line)
    others[:] = [other for other in others if other is not whole]


def _one_wide(
    follower: Follower,
    factors: tuple[Motion, Motion],
    wide: int,
    left: list[torch.Tensor],
    right: list[torch.Tensor],
) -> None:
    """A weight with one input has a scale of its own besides those of its outputs: tie it to the input's scale."""
    for weight, fields, others in ((factors[1], right, left), (factors[0], left, right)):
        scale = [field for field in fields if not varying(field)]
        if weight.raw is None or wide != 1 or len(fields) == len(scale) or not scale:
            continue
        partner = [field for field in others if not varying(field)]
        if partner:
            follower.gauges.same(scale[0], partner[0], dual=True)
            others[:] = [field for field in others if field is not partner[0]]
        else:
            follower.gauges.pin(scale[0], "contract")
        fields[:] = [field for field in fields if field is not scale[0]]
        return


def _contract_shifts(follower: Follower, node: Node, letters: SumLetters, x: Motion, y: Motion) -> tuple[Shift, ...]:
    result: list[Shift] = []
    shifts = follower.shifts
    sides = ((x, letters.x, y, letters.y, 1), (y, letters.y, x, letters.x, 0))
    for factor, mine, other, their, place in sides:
        summed = [mine.index(c) for c in letters.inner]
        moving = [d for d in letters.axes([*letters.batch, *letters.own[place]]) if letters.whole[d] > 1]
        wide = [d for d in summed if factor.shape[d] > 1]
        ordered = factor.raw is not None and len(wide) == 1 and _in_order(follower, factor, wide[0])
        if factor.raw is not None:  # entries that meet the same entry of the result move as one vector
            axes = [k for k, index in enumerate(factor.indices) if not set(summed) & set(varying(index))]
            centred = ordered and other.centred and [their.index(mine[d]) for d in wide] == [len(other.shape) - 1]
            parts = [_first(shift, summed) for shift in follower.parameter_shifts(factor, axes, centred=centred)]
        else:
            parts = []
            for shift in shifts.alive(factor.shifts):
                for d in summed:
                    shift = shifts.sum_along(shift, d)
                parts.append(shift)
        for shift in parts:
            labels, phases = (
                _without(letters.place(field, mine), letters.line) for field in (shift.labels, shift.phases)
            )
            put = replace(shift, labels=labels, phases=phases)
            if ordered:
                source = node.inputs[place].identity.hex()
                rest = [c for c in their if c not in letters.inner]
                key = source, "sum", tuple(their.index(c) for c in letters.inner)
                data = shifts.phase_of(key, [letters.sizes[c] for c in rest], range(len(rest)))
                result.append(replace(put, phases=_without(letters.place(data, rest), letters.line)))
            else:
                result += shifts.weigh([put], moving)
    return tuple(result)


def _first(shift: Shift, axes: Sequence[int]) -> Shift:
    labels, phases = shift.labels, shift.phases
    for d in axes:
        labels, phases = labels.narrow(d, 0, 1), phases.narrow(d, 0, 1)
    return replace(shift, labels=labels, phases=phases)


def _in_order(follower: Follower, factor: Motion, axis: int) -> bool:
    """Whether the entries of a raw parameter along an axis are one of its axes, whole and in its own order."""
    along = [k for k, index in enumerate(factor.indices) if axis in varying(index)]
    if len(along) != 1 or varying(factor.indices[along[0]]) != (axis,):
        return False
    line = factor.indices[along[0]].movedim(axis, 0).reshape(factor.shape[axis], -1)[:, 0]
    return torch.equal(line, torch.arange(follower.shapes[str(factor.raw)][along[0]]))


def convolve(follower: Follower, node: Node, x: Motion, weight: Motion) -> Motion:
    """`z[o] = Σ_{i, taps} W[o, i, tap] x[i, shifted]`: a linear layer on channels that is the same at every place.

    A gauge of the input acts on channels alone; with groups, on the channels of each group by itself. Kernel axes are
    pinned: moving taps is another function. Zero padding stays zero under any linear map.
    """
    if x.zero or weight.zero:
        return Motion(node.shape, zero=True)
    shape, groups, turned = node.shape, int(node["groups"]), bool(node["transposed"])
    gauges, spatial = follower.gauges, tuple(range(2, len(x.shape)))
    inputs, channels = x.shape[1] // groups, shape[1] // groups
    # weights as (group, output, input), whatever the layout of the parameter
    folded = (groups, inputs, channels) if turned else (groups, channels, inputs)
    written: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    for field in weight.gauges:
        if any(d >= 2 for d in varying(field)):
            gauges.pin(field, "conv")
            continue
        field = _without(field, range(2, field.dim())).reshape(folded)
        field = field.transpose(1, 2) if turned else field
        (read if 2 in varying(field) else written).append(field)
    arriving: list[torch.Tensor] = []
    passing: list[torch.Tensor] = []
    for field in x.gauges:
        if any(d in varying(field) for d in (0, *spatial)):
            gauges.pin(field, "conv")
            continue
        line = field[(0, slice(None)) + (0,) * len(spatial)].reshape(groups, 1, inputs)
        (arriving if 1 in varying(field) else passing).append(line.expand(groups, channels, inputs))
    if inputs == 1 and groups > 1:  # depthwise: one input for each group, its scale varies with the group
        first, second = (written, read) if len(written) < 2 else (written[:1], written[1:])
        written, read = (second, first) if turned else (first, second)
    if inputs == 1 and groups == 1 and weight.raw is not None:
        written, passing = _single_input(follower, written, passing)
    for f, g in zip(arriving, read, strict=False):
        gauges.same(f, g, dual=True, line=[2])
    paired = min(len(arriving), len(read))
    for field in (*arriving[paired:], *read[paired:]):
        gauges.pin(field, "conv")
    out = [
        on([1], shape, field[:, :, 0].reshape(-1)) if varying(field) else field.reshape(-1)[0].expand(shape)
        for field in written
    ]
    whole = [field.reshape(-1)[0].expand(shape) for field in passing]
    result = multiply_fields(follower, whole, out, axes=(), shape=shape)
    return Motion(shape, result, _convolved_shifts(follower, node, x, weight))


def _single_input(
    follower: Follower, written: list[torch.Tensor], passing: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """As for a linear layer with one input: the weight's own scale undoes the input's."""
    scale = [field for field in written if not varying(field)]
    if not scale or len(written) == len(scale):
        return written, passing
    if passing:
        follower.gauges.same(scale[0], passing[0], dual=True)
    else:
        follower.gauges.pin(scale[0], "conv")
    return [field for field in written if field is not scale[0]], passing[1:]


def _convolved_shifts(follower: Follower, node: Node, x: Motion, weight: Motion) -> tuple[Shift, ...]:
    """A weight's shift moves its output channel by something that depends on the data at every place.

    A shift of the input that is constant in space would still be seen at a padded border: it is followed no further.
    """
    follower.shifts.drop(x.shifts if x.raw is None else ())
    if weight.raw is None or node["transposed"]:
        follower.pin("conv", replace(weight, gauges=()))
        return ()
    shape, groups = node.shape, node["groups"]
    axes = [k for k, index in enumerate(weight.indices) if varying(index) in ((0,), ()) and k == 0]
    shifts = []
    for shift in follower.parameter_shifts(weight, axes):
        line = shift.labels.reshape(weight.shape)[(slice(None),) + (0,) * (len(weight.shape) - 1)]
        labels = on([1], shape, line) if shape[1] > 1 else line.reshape(-1)[0].expand(shape)
        places = [d for d in range(len(shape)) if d != 1 or groups > 1]
        if groups == 1 and _whole(follower, weight):  # kernels of one size that read one value
            geometry = tuple(str(node[key]) for key in sorted(node.attributes))
            key = (node.inputs[0].identity.hex(), *geometry, weight.shape[1:])
            phases = follower.shifts.phase_of(key, shape, places)
        else:
            phases = follower.shifts.phase(shape, places)
        shifts.append(Shift(labels, phases))
    return tuple(shifts)


def _whole(follower: Follower, weight: Motion) -> bool:
    """Whether a raw parameter is as it was given: no entry moved, repeated or dropped."""
    entries = index_fields(follower.shapes[str(weight.raw)])
    return len(entries) == len(weight.indices) and all(map(torch.equal, entries, weight.indices))
