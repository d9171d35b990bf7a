"""A network as sums of named signals, with exact intervals: what the replay of a pruning works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from lawful.errors import CertificateError
from lawful.verify.wiring import CONSTANT, HIDDEN, Wiring

ZERO, ONE = Fraction(0), Fraction(1)
BIAS = -1  # stands for the signal that is always 1
Sum = dict[int, Fraction]
Span = tuple[Fraction | None, Fraction | None]  # None is unbounded
EXACTLY_ONE: Span = (ONE, ONE)


class Signals:
    """`into[head][tail]` by label, zero weights left out; labels outlive the numbering of one network."""

    def __init__(self, wiring: Wiring, labels: Sequence[int]) -> None:
        self.hidden = {labels[node]: wiring.slope[node] for node in wiring.hidden}
        self.inputs = [labels[node] for node in wiring.inputs]
        self.outputs = [labels[node] for node in wiring.outputs]
        self.into: dict[int, Sum] = {name: {} for name in (*self.hidden, *self.outputs)}
        for tail, head, weight in zip(wiring.tails, wiring.heads, wiring.exact, strict=True):
            if weight:
                known = BIAS if wiring.roles[tail] == CONSTANT else labels[tail]
                self.into[labels[head]][known] = weight
        self.order = [labels[node] for node in wiring.order if wiring.roles[node] == HIDDEN] + self.outputs


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


def least(weight: Fraction, span: Span) -> Fraction | None:
    """The least value of weight times a member of the span, None if there is none."""
    end = span[0] if weight > 0 else span[1]
    return None if end is None else weight * end


def largest_size(span: Span, where: str) -> Fraction:
    """The largest absolute value in a span, which must be bounded."""
    if span[0] is None or span[1] is None:
        raise CertificateError(f"{where}: an unbounded value leaves no bound")
    return max(abs(span[0]), abs(span[1]))


def spans(net: Signals, region: Mapping[int, Span]) -> tuple[dict[int, Span], dict[int, Span]]:
    """Bounds on every sum and every value, by exact interval arithmetic."""
    sums: dict[int, Span] = {}
    values: dict[int, Span] = {**region, BIAS: EXACTLY_ONE}
    for name in net.order:
        lows = [least(weight, values[tail]) for tail, weight in net.into[name].items()]
        highs = [least(-weight, values[tail]) for tail, weight in net.into[name].items()]
        low = None if None in lows else sum((end for end in lows if end is not None), ZERO)
        high = None if None in highs else -sum((end for end in highs if end is not None), ZERO)
        sums[name] = (low, high)
        values[name] = bent(low, high, net.hidden.get(name, ONE))
    return sums, values


def bent(low: Fraction | None, high: Fraction | None, slope: Fraction) -> Span:
    """The range of `max(z, 0) + slope min(z, 0)` for z between two ends.

    >>> bent(None, Fraction(2), Fraction(-1, 2)), bent(None, Fraction(-2), Fraction(-1, 2))
    ((Fraction(0, 1), None), (Fraction(1, 1), None))
    """
    ends = [None if end is None else end if end > 0 else slope * end for end in (low, high)]
    if slope > 0:
        return ends[0], ends[1]
    if slope == 0:
        return (ZERO if low is None else ends[0]), ends[1]
    turns = (low is None or low < 0) and (high is None or high > 0)
    known = [end for end in ends if end is not None] + [ZERO] * turns
    return min(known), None if None in ends else max(known)


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
