"""Pruning jobs as text and as JSON objects."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from lawful.sentences import pruning as says

if TYPE_CHECKING:
    from lawful.pruning.job.bounded import BoundedPruning
    from lawful.pruning.job.evidence import HeldOutAgreement
    from lawful.pruning.job.job import PruningJob


def job_json(found: PruningJob, out: Path | None = None, verified: bool = False) -> dict[str, Any]:
    """The documented keys of `lawful prune --target --json`."""
    seen = found.held_out
    return {
        "target": str(found.target),
        "criterion": found.criterion,
        "parameters_before": found.parameters[0],
        "parameters_after": found.parameters[1],
        "macs_before": found.macs[0],
        "macs_after": found.macs[1],
        "sizes": [vars(size) for size in found.sizes],
        "calibration_samples": found.calibration,
        "choosing_samples": found.chosen_on,
        "held_out": {
            "samples": seen.samples,
            "confidence": seen.confidence,
            "unchanged": seen.unchanged,
            "unchanged_at_least": seen.at_least,
            "largest_change": seen.largest_change,
            "change_at_most_for_99_percent": seen.change_at_most,
            "accuracy_before": None if seen.accuracy is None else seen.accuracy[0],
            "accuracy_after": None if seen.accuracy is None else seen.accuracy[1],
            "accuracy_lost_at_most": seen.accuracy_lost_at_most,
        },
        "latency_ms": {name: {"before": was, "after": now} for name, (was, now) in found.latency.items()},
        "tuned": found.tuned,
        "kinds": kinds(found),
        "notes": list(found.notes),
        "verified": verified,
        "written": None if out is None else str(out),
    }


def kinds(found: PruningJob) -> dict[str, str]:
    """What each part of the work rests on."""
    return {
        "replacement of units by those that stay": "statistical: measured on held-out samples, no proof",
        "removal of what is silent then": "exact: for every input",
    }


def job_text(found: PruningJob, out: Path | None = None, verified: bool = False) -> str:
    """What a job did, answer first."""
    (before, after), (slow, fast) = found.parameters, found.macs
    lines = [
        f"{before:,} -> {after:,} parameters ({_share(after, before)}), "
        f"{slow:,} -> {fast:,} multiplications a sample ({_share(fast, slow)})",
        *_held_out(found.held_out),
        "that is statistics about inputs like these samples, no proof; removing what the repair had silenced is exact"
        + (", and was re-checked" if verified else ""),
    ]
    for name, (was, now) in found.latency.items():
        if was is not None and now is not None:
            lines.append(f"{name}: {was:.3g} -> {now:.3g} ms")
    for size in found.sizes:
        lines.append(f"  {size.name}: {size.before} -> {size.after} {size.kind}")
    lines += found.notes
    if out is not None:
        lines.append(f"written to {out}")
    return "\n".join(fill(line, 100, subsequent_indent="  ", break_long_words=False) for line in lines)


def bounded_json(found: BoundedPruning, out: Path | None = None, verified: bool = False) -> dict[str, Any]:
    """The documented keys of `lawful prune --tolerance --json` for channels."""
    seen = found.held_out
    return {
        "kind": found.kind,
        "parameters_before": found.pruned.parameters_before,
        "parameters_after": found.pruned.parameters_after,
        "sizes": [vars(size) for size in found.sizes],
        "tolerance": list(found.tolerance),
        "max_output_change_bound": None if found.bounds is None else max(found.bounds),
        "bounds": None if found.bounds is None else list(found.bounds),
        "around": found.around,
        "samples": None if found.near is None else len(found.near),
        "box": None if found.box is None else [side.tolist() for side in found.box],
        "held_out": None if seen is None else vars(seen),
        "notes": [*found.notes, *found.pruned.notes],
        "verified": verified,
        "written": None if out is None else str(out),
    }


def bounded_text(found: BoundedPruning, out: Path | None = None, verified: bool = False) -> str:
    """What left, and what its bound is."""
    before, after = found.pruned.parameters_before, found.pruned.parameters_after
    lines = [f"{before:,} -> {after:,} parameters ({_share(after, before)})"]
    if found.kind == "exact":
        lines.append(f"exact: {says.same_function(says.EVERYWHERE, 0.0, '')}")
    elif found.bounds is not None:
        where = "for every input of the box"
        if found.near is not None and found.around is not None:
            where = says.around_samples(found.around, f"one of {len(found.near):,} samples", found.box is not None)
        lines.append(
            f"certified: {says.moves_at_most(max(found.bounds), where)}" + (" (re-checked)" if verified else "")
        )
    if found.held_out is not None and found.kind == "statistical":
        lines += ["statistical, no proof:", *_held_out(found.held_out)]
    for size in found.sizes:
        lines.append(f"  {size.name}: {size.before} -> {size.after} {size.kind}")
    lines += [*found.notes, *found.pruned.notes]
    if out is not None:
        lines.append(f"written to {out}")
    return "\n".join(fill(line, 100, subsequent_indent="  ", break_long_words=False) for line in lines)


def _held_out(seen: HeldOutAgreement) -> list[str]:
    lines = []
    measured = f"{seen.samples:,} held-out sample{'' if seen.samples == 1 else 's'}"
    sure = f"n = {seen.samples:,}, {100 * seen.confidence:g}% confidence"
    if seen.accuracy is not None:
        was, now = seen.accuracy
        lost = f"; lost at most {_up(100 * seen.accuracy_lost_at_most)} points" if seen.accuracy_lost_at_most else ""
        lines.append(f"accuracy {100 * was:.2f}% -> {100 * now:.2f}% on {measured}{lost} ({sure})")
    if seen.at_least is not None:
        lines.append(f"the label is unchanged for at least {_down(100 * seen.at_least)}% of inputs ({sure})")
    if seen.change_at_most is not None:
        lines.append(f"no output moves by more than {_up(seen.change_at_most)} for 99% of inputs ({sure})")
    else:
        lines.append(f"largest change of an output on {measured}: {seen.largest_change:.3g}")
    return lines


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f}%"


def _down(number: float) -> str:
    return f"{math.floor(number * 100) / 100:.2f}"


def _up(number: float | None) -> str:
    return f"{math.ceil((number or 0.0) * 100) / 100:.2f}"
