"""Layers of rationals, and the changes of parameters that keep their function, each with the condition for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lawful.verify.core.layers import Box, CheckedStack, affine_range, compose, layer_ranges
from lawful.verify.core.numbers import Span, activation_range, quotient
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require, word


def apply_step(net: CheckedStack, value: object, box: Box) -> CheckedStack:
    """The network after one step, which must keep the function."""
    kind = word(value.get("do") if isinstance(value, dict) else None, "step.do", *STEPS)
    keys, step = STEPS[kind]
    given = object_with_keys(value, "step", f"do layer {keys}")
    layer = integer(given["layer"], "step.layer", 1, len(net.layers) - 1)
    return step(net, layer, given, box)


def _neuron(net: CheckedStack, layer: int, value: object) -> int:
    return integer(value, "step.neuron", 0, len(net.layers[layer - 1]) - 1)


def _reorder(net: CheckedStack, layer: int, given: dict[str, Any], _: Box) -> CheckedStack:
    rows, above = net.layers[layer - 1], net.layers[layer]
    order = integers(given["order"], "step.order", length=len(rows))
    require(sorted(order) == list(range(len(rows))), f"layer {layer}: not an order of its neurons")
    return net.changed(layer, [rows[k] for k in order], [[*(row[k] for k in order), row[-1]] for row in above])


def _rescale(net: CheckedStack, layer: int, given: dict[str, Any], _: Box) -> CheckedStack:
    rows, above = net.layers[layer - 1], net.layers[layer]
    factors = [quotient(v, "step.factors") for v in items(given["factors"], "step.factors", length=len(rows))]
    require(all(factor > 0 for factor in factors), f"layer {layer}: rescaling needs positive factors")
    scaled = [[factor * entry for entry in row] for factor, row in zip(factors, rows, strict=True)]
    return net.changed(
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
    return net.changed(layer, rows, above)


def _lift(net: CheckedStack, layer: int, given: dict[str, Any], box: Box) -> CheckedStack:
    """Move the bias of a neuron that is always active, before and after."""
    neuron, shift = _neuron(net, layer, given["neuron"]), quotient(given["shift"], "step.shift")
    low = _sum_range(net, layer, neuron, box)[0]
    active = low is not None and low >= 0 and low + shift >= 0
    require(active, f"layer {layer}: neuron {neuron} is not always active")
    rows = [[*row] for row in net.layers[layer - 1]]
    rows[neuron][-1] += shift
    return net.changed(layer, rows, [[*row[:-1], row[-1] - shift * row[neuron]] for row in net.layers[layer]])


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
    return net.changed(layer, rows, [above])


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
