"""One neuron replaced by an affine combination of others of its layer: the same function on every region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lawful.verify.core.layers import CheckedStack
from lawful.verify.core.numbers import ONE, ZERO, Rational, fraction
from lawful.verify.core.regions import check_regions
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require
from lawful.verify.pruning.sums import BIAS, Signals, Sum, substitute


@dataclass(frozen=True)
class AffineStandIn:
    """Factors of other neurons, a constant, the layers of the network before, and the walk through its regions."""

    factors: Mapping[int, Rational]
    constant: Rational
    layers: list[list[int]]
    decisions: list[Any]


def read_stand_in(value: object, where: str) -> AffineStandIn:
    """What a certificate says of a stand-in."""
    given = object_with_keys(value, where, "factors constant layers decisions")
    factors: Sum = {}
    for item in items(given["factors"], where):
        name, factor = items(item, where, length=2)
        factors[integer(name, where, 0)] = fraction(factor, where)
    layers = [integers(layer, where, 0) for layer in items(given["layers"], where, most=1000)]
    return AffineStandIn(factors, fraction(given["constant"], where), layers, items(given["decisions"], where))


def replay_stand_in(before: Signals, name: int, found: AffineStandIn, expected: dict[int, Sum], where: str) -> None:
    """The readers' sums with the stand-in, shown to lead to the same outputs for every input."""
    layer = next((place for place, line in enumerate(found.layers) if name in line), None)
    require(layer is not None, f"{where}: neuron {name} is in no layer")
    others = set(found.layers[layer or 0]) - {name}
    require(set(found.factors) <= others, f"{where}: a stand-in is not of the layer of neuron {name}")
    substitute(expected, name, {**found.factors, BIAS: found.constant})
    first = _storeys(before, before.into, found.layers, where)
    after = [[place for place in line if place != name] for line in found.layers]
    second = _storeys(before, expected, after, where)
    check_regions(found.decisions, first, second, [(None, None)] * len(before.inputs))


def _storeys(net: Signals, sums: Mapping[int, Sum], layers: Sequence[Sequence[int]], where: str) -> CheckedStack:
    """The network layer by layer, every neuron in one of the layers and reading only the layer below."""
    named = [name for layer in layers for name in layer]
    require(len(set(named)) == len(named), f"{where}: a neuron is in two layers")
    require(set(named) | set(net.outputs) == set(sums), f"{where}: the layers do not hold all neurons")
    below, rows, slopes = list(net.inputs), [], []
    for layer in (*layers, net.outputs):
        table = []
        for name in layer:
            require(set(sums[name]) <= {*below, BIAS}, f"{where}: neuron {name} reads past the layer below")
            table.append([*(sums[name].get(tail, ZERO) for tail in below), sums[name].get(BIAS, ZERO)])
        rows.append(table)
        kinds = {net.hidden[name] for name in layer} if layer is not net.outputs else {ONE}
        require(len(kinds) <= 1, f"{where}: a layer mixes activations")
        slopes.append(kinds.pop() if kinds else ONE)
        below = list(layer)
    return CheckedStack(len(net.inputs), tuple(rows), tuple(slopes[:-1]))
