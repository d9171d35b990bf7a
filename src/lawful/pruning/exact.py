"""A network as plain dictionaries of fractions, with exact intervals: the slow tools of `pruning_verify`."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from lawful.errors import CertificateError
from lawful.network import Dag, Role

ZERO, ONE = Fraction(0), Fraction(1)
Row = dict[str, Fraction]
Interval = tuple[Fraction | None, Fraction | None]  # None is unbounded
CONSTANT = "\0constant"


class Plain:
    """A network as nested dictionaries of fractions: `into[head][tail]`, zero weights left out."""

    def __init__(self, dag: Dag) -> None:
        self.hidden = {dag.names[node]: Fraction(dag.slopes[node]) for node in dag.hidden}
        self.inputs = [dag.names[node] for node in dag.inputs]
        self.outputs = [dag.names[node] for node in dag.outputs]
        self.into: dict[str, Row] = {name: {} for name in (*self.hidden, *self.outputs)}
        for tail, head, weight in zip(dag.tails, dag.heads, dag.theta, strict=True):
            if weight:
                known = CONSTANT if dag.roles[tail] == Role.CONSTANT else dag.names[tail]
                self.into[dag.names[head]][known] = Fraction(weight)
        order = sorted((int(dag.levels[node]), dag.names[node]) for node in dag.hidden)
        self.order = [name for _, name in order] + self.outputs


def substitute(rows: dict[str, Row], name: str, form: Row) -> None:
    """Replace a neuron by a linear form in others, wherever it is heard."""
    for row in rows.values():
        if name in row:
            weight = row.pop(name)
            for tail, value in form.items():
                row[tail] = row.get(tail, ZERO) + weight * value


def remove(rows: dict[str, Row], names: set[str]) -> None:
    """Take neurons out of every sum."""
    for row in rows.values():
        for name in names & set(row):
            del row[name]


def low_term(weight: Fraction, interval: Interval) -> Fraction | None:
    """The least value of weight times an interval's member."""
    end = interval[0] if weight > 0 else interval[1]
    return None if end is None else weight * end


def largest_size(interval: Interval, where: str) -> Fraction:
    """The largest absolute value in an interval, which must be bounded."""
    if interval[0] is None or interval[1] is None:
        raise CertificateError(f"{where}: an unbounded value leaves no bound")
    return max(abs(interval[0]), abs(interval[1]))


def intervals(net: Plain, region: Mapping[str, Interval]) -> tuple[dict[str, Interval], dict[str, Interval]]:
    """Exact bounds on every sum and every value."""
    sums: dict[str, Interval] = {}
    values: dict[str, Interval] = {**region, CONSTANT: (ONE, ONE)}
    for name in net.order:
        lows = [low_term(w, values[tail]) for tail, w in net.into[name].items()]
        highs = [low_term(-w, values[tail]) for tail, w in net.into[name].items()]
        low = None if None in lows else sum((x for x in lows if x is not None), ZERO)
        high = None if None in highs else -sum((x for x in highs if x is not None), ZERO)
        sums[name] = (low, high)
        values[name] = activated(low, high, net.hidden.get(name, ONE))
    return sums, values


def activated(low: Fraction | None, high: Fraction | None, slope: Fraction) -> Interval:
    """The range of `max(z, 0) + slope min(z, 0)`."""
    if slope >= 0:
        below = None if low is None and slope else low if low is not None and low > 0 else slope * (low or ZERO)
        above = None if high is None else high if high > 0 else slope * high
        return below, above
    if low is None or high is None:
        return None, None
    ends = [end if end > 0 else slope * end for end in (low, high)] + ([ZERO] if low < 0 < high else [])
    return min(ends), max(ends)


def path_products(net: Plain) -> dict[str, Row]:
    """For each node and output the sum over paths of the product of absolute weights, from the node's sum on."""
    reach: dict[str, Row] = {name: {} for name in net.order} | {name: {name: ONE} for name in net.outputs}
    for head in reversed(net.order):
        for tail, weight in net.into[head].items():
            if tail in net.hidden:
                gain = abs(weight) * max(ONE, abs(net.hidden[tail]))
                for output, product in reach[head].items():
                    reach[tail][output] = reach[tail].get(output, ZERO) + gain * product
    return reach
