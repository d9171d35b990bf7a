"""Figures as data: drawn as SVG for pages and notebooks (`svg`), by matplotlib for files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lawful.extras import needed
from lawful.figure.data import Panel, Series, Style
from lawful.figure.inline_svg import COLOURS, STYLE, page_colour, svg

__all__ = ["COLOURS", "STYLE", "Figure", "Panel", "Series", "Style", "draw", "page_colour", "svg"]


@dataclass(frozen=True)
class Figure:
    """Panels side by side, and a caption that says what to see."""

    caption: str
    panels: Sequence[Panel]

    def _repr_html_(self) -> str:
        caption = f"<figcaption>{escape(self.caption)}</figcaption>"
        return f'<style>{STYLE}</style><figure style="margin:0">{svg(self.caption, self.panels)}{caption}</figure>'

    def to_matplotlib(self) -> Any:
        """The same as a `matplotlib.figure.Figure`, to adapt and to save."""
        return _canvas(self)


def draw(figure: Figure, target: Path | BinaryIO, kind: str) -> None:
    """Draw to a file or a buffer in the given format."""
    canvas = _canvas(figure)
    with _style():
        canvas.savefig(target, format=kind, metadata={"Date": None} if kind == "svg" else None, dpi=150)


def _style() -> Any:
    mpl = needed("matplotlib")
    style: Any = {
        "svg.hashsalt": "lawful", "font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": 10, "legend.frameon": False, "legend.fontsize": 8,
    }  # fmt: skip
    return mpl.rc_context(style)


def _canvas(figure: Figure) -> Any:
    with _style():
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(4.2 * len(figure.panels), 3.4), layout="constrained")
        for axes, panel in zip(np.ravel(canvas.subplots(1, len(figure.panels))), figure.panels, strict=True):
            _draw_panel(axes, panel)
    return canvas


def _draw_panel(axes: Any, panel: Panel) -> None:
    for number, series in enumerate(panel.series):
        _draw_series(axes, series, series.colour or COLOURS[number % len(COLOURS)])
    for value in panel.horizontal:
        axes.axhline(value, color="#444", lw=0.8, ls="--")
    for value in panel.vertical:
        axes.axvline(value, color="#444", lw=0.8, ls="--")
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.log_x:
        axes.set_xscale("log")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.equal:
        axes.set_aspect("equal")
    if any(series.label for series in panel.series):
        axes.legend()


def _draw_series(axes: Any, series: Series, colour: str) -> None:
    y = np.asarray(series.y)
    x = np.arange(len(y)) if series.x is None else np.asarray(series.x)
    label = series.label or None
    match series.style:
        case "line":
            axes.plot(x, y, color=colour, label=label, lw=1.4)
        case "points":
            axes.plot(x, y, "o", color=colour, label=label, ms=3)
        case "bars":
            axes.bar(x, y, color=colour, label=label)
        case "steps":
            axes.step(x, y, where="post", color=colour, label=label)
        case "band":
            axes.fill_between(x, y, np.asarray(series.upper), color=colour, alpha=0.2, label=label, lw=0)
        case "polygon":
            axes.fill(x, y, facecolor=colour, alpha=0.35, edgecolor="#333", lw=0.4, label=label)
        case "heat":
            axes.figure.colorbar(axes.imshow(y, aspect="auto", cmap="viridis"), ax=axes)
            axes.grid(False)
