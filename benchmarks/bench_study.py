"""Sweeps and audits: overhead per call, speed-up of two workers, flat memory, a large network's quick audit."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Row, compare
from lawful.api.audit import audit
from lawful.api.sweeps import Plan, run_sweep
from lawful.network import Architecture


def nothing(n: int) -> dict[str, int]:
    """A call that takes no time."""
    return {"n": n}


def fifty_milliseconds(n: int) -> dict[str, int]:
    """A call that takes 50 ms of waiting, so that it scales on a busy machine too."""
    time.sleep(0.05)
    return {"n": n}


def sweep(job: str, calls: int, workers: int) -> tuple[float, float]:
    """Seconds of a whole sweep in a new folder, and seconds per call between the first and the last result."""
    seen: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(f"benchmarks.bench_study:{job}", {"n": range(calls)})
        start = time.perf_counter()
        run_sweep(
            plan,
            Path(folder) / "out",
            workers=workers,
            watch=lambda progress: seen.append((time.perf_counter(), progress.finished)),
        )
        whole = time.perf_counter() - start
    (first, early), (last, late) = seen[0], seen[-1]
    return whole, (last - first) / max(1, late - early)


def peak_memory(calls: int) -> float:
    """Megabytes that the driver of a sweep needed at most, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_study", str(calls)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rows() -> Iterator[Row]:
    """The time of calls is taken between the first and the last result: no start-up, no table."""
    _, overhead = sweep("nothing", 4001, 2)
    start, _ = sweep("nothing", 2, 2)
    yield Row("sweep: overhead of one call", overhead, "target", 0.005, f"4000 empty calls; start to end {start:.1f} s")
    (_, one), (_, two) = (sweep("fifty_milliseconds", 401, workers) for workers in (1, 2))
    yield Row("sweep: a call of 50 ms, two workers", two, "one worker", one, "401 calls")
    began = time.perf_counter()
    small, large = peak_memory(1_000), peak_memory(100_000)
    note = f"driver's peak: {large:.0f} MB, {large / small:.2f} times that of 1,000 calls"
    yield Row("sweep: memory over 100,000 calls", time.perf_counter() - began, note=note)
    network = Architecture.parse("100-" + "235-" * 9 + "10 relu bias").initialise(seed=0)
    note = f"{network.parameters:,} parameters"
    yield compare("audit --quick, ten layers", lambda: audit(network, effort="quick"), repeat=1, note=note)


if __name__ == "__main__":
    sweep("nothing", int(sys.argv[1]), 2)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
