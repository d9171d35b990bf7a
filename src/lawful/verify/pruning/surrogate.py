"""One neuron replaced by an affine combination of others of its layer: the same function on every region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lawful.verify.core.layers import CheckedStack
from lawful.verify.core.numbers import ONE, ZERO, fraction
from lawful.verify.core.regions import check_regions
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require
from lawful.verify.pruning.labelled_dag import BIAS, LabelledDag, Sum


def replace_by_surrogate(before: LabelledDag, name: int, value: object, where: str) -> LabelledDag:
    """The network with the combination in the neuron's place, shown to have the same outputs for every input."""
    given = object_with_keys(value, where, "factors constant layers decisions")
    form: Sum = {}
    for item in items(given["factors"], where):
        label, factor = items(item, where, length=2)
        form[integer(label, where, 0)] = fraction(factor, where)
    layers = [integers(layer, where, 0) for layer in items(given["layers"], where, most=1000)]
    others = next((set(line) - {name} for line in layers if name in line), set())
    require(set(form) <= others, f"{where}: a stand-in is not of the layer of neuron {name}")
    form[BIAS] = fraction(given["constant"], where)
    into: dict[int, Sum] = {}
    for head, row in before.into.items():
        if head != name:
            into[head] = {tail: weight for tail, weight in row.items() if tail != name}
            for tail, factor in form.items() if name in row else ():
                into[head][tail] = into[head].get(tail, ZERO) + row[name] * factor
            into[head] = {tail: weight for tail, weight in into[head].items() if weight}
    first = _as_layers(before, before.into, layers, where)
    second = _as_layers(before, into, [[label for label in line if label != name] for line in layers], where)
    check_regions(given["decisions"], first, second, [(None, None)] * len(before.inputs))
    hidden = {label: slope for label, slope in before.hidden.items() if label != name}
    return replace(before, hidden=hidden, into=into, order=[label for label in before.order if label != name])


def _as_layers(net: LabelledDag, sums: Mapping[int, Sum], layers: Sequence[Sequence[int]], where: str) -> CheckedStack:
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
