"""Merge two checkpoints and measure the loss on the way from one to the other, on data in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from lawful.checkpoints.opening import CheckpointPair, Model, Source, open_checkpoints
from lawful.checkpoints.pair import Loss, Merged, merge_pair
from lawful.errors import LawfulError
from lawful.formats.queries.data import read_data
from lawful.sources.modules.classes import check_labels, class_rows, classes_axis
from lawful.symmetry.inputs import Input


def merge(
    first: Source,
    second: Source,
    *,
    weight: float = 0.5,
    data: str | Path | None = None,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
) -> Merged:
    """The mean of two checkpoints after alignment; with data, the loss on the way from one to the other."""
    pair = open_checkpoints(first, second, model=model, input=input)
    return merge_on_data(pair, weight, None if data is None else Path(data))


def merge_on_data(pair: CheckpointPair, weight: float, data: Path | None) -> Merged:
    """The mean; with data, the loss along the line (labels: cross-entropy, real targets: mean squared error)."""
    if data is None:
        return merge_pair(pair, weight)
    table = read_data(data)
    if table.y is None:
        raise LawfulError(f"{data}: a loss needs targets (`y`, or a column named label)")
    (example,) = pair.architecture.inputs if len(pair.architecture.inputs) == 1 else (None,)
    if example is None:
        raise LawfulError("the loss on the way is measured for modules with one input")
    shape = tuple(example.shape[1:])
    if int(np.prod(shape, dtype=int)) != table.x.shape[1]:
        raise LawfulError(f"{data}: {table.x.shape[1]} numbers per sample do not fill an input of size {shape}")
    kind = torch.float64 if example.is_floating_point() else example.dtype
    inputs = torch.as_tensor(table.x).to(kind).reshape(-1, *shape)
    return merge_pair(
        pair, weight, inputs=[inputs], loss=_loss(np.asarray(table.y), str(data), not example.is_floating_point())
    )


def _loss(targets: np.ndarray, name: str, tokens: bool) -> Loss:
    labels = targets.reshape(len(targets), -1)
    whole = labels.shape[1] == 1 and np.equal(labels, np.round(labels)).all() and labels.min(initial=0) >= 0

    def loss(outputs: list[torch.Tensor]) -> float:
        first = outputs[0].reshape(len(targets), -1)
        if whole and first.shape[1] > 1:
            axis = classes_axis(outputs[0].shape, tokens=tokens)
            check_labels(labels.shape, outputs[0].shape, axis)
            first = class_rows(outputs[0], axis)
            classes = torch.as_tensor(labels[:, 0]).long()
            if int(classes.max()) >= first.shape[1]:
                raise LawfulError(f"{name}: label {int(classes.max())} of {first.shape[1]} classes")
            return float(torch.nn.functional.cross_entropy(first, classes))
        wanted = torch.as_tensor(labels, dtype=torch.float64)
        if wanted.shape != first.shape:
            raise LawfulError(f"{name}: targets of size {labels.shape[1]} for outputs of size {first.shape[1]}")
        return float(torch.nn.functional.mse_loss(first, wanted))

    return loss
