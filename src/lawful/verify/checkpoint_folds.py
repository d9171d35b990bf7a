"""Folds of a checkpoint, carried out again on its tensors: gains, statistics, biases, means."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

import numpy as np

from lawful.errors import NotACertificate
from lawful.verify.schema import listed, need, number, record, truth, whole, wholes, word

Array = np.ndarray[Any, np.dtype[np.float64]]
Tensors = dict[str, Array]


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


def folded(raw: Tensors, folds: list[Any]) -> tuple[Tensors, Tensors, dict[str, int], dict[str, int]]:
    """Tensors after all folds, the sums of the absolute values of their terms, how many terms these have, and how many
    numbers other than zero were dropped."""
    state, sizes, terms = dict(raw), {name: np.abs(array) for name, array in raw.items()}, dict.fromkeys(raw, 1)
    dropped: dict[str, int] = {}
    for each in folds:
        if not isinstance(each, dict):
            raise NotACertificate("folds: expected objects")
        kind = word(each.get("fold"), "folds", "gain", "statistics", "value", "move", "drop", "centre")
        if kind == "gain":
            _gain(record(each, "folds", "fold gain offset plus readers centred"), raw, state, sizes, terms)
        elif kind == "statistics":
            _statistics(
                record(each, "folds", "fold gain offset mean variance epsilon writer"), raw, state, sizes, terms
            )
        elif kind == "value":
            _value(record(each, "folds", "fold bias rows columns reader"), raw, state, sizes, terms)
        elif kind == "move":
            _move(record(each, "folds", "fold source target"), raw, state, sizes, terms)
        elif kind == "centre":
            _centre(record(each, "folds", "fold tensor axis amount"), raw, state, sizes, terms)
        else:
            name = name_of(record(each, "folds", "fold tensor")["tensor"], raw, "folds")
            dropped[name] = dropped.get(name, 0) + int(np.count_nonzero(state[name]))
            state[name], sizes[name] = np.zeros_like(state[name]), np.zeros_like(state[name])
    return state, sizes, terms, dropped


def _reader(value: object, tensors: Tensors) -> tuple[str, int, str | None]:
    parts = record(value, "reader", "weight axis bias")
    weight = name_of(parts["weight"], tensors, "reader")
    axis = whole(parts["axis"], "reader", 0, tensors[weight].ndim - 1)
    return weight, axis, None if parts["bias"] is None else name_of(parts["bias"], tensors, "reader")


def _laid(vector: Array, axis: int, rank: int) -> Array:
    return vector.reshape([-1 if d == axis else 1 for d in range(rank)])


def _gain(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    gain = None if each["gain"] is None else name_of(each["gain"], raw, "folds")
    offset = None if each["offset"] is None else name_of(each["offset"], raw, "folds")
    plus, centred = number(each["plus"], "folds"), truth(each["centred"], "folds")
    readers = [_reader(one, raw) for one in listed(each["readers"], "folds", most=10_000)]
    need(bool(readers), "a gain is folded into nothing")
    factor = None if gain is None else state[gain] + plus
    carried = all(bias is not None for _, _, bias in readers)
    for weight, axis, bias in readers:
        need(
            factor is None or factor.shape == (raw[weight].shape[axis],), "a gain does not fit the layer that reads it"
        )
        if offset is not None and carried and bias is not None:
            state[bias] = state[bias] + np.tensordot(state[offset], state[weight], axes=([0], [axis]))
            sizes[bias] = sizes[bias] + np.tensordot(sizes[offset], sizes[weight], axes=([0], [axis]))
            terms[bias] += raw[weight].shape[axis]
        if factor is not None:
            state[weight] = state[weight] * _laid(factor, axis, raw[weight].ndim)
            sizes[weight] = sizes[weight] * _laid(np.abs(factor), axis, raw[weight].ndim)
        if centred:
            state[weight] = state[weight] - state[weight].mean(axis, keepdims=True)
            sizes[weight] = sizes[weight] + sizes[weight].mean(axis, keepdims=True)
            terms[weight] += raw[weight].shape[axis]
    if offset is not None:
        need(carried or factor is not None, "an offset is folded into nothing")
        if carried:
            state[offset], sizes[offset] = np.zeros_like(state[offset]), np.zeros_like(state[offset])
        elif factor is not None:
            need(bool(((factor != 0) | (state[offset] == 0)).all()), "an offset is divided by a gain of zero")
            whole = np.where(factor != 0, factor, 1.0)  # nothing is read where gain and offset are zero
            state[offset], sizes[offset] = state[offset] / whole, sizes[offset] / np.abs(whole)
    if gain is not None:
        state[gain] = np.full_like(state[gain], 1.0 - plus)
        sizes[gain] = np.abs(state[gain])


def _statistics(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    gain, offset, mean, variance = (name_of(each[key], raw, "folds") for key in ("gain", "offset", "mean", "variance"))
    epsilon = number(each["epsilon"], "folds")
    need(bool((raw[variance] + epsilon > 0).all()), "a variance is negative")
    deviation = np.sqrt(raw[variance] + epsilon)
    factor, size = state[gain] / deviation, np.abs(state[gain]) / deviation
    centre, spread = -state[mean], np.abs(state[mean])
    if each["writer"] is not None:
        weight, axis, bias = _reader(each["writer"], raw)
        need(factor.shape == (raw[weight].shape[axis],), "statistics do not fit the layer before them")
        if bias is not None:
            centre, spread = centre + state[bias], spread + sizes[bias]
            state[bias], sizes[bias] = np.zeros_like(centre), np.zeros_like(centre)
        state[weight] = state[weight] * _laid(factor, axis, raw[weight].ndim)
        sizes[weight] = sizes[weight] * _laid(size, axis, raw[weight].ndim)
    state[offset], sizes[offset] = state[offset] + factor * centre, sizes[offset] + size * spread
    terms[offset] += 3
    state[gain] = np.ones_like(factor) if each["writer"] is not None else factor
    sizes[gain] = np.abs(state[gain])
    state[mean], sizes[mean] = np.zeros_like(centre), np.zeros_like(centre)
    state[variance] = np.full_like(centre, 1.0 - epsilon)
    sizes[variance] = np.abs(state[variance])


def _value(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    bias = name_of(each["bias"], raw, "folds")
    rows = np.array(wholes(each["rows"], "folds", 0, len(raw[bias]) - 1))
    weight, axis, target = _reader(each["reader"], raw)
    need(target is not None and target != bias, "the bias of values has no output to go to")
    copies = listed(each["columns"], "folds", most=10_000)
    need(bool(copies) and len(np.unique(rows)) == len(rows), "the bias of values goes nowhere, or twice")
    for columns in copies:
        picked = np.array(wholes(columns, "folds", 0, raw[weight].shape[axis] - 1, length=len(rows)))
        parts = np.moveaxis(state[weight], axis, 0)[picked], np.moveaxis(sizes[weight], axis, 0)[picked]
        state[str(target)] = state[str(target)] + np.tensordot(state[bias][rows], parts[0], axes=([0], [0]))
        sizes[str(target)] = sizes[str(target)] + np.tensordot(sizes[bias][rows], parts[1], axes=([0], [0]))
        terms[str(target)] += len(rows)
    state[bias], sizes[bias] = state[bias].copy(), sizes[bias].copy()
    state[bias][rows] = 0
    sizes[bias][rows] = 0


def _move(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    source, target = (name_of(each[key], raw, "folds") for key in ("source", "target"))
    need(source != target and raw[source].shape == raw[target].shape, "a vector does not fit where it is moved")
    state[target], sizes[target] = state[target] + state[source], sizes[target] + sizes[source]
    terms[target] += terms[source]
    state[source], sizes[source] = np.zeros_like(raw[source]), np.zeros_like(raw[source])


def _centre(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    """Once for every tensor that names the amount: it is taken from the file, and 0 afterwards."""
    tensor, amount = (name_of(each[key], raw, "folds") for key in ("tensor", "amount"))
    axis = whole(each["axis"], "folds", 0, raw[tensor].ndim - 1)
    share = float(raw[amount].reshape(-1)[0])
    need(raw[amount].size == 1 and share in (0.0, 1.0), "a mean is taken off once or not at all")
    state[tensor] = state[tensor] - share * state[tensor].mean(axis, keepdims=True)
    sizes[tensor] = sizes[tensor] + share * sizes[tensor].mean(axis, keepdims=True)
    terms[tensor] += raw[tensor].shape[axis]
    state[amount], sizes[amount] = np.zeros_like(raw[amount]), np.zeros_like(raw[amount])
