"""A pruning replayed in rationals: each neuron's evidence, the weights that follow from it, and what they can change.

For every stage: the evidence holds for the network before, the weights after are what it asks for up to stated
rounding, and the two bounds are at least what exact intervals give. Slow and plain on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from lawful.verify.finding import Finding, short
from lawful.verify.rows import (
    BIAS,
    EXACTLY_ONE,
    ONE,
    ZERO,
    Signals,
    Span,
    Sum,
    largest_size,
    least,
    reach,
    remove,
    spans,
    substitute,
)
from lawful.verify.schema import afford, listed, need, number, rational, record, whole, wholes, word
from lawful.verify.wiring import Wiring, read_wiring

KEYS = "original result box stages labels neurons_before neurons_after max_output_change_bound rounding_bound"
Evidence = Fraction | tuple[int, Fraction] | None


def check(body: dict[str, Any]) -> Finding:
    """How many neurons went, and how far any output can have moved, on which inputs."""
    given = record(body, "certificate", KEYS)
    original, result = (read_wiring(given[key], key) for key in ("original", "result"))
    need(original.weights is not None and result.weights is not None, "a network has no weights")
    stages = listed(given["stages"], "stages", most=1000)
    size = len(original.tails) * max(1, len(original.outputs)) + len(result.tails)
    afford(20.0 * original.growth * (len(stages) + 2) * size)
    latest = Signals(original, range(len(original.roles)))
    region, finite = _regions(given["box"], latest.inputs)
    bound = rounding = ZERO
    for place, item in enumerate(stages, 1):
        latest, moved, rounded = _replayed(item, latest, region, finite, f"stage {place}")
        bound, rounding = bound + moved, rounding + rounded
    final = Signals(result, _labels(given["labels"], result))
    same = final.into == latest.into and final.hidden == latest.hidden
    need(same and final.inputs == latest.inputs and final.outputs == latest.outputs, "the stages lead elsewhere")
    before, after = len(original.hidden), len(result.hidden)
    stated = [whole(given[key], key, 0) for key in ("neurons_before", "neurons_after")]
    need(stated == [before, after], f"{before} and {after} hidden neurons, not the stated numbers")
    for key, least_bound in (("max_output_change_bound", bound), ("rounding_bound", rounding)):
        need(Fraction(number(given[key], key)) >= least_bound, f"{key}: the stages add up to more")
    digests = (original.digest(), result.digest())
    facts = {
        "neurons_before": before,
        "neurons_after": after,
        "max_output_change_bound": bound,
        "rounding_bound": rounding,
    }
    box = None if given["box"] is None else [region[name] for name in latest.inputs]
    return Finding(_statement(digests, before, after, bound, rounding, box), facts | {"box": box}, digests)


def _statement(
    digests: tuple[str, str], before: int, after: int, bound: Fraction, rounding: Fraction, box: list[Span] | None
) -> str:
    where = "for any input" if box is None else f"for any input in the box {_box(box)}"
    moved = f"no output moves by more than {_up(bound)!r} {where}" if bound else f"no output changes {where}"
    if rounding:
        on = "on [-1, 1]" if box is None else "there"
        moved += f", but for the rounding of folded weights, which moves none by more than {_up(rounding)!r} {on}"
    gone = f"{before - after} of {before} hidden neurons of {short(digests[0])} are gone in {short(digests[1])}"
    return f"{gone}: {moved}"


def _box(box: list[Span]) -> str:
    ends = [f"[{'-inf' if low is None else float(low)}, {'inf' if high is None else float(high)}]" for low, high in box]
    return (
        f"{ends[0]}^{len(ends)}" if len(set(ends)) == 1 else " x ".join(ends[:4]) + (" x ..." if len(ends) > 4 else "")
    )


def _up(value: Fraction) -> float:
    """A double that is not below a rational."""
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)


def _regions(box: object, inputs: list[int]) -> tuple[dict[int, Span], dict[int, Span]]:
    """Where the statement holds, and where rounding is bounded: [-1, 1] if the statement holds everywhere."""
    if box is None:
        return dict.fromkeys(inputs, (None, None)), dict.fromkeys(inputs, (-ONE, ONE))
    corners = [
        [None if end is None else Fraction(number(end, "box")) for end in listed(corner, "box", length=len(inputs))]
        for corner in listed(box, "box", length=2)
    ]
    found = dict(zip(inputs, zip(*corners, strict=True), strict=True))
    need(all(low is None or high is None or low <= high for low, high in found.values()), "the box is empty")
    return found, found


def _labels(value: object, wiring: Wiring) -> list[int]:
    labels = wholes(value, "labels", 0, length=len(wiring.roles))
    need(len(set(labels)) == len(labels), "two nodes have one label")
    return labels


@dataclass(frozen=True)
class _Replay:
    """What the check of one kind of evidence sees, and the sums and defects that it fills."""

    before: Signals
    evidence: Mapping[int, Evidence]
    carriers: Mapping[int, tuple[int, Fraction]]
    sums: Mapping[int, Span]
    values: Mapping[int, Span]
    expected: dict[int, Sum]
    where: str
    defects: Sum = field(default_factory=dict)

    def fraction(self, name: int) -> Fraction:
        """Evidence that must be a number."""
        found = self.evidence[name]
        need(isinstance(found, Fraction), f"{self.where}: neuron {name} lacks its number")
        return found  # type: ignore[return-value]

    def pair(self, name: int) -> tuple[int, Fraction]:
        """Evidence that must be a partner and a factor."""
        found = self.evidence[name]
        need(isinstance(found, tuple), f"{self.where}: neuron {name} lacks its partner")
        return found  # type: ignore[return-value]


def _replayed(
    item: object, before: Signals, region: Mapping[int, Span], finite: Mapping[int, Span], where: str
) -> tuple[Signals, Fraction, Fraction]:
    """The network after a stage, and its two bounds, both checked."""
    given = record(item, "stages", "kind evidence carriers after labels bound rounding")
    kind = word(given["kind"], "stages.kind", *RULES)
    where = f"{where} ({kind})"
    wiring = read_wiring(given["after"], "stages.after")
    need(wiring.weights is not None, f"{where}: a network without weights")
    after = Signals(wiring, _labels(given["labels"], wiring))
    need(before.inputs == after.inputs and before.outputs == after.outputs, f"{where}: inputs or outputs differ")
    evidence = _evidence(given["evidence"], "stages.evidence")
    carriers = _evidence(given["carriers"], "stages.carriers")
    need(all(name in before.hidden for name in (*evidence, *carriers)), f"{where}: a neuron is not hidden")
    need(all(isinstance(value, tuple) for value in carriers.values()), f"{where}: a carrier lacks its follower")
    sums, values = spans(before, region)
    expected = {head: dict(row) for head, row in before.into.items() if head not in evidence}
    replay = _Replay(before, evidence, carriers, sums, values, expected, where)  # type: ignore[arg-type]
    RULES[kind](replay)
    wanted = {head: {tail: w for tail, w in row.items() if w} for head, row in expected.items()}
    mute = _mute(before.order, wanted)
    _check_neurons(before, after, wanted, mute, where)
    _pass_on(replay, wanted, mute, after)
    errors = _rounding(before, after, wanted, mute, finite, where)
    products = reach(after)
    found = []
    for key, defects in (("bound", replay.defects), ("rounding", errors)):
        sizes = [
            sum((size * products[head].get(o, ZERO) for head, size in defects.items() if head in products), ZERO)
            for o in after.outputs
        ]
        stated = Fraction(number(given[key], f"stages.{key}"))
        need(stated >= max(sizes, default=ZERO), f"{where}: the stated {key} is too small")
        found.append(stated)
    return after, found[0], found[1]


def _evidence(value: object, where: str) -> dict[int, Evidence]:
    found: dict[int, Evidence] = {}
    for item in listed(value, where):
        name, why = listed(item, where, length=2)
        label = whole(name, where, 0)
        need(label not in found, f"{where}: a neuron appears twice")
        if isinstance(why, list):
            partner, factor = listed(why, where, length=2)
            found[label] = whole(partner, where, 0), rational(factor, where)
        else:
            found[label] = None if why is None else rational(why, where)
    return found


# What each kind of evidence must show, and what it makes of the weights


def _silent(stage: _Replay) -> None:
    heard = set(stage.before.outputs)
    for head in reversed(stage.before.order):
        if head in heard:
            heard |= set(stage.before.into[head])
    for name in stage.evidence:
        need(name not in heard, f"{stage.where}: neuron {name} reaches an output")
    remove(stage.expected, set(stage.evidence))


def _constant(stage: _Replay) -> None:
    known: Sum = {BIAS: ONE}
    for name in stage.before.order:
        if name in stage.evidence:
            row = stage.before.into[name]
            need(set(row) <= set(known), f"{stage.where}: neuron {name} is not constant")
            total = sum((weight * known[tail] for tail, weight in row.items()), ZERO)
            known[name] = total if total > 0 else stage.before.hidden[name] * total
            need(stage.fraction(name) == known[name], f"{stage.where}: neuron {name} has another value than stated")
    for row in stage.expected.values():
        for name in [tail for tail in row if tail in stage.evidence]:
            row[BIAS] = row.get(BIAS, ZERO) + row.pop(name) * known[name]


def _dead(stage: _Replay) -> None:
    for name in stage.evidence:
        top = stage.sums[name][1]
        off = stage.before.hidden[name] == 0 and top is not None and top <= 0
        need(off, f"{stage.where}: neuron {name} can be active")
    remove(stage.expected, set(stage.evidence))


def _duplicate(stage: _Replay) -> None:
    before = stage.before
    for name in stage.evidence:
        partner, factor = stage.pair(name)
        allowed = factor > 0 or (before.hidden[name] == 1 and factor != 0)
        alike = partner not in stage.evidence and before.hidden[name] == before.hidden.get(partner)
        need(allowed and alike, f"{stage.where}: neuron {partner} cannot stand for {name}")
        scaled = {tail: factor * weight for tail, weight in before.into[partner].items()}
        need(before.into[name] == scaled, f"{stage.where}: neuron {name} is not {partner} times its factor")
        substitute(stage.expected, name, {partner: factor})


def _opposite(stage: _Replay) -> None:
    before = stage.before
    need(len(stage.evidence) == 1, f"{stage.where}: one neuron at a time")
    for name in stage.evidence:
        partner, factor = stage.pair(name)
        alike = partner != name and before.hidden[name] == before.hidden.get(partner)
        need(factor > 0 and alike, f"{stage.where}: neuron {partner} cannot stand for {name}")
        mine = before.into[name]
        mirrored = {tail: -factor * weight for tail, weight in before.into[partner].items()}
        need(mine == mirrored, f"{stage.where}: neuron {name} is not the opposite of {partner}")
        form = {tail: (1 + before.hidden[name]) * weight for tail, weight in mine.items()}
        substitute(stage.expected, name, form | {partner: factor})


def _linear(stage: _Replay) -> None:
    factors = {name: stage.fraction(name) for name in stage.evidence}
    _check_linear(stage, factors)
    meaning: dict[int, Sum] = {}
    for name in stage.before.order:  # tails first, so that a linear neuron's row names no removed neuron
        if name in factors:
            holder = {name: {tail: weight * factors[name] for tail, weight in stage.before.into[name].items()}}
            for earlier, form in meaning.items():
                substitute(holder, earlier, form)
            meaning[name] = holder[name]
    for name, form in meaning.items():
        substitute(stage.expected, name, form)


def _joined(stage: _Replay) -> None:
    hidden = stage.before.hidden
    group = {name: stage.fraction(name) for name in stage.evidence}
    need(not set(group) & set(stage.carriers), f"{stage.where}: a carrier leaves")
    group |= {
        name: ONE if hidden[name] == 1 or _above_zero(stage.sums[name]) else hidden[name] for name in stage.carriers
    }
    _check_linear(stage, group)
    forms = {name: {t: w * factor for t, w in stage.before.into[name].items()} for name, factor in group.items()}
    fed = {follower: name for name, (follower, _) in stage.carriers.items()}
    need(len(fed) == len(stage.carriers), f"{stage.where}: two carriers feed one neuron")
    need(all(not set(form) & set(group) for form in forms.values()), f"{stage.where}: the group hears itself")
    for head, row in stage.expected.items():
        spoken = {name: row.pop(name) for name in group if name in row}
        if not spoken:
            continue
        need(head in fed and head not in group, f"{stage.where}: nobody carries what neuron {head} hears")
        holder = {head: dict(spoken)}
        for name in spoken:
            substitute(holder, name, forms[name])
        carrier, shift = fed[head], stage.carriers[fed[head]][1]
        form = holder[head] | {BIAS: holder[head].get(BIAS, ZERO) + shift}
        lows = [least(w, stage.values.get(tail, EXACTLY_ONE)) for tail, w in form.items() if w]
        active = None not in lows and sum((low for low in lows if low is not None), ZERO) >= 0
        need(hidden[carrier] == 1 or active, f"{stage.where}: carrier {carrier} is not always active")
        stage.expected[carrier] = {tail: w for tail, w in form.items() if w}
        row[carrier] = ONE
        row[BIAS] = row.get(BIAS, ZERO) - shift


def _near(stage: _Replay) -> None:
    before = stage.before
    for name in stage.evidence:
        if isinstance(stage.evidence[name], tuple):
            partner, factor = stage.pair(name)
            alike = partner not in stage.evidence and before.hidden[name] == before.hidden.get(partner)
            need(factor > 0 and alike, f"{stage.where}: neuron {partner} cannot stand for {name}")
            mine, theirs = before.into[name], before.into[partner]
            gaps = {tail: mine.get(tail, ZERO) - factor * theirs.get(tail, ZERO) for tail in {*mine, *theirs}}
            form: Sum = {partner: factor}
            sizes = [
                abs(gap) * largest_size(stage.values.get(tail, EXACTLY_ONE), stage.where)
                for tail, gap in gaps.items()
                if gap
            ]
            radius = max(ONE, abs(before.hidden[name])) * sum(sizes, ZERO)
        else:
            form, (low, high) = {BIAS: stage.fraction(name)}, stage.values[name]
            need(low is not None and high is not None, f"{stage.where}: neuron {name} is unbounded")
            radius = max(high - form[BIAS], form[BIAS] - low)  # type: ignore[operator]
        for head, row in stage.expected.items():
            if name in row:
                stage.defects[head] = stage.defects.get(head, ZERO) + abs(row[name]) * radius
        substitute(stage.expected, name, form)


RULES = {
    "silent": _silent, "constant": _constant, "dead": _dead, "duplicate": _duplicate, "opposite": _opposite,
    "linear": _linear, "joined": _joined, "near": _near,
}  # fmt: skip


def _check_linear(stage: _Replay, factors: Mapping[int, Fraction]) -> None:
    for name, factor in factors.items():
        slope, top = stage.before.hidden[name], stage.sums[name][1]
        on = slope == 1 or _above_zero(stage.sums[name])
        off = top is not None and top <= 0
        alike = (on and factor == 1) or (off and factor == slope)
        need(alike, f"{stage.where}: neuron {name} is not linear with its factor")


def _above_zero(span: Span) -> bool:
    return span[0] is not None and span[0] >= 0


def _mute(order: list[int], sums: Mapping[int, Sum]) -> set[int]:
    """Neurons that hear nothing at all: their value is 0."""
    mute: set[int] = set()
    for name in order:
        if name in sums and set(sums[name]) <= mute:
            mute.add(name)
    return mute


def _pass_on(stage: _Replay, wanted: Mapping[int, Sum], mute: set[int], after: Signals) -> None:
    """A neuron that lost all it heard to approximations is not quite 0: who misses it now bears the difference."""
    sizes: Sum = {}
    for name in stage.before.order:
        if name in mute and name in stage.before.hidden:
            total = stage.defects.get(name, ZERO) + sum((abs(w) * sizes[t] for t, w in wanted[name].items()), ZERO)
            sizes[name] = max(ONE, abs(stage.before.hidden[name])) * total
    for head in after.into:
        for tail, weight in wanted[head].items():
            if tail in sizes and tail not in after.into:
                stage.defects[head] = stage.defects.get(head, ZERO) + abs(weight) * sizes[tail]


def _check_neurons(before: Signals, after: Signals, wanted: Mapping[int, Sum], mute: set[int], where: str) -> None:
    """No neuron too many, and none too few unless it is 0 or nobody hears it."""
    heard = set(before.outputs)
    for head in reversed(before.order):
        if head in heard:
            heard |= set(wanted[head])
    for name in after.into:
        kept = name in wanted and after.hidden.get(name) == before.hidden.get(name)
        need(kept, f"{where}: neuron {name} should have gone, or has another activation")
    for name in wanted:
        need(name in after.into or name not in heard or name in mute, f"{where}: neuron {name} is missing")


def _rounding(
    before: Signals,
    after: Signals,
    wanted: Mapping[int, Sum],
    mute: set[int],
    finite: Mapping[int, Span],
    where: str,
) -> Sum:
    """Per node, what the difference between stored and exact weights adds to its sum at most."""
    errors: Sum = {}
    _, values = spans(before, finite)
    for head, stored in after.into.items():
        for tail in {*wanted[head], *stored} - (mute - after.hidden.keys()):
            error = abs(wanted[head].get(tail, ZERO) - stored.get(tail, ZERO))
            if error:
                errors[head] = errors.get(head, ZERO) + error * largest_size(values[tail], where)
    return errors
