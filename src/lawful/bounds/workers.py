"""Who bounds the boxes: threads of this process, or a Dask cluster. The tree is the same whoever does it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from lawful.bounds.box_bounds import BoxBounds, bound
from lawful.bounds.branch_and_bound import Bounder
from lawful.bounds.pair import NetworkPair
from lawful.errors import LawfulError
from lawful.types import Floats

Chunk = tuple[Floats, Floats]
Way = Callable[[NetworkPair, Floats, Floats], BoxBounds]


@contextmanager
def workers(
    pair: NetworkPair, scheduler: str | None = None, threads: int | None = None, way: Way | None = None
) -> Iterator[Bounder]:
    """A function that bounds chunks of boxes, in their order: the difference of the pair, if no other way is given."""
    way = way or bound
    if scheduler is not None:
        with _cluster(pair, scheduler, way) as bounder:
            yield bounder
        return
    count = threads or _cores()
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(count) as pool:

        def bounder(chunks: Sequence[Chunk]) -> list[BoxBounds]:
            if len(chunks) == 1:
                return [way(pair, *chunks[0])]
            return list(pool.map(lambda chunk: way(pair, *chunk), chunks))

        try:
            yield bounder
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _cluster(pair: NetworkPair, address: str, way: Way) -> Iterator[Bounder]:
    try:
        from distributed import Client
    except ImportError:
        raise LawfulError("--scheduler needs Dask: pip install 'lawful[sweep]'") from None
    try:
        client = Client(address, timeout=5)
    except (OSError, ValueError) as error:
        raise LawfulError(f"no Dask scheduler answers at {address[:80]}: {error}") from None
    with client:
        shared = client.scatter(pair, broadcast=True)

        def bounder(chunks: Sequence[Chunk]) -> list[BoxBounds]:
            futures = [client.submit(_remote, way, shared, chunk, pure=False) for chunk in chunks]
            return list(client.gather(futures))

        yield bounder


def _remote(way: Way, pair: NetworkPair, chunk: Chunk) -> BoxBounds:
    with threadpool_limits(limits=1, user_api="blas"):
        return way(pair, *chunk)
