"""Plain matrices, as NumPy code saves them (W1, b1, W2, ... or arr_0, arr_1, ...), as the layers of a network."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from lawful.errors import Unsupported

Arrays = Mapping[str, NDArray[Any]]
KEYS = "0.weight, 0.bias, 2.weight, ... (a state dict), W1, b1, W2, b2, ... or arr_0, arr_1, ... (plain matrices)"
NUMBERED = re.compile(r"(w|weights?|b|bias|biases)[_.]?(\d{1,4})", re.I)
UNNAMED = re.compile(r"arr_(\d{1,4})")
SQUARE = (
    "rows of each matrix are outputs, y = W x + b, as in PyTorch: both orders of the axes fit (transpose the "
    "matrices if they are meant for y = x W + b)"
)


def layers_of(arrays: Arrays) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]] | None:
    """The arrays under the names of a state dict, and what was assumed of them; None if they are no plain matrices.

    Matrices for `y = W x + b` and for `y = x W + b` are told apart by which of the two fits together.

    >>> import numpy as np
    >>> found, assumed = layers_of({"W1": np.ones((2, 3)), "b1": np.ones(3), "W2": np.ones((3, 1))})
    >>> {name: array.shape for name, array in found.items()}, assumed
    ({'0.weight': (3, 2), '0.bias': (3,), '1.weight': (1, 3)}, ())
    """
    pairs = _numbered(arrays) if all(NUMBERED.fullmatch(name) for name in arrays) else _unnamed(arrays)
    if not pairs:
        return None
    rows_out, columns_out = _fits(pairs, 0), _fits(pairs, 1)
    if not (rows_out or columns_out):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise Unsupported(f"the matrices do not fit together as layers, one after the other: {shapes[:200]}")
    named: dict[str, NDArray[Any]] = {}
    for number, (weight, bias) in enumerate(pairs):
        named[f"{number}.weight"] = weight if rows_out else weight.T
        if bias is not None:
            named[f"{number}.bias"] = bias.reshape(-1)
    return named, (SQUARE,) if rows_out and columns_out else ()


Pairs = list[tuple[NDArray[Any], NDArray[Any] | None]]


def _numbered(arrays: Arrays) -> Pairs:
    """W1, b1, ...: a matrix for every number from the first to the last, a vector for some."""
    parts: dict[tuple[bool, int], NDArray[Any]] = {}
    for name, array in arrays.items():
        word, number = NUMBERED.fullmatch(name).groups()  # type: ignore[union-attr]  # the caller asked
        key = word.lower().startswith("b"), int(number)
        if key in parts:
            return []
        parts[key] = array
    numbers = sorted(number for is_bias, number in parts if not is_bias)
    biases = {number for is_bias, number in parts if is_bias}
    whole = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers))) and biases <= set(numbers)
    pairs: Pairs = [(parts[False, number], parts.get((True, number))) for number in numbers] if whole else []
    return pairs if all(_is_layer(*pair) for pair in pairs) else []


def _unnamed(arrays: Arrays) -> Pairs:
    """arr_0, arr_1, ...: matrices in order, each perhaps followed by its bias."""
    found = {int(match[1]): array for name, array in arrays.items() if (match := UNNAMED.fullmatch(name))}
    if not found or len(found) != len(arrays) or sorted(found) != list(range(len(found))):
        return []
    pairs: Pairs = []
    for number in range(len(found)):
        array = found[number]
        if array.ndim == 2:
            pairs.append((array, None))
        elif pairs and pairs[-1][1] is None and _is_layer(pairs[-1][0], array):
            pairs[-1] = pairs[-1][0], array
        else:
            return []
    return pairs


def _is_layer(weight: NDArray[Any], bias: NDArray[Any] | None) -> bool:
    return weight.ndim == 2 and (
        bias is None or (bias.size in weight.shape and max(bias.shape, default=0) == bias.size)
    )


def _fits(pairs: Pairs, outputs: int) -> bool:
    """Whether the layers fit together if this axis of each matrix counts its outputs."""
    chained = all(above[0].shape[1 - outputs] == below[0].shape[outputs] for below, above in itertools.pairwise(pairs))
    return chained and all(bias is None or bias.size == weight.shape[outputs] for weight, bias in pairs)
