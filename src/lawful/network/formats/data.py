"""Data sets from files: inputs `x`, one row per sample, and targets or labels `y` if there are any."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.network.formats import npz as npz_format
from lawful.network.formats.limits import check_bytes

FORMATS = (".npz", ".csv")


@dataclass(frozen=True, eq=False)
class Data:
    """Samples in rows; `y` has one row (targets) or one number (labels) per sample, or is None."""

    x: NDArray[np.float64]
    y: NDArray[np.float64] | None = None

    @property
    def classes(self) -> NDArray[np.int64] | None:
        """The labels, if `y` holds one whole number per sample."""
        if self.y is None or self.y.shape not in ((len(self.x),), (len(self.x), 1)):
            return None
        labels = self.y.ravel()
        return labels.astype(np.int64) if (labels == np.round(labels)).all() else None


def read_data(path: Path, inputs: int | None = None) -> Data:
    """Read `.npz` (arrays `x` and perhaps `y`) or `.csv` (a header; columns named y, y0, y1, ... or label are targets).

    `inputs` is the number of columns that the network takes. Non-finite numbers are refused, with their place.
    """
    if path.suffix.lower() not in FORMATS:
        raise LawfulError(f"{path}: data come as {' or '.join(FORMATS)}")
    check_bytes(str(path), path.stat().st_size)
    found = _read_npz(path) if path.suffix.lower() == ".npz" else _read_csv(path)
    _check(path, found, inputs)
    return found


def _read_npz(path: Path) -> Data:
    arrays: dict[str, NDArray[Any]] = npz_format.load(path)[0]
    if "x" not in arrays or set(arrays) - {"x", "y"}:
        names = ", ".join(arrays) or "nothing"
        raise LawfulError(f"{path}: needs an array `x` and perhaps `y`, and has {names[:100]}")
    for name, array in arrays.items():
        if array.dtype.kind == "c":
            raise LawfulError(f"{path}: `{name}` is complex")
    x = arrays["x"].astype(np.float64)
    return Data(x.reshape(len(x), -1) if x.ndim > 2 else x, arrays["y"].astype(np.float64) if "y" in arrays else None)


def _read_csv(path: Path) -> Data:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise LawfulError(f"{path}: not a CSV file ({error})") from None
    if len(rows) < 2:
        raise LawfulError(f"{path}: needs a header and at least one row")
    header = [name.strip() for name in rows[0]]
    values = np.empty((len(rows) - 1, len(header)))
    for number, row in enumerate(rows[1:]):
        if len(row) != len(header):
            raise LawfulError(f"{path}: line {number + 2} has {len(row)} cells, the header {len(header)}")
        for column, cell in enumerate(row):
            try:
                values[number, column] = float(cell)
            except ValueError:
                where = f"line {number + 2}, column {header[column]!r}"
                raise LawfulError(f"{path}: {where}: {cell[:40]!r} is not a number") from None
    target = np.array([name == "label" or (name[:1] == "y" and name[1:].isdigit()) or name == "y" for name in header])
    if target.all():
        raise LawfulError(f"{path}: has no input columns")
    y = values[:, target]
    return Data(values[:, ~target], None if not target.any() else y[:, 0] if target.sum() == 1 else y)


def _check(path: Path, data: Data, inputs: int | None) -> None:
    if data.x.ndim != 2 or not len(data.x):
        raise LawfulError(f"{path}: `x` has shape {data.x.shape}, expected (samples, inputs)")
    if inputs is not None and data.x.shape[1] != inputs:
        raise LawfulError(f"{path}: samples have {data.x.shape[1]} columns, but the network takes {inputs}")
    if data.y is not None and (data.y.ndim not in (1, 2) or len(data.y) != len(data.x)):
        raise LawfulError(f"{path}: {len(data.x)} samples but `y` has shape {data.y.shape}")
    for name, array in (("x", data.x), ("y", data.y)):
        if array is not None and not np.isfinite(array).all():
            place = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
            raise LawfulError(f"{path}: {name}{place} is not finite")
