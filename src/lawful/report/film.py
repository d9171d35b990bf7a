"""Points and lines in the plane that move: a drawing with a slider, and a button that plays it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from lawful.figure import COLOURS, page_colour
from lawful.report.page import Markup
from lawful.types import Floats

SIZE, EDGE = (640, 440), 20.0  # of the drawing, and what is left free around it
MOST = 60_000  # coordinates in one film: more points than that are thinned out
SCRIPT = Path(__file__).with_name("film.js")


@dataclass(frozen=True, eq=False)
class Film:
    """What to show: `points` (frames × points × 2) with a label each, and a title for each frame.

    `lines` (frames × segments × 4: x, y, x', y') move along, `marks` (a row each) stay. `names` are the labels' words.
    """

    points: Floats
    labels: Sequence[int]
    titles: Sequence[str]
    names: Sequence[str] = ()
    lines: Floats | None = None
    marks: Floats | None = None


def film(shown: Film, caption: str) -> Markup:
    """The drawing as HTML of its own: it shows its last frame where scripts do not run."""
    points, labels = _thinned(shown)
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
        f'<line x1="{a:g}" y1="{b:g}" x2="{c:g}" y2="{d:g}" stroke="currentColor" stroke-opacity=".55"/>'
        for a, b, c, d in strokes[-1]
    )
    squares = "".join(
        f'<rect x="{x - 4:g}" y="{y - 4:g}" width="8" height="8" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        for x, y in place(marks)
    )
    last = len(frames) - 1
    data = json.dumps({"points": frames, "lines": strokes, "titles": list(shown.titles)}, separators=(",", ":"))
    return Markup(
        f'<div data-motion><svg viewBox="0 0 {SIZE[0]} {SIZE[1]}" role="img" aria-label="{escape(caption)}">'
        f"{rays}{squares}{dots}</svg>{_legend(shown.names, labels)}"
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
        found = np.stack([EDGE + moved[:, 0], SIZE[1] - EDGE - moved[:, 1]], axis=1)
        return np.clip(found, -1e4, 1e4)


def _frame(points: Floats) -> tuple[Floats, float]:
    """The lower left corner and the scale at which all points fit, centred."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array(SIZE) - 2 * EDGE
    scale = float((room / np.maximum(high - low, 1e-12 * max(float(np.abs(points).max()), 1e-300))).min())
    return np.asarray((low + high) / 2 - room / scale / 2), scale


def _thinned(shown: Film) -> tuple[Floats, Sequence[int]]:
    """Every so many points only, if there are too many for a page; at least one of each label."""
    points, labels = np.asarray(shown.points), np.asarray(shown.labels)
    stride = -(-points.size // MOST)
    chosen = np.unique(np.r_[np.arange(0, len(labels), stride), np.unique(labels, return_index=True)[1]])
    return points[:, chosen], labels[chosen].tolist()


def _legend(names: Sequence[str], labels: Sequence[int]) -> str:
    if not names or len(names) > 2 * len(COLOURS):
        return ""
    found = "".join(
        f'<span><svg width="12" height="12" aria-hidden="true"><circle cx="6" cy="6" r="5" '
        f'fill="{page_colour(label)}"/></svg> {escape(str(names[label])[:20])}</span> '
        for label in sorted(set(labels))
    )
    return f"<p>{found}</p>"
