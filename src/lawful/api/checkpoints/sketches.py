"""Sketches of checkpoints of any architecture, each of which is read once in a process."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lawful.checkpoints.architecture import MANY_NUMBERS, CheckpointArchitecture, check_numbers
from lawful.checkpoints.identity.sketch import sketch
from lawful.checkpoints.opening import TOKENS, Model, open_checkpoint
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import State
from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.sources.checkpoints import hugging_face
from lawful.sources.checkpoints.load import make_module
from lawful.sources.modules.convert import to_module
from lawful.sources.opening import open as open_network
from lawful.symmetry.inputs import Input
from lawful.types import Floats

BATCH = 2**22  # numbers that are widened together
FEW = 2**10  # of which these are looked at first


class Families:
    """Architectures that were read already, and sketches of checkpoints of any of them."""

    def __init__(self, model: Model | None, input: Input | Sequence[Input] | None) -> None:
        self.input = input
        self.module = None if model is None else make_module(model)
        self._read: dict[str, CheckpointArchitecture] = {}
        self._made: dict[bytes, tuple[torch.nn.Module, Any]] = {}  # by what is written in their config.json

    def sketch(self, path: Path) -> tuple[str, str, Floats]:
        """The family of a checkpoint (a digest of names and shapes), a digest of its numbers, and its sketch."""
        module, input, state = self._open(path)
        check_numbers(state, str(path))
        shapes = [(name, tuple(tensor.shape)) for name, tensor in state.items()]
        family = hashlib.sha256(repr((str(module), shapes, str(input))).encode()).hexdigest()[:32]
        if family not in self._read:
            self._read[family] = read_architecture(module, input)
        with _one_thread(), ThreadPoolExecutor(1) as beside:
            digest = beside.submit(_digest, state)
            numbers = sketch(self._read[family], state)
        if not numbers.any():
            raise LawfulError(f"{path}: its outputs and weights are all zero, or not finite")
        return family, digest.result(), numbers

    def _open(self, path: Path) -> tuple[torch.nn.Module, Input | Sequence[Input] | None, State]:
        if self.module is not None:
            return self.module, self.input, open_checkpoint(path, self.module).state
        if path.is_dir():
            module, size = self._module_of(path)
            return module, self.input or size or TOKENS, open_checkpoint(path, module).state
        network = open_network(path)
        if not isinstance(network, Mlp):
            raise LawfulError(f"{path}: weights alone do not say what is computed with them: give --model")
        module = to_module(network)
        return module, (network.widths[0],), dict(module.state_dict())

    def _module_of(self, folder: Path) -> tuple[torch.nn.Module, Any]:
        settings = folder / "config.json"
        written = settings.read_bytes() if settings.is_file() else None
        if written is None or written not in self._made:
            module, pictures, _ = hugging_face.module_of(folder, MANY_NUMBERS)  # says what is wrong with the folder
            size = pictures or list(module.input_sizes)
            if written is None:
                return module, size
            self._made[written] = module, size
        return self._made[written]


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch on one core: another is busy beside it, and threads that wait for each other would wait for that too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _digest(state: State) -> str:
    """Of the numbers, in whatever type they are stored."""
    code = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        code.update(repr((name, tuple(tensor.shape))).encode())  # sizes end each tensor: no two lists have one text
        line = tensor.detach().cpu().reshape(-1)
        for start in range(0, len(line), BATCH):
            code.update(_narrowest(line[start : start + BATCH]).numpy().data)
    return code.hexdigest()


def _narrowest(numbers: torch.Tensor) -> torch.Tensor:
    """The bits of numbers as bfloat16 if that holds all of them, else as float32 if that does, else as float64.

    >>> numbers = torch.tensor([1.5, -2.0])
    >>> [_narrowest(numbers.to(kind)).tolist() for kind in (torch.bfloat16, torch.float16, torch.float64)]
    [[16320, -16384], [16320, -16384], [16320, -16384]]
    >>> _narrowest(torch.tensor([0.1])).dtype
    torch.float32
    """
    if numbers.dtype == torch.bfloat16:
        return numbers.contiguous().view(torch.int16)
    single = numbers.float()
    if not numbers.is_floating_point() or (numbers.element_size() > 4 and not torch.equal(single.double(), numbers)):
        return numbers.double()
    bits = single.contiguous().view(torch.int32)
    fine = any(bool((part & 0xFFFF).any()) for part in (bits[:FEW], bits[FEW:]))  # one number in full is enough
    return single if fine else (bits >> 16).to(torch.int16)


def pack(found: Floats) -> bytes:
    """A sketch as it is stored: rounded, four bytes a number."""
    return np.round(found, 5).astype("<f4").tobytes()


def sketch_row(file: str, model: str = "", input: str = "") -> dict[str, Any]:
    """One call of a sweep: the sketch of a checkpoint as text.

    `file` is the path, then its size and time of change (so that a changed file is another call), with tabs between.
    """
    family, digest, numbers = _families(model, input).sketch(Path(file.rsplit("\t", 2)[0]))
    return {"family": family, "digest": digest, "blocks": len(numbers),
            "sketch": base64.b64encode(pack(numbers)).decode()}  # fmt: skip


@cache
def _families(model: str, input: str) -> Families:
    return Families(model or None, input.split(";") if input else None)
