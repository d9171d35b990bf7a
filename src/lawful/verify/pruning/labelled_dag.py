"""A network as sums of labelled signals, with exact intervals: labels outlive the numbering of one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lawful.errors import CertificateError
from lawful.verify.core.dag import CONSTANT, HIDDEN, CheckedDag
from lawful.verify.core.layers import CheckedStack
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span, activation_range, cost_of, exact, sum_range
from lawful.verify.core.schema import limit_cost, require, spend

BIAS = -1  # the label of the signal that is always 1
Sum = dict[int, Rational]  # weights by the label of the tail, none of them 0
Form = tuple[Sum, Rational]  # a linear form in signals, and how far a value may be from it
Ranges = dict[int, Span]


@dataclass(frozen=True)
class LabelledDag:
    """`into[head][tail]` by label, zero weights left out; `order` has tails before heads, outputs last."""

    inputs: list[int]
    outputs: list[int]
    hidden: dict[int, Rational]  # the slope of each
    into: dict[int, Sum]
    order: list[int]


def label_nodes(dag: CheckedDag, labels: Sequence[int]) -> LabelledDag:
    """A graph with a label for each of its nodes; whatever the constant's is, it is known as `BIAS`."""
    hidden = {labels[node]: exact(slope) for node, slope in zip(dag.hidden, dag.slopes, strict=True)}
    outputs = [labels[node] for node in dag.outputs]
    into: dict[int, Sum] = {label: {} for label in (*hidden, *outputs)}
    for tail, head, weight in zip(dag.tails, dag.heads, dag.weights or (), strict=True):
        if weight:
            into[labels[head]][BIAS if dag.roles[tail] == CONSTANT else labels[tail]] = exact(weight)
    order = [labels[node] for node in dag.order if dag.roles[node] == HIDDEN] + outputs
    return LabelledDag([labels[node] for node in dag.inputs], outputs, hidden, into, order)


def as_layers(net: LabelledDag, layers: Sequence[Sequence[int]], where: str) -> CheckedStack:
    """The network layer by layer, every neuron in one of the layers and reading only the layer below."""
    named = [label for layer in layers for label in layer]
    fits = len(set(named)) == len(named) and {*named} == {*net.hidden}
    require(fits, f"{where}: the layers do not hold every neuron once")
    below, rows, slopes = list(net.inputs), [], []
    for layer in (*layers, net.outputs):
        for label in layer:
            require({*net.into[label]} <= {*below, BIAS}, f"{where}: neuron {label} reads past the layer below")
        spend(20.0 * len(layer) * len(below))
        rows.append([[net.into[label].get(tail, ZERO) for tail in (*below, BIAS)] for label in layer])
        kinds = {net.hidden.get(label, ONE) for label in layer}
        require(len(kinds) <= 1, f"{where}: a layer mixes activations")
        slopes.append(kinds.pop() if kinds else ONE)
        below = list(layer)
    return CheckedStack(len(net.inputs), tuple(rows), tuple(slopes[:-1]))


def substitute(row: Sum, forms: Mapping[int, Form]) -> Form:
    """A sum with forms in place of the signals that have one, and how far it may be from the sum."""
    total: Sum = {}
    error = ZERO
    for tail, weight in row.items():
        form, off = forms.get(tail, ({tail: ONE}, ZERO))
        spend(40.0 * len(form))
        for source, factor in form.items():
            total[source] = total.get(source, ZERO) + weight * factor
        error += abs(weight) * off
    spend(sum(weight.height_bits() for weight in total.values()))  # forms of linear neurons grow with depth
    return {tail: weight for tail, weight in total.items() if weight}, error


def value_ranges(net: LabelledDag, region: Mapping[int, Span]) -> Ranges:
    """Bounds on the value of every signal, by interval arithmetic from those of the inputs."""
    values: Ranges = {**region, BIAS: (ONE, ONE)}
    bits = 0  # numbers grow with depth, and all are kept: an eighth of the limit in bytes
    for label in net.order:
        values[label] = activation_range(*range_of(net.into[label], values), net.hidden.get(label, ONE))
        bits += sum(end.height_bits() for end in values[label] if end is not None)
        limit_cost(bits)
        spend(cost_of(values[label]))
    return values


def range_of(row: Sum, values: Mapping[int, Span], within: Rational = ZERO) -> Span:
    """The range of a weighted sum of signals that is known up to an error."""
    return sum_range(((weight, values[tail]) for tail, weight in row.items()), -within, within)


def largest_size(row: Sum, values: Mapping[int, Span], where: str) -> Rational:
    """The largest that `Σ |weight·value|` can be; the values must be bounded."""
    total = ZERO
    for tail, weight in row.items():
        low, high = values[tail]
        if low is None or high is None:
            raise CertificateError(f"{where}: an unbounded value leaves no bound")
        total += abs(weight) * max(abs(low), abs(high))
    return total
