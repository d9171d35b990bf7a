"""Folds of a checkpoint, carried out again on its tensors: gains, statistics, biases, means."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, SupportsInt

import numpy as np

from lawful.errors import NotACertificate
from lawful.verify.core.checkpoint import Array
from lawful.verify.core.schema import integer, integers, items, number, object_with_keys, require, truth, word

Tensors = dict[str, Array]
KINDS = ("gain", "statistics", "value", "move", "drop", "centre")


def name_of(value: object, tensors: Container[str], where: str) -> str:
    """The name of a tensor of the certificate."""
    if not isinstance(value, str) or value not in tensors:
        raise NotACertificate(f"{where}: names no tensor of the certificate")
    return value


def clusters(names: Iterable[str], folds: list[Any]) -> Iterator[tuple[list[str], list[Any]]]:
    """Tensors that folds join, and these folds in order; a tensor that no fold names is alone."""
    of = {name: [name] for name in names}
    folding: dict[int, list[Any]] = {}
    for order, each in enumerate(folds):
        joined = list({id(of[name]): of[name] for name in _named(each) if name in of}.values())
        if not joined:
            raise NotACertificate("folds: one names no tensor of the certificate")
        target = max(joined, key=len)
        own = sorted((entry for group in joined for entry in folding.pop(id(group), [])), key=lambda entry: entry[0])
        for group in joined:
            if group is not target:
                target += group
                of.update(dict.fromkeys(group, target))
        folding[id(target)] = [*own, (order, each)]
    for group in {id(group): group for group in of.values()}.values():
        yield group, [each for _, each in folding.get(id(group), [])]


def _named(value: object) -> Iterator[str]:
    """All words in a fold."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _named(inner)


class FoldedTensors:
    """Tensors after folds, the sums of the absolute values of their terms, and how many terms these have.

    `dropped` counts numbers other than zero that were left out, multiplied by zero, or variances below the ε that is
    added to them; `means` how many means of lines were taken off; `epsilon` is the largest ε.
    """

    def __init__(self, raw: Tensors, folds: list[Any]) -> None:
        self.raw, self.state = raw, dict(raw)
        self.sizes, self.terms = {name: np.abs(array) for name, array in raw.items()}, dict.fromkeys(raw, 1)
        self.dropped: dict[str, int] = {}
        self.means, self.epsilon = 0, 0.0
        for each in folds:
            self._carry_out(each)

    def _carry_out(self, each: Any) -> None:
        if not isinstance(each, dict):
            raise NotACertificate("folds: expected objects")
        kind = word(each.get("fold"), "folds", *KINDS)
        if kind == "gain":
            self._gain(object_with_keys(each, "folds", "fold gain offset plus readers centred"))
        elif kind == "statistics":
            self._statistics(object_with_keys(each, "folds", "fold gain offset mean variance epsilon writer"))
        elif kind == "value":
            self._value(object_with_keys(each, "folds", "fold bias rows columns reader"))
        elif kind == "move":
            self._move(object_with_keys(each, "folds", "fold source target"))
        elif kind == "centre":
            self._centre(object_with_keys(each, "folds", "fold tensor axis amount"))
        else:
            name = self._name(object_with_keys(each, "folds", "fold tensor")["tensor"])
            self._lost(name, np.count_nonzero(self.state[name]))
            self._clear(name)

    # Parts of them

    def _name(self, value: object) -> str:
        return name_of(value, self.raw, "folds")

    def _reader(self, value: object) -> tuple[str, int, str | None]:
        parts = object_with_keys(value, "reader", "weight axis bias")
        weight = name_of(parts["weight"], self.raw, "reader")
        axis = integer(parts["axis"], "reader", 0, self.raw[weight].ndim - 1)
        return weight, axis, None if parts["bias"] is None else name_of(parts["bias"], self.raw, "reader")

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

    def _gain(self, each: dict[str, Any]) -> None:
        gain, offset = (None if each[key] is None else self._name(each[key]) for key in ("gain", "offset"))
        plus, centred = number(each["plus"], "folds"), truth(each["centred"], "folds")
        readers = [self._reader(one) for one in items(each["readers"], "folds", most=10_000)]
        require(bool(readers), "a gain is folded into nothing")
        factor = None if gain is None else self.state[gain] + plus
        carried = all(bias is not None for _, _, bias in readers)
        for weight, axis, bias in readers:
            fits = factor is None or factor.shape == (self.raw[weight].shape[axis],)
            require(fits, "a gain does not fit the layer that reads it")
            if offset is not None and carried and bias is not None:
                self._add(bias, offset, weight, axis)
            if factor is not None:
                self._multiply(weight, axis, factor, np.abs(factor))
            if centred:
                self._take_means(weight, axis)
        if offset is not None:
            require(carried or factor is not None, "an offset is folded into nothing")
            if carried:
                self._clear(offset)
            elif factor is not None:
                read = bool(((factor != 0) | (self.state[offset] == 0)).all())
                require(read, "an offset is divided by a gain of zero")
                divisor = np.where(factor != 0, factor, 1.0)  # nothing is read where gain and offset are zero
                self.state[offset] = self.state[offset] / divisor
                self.sizes[offset] = self.sizes[offset] / np.abs(divisor)
        if gain is not None:
            self.state[gain] = np.full_like(self.state[gain], 1.0 - plus)
            self.sizes[gain] = np.abs(self.state[gain])

    def _statistics(self, each: dict[str, Any]) -> None:
        gain, offset, mean, variance = (self._name(each[key]) for key in ("gain", "offset", "mean", "variance"))
        state, sizes, epsilon = self.state, self.sizes, number(each["epsilon"], "folds")
        self.epsilon = max(self.epsilon, epsilon)
        require(bool((state[variance] + epsilon > 0).all()), "a variance is negative")
        self._lost(variance, np.count_nonzero(np.where(np.abs(state[variance]) < epsilon, state[variance], 0.0)))
        deviation = np.sqrt(state[variance] + epsilon)
        factor, size = state[gain] / deviation, np.abs(state[gain]) / deviation
        centre, spread = -state[mean], np.abs(state[mean])
        if each["writer"] is not None:
            weight, axis, bias = self._reader(each["writer"])
            require(factor.shape == (self.raw[weight].shape[axis],), "statistics do not fit the layer before them")
            if bias is not None:
                centre, spread = centre + state[bias], spread + sizes[bias]
                self._clear(bias)
            self._multiply(weight, axis, factor, size)
        self._lost(mean, np.count_nonzero(centre[factor == 0]))
        state[offset], sizes[offset] = state[offset] + factor * centre, sizes[offset] + size * spread
        self.terms[offset] += 3
        state[gain] = np.ones_like(factor) if each["writer"] is not None else factor
        sizes[gain] = np.abs(state[gain])
        self._clear(mean)
        state[variance] = np.full_like(centre, 1.0 - epsilon)
        sizes[variance] = np.abs(state[variance])

    def _value(self, each: dict[str, Any]) -> None:
        bias = self._name(each["bias"])
        rows = np.array(integers(each["rows"], "folds", 0, len(self.raw[bias]) - 1))
        weight, axis, target = self._reader(each["reader"])
        require(target is not None and target != bias, "the bias of values has no output to go to")
        copies = items(each["columns"], "folds", most=10_000)
        require(bool(copies) and len(np.unique(rows)) == len(rows), "the bias of values goes nowhere, or twice")
        for columns in copies:
            picked = np.array(integers(columns, "folds", 0, self.raw[weight].shape[axis] - 1, length=len(rows)))
            for tensors in (self.state, self.sizes):
                part = np.moveaxis(tensors[weight], axis, 0)[picked]
                tensors[str(target)] = tensors[str(target)] + np.tensordot(tensors[bias][rows], part, axes=([0], [0]))
            self.terms[str(target)] += len(rows)
        for tensors in (self.state, self.sizes):
            tensors[bias] = tensors[bias].copy()
            tensors[bias][rows] = 0

    def _move(self, each: dict[str, Any]) -> None:
        source, target = (self._name(each[key]) for key in ("source", "target"))
        fits = source != target and self.raw[source].shape == self.raw[target].shape
        require(fits, "a vector does not fit where it is moved")
        for tensors in (self.state, self.sizes):
            tensors[target] = tensors[target] + tensors[source]
        self.terms[target] += self.terms[source]
        self._clear(source)

    def _centre(self, each: dict[str, Any]) -> None:
        """Once for every tensor that names the amount: it is taken from the file, and 0 afterwards."""
        tensor, amount = (self._name(each[key]) for key in ("tensor", "amount"))
        axis = integer(each["axis"], "folds", 0, self.raw[tensor].ndim - 1)
        share = float(self.raw[amount].reshape(-1)[0])
        require(self.raw[amount].size == 1 and share in (0.0, 1.0), "a mean is taken off once or not at all")
        self._take_means(tensor, axis, share)
        self._clear(amount)
