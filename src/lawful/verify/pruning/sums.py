"""A network as sums of named signals, with exact intervals: what the replay of a pruning works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lawful.errors import CertificateError
from lawful.verify.core.dag import CONSTANT, HIDDEN, CheckedDag
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span, activation_range, exact

BIAS = -1  # stands for the signal that is always 1
Sum = dict[int, Rational]
EXACTLY_ONE: Span = (ONE, ONE)


class Signals:
    """`into[head][tail]` by label, zero weights left out; labels outlive the numbering of one network."""

    def __init__(self, dag: CheckedDag, labels: Sequence[int]) -> None:
        slopes = zip(dag.hidden, dag.slopes, strict=True)
        self.hidden = {labels[node]: exact(slope) for node, slope in slopes}
        self.inputs = [labels[node] for node in dag.inputs]
        self.outputs = [labels[node] for node in dag.outputs]
        self.into: dict[int, Sum] = {name: {} for name in (*self.hidden, *self.outputs)}
        for tail, head, weight in zip(dag.tails, dag.heads, dag.weights or (), strict=True):
            if weight:
                known = BIAS if dag.roles[tail] == CONSTANT else labels[tail]
                self.into[labels[head]][known] = exact(weight)
        self.order = [labels[node] for node in dag.order if dag.roles[node] == HIDDEN] + self.outputs


def substitute(sums: Mapping[int, Sum], name: int, form: Sum) -> None:
    """Replace a neuron by a linear form in others, wherever it is heard."""
    for row in sums.values():
        if name in row:
            weight = row.pop(name)
            for tail, value in form.items():
                row[tail] = row.get(tail, ZERO) + weight * value


def remove(sums: Mapping[int, Sum], names: set[int]) -> None:
    """Take neurons out of every sum."""
    for row in sums.values():
        for name in names & set(row):
            del row[name]


def least(weight: Rational, span: Span) -> Rational | None:
    """The least value of weight times a member of the span, None if there is none."""
    end = span[0] if weight > 0 else span[1]
    return None if end is None else weight * end


def largest_size(span: Span, where: str) -> Rational:
    """The largest absolute value in a span, which must be bounded."""
    if span[0] is None or span[1] is None:
        raise CertificateError(f"{where}: an unbounded value leaves no bound")
    return max(abs(span[0]), abs(span[1]))


def spans(net: Signals, region: Mapping[int, Span]) -> tuple[dict[int, Span], dict[int, Span]]:
    """Bounds on every sum and every value, by exact interval arithmetic."""
    sums: dict[int, Span] = {}
    values: dict[int, Span] = {**region, BIAS: EXACTLY_ONE}
    for name in net.order:
        sums[name] = sum_span(net.into[name], values)
        values[name] = activation_range(*sums[name], net.hidden.get(name, ONE))
    return sums, values


def sum_span(row: Sum, values: Mapping[int, Span]) -> Span:
    """The range of a weighted sum of signals."""
    low = high = ZERO
    for tail, weight in row.items():
        ends = values[tail] if weight > 0 else values[tail][::-1]
        low = None if low is None or ends[0] is None else low + weight * ends[0]
        high = None if high is None or ends[1] is None else high + weight * ends[1]
    return low, high


def hull(first: Span, second: Span) -> Span:
    """The range of both."""
    low = None if first[0] is None or second[0] is None else min(first[0], second[0])
    high = None if first[1] is None or second[1] is None else max(first[1], second[1])
    return low, high


def reach(net: Signals) -> dict[int, Sum]:
    """For each node and output the sum over paths of the product of absolute weights, from the node's sum on."""
    found: dict[int, Sum] = {name: {} for name in net.order} | {name: {name: ONE} for name in net.outputs}
    for head in reversed(net.order):
        for tail, weight in net.into[head].items():
            if tail in net.hidden:
                gain = abs(weight) * max(ONE, abs(net.hidden[tail]))
                for output, product in found[head].items():
                    found[tail][output] = found[tail].get(output, ZERO) + gain * product
    return found
