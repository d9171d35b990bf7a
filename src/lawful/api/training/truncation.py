"""Training as motion of the data (paper 2): what layers truncate, how maps move, which clusters can be parted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import Help, ReadOptions, Samples, Seed, open_options, takes
from lawful.errors import LawfulError
from lawful.result import with_evidence

if TYPE_CHECKING:
    from lawful.papers.truncation.census import Census
    from lawful.papers.truncation.clusters import Clusters
    from lawful.papers.truncation.flow.motion import TruncationRun
    from lawful.papers.truncation.separability import Separability
    from lawful.sources.opening import Source

    Labelled = Samples | Clusters
else:
    Labelled = str

NAMED = ("digits", "wine", "iris", "breast_cancer", "moons")  # scikit-learn's small data sets
LabelledData = Annotated[
    Labelled | None, Help(f"Points and labels: .npz (x, y), .csv (a column y), or {', '.join(NAMED)}.")
]
GaussianClusters = Annotated[str | None, Help("Make Q Gaussian clusters of N points: Q,N,spread.")]
Project = Annotated[int | None, Help("First project the data to this many principal axes.")]


@takes(ReadOptions)
def truncate(
    network: Source,
    data: LabelledData = None,
    *,
    clusters: GaussianClusters = None,
    project: Project = None,
    seed: Seed = 0,
    **reading: Unpack[ReadOptions],
) -> Census:
    """Which training points each layer truncates, by class and coordinate (P2).

    >>> truncate("2-2-2 relu", clusters="2,5,0.1").sizes.tolist()
    [5, 5]
    """
    from lawful.papers.truncation.census import census
    from lawful.sources.opening import open_graph
    from lawful.sources.provenance import with_provenance

    points = labelled_data(data, clusters, project, seed)
    graph = open_graph(network, seed=seed, **open_options(reading))
    return with_provenance(census(graph, points), graph)


def truncation_flow(
    data: LabelledData = None,
    *,
    clusters: GaussianClusters = None,
    project: Project = None,
    scale: Annotated[bool, Help("Centre the data and bring them to size 1.")] = False,
    general: Annotated[bool, Help("Compose all maps on all clusters (Theorem 5.1).")] = False,
    until: Annotated[float, Help("End time of the flow.")] = 10.0,
    frames: Annotated[int, Help("Number of recorded times.")] = 61,
    seed: Seed = 0,
    tick: Callable[[str, float], None] = lambda words, part: None,
) -> TruncationRun:
    """Let truncation maps move by gradient flow and watch the clusters collapse (P2 Theorem 3.2)."""
    from lawful.papers.truncation.flow.motion import run_flow

    points = labelled_data(data, clusters, project, seed, scale)
    watch: Any = {"progress": lambda now: tick(f"s = {now:.3g}", now / until)}
    return run_flow(points, general=general, until=until, frames=frames, **watch)


def separate(
    data: LabelledData = None,
    *,
    clusters: GaussianClusters = None,
    project: Project = None,
    aligned: Annotated[bool, Help("Ask for right-angled cones, R in O(Q).")] = False,
    seed: Seed = 0,
) -> Separability:
    """Can every cluster be truncated alone? If so, `built` is a network of zero loss (P2 Theorem 3.4)."""
    from lawful.papers.truncation.separability import certificate, separability

    answer = separability(labelled_data(data, clusters, project, seed), aligned=aligned, seed=seed)
    return with_evidence(answer, lambda: certificate(answer.data, answer.answers))


def labelled_data(
    data: LabelledData, clusters: str | None, project: int | None, seed: int, scale: bool = False
) -> Clusters:
    """Points with labels, however they are given."""
    from lawful.papers.truncation.clusters import Clusters

    if (data is None) == (clusters is None):
        raise LawfulError("give either --data FILE or --clusters Q,N,spread")
    if clusters is not None:
        points = _draw_clusters(clusters, seed)
    else:
        points = data if isinstance(data, Clusters) else Clusters(*_read_labelled(data))
    points = points if project is None else points.projected(project)
    return points.scaled() if scale else points


def _draw_clusters(text: str, seed: int) -> Clusters:
    from lawful.papers.truncation.clusters import synthetic

    match = re.fullmatch(r"(\d{1,4}),(\d{1,8}),(\d*\.?\d*(?:[eE][-+]?\d{1,3})?)", text)
    try:
        dimension, size, spread = match.groups() if match else ("", "", "")
        return synthetic(int(dimension), int(size), float(spread), seed)
    except ValueError:
        raise LawfulError(f"--clusters takes Q,N,spread such as 3,50,0.1, not {text[:40]!r}") from None


def _read_labelled(data: Any) -> tuple[Any, Any]:
    """Points and labels, those of a file by the names of its classes."""
    from lawful.api.training.samples import as_data

    if isinstance(data, str) and data in NAMED and not Path(data).exists():
        import sklearn.datasets

        if data == "moons":
            return sklearn.datasets.make_moons(200, noise=0.05, random_state=0)  # type: ignore[no-any-return]
        return getattr(sklearn.datasets, f"load_{data}")(return_X_y=True)  # type: ignore[no-any-return]
    samples = as_data(data)
    if samples.classes is None:
        named = f"{str(data)[:80]}: " if isinstance(data, (str, Path)) else ""
        raise LawfulError(f"{named}needs labels: `y` with one whole number or word per point")
    return samples.x, samples.classes if samples.names is None else [samples.names[label] for label in samples.classes]
