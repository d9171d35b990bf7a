"""The numbers of the smaller network: each is the one that follows from the moves, rounded; nothing else is there.

Weights stay the doubles they are; entries that changed are rationals (biases also balls) in a table beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lawful.errors import Unsupported
from lawful.verify.core.balls import ball
from lawful.verify.core.schema import MOST_SUM_BITS, check_clock, integer, integers, items, require
from lawful.verify.pruning.constants import ZERO, Value, exact, is_zero, plus, size_of, times
from lawful.verify.pruning.program import ChannelStep, Move, Tensor, check_grid

# Of the number itself: four units of its type, one for storing it and three for factors γ/sqrt(variance + ε) that a
# framework computes in that type. In float64, 32 units: sums of a few terms are rounded at each.
ROOM = {
    "float16": Fraction(1, 2**9), "bfloat16": Fraction(1, 2**6),
    "float32": Fraction(1, 2**22), "float64": Fraction(1, 2**48),
}  # fmt: skip
STEP = {"float16": Fraction(1, 2**24)}  # between the smallest numbers of a type, where that is no tiny one
# Sums of terms that cancel may be off by a share of the terms, but terms of any size can be listed: no more counts than
# so often the largest number of the layer, so that 2^-48 of it is below a unit of that number.
MOST_SIZE = {"float16": 2**18, "bfloat16": 2**18, "float32": 2**18, "float64": 2**8}
ONE = Fraction(1)


class ExpectedNumber(NamedTuple):
    """A number that follows, and the sum of the sizes of what it was added from."""

    value: Value
    size: Fraction


@dataclass
class ChangedWeights:
    """The weights of a program as they change, and which of its channels are left."""

    steps: Sequence[ChannelStep]
    tensors: Mapping[str, Tensor]
    alive: Sequence[Any]
    changed: dict[tuple[str, int], ExpectedNumber] = field(default_factory=dict)  # by tensor and place
    added: dict[tuple[int, int], ExpectedNumber] = field(
        default_factory=dict
    )  # biases that were not there, by layer and row
    lending: dict[int, list[int]] = field(default_factory=dict)  # rows that leave, and that others take over
    largest: dict[int, Fraction] = field(default_factory=dict)  # sizes that count at most, by layer

    def rows(self, at: int) -> list[int]:
        """The channels of an operation that are left."""
        rows: list[int] = self.alive[at].nonzero()[0].tolist()
        return rows

    def entry(self, name: str, place: int) -> ExpectedNumber:
        """One number, exactly."""
        if (name, place) in self.changed:
            return self.changed[name, place]
        value = Fraction(self.tensors[name].values[place])
        return ExpectedNumber(value, abs(value))

    def bias(self, at: int, row: int) -> ExpectedNumber:
        """The bias of a row."""
        name = self.steps[at].tensors["bias"]
        return self.added.get((at, row), ExpectedNumber(ZERO, ZERO)) if name is None else self.entry(name, row)

    def columns(self, at: int, row: int) -> range:
        """The channels that a row reads: all, or those of its group."""
        step = self.steps[at]
        width = self.tensors[str(step.tensors["weight"])].shape[1]
        start = step.group(row) * width if step.groups > 1 else 0
        return range(start, start + width)

    def places(self, at: int, row: int, column: int) -> range:
        """Where the taps from one channel to another are stored: nowhere between two groups."""
        mine, taps = self.columns(at, row), prod(self.tensors[str(self.steps[at].tensors["weight"])].shape[2:])
        if column not in mine:
            return range(0)
        start = (row * len(mine) + column - mine.start) * taps
        return range(start, start + taps)

    def of_norm(self, at: int, place: int) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """Mean, variance with epsilon, gain and shift."""
        names = self.steps[at].tensors
        pairs = zip(("mean", "variance", "weight", "bias"), (ZERO, ZERO, ONE, ZERO), strict=True)
        mean, variance, gain, shift = (
            default if (name := names[role]) is None else self.entry(name, place).value for role, default in pairs
        )
        return mean, variance + Fraction(self.steps[at].arguments[0]), gain, shift

    def apply_all(self, moves: Sequence[Move], folded: Mapping[tuple[int, int], Value]) -> None:
        """Carry out all moves, in their order."""
        for move in moves:
            if move.kind == "row" and move.place not in self.lending.setdefault(move.step, []):
                self.lending[move.step].append(move.place)
        for move in moves:
            self._apply(move, folded)

    def _apply(self, move: Move, folded: Mapping[tuple[int, int], Value]) -> None:
        """Rows or columns of a layer take over what one that leaves has."""
        at, name = move.step, str(self.steps[move.step].tensors["weight"])
        if move.kind == "row":
            for other, factor in move.terms:
                for column in self.columns(at, move.place):
                    pairs = zip(self.places(at, move.place, column), self.places(at, other, column), strict=True)
                    for mine, yours in pairs:
                        term = self.entry(name, mine).value
                        self._add(at, self.changed, (name, yours), self.entry(name, yours), factor, term)
                self._add_bias(at, other, factor, self.bias(at, move.place).value)
            return
        for row in [*self.rows(at), *self.lending.get(at, ())]:
            taps = [self.entry(name, place).value for place in self.places(at, row, move.place)]
            if not any(taps):
                continue
            if move.kind == "constant":
                for tap in taps:
                    self._add_bias(at, row, tap, folded[at, move.place])
            for other, factor in move.terms:
                places = self.places(at, row, other)
                require(len(places) == len(taps), "a weight lies between two groups")
                for place, tap in zip(places, taps, strict=True):
                    self._add(at, self.changed, (name, place), self.entry(name, place), factor, tap)

    def _add_bias(self, at: int, row: int, factor: Fraction, value: Value) -> None:
        name = self.steps[at].tensors["bias"]
        if name is not None:
            self._add(at, self.changed, (name, row), self.bias(at, row), factor, value)
        else:
            self._add(at, self.added, (at, row), self.bias(at, row), factor, value)

    def _add(
        self, at: int, table: dict[Any, ExpectedNumber], key: tuple[Any, int], old: ExpectedNumber, factor: Fraction,
        value: Value,
    ) -> None:  # fmt: skip
        if factor and not is_zero(value):
            size = min(old.size + abs(factor) * size_of(value), self.most_size(at))
            total = plus([(factor, value)], old.value)
            check_clock()
            if exact(total) and total.denominator.bit_length() > MOST_SUM_BITS:  # factors of a chain are multiplied
                raise Unsupported(f"a number that follows has a denominator of more than {MOST_SUM_BITS:,} bits")
            table[key] = ExpectedNumber(total, size)

    def most_size(self, at: int) -> Fraction:
        """What the sizes of terms of a number of a layer count at most."""
        if at not in self.largest:
            tensors = [self.tensors[name] for name in self.steps[at].tensors.values() if name is not None]
            largest = max(float(np.abs(np.asarray(tensor.values)).max(initial=0.0)) for tensor in tensors)
            self.largest[at] = MOST_SIZE[tensors[0].dtype] * Fraction(largest)
        return self.largest[at]


@dataclass(frozen=True)
class ListedTidying:
    """Tensors that the smaller network has more or less: biases gained, by layer; norms folded; biases nobody sees."""

    gained: Mapping[int, str] = field(default_factory=dict)
    folded: Mapping[int, int] = field(default_factory=dict)  # layers, with the normalisation that went into each
    dropped: Sequence[int] = ()


def read_tidying(
    gained: object, folded: object, dropped: object, steps: list[ChannelStep], results: list[int]
) -> ListedTidying:
    """What is gained, folded and dropped, where that is allowed."""
    into: dict[int, int] = {}
    again = {at for at, step in enumerate(steps) if step.first is not None}
    again |= {step.first for step in steps if step.first is not None}
    for norm in integers(folded, "folded", 0, len(steps) - 1, most=len(steps)):
        require(steps[norm].kind == "norm", "what is folded is no normalisation")
        layer = steps[norm].sources[0]
        require(steps[layer].kind in ("layer", "depthwise"), "a normalisation is folded into no layer")
        users = [at for at, step in enumerate(steps) if layer in step.sources]
        require(users == [norm] and layer not in results, "a layer that others read takes a normalisation over")
        require(layer not in into, "a normalisation is folded twice")
        require(not {layer, norm} & again, "what is used again takes a normalisation over")
        into[layer] = norm
    names: dict[int, str] = {}
    for item in items(gained, "added", most=len(steps)):
        at, name = items(item, "added", length=2)
        place = integer(at, "added", 0, len(steps) - 1)
        takes = steps[place].kind == "layer" or place in into
        require(takes and steps[place].tensors["bias"] is None, "a bias is added to no layer")
        require(steps[place].first is None, "a bias is added to a later use of a layer")
        require(isinstance(name, str) and place not in names, "a bias is added twice")
        names[place] = name
    require(len(set(names.values())) == len(names), "two layers gain one bias")
    unseen = integers(dropped, "dropped", 0, len(steps) - 1, most=len(steps))
    require(len(set(unseen)) == len(unseen), "a bias is dropped twice")
    for at in unseen:
        require(steps[at].kind == "layer" and steps[at].tensors["bias"] is not None, "no layer's bias is dropped")
        require(at not in again, "a bias is dropped that another use has")
        require(at not in into, "a bias is dropped that a normalisation needs")
    return ListedTidying(names, into, unseen)


def compare(weights: ChangedWeights, after: Mapping[str, Tensor], tidying: ListedTidying) -> None:
    """Every number of the smaller network is the one that follows, rounded."""
    steps, left = weights.steps, set(after)
    gone = set(tidying.folded.values())
    for at, step in enumerate(steps):
        if step.heads is not None:
            check_grid(step.heads, weights.alive[step.sources[1]], weights.alive[step.sources[2]])
        if step.groups > 1:
            _check_groups(weights, at)
        if step.first is not None or at in gone:
            continue
        rows = weights.rows(at)
        bias = step.tensors.get("bias") or tidying.gained.get(at)
        for role, name in step.tensors.items():
            if name is None or (role == "bias" and at in tidying.dropped):
                continue
            require(name in left, "a tensor is missing")
            left.discard(name)
            if at in tidying.folded:
                _compare_folded(weights, at, role, after[name], tidying.folded[at])
            else:
                _compare_entries(weights, at, role, after[name])
        grown = {row: entry for (place, row), entry in weights.added.items() if place == at and weights.alive[at][row]}
        if grown or at in tidying.gained or (at in tidying.folded and step.tensors["bias"] is None):
            require(bias in left, "a layer lacks the bias that it gains")
            left.discard(str(bias))
            new = after[str(bias)]
            fits = new.shape == (len(rows),) and new.dtype == weights.tensors[str(step.tensors["weight"])].dtype
            require(fits, "a bias has another type or another size")
            if at in tidying.folded:
                _compare_folded(weights, at, "bias", new, tidying.folded[at])
                continue
            for place, row in enumerate(rows):
                _require_near(new.values[place], grown.get(row, ExpectedNumber(ZERO, ZERO)), new.dtype)
    require(not left, "a tensor comes from nowhere")


def _check_groups(weights: ChangedWeights, at: int) -> None:
    """Groups of a layer leave with all their channels on both sides; the others keep equally many."""
    step = weights.steps[at]
    both = (weights.alive[place].reshape(step.groups, -1).sum(1).tolist() for place in (step.sources[0], at))
    left = set(zip(*both, strict=True)) - {(0, 0)}
    require(len(left) == 1 and min(left.pop()) > 0, "what is left of the groups has other sizes")


def _places(weights: ChangedWeights, at: int, role: str) -> Iterator[tuple[int, Any]]:
    """The rows of a tensor that are left, each with the places of its numbers that are."""
    step = weights.steps[at]
    shape = weights.tensors[str(step.tensors[role])].shape
    size = prod(shape[1:])
    if role != "weight" or step.kind != "layer":
        yield from ((row, np.arange(row * size, (row + 1) * size)) for row in weights.rows(at))
        return
    taps, below = np.arange(prod(shape[2:])), weights.alive[step.sources[0]]
    for row in weights.rows(at):
        columns = weights.columns(at, row)
        left = np.flatnonzero(below[columns.start : columns.stop])
        yield row, (row * size + left[:, None] * len(taps) + taps).reshape(-1)


def _require_sizes(weights: ChangedWeights, at: int, role: str, new: Tensor) -> None:
    step = weights.steps[at]
    old = weights.tensors[str(step.tensors[role])]
    sizes = [len(weights.rows(at)), *old.shape[1:]]
    if role == "weight" and step.kind == "layer":
        counts = weights.alive[step.sources[0]].reshape(step.groups, -1).sum(1)
        sizes[1] = int(counts.max())
    fits = new.dtype == old.dtype and new.shape == tuple(sizes)
    require(fits, "a tensor has another type or other sizes than what is left")


def _compare_entries(weights: ChangedWeights, at: int, role: str, new: Tensor) -> None:
    name = str(weights.steps[at].tensors[role])
    old = weights.tensors[name]
    changed = {place for tensor, place in weights.changed if tensor == name}
    if not changed and new.line == old.line and new.shape == old.shape:
        complete = all(weights.alive[step_or_source].all() for step_or_source in (at, *weights.steps[at].sources))
        if complete:
            return
    _require_sizes(weights, at, role, new)
    stored, before = np.asarray(new.values), np.asarray(old.values)
    start = 0
    for _, places in _places(weights, at, role):
        numbers = stored[start : start + len(places)]
        same = numbers == before[places]
        if changed and (moved := changed.intersection(places.tolist())):
            for offset in np.flatnonzero(np.isin(places, list(moved))).tolist():
                _require_near(float(numbers[offset]), weights.changed[name, int(places[offset])], new.dtype)
                same[offset] = True
        require(bool(same.all()), "a weight that nothing was added to has changed")
        start += len(places)


def _compare_folded(weights: ChangedWeights, at: int, role: str, new: Tensor, norm: int) -> None:
    """A layer with the normalisation behind it inside: rows times gain over root, biases less the mean and shifted."""
    name = str(weights.steps[at].tensors["weight"])
    if role == "weight":
        _require_sizes(weights, at, role, new)
    else:
        fits = new.dtype == weights.tensors[name].dtype and new.shape == (len(weights.rows(at)),)
        require(fits, "a bias has another type or another size")
    start = 0
    for row, places in _places(weights, at, "weight"):
        mean, variance, gain, shift = weights.of_norm(norm, row)
        factor = ball(gain) / ball(variance).sqrt() if gain else ZERO
        if role == "weight":
            for place in places.tolist():
                value, size = weights.entry(name, place)
                _require_near(
                    new.values[start], ExpectedNumber(times(factor, value), size_of(factor) * size), new.dtype
                )
                start += 1
            continue
        value, size = weights.bias(at, row)
        wanted = plus([(ONE, times(factor, plus([(-ONE, mean)], value)))], shift)
        _require_near(
            new.values[start], ExpectedNumber(wanted, size_of(factor) * (size + abs(mean)) + abs(shift)), new.dtype
        )
        start += 1


def _require_near(stored: float, wanted: ExpectedNumber, dtype: str) -> None:
    """Of the number itself: terms that cancel would make room for any. Whoever added them up did so in doubles."""
    value, size = wanted
    room = max(ROOM[dtype] * size_of(value), ROOM["float64"] * size, STEP.get(dtype, ZERO))
    if exact(value):
        require(abs(Fraction(stored) - value) <= room, "a folded weight is not what follows")
    else:
        require(bool(abs(ball(stored) - value) <= ball(room)), "a folded bias is not what follows")
