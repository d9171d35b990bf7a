"""Sentences of findings, from checked facts and digests alone.

No check is made here, and nothing of a certificate is seen: who reads `facts` need not trust this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from lawful.outward import at_least, at_most
from lawful.verify.core.finding import in_full, short

Facts = Mapping[str, Any]
Digests = Sequence[str]
SHOWN = 6  # of a list of numbers
ENTRIES = (
    "; that training keeps the balances of the entries listed (scaling them as listed leaves the module's function "
    "alone) is read from its program, and not checked here"
)
PARTED = {
    "hyperplane": "is strictly parted from the rest by a hyperplane",
    "common point": "shares a point with the convex hull of the rest: no hyperplane parts them",
    "frame": "is strictly parted from the rest by every vector of an orthogonal basis",
    "obtuse pair": "has two differences to the rest at no acute angle: no right-angled cone parts them",
    "undecided": "is left undecided",
}


def _of_balance(facts: Facts, digest: str) -> str:
    """A network, with its balance where that was prescribed."""
    if not facts["prescribed"]:
        return short(digest)
    balance = facts["balance"]
    values = ", ".join(str(value) for value in balance[:SHOWN])
    return f"{short(digest)} with the balance ({values}{', ...' if len(balance) > SHOWN else ''})"


def say_components(facts: Facts, digests: Digests) -> str:
    """How many components there are, or what is locked."""
    count, tolerance, whose = facts["log2_components"], facts["tolerance"], f"of {_of_balance(facts, digests[0])}"
    if facts["other_laws"]:
        entries = "no entry is" if not count else "1 entry is" if count == 1 else f"{count} entries are"
        words = f"{whose} {entries} kept away from zero by its balances (other laws are not looked at)"
        return words + ENTRIES
    edges = "no edge is" if not count else "1 edge is" if count == 1 else f"{count} edges are"
    words = f"the invariant set {whose} has exactly 2^{count} connected components: {edges} locked"
    if tolerance:
        words = (
            f"at every balance within {at_least(tolerance)} (sum of absolute differences) {whose}, {edges} locked, "
            f"and each other edge is free at some balance within {at_most(tolerance)}"
        )
    elif not count:
        words = f"the invariant set {whose} is connected: no edge is locked"
    return words + (ENTRIES if facts["entries"] else "")


def say_path(facts: Facts, digests: Digests) -> str:
    """A path, or why there is none."""
    names, rest = f"{short(digests[0])} to {short(digests[1])}", ENTRIES if facts["entries"] else ""
    if facts["joined"]:
        drift = facts["drift"]
        where = "inside one invariant set" if not drift else f"nowhere further than {at_most(drift)} from its balance"
        other = facts["other_tensors"]
        besides = f"; {other} other tensors differ, and nothing is said of them" if other else ""
        return f"a path of {facts['pieces']} pieces leads from {names} {where}{besides}{rest}"
    apart = facts["balances_differ_by"]
    if "locked" not in facts:
        words = f"no path leads from {names} inside one invariant set: their balances differ by at least "
        return f"{words}{at_least(apart)}{rest}"
    within = "" if not apart else f" that stays within {at_least(apart)} of its balance"
    count = len(facts["locked"])
    edges = "1 locked edge has" if count == 1 else f"{count} locked edges have"
    return f"no path{within} leads from {names} inside the invariant set: {edges} different signs{rest}"


def say_rebalance(facts: Facts, digests: Digests) -> str:
    """Which network is which, rescaled, and within what."""
    target, left = facts["target"], len(facts["except"])
    asked = f"{target[0]!r}" if len(set(target)) == 1 else "the one asked for"
    most = "" if not left else " but for 1 neuron" if left == 1 else f" but for {left} neurons"
    return (
        f"{short(digests[1])} is {short(digests[0])} with its neurons rescaled, every weight within a relative "
        f"{facts['rounding']!r}, and its balance is {asked} within {facts['residual']!r}{most}"
    )


def say_singular(facts: Facts, digests: Digests) -> str:
    """Whether there is a singular point."""
    name = _of_balance(facts, digests[0])
    if not facts["exist"]:
        return f"the invariant set of {name} has no singular point: no set of hidden neurons can be cut off"
    count = len(facts["cut_off"])
    some = f"{count} hidden neurons" if count > 1 else "one hidden neuron"
    return f"the invariant set of {name} has a singular point, which cuts off {some}"


def say_separation(facts: Facts) -> str:
    """What is known of each cluster."""
    kinds = facts["answers"]
    lines = [f"cluster {number} {PARTED[kind]}" for number, kind in enumerate(kinds)]
    if len(set(kinds)) == 1:
        lines = [f"each of the {len(kinds)} clusters {PARTED[kinds[0]]}"]
    return f"in the {facts['points']} points of {short(facts['data'])}, " + "; ".join(lines)


def say_pruning(facts: Facts, digests: Digests) -> str:
    """What went, and how far outputs can move."""
    bound, rounding, box = facts["max_output_change_bound"], facts["rounding_bound"], facts["box"]
    where = "for any input" if box is None else f"for any input in the box {_box(box)}"
    moved = f"no output moves by more than {_up(bound)!r} {where}" if bound else f"no output changes {where}"
    if rounding:
        on = "on [-1, 1]" if box is None else "there"
        moved += f", but for the rounding of weights, which moves none by more than {_up(rounding)!r} {on}"
    before, gone = facts["neurons_before"], facts["neurons_before"] - facts["neurons_after"]
    return f"{gone} of {before} hidden neurons of {short(digests[0])} are gone in {short(digests[1])}: {moved}"


def say_same(facts: Facts, digests: Digests) -> str:
    """Equal or different, where, and within what."""
    names = f"{short(digests[0])} and {short(digests[1])}"
    domain = f"R^{facts['inputs']}" if facts["box"] is None else _box(facts["box"])
    if facts["verdict"] == "equal":
        return f"{names} are the same function on {domain} (by their {facts['by']})"
    if facts["verdict"] == "equal weight by weight":
        share = float(facts["within"][1])
        return (
            f"{names}, after steps that keep their functions on {domain}, have the same {facts['by']} within {share!r} "
            "of the smaller of any two entries"
        )
    where = f" on {domain}" if facts["box"] is not None else ""
    if "sizes" in facts:
        words = " against ".join(f"{inputs} inputs and {outputs} outputs" for inputs, outputs in facts["sizes"])
    else:
        words = f"at one input output {facts['output']} differs by at least {at_least(facts['differ_by'])}"
    return f"{names} are different functions{where}: {words}"


def _box(box: Sequence[tuple[Fraction | None, Fraction | None]]) -> str:
    ends = [f"[{'-inf' if low is None else float(low)}, {'inf' if high is None else float(high)}]" for low, high in box]
    return f"{ends[0]}^{len(ends)}" if len(set(ends)) == 1 else in_full(" x ".join(ends))


def _up(value: Fraction) -> float:
    """A double that is not below a rational."""
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)
