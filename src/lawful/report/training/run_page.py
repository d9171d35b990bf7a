"""A stored run as a page: the curves, and a slider over training time that moves the drawn weights."""

from __future__ import annotations

import json
import shlex

import numpy as np

from lawful.outward import at_most
from lawful.report.page.page import Action, Chip, Markup, Opening, Section, Table, render
from lawful.report.structure.network import MAX_EDGES, MAX_NODES, draw_graph
from lawful.report.training.flow import compare_figure, drift_figure, drift_json, flow_text, subtracted
from lawful.training.comparison import Comparison
from lawful.training.integration.runs import Run

FRAMES, MOST_WEIGHTS = 60, 100_000  # snapshots on the page, and numbers in it


def run_html(run: Run, source: str) -> str:
    """The page of a run."""
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
    again = [
        Action("Read the drift of every law", "As text; --json has all numbers.", f"lawful drift {shlex.quote(source)}")
    ]
    opening = Opening(file=source, kind="a run", stage=curves if isinstance(moving, str) else moving, actions=again)
    return render(headline, flow_text(run).replace("\n", "; "), sections, opening=opening)


def compare_html(found: Comparison, source: str, asked: str = "") -> str:
    """The page of optimisers beside the flow."""
    rows = [
        (str(row.optimizer), row.steps, float(row.losses[-1]), row.max_drift,
         0.0 if row.optimizer.name == "flow" else row.predicted_drift, row.exact_error, row.message)
        for row in found.rows
    ]  # fmt: skip
    columns = ("method", "steps", "loss", "largest drift", "theory", "off the exact law by", "")
    lead = f"Drift of {len(found.names)} conserved quantities over time {found.time:g}: {subtracted(found)}."
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
