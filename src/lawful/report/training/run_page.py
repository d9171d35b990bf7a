"""A stored run as a page: the curves, and a slider over training time that moves the drawn weights."""

from __future__ import annotations

import json

import numpy as np

from lawful.report.page.page import Markup, Section, Table, render
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
    sections = [Section("Through time", [film(run)]), Section("Curves", [drift_figure(run)]), Section("Laws", [laws])]
    return render(f"Run {source}", flow_text(run).replace("\n", "; "), sections)


def compare_html(found: Comparison, source: str) -> str:
    """The page of optimisers beside the flow."""
    rows = [
        (str(row.optimizer), row.steps, float(row.losses[-1]), row.max_drift,
         0.0 if row.optimizer.name == "flow" else row.predicted_drift, row.exact_error, row.message)
        for row in found.rows
    ]  # fmt: skip
    columns = ("method", "steps", "loss", "largest drift", "theory", "off the exact law by", "")
    lead = f"Drift of {len(found.names)} conserved quantities over time {found.time:g}: {subtracted(found)}."
    sections = [Section("Curves", [compare_figure(found)]), Section("Methods", [Table(columns, rows)])]
    return render(f"Optimisers on {source}", lead, sections)


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
    picture = draw_graph(dag.with_theta(flow.theta[0])).replace("<svg ", '<svg class="graph" ', 1)
    slider = f'<input type="range" aria-label="snapshot" min="0" max="{len(chosen) - 1}" value="0">'
    script = f'<script type="application/json">{json.dumps(data)}</script>'
    caption = (
        "Blue weights are positive, red negative, thick ones large. The curves below show the moment of the slider."
    )
    return Markup(f"<div data-film>{picture}{slider}<output></output>{script}</div>", caption)
