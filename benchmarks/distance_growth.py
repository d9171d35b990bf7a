"""How a certified distance fares as width and box grow: `python -m benchmarks.distance_growth docs`.

Prints the table of docs/distance.md and writes the plot beside it: processor seconds of one thread until the bounds
agree to four digits or a minute has passed, and how far apart they are then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.bench_distance import network, pruned
from lawful.bounds.distance import distance
from lawful.figure import Figure, Panel, Series, draw

WIDTHS, RADII, LIMIT = (10, 20, 40), (0.01, 0.03, 0.1, 0.3), 60.0


class Measured(NamedTuple):
    """One pair 5-n-n-n-5 against its copy pruned by 5%, on [-radius, radius]^5."""

    width: int
    radius: float
    seconds: float
    boxes: int
    ratio: float  # upper bound over lower bound


def measured() -> Iterator[Measured]:
    """All widths on all boxes."""
    for width in WIDTHS:
        for radius in RADII:
            original = network((5, width, width, width, 5))
            box = np.full(5, -radius), np.full(5, radius)
            started = time.process_time()
            found = distance(original, pruned(original, 0.05), box, seconds=LIMIT, threads=1)
            spent = time.process_time() - started
            yield Measured(width, radius, spent, found.boxes, found.upper / float(found.lower))


def _name(width: int) -> str:
    return f"5-{width}-{width}-{width}-5"


def figure(rows: list[Measured]) -> Figure:
    """How far the bounds are apart, against the box: a line for each width."""
    lines = [Series([row.ratio for row in rows if row.width == width], RADII, _name(width)) for width in WIDTHS]
    panel = Panel(lines, x="half the side of the box", y="upper / lower bound", log_x=True)
    return Figure("Certified distances against width and box", [panel])


def main(folder: Path) -> None:
    """The table and the plot."""
    rows = []
    print("| network | box | seconds | boxes | upper / lower |\n|---|---|---|---|---|")
    for row in measured():
        rows.append(row)
        name = _name(row.width)
        print(f"| {name} | ±{row.radius:g} | {row.seconds:.2f} | {row.boxes:,} | {row.ratio:.4g} |", flush=True)
    draw(figure(rows), folder / "distance-growth.svg", "svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
