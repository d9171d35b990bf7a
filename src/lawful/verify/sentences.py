"""Sentences of findings, from checked facts and digests alone.

No check is made here, and nothing of a certificate is seen: who reads `facts` need not trust this file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from statistics import median_high, median_low
from typing import Any

from lawful.outward import at_least, at_most
from lawful.verify.core.finding import short

Facts = Mapping[str, Any]
Digests = Sequence[str]
SHOWN = 6  # of a list of numbers
FOLDS = ("gain", "statistics", "value", "move", "drop", "centre")  # in the order in which they are said
LONGEST = 4_000  # characters of a question that a statement repeats
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
    domain = _domain(facts)
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
    return f"{short(digests[0])} has exactly {many} on {_domain(facts)}, {meant}"


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


def say_theorem(facts: Facts, digests: Digests) -> str:
    """How many laws a theorem gives, for which architecture."""
    inputs, hidden, outputs = facts["widths"]
    among = "among functions of φ, " if facts["claim"] == "phi" else ""
    return (
        f"{short(digests[0])}, fully connected with layers of {inputs}, {hidden} and {outputs}, has {among}exactly "
        f"{facts['laws']} independent laws under gradient flow at almost all weights, for any data, by a theorem "
        f"({facts['theorem']}) whose hypotheses it meets"
    )


def say_laws(facts: Facts, digests: Digests) -> str:
    """How many laws there are, among which functions, and where."""
    where = "at almost all weights, for any data" if facts["level"] == "phi" else "near its weights, for "
    if facts["level"] == "data":
        where += f"{facts['samples']} data ({short(facts['data'])})"
    elif facts["level"] == "near":
        where += "any data"
    if facts["claim"] == "somewhere":
        where += f", which hold at all weights of {short(facts['architecture'])}"
    among = " among functions of φ (products of weights along paths; training may have more)"
    return (
        f"{short(digests[0])} has exactly {facts['laws']} independent laws{among * (facts['claim'] == 'phi')} under "
        f"{facts['flow']} {where} ({facts['loss']} loss)"
    )


def say_laws_of_module(facts: Facts, digests: Digests) -> str:
    """At most how many laws a module has near a point, and where as many explicit ones hold."""
    most, samples = facts["laws"], facts.get("samples")
    words = f"{short(digests[0])} in the certificate ({facts['parameters']} parameters) has at most {most} independent "
    words += "laws near a point"
    if samples:
        words += f" when trained on {samples} given input{'s' * (samples > 1)}"
    if most:
        about = "token ids" if "tokens" in facts else "inputs"
        where = "near it: identities of its steps at these inputs" if samples else (
            f"at all weights and {about}: identities of its steps"
        )  # fmt: skip
        words += (
            f", and {most} explicit ones, independent there, hold {where}, but for a chance of {facts['error']} in "
        )
        words += "this check"
    if "draws" in facts:
        words += f"; {facts['drawn']} random numbers are drawn anew at every step, in any way"
    if "decay" in facts:
        decay = repr(facts["decay"])
        words += f"; weight decay {decay} turns a law h of degree d into e^(d·{decay}·t) h"
    return f"{words} ({facts['loss']} loss)"


def say_distance(facts: Facts, digests: Digests) -> str:
    """How far two networks are apart: more than that at one input, at most that on a box."""
    outputs, on, clauses = facts["outputs"], _sides(facts["box"]), []
    if "near" in facts:
        near = facts["near"]
        on = f"what of {on} is within {at_least(near['radius'], 9)} of one of {near['samples']} samples"
    if "lower" in facts:
        clauses.append(f"is more than {at_least(facts['lower'], 9)} at one input (exact)")
    if "upper" in facts:
        clauses.append(f"is at most {at_most(facts['upper'], 9)} on {on} ({facts['leaves']} boxes re-computed)")
    what = {"inf": "|g - f|", "1": "the 1-norm of g - f", "2": "the 2-norm of g - f"}[facts["norm"]]
    where = "" if len(outputs) == facts["of_outputs"] else f" in outputs {', '.join(map(str, outputs[:20]))}"
    return f"for f = {short(digests[0])} and g = {short(digests[1])}, {what}{where} {', and '.join(clauses)}"


def say_monotone(facts: Facts, digests: Digests) -> str:
    """Which outputs never fall, or rise, as which inputs grow; or one that does."""
    name, box, rising, falling = f"for f = {short(digests[0])}", _sides(facts["box"]), facts["rising"], facts["falling"]
    if "input" in facts:
        at, verb = facts["input"], "falls" if facts["input"] in rising else "rises"
        return f"{name}, output {facts['output']} {verb} somewhere on {box} as input {at} grows (exact)"
    ways = [
        f"never {verb} as {_places(some, 'input')} grows"
        for verb, some in (("falls", rising), ("rises", falling))
        if some
    ]
    many = f"{facts['leaves']} boxes re-computed"
    many += f", {facts['regions']} regions in rationals" if facts["regions"] else ""
    return f"{name}, {_places(facts['outputs'], 'output')} {' and '.join(ways)} within {box} ({many})"


def say_specification(facts: Facts, digests: Digests) -> str:
    """The whole question: boxes, and what is forbidden on each."""
    whole = in_full("; or from ".join(map(_region, facts["regions"])))
    name = f"for f = {short(digests[0])}"
    if "input" in facts:
        return f"{name}, an input leads from box {facts['at'] + 1} of {whole} (exact)"
    return f"{name}, no input leads from {whole} ({facts['nodes']} boxes re-computed)"


def _region(region: Any) -> str:
    sides = " x ".join(f"[{low}, {high}]" for low, high in region.box)
    cases = [" and ".join(map(_condition, case)) or "any outputs" for case in region.cases]
    return f"{sides} into {' or '.join(cases)}"


def _condition(row: Any) -> str:
    both = (("Y", row.outputs), ("X", row.inputs))
    terms = [f"{'' if a == 1 else f'{a}·'}{name}_{at}" for name, line in both for at, a in enumerate(line) if a]
    return f"{' + '.join(terms) or '0'} {'<' if row.strict else '<='} {row.bound}"


def say_channels(facts: Facts, digests: Digests) -> str:
    """How many channels went, and what the program does not read."""
    before, gone = facts["channels_before"], facts["channels_before"] - facts["channels_after"]
    tidy = f", {facts['folded']} normalisations folded" if facts["folded"] else ""
    tidy += f", {facts['dropped']} biases that nobody sees dropped" if facts["dropped"] else ""
    words = (
        f"{gone} of {before} hidden channels of {short(digests[0])} are gone in {short(digests[1])}{tidy}: "
        f"the same function of real numbers, for the program written in the certificate "
        f"(sha256 {facts['program'][:12]}), but for the rounding of folded weights (shown at random points; the chance "
        f"of an error is below {facts['error']})"
    )
    if unread := facts["unread"]:
        first = ", ".join(name[:60] for name in unread[:4]) + ", ..." * (len(unread) > 4)
        lost = f", {len(facts['lost'])} of which are gone" if facts["lost"] else ""
        words += f". It does not read {len(unread)} tensor{'s' * (len(unread) > 1)} ({first}){lost}"
    return words


def say_copy(facts: Facts, digests: Digests) -> str:
    """Which numbers of B are those of A, how far off at most, and what that says of the function."""
    told, total, exact = facts["told"], facts["numbers"], facts["moved_only"]
    count = f"the {told:,}" if told == total else f"{told:,} of the {total:,}"
    words = f"{short(digests[1])} holds {count} floating-point numbers of {short(digests[0])} in {facts['tensors']} "
    words += "tensors, permuted, scaled and mixed as the certificate lists"
    if facts["folds"]:
        kinds = ", ".join(f"{facts['fold_kinds'][name]} {name}" for name in FOLDS if facts["fold_kinds"][name])
        words += f" after {facts['folds']} folds ({kinds})"
    if exact == total:
        words += ": every number exactly"
    else:
        words += (
            f": {exact:,} of them are equal then, each other entry is within {at_most(facts['entry'])} of the sum of "
            f"the absolute values of its terms, no tensor is off by more than {at_most(facts['relative'])} of its size"
        )
    if facts["shifted"]:
        words += f". {facts['constants']:,} constants are added to {facts['shifted']} tensors"
    if facts["own_in"]:
        words += f". {facts['own']:,} numbers have a constant or a factor of their own, with which any numbers would "
        words += f"pass: {_names(facts['own_in'])}"
    if facts["matrices"]:
        words += f". The {facts['matrices']} matrices are orthogonal or pairs of inverses up to "
        words += at_most(facts["inverse"], 1)
    if facts["joined"]:
        words += f". {facts['joined']} tensors are joined or cut from those of a file"
    if renamed := facts["renamed"]:
        many = "1 tensor of the files goes" if len(renamed) == 1 else f"{len(renamed)} tensors of the files go"
        words += f". {many} by other names here, as the certificate says: {_first(renamed)}"
    if facts["made"]:
        words += f". {facts['made']} tensors that a file lacks are constants"
    if facts["far"]:
        words += f". {facts['far']:,} entries are off by more than half of the sum of their terms"
    if facts["dropped"]:
        words += f". {facts['dropped']:,} numbers that are not zero are left out as dead: {_names(facts['dropped_in'])}"
    if facts["means"]:
        words += f". The means of {facts['means']:,} lines are left out as unseen"
    if facts["epsilon"]:
        words += f". Variances are taken with ε up to {at_most(facts['epsilon'], 2)}"
    if facts["whole"]:
        words += f". Not checked: that the difference in {_first(facts['whole'])}, of whole numbers, has no effect"
    return words + _settings(facts["settings"]) + _function(facts["proof"], bool(facts["folds"]))


def _settings(known: Mapping[str, Sequence[str]] | None) -> str:
    """What is known of the settings of both folders."""
    if known is None:
        return ""
    if not (known["apart"] or known["alone"]):
        return ". Both folders have the same settings"
    words = f". The settings of both folders are the same but for {_first(known['apart'])}" if known["apart"] else ""
    if known["unchecked"]:
        words += f". Not checked: that the difference in {_first(known['unchecked'])} has no effect here"
    if known["alone"]:
        words += f". Not checked: that {_first(known['alone'])}, which only one folder states, is what the other takes"
    return words


def _function(proof: Mapping[str, Any] | None, folded: bool) -> str:
    """What is known of the function."""
    if proof is None:
        return ". Not checked: that what is listed leaves the function of this architecture as it is"
    name = f"the program of {proof['nodes']} nodes in the certificate (sha256 {proof['digest'][:12]})"
    if proof["open"]:
        return (
            f". Not checked: that what is listed leaves the function of {name} alone, for no rule covers "
            f"{proof['open']}"
        )
    words = f". For every input, {name} computes one function, in exact arithmetic, with B"
    words += f"{' before and after the folds' * folded} and with B permuted, scaled and mixed as listed"
    words += ", and one function with A before and after the folds" * folded
    if unread := proof["unread"]:
        words += f". It reads {len(unread)} of the tensors not at all: {_names(unread)}"
    return f"{words} (shown at random points; the chance of an error is below 2^-{proof['bits']})"


def say_outputs_differ(facts: Facts, digests: Digests) -> str:
    """How far two outputs are apart, and of what."""
    lists = "one list of" if facts["lists"] == 1 else "two lists of"
    same = digests[0] == digests[1]
    where = (
        f"that both files hold ({short(digests[0])})" if same else f"of {short(digests[0])} and of {short(digests[1])}"
    )
    return (
        f"{lists} {facts['steps']:,} steps in the certificate, carried out on the numbers {where}, end in outputs that "
        f"are more than {at_least(facts['apart'])} apart. {'It is the steps that differ, not the files. ' * same}"
        "Not checked: that these steps are what the architecture computes"
    )


def say_smooth_pair(facts: Facts, digests: Digests) -> str:
    """Whether two networks of smooth units are one function, and as what they were read."""
    readings = [
        " / ".join(f"{layer.weight}{' transposed' * (layer.axis == 0)}, {layer.bias or 'no bias'}" for layer in layers)
        for layers in facts["layers"]
    ]
    by = readings[0] if readings[0] == readings[1] else "; and ".join(readings)
    depth = len(facts["layers"][0])
    layers = f"{depth - 1} hidden layer{'s' * (depth > 2)} of {facts['activation']}"
    words = f"{short(digests[0])} and {short(digests[1])}, read as {layers} ({by[:400]}), are "
    if facts["verdict"] == "equal":
        how = "are added up" if depth == 2 else "are one, named by their biases, with the same weights"
        words += f"the same function: the same {facts['units']} hidden units after equal ones {how}, in fractions"
    else:
        words += f"different functions: {facts['terms']} terms differ, and functions of this kind determine their terms"
    return f"{words}. Not checked: that this is what the tensors are used for"


def in_full(question: str) -> str:
    """A question as a statement repeats it: whole, or its beginning and the digest of all of it.

    >>> in_full("[0, 1]^2")
    '[0, 1]^2'
    """
    if len(question) <= LONGEST:
        return question
    return f"{question[:LONGEST]} ... (sha256 of all: {hashlib.sha256(question.encode()).hexdigest()})"


def _names(names: Sequence[str]) -> str:
    return ", ".join(sorted(names))[:160]


def _first(keys: Sequence[str]) -> str:
    """The first ten, and how many more there are: none is left out in silence."""
    more = f" and {len(keys) - 10} more" if len(keys) > 10 else ""
    return ", ".join(key[:60] for key in keys[:10]) + more


def _places(places: Sequence[int], what: str) -> str:
    return f"{what}{'s' * (len(places) > 1)} {', '.join(map(str, places[:20]))}{', ...' * (len(places) > 20)}"


def _sides(box: Sequence[tuple[Fraction, Fraction]]) -> str:
    """A box is part of the question, so it is repeated whole, or named by its digest where it is long."""
    sides = [f"[{low}, {high}]" for low, high in box]
    return f"{sides[0]}^{len(sides)}" if len(set(sides)) == 1 else in_full(" x ".join(sides))


def _domain(facts: Facts) -> str:
    return f"R^{facts['inputs']}" if facts["box"] is None else _box(facts["box"])


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
    "channel-pruning": say_channels,
    "checkpoint-copy": say_copy,
    "components": say_components,
    "distance": say_distance,
    "flow": say_flow,
    "geodesic": say_geodesic,
    "identifiable": say_identifiable,
    "laws": say_laws,
    "laws-by-theorem": say_theorem,
    "laws-of-module": say_laws_of_module,
    "monotone": say_monotone,
    "outputs-differ": say_outputs_differ,
    "path": say_path,
    "pruning": say_pruning,
    "rebalance": say_rebalance,
    "regions": say_regions,
    "removable": say_removable,
    "same": say_same,
    "singular": say_singular,
    "smooth-pair": say_smooth_pair,
    "specification": say_specification,
    "truncation-separation": say_separation,
}  # by kind
