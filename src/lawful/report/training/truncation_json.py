"""Truncation results as JSON: the documented keys of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lawful.papers.truncation.census import Census
from lawful.papers.truncation.flow.motion import TruncationRun
from lawful.papers.truncation.flow.predictions import FixedFlow, Prediction


def census_json(found: Census) -> dict[str, Any]:
    """What every layer truncates."""
    return {
        "classes": list(found.names),
        "sizes": found.sizes.tolist(),
        "residual": found.residual,
        "layers": [
            {"layer": number} | {name: _plain(value) for name, value in vars(layer).items() if name != "collapse"}
            | {"collapse": None if layer.collapse is None else asdict(layer.collapse)}
            for number, layer in enumerate(found.layers, 1)
        ],
    }  # fmt: skip


def run_json(run: TruncationRun, predictions: Sequence[Prediction | None]) -> dict[str, Any]:
    """Costs, rates, events, collapse and the predictions of Proposition 4.2."""
    frames = range(len(run.times))
    kinds = [event.kind for event in run.events]
    return {
        "general": run.general,
        "clusters": run.data.count,
        "dimension": run.data.dimension,
        "points": len(run.data.points),
        "classes": list(run.data.names),
        "times": run.times.tolist(),
        "costs": run.costs.tolist(),
        "descent_shifts": run.descent[:, 0].tolist(),
        "descent_rotations": run.descent[:, 1].tolist(),
        "truncated": [run.truncated(index).mean(axis=1).tolist() for index in frames],
        "collapsed": list(run.collapsed),
        "separated": list(run.separated),
        "collapse": [asdict(run.collapse(index)) for index in frames],
        "sign_changes": {kind: kinds.count(kind) for kind in ("truncate", "release", "hold")},
        "orthogonality": run.orthogonality,
        "evaluations": sum(trajectory.evaluations for trajectory in run.trajectories),
        "predictions": [_prediction(each) for each in predictions],
        "rounded": [list(stretch) for stretch in run.rounded],
        "halted": run.halted,
    }


def _prediction(found: Prediction | None) -> dict[str, Any]:
    if found is None:
        return {}
    words = {"holds": found.hypotheses.holds, "small": found.hypotheses.small, "from": found.time}
    return asdict(found.hypotheses) | words | {"bound": found.bound}


def fixed_json(names: Sequence[str], flows: Sequence[FixedFlow]) -> dict[str, Any]:
    """Truncation times, rates and limit of every cluster and coordinate."""
    clusters = [
        [
            {"times": each.times[1:], "rates": each.rates, "limit": each.limit, "target": each.target}
            for each in flow.schedules
        ]
        for flow in flows
    ]
    return {"classes": list(names), "coordinates": clusters}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
