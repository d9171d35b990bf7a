"""`make bench`: print the whole table, or the rooms named on the command line."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Row


def main() -> None:
    """Run `rows()` of every `bench_*.py`, or only of the rooms asked for, and print as they come."""
    rooms = sys.argv[1:] or sorted(path.stem[6:] for path in Path(__file__).parent.glob("bench_*.py"))
    table = Table("what", "ours", "baseline", "seconds", "ratio", "note", title="best of several runs, one machine")
    progress = Console(stderr=True)
    for room in rooms:
        for row in import_module(f"benchmarks.bench_{room}").rows():
            progress.print(f"[dim]{room}: {row.name}: {row.seconds:.4g} s[/dim]")
            table.add_row(*_cells(row))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _cells(row: Row) -> tuple[str, ...]:
    other = "" if row.baseline_seconds is None else f"{row.baseline_seconds:.4g}"
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}x"
    return row.name, f"{row.seconds:.4g} s", row.baseline, other, ratio, row.note


main()
