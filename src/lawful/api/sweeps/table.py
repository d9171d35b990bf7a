"""The results as one tidy table, written in batches: a hundred thousand rows take no more memory than a thousand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lawful.api.sweeps.store import Finished, Store, as_text
from lawful.formats.io.writing import replacing

NUMBER = re.compile(r"[-+]?\d{1,400}(\.\d{0,400})?([eE][-+]?\d{1,4})?")
FIXED = ("job", "status", "error", "version", "seconds")
BATCH = 2000


@dataclass(frozen=True)
class Column:
    """A column's name, where a row has its values, and of which kinds they are."""

    name: str
    part: str
    key: str
    kinds: set[str]

    def read(self, row: Finished) -> Any:
        """The row's value, or None."""
        return getattr(row, self.part).get(self.key) if self.part else getattr(row, self.key)


def write_tables(store: Store, *, csv: bool = False) -> Path:
    """Write `results.parquet` (and `.csv`): one row per call, inputs and outputs as columns.

    The first pass over the rows finds columns and types, the second writes. A file appears whole or not at all.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    columns = _columns(store)
    schema = pa.schema([(column.name, _type(column.kinds)) for column in columns])
    writers: dict[str, Callable[..., Any]] = {"parquet": pyarrow.parquet.ParquetWriter}
    if csv:
        writers["csv"] = pyarrow.csv.CSVWriter
    names = {"parquet": schema.names, "csv": [no_formula(name) for name in schema.names]}
    with ExitStack() as stack:
        drafts = {kind: stack.enter_context(replacing(store.folder / f"results.{kind}")) for kind in writers}
        with ExitStack() as files:
            open_files = {
                kind: files.enter_context(writers[kind](str(draft), _rename_columns(schema, names[kind])))
                for kind, draft in drafts.items()
            }
            for rows in _batches(store.rows()):
                cells = [
                    [_cell(column.read(row), field.type) for row in rows]
                    for column, field in zip(columns, schema, strict=True)
                ]
                for kind, file in open_files.items():
                    safe = [[no_formula(cell) for cell in cells_of] for cells_of in cells] if kind == "csv" else cells
                    arrays = [pa.array(column, kind) for column, kind in zip(safe, schema.types, strict=True)]
                    file.write_batch(pa.record_batch(arrays, schema=_rename_columns(schema, names[kind])))
    return store.folder / "results.parquet"


def _rename_columns(schema: Any, names: list[str]) -> Any:
    import pyarrow as pa

    return pa.schema(list(zip(names, schema.types, strict=True)))


def no_formula(cell: Any) -> Any:
    """A text that a spreadsheet would compute gets an apostrophe before it; numbers stay as they are.

    >>> no_formula("=1+1"), no_formula("-1.5"), no_formula(-1.5), no_formula("3-4-2 relu")
    ("'=1+1", '-1.5', -1.5, '3-4-2 relu')
    """
    if not isinstance(cell, str) or not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")):
        return cell
    return cell if NUMBER.fullmatch(cell) else f"'{cell}"


def _batches(rows: Iterator[Finished]) -> Iterator[list[Finished]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _columns(store: Store) -> list[Column]:
    """Inputs, then outputs, then what every row has; a name that is taken gets a prefix."""
    kinds_by_part: dict[str, dict[str, set[str]]] = {"inputs": {}, "outputs": {}}
    for row in store.rows():
        for part, kinds in kinds_by_part.items():
            for key, value in getattr(row, part).items():
                kinds.setdefault(key, set()).add(_kind(value))
    fixed = {key: {"float" if key == "seconds" else "str"} for key in FIXED}
    taken: set[str] = set()
    parts = {}
    for part, prefix, columns in (
        ("inputs", "input_", kinds_by_part["inputs"]),
        ("", "sweep_", fixed),
        ("outputs", "output_", kinds_by_part["outputs"]),
    ):
        parts[part] = [Column(_free(key, prefix, taken), part, key, kinds) for key, kinds in columns.items()]
    return [*parts["inputs"], *parts["outputs"], *parts[""]]


def _free(name: str, prefix: str, taken: set[str]) -> str:
    while name in taken:
        name = prefix + name
    taken.add(name)
    return name


def _kind(value: Any) -> str:
    return "huge" if isinstance(value, int) and not -(2**63) <= value < 2**63 else type(value).__name__


def _type(kinds: set[str]) -> Any:
    """The column's type; values of mixed type, lists and whole numbers beyond 64 bits become text."""
    import pyarrow as pa

    kinds = kinds - {"NoneType"}
    if not kinds:
        return pa.null()
    if kinds == {"int", "float"}:
        return pa.float64()
    simple = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string()}
    return simple.get(min(kinds), pa.string()) if len(kinds) == 1 else pa.string()


def _cell(value: Any, kind: Any) -> Any:
    import pyarrow as pa

    if value is None:
        return None
    if kind == pa.float64():
        return float(value)
    return as_text(value) if kind == pa.string() and not isinstance(value, str) else value
