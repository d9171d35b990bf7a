"""Sketches of many checkpoints in one SQLite file, and which of them are most alike to another."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lawful.checkpoints.architecture import CheckpointArchitecture, read_architecture
from lawful.checkpoints.folds import State
from lawful.checkpoints.opening import TOKENS, Model, open_checkpoint
from lawful.checkpoints.sketch import NUMBERS, likeness, sketch
from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.network.formats.reading import open_file
from lawful.network.formats.writing import check_target
from lawful.network.modules import hugging_face
from lawful.network.modules.convert import to_module
from lawful.network.modules.load import make_module
from lawful.network.opening import open as open_network
from lawful.shown import Shown
from lawful.symmetry.inputs import Input
from lawful.types import Floats

ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".npz")
MOST_ENTRIES, MOST_BLOCKS = 1_000_000, 10_000
MOST_STEPS = 200_000_000  # of SQLite's machine for one question: a file may hold a table that never ends
FEW = 8  # other checkpoints below which their mean says little
VERSION = 1
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
class Relatives(Shown):
    """The most alike first. `calibrated` says whether enough others were there to take away what all have in common."""

    relatives: tuple[Relative, ...]
    compared: int
    others: int
    calibrated: bool


def index_folder(
    places: Sequence[str | Path],
    index: str | Path,
    *,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    progress: Callable[[], None] | None = None,
) -> Indexed:
    """Sketch every checkpoint in folders (or given singly) and keep the sketches in an index file.

    Files that are in the index and have not changed are left alone, so the same call goes on where it stopped.
    """
    families = Families(model, input)
    added = kept = 0
    failed: list[tuple[str, str]] = []
    with _opened(Path(index), write=True) as store:
        for path in checkpoints_in(places):
            seen = path.stat() if path.is_file() else _weights_of(path).stat()
            row = store.execute("select size, changed from checkpoints where path = ?", (str(path),)).fetchone()
            if row == (seen.st_size, seen.st_mtime_ns):
                kept += 1
            else:
                try:
                    family, digest, found = families.sketch(path)
                except LawfulError as error:
                    failed.append((str(path), str(error)))
                else:
                    entry = (str(path), seen.st_size, seen.st_mtime_ns, family, digest, len(found), _packed(found))
                    store.execute("insert or replace into checkpoints values (?, ?, ?, ?, ?, ?, ?)", entry)
                    store.commit()
                    added += 1
            if progress is not None:
                progress()
    return Indexed(str(index), added, kept, tuple(failed))


def find(
    checkpoint: str | Path,
    index: str | Path,
    *,
    model: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    most: int = 10,
) -> Relatives:
    """The checkpoints of an index that are most alike to this one, without opening their weights again."""
    if most < 1:
        raise LawfulError(f"asked for the {most} most alike: at least 1")
    family, digest, own = Families(model, input).sketch(Path(checkpoint))
    with _opened(Path(index), write=False) as store:
        total = int(store.execute("select count(*) from checkpoints").fetchone()[0])
        rows = store.execute(
            "select path, digest, sketch from checkpoints where family = ? and blocks = ? limit ?",
            (family, len(own), MOST_ENTRIES),
        ).fetchall()
    entries = [(str(path), str(code), _unpacked(blob, len(own))) for path, code, blob in rows]
    if not entries:
        return Relatives((), 0, total, False)
    table = np.array([each for _, _, each in entries])
    here = str(Path(checkpoint).resolve())
    others = np.array([path != here for path, _, _ in entries])
    calibrated = int(others.sum()) >= FEW
    mean = table[others].mean(axis=0) if calibrated else np.zeros_like(own)
    alike = likeness(own, table, mean)
    order = [int(place) for place in np.argsort(-alike) if others[place]][:most]
    relatives = tuple(Relative(entries[i][0], float(alike[i]), entries[i][1] == digest) for i in order)
    return Relatives(relatives, int(others.sum()), total, calibrated)


def checkpoints_in(places: Sequence[str | Path]) -> list[Path]:
    """Checkpoint files below folders, folders of Hugging Face as one each; a file that is named counts in any case."""
    found: list[Path] = []
    for place in places:
        top = Path(place).resolve()
        if not top.exists():
            raise LawfulError(f"{place}: no such file or folder")
        if top.is_file() or _is_checkpoint(top):
            found.append(top)
            continue
        for folder, names, files in os.walk(top):
            whole = [name for name in sorted(names) if _is_checkpoint(Path(folder) / name)]
            found += [Path(folder) / name for name in whole]
            names[:] = sorted(set(names) - set(whole))
            found += [Path(folder) / name for name in sorted(files) if name.lower().endswith(ENDINGS)]
    return list(dict.fromkeys(found))


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _weights_of(folder: Path) -> Path:
    return max((each for each in folder.iterdir() if each.is_file()), key=lambda each: each.stat().st_size)


class Families:
    """Architectures that were read already, and sketches of checkpoints of any of them."""

    def __init__(self, model: Model | None, input: Input | Sequence[Input] | None) -> None:
        self.input = input
        self.module = None if model is None else make_module(model)
        self._read: dict[str, CheckpointArchitecture] = {}

    def sketch(self, path: Path) -> tuple[str, str, Floats]:
        """The family of a checkpoint (a digest of names and shapes), a digest of its numbers, and its sketch."""
        module, input, state = self._opened(path)
        shapes = [(name, tuple(tensor.shape)) for name, tensor in state.items()]
        family = hashlib.sha256(repr((str(module), shapes, str(input))).encode()).hexdigest()[:32]
        if family not in self._read:
            self._read[family] = read_architecture(module, input)
        found = sketch(self._read[family], state)
        if not found.any():
            raise LawfulError(f"{path}: its outputs and weights are all zero, or not finite")
        return family, _digest(state), found

    def _opened(self, path: Path) -> tuple[torch.nn.Module, Input | Sequence[Input] | None, State]:
        if self.module is not None:
            return self.module, self.input, open_checkpoint(path, self.module).state
        if path.is_dir():
            module, size, _ = hugging_face.module_of(path)
            return module, self.input or size or TOKENS, open_checkpoint(path, module).state
        found = open_network(path)
        if not isinstance(found, Mlp):
            raise LawfulError(f"{path}: weights alone do not say what is computed with them: give --model")
        module = to_module(found)
        return module, (found.widths[0],), dict(module.state_dict())


def _digest(state: State) -> str:
    code = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        code.update(name.encode())
        code.update(tensor.detach().cpu().double().contiguous().numpy().tobytes())
    return code.hexdigest()[:32]


def _packed(found: Floats) -> bytes:
    return np.round(found, 5).astype("<f4").tobytes()


def _unpacked(blob: object, blocks: int) -> Floats:
    if not isinstance(blob, bytes) or len(blob) != 4 * NUMBERS * blocks:
        raise LawfulError("the index is damaged: a sketch has the wrong size")
    table = np.frombuffer(blob, dtype="<f4").astype(np.float64).reshape(blocks, NUMBERS)
    if not np.isfinite(table).all():
        raise LawfulError("the index is damaged: a sketch has entries that are not finite")
    return table


@contextmanager
def _opened(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
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
        if write:
            store.execute(TABLE)
            store.execute(f"pragma user_version = {VERSION}")
        elif store.execute("pragma user_version").fetchone()[0] != VERSION:
            raise LawfulError(f"{path}: not an index of checkpoints, or one of another version")
        yield store
    except sqlite3.Error as error:
        raise LawfulError(f"{path}: the index cannot be used: {error}") from None
    finally:
        store.close()
        if new and path.exists() and not path.stat().st_size:  # the disk is full, say: nothing is left behind
            path.unlink()
