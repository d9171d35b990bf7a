"""Where finished calls are kept: one SQLite file, each row durable at once, readable while the sweep runs."""

from __future__ import annotations

import fcntl
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lawful.errors import LawfulError
from lawful.study.sweep.plan import Plan

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
        try:
            if write:
                self._base.execute("PRAGMA journal_mode = WAL")
                self._base.executescript(SCHEMA)
            elif not self._base.execute("SELECT 1 FROM sqlite_master WHERE name = 'done'").fetchone():
                raise LawfulError(f"{folder}: the sweep has not started yet")
        except sqlite3.DatabaseError as error:
            raise LawfulError(f"{path}: cannot be read ({error})") from None

    def close(self) -> None:
        """Let go of the file (and of the lock)."""
        self._base.close()
        if hasattr(self, "_lock"):
            self._lock.close()

    def set_plan(self, plan: Plan) -> None:
        """Remember which calls belong to the table, in order; rows of an earlier plan stay and are used again."""
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
        except sqlite3.OperationalError as error:
            raise LawfulError(f"{self.folder}: cannot write ({error}); what was finished before is kept") from None

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
        query = (
            "SELECT key, job, inputs, status, outputs, error, version FROM plan JOIN done USING (key) ORDER BY position"
        )
        for row in self._base.execute(query):
            total.update(as_text(row).encode())
        return total.hexdigest()


def as_text(value: Any) -> str:
    """JSON with sorted keys: equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
