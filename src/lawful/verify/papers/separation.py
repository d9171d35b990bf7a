"""Clusters parted by hyperplanes or frames, or shown to be inseparable, by exact comparisons of rationals.

A hyperplane parts if `max w·x < min w·y`. A common point is one convex combination of the cluster and one of the rest
that are the same point. A frame is any basis; made orthogonal here, each vector must part: an orthant opens between.
Inside an orthant all angles are acute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm
from typing import Any

from lawful.verify.core.finding import Finding, digest_of
from lawful.verify.core.numbers import ZERO, Rational, cost_of, exact, fraction
from lawful.verify.core.schema import integers, items, limit_sums, matrix, object_with_keys, require, spend, word

Vector = list[Rational]
Points = list[Vector]


def check(body: dict[str, Any]) -> Finding:
    """What is known of each cluster."""
    parts = object_with_keys(body, "certificate", "points labels answers")
    table = matrix(parts["points"], "points")
    points = [list(map(exact, row)) for row in table]
    require(bool(points) and bool(points[0]), "there are no points")
    answers = items(parts["answers"], "answers", most=len(points))
    labels = integers(parts["labels"], "labels", 0, length=len(points))
    require(sorted(set(labels)) == list(range(len(answers))), "the answers are not one for each cluster")
    require(len(answers) > 1, "one cluster alone: there is nothing to part")
    spend(20.0 * len(points) * len(points[0]) * len(answers))
    kinds = []
    for number, item in enumerate(answers):
        sides = [
            [p for p, label in zip(points, labels, strict=True) if (label == number) is side] for side in (True, False)
        ]
        kinds.append(_answer(item, f"cluster {number}", *sides))
    data = digest_of("data", table, [[label] for label in labels])
    facts = {"data": data, "answers": tuple(kinds), "points": len(points), "dimension": len(points[0])}
    return Finding(facts, others=(data,))


def _answer(item: object, where: str, inside: Points, outside: Points) -> str:
    kind = word(item.get("answer") if isinstance(item, dict) else None, "answers.answer", *EVIDENCE)
    keys, test = EVIDENCE[kind]
    test(object_with_keys(item, "answers", f"answer {keys}"), where, inside, outside)
    return kind


def _dot(left: Sequence[Rational], right: Sequence[Rational]) -> Rational:
    return sum((a * b for a, b in zip(left, right, strict=True)), ZERO)


def _parts(normal: Vector, inside: Points, outside: Points) -> bool:
    return bool(max(_dot(normal, row) for row in inside) < min(_dot(normal, row) for row in outside))


def _hyperplane(answer: dict[str, Any], where: str, inside: Points, outside: Points) -> None:
    entries = items(answer["normal"], "answers.normal", length=len(inside[0]))
    normal = [fraction(value, "answers.normal") for value in entries]
    limit_sums(normal, 2.0 * len(normal) * (len(inside) + len(outside)))
    require(_parts(normal, inside, outside), f"{where}: the hyperplane does not part it from the rest")


def _common(answer: dict[str, Any], where: str, inside: Points, outside: Points) -> None:
    combined = []
    for key, rows in (("inside", inside), ("outside", outside)):
        shares = [fraction(v, f"answers.{key}") for v in items(answer[key], f"answers.{key}", length=len(rows))]
        limit_sums(shares, 2.0 * len(shares) * (1 + len(rows[0])))
        require(min(shares) >= 0 and sum(shares) == 1, f"{where}: not the coefficients of a convex combination")
        combined.append([_dot(shares, column) for column in zip(*rows, strict=True)])
    # One point of both convex hulls: a hyperplane that parts them strictly would have it on both sides.
    require(combined[0] == combined[1], f"{where}: the two convex combinations are different points")


def _frame(answer: dict[str, Any], where: str, inside: Points, outside: Points) -> None:
    width = len(inside[0])
    frame: Points = []
    for row in matrix(answer["rotation"], "answers.rotation", rows=width, columns=width):
        vector = list(map(exact, row))
        for other in frame:  # numbers grow with every vector before: counted as they are made
            share = _dot(vector, other) / _dot(other, other)
            vector = [a - share * b for a, b in zip(vector, other, strict=True)]
            common = lcm(*(int(a.q) for a in vector))  # without denominators: those of a sum would multiply
            vector = [common * a for a in vector]
            spend(2.0 * cost_of(vector))
        require(any(vector), f"{where}: the frame is not a basis")
        spend(2.0 * (len(inside) + len(outside)) * cost_of(vector))
        require(_parts(vector, inside, outside), f"{where}: direction {len(frame)} does not part it from the rest")
        frame.append(vector)


def _obtuse(answer: dict[str, Any], where: str, inside: Points, outside: Points) -> None:
    near = integers(answer["inside"], "answers.inside", 0, len(inside) - 1, length=2)
    far = integers(answer["outside"], "answers.outside", 0, len(outside) - 1, length=2)
    first, second = (
        [b - a for a, b in zip(inside[i], outside[j], strict=True)] for i, j in zip(near, far, strict=True)
    )
    # In a right-angled cone all coordinates are positive, and so is every inner product of two of its vectors.
    require(_dot(first, second) <= 0, f"{where}: the two differences make an acute angle")


Test = Callable[[dict[str, Any], str, Points, Points], None]
EVIDENCE: dict[str, tuple[str, Test]] = {
    "hyperplane": ("normal", _hyperplane),
    "common point": ("inside outside", _common),
    "frame": ("rotation", _frame),
    "obtuse pair": ("inside outside", _obtuse),
    "undecided": ("", lambda *_: None),
}
