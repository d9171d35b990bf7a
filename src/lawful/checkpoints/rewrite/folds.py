"""Folds: gains, offsets and statistics that a linear layer beside them can take over.

A normalised value `γ x̂ + β` that only linear layers read is the same function with `W γ` for W, `b + W β` for b, and
γ = 1, β = 0. A BatchNorm in evaluation after a convolution is that convolution with other weights. The bias of values
in attention is a bias of its output, because attention weights add up to 1. Two checkpoints that differ by a fold
have one form after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from lawful.errors import Unsupported
from lawful.program.passes.fold import ContractionLayer, LayerReader, ScaleAndShift, Statistics
from lawful.program.program import Node, Program

# What can be folded in a program, and the numbers that are left in place of what was folded.

Folding = Literal["all", "statistics", "none"]


def find_folds(
    program: Program, *, shared: bool = False, kinds: Folding = "all", besides: Collection[str] = ()
) -> tuple[Fold, ...]:
    """What can be folded, in the order in which the program runs.

    `shared`: also into weights that are used elsewhere, for those who have a weight of its own for every use.
    `kinds` may be "statistics" (BatchNorms alone) or "none". Gains that are named in `besides` stay.
    """
    finder = _Finder(program, shared)
    folds: list[Fold] = []
    for node in program.as_run() if kinds != "none" else ():
        statistics = finder.reader.statistics(node)
        one = finder.statistics(statistics) if statistics is not None else None
        if one is None and kinds == "all" and statistics is None and (scale := finder.reader.scale(node)) is not None:
            one = finder.scale(scale)
        if one is not None and not (isinstance(one, GainFold) and one.gain in besides):
            folds.append(one)
    return tuple(folds)


def numbers_after(folds: tuple[Fold, ...]) -> dict[str, float]:
    """What scales, shifts and statistics are once they are folded, by name.

    A shift that no bias can take stays, and so does what a BatchNorm has no layer before it for.
    """
    numbers: dict[str, float] = {}
    for step in folds:
        if isinstance(step, GainFold):
            if step.gain is not None:
                numbers[step.gain] = 1.0 - step.plus
            if step.offset is not None and step.carries_offset:
                numbers[step.offset] = 0.0
        elif isinstance(step, StatisticsFold):
            numbers |= {step.mean: 0.0, step.variance: 1.0 - step.epsilon}
            if step.writer is not None:
                numbers[step.gain] = 1.0
                numbers |= {} if step.writer.bias is None else {step.writer.bias: 0.0}
    return numbers


class _Finder:
    def __init__(self, program: Program, shared: bool) -> None:
        self.reader, self.shared = LayerReader(program), shared

    def name(self, leaf: Node | None) -> str | None:
        """The name of a parameter, if nothing else reads it."""
        if leaf is None or not (self.shared or self.reader.is_read_once(leaf)):
            return None
        return str(leaf["name"])

    def linear(self, layer: ContractionLayer) -> LinearReader | None:
        """A layer by names, if nothing else reads its weight; a bias that is shared is none of its own."""
        weight = self.name(layer.weight)
        return None if weight is None else LinearReader(weight, layer.axis, self.name(layer.bias))

    def scale(self, part: ScaleAndShift) -> Fold | None:
        """A scale, or the mean that a centred normalisation takes off, in all layers that read it."""
        gain, offset = self.name(part.scale), self.name(part.shift)
        if (part.scale is not None and gain is None) or (part.shift is not None and offset is None):
            return None
        layers = self.reader.readers(part.result, part.axis)
        readers = [self.linear(layer) for layer in layers or ()]
        if not readers or None in readers:
            return None
        whole = tuple(reader for reader in readers if reader is not None)
        carried = offset is None or all(reader.bias for reader in whole)
        value = part.value.attributes
        centred = carried and bool(value.get("centre")) and value["axes"] == (part.axis,)
        if gain is None and not centred:
            return None
        return GainFold(gain, offset, part.plus, whole, centred)

    def statistics(self, part: Statistics) -> Fold | None:
        """BatchNorm in evaluation, in the layer before it if that is read by nothing else."""
        gain, offset = self.name(part.scale), self.name(part.shift)
        if gain is None or offset is None:
            return None
        layer = self.reader.writer(part.value, 1)
        reader = None if layer is None else self.linear(layer)
        writer = None
        if layer is not None and reader is not None and (layer.bias is None or reader.bias is not None):
            writer = LinearReader(reader.weight, 1 - reader.axis, reader.bias)
        return StatisticsFold(gain, offset, part.mean["name"], part.variance["name"], part.epsilon, writer)


State = dict[str, torch.Tensor]

PART = 2**22  # numbers that are widened together


@dataclass(frozen=True)
class LinearReader:
    """A linear layer that reads a value along `axis` of its weight, and its bias if it has one."""

    weight: str
    axis: int
    bias: str | None


@dataclass(frozen=True)
class GainFold:
    """`W (γ x̂ + β) + b`: the gain goes into W, the offset into b (or stays, divided by the gain).

    Values of a LayerNorm add up to 0: what is constant along the rows of W is not seen, and is taken off (`centred`).
    """

    gain: str | None
    offset: str | None
    plus: float  # the graph multiplies by `plus + gain`
    readers: tuple[LinearReader, ...]
    centred: bool

    @property
    def carries_offset(self) -> bool:
        """Whether every layer that reads the value has a bias, which takes the offset over."""
        return all(reader.bias for reader in self.readers)

    def fits(self, state: Mapping[str, torch.Tensor]) -> bool:
        """Whether a gain of 1 can stand for that of a checkpoint: `γ x̂ + β = 1 (γ x̂ + β/γ)` needs γ ≠ 0 where β ≠ 0."""
        if self.gain is None or self.offset is None or self.carries_offset:
            return True
        return not bool(((state[self.gain] + self.plus == 0) & (state[self.offset] != 0)).any())


@dataclass(frozen=True)
class StatisticsFold:
    """BatchNorm in evaluation: `γ (W x + c − μ)/√(v + ε) + β`, with `writer` the layer before it if it can take γ."""

    gain: str
    offset: str
    mean: str
    variance: str
    epsilon: float
    writer: LinearReader | None


@dataclass(frozen=True, eq=False)
class ValueFold:
    """The bias of values, in rows `rows` of `bias`: attention passes it on, so `b_out += W_out b_value`.

    `columns[c]` are the columns of the output weight that copy c of the head meets.
    """

    bias: str
    rows: tuple[int, ...]
    columns: tuple[tuple[int, ...], ...]
    reader: LinearReader


@dataclass(frozen=True)
class MoveFold:
    """A vector that is added where `target` is added: it goes there, and nothing is left of it."""

    source: str
    target: str


@dataclass(frozen=True)
class DropFold:
    """A tensor that no output sees, such as the bias of keys under a softmax."""

    tensor: str


@dataclass(frozen=True)
class CentreFold:
    """LayerNorm is RMSNorm of values whose mean was taken away by all that write them: `W -= amount · mean(W)`.

    The amount is 1 for a checkpoint with LayerNorm and 0 for one with RMSNorm.
    """

    tensor: str
    axis: int
    amount: str


Fold = GainFold | StatisticsFold | ValueFold | MoveFold | DropFold | CentreFold


def names_in(step: Fold) -> tuple[str, ...]:
    """All tensors of a fold: those that its fields name, and those of its layers."""
    names: list[str | None] = []
    for value in vars(step).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, LinearReader):
                names += [part.weight, part.bias]
            elif isinstance(part, str):
                names.append(part)
    return tuple(dict.fromkeys(name for name in names if name is not None))


def apply_folds(state: Mapping[str, torch.Tensor], folds: tuple[Fold, ...], *, absolute: bool = False) -> State:
    """The same function with its folds carried out; `absolute`: the sums of the absolute values of all terms."""
    folded = {name: tensor.abs() if absolute else tensor for name, tensor in state.items()}
    for step in folds:
        if isinstance(step, GainFold):
            _fold_gain(folded, step, absolute)
        elif isinstance(step, StatisticsFold):
            _fold_statistics(folded, state, step, absolute)
        elif isinstance(step, ValueFold):
            _fold_value(folded, step)
        elif isinstance(step, MoveFold):
            folded[step.target] = folded[step.target] + folded[step.source]
            folded[step.source] = torch.zeros_like(folded[step.source])
        elif isinstance(step, DropFold):
            folded[step.tensor] = torch.zeros_like(folded[step.tensor])
        else:
            mean = folded[step.tensor].mean(step.axis, keepdim=True) * state[step.amount].to(folded[step.tensor].dtype)
            folded[step.tensor] = folded[step.tensor] + (mean if absolute else -mean)
            _spend_amount(folded, step, folds)
    return folded


def _spend_amount(state: State, step: CentreFold, folds: tuple[Fold, ...]) -> None:
    """The amount is 0 once everything that it is for has been centred."""
    last = [other for other in folds if isinstance(other, CentreFold) and other.amount == step.amount][-1]
    if step is last:
        state[step.amount] = torch.zeros_like(state[step.amount])


def _fold_gain(state: State, step: GainFold, absolute: bool) -> None:
    gain = None if step.gain is None else state[step.gain] + step.plus
    for reader in step.readers:
        weight = state[reader.weight]
        if step.offset is not None and step.carries_offset:
            state[str(reader.bias)] = state[str(reader.bias)] + _sum_rows(state[step.offset], weight, reader.axis)
        if gain is not None:
            state[reader.weight] = weight * along(gain.to(weight.dtype), reader.axis, weight.ndim)
        if step.centred:
            mean = state[reader.weight].mean(reader.axis, keepdim=True)
            state[reader.weight] = state[reader.weight] + (mean if absolute else -mean)
    if step.offset is not None:
        state[step.offset] = (
            torch.zeros_like(state[step.offset])
            if step.carries_offset or gain is None
            else _divide_offset(state, step, gain)
        )
    if step.gain is not None:
        state[step.gain] = torch.full_like(state[step.gain], 1.0 - step.plus)


def _divide_offset(state: State, step: GainFold, gain: torch.Tensor) -> torch.Tensor:
    """The offset in units of the gain; where both are zero nothing is read of the value, and 0 will do."""
    offset = state[str(step.offset)]
    if not step.fits(state):
        raise Unsupported(f"{step.gain} holds zeros where {step.offset} does not: no gain of 1 can stand for it")
    return torch.where(offset == 0, torch.zeros_like(offset), offset / gain)


def _fold_statistics(state: State, before: Mapping[str, torch.Tensor], step: StatisticsFold, absolute: bool) -> None:
    factor = state[step.gain] / torch.sqrt(before[step.variance] + step.epsilon)
    mean = state[step.mean] if absolute else -state[step.mean]
    writer = step.writer
    if writer is not None:
        weight = state[writer.weight]
        if writer.bias is not None:
            mean = mean + state[writer.bias]
            state[writer.bias] = torch.zeros_like(state[writer.bias])
        state[writer.weight] = weight * along(factor.to(weight.dtype), writer.axis, weight.ndim)
    state[step.offset] = state[step.offset] + factor * mean
    state[step.gain] = torch.ones_like(factor) if writer is not None else factor
    state[step.mean] = torch.zeros_like(mean)
    state[step.variance] = torch.full_like(mean, 1.0 - step.epsilon)


def _fold_value(state: State, step: ValueFold) -> None:
    values = state[step.bias].clone()
    rows = torch.tensor(step.rows)
    weight = state[step.reader.weight].movedim(step.reader.axis, 0)
    bias = state[str(step.reader.bias)].clone()
    for columns in step.columns:
        bias += _sum_rows(values[rows], weight[torch.tensor(columns)], 0)
    values[rows] = 0
    state[step.bias], state[str(step.reader.bias)] = values, bias


def _sum_rows(vector: torch.Tensor, weight: torch.Tensor, axis: int) -> torch.Tensor:
    """`Σ v_i W_i` along an axis; if the weight is worked with in fewer bits than the vector, part by part in those of
    the vector."""
    if vector.dtype == weight.dtype or weight.ndim < 2:
        product: torch.Tensor = torch.tensordot(vector, weight.to(vector.dtype), dims=([0], [axis]))
        return product
    rows = weight.movedim(axis, 0)
    count = -(-rows.numel() // PART)
    parts = [torch.tensordot(vector, part.to(vector.dtype), dims=([0], [0])) for part in rows.tensor_split(count, 1)]
    return torch.cat(parts)


def along(vector: torch.Tensor, axis: int, rank: int) -> torch.Tensor:
    """A vector laid along one axis, to be broadcast."""
    return vector.reshape([-1 if d == axis else 1 for d in range(rank)])


def undo_folds(state: Mapping[str, torch.Tensor], folds: tuple[Fold, ...], like: Mapping[str, torch.Tensor]) -> State:
    """Undo folds so that gains, offsets and statistics are those of another checkpoint (where they are not zero)."""
    unfolded = dict(state)
    stages = [dict(like)]  # the other checkpoint before each fold
    for step in folds:
        stages.append(apply_folds(stages[-1], (step,)))
    for step, like in zip(reversed(folds), reversed(stages[:-1]), strict=True):
        if isinstance(step, GainFold):
            _unfold_gain(unfolded, step, like)
        elif isinstance(step, StatisticsFold):
            _unfold_statistics(unfolded, step, like)
        elif isinstance(step, DropFold):
            unfolded[step.tensor] = like[step.tensor].to(unfolded[step.tensor].dtype)
        elif isinstance(step, MoveFold):
            source = like[step.source].to(unfolded[step.target].dtype)
            unfolded[step.source], unfolded[step.target] = source, unfolded[step.target] - source
        elif isinstance(step, ValueFold):
            negative = {**unfolded, step.bias: -like[step.bias].to(unfolded[step.bias].dtype)}
            _fold_value(negative, step)
            rows = torch.tensor(step.rows)
            values = unfolded[step.bias].clone()
            values[rows] = like[step.bias].to(values.dtype)[rows]
            unfolded[step.bias], unfolded[str(step.reader.bias)] = values, negative[str(step.reader.bias)]
    return unfolded


def _unfold_gain(state: State, step: GainFold, like: Mapping[str, torch.Tensor]) -> None:
    gain = None
    if step.gain is not None:
        own_gain = like[step.gain].to(state[step.gain].dtype) + step.plus
        gain = torch.where(own_gain == 0, torch.ones_like(own_gain), own_gain)
        state[step.gain] = gain - step.plus
    carried = step.carries_offset
    for reader in step.readers:
        weight = state[reader.weight]
        if step.centred:
            other = like[reader.weight].to(weight.dtype)
            if gain is not None:
                other = other * along(gain, reader.axis, weight.ndim)
            weight = weight + other.mean(reader.axis, keepdim=True)
        if gain is not None:
            weight = weight / along(gain, reader.axis, weight.ndim)
        state[reader.weight] = weight
        if step.offset is not None and carried:
            offset = like[step.offset].to(weight.dtype)
            bias = state[str(reader.bias)]
            state[str(reader.bias)] = bias - torch.tensordot(offset, weight, dims=([0], [reader.axis]))
    if step.offset is not None:
        dtype = state[step.offset].dtype
        if carried:
            state[step.offset] = like[step.offset].to(dtype)
        elif gain is not None:
            state[step.offset] = state[step.offset] * gain


def _unfold_statistics(state: State, step: StatisticsFold, like: Mapping[str, torch.Tensor]) -> None:
    dtype = state[step.offset].dtype
    gain, mean, variance = (like[name].to(dtype) for name in (step.gain, step.mean, step.variance))
    deviation = torch.sqrt(variance + step.epsilon)
    writer = step.writer
    if writer is None:
        factor = state[step.gain]
        state[step.gain] = factor * deviation
    else:
        gain = torch.where(gain == 0, torch.ones_like(gain), gain)
        factor = gain / deviation
        weight = state[writer.weight]
        state[writer.weight] = weight / along(factor, writer.axis, weight.ndim)
        state[step.gain] = gain
        if writer.bias is not None:
            state[writer.bias] = like[writer.bias].to(dtype)
            mean = mean - state[writer.bias]
    state[step.offset] = state[step.offset] + factor * mean
    state[step.mean], state[step.variance] = like[step.mean].to(dtype), variance
