"""What happens on a worker: calls one after another, each with its row."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from lawful.api.sweeps.jobs import run_task
from lawful.api.sweeps.plan import Task
from lawful.api.sweeps.store import Finished

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ALONE = Lock()  # a worker with several threads still runs one call at a time: limits and results are per process


def run_chunk(tasks: tuple[Task, ...]) -> list[Finished]:
    """Run calls one after another; an exception is a failed row, not a lost one."""
    from lawful.version import __version__

    rows = []
    with _ALONE, _one_thread():
        for task in tasks:
            start = time.perf_counter()
            try:
                outputs = run_task(task)
                seconds = time.perf_counter() - start
                rows.append(Finished(task.key, task.job, dict(task.inputs), "ok", outputs, "", __version__, seconds))
            except Exception as error:  # whatever a job raises belongs in its row
                rows.append(failure(task, f"{type(error).__name__}: {error}", time.perf_counter() - start))
    return rows


def failure(task: Task, error: str, seconds: float = 0.0) -> Finished:
    """The record of a call that gave no answer."""
    from lawful.version import __version__

    line = " ".join(error.split())[:500].encode("utf-8", "backslashreplace").decode()
    return Finished(task.key, task.job, dict(task.inputs), "failed", {}, line, __version__, seconds)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One BLAS thread, as at home: sums in another order would differ in their last bits."""
    if all(os.environ.get(name) == "1" for name in THREADS):  # our own workers were started so
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
