"""Folds: gains, offsets and statistics that a linear layer beside them can take over.

A normalised value `γ x̂ + β` that only linear layers read is the same function with `W γ` for W, `b + W β` for b, and
γ = 1, β = 0. A BatchNorm in evaluation after a convolution is that convolution with other weights. The bias of values
in attention is a bias of its output, because attention weights add up to 1. Two checkpoints that differ by a fold
have one form after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from lawful.errors import Unsupported
from lawful.program.passes.fold import ContractionLayer, LayerReader, ScaleAndShift, Statistics
from lawful.program.program import Node, Program

# What can be folded in a program, and the numbers that are left in place of what was folded.

Folding = Literal["all", "statistics", "none"]


def find_folds(program: Program, *, shared: bool = False, kinds: Folding = "all") -> tuple[Fold, ...]:
    """What can be folded, in the order in which the program runs.

    `shared`: also into weights that are used elsewhere, for those who have a weight of its own for every use.
    `kinds` may be "statistics" (BatchNorms alone) or "none".
    """
    finder = _Finder(program, shared)
    found: list[Fold] = []
    for node in program.as_run() if kinds != "none" else ():
        statistics = finder.reader.statistics(node)
        one = finder.statistics(statistics) if statistics is not None else None
        if one is None and kinds == "all" and statistics is None and (scale := finder.reader.scale(node)) is not None:
            one = finder.scale(scale)
        if one is not None:
            found.append(one)
    return tuple(found)


def numbers_after(folds: tuple[Fold, ...]) -> dict[str, float]:
    """What scales, shifts and statistics are once they are folded, by name.

    A shift that no bias can take stays, and so does what a BatchNorm has no layer before it for.
    """
    found: dict[str, float] = {}
    for each in folds:
        if isinstance(each, GainFold):
            if each.gain is not None:
                found[each.gain] = 1.0 - each.plus
            if each.offset is not None and all(reader.bias for reader in each.readers):
                found[each.offset] = 0.0
        elif isinstance(each, StatisticsFold):
            found |= {each.mean: 0.0, each.variance: 1.0 - each.epsilon}
            if each.writer is not None:
                found[each.gain] = 1.0
                found |= {} if each.writer.bias is None else {each.writer.bias: 0.0}
    return found


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

    def scale(self, given: ScaleAndShift) -> Fold | None:
        """A scale, or the mean that a centred normalisation takes off, in all layers that read it."""
        gain, offset = self.name(given.scale), self.name(given.shift)
        if (given.scale is not None and gain is None) or (given.shift is not None and offset is None):
            return None
        layers = self.reader.readers(given.result, given.axis)
        readers = [self.linear(layer) for layer in layers or ()]
        if not readers or None in readers:
            return None
        whole = tuple(each for each in readers if each is not None)
        carried = offset is None or all(each.bias for each in whole)
        value = given.value.attributes
        centred = carried and bool(value.get("centre")) and value["axes"] == (given.axis,)
        if gain is None and not centred:
            return None
        return GainFold(gain, offset, given.plus, whole, centred)

    def statistics(self, given: Statistics) -> Fold | None:
        """BatchNorm in evaluation, in the layer before it if that is read by nothing else."""
        gain, offset = self.name(given.scale), self.name(given.shift)
        if gain is None or offset is None:
            return None
        layer = self.reader.writer(given.value, 1)
        own = None if layer is None else self.linear(layer)
        writer = None
        if layer is not None and own is not None and (layer.bias is None or own.bias is not None):
            writer = LinearReader(own.weight, 1 - own.axis, own.bias)
        return StatisticsFold(gain, offset, given.mean["name"], given.variance["name"], given.epsilon, writer)


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


def fold(state: Mapping[str, torch.Tensor], folds: tuple[Fold, ...], *, absolute: bool = False) -> State:
    """The same function with its folds carried out; `absolute`: the sums of the absolute values of all terms."""
    found = {name: tensor.abs() if absolute else tensor for name, tensor in state.items()}
    for each in folds:
        if isinstance(each, GainFold):
            _fold_gain(found, each, absolute)
        elif isinstance(each, StatisticsFold):
            _fold_statistics(found, state, each, absolute)
        elif isinstance(each, ValueFold):
            _fold_value(found, each)
        elif isinstance(each, MoveFold):
            found[each.target] = found[each.target] + found[each.source]
            found[each.source] = torch.zeros_like(found[each.source])
        elif isinstance(each, DropFold):
            found[each.tensor] = torch.zeros_like(found[each.tensor])
        else:
            mean = found[each.tensor].mean(each.axis, keepdim=True) * state[each.amount].to(found[each.tensor].dtype)
            found[each.tensor] = found[each.tensor] + (mean if absolute else -mean)
            _spent(found, each, folds)
    return found


def _spent(state: State, each: CentreFold, folds: tuple[Fold, ...]) -> None:
    """The amount is 0 once everything that it is for has been centred."""
    last = [other for other in folds if isinstance(other, CentreFold) and other.amount == each.amount][-1]
    if each is last:
        state[each.amount] = torch.zeros_like(state[each.amount])


def _fold_gain(state: State, each: GainFold, absolute: bool) -> None:
    gain = None if each.gain is None else state[each.gain] + each.plus
    for reader in each.readers:
        weight = state[reader.weight]
        if each.offset is not None and all(other.bias for other in each.readers):
            state[str(reader.bias)] = state[str(reader.bias)] + _summed(state[each.offset], weight, reader.axis)
        if gain is not None:
            state[reader.weight] = weight * along(gain.to(weight.dtype), reader.axis, weight.ndim)
        if each.centred:
            mean = state[reader.weight].mean(reader.axis, keepdim=True)
            state[reader.weight] = state[reader.weight] + (mean if absolute else -mean)
    if each.offset is not None:
        carried = all(reader.bias for reader in each.readers)
        state[each.offset] = (
            torch.zeros_like(state[each.offset]) if carried or gain is None else _divided(state, each, gain)
        )
    if each.gain is not None:
        state[each.gain] = torch.full_like(state[each.gain], 1.0 - each.plus)


def _divided(state: State, each: GainFold, gain: torch.Tensor) -> torch.Tensor:
    """The offset in units of the gain; where both are zero nothing is read of the value, and 0 will do."""
    offset = state[str(each.offset)]
    if bool(((gain == 0) & (offset != 0)).any()):
        raise Unsupported(f"{each.gain} holds zeros where {each.offset} does not: no gain of 1 can stand for it")
    return torch.where(offset == 0, torch.zeros_like(offset), offset / gain)


def _fold_statistics(state: State, given: Mapping[str, torch.Tensor], each: StatisticsFold, absolute: bool) -> None:
    factor = state[each.gain] / torch.sqrt(given[each.variance] + each.epsilon)
    mean = state[each.mean] if absolute else -state[each.mean]
    writer = each.writer
    if writer is not None:
        weight = state[writer.weight]
        if writer.bias is not None:
            mean = mean + state[writer.bias]
            state[writer.bias] = torch.zeros_like(state[writer.bias])
        state[writer.weight] = weight * along(factor.to(weight.dtype), writer.axis, weight.ndim)
    state[each.offset] = state[each.offset] + factor * mean
    state[each.gain] = torch.ones_like(factor) if writer is not None else factor
    state[each.mean] = torch.zeros_like(mean)
    state[each.variance] = torch.full_like(mean, 1.0 - each.epsilon)


def _fold_value(state: State, each: ValueFold) -> None:
    values = state[each.bias].clone()
    rows = torch.tensor(each.rows)
    weight = state[each.reader.weight].movedim(each.reader.axis, 0)
    bias = state[str(each.reader.bias)].clone()
    for columns in each.columns:
        bias += _summed(values[rows], weight[torch.tensor(columns)], 0)
    values[rows] = 0
    state[each.bias], state[str(each.reader.bias)] = values, bias


def _summed(vector: torch.Tensor, weight: torch.Tensor, axis: int) -> torch.Tensor:
    """`Σ v_i W_i` along an axis; if the weight is worked with in fewer bits than the vector, part by part in those of
    the vector."""
    if vector.dtype == weight.dtype or weight.ndim < 2:
        found: torch.Tensor = torch.tensordot(vector, weight.to(vector.dtype), dims=([0], [axis]))
        return found
    rows = weight.movedim(axis, 0)
    count = -(-rows.numel() // PART)
    parts = [torch.tensordot(vector, part.to(vector.dtype), dims=([0], [0])) for part in rows.tensor_split(count, 1)]
    return torch.cat(parts)


def along(vector: torch.Tensor, axis: int, rank: int) -> torch.Tensor:
    """A vector laid along one axis, to be broadcast."""
    return vector.reshape([-1 if d == axis else 1 for d in range(rank)])


def unfold(state: Mapping[str, torch.Tensor], folds: tuple[Fold, ...], like: Mapping[str, torch.Tensor]) -> State:
    """Undo folds so that gains, offsets and statistics are those of another checkpoint (where they are not zero)."""
    found = dict(state)
    stages = [dict(like)]  # the other checkpoint before each fold
    for each in folds:
        stages.append(fold(stages[-1], (each,)))
    for each, like in zip(reversed(folds), reversed(stages[:-1]), strict=True):
        if isinstance(each, GainFold):
            _unfold_gain(found, each, like)
        elif isinstance(each, StatisticsFold):
            _unfold_statistics(found, each, like)
        elif isinstance(each, DropFold):
            found[each.tensor] = like[each.tensor].to(found[each.tensor].dtype)
        elif isinstance(each, MoveFold):
            own = like[each.source].to(found[each.target].dtype)
            found[each.source], found[each.target] = own, found[each.target] - own
        elif isinstance(each, ValueFold):
            negative = {**found, each.bias: -like[each.bias].to(found[each.bias].dtype)}
            _fold_value(negative, each)
            rows = torch.tensor(each.rows)
            values = found[each.bias].clone()
            values[rows] = like[each.bias].to(values.dtype)[rows]
            found[each.bias], found[str(each.reader.bias)] = values, negative[str(each.reader.bias)]
    return found


def _unfold_gain(state: State, each: GainFold, like: Mapping[str, torch.Tensor]) -> None:
    gain = None
    if each.gain is not None:
        own = like[each.gain].to(state[each.gain].dtype) + each.plus
        gain = torch.where(own == 0, torch.ones_like(own), own)
        state[each.gain] = gain - each.plus
    carried = all(reader.bias for reader in each.readers)
    for reader in each.readers:
        weight = state[reader.weight]
        if each.centred:
            other = like[reader.weight].to(weight.dtype)
            if gain is not None:
                other = other * along(gain, reader.axis, weight.ndim)
            weight = weight + other.mean(reader.axis, keepdim=True)
        if gain is not None:
            weight = weight / along(gain, reader.axis, weight.ndim)
        state[reader.weight] = weight
        if each.offset is not None and carried:
            offset = like[each.offset].to(weight.dtype)
            bias = state[str(reader.bias)]
            state[str(reader.bias)] = bias - torch.tensordot(offset, weight, dims=([0], [reader.axis]))
    if each.offset is not None:
        dtype = state[each.offset].dtype
        if carried:
            state[each.offset] = like[each.offset].to(dtype)
        elif gain is not None:
            state[each.offset] = state[each.offset] * gain


def _unfold_statistics(state: State, each: StatisticsFold, like: Mapping[str, torch.Tensor]) -> None:
    dtype = state[each.offset].dtype
    gain, mean, variance = (like[name].to(dtype) for name in (each.gain, each.mean, each.variance))
    deviation = torch.sqrt(variance + each.epsilon)
    writer = each.writer
    if writer is None:
        factor = state[each.gain]
        state[each.gain] = factor * deviation
    else:
        gain = torch.where(gain == 0, torch.ones_like(gain), gain)
        factor = gain / deviation
        weight = state[writer.weight]
        state[writer.weight] = weight / along(factor, writer.axis, weight.ndim)
        state[each.gain] = gain
        if writer.bias is not None:
            state[writer.bias] = like[writer.bias].to(dtype)
            mean = mean - state[writer.bias]
    state[each.offset] = state[each.offset] + factor * mean
    state[each.mean], state[each.variance] = like[each.mean].to(dtype), variance
