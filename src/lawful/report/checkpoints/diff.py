"""A diff of two checkpoints as JSON and as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lawful.api.checkpoints.diff import Diff
from lawful.figure import Figure, Panel, Series
from lawful.outward import at_least, at_most
from lawful.report.checkpoints.lineage import lineage_json
from lawful.report.page.charts import diff as drift_figure
from lawful.report.page.page import Action, Block, Chip, Opening, Picture, Section, Table, render
from lawful.report.plain import pick
from lawful.report.structure.symmetries import in_any_block

if TYPE_CHECKING:
    from lawful.checkpoints.relations.block_matching import Correspondence
    from lawful.checkpoints.relations.kinship import Kinship, TensorChange

WIDTH = 80


def to_json(diff: Diff) -> dict[str, Any]:
    """The documented keys of `lawful diff --json`."""
    names = [diff.dag.names[v] for v in diff.dag.hidden]
    return {
        "verdict": diff.verdict.verdict,
        **pick(diff, "relation relation_word=word reason"),
        **lineage_json(diff.lineage),
        "drift": dict(zip(names, diff.drift.tolist(), strict=True)),
        **pick(diff, "relative_drift decay decay_residual flipped crossed died revived losses step"),
        "dimensions": [{"layer": layer, "before": a, "after": b} for layer, a, b in diff.dimensions],
    }


def diff_text(diff: Diff) -> str:
    """The same in words."""
    lines = [
        f"function   {diff.verdict.verdict} ({diff.verdict.method})",
        fill(f"relation   {diff.word}: {diff.reason}", WIDTH, subsequent_indent=" " * 11),
        f"laws       balances drifted by {100 * diff.relative_drift:.3g}% in all; gradient flow keeps them",
    ]
    if diff.decay_residual < 0.1 * diff.relative_drift:
        lines.append(f"           as weight decay does: all balances times {diff.decay:.4g}")
    if diff.step is not None:
        step = at_least(diff.step, 3)
        lines.append(f"           to first order gradient descent needs a step of at least {step}")
    if diff.losses is not None:
        lines.append(f"loss       {diff.losses[0]:.4g} -> {diff.losses[1]:.4g}")
    lines.append(
        f"signs      {len(diff.flipped)} weights changed sign, {len(diff.crossed)} of them locked for the flow"
    )
    dead = f"dead by intervals in B alone: {_list_names(diff.died)}; in A alone: {_list_names(diff.revived)}"
    lines.append(fill(f"neurons    {dead}", WIDTH, subsequent_indent=" " * 11))
    lines += [f"layer {n}    effective dimension {a:.3g} -> {b:.3g}" for n, a, b in diff.dimensions]
    return "\n".join(lines)


def _list_names(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)})" if len(names) > most else "") if names else "none"


# The page


LISTED = 200  # rows of a table
MOST_BARS = 10  # of a picture whose values are labelled one by one
SMALLEST = 1e-17  # below which a distance is drawn as this


def page_of_difference(found: Diff | Kinship | Correspondence, first: str, second: str, options: str = "") -> str:
    """The page of two checkpoints, of layered networks or of modules; `options` are those that reading them took."""
    if isinstance(found, Diff):
        return diff_page(found, first, second, options)
    from lawful.checkpoints.relations.kinship import Kinship

    if isinstance(found, Kinship):
        return kinship_page(found, first, second, options)
    return _sizes_page(found, first, second)


def _sizes_page(found: Correspondence, first: str, second: str) -> str:
    """The page of two checkpoints of different architectures."""
    sizes = [(size.name, str(size.first), str(size.second)) for size in (*found.spaces, *found.tensors)[:LISTED]]
    sections = [Section("Sizes that differ", [Table(("space or tensor", "A", "B"), sizes)])] if sizes else []
    if found.common:
        caption = "Of tensors with one name and one size, the distance as stored, relative to the larger of both."
        table = Table(("tensor", "distance"), list(found.common[:LISTED]), caption, bars=("distance",))
        sections.append(Section("What corresponds", [table]))
    rows = [(name, float(distance)) for name, distance in found.common[:MOST_BARS]]
    stage = Picture("bars", {"rows": rows, "note": "Distance as stored."}, "distances of tensors") if rows else None
    count = len(found.spaces) + len(found.tensors)
    headline = f"Different architectures: {count:,} size{'s' * (count != 1)} differ{'s' * (count == 1)}."
    opening = Opening(file=f"{first} and {second}", stage=stage)
    return render(headline, f"Different architectures: {found.reason}.", sections, opening=opening)


def diff_page(found: Diff, first: str, second: str, options: str = "") -> str:
    """The page of two checkpoints of a layered network."""
    names = [found.dag.names[node] for node in found.dag.hidden]
    order = np.argsort(-np.abs(found.drift), kind="stable")[:LISTED]
    drifts = Table(
        ("neuron", "balance moved by"), [(names[k], float(found.drift[k])) for k in order],
        "Gradient flow would keep every balance; the largest drift first.", bars=("balance moved by",),
    )  # fmt: skip
    layers = Table(
        ("layer", "dimension before", "after"), [tuple(row) for row in found.dimensions],
        "Effective dimension of each layer on the samples.", bars=("dimension before", "after"),
    )  # fmt: skip
    sections = [
        Section("In short", [Table(("", ""), [_halves(line) for line in diff_text(found).splitlines()])]),
        Section("Laws", [drifts]),
        Section("Signs", _signs(found)),
    ]
    if found.dimensions:
        sections.append(Section("Layers", [layers]))
    lead = f"Are they the same function? {found.verdict.verdict.capitalize()} ({found.verdict.method}). "
    lead += f"Are they related? {found.word.capitalize()}: {found.reason}."
    changed = len(found.flipped)
    most = float(np.max(np.abs(found.drift), initial=0.0))
    headline = f"{found.verdict.verdict.capitalize()}: balances moved by up to {at_most(most, 2)}, "
    headline += f"{changed:,} sign{'s' * (changed != 1)} flipped."
    kind: Literal["open", "proved"] = "open" if found.verdict.verdict == "undecided" else "proved"
    opening = Opening(
        file=f"{first} and {second}",
        kind="two checkpoints",
        chip=Chip(kind, found.verdict.verdict.capitalize(), found.verdict.method),
        stage=drift_figure(found),
        actions=[_ask(first, second, options)],
    )
    return render(headline, lead, sections, opening=opening)


def _ask(first: str, second: str, options: str) -> Action:
    """The question behind every difference."""
    command = f"lawful same {shlex.quote(first)} {shlex.quote(second)}{options} --html same.html"
    return Action("Ask whether they are one function", "With the symmetry or the input that decides it.", command)


def _halves(line: str) -> tuple[str, str]:
    head, _, rest = line.strip().partition("  ")
    return (head, rest.strip()) if rest else ("", head)


def _signs(found: Diff) -> list[Block]:
    if not found.flipped:
        return ["No weight changed sign."]
    crossed = set(found.crossed)
    rows = [(tail, head, (tail, head) in crossed) for tail, head in found.flipped[:LISTED]]
    rows.sort(key=lambda row: not row[2])
    words = f"{len(found.flipped):,} weights changed sign; {len(crossed):,} of these are locked for gradient flow."
    return [words, Table(("from", "to", "locked for the flow"), rows)]


def kinship_page(found: Kinship, first: str, second: str, options: str = "") -> str:
    """The page of two checkpoints of a module."""
    changed = [(change.tensor, change.relative, _kind(change)) for change in found.changes[:LISTED]]
    agreements = [
        (agreement.space, agreement.units, agreement.agree, agreement.share, agreement.null)
        for agreement in found.agreements[:LISTED]
    ]
    profile = _profile(found)
    stage = next((block for block in profile if isinstance(block, Figure)), None)
    sections = [Section("Where they differ", [block for block in profile if block is not stage])]
    if changed:
        caption = "Relative distance after alignment, largest first."
        table = Table(("tensor", "distance", "kind of change"), changed, caption, bars=("distance",))
        sections.append(Section("Tensors that changed", [table]))
    if agreements:
        caption = (
            "Units whose partner is the same by two independent matchings, and in layers that do not belong together. "
            "Networks trained apart on one task agree as well: this says how alike units are, not why."
        )
        columns = ("space", "units", "agree", "share", "mismatched layers")
        sections.append(Section("How alike units are", [Table(columns, agreements, caption, bars=("share",))]))
    count, total = len(found.changes), len(found.verdict.comparison.distances)
    headline = f"{found.word.capitalize()}: {count:,} of {total:,} tensors changed."
    measured = Chip("here", "Measured", "distances in floating point, after alignment")
    actions = [_ask(first, second, options)]
    opening = Opening(f"{first} and {second}", "two checkpoints", measured, stage, actions)
    return render(headline, f"{found.word.capitalize()}: {found.reason}.", sections, opening=opening)


def _kind(change: TensorChange) -> str:
    words = [f"rank {change.rank}"] if change.rank is not None else []
    words += [f"{change.zeroed:.0%} set to zero"] if change.zeroed else []
    words += [f"{change.levels} levels"] if change.levels is not None else []
    words += [f"rounded to {change.rounded}"] if change.rounded is not None else []
    return ", ".join(words)


def _profile(found: Kinship) -> list[Block]:
    """Every tensor's distance after alignment, in the order of the checkpoint."""
    distances = found.verdict.comparison.distances
    if not distances:
        return ["No tensors correspond."]
    values = [max(distance.relative, SMALLEST) for distance in distances]
    panels = [
        Panel([Series(values, np.arange(1, len(values) + 1), style="points")], "distance after alignment",
              "tensor, in order", "relative distance", log_y=True)
    ]  # fmt: skip
    if found.agreements:
        places = np.arange(1, len(found.agreements) + 1)
        series = [Series([agreement.share for agreement in found.agreements], places, "agree", "points")]
        by_chance = [np.nan if agreement.null is None else agreement.null for agreement in found.agreements]
        series.append(Series(by_chance, places, "mismatched layers", "points"))
        panels.append(Panel(series, "units whose partners agree", "space, in order", "share"))
    kinds: dict[str, list[float]] = {}
    for distance in distances:
        kinds.setdefault(in_any_block(distance.tensor), []).append(distance.relative)
    rows = [(name, len(some), float(np.median(some)), max(some)) for name, some in kinds.items()]
    rows.sort(key=lambda row: -row[-1])
    columns = ("tensors (* is a block)", "how many", "median distance", "largest distance")
    caption = "Kinds of tensor, those that moved most first."
    return [
        Figure("Left, a tensor that did not change is drawn at the bottom.", panels),
        Table(columns, rows, caption, bars=("largest distance",)),
    ]
