"""Which hidden neurons are needed, each alone, and which can go.

A neuron can go if an affine combination of the other neurons of its layer can take its place in every sum that reads
it, and no output changes for any input: shown region by region. It is needed if no combination can. At an input, the
combination may be off by t only where outputs stay the same, a union of intervals that is worked out here. Multipliers
`μ` of inputs with `Σ μ v_k = 0` for every other neuron k, and `Σ μ = 0`, make `Σ μ v = Σ μ t` for the neuron itself:
a contradiction if no allowed t reach that. Or the values of all neurons and 1 are independent at inputs where t is 0.
"""

from __future__ import annotations

import itertools
from typing import Any

from flint import fmpq_mat

from lawful.verify.core.finding import Finding
from lawful.verify.core.layers import CheckedStack, Row, activate, check_surrogate, compose, evaluate, read_layers
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span, fraction
from lawful.verify.core.schema import integer, items, limit_sums, object_with_keys, require, spend, word

MOST_STRETCHES = 100_000  # of one input: each holds a line for every neuron of a layer
# Steps charged for a stretch and for each of its lines: about 12 and 4 µs at 2.5e8 steps a second. So a forged
# certificate is refused within 10 s; those of the tests need less than 1e6 of the 1e9 steps that are allowed.
STRETCH, LINE = 3000.0, 1000.0
Constraint = tuple[Row, Rational, Span]  # values of the others and 1, the neuron's own, what its error may be


def check(body: dict[str, Any]) -> Finding:
    """How many neurons are needed, how many can go, and how many it says nothing of."""
    parts = object_with_keys(body, "certificate", "network neurons")
    net, digest = read_layers(parts["network"])
    hidden = [(layer, neuron) for layer, width in enumerate(net.widths[1:-1], 1) for neuron in range(width)]
    answers: dict[tuple[int, int], str] = {}
    for item in items(parts["neurons"], "neurons", most=len(hidden)):
        placed = isinstance(item, dict) and {"layer", "neuron", "answer"} <= set(item)
        require(placed, "neurons: an answer lacks its place")
        layer = integer(item["layer"], "neurons.layer", 1, len(net.layers) - 1)
        neuron = integer(item["neuron"], "neurons.neuron", 0, len(net.layers[layer - 1]) - 1)
        require((layer, neuron) not in answers, "neurons: one is decided twice")
        answers[layer, neuron] = word(item["answer"], "neurons.answer", "needed", "removable")
        if answers[layer, neuron] == "needed":
            _check_need(object_with_keys(item, "neurons", "layer neuron answer points cases"), net, layer, neuron)
        else:
            keys = "layer neuron answer coefficients constant decisions"
            stated = object_with_keys(item, "neurons", keys)
            listed = items(stated["coefficients"], "neurons", length=len(net.layers[layer - 1]))
            factors = [fraction(value, "neurons") for value in listed]
            constant = fraction(stated["constant"], "neurons")
            check_surrogate(stated["decisions"], net, layer, neuron, factors, constant)
    needed = [place for place in hidden if answers.get(place) == "needed"]
    removable = [place for place in hidden if answers.get(place) == "removable"]
    facts = {"hidden": len(hidden), "needed": needed, "removable": removable}
    return Finding(facts, (digest,))


def _check_need(given: dict[str, Any], net: CheckedStack, layer: int, neuron: int) -> None:
    """No combination satisfies what the inputs ask."""
    points = [_point(item, net.inputs) for item in items(given["points"], "neurons.points", most=10_000)]
    seen = [_level_set(net, layer, neuron, point) for point in points]
    hulls = [(row, value, (parts[0][0], parts[-1][1])) for row, value, parts in seen]
    if given["cases"] is None:
        require(all(span == (ZERO, ZERO) for _, _, span in hulls), "at an input the outputs also allow another value")
        width = len(net.layers[layer - 1]) + 1
        spend(float(len(hulls)) * width**2)
        table = fmpq_mat([[*row, value] for row, value, _ in hulls]) if hulls else fmpq_mat(1, width)
        require(table.rank() == width, "the values at the inputs are not independent")
        return
    lines = iter(items(given["cases"], "neurons.cases", most=10_000))
    waiting = [hulls]
    while waiting:
        constraints = waiting.pop()
        kind, numbers = items(next(lines, ["", []]), "neurons.cases", length=2)
        if word(kind, "neurons.cases", "split", "end") == "end":
            require(_contradict(constraints, numbers), "the multipliers do not exclude every combination")
            continue
        row, value, parts = _level_set(net, layer, neuron, _point(numbers, net.inputs))
        waiting += [[*constraints, (row, value, part)] for part in reversed(parts)]
    require(next(lines, None) is None, "the cases go on after all were seen")


def _point(value: object, inputs: int) -> list[Rational]:
    point = [fraction(item, "neurons") for item in items(value, "neurons.points", length=inputs)]
    limit_sums(point, 100.0 * inputs)
    return point


def _contradict(constraints: list[Constraint], numbers: object) -> bool:
    """`Σ μ value` exceeds what `Σ μ t` can be at most."""
    factors = [fraction(item, "neurons") for item in items(numbers, "neurons.cases", length=len(constraints))]
    if not constraints:
        return False
    limit_sums(factors, 2.0 * len(factors) * (len(constraints[0][0]) + 2))
    for k in range(len(constraints[0][0])):
        if sum((factor * row[k] for factor, (row, _, _) in zip(factors, constraints, strict=True)), ZERO) != 0:
            return False
    most = ZERO
    for factor, (_, _, (low, high)) in zip(factors, constraints, strict=True):
        end = high if factor > 0 else low
        if factor != 0:
            if end is None:
                return False
            most += factor * end
    return bool(sum((factor * value for factor, (_, value, _) in zip(factors, constraints, strict=True)), ZERO) > most)


def _level_set(net: CheckedStack, layer: int, neuron: int, point: list[Rational]) -> tuple[Row, Rational, list[Span]]:
    """At an input: the values of the other neurons and 1, the neuron's own, and by how much less it may be.

    The outputs are walked along t from below: on each stretch every sum is one line `q t + p`, the row (q, p).
    """
    values = evaluate(net, point, layer)
    others = [value for place, value in enumerate(values) if place != neuron]
    moved = [[-ONE if place == neuron else ZERO, value] for place, value in enumerate(values)]
    outputs = _stretches(net, layer, moved)
    now = [p for _, p in next(lines for span, lines in outputs if _holds(span, ZERO))]
    parts: list[Span] = []
    for span, lines in outputs:
        part = _solve(span, lines, now)
        if part is None:
            continue
        if parts and parts[-1][1] is not None and parts[-1][1] == part[0]:
            part = parts.pop()[0], part[1]
        parts.append(part)
    return [*others, ONE], values[neuron], parts


def _stretches(net: CheckedStack, layer: int, values: list[Row]) -> list[tuple[Span, list[Row]]]:
    """The outputs as lines in t, stretch by stretch, given the values of a hidden layer.

    Stretches multiply with every layer: a sawtooth of two neurons a layer has 2^layers of them.
    """
    pieces: list[tuple[Span, list[Row]]] = [((None, None), values)]
    for rows, slope in zip(net.layers[layer:], (*net.slopes[layer:], ONE), strict=True):
        after: list[tuple[Span, list[Row]]] = []
        for (low, high), values in pieces:
            sums = compose(rows, values, 1)
            zeros = {-p / q for q, p in sums if q != 0 and slope != 1}
            cuts = sorted(zero for zero in zeros if (low is None or low < zero) and (high is None or zero < high))
            spend(STRETCH + LINE * (len(cuts) + 1) * (len(sums) + 1))
            for start, stop in itertools.pairwise([low, *cuts, high]):
                inside = _between(start, stop)
                lines = [activate([q, p], p + q * inside > 0, slope) for q, p in sums]
                after.append(((start, stop), lines))
        require(len(after) < MOST_STRETCHES, "an input has too many stretches")
        pieces = after
    return pieces


def _between(low: Rational | None, high: Rational | None) -> Rational:
    if low is None:
        return ZERO if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2


def _holds(span: Span, value: Rational) -> bool:
    return (span[0] is None or span[0] <= value) and (span[1] is None or value <= span[1])


def _solve(span: Span, lines: list[Row], wanted: list[Rational]) -> Span | None:
    """Where on a stretch all outputs are as wanted."""
    places = set()
    for (q, p), value in zip(lines, wanted, strict=True):
        if q == 0 and p != value:
            return None
        if q != 0:
            places.add((value - p) / q)
    if not places:
        return span
    place = places.pop()
    return (place, place) if not places and _holds(span, place) else None
