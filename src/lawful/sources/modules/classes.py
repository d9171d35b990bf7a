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

BATCH = 8  # samples of the call that shows which tables the input indexes


def vocabulary_of(module: torch.nn.Module, shape: Sequence[int]) -> int | None:
    """How many token ids a module reads: the rows of the tables that its input itself indexes; None for numbers.

    >>> vocabulary_of(torch.nn.Sequential(torch.nn.Embedding(9, 2)), (3,)), vocabulary_of(torch.nn.Linear(2, 2), (2,))
    (9, None)
    """
    stated = getattr(module, "input_sizes", ())  # of an ONNX file, whose tables are plain tensors
    if not any(isinstance(part, torch.nn.Embedding) for part in module.modules()) and not any(
        isinstance(size, str) for size in stated
    ):
        return None
    tokens = torch.zeros((BATCH, *shape), dtype=torch.int64)
    calls = _Tables(tokens)
    with calls, torch.no_grad(), in_mode(module, training=False), suppress(Exception):  # the module's own code
        module(tokens)
    return min(calls.rows, default=None)


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


class _Tables(TorchFunctionMode):
    """The sizes of the tables that are indexed by an input itself."""

    def __init__(self, tokens: torch.Tensor) -> None:
        super().__init__()
        self.rows: list[int] = []
        self.place = tokens.untyped_storage().data_ptr()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.embedding:
            given = dict(zip(("input", "weight"), args, strict=False)) | (kwargs or {})
            if given["input"].untyped_storage().data_ptr() == self.place:
                self.rows.append(len(given["weight"]))
        return func(*args, **(kwargs or {}))
