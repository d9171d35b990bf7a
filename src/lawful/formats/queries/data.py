"""Data sets from files: inputs `x`, one row per sample, and targets or labels `y` if there are any."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.formats.io.limits import check_numbers
from lawful.formats.io.reading import naming, open_file
from lawful.formats.tensors import npz as npz_format

FORMATS = (".npz", ".csv")
MAX_CSV = 256 * 2**20
MAX_LINE = 2**22
DOUBLED = 2.0**53  # from here on not every whole number is a double
ROUNDED = "is no double: subtract what all of them share, or divide"


@dataclass(frozen=True, eq=False)
class Data:
    """Samples in rows; `y` has one row (targets) or one number (labels) per sample, or is None.

    Labels that are words are numbered; `names` are the words, sorted. `sample` is the shape that each sample came in.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64] | None = None
    names: tuple[str, ...] | None = None
    sample: tuple[int, ...] | None = None

    def reshape(self, size: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """The samples as a network takes them, or as they came.

        >>> Data(np.zeros((2, 6)), sample=(3, 2)).reshape().shape
        (2, 3, 2)
        """
        shape = size or self.sample or self.x.shape[1:]
        if math.prod(shape) != self.x.shape[1]:
            raise LawfulError(f"samples of {self.x.shape[1]} numbers do not fit an input of size {shape}")
        return self.x.reshape(len(self.x), *shape)

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

    `inputs` is the number of columns that the network takes. Numbers that are not finite, and whole numbers so large
    that a double would round them, are refused with their place.
    """
    if path.suffix.lower() not in FORMATS:
        raise LawfulError(f"{path}: data come as {' or '.join(FORMATS)}")
    with naming(path):
        data = _read_npz(path) if path.suffix.lower() == ".npz" else _read_csv(path)
        _check(data, inputs)
    return data


def _read_npz(path: Path) -> Data:
    arrays = npz_format.load_arrays(path, kinds=npz_format.NUMBERS + "U")
    if "x" not in arrays or set(arrays) - {"x", "y"}:
        names = ", ".join(arrays) or "nothing"
        raise LawfulError(f"needs an array `x` and perhaps `y`, and has {names[:100]}")
    for name, values in arrays.items():
        if values.dtype.kind == "c":
            raise LawfulError(f"`{name}` is complex")
    x = doubles(arrays["x"], "x")
    sample = x.shape[1:] if x.ndim > 2 else None
    x = x if sample is None else x.reshape(len(x), math.prod(sample))  # -1 is undefined without samples
    if "y" in arrays and arrays["y"].dtype.kind == "U" and arrays["y"].ndim == 1:
        return Data(x, *_numbered_columns(arrays["y"]), sample)
    return Data(x, doubles(arrays["y"], "y") if "y" in arrays else None, sample=sample)


def doubles(values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Numbers as doubles; whole numbers beyond 2^53 that have no double of their value are refused.

    >>> doubles(np.array([2**53 + 1]), "x")
    Traceback (most recent call last):
    lawful.errors.LawfulError: x[0] = 9007199254740993 is no double: subtract what all of them share, or divide
    """
    if values.dtype.kind == "U":
        raise LawfulError(f"`{name}` holds text")
    rounded = values.astype(np.float64)
    if values.dtype.kind in "iuO":
        for place in np.argwhere(np.isfinite(rounded) & (np.abs(rounded) >= DOUBLED)):
            if int(values[tuple(place)]) != int(rounded[tuple(place)]):
                raise LawfulError(f"{name}{place.tolist()} = {values[tuple(place)]} {ROUNDED}")
    return rounded


def _numbered_columns(labels: NDArray[np.str_]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    names, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.float64), tuple(str(name) for name in names)


def _read_csv(path: Path) -> Data:
    cells, labels = array("d"), list[str]()
    with open_file(path, MAX_CSV) as file:
        lines = csv.reader(_lines(io.TextIOWrapper(file, encoding="utf-8-sig", newline="")))
        try:
            header = [name.strip() for name in next(lines, [])]
            target = [name in ("y", "label") or (name[:1] == "y" and name[1:].isdigit()) for name in header]
            word = target.index(True) if sum(target) == 1 else None  # a column that may hold words
            for row in filter(None, lines):
                if len(row) != len(header):
                    raise LawfulError(f"line {lines.line_num} has {len(row)} cells, the header {len(header)}")
                if word is not None:
                    labels.append(row[word].strip())
                    if not labels[-1]:
                        raise LawfulError(f"line {lines.line_num}: the label is missing")
                    row[word] = "0"
                cells.extend(map(_double, row))
                check_numbers("the file", (len(cells),))
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise LawfulError(f"not a CSV file ({error})") from None
            column, cell = _not_a_number(row)
            raise LawfulError(f"line {lines.line_num}, column {header[column]!r}: {cell!r} {_why_not(cell)}") from None
        except csv.Error as error:
            raise LawfulError(f"not a CSV file ({error})") from None
    if not cells:
        raise LawfulError("needs a header and at least one row")
    values, chosen = np.frombuffer(cells).reshape(-1, len(header)), np.array(target)
    if chosen.all():
        raise LawfulError("has no input columns")
    x = values[:, ~chosen]
    if word is None:
        return Data(x, values[:, chosen] if chosen.any() else None)
    try:
        return Data(x, np.array([_double(label) for label in labels]))
    except ValueError:
        return Data(x, *_numbered_columns(np.array(labels)))


def _double(cell: str) -> float:
    """The cell's number; a whole number that a double would round is an error."""
    value = float(cell)
    if abs(value) >= DOUBLED and cell.strip().lstrip("+-").isdecimal() and int(cell) != int(value):
        raise ValueError
    return value


def _why_not(cell: str) -> str:
    return ROUNDED if cell.strip().lstrip("+-").isdecimal() else "is not a number"


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise LawfulError(f"has a line of more than {MAX_LINE:,} characters")
        yield line


def _not_a_number(row: list[str]) -> tuple[int, str]:
    for column, cell in enumerate(row):
        try:
            _double(cell)
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
