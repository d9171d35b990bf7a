"""Runs, their drift, and comparisons of optimisers, as text, JSON objects and figures."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lawful.figure import COLOURS, Figure, Panel, Series
from lawful.outward import at_most
from lawful.report.page.page import Action, Chip, Markup, Opening, Section, Table, render
from lawful.report.plain import pick
from lawful.report.structure.network import MAX_EDGES, MAX_NODES, draw_graph
from lawful.sentences import training as sentences
from lawful.training.comparison import Comparison, Row
from lawful.training.integration.runs import RANK_TOLERANCE, Run

MOST = 10  # laws listed for people; JSON has them all
CURVES = 40  # curves drawn in one panel
NAMED = 8  # laws up to which each has its name in the legend


def flow_json(run: Run) -> dict[str, Any]:
    """The documented keys of `lawful flow --json`."""
    flow = run.trajectory
    kinks = Counter(kink.kind for kink in flow.kinks)
    return {
        **run.about,
        "parameters": flow.theta.shape[1],
        "stop": {"reason": str(flow.stop.reason), "time": flow.stop.time, "message": flow.stop.message},
        "loss_start": float(flow.losses[0]),
        "loss_end": float(flow.losses[-1]),
        "gradient_norm": float(flow.gradient_norms[-1]),
        "evaluations": flow.evaluations,
        "kinks": {kind: kinks[kind] for kind in ("crossed", "pinned", "released")},
        "laws": len(run.law_names),
        "max_drift": run.max_drift,
    }


def flow_text(run: Run) -> str:
    """Why it stopped, the loss, and how well the laws were kept."""
    flow = run.trajectory
    kinks = Counter(kink.kind for kink in flow.kinks)
    lines = [
        f"{'done' if flow.stop.complete else 'STOPPED EARLY'}: {flow.stop.message}",
        f"loss {flow.losses[0]:.6g} -> {flow.losses[-1]:.6g}, gradient norm {flow.gradient_norms[-1]:.3g}",
        f"{flow.evaluations} gradients; kinks: {kinks['crossed']} crossed, {kinks['pinned']} pinned, "
        f"{kinks['released']} released",
        _law_words(run),
    ]
    if run.about.get("kinks_not_located"):
        lines.insert(3, f"kinks of {', '.join(run.about['kinks_not_located'])} are not located: met by smaller steps")
    if run.about.get("data") is None:
        lines.insert(0, "no data given: Gaussian inputs and a random teacher of the same shape")
    return "\n".join(lines)


def _law_words(run: Run) -> str:
    if not run.law_names:
        return "no laws are known for this model"
    if run.trajectory.velocity is not None:
        return sentences.heavy_ball(len(run.law_names), run.max_drift)
    return sentences.laws_kept(len(run.law_names), run.max_drift, bool(run.about.get("metric")))


def drift_json(run: Run, signs: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The documented keys of `lawful drift --json`."""
    drift = np.abs(run.drift).max(axis=0)
    spectrum = run.singular_values
    return flow_json(run) | {
        "drift": [
            {"law": name, "start": float(start), "end": float(end), "drift": float(worst)}
            for name, start, end, worst in zip(run.law_names, run.laws[0], run.laws[-1], drift, strict=True)
        ],
        "rank": None if (ranks := run.ranks()) is None else {"start": ranks[0], "end": ranks[-1], "least": min(ranks)},
        "singular_values": None if spectrum is None else {"start": spectrum[0], "end": spectrum[-1]},
        "locked": None if signs is None else list(signs),
        **pick(run.trajectory, "times losses"),
    }


def drift_text(run: Run, signs: Sequence[dict[str, Any]] | None = None) -> str:
    """The answer first, then the laws that drift most, ranks and locked weights."""
    lines = [_law_words(run), flow_text(run).rsplit("\n", 1)[0]]
    drift = np.abs(run.drift).max(axis=0)
    if len(drift):
        lines.append(f"  {'law':16} {'start':>14} {'end':>14} {'drift':>10}")
        for law in np.argsort(-drift, kind="stable")[:MOST]:
            start, end = run.laws[0, law], run.laws[-1, law]
            lines.append(f"  {run.law_names[law]:16} {start:>14.8g} {end:>14.8g} {drift[law]:>10.2g}")
        if len(drift) > MOST:
            lines.append(f"  ... and {len(drift) - MOST} more, which drift less")
    ranks = run.ranks()
    if ranks is not None and run.singular_values is not None:
        low, high = run.singular_values[:, -1].min(), run.singular_values[:, 0].max()
        lines.append(f"{sentences.rank(ranks, RANK_TOLERANCE)}\nsingular values σ of J from {low:.4g} to {high:.4g}")
    if signs is not None:
        unchanged = sum(sign["kept"] for sign in signs)
        lines.append(sentences.signs_kept(unchanged, len(signs)) if signs else sentences.none_locked())
    return "\n".join(lines)


def drift_figure(run: Run) -> Figure:
    """Loss, laws, their drift, and the singular values of J over time."""
    times = run.trajectory.times
    panels = [Panel([Series(run.trajectory.losses, times)], "loss", "time", "loss", log_y=_positive(run))]
    if run.law_names:
        shown = np.argsort(-np.abs(run.laws[0]), kind="stable")[:CURVES]
        names = [run.law_names[law] if len(shown) <= NAMED else "" for law in shown]
        curves = [
            Series(run.laws[:, law], times, name, colour=COLOURS[law % len(COLOURS)])
            for law, name in zip(shown, names, strict=True)
        ]
        panels.append(Panel(curves, "conserved quantities", "time", "c"))
        worst = np.abs(run.drift).max(axis=1)
        panels.append(
            Panel([Series(np.maximum(worst, 1e-18)[1:], times[1:])], "largest drift", "time", "drift", log_y=True)
        )
    if run.singular_values is not None:
        values = run.singular_values[:, :CURVES].T
        panels.append(
            Panel([Series(row, times, colour=COLOURS[0]) for row in values], "singular values of J", "time", "σ")
        )
    return Figure(f"{run.trajectory.stop.message}; {_law_words(run)}", panels)


def _positive(run: Run) -> bool:
    return bool((run.trajectory.losses > 0).all())


def compare_json(found: Comparison) -> dict[str, Any]:
    """The documented keys of `lawful compare --json`."""
    return {
        **pick(found, "time laws=names start"),
        "sgd_order": found.order(),
        "adam_order": found.order("adam"),
        "subtracted": baseline_words(found),
        "optimizers": [
            {
                "optimizer": str(row.optimizer),
                "subtracted": _law(row),
                "steps": row.steps,
                "loss": float(row.losses[-1]),
                **pick(row, "max_drift predicted_drift exact_error"),
                "message": row.message or None,
                "drift": row.drift[-1],
                **pick(row, "times losses"),
            }
            for row in found.rows
        ],
    }


def baseline_words(found: Comparison) -> str:
    """What drift is measured from, in words: the law that the flow itself has."""
    plain = [str(row.optimizer) for row in found.rows if row.optimizer.decay and not row.shrink]
    but = f" (not for {', '.join(plain)}: there it is c(t) - c(0))" if plain else ""
    if any(row.shrink for row in found.rows):
        return "drift is c(t) - e^(-2 decay t) c(0): what decay alone does to a quadratic law is subtracted" + but
    return "drift is c(t) - c(0)"


def _law(row: Row) -> str:
    return f"e^(-{2 * row.shrink:g} t) c(0)" if row.shrink else "c(0)"


def compare_text(found: Comparison) -> str:
    """One line per method: loss, drift, and what theory says the drift should be."""
    wide = min(max([34, *(len(str(row.optimizer)) for row in found.rows)]), 60)
    lines = [
        f"drift of {len(found.names)} conserved quantities over time {found.time:g}",
        f"  {baseline_words(found)}",
        f"  {'method':{wide}} {'steps':>7} {'loss':>9} {'drift':>8} {'theory':>8}",
    ]
    for row in found.rows:
        theory = "" if row.predicted_drift is None else f"{row.predicted_drift:.2g}"
        theory = "0" if row.optimizer.name == "flow" else theory
        words = f"  {str(row.optimizer)[:wide]:{wide}} {row.steps:>7} {row.losses[-1]:>9.4g} {row.max_drift:>8.2g}"
        lines.append(f"{words} {theory:>8}" + (f"  {row.message}" if row.message else ""))
    for row in found.rows:
        if not row.message and abs(row.times[-1] - found.time) > 1e-6 * found.time:
            lines.append(f"{row.optimizer}: {row.steps} steps cover a time of {row.times[-1]:.6g}, not {found.time:g}")
    if (order := found.order()) is not None:
        lines.append(f"gradient descent: drift grows as step^{order:.2f} (theory: 1, rate = integral of c(g))")
    if (order := found.order("adam")) is not None:
        lines.append(f"adam: drift grows as step^{order:.2f} (theory: 0, smaller steps do not help)")
    errors = [row.exact_error for row in found.rows if row.exact_error is not None]
    if errors:
        lines.append(sentences.exact_law(float(np.max(errors))))
    return "\n".join(lines)


def compare_figure(found: Comparison) -> Figure:
    """Largest drift and loss of every method over time."""

    def series(row: Row, values: Any, number: int) -> Series:
        return Series(values, row.times[1:], str(row.optimizer), colour=COLOURS[number % len(COLOURS)])

    drifts = [
        series(row, np.maximum(np.abs(row.drift[1:]).max(axis=1, initial=0.0), 1e-18), number)
        for number, row in enumerate(found.rows)
    ]
    losses = [series(row, row.losses[1:], number) for number, row in enumerate(found.rows)]
    panels = [
        Panel(drifts, "largest drift of a law", "time", "drift", log_y=True),
        Panel(losses, "loss", "time", "loss", log_y=all((row.losses > 0).all() for row in found.rows)),
    ]
    return Figure("how far each method leaves the laws, and its loss", panels)


# The page


FRAMES, MOST_WEIGHTS = 60, 100_000  # snapshots on the page, and numbers in it


def run_html(run: Run, source: str, folder: str | None) -> str:
    """The page of a run; `folder` is where it was saved, None if it was not."""
    drifts = sorted(drift_json(run)["drift"], key=lambda row: -np.nan_to_num(row["drift"], nan=np.inf))
    laws = Table(
        ("law", "start", "end", "drift"),
        [(row["law"], row["start"], row["end"], row["drift"]) for row in drifts[:1000]],
        "Gradient flow keeps each of these; the drift that is left is the integrator's error. Largest first.",
        bars=("drift",),
    )
    moving, curves = film(run), drift_figure(run)
    sections = [Section("Curves", [curves]), Section("Laws", [laws])]
    if isinstance(moving, str):  # nothing is drawn in motion: the curves are the picture
        sections = [Section("Through time", [moving]), Section("Laws", [laws])]
    sizes = [row["drift"] for row in drifts]
    finite = bool(sizes) and bool(np.isfinite(sizes).all())
    most = (
        f"drifted by {at_most(max(sizes), 2)} at most"
        if finite
        else "did not all stay finite"
        if sizes
        else "were kept"
    )
    headline = f"{len(drifts):,} conserved quantit{'y' if len(drifts) == 1 else 'ies'} {most}."
    sections.append(Section("The run in numbers", flow_text(run).splitlines()))
    again = [] if folder is None else [
        Action("Read the drift of every law", "As text; --json has all numbers.", f"lawful drift {shlex.quote(folder)}")
    ]  # fmt: skip
    opening = Opening(
        file=source,
        kind="a run",
        stage=curves if isinstance(moving, str) else moving,
        actions=again,
        nothing="The run was not saved: add --out FOLDER, and lawful drift FOLDER reads it again.",
    )
    flow = run.trajectory
    lead = f"Loss {flow.losses[0]:.4g} → {flow.losses[-1]:.4g}. {flow.stop.message[:1].upper()}{flow.stop.message[1:]}."
    return render(headline, lead if flow.stop.complete else f"Stopped early. {lead}", sections, opening=opening)


def compare_html(found: Comparison, source: str, asked: str = "") -> str:
    """The page of optimisers beside the flow."""
    rows = [
        (str(row.optimizer), row.steps, float(row.losses[-1]), row.max_drift,
         0.0 if row.optimizer.name == "flow" else row.predicted_drift, row.exact_error, row.message)
        for row in found.rows
    ]  # fmt: skip
    columns = ("method", "steps", "loss", "largest drift", "theory", "off the exact law by", "")
    lead = f"Drift of {len(found.names)} conserved quantities over time {found.time:g}: {baseline_words(found)}."
    drifts = [(row.max_drift, str(row.optimizer)) for row in found.rows if np.isfinite(row.max_drift)]
    headline = f"{len(rows):,} methods compared."
    if drifts:
        (low, best), (high, worst) = min(drifts), max(drifts)
        headline = f"Largest drift of a balance: {low:.2g} by {best}, {high:.2g} by {worst}."
    smaller = ",".join(["flow", *(f"sgd:{rate}" for rate in ("0.1", "0.01", "0.001"))])
    actions = [
        Action("Make the steps smaller", "Gradient descent comes to keep every law, in proportion to its step.",
               f"lawful compare {asked or shlex.quote(source)} --optimizers {smaller}"),
    ]  # fmt: skip
    measured = Chip("here", "Measured", "runs in floating point, beside what theory predicts")
    opening = Opening(source, "optimisers beside gradient flow", measured, compare_figure(found), actions)
    return render(headline, lead, [Section("Methods", [Table(columns, rows)])], opening=opening)


def film(run: Run) -> str | Markup:
    """The network with its weights at a snapshot that the reader chooses."""
    if run.network is None:
        return "This model has no drawn graph: only networks do."
    dag, flow = run.network.to_dag(), run.trajectory
    if len(dag.names) > MAX_NODES or dag.parameters > MAX_EDGES:
        return f"The network is too large to draw in motion ({dag.parameters:,} weights): the curves below follow it."
    count = min(FRAMES, len(flow.times), max(2, MOST_WEIGHTS // dag.parameters))
    chosen = np.unique(np.linspace(0, len(flow.times) - 1, count).astype(int))
    data = {
        "times": [float(flow.times[k]) for k in chosen],
        "labels": [f"time {flow.times[k]:.4g}, loss {flow.losses[k]:.4g}" for k in chosen],
        "weights": [[float(f"{weight:.4g}") for weight in flow.theta[k]] for k in chosen],
        "largest": float(np.abs(flow.theta[chosen]).max()) or 1.0,
    }
    picture = draw_graph(dag.with_theta(flow.theta[0])).replace(
        "<svg ", '<svg class="graph" role="img" aria-label="the network at the chosen moment" ', 1
    )
    slider = f'<input type="range" aria-label="snapshot" min="0" max="{len(chosen) - 1}" value="0">'
    script = f'<script type="application/json">{json.dumps(data)}</script>'
    caption = (
        "Blue weights are positive, red negative, thick ones large. The curves below show the moment of the slider."
    )
    return Markup(f"<div data-film>{picture}{slider}<output></output>{script}</div>", caption)
