"""The entries that units of A and of B have in the tensors of a space, as rows of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from lawful.checkpoints.group.axis_actions import as_rows
from lawful.checkpoints.group.spaces import AxisRows
from lawful.types import Floats

Tensors = Mapping[str, torch.Tensor]
BATCH = 256  # rows that are widened together
COLUMNS, MANY_ENTRIES = 16, 2**23  # columns for each unit that suffice, where there are many entries


def unit_rows(rows: AxisRows, tensors: Tensors) -> torch.Tensor:
    """For each unit all entries of its rows."""
    table = as_rows(tensors[rows.tensor], rows.dims)
    count, copies = rows.places.shape
    if copies == 1 and np.array_equal(rows.places[:, 0], np.arange(len(table))):
        return table
    if copies == 1 and np.array_equal(rows.places[:, 0], np.arange(count) + rows.places[0, 0]):
        return table[int(rows.places[0, 0]) :][:count]
    return table[torch.as_tensor(rows.places)].reshape(count, -1)


def columns_of(members: Sequence[AxisRows], a: Tensors, b: Tensors) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The rows of units in A and B, member by member; of very many columns, as many as tell units apart."""
    size, seen = len(members[0].places), 0
    for rows in members:
        if seen >= COLUMNS * size and seen * size > MANY_ENTRIES:
            break
        left, right = unit_rows(rows, a), unit_rows(rows, b)
        if left.dtype != right.dtype:
            left, right = left.double(), right.double()
        seen += left.shape[1]
        if left.numel() > MANY_ENTRIES and (step := left.shape[1] // (COLUMNS * size)) > 1:
            left, right = left[:, ::step], right[:, ::step]
        yield left, right


def row_lengths(rows: torch.Tensor) -> Floats:
    """The length of each row, of any size."""
    largest = rows.abs().amax(1).double()
    safe = torch.where(largest > 0, largest, 1.0)
    norms = [(rows[k : k + BATCH].double() / safe[k : k + BATCH, None]).norm(dim=1) for k in range(0, len(rows), BATCH)]
    return np.asarray((safe * torch.cat(norms) * (largest > 0)).numpy())
