"""Points and lines in the plane that move: a drawing with a slider, and a button that plays it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from lawful.figure import COLOURS, page_colour
from lawful.figure.scale import Scale
from lawful.report.page.page import Markup
from lawful.types import Floats

SIZE, EDGE = (640, 440), 12.0  # of the drawing, and what is left free around the points
LEFT, BOTTOM = 52.0, 40.0  # room for the numbers and names of the axes
MOST = 60_000  # coordinates in one film: more points than that are thinned out
SCRIPT = Path(__file__).with_name("film.js")


@dataclass(frozen=True, eq=False)
class Film:
    """What to show: `points` (frames × points × 2) with a label each, and a title for each frame.

    `lines` (frames × segments × 4: x, y, x', y') move along, in the colours of `line_labels` if there are any; `marks`
    (a row each) stay. `names` are the labels' words, `axes` what is measured across and up.
    """

    points: Floats
    labels: Sequence[int]
    titles: Sequence[str]
    names: Sequence[str] = ()
    lines: Floats | None = None
    marks: Floats | None = None
    line_labels: Sequence[int] = ()
    axes: tuple[str, str] = ("", "")


def film(shown: Film, caption: str) -> Markup:
    """The drawing as HTML of its own: it begins with its last frame, and pale dots stay where the points came from."""
    points, labels = _thin(shown)
    marks = np.zeros((0, 2)) if shown.marks is None else np.asarray(shown.marks)
    lines = np.zeros((len(points), 0, 4)) if shown.lines is None else np.asarray(shown.lines)
    corner, scale = _frame(np.concatenate([points.reshape(-1, 2), marks]))
    place = _Place(corner, scale)
    frames = [np.round(place(frame), 1).tolist() for frame in points]
    strokes = [np.round(place(frame.reshape(-1, 2)), 1).reshape(-1, 4).tolist() for frame in lines]
    dots = "".join(
        f'<circle r="3" cx="{x:g}" cy="{y:g}" fill="{page_colour(label)}" fill-opacity=".75"/>'
        for (x, y), label in zip(frames[-1], labels, strict=True)
    )
    rays = "".join(
        f'<line x1="{a:g}" y1="{b:g}" x2="{c:g}" y2="{d:g}" stroke="{colour}" stroke-opacity=".7"/>'
        for (a, b, c, d), colour in zip(strokes[-1], _line_colours(shown, len(strokes[-1])), strict=True)
    )
    squares = "".join(
        f'<rect x="{x - 4:g}" y="{y - 4:g}" width="8" height="8" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        for x, y in place(marks)
    )
    last = len(frames) - 1
    inside = f'x="{LEFT:g}" y="0" width="{SIZE[0] - LEFT:g}" height="{SIZE[1] - BOTTOM:g}"'
    window = f'<svg aria-hidden="true" {inside} viewBox="{LEFT:g} 0 {SIZE[0] - LEFT:g} {SIZE[1] - BOTTOM:g}">'
    data = json.dumps({"points": frames, "lines": strokes, "titles": list(shown.titles)}, separators=(",", ":"))
    return Markup(
        f'<div data-motion><svg viewBox="0 0 {SIZE[0]} {SIZE[1]}" role="img" aria-label="{escape(caption)}">'
        f"{_grid(place, shown.axes)}{window}{_pale(frames[0], labels)}{rays}{squares}{dots}</svg></svg>"
        f"{_legend(shown.names, labels)}"
        f'<p><button type="button">Play</button> <input type="range" aria-label="frame" min="0" max="{last}" '
        f'value="{last}"></p><output>{escape(shown.titles[-1])}</output>'
        f'<script type="application/json">{data.replace("<", chr(92) + "u003c")}</script></div>'
        f"<script>{SCRIPT.read_text(encoding='utf-8')}</script>",
        caption,
    )


@dataclass(frozen=True, eq=False)
class _Place:
    """From data to the drawing, whose second axis points down."""

    corner: Floats
    scale: float

    def __call__(self, points: Floats) -> Floats:
        moved = (points - self.corner) * self.scale
        pixels = np.stack([LEFT + EDGE + moved[:, 0], SIZE[1] - BOTTOM - EDGE - moved[:, 1]], axis=1)
        return np.clip(pixels, -1e4, 1e4)

    def ticks(self, axis: int) -> list[tuple[float, str]]:
        """Where the round numbers of an axis land in the drawing, with their texts."""
        room = (SIZE[0] - LEFT if axis == 0 else SIZE[1] - BOTTOM) / self.scale
        low = float(self.corner[axis]) - EDGE / self.scale
        if not low + room > low:
            return []  # all points are one, as far as floats can tell
        labels = Scale(low, low + room, False).ticks()
        drawn = self(np.repeat([[value] for value, _ in labels], 2, axis=1))[:, axis]
        return [(float(at), text) for at, (_, text) in zip(drawn, labels, strict=True)]


def _grid(place: _Place, axes: tuple[str, str]) -> str:
    """Axes with numbers, thin lines across, and the axes' names."""
    right, low = SIZE[0], SIZE[1] - BOTTOM
    middle, end = (f'text-anchor="{side}" fill="currentColor"' for side in ("middle", "end"))
    parts = [f'<path d="M{LEFT:g} 0V{low:g}H{right:g}" fill="none" stroke="currentColor" stroke-opacity=".55"/>']
    for x, text in place.ticks(0):
        parts.append(f'<path d="M{x:.1f} 0V{low:g}" stroke="currentColor" stroke-opacity=".1"/>'
                     f'<text x="{x:.1f}" y="{low:g}" dy="1.2em" {middle}>{text}</text>')  # fmt: skip
    for y, text in place.ticks(1):
        parts.append(f'<path d="M{LEFT:g} {y:.1f}H{right:g}" stroke="currentColor" stroke-opacity=".1"/>'
                     f'<text x="{LEFT - 6:g}" y="{y:.1f}" dy=".35em" {end}>{text}</text>')  # fmt: skip
    across, up = (f'class="axis" {middle}>{escape(name)}</text>' for name in axes)
    parts.append(f'<text x="{(LEFT + right) / 2:g}" y="{SIZE[1] - 6:g}" {across}')
    parts.append(f'<text transform="translate(12 {low / 2:g}) rotate(-90)" {up}')
    return "".join(parts)


def _pale(start: list[list[float]], labels: Sequence[int]) -> str:
    """Where the points came from: one path of dots for each label."""
    dots: dict[int, list[str]] = {}
    for (x, y), label in zip(start, labels, strict=True):
        dots.setdefault(label, []).append(f"M{x:g} {y:g}h0")
    return "".join(
        f'<path d="{"".join(dashes)}" stroke="{page_colour(label)}" stroke-opacity=".22" stroke-width="5" '
        'stroke-linecap="round"/>'
        for label, dashes in sorted(dots.items())
    )


def _line_colours(shown: Film, count: int) -> list[str]:
    return [page_colour(label) for label in shown.line_labels] or ["currentColor"] * count


def _frame(points: Floats) -> tuple[Floats, float]:
    """The lower left corner and the scale at which all points fit, centred."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array(SIZE) - 2 * EDGE - np.array((LEFT, BOTTOM))
    scale = float((room / np.maximum(high - low, 1e-12 * max(float(np.abs(points).max()), 1e-300))).min())
    return np.asarray((low + high) / 2 - room / scale / 2), scale


def _thin(shown: Film) -> tuple[Floats, Sequence[int]]:
    """Every so many points only, if there are too many for a page; at least one of each label."""
    points, labels = np.asarray(shown.points), np.asarray(shown.labels)
    stride = -(-points.size // MOST)
    chosen = np.unique(np.r_[np.arange(0, len(labels), stride), np.unique(labels, return_index=True)[1]])
    return points[:, chosen], labels[chosen].tolist()


def _legend(names: Sequence[str], labels: Sequence[int]) -> str:
    if not names or len(names) > 2 * len(COLOURS):
        return ""
    entries = "".join(
        f'<span><svg width="12" height="12" aria-hidden="true"><circle cx="6" cy="6" r="5" '
        f'fill="{page_colour(label)}"/></svg> {escape(str(names[label])[:20])}</span> '
        for label in sorted(set(labels))
    )
    return f"<p>{entries}</p>"
