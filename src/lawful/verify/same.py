"""Two networks are the same function, or not: steps that keep each function, replayed in rationals, and an ending.

Equal: the steps lead both to the same weights; or to the same layers below the last hidden one, whose normal forms
agree; or to networks whose affine maps agree on every common region. Different: an input at which the outputs differ.
With a tolerance above 0 nothing is said of functions: the weights agree that far, entry by entry.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lawful.errors import CertificateError
from lawful.verify.finding import Finding, short
from lawful.verify.regions import check_regions
from lawful.verify.schema import afford, listed, need, number, numbers, record, wholes, word
from lawful.verify.steps import (
    ONE,
    ZERO,
    Rational,
    Row,
    Setting,
    Span,
    Storeys,
    close,
    exact,
    images,
    layered,
    outputs,
    span,
    taken,
)
from lawful.verify.wiring import read_tower

KEYS = "networks box verdict tolerance witness counterexample"
LARGEST_TOLERANCE = 1e-3


def check(body: dict[str, Any]) -> Finding:
    """Equal or different, on which domain, and within what."""
    given = record(body, "certificate", KEYS)
    towers = [read_tower(value) for value in listed(given["networks"], "networks", length=2)]
    digests = tuple(tower.wiring().digest() for tower in towers)
    first, second = map(layered, towers)
    box, domain = _box(given["box"], first.inputs)
    tolerance = number(given["tolerance"], "tolerance")
    need(0 <= tolerance <= LARGEST_TOLERANCE, f"a tolerance lies between 0 and {LARGEST_TOLERANCE}")
    names = f"{short(digests[0])} and {short(digests[1])}"
    if word(given["verdict"], "verdict", "equal", "different") == "different":
        need(given["witness"] is None, "a witness of equality does not go with the verdict different")
        return _different(given["counterexample"], first, second, box, exact(tolerance), names, digests)
    need(given["counterexample"] is None, "a counterexample does not go with the verdict equal")
    how = _equal(given["witness"], first, second, Setting(box, exact(tolerance)))
    facts: dict[str, Any] = {"verdict": "equal", "domain": domain, "tolerance": Fraction(tolerance), "by": how}
    if tolerance:
        words = (
            f"{names}: steps that keep the function on {domain} lead both to the same {how} within a relative "
            f"{tolerance!r}, entry by entry"
        )
        return Finding(words, facts | {"verdict": "equal within the tolerance"}, digests)
    return Finding(f"{names} are the same function on {domain} ({how})", facts, digests)


def _box(value: object, inputs: int) -> tuple[list[Span], str]:
    """The domain as spans and in words: all of space, or a box with finite ends."""
    if value is None:
        return [(None, None)] * inputs, f"R^{inputs}"
    low, high = (numbers(corner, "box", length=inputs) for corner in listed(value, "box", length=2))
    need(all(a < b for a, b in zip(low, high, strict=True)), "the box is empty")
    ends = list(zip(low, high, strict=True))
    words = [f"[{a!r}, {b!r}]" for a, b in ends]
    same = f"{words[0]}^{inputs}" if len(set(words)) == 1 else " x ".join(words[:4]) + " x ..." * (inputs > 4)
    return [(exact(a), exact(b)) for a, b in ends], same


def _different(
    value: object,
    first: Storeys,
    second: Storeys,
    box: list[Span],
    tolerance: Rational,
    names: str,
    digests: tuple[str, ...],
) -> Finding:
    if value is None:
        sizes = [(net.widths[0], net.widths[-1]) for net in (first, second)]
        need(sizes[0] != sizes[1], "the sizes agree, and there is no input at which the outputs differ")
        words = f"{names} are different functions: {_sizes(*sizes[0])} against {_sizes(*sizes[1])}"
        return Finding(words, {"verdict": "different", "sizes": sizes}, digests)
    need(first.inputs == second.inputs, "the networks take inputs of different sizes")
    given = record(value, "counterexample", "input")
    point = numbers(given["input"], "counterexample.input", length=first.inputs)
    inside = all(
        (low is None or low <= exact(x)) and (high is None or exact(x) <= high)
        for x, (low, high) in zip(point, box, strict=True)
    )
    need(inside, "the input lies outside the box")
    answers = [outputs(net, [exact(x) for x in point]) for net in (first, second)]
    sizes_ = [outputs(net, [exact(x) for x in point], size=True) for net in (first, second)]
    layers = max(len(first.layers), len(second.layers))
    gaps = [abs(a - b) for a, b in zip(*answers, strict=True)]
    slack = tolerance * layers * exact(0.999999)
    beyond = [k for k, gap in enumerate(gaps) if gap > slack * max(sizes_[0][k], sizes_[1][k]) and gap > 0]
    need(bool(beyond), "the outputs do not differ, or by no more than the tolerance excuses")
    place = beyond[0]
    shown = [_nearest(values[place]) for values in answers]
    facts = {"verdict": "different", "input": point, "outputs": [[str(v) for v in values] for values in answers]}
    words = f"{names} are different functions: at one input output {place} is {shown[0]!r} against {shown[1]!r}"
    return Finding(words, facts, digests)


def _sizes(inputs: int, outputs_: int) -> str:
    return f"{inputs} inputs and {outputs_} outputs"


def _nearest(value: Rational) -> float:
    try:
        return int(value.p) / int(value.q)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _equal(value: object, first: Storeys, second: Storeys, setting: Setting) -> str:
    """How the ends of both walks agree."""
    need(first.inputs == second.inputs, "the networks take inputs of different sizes")
    ending = word(value.get("ending") if isinstance(value, dict) else None, "witness.ending", *ENDINGS)
    witness = record(value, "witness", f"first second ending {ENDINGS[ending]}")
    ends = []
    for net, key in ((first, "first"), (second, "second")):
        steps = listed(witness[key], f"witness.{key}", most=100_000)
        afford(20.0 * (len(steps) + 1) * sum(len(layer) * len(layer[0]) for layer in net.layers if layer))
        for step in steps:
            net = taken(net, step, setting)
        ends.append(net)
    ours, theirs = ends
    need(ours.widths[-1] == theirs.widths[-1], "the networks have different numbers of outputs")
    if ending == "weights":
        need(len(ours.layers) == len(theirs.layers), "the steps do not lead to networks of one depth")
        _check_rows(ours, theirs, len(ours.layers), setting.tolerance)
    elif ending == "normal form":
        need(len(ours.layers) == len(theirs.layers), "the steps do not lead to networks of one depth")
        _check_rows(ours, theirs, max(len(ours.layers) - 2, 0), setting.tolerance)
        _check_heads(ours, theirs, witness["groups"], setting)
    else:
        need(setting.tolerance == 0, "regions are compared exactly, not within a tolerance")
        regions = check_regions(witness["decisions"], ours, theirs, setting.box)
        return f"affine maps on {regions} regions"
    return {"weights": "weights", "normal form": "normal form"}[ending]


ENDINGS = {"weights": "", "normal form": "groups", "regions": "decisions"}


def _check_rows(ours: Storeys, theirs: Storeys, layers: int, tolerance: Rational) -> None:
    same = ours.widths[: layers + 1] == theirs.widths[: layers + 1]
    need(same and ours.slopes[:layers] == theirs.slopes[:layers], "the steps do not lead to networks of one shape")
    for layer in range(layers):
        for neuron, rows in enumerate(zip(ours.layers[layer], theirs.layers[layer], strict=True)):
            need(close(*rows, tolerance), f"layer {layer + 1}, neuron {neuron}: the weights differ after the steps")


def _check_heads(ours: Storeys, theirs: Storeys, groups: object, setting: Setting) -> None:
    """Above the last common layer: on every hyperplane the bends cancel, and so does what remains affine."""
    layer = len(ours.layers) - 2
    nets = (ours, theirs)
    sign = (ONE, -ONE)
    affine = _sum(ours.layers[-1], theirs.layers[-1], minus=True) if layer < 0 else _constants(nets)
    size = [[abs(entry) for entry in row] for row in affine]
    if layer >= 0:
        seen = images(ours, setting.box, layer)
        unseen = {(side, k) for side, net in enumerate(nets) for k in range(len(net.layers[layer]))}
        for group in listed(groups, "witness.groups"):
            members = [
                tuple(wholes(member, "witness.groups", 0, length=2)) for member in listed(group, "witness.groups")
            ]
            need(bool(members) and unseen >= set(members), "a neuron is in two groups, or does not exist")
            need(len(set(members)) == len(members), "a neuron is twice in a group")
            unseen -= set(members)
            lead = nets[members[0][0]].layers[layer][members[0][1]]
            pivot = max(range(len(lead)), key=lambda place: abs(lead[place]))
            need(lead[pivot] != 0, "a neuron without weights leads a group")
            jump, bulk = [ZERO] * len(affine), [ZERO] * len(affine)
            for side, neuron in members:
                row, leak = nets[side].layers[layer][neuron], nets[side].slopes[layer]
                out = [sign[side] * head[neuron] for head in nets[side].layers[-1]]
                factor = row[pivot] / lead[pivot]
                need(factor != 0, "a neuron of a group has another direction")
                largest = max(abs(entry) for entry in row)
                off = [abs(a - factor * b) for a, b in zip(row, lead, strict=True)]
                need(max(off) <= setting.tolerance * largest, "neurons of a group differ in direction")
                jump = [j + o * abs(factor) * (ONE - leak) for j, o in zip(jump, out, strict=True)]
                bulk = [b + abs(o * factor) for b, o in zip(bulk, out, strict=True)]
                share = leak if factor > 0 else ONE  # relu(-z) = relu(z) - z, and a leaky neuron keeps `leak z`
                _add(affine, size, [o * share for o in out], row)
            _near(jump, max(bulk), setting.tolerance, "the bends on a hyperplane do not cancel")
        for side, neuron in sorted(unseen):
            row, leak = nets[side].layers[layer][neuron], nets[side].slopes[layer]
            out = [sign[side] * head[neuron] for head in nets[side].layers[-1]]
            low, high = span(row, seen)
            on, off_ = low is not None and low >= 0, high is not None and high <= 0
            need(on or off_ or leak == 1, "a neuron that bends is in no group")
            _add(affine, size, [o * (ONE if on else leak) for o in out], row)
    linear = [entry for row in affine for entry in row[:-1]]
    bulk_linear = max((entry for row in size for entry in row[:-1]), default=ZERO)
    _near(linear, bulk_linear, setting.tolerance, "the linear parts differ")
    _near([row[-1] for row in affine], max(row[-1] for row in size), setting.tolerance, "the constant parts differ")


def _sum(ours: list[Row], theirs: list[Row], *, minus: bool) -> list[Row]:
    return [[a - b if minus else a + b for a, b in zip(*rows, strict=True)] for rows in zip(ours, theirs, strict=True)]


def _constants(nets: tuple[Storeys, Storeys]) -> list[Row]:
    """The difference of the last biases, as affine functions of what the last hidden layer sees."""
    width = len(nets[0].layers[-2][0]) if nets[0].layers[-2] else nets[0].widths[-3] + 1
    pairs = zip(nets[0].layers[-1], nets[1].layers[-1], strict=True)
    return [[ZERO] * (width - 1) + [ours[-1] - theirs[-1]] for ours, theirs in pairs]


def _add(affine: list[Row], size: list[Row], out: Row, row: Row) -> None:
    for place, share in enumerate(out):
        if share:
            affine[place] = [a + share * entry for a, entry in zip(affine[place], row, strict=True)]
            size[place] = [a + abs(share * entry) for a, entry in zip(size[place], row, strict=True)]


def _near(values: Row, size: Rational, tolerance: Rational, complaint: str) -> None:
    if any(abs(value) > tolerance * size for value in values):
        raise CertificateError(complaint)
