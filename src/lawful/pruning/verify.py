"""Replay a pruning in rational arithmetic, sharing nothing with the code that found it.

For every stage: each neuron's evidence holds for the network before, the weights after are what the evidence asks for
up to rounding, and the two bounds are at least what exact intervals give. Slow and plain on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from lawful.errors import CertificateError
from lawful.network import Dag
from lawful.pruning.exact import (
    CONSTANT,
    ONE,
    ZERO,
    Interval,
    Plain,
    Row,
    intervals,
    largest_size,
    low_term,
    path_products,
    remove,
    substitute,
)
from lawful.pruning.prune import Pruning, Stage


def verify(pruning: Pruning) -> None:
    """Check every stage, and that the stages lead from the original to the result; raises `CertificateError`."""
    latest = pruning.original.to_dag()
    names = [latest.names[node] for node in latest.inputs]
    if pruning.box is None:
        region: dict[str, Interval] = dict.fromkeys(names, (None, None))
        finite: dict[str, Interval] = dict.fromkeys(names, (-ONE, ONE))
    else:
        region = {n: (_end(low), _end(high)) for n, low, high in zip(names, *pruning.box, strict=True)}
        finite = region
    for number, stage in enumerate(pruning.stages, 1):
        where = f"stage {number} ({stage.kind})"
        _same(Plain(latest), Plain(stage.before), f"{where} does not start where the one before ended")
        _check_stage(stage, region, finite, where)
        latest = stage.after
    _same(_renamed(latest), _renamed(pruning.network.to_dag()), "the last stage is not the result")


def _end(value: float) -> Fraction | None:
    return Fraction(value) if abs(value) < float("inf") else None


def _check_stage(stage: Stage, region: Mapping[str, Interval], finite: Mapping[str, Interval], where: str) -> None:
    before, after = Plain(stage.before), Plain(stage.after)
    if before.inputs != after.inputs or before.outputs != after.outputs:
        raise CertificateError(f"{where}: inputs or outputs differ")
    sums, values = intervals(before, region)
    expected = {head: dict(row) for head, row in before.into.items() if head not in stage.evidence}
    defects: Row = {}
    check = {
        "silent": _silent, "constant": _constant, "dead": _dead, "duplicate": _duplicate, "opposite": _opposite,
        "linear": _linear, "joined": _joined, "near": _near,
    }.get(stage.kind)  # fmt: skip
    if check is None:
        raise CertificateError(f"{where}: unknown kind")
    for name in stage.evidence:
        if name not in before.hidden:
            raise CertificateError(f"{where}: {name} is not a hidden neuron")
    check(stage, before, expected, sums, values, defects, where)
    expected = {head: {tail: w for tail, w in row.items() if w} for head, row in expected.items()}
    mute = _mute(before.order, expected)
    _check_neurons(before, after, expected, mute, where)
    errors = _rounding(before, after, expected, mute, finite, where)
    reach = path_products(after)
    for claimed, found, what in ((stage.bound, defects, "bound"), (stage.rounding, errors, "rounding")):
        worst = max(
            (sum((size * reach[head].get(o, ZERO) for head, size in found.items() if head in reach), ZERO)
             for o in after.outputs), default=ZERO,
        )  # fmt: skip
        if not Fraction(claimed) >= worst:
            raise CertificateError(f"{where}: states a {what} of {claimed!r}, but it can be {float(worst)!r}")


# What each kind of evidence must show, and what it makes of the weights


def _silent(stage: Stage, before: Plain, expected: dict[str, Row], *rest: Any) -> None:
    heard = set(before.outputs)
    for head in reversed(before.order):
        if head in heard:
            heard |= set(before.into[head])
    for name in stage.evidence:
        if name in heard:
            raise CertificateError(f"{rest[-1]}: {name} reaches an output")
    remove(expected, set(stage.evidence))


def _constant(stage: Stage, before: Plain, expected: dict[str, Row], *rest: Any) -> None:
    known: Row = {CONSTANT: ONE}
    for name in before.order:
        if name in stage.evidence:
            row = before.into[name]
            if not set(row) <= set(known):
                raise CertificateError(f"{rest[-1]}: {name} is not constant")
            total = sum((weight * known[tail] for tail, weight in row.items()), ZERO)
            known[name] = total if total > 0 else before.hidden[name] * total
            if stage.evidence[name] != known[name]:
                raise CertificateError(f"{rest[-1]}: {name} has another value than stated")
    for row in expected.values():
        for name in [tail for tail in row if tail in stage.evidence]:
            row[CONSTANT] = row.get(CONSTANT, ZERO) + row.pop(name) * known[name]


def _dead(stage: Stage, before: Plain, expected: dict[str, Row], sums: Any, *rest: Any) -> None:
    for name in stage.evidence:
        top = sums[name][1]
        if before.hidden[name] != 0 or top is None or top > 0:
            raise CertificateError(f"{rest[-1]}: {name} can be active")
    remove(expected, set(stage.evidence))


def _duplicate(stage: Stage, before: Plain, expected: dict[str, Row], *rest: Any) -> None:
    for name, (partner, factor) in _pairs(stage).items():
        mine, theirs = before.into[name], before.into.get(partner, {})
        allowed = factor > 0 or before.hidden[name] == 1
        if partner in stage.evidence or not allowed or before.hidden[name] != before.hidden.get(partner):
            raise CertificateError(f"{rest[-1]}: {partner} cannot stand for {name}")
        if mine != {tail: factor * weight for tail, weight in theirs.items()}:
            raise CertificateError(f"{rest[-1]}: {name} is not {factor} times {partner}")
        substitute(expected, name, {partner: factor})


def _opposite(stage: Stage, before: Plain, expected: dict[str, Row], *rest: Any) -> None:
    if len(stage.evidence) != 1:
        raise CertificateError(f"{rest[-1]}: one neuron at a time")
    for name, (partner, factor) in _pairs(stage).items():
        mine, theirs = before.into[name], before.into.get(partner, {})
        if factor <= 0 or before.hidden[name] != before.hidden.get(partner):
            raise CertificateError(f"{rest[-1]}: {partner} cannot stand for {name}")
        if mine != {tail: -factor * weight for tail, weight in theirs.items()}:
            raise CertificateError(f"{rest[-1]}: {name} is not the opposite of {partner}")
        form = {tail: (1 + before.hidden[name]) * weight for tail, weight in mine.items()}
        substitute(expected, name, form | {partner: factor})


def _linear(stage: Stage, before: Plain, expected: dict[str, Row], sums: Any, *rest: Any) -> None:
    _check_linear(before, sums, stage.evidence, rest[-1])
    meaning: dict[str, Row] = {}
    for name in before.order:  # tails first, so that a linear neuron's row names no removed neuron
        if name in stage.evidence:
            row = {tail: weight * stage.evidence[name] for tail, weight in before.into[name].items()}  # type: ignore[operator]
            holder = {name: row}
            for earlier, form in meaning.items():
                substitute(holder, earlier, form)
            meaning[name] = holder[name]
    for name, form in meaning.items():
        substitute(expected, name, form)


def _joined(stage: Stage, before: Plain, expected: dict[str, Row], sums: Any, values: Any, *rest: Any) -> None:
    group = dict(stage.evidence) | {
        name: ONE if before.hidden[name] == 1 or _above_zero(sums[name]) else before.hidden[name]
        for name in stage.carriers
    }
    _check_linear(before, sums, group, rest[-1])
    forms = {name: {tail: w * factor for tail, w in before.into[name].items()} for name, factor in group.items()}  # type: ignore[operator]
    fed = {follower: name for name, (follower, _) in stage.carriers.items()}
    for head, row in expected.items():
        spoken = {name: row.pop(name) for name in group if name in row}
        if not spoken:
            continue
        if head not in fed or head in group:
            raise CertificateError(f"{rest[-1]}: nobody carries what {head} hears")
        holder = {head: dict(spoken)}
        for name in spoken:
            substitute(holder, name, forms[name])
        carrier, shift = fed[head], stage.carriers[fed[head]][1]
        form = holder[head] | {CONSTANT: holder[head].get(CONSTANT, ZERO) + shift}
        low = sum((low_term(w, values.get(tail, (ONE, ONE))) or ZERO for tail, w in form.items()), ZERO)
        unbounded = any(w and low_term(w, values.get(tail, (ONE, ONE))) is None for tail, w in form.items())
        if before.hidden[carrier] != 1 and (unbounded or low < 0):
            raise CertificateError(f"{rest[-1]}: carrier {carrier} is not always active")
        expected[carrier] = {tail: w for tail, w in form.items() if w}
        row[carrier] = ONE
        row[CONSTANT] = row.get(CONSTANT, ZERO) - shift


def _near(
    stage: Stage, before: Plain, expected: dict[str, Row], sums: Any, values: Any, defects: Row, where: str
) -> None:
    for name, evidence in stage.evidence.items():
        if isinstance(evidence, tuple):
            partner, factor = evidence
            if partner in stage.evidence or factor <= 0 or before.hidden[name] != before.hidden.get(partner):
                raise CertificateError(f"{where}: {partner} cannot stand for {name}")
            mine, theirs = before.into[name], before.into[partner]
            gaps = {tail: mine.get(tail, ZERO) - factor * theirs.get(tail, ZERO) for tail in {*mine, *theirs}}
            form: Row = {partner: factor}
            sizes = [abs(gap) * largest_size(values.get(tail, (ONE, ONE)), where) for tail, gap in gaps.items()]
            radius = max(ONE, abs(before.hidden[name])) * sum(sizes, ZERO)
        else:
            form, (low, high) = {CONSTANT: Fraction(evidence)}, values[name]  # type: ignore[call-overload]
            if low is None or high is None:
                raise CertificateError(f"{where}: {name} is unbounded")
            radius = max(high - form[CONSTANT], form[CONSTANT] - low)
        for head, row in expected.items():
            if name in row:
                defects[head] = defects.get(head, ZERO) + abs(row[name]) * radius
        substitute(expected, name, form)


# Small tools


def _pairs(stage: Stage) -> dict[str, tuple[str, Fraction]]:
    return dict(stage.evidence)  # type: ignore[arg-type]


def _check_linear(before: Plain, sums: Mapping[str, Interval], factors: Mapping[str, object], where: str) -> None:
    for name, factor in factors.items():
        slope, top = before.hidden[name], sums[name][1]
        on = slope == 1 or _above_zero(sums[name])
        off = top is not None and top <= 0
        if not ((on and factor == 1) or (off and factor == slope)):
            raise CertificateError(f"{where}: {name} is not linear with factor {factor}")


def _above_zero(interval: Interval) -> bool:
    return interval[0] is not None and interval[0] >= 0


def _mute(order: list[str], rows: Mapping[str, Row]) -> set[str]:
    """Neurons that hear nothing at all: their value is 0."""
    mute: set[str] = set()
    for name in order:
        if name in rows and set(rows[name]) <= mute:
            mute.add(name)
    return mute


def _check_neurons(before: Plain, after: Plain, expected: Mapping[str, Row], mute: set[str], where: str) -> None:
    """No neuron too many, and none too few unless it is 0 or nobody hears it."""
    heard = set(before.outputs)
    for head in reversed(before.order):
        if head in heard:
            heard |= set(expected[head])
    for name in after.into:
        if name not in expected or after.hidden.get(name) != before.hidden.get(name):
            raise CertificateError(f"{where}: {name} should have gone, or has another activation")
    for name in expected:
        if name not in after.into and name in heard and name not in mute:
            raise CertificateError(f"{where}: {name} is missing")


def _rounding(
    before: Plain, after: Plain, expected: dict[str, Row], mute: set[str], finite: Mapping[str, Interval], where: str
) -> Row:
    """Per node, what the difference between stored and exact weights adds to its sum at most."""
    errors: Row = {}
    _, values = intervals(before, finite)
    for head, stored in after.into.items():
        for tail in {*expected[head], *stored} - (mute - after.hidden.keys()):
            error = abs(expected[head].get(tail, ZERO) - stored.get(tail, ZERO))
            if error:
                errors[head] = errors.get(head, ZERO) + error * largest_size(values[tail], where)
    return errors


def _renamed(dag: Dag) -> Plain:
    """Hidden neurons numbered by level: a layered network numbers its neurons anew."""
    place = {
        dag.names[node]: f"neuron {k}"
        for k, node in enumerate(dag.hidden[dag.levels[dag.hidden].argsort(kind="stable")])
    }
    plain = Plain(dag)
    plain.hidden = {place[name]: slope for name, slope in plain.hidden.items()}
    rows = plain.into.items()
    plain.into = {place.get(head, head): {place.get(tail, tail): w for tail, w in row.items()} for head, row in rows}
    return plain


def _same(first: Plain, second: Plain, message: str) -> None:
    if first.into != second.into or first.hidden != second.hidden:
        raise CertificateError(message)
