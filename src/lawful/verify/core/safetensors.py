"""Tensors of a `.safetensors` file, one by one: for digests of what was given beside a certificate."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from lawful.errors import LawfulError
from lawful.verify.core.schema import unique_keys
from lawful.verify.core.tensors import weights_digest

MOST_HEADER = 100_000_000
TYPES = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2), "I64": ("int64", 8),
    "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1), "BOOL": ("bool", 1),
}  # fmt: skip
FLOATS = ("F64", "F32", "F16", "BF16")


class SafeTensors(Mapping[str, Any]):
    """The tensors of a file by name; with `floats` those of floating point alone, as arrays of doubles."""

    def __init__(self, path: Path, *, floats: bool = False) -> None:
        self.text, self.path = str(path), path
        self.settings: dict[str, Any] | None = None
        if not path.is_file():
            raise LawfulError(f"{path}: not a regular file")
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                text = file.read(size) if size <= MOST_HEADER else b""
            header = json.loads(text, object_pairs_hook=unique_keys)
            self.start, end = 8 + size, path.stat().st_size
            self.parts = {str(name): part for name, part in header.items() if name != "__metadata__"}
            for part in self.parts.values():
                low, high = part["data_offsets"]
                whole = all(type(each) is int and each >= 0 for each in (*part["shape"], low, high))
                fits = whole and high - low == prod(part["shape"]) * TYPES[part["dtype"]][1]
                if not fits or self.start + high > end:
                    raise ValueError
        except OSError as error:
            raise LawfulError(f"{path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise LawfulError(f"{path}: not a safetensors file, or damaged") from None
        if floats:
            self.parts = {name: part for name, part in self.parts.items() if part["dtype"] in FLOATS}

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def raw(self, name: str) -> bytes:
        """The bytes of a tensor, little-endian."""
        low, high = self.parts[name]["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.start + low)
            return file.read(high - low)

    def line(self, name: str) -> str:
        """What stands for a tensor in a digest, from its bytes piece by piece."""
        part, code = self.parts[name], hashlib.sha256()
        low, high = part["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.start + low)
            for at in range(low, high, 2**20):
                code.update(file.read(min(2**20, high - at)))
        return f"{TYPES[part['dtype']][0]} {part['shape']} {code.hexdigest()}"

    def __getitem__(self, name: str) -> Any:
        import numpy as np

        part, raw = self.parts[name], self.raw(name)
        if part["dtype"] == "BF16":  # the upper half of a float32
            values = (np.frombuffer(raw, dtype="<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(raw, dtype={"F64": "<f8", "F32": "<f4", "F16": "<f2"}[part["dtype"]])
        return values.astype(np.float64).reshape(part["shape"])

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """The digest of all weights together."""
        return (weights_digest({name: self.line(name) for name in self}),)
