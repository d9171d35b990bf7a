"""A pruning replayed in rationals: what each removed neuron equals, the weights that follow, what can change at most.

A stage leads from a network to the next. Every neuron that leaves has a *reason*, from which follows a linear form in
what stays, equal to the neuron's value on the region up to an error. With these forms in place of the neurons, the old
values satisfy the new network's equations, but for the errors and for the rounding of weights; how far outputs move
then follows from the new network alone, since σ is max(1, |slope|)-Lipschitz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flint import fmpq

from lawful.verify.core.dag import CheckedDag, read_dag
from lawful.verify.core.finding import Finding
from lawful.verify.core.numbers import ONE, ZERO, Rational, activation_range, as_fraction, exact, fraction
from lawful.verify.core.schema import integer, integers, items, limit_cost, number, object_with_keys, require
from lawful.verify.pruning.labelled_dag import (
    BIAS,
    LabelledDag,
    Ranges,
    Sum,
    intersect,
    label_nodes,
    largest_size,
    sum_range,
    value_ranges,
)
from lawful.verify.pruning.surrogate import replace_by_surrogate
from lawful.verify.sentences import say_pruning

KEYS = "original box stages neurons_before neurons_after max_output_change_bound rounding_bound"
Form = tuple[Sum, Rational]  # a linear form in signals, and how far a value may be from it


def check(body: dict[str, Any]) -> Finding:
    """How many neurons went, and how far any output can have moved, on which inputs."""
    given = object_with_keys(body, "certificate", KEYS)
    original = result = read_dag(given["original"], "original")
    require(original.weights is not None, "a network has no weights")
    stages = items(given["stages"], "stages", most=1000)
    limit_cost(40.0 * original.growth * (len(stages) + 2) * len(original.tails))
    latest = label_nodes(original, range(len(original.roles)))
    region, finite = _read_box(given["box"], latest.inputs)
    bound = rounding = ZERO
    for place, item in enumerate(stages, 1):
        result, latest, moved, rounded = _check_stage(item, latest, region, finite, f"stage {place}")
        bound, rounding = bound + moved, rounding + rounded
    before, after = len(original.hidden), len(result.hidden)
    stated = [integer(given[key], key, 0) for key in ("neurons_before", "neurons_after")]
    require(stated == [before, after], f"{before} and {after} hidden neurons, not the stated numbers")
    bounds = [exact(number(given[key], key)) for key in ("max_output_change_bound", "rounding_bound")]
    require(bounds[0] >= bound, "max_output_change_bound: the stages add up to more")
    require(bounds[1] >= rounding, "rounding_bound: the stages add up to more")
    digests = (original.digest(), result.digest())
    ends = [] if given["box"] is None else [region[label] for label in latest.inputs]
    facts = {
        "neurons_before": before,
        "neurons_after": after,
        "max_output_change_bound": as_fraction(bounds[0]),
        "rounding_bound": as_fraction(bounds[1]),
        "box": [tuple(None if end is None else as_fraction(end) for end in side) for side in ends] or None,
    }
    return Finding(say_pruning(facts, digests), facts, digests)


def _read_box(box: object, inputs: list[int]) -> tuple[Ranges, Ranges]:
    """Where the statement holds, and where rounding is bounded: [-1, 1] if the statement holds everywhere."""
    if box is None:
        return dict.fromkeys(inputs, (None, None)), dict.fromkeys(inputs, (-ONE, ONE))
    corners = [
        [None if end is None else exact(number(end, "box")) for end in items(corner, "box", length=len(inputs))]
        for corner in items(box, "box", length=2)
    ]
    found = dict(zip(inputs, zip(*corners, strict=True), strict=True))
    require(all(low is None or high is None or low <= high for low, high in found.values()), "the box is empty")
    return found, found


def _check_stage(
    item: object, before: LabelledDag, region: Ranges, finite: Ranges, where: str
) -> tuple[CheckedDag, LabelledDag, Rational, Rational]:
    """The network after a stage, as a graph and by labels, and how far it and its rounding move any output."""
    given = object_with_keys(item, "stages", "after labels evidence carriers")
    dag = read_dag(given["after"], "stages.after")
    require(dag.weights is not None, f"{where}: a network without weights")
    limit_cost(40.0 * dag.growth * len(dag.tails))
    labels = integers(given["labels"], "stages.labels", 0, length=len(dag.roles))
    require(len(set(labels)) == len(labels), f"{where}: two nodes have one label")
    after = label_nodes(dag, labels)
    require(before.inputs == after.inputs and before.outputs == after.outputs, f"{where}: inputs or outputs differ")
    reasons = _read_evidence(given["evidence"], where)
    require(set(reasons) <= set(before.hidden), f"{where}: a neuron with evidence is not hidden")
    for label in [label for label, reason in reasons.items() if isinstance(reason, dict)]:
        before = replace_by_surrogate(before, label, reasons.pop(label), where)
    values = value_ranges(before, region)
    stage = StageForms(before, reasons, values, where)
    wanted, errors, carried = _wanted(given["carriers"], stage, after)
    ranges = values | {carrier: sum_range(wanted[carrier], values) for carrier in carried}
    for carrier in carried:
        low = ranges[carrier][0]
        active = after.hidden[carrier] == 1 or (low is not None and low >= 0)
        require(active, f"{where}: carrier {carrier} is not always active")
    kept = {label: slope for label, slope in before.hidden.items() if label not in reasons}
    stays = {label: slope for label, slope in after.hidden.items() if label not in carried}
    require(stays == kept, f"{where}: a neuron is missing, should have gone, or has another activation")
    for label, row in wanted.items():
        unexplained = [tail for tail in row if tail in reasons]
        require(not unexplained, f"{where}: neuron {label} still reads a neuron that left")
    off: dict[int, Sum] = {}
    for label, stored in after.into.items():
        gaps = {tail: wanted[label].get(tail, ZERO) - stored.get(tail, ZERO) for tail in {*wanted[label], *stored}}
        off[label] = {tail: gap for tail, gap in gaps.items() if gap}
        for tail in off[label]:
            rounded = _is_rounded(wanted[label].get(tail, ZERO), stored.get(tail, ZERO))
            require(rounded, f"{where}: a weight is another, not rounded")
    if finite is not region and any(off.values()):
        ranges = value_ranges(before, finite)
        ranges |= {carrier: sum_range(wanted[carrier], ranges) for carrier in carried}
    rounding = {
        label: sum((abs(gap) * largest_size(ranges[tail], where) for tail, gap in gaps.items()), ZERO)
        for label, gaps in off.items()
    }
    return dag, after, _propagate(after, errors), _propagate(after, rounding)


def _propagate(net: LabelledDag, errors: Mapping[int, Rational]) -> Rational:
    """How far any output moves at most if every sum is off by its error."""
    moved: Sum = {}
    if not any(errors.values()):
        return ZERO
    for label in net.order:
        total = sum((abs(w) * moved[t] for t, w in net.into[label].items() if t in moved), errors.get(label, ZERO))
        moved[label] = max(ONE, abs(net.hidden.get(label, ONE))) * total
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
    found: dict[int, Any] = {}
    for item in items(value, "stages.evidence"):
        name, reason = items(item, "stages.evidence", length=2)
        label = integer(name, "stages.evidence", 0)
        require(label not in found, f"{where}: a neuron appears twice")
        if isinstance(reason, list):
            partner, factor = items(reason, "stages.evidence", length=2)
            found[label] = integer(partner, "stages.evidence", 0), fraction(factor, "stages.evidence")
        elif reason is None or reason in ("on", "off") or isinstance(reason, dict):
            found[label] = reason
        else:
            found[label] = fraction(reason, "stages.evidence")
    return found


@dataclass
class StageForms:
    """What the neurons that leave are equal to, given their reasons and the ranges of all values of the network."""

    before: LabelledDag
    reasons: Mapping[int, Any]
    values: Ranges
    where: str
    forms: dict[int, Form] = field(default_factory=dict)
    work: float = 0.0

    def __post_init__(self) -> None:
        for label in self.before.order:  # tails first: the forms in a neuron's sum are known
            if self.reasons.get(label) is not None:
                self.forms[label] = self._form(label, self.reasons[label])

    def substitute(self, row: Sum) -> Form:
        """A sum with the forms of neurons that leave in their place, and how far it may be from the sum."""
        total: Sum = {}
        error = ZERO
        for tail, weight in row.items():
            form, off = self.forms.get(tail, ({tail: ONE}, ZERO))
            self.work += 40.0 * len(form)
            limit_cost(self.work)
            for source, factor in form.items():
                total[source] = total.get(source, ZERO) + weight * factor
            error += abs(weight) * off
        self.work += sum(weight.height_bits() for weight in total.values())  # forms of linear neurons grow with depth
        limit_cost(self.work)
        return {tail: weight for tail, weight in total.items() if weight}, error

    def _form(self, label: int, reason: Any) -> Form:
        slope, row, where = self.before.hidden[label], self.before.into[label], self.where
        form, error = self.substitute(row)
        if isinstance(reason, tuple):
            partner, factor = reason
            return self._multiple(label, partner, factor, form, error)
        low, high = intersect(sum_range(row, self.values), sum_range(form, self.values, error))
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
        gaps = {tail: mine.get(tail, ZERO) - factor * theirs.get(tail, ZERO) for tail in {*mine, *theirs}}
        sizes = [abs(gap) * largest_size(self.values[tail], where) for tail, gap in gaps.items() if gap]
        off = max(ONE, abs(slope)) * sum(sizes, ZERO)
        if factor > 0 or slope == 1:
            return {partner: factor}, off
        total = {tail: (1 + slope) * weight for tail, weight in form.items()}
        total[partner] = total.get(partner, ZERO) - factor
        return total, off + abs(1 + slope) * error


def _wanted(value: object, stage: StageForms, after: LabelledDag) -> tuple[dict[int, Sum], Sum, set[int]]:
    """The exact sums of the next network, the error of each, and its carriers.

    A carrier is a new neuron that is always active, and gives one follower what linear neurons gave it, plus a shift.
    """
    before, where = stage.before, stage.where
    known = {BIAS, *before.inputs, *before.into}
    wanted: dict[int, Sum] = {}
    errors: Sum = {}
    carriers: set[int] = set()
    followers: dict[int, tuple[int, Rational]] = {}
    for item in items(value, "stages.carriers"):
        label, follower, shift = items(item, "stages.carriers", length=3)
        carrier, follower = integer(label, "stages.carriers", 0), integer(follower, "stages.carriers", 0)
        fits = carrier not in known | carriers and carrier in after.hidden and follower not in followers
        require(
            fits and follower in after.into, f"{where}: carrier {carrier} is not new, or has no follower of its own"
        )
        carriers.add(carrier)
        followers[follower] = carrier, fraction(shift, "stages.carriers")
    for label in after.into:
        if label in carriers:
            continue
        require(label in before.into, f"{where}: neuron {label} is new, and no carrier")
        row = before.into[label]
        if label in followers:
            carrier, shift = followers[label]
            part = {tail: weight for tail, weight in row.items() if stage.reasons.get(tail) in ("on", "off")}
            form, error = stage.substitute(part)
            wanted[carrier] = _add(form, BIAS, shift)
            rest, errors[label] = stage.substitute({tail: w for tail, w in row.items() if tail not in part})
            wanted[label] = _add(_add(rest, BIAS, -shift), carrier, ONE)
            errors[label] += error
        else:
            wanted[label], errors[label] = stage.substitute(row)
    return wanted, errors, carriers


def _add(row: Sum, label: int, weight: Rational) -> Sum:
    total = row.get(label, ZERO) + weight
    rest = {tail: value for tail, value in row.items() if tail != label}
    return rest | {label: total} if total else rest
