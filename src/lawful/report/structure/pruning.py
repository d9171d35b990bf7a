"""Prunings and curves of sizes as text and as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from lawful.figure import Figure, Panel, Series
from lawful.outward import at_most
from lawful.pruning.neurons.measure import PruningMeasurement, SizePoint
from lawful.pruning.neurons.prune import Pruning
from lawful.pruning.removable.smallest import Smallest
from lawful.report.structure.singular import named
from lawful.sentences import pruning as says

if TYPE_CHECKING:
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.files.onnx_channels import OnnxPruning

WHY = {
    "silent": "all outgoing weights lead nowhere",
    "constant": "constant for every input; folded into biases",
    "dead": "never active",
    "duplicate": "a multiple of another neuron; merged",
    "opposite": "the opposite of another; unfolded into it and direct edges",
    "linear": "linear; replaced by direct edges",
    "joined": "linear; joined with others of its layer",
    "dependent": "others of their layer say exactly the same together",
    "near": "nearly constant or nearly a duplicate",
    "replaced": "others of their layer say nearly the same together",
}


def pruning_json(
    pruning: Pruning,
    seen: PruningMeasurement | None,
    verified: bool,
    out: Path | None,
    smallest: Smallest | None = None,
) -> dict[str, Any]:
    """The documented keys of `lawful prune --json`; what is measured is null if nothing was."""
    return {
        "neurons_before": pruning.neurons_before,
        "neurons_after": pruning.neurons_after,
        "parameters_before": pruning.original.parameters,
        "parameters_after": pruning.network.parameters,
        "max_output_change_bound": pruning.bound,
        "bounds": pruning.bounds,
        "rounding_bound": pruning.rounding,
        "distance_bound": None if seen is None else seen.apart,
        "output_range": None if seen is None else seen.output_range,
        "measured_change": None if seen is None else seen.change,
        "change_on_data": None if seen is None else seen.on_data,
        "samples": None if seen is None else seen.samples,
        "rank": None if seen is None else seen.rank,
        "box": pruning.box,
        "around": pruning.around,
        "verified": verified,
        "steps": [
            {"kind": step.kind, "removed": list(step.removed), "bound": step.bound, "rounding": step.rounding}
            for step in pruning.stages
        ],
        "decided": decided_json(pruning),
        "smallest_equivalent": smallest_json(smallest),
        "written": None if out is None else str(out),
    }


def decided_json(pruning: Pruning) -> dict[str, Any] | None:
    """Which of the neurons that are left are proved to be needed, and why others are undecided; null if not asked."""
    found = pruning.decided
    if found is None:
        return None
    return {"complete": found.complete, "needed": list(found.needed), "undecided": dict(found.undecided)}


def decided_sentence(pruning: Pruning) -> str:
    """What is known of the neurons that are left."""
    found = pruning.decided
    if found is None:
        return "which others are needed was not decided"
    if found.complete:
        return says.all_needed(len(found.needed))
    reason = says.not_decided(list(found.undecided.values()))
    if found.needed:
        return says.some_needed(len(found.needed), len(found.undecided), reason)
    return f"which of the {len(found.undecided)} hidden neurons are needed is undecided ({reason})"


def smallest_sentence(found: Smallest) -> str:
    """How many hidden neurons the function needs."""
    if found.exact:
        return says.smallest(found.lower, found.layers)
    return says.smallest_bounds(found.lower, found.upper, found.layers)


def smallest_json(found: Smallest | None) -> dict[str, Any] | None:
    """The fewest hidden neurons of a network of the same depth and activation that is the same function."""
    return None if found is None else {"lower": found.lower, "upper": found.upper, "exact": found.exact}


def upper(*parts: float) -> Fraction:
    """The exact sum of bounds."""
    return sum(map(Fraction, parts), Fraction(0))


def found_json(pruning: Pruning) -> dict[str, Any]:
    """A pruning that nothing was measured of."""
    return pruning_json(pruning, None, False, None)


def found_text(pruning: Pruning) -> str:
    """The same for people."""
    return pruning_text(pruning, None, None)


def pruning_text(
    pruning: Pruning, seen: PruningMeasurement | None, out: Path | None, smallest: Smallest | None = None
) -> str:
    """What `lawful prune` did, answer first."""
    before, after = pruning.neurons_before, pruning.neurons_after
    lines = [
        f"{before - after} of {before} hidden neurons removed, {after} left; "
        f"{pruning.original.parameters:,} -> {pruning.network.parameters:,} parameters"
    ]
    where = "for every input" if pruning.box is None else "for every input in the box"
    if pruning.around is not None:
        where = says.around_samples(pruning.around, "a sample", pruning.cut_off)
    inside = "[-1, 1]" if pruning.box is None else "the box"
    if pruning.bound == 0:
        lines.append(_wrapped(says.same_function(where, pruning.rounding, inside)))
    else:
        wide = 0.0 if seen is None else float(seen.output_range.max(initial=0.0))
        share = f" ({at_most(100 * Fraction(pruning.bound) / Fraction(wide), 2)}% of its range)" if wide else ""
        lines.append(_wrapped(says.moves_at_most(pruning.bound, where + share, pruning.rounding, inside)))
    if pruning.decided is not None and after:
        lines.append(_wrapped(("of those left, " if before > after else "") + decided_sentence(pruning)))
    if smallest is not None:
        lines.append(_wrapped(smallest_sentence(smallest)))
    if seen is not None and seen.on_data is not None:
        lines.append(f"on the {seen.data} samples of the data: {seen.on_data:.3g}")
    if seen is not None:
        if seen.apart is not None:
            lines.append(_wrapped(says.compared(seen.apart)))
        lines.append(f"measured on {seen.samples} random inputs: {seen.change:.3g}")
        lines.append(f"rank J = {seen.rank} before")
    for step in pruning.stages:
        if not step.removed:  # weights that were only rounded
            continue
        lines.append(named(f"  {len(step.removed)} {step.kind} ({WHY[step.kind]})", step.removed))
    if out is not None:
        lines.append(f"written to {out}")
    return "\n".join(lines)


def _wrapped(words: str) -> str:
    return fill(words, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def channels_json(found: ChannelPruning | OnnxPruning, out: Path | None, verified: bool = False) -> dict[str, Any]:
    """The documented keys of `lawful prune --json` for a module that is pruned channel by channel."""
    return {
        "channels_before": found.channels_before,
        "channels_after": found.channels_after,
        "parameters_before": found.parameters_before,
        "parameters_after": found.parameters_after,
        "removed": [vars(gone) for gone in found.removed],
        "compared": found.compared,
        "notes": found.notes,
        "verified": verified,
        "written": None if out is None else str(out),
    }


def channels_text(
    found: ChannelPruning | OnnxPruning, out: Path | None, certified: bool = False, verified: bool = False
) -> str:
    """What went from a module or an ONNX file, layer by layer."""
    checked = "re-checked in rational arithmetic" if verified else "its evidence is saved"
    if not certified:
        checked = "not re-checked: --verify or --certificate do that"
    after = getattr(found, "rounded", 0.0)
    rounded = f" ({at_most(after, 2)} with weights rounded to their types)" if after > 1e-9 else ""
    lines = [
        f"{len(found.removed)} of {found.channels_before} hidden channels removed, {found.channels_after} left; "
        f"{found.parameters_before:,} -> {found.parameters_after:,} parameters",
        f"the function is the same, up to rounding of the weights that were updated ({checked})"
        if found.parameters_after < found.parameters_before
        else "no rule found anything to remove: the network is as it was",
        f"compared on random inputs: outputs differ by at most {at_most(found.compared, 2)}{rounded}",
        *found.notes,
    ]
    layers: dict[tuple[str, str], list[str]] = {}
    for gone in found.removed:
        layers.setdefault((gone.layer, gone.kind), []).append(str(gone.channel))
    lines += [named(f"  {layer or 'module'}: {len(gone)} {kind}", gone) for (layer, kind), gone in layers.items()]
    if out is not None:
        lines.append(f"written to {out}")
    return "\n".join(lines)


def curve_figure(points: Sequence[SizePoint]) -> Figure:
    """Bounds (and errors on the data) over sizes."""
    sizes = [point.neurons for point in points]
    series = [Series([max(point.bound, 1e-16) for point in points], sizes, label="certified bound")]
    if any(point.on_data is not None for point in points):
        series.append(Series([max(point.on_data or 0.0, 1e-16) for point in points], sizes, label="on the data"))
    return Figure("Largest change of any output.", [Panel(series, "", "hidden neurons left", "change", log_y=True)])


def curve_json(points: Sequence[SizePoint]) -> dict[str, Any]:
    """The documented keys of `lawful prune --curve --json`."""
    return {
        "curve": [
            {
                "neurons": point.neurons,
                "parameters": point.parameters,
                "max_output_change_bound": point.bound,
                "bounds": point.bounds,
                "change_on_data": point.on_data,
            }
            for point in points
        ]
    }


def curve_text(points: Sequence[SizePoint]) -> str:
    """A table, largest network first."""
    seen = any(point.on_data is not None for point in points)
    lines = [f"{'neurons':>8} {'parameters':>11} {'no output moves by more than':>29}" + " on the data" * seen]
    for point in points:
        data = "" if point.on_data is None else f" {point.on_data:>11.3g}"
        lines.append(f"{point.neurons:>8} {point.parameters:>11,} {at_most(point.bound):>29}{data}")
    return "\n".join(lines)
