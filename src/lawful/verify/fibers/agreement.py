"""How two networks agree after steps that keep their functions: in weights, in a normal form, or on every region."""

from __future__ import annotations

from lawful.verify.core.layers import Box, CheckedStack, Row, affine_range, layer_ranges
from lawful.verify.core.numbers import ONE, ZERO, Rational, cost_of
from lawful.verify.core.regions import check_regions
from lawful.verify.core.schema import integers, items, object_with_keys, require, spend, word
from lawful.verify.fibers.steps import apply_step

ENDINGS = {"weights": "", "normal form": "groups", "regions": "decisions"}
Form = tuple[list[Row], list[tuple[Row, Row] | None]]  # the affine part; for each group its hyperplane and its bend


def agreement(value: object, first: CheckedStack, second: CheckedStack, box: Box, most: Rational) -> str:
    """How the ends of both walks agree."""
    require(first.inputs == second.inputs, "the networks take inputs of different sizes")
    ending = word(value.get("ending") if isinstance(value, dict) else None, "witness.ending", *ENDINGS)
    witness = object_with_keys(value, "witness", f"first second ending {ENDINGS[ending]}")
    ours, theirs = (
        _walked(net, witness[key], f"witness.{key}", box) for net, key in ((first, "first"), (second, "second"))
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


def _walked(net: CheckedStack, value: object, where: str, box: Box) -> CheckedStack:
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
