"""Truncations as pages: the data in the plane, moved by the maps, with a slider over layers or time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from lawful.figure import COLOURS, Figure, Panel, Series
from lawful.outward import at_most
from lawful.papers.truncation.census import Census
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.cumulative import TruncationMap
from lawful.papers.truncation.flow.motion import TruncationRun
from lawful.papers.truncation.separability import Separability
from lawful.papers.truncation.separation import CommonPoint, ObtusePair
from lawful.report.page.film import Film, film
from lawful.report.page.page import Action, Markup, Opening, Section, Table, render
from lawful.report.training.truncation import (
    LOST,
    WORDS,
    Result,
    answer_json,
    figures,
    plane,
    run_text,
    separation_text,
)
from lawful.types import Floats

BETWEEN = 12  # frames from one layer to the next
DRAWN_CONES = 3  # coordinates up to which the cones' edges are drawn
DRAWN_LINES = 16  # neurons of a layer whose lines are drawn
MULTIPLES = 12  # layers drawn one by one
TABLED = 200  # rows of a table on a page


def flow_page(run: TruncationRun, found: Result, asked: str = "") -> str:
    """The page of a truncation flow; `asked` are the options that name its data."""
    axes = plane(run.data.points)
    frames = range(len(run.times))
    moving = np.array([run.data.points @ axes.T, *(run.images(index) @ axes.T for index in frames)])
    edges = [_cones(run.maps(index).shifts, np.swapaxes(run.maps(index).rotations, 1, 2), axes, run.data)
             for index in (0, *frames)]  # fmt: skip
    titles = ["before the flow: the data", *(f"time s = {time:.4g}" for time in run.times)]
    owners = np.repeat(np.arange(run.data.count), run.data.dimension).tolist() if edges[0].size else []
    shown = Film(moving, run.data.labels.tolist(), titles, run.data.names, np.array(edges), run.start.targets @ axes.T,
                 owners, _axes(axes, run.data))  # fmt: skip
    caption = (
        "Each dot is a training point as the truncation maps leave it in input space, a pale one where it began; "
        "squares are the points to which the clusters are drawn"
        + (", lines the edges of the cones that the maps leave alone, in their clusters' colours." if owners else ".")
    )
    lines = run_text(found).splitlines()
    sections = [
        Section("Curves", list(figures(found).values())),
        Section("Numbers", [Table(("what", "found"), [(line[2:18].strip(), line[18:]) for line in lines[1:]])]),
    ]
    actions = [_separate(asked), Action("Read the truncation times off a formula", "Rotations are kept fixed.",
                                        f"lawful truncation-flow{asked} --fixed")]  # fmt: skip
    stage = film(shown, caption)
    opening = Opening(kind="Training as motion of the data", stage=stage, actions=actions if asked else ())
    return render(lines[0], lines[1].strip(), sections, opening=opening)


def census_page(found: Census, data: Clusters, source: str, asked: str = "") -> str:
    """The page of a network's truncations; `asked` are the options that name its data."""
    residual = at_most(found.residual, 2)
    lead = f"{len(found.layers)} layers read as truncations in input space, up to {residual} of the outputs."
    if any(layer.lost >= LOST for layer in found.layers):
        lead += " Layers that widen have no place there for a share of their variation: it is lost in the pictures."
    sections = list(_multiples(found, data))
    sections.append(Section("Layers", [_layers(found)]))
    stage, actions = census_film(found, data), (_separate(asked), _move(asked)) if asked else ()
    opening = Opening(file=source, kind="truncations", stage=stage, actions=actions)
    return render(f"{len(found.layers)} layers read as truncations", lead, sections, opening=opening)


def separation_page(found: Separability, built: Census | None, source: str, asked: str = "") -> str:
    """The page of a question of separability; `built` is the census of the network of zero loss, if there is one."""
    lead, *_ = separation_text(found).splitlines()
    names = found.data.names
    rows = [(name, WORDS[answer_json(answer)["answer"]], _gap(answer))
            for name, answer in zip(names, found.answers, strict=True)]  # fmt: skip
    sections = [Section("Clusters", [Table(("cluster", "answer", "gap"), rows[:TABLED])], open=True)]
    if found.network is not None and found.network.bent:
        lead += f" Behind a first layer of {found.network.bent} neurons that bends the data they can."
    if built is not None and found.network is not None and found.network.bent:
        sections.append(Section("Data", [_points(found)]))
    if built is not None:
        sections += _multiples(built, found.data)
        sections.append(Section("Layers", [_layers(built)]))
    stage = census_film(built, found.data) if built is not None else _points(found)
    save = Action("Save the evidence", "An independent checker verifies it.",
                  f"lawful separate{asked} --out separation.json && lawful verify separation.json")  # fmt: skip
    keep = Action("Keep the network of zero loss", "Built from the cones, not trained.",
                  f"lawful separate{asked} --network separated.safetensors")  # fmt: skip
    actions = [save, *([keep] if built is not None else []), _move(asked)] if asked else []
    opening = Opening(file=source, kind="separation", stage=stage, actions=actions)
    answer = lead.partition(": ")[2] if lead.startswith(("Yes: ", "No: ")) else lead[:1].lower() + lead[1:]
    return render(f"{len(rows):,} clusters: {answer}", "", sections, opening=opening)


def _separate(asked: str) -> Action:
    gain = "If so, a network of zero loss is built."
    return Action("Ask whether every cluster can be truncated alone", gain,
                  f"lawful separate{asked} --html separation.html")  # fmt: skip


def _move(asked: str) -> Action:
    gain = "Truncation maps move by gradient flow."
    return Action("Watch the clusters collapse", gain, f"lawful truncation-flow{asked} --html motion.html")


def census_film(found: Census, data: Clusters) -> Markup:
    """The data from layer to layer; between two layers every point moves on a straight line."""
    axes = plane(data.points, alike=True)
    drawn = [_edges(map_, axes, data, exact) for map_, exact in zip(found.maps, _exact(found), strict=True)]
    most = max(map(len, drawn), default=0)
    frames, titles, edges = [found.images[0] @ axes.T], ["the data"], [_pad(drawn[0][:0], most)] if drawn else []
    for number, (before, after) in enumerate(pairwise(found.images), 1):
        layer = found.layers[number - 1]
        title = f"layer {number}: {layer.full.sum()} points truncated fully, {layer.partial.sum()} partially"
        for share in np.linspace(0, 1, BETWEEN + 1)[1:]:
            frames.append(((1 - share) * before + share * after) @ axes.T)
            edges.append(_pad(drawn[number - 1], most))
            titles.append(title)
    square = all(_square(map_) for map_ in found.maps)
    words = "the edges of the cone that the layer leaves alone" if square else "where a neuron of the layer switches"
    shown = Film(np.array(frames), data.labels.tolist(), titles, data.names, np.array(edges) if most else None,
                 axes=_axes(axes, data))  # fmt: skip
    where = "" if data.dimension <= 2 else ", seen along the data's two principal axes"
    where += _units(axes, data)
    return film(shown, f"Each dot is a point as the layers leave it in input space{where}; pale ones are the data"
                + (f", lines are {words}." if most else "."))  # fmt: skip


def _axes(axes: Floats, data: Clusters) -> tuple[str, str]:
    """What the two axes of a drawing are."""
    words = "column" if data.dimension <= 2 else "principal axis"
    unit = ", in units of its spread" if _units(axes, data) and data.dimension <= 2 else ""
    return (f"{words} 1{unit}", f"{words} 2{unit}" if data.dimension > 1 else "")


def _exact(found: Census) -> list[bool]:
    """Whether all layers before this one say in input space what they say in the network."""
    lost = [layer.lost >= LOST for layer in found.layers]
    return [not any(lost[:number]) for number in range(len(lost))]


def _units(axes: Floats, data: Clusters) -> str:
    return "" if np.allclose(axes, plane(data.points)) else ", columns in units of their spread"


def _cones(shifts: Floats, inverses: Floats, axes: Floats, data: Clusters) -> Floats:
    """The edges of all maps' cones: rays from `−β` along the columns of `W⁻¹`."""
    if data.dimension > DRAWN_CONES:
        return np.zeros((0, 4))
    size = float(np.ptp(data.points, axis=0).max())
    rays = []
    for shift, inverse in zip(shifts, inverses, strict=True):
        ends = -shift + size * inverse.T / np.linalg.norm(inverse.T, axis=1, keepdims=True)
        rays += [np.r_[axes @ -shift, axes @ end] for end in ends]
    return np.array(rays)


def _edges(map_: TruncationMap, axes: Floats, data: Clusters, exact: bool) -> Floats:
    """The edges of a layer's cone; in the plane, where it has none, the lines on which its neurons switch."""
    if _square(map_):
        return _cones(map_.shift[None], map_.inverse[None], axes, data)
    if not exact or data.dimension != 2 or len(map_.weight) > DRAWN_LINES:
        return np.zeros((0, 4))
    middle, size = data.points.mean(axis=0), 2 * float(np.ptp(data.points, axis=0).max())
    segments = []
    for normal, level in zip(map_.weight, map_.weight @ middle + map_.bias, strict=True):
        length = float(np.linalg.norm(normal))
        if length:
            foot, along = middle - level * normal / length**2, size * np.array((-normal[1], normal[0])) / length
            segments.append(np.r_[axes @ (foot - along), axes @ (foot + along)])
    return np.array(segments).reshape(-1, 4)


def _square(map_: TruncationMap) -> bool:
    rows, columns = map_.weight.shape
    return bool(rows == columns)


def _pad(edges: Floats, count: int) -> Floats:
    """As many segments in every frame: those that a layer does not have are out of sight."""
    return np.concatenate([edges, np.full((count - len(edges), 4), -1e9)])


def _multiples(found: Census, data: Clusters) -> Iterator[Section]:
    """A picture of each truncation."""
    axes = plane(data.points, alike=True)
    names = _axes(axes, data)
    panels = [_panel(image @ axes.T, data, "the data" if number == 0 else f"after layer {number}", names)
              for number, image in enumerate(found.images[: MULTIPLES + 1])]  # fmt: skip
    yield Section("One by one", [Figure("The data after each layer, colours by class.", panels)])


def _panel(points: Floats, data: Clusters, title: str, names: tuple[str, str]) -> Panel:
    series = [Series(points[data.labels == label, 1], points[data.labels == label, 0], style="points",
                     colour=COLOURS[label % len(COLOURS)]) for label in range(data.count)]  # fmt: skip
    return Panel(series, title, *names, equal=True)


def _points(found: Separability) -> Figure:
    """The data, and for each cluster that cannot be parted why: the point in both hulls with the points that it is
    between (lines in the cluster's colour lead to its own points, grey ones to the rest), or two differences.
    """
    data, axes = found.data, plane(found.data.points, alike=True)
    panel, places = _panel(data.points @ axes.T, data, "the data", _axes(axes, data)), data.points @ axes.T
    series: list[Series] = []
    words = ["The data, colours by class."]
    for label, answer in enumerate(found.answers[: MULTIPLES if data.count > 2 else 1]):  # of two, one says it all
        colour, members = COLOURS[label % len(COLOURS)], data.labels == label
        if isinstance(answer, CommonPoint):
            middle = answer.point @ axes.T
            for side, weights, line in ((members, answer.inside, colour), (~members, answer.outside, "#999999")):
                for row in np.flatnonzero(side)[np.array([bool(weight) for weight in weights])]:
                    series.append(_segment(places[row], middle, line))
            series.append(Series([middle[1]], [middle[0]], style="points", colour=""))
            words.append(
                "Where lines meet is a point that lies both between points of a cluster (lines in its colour) and "
                "between points of the rest (grey lines): no hyperplane parts them."
            )
        elif isinstance(answer, ObtusePair):
            ends = zip(
                np.flatnonzero(members)[list(answer.inside)],
                np.flatnonzero(~members)[list(answer.outside)],
                strict=True,
            )
            series += [_segment(places[inside], places[outside], colour) for inside, outside in ends]
            words.append(
                "Two lines of a cluster's colour are differences to other clusters that make no acute angle "
                f"{'' if data.dimension <= 2 else 'in the space of all columns '}and so fit into no right-angled cone."
            )
    return Figure(" ".join(dict.fromkeys(words)), (replace(panel, series=[*panel.series, *series]),))


def _segment(start: Floats, end: Floats, colour: str) -> Series:
    return Series([start[1], end[1]], [start[0], end[0]], colour=colour)


def _layers(found: Census) -> Table:
    columns = ("layer", "class", "points", "untruncated", "partially", "fully", "condition", "moved", "lost")
    shown = len(columns) - all(layer.lost < LOST for layer in found.layers)
    rows = [
        (number, name, int(size), int(none), int(some), int(full), layer.condition, layer.moved, layer.lost)[:shown]
        for number, layer in enumerate(found.layers, 1)
        for name, size, none, some, full in zip(
            found.names, found.sizes, layer.untruncated, layer.partial, layer.full, strict=True
        )
    ]
    return Table(columns[:shown], rows[:1000], "What each layer truncates, by class.")


def _gap(answer: object) -> float | None:
    low, high = getattr(answer, "low", None), getattr(answer, "high", None)
    return None if low is None or high is None else float(np.min(np.asarray(high) - np.asarray(low)))
