"""Answers about fibers as JSON and text; computes nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lawful.fibers.layers import quotient
from lawful.fibers.verdict import Different, Equal, Verdict, certified, witness_json
from lawful.figure import COLOURS, Figure, Panel, Series
from lawful.outward import at_least, at_most
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
        found = verdict.counterexample
        counterexample = {
            "input": found.point.tolist(),
            "exact_input": None if found.exact is None else [str(value) for value in found.exact],
            "outputs": [[quotient(*value.as_integer_ratio()) for value in values] for values in found.outputs],
            "exact_outputs": [[str(value) for value in values] for values in found.outputs],
            "gap": quotient(*found.gap.as_integer_ratio()),
            "allowed": quotient(*found.allowed.as_integer_ratio()),
        }
    return {
        "verdict": verdict.verdict,
        "within": asdict(verdict.within) if isinstance(verdict, Equal) else None,
        "method": verdict.method,
        "reason": getattr(verdict, "reason", None),
        "domain": None if verdict.domain is None else str(verdict.domain),
        "witness": witness,
        "counterexample": counterexample,
        "certified": certified(verdict),
        "tolerance": verdict.tolerance,
        "seconds": round(verdict.seconds, 4),
    }


def verdict_text(result: Mapping[str, Any]) -> str:
    """The answer of `same` for people: verdict first, then the evidence."""
    lines = [f"{_answer(result)}: by {result['method']} ({result['seconds']:.2f} s)"]
    if result["witness"] is not None:
        lines += _witness_lines(result["witness"])
    if result["counterexample"] is not None:
        found = result["counterexample"]
        excused = f"; rounded weights would explain {found['allowed']:.1e}" if result["tolerance"] else ""
        lines += [
            f"  input    {_fractions(found['exact_input']) if found['exact_input'] else _numbers(found['input'])}",
            f"  A gives  {_numbers(found['outputs'][0])}",
            f"  B gives  {_numbers(found['outputs'][1])}",
            f"  {sentences.different(at_least(_gap(found)))}{excused}.",
        ]
    elif result["reason"]:
        lines += _wrapped(result["reason"] + ".")
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


def _wrapped(text: str) -> list[str]:
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
    found: dict[str, Any] = {"kind": summary.kind}
    if summary.domain is not None:
        found["domain"] = str(summary.domain)
    found["removed"] = summary.removed
    if summary.domain is None:
        found |= {"hidden": summary.hidden, "lowest_shift": summary.lowest_shift, "flips": summary.flips}
    found |= {
        key: getattr(summary, key) for key in ("dimension", "case", "linear", "components", "checked", "nonempty")
    }
    if summary.roles is not None:
        found["roles"] = asdict(summary.roles)
    found |= {
        key: getattr(summary, key)
        for key in ("at_least", "at_most", "generic", "layers", "log10_orders", "unknown", "count", "also")
    }
    found["freedoms"] = [asdict(freedom) for freedom in summary.freedoms]
    return found | ({} if samples is None else {"samples": list(samples)})


def fiber_text(result: Mapping[str, Any]) -> str:
    """The fiber of one function for people."""
    lines = [f"{result['kind']}: {_freedom_text(result)}"]
    if result["removed"]:
        were = "1 redundant neuron was" if result["removed"] == 1 else f"{result['removed']} redundant neurons were"
        rest = "" if result["dimension"] is None else f": {result['dimension']} of the freedoms are left without"
        lines.append(f"  {were} removed first{rest}")
    if result.get("hidden") is not None:
        lines += _wrapped(sentences.hidden_shift(result["hidden"], at_most(result["lowest_shift"], 6)))
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
        lines += _wrapped(f"{many}{': also' if result['components'] > 2 else ''} {result['also']}.")
    if (result["count"] or 0) > 1:
        lines += _wrapped(f"{sentences.twins(result['count'] - 1, True).capitalize()}.")
    for freedom in result["freedoms"][:MOST_FREEDOMS]:
        lines += _wrapped(f"Layer {freedom['layer']}: {freedom['what']} ({freedom['dimension']} more).")
    if len(result["freedoms"]) > MOST_FREEDOMS:
        lines.append(f"  and {len(result['freedoms']) - MOST_FREEDOMS} more ways to move")
    if result["components"] is None and result["layers"]:
        known = sentences.layer_statuses(result["layers"])
        lines += _wrapped(f"Known of the weights: {known}; neurons can be in {_many(result['log10_orders'])} orders.")
    if result["unknown"]:
        lines += _wrapped(f"Open: {result['unknown']}.")
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
        "identifiable": found.identifiable,
        "reasons": found.reasons,
        "generic": found.genericity.holds,
        "generic_reason": found.genericity.reason,
        "tested": found.genericity.tested,
        "layers": found.layers,
        "among": found.among,
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
        lines += _wrapped(f"{sentences.twins(len(result['twins']), exactly).capitalize()} (written out in the JSON).")
    if result["identifiable"] is None and result["layers"]:
        lines += _wrapped(f"Known of the weights: {sentences.layer_statuses(result['layers'])}.")
    if result["generic"] is not None:
        words = "Generic" if result["generic"] else "Not generic"
        lines += _wrapped(f"{words} ({result['tested']}): {result['generic_reason']}.")
    return "\n".join(lines)


def regions_json(count: RegionCount) -> dict[str, Any]:
    """The keys that `lawful regions --json` documents."""
    found: dict[str, Any] = {
        "regions": count.regions,
        "complete": count.complete,
        "domain": str(count.domain),
        "seconds": round(count.seconds, 4),
        "per_second": round(count.regions / max(count.seconds, 1e-9), 1),
    }
    if count.facets is not None:
        found |= {
            "facets": count.facets.facets,
            "visible_facets": count.facets.visible,
            "ridges": count.facets.ridges,
            "worst_imbalance": count.facets.worst_imbalance,
        }
    return found | ({} if count.each is None else {"each": [_cell_json(cell) for cell in count.each]})


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
        "regime": found.regime,
        "complete": found.complete,
        "parameters_before": before,
        "parameters_after": found.network.parameters,
        "widths": found.network.widths,
    }


def canonical_text(result: Mapping[str, Any]) -> str:
    """What the representative is worth."""
    widths = "-".join(map(str, result["widths"]))
    lines = [f"{widths}: {result['regime']}", *_wrapped(sentences.canonical(result["complete"]))]
    before = "" if result["parameters_before"] is None else f"{result['parameters_before']:,} parameters became "
    lines.append(f"  {before}{result['parameters_after']:,}" + ("" if before else " parameters"))
    return "\n".join(lines + ([f"  wrote {result['written']}"] if result["written"] else []))


def fingerprint_json(found: FunctionGroups) -> dict[str, Any]:
    """The keys that `lawful fingerprint --json` documents."""
    files = [
        {
            "file": one.name,
            "fingerprint": one.hash or None,
            "regime": one.regime,
            "complete": one.complete,
            "reason": one.reason,
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
            lines += _wrapped(f"{item['file']}: {item['reason']}")
    if any(not item["complete"] and item["fingerprint"] for item in result["files"]):
        lines.append("~ here equal functions may have different hashes")
    copies = [group for group in result["groups"] if len(group) > 1]
    lines.append(sentences.functions(len(result["files"]), result["distinct"]))
    return "\n".join(lines + [line for group in copies for line in _wrapped(sentences.one_function(group))])


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
