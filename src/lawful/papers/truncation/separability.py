"""Can every cluster be truncated alone, and if not, one by one? The whole answer about one data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.construction import NotSeparable, ZeroLoss, network_with_caps, zero_loss_network
from lawful.papers.truncation.separation import (
    CommonPoint,
    Frame,
    Hyperplane,
    ObtusePair,
    OrderUndecided,
    separate_aligned,
    separate_all,
)
from lawful.result import Shown

Answer = Hyperplane | CommonPoint | Frame | ObtusePair | OrderUndecided


@dataclass(frozen=True, eq=False)
class Separability(Shown):
    """An answer per cluster, and what comes of collapsing the clusters one by one (not asked for aligned maps).

    `bent` is a network of zero loss behind a wider first layer, looked for where there is none without.
    """

    data: Clusters
    aligned: bool
    answers: tuple[Answer, ...]
    built: ZeroLoss | NotSeparable | OrderUndecided | None
    bent: ZeroLoss | None = None

    @property
    def network(self) -> ZeroLoss | None:
        """The network of zero loss, if one was found."""
        return self.built if isinstance(self.built, ZeroLoss) else self.bent

    @property
    def verdict(self) -> str:
        """`yes` if every cluster can be parted from the rest, `no` if one cannot, else `undecided`."""
        if any(isinstance(answer, CommonPoint | ObtusePair) for answer in self.answers):
            return "no"
        return "undecided" if any(isinstance(answer, OrderUndecided) for answer in self.answers) else "yes"

    def pair(self, number: int) -> tuple[int, int] | None:
        """Rows of the data that are the same point, one in this cluster and one in another, if that is the evidence."""
        answer = self.answers[number]
        if not isinstance(answer, CommonPoint) or answer.pair is None:
            return None
        inside, outside = (np.flatnonzero((self.data.labels == number) == member) for member in (True, False))
        return int(inside[answer.pair[0]]), int(outside[answer.pair[1]])


def separability(data: Clusters, *, aligned: bool = False, seed: int = 0) -> Separability:
    """Ask for every cluster whether a truncation map can collapse it and leave the others alone (P2 Section 3).

    >>> found = separability(Clusters([[0.0], [1.0], [2.0], [3.0]], [0, 1, 1, 0]))
    >>> found.verdict, type(found.built).__name__, found.network.network
    ('no', 'NotSeparable', Mlp(1-2-2-2-2))
    """
    if data.count < 2:
        raise LawfulError("one cluster: there is nothing to part it from")
    if aligned:
        turned = [separate_aligned(data.cluster(n), data.others(n), seed=seed) for n in range(data.count)]
        return Separability(data, True, tuple(turned), None)
    built = zero_loss_network(data, seed=seed)
    bent = None if isinstance(built, ZeroLoss) else network_with_caps(data, seed=seed)
    return Separability(data, False, separate_all(data), built, bent)


# What is known of the separation of clusters as one JSON object that `lawful verify` re-checks.


def certificate(data: Clusters, answers: Sequence[Answer]) -> dict[str, Any]:
    """The data, and for each cluster the evidence of its answer."""
    return {
        "kind": "truncation-separation",
        "version": 1,
        "about": [],
        "points": data.points.tolist(),
        "labels": data.labels.tolist(),
        "answers": [_evidence(answer) for answer in answers],
    }


def _evidence(answer: Answer) -> dict[str, Any]:
    match answer:
        case Hyperplane(exact):
            return {"answer": "hyperplane", "normal": list(map(str, exact))}
        case CommonPoint(inside, outside):
            return {"answer": "common point", "inside": list(map(str, inside)), "outside": list(map(str, outside))}
        case Frame(rotation):
            return {"answer": "frame", "rotation": rotation.tolist()}
        case ObtusePair(inside, outside):
            return {"answer": "obtuse pair", "inside": list(inside), "outside": list(outside)}
        case OrderUndecided():
            return {"answer": "undecided"}
