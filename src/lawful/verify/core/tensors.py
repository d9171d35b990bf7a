"""Tensors in a certificate, and the digests that name the tensors of a module or a file.

A digest is SHA-256 of text in which names are JSON strings: a name that holds a line break or a number cannot be taken
for another tensor. It is never cut: two files with one name would be a proof about the wrong one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mmap
import struct
import sys
from array import array
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

from lawful.errors import LawfulError, NotACertificate
from lawful.verify.core.schema import integers, object_with_keys, require, unique_keys, word

TYPES = {"float16": "f", "bfloat16": "f", "float32": "f", "float64": "d"}  # held in arrays of
Raw = tuple[str, tuple[int, ...], bytes | memoryview]  # type, sizes and little-endian bytes


class WrittenTensor(NamedTuple):
    """Numbers with their type and sizes."""

    dtype: str
    shape: tuple[int, ...]
    line: str  # what stands for it in the digest of all weights
    values: Any  # all numbers, row after row


def read_tensor(value: object) -> WrittenTensor:
    """A tensor written as the base64 of its little-endian bytes."""
    parts = object_with_keys(value, "tensor", "dtype shape data")
    dtype = word(parts["dtype"], "dtype", *TYPES)
    shape = tuple(integers(parts["shape"], "shape", 0, 10**7, most=8))
    try:
        raw = base64.b64decode(parts["data"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise NotACertificate("tensor: its data is not base64") from None
    return WrittenTensor(dtype, shape, tensor_line(dtype, shape, raw), decode(dtype, shape, raw))


def decode(dtype: str, shape: tuple[int, ...], raw: bytes) -> Any:
    """The numbers in little-endian bytes, all of them finite."""
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


def tensor_line(dtype: str, shape: tuple[int, ...], raw: bytes | memoryview) -> str:
    """What stands for a tensor in a digest: its type, its sizes and SHA-256 of its little-endian bytes."""
    return f"{dtype} {list(shape)} {hashlib.sha256(raw).hexdigest()}"


def weights_digest(lines: Mapping[str, str]) -> str:
    """A name for all tensors of a module together, from one line for each.

    >>> weights_digest({"w": "a\\nv b"}) == weights_digest({"w": "a", "v": "b"})
    False
    """
    total = hashlib.sha256(b"lawful weights 2\n")
    for name in sorted(lines):
        total.update(f"{json.dumps([name, lines[name]])}\n".encode())
    return f"weights:{total.hexdigest()}"


class GivenTensors:
    """The tensors of a module or a file that was given beside a certificate, by name."""

    def __init__(self, tensors: Mapping[str, Any], text: str = "") -> None:
        self.tensors, self.text = tensors, text

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def raw(self, name: str) -> Raw:
        """A tensor or an array given in Python, as type, sizes and bytes."""
        tensor = self.tensors[name]
        if hasattr(tensor, "detach"):
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            raw = flat.view(flat[:0].byte().dtype).numpy().tobytes() if flat.numel() else b""
        else:
            raw = tensor.tobytes()
        return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), raw

    def line(self, name: str) -> str:
        """What stands for a tensor in a digest."""
        return tensor_line(*self.raw(name))

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """The digest of all weights together."""
        return (weights_digest({name: self.line(name) for name in self}),)


# Tensors of a `.safetensors` file, one by one: for digests of what was given beside a certificate.

# As the format itself allows.
MOST_HEADER = 100_000_000
STORED_TYPES = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2), "I64": ("int64", 8),
    "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1), "BOOL": ("bool", 1),
}  # fmt: skip


class SafeTensors(GivenTensors):
    """The tensors of a file by name; the file is mapped, so that one larger than memory has a digest too."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise LawfulError(f"{path}: not a regular file")
        try:
            with path.open("rb") as file:
                content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            size = int.from_bytes(content[:8], "little")
            text = bytes(content[8 : 8 + size]) if size <= MOST_HEADER else b""
            header = json.loads(text, object_pairs_hook=unique_keys)
            self.data = content[8 + size :]
            parts = {str(name): part for name, part in header.items() if name != "__metadata__"}
            for part in parts.values():
                low, high = part["data_offsets"]
                whole = all(type(count) is int and count >= 0 for count in (*part["shape"], low, high))
                fits = whole and high - low == prod(part["shape"]) * STORED_TYPES[part["dtype"]][1]
                if not fits or high > len(self.data):
                    raise ValueError
        except OSError as error:
            raise LawfulError(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise LawfulError(f"{path}: not a safetensors file, or damaged") from None
        super().__init__(parts, str(path))

    def raw(self, name: str) -> Raw:
        """A tensor as type, sizes and bytes."""
        part = self.tensors[name]
        low, high = part["data_offsets"]
        return STORED_TYPES[part["dtype"]][0], tuple(part["shape"]), self.data[low:high]
