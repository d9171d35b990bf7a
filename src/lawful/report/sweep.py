"""A sweep's page: the table, and the plots a theorist would draw first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lawful.report.figure import Figure, Panel, Series
from lawful.report.page import Section, Table, render

MOST_ROWS = 2000


Row = Any  # a finished call of a sweep: job, inputs, outputs, status, error, seconds


def write_page(rows: Sequence[Row], path: Path) -> Path:
    """Write the page of a sweep."""
    good = [row for row in rows if row.status == "ok"]
    failed = [row for row in rows if row.status != "ok"]
    lead = f"{len(rows)} calls, {len(failed)} failed, {sum(row.seconds for row in rows):.4g} s of work"
    sections = [Section("Plots", plots(good) or ["Nothing to plot: no numbers vary in this sweep."])]
    if failed:
        errors = [[_words(row.inputs), row.error] for row in failed[:MOST_ROWS]]
        sections.append(Section("Failures", [Table(("inputs", "error"), errors)]))
    sections.append(Section("Results", [_table(good)]))
    title = f"Sweep of {rows[0].job}" if rows else "Empty sweep"
    path.write_text(render(title, lead, sections), encoding="utf-8")
    return path


def _words(values: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _table(rows: Sequence[Row]) -> Table:
    inputs = list(dict.fromkeys(name for row in rows for name in row.inputs))
    outputs = list(dict.fromkeys(name for row in rows for name in row.outputs if name not in inputs))
    shown = [
        [*(row.inputs.get(n) for n in inputs), *(row.outputs.get(n) for n in outputs), row.seconds] for row in rows
    ]
    caption = f"First {MOST_ROWS} of {len(rows)} rows; results.parquet has all." if len(rows) > MOST_ROWS else ""
    return Table((*inputs, *outputs, "seconds"), shown[:MOST_ROWS], caption)


def plots(rows: Sequence[Row]) -> list[str | Figure]:
    """A heat map over two varying inputs, the spread over seeds, and how time grows with size."""
    varying = [
        name for name in (rows[0].inputs if rows else {}) if len({str(row.inputs.get(name)) for row in rows}) > 1
    ]
    numbers = [
        name
        for name in (rows[0].outputs if rows else {})
        if all(_number(row.outputs.get(name)) for row in rows) and len({row.outputs[name] for row in rows}) > 1
    ]
    found: list[str | Figure] = []
    axes = [name for name in varying if name != "seed"]
    for output in numbers[:3]:
        if len(axes) == 2:
            found.append(_heat(rows, axes, output))
        elif axes or varying:
            found.append(_spread(rows, axes[0] if axes else varying[0], output))
    if "parameters" in numbers:
        found.append(_scaling(rows))
    return found


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _heat(rows: Sequence[Row], axes: list[str], output: str) -> Figure:
    first, second = (list(dict.fromkeys(row.inputs[name] for row in rows)) for name in axes)
    total, count = np.zeros((len(first), len(second))), np.zeros((len(first), len(second)))
    for row in rows:
        where = first.index(row.inputs[axes[0]]), second.index(row.inputs[axes[1]])
        total[where] += row.outputs[output]
        count[where] += 1
    with np.errstate(invalid="ignore"):
        panel = Panel([Series(total / count, style="heat")], title=output, x=axes[1], y=axes[0])
    return Figure(f"Mean of {output}: rows are {axes[0]} in the order of the sweep, columns are {axes[1]}.", [panel])


def _spread(rows: Sequence[Row], by: str, output: str) -> Figure:
    groups: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        groups[row.inputs[by]].append(float(row.outputs[output]))
    keys = sorted(groups) if all(_number(key) for key in groups) else list(groups)
    x = np.array(keys, dtype=float) if all(_number(key) for key in keys) else np.arange(len(keys))
    middle, low, high = (np.array([f(groups[key]) for key in keys]) for f in (np.median, np.min, np.max))
    panel = Panel(
        [Series(middle, x, "median", "points"), Series(low, x, "range", "band", upper=high)],
        title=output,
        x=by,
        y=output,
    )
    return Figure(f"{output} over {by}: median and range over all other inputs, in the order of the sweep.", [panel])


def _scaling(rows: Sequence[Row]) -> Figure:
    size = np.array([float(row.outputs["parameters"]) for row in rows])
    seconds = np.array([max(row.seconds, 1e-9) for row in rows])
    slope, offset = (
        np.polyfit(np.log(size), np.log(seconds), 1) if len(set(size)) > 1 else (0.0, np.log(seconds.mean()))
    )
    line = np.geomspace(size.min(), size.max(), 50)
    series = [
        Series(seconds, size, "calls", "points"),
        Series(np.exp(offset) * line**slope, line, f"fit: size^{slope:.2f}"),
    ]
    panel = Panel(series, x="parameters", y="seconds", log_x=True, log_y=True)
    return Figure(f"Time of a call against its number of parameters; the fit grows like size^{slope:.2f}.", [panel])
