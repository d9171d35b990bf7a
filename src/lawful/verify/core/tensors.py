"""Tensors in a certificate, and the digests that name the tensors of a module or a file.

A digest is SHA-256 of text in which names are JSON strings: a name that holds a line break or a number cannot be taken
for another tensor. It is never cut: two files with one name would be a proof about the wrong one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from lawful.errors import NotACertificate
from lawful.verify.core.schema import need, record, wholes, word

TYPES = {"float16": "f", "bfloat16": "f", "float32": "f", "float64": "d"}  # held in arrays of


@dataclass(frozen=True)
class Tensor:
    """Numbers with their type and sizes."""

    dtype: str
    shape: tuple[int, ...]
    values: Any
    line: str  # what stands for it in the digest of all weights

    def turned(self) -> Tensor:
        """The same with its first two axes exchanged."""
        need(len(self.shape) >= 2, "what is stored with its inputs first has rows and columns")
        rows, columns, *kernel = self.shape
        taps = prod(kernel)
        values = array(TYPES[self.dtype])
        for column in range(columns):
            for row in range(rows):
                start = (row * columns + column) * taps
                values.extend(self.values[start : start + taps])
        return Tensor(self.dtype, (columns, rows, *kernel), values, self.line)


def read_tensor(value: object) -> Tensor:
    """A tensor written as the base64 of its little-endian bytes."""
    given = record(value, "tensor", "dtype shape data")
    dtype = word(given["dtype"], "dtype", *TYPES)
    shape = tuple(wholes(given["shape"], "shape", 0, 10**7, most=8))
    try:
        raw = base64.b64decode(given["data"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise NotACertificate("tensor: its data is not base64") from None
    values = array(TYPES[dtype])
    size = 2 if dtype.endswith("16") else values.itemsize
    need(len(raw) == prod(shape) * size, "a tensor has other sizes than its data")
    if dtype == "float16":
        values.extend(struct.unpack(f"<{prod(shape)}e", raw))
    elif dtype == "bfloat16":  # the upper half of a float32
        values.frombytes(b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2)))
    else:
        values.frombytes(raw)
    if sys.byteorder == "big" and dtype != "float16":
        values.byteswap()
    need(all(map(isfinite, values)), "a weight is not finite")
    return Tensor(dtype, shape, values, tensor_line(dtype, shape, raw))


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


def digest_of_module(module: Any) -> str | None:
    """The digest of the weights of a module given in Python; None if it has none."""
    if not hasattr(module, "state_dict"):
        return None
    lines = {}
    for name, tensor in module.state_dict().items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        raw = flat.view(flat[:0].byte().dtype).numpy().tobytes() if flat.numel() else b""
        lines[name] = tensor_line(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), raw)
    return weights_digest(lines)
