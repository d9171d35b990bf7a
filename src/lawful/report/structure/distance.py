"""The distance of two networks as text and JSON; computes nothing."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lawful.outward import at_least, at_most
from lawful.report.plain import pick
from lawful.sentences.bounds import (
    difference_exceeds,
    difference_lies_between,
    difference_stays_within,
    is_monotone,
    is_not_monotone,
    property_fails,
    property_holds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lawful.api.vnncomp import InstanceResult
    from lawful.bounds.property import PropertyCheck
    from lawful.bounds.result import Distance
    from lawful.fibers.monotone import MonotoneCheck

NORMS = {math.inf: "max |g − f|", 1.0: "max ‖g − f‖₁", 2.0: "max ‖g − f‖₂"}
MOST_SHOWN = 12


def distance_json(found: Distance) -> dict[str, Any]:
    """The keys of `lawful distance --json`."""
    return {
        **pick(found, "status lower=lower_float upper input"),
        "exact_lower": str(found.lower),
        "per_output": [
            {"output": gap.output, "lower": gap.lower_float, "upper": gap.upper} for gap in found.per_output
        ],
        "boxes": found.boxes,
        "within": None if found.within is None else float(found.within),
        "norm": "inf" if found.norm == math.inf else int(found.norm),
        "arithmetic": "lower: exact rationals; upper: float64, rounded outwards",
        **pick(found, "interrupted stalled seconds"),
    }


def distance_text(found: Distance) -> str:
    """The bounds for people: the verdict first."""
    words = NORMS[found.norm]
    bounds = difference_lies_between(words, found.lower, found.upper)
    lines = [_distance_head(found, words, bounds) + (" (interrupted)" if found.interrupted else "")]
    if found.status != "bounded":
        lines.append(f"  {bounds}")
    lines.append(f"  lower bound at  [{_numbers(found.input)}]")
    if len(found.per_output) > 1:
        for gap in found.per_output[:MOST_SHOWN]:
            lines.append(f"  output {gap.output}: {at_least(gap.lower, 6)} to {at_most(gap.upper, 6)}")
        if len(found.per_output) > MOST_SHOWN:
            lines.append(f"  and {len(found.per_output) - MOST_SHOWN} more outputs")
    if found.stalled:
        lines.append("  stopped early: with four times as many boxes neither bound moved")
    lines.append(f"  {found.boxes:,} boxes, {found.seconds:.2f} s")
    return "\n".join(lines)


def _distance_head(found: Distance, norm: str, bounds: str) -> str:
    if found.within is None:
        return bounds
    if found.status == "proved":
        return difference_stays_within(norm, found.within)
    if found.status == "violated":
        return difference_exceeds(norm, found.within)
    return f"UNDECIDED: neither proved nor violated within {float(found.within):g}"


def property_json(found: PropertyCheck) -> dict[str, Any]:
    """The keys of `lawful check --json`."""
    return {
        **pick(found, "status input"),
        "outputs": None if found.outputs is None else [float(value) for value in found.outputs],
        "boxes": found.boxes,
        "why": found.why or None,
        "arithmetic": "holds: float64, rounded outwards; violated: exact rationals",
        **pick(found, "interrupted seconds"),
    }


def property_text(found: PropertyCheck) -> str:
    """The verdict for people, then the evidence."""
    lines = [
        {
            "holds": property_holds(),
            "violated": property_fails(),
            "undecided": "UNDECIDED: neither proved nor violated",
        }[found.status]
        + (" (interrupted)" if found.interrupted else "")
    ]
    if found.input is not None and found.outputs is not None:
        lines.append(f"  input    [{_numbers(found.input)}]")
        lines.append(f"  outputs  [{_numbers([float(value) for value in found.outputs])}]")
    if found.why:
        lines.append(f"  {found.why}")
    lines.append(f"  {found.boxes:,} boxes, {found.seconds:.2f} s")
    return "\n".join(lines)


def monotone_json(found: MonotoneCheck) -> dict[str, Any]:
    """The keys of `lawful check --monotone --json`."""
    first, second = (None, None) if found.inputs is None else found.inputs
    here, there = (None, None) if found.values is None else [[float(value) for value in at] for at in found.values]
    return {
        "status": found.status,
        "input": first,
        "outputs": here,
        "other_input": second,
        "other_outputs": there,
        "violated_output": found.output,
        "monotone": _directions(found),
        **pick(found, "asked_outputs=outputs boxes"),
        "walked": len(found.regions),
        "arithmetic": "holds: float64, rounded outwards, exact rationals on boxes walked; violated: exact rationals",
        **pick(found, "interrupted seconds"),
    }


def monotone_text(found: MonotoneCheck) -> str:
    """The verdict for people, then the evidence."""
    asked = "the outputs are" if len(found.outputs) > 1 else f"output {found.outputs[0]} is"
    how = "exact slopes, region by region" if found.tree == (0,) and found.regions else "float64, rounded outwards"
    how += ", and exact slopes on small boxes" if len(found.tree) > 1 and found.regions else ""
    if found.status == "holds":
        head = is_monotone(asked, _directions(found), how)
    elif found.output is not None:
        head = is_not_monotone(found.output)
    else:
        head = f"UNDECIDED: whether {asked} monotone in {_directions(found)}"
    lines = [head + (" (interrupted)" if found.interrupted else "")]
    if found.inputs is not None and found.values is not None and found.output is not None:
        for point, values in zip(found.inputs, found.values, strict=True):
            lines.append(f"  [{_numbers(point)}]  output {found.output}: {float(values[found.output]):.9g}")
    lines.append(f"  {found.boxes:,} boxes, {found.seconds:.2f} s")
    return "\n".join(lines)


def _directions(found: MonotoneCheck) -> str:
    return ",".join(f"{'+' if direction.rising else '-'}{direction.input}" for direction in found.directions)


def _numbers(values: Any) -> str:
    shown = [f"{value:.6g}" for value in values[:MOST_SHOWN]]
    return ", ".join(shown + (["..."] if len(values) > MOST_SHOWN else []))


MOST_INSTANCES = 200


def vnncomp_json(results: Sequence[InstanceResult], total: Mapping[str, float]) -> dict[str, Any]:
    """The keys of `lawful vnncomp --json`."""
    return {**total, "results": [asdict(instance) for instance in results]}


def vnncomp_text(results: Sequence[InstanceResult], total: Mapping[str, float]) -> str:
    """A line for each instance, then the counts."""
    lines = []
    for instance in results[:MOST_INSTANCES]:
        checked = f"re-checked in {instance.recheck_seconds:.2f} s" if instance.recheck_seconds >= 0 else instance.note
        name = f"{instance.network.rpartition('/')[2]}  {instance.specification.rpartition('/')[2]}"
        lines.append(f"{instance.result:8}{instance.seconds:8.2f} s  {name}  {checked}")
    if len(results) > MOST_INSTANCES:
        lines.append(f"and {len(results) - MOST_INSTANCES} more")
    lines.append(
        f"{total['instances']} instances: {total['unsat']} unsat, {total['sat']} sat, {total['timeout']} timeout, "
        f"{total['error']} errors, {total['open']} not run; {total['certified']} answers re-checked"
    )
    lines.append(f"{total['seconds']:.1f} s to find, {total['recheck_seconds']:.1f} s to re-check")
    return "\n".join(lines)
