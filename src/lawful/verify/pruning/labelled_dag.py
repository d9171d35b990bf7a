"""A network as sums of labelled signals, with exact intervals: labels outlive the numbering of one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lawful.errors import CertificateError
from lawful.verify.core.dag import CONSTANT, HIDDEN, CheckedDag
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span, activation_range, exact
from lawful.verify.core.schema import limit_cost

BIAS = -1  # the label of the signal that is always 1
Sum = dict[int, Rational]  # weights by the label of the tail, none of them 0
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


def value_ranges(net: LabelledDag, region: Mapping[int, Span]) -> Ranges:
    """Bounds on the value of every signal, by interval arithmetic from those of the inputs."""
    values: Ranges = {**region, BIAS: (ONE, ONE)}
    bits = 0  # numbers grow with depth, and all are kept: an eighth of the limit in bytes
    for label in net.order:
        values[label] = activation_range(*sum_range(net.into[label], values), net.hidden.get(label, ONE))
        bits += sum(end.height_bits() for end in values[label] if end is not None)
        limit_cost(bits)
    return values


def sum_range(row: Sum, values: Mapping[int, Span], within: Rational = ZERO) -> Span:
    """The range of a weighted sum of signals that is known up to an error."""
    low, high = -within, within
    for tail, weight in row.items():
        ends = values[tail] if weight > 0 else values[tail][::-1]
        low = None if low is None or ends[0] is None else low + weight * ends[0]
        high = None if high is None or ends[1] is None else high + weight * ends[1]
    return low, high


def intersect(first: Span, second: Span) -> Span:
    """What lies in both ranges."""
    lows, highs = ([end for end in ends if end is not None] for ends in zip(first, second, strict=True))
    return max(lows, default=None), min(highs, default=None)


def largest_size(span: Span, where: str) -> Rational:
    """The largest absolute value in a range, which must be bounded."""
    if span[0] is None or span[1] is None:
        raise CertificateError(f"{where}: an unbounded value leaves no bound")
    return max(abs(span[0]), abs(span[1]))
