"""Where a claim keeps a run that takes long: in a folder, so that it is taken up again after it was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory

_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextmanager
def keeping(folder: Path | None) -> Iterator[None]:
    """Long runs of claims inside this block are kept under `folder`, if there is one."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


@contextmanager
def long_run(name: str) -> Iterator[Path]:
    """A place for a run: the same one whenever the same folder is kept, else a temporary one.

    >>> with long_run("paths") as place:
    ...     place.name
    'paths'
    """
    folder = _FOLDER.get()
    if folder is not None:
        yield folder / name
    else:
        with TemporaryDirectory() as temporary:
            yield Path(temporary) / name
