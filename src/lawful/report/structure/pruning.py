"""Prunings, curves of sizes and pruning jobs as text, JSON objects and a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from lawful.figure import Figure, Panel, Series
from lawful.outward import at_most
from lawful.pruning.neurons.measure import PruningMeasurement, SizePoint
from lawful.pruning.neurons.prune import Pruning
from lawful.pruning.removable.smallest import Smallest
from lawful.report.page.page import Action, Chip, Opening, Picture, Section, Table, render
from lawful.report.plain import pick
from lawful.report.structure.components import list_names
from lawful.sentences import pruning as says

if TYPE_CHECKING:
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.pruning.job.bounded import BoundedPruning
    from lawful.pruning.job.evidence import HeldOutAgreement
    from lawful.pruning.job.job import PruningJob

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
        **pick(pruning, "neurons_before neurons_after"),
        "parameters_before": pruning.original.parameters,
        "parameters_after": pruning.network.parameters,
        **pick(pruning, "max_output_change_bound=bound bounds rounding_bound=rounding"),
        "distance_bound": None if seen is None else seen.apart,
        "output_range": None if seen is None else seen.output_range,
        "measured_change": None if seen is None else seen.change,
        "change_on_data": None if seen is None else seen.on_data,
        "samples": None if seen is None else seen.samples,
        "rank": None if seen is None else seen.rank,
        **pick(pruning, "box around"),
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
    decided = pruning.decided
    if decided is None:
        return None
    return {"complete": decided.complete, "needed": list(decided.needed), "undecided": dict(decided.undecided)}


def decided_sentence(pruning: Pruning) -> str:
    """What is known of the neurons that are left."""
    decided = pruning.decided
    if decided is None:
        return "which others are needed was not decided"
    if decided.complete:
        return says.all_needed(len(decided.needed))
    reason = says.not_decided(list(decided.undecided.values()))
    if decided.needed:
        return says.some_needed(len(decided.needed), len(decided.undecided), reason)
    return f"which of the {len(decided.undecided)} hidden neurons are needed is undecided ({reason})"


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
        lines.append(_wrap(says.same_function(where, pruning.rounding, inside)))
    else:
        wide = 0.0 if seen is None else float(seen.output_range.max(initial=0.0))
        share = f" ({at_most(100 * Fraction(pruning.bound) / Fraction(wide), 2)}% of its range)" if wide else ""
        lines.append(_wrap(says.moves_at_most(pruning.bound, where + share, pruning.rounding, inside)))
    if pruning.decided is not None and after:
        lines.append(_wrap(("of those left, " if before > after else "") + decided_sentence(pruning)))
    if smallest is not None:
        lines.append(_wrap(smallest_sentence(smallest)))
    if seen is not None and seen.on_data is not None:
        lines.append(f"on the {seen.data} samples of the data: {seen.on_data:.3g}")
    if seen is not None:
        if seen.apart is not None:
            lines.append(_wrap(says.compared(seen.apart)))
        lines.append(f"measured on {seen.samples} random inputs: {seen.change:.3g}")
        lines.append(f"rank J = {seen.rank} before")
    for step in pruning.stages:
        if not step.removed:  # weights that were only rounded
            continue
        lines.append(list_names(f"  {len(step.removed)} {step.kind} ({WHY[step.kind]})", step.removed))
    if out is not None:
        lines.append(f"written to {out}")
    return "\n".join(lines)


def _wrap(words: str) -> str:
    return fill(words, 80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def channels_json(found: ChannelPruning | OnnxPruning, out: Path | None, verified: bool = False) -> dict[str, Any]:
    """The documented keys of `lawful prune --json` for a module that is pruned channel by channel."""
    return {
        **pick(found, "channels_before channels_after parameters_before parameters_after"),
        "removed": [vars(gone) for gone in found.removed],
        **pick(found, "compared notes"),
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
    lines += [list_names(f"  {layer or 'module'}: {len(gone)} {kind}", gone) for (layer, kind), gone in layers.items()]
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
                **pick(point, "neurons parameters max_output_change_bound=bound bounds change_on_data=on_data"),
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


# The page


MOST_CELLS = 600  # neurons that are drawn one by one
ROLES = {True: "go", False: "stay"}


def pruning_page(
    result: Mapping[str, Any],
    words: str,
    asked: str,
    source: str,
    layers: Mapping[str, Sequence[str]],
    how: str = "",
) -> str:
    """The page of `lawful prune --html`, from its JSON, its text, and the units of each layer.

    `asked` names the network as a command does, `how` are the options that say what may go.
    """
    parts = "channels" if "channels_before" in result else "neurons"
    before, after = result[f"{parts}_before"], result[f"{parts}_after"]
    gone = _reasons(result)
    lines = [line.strip() for line in words.splitlines()]
    noun = parts if before != 1 else parts[:-1]
    headline = f"{before - after:,} of {before:,} hidden {noun} removed."  # the lead says what that changes
    verified = bool(result["verified"])
    proof = f"lawful prune {asked}{how} --out small.safetensors --certificate pruned.json"
    chip = (
        Chip("proved", "Proved", "replayed in rational arithmetic")
        if verified
        else Chip("open", "Not re-checked", "", "To save the evidence and have an independent checker verify it:",
                  (proof, "lawful verify pruned.json"))
    )  # fmt: skip
    actions = [Action("Write the smaller network", f"{after:,} {noun}, with the proof beside it.", proof)]
    if parts == "neurons":
        actions.append(Action("Let outputs move a little", "Every size, with a bound on every output.",
                              f"lawful prune {asked} --curve"))  # fmt: skip
    actions.append(Action("See what else is known of it", "Laws, locks and symmetries on one page.",
                          f"lawful audit {asked} --html audit.html"))  # fmt: skip
    opening = Opening(
        file=source,
        kind=f"{result['parameters_before']:,} weights",
        chip=chip,
        stage=_stage(layers, gone, before, after, parts),
        actions=actions,
    )
    folded = [Section("What was said", lines)]
    if gone:
        rows = [(name, why) for name, why in gone.items()]
        folded.insert(0, Section(f"All {len(rows):,} that went, with the reason", [Table((parts[:-1], "why"), rows)]))
    lead = f"{result['parameters_before']:,} → {result['parameters_after']:,} parameters. {_sentence(words)}"
    return render(headline, lead, folded, opening=opening)


def hidden_layers(pruning: Pruning) -> dict[str, list[str]]:
    """The hidden neurons of the given network by layer: what stands before the dot of their names."""
    dag = pruning.original.to_dag()
    layers: dict[str, list[str]] = {}
    for node in dag.hidden:
        layers.setdefault(dag.names[node].rpartition(".")[0], []).append(dag.names[node])
    return layers


def _sentence(words: str) -> str:
    """What holds of the outputs: the second sentence of the text, which may run over several lines."""
    first, *rest = words.splitlines()[1:]
    more = takewhile(lambda line: line.startswith("  "), rest)
    text = " ".join(line.strip() for line in (first, *more))
    return text[:1].upper() + text[1:] + "."


def _reasons(result: Mapping[str, Any]) -> dict[str, str]:
    """Each unit that went, and why."""
    if "steps" in result:
        return {name: WHY[step["kind"]] for step in result["steps"] for name in step["removed"]}
    return {f"{unit['layer']} {unit['channel']}".strip(): str(unit["kind"]) for unit in result["removed"]}


def _stage(
    layers: Mapping[str, Sequence[str]], gone: Mapping[str, str], before: int, after: int, parts: str
) -> Picture:
    """Every unit as a square, those that went dashed; two bars where there are too many to draw."""
    label = f"hidden {parts}, layer by layer; those that were removed are dashed"
    if 0 < sum(map(len, layers.values())) <= MOST_CELLS:
        rows = [
            {"name": name, "cells": [(unit, ROLES[unit in gone]) for unit in units]} for name, units in layers.items()
        ]
        return Picture("squares", {"layers": rows, "note": "Dashed: removed. Filled: left."}, label)
    counts = [(f"{parts} that stay", float(after)), (f"{parts} that go", float(before - after))]
    return Picture("bars", {"rows": counts, "note": ""}, label)


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
        **pick(found, "calibration_samples=calibration choosing_samples=chosen_on"),
        "held_out": {
            **pick(seen, "samples confidence unchanged unchanged_at_least=at_least largest_change"),
            **pick(seen, "change_at_most_for_99_percent=change_at_most"),
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
        **pick(found.pruned, "parameters_before parameters_after"),
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
        lost = (
            f"; lost at most {_round_up(100 * seen.accuracy_lost_at_most)} points" if seen.accuracy_lost_at_most else ""
        )
        lines.append(f"accuracy {100 * was:.2f}% -> {100 * now:.2f}% on {measured}{lost} ({sure})")
    if seen.at_least is not None:
        lines.append(f"the label is unchanged for at least {_round_down(100 * seen.at_least)}% of inputs ({sure})")
    if seen.change_at_most is not None:
        lines.append(f"no output moves by more than {_round_up(seen.change_at_most)} for 99% of inputs ({sure})")
    else:
        lines.append(f"largest change of an output on {measured}: {seen.largest_change:.3g}")
    return lines


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f}%"


def _round_down(number: float) -> str:
    return f"{math.floor(number * 100) / 100:.2f}"


def _round_up(number: float | None) -> str:
    return f"{math.ceil((number or 0.0) * 100) / 100:.2f}"
