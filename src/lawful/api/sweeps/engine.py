"""Run a plan on Dask: local processes or a running cluster, the same results either way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lawful.api.sweeps.dispatch import Dispatcher
from lawful.api.sweeps.jobs import check_inputs
from lawful.api.sweeps.plan import Plan, read_plan
from lawful.api.sweeps.store import Progress, Store
from lawful.api.sweeps.table import write_tables
from lawful.api.sweeps.work import THREADS
from lawful.errors import LawfulError

SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,  # we decide what to try again
    "distributed.deploy.lost-worker-timeout": "1 hour",  # on a busy machine a process may need long to start again
    "distributed.admin.low-level-log-length": 100,  # the default remembers 100,000 steps: memory must be flat
    "distributed.worker.daemon": True,
    "distributed.worker.preload": ["lawful.api.sweeps.work"],  # imports must not count as a call's time
    "distributed.scheduler.http.routes": [],  # no pages to serve
    "distributed.admin.log-format": "",
    "logging.distributed": "critical",
    # One thread each, for BLAS too: two processes with two threads each run many times slower.
    "distributed.nanny.environ": dict.fromkeys(THREADS, "1"),
    "distributed.nanny.pre-spawn-environ": dict.fromkeys(THREADS, "1"),
}


def run_sweep(
    plan: Plan | str | Path,
    out: str | Path,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    csv: bool = False,
    retry_failed: bool = False,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Run every call of the plan that is not finished yet, keep each result at once, and write the table.

    Stopping this process at any moment loses at most the calls in flight; running it again goes on from there.
    """
    plan = plan if isinstance(plan, Plan) else read_plan(Path(plan))
    check_inputs(plan.job, list(plan.values))
    store = Store(Path(out), write=True)
    try:
        store.set_plan(plan)
        if retry_failed:
            store.forget_failures()
        try:
            if store.progress().finished < len(plan):
                with _client(scheduler, workers, plan.memory) as client:
                    Dispatcher(client, plan, store, watch).run()
        except KeyboardInterrupt:
            write_tables(store, csv=csv)  # of the calls so far
            raise
        write_tables(store, csv=csv)
        return store.progress()
    finally:
        store.close()


@contextmanager
def _client(scheduler: str | None, workers: int | None, memory: int | None) -> Iterator[Any]:
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise LawfulError("sweeps need Dask: pip install 'lawful[sweep]'") from None

    with dask.config.set(SETTINGS), _quiet("asyncio"):
        if scheduler is not None:
            try:
                client = Client(scheduler, timeout="20s")
            except (OSError, ValueError) as error:
                raise LawfulError(f"no Dask scheduler answers at {scheduler}: {error}") from None
            with client:
                yield client
            return
        count, share = local_workers(workers, memory)
        try:
            cluster = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                memory_limit=share,
                dashboard_address=None,
                scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any free port: sweeps run side by side
                silence_logs=60,
            )
        except RuntimeError as error:
            remedy = 'in a script, call run_sweep under `if __name__ == "__main__":`'
            raise LawfulError(f"the local processes did not start ({error}); {remedy}") from None
        with cluster, Client(cluster) as client:
            yield client


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """No words about what a dying worker leaves behind: the rows say it."""
    log = logging.getLogger(name)
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def local_workers(workers: int | None, memory: int | None) -> tuple[int, int]:
    """How many processes, and how many bytes each may use: one per core, fewer if calls may need more memory.

    >>> local_workers(3, 2**30)
    (3, 1073741824)
    """
    from dask.system import CPU_COUNT
    from distributed.system import MEMORY_LIMIT

    if memory is None:
        count = workers or CPU_COUNT
        return count, int(0.9 * MEMORY_LIMIT / count)
    return workers or max(1, min(CPU_COUNT, MEMORY_LIMIT // memory)), memory
