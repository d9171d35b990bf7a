"""Sizes that an ONNX file leaves open: the first of a few usual ones for which its graph can be read, and the words
that say so.

What holds at one size need not hold at another, so every reading says which was taken, and `--input` gives another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lawful.errors import LawfulError

Size = tuple[int, ...]
Sizes = Sequence[int | None]
# Usual sizes: sides of pictures (most networks halve them five times), lengths of sequences, samples of sound.
TRIES = ((64, 8), (48, 64), (32, 16), (224, 512), (320, 576), (640, 1024), (96, 16_000))
CHANNELS = 3
SCALARS = {"i": (16_000, 1, 0), "f": (1.0,), "b": (False,)}  # whole ones are rates of sound more often than not
PICTURE = 3  # axes of a sample, without the batch


def candidates(
    inputs: Mapping[str, tuple[Sizes, str, Sequence[str]]],
) -> Iterator[tuple[dict[str, Size], dict[str, Any]]]:
    """Sizes of the inputs, and values of those that are one number, in the order in which they are tried.

    An input is its stated sizes without the batch (None for an open one), its kind (`f`, `i` or `b`), and the names of
    its axes: axes of one name have one size.

    >>> next(candidates({"x": ((None, None, None), "f", ("", "", "")), "ids": ((None,), "i", ("n",))}))
    ({'x': (3, 64, 64), 'ids': (8,)}, {})
    """
    seen = []
    for number, (side, length) in enumerate(TRIES):
        named: dict[str, int] = {}
        sizes: dict[str, Size] = {}
        values: dict[str, Any] = {}
        for name, (stated, kind, axes) in inputs.items():
            if not stated:
                usual = SCALARS[kind]
                values[name] = np.asarray(usual[number % len(usual)])
                continue
            found = []
            for axis, size in enumerate(stated):
                picture = len(stated) == PICTURE and kind == "f"
                free = CHANNELS if picture and axis == 0 else side if picture else length
                if size is None and axes[axis]:
                    size = named.setdefault(axes[axis], free)
                found.append(free if size is None else size)
            sizes[name] = tuple(found)
        key = (sizes, {name: value.item() for name, value in values.items()})
        if key not in seen:
            seen.append(key)
            yield sizes, values


def words(inputs: Mapping[str, tuple[Sizes, str, Sequence[str]]], sizes: Mapping[str, Size], values: Any) -> list[str]:
    """What was taken where the file leaves it open.

    >>> words({"x": ((3, None), "f", ("", "")), "r": ((), "i", ())}, {"x": (3, 64)}, {"r": np.asarray(16_000)})
    ["the open size of its input 'x' is taken as 3×64: --input gives another", "its input 'r' is taken as 16000"]
    """
    found = []
    for name, (stated, _, _) in inputs.items():
        if name in values:
            found.append(f"its input {name[:60]!r} is taken as {values[name].item()}")
        elif None in stated:
            taken = "×".join(map(str, sizes[name]))
            found.append(f"the open size of its input {name[:60]!r} is taken as {taken}: --input gives another")
    return found


def refuse(errors: Sequence[tuple[Mapping[str, Size], LawfulError]]) -> LawfulError:
    """What is said where none of the sizes could be read."""
    sizes, error = errors[0]
    tried = ";".join(",".join(map(str, size)) for size in sizes.values())
    if len({str(each) for _, each in errors}) == 1:  # no size would change it
        return error
    return type(error)(f"{error} (at the size {tried}, and others: its input sizes are open, give --input)")
