"""`python -m benchmarks.paper_size [MINUTES [FIGURE.svg]]`: the paper's own Leaky ResNet, by our solver and its recipe.

Width 200, 50 layers, 1000 samples of a 20-5-20 teacher, the same start, equal processor time each. Too long for
`make bench`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lawful.api.figure_file import save
from lawful.figure import Figure, Panel, Series
from lawful.papers.leaky import LeakyResNet, SolverProgress, recipe, solve, teacher

RIDGE, DEPTH = 0.04, 5.0
Watch = Callable[[SolverProgress], None]
History = list[tuple[float, SolverProgress]]


class OutOfTimeError(Exception):
    """The clock's way to stop a run."""


def main(minutes: float, file: Path | None) -> None:
    """Run both, print their costs as they fall, and when ours passed the recipe's best."""
    train, _ = teacher((20, 5, 20), 1000)
    start = LeakyResNet.random(width=200, layers=50, effective_depth=DEPTH, inputs=20, outputs=20, softness=0.01)
    ours = _timed("solver", minutes, lambda watch: solve(start, train, RIDGE, adaptations=4, watch=watch))
    theirs = _timed("recipe", minutes, lambda watch: recipe(start, train, RIDGE, adapt_every=10, watch=watch))
    goal = min(entry.cost for _, entry in theirs)
    passed = next(((seconds, entry.evaluations) for seconds, entry in ours if entry.cost <= goal), None)
    when = "never" if passed is None else f"after {passed[0]:.0f} s and {passed[1]} evaluations"
    print(f"the recipe's best cost in {theirs[-1][1].evaluations} steps is {goal:.4f}; the solver passed it {when}")
    if file is not None:
        save(curves(ours, theirs), file)


def curves(ours: History, theirs: History) -> Figure:
    """Cost and stationarity over processor time."""
    panels = [
        Panel(
            [Series([getattr(entry, name) for _, entry in each], [seconds / 60 for seconds, _ in each], label)
             for label, each in (("solver", ours), ("the paper's recipe", theirs))],
            name, "processor minutes", log_y=True,
        )
        for name in ("cost", "stationarity")
    ]  # fmt: skip
    return Figure("The same network from the same start, by the solver and by the paper's recipe", panels)


def _timed(name: str, minutes: float, run: Callable[[Watch], object]) -> History:
    history: History = []
    begin = time.process_time()

    def watch(entry: SolverProgress) -> None:
        seconds = time.process_time() - begin
        if not history or seconds // 30 > history[-1][0] // 30:
            _tell(name, seconds, entry)
        if not history or seconds // 3 > history[-1][0] // 3:
            history.append((seconds, entry))
        if seconds > 60 * minutes:
            raise OutOfTimeError

    with suppress(OutOfTimeError):
        run(watch)
    _tell(name, *history[-1])
    return history


def _tell(name: str, seconds: float, entry: SolverProgress) -> None:
    print(f"{name} {seconds:5.0f} s {entry.evaluations:6d} evaluations  cost {entry.cost:.5f}  "
          f"stationarity {entry.stationarity:.4f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
