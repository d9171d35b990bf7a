"""Re-check separation certificates in exact rational arithmetic, with no linear program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from lawful.errors import CertificateError
from lawful.truncation.aligned import Frame, ObtusePair
from lawful.truncation.clusters import Clusters
from lawful.truncation.separation import CommonPoint, Hyperplane, OrderUndecided

Answer = Hyperplane | CommonPoint | Frame | ObtusePair | OrderUndecided
Vector = list[Fraction]
CONTACT = Fraction(1, 10**8)  # of the data's size: how near the two combinations of a common point must be


def certificate(data: Clusters, answers: Sequence[Answer], statement: str) -> dict[str, Any]:
    """The answers with the data they speak of, ready for JSON."""
    return {
        "kind": "truncation-separation",
        "statement": statement,
        "points": data.points.tolist(),
        "labels": data.labels.tolist(),
        "names": list(data.names),
        "answers": [described(answer) for answer in answers],
    }


def described(answer: Answer) -> dict[str, Any]:
    """One answer as JSON."""
    match answer:
        case Hyperplane(exact, _, low, high):
            return {"answer": "hyperplane", "normal": [str(value) for value in exact], "low": low, "high": high}
        case CommonPoint(inside, outside, point):
            return {"answer": "common point", "inside": [str(v) for v in inside], "outside": [str(v) for v in outside],
                    "point": point.tolist()}  # fmt: skip
        case Frame(rotation, low, high):
            return {"answer": "frame", "rotation": rotation.tolist(), "low": low.tolist(), "high": high.tolist()}
        case ObtusePair(inside, outside, product):
            return {"answer": "obtuse pair", "inside": list(inside), "outside": list(outside), "product": product}
        case OrderUndecided(reason):
            return {"answer": "undecided", "reason": reason}


def verify_separation(given: Mapping[str, Any]) -> None:
    """Raise `CertificateError` unless every answer is true of the data; *undecided* claims nothing."""
    try:
        points = [[Fraction(value) for value in row] for row in given["points"]]
        labels, answers = list(given["labels"]), list(given["answers"])
        checks: dict[str, Callable[[Mapping[str, Any], list[Vector], list[Vector]], str | None]] = {
            "hyperplane": _hyperplane, "common point": _common, "frame": _frame, "obtuse pair": _obtuse,
            "undecided": lambda answer, inside, outside: None,
        }  # fmt: skip
        if len(labels) != len(points) or len({len(row) for row in points}) != 1:
            raise CertificateError("points and labels do not match")
        for number, answer in enumerate(answers):
            inside = [row for row, label in zip(points, labels, strict=True) if label == number]
            outside = [row for row, label in zip(points, labels, strict=True) if label != number]
            if not inside or not outside:
                raise CertificateError(f"cluster {number}: nothing to part")
            wrong = checks[answer["answer"]](answer, inside, outside)
            if wrong is not None:
                raise CertificateError(f"cluster {number}: {wrong}")
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise CertificateError(f"not a separation certificate: {error!r}") from None


def _dot(left: Sequence[Fraction], right: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def _hyperplane(answer: Mapping[str, Any], inside: list[Vector], outside: list[Vector]) -> str | None:
    normal = [Fraction(value) for value in answer["normal"]]
    if max(_dot(normal, row) for row in inside) < min(_dot(normal, row) for row in outside):
        return None
    return "the hyperplane does not part the cluster from the rest"


def _common(answer: Mapping[str, Any], inside: list[Vector], outside: list[Vector]) -> str | None:
    combined = []
    for shares, rows in ((answer["inside"], inside), (answer["outside"], outside)):
        weights = [Fraction(value) for value in shares]
        if min(weights) < 0 or sum(weights) <= 0:
            return "the coefficients are not those of a convex combination"
        columns = zip(*rows, strict=True)
        combined.append([_dot(weights, column) / sum(weights) for column in columns])
    size = max(max(column) - min(column) for column in zip(*inside, *outside, strict=True))
    if max(abs(a - b) for a, b in zip(*combined, strict=True)) > CONTACT * size:
        return "the two convex combinations are different points"
    return None


def _frame(answer: Mapping[str, Any], inside: list[Vector], outside: list[Vector]) -> str | None:
    rows = [[Fraction(value) for value in row] for row in answer["rotation"]]
    for number, row in enumerate(rows):
        if any(abs(_dot(row, other) - (index == number)) > Fraction(1, 10**12) for index, other in enumerate(rows)):
            return "the frame is not orthonormal"
        if _hyperplane({"normal": row}, inside, outside) is not None:
            return f"direction {number} does not part the cluster from the rest"
    return None if len(rows) == len(inside[0]) else "the frame is not a basis"


def _obtuse(answer: Mapping[str, Any], inside: list[Vector], outside: list[Vector]) -> str | None:
    first, second = (
        [b - a for a, b in zip(inside[i], outside[j], strict=True)]
        for i, j in zip(answer["inside"], answer["outside"], strict=True)
    )
    return None if _dot(first, second) <= 0 else "the two differences do not make an obtuse angle"
