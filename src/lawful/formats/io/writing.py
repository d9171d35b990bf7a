"""The one way out: a file or folder appears whole or not at all, and what it replaces stays until then."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(Path(folder) / "a.txt", b"whole")
    ...     [(file.name, file.read_bytes()) for file in Path(folder).iterdir()]
    [('a.txt', b'whole')]
    """
    with replacing(path) as draft:
        draft.write_bytes(content)


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8, whole or not at all; half a surrogate pair is written as its escape."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A draft beside the file: it takes the file's place when all went well, and is gone otherwise."""
    with naming(path):
        target = check_target(path)
        draft = _beside(target)
        try:
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            if target.exists():
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            yield draft
            _to_disk(draft)
            draft.replace(target)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A draft of a folder that must not exist yet: it gets its name when all went well, and is gone otherwise."""
    path = Path(path)
    with naming(path):
        if path.exists():
            raise LawfulError("exists already: name a new folder")
        if not path.absolute().parent.is_dir():
            raise LawfulError("its parent folder does not exist: make it first")
        draft = _beside(path)
        try:
            draft.mkdir()
            yield draft
            for file in draft.rglob("*"):
                if file.is_file():
                    _to_disk(file)
            draft.rename(path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def make_folder(path: str | Path) -> Path:
    """A folder that may exist already."""
    with naming(path):
        if Path(path).exists() and not Path(path).is_dir():
            raise LawfulError("is a file, not a folder")
        Path(path).mkdir(parents=True, exist_ok=True)
        return Path(path)


def check_target(path: str | Path) -> Path:
    """Where a file of this name would be written (links are followed), or why it cannot be."""
    with naming(path):
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise LawfulError("is a folder, not a file")
        if target.exists() and not target.is_file():
            raise LawfulError("is not a regular file: nothing is written there")
        if not target.parent.is_dir():
            raise LawfulError("its folder does not exist: make it first")
        return target


def _beside(target: Path) -> Path:
    """A name that nobody has: the target's own may be as long as names can be."""
    return target.parent / f".{secrets.token_hex(8)}.part"


def _to_disk(file: Path) -> None:
    """Where the disk is full, some systems say so only now."""
    number = os.open(file, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(number)
    finally:
        os.close(number)
