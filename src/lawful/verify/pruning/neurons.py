"""A pruning replayed in rationals: what each removed neuron equals, the weights that follow, what can change at most.

A stage leads from a network to the next. Every neuron that leaves has a *reason*, from which follows a linear form in
what stays, equal to the neuron's value on the region up to an error. With these forms in place of the neurons, the old
values satisfy the new network's equations, but for the errors and for the rounding of weights; how far outputs move
then follows from the new network alone, since σ is max(1, |slope|)-Lipschitz. Networks are sums of labelled signals,
since labels outlive the numbering of one graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flint import fmpq

from lawful.errors import CertificateError
from lawful.verify.core.dag import CONSTANT, HIDDEN, CheckedDag, read_dag
from lawful.verify.core.finding import Finding
from lawful.verify.core.layers import CheckedStack, check_surrogate
from lawful.verify.core.numbers import (
    ONE,
    ZERO,
    Rational,
    Span,
    activation_range,
    as_fraction,
    cost_of,
    exact,
    fraction,
    sum_range,
)  # fmt: skip
from lawful.verify.core.schema import integer, integers, items, limit_cost, number, object_with_keys, require, spend

KEYS = "original box stages neurons_before neurons_after max_output_change_bound rounding_bound"
BIAS = -1  # the label of the signal that is always 1
Sum = dict[int, Rational]  # weights by the label of the tail, none of them 0
Form = tuple[Sum, Rational]  # a linear form in signals, and how far a value may be from it
Ranges = dict[int, Span]


def check(body: dict[str, Any]) -> Finding:
    """How many neurons went, and how far any output can have moved, on which inputs."""
    parts = object_with_keys(body, "certificate", KEYS)
    original = result = read_dag(parts["original"], "original")
    require(original.weights is not None, "a network has no weights")
    latest = label_nodes(original, range(len(original.roles)))
    region, finite = _read_box(parts["box"], latest.inputs)
    bound = rounding = ZERO
    for place, item in enumerate(items(parts["stages"], "stages", most=1000), 1):
        spend(40.0 * original.growth * len(original.tails))
        result, latest, moved, rounded = _check_stage(item, latest, region, finite, f"stage {place}")
        bound, rounding = bound + moved, rounding + rounded
    before, after = len(original.hidden), len(result.hidden)
    stated = [integer(parts[key], key, 0) for key in ("neurons_before", "neurons_after")]
    require(stated == [before, after], f"{before} and {after} hidden neurons, not the stated numbers")
    bounds = [exact(number(parts[key], key)) for key in ("max_output_change_bound", "rounding_bound")]
    require(bounds[0] >= bound, "max_output_change_bound: the stages add up to more")
    require(bounds[1] >= rounding, "rounding_bound: the stages add up to more")
    ends = [] if parts["box"] is None else [region[label] for label in latest.inputs]
    facts = {
        "neurons_before": before,
        "neurons_after": after,
        "max_output_change_bound": as_fraction(bounds[0]),
        "rounding_bound": as_fraction(bounds[1]),
        "box": [tuple(None if end is None else as_fraction(end) for end in side) for side in ends] or None,
    }
    return Finding(facts, (original.digest(), result.digest()))


def _read_box(box: object, inputs: list[int]) -> tuple[Ranges, Ranges]:
    """Where the statement holds, and where rounding is bounded: [-1, 1] if the statement holds everywhere."""
    if box is None:
        return dict.fromkeys(inputs, (None, None)), dict.fromkeys(inputs, (-ONE, ONE))
    corners = [
        [None if end is None else exact(number(end, "box")) for end in items(corner, "box", length=len(inputs))]
        for corner in items(box, "box", length=2)
    ]
    sides = dict(zip(inputs, zip(*corners, strict=True), strict=True))
    require(all(low is None or high is None or low <= high for low, high in sides.values()), "the box is empty")
    return sides, sides


def _check_stage(
    item: object, before: LabelledDag, region: Ranges, finite: Ranges, where: str
) -> tuple[CheckedDag, LabelledDag, Rational, Rational]:
    """The network after a stage, as a graph and by labels, and how far it and its rounding move any output."""
    parts = object_with_keys(item, "stages", "after labels evidence carriers")
    dag = read_dag(parts["after"], "stages.after")
    require(dag.weights is not None, f"{where}: a network without weights")
    spend(40.0 * dag.growth * len(dag.tails))
    labels = integers(parts["labels"], "stages.labels", 0, length=len(dag.roles))
    require(len(set(labels)) == len(labels), f"{where}: two nodes have one label")
    after = label_nodes(dag, labels)
    require(before.inputs == after.inputs and before.outputs == after.outputs, f"{where}: inputs or outputs differ")
    reasons = _read_evidence(parts["evidence"], where)
    require(set(reasons) <= set(before.hidden), f"{where}: a neuron with evidence is not hidden")
    for label in [label for label, reason in reasons.items() if isinstance(reason, dict)]:
        before = _replace_by_surrogate(before, label, reasons.pop(label), where)
    values = value_ranges(before, region)
    stage = _Stage(before, reasons, values, where)
    forms: dict[int, Form] = {}
    for label in before.into:  # tails first: the forms in a neuron's sum are known
        if reasons.get(label) is not None:
            forms[label] = stage.form(label, forms)
    wanted, errors, carriers = stage.expected_sums(parts["carriers"], after, forms)
    for carrier in carriers:
        low, _ = range_of(wanted[carrier], values)
        active = after.hidden[carrier] == 1 or (low is not None and low >= 0)
        require(active, f"{where}: carrier {carrier} is not always active")
    # Whatever has no reason stays, under its label and with its activation: no neuron is dropped in silence.
    stays = {label: slope for label, slope in after.hidden.items() if label not in carriers}
    remaining = {label: slope for label, slope in before.hidden.items() if label not in reasons}
    require(stays == remaining, f"{where}: a neuron is missing, should have gone, or has another activation")
    gaps: dict[int, Sum] = {}
    for label, row in wanted.items():
        # Forms have replaced all that left, so old values solve the new equations but for errors and rounding.
        require(reasons.keys().isdisjoint(row), f"{where}: neuron {label} still reads a neuron that left")
        stored = after.into[label]
        gaps[label] = _add(row, stored, -ONE)
        rounded = all(_is_rounded(row.get(tail, ZERO), stored.get(tail, ZERO)) for tail in gaps[label])
        require(rounded, f"{where}: a weight is another, not rounded")
    rounding: Sum = {}
    if any(gaps.values()):
        ranges = values if finite is region else value_ranges(before, finite)
        ranges = ranges | {carrier: range_of(wanted[carrier], ranges) for carrier in carriers}
        rounding = {label: largest_size(row, ranges, where) for label, row in gaps.items()}
    return dag, after, _propagate(after, errors), _propagate(after, rounding)


def _propagate(net: LabelledDag, errors: Mapping[int, Rational]) -> Rational:
    """How far any output moves at most if every sum is off by its error."""
    moved: Sum = {}
    if not any(errors.values()):
        return ZERO
    for label in net.into:
        total = sum((abs(w) * moved[t] for t, w in net.into[label].items() if t in moved), errors.get(label, ZERO))
        # σ is max(1, |slope|)-Lipschitz, so a neuron passes on that many times what its sum is off.
        moved[label] = max(ONE, abs(net.hidden.get(label, ONE))) * total
        spend(cost_of([moved[label]]))  # errors grow with depth, where all values are 0 too
    return max(moved[output] for output in net.outputs)


def _is_rounded(wanted: Rational, stored: Rational) -> bool:
    """Whether a stored weight is the one that was wanted, rounded to a type in which weights are stored.

    The coarsest of normal numbers is bfloat16, with 8 significant bits: half a unit is 2^-8 of the number. Below their
    normal numbers float16 has the multiples of 2^-24, float32 and bfloat16 round to zero under 2^-149.
    """
    error = abs(wanted - stored)
    small = abs(stored) <= fmpq(1, 2**14) and (stored * 2**24).q == 1 and error <= fmpq(1, 2**25)
    return bool(error * 2**8 <= abs(wanted) or small or error <= fmpq(1, 2**150))


def _read_evidence(value: object, where: str) -> dict[int, Any]:
    """The reason of each neuron that leaves: None (unread), a value, a side, a partner with a factor, a surrogate."""
    reasons: dict[int, Any] = {}
    for item in items(value, "stages.evidence"):
        name, reason = items(item, "stages.evidence", length=2)
        label = integer(name, "stages.evidence", 0)
        require(label not in reasons, f"{where}: a neuron appears twice")
        if isinstance(reason, list):
            partner, factor = items(reason, "stages.evidence", length=2)
            reasons[label] = integer(partner, "stages.evidence", 0), fraction(factor, "stages.evidence")
        elif reason is None or reason in ("on", "off") or isinstance(reason, dict):
            reasons[label] = reason
        else:
            reasons[label] = fraction(reason, "stages.evidence")
    return reasons


def _replace_by_surrogate(before: LabelledDag, name: int, value: object, where: str) -> LabelledDag:
    """The network with an affine combination of its layer in a neuron's place: the same outputs for every input."""
    parts = object_with_keys(value, where, "factors constant layers decisions")
    layers = [integers(layer, where, 0) for layer in items(parts["layers"], where, most=1000)]
    net = as_layers(before, layers, where)
    place = next(place for place, layer in enumerate(layers) if name in layer)
    form: Sum = {}
    for item in items(parts["factors"], where):
        label, factor = items(item, where, length=2)
        form[integer(label, where, 0)] = fraction(factor, where)
    require(set(form) <= set(layers[place]) - {name}, f"{where}: a surrogate is not of the layer of neuron {name}")
    factors, constant = [form.get(label, ZERO) for label in layers[place]], fraction(parts["constant"], where)
    check_surrogate(parts["decisions"], net, place + 1, layers[place].index(name), factors, constant)
    forms = {name: (form | {BIAS: constant}, ZERO)}
    hidden = {label: slope for label, slope in before.hidden.items() if label != name}
    into = {label: substitute(row, forms)[0] for label, row in before.into.items() if label != name}
    return replace(before, hidden=hidden, into=into)


@dataclass(frozen=True)
class _Stage:
    """A network, the reasons of the neurons that leave it, and the ranges of all its values."""

    before: LabelledDag
    reasons: Mapping[int, Any]
    values: Ranges
    where: str

    def form(self, label: int, forms: Mapping[int, Form]) -> Form:
        """What a neuron equals by its reason, given the forms of the neurons below."""
        slope, row, reason, where = self.before.hidden[label], self.before.into[label], self.reasons[label], self.where
        form, error = substitute(row, forms)
        if isinstance(reason, tuple):
            partner, factor = reason
            return self._multiple(label, partner, factor, form, error)
        spans = range_of(row, self.values), range_of(form, self.values, error)  # the sum lies in both
        low = max((low for low, _ in spans if low is not None), default=None)
        high = min((high for _, high in spans if high is not None), default=None)
        if reason == "on":
            require(slope == 1 or (low is not None and low >= 0), f"{where}: neuron {label} is not always active")
            return form, error
        if reason == "off":
            require(slope == 1 or (high is not None and high <= 0), f"{where}: neuron {label} can be active")
            return {tail: slope * weight for tail, weight in form.items() if slope}, abs(slope) * error
        low, high = activation_range(low, high, slope)
        if low is None or high is None:
            require(False, f"{where}: neuron {label} is unbounded")
        return {BIAS: reason} if reason else {}, max(high - reason, reason - low)

    def _multiple(self, label: int, partner: int, factor: Rational, form: Sum, error: Rational) -> Form:
        """`σ(z)` with z a factor times the partner's sum, up to a gap; if negative, `σ(z) = σ(−z) + (1 + slope) z`."""
        before, slope, where = self.before, self.before.hidden[label], self.where
        stays = self.reasons.get(partner) is None  # or nothing reads it
        require(factor != 0 and partner != label and stays, f"{where}: neuron {partner} cannot stand for {label}")
        require(before.hidden.get(partner) == slope, f"{where}: neuron {partner} has another activation than {label}")
        mine, theirs = before.into[label], before.into[partner]
        off = max(ONE, abs(slope)) * largest_size(_add(mine, theirs, -factor), self.values, where)
        if factor > 0 or slope == 1:
            return {partner: factor}, off
        return _add({partner: -factor}, form, 1 + slope), off + abs(1 + slope) * error

    def expected_sums(
        self, value: object, after: LabelledDag, forms: Mapping[int, Form]
    ) -> tuple[dict[int, Sum], Sum, set[int]]:
        """The exact sums of the next network, the error of each, and its carriers.

        A carrier is a new neuron that is always active, and gives one follower what linear neurons gave it, plus a
        shift.
        """
        before, where = self.before, self.where
        known = {BIAS, *before.inputs, *before.into}
        wanted: dict[int, Sum] = {}
        errors: Sum = {}
        followers: dict[int, tuple[int, Rational]] = {}
        for item in items(value, "stages.carriers"):
            label, follower, shift = items(item, "stages.carriers", length=3)
            carrier, follower = integer(label, "stages.carriers", 0), integer(follower, "stages.carriers", 0)
            new = carrier not in known and carrier in after.hidden
            follows_once = follower not in followers and follower in after.into
            require(new and follows_once, f"{where}: carrier {carrier} is not new, or has no follower of its own")
            known.add(carrier)
            followers[follower] = carrier, fraction(shift, "stages.carriers")
        carriers = {carrier for carrier, _ in followers.values()}
        for label in after.into.keys() - carriers:
            require(label in before.into, f"{where}: neuron {label} is new, and no carrier")
            row = before.into[label]
            if label not in followers:
                wanted[label], errors[label] = substitute(row, forms)
                continue
            carrier, shift = followers[label]
            part = {tail: weight for tail, weight in row.items() if self.reasons.get(tail) in ("on", "off")}
            form, error = substitute(part, forms)
            rest, more = substitute({tail: weight for tail, weight in row.items() if tail not in part}, forms)
            wanted[carrier] = _add(form, {BIAS: shift})
            wanted[label] = _add(rest, {BIAS: -shift, carrier: ONE})
            errors[label] = error + more
        return wanted, errors, carriers


def _add(row: Sum, other: Sum, factor: Rational = ONE) -> Sum:
    """`row + factor · other`."""
    total = {tail: row.get(tail, ZERO) + factor * other.get(tail, ZERO) for tail in {*row, *other}}
    return {tail: weight for tail, weight in total.items() if weight}


# Networks by label, and ranges of their values


@dataclass(frozen=True)
class LabelledDag:
    """`into[head][tail]` by label, zero weights left out; heads come after their tails, outputs last."""

    inputs: list[int]
    outputs: list[int]
    hidden: dict[int, Rational]  # the slope of each
    into: dict[int, Sum]


def label_nodes(dag: CheckedDag, labels: Sequence[int]) -> LabelledDag:
    """A graph with a label for each of its nodes; whatever the constant's is, it is known as `BIAS`."""
    hidden = {labels[node]: exact(slope) for node, slope in zip(dag.hidden, dag.slopes, strict=True)}
    outputs = [labels[node] for node in dag.outputs]
    order = [labels[node] for node in dag.order if dag.roles[node] == HIDDEN] + outputs
    into: dict[int, Sum] = {label: {} for label in order}
    for tail, head, weight in zip(dag.tails, dag.heads, dag.weights or (), strict=True):
        if weight:
            into[labels[head]][BIAS if dag.roles[tail] == CONSTANT else labels[tail]] = exact(weight)
    return LabelledDag([labels[node] for node in dag.inputs], outputs, hidden, into)


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
    for label in net.into:
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
