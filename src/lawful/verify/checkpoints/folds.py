"""Folds of a certificate, read once, and carried out on the tensors of a file: gains, statistics, biases, means."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, SupportsInt

import numpy as np

from lawful.errors import NotACertificate
from lawful.verify.core.checkpoint import Array, Shapes
from lawful.verify.core.schema import (
    check_clock,
    integer,
    integers,
    items,
    number,
    object_with_keys,
    require,
    truth,
    word,
)

Tensors = dict[str, Array]
KEYS = {
    "gain": "gain offset plus readers centred", "statistics": "gain offset mean variance epsilon writer",
    "value": "bias rows columns reader", "move": "source target", "drop": "tensor", "centre": "tensor axis amount",
}  # fmt: skip


class ListedReader(NamedTuple):
    """A layer: its inputs (or, of a writer, its outputs) lie along an axis of its weight."""

    weight: str
    axis: int
    bias: str | None


class ListedGain(NamedTuple):
    """W diag(g + plus) for all readers; their biases take over W o, if all have one, else o is divided by the gain."""

    gain: str | None
    offset: str | None
    plus: float
    readers: list[ListedReader]
    centred: bool

    @property
    def has_biased_readers(self) -> bool:
        """Whether all readers have a bias."""
        return all(reader.bias is not None for reader in self.readers)


class ListedStatistics(NamedTuple):
    """γ (x - mean)/sqrt(variance + ε) + β becomes x times a gain plus an offset, the gain goes into the writer."""

    gain: str
    offset: str
    mean: str
    variance: str
    epsilon: float
    writer: ListedReader | None


class ListedValue(NamedTuple):
    """Rows of a bias of values go through the columns that read them into the bias of attention's output."""

    bias: str
    rows: Any
    columns: list[Any]
    weight: str
    axis: int
    target: str


class ListedMove(NamedTuple):
    """One vector is added to another."""

    source: str
    target: str


class ListedDrop(NamedTuple):
    """A tensor is 0."""

    tensor: str


class ListedCentre(NamedTuple):
    """Means along an axis are taken off, as often as a number of the file says: once or not at all."""

    tensor: str
    axis: int
    amount: str


Fold = ListedGain | ListedStatistics | ListedValue | ListedMove | ListedDrop | ListedCentre
NAMES = {ListedGain: "gain", ListedStatistics: "statistics", ListedValue: "value", ListedMove: "move",
         ListedDrop: "drop", ListedCentre: "centre"}  # fmt: skip


def name_of(value: object, tensors: Container[str], where: str) -> str:
    """The name of a tensor of the certificate."""
    if not isinstance(value, str) or value not in tensors:
        raise NotACertificate(f"{where}: names no tensor of the certificate")
    return value


def read_folds(value: object, shapes: Shapes) -> list[Fold]:
    """The folds in order; each must fit the tensors that it names."""
    folds = []
    for item in items(value, "folds", most=100_000):
        kind = word(item.get("fold") if isinstance(item, dict) else None, "folds", *KEYS)
        folds.append(_fold(kind, object_with_keys(item, "folds", f"fold {KEYS[kind]}"), shapes))
    return folds


def _fold(kind: str, parts: dict[str, Any], shapes: Shapes) -> Fold:
    def name(key: str) -> str:
        return name_of(parts[key], shapes, "folds")

    if kind == "gain":
        gain, offset = (None if parts[key] is None else name(key) for key in ("gain", "offset"))
        readers = [_reader(item, shapes) for item in items(parts["readers"], "folds", most=10_000)]
        require(bool(readers), "a gain is folded into nothing")
        vectors = [item for item in (gain, offset) if item is not None]
        fits = all(shapes[item] == (shapes[r.weight][r.axis],) for item in vectors for r in readers)
        require(fits, "a gain does not fit the layer that reads it")
        fold = ListedGain(gain, offset, number(parts["plus"], "folds"), readers, truth(parts["centred"], "folds"))
        require(offset is None or fold.has_biased_readers or gain is not None, "an offset is folded into nothing")
        for reader in readers if offset is not None and fold.has_biased_readers else []:
            _require_bias(reader, shapes)
        return fold
    if kind == "statistics":
        gain, offset, mean, variance = four = [name(key) for key in ("gain", "offset", "mean", "variance")]
        writer = None if parts["writer"] is None else _reader(parts["writer"], shapes)
        count = shapes[four[0]]
        require(len(count) == 1 and all(shapes[item] == count for item in four), "statistics do not fit each other")
        if writer is not None:
            rows_of_writer = (shapes[writer.weight][writer.axis],)
            require(count == rows_of_writer, "statistics do not fit the layer before them")
            require(writer.bias is None or shapes[writer.bias] == rows_of_writer, "a bias does not fit its layer")
        return ListedStatistics(gain, offset, mean, variance, number(parts["epsilon"], "folds"), writer)
    if kind == "value":
        bias, reader = name("bias"), _reader(parts["reader"], shapes)
        require(reader.bias is not None and reader.bias != bias, "the bias of values has no output to go to")
        _require_bias(reader, shapes)
        rows = integers(parts["rows"], "folds", 0, len_of(shapes[bias]) - 1)
        last = shapes[reader.weight][reader.axis] - 1
        copies = [
            integers(item, "folds", 0, last, length=len(rows)) for item in items(parts["columns"], "folds", most=10_000)
        ]
        once = all(len(set(item)) == len(item) for item in (rows, *copies))
        require(bool(copies) and once, "the bias of values goes nowhere, or twice")
        return ListedValue(bias, np.array(rows, dtype=int), [np.array(item, dtype=int) for item in copies],
                           reader.weight, reader.axis, str(reader.bias))  # fmt: skip
    if kind == "move":
        move = ListedMove(name("source"), name("target"))
        fits = move.source != move.target and shapes[move.source] == shapes[move.target]
        require(fits, "a vector does not fit where it is moved")
        return move
    if kind == "drop":
        return ListedDrop(name("tensor"))
    tensor = name("tensor")
    return ListedCentre(tensor, integer(parts["axis"], "folds", 0, len(shapes[tensor]) - 1), name("amount"))


def len_of(shape: tuple[int, ...]) -> int:
    """The length of a vector."""
    require(len(shape) == 1, "what is folded is no vector")
    return shape[0]


def _reader(value: object, shapes: Shapes) -> ListedReader:
    parts = object_with_keys(value, "reader", "weight axis bias")
    weight = name_of(parts["weight"], shapes, "reader")
    axis = integer(parts["axis"], "reader", 0, len(shapes[weight]) - 1)
    return ListedReader(weight, axis, None if parts["bias"] is None else name_of(parts["bias"], shapes, "reader"))


def _require_bias(reader: ListedReader, shapes: Shapes) -> None:
    shape = shapes[reader.weight]
    fits = shapes[str(reader.bias)] == (*shape[: reader.axis], *shape[reader.axis + 1 :])
    require(fits, "a bias does not fit its layer")


def tensors_of(fold: Fold) -> list[str]:
    """The tensors that a fold names."""
    layers = (
        fold.readers if isinstance(fold, ListedGain) else [fold.writer] if isinstance(fold, ListedStatistics) else []
    )
    inside = [part for layer in layers if layer is not None for part in layer]
    return list(dict.fromkeys(part for part in (*fold, *inside) if isinstance(part, str)))


def clusters(names: Iterable[str], folds: Sequence[Fold]) -> Iterator[tuple[list[str], list[Fold]]]:
    """Tensors that folds join, and these folds in order; a tensor that no fold names is alone."""
    of = {name: [name] for name in names}
    for fold in folds:
        joined = list({id(of[name]): of[name] for name in tensors_of(fold)}.values())
        target = max(joined, key=len)
        for group in joined:
            if group is not target:
                target += group
                of.update(dict.fromkeys(group, target))
    folding: dict[int, list[Fold]] = {}
    for fold in folds:
        folding.setdefault(id(of[tensors_of(fold)[0]]), []).append(fold)
    for group in {id(group): group for group in of.values()}.values():
        yield group, folding.get(id(group), [])


class FoldedTensors:
    """Tensors after folds, the sums of the absolute values of their terms, and how many terms these have.

    `dropped` counts numbers other than zero that were left out, multiplied by zero, or variances below the ε that is
    added to them; `means` how many means of lines were taken off; `epsilon` is the largest ε.
    """

    def __init__(self, raw: Tensors, folds: Sequence[Fold]) -> None:
        self.raw, self.state = raw, dict(raw)
        self.sizes, self.terms = {name: np.abs(array) for name, array in raw.items()}, dict.fromkeys(raw, 1)
        self.dropped: dict[str, int] = {}
        self.means, self.epsilon = 0, 0.0
        for fold in folds:
            check_clock()
            match fold:
                case ListedGain():
                    self._gain(fold)
                case ListedStatistics():
                    self._statistics(fold)
                case ListedValue():
                    self._value(fold)
                case ListedMove():
                    self._move(fold)
                case ListedCentre():
                    self._centre(fold)
                case ListedDrop(name):
                    self._lost(name, np.count_nonzero(self.state[name]))
                    self._clear(name)

    def _clear(self, name: str) -> None:
        self.state[name], self.sizes[name] = np.zeros_like(self.raw[name]), np.zeros_like(self.raw[name])

    def _lost(self, name: str, count: SupportsInt) -> None:
        if int(count):
            self.dropped[name] = self.dropped.get(name, 0) + int(count)

    def _multiply(self, name: str, axis: int, factor: Array, size: Array) -> None:
        """Along one axis; numbers that become zero are no longer compared."""
        before = np.count_nonzero(self.state[name])
        laid = [-1 if d == axis else 1 for d in range(self.raw[name].ndim)]
        self.state[name] = self.state[name] * factor.reshape(laid)
        self.sizes[name] = self.sizes[name] * size.reshape(laid)
        self._lost(name, before - np.count_nonzero(self.state[name]))

    def _add(self, name: str, vector: str, weight: str, axis: int) -> None:
        """Add what a layer makes of a vector."""
        for tensors in (self.state, self.sizes):
            tensors[name] = tensors[name] + np.tensordot(tensors[vector], tensors[weight], axes=([0], [axis]))
        self.terms[name] += self.raw[weight].shape[axis]

    def _take_means(self, name: str, axis: int, share: float = 1.0) -> None:
        self.state[name] = self.state[name] - share * self.state[name].mean(axis, keepdims=True)
        self.sizes[name] = self.sizes[name] + share * self.sizes[name].mean(axis, keepdims=True)
        self.terms[name] += self.raw[name].shape[axis]
        self.means += self.raw[name].size // self.raw[name].shape[axis] if share else 0

    # Kinds of folds

    def _gain(self, fold: ListedGain) -> None:
        gain, offset = fold.gain, fold.offset
        factor = None if gain is None else self.state[gain] + fold.plus
        for weight, axis, bias in fold.readers:
            check_clock()
            if offset is not None and fold.has_biased_readers and bias is not None:
                self._add(bias, offset, weight, axis)
            if factor is not None:
                self._multiply(weight, axis, factor, np.abs(factor))
            if fold.centred:
                self._take_means(weight, axis)
        if offset is not None and fold.has_biased_readers:
            self._clear(offset)
        elif offset is not None and factor is not None:
            read = bool(((factor != 0) | (self.state[offset] == 0)).all())
            require(read, "an offset is divided by a gain of zero")
            divisor = np.where(factor != 0, factor, 1.0)  # nothing is read where gain and offset are zero
            self.state[offset] = self.state[offset] / divisor
            self.sizes[offset] = self.sizes[offset] / np.abs(divisor)
        if gain is not None:
            self.state[gain] = np.full_like(self.state[gain], 1.0 - fold.plus)
            self.sizes[gain] = np.abs(self.state[gain])

    def _statistics(self, fold: ListedStatistics) -> None:
        gain, offset, mean, variance, epsilon, writer = fold
        state, sizes = self.state, self.sizes
        self.epsilon = max(self.epsilon, epsilon)
        require(bool((state[variance] + epsilon > 0).all()), "a variance is negative")
        self._lost(variance, np.count_nonzero(np.where(np.abs(state[variance]) < epsilon, state[variance], 0.0)))
        deviation = np.sqrt(state[variance] + epsilon)
        factor, size = state[gain] / deviation, np.abs(state[gain]) / deviation
        centre, spread = -state[mean], np.abs(state[mean])
        if writer is not None:
            if writer.bias is not None:
                centre, spread = centre + state[writer.bias], spread + sizes[writer.bias]
                self._clear(writer.bias)
            self._multiply(writer.weight, writer.axis, factor, size)
        self._lost(mean, np.count_nonzero(centre[factor == 0]))
        state[offset], sizes[offset] = state[offset] + factor * centre, sizes[offset] + size * spread
        self.terms[offset] += 3
        state[gain] = np.ones_like(factor) if writer is not None else factor
        sizes[gain] = np.abs(state[gain])
        self._clear(mean)
        state[variance] = np.full_like(centre, 1.0 - epsilon)
        sizes[variance] = np.abs(state[variance])

    def _value(self, fold: ListedValue) -> None:
        bias, target = fold.bias, fold.target
        for columns in fold.columns:
            check_clock()
            for tensors in (self.state, self.sizes):
                part = np.moveaxis(tensors[fold.weight], fold.axis, 0)[columns]
                tensors[target] = tensors[target] + np.tensordot(tensors[bias][fold.rows], part, axes=([0], [0]))
            self.terms[target] += len(fold.rows)
        for tensors in (self.state, self.sizes):
            tensors[bias] = tensors[bias].copy()
            tensors[bias][fold.rows] = 0

    def _move(self, fold: ListedMove) -> None:
        for tensors in (self.state, self.sizes):
            tensors[fold.target] = tensors[fold.target] + tensors[fold.source]
        self.terms[fold.target] += self.terms[fold.source]
        self._clear(fold.source)

    def _centre(self, fold: ListedCentre) -> None:
        """Once for every tensor that names the amount: it is taken from the file, and 0 afterwards."""
        share = float(self.raw[fold.amount].reshape(-1)[0])
        require(self.raw[fold.amount].size == 1 and share in (0.0, 1.0), "a mean is taken off once or not at all")
        self._take_means(fold.tensor, fold.axis, share)
        self._clear(fold.amount)
