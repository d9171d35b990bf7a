"""Run the truncation flow on a data set, and measure what the theory predicts along the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lawful.errors import LawfulError
from lawful.papers.truncation.census import NeuralCollapse, collapse
from lawful.papers.truncation.clusters import Clusters, need_square
from lawful.papers.truncation.flow.field import Composed, Maps, Separated, truncate
from lawful.papers.truncation.flow.integrate import Event, TruncationTrajectory, integrate, integrate_together
from lawful.papers.truncation.separation import Frame, about, rational_frame, separate_aligned
from lawful.result import Shown
from lawful.types import Floats

SAME = 1e-9  # of the data's size: below this two images are one


@dataclass(frozen=True, eq=False)
class Start:
    """One map per cluster, and the points `ỹ_ℓ = (W^{(Q+1)})⁻¹y_ℓ` to which the clusters are drawn (rows)."""

    maps: Maps
    targets: Floats


def starting_maps(data: Clusters) -> Start:
    """Every map opens from its own cluster's mean towards the others; `ỹ_ℓ` lies a third into the gap.

    The rotation takes the difference of means `μ_k − μ_ℓ` as near as it can to the direction `e_k + q(1, …, 1)`, inside
    the positive orthant; for the corners of a regular simplex it does so exactly.
    """
    need_square(data)
    if data.count < 2:
        raise LawfulError("one cluster: a map that leaves the others alone needs others")
    size = data.dimension
    inward = (np.sqrt(1.0 + size) - 1.0) / size
    rotations, targets = [], []
    for number in range(size):
        gaps = np.delete(data.means - data.means[number], number, axis=0)
        wanted = np.delete(np.eye(size), number, axis=0) + inward
        left, values, right = np.linalg.svd(wanted.T @ gaps)
        rotation = left @ right if values[-2:].min() > 0 and size > 2 else about(gaps.mean(axis=0))
        inside, outside = data.cluster(number), data.others(number)
        frame = rational_frame(rotation, inside, outside)
        separated = frame or separate_aligned(inside, outside, guess=rotation)
        if isinstance(separated, Frame):
            frame, rotation = separated, separated.rotation
            apex = (2 * frame.low + frame.high) / 3
        else:  # not separated: aim for a third of the way between means
            apex = rotation @ data.means[number] + np.maximum((gaps @ rotation.T).min(axis=0), 0.0) / 3
        rotations.append(rotation)
        targets.append(apex @ rotation)
    return Start(Maps(-data.means, np.array(rotations)), np.array(targets))


@dataclass(frozen=True, eq=False)
class TruncationRun(Shown):
    """A flow with its data. One trajectory per cluster (separated), or one for all (general)."""

    data: Clusters
    start: Start
    general: bool
    trajectories: tuple[TruncationTrajectory, ...]

    @cached_property
    def times(self) -> Floats:
        """The times that every trajectory reached."""
        return min((trajectory.times for trajectory in self.trajectories), key=len)

    @cached_property
    def costs(self) -> Floats:
        """The Euclidean cost (2.26)."""
        return np.asarray(sum(trajectory.costs[: len(self.times)] for trajectory in self.trajectories))

    @cached_property
    def descent(self) -> Floats:
        """`∂_s C` in its two parts, from β and from R; both are non-positive (3.24)."""
        return np.asarray(sum(trajectory.descent[: len(self.times)] for trajectory in self.trajectories))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All sign changes by time; `layer` is the map, `point` the row of the data."""
        if self.general:
            return self.trajectories[0].events
        events = []
        for number, trajectory in enumerate(self.trajectories):
            rows = np.flatnonzero(self.data.labels == number)
            events += [Event(e.time, e.kind, number, int(rows[e.point]), e.coordinate) for e in trajectory.events]
        return tuple(sorted(events, key=lambda event: event.time))

    @property
    def halted(self) -> str | None:
        """Why the run ended early, if it did."""
        return next((trajectory.halted for trajectory in self.trajectories if trajectory.halted), None)

    @property
    def rounded(self) -> tuple[tuple[float, float], ...]:
        """Stretches of time in which jumps of the velocity were rounded off, because no choice of signs settled."""
        return tuple(stretch for trajectory in self.trajectories for stretch in trajectory.rounded)

    @property
    def interrupted(self) -> bool:
        """Whether a user ended the run."""
        return any(trajectory.interrupted for trajectory in self.trajectories)

    def maps(self, index: int) -> Maps:
        """All maps at one of the times."""
        if self.general:
            return self.trajectories[0].maps[index]
        states = [trajectory.maps[index] for trajectory in self.trajectories]
        return Maps(np.concatenate([s.shifts for s in states]), np.concatenate([s.rotations for s in states]))

    def images(self, index: int) -> Floats:
        """Where the data are at one of the times: each cluster by its own map, or all by all maps."""
        return compose_maps(self.data.points, self.maps(index)) if self.general else self.own_images(index)

    def own_images(self, index: int) -> Floats:
        """Each cluster as its own map alone leaves it."""
        images = np.empty_like(self.data.points)
        for number, (shift, rotation) in enumerate(zip(*self.maps(index), strict=True)):
            inside = self.data.labels == number
            images[inside] = truncate(self.data.points[inside], shift, rotation)
        return images

    def truncated(self, index: int) -> Floats:
        """Share of each cluster that its own map truncates, by coordinate: the rates n/N of (4.46)."""
        shares, points = [], self.data.points
        for number, (shift, rotation) in enumerate(zip(*self.maps(index), strict=True)):
            inside = self.data.labels == number
            shares.append(((points[inside] + shift) @ rotation.T <= 0).mean(axis=0))
            points = truncate(points, shift, rotation) if self.general else points
        return np.array(shares)

    @cached_property
    def collapsed(self) -> tuple[float | None, ...]:
        """When each cluster became one point: the last sign change of its own map, if all of it is truncated then."""
        whole = self.truncated(len(self.times) - 1).min(axis=1) == 1.0
        last = [
            max((e.time for e in self.events if e.layer == number and self.data.labels[e.point] == number), default=0.0)
            for number in range(self.data.count)
        ]
        return tuple(time if ok else None for time, ok in zip(last, whole, strict=True))

    @cached_property
    def separated(self) -> tuple[bool, ...]:
        """Whether at each time the composed maps do to every cluster what its own map does, (3.4)-(3.5)."""
        gaps = (
            np.abs(compose_maps(self.data.points, self.maps(index)) - self.own_images(index)).max()
            for index in range(len(self.times))
        )
        return tuple(bool(gap < SAME * np.abs(self.data.points).max()) for gap in gaps)

    @property
    def orthogonality(self) -> float:
        """Largest entry of `RRᵀ − 1` along the run."""
        worst = 0.0
        for index in range(len(self.times)):
            rotations = self.maps(index).rotations
            gram = rotations @ np.swapaxes(rotations, 1, 2)
            worst = max(worst, float(np.abs(gram - np.eye(rotations.shape[-1])).max()))
        return worst

    def collapse(self, index: int) -> NeuralCollapse:
        """Neural collapse of the images, the last map sending `ỹ_ℓ` to the unit vectors (NC3, NC4)."""
        system = np.c_[self.start.targets, np.ones(self.data.count)]
        solved = np.linalg.lstsq(system, np.eye(self.data.count), rcond=None)[0]
        return collapse(self.images(index), self.data.labels, solved[:-1].T, solved[-1])


def compose_maps(points: Floats, maps: Maps) -> Floats:
    """`τ^{(L)} ∘ … ∘ τ^{(1)}`."""
    for shift, rotation in zip(*maps, strict=True):
        points = truncate(points, shift, rotation)
    return points


def run_flow(
    data: Clusters,
    start: Start | None = None,
    *,
    general: bool = False,
    until: float = 10.0,
    frames: int = 61,
    progress: Callable[[float], None] = lambda time: None,
) -> TruncationRun:
    """Follow the gradient flow of the Euclidean cost from `start` (by default `starting_maps`) for time `until`.

    >>> from lawful.papers.truncation.clusters import synthetic
    >>> run = run_flow(synthetic(2, 8, 0.1), until=12.0, frames=5)
    >>> [round(time, 3) for time in run.collapsed], bool(run.costs[-1] < 1e-6), all(run.separated)
    ([...], True, True)
    """
    if not (np.isfinite(until) and until > 0) or frames < 2:
        raise LawfulError(f"a run needs a positive finite time and at least 2 frames, not {until} and {frames}")
    begin = starting_maps(data) if start is None else start
    times = np.linspace(0.0, until, frames)
    if general:
        field = Composed(data.points, begin.targets[data.labels], data.weights)
        return TruncationRun(data, begin, True, (integrate(field, begin.maps, times, progress=progress),))
    problems = [
        (
            Separated(data.cluster(number), begin.targets[number]),
            Maps(*(map_[number : number + 1] for map_ in begin.maps)),
        )
        for number in range(data.count)
    ]
    return TruncationRun(data, begin, False, integrate_together(problems, times, progress=progress))
