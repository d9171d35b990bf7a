"""A network's regions in the plane as a figure, like Figures 1 and 2 of P4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lawful.figure import COLOURS, Figure, Panel, Series


def complex_figure(polygons: Sequence[Any], lines: Sequence[tuple[int, bool, Any]], domain: Any) -> Figure:
    """Regions in the plane with the bent hyperplanes over them, hidden pieces in grey."""
    regions = [
        Series(corners[:, 1], corners[:, 0], style="polygon", colour=COLOURS[place % len(COLOURS)])
        for place, corners in enumerate(polygons)
        if len(corners) > 2
    ]
    named: set[tuple[int, bool]] = set()
    drawn = []
    for layer, visible, ends in lines:
        label = "" if (layer, visible) in named else f"layer {layer + 1}" + ("" if visible else ", not visible")
        named.add((layer, visible))
        colour = COLOURS[layer % len(COLOURS)] if visible else "#999999"
        drawn.append(Series(ends[:, 1], ends[:, 0], label=label, colour=colour))
    caption = f"{len(regions)} regions and the bent hyperplanes on {domain}"
    return Figure(caption, [Panel([*regions, *drawn], x="x0", y="x1", equal=True)])
