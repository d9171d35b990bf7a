"""Tensors in a certificate, and the digests that name the tensors of a module or a file.

A digest is SHA-256 of text in which names are JSON strings: a name that holds a line break or a number cannot be taken
for another tensor. It is never cut: two files with one name would be a proof about the wrong one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, prod
from typing import Any

from lawful.errors import NotACertificate, Unsupported
from lawful.verify.core.schema import integers, object_with_keys, printable, require, word

TYPES = {"float16": "f", "bfloat16": "f", "float32": "f", "float64": "d"}  # held in arrays of
LINE = re.compile(r"(float16|bfloat16|float32|float64) \[((?:[0-9]{1,8}(?:, [0-9]{1,8}){0,7})?)\] [0-9a-f]{64}")


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


Raw = tuple[str, tuple[int, ...], bytes]  # type, sizes and little-endian bytes
Finder = Callable[[str, str], bytes | None]  # the bytes of a tensor, by its name and its line


def read_tensor(value: object, name: str = "", find: Finder = lambda *_: None) -> Tensor:
    """A tensor written as the base64 of its little-endian bytes, or held by its line and read from what was given."""
    if isinstance(value, dict) and "line" in value:
        line = object_with_keys(value, "tensor", "line")["line"]
        match = LINE.fullmatch(line) if isinstance(line, str) else None
        if match is None:
            raise NotACertificate("tensor: expected a type, sizes and a digest")
        sizes = tuple(int(size) for size in match[2].split(", ") if size)

        def found() -> Any:
            raw = find(name, line)
            if raw is None:
                words = "this certificate holds tensors by their digests: give both networks after it"
                raise Unsupported(f"{words} ({printable(name)[:80]} is missing, or another)")
            require(tensor_line(match[1], sizes, raw) == line, "a tensor is not the one that the certificate is about")
            return _numbers(match[1], sizes, raw)

        return Tensor(match[1], sizes, line, found)
    given = object_with_keys(value, "tensor", "dtype shape data")
    dtype = word(given["dtype"], "dtype", *TYPES)
    shape = tuple(integers(given["shape"], "shape", 0, 10**7, most=8))
    try:
        raw = base64.b64decode(given["data"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise NotACertificate("tensor: its data is not base64") from None
    values = _numbers(dtype, shape, raw)
    return Tensor(dtype, shape, tensor_line(dtype, shape, raw), lambda: values)


def _numbers(dtype: str, shape: tuple[int, ...], raw: bytes) -> Any:
    values = array(TYPES[dtype])
    size = 2 if dtype.endswith("16") else values.itemsize
    require(len(raw) == prod(shape) * size, "a tensor has other sizes than its data")
    if dtype == "float16":
        values.extend(struct.unpack(f"<{prod(shape)}e", raw))
    elif dtype == "bfloat16":  # the upper half of a float32
        values.frombytes(b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2)))
    else:
        values.frombytes(raw)
    if sys.byteorder == "big" and dtype != "float16":
        values.byteswap()
    require(all(map(isfinite, values)), "a weight is not finite")
    return values


def tensor_line(dtype: str, shape: tuple[int, ...], raw: bytes) -> str:
    """What stands for a tensor in a digest: its type, its sizes and SHA-256 of its little-endian bytes."""
    return f"{dtype} {list(shape)} {hashlib.sha256(raw).hexdigest()}"


def weights_digest(lines: Mapping[str, str]) -> str:
    """A name for all tensors of a module together, from one line for each.

    >>> weights_digest({"w": "a\\nv b"}) == weights_digest({"w": "a", "v": "b"})
    False
    """
    found = hashlib.sha256(b"lawful weights 2\n")
    for name in sorted(lines):
        found.update(f"{json.dumps([name, lines[name]])}\n".encode())
    return f"weights:{found.hexdigest()}"


def raw_of(tensor: Any) -> Raw:
    """A tensor or an array given in Python, as type, sizes and bytes."""
    if hasattr(tensor, "detach"):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        raw = flat.view(flat[:0].byte().dtype).numpy().tobytes() if flat.numel() else b""
    else:
        raw = tensor.tobytes()
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), raw


class GivenTensors:
    """The tensors of a module or a file that was given beside a certificate, by name."""

    def __init__(self, tensors: Mapping[str, Any], text: str = "") -> None:
        self.tensors, self.text = tensors, text

    def raw(self, name: str) -> bytes:
        """The bytes of a tensor."""
        return raw_of(self.tensors[name])[2]

    def line(self, name: str) -> str:
        """What stands for a tensor in a digest."""
        return tensor_line(*raw_of(self.tensors[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """The digest of all weights together."""
        return (weights_digest({name: self.line(name) for name in self}),)


def finder(given: Sequence[Any]) -> Finder:
    """Look for tensors in what was given: modules, and things that have `raw` and `line`."""
    sources = [GivenTensors(thing.state_dict()) if hasattr(thing, "state_dict") else thing for thing in given]
    sources = [part for thing in sources for part in getattr(thing, "sources", (thing,)) if hasattr(part, "raw")]

    def find(name: str, line: str) -> bytes | None:
        for source in sources:
            if name in set(source) and source.line(name) == line:
                return bytes(source.raw(name))
        return None

    return find


def digest_of_module(module: Any) -> str | None:
    """The digest of the weights of a module given in Python; None if it has none."""
    return GivenTensors(module.state_dict()).digests[0] if hasattr(module, "state_dict") else None
