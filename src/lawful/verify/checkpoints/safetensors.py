"""Checkpoints in `.safetensors` files: their tensors of floating point, as arrays of doubles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.verify.core.binding import load_certificate
from lawful.verify.core.schema import parse
from lawful.verify.core.tensors import TYPES, SafeTensors

STORED = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}


class CheckpointTensors(SafeTensors, Mapping[str, Any]):
    """The tensors of floating point of a file by name, lines of the others, and the settings beside it."""

    def __init__(self, path: Path, settings: dict[str, Any] | None = None) -> None:
        super().__init__(path)
        self.settings = settings
        self.others = {name: self.line(name) for name in self.tensors if self.raw(name)[0] not in TYPES}
        self.tensors = {name: part for name, part in self.tensors.items() if name not in self.others}

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
