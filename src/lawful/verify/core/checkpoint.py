"""A checkpoint as tensors by name: its digest, the shapes of what is in it, and numbers that are packed as text."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError, NotACertificate
from lawful.verify.core.binding import load_certificate
from lawful.verify.core.schema import parse
from lawful.verify.core.tensors import TYPES, SafeTensors

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


# Checkpoints in `.safetensors` files: their tensors of floating point, as arrays of doubles.

STORED = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}


class CheckpointTensors(SafeTensors, Mapping[str, Any]):
    """The tensors of floating point of a file by name, and the settings beside it."""

    def __init__(self, path: Path, settings: dict[str, Any] | None = None) -> None:
        super().__init__(path)
        self.settings = settings
        self.tensors = {name: part for name, part in self.tensors.items() if self.raw(name)[0] in TYPES}

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, name: str) -> Any:
        dtype, shape, raw = self.raw(name)
        if dtype == "bfloat16":  # the upper half of a float32
            values = (np.frombuffer(raw, dtype="<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(raw, dtype=STORED[dtype])
        return values.astype(np.float64).reshape(shape)


def read_checkpoint(path: Path) -> CheckpointTensors:
    """A file, or a folder with `model.safetensors` and perhaps `config.json`."""
    if path.is_dir():
        config = path / "config.json"
        return CheckpointTensors(
            path / "model.safetensors", parse(load_certificate(config)) if config.is_file() else None
        )
    if path.suffix.lower() != ".safetensors":
        raise LawfulError(f"{path}: the kernel alone reads .safetensors here; `lawful verify` reads other files")
    return CheckpointTensors(path)
