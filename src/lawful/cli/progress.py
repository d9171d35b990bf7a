"""Signs of life on a terminal's stderr; silent in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(name: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar: tell it what is being done, and which part of all, from 0 to 1, is finished.

    >>> with bar("flow") as tell:
    ...     tell("loss 0.5", 0.25)
    """
    if not sys.stderr.isatty():
        yield lambda words, part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda words, part: progress.update(task, completed=part, description=f"{name} {words}")


@contextmanager
def working(words: str) -> Iterator[None]:
    """A spinner, for work whose end is not in sight."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


@contextmanager
def told(words: str) -> Iterator[Callable[[str], None]]:
    """A spinner that says what is being done."""
    if not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console

    with Console(stderr=True).status(words) as status:
        yield lambda more: status.update(f"{words}: {more}")


@contextmanager
def counter(noun: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar that counts things, of which there may be any number."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(noun, total=total)
        yield lambda: progress.update(task, advance=1)
