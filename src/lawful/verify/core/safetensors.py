"""Tensors of a `.safetensors` file, one by one: for digests of what was given beside a certificate."""

from __future__ import annotations

import json
import mmap
from math import prod
from pathlib import Path

from lawful.errors import LawfulError
from lawful.verify.core.schema import unique_keys
from lawful.verify.core.tensors import GivenTensors, Raw

MOST_HEADER = 100_000_000
TYPES = {
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
                whole = all(type(each) is int and each >= 0 for each in (*part["shape"], low, high))
                fits = whole and high - low == prod(part["shape"]) * TYPES[part["dtype"]][1]
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
        return TYPES[part["dtype"]][0], tuple(part["shape"]), self.data[low:high]
