"""What is known of the separation of clusters as one JSON object that `lawful verify` re-checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lawful.truncation.clusters import Clusters
from lawful.truncation.separation import CommonPoint, Frame, Hyperplane, ObtusePair, OrderUndecided

Answer = Hyperplane | CommonPoint | Frame | ObtusePair | OrderUndecided


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
        case Hyperplane(normal):
            return {"answer": "hyperplane", "normal": normal.tolist()}
        case CommonPoint(inside, outside):
            return {"answer": "common point", "inside": list(map(str, inside)), "outside": list(map(str, outside))}
        case Frame(rotation):
            return {"answer": "frame", "rotation": rotation.tolist()}
        case ObtusePair(inside, outside):
            return {"answer": "obtuse pair", "inside": list(inside), "outside": list(outside)}
        case OrderUndecided():
            return {"answer": "undecided"}


def described(answer: Answer) -> dict[str, Any]:
    """One answer with its numbers, for people."""
    match answer:
        case Hyperplane(normal, low, high):
            return {"answer": "hyperplane", "normal": normal.tolist(), "low": low, "high": high}
        case CommonPoint(inside, outside, point):
            shares = [[float(share) for share in side] for side in (inside, outside)]
            return {"answer": "common point", "inside": shares[0], "outside": shares[1], "point": point.tolist()}
        case Frame(rotation, low, high):
            return {"answer": "frame", "rotation": rotation.tolist(), "low": low.tolist(), "high": high.tolist()}
        case ObtusePair(inside, outside, product):
            return {"answer": "obtuse pair", "inside": list(inside), "outside": list(outside), "product": product}
        case OrderUndecided(reason):
            return {"answer": "undecided", "reason": reason}
