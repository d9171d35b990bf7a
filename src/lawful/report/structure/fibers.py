"""Answers about fibers as JSON, text and a page; computes nothing."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lawful.fibers.layers import quotient
from lawful.fibers.verdict import Different, Equal, Verdict, is_certified, witness_json
from lawful.figure import COLOURS, Figure, Panel, Series
from lawful.outward import at_least, at_most
from lawful.report.page.page import Action, Block, Chip, ChipKind, Opening, Picture, Section, Table, render
from lawful.report.plain import pick
from lawful.sentences import fibers as says
from lawful.sentences import fibers as sentences

if TYPE_CHECKING:
    from lawful.fibers.deep.identifiability import Identifiability
    from lawful.fibers.fingerprint import Canonical
    from lawful.fibers.layers import Stack
    from lawful.fibers.regions.cell import Cell
    from lawful.fibers.regions.count import FunctionGroups, RegionCount
    from lawful.fibers.summary import DescribedFiber, FiberSummary

WIDTH = 80
MOST_FREEDOMS = 12  # that are listed for people


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """The answer of `same` with the keys that the command line documents."""
    witness = counterexample = None
    if isinstance(verdict, Equal):
        witness = witness_json(verdict.witness)
    elif isinstance(verdict, Different) and verdict.counterexample is not None:
        example = verdict.counterexample
        counterexample = {
            "input": example.point.tolist(),
            "exact_input": None if example.exact is None else [str(value) for value in example.exact],
            "outputs": [[quotient(*value.as_integer_ratio()) for value in values] for values in example.outputs],
            "exact_outputs": [[str(value) for value in values] for values in example.outputs],
            "gap": quotient(*example.gap.as_integer_ratio()),
            "allowed": quotient(*example.allowed.as_integer_ratio()),
        }
    return {
        "verdict": verdict.verdict,
        "within": asdict(verdict.within) if isinstance(verdict, Equal) else None,
        "method": verdict.method,
        "reason": getattr(verdict, "reason", None),
        "domain": None if verdict.domain is None else str(verdict.domain),
        "witness": witness,
        "counterexample": counterexample,
        "certified": is_certified(verdict),
        "tolerance": verdict.tolerance,
        "seconds": round(verdict.seconds, 4),
    }


def verdict_text(result: Mapping[str, Any]) -> str:
    """The answer of `same` for people: verdict first, then the evidence."""
    lines = [f"{_answer(result)}: by {result['method']} ({result['seconds']:.2f} s)"]
    if result["witness"] is not None:
        lines += _witness_lines(result["witness"])
    if result["counterexample"] is not None:
        example = result["counterexample"]
        point = _fractions(example["exact_input"]) if example["exact_input"] else _numbers(example["input"])
        excused = f"; rounded weights would explain {example['allowed']:.1e}" if result["tolerance"] else ""
        lines += [
            f"  input    {point}",
            f"  A gives  {_numbers(example['outputs'][0])}",
            f"  B gives  {_numbers(example['outputs'][1])}",
            f"  {sentences.different(at_least(_gap(example)))}{excused}.",
        ]
    elif result["reason"]:
        lines += _wrap(result["reason"] + ".")
    if (result["within"] or {}).get("kind") == "outputs":
        return "\n".join(lines)
    asked = (
        "as the rationals that they are" if result["tolerance"] == 0 else f"rounded by up to {result['tolerance']:g}"
    )
    lines.append(f"  Asked about weights {asked}{', each by itself' if result['tolerance'] else ''}.")
    return "\n".join(lines)


def _gap(found: Mapping[str, Any]) -> Fraction:
    """The largest difference of two outputs, from their fractions."""
    return max(abs(Fraction(a) - Fraction(b)) for a, b in zip(*found["exact_outputs"], strict=True))


def _answer(result: Mapping[str, Any]) -> str:
    """The verdict, on which domain, and what *equal* means here."""
    within = result["within"]
    if within is not None:
        return sentences.equal(within["kind"], at_most(within["value"], 2), result["domain"])
    return str(result["verdict"]).upper() + (f" on {result['domain']}" if result["domain"] else "")


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _witness_lines(witness: Mapping[str, Any]) -> list[str]:
    if "boxes" in witness:
        least = at_least(witness["lower"], 3)
        return [f"  Shown on {witness['boxes']:,} boxes; somewhere they do differ by at least {least}."]
    if "regions" in witness:
        return [f"  The affine maps agree on all {witness['regions']:,} common regions."]
    chains = [f"{name}: {_chain(witness[key])}" for name, key in (("A", "first"), ("B", "second"))]
    lines = [f"  {line}" for chain in chains for line in textwrap.wrap(chain, WIDTH - 2)]
    if witness["ending"] == "normal form":
        return [*lines, "  Then they have one normal form."]
    far = (
        f"; single weights differ by at most {at_most(witness['residual'], 2)}, relative" if witness["residual"] else ""
    )
    return [*lines, f"  Then they agree weight by weight{far}."]


def _chain(steps: Sequence[Mapping[str, Any]]) -> str:
    names = [f"{step['do']} layer {step['layer']}" for step in steps]
    counted = [f"{name} x{names.count(name)}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
    return ", ".join(counted) or "as it is"


def _numbers(values: Sequence[float], most: int = 6) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:most])
    return f"[{shown}{', ...' if len(values) > most else ''}]"


def _fractions(values: Sequence[str], most: int = 6) -> str:
    """Fractions as they are, or near which float those lie that are too long for a line."""
    shown = ", ".join(value if len(value) <= 48 else f"about {float(Fraction(value)):.6g}" for value in values[:most])
    return f"[{shown}{', ...' if len(values) > most else ''}]"


def fiber_json(summary: FiberSummary, samples: Sequence[str] | None) -> dict[str, Any]:
    """The keys that `lawful fiber --json` documents."""
    document: dict[str, Any] = {"kind": summary.kind}
    if summary.domain is not None:
        document["domain"] = str(summary.domain)
    document["removed"] = summary.removed
    if summary.domain is None:
        document |= {"hidden": summary.hidden, "lowest_shift": summary.lowest_shift, "flips": summary.flips}
    document |= {
        key: getattr(summary, key) for key in ("dimension", "case", "linear", "components", "checked", "nonempty")
    }
    if summary.roles is not None:
        document["roles"] = asdict(summary.roles)
    document |= {
        key: getattr(summary, key)
        for key in ("at_least", "at_most", "generic", "layers", "log10_orders", "unknown", "count", "also")
    }
    document["freedoms"] = [asdict(freedom) for freedom in summary.freedoms]
    return document | ({} if samples is None else {"samples": list(samples)})


def fiber_text(result: Mapping[str, Any]) -> str:
    """The fiber of one function for people."""
    lines = [f"{result['kind']}: {_freedom_text(result)}"]
    if result["removed"]:
        were = "1 redundant neuron was" if result["removed"] == 1 else f"{result['removed']} redundant neurons were"
        rest = "" if result["dimension"] is None else f": {result['dimension']} of the freedoms are left without"
        lines.append(f"  {were} removed first{rest}")
    if result.get("hidden") is not None:
        lines += _wrap(sentences.hidden_shift(result["hidden"], at_most(result["lowest_shift"], 6)))
        if result["flips"]:
            lines.append(f"  {result['flips']} other neurons can be flipped: {result['components']} components")
    elif "roles" in result:
        roles = result["roles"]
        shown = f"  {roles['visible']} visible hyperplanes, {roles['cancelling']} groups that cancel, "
        lines.append(shown + f"{result['linear']} linear and {roles['dead']} dead neurons")
    elif result["case"] is not None:
        lines.append(f"  {result['linear']} linear neurons: case {result['case']} of the theorem")
        many = "" if result["checked"] == result["components"] else f" of the first {result['checked']:,}"
        lines.append(f"  {result['components']:,} choices of orientation, {result['nonempty']:,}{many} not empty")
    if result["also"]:
        many = f"{result['components']} components of generic parameters" if result["components"] > 2 else "Also"
        lines += _wrap(f"{many}{': also' if result['components'] > 2 else ''} {result['also']}.")
    if (result["count"] or 0) > 1:
        lines += _wrap(f"{sentences.twins(result['count'] - 1, True).capitalize()}.")
    for freedom in result["freedoms"][:MOST_FREEDOMS]:
        lines += _wrap(f"Layer {freedom['layer']}: {freedom['what']} ({freedom['dimension']} more).")
    if len(result["freedoms"]) > MOST_FREEDOMS:
        lines.append(f"  and {len(result['freedoms']) - MOST_FREEDOMS} more ways to move")
    if result["components"] is None and result["layers"]:
        known = sentences.layer_statuses(result["layers"])
        lines += _wrap(f"Known of the weights: {known}; neurons can be in {_many(result['log10_orders'])} orders.")
    if result["unknown"]:
        lines += _wrap(f"Open: {result['unknown']}.")
    if "samples" in result:
        lines.append(f"  wrote {len(result['samples'])} samples")
    return "\n".join(lines)


def _freedom_text(result: Mapping[str, Any]) -> str:
    least, most = result["at_least"], result["at_most"]
    whole = result["dimension"] if not result["removed"] else least if least == most else None
    return sentences.freedoms(whole, least, most)


def _many(logarithm: float) -> str:
    return f"{round(10**logarithm):,}" if logarithm < 9 else f"about 10^{int(logarithm)}"


def identifiable_json(found: Identifiability) -> dict[str, Any]:
    """The documented keys of `lawful identifiable --json`."""
    return {
        **pick(found, "identifiable reasons"),
        **pick(found.genericity, "generic=holds generic_reason=reason tested"),
        **pick(found, "layers among"),
        "twins": [_exact_rows(twin) for twin in found.twins],
        "count": found.count,
    }


def _exact_rows(twin: Stack) -> list[list[list[str]]]:
    """The rows `[w | b]` of every layer, in fractions."""
    return [[[str(item) for item in row] for row in twin.row(layer)] for layer in range(len(twin.weights))]


def described_json(found: DescribedFiber) -> dict[str, Any]:
    """The documented keys of `lawful fiber --json`."""
    return fiber_json(found.summary, None)


def identifiable_text(result: Mapping[str, Any]) -> str:
    """Whether the function determines the parameters, and why."""
    if result["identifiable"] is None:
        lines = ["UNDECIDED, up to order and scale of the neurons, among networks of this shape, with biases"]
    elif result["identifiable"]:
        lines = [sentences.identifiable(result["among"] == "generic")]
    else:
        lines = [sentences.not_identifiable()]
    for reason in list(result["reasons"])[:8]:
        lines += textwrap.wrap(reason, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    if len(result["reasons"]) > 8:
        lines.append(f"  - and {len(result['reasons']) - 8} more")
    if result["twins"]:
        exactly = result["count"] == len(result["twins"]) + 1
        lines += _wrap(f"{sentences.twins(len(result['twins']), exactly).capitalize()} (written out in the JSON).")
    if result["identifiable"] is None and result["layers"]:
        lines += _wrap(f"Known of the weights: {sentences.layer_statuses(result['layers'])}.")
    if result["generic"] is not None:
        words = "Generic" if result["generic"] else "Not generic"
        lines += _wrap(f"{words} ({result['tested']}): {result['generic_reason']}.")
    return "\n".join(lines)


def regions_json(count: RegionCount) -> dict[str, Any]:
    """The keys that `lawful regions --json` documents."""
    document: dict[str, Any] = {
        **pick(count, "regions complete"),
        "domain": str(count.domain),
        "seconds": round(count.seconds, 4),
        "per_second": round(count.regions / max(count.seconds, 1e-9), 1),
    }
    if count.facets is not None:
        document |= {
            **pick(count.facets, "facets visible_facets=visible ridges worst_imbalance"),
        }
    return document | ({} if count.each is None else {"each": [_cell_json(cell) for cell in count.each]})


def _cell_json(cell: Cell) -> dict[str, Any]:
    bits = ["".join("1" if bit else "0" for bit in layer) for layer in cell.pattern]
    return {"pattern": bits} | {key: getattr(cell, key) for key in ("point", "radius", "matrix", "offset")}


def regions_text(result: Mapping[str, Any]) -> str:
    """How many regions, and what the facets say."""
    head = sentences.regions(result["regions"], result["complete"], result["domain"])
    lines = [f"{head} ({result['seconds']:.2f} s, {result['per_second']:,.0f} a second)"]
    if not result["complete"]:
        lines.append("  The time limit ended the count: give --seconds")
    if "facets" in result:
        lines.append(f"  {sentences.facets(result['facets'], result['visible_facets'])}")
        lines.append(f"  {result['ridges']:,} ridges; jumps balance up to {at_most(result['worst_imbalance'], 2)}")
    return "\n".join(lines)


def canonical_json(found: Canonical, before: int | None = None, written: str | None = None) -> dict[str, Any]:
    """The documented keys of `lawful canonical --json`."""
    return {
        "written": written,
        **pick(found, "regime complete"),
        "parameters_before": before,
        **pick(found.network, "parameters_after=parameters widths"),
    }


def canonical_text(result: Mapping[str, Any]) -> str:
    """What the representative is worth."""
    widths = "-".join(map(str, result["widths"]))
    lines = [f"{widths}: {result['regime']}", *_wrap(sentences.canonical(result["complete"]))]
    before = "" if result["parameters_before"] is None else f"{result['parameters_before']:,} parameters became "
    lines.append(f"  {before}{result['parameters_after']:,}" + ("" if before else " parameters"))
    return "\n".join(lines + ([f"  wrote {result['written']}"] if result["written"] else []))


def fingerprint_json(found: FunctionGroups) -> dict[str, Any]:
    """The keys that `lawful fingerprint --json` documents."""
    files = [
        {
            "file": one.name,
            "fingerprint": one.hash or None,
            **pick(one, "regime complete reason"),
        }
        for one in found.fingerprints
    ]
    return {"files": files, "groups": [list(group) for group in found.groups], "distinct": len(found.groups)}


def fingerprint_text(result: Mapping[str, Any]) -> str:
    """One line per network, then the duplicates."""
    marks = {True: " ", False: "~"}
    lines = [
        f"{item['fingerprint'] or 'no hash':32} {marks[item['complete']]} {item['file']}" for item in result["files"]
    ]
    for item in result["files"]:
        if not item["fingerprint"]:
            lines += _wrap(f"{item['file']}: {item['reason']}")
    if any(not item["complete"] and item["fingerprint"] for item in result["files"]):
        lines.append("~ here equal functions may have different hashes")
    copies = [group for group in result["groups"] if len(group) > 1]
    lines.append(sentences.functions(len(result["files"]), result["distinct"]))
    return "\n".join(lines + [line for group in copies for line in _wrap(sentences.one_function(group))])


def complex_figure(polygons: Sequence[Any], lines: Sequence[tuple[int, bool, Any]], domain: Any) -> Figure:
    """Regions in the plane with the bent hyperplanes over them, hidden pieces in grey."""
    regions = [
        Series(corners[:, 1], corners[:, 0], style="polygon", colour=COLOURS[place % len(COLOURS)])
        for place, corners in enumerate(polygons)
        if len(corners) > 2
    ]
    named: set[tuple[int, bool]] = set()
    drawn = []
    for layer, visible, ends in lines:
        label = "" if (layer, visible) in named else f"layer {layer + 1}" + ("" if visible else ", not visible")
        named.add((layer, visible))
        colour = COLOURS[layer % len(COLOURS)] if visible else "#999999"
        drawn.append(Series(ends[:, 1], ends[:, 0], label=label, colour=colour))
    caption = f"{len(regions)} regions and the bent hyperplanes on {domain}"
    return Figure(caption, [Panel([*regions, *drawn], x="x0", y="x1", equal=True)])


MOST_WEIGHTS = 2_000  # of a network that is drawn weight by weight
MOST_OUTPUTS = 8
MOST_TENSORS = 12
SHORT_INPUT = 4
WORDS = {"equal": "one function", "different": "two functions", "rounded": "a rounded copy", "undecided": "undecided"}


def same_page(
    result: Mapping[str, Any],
    words: str,
    names: tuple[str, str],
    verify: str = "lawful verify same.json",
    options: str = "",
    thetas: tuple[Sequence[float], Sequence[float]] | None = None,
) -> str:
    """The page of `lawful same --html`.

    `result` and `words` are its JSON and its text, `verify` the command that re-checks it,
    `options` what reading the networks took, `thetas` their weights where these are scalars.
    """
    both = " ".join(map(shlex.quote, names)) + options
    certified = bool(result["certified"])
    kind: ChipKind = "proved" if certified and result["verdict"] != "undecided" else "open"
    evidence = (f"lawful same {both} --certificate same.json", verify)
    more = "To save the evidence and have an independent checker verify it:" if certified else str(result["reason"])
    opening = Opening(
        file=f"{names[0]} and {names[1]}",
        kind=WORDS[str(result["verdict"])],
        chip=Chip(kind, str(result["verdict"]).capitalize(), f"by {result['method']}", more, evidence * certified),
        stage=_stage(result, thetas),
        actions=_actions(result, both),
    )
    lines = [line.strip() for line in words.splitlines()]
    counterexample = result["counterexample"]
    folded = [Section("What was said", lines)]
    if counterexample is not None and isinstance(counterexample["input"][0], (int, float)):
        rows = [(place, float(value)) for place, value in enumerate(counterexample["input"])]
        folded.append(Section("The input, number by number", [Table(("input", "value"), rows, bars=("value",))]))
    if tensors := result.get("tensors"):
        apart = [(tensor["tensor"], tensor["distance"], tensor["fits"]) for tensor in tensors]
        table = Table(("tensor", "distance after alignment", "fits"), apart, bars=("distance after alignment",))
        folded.append(Section("Tensor by tensor", [table]))
    return render(_headline(result, lines[0], thetas), _lead(result), folded, opening=opening)


def _lead(result: Mapping[str, Any]) -> str:
    """How it was found, and where; an input of a few numbers is said."""
    example, method = result["counterexample"], f"By {result['method']}."
    if example is None:
        reason = f" {str(result['reason'])[:1].upper()}{str(result['reason'])[1:]}." if result["reason"] else ""
        return method + reason
    point = example["input"]
    short = len(point) <= SHORT_INPUT and isinstance(point[0], (int, float))
    where = f"At the input ({', '.join(f'{value:.6g}' for value in point)}), found" if short else "At one input, found"
    return f"{where} by {result['method']}; the outputs there are below."


def _headline(
    result: Mapping[str, Any], first_line: str, thetas: tuple[Sequence[float], Sequence[float]] | None
) -> str:
    """The verdict with its number; what *equal* means is said as the text says it."""
    example = result["counterexample"]
    verdict = first_line.partition(": by ")[0].partition(" (")[0].capitalize().replace("r^", "R^")
    if result["verdict"] == "different" and example is not None and example.get("exact_outputs"):
        gap = max(abs(Fraction(a) - Fraction(b)) for a, b in zip(*example["exact_outputs"], strict=True))
        return f"Different. {says.different(at_least(gap))}."
    if result["verdict"] in ("different", "rounded") and example is not None:
        word = "Different" if result["verdict"] == "different" else "A rounded copy"
        return f"{word}: outputs {example['outputs'][0]:.6g} and {example['outputs'][1]:.6g} at one input."
    if result["verdict"] == "different":
        return f"Different: 0 inputs needed, {result['reason']}."
    if result["verdict"] == "undecided":
        return f"Undecided after {result['seconds']:.3g} seconds: no input tells them apart, no proof that none does."
    if thetas is None:
        return f"{verdict}: {_count_weights(result):,} weights on each side."
    if len(thetas[0]) != len(thetas[1]):
        return f"{len(thetas[0]):,} weights and {len(thetas[1]):,} weights. {verdict}."
    moved = sum(one != two for one, two in zip(*thetas, strict=True))
    return f"{verdict}, though {moved:,} of {len(thetas[0]):,} weights differ as stored."


def _count_weights(result: Mapping[str, Any]) -> int:
    """Weights of the first network, as it was read."""
    return sum(math.prod(layer["shape"]) for layer in result["readings"][0]["layers"])


def _stage(result: Mapping[str, Any], thetas: tuple[Sequence[float], Sequence[float]] | None) -> Block:
    """The outputs where they differ; else the weights of both, one above the other; else what was compared."""
    example = result["counterexample"]
    if example is not None:
        many = isinstance(example["outputs"][0], (list, tuple))  # one number each is the output that differs most
        sides = example["outputs"] if many else [[value] for value in example["outputs"]]
        rows = [(str(place), float(one), float(two)) for place, (one, two) in enumerate(zip(*sides, strict=True))]
        rows.sort(key=lambda row: -abs(row[1] - row[2]))
        shown = sorted(rows[:MOST_OUTPUTS], key=lambda row: int(row[0]))
        rest = f", the {MOST_OUTPUTS} that differ most of {len(rows):,}" if len(rows) > MOST_OUTPUTS else ""
        note = f"outputs at the input that tells them apart{rest}" if many else "the output that differs most"
        return Picture("versus", {"rows": shown, "names": ["A", "B"], "note": note}, note)
    if thetas is not None and max(map(len, thetas)) <= MOST_WEIGHTS:
        sides = [{"name": name, "weights": list(map(float, side))} for name, side in zip("AB", thetas, strict=True)]
        label = "all weights of the first network above those of the second"
        return Picture("weights", {"sides": sides}, label)
    sizes = [(layer["name"], float(math.prod(layer["shape"]))) for layer in result["readings"][0]["layers"]]
    largest = sorted(sizes, key=lambda row: -row[1])[:MOST_TENSORS]
    note = f"numbers of the {len(largest)} largest tensors, all of them compared"
    return Picture("bars", {"rows": largest, "note": note}, note)


def _actions(result: Mapping[str, Any], both: str) -> list[Action]:
    prove = Action(
        "Save the proof", "A file that an independent checker verifies.", f"lawful same {both} --certificate same.json"
    )
    compare = Action("See what changed", "Tensor by tensor, after alignment.", f"lawful diff {both} --html diff.html")
    if result["verdict"] == "undecided":
        longer = Action("Look longer", "Ten minutes instead of one.", f"lawful same {both} --seconds 600")
        return [longer, compare]
    return [prove, compare] if result["certified"] else [compare]
