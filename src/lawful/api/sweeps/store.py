"""Where finished calls are kept: one SQLite file, each row durable at once, readable while the sweep runs."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lawful.api.sweeps.plan import Plan
from lawful.errors import LawfulError
from lawful.formats.io.reading import MAX_TEXT, naming, open_file, parse_json
from lawful.formats.io.writing import make_folder

MAX_CALLS = 10_000_000
MAX_STORE = 2**40

SCHEMA = """
CREATE TABLE IF NOT EXISTS plan (position INTEGER PRIMARY KEY, key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (
    key TEXT PRIMARY KEY, job TEXT NOT NULL, inputs TEXT NOT NULL, status TEXT NOT NULL,
    outputs TEXT NOT NULL, error TEXT NOT NULL, version TEXT NOT NULL, seconds REAL NOT NULL);
"""


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
    A file that somebody else made is read only if it has our two tables and nothing else.
    """

    def __init__(self, folder: Path, *, write: bool) -> None:
        self.folder = folder
        path = folder / "results.sqlite"
        if write:
            make_folder(folder)
            self._lock = _lock(folder)
        elif not path.exists():
            raise LawfulError(f"{folder}: not a sweep's folder (no results.sqlite)")
        with self._naming_damage():
            self._base = _connect(path)
            tables = self._tables()
            if write and not tables:
                self._base.execute("PRAGMA journal_mode = WAL")
                self._base.executescript(SCHEMA)
            elif not tables:
                raise LawfulError("the sweep has not started yet")
            elif tables != {" ".join(line.split()) for line in SCHEMA.split(";") if line.strip()}:
                raise LawfulError("results.sqlite does not hold a sweep's two tables")

    def _tables(self) -> set[str]:
        """Everything that the file defines, as text, spaces made equal."""
        rows = self._base.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 10")
        return {" ".join(sql.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ").split()) for (sql,) in rows}

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        with naming(self.folder):
            try:
                yield
            except (sqlite3.Error, TypeError, ValueError, OverflowError, RecursionError) as error:
                raise LawfulError(f"results.sqlite cannot be read ({error})") from None

    def close(self) -> None:
        """Let go of the file (and of the lock)."""
        self._base.close()
        if hasattr(self, "_lock"):
            self._lock.close()

    def set_plan(self, plan: Plan) -> None:
        """Remember which calls belong to the table, in order; rows of an earlier plan stay and are used again."""
        if len(plan) > MAX_CALLS:
            raise LawfulError(f"{len(plan):,} calls are more than the {MAX_CALLS:,} of one sweep: split it")
        with self._writing():
            self._base.execute("DELETE FROM plan")
            self._base.executemany(
                "INSERT INTO plan VALUES (?, ?)", ((task.position, task.key) for task in plan.tasks())
            )

    def has(self, key: str) -> bool:
        """Whether the call with this key is finished."""
        return self._base.execute("SELECT 1 FROM done WHERE key = ?", (key,)).fetchone() is not None

    def add(self, rows: Iterable[Finished]) -> None:
        """Keep finished calls; when this returns they survive the death of the process."""
        values = [
            (r.key, r.job, as_text(r.inputs), r.status, as_text(r.outputs), r.error, r.version, r.seconds) for r in rows
        ]
        with self._writing():
            self._base.executemany("INSERT OR IGNORE INTO done VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def forget_failures(self) -> None:
        """Let failed calls run again."""
        with self._writing():
            self._base.execute("DELETE FROM done WHERE status = 'failed'")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        try:
            with self._base:
                yield
        except sqlite3.Error as error:
            raise LawfulError(f"{self.folder}: cannot write ({error}); what was finished before is kept") from None

    def progress(self) -> Progress:
        """Counts over the current plan."""
        with self._naming_damage():
            row = self._base.execute(
                "SELECT COUNT(*), COUNT(done.key), SUM(done.status = 'failed'), SUM(done.seconds) "
                "FROM plan LEFT JOIN done USING (key)"
            ).fetchone()
            return Progress(row[0], row[1], row[2] or 0, float(row[3] or 0.0))

    def rows(self) -> Iterator[Finished]:
        """Finished calls in the order of the plan, whichever order they ran in."""
        for *texts, seconds in self._select(", seconds"):
            with self._naming_damage():
                key, job, inputs, status, outputs, error, version = texts
                asked, answered = parse_json(inputs), parse_json(outputs)
                if not (isinstance(asked, dict) and isinstance(answered, dict) and status in ("ok", "failed")):
                    raise ValueError(f"the row of call {key[:40]!r} is damaged")
                yield Finished(key, job, asked, status, answered, error, version, float(seconds))

    def digest(self) -> str:
        """A hash of everything but durations: equal for equal results, wherever and in whatever order they ran."""
        total = hashlib.sha256()
        for row in self._select():
            total.update(as_text(row).encode())
        return total.hexdigest()

    def _select(self, more: str = "") -> Iterator[tuple[Any, ...]]:
        """The rows of the plan: seven texts, and what else is asked for."""
        with self._naming_damage():
            columns = f"key, job, inputs, status, outputs, error, version{more}"
            for row in self._base.execute(f"SELECT {columns} FROM plan JOIN done USING (key) ORDER BY position"):  # noqa: S608
                if not all(isinstance(text, str) for text in row[:7]):
                    raise ValueError("a row is damaged")
                yield row


def _connect(path: Path, timeout: float = 30.0) -> sqlite3.Connection:
    """SQLite opens regular files only; a row has at most as many letters as any text that we read."""
    if path.exists():
        with open_file(path, MAX_STORE):
            pass
    connection = sqlite3.connect(path, timeout=timeout)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT)
    return connection


def _lock(folder: Path) -> sqlite3.Connection:
    """An open transaction on a file of its own: every system has it, and it ends with the process."""
    file = folder / "lock"
    existed = file.exists()
    lock = _connect(file, 0.0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        lock.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise LawfulError(f"{folder}: another sweep is writing here") from None
        if not existed:  # a full disk, say: nothing is left behind
            file.unlink(missing_ok=True)
        raise LawfulError(f"{folder}: cannot be written ({error})") from None
    return lock


def as_text(value: Any) -> str:
    """JSON with sorted keys: equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
