"""Sweeps and audits: overhead per call, speed-up of two workers, a large network's quick audit."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Row, best_of, compare
from lawful.network import Architecture
from lawful.study.audit import audit
from lawful.study.sweep import Plan, run_sweep


def nothing(n: int) -> dict[str, int]:
    """A call that takes no time."""
    return {"n": n}


def fifty_milliseconds(n: int) -> dict[str, int]:
    """A call that takes 50 ms of waiting, so that it scales on a busy machine too."""
    time.sleep(0.05)
    return {"n": n}


def sweep_seconds(job: str, calls: int, workers: int) -> float:
    """Seconds of a whole sweep, in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(f"benchmarks.bench_study:{job}", {"n": list(range(calls))})
        return best_of(lambda: run_sweep(plan, Path(folder) / "out", workers=workers), repeat=1)


def rows() -> Iterator[Row]:
    """Start-up is measured with few calls and subtracted."""
    start = sweep_seconds("nothing", 1, 2)
    many = sweep_seconds("nothing", 4001, 2)
    overhead = (many - start) / 4000
    yield Row("sweep: overhead of one call", overhead, "target", 0.005, f"4000 empty calls; start-up {start:.1f} s")
    one, two = (
        sweep_seconds("fifty_milliseconds", 301, workers) - sweep_seconds("nothing", 1, workers) for workers in (1, 2)
    )
    yield Row("sweep: 301 calls of 50 ms, two workers", two, "one worker", one)
    large = Architecture.parse("100-" + "235-" * 9 + "10 relu bias").initialise(seed=0)
    note = f"{large.parameters:,} parameters"
    yield compare("audit --quick, ten layers", lambda: audit(large, effort="quick"), repeat=1, note=note)
