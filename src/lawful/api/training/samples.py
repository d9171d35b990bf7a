"""Data as users give them: a file, a table of inputs, or inputs with their targets or labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.queries.data import Data, read_data
from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.api.inputs import Samples


def as_data(data: Samples, inputs: int | None = None) -> Data:
    """Samples from a file, a `Data`, the pair (x, y), or x alone.

    >>> as_data(([[0.0, 1.0]], [1.0])).y
    array([1.])
    """
    if isinstance(data, Data):
        return data
    if isinstance(data, (str, Path)):
        return read_data(Path(data), inputs)
    x, y = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim < 2 or not np.isfinite(rows).all() or (inputs is not None and rows[0].size != inputs):
        raise LawfulError(f"data are finite rows of {inputs or 'input'} numbers, not an array of shape {rows.shape}")
    sample = rows.shape[1:] if rows.ndim > 2 else None
    return Data(rows.reshape(len(rows), -1), None if y is None else np.asarray(y, dtype=np.float64), sample=sample)


def with_targets(data: Samples, inputs: int | None = None) -> tuple[Data, Floats]:
    """Samples that have targets."""
    samples = as_data(data, inputs)
    if samples.y is None:
        named = f"{data}: has" if isinstance(data, (str, Path)) else "data have"
        raise LawfulError(f"{named} no targets: training needs targets `y` beside x")
    return samples, samples.y
