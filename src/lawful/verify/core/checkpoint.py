"""A checkpoint as tensors by name: its digest, the shapes of what is in it, and numbers that are packed as text."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lawful.errors import NotACertificate

Array = np.ndarray[Any, np.dtype[np.float64]]
Shapes = dict[str, tuple[int, ...]]


def tensors_digest(tensors: Mapping[str, Array]) -> str:
    """Names tensors by their numbers."""
    return survey(tensors)[0]


def survey(file: Mapping[str, Array]) -> tuple[str, Shapes]:
    """The digest of a file, and the shapes of its tensors."""
    total, shapes = hashlib.sha256(b"lawful checkpoint 2\n"), {}
    for key in sorted(file):
        array = np.ascontiguousarray(file[key], dtype="<f8")
        shapes[key] = np.shape(file[key]) if array.ndim == 1 and array.size == 1 else array.shape
        total.update(f"{json.dumps([key, list(shapes[key])])}\n".encode())
        total.update(array.data if array.size else b"")
    return f"checkpoint:{total.hexdigest()}", shapes


def unpack(value: object, count: int, where: str, kind: str = "<f8") -> np.ndarray[Any, Any]:
    """So many numbers in base64, of eight bytes each (floats also of four); after `z:` they are compressed."""
    if not isinstance(value, str):
        raise NotACertificate(f"{where}: expected packed numbers")
    try:
        raw = base64.b64decode(value.removeprefix("z:"), validate=True)
        if value.startswith("z:"):
            raw = zlib.decompressobj().decompress(raw, 8 * count + 1)
    except (binascii.Error, ValueError, zlib.error):
        raise NotACertificate(f"{where}: packed numbers are damaged") from None
    if len(raw) == 4 * count and kind == "<f8":
        kind = "<f4"
    elif len(raw) != 8 * count:
        raise NotACertificate(f"{where}: expected {count} packed numbers")
    return np.frombuffer(raw, dtype=kind)
