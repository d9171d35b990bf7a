"""The smaller network beside what must follow: every number is the exact one, rounded, and nothing else is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Protocol

from lawful.verify.channels.heads import check_grid
from lawful.verify.channels.program import ChangedWeights, ChannelStep
from lawful.verify.channels.values import ZERO, Value, exact, plus, size_of, times
from lawful.verify.core.balls import ball
from lawful.verify.core.schema import integer, integers, items, require
from lawful.verify.core.tensors import Tensor

ROOM = {  # of the sum of the sizes of what was added
    "float16": Fraction(1, 2**9), "bfloat16": Fraction(1, 2**6),
    "float32": Fraction(1, 2**22), "float64": Fraction(1, 2**48),
}  # fmt: skip
STEP = {"float16": Fraction(1, 2**24)}  # between the smallest numbers of a type, where that is no tiny one
Cell = tuple[int, int]
Wanted = tuple[Value, Fraction]  # a number, and the sum of the sizes of what it was added from


class ReplayedPruning(Protocol):
    """A pruning after all its sweeps."""

    steps: list[ChannelStep]
    weights: ChangedWeights
    cells: list[list[Cell]]
    alive: set[Cell]

    def rows(self, at: int) -> list[int]:
        """The channels of a step that are left."""


@dataclass(frozen=True)
class Tidied:
    """Tensors that the smaller network has more or less: biases gained, by layer; norms folded; biases nobody sees."""

    gained: Mapping[int, str] = field(default_factory=dict)
    folded: Mapping[int, int] = field(default_factory=dict)  # layers, with the normalisation that went into each
    dropped: Collection[int] = ()


def read_tidied(
    gained: object, folded: object, dropped: object, steps: list[ChannelStep], results: list[int]
) -> Tidied:
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
        require(at not in results and at not in into and _is_unseen(at, steps), "a bias is dropped that somebody sees")
    return Tidied(names, into, unseen)


def _is_unseen(at: int, steps: list[ChannelStep]) -> bool:
    """Whether all that reads a layer takes it as keys, or takes the mean of each channel away.

    What is added to all keys of a head adds the same to the scores of a query, which a softmax does not see.
    """
    users = [step for step in steps if at in step.sources]
    return bool(users) and all(
        (step.kind in ("other", "instance") and step.function == "instance_norm" and step.sources == (at,))
        or (step.heads is not None and not step.heads.rotary and step.sources.count(at) == 1 and step.sources[1] == at)
        for step in users
    )


def compare(replay: ReplayedPruning, after: Mapping[str, Tensor], tidied: Tidied) -> None:
    """Every number of the smaller network is the one that follows, rounded."""
    for at, step in enumerate(replay.steps):
        if step.heads is not None:
            check_grid(step.heads, replay.cells[step.sources[1]], replay.cells[step.sources[2]], replay.alive)
        if step.groups > 1:
            _check_groups(replay, at)
    left = set(after)
    gone = set(tidied.folded.values())
    for at, step in enumerate(replay.steps):
        rows = replay.rows(at)
        for role, name in step.tensors.items():
            if name is None or step.first is not None or at in gone or (role == "bias" and at in tidied.dropped):
                continue
            require(name in left, "a tensor is missing")
            left.discard(name)
            if at in tidied.folded:
                _compare_folded(replay, at, role, after[name], tidied.folded[at])
            elif role == "weight" and step.kind in ("layer", "depthwise"):
                _compare_kernels(replay, at, after[name])
            else:
                _compare_entries(replay.weights, name, after[name], rows)
        grown = {row: value for (place, row), value in replay.weights.added.items() if place == at and row in rows}
        if grown or at in tidied.gained or (at in tidied.folded and step.tensors["bias"] is None):
            require(at in tidied.gained and tidied.gained[at] in left, "a layer lacks the bias that it gains")
            left.discard(tidied.gained[at])
            tensor = after[tidied.gained[at]]
            require(tensor.shape == (len(rows),), "a bias has another size")
            if at in tidied.folded:
                _compare_folded(replay, at, "bias", tensor, tidied.folded[at])
                continue
            for place, row in enumerate(rows):
                _near(tensor.values[place], grown.get(row, (ZERO, ZERO)), tensor.dtype)
    require(not left, "a tensor comes from nowhere")


def _check_groups(replay: ReplayedPruning, at: int) -> None:
    """Groups of a layer leave with all their channels on both sides; the others keep equally many."""
    step = replay.steps[at]
    below = replay.cells[step.sources[0]]
    wide = len(below) // step.groups, step.channels // step.groups
    left = {
        tuple(
            sum(cell in replay.alive for cell in cells[group * width : (group + 1) * width])
            for cells, width in zip((below, replay.cells[at]), wide, strict=True)
        )
        for group in range(step.groups)
    } - {(0, 0)}
    require(len(left) == 1 and min(left.pop()) > 0, "what is left of the groups has other sizes")


def _kept(replay: ReplayedPruning, at: int) -> list[tuple[int, list[int]]]:
    """The rows of a layer that are left, each with the channels it reads that are."""
    step, weights = replay.steps[at], replay.weights
    below = replay.cells[step.sources[0]]
    return [
        (
            row,
            [0] if step.kind == "depthwise"
            else [column for column in weights.columns(at, row) if below[column] in replay.alive],
        )
        for row in replay.rows(at)
    ]  # fmt: skip


def _shaped(old: Tensor, new: Tensor, sizes: Sequence[int]) -> None:
    shape = (*sizes, *old.shape[len(sizes) :])
    require(new.dtype == old.dtype and new.shape == shape, "a tensor has another type or other sizes than what is left")


def _compare_kernels(replay: ReplayedPruning, at: int, new: Tensor) -> None:
    weights, name = replay.weights, str(replay.steps[at].tensors["weight"])
    if _is_untouched(replay, at, new):
        return
    kept = _kept(replay, at)
    _shaped(weights.tensors[name], new, (len(kept), *({len(columns) for _, columns in kept} or {0})))
    each = prod(weights.tensors[name].shape[1:])
    touched = {place // each for tensor, place in weights.changed if tensor == name}
    place = 0
    for row, columns in kept:
        for first, last in _runs(columns):
            start, stop = weights.places(at, row, first).start, weights.places(at, row, last).stop
            if row in touched:
                for offset, old in enumerate(range(start, stop)):
                    _compare_entry(weights, name, old, new, place + offset)
            else:
                same = new.values[place : place + stop - start] == weights.tensors[name].values[start:stop]
                require(same, "a weight that nothing was added to has changed")
            place += stop - start


def _is_untouched(replay: ReplayedPruning, at: int, new: Tensor) -> bool:
    """Whether a tensor stayed as it is, by its digest: nothing left its rows and columns, and nothing was added."""
    step, weights = replay.steps[at], replay.weights
    name = str(step.tensors["weight"])
    complete = all(cell in replay.alive for place in (at, step.sources[0]) for cell in replay.cells[place])
    old = weights.tensors[name]
    changed = any(tensor == name for tensor, _ in weights.changed)
    return complete and not changed and new.line == old.line and new.shape == old.shape


def _runs(columns: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive numbers, as first and last of each run."""
    found: list[tuple[int, int]] = []
    for column in columns:
        if found and found[-1][1] == column - 1:
            found[-1] = found[-1][0], column
        else:
            found.append((column, column))
    return found


def _compare_entries(weights: ChangedWeights, name: str, new: Tensor, rows: list[int]) -> None:
    old = weights.tensors[name]
    _shaped(old, new, (len(rows),))
    each = prod(old.shape[1:])
    for number, row in enumerate(rows):
        for at in range(each):
            _compare_entry(weights, name, row * each + at, new, number * each + at)


def _compare_entry(weights: ChangedWeights, name: str, old: int, new: Tensor, place: int) -> None:
    changed = weights.changed.get((name, old))
    if changed is None:
        same = new.values[place] == weights.tensors[name].values[old]
        require(same, "a weight that nothing was added to has changed")
    else:
        _near(new.values[place], changed, new.dtype)


def _compare_folded(replay: ReplayedPruning, at: int, role: str, new: Tensor, norm: int) -> None:
    """A layer with the normalisation behind it inside: rows times gain over root, biases less the mean and shifted."""
    weights, step = replay.weights, replay.steps[at]
    kept = _kept(replay, at)
    old = weights.tensors[str(step.tensors["weight"])]
    if role == "weight":
        _shaped(old, new, (len(kept), *({len(columns) for _, columns in kept} or {0})))
    else:
        require(new.dtype == old.dtype and new.shape == (len(kept),), "a bias has another type or another size")
    place = 0
    for row, columns in kept:
        mean, variance, gain, shift = weights.of_norm(norm, row)
        factor = ball(gain) / ball(variance).sqrt() if gain else ZERO
        if role == "weight":
            for column in columns:
                for entry in weights.places(at, row, column):
                    value, size = weights.sized(str(step.tensors["weight"]), entry)
                    _near(new.values[place], (times(factor, value), size_of(factor) * size), new.dtype)
                    place += 1
            continue
        value, size = weights.sized_bias(at, row)
        moved = plus([(Fraction(-1), mean)], value)
        wanted = plus([(Fraction(1), times(factor, moved))], shift)
        _near(new.values[place], (wanted, size_of(factor) * (size + abs(mean)) + abs(shift)), new.dtype)
        place += 1


def _near(stored: float, wanted: Wanted, dtype: str) -> None:
    value, size = wanted
    # Of the number itself: terms that cancel would make room for any. Whoever added them up did so in doubles.
    room = max(ROOM[dtype] * size_of(value), ROOM["float64"] * size, STEP.get(dtype, ZERO))
    if exact(value):
        require(abs(Fraction(stored) - value) <= room, "a folded weight is not what follows")
    else:
        require(bool(abs(ball(stored) - value) <= ball(room)), "a folded bias is not what follows")
