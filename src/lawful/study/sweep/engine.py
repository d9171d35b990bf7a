"""Run a plan on Dask: local processes or a running cluster, the same results either way."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lawful.errors import LawfulError
from lawful.study.sweep.jobs import check_inputs, run_task
from lawful.study.sweep.plan import Plan, Task
from lawful.study.sweep.store import Finished, Progress, Store, write_tables

CHUNK_SECONDS = 0.25  # small jobs travel together until a message is worth its price
MAX_CHUNK = 200
TRIES = 2  # a call that takes its worker down twice is at fault itself
GRACE = 2.0  # seconds that a chunk may need to begin and to report
PATIENCE = 120.0  # seconds to wait for a worker to come back


@dataclass(frozen=True)
class Chunk:
    """Calls that travel together, and how often their worker has died."""

    tasks: tuple[Task, ...]
    deaths: int = 0

    def singles(self) -> list[Chunk]:
        """Single calls, to find the one that did it."""
        return [Chunk((task,), self.deaths + 1) for task in self.tasks]


@dataclass
class Flight:
    """A chunk on its way; its clock starts when a worker has it, not while workers restart."""

    chunk: Chunk
    started: float | None = None

    def overdue(self, seconds: float) -> bool:
        """Whether it has run longer than its calls may."""
        return self.started is not None and time.monotonic() - self.started > seconds * len(self.chunk.tasks) + GRACE


def run_sweep(
    plan: Plan,
    out: Path,
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
    check_inputs(plan.job, list(plan.values))
    store = Store(out, write=True)
    try:
        store.set_plan(plan)
        if retry_failed:
            store.forget_failures()
        if store.progress().finished < len(plan):
            with _client(scheduler, workers, plan.memory) as client:
                _run(client, plan, store, watch)
        write_tables(store, csv=csv)
        return store.progress()
    finally:
        store.close()


@contextmanager
def _client(scheduler: str | None, workers: int | None, memory: int) -> Iterator[Any]:
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise LawfulError("sweeps need Dask: pip install 'lawful[sweep]'") from None

    settings = {
        "distributed.scheduler.allowed-failures": 0,  # we decide what to try again
        "distributed.worker.daemon": True,
        "distributed.admin.log-format": "",
        "logging.distributed": "critical",
    }
    with dask.config.set(settings):
        if scheduler is not None:
            try:
                client = Client(scheduler, timeout="20s")
            except OSError as error:
                raise LawfulError(f"no Dask scheduler answers at {scheduler}: {error}") from None
            with client:
                yield client
            return
        # One thread each, for BLAS too: two processes with two threads each run many times slower.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with (
            dask.config.set({"distributed.nanny.environ": threads, "distributed.nanny.pre-spawn-environ": threads}),
            LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,
                memory_limit=memory,
                dashboard_address=None,
                silence_logs=60,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client


def _run(client: Any, plan: Plan, store: Store, watch: Callable[[Progress], None]) -> None:
    """Keep every worker busy with one chunk; size chunks by how long calls take."""
    from distributed import wait

    waiting = (task for task in plan.tasks() if not store.has(task))
    again: deque[Chunk] = deque()
    flights: dict[Any, Flight] = {}
    size, progress, idle_since = 1, store.progress(), None

    def keep(rows: list[Finished]) -> None:
        nonlocal progress
        store.add(rows)
        progress = replace(
            progress,
            finished=progress.finished + len(rows),
            failed=progress.failed + sum(row.status == "failed" for row in rows),
            seconds=progress.seconds + sum(row.seconds for row in rows),
        )
        watch(progress)

    while True:
        slots = max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
        if size > 1 and not again:  # quick calls: a second chunk waits at each worker, so that none is ever idle
            slots *= 2
        while len(flights) < slots and (chunk := _next_chunk(again, waiting, size)) is not None:
            flights[client.submit(run_chunk, chunk.tasks, pure=False)] = Flight(chunk)
        if not flights:
            return
        with suppress(TimeoutError):
            wait(list(flights), timeout=0.5, return_when="FIRST_COMPLETED")
        idle_since = _look(client, flights, idle_since)
        for future in [future for future in flights if future.done()]:
            flight = flights.pop(future)
            if future.status == "finished":
                keep(rows := future.result())
                size = _chunk_size(size, rows)
            else:
                again.extend(_after_death(flight.chunk, keep, "its worker died (out of memory, or killed)", TRIES))
        for future in [future for future, flight in flights.items() if flight.overdue(plan.seconds)]:
            flight = flights.pop(future)
            _kill(client, future)
            again.extend(_after_death(flight.chunk, keep, f"took longer than {plan.seconds:g} s", 1))


def _look(client: Any, flights: dict[Any, Flight], idle_since: float | None) -> float | None:
    """Note which slow chunks have reached a worker, and since when there is no worker at all."""
    now = time.monotonic()
    if all(flight.started for flight in flights.values()):
        return None
    running = client.processing()
    for future, flight in flights.items():
        if flight.started is None and any(future.key in keys for keys in running.values()):
            flight.started = now
    if running:
        return None
    if idle_since is not None and now - idle_since > PATIENCE:
        raise LawfulError("all workers are gone; finished calls are kept, run the same command to go on")
    return idle_since or now


def _next_chunk(again: deque[Chunk], waiting: Iterator[Task], size: int) -> Chunk | None:
    if again:
        return again.popleft()
    tasks = tuple(islice(waiting, size))
    return Chunk(tasks) if tasks else None


def _chunk_size(size: int, rows: list[Finished]) -> int:
    """Aim at `CHUNK_SECONDS` a chunk, at most doubling."""
    each = max(sum(row.seconds for row in rows) / len(rows), 1e-5)
    return int(min(MAX_CHUNK, max(1, CHUNK_SECONDS / each), 2 * size))


def _after_death(chunk: Chunk, keep: Callable[[list[Finished]], None], reason: str, tries: int) -> list[Chunk]:
    """A worker died or hung: try its calls one by one; record a single call that has had its tries."""
    if len(chunk.tasks) > 1 or chunk.deaths + 1 < tries:
        return chunk.singles()
    keep([failure(chunk.tasks[0], reason)])
    return []


def failure(task: Task, error: str, seconds: float = 0.0) -> Finished:
    """The record of a call that gave no answer."""
    from lawful import __version__

    return Finished(
        task.key, task.job, dict(task.inputs), "failed", {}, " ".join(error.split())[:500], __version__, seconds
    )


def _kill(client: Any, future: Any) -> None:
    """Cancel a call that does not end, and restart the process that runs it."""
    owners = [address for address, keys in client.processing().items() if future.key in keys]
    future.cancel(force=True)
    if owners:
        client.restart_workers(owners, timeout=PATIENCE, raise_for_error=False)


def run_chunk(tasks: tuple[Task, ...]) -> list[Finished]:
    """On a worker: run calls one after another; an exception is a failed row, not a lost one."""
    from lawful import __version__

    rows = []
    for task in tasks:
        start = time.perf_counter()
        try:
            outputs = run_task(task)
            seconds = time.perf_counter() - start
            rows.append(Finished(task.key, task.job, dict(task.inputs), "ok", outputs, "", __version__, seconds))
        except Exception as error:  # whatever a job raises belongs in its row
            rows.append(failure(task, f"{type(error).__name__}: {error}", time.perf_counter() - start))
    return rows
