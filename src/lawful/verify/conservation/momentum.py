"""What a heavy ball keeps: rotations, and impulse and resting place wherever no force acts."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from lawful.verify.conservation.case import Case

Row = list[int]


def momentum_rows(
    case: Case, rotations: list[dict[tuple[int, int], Fraction]], forceless: list[dict[int, Fraction]]
) -> list[Row]:
    """Gradients in (θ, v, t) of the laws that pairs of linear neurons and forceless directions give.

    `Q = Σ θ_a v_b − θ_b v_a` and `⟨a, v⟩` decay as e^{−γt}: times e^{γt} they are conserved, without time their ratios
    are, without friction they are themselves. Along a forceless a, `⟨a, γθ + v⟩` is conserved; without friction
    `⟨a, θ⟩ − t⟨a, v⟩` is or, without time, `⟨a, θ⟩⟨b, v⟩ − ⟨b, θ⟩⟨a, v⟩`.
    """
    size, timed = len(case.tails), not case.flow["autonomous"]
    friction = Fraction(float(case.flow["friction"]))
    point = [int(value) for value in case.point]
    theta, speed = point[:size], point[size : 2 * size]
    rate = case.residue(friction)

    def row(by_theta: Mapping[int, int], by_speed: Mapping[int, int], by_time: int) -> Row:
        found = [0] * case.states
        for edge, value in by_theta.items():
            found[edge] += value
        for edge, value in by_speed.items():
            found[size + edge] += value
        if timed:
            found[-1] += by_time
        return [entry % case.prime for entry in found]

    decaying: list[tuple[dict[int, int], dict[int, int], int]] = []  # gradients by θ and v, and the value
    for form in rotations:
        by_theta: dict[int, int] = {}
        by_speed: dict[int, int] = {}
        value = 0
        for first, second in form:
            for left, right, sign in ((first, second, 1), (second, first, -1)):
                by_theta[left] = by_theta.get(left, 0) + sign * speed[right]
                by_speed[right] = by_speed.get(right, 0) + sign * theta[left]
                value += sign * theta[left] * speed[right]
        decaying.append((by_theta, by_speed, value))
    along = [{edge: case.residue(factor) for edge, factor in form.items()} for form in forceless]
    decaying += [({}, a, sum(factor * speed[edge] for edge, factor in a.items())) for a in along]
    places = [sum(factor * theta[edge] for edge, factor in a.items()) for a in along]
    speeds = [sum(factor * speed[edge] for edge, factor in a.items()) for a in along]

    rows: list[Row] = []
    if timed or not friction:
        rows += [row(by_theta, by_speed, rate * value) for by_theta, by_speed, value in decaying]
    elif decaying:
        (start, size_of_start), *others = [(row(one, two, 0), value) for one, two, value in decaying]
        for gradient, value in others:
            pairs = zip(gradient, start, strict=True)
            rows.append([(mine * size_of_start - value * its) % case.prime for mine, its in pairs])
    if friction:
        rows += [row({edge: rate * factor for edge, factor in a.items()}, a, 0) for a in along]
    elif timed:
        for a, fast in zip(along, speeds, strict=True):
            rows.append(row(a, {edge: -point[-1] * factor for edge, factor in a.items()}, -fast))
    else:
        for number in range(1, len(along)):
            a, b = along[0], along[number]
            by_theta = {edge: factor * speeds[number] for edge, factor in a.items()}
            for edge, factor in b.items():
                by_theta[edge] = by_theta.get(edge, 0) - factor * speeds[0]
            by_speed = {edge: factor * places[0] for edge, factor in b.items()}
            for edge, factor in a.items():
                by_speed[edge] = by_speed.get(edge, 0) - factor * places[number]
            rows.append(row(by_theta, by_speed, 0))
    return rows
