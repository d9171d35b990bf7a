"""Measure two ways of doing one thing in the same run; only their ratio is worth reading on a shared machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the benchmark table."""

    name: str
    seconds: float
    baseline: str = ""
    baseline_seconds: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times faster than the baseline."""
        return None if self.baseline_seconds is None else self.baseline_seconds / self.seconds


def best_of(job: Callable[[], Any], repeat: int = 3) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def compare(
    name: str,
    ours: Callable[[], Any],
    baseline_name: str = "",
    baseline: Callable[[], Any] | None = None,
    *,
    repeat: int = 3,
    note: str = "",
) -> Row:
    """Best of several runs of ours and, if given, of the baseline."""
    seconds = best_of(ours, repeat)
    return Row(name, seconds, baseline_name, None if baseline is None else best_of(baseline, repeat), note)
