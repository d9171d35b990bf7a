"""Tensors of certified modules: written in the certificate, or held by their digest and read from what was given.

A line names a tensor by its type, its sizes and SHA-256 of its bytes. Bytes that were found elsewhere count only if
they have that line: who hands in other numbers is refused.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

from lawful.errors import NotACertificate, Unsupported
from lawful.verify.core.schema import object_with_keys, printable, require
from lawful.verify.core.tensors import TYPES, GivenTensors, decode, read_tensor, tensor_line

LINE = re.compile(r"(float16|bfloat16|float32|float64) \[((?:[0-9]{1,8}(?:, [0-9]{1,8}){0,7})?)\] [0-9a-f]{64}")
Finder = Callable[[str, str], bytes | None]  # the bytes of a tensor, by its name and its line


@dataclass(frozen=True)
class Tensor:
    """Numbers with their type and sizes; those that are held by their digest are read when they are asked for."""

    dtype: str
    shape: tuple[int, ...]
    line: str  # what stands for it in the digest of all weights
    load: Callable[[], Any] = field(compare=False, repr=False)

    @cached_property
    def values(self) -> Any:
        """All numbers, row after row."""
        return self.load()

    def turned(self) -> Tensor:
        """The same with its first two axes exchanged."""
        require(len(self.shape) >= 2, "what is stored with its inputs first has rows and columns")
        rows, columns, *kernel = self.shape
        taps = prod(kernel)

        def exchanged() -> Any:
            values = array(TYPES[self.dtype])
            for column in range(columns):
                for row in range(rows):
                    start = (row * columns + column) * taps
                    values.extend(self.values[start : start + taps])
            return values

        return Tensor(self.dtype, (columns, rows, *kernel), self.line, exchanged)


def read_held_tensor(value: object, name: str, find: Finder) -> Tensor:
    """A tensor written in the certificate, or held by its line and read from what was given."""
    if not isinstance(value, dict) or "line" not in value:
        written = read_tensor(value)
        return Tensor(written.dtype, written.shape, written.line, lambda: written.values)
    line = object_with_keys(value, "tensor", "line")["line"]
    match = LINE.fullmatch(line) if isinstance(line, str) else None
    if match is None:
        raise NotACertificate("tensor: expected a type, sizes and a digest")
    dtype, sizes = match[1], tuple(int(size) for size in match[2].split(", ") if size)

    def load() -> Any:
        raw = find(name, line)
        if raw is None:
            words = "this certificate holds tensors by their digests: give both networks after it"
            raise Unsupported(f"{words} ({printable(name)[:80]} is missing, or another)")
        require(tensor_line(dtype, sizes, raw) == line, "a tensor is not the one that the certificate is about")
        return decode(dtype, sizes, raw)

    return Tensor(dtype, sizes, line, load)


def finder(given: Sequence[Any]) -> Finder:
    """Look for tensors in what was given: modules, and things that are or have `sources` of tensors."""
    sources = [GivenTensors(thing.state_dict()) if hasattr(thing, "state_dict") else thing for thing in given]
    sources = [part for thing in sources for part in getattr(thing, "sources", (thing,)) if hasattr(part, "raw")]

    def find(name: str, line: str) -> bytes | None:
        for source in sources:
            if name in set(source) and source.line(name) == line:
                return bytes(source.raw(name)[2])
        return None

    return find
