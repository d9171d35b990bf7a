"""What a figure shows, before anybody draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

Style = Literal["line", "points", "bars", "steps", "band", "polygon", "heat"]


@dataclass(frozen=True)
class Series:
    """One thing to draw: y over x.

    A `band` fills between `y` and `upper`, a `polygon` has corners (x, y), a `heat` shows the matrix `y`, whose columns
    stand for `x` and whose `rows` have names.
    """

    y: ArrayLike
    x: ArrayLike | None = None
    label: str = ""
    style: Style = "line"
    upper: ArrayLike | None = None
    colour: str | None = None
    rows: Sequence[str] = ()


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
