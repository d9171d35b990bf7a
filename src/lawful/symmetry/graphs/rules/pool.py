"""Pools, resampling and padding: channels pass, places do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.labels import varying


def pool(step: Step, self: GraphMotion, *rest: Any, **options: Any) -> GraphMotion | tuple[GraphMotion, ...]:
    """Averages over windows: any gauge of the channels passes."""
    return _pooled(step, self, largest=False)


def max_pool(step: Step, self: GraphMotion, *rest: Any, **options: Any) -> GraphMotion | tuple[GraphMotion, ...]:
    """The largest in a window: positive diagonals pass."""
    return _pooled(step, self, largest=True)


def _pooled(step: Step, self: GraphMotion, largest: bool) -> GraphMotion | tuple[GraphMotion, ...]:
    x, shape = step.settled(self), step.shapes[0]
    step.shifts.drop(x.shifts)
    spatial = next((int(letter) for letter in step.name if letter.isdigit()), len(shape) - 2)
    changed = [d for d in range(len(shape)) if shape[d] != x.shape[d] or d >= len(shape) - spatial]
    gauges = []
    for field in x.gauges:
        if set(varying(field)) & set(changed):
            step.gauges.pin(field, step.name)
            continue
        if largest:
            step.gauges.diagonal(field)
        for d in changed:
            field = field.narrow(d, 0, 1)
        gauges.append(field.expand(shape))
    result = GraphMotion(shape, tuple(gauges))
    return result if len(step.shapes) == 1 else (result, *(GraphMotion(other) for other in step.shapes[1:]))


def pad(step: Step, self: GraphMotion, pad: Sequence[int], mode: Any = "constant", value: Any = 0) -> GraphMotion:
    """A border of zeros is linear; any other constant is seen."""
    fill = mode if isinstance(mode, (int, float)) else value
    if fill and (mode == "constant" or isinstance(mode, (int, float))):
        step.pin(self)
        return GraphMotion(step.shape)
    return _pooled(step, self, largest=False)  # type: ignore[return-value]
