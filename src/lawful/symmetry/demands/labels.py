"""Label tensors: an integer for every entry of a value, of stride 0 along the dimensions where it does not change.

Operations that only move entries (view, permute, slice, cat, repeat) need no rule of their own: they are run on labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from lawful.types import Residues


def varying(labels: torch.Tensor) -> tuple[int, ...]:
    """The dimensions along which labels may change.

    >>> varying(torch.arange(3).view(1, 3, 1).expand(2, 3, 4))
    (1,)
    """
    return tuple(d for d, size in enumerate(labels.shape) if size > 1 and labels.stride(d) != 0)


def compact(labels: torch.Tensor) -> torch.Tensor:
    """The same labels with stride 0 wherever they do not change.

    >>> varying(compact(torch.arange(3).repeat(2, 1)))
    (1,)
    """
    shape, changing = labels.shape, varying(labels)
    labels = narrow(labels)
    for d in changing:
        first = labels.narrow(d, 0, 1)
        if torch.equal(labels, first.expand(labels.shape)):
            labels = first
    if labels.untyped_storage().nbytes() > 16 * labels.nbytes:  # a view would keep all of a larger tensor
        labels = labels.clone()
    return labels.expand(shape)


def narrow(labels: torch.Tensor) -> torch.Tensor:
    """Labels with size 1 along the dimensions where they do not change."""
    changing = varying(labels)
    for d in range(labels.dim()):
        if d not in changing and labels.shape[d]:
            labels = labels.narrow(d, 0, 1)
    return labels


def align(labels: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Labels broadcast to a shape, dimensions matched from the right as PyTorch does."""
    return labels.reshape((1,) * (len(shape) - labels.dim()) + tuple(labels.shape)).expand(tuple(shape))


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that PyTorch broadcasts shapes to."""
    return tuple(torch.broadcast_shapes(*map(tuple, shapes)))  # type: ignore[no-untyped-call]


def squeeze_fields(*fields: torch.Tensor) -> tuple[list[torch.Tensor], list[int]]:
    """Fields broadcast together, without the dimensions along which none of them changes; and the dimensions kept."""
    shape = broadcast(*(field.shape for field in fields))
    together = [field.expand(shape) for field in fields]
    dimensions = [d for d in range(together[0].dim()) if not shape[d] or any(d in varying(field) for field in together)]
    for d in reversed(range(together[0].dim())):
        if d not in dimensions:
            together = [field.select(d, 0) for field in together]
    return together, dimensions


def flat(labels: torch.Tensor) -> Residues:
    """The distinct positions of a field, one after the other."""
    return np.asarray(squeeze_fields(labels)[0][0].reshape(-1).numpy())


def on(dims: Sequence[int], shape: Sequence[int], labels: torch.Tensor) -> torch.Tensor:
    """Labels in row-major order over some dimensions of a shape, constant along the others."""
    return labels.reshape([size if d in dims else 1 for d, size in enumerate(shape)]).expand(tuple(shape))


def occurrences(values: Residues) -> Residues:
    """How often each entry came before.

    >>> occurrences(np.array([5, 7, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    start = np.r_[True, ordered[1:] != ordered[:-1]] if len(values) else np.zeros(0, dtype=bool)
    place = np.arange(len(values))
    result = np.empty(len(values), dtype=np.int64)
    result[order] = place - np.maximum.accumulate(np.where(start, place, 0))
    return result


def number_rows(*keys: Residues) -> Residues:
    """One number for each distinct row of keys, from 0.

    >>> number_rows(np.array([3, 3, 1]), np.array([0, 0, 0])).tolist()
    [1, 1, 0]
    """
    numbers = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        if len(key) and not (key == key[0]).all():
            inverse = np.unique(key, return_inverse=True)[1]
            numbers = numbers * (int(inverse.max()) + 1) + inverse
            numbers = np.unique(numbers, return_inverse=True)[1]
    return np.asarray(numbers, dtype=np.int64)
