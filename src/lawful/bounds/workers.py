"""Who bounds the boxes: threads of this process, or a Dask cluster. The tree is the same whoever does it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from lawful.errors import LawfulError

Chunk = tuple[Any, ...]
Shared = TypeVar("Shared")
Bounds = TypeVar("Bounds")


@contextmanager
def workers(
    shared: Shared, bound: Callable[..., Bounds], scheduler: str | None = None, threads: int | None = None
) -> Iterator[Callable[[Sequence[Chunk]], list[Bounds]]]:
    """A function that maps chunks of boxes to `bound(shared, *chunk)`, in their order."""
    if scheduler is not None:
        with _cluster(shared, scheduler, bound) as bounder:
            yield bounder
        return
    count = threads or cores()
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(count) as pool:

        def bounder(chunks: Sequence[Chunk]) -> list[Bounds]:
            if len(chunks) == 1 or count == 1:
                return [bound(shared, *chunk) for chunk in chunks]
            return list(pool.map(lambda chunk: bound(shared, *chunk), chunks))

        try:
            yield bounder
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _cluster(
    shared: Shared, address: str, bound: Callable[..., Bounds]
) -> Iterator[Callable[[Sequence[Chunk]], list[Bounds]]]:
    try:
        from distributed import Client
    except ImportError:
        raise LawfulError("--scheduler needs Dask: pip install 'lawful[sweep]'") from None
    try:
        client = Client(address, timeout=5)
    except (OSError, ValueError) as error:
        raise LawfulError(f"no Dask scheduler answers at {address[:80]}: {error}") from None
    with client:
        sent = client.scatter(shared, broadcast=True)

        def bounder(chunks: Sequence[Chunk]) -> list[Bounds]:
            futures = [client.submit(_remote, bound, sent, chunk, pure=False) for chunk in chunks]
            return list(client.gather(futures))

        yield bounder


def _remote(bound: Callable[..., Bounds], shared: Shared, chunk: Chunk) -> Bounds:
    with threadpool_limits(limits=1, user_api="blas"):
        return bound(shared, *chunk)
