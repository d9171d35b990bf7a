"""Results of this room as plain dictionaries: the documented keys of the command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from lawful.truncation.census import Census
from lawful.truncation.closed import fixed_flow
from lawful.truncation.clusters import Clusters
from lawful.truncation.finite_time import hypotheses
from lawful.truncation.motion import Start, TruncationRun
from lawful.types import Floats


def of_census(found: Census) -> dict[str, Any]:
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


def of_run(run: TruncationRun) -> dict[str, Any]:
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
        "predictions": [] if run.general else predictions(run),
        "halted": run.halted,
    }


def predictions(run: TruncationRun) -> list[dict[str, Any]]:
    """Proposition 4.2 for every cluster's own map, at the first time `from` at which its hypotheses hold.

    `bound` counts from the start of the run. Where they never hold, the first time says what fails. The proposition
    speaks of the separated flow only.
    """
    found = []
    for number in range(run.data.count):
        cluster, target, time = run.data.cluster(number), run.start.targets[number], run.collapsed[number]
        first = None
        for index, at in enumerate(run.times):
            if time is not None and at >= time:
                break
            maps = run.maps(index)
            each = hypotheses(cluster, target, maps.shifts[number], maps.rotations[number])
            if first is None or each.holds:
                first = asdict(each) | {"holds": each.holds, "small": each.small, "from": float(at)}
                first["bound"] += float(at)
            if each.holds:
                break
        found.append({} if first is None else first)
    return found


def of_fixed(data: Clusters, start: Start) -> dict[str, Any]:
    """The closed form at fixed rotations: per cluster and coordinate the truncation times, rates and limit."""
    clusters = []
    for number in range(data.count):
        flow = fixed_flow(
            data.cluster(number), start.targets[number], start.maps.shifts[number], start.maps.rotations[number]
        )
        clusters.append(
            [
                {"times": each.times[1:], "rates": each.rates, "limit": each.limit, "target": each.target}
                for each in flow.schedules
            ]
        )
    return {"classes": list(data.names), "coordinates": clusters}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def plane(points: Floats) -> Floats:
    """Two axes (rows) on which to draw data: the coordinates themselves for Q = 2, else principal axes."""
    if points.shape[1] <= 2:
        return np.eye(2, points.shape[1])
    centred = points - points.mean(axis=0)
    return np.asarray(np.linalg.svd(centred, full_matrices=False)[2][:2])
