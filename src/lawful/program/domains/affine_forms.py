"""Entries of a scalar graph in the making: numbers, affine forms of neurons, and kinks that are no neurons yet."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.network.assemble import Matrix, Value, check_terms, fixed_value, join
from lawful.program.program import Node
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class Fixed:
    """Numbers that do not depend on the input; `learned` if some are parameters or buffers, whose names they have."""

    numbers: NDArray[Any]
    names: frozenset[str] = frozenset()

    @property
    def is_learned(self) -> bool:
        """Whether training, or the data it saw, made some of the numbers."""
        return bool(self.names)


@dataclass(frozen=True, eq=False)
class Forms:
    """Entries of forms: `rows` say which of those of all parts, laid end to end; the samples lie along `axis`.

    A movement changes `rows` alone, so that a sum which it repeats is still one sum when it has to become a neuron.
    """

    parts: tuple[Value, ...]
    rows: Indices
    shape: tuple[int, ...]  # of one sample
    axis: int | None  # None if there is no batch
    kind: str = "f"

    @property
    def value(self) -> Value:
        """The entries, spelled out."""
        whole = self.parts[0] if len(self.parts) == 1 else join(self.parts)
        plain = len(self.rows) == whole.size and bool((self.rows == np.arange(whole.size)).all())
        return whole.reshape(self.shape) if plain else whole.take(self.rows, self.shape)


@dataclass(eq=False)
class Kinks:
    """`positive max(z, 0) + negative max(-z, 0)`, not yet neurons: leaky ReLUs are sums of two of them.

    `base` names z up to a positive factor; None for a side is 0.
    """

    base: tuple[Node, float]
    operand: Forms
    positive: Floats | None
    negative: Floats | None
    place: str
    forms: Forms | None = None


Entry = Fixed | Forms | Kinks


def spread_samples(forms: Forms, shape: tuple[int, ...]) -> tuple[Indices, Indices]:
    """For every entry of the whole value: its row, and its sample (-1 if there is no batch)."""
    rows = forms.rows.reshape(forms.shape)
    if forms.axis is None:
        return rows.ravel(), np.zeros(rows.size, dtype=np.intp)
    count = shape[forms.axis]
    turned = [-1 if k == forms.axis else 1 for k in range(len(shape))]
    samples = np.broadcast_to(np.arange(count).reshape(turned), shape)
    return np.broadcast_to(np.expand_dims(rows, forms.axis), shape).ravel(), samples.ravel()


def constant_entries(numbers: Fixed) -> Value:
    """Numbers as entries; a constant zero (padding) is no bias."""
    value = fixed_value(np.asarray(numbers.numbers, dtype=np.float64))
    return value if numbers.is_learned else replace(value, biased=value.bias != 0)


def all_entries(value: Value) -> tuple[tuple[Value, ...], Indices, tuple[int, ...]]:
    """The fields of forms that are all entries of a value."""
    return (value,), np.arange(value.size), value.shape


def with_value(forms: Forms, value: Value) -> Forms:
    """The same samples with other entries."""
    return Forms(*all_entries(value), forms.axis, forms.kind)


def scale_forms(forms: Forms, factor: float) -> Forms:
    """Forms times a number."""
    return forms if factor == 1 else with_value(forms, forms.value.scale(factor))


def shift_value(value: Value, offsets: Floats) -> Value:
    """A value plus numbers; zeros make no bias."""
    return value.shift(offsets) if bool(np.any(offsets)) else value


def einsum_matrix(
    first: str, second: str, out: str, size: dict[str, int], numbers: NDArray[Any], *, zeros: bool = True
) -> Matrix:
    """The linear map of an Einstein sum with numbers: rows in order, and columns in order where letters are.

    Without `zeros` those that are stored are left out, before anything as large as the whole is made of them.
    """
    letters = out + "".join(dict.fromkeys(c for c in first + second if c not in out))
    shape = tuple(size[c] for c in letters)
    terms = math.prod(size[c] for c in letters if c not in out)  # of each row
    columns: NDArray[Any] = np.zeros((1,) * len(letters), dtype=np.intp)
    step = 1
    for c in reversed(first):
        spread = [1] * len(letters)
        spread[letters.index(c)] = size[c]
        columns = columns + step * np.arange(size[c]).reshape(spread)
        step *= size[c]
    order = [second.index(c) for c in letters if c in second]
    entries = np.asarray(numbers, dtype=np.float64).transpose(order)
    entries = entries.reshape([size[c] if c in second else 1 for c in letters])
    repeats = math.prod(shape) // max(entries.size, 1)
    check_terms(repeats * (entries.size if zeros else int(np.count_nonzero(entries))))
    at = np.arange(math.prod(shape)) if zeros else np.flatnonzero(np.broadcast_to(entries, shape))
    places = np.unravel_index(at, shape)
    return Matrix(at // max(terms, 1), np.broadcast_to(columns, shape)[places], np.broadcast_to(entries, shape)[places])


def read_numbers(name: str, tensor: Any) -> NDArray[Any]:
    """A tensor's own numbers, in float64 where they are real."""
    if hasattr(tensor, "detach"):
        if tensor.is_complex() or tensor.is_meta or str(tensor.layout) != "torch.strided":
            raise Unsupported(f"tensor {name!r} is {tensor.dtype}, {tensor.layout}: dense real tensors are supported")
        tensor = tensor.detach().cpu()
        tensor = (tensor.double() if tensor.is_floating_point() else tensor).numpy()
    array = np.asarray(tensor)
    return check_finite(name, array.astype(np.float64)) if array.dtype.kind == "f" else array


def check_finite(what: str, numbers: Floats) -> Floats:
    """The same numbers, refused if one is NaN or infinite."""
    if not np.isfinite(numbers).all():
        where = [int(place) for place in np.argwhere(~np.isfinite(numbers))[0]]
        raise InvalidNetwork(f"{what}{where} is not finite")
    return numbers


def exact_quotient(negative: Floats, positive: Floats) -> Floats | None:
    """The slope of `z ↦ positive · leaky(z)` below 0, if positive is a power of two: no bit of a slope is rounded."""
    mantissa, _ = np.frexp(positive)
    quotient = negative / np.where(positive == 0, 1.0, positive)
    exact = bool((mantissa == 0.5).all()) and bool((quotient * positive == negative).all())
    return quotient if exact and bool(np.isfinite(quotient).all()) else None


def title(numbers: Fixed, otherwise: str) -> str:
    """The one tensor that numbers come from."""
    return min(numbers.names) if len(numbers.names) == 1 else otherwise
