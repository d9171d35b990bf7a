"""Data sets from files: inputs `x`, one row per sample, and targets or labels `y` if there are any."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.network.formats import npz as npz_format
from lawful.network.formats.limits import check_numbers
from lawful.network.formats.reading import naming, open_file

FORMATS = (".npz", ".csv")
MAX_CSV = 256 * 2**20
MAX_LINE = 2**22


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
        whole = (labels == np.round(labels)) & (np.abs(labels) <= 2**53)
        return labels.astype(np.int64) if whole.all() else None


def read_data(path: Path, inputs: int | None = None) -> Data:
    """Read `.npz` (arrays `x` and perhaps `y`) or `.csv` (a header; columns named y, y0, y1, ... or label are targets).

    `inputs` is the number of columns that the network takes. Non-finite numbers are refused, with their place.
    """
    if path.suffix.lower() not in FORMATS:
        raise LawfulError(f"{path}: data come as {' or '.join(FORMATS)}")
    with naming(path):
        found = _read_npz(path) if path.suffix.lower() == ".npz" else _read_csv(path)
        _check(found, inputs)
    return found


def _read_npz(path: Path) -> Data:
    arrays = npz_format.load_arrays(path)
    if "x" not in arrays or set(arrays) - {"x", "y"}:
        names = ", ".join(arrays) or "nothing"
        raise LawfulError(f"needs an array `x` and perhaps `y`, and has {names[:100]}")
    for name, values in arrays.items():
        if values.dtype.kind == "c":
            raise LawfulError(f"`{name}` is complex")
    x = arrays["x"].astype(np.float64)
    return Data(x.reshape(len(x), -1) if x.ndim > 2 else x, arrays["y"].astype(np.float64) if "y" in arrays else None)


def _read_csv(path: Path) -> Data:
    cells = array("d")
    with open_file(path, MAX_CSV) as file:
        lines = csv.reader(_lines(io.TextIOWrapper(file, encoding="utf-8-sig", newline="")))
        try:
            header = [name.strip() for name in next(lines, [])]
            for row in filter(None, lines):
                if len(row) != len(header):
                    raise LawfulError(f"line {lines.line_num} has {len(row)} cells, the header {len(header)}")
                cells.extend(map(float, row))
                check_numbers("the file", (len(cells),))
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise LawfulError(f"not a CSV file ({error})") from None
            column, cell = _not_a_number(row)
            raise LawfulError(f"line {lines.line_num}, column {header[column]!r}: {cell!r} is not a number") from None
        except csv.Error as error:
            raise LawfulError(f"not a CSV file ({error})") from None
    if not cells:
        raise LawfulError("needs a header and at least one row")
    values = np.frombuffer(cells).reshape(-1, len(header))
    target = np.array([name == "label" or (name[:1] == "y" and name[1:].isdigit()) or name == "y" for name in header])
    if target.all():
        raise LawfulError("has no input columns")
    y = values[:, target]
    return Data(values[:, ~target], None if not target.any() else y[:, 0] if target.sum() == 1 else y)


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise LawfulError(f"has a line of more than {MAX_LINE:,} characters")
        yield line


def _not_a_number(row: list[str]) -> tuple[int, str]:
    for column, cell in enumerate(row):
        try:
            float(cell)
        except ValueError:
            return column, cell[:40]
    return 0, row[0][:40]


def _check(data: Data, inputs: int | None) -> None:
    if data.x.ndim != 2 or not len(data.x):
        raise LawfulError(f"`x` has shape {data.x.shape}, expected (samples, inputs)")
    if inputs is not None and data.x.shape[1] != inputs:
        raise LawfulError(f"samples have {data.x.shape[1]} columns, but the network takes {inputs}")
    if data.y is not None and (data.y.ndim not in (1, 2) or len(data.y) != len(data.x)):
        raise LawfulError(f"{len(data.x)} samples but `y` has shape {data.y.shape}")
    for name, values in (("x", data.x), ("y", data.y)):
        if values is not None and not np.isfinite(values).all():
            place = [int(i) for i in np.argwhere(~np.isfinite(values))[0]]
            raise LawfulError(f"{name}{place} is not finite")
