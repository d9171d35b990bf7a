"""Residual streams over training: the instruments of every block at every checkpoint, or live."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from torch import Tensor, nn

from lawful.errors import LawfulError, Unsupported
from lawful.papers.leaky.streams.instruments import BlockReadings, read_blocks
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class BlockHistory:
    """Readings of the same blocks at increasing steps of training."""

    steps: tuple[int, ...]
    readings: tuple[BlockReadings, ...]

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.readings) or not self.readings:
            raise LawfulError("a history needs a reading for each of its steps, and at least one")
        other = next((reading for reading in self.readings if reading.names != self.names), None)
        if other is not None:
            raise LawfulError(f"the networks have different blocks: {self.names[:3]} and {other.names[:3]} …")

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks' names."""
        return self.readings[0].names

    def table(self, quantity: str) -> Floats:
        """One quantity of `BlockReading`: a row per block, a column per step."""
        return np.array([[getattr(block, quantity) for block in reading.blocks] for reading in self.readings]).T


class BlockWatch:
    """Read the residual blocks of a model while it trains, every so many steps, on the same inputs.

    >>> import torch
    >>> from lawful.papers.leaky.streams.instruments import read_blocks
    >>> class Block(nn.Module):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.inner = nn.Linear(4, 4)
    ...     def forward(self, x: Tensor) -> Tensor:
    ...         return x + self.inner(x.relu())
    >>> model, watch = nn.Sequential(Block(), Block()), BlockWatch(torch.randn(8, 4), every=2)
    >>> for _ in range(4):
    ...     watch.step(model)
    >>> watch.history.steps, watch.history.table("dimension").shape
    ((0, 2, 4), (2, 3))
    """

    def __init__(self, inputs: Tensor, *, every: int = 100, **options: Any) -> None:
        """`options` are those of `read_blocks`."""
        if every < 1:
            raise LawfulError(f"a watch reads every 1, 2, ... steps, not every {every}")
        self.inputs, self.every, self.options = inputs, every, options
        self.count = 0
        self._found: list[tuple[int, BlockReadings]] = []

    def start(self, model: nn.Module, step: int = 0) -> None:
        """Read the blocks before the first step, or at the one from which training goes on."""
        if not self._found:
            self.count = step
            self._read(model)

    def step(self, model: nn.Module, steps: int = 1) -> None:
        """One step of the optimiser was made, or several."""
        self.start(model, self.count)
        before, self.count = self.count, self.count + steps
        if self.count // self.every > before // self.every:
            self._read(model)

    def _read(self, model: nn.Module) -> None:
        self._found.append((self.count, read_blocks(model, self.inputs, **self.options)))

    @property
    def history(self) -> BlockHistory:
        """What was read so far."""
        return history(self._found)


def history(found: Iterable[tuple[int, BlockReadings]]) -> BlockHistory:
    """Readings by step, in order."""
    ordered = sorted(found, key=lambda each: each[0])
    return BlockHistory(tuple(step for step, _ in ordered), tuple(readings for _, readings in ordered))


class BlockHooks:
    """The hooks that a Lightning trainer calls; they feed a `BlockWatch`."""

    def __init__(self, watch: BlockWatch) -> None:
        super().__init__()
        self.watch = watch

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Training begins; only the first process of a distributed run reads."""
        if getattr(trainer, "is_global_zero", True):
            self.watch.start(pl_module, int(getattr(trainer, "global_step", 0)))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch went through; while gradients are accumulated, no step of the optimiser was made."""
        steps = int(getattr(trainer, "global_step", self.watch.count + 1)) - self.watch.count
        if getattr(trainer, "is_global_zero", True) and steps > 0:
            self.watch.step(pl_module, steps)


class BlockTrainerHooks:
    """The events that a Hugging Face Trainer calls; they feed a `BlockWatch`."""

    def __init__(self, watch: BlockWatch) -> None:
        super().__init__()
        self.watch = watch

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        """Training begins; only the first process of a distributed run reads."""
        if getattr(state, "is_world_process_zero", True) and model is not None:
            self.watch.start(model, int(getattr(state, "global_step", 0)))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        """One step was made."""
        if getattr(state, "is_world_process_zero", True) and model is not None:
            self.watch.step(model)


def block_lightning_callback(inputs: Tensor, **options: Any) -> Any:
    """A callback for Lightning's `Trainer(callbacks=[...])`; what it read is in `.watch.history`."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            base = import_module(name).Callback
        except ImportError:
            continue
        return type("BlockCallback", (BlockHooks, base), {})(BlockWatch(inputs, **options))
    raise Unsupported("Lightning is not installed: pip install 'lawful[lightning]'")


def block_trainer_callback(inputs: Tensor, **options: Any) -> Any:
    """A callback for the Hugging Face `Trainer(callbacks=[...])`; what it read is in `.watch.history`."""
    try:
        base = import_module("transformers").TrainerCallback
    except ImportError:
        raise Unsupported("transformers is not installed: pip install transformers") from None
    return type("BlockTrainerCallback", (BlockTrainerHooks, base), {})(BlockWatch(inputs, **options))
