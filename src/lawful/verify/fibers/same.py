"""Two networks are the same function, or not: steps that keep each function, replayed in rationals, and an ending.

Equal: the steps lead both to the same weights; or to the same layers below the last hidden one, whose normal forms
agree; or to networks whose affine maps agree on every common region. Different: an input at which the outputs differ.
Weight by weight means less: entries agree within a share of the smaller of the two, and nothing is said of functions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lawful.verify.core.dag import read_network
from lawful.verify.core.finding import Finding
from lawful.verify.core.layers import Box, CheckedStack, evaluate, read_box, read_layers
from lawful.verify.core.numbers import as_fraction, exact, quotient
from lawful.verify.core.schema import items, limit_sums, number, object_with_keys, require, word
from lawful.verify.fibers.agreement import agreement

KEYS = "networks box verdict within witness counterexample"


def check(body: dict[str, Any]) -> Finding:
    """Equal or different, on which domain, and within what."""
    parts = object_with_keys(body, "certificate", KEYS)
    networks = items(parts["networks"], "networks", length=2)
    (first, one), (second, other) = (read_layers(network, read_network) for network in networks)
    box, sides = read_box(parts["box"], first.inputs)
    facts: dict[str, Any] = {"box": sides, "inputs": first.inputs}
    if word(parts["verdict"], "verdict", "equal", "different") == "different":
        unused = parts["witness"] is None and parts["within"] is None
        require(unused, "a witness does not go with the verdict different")
        facts |= {"verdict": "different"} | _different(parts["counterexample"], first, second, box)
    else:
        require(parts["counterexample"] is None, "a counterexample does not go with the verdict equal")
        within = object_with_keys(parts["within"], "within", "kind value")
        share = number(within["value"], "within.value")
        exactly = word(within["kind"], "within.kind", "exactly", "weights") == "exactly"
        require(share == 0 if exactly else 0 < share < 1, "the certificate does not say how far the networks agree")
        how = agreement(parts["witness"], first, second, box, exact(share))
        verdict = "equal weight by weight" if share else "equal"
        facts |= {"verdict": verdict, "within": (within["kind"], Fraction(share)), "by": how}
    return Finding(facts, (one, other))


def _different(value: object, first: CheckedStack, second: CheckedStack, box: Box) -> dict[str, Any]:
    """Where the outputs differ, or which sizes do."""
    if value is None:
        sizes = [(net.widths[0], net.widths[-1]) for net in (first, second)]
        require(sizes[0] != sizes[1], "the sizes agree, and there is no input at which the outputs differ")
        return {"sizes": sizes}
    require(first.inputs == second.inputs, "the networks take inputs of different sizes")
    parts = object_with_keys(value, "counterexample", "input")
    point = items(parts["input"], "counterexample.input", length=first.inputs)
    place = [quotient(value, "counterexample.input") for value in point]
    limit_sums(place, 4.0 * (len(first.entries) + len(second.entries)))
    for x, (low, high) in zip(place, box, strict=True):
        require((low is None or low <= x) and (high is None or x <= high), "the input lies outside the box")
    answers = [evaluate(net, place) for net in (first, second)]
    # Exact values at one input: any difference, however small, is one of the functions.
    apart = [k for k, (a, b) in enumerate(zip(*answers, strict=True)) if a != b]
    require(bool(apart), "the outputs do not differ at the input")
    ours, theirs = (as_fraction(values[apart[0]]) for values in answers)
    exactly = [[str(v) for v in values] for values in answers]
    return {"input": point, "outputs": exactly, "output": apart[0], "differ_by": abs(ours - theirs)}
