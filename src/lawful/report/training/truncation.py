"""Truncation results for people: terminal text and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lawful.figure import COLOURS, Figure, Panel, Series
from lawful.outward import at_most
from lawful.papers.truncation.census import Census
from lawful.papers.truncation.construction import NotSeparable, ZeroLoss
from lawful.papers.truncation.flow.motion import TruncationRun
from lawful.papers.truncation.flow.predictions import FixedFlow, Prediction
from lawful.papers.truncation.separability import Answer, Separability
from lawful.papers.truncation.separation import CommonPoint, Frame, Hyperplane, ObtusePair, OrderUndecided
from lawful.report.plain import pick
from lawful.sentences import training as sentences
from lawful.types import Floats

Result = Mapping[str, Any]
APART = "NOT at every time: the maps act on several clusters"
LOST = 1e-9  # a share of a layer that rounding may lose
MOST_OF_ALL = 0.95  # a column with this share of all variance would be all that is seen


def census_text(found: Result) -> str:
    """What each layer truncates: untruncated / partially / fully truncated points by class."""
    whole = all(layer["lost"] < LOST for layer in found["layers"])
    lines = [
        f"The network is a chain of {len(found['layers'])} truncations and an affine map,",
        f"up to a relative residual of {at_most(found['residual'], 2)}.",
    ]
    if not whole:
        lines = [
            "Layers that widen or lose rank have no truncation map: pseudo-inverses draw them in",
            f"input space, and the affine map at the end is off by {found['residual']:.1e} of the outputs.",
            "The counts are the network's own.",
        ]
    for layer in found["layers"]:
        lines += [
            "",
            f"layer {layer['layer']}: data in {layer['sectors']} sectors, moved by {layer['moved']:.3g} on average",
            f"  condition number {layer['condition']:.3g}, {_alignment(layer)}",
            "  class              points  untruncated  partially  fully  busiest coordinate",
        ]
        rows = zip(found["classes"], found["sizes"], layer["untruncated"], layer["partial"], layer["full"],
                   layer["coordinates"], strict=True)  # fmt: skip
        for name, size, none, partial, full, coordinates in rows:
            top = int(np.argmax(coordinates))
            lines.append(
                f"  {name[:18]:18} {size:6} {none:12} {partial:10} {full:6}  {top} ({coordinates[top]} of {size})"
            )
    return "\n".join(lines)


def _alignment(layer: Result) -> str:
    if layer["misalignment"] is not None and layer["lost"] < LOST:
        return f"misalignment {layer['misalignment']:.2f}"
    share = "none" if layer["lost"] < LOST else f"{100 * layer['lost']:.3g}%"
    return f"{share} of its variation has no place in input space"


def run_text(found: Result) -> str:
    """The flow's answer first: which clusters became points, and when."""
    times = [time for time in found["collapsed"] if time is not None]
    kind = "general" if found["general"] else "cluster-separated"
    changes = found["sign_changes"]
    rises = np.diff(found["costs"]) > 1e-9 * found["costs"][0]
    falls = not rises.any() and np.isfinite(found["costs"]).all()
    apart = all(found["separated"])
    last = found["collapse"][-1]
    lines = [
        sentences.collapsed(len(times), found["clusters"], max(times) if times else None),
        f"  flow            {kind}, {found['points']} points in R^{found['dimension']}, to s = {found['times'][-1]:g}",
        f"  cost            {found['costs'][0]:.6g} -> {found['costs'][-1]:.6g}, "
        f"{sentences.cost_falls() if falls else sentences.cost_rises()}",
        f"  sign changes    {changes['truncate']} truncations, {changes['release']} releases, {changes['hold']} held",
        f"  orthogonality   {sentences.orthogonal(found['orthogonality'])}",
        f"  separated       {sentences.separated() if apart else APART}",
        f"  collapse        NC1 {last['nc1_quotient']:.1e} (quotient), {last['nc1_pinv']:.1e} (pinv), "
        f"{last['nc1_cdnv']:.1e} (CDNV)",
        f"                  NC2 {last['nc2_norms']:.3f} (norms), {last['nc2_angles']:.3f} (angles), "
        f"NC3 {last['nc3']:.3f}, NC4 {last['nc4']:.3f}",
    ]
    sure = [number for number, prediction in enumerate(found["predictions"]) if prediction.get("holds")]
    for number in sure[:10]:
        bound, since = (found["predictions"][number][key] for key in ("bound", "from"))
        time = found["collapsed"][number]
        name = str(found["classes"][number])[:12]
        lines.append(f"  predicted       {sentences.predicted(name, since, bound, time)}")
    if not sure and not found["general"]:
        lines.append("  predicted       Proposition 4.2 promised nothing at any recorded time")
    if found["rounded"]:
        begin, whole = found["rounded"][0][0], sum(after - before for before, after in found["rounded"])
        lines.append(
            f"  rounded         corners from s = {begin:.4g} on, for {whole:.3g} of the time: no signs settled there"
        )
    if found["halted"]:
        early = "INTERRUPTED" if found["halted"].startswith("interrupted") else "UNDECIDED"
        lines.append(f"  {early:16}the run ended early and is kept: {found['halted']}")
    return "\n".join(lines)


def figures(found: Result) -> dict[str, Figure]:
    """Cost and its two parts; share of truncated points; collapse."""
    times = found["times"]
    shares = np.array(found["truncated"]).T
    kinds = {"nc1_pinv": "pinv", "nc1_quotient": "quotient", "nc1_cdnv": "CDNV"}
    nc = {name: [row[key] for row in found["collapse"]] for key, name in kinds.items()}
    floor = 1e-18
    return {
        "cost": Figure(
            "The cost falls, and both parts of its derivative are non-positive.",
            (
                Panel((Series(np.maximum(found["costs"], floor), times),), "cost", "time s", "cost C", log_y=True),
                Panel(
                    (
                        Series(found["descent_shifts"], times, "from β"),
                        Series(found["descent_rotations"], times, "from R"),
                    ),
                    "∂C/∂s", "time s", "change of the cost",
                ),
            ),
        ),
        "rates": Figure(
            "Share of each cluster that its map truncates, averaged over coordinates: its rate of collapse.",
            (Panel([Series(curve, times, str(name)[:20] if len(shares) <= 8 else "")
                    for curve, name in zip(shares, found["classes"], strict=True)], "truncated share", "time s",
                   "share"),),
        ),
        "collapse": Figure(
            "Within-class variability by three definitions (none below 1e-18 is drawn).",
            (Panel([Series(np.maximum(curve, floor), times, name) for name, curve in nc.items()], "NC1", "time s",
                   "NC1", log_y=True),),
        ),
    }  # fmt: skip


def frame_figure(points: Floats, labels: ArrayLike, time: float, targets: Floats, extent: Floats) -> Figure:
    """One frame: the data in the plane; the corners of `extent` (low, high) keep all frames to one scale."""
    numbers = np.asarray(labels)
    series = [Series(points[numbers == label, 1], points[numbers == label, 0], style="points",
                     colour=COLOURS[label % len(COLOURS)]) for label in np.unique(numbers)]  # fmt: skip
    corners = Series(extent[:, 1], extent[:, 0], style="points", colour="#ffffff")
    goals = Series(targets[:, 1], targets[:, 0], "targets", "points", colour="#222222")
    return Figure(f"The data at s = {time:.3g}.", (Panel([corners, *series, goals], f"s = {time:.3g}", equal=True),))


def fixed_text(found: Result) -> str:
    """Closed-form truncation times per cluster."""
    lines = ["Closed form at fixed rotations (P2 (4.49)), by cluster and coordinate"]
    for name, coordinates in zip(found["classes"], found["coordinates"], strict=True):
        for number, coordinate in enumerate(coordinates):
            times = coordinate["times"]
            span = f"s = {times[0]:.4g} .. {times[-1]:.4g}" if len(times) else "none"
            rate = coordinate["rates"][-1]
            lines.append(f"  {str(name)[:12]:12} r = {number:<3} {len(times):7} changes, {span:26} rate {rate:.4g}")
    return "\n".join(lines)


VERDICTS = {
    "yes": sentences.separable(),
    "no": sentences.not_separable(),
    "undecided": "Undecided: some clusters could be neither parted nor excluded.",
}
WORDS = {
    "hyperplane": "can be parted by a hyperplane",
    "common point": "cannot: a point lies in both hulls",
    "frame": "can be parted by a right-angled cone",
    "obtuse pair": "cannot: two differences make no acute angle",
    "undecided": "undecided",
}


def separation_json(found: Separability) -> dict[str, Any]:
    """The documented keys of `lawful separate --json`."""
    network, names = None, found.data.names
    if (built := found.network) is not None:
        network = {
            "architecture": "-".join(map(str, built.network.widths)),
            **pick(built, "loss loss_float32=loss_single condition"),
            "order": [names[number] for number in built.order],
            **pick(built, "widened blurred bent"),
        }
    blocked = found.built.clusters if isinstance(found.built, NotSeparable) else ()
    return {
        "answer": found.verdict,
        "verdict": _verdict(found),
        "aligned": found.aligned,
        "classes": list(names),
        "answers": [answer_json(answer) | {"pair": found.pair(n)} for n, answer in enumerate(found.answers)],
        "network": network,
        "blocked": [names[number] for number in blocked],
    }


def answer_json(answer: Answer) -> dict[str, Any]:
    """One cluster's answer; fractions are text."""
    match answer:
        case Hyperplane(exact, _, low, high):
            return {"answer": "hyperplane", "normal": exact, "low": low, "high": high}
        case CommonPoint(inside, outside, point):
            return {"answer": "common point", "inside": inside, "outside": outside, "point": point}
        case Frame(rotation, low, high):
            return {"answer": "frame", "rotation": rotation, "low": low, "high": high}
        case ObtusePair(inside, outside, product):
            return {"answer": "obtuse pair", "inside": inside, "outside": outside, "product": product}
        case OrderUndecided(reason):
            return {"answer": "undecided", "reason": reason}


def separation_text(found: Separability) -> str:
    """Which clusters can be parted, and the network that follows."""
    lines = [_verdict(found)]
    for number, (name, answer) in enumerate(zip(found.data.names, found.answers, strict=True)):
        gap = f" (gap {np.min(answer.high - answer.low):.3g})" if isinstance(answer, Hyperplane | Frame) else ""
        lines.append(f"  {str(name)[:24]:24} {WORDS[answer_json(answer)['answer']]}{gap}")
        if (pair := found.pair(number)) is not None:
            lines.append(f"  {'':24} rows {pair[0]} and {pair[1]} are the same point in two clusters")
    match found.built:
        case NotSeparable(clusters):
            names = ", ".join(str(found.data.names[number])[:24] for number in clusters)
            lines.append(f"  one by one neither: of {names} none can be parted from the others of them")
        case OrderUndecided(reason):
            lines.append(f"  one by one undecided: {reason}")
    if (built := found.network) is not None:
        if built.bent:
            lines.append(f"  behind a first layer of {built.bent} neurons that bends the data they can:")
        widths = "-".join(map(str, built.network.widths))
        size = widths if len(widths) < 24 else widths[:20] + "..."
        lines.append(
            f"  zero-loss network {size}: loss {built.loss:.1e} ({_single(built)}), condition {built.condition:.3g}"
        )
        if built.blurred is not None:
            lines.append(f"  {sentences.blurred(*built.blurred)}")
    return "\n".join(lines)


def _single(built: ZeroLoss) -> str:
    return f"float32: {built.loss_single:.1e}" if np.isfinite(built.loss_single) else "float32 cannot hold the data"


def _verdict(found: Separability) -> str:
    if found.verdict == "no" and isinstance(found.built, ZeroLoss) and not found.built.bent:
        return sentences.one_by_one()
    return VERDICTS[found.verdict]


def standard_text(found: Result) -> str:
    """The standard cost in its two solvable cases."""
    lines = [f"Standard cost, {found['case']} data: cost {found['costs'][0]:.6g} -> {found['costs'][-1]:.6g}"]
    if found["case"] == "collapsed":
        lines.append(f"  conserved BB' - W'W drifts by {found['drift']:.1e}; spectral gap {found['gap']:.4g}")
        lines.append(f"  cost below e^(-2 gap s) cost(0): {'yes' if found['bounded'] else 'NO'}")
    else:
        lines.append(f"  closed form and integration differ by {found['difference']:.1e}")
        lines.append(f"  distance to the limit Y X+ at the end: {found['distance']:.3g}")
    return "\n".join(lines)


def plane(points: Floats, *, alike: bool = False) -> Floats:
    """Two axes (rows) on which to draw data: the coordinates themselves for Q = 2, else principal axes.

    With `alike`, columns of other units count alike: each is divided by its spread first, if one has most of it all.
    """
    spreads = points.std(axis=0)
    if not alike or points.shape[1] == 1 or (spreads**2).max() <= MOST_OF_ALL * (spreads**2).sum():
        spreads = np.ones(points.shape[1])
    spreads = np.where(spreads > 0, spreads, 1.0)
    if points.shape[1] <= 2:
        return np.asarray(np.eye(2, points.shape[1]) / spreads)
    centred = (points - points.mean(axis=0)) / spreads
    return np.asarray(np.linalg.svd(centred, full_matrices=False)[2][:2] / spreads)


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
        **pick(run.data, "clusters=count dimension"),
        "points": len(run.data.points),
        "classes": list(run.data.names),
        "times": run.times.tolist(),
        "costs": run.costs.tolist(),
        "descent_shifts": run.descent[:, 0].tolist(),
        "descent_rotations": run.descent[:, 1].tolist(),
        "truncated": [run.truncated(index).mean(axis=1).tolist() for index in frames],
        **pick(run, "collapsed separated"),
        "collapse": [asdict(run.collapse(index)) for index in frames],
        "sign_changes": {kind: kinds.count(kind) for kind in ("truncate", "release", "hold")},
        "orthogonality": run.orthogonality,
        "evaluations": sum(trajectory.evaluations for trajectory in run.trajectories),
        "predictions": [_prediction(prediction) for prediction in predictions],
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
            {"times": schedule.times[1:], "rates": schedule.rates, "limit": schedule.limit, "target": schedule.target}
            for schedule in flow.schedules
        ]
        for flow in flows
    ]
    return {"classes": list(names), "coordinates": clusters}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
