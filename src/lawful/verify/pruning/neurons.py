"""A pruning replayed in rationals: each neuron's evidence, the weights that follow from it, and what they can change.

For every stage: the evidence holds for the network before, the weights after are what it asks for up to stated
rounding, and the two bounds are at least what exact intervals give. Slow and plain on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flint import fmpq

from lawful.verify.core.dag import CheckedDag, read_dag
from lawful.verify.core.finding import Finding
from lawful.verify.core.numbers import ONE, ZERO, Rational, Span, as_fraction, exact, fraction
from lawful.verify.core.schema import integer, integers, items, limit_cost, number, object_with_keys, require, word
from lawful.verify.pruning.rules import RULES, Evidence, Replay
from lawful.verify.pruning.sums import Signals, Sum, hull, largest_size, reach, spans, sum_span
from lawful.verify.pruning.surrogate import read_stand_in
from lawful.verify.sentences import say_pruning

KEYS = "original result box stages labels neurons_before neurons_after max_output_change_bound rounding_bound"


def check(body: dict[str, Any]) -> Finding:
    """How many neurons went, and how far any output can have moved, on which inputs."""
    given = object_with_keys(body, "certificate", KEYS)
    original, result = (read_dag(given[key], key) for key in ("original", "result"))
    require(original.weights is not None and result.weights is not None, "a network has no weights")
    stages = items(given["stages"], "stages", most=1000)
    size = len(original.tails) * max(1, len(original.outputs)) + len(result.tails)
    limit_cost(20.0 * original.growth * (len(stages) + 2) * size)
    latest = Signals(original, range(len(original.roles)))
    region, finite = _regions(given["box"], latest.inputs)
    bound = rounding = ZERO
    for place, item in enumerate(stages, 1):
        latest, moved, rounded = _replayed(item, latest, region, finite, f"stage {place}")
        bound, rounding = bound + moved, rounding + rounded
    final = Signals(result, _labels(given["labels"], result))
    same = final.into == latest.into and final.hidden == latest.hidden
    require(same and final.inputs == latest.inputs and final.outputs == latest.outputs, "the stages lead elsewhere")
    before, after = len(original.hidden), len(result.hidden)
    stated = [integer(given[key], key, 0) for key in ("neurons_before", "neurons_after")]
    require(stated == [before, after], f"{before} and {after} hidden neurons, not the stated numbers")
    for key, least_bound in (("max_output_change_bound", bound), ("rounding_bound", rounding)):
        require(exact(number(given[key], key)) >= least_bound, f"{key}: the stages add up to more")
    digests = (original.digest(), result.digest())
    bounds = as_fraction(bound), as_fraction(rounding)
    ends = [] if given["box"] is None else [region[name] for name in latest.inputs]
    box = [
        (None if low is None else as_fraction(low), None if high is None else as_fraction(high)) for low, high in ends
    ] or None
    facts = {
        "neurons_before": before,
        "neurons_after": after,
        "max_output_change_bound": bounds[0],
        "rounding_bound": bounds[1],
        "box": box,
    }
    return Finding(say_pruning(facts, digests), facts, digests)


def _regions(box: object, inputs: list[int]) -> tuple[dict[int, Span], dict[int, Span]]:
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


def _labels(value: object, dag: CheckedDag) -> list[int]:
    labels = integers(value, "labels", 0, length=len(dag.roles))
    require(len(set(labels)) == len(labels), "two nodes have one label")
    return labels


def _replayed(
    item: object, before: Signals, region: Mapping[int, Span], finite: Mapping[int, Span], where: str
) -> tuple[Signals, Rational, Rational]:
    """The network after a stage, and its two bounds, both checked."""
    given = object_with_keys(item, "stages", "kind evidence carriers after labels bound rounding")
    kind = word(given["kind"], "stages.kind", *RULES)
    where = f"{where} ({kind})"
    dag = read_dag(given["after"], "stages.after")
    require(dag.weights is not None, f"{where}: a network without weights")
    after = Signals(dag, _labels(given["labels"], dag))
    require(before.inputs == after.inputs and before.outputs == after.outputs, f"{where}: inputs or outputs differ")
    evidence = _evidence(given["evidence"], "stages.evidence")
    carriers = _evidence(given["carriers"], "stages.carriers")
    require(all(name in before.hidden for name in (*evidence, *carriers)), f"{where}: a neuron is not hidden")
    require(all(isinstance(value, tuple) for value in carriers.values()), f"{where}: a carrier lacks its follower")
    sums, values = spans(before, region)
    expected = {head: dict(row) for head, row in before.into.items() if head not in evidence}
    replay = Replay(before, evidence, carriers, sums, values, expected, where)
    RULES[kind](replay)
    wanted = {head: {tail: w for tail, w in row.items() if w} for head, row in expected.items()}
    mute = _mute(before.order, wanted)
    _check_neurons(before, after, wanted, mute, where)
    _pass_on(replay, wanted, mute, after)
    errors = _rounding(replay, after, wanted, mute, finite)
    products = reach(after)
    found = []
    for key, defects in (("bound", replay.defects), ("rounding", errors)):
        sizes = [
            sum((size * products[head].get(o, ZERO) for head, size in defects.items() if head in products), ZERO)
            for o in after.outputs
        ]
        stated = exact(number(given[key], f"stages.{key}"))
        require(stated >= max(sizes, default=ZERO), f"{where}: the stated {key} is too small")
        found.append(stated)
    return after, found[0], found[1]


def _evidence(value: object, where: str) -> dict[int, Evidence]:
    found: dict[int, Evidence] = {}
    for item in items(value, where):
        name, why = items(item, where, length=2)
        label = integer(name, where, 0)
        require(label not in found, f"{where}: a neuron appears twice")
        if isinstance(why, dict):
            found[label] = read_stand_in(why, where)
        elif isinstance(why, list):
            partner, factor = items(why, where, length=2)
            found[label] = integer(partner, where, 0), fraction(factor, where)
        else:
            found[label] = None if why is None else fraction(why, where)
    return found


def _mute(order: list[int], sums: Mapping[int, Sum]) -> set[int]:
    """Neurons that hear nothing at all: their value is 0."""
    mute: set[int] = set()
    for name in order:
        if name in sums and set(sums[name]) <= mute:
            mute.add(name)
    return mute


def _pass_on(stage: Replay, wanted: Mapping[int, Sum], mute: set[int], after: Signals) -> None:
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
        require(kept, f"{where}: neuron {name} should have gone, or has another activation")
    for name in wanted:
        require(name in after.into or name not in heard or name in mute, f"{where}: neuron {name} is missing")


def _is_rounded(meant: Rational, stored: Rational) -> bool:
    """Whether a stored weight is the one that was meant, rounded to a type in which weights are stored.

    The coarsest of normal numbers is bfloat16, with 8 significant bits: half a unit is 2^-8 of the number. Below their
    normal numbers float16 has the multiples of 2^-24, float32 and bfloat16 round to zero under 2^-149.
    """
    error = abs(meant - stored)
    small = abs(stored) <= fmpq(1, 2**14) and (stored * 2**24).q == 1 and error <= fmpq(1, 2**25)
    return bool(error * 2**8 <= abs(meant) or small or error <= fmpq(1, 2**150))


def _rounding(
    stage: Replay, after: Signals, wanted: Mapping[int, Sum], mute: set[int], finite: Mapping[int, Span]
) -> Sum:
    """Per node, what the difference between stored and exact weights adds to its sum at most."""
    errors: Sum = {}
    _, values = spans(stage.before, finite)
    # what was joined passes on its new sum; what was not, its old value
    values |= {name: hull(values[name], sum_span(wanted[name], values)) for name in stage.carriers}
    for head, stored in after.into.items():
        for tail in {*wanted[head], *stored} - (mute - after.hidden.keys()):
            meant = wanted[head].get(tail, ZERO)
            error = abs(meant - stored.get(tail, ZERO))
            if error:
                require(_is_rounded(meant, stored.get(tail, ZERO)), f"{stage.where}: a weight is another, not rounded")
                errors[head] = errors.get(head, ZERO) + error * largest_size(values[tail], stage.where)
    return errors
