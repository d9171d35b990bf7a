"""What was read, assumed and ignored, as JSON; computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lawful.network.reading import Reading


def reading_json(reading: Reading) -> dict[str, Any]:
    """The part of a reading for people and programs."""
    layers = [{"name": each.name, "dtype": each.dtype, "shape": list(each.shape)} for each in reading.layers]
    return {
        "format": reading.format,
        "source": reading.source,
        "layers": layers,
        "assumed": list(reading.assumed),
        "ignored": list(reading.ignored),
    }


def readings_json(readings: Sequence[Reading]) -> dict[str, Any]:
    """`reading`; for several networks `readings` has each, and `reading` what was assumed of any."""
    if len(readings) == 1:
        return {"reading": reading_json(readings[0])}
    assumed = list(dict.fromkeys(sentence for each in readings for sentence in each.assumed))
    ignored = list(dict.fromkeys(part for each in readings for part in each.ignored))
    both = {"format": [each.format for each in readings], "assumed": assumed, "ignored": ignored}
    return {"reading": both, "readings": [reading_json(each) for each in readings]}


def reading_lines(reading: Reading) -> list[str]:
    """The same for people who asked for more: every tensor with its type, and what was left out."""
    head = f"read: {reading.source or 'a network'} ({reading.format or 'made in Python'})"
    tensors = [f"  {each.name}  {each.dtype}  {'×'.join(map(str, each.shape)) or '1'}" for each in reading.layers]
    return [head, *tensors, *(f"  ignored: {part}" for part in reading.ignored)]
