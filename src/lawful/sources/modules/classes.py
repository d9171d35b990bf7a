"""Where a module's output has the classes of cross-entropy: one convention for laws, flows and losses on data.

They are axis 1, as in PyTorch (`torch.nn.functional.cross_entropy`), and the last axis of a module that reads token
ids, as language models are trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from lawful.errors import LawfulError
from lawful.program.frontends.export import in_mode
from lawful.program.table import ATEN_CASTS, ATEN_MOVEMENTS, INFINITY, OPERATORS, Traits

EQUALS = ("eq", "__eq__", "ne", "__ne__", "isin")
COPIES = ("clone", "contiguous")
BATCH = 8  # samples of the call that shows which tables the input indexes


def vocabulary_of(module: torch.nn.Module, shape: Sequence[int]) -> int | None:
    """How many token ids a module reads, None for numbers: the rows of the tables that its input itself indexes, else
    the numbers 0, 1, 2, ... that it is compared with, as a one-hot vector is made.

    >>> vocabulary_of(torch.nn.Sequential(torch.nn.Embedding(9, 2)), (3,)), vocabulary_of(torch.nn.Linear(2, 2), (2,))
    (9, None)
    """
    return _uses(module, shape).vocabulary


def assumed_of_inputs(module: torch.nn.Module, shape: Sequence[int]) -> tuple[str, ...]:
    """What is taken for granted of inputs that a module compares with numbers: real ones drawn at random equal none.

    >>> class Padded(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x) * (x[:, :1] != 0)
    >>> assumed_of_inputs(Padded(2, 1), (2,))
    ('the module asks whether its inputs equal some numbers, and they equal none of them',)
    """
    ids = _uses(module, shape)
    if ids.rows:
        return ()
    if ids.vocabulary is not None:
        return (f"its inputs are the ids from 0 to {ids.vocabulary - 1}, with which it compares them",)
    precision = next(
        (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()), torch.float32
    )
    if not _uses(module, shape, precision).compared:
        return ()
    return ("the module asks whether its inputs equal some numbers, and they equal none of them",)


def _uses(module: torch.nn.Module, shape: Sequence[int], kind: torch.dtype = torch.int64) -> _Uses:
    uses = _Uses(torch.zeros((BATCH, *shape), dtype=kind))
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}  # which some modules change in calls
    with suppress(Exception), torch.random.fork_rng(devices=[]), torch.no_grad(), in_mode(module, training=False), uses:
        module(uses.kept[0])  # the module's own code: it may raise anything
        uses.ended = True
    with torch.no_grad():
        for name, buffer in buffers.items():
            module.get_buffer(name).copy_(buffer)
    return uses


def classes_axis(sizes: Sequence[int], *, tokens: bool, axis: int | None = None) -> int:
    """The axis of an output of these sizes that has the classes; `axis` if somebody knows better.

    >>> classes_axis((8, 3, 5, 5), tokens=False), classes_axis((8, 5, 9), tokens=True)
    (1, 2)
    """
    if len(sizes) < 2:
        raise LawfulError("cross-entropy needs an output for each class: the module returns one number for each sample")
    if axis is not None and not 1 <= axis < len(sizes):
        raise LawfulError(f"the output of size {tuple(sizes[1:])} has no axis {axis} of classes: 0 is the batch")
    if axis is not None:
        return axis
    return len(sizes) - 1 if tokens else 1


def class_rows(outputs: torch.Tensor, axis: int) -> torch.Tensor:
    """Outputs as a table: a row for each sample and place, with a column for each class.

    >>> class_rows(torch.zeros(2, 3, 4, 5), 1).shape
    torch.Size([40, 3])
    """
    return outputs.movedim(axis, -1).reshape(-1, outputs.shape[axis])


def check_labels(labels: Sequence[int], sizes: Sequence[int], axis: int) -> None:
    """Refuse labels of another size than one class number for each sample and place of an output."""
    places = [size for number, size in enumerate(sizes) if number != axis]
    if [size for size in labels[1:] if size != 1] == [size for size in places[1:] if size != 1]:
        return
    if len(sizes) == 2:
        raise LawfulError(f"ce needs one class number per sample, not {torch.Size(labels[1:]).numel()}")
    raise LawfulError(
        f"ce needs one class number per sample and place, y of size {tuple(places[1:])} where the output is of size "
        f"{tuple(sizes[1:])}, not {tuple(labels[1:])}: its classes are axis {axis}; give the loss as a function if not"
    )


def _keeps_ids(name: str) -> bool:
    """Whether a call hands whole numbers on as they are: casts, movements, copies, and functions that round."""
    traits = OPERATORS[name].traits if name in OPERATORS else None
    rounds = isinstance(traits, Traits) and traits.steps and traits.range == (-INFINITY, INFINITY)
    return rounds or name in COPIES or name in ATEN_CASTS or name in ATEN_MOVEMENTS


class _Uses(TorchFunctionMode):
    """What a module does with its input as it is: the sizes of tables that it indexes, and what it is compared with."""

    def __init__(self, tokens: torch.Tensor) -> None:
        super().__init__()
        self.ended = False
        self.rows: list[int] = []
        self.ranges: list[int] = []
        self.compared = False
        self.kept: list[torch.Tensor] = []  # alive, so that no other tensor takes their place in memory
        self.places: set[int] = set()
        self.follow(tokens)

    @property
    def vocabulary(self) -> int | None:
        """How many ids it reads; a module that fails on whole numbers reads none, whatever it compares."""
        return min(self.rows or (self.ranges if self.ended else ()), default=None)

    def follow(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take a tensor, and all views of it, for the input."""
        self.kept.append(tensor)
        self.places.add(tensor.untyped_storage().data_ptr())
        return tensor

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options, name = kwargs or {}, getattr(func, "__name__", "")
        if func is torch.nn.functional.embedding:
            operands = dict(zip(("input", "weight"), args, strict=False)) | options
            if self._is_input(operands["input"]):
                self.rows.append(len(operands["weight"]))
        elif name == "__getitem__" and self._is_input(args[1]) and not self._is_input(args[0]):
            self.rows.append(len(args[0]))
        elif name in EQUALS and len(args) == 2:
            self._compare(*args)
        result = func(*args, **options)
        if _keeps_ids(name) and args and self._is_input(args[0]) and isinstance(result, torch.Tensor):
            self.follow(result)
        return result

    def _is_input(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in self.places

    def _compare(self, one: Any, other: Any) -> None:
        if self._is_input(one) == self._is_input(other):  # `x == x` is for NaN
            return
        self.compared = True
        numbers = other if self._is_input(one) else one
        if isinstance(numbers, torch.Tensor) and numbers.numel() > 1:
            values = sorted(set(numbers.flatten().tolist()))
            if values == list(range(len(values))) and len(values) > 1:
                self.ranges.append(len(values))
