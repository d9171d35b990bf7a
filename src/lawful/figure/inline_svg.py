"""Figures as inline SVG: text in the colour of the page, lines in colours that the page may choose, values on hover."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from lawful.figure.data import Panel, Series
from lawful.figure.scale import Scale, number, scale_of

WIDTH, HEIGHT = 360.0, 236.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 8.0, 8.0, 36.0
MOST_POINTS, MOST_TITLES, MOST_CELLS = 300, 80, 48  # of a drawn curve, of texts shown on hover, of a side of a map
COLOURS = (  # ten, for the ten classes of many data sets
    "#2a6f97", "#c8553d", "#588157", "#8e6bbf", "#b07d05", "#5f6c7b", "#b5446e", "#2f8f8f", "#7a4a1e", "#22303c",
)  # fmt: skip
STYLE = (
    ".lawful-figure{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));gap:.6rem 1.2rem}"
    ".lawful-figure>div{max-width:34rem;overflow-x:auto}"
    ".lawful-figure svg{width:100%;min-width:340px;height:auto;display:block}"
    ".lawful-figure text{fill:currentColor;font:12px system-ui,sans-serif}"
    ".lawful-figure h4{margin:0 0 .1rem;font-size:.9rem;font-weight:600}"
    ".lawful-figure ul{display:flex;flex-wrap:wrap;gap:0 .9rem;margin:0 0 .2rem;padding:0;font-size:.8rem;"
    "list-style:none}"
    ".lawful-figure i{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.35em}"
)


@dataclass(frozen=True)
class PlotFrame:
    """A panel's two scales, and where its points land in the drawing."""

    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point lands."""
        wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return round(LEFT + wide * self.x.share(x), 1), round(HEIGHT - BOTTOM - high * self.y.share(y), 1)


def svg(caption: str, panels: Sequence[Panel]) -> str:
    """The panels side by side or, where that is too narrow, one below the other.

    >>> drawn = svg("Squares", [Panel([Series([0, 1, 4])], x="n")])
    >>> drawn.count("<svg"), "<polyline" in drawn, "white" in drawn
    (1, True, False)
    """
    drawn = "".join(f"<div>{_panel(panel)}</div>" for panel in panels)
    return f'<div class="lawful-figure" role="group" aria-label="{escape(caption)}">{drawn}</div>'


def _panel(panel: Panel) -> str:
    title = f"<h4>{escape(panel.title)}</h4>" if panel.title else ""
    colours = [_colour(series, place) for place, series in enumerate(panel.series)]
    named = [(series.label, colour) for series, colour in zip(panel.series, colours, strict=True) if series.label]
    legend = "".join(f'<li><i style="background:{colour}"></i>{escape(label)}</li>' for label, colour in named)
    heat = next((series for series in panel.series if series.style == "heat"), None)
    body, frame = _map(heat, panel) if heat is not None else _curves(panel, colours)
    data = "" if heat is not None else f" data-plot='{_readout(panel, frame)}'"
    drawing = (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}"{data} role="img" aria-label="{escape(_said(panel))}">{body}</svg>'
    )
    return title + (f"<ul>{legend}</ul>" if legend else "") + drawing


def _said(panel: Panel) -> str:
    words = " over ".join(part for part in (panel.title or panel.y, panel.x) if part)
    return words or "a plot"


def page_colour(number: int) -> str:
    """One of the colours as the page has it in its scheme, light or dark."""
    return f"var(--s{number % len(COLOURS) + 1},{COLOURS[number % len(COLOURS)]})"


def _colour(series: Series, place: int) -> str:
    chosen = series.colour if series.colour is not None else COLOURS[place % len(COLOURS)]
    if chosen in COLOURS:
        return page_colour(COLOURS.index(chosen))
    return chosen if chosen.replace("#", "").isalnum() else "currentColor"


# Curves, points, bars


def _curves(panel: Panel, colours: Sequence[str]) -> tuple[str, PlotFrame]:
    pieces = [_numbers(series) for series in panel.series]
    across = [value for x, _, _ in pieces for value in x] + list(panel.vertical)
    up = [value for _, y, upper in pieces for value in (*y, *upper)] + list(panel.horizontal)
    bars = sorted(
        {x for series, (xs, _, _) in zip(panel.series, pieces, strict=True) if series.style == "bars" for x in xs}
    )
    if bars and not panel.log_x:  # a bar has a width
        half = 0.5 * min((b - a for a, b in pairwise(bars)), default=1.0)
        across += [bars[0] - half, bars[-1] + half]
    if bars and not panel.log_y:
        up.append(0.0)
    frame = PlotFrame(scale_of(across, panel.log_x), scale_of(up, panel.log_y))
    if panel.equal:
        frame = _equal(frame)
    marks = "".join(
        _series(series, frame, colour, *piece)
        for series, colour, piece in zip(panel.series, colours, pieces, strict=True)
    )
    notes = [_rule(frame.at(frame.x.low, value), frame.at(frame.x.high, value)) for value in panel.horizontal]
    notes += [_rule(frame.at(value, frame.y.low), frame.at(value, frame.y.high)) for value in panel.vertical]
    return _axes(frame, panel) + marks + "".join(notes), frame


def _numbers(series: Series) -> tuple[list[float], list[float], list[float]]:
    """The finite points of a series, not more than can be seen."""
    y = np.asarray(series.y, dtype=float).ravel()
    x = np.arange(len(y), dtype=float) if series.x is None else np.asarray(series.x, dtype=float).ravel()
    upper = y if series.upper is None else np.asarray(series.upper, dtype=float).ravel()
    good = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & np.isfinite(upper))
    most = MOST_POINTS if series.style in ("line", "steps", "band") else 5 * MOST_POINTS
    if len(good) > most:
        good = good[np.unique(np.linspace(0, len(good) - 1, most).astype(int))]
    return x[good].tolist(), y[good].tolist(), upper[good].tolist() if series.upper is not None else []


def _series(
    series: Series, frame: PlotFrame, colour: str, x: Sequence[float], y: Sequence[float], upper: Sequence[float]
) -> str:
    places = [frame.at(a, b) for a, b in zip(x, y, strict=True) if frame.x.holds(a) and frame.y.holds(b)]
    values = [f"{number(a)}, {number(b)}" for a, b in zip(x, y, strict=True) if frame.x.holds(a) and frame.y.holds(b)]
    stroke = f'fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round"'
    match series.style:
        case "line":
            return f'<polyline points="{_list_places(places)}" {stroke}/>'
        case "steps":
            corners = [corner for (a, b), (c, d) in pairwise(places) for corner in ((a, b), (c, b))]
            return f'<polyline points="{_list_places([*corners, *places[-1:]])}" {stroke}/>'
        case "points":
            return "".join(
                f'<circle cx="{a}" cy="{b}" r="2.6" fill="{colour}" fill-opacity=".75">{title}</circle>'
                for (a, b), title in zip(places, _titles(series.label, values), strict=True)
            )
        case "bars":
            return _bars(frame, places, _titles(series.label, values), colour)
        case "band":
            back = [frame.at(a, b) for a, b in zip(x, upper, strict=True)][::-1]
            return f'<polygon points="{_list_places([*places, *back])}" fill="{colour}" fill-opacity=".2"/>'
        case _:
            edge = 'stroke="currentColor" stroke-opacity=".5" stroke-width=".6"'
            return f'<polygon points="{_list_places(places)}" fill="{colour}" fill-opacity=".35" {edge}/>'


def _bars(frame: PlotFrame, places: Sequence[tuple[float, float]], titles: Iterable[str], colour: str) -> str:
    ground = frame.at(frame.x.low, max(frame.y.low, 0.0) if frame.y.low <= 0 else frame.y.low)[1]
    gaps = [b[0] - a[0] for a, b in pairwise(places)]
    wide = max(1.5, 0.8 * min(gaps, default=24.0))
    return "".join(
        f'<rect x="{a - wide / 2:.1f}" y="{min(b, ground):.1f}" width="{wide:.1f}" '
        f'height="{max(abs(ground - b), 0.8):.1f}" fill="{colour}">{title}</rect>'
        for (a, b), title in zip(places, titles, strict=True)
    )


def _titles(label: str, values: Sequence[str]) -> Iterable[str]:
    few = len(values) <= 10 * MOST_TITLES
    head = f"{label}: " if label else ""
    return (f"<title>{escape(head + value)}</title>" if few else "" for value in values)


def _list_places(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{a},{b}" for a, b in places)


def _equal(frame: PlotFrame) -> PlotFrame:
    """The same with one unit as long across as up."""
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    unit = max((frame.x.high - frame.x.low) / wide, (frame.y.high - frame.y.low) / high)
    return PlotFrame(frame.x.widened(unit * wide), frame.y.widened(unit * high))


def _axes(frame: PlotFrame, panel: Panel) -> str:
    low, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value, text in frame.x.ticks():
        x = frame.at(value, frame.y.low)[0]
        label = f'<text x="{x}" y="{low + 13}" text-anchor="middle">{_raise_power(text)}</text>'
        parts.append(_line(x, TOP, x, low, 0.12) + label)
    for value, text in frame.y.ticks():
        y = frame.at(frame.x.low, value)[1]
        parts.append(
            _line(LEFT, y, right, y, 0.12)
            + f'<text x="{LEFT - 5}" y="{y + 3.5}" text-anchor="end">{_raise_power(text)}</text>'
        )
    parts.append(_line(LEFT, low, right, low, 0.55) + _line(LEFT, TOP, LEFT, low, 0.55))
    return "".join(parts) + _names(panel.x, panel.y)


def _raise_power(text: str) -> str:
    """A number as people write it.

    >>> _raise_power("1e-14"), _raise_power("2.5e+06"), _raise_power("0.5")
    ('10⁻¹⁴', '2.5·10⁶', '0.5')
    """
    digits, marked, power = text.partition("e")
    if not marked or not power.lstrip("+-").isdigit():
        return text
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def _names(x: str, y: str) -> str:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    across = (
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x)}</text>' if x else ""
    )
    up = f'<text transform="translate(11 {middle}) rotate(-90)" text-anchor="middle">{escape(y)}</text>' if y else ""
    return across + up


def _line(x1: float, y1: float, x2: float, y2: float, strength: float) -> str:
    return f'<path d="M{x1} {y1}L{x2} {y2}" stroke="currentColor" stroke-opacity="{strength}"/>'


def _rule(start: tuple[float, float], end: tuple[float, float]) -> str:
    path = f"M{start[0]} {start[1]}L{end[0]} {end[1]}"
    return f'<path d="{path}" stroke="currentColor" stroke-opacity=".7" stroke-dasharray="4 3"/>'


# Maps


def _map(series: Series, panel: Panel) -> tuple[str, PlotFrame]:
    """A matrix as cells: the larger a value, the more colour."""
    whole = np.atleast_2d(np.asarray(series.y, dtype=float))
    cells = _coarse(_coarse(whole, 0), 1)
    finite = cells[np.isfinite(cells)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    rows, columns = cells.shape
    across = list(range(whole.shape[1])) if series.x is None else np.asarray(series.x).ravel().tolist()
    whose = _cell_names(series, panel, whole.shape == cells.shape, across)
    wide, tall = (WIDTH - LEFT - RIGHT) / columns, (HEIGHT - TOP - BOTTOM - 16) / rows
    parts = []
    for row, column in zip(*np.nonzero(np.isfinite(cells)), strict=True):
        value = float(cells[row, column])
        share = 0.06 + 0.94 * (value - low) / (high - low) if high > low else 0.5
        place = f'x="{LEFT + wide * column:.2f}" y="{TOP + 16 + tall * row:.2f}" width="{wide:.2f}" height="{tall:.2f}"'
        title = f"<title>{escape(whose(int(row), int(column)))}{number(value)}</title>"
        parts.append(f'<rect {place} fill="var(--s1,{COLOURS[0]})" fill-opacity="{share:.2f}">{title}</rect>')
    frame = PlotFrame(Scale(0, whole.shape[1], False), Scale(whole.shape[0], 0, False))
    parts += [
        _text(LEFT, HEIGHT - BOTTOM + 13, number(across[0])),
        _text(WIDTH - RIGHT, HEIGHT - BOTTOM + 13, number(across[-1]), "end"),
        _text(LEFT - 5, TOP + 26, "1" if series.rows else "0", "end"),
        _text(LEFT - 5, HEIGHT - BOTTOM, str(whole.shape[0] - (not series.rows)), "end"),
        _text(LEFT, TOP + 8, f"pale {number(low)}, full {number(high)}"),
    ]
    return "".join(parts) + _names(panel.x, panel.y), frame


def _cell_names(series: Series, panel: Panel, each: bool, across: Sequence[float]) -> Callable[[int, int], str]:
    """What a cell of a map is, in words, where rows have names and no cell is a mean of several."""
    if not (each and series.rows):
        return lambda _row, _column: ""
    return lambda row, column: f"{series.rows[row]}, {panel.x} {number(across[column])}: "


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'


def _coarse(cells: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    """Means of neighbours, where there are more cells than can be told apart."""
    size = cells.shape[axis]
    if size <= MOST_CELLS:
        return cells
    parts = np.array_split(cells, MOST_CELLS, axis=axis)
    mean: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] = lambda part: _mean(part, axis)  # noqa: E731
    return np.stack([mean(part) for part in parts], axis=axis)


def _mean(part: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    there = np.isfinite(part)
    count = there.sum(axis=axis)
    total = np.where(there, part, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), math.nan)


# For the page's script


def _readout(panel: Panel, frame: PlotFrame) -> str:
    """The curves as numbers, for a cursor that reads them."""
    curves = []
    for series in panel.series[:8]:
        if series.style in ("line", "steps", "points"):
            x, y, _ = _numbers(series)
            places: Any = np.unique(np.linspace(0, max(len(x) - 1, 0), min(len(x), 120)).astype(int)) if x else []
            curves.append(
                {"label": series.label, "x": [_short(x[k]) for k in places], "y": [_short(y[k]) for k in places]}
            )
    data = {
        "x": [frame.x.low, frame.x.high, frame.x.log], "name": panel.x, "y": panel.y or panel.title, "curves": curves,
        "box": [LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM],
    }  # fmt: skip
    return escape(json.dumps(data, separators=(",", ":")), quote=True)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
