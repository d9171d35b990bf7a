"""A sweep's page: the table, and the plots a theorist would draw first."""

from __future__ import annotations

import random
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lawful.figure import Figure, Panel, Series
from lawful.formats.io.writing import write_text
from lawful.report.page.page import Action, Opening, Section, Table, render

MOST_ROWS = 1000
MOST_PLOTTED = 3000

Row = Any  # a finished call of a sweep: job, inputs, outputs, status, error, seconds


@dataclass
class Seen:
    """What the page needs of the rows, however many there are: counts, the first ones, and a random sample."""

    job: str = ""
    calls: int = 0
    seconds: float = 0.0
    failed: int = 0
    exceptions: int = 0
    failures: list[Row] = field(default_factory=list)
    unexpected: list[Row] = field(default_factory=list)
    first: list[Row] = field(default_factory=list)
    sample: list[Row] = field(default_factory=list)

    @property
    def good(self) -> int:
        """Calls that gave an answer."""
        return self.calls - self.failed


def look(rows: Iterable[Row]) -> Seen:
    """One pass over the rows, in memory that does not grow with their number. The same rows give the same sample."""
    seen, rng, places = Seen(), random.Random(0), []  # noqa: S311
    for row in rows:
        seen.job, seen.calls, seen.seconds = row.job, seen.calls + 1, seen.seconds + row.seconds
        if row.status != "ok":
            seen.failed += 1
            seen.failures += [row] if len(seen.failures) < MOST_ROWS else []
            continue
        if row.outputs.get("matches") is False:
            seen.exceptions += 1
            seen.unexpected += [row] if len(seen.unexpected) < MOST_ROWS else []
        if len(seen.first) < MOST_ROWS:
            seen.first.append(row)
        if len(seen.sample) < MOST_PLOTTED:  # every row so far is in the sample with the same probability
            seen.sample.append(row)
            places.append(seen.good)
        elif (place := rng.randrange(seen.good)) < MOST_PLOTTED:
            seen.sample[place], places[place] = row, seen.good
    order = sorted(range(len(places)), key=places.__getitem__)
    seen.sample = [seen.sample[place] for place in order]
    return seen


def write_page(rows: Iterable[Row], path: Path) -> Seen:
    """Write the page of a sweep."""
    seen = look(rows)
    lead = f"{seen.calls:,} calls, {seen.failed:,} failed, {seen.seconds:.4g} s of work."
    drawn = plots(seen.sample) or ["Nothing to plot: no numbers vary in this sweep."]
    if seen.good > len(seen.sample):
        drawn.insert(0, f"A random sample of {len(seen.sample)} of {seen.good} calls.")
    first = next((block for block in drawn if isinstance(block, Figure)), None)
    rest = [block for block in drawn if block is not first]
    sections = [Section("Plots", rest)] if rest else []
    if seen.exceptions:
        words = f"{seen.exceptions} calls whose answer is not the predicted one."
        sections.insert(0, Section("Exceptions", [words, _table(seen.unexpected, seen.exceptions)], open=True))
    if seen.failed:
        errors = [[_words(row.inputs), row.error] for row in seen.failures]
        sections.append(
            Section("Failures", [Table(("inputs", "error"), errors, _first(errors, seen.failed))], open=True)
        )
    sections.append(Section("Results", [_table(seen.first, seen.good)], open=True))
    title = (
        f"{seen.good:,} of {seen.calls:,} calls of {seen.job} gave an answer"
        if seen.calls
        else "0 calls: an empty sweep"
    )
    if seen.exceptions:
        title = f"{seen.exceptions:,} of {seen.good:,} answers are not the predicted one"
    folder, summed = shlex.quote(str(path.parent)), seen.job in ("count_laws", "training_laws")
    summary = Action("Summarise it in a table", "Markdown, for notes and papers.",
                     f"lawful sweep report {folder} --markdown summary.md")  # fmt: skip
    status = Action("See how far it is", "Calls that are finished, failed and open.", f"lawful sweep status {folder}")
    opening = Opening(file=seen.job, kind="sweep", stage=first, actions=[status, *([summary] if summed else [])])
    write_text(path, render(title, lead, sections, opening=opening))
    return seen


def _words(values: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _first(rows: Sequence[Any], total: int) -> str:
    return f"The first {len(rows)} of {total}; results.parquet has all." if total > len(rows) else ""


def _table(rows: Sequence[Row], total: int) -> Table:
    inputs = list(dict.fromkeys(name for row in rows for name in row.inputs))
    outputs = list(dict.fromkeys(name for row in rows for name in row.outputs if name not in inputs))
    shown = [
        [*(row.inputs.get(n) for n in inputs), *(row.outputs.get(n) for n in outputs), row.seconds] for row in rows
    ]
    return Table((*inputs, *outputs, "seconds"), shown, _first(rows, total))


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
    figures: list[str | Figure] = []
    axes = [name for name in varying if name != "seed"]
    for output in numbers[:3]:
        if len(axes) == 2:
            figures.append(_heat(rows, axes, output))
        elif by := next((name for name in axes or varying if _numeric(rows, name)), ""):
            figures.append(_spread(rows, by, output))
        elif against := next((name for name in ("parameters", *numbers) if name in numbers and name != output), ""):
            figures.append(_scatter(rows, against, output))
    if "parameters" in numbers:
        if "laws" in numbers and "architecture" in varying:
            figures.insert(0, _laws_map(rows))
        figures.append(_scaling(rows))
    return figures


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numeric(rows: Sequence[Row], name: str) -> bool:
    return all(_number(row.inputs.get(name)) for row in rows)


def _scatter(rows: Sequence[Row], against: str, output: str) -> Figure:
    """One output over another, where the inputs are words."""
    x, y = ([float(row.outputs[name]) for row in rows] for name in (against, output))
    panel = Panel([Series(y, x, style="points")], output, against, output)
    return Figure(f"{output} over {against}: a point for each call.", [panel])


def _heat(rows: Sequence[Row], axes: list[str], output: str) -> Figure:
    first, second = ({v: n for n, v in enumerate(dict.fromkeys(row.inputs[name] for row in rows))} for name in axes)
    cells = [(first[row.inputs[axes[0]]], second[row.inputs[axes[1]]], row.outputs[output]) for row in rows]
    panel = Panel([Series(_means(cells), style="heat")], title=output, x=axes[1], y=axes[0])
    words = [f"{name} = {', '.join(map(str, list(labels)[:8]))}{', ...' if len(labels) > 8 else ''}"
             for name, labels in zip(axes, (first, second), strict=True)]  # fmt: skip
    return Figure(f"Mean of {output}: rows are {words[0]}; columns are {words[1]}.", [panel])


def _means(cells: Sequence[tuple[int, int, float]]) -> np.ndarray:
    """The matrix of means of the values that fall into each cell; NaN where none does."""
    shape = max(c[0] for c in cells) + 1, max(c[1] for c in cells) + 1
    total, count = np.zeros(shape), np.zeros(shape)
    for line, column, value in cells:
        total[line, column] += value
        count[line, column] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / count)


def _laws_map(rows: Sequence[Row]) -> Figure:
    """Laws over architectures: hidden neurons and parameters, a panel for each kind of network."""
    kinds: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for row in rows:
        widths, _, kind = str(row.inputs["architecture"]).partition(" ")
        hidden = sum(int(width) for width in widths.split("-")[1:-1])
        kinds[kind].append((hidden, int(row.outputs["parameters"]), float(row.outputs["laws"])))
    panels = [
        Panel([Series(_means(cells), style="heat")], title=kind, x="parameters", y="hidden neurons")
        for kind, cells in list(kinds.items())[:4]
    ]
    return Figure("Mean number of laws of the architectures with so many parameters and hidden neurons.", panels)


def _spread(rows: Sequence[Row], by: str, output: str) -> Figure:
    groups: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        groups[row.inputs[by]].append(float(row.outputs[output]))
    keys = sorted(groups)
    x = np.array(keys, dtype=float)
    middle, low, high = (np.array([f(groups[key]) for key in keys]) for f in (np.median, np.min, np.max))
    panel = Panel(
        [Series(middle, x, "median", "points"), Series(low, x, "range", "band", upper=high)],
        title=output,
        x=by,
        y=output,
    )
    return Figure(f"{output} over {by}: median and range over all other inputs.", [panel])


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
