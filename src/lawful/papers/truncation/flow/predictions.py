"""What can be said of a flow in advance: Proposition 4.2 for each cluster, and the closed form at fixed rotations."""

from __future__ import annotations

from dataclasses import dataclass

from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.flow.closed_form import FixedFlow, fixed_flow
from lawful.papers.truncation.flow.finite_time import Hypotheses, hypotheses
from lawful.papers.truncation.flow.motion import Start, TruncationRun


@dataclass(frozen=True)
class Prediction:
    """The hypotheses of Proposition 4.2 for one cluster at a `time` of its run, and when it collapses at the latest."""

    hypotheses: Hypotheses
    time: float

    @property
    def bound(self) -> float:
        """The time of collapse that is promised, counted from the start of the run."""
        return self.hypotheses.bound + self.time


def predictions(run: TruncationRun) -> list[Prediction | None]:
    """Proposition 4.2 for every cluster's own map, at the first time at which its hypotheses hold.

    Where they never hold, the first time says what fails; None if the cluster starts collapsed. The proposition speaks
    of the separated flow only.
    """
    return [_prediction(run, number) for number in range(run.data.count)]


def _prediction(run: TruncationRun, number: int) -> Prediction | None:
    cluster, target, end = run.data.cluster(number), run.start.targets[number], run.collapsed[number]
    first = None
    for index, at in enumerate(run.times):
        if end is not None and at >= end:
            break
        maps = run.maps(index)
        found = Prediction(hypotheses(cluster, target, maps.shifts[number], maps.rotations[number]), float(at))
        if found.hypotheses.holds:
            return found
        first = first or found
    return first


def fixed_flows(data: Clusters, start: Start) -> tuple[FixedFlow, ...]:
    """The closed form at fixed rotations, for each cluster."""
    maps = zip(start.targets, start.maps.shifts, start.maps.rotations, strict=True)
    return tuple(fixed_flow(data.cluster(number), *each) for number, each in enumerate(maps))
