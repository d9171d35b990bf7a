"""Figures as data, and the one place that draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import ArrayLike

Style = Literal["line", "points", "bars", "steps", "band", "polygon", "heat"]
COLOURS = ("#2a6f97", "#c8553d", "#588157", "#8e6bbf", "#d4a017", "#5f6c7b", "#b5446e", "#2f9e9e")


@dataclass(frozen=True)
class Series:
    """One thing to draw: y over x.

    A `band` fills between `y` and `upper`, a `polygon` has corners (x, y), a `heat` shows the matrix `y`.
    """

    y: ArrayLike
    x: ArrayLike | None = None
    label: str = ""
    style: Style = "line"
    upper: ArrayLike | None = None
    colour: str | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `horizontal` and `vertical` lines mark values of note."""

    series: Sequence[Series]
    title: str = ""
    x: str = ""
    y: str = ""
    log_x: bool = False
    log_y: bool = False
    equal: bool = False
    horizontal: Sequence[float] = ()
    vertical: Sequence[float] = ()


@dataclass(frozen=True)
class Figure:
    """Panels side by side, and a caption that says what to see."""

    caption: str
    panels: Sequence[Panel]


def draw(figure: Figure, target: Path | BinaryIO, kind: str) -> None:
    """Draw to a file or a buffer in the given format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    style: Any = {
        "svg.hashsalt": "lawful", "font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": 10, "legend.frameon": False, "legend.fontsize": 8,
    }  # fmt: skip
    with mpl.rc_context(style):
        canvas = Canvas(figsize=(4.2 * len(figure.panels), 3.4), layout="constrained")
        for axes, panel in zip(np.ravel(canvas.subplots(1, len(figure.panels))), figure.panels, strict=True):
            _draw_panel(axes, panel)
        canvas.savefig(target, format=kind, metadata={"Date": None} if kind == "svg" else None, dpi=150)


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
