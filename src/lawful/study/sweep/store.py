"""Where finished calls are kept: one SQLite file, each row durable at once, readable while the sweep runs."""

from __future__ import annotations

import fcntl
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lawful.errors import LawfulError
from lawful.study.sweep.plan import Plan, Task

SCHEMA = """
CREATE TABLE IF NOT EXISTS plan (position INTEGER PRIMARY KEY, key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (
    key TEXT PRIMARY KEY, job TEXT NOT NULL, inputs TEXT NOT NULL, status TEXT NOT NULL,
    outputs TEXT NOT NULL, error TEXT NOT NULL, version TEXT NOT NULL, seconds REAL NOT NULL);
"""
FIXED = ("job", "status", "error", "version", "seconds")


@dataclass(frozen=True)
class Finished:
    """What one call gave: `status` is ok or failed; `outputs` are flat; `error` is one line."""

    key: str
    job: str
    inputs: Mapping[str, Any]
    status: str
    outputs: Mapping[str, Any]
    error: str
    version: str
    seconds: float


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    planned: int
    finished: int
    failed: int
    seconds: float


class Store:
    """The results of one sweep. Only one process writes; any number may read.

    SQLite's write-ahead log keeps every committed row through `kill -9`; a full disk fails one commit, not the rest.
    """

    def __init__(self, folder: Path, *, write: bool) -> None:
        self.folder = folder
        path = folder / "results.sqlite"
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LawfulError(f"{folder}: another sweep is writing here") from None
        elif not path.exists():
            raise LawfulError(f"{folder}: not a sweep's folder (no results.sqlite)")
        self._base = sqlite3.connect(path, timeout=30)
        if write:
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.executescript(SCHEMA)
        elif not self._base.execute("SELECT 1 FROM sqlite_master WHERE name = 'done'").fetchone():
            raise LawfulError(f"{folder}: the sweep has not started yet")

    def close(self) -> None:
        """Let go of the file (and of the lock)."""
        self._base.close()
        if hasattr(self, "_lock"):
            self._lock.close()

    def set_plan(self, plan: Plan) -> None:
        """Remember which calls belong to the table, in order; rows of an earlier plan stay and are used again."""
        with self._base:
            self._base.execute("DELETE FROM plan")
            self._base.executemany(
                "INSERT INTO plan VALUES (?, ?)", ((task.position, task.key) for task in plan.tasks())
            )

    def has(self, task: Task) -> bool:
        """Whether this call is finished."""
        return self._base.execute("SELECT 1 FROM done WHERE key = ?", (task.key,)).fetchone() is not None

    def add(self, rows: Iterable[Finished]) -> None:
        """Keep finished calls; when this returns they survive the death of the process."""
        values = [
            (r.key, r.job, _text(r.inputs), r.status, _text(r.outputs), r.error, r.version, r.seconds) for r in rows
        ]
        try:
            with self._base:
                self._base.executemany("INSERT OR IGNORE INTO done VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        except sqlite3.OperationalError as error:
            raise LawfulError(f"{self.folder}: cannot write ({error}); what was finished before is kept") from None

    def forget_failures(self) -> None:
        """Let failed calls run again."""
        with self._base:
            self._base.execute("DELETE FROM done WHERE status = 'failed'")

    def progress(self) -> Progress:
        """Counts over the current plan."""
        row = self._base.execute(
            "SELECT COUNT(*), COUNT(done.key), SUM(done.status = 'failed'), SUM(done.seconds) "
            "FROM plan LEFT JOIN done USING (key)"
        ).fetchone()
        return Progress(row[0], row[1], row[2] or 0, row[3] or 0.0)

    def rows(self) -> Iterator[Finished]:
        """Finished calls in the order of the plan, whichever order they ran in."""
        query = (
            "SELECT key, job, inputs, status, outputs, error, version, seconds "
            "FROM plan JOIN done USING (key) ORDER BY position"
        )
        for key, job, inputs, status, outputs, error, version, seconds in self._base.execute(query):
            yield Finished(key, job, json.loads(inputs), status, json.loads(outputs), error, version, seconds)

    def digest(self) -> str:
        """A hash of everything but durations: equal for equal results, wherever and in whatever order they ran."""
        total = hashlib.sha256()
        for r in self.rows():
            total.update(_text([r.key, r.job, r.inputs, r.status, r.outputs, r.error, r.version]).encode())
        return total.hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def write_tables(store: Store, *, csv: bool = False) -> Path:
    """Write `results.parquet` (and `.csv`): one tidy row per call, inputs and outputs as columns."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rows = list(store.rows())
    names: dict[str, dict[str, None]] = {"input": {}, "output": {}}
    for r in rows:
        names["input"].update(dict.fromkeys(r.inputs))
        names["output"].update(dict.fromkeys(r.outputs))
    columns: dict[str, list[Any]] = {f"{name}": [r.inputs.get(name) for r in rows] for name in names["input"]}
    for name in names["output"]:
        label = name if name not in columns and name not in FIXED else f"output_{name}"
        columns[label] = [r.outputs.get(name) for r in rows]
    for name in FIXED:
        columns[name if name not in columns else f"sweep_{name}"] = [getattr(r, name) for r in rows]
    table = pa.table({name: _column(values) for name, values in columns.items()})
    path = store.folder / "results.parquet"
    pyarrow.parquet.write_table(table, path)
    if csv:
        pyarrow.csv.write_csv(table, store.folder / "results.csv")
    return path


def _column(values: list[Any]) -> Any:
    """A typed column; values of mixed type become text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        values = [None if value is None else float(value) for value in values]
    elif len(kinds) > 1 or kinds & {list, dict}:
        values = [None if value is None else value if isinstance(value, str) else _text(value) for value in values]
    return pa.array(values)
