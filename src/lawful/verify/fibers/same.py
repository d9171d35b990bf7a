"""Two networks are the same function, or not: steps that keep each function, replayed in rationals, and an ending.

Equal: the steps lead both to the same weights; or to the same layers below the last hidden one, whose normal forms
agree; or to networks whose affine maps agree on every common region. Different: an input at which the outputs differ.
Weight by weight means less: entries agree within a share of the smaller of the two, and nothing is said of functions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from flint import fmpq

from lawful.outward import at_least
from lawful.verify.core.dag import read_dag, read_mlp
from lawful.verify.core.finding import Finding, in_full, short
from lawful.verify.core.regions import check_regions
from lawful.verify.core.schema import afford, listed, need, number, numbers, rational, record, wholes, word
from lawful.verify.fibers.steps import (
    ONE,
    ZERO,
    Box,
    CheckedStack,
    Rational,
    Row,
    Span,
    carried,
    exact,
    images,
    layered,
    outputs,
    span,
    taken,
)

KEYS = "networks box verdict within witness counterexample"
ENDINGS = {"weights": "", "normal form": "groups", "regions": "decisions"}
Form = tuple[list[Row], list[tuple[Row, Row] | None]]  # the affine part; for each group its hyperplane and its bend


def check(body: dict[str, Any]) -> Finding:
    """Equal or different, on which domain, and within what."""
    given = record(body, "certificate", KEYS)
    read = [read_network(value) for value in listed(given["networks"], "networks", length=2)]
    (first, one), (second, other) = read
    box, domain = read_box(given["box"], first.inputs)
    names, digests = f"{short(one)} and {short(other)}", (one, other)
    asked = {"domain": domain, "box": sides_of(given["box"])}
    if word(given["verdict"], "verdict", "equal", "different") == "different":
        need(given["witness"] is None and given["within"] is None, "a witness does not go with the verdict different")
        words, facts = _different(given["counterexample"], first, second, box)
        where = f" on {domain}" if given["box"] is not None else ""
        return Finding(f"{names} are different functions{where}: {words}", facts | asked, digests)
    need(given["counterexample"] is None, "a counterexample does not go with the verdict equal")
    kind, share = _within(given["within"])
    how = agreement(given["witness"], first, second, box, exact(share))
    facts = asked | {"verdict": "equal", "within": (kind, Fraction(share)), "by": how}
    if share:
        words = f"{names}, after steps that keep their functions on {domain}, have the same {how} within {share!r} of "
        return Finding(words + "the smaller of any two entries", facts | {"verdict": "equal weight by weight"}, digests)
    return Finding(f"{names} are the same function on {domain} (by their {how})", facts, digests)


def read_network(value: object) -> tuple[CheckedStack, str]:
    """A network as layers or as a graph, and its digest."""
    if isinstance(value, dict) and "roles" in value:
        dag = read_dag(value)
        need(dag.weights is not None, "a network has no weights")
        return carried(dag), dag.digest()
    mlp = read_mlp(value)
    return layered(mlp), mlp.to_dag().digest()


def read_box(value: object, inputs: int) -> tuple[list[Span], str]:
    """The domain as spans and in words: all of space, or a box with finite ends."""
    if value is None:
        return [(None, None)] * inputs, f"R^{inputs}"
    low, high = (numbers(corner, "box", length=inputs) for corner in listed(value, "box", length=2))
    need(all(a < b for a, b in zip(low, high, strict=True)), "the box is empty")
    ends = list(zip(low, high, strict=True))
    words = [f"[{a!r}, {b!r}]" for a, b in ends]
    same = f"{words[0]}^{inputs}" if len(set(words)) == 1 else in_full(" x ".join(words))
    return [(exact(a), exact(b)) for a, b in ends], same


def sides_of(value: Any) -> list[tuple[Fraction, ...]] | None:
    """The sides of a box that was read, as facts state them."""
    return None if value is None else [tuple(map(Fraction, side)) for side in zip(*value, strict=True)]


def _within(value: object) -> tuple[str, float]:
    given = record(value, "within", "kind value")
    kind, share = word(given["kind"], "within.kind", "exactly", "weights"), number(given["value"], "within.value")
    need(share == 0 if kind == "exactly" else 0 < share < 1, "the certificate does not say how far the networks agree")
    return kind, share


def _different(value: object, first: CheckedStack, second: CheckedStack, box: Box) -> tuple[str, dict[str, Any]]:
    """Where the outputs differ, or which sizes do."""
    if value is None:
        sizes = [(net.widths[0], net.widths[-1]) for net in (first, second)]
        need(sizes[0] != sizes[1], "the sizes agree, and there is no input at which the outputs differ")
        words = " against ".join(f"{inputs} inputs and {outs} outputs" for inputs, outs in sizes)
        return words, {"verdict": "different", "sizes": sizes}
    need(first.inputs == second.inputs, "the networks take inputs of different sizes")
    given = record(value, "counterexample", "input")
    point = listed(given["input"], "counterexample.input", length=first.inputs)
    place = [_coordinate(value) for value in point]
    afford(sum(4.0 * net.size * (1 + len(net.layers) / 2) for net in (first, second)))
    inside = all(
        (low is None or low <= x) and (high is None or x <= high) for x, (low, high) in zip(place, box, strict=True)
    )
    need(inside, "the input lies outside the box")
    answers = [outputs(net, place) for net in (first, second)]
    apart = [k for k, (a, b) in enumerate(zip(*answers, strict=True)) if a != b]
    need(bool(apart), "the outputs do not differ at the input")
    ours, theirs = (Fraction(int(values[apart[0]].p), int(values[apart[0]].q)) for values in answers)
    facts = {"verdict": "different", "input": point, "outputs": [[str(v) for v in values] for values in answers]}
    low, high = sorted((ours, theirs))
    return f"at one input output {apart[0]} differs by at least {at_least(high - low)}", facts


def _coordinate(value: object) -> Rational:
    """A float, or a fraction where no floats show the difference."""
    if not isinstance(value, str):
        return exact(number(value, "counterexample.input"))
    found = rational(value, "counterexample.input")
    return fmpq(found.numerator, found.denominator)


def agreement(value: object, first: CheckedStack, second: CheckedStack, box: Box, most: Rational) -> str:
    """How the ends of both walks agree."""
    need(first.inputs == second.inputs, "the networks take inputs of different sizes")
    ending = word(value.get("ending") if isinstance(value, dict) else None, "witness.ending", *ENDINGS)
    witness = record(value, "witness", f"first second ending {ENDINGS[ending]}")
    ours, theirs = (
        _walked(net, witness[key], f"witness.{key}", box) for net, key in ((first, "first"), (second, "second"))
    )
    need(ours.widths[-1] == theirs.widths[-1], "the networks have different numbers of outputs")
    if ending == "regions":
        need(most == 0, "regions are compared exactly, not weight by weight")
        return f"affine maps on {check_regions(witness['decisions'], ours, theirs, box)} regions"
    need(len(ours.layers) == len(theirs.layers), "the steps do not lead to networks of one depth")
    if ending == "weights":
        _check_rows(ours, theirs, len(ours.layers), most)
        return "weights"
    _check_rows(ours, theirs, max(len(ours.layers) - 2, 0), most)
    _check_heads(ours, theirs, witness["groups"], box, most)
    return "normal form"


def _walked(net: CheckedStack, value: object, where: str, box: Box) -> CheckedStack:
    steps = listed(value, where, most=100_000)
    afford(5.0 * (len(steps) + 1) * net.size)
    work = 0.0
    for step in steps:
        net = taken(net, step, box)
        work += 5.0 * net.size * (1 + net.bits / 64) ** 1.5  # factors that pile up make long numbers
        afford(work)
    return net


def _check_rows(ours: CheckedStack, theirs: CheckedStack, layers: int, most: Rational) -> None:
    same = ours.widths[: layers + 1] == theirs.widths[: layers + 1]
    need(same and ours.slopes[:layers] == theirs.slopes[:layers], "the steps do not lead to networks of one shape")
    for layer in range(layers):
        for neuron, (mine, yours) in enumerate(zip(ours.layers[layer], theirs.layers[layer], strict=True)):
            _alike(mine, yours, most, f"layer {layer + 1}, neuron {neuron}: the weights differ after the steps")


def _alike(ours: Row, theirs: Row, most: Rational, complaint: str) -> None:
    """Entry by entry, each within a share of the smaller of the two."""
    for a, b in zip(ours, theirs, strict=True):
        need(a == b or abs(a - b) <= most * min(abs(a), abs(b)), complaint)


def _check_heads(ours: CheckedStack, theirs: CheckedStack, value: object, box: Box, most: Rational) -> None:
    """Above the last common layer: one normal form on each side, and they agree entry by entry."""
    groups = [
        [tuple(wholes(member, "witness.groups", 0, length=2)) for member in listed(group, "witness.groups")]
        for group in listed(value, "witness.groups")
    ]
    need(all(side < 2 for group in groups for side, _ in group), "a group names a third network")
    (affine, bends), (other, others) = (
        _form(net, [[neuron for where, neuron in group if where == side] for group in groups], box)
        for side, net in enumerate((ours, theirs))
    )
    for mine, yours in zip(affine, other, strict=True):
        _alike(mine, yours, most, "the affine parts differ")
    for one, two in zip(bends, others, strict=True):
        if one is not None and two is not None:
            _alike(one[0], two[0], most, "neurons of a group lie on different hyperplanes")
            _alike(one[1], two[1], most, "the bends on a hyperplane differ")
        else:
            left = one or two
            need(left is None or not any(left[1]), "the bends on a hyperplane do not cancel")


def _form(net: CheckedStack, groups: list[list[int]], box: Box) -> Form:
    """What stands above the last common layer: its affine part, and for each group its hyperplane and its bend."""
    layer = len(net.layers) - 2
    if layer < 0:
        need(not any(groups), "there are no neurons to group")
        return net.layers[-1], [None] * len(groups)
    rows, heads, leak = net.layers[layer], net.layers[-1], net.slopes[layer]
    width = net.widths[layer] + 1
    affine = [[ZERO] * (width - 1) + [head[-1]] for head in heads]
    unseen = set(range(len(rows)))
    bends: list[tuple[Row, Row] | None] = []
    for group in groups:
        need(unseen >= set(group) and len(set(group)) == len(group), "a neuron is in two groups, or does not exist")
        unseen -= set(group)
        if not group:
            bends.append(None)
            continue
        lead = rows[group[0]]
        size = sum((abs(entry) for entry in lead[:-1]), ZERO)
        need(size > 0, "a neuron without weights is in a group")
        turn = size if next(entry for entry in lead if entry) > 0 else -size
        plane = [entry / turn for entry in lead]
        pivot = next(place for place, entry in enumerate(plane) if entry)
        bend = [ZERO] * len(heads)
        for neuron in group:
            factor = rows[neuron][pivot] / plane[pivot]
            need(factor != 0 and rows[neuron] == [factor * entry for entry in plane], "a group has two directions")
            bend = [b + head[neuron] * abs(factor) * (ONE - leak) for b, head in zip(bend, heads, strict=True)]
            _add(affine, heads, neuron, leak if factor > 0 else ONE, rows[neuron])  # relu(-z) = relu(z) - z
        bends.append((plane, bend))
    seen = images(net, box, layer)
    for neuron in sorted(unseen):
        low, high = span(rows[neuron], seen)
        on, off = low is not None and low >= 0, high is not None and high <= 0
        need(on or off or leak == 1, "a neuron that bends is in no group")
        _add(affine, heads, neuron, ONE if on else leak, rows[neuron])
    return affine, bends


def _add(affine: list[Row], heads: list[Row], neuron: int, share: Rational, row: Row) -> None:
    for place, head in enumerate(heads):
        if factor := head[neuron] * share:
            affine[place] = [a + factor * entry for a, entry in zip(affine[place], row, strict=True)]
