"""What is known of the separation of clusters as one JSON object that `lawful verify` re-checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.separation.orthonormal_frames import Frame, ObtusePair
from lawful.papers.truncation.separation.separability import Answer
from lawful.papers.truncation.separation.separation import CommonPoint, Hyperplane, OrderUndecided


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
