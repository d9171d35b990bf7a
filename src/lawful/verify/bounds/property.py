"""No input of a box leads to forbidden outputs, or this one does.

What is forbidden is a union of cases, each an intersection of half-spaces `a · y <= bound` (without its boundary if
strict). That it never occurs is shown on the leaves of a tree of boxes: on each, every case has a half-space that no
output reaches. An input that leads there is evaluated in rationals.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lawful.verify.bounds.boxes import Sides, evaluated, read_box, read_network, shown
from lawful.verify.bounds.exclusion import HalfSpace, excluded
from lawful.verify.bounds.layers import Plain, plain_layers
from lawful.verify.core.finding import Finding, in_full, short
from lawful.verify.core.schema import exactly, items, limit_cost, numbers, object_with_keys, rational, require, truth


def check(body: dict[str, Any]) -> Finding:
    """Which of the two holds."""
    given = object_with_keys(body, "certificate", "network box forbidden input tree")
    network = read_network(given["network"], "network")
    require(network.weights is not None, "the network has no weights")
    box = read_box(given["box"], len(network.inputs))
    cases = [
        [_half_space(item, len(network.outputs)) for item in items(case, "forbidden", most=100)]
        for case in items(given["forbidden"], "forbidden", most=1000)
    ]
    require(bool(cases) and all(cases), "nothing is forbidden, or everything is: there is no question")
    layers = plain_layers(network)
    facts: dict[str, Any] = {"box": box, "forbidden": cases}
    name = f"for f = {short(network.digest())}, "
    what = f"what is forbidden: {_words(cases)}"
    if given["input"] is not None:
        require(given["tree"] is None, "a certificate shows one of the two")
        facts["input"] = exactly(numbers(given["input"], "input", length=len(box)))
        facts["outputs"], case = _reached(facts["input"], box, layers, cases)
        statement = f"{name}an input of {shown(box)} leads into case {case + 1} of {what} (exact)"
    else:
        facts["leaves"] = excluded(given["tree"], box, layers, cases)
        statement = f"{name}no input of {shown(box)} leads into {what} ({facts['leaves']} boxes re-computed)"
    return Finding(statement, facts, (network.digest(),))


def _words(cases: list[list[HalfSpace]]) -> str:
    """The forbidden outputs in full: a statement is about the question that was asked, so it repeats it."""
    return in_full(" or ".join(" and ".join(map(str, case)) for case in cases))


def _half_space(value: object, outputs: int) -> HalfSpace:
    given = object_with_keys(value, "forbidden", "coefficients bound strict")
    coefficients = [rational(item, "forbidden") for item in items(given["coefficients"], "forbidden", length=outputs)]
    return HalfSpace(coefficients, rational(given["bound"], "forbidden"), truth(given["strict"], "forbidden"))


def _reached(
    point: list[Fraction], box: Sides, layers: list[Plain], cases: list[list[HalfSpace]]
) -> tuple[list[Fraction], int]:
    """The outputs at the input, and the case that they are in."""
    require(all(low <= x <= high for x, (low, high) in zip(point, box, strict=True)), "the input is outside the box")
    limit_cost(100.0 * sum(len(row) for layer in layers for row in layer.rows))
    outputs = evaluated(layers, point)
    reached = [at for at, case in enumerate(cases) if all(space.holds(outputs) for space in case)]
    require(bool(reached), "the outputs at this input are not forbidden")
    return outputs, reached[0]
