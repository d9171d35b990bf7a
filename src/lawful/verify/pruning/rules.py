"""What each kind of evidence for a pruning must show, and what it makes of the weights, in rationals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lawful.verify.core.numbers import ONE, ZERO, Rational, Span
from lawful.verify.core.schema import require
from lawful.verify.pruning.sums import BIAS, EXACTLY_ONE, Signals, Sum, largest_size, least, remove, substitute
from lawful.verify.pruning.surrogate import AffineStandIn, replay_stand_in

Evidence = Any  # a rational, a partner and a factor, or None


@dataclass(frozen=True)
class Replay:
    """What the check of one kind of evidence sees, and the sums and defects that it fills."""

    before: Signals
    evidence: Mapping[int, Evidence]
    carriers: Mapping[int, tuple[int, Rational]]
    sums: Mapping[int, Span]
    values: Mapping[int, Span]
    expected: dict[int, Sum]
    where: str
    defects: Sum = field(default_factory=dict)

    def fraction(self, name: int) -> Rational:
        """Evidence that must be a number."""
        found = self.evidence[name]
        require(found is not None and not isinstance(found, tuple), f"{self.where}: neuron {name} lacks its number")
        return found

    def pair(self, name: int) -> tuple[int, Rational]:
        """Evidence that must be a partner and a factor."""
        found = self.evidence[name]
        require(isinstance(found, tuple), f"{self.where}: neuron {name} lacks its partner")
        return found[0], found[1]


def _silent(stage: Replay) -> None:
    heard = set(stage.before.outputs)
    for head in reversed(stage.before.order):
        if head in heard:
            heard |= set(stage.before.into[head])
    for name in stage.evidence:
        require(name not in heard, f"{stage.where}: neuron {name} reaches an output")
    remove(stage.expected, set(stage.evidence))


def _constant(stage: Replay) -> None:
    known: Sum = {BIAS: ONE}
    for name in stage.before.order:
        if name in stage.evidence:
            row = stage.before.into[name]
            require(set(row) <= set(known), f"{stage.where}: neuron {name} is not constant")
            total = sum((weight * known[tail] for tail, weight in row.items()), ZERO)
            known[name] = total if total > 0 else stage.before.hidden[name] * total
            require(stage.fraction(name) == known[name], f"{stage.where}: neuron {name} has another value than stated")
    for row in stage.expected.values():
        for name in [tail for tail in row if tail in stage.evidence]:
            row[BIAS] = row.get(BIAS, ZERO) + row.pop(name) * known[name]


def _dead(stage: Replay) -> None:
    for name in stage.evidence:
        top = stage.sums[name][1]
        off = stage.before.hidden[name] == 0 and top is not None and top <= 0
        require(off, f"{stage.where}: neuron {name} can be active")
    remove(stage.expected, set(stage.evidence))


def _duplicate(stage: Replay) -> None:
    before = stage.before
    for name in stage.evidence:
        partner, factor = stage.pair(name)
        allowed = factor > 0 or (before.hidden[name] == 1 and factor != 0)
        alike = partner not in stage.evidence and before.hidden[name] == before.hidden.get(partner)
        require(allowed and alike, f"{stage.where}: neuron {partner} cannot stand for {name}")
        scaled = {tail: factor * weight for tail, weight in before.into[partner].items()}
        require(before.into[name] == scaled, f"{stage.where}: neuron {name} is not {partner} times its factor")
        substitute(stage.expected, name, {partner: factor})


def _opposite(stage: Replay) -> None:
    before = stage.before
    require(len(stage.evidence) == 1, f"{stage.where}: one neuron at a time")
    for name in stage.evidence:
        partner, factor = stage.pair(name)
        alike = partner != name and before.hidden[name] == before.hidden.get(partner)
        require(factor > 0 and alike, f"{stage.where}: neuron {partner} cannot stand for {name}")
        mine = before.into[name]
        mirrored = {tail: -factor * weight for tail, weight in before.into[partner].items()}
        require(mine == mirrored, f"{stage.where}: neuron {name} is not the opposite of {partner}")
        form = {tail: (1 + before.hidden[name]) * weight for tail, weight in mine.items()}
        substitute(stage.expected, name, form | {partner: factor})


def _linear(stage: Replay) -> None:
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


def _joined(stage: Replay) -> None:
    hidden = stage.before.hidden
    group = {name: stage.fraction(name) for name in stage.evidence}
    require(not set(group) & set(stage.carriers), f"{stage.where}: a carrier leaves")
    group |= {
        name: ONE if hidden[name] == 1 or _above_zero(stage.sums[name]) else hidden[name] for name in stage.carriers
    }
    _check_linear(stage, group)
    forms = {name: {t: w * factor for t, w in stage.before.into[name].items()} for name, factor in group.items()}
    fed = {follower: name for name, (follower, _) in stage.carriers.items()}
    require(len(fed) == len(stage.carriers), f"{stage.where}: two carriers feed one neuron")
    require(all(not set(form) & set(group) for form in forms.values()), f"{stage.where}: the group hears itself")
    for head, row in stage.expected.items():
        spoken = {name: row.pop(name) for name in group if name in row}
        if not spoken:
            continue
        require(head in fed and head not in group, f"{stage.where}: nobody carries what neuron {head} hears")
        holder = {head: dict(spoken)}
        for name in spoken:
            substitute(holder, name, forms[name])
        carrier, shift = fed[head], stage.carriers[fed[head]][1]
        form = holder[head] | {BIAS: holder[head].get(BIAS, ZERO) + shift}
        lows = [least(w, stage.values.get(tail, EXACTLY_ONE)) for tail, w in form.items() if w]
        active = None not in lows and sum((low for low in lows if low is not None), ZERO) >= 0
        require(hidden[carrier] == 1 or active, f"{stage.where}: carrier {carrier} is not always active")
        stage.expected[carrier] = {tail: w for tail, w in form.items() if w}
        row[carrier] = ONE
        row[BIAS] = row.get(BIAS, ZERO) - shift


def _near(stage: Replay) -> None:
    before = stage.before
    for name in stage.evidence:
        if isinstance(stage.evidence[name], tuple):
            partner, factor = stage.pair(name)
            alike = partner not in stage.evidence and before.hidden[name] == before.hidden.get(partner)
            require(factor > 0 and alike, f"{stage.where}: neuron {partner} cannot stand for {name}")
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
            require(low is not None and high is not None, f"{stage.where}: neuron {name} is unbounded")
            radius = max(high - form[BIAS], form[BIAS] - low)
        for head, row in stage.expected.items():
            if name in row:
                stage.defects[head] = stage.defects.get(head, ZERO) + abs(row[name]) * radius
        substitute(stage.expected, name, form)


def _stored(stage: Replay) -> None:
    """Nothing goes; what the weights are rounded by is bounded as in every stage."""
    require(not stage.evidence and not stage.carriers, f"{stage.where}: something is said of a neuron")


def _dependent(stage: Replay) -> None:
    require(len(stage.evidence) == 1, f"{stage.where}: one neuron at a time")
    for name, found in stage.evidence.items():
        require(isinstance(found, AffineStandIn), f"{stage.where}: neuron {name} lacks its stand-in")
        replay_stand_in(stage.before, name, found, stage.expected, stage.where)


RULES = {
    "silent": _silent, "constant": _constant, "dead": _dead, "duplicate": _duplicate, "opposite": _opposite,
    "linear": _linear, "joined": _joined, "near": _near, "stored": _stored,
    "dependent": _dependent,
}  # fmt: skip


def _check_linear(stage: Replay, factors: Mapping[int, Rational]) -> None:
    for name, factor in factors.items():
        slope, top = stage.before.hidden[name], stage.sums[name][1]
        on = slope == 1 or _above_zero(stage.sums[name])
        off = top is not None and top <= 0
        alike = (on and factor == 1) or (off and factor == slope)
        require(alike, f"{stage.where}: neuron {name} is not linear with its factor")


def _above_zero(span: Span) -> bool:
    return span[0] is not None and span[0] >= 0
