"""Sentences of findings, from checked facts and digests alone.

No check is made here, and nothing of a certificate is seen: who reads `facts` need not trust this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from statistics import median_high, median_low
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
    values = in_full(", ".join(str(value) for value in balance[:SHOWN]))
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


def say_separation(facts: Facts, _: Digests) -> str:
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


def say_regions(facts: Facts, digests: Digests) -> str:
    """How many regions there are, and what is meant by one."""
    many = "1 region" if facts["regions"] == 1 else f"{facts['regions']} regions"
    meant = "open sets on which every hidden neuron that bends keeps its side"
    return f"{short(digests[0])} has exactly {many} on {facts['domain']}, {meant}"


def say_removable(facts: Facts, digests: Digests) -> str:
    """How many neurons are needed, each alone, how many can go, and of how many nothing is shown."""
    needed, removable = len(facts["needed"]), len(facts["removable"])
    words = (
        f"of {facts['hidden']} hidden neurons of {short(digests[0])}, each alone, {needed} are needed: no affine "
        "combination of the other neurons of its layer can take its place without changing an output for some input"
    )
    if removable:
        words += f"; for {removable} there is such a combination, and no output changes for any input"
    left = facts["hidden"] - needed - removable
    return words + (f"; nothing is shown of {left}" if left else "")


def say_identifiable(facts: Facts, digests: Digests) -> str:
    """Whether the function determines its parameters, and among which."""
    name = short(digests[0])
    if facts["identifiable"]:
        only = "only reorderings and positive rescalings of the neurons"
        return f"among {facts['among']}, {only} of {name} have its function"
    many, have = "others", "have"
    if "others" in facts:
        count = facts["others"]
        many = f"{'exactly' if facts['complete'] else 'at least'} {count} other{'s' * (count > 1)}"
        have = "has" if count == 1 else "have"
    return (
        f"the function of {name} does not determine its parameters: {many} of the same shape"
        f"{', with biases' if facts['more_biases'] else ''}, which no reordering and positive rescaling of neurons "
        f"makes equal, {have} the same function (by their {facts['by']})"
    )


def say_flow(facts: Facts, digests: Digests) -> str:
    """Where the loss stood at the first and the last snapshot, and how far the balances strayed."""
    decay, losses = facts["decay"], facts["losses"]
    law = "the balances stay" if not decay else f"the balances follow exp(-2·{decay!r}·t) times the first"
    return (
        f"at {facts['snapshots']} snapshots from {short(digests[0])} to {short(digests[1])} the {facts['loss']} loss "
        f"on {facts['samples']} data ({short(facts['data'])}) goes from {_interval(losses[0])} to "
        f"{_interval(losses[-1])}, and {law} within {facts['drift']!r}"
    )


def say_geodesic(facts: Facts, _: Digests) -> str:
    """How stationary a Leaky ResNet is, and its rank estimates."""
    ranks = facts["ranks"]
    everywhere = min(low for low, _ in ranks), max(high for _, high in ranks)
    middle = median_low([low for low, _ in ranks]), median_high([high for _, high in ranks])
    return (
        f"the Leaky ResNet {facts['network'][6:18]} of {len(ranks)} layers, effective depth "
        f"{facts['effective_depth']!r}, softness {facts['softness']!r} and ridge {facts['ridge']!r} "
        f"on {facts['samples']} data ({short(facts['data'])}) has stationarity in "
        f"{_interval(facts['stationarity'])} and rank estimates -2H/L of median in "
        f"{_interval(middle)}, all in {_interval(everywhere)}"
    )


def _interval(ends: tuple[float, float]) -> str:
    """An interval in few digits, rounded outwards.

    >>> _interval((0.1234567, 0.1234569))
    '[0.12345, 0.12346]'
    """
    low, high = (Fraction(end) for end in ends)
    return f"[{at_least(low, 5)}, {at_most(high, 5)}]"


def _box(box: Sequence[tuple[Fraction | None, Fraction | None]]) -> str:
    ends = [f"[{'-inf' if low is None else float(low)}, {'inf' if high is None else float(high)}]" for low, high in box]
    return f"{ends[0]}^{len(ends)}" if len(set(ends)) == 1 else in_full(" x ".join(ends))


def _up(value: Fraction) -> float:
    """A double that is not below a rational."""
    double = float(value)
    return double if Fraction(double) >= value else math.nextafter(double, math.inf)


SENTENCES: Mapping[str, Callable[[Facts, Digests], str]] = {
    "components": say_components,
    "flow": say_flow,
    "geodesic": say_geodesic,
    "identifiable": say_identifiable,
    "path": say_path,
    "pruning": say_pruning,
    "rebalance": say_rebalance,
    "regions": say_regions,
    "removable": say_removable,
    "same": say_same,
    "singular": say_singular,
    "truncation-separation": say_separation,
}  # by kind; other kinds word their findings themselves
