"""Sketches of many checkpoints in one SQLite file, and which of them are most alike to another."""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from lawful.api.checkpoints.sketches import Families, pack
from lawful.api.inputs import rename
from lawful.api.sweeps import Plan, Store, run_sweep
from lawful.checkpoints.identity.sketch import NUMBERS, likeness
from lawful.checkpoints.opening import Model
from lawful.errors import LawfulError
from lawful.formats.io.reading import open_file
from lawful.formats.io.writing import check_target
from lawful.result import Shown
from lawful.symmetry.inputs import Input
from lawful.types import Floats

ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz")
MOST_ENTRIES, MOST_BLOCKS = 1_000_000, 10_000
MOST_STEPS = 200_000_000  # of SQLite's machine for one question: a file may hold a table that never ends
LEAVES = 24  # checkpoints in a tree: what a picture has room for
FEW = 8  # other checkpoints below which their mean says little
VERSION = 4  # of the sketches: those of another version are not comparable
TABLE = (
    "create table if not exists checkpoints (path text primary key, size integer, changed integer, family text, "
    "digest text, blocks integer, sketch blob)"
)


@dataclass(frozen=True)
class Indexed(Shown):
    """What `index_folder` did: checkpoints that are new, that were there already, and that could not be read."""

    index: str
    added: int
    kept: int
    failed: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Relative:
    """A checkpoint of the index: how alike it is (about 1 for copies and near children, about 0 for strangers)."""

    path: str
    likeness: float
    identical: bool


@dataclass(frozen=True)
class Join:
    """Two groups of checkpoints become one: its number is that of the checkpoints and of the joins before it."""

    groups: tuple[int, int]
    likeness: float  # mean over all pairs of a checkpoint of one group and one of the other


@dataclass(frozen=True)
class Relatives(Shown):
    """The most alike first. `calibrated` says whether enough others were there to take away what all have in common.

    `tree` joins the checkpoint (0) and its first relatives (1, 2, ...) two groups at a time, the most alike first.
    """

    relatives: tuple[Relative, ...]
    compared: int
    others: int
    calibrated: bool
    tree: tuple[Join, ...] = ()


def index_folder(
    places: Sequence[str | Path],
    index: str | Path,
    *,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Callable[[], None] | None = None,
) -> Indexed:
    """Sketch every checkpoint in folders (or given singly) and keep the sketches in an index file.

    Files that are in the index and have not changed are left alone, so the same call resumes an interrupted one. With
    `workers` or the `scheduler` of a Dask cluster, many are sketched at a time.
    """
    with _open_index(Path(index), write=True) as store:
        new: list[tuple[Path, int, int]] = []
        failed: list[tuple[str, str]] = []
        unchanged = 0
        for path in checkpoints_in(places):
            try:
                seen = path.stat() if not path.is_dir() else _weights_of(path).stat()
            except OSError as error:  # a link to nothing, or a file that has gone meanwhile
                failed.append((str(path), error.strerror or "cannot be read"))
                continue
            row = store.execute("select size, changed from checkpoints where path = ?", (str(path),)).fetchone()
            if row == (seen.st_size, seen.st_mtime_ns):
                unchanged += 1
            else:
                new.append((path, seen.st_size, seen.st_mtime_ns))
        if scheduler is None and workers is None:
            rows = _one_by_one(new, model, input)
        else:
            rows = _many(new, Path(index), model, input, scheduler, workers)
        added = 0
        for (path, size, changed), sketch in rows:
            if isinstance(sketch, str):
                failed.append((str(path), sketch))
            else:
                added += 1
                store.execute("insert or replace into checkpoints values (?, ?, ?, ?, ?, ?, ?)",
                              (str(path), size, changed, *sketch))  # fmt: skip
                store.commit()
            if progress is not None:
                progress()
    return Indexed(str(index), added, unchanged, tuple(failed))


NewFile = tuple[Path, int, int]  # with its size and when it was changed
Sketched = tuple[str, str, int, bytes]  # family, digest, blocks, sketch


def _one_by_one(
    new: list[NewFile], model: Model | None, input: Input | Sequence[Input] | None
) -> Iterator[tuple[NewFile, Sketched | str]]:
    families = Families(model, input)
    for file in new:
        try:
            family, digest, sketch = families.sketch(file[0])
        except LawfulError as error:
            yield file, str(error)
        else:
            yield file, (family, digest, len(sketch), pack(sketch))


def _many(
    new: list[NewFile],
    index: Path,
    model: Model | None,
    input: Input | Sequence[Input] | None,
    scheduler: str | None,
    workers: int | None,
) -> Iterator[tuple[NewFile, Sketched | str]]:
    """The same through a sweep, whose folder beside the index keeps what is finished until all is."""
    if model is not None and not isinstance(model, str):
        raise LawfulError("other processes make the module themselves: give the model as module:factory")
    sizes = [input] if isinstance(input, str) else list(input or ())
    if not all(isinstance(size, str) for size in sizes):
        raise LawfulError("other processes need the size of an input as text, like 3,8,8 or 8:int")
    texts = {"\t".join(str(part) for part in file): file for file in new}
    if not texts:
        return
    grid = {"file": list(texts), "model": [model or ""], "input": [";".join(str(size) for size in sizes)]}
    folder = index.with_name(index.name + ".sweep")
    run_sweep(Plan("sketch", grid), folder, scheduler=scheduler, workers=workers, retry_failed=True)
    store = Store(folder, write=False)
    for row in store.rows():
        out = row.outputs
        file = texts[str(row.inputs["file"])]
        if row.status == "ok":
            sketched = base64.b64decode(str(out["sketch"]))
            yield file, (str(out["family"]), str(out["digest"]), int(out["blocks"]), sketched)
        else:
            yield file, row.error.removeprefix("LawfulError: ")
    store.close()
    shutil.rmtree(folder)


@rename(most="top")
def find(
    checkpoint: str | Path,
    index: str | Path,
    *,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    top: int = 10,
) -> Relatives:
    """The checkpoints of an index that are most alike to this one, without opening their weights again."""
    if top < 1:
        raise LawfulError(f"asked for the {top} most alike: at least 1")
    family, digest, sketch = Families(model, input).sketch(Path(checkpoint))
    with _open_index(Path(index), write=False) as store:
        total = int(store.execute("select count(*) from checkpoints").fetchone()[0])
        rows = store.execute(
            "select path, digest, sketch from checkpoints where family = ? and blocks = ? limit ?",
            (family, len(sketch), MOST_ENTRIES),
        ).fetchall()
    entries = [(str(path), str(code), _unpack(blob, len(sketch))) for path, code, blob in rows]
    if not entries:
        return Relatives((), 0, total, False)
    table = np.array([entry for _, _, entry in entries])
    here = str(Path(checkpoint).resolve())
    others = np.array([path != here for path, _, _ in entries])
    calibrated = int(others.sum()) >= FEW
    mean = table[others].mean(axis=0) if calibrated else np.zeros_like(sketch)
    alike = likeness(sketch, table, mean)
    order = [int(place) for place in np.argsort(-alike) if others[place]][:top]
    relatives = tuple(Relative(entries[i][0], float(alike[i]), entries[i][1] == digest) for i in order)
    tree = _join(np.array([sketch, *(table[i] for i in order[: LEAVES - 1])]), mean)
    return Relatives(relatives, int(others.sum()), total, calibrated, tree)


def _join(sketches: Floats, mean: Floats) -> tuple[Join, ...]:
    """Average linkage: join the two groups whose members are most alike in the mean, until one is left."""
    groups = {number: [number] for number in range(len(sketches))}
    pairs = np.array([likeness(sketch, sketches, mean) for sketch in sketches])
    joins: list[Join] = []
    while len(groups) > 1:
        alike, one, two = max(
            (float(pairs[np.ix_(groups[a], groups[b])].mean()), a, b) for a, b in combinations(groups, 2)
        )
        groups[len(sketches) + len(joins)] = groups.pop(one) + groups.pop(two)
        joins.append(Join((one, two), alike))
    return tuple(joins)


def checkpoints_in(places: Sequence[str | Path]) -> list[Path]:
    """Checkpoint files below folders, folders of Hugging Face as one each; a file that is named counts in any case."""
    checkpoints: list[Path] = []
    for place in places:
        top = Path(place).resolve()
        if not top.exists():
            raise LawfulError(f"{place}: no such file or folder")
        if top.is_file() or _is_checkpoint(top):
            checkpoints.append(top)
            continue
        for folder, names, files in os.walk(top):
            whole = [name for name in sorted(names) if _is_checkpoint(Path(folder) / name)]
            checkpoints += [Path(folder) / name for name in whole]
            names[:] = sorted(set(names) - set(whole))
            checkpoints += [Path(folder) / name for name in sorted(files) if name.lower().endswith(ENDINGS)]
    return list(dict.fromkeys(checkpoints))


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _weights_of(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.is_file()), key=lambda each: each.stat().st_size)


def _unpack(blob: object, blocks: int) -> Floats:
    if not isinstance(blob, bytes) or len(blob) != 4 * NUMBERS * blocks:
        raise LawfulError("the index is damaged: a sketch has the wrong size")
    table = np.frombuffer(blob, dtype="<f4").astype(np.float64).reshape(blocks, NUMBERS)
    if not np.isfinite(table).all():
        raise LawfulError("the index is damaged: a sketch has entries that are not finite")
    return table


@contextmanager
def _open_index(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    """The index file; whatever is in it is data, and a question ends in bounded time."""
    if path.exists() or not write:
        with open_file(path) as stream:  # a regular file of bounded size, or an error that says why not
            if stream.read(16) not in (b"", b"SQLite format 3\0"):
                raise LawfulError(f"{path}: not an index of checkpoints")
    if write:
        check_target(path)
    new, mode = not path.exists(), "rwc" if write else "ro"
    store = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True)
    try:
        store.set_progress_handler(lambda: 1, MOST_STEPS)
        store.execute("pragma trusted_schema = off")
        version = store.execute("pragma user_version").fetchone()[0]
        if version != VERSION and not (write and not version):
            raise LawfulError(f"{path}: not an index of checkpoints, or one of another version: make it again")
        if write:
            store.execute(TABLE)
            store.execute(f"pragma user_version = {VERSION}")
        yield store
    except sqlite3.Error as error:
        raise LawfulError(f"{path}: the index cannot be used: {error}") from None
    finally:
        store.close()
        if new and path.exists() and not path.stat().st_size:  # the disk is full, say: nothing is left behind
            path.unlink()
