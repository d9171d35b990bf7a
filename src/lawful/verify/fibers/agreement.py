"""How two networks agree after steps that keep their functions: in weights, in a normal form, or on every region.

A step changes parameters and keeps the function, under a condition that is tested here before it is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lawful.verify.core.layers import Box, CheckedStack, Row, affine_range, check_regions, compose, layer_ranges
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span, activation_range, cost_of, quotient
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require, spend, word

ENDINGS = {"weights": "", "normal form": "groups", "regions": "decisions"}
Form = tuple[list[Row], list[tuple[Row, Row] | None]]  # the affine part; for each group its hyperplane and its bend


def agreement(value: object, first: CheckedStack, second: CheckedStack, box: Box, most: Rational) -> str:
    """How the ends of both walks agree."""
    require(first.inputs == second.inputs, "the networks take inputs of different sizes")
    ending = word(value.get("ending") if isinstance(value, dict) else None, "witness.ending", *ENDINGS)
    witness = object_with_keys(value, "witness", f"first second ending {ENDINGS[ending]}")
    ours, theirs = (
        _apply_steps(net, witness[key], f"witness.{key}", box) for net, key in ((first, "first"), (second, "second"))
    )
    require(ours.widths[-1] == theirs.widths[-1], "the networks have different numbers of outputs")
    if ending == "regions":
        require(most == 0, "regions are compared exactly, not weight by weight")
        return f"affine maps on {check_regions(witness['decisions'], ours, theirs, box)} regions"
    require(len(ours.layers) == len(theirs.layers), "the steps do not lead to networks of one depth")
    if ending == "weights":
        _check_rows(ours, theirs, len(ours.layers), most)
        return "weights"
    _check_rows(ours, theirs, max(len(ours.layers) - 2, 0), most)
    _check_heads(ours, theirs, witness["groups"], box, most)
    return "normal form"


def _apply_steps(net: CheckedStack, value: object, where: str, box: Box) -> CheckedStack:
    for step in items(value, where, most=100_000):
        net = apply_step(net, step, box)
        spend(5.0 * cost_of(net.entries))  # factors that pile up make long numbers
    return net


def _check_rows(ours: CheckedStack, theirs: CheckedStack, layers: int, most: Rational) -> None:
    same = ours.widths[: layers + 1] == theirs.widths[: layers + 1]
    require(same and ours.slopes[:layers] == theirs.slopes[:layers], "the steps do not lead to networks of one shape")
    for layer in range(layers):
        for neuron, (mine, yours) in enumerate(zip(ours.layers[layer], theirs.layers[layer], strict=True)):
            _alike(mine, yours, most, f"layer {layer + 1}, neuron {neuron}: the weights differ after the steps")


def _alike(ours: Row, theirs: Row, most: Rational, complaint: str) -> None:
    """Entry by entry, each within a share of the smaller of the two."""
    for a, b in zip(ours, theirs, strict=True):
        require(a == b or abs(a - b) <= most * min(abs(a), abs(b)), complaint)


def _check_heads(ours: CheckedStack, theirs: CheckedStack, value: object, box: Box, most: Rational) -> None:
    """Above the last common layer: one normal form on each side, and they agree entry by entry."""
    groups = [
        [tuple(integers(member, "witness.groups", 0, length=2)) for member in items(group, "witness.groups")]
        for group in items(value, "witness.groups")
    ]
    require(all(side < 2 for group in groups for side, _ in group), "a group names a third network")
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
            require(left is None or not any(left[1]), "the bends on a hyperplane do not cancel")


def _form(net: CheckedStack, groups: list[list[int]], box: Box) -> Form:
    """What stands above the last common layer: its affine part, and for each group its hyperplane and its bend."""
    layer = len(net.layers) - 2
    if layer < 0:
        require(not any(groups), "there are no neurons to group")
        return net.layers[-1], [None] * len(groups)
    rows, heads, leak = net.layers[layer], net.layers[-1], net.slopes[layer]
    width = net.widths[layer] + 1
    affine = [[ZERO] * (width - 1) + [head[-1]] for head in heads]
    unseen = set(range(len(rows)))
    bends: list[tuple[Row, Row] | None] = []
    for group in groups:
        require(unseen >= set(group) and len(set(group)) == len(group), "a neuron is in two groups, or does not exist")
        unseen -= set(group)
        if not group:
            bends.append(None)
            continue
        lead = rows[group[0]]
        size = sum((abs(entry) for entry in lead[:-1]), ZERO)
        require(size > 0, "a neuron without weights is in a group")
        turn = size if next(entry for entry in lead if entry) > 0 else -size
        plane = [entry / turn for entry in lead]
        pivot = next(place for place, entry in enumerate(plane) if entry)
        bend = [ZERO] * len(heads)
        for neuron in group:
            factor = rows[neuron][pivot] / plane[pivot]
            require(factor != 0 and rows[neuron] == [factor * entry for entry in plane], "a group has two directions")
            bend = [b + head[neuron] * abs(factor) * (ONE - leak) for b, head in zip(bend, heads, strict=True)]
            _add(affine, heads, neuron, leak if factor > 0 else ONE, rows[neuron])  # relu(-z) = relu(z) - z
        bends.append((plane, bend))
    seen = layer_ranges(net, box, layer)
    for neuron in sorted(unseen):
        low, high = affine_range(rows[neuron], seen)
        on, off = low is not None and low >= 0, high is not None and high <= 0
        require(on or off or leak == 1, "a neuron that bends is in no group")
        _add(affine, heads, neuron, ONE if on else leak, rows[neuron])
    return affine, bends


def _add(affine: list[Row], heads: list[Row], neuron: int, share: Rational, row: Row) -> None:
    for place, head in enumerate(heads):
        if factor := head[neuron] * share:
            affine[place] = [a + factor * entry for a, entry in zip(affine[place], row, strict=True)]


# Steps that keep the function


def apply_step(net: CheckedStack, value: object, box: Box) -> CheckedStack:
    """The network after one step, which must keep the function."""
    kind = word(value.get("do") if isinstance(value, dict) else None, "step.do", *STEPS)
    keys, step = STEPS[kind]
    parts = object_with_keys(value, "step", f"do layer {keys}")
    layer = integer(parts["layer"], "step.layer", 1, len(net.layers) - 1)
    return step(net, layer, parts, box)


def _neuron(net: CheckedStack, layer: int, value: object) -> int:
    return integer(value, "step.neuron", 0, len(net.layers[layer - 1]) - 1)


def _reorder(net: CheckedStack, layer: int, given: dict[str, Any], _: Box) -> CheckedStack:
    rows, above = net.layers[layer - 1], net.layers[layer]
    order = integers(given["order"], "step.order", length=len(rows))
    require(sorted(order) == list(range(len(rows))), f"layer {layer}: not an order of its neurons")
    return net.with_rows(layer, [rows[k] for k in order], [[*(row[k] for k in order), row[-1]] for row in above])


def _rescale(net: CheckedStack, layer: int, given: dict[str, Any], _: Box) -> CheckedStack:
    rows, above = net.layers[layer - 1], net.layers[layer]
    factors = [quotient(v, "step.factors") for v in items(given["factors"], "step.factors", length=len(rows))]
    require(all(factor > 0 for factor in factors), f"layer {layer}: rescaling needs positive factors")
    scaled = [[factor * entry for entry in row] for factor, row in zip(factors, rows, strict=True)]
    return net.with_rows(
        layer, scaled, [[*(w / f for w, f in zip(row[:-1], factors, strict=True)), row[-1]] for row in above]
    )


def _sum_range(net: CheckedStack, layer: int, neuron: int, box: Box) -> Span:
    """The range of a neuron's sum on the domain, by interval arithmetic through the layers below."""
    return affine_range(net.layers[layer - 1][neuron], layer_ranges(net, box, layer - 1))


def _drop(net: CheckedStack, layer: int, given: dict[str, Any], box: Box) -> CheckedStack:
    """A neuron that nothing reads, or whose value is constant on the domain: it moves into the biases above."""
    neuron = _neuron(net, layer, given["neuron"])
    above = net.layers[layer]
    if not any(head[neuron] for head in above):
        return net.without(layer, neuron)
    low, high = activation_range(*_sum_range(net, layer, neuron, box), net.slopes[layer - 1])
    require(low is not None and low == high, f"layer {layer}: neuron {neuron} is read, and not constant")
    return net.without(layer, neuron, [[*head[:-1], head[-1] + head[neuron] * low] for head in above])


def _merge(net: CheckedStack, layer: int, given: dict[str, Any], _: Box) -> CheckedStack:
    keep, drop = (_neuron(net, layer, given[key]) for key in ("keep", "drop"))
    rows, above = net.layers[layer - 1], net.layers[layer]
    pivot = max(range(len(rows[keep])), key=lambda place: abs(rows[keep][place]))
    require(keep != drop and rows[keep][pivot] != 0, f"layer {layer}: neuron {keep} cannot stand for {drop}")
    factor = rows[drop][pivot] / rows[keep][pivot]
    twin = [factor * entry for entry in rows[keep]]
    require(factor > 0 and rows[drop] == twin, f"layer {layer}: neurons {keep} and {drop} are not multiples")
    heads = [[*head] for head in above]
    for head in heads:
        head[keep] += factor * head[drop]
    return net.without(layer, drop, heads)


def _collapse(net: CheckedStack, layer: int, _: dict[str, Any], box: Box) -> CheckedStack:
    """Two layers with the identity between them are one: by the slope, or as every neuron is always active."""
    if net.slopes[layer - 1] != 1:
        ranges = layer_ranges(net, box, layer - 1)
        lows = [affine_range(row, ranges)[0] for row in net.layers[layer - 1]]
        require(all(low is not None and low >= 0 for low in lows), f"layer {layer} is not linear")
    rows = compose(net.layers[layer], net.layers[layer - 1], net.widths[layer - 1])
    layers = (*net.layers[: layer - 1], rows, *net.layers[layer + 1 :])
    return replace(net, layers=layers, slopes=(*net.slopes[: layer - 1], *net.slopes[layer:]))


def hides(net: CheckedStack, layer: int, neuron: int) -> bool:
    """Every neuron above gives `neuron` a positive weight, all others and its bias none (P4 Definition 3)."""
    if layer >= len(net.layers) - 1 or net.slopes[layer - 1] != 0 or net.slopes[layer] != 0:
        return False
    return bool(net.layers[layer]) and all(
        row[neuron] > 0 and all(entry <= 0 for place, entry in enumerate(row) if place != neuron)
        for row in net.layers[layer]
    )


def _translate(net: CheckedStack, layer: int, given: dict[str, Any], _: Box) -> CheckedStack:
    """Move a hidden hyperplane: `b_l[i] += t`, `b_{l+1}[j] −= t W_{l+1}[j, i]` (P4 Section 5, Lemma 5)."""
    neuron, shift = _neuron(net, layer, given["neuron"]), quotient(given["shift"], "step.shift")
    require(hides(net, layer, neuron), f"layer {layer + 1} does not hide neuron {neuron} of the layer below")
    rows = [[*row] for row in net.layers[layer - 1]]
    rows[neuron][-1] += shift
    above = [[*row[:-1], row[-1] - shift * row[neuron]] for row in net.layers[layer]]
    require(all(row[-1] <= 0 for row in above), "the shift uncovers the hidden neuron")
    return net.with_rows(layer, rows, above)


def _lift(net: CheckedStack, layer: int, given: dict[str, Any], box: Box) -> CheckedStack:
    """Move the bias of a neuron that is always active, before and after."""
    neuron, shift = _neuron(net, layer, given["neuron"]), quotient(given["shift"], "step.shift")
    low = _sum_range(net, layer, neuron, box)[0]
    active = low is not None and low >= 0 and low + shift >= 0
    require(active, f"layer {layer}: neuron {neuron} is not always active")
    rows = [[*row] for row in net.layers[layer - 1]]
    rows[neuron][-1] += shift
    return net.with_rows(layer, rows, [[*row[:-1], row[-1] - shift * row[neuron]] for row in net.layers[layer]])


def _flip(net: CheckedStack, layer: int, given: dict[str, Any], _: Box) -> CheckedStack:
    """Reverse the neurons `flipped` below a single neuron that hides neuron i: the group `F_S` (P4 Section 5)."""
    neuron = _neuron(net, layer, given["neuron"])
    flipped = integers(given["flipped"], "step.flipped", 0, len(net.layers[layer - 1]) - 1)
    alone = len(net.layers[layer]) == 1 and hides(net, layer, neuron)
    distinct = neuron not in flipped and len(set(flipped)) == len(flipped)
    require(alone and distinct, f"flips need one neuron above layer {layer} that hides neuron {neuron}")
    (above,) = net.layers[layer]
    rows = [[*row] for row in net.layers[layer - 1]]
    for k in flipped:
        share = above[k] / above[neuron]
        rows[neuron] = [a + share * b for a, b in zip(rows[neuron], rows[k], strict=True)]
        rows[k] = [-entry for entry in rows[k]]
    return net.with_rows(layer, rows, [above])


Step = Callable[[CheckedStack, int, dict[str, Any], Box], CheckedStack]
STEPS: dict[str, tuple[str, Step]] = {
    "reorder": ("order", _reorder),
    "rescale": ("factors", _rescale),
    "drop": ("neuron", _drop),
    "merge": ("keep drop", _merge),
    "collapse": ("", _collapse),
    "translate": ("neuron shift", _translate),
    "lift": ("neuron shift", _lift),
    "flip": ("neuron flipped", _flip),
}
