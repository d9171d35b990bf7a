"""Run a plan on Dask: local processes or a running cluster, the same results either way."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lawful.api.sweeps.jobs import THREADS, check_inputs, failure, run_chunk
from lawful.api.sweeps.plan import Plan, Task, read_plan
from lawful.api.sweeps.store import Finished, Progress, Store
from lawful.api.sweeps.table import write_tables
from lawful.errors import LawfulError

SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,  # we decide what to try again
    "distributed.deploy.lost-worker-timeout": "1 hour",  # on a busy machine a process may need long to start again
    "distributed.admin.low-level-log-length": 100,  # the default remembers 100,000 steps: memory must be flat
    "distributed.worker.daemon": True,
    "distributed.worker.preload": ["lawful.api.sweeps.jobs"],  # imports must not count as a call's time
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


CHUNK_SECONDS = 0.25  # small jobs travel together until a message is worth its price
MAX_CHUNK = 200
TRIES = 3  # a call whose worker dies so often is at fault itself
GRACE = 2.0  # seconds that a chunk may need to begin and to report
RESTART = 60.0  # seconds to wait for a worker to restart
PATIENCE = 120.0  # seconds to wait for a worker to come back


@dataclass(frozen=True)
class Chunk:
    """Calls that travel together, and how often they were running when their worker died."""

    tasks: tuple[Task, ...]
    deaths: int = 0

    def singles(self) -> list[Chunk]:
        """Single calls, to find the one that did it."""
        return [Chunk((task,), self.deaths + 1) for task in self.tasks]


@dataclass
class Flight:
    """A chunk at a worker; its clock starts when it is the first there."""

    future: Any
    chunk: Chunk
    started: float | None = None


class Dispatcher:
    """Each worker has a queue of at most two chunks: the first runs, the second is there so that it never idles.

    A chunk that was running when its worker died, or longer than one call may, is a suspect: its calls run one by one,
    each with a worker to itself, so that only the call at fault is recorded as failed.
    """

    def __init__(self, client: Any, plan: Plan, store: Store, watch: Callable[[Progress], None]) -> None:
        self.client, self.plan, self.store, self.watch = client, plan, store, watch
        self.progress = store.progress()
        self.size = 1
        self._airborne: set[str] = set()
        self._waiting = self._unfinished_tasks()
        self._again: deque[Chunk] = deque()
        self._queues: dict[str, deque[Flight]] = {}

    def run(self) -> None:
        """Until every call has its row."""
        from distributed import wait

        deserted = None
        while True:
            self._submit()
            futures = [flight.future for queue in self._queues.values() for flight in queue]
            if futures:
                deserted = None
                with suppress(TimeoutError):
                    wait(futures, timeout=0.5, return_when="FIRST_COMPLETED")
                self._collect()
                self._stop_overdue()
            elif self._queues:
                return
            else:
                deserted = deserted or time.monotonic()
                if time.monotonic() - deserted > PATIENCE:
                    raise LawfulError("all workers are gone; finished calls are kept, run the same command to go on")
                time.sleep(0.2)

    def _unfinished_tasks(self) -> Iterator[Task]:
        for task in self.plan.tasks():
            key = task.key
            if key not in self._airborne and not self.store.has(key):  # a plan may name a call twice
                self._airborne.add(key)
                yield task

    def _submit(self) -> None:
        """Give work to the workers that are there; what was with workers that are gone comes back."""
        workers = self._workers()
        for address in [address for address in self._queues if address not in workers]:
            self._bury(self._queues.pop(address))
        queues = [self._queues.setdefault(address, deque()) for address in workers]
        for depth in (1, 2) if self.size > 1 else (1,):
            for address, queue in zip(workers, queues, strict=True):
                if len(queue) == depth - 1 and (chunk := self._next(queue)) is not None:
                    future = self.client.submit(run_chunk, chunk.tasks, workers=[address], pure=False)
                    queue.append(Flight(future, chunk, None if queue else time.monotonic()))

    def _next(self, queue: deque[Flight]) -> Chunk | None:
        """A chunk to put at the end of a queue: nobody stands with a suspect."""
        if queue and (self._again or queue[0].chunk.deaths):
            return None
        if self._again:
            return self._again.popleft()
        left = self.progress.planned - self.progress.finished - len(self._airborne)
        even = left // (2 * len(self._queues))  # smaller and smaller at the end, so that all workers end together
        tasks = tuple(islice(self._waiting, max(1, min(self.size, even))))
        return Chunk(tasks) if tasks else None

    def _collect(self) -> None:
        """Keep what has arrived."""
        for address, queue in list(self._queues.items()):
            while queue and queue[0].future.done():
                rows = self._result(address, queue[0].future)
                if rows is None:
                    self._bury(queue)
                    break
                queue.popleft()
                if queue:
                    queue[0].started = time.monotonic()
                self._keep(rows)
                self.size = _chunk_size(self.size, rows)

    def _result(self, address: str, future: Any) -> list[Finished] | None:
        """The rows of a chunk, or None if they died with the worker that held them."""
        from distributed.scheduler import KilledWorker

        while future.status == "finished":
            with suppress(TimeoutError, CancelledError, KilledWorker):
                return future.result(timeout=GRACE)  # type: ignore[no-any-return]
            if address not in self._workers():
                return None
        error = future.exception(timeout=GRACE) if future.status == "error" else None
        if error is None or isinstance(error, KilledWorker):
            return None
        raise LawfulError(f"the workers cannot run calls ({error}): they need the same lawful as this process")

    def _workers(self) -> dict[str, Any]:
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    def _stop_overdue(self) -> None:
        """Restart a worker whose first chunk takes longer than one call may; one at a time: it takes a while."""
        for address, queue in self._queues.items():
            if not queue or queue[0].future.done() or queue[0].started is None:
                continue
            if time.monotonic() - queue[0].started > self.plan.seconds + GRACE:
                self._bury(queue, f"took longer than {self.plan.seconds:g} s", tries=1)
                try:
                    self.client.restart_workers([address], timeout=RESTART, raise_for_error=False)
                except ValueError as error:
                    raise LawfulError(f"a call does not end, and its worker cannot be restarted: {error}") from None
                del self._queues[address]
                return

    def _bury(
        self, queue: deque[Flight], reason: str = "its worker died (out of memory, or killed)", tries: int = TRIES
    ) -> None:
        """A worker died or hung: the first chunk is suspect, a second one innocent; both come back."""
        for place, flight in enumerate(queue):
            flight.future.cancel(force=True)
            if place:
                self._again.append(flight.chunk)
            elif len(flight.chunk.tasks) > 1 or flight.chunk.deaths + 1 < tries:
                self._again.extend(flight.chunk.singles())
            else:
                self._keep([failure(flight.chunk.tasks[0], reason)])
        queue.clear()

    def _keep(self, rows: list[Finished]) -> None:
        self.store.add(rows)
        self._airborne.difference_update(row.key for row in rows)
        self.progress = replace(
            self.progress,
            finished=self.progress.finished + len(rows),
            failed=self.progress.failed + sum(row.status == "failed" for row in rows),
            seconds=self.progress.seconds + sum(row.seconds for row in rows),
        )
        self.watch(self.progress)


def _chunk_size(size: int, rows: list[Finished]) -> int:
    """Aim at `CHUNK_SECONDS` a chunk, at most doubling."""
    average = max(sum(row.seconds for row in rows) / len(rows), 1e-5)
    return int(min(MAX_CHUNK, max(1, CHUNK_SECONDS / average), 2 * size))
