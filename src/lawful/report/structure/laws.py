"""A count of laws, as text for people."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lawful.outward import at_most
from lawful.report.page.charts import level_sets as level_figure
from lawful.report.page.page import Action, Chip, Opening, Picture, Section, Table, render
from lawful.report.plain import pick
from lawful.sentences import laws as sentences

if TYPE_CHECKING:
    from lawful.conservation import LawCount
    from lawful.conservation.known.flow_box import LevelSets
    from lawful.conservation.known.logarithmic import LogarithmicLaws
    from lawful.conservation.known.polynomial import PolynomialLaws
    from lawful.conservation.near_random_weights import TrainingLaws
    from lawful.conservation.reduction import NetworkReduction
    from lawful.conservation.wording import ModuleWording, Wording

LEVELS = {
    "phi": "any weights, any data",
    "near": "near these weights, any data",
    "data": "near these weights, these inputs, any labels",
}
MODES = {
    "eval": "eval: batch norms use their stored statistics, dropout is off",
    "train": "train: as training runs it, batch statistics and dropout included (--mode eval: neither)",
}
LOSSES = {"full": "any (full span: squared error, logistic, ...)", "cross-entropy": "cross-entropy"}


def count_json(count: LawCount, training: TrainingLaws | None = None) -> dict[str, Any]:
    """The documented keys of `lawful laws --json`."""
    return {
        **pick(count, "laws parameters states dimensions status known=independent arithmetic gap level"),
        "flow": str(count.flow),
        **pick(count, "loss reason mode error"),
        "theorem": count.theorem or None,
        "claim": "somewhere" if training is not None and training.witness is not None else count.claim,
        "near": None if training is None else training_json(training),
    }


def count_text(count: LawCount) -> str:
    """A count for people."""
    return text(count_json(count), count.summary())


def text(result: Mapping[str, Any], summary: Sequence[str]) -> str:
    """The answer first, then the numbers behind it, then the laws."""
    count = result["laws"]
    noun = "law" if count == 1 else "laws"
    dimensions = " → ".join(str(size) for size in result["dimensions"])
    rows = [
        ("parameters", f"{result['parameters']:,}"),
        ("dimensions reached", dimensions),
        ("explicit laws", f"{result['known']:,} independent"),
        ("valid for", LEVELS[result["level"]]),
        ("loss", LOSSES[result["loss"]]),
        ("flow", result["flow"]),
        ("arithmetic", _arithmetic(result)),
        ("status", result["status"]),
    ]
    if result.get("mode") is not None:
        rows.insert(6, ("mode", MODES[result["mode"]]))
    noun = noun if result["status"] != "at least" else noun + " at least"
    head = f"{count:,} independent conservation {noun}" if result["status"] != "undecided" else "undecided"
    lines = [head, "", *(f"  {name:20}{value}" for name, value in rows)]
    if summary:
        lines += ["", "Conserved:", *(f"  {line}" for line in summary)]
    lines += ["", *_closing(result)]
    return "\n".join(lines)


def _arithmetic(result: Mapping[str, Any]) -> str:
    if result["arithmetic"] == "exact":
        return "exact, modulo a prime"
    if result["arithmetic"] == "theorem":
        return f"none: {result['theorem']}"
    if result["arithmetic"] == "graph":
        return "none: read from the graph"
    if result["arithmetic"] == "balls":
        return "float64, then balls that prove the rank"
    gap = result["gap"]
    return "float64" if gap is None else f"float64, smallest singular-value gap {gap:.2g}"


def _closing(result: Mapping[str, Any]) -> list[str]:
    match result["status"]:
        case "proved":
            words = _proof_words(result)
        case "numerical" if result["arithmetic"] == "exact":
            words = f"Not proved: {result['reason']}."
            if result["error"] is not None:
                words += f" The count is too large with probability at most {at_most(result['error'], 1)}."
        case "at least":
            words = f"At least so many: {result['reason']}."
        case "numerical":
            words = f"Counted in floating point: {result['known']} of these laws are explicit, nothing is proved"
            words += f" ({result['reason']})." if result["reason"] else "."
        case _:
            words = f"Undecided: {result['reason']}."
    return textwrap.wrap(words, 80) + _near(result)


def _proof_words(result: Mapping[str, Any]) -> str:
    """What is proved, and about what: φ, these weights, or some weights."""
    if result["theorem"]:
        return sentences.by_theorem(result["theorem"], result["claim"] == "phi")
    match result["claim"]:
        case "near":
            return sentences.complete() if result["level"] == "phi" else sentences.complete_near()
        case "somewhere":
            return sentences.complete_beside() if result["level"] == "data" else sentences.complete_somewhere()
    return sentences.complete_of_phi()


def _near(result: Mapping[str, Any]) -> list[str]:
    """How many laws training has near random weights, if that was counted."""
    near = result.get("near")
    if near is None:
        return []
    total = near["weights"]
    counts = sorted((int(laws), count) for laws, count in near["counts"].items())
    if len(counts) == 1 and counts[0][0] == result["laws"]:
        words = f"So it is near {'each of ' if total > 1 else ''}{total} random weight vector{'s' * (total > 1)}."
    else:
        listed = ", ".join(f"{laws} near {count} of {total}" for laws, count in counts)
        words = f"Laws of training near random weights: {listed}."
    if near["least"] is not None and near["least"] > result["laws"]:
        words += f" {sentences.at_least_everywhere(near['least'])}"
        if near["always"] is not None:
            words += f" At most {near['always'][1]} were counted, in all sets of activation patterns that can occur."
    elif near["always"] is not None and near["always"][0] > result["laws"]:
        words += (
            f" Near every weight vector there are more laws than those of φ: {near['always'][0]} "
            f"to {near['always'][1]} (ranks modulo a prime, not proved), since inputs of one sign share their pattern."
        )
    elif result["claim"] == "phi" and result["status"] == "proved":
        words += f" Of {near['tried']} weight vectors that were tried none has exactly the {result['laws']} laws of φ."
    return ["", *textwrap.wrap(words, 80)]


def listed_laws(count: LawCount) -> list[dict[str, Any]]:
    """Every explicit law: its kind, its words, and its polynomial as pairs of weight numbers and a coefficient."""
    from lawful.conservation.wording import ModuleWording, Wording

    wording = Wording(count.dag) if count.dag is not None else ModuleWording(count.places) if count.places else None
    return [
        {
            "kind": law.kind,
            "words": None if wording is None else wording.law(law),
            "terms": [[list(edges), str(factor)] for edges, factor in law.terms.items()],
            **pick(law, "exponent degree"),
        }
        for law in count.known
    ]


def logarithmic_json(found: LogarithmicLaws) -> dict[str, Any]:
    """The documented keys under `logarithmic`."""
    wording = _names(found)
    return {
        **pick(found, "degree independent polynomial"),
        "laws": [
            {
                "words": law.words(wording),
                "logarithms": [[i, j, sign, str(factor)] for (i, j, sign), factor in law.logarithms.items()],
                "terms": [[list(edges), str(factor)] for edges, factor in law.terms.items()],
            }
            for law in found.laws
        ],
    }


def _names(found: LogarithmicLaws) -> Wording | ModuleWording:
    from lawful.conservation.wording import ModuleWording, Wording

    return ModuleWording(found.places) if found.dag is None else Wording(found.dag)


def logarithmic_text(found: LogarithmicLaws) -> str:
    """What logarithms add to the polynomials."""
    wording = _names(found)
    head = (
        f"Laws Σ c·log|p| + polynomial of degree at most {found.degree}: {found.independent} independent, "
        f"{found.independent - found.polynomial} beyond polynomials"
    )
    return "\n".join([head, *(f"  {law.words(wording)}" for law in found.laws)])


def level_sets_json(found: LevelSets) -> dict[str, Any]:
    """A law on a grid, and its level sets as chains of points."""
    return {
        "weights": list(found.names[:2]), "law": found.names[2], "level": found.level, "error": found.error,
        "x": found.x.tolist(), "y": found.y.tolist(), "values": found.values.tolist(),
        "lines": [{"value": value, "x": x.tolist(), "y": y.tolist()} for value, x, y in found.lines],
    }  # fmt: skip


def level_sets_text(found: LevelSets) -> str:
    """What the picture shows."""
    first, second, law = found.names
    return (
        f"{len(found.lines)} level lines of {law} at level {found.level:.4g}, in the plane of {first} and {second} "
        f"(off by at most {at_most(found.error, 1)})"
    )


def training_json(found: TrainingLaws) -> dict[str, Any]:
    """The documented keys under `near`."""
    return {
        "weights": sum(found.near.values()),
        "counts": {str(laws): count for laws, count in sorted(found.near.items())},
        "shares": {str(laws): share for laws, share in sorted(found.shares.items())},
        "tried": found.tried,
        "witness": None if found.witness is None or found.witness.dag is None else found.witness.dag.theta.tolist(),
        "always": None if found.always is None else list(found.always),
        "least": found.least,
    }


def reduction_json(found: NetworkReduction) -> dict[str, Any]:
    """The documented keys of `lawful laws --reduction --json`."""
    return {
        **pick(found, "involutive dimension with_brackets coordinates=names theta z metric rank"),
        "closed_form": found.closed_form is not None,
        **pick(found, "closed_form_error=error reason"),
    }


def reduction_text(found: NetworkReduction) -> str:
    """Whether z = φ(θ) moves by itself, and what its metric looks like at the start."""
    lines = ["Riemannian reduction of z = φ(θ):"]
    if not found.involutive:
        return "\n".join([*lines, *_wrap(f"None: {found.reason}.")])
    lines += _wrap(f"z' = −M(z, θ_init)∇f(z): V has dimension {found.dimension} and is closed under brackets.")
    if found.metric is None:
        return "\n".join([*lines, *_wrap(f"M is not computed: {found.reason}.")])
    lines += _wrap(
        f"M at these weights: {len(found.metric)}×{len(found.metric)}, rank {found.rank}, "
        f"nonzero eigenvalues from {found.eigenvalues[-1]:.4g} to {found.eigenvalues[0]:.4g}."
    )
    if found.closed_form is None:
        return "\n".join([*lines, *_wrap("No closed form is known for this network; M = ∂φ ∂φᵀ.")])
    form = "M[G] = ZZᵀG/‖v‖² + GZᵀZ/‖u‖² for each neuron's Z = uvᵀ, from Z and (‖u‖² − ‖v‖²)/2 alone"
    return "\n".join([*lines, *_wrap(f"Closed form: {form}; off by {found.error:.1g}.")])


def _wrap(words: str) -> list[str]:
    return textwrap.wrap(words, 80, initial_indent="  ", subsequent_indent="  ")


def polynomials_json(found: PolynomialLaws) -> dict[str, Any]:
    """Polynomial laws as JSON."""
    wording = _wording_of(found)
    return {
        "degree": found.degree,
        "count": len(found),
        "independent": found.independent,
        "laws": [wording.law(law) for law in found.laws],
        "expressions": [wording.expression(law) for law in found.laws],
        "latex": [wording.latex(law) for law in found.laws],
        **pick(found, "monomials blocks"),
    }


def polynomials_text(found: PolynomialLaws, latex: bool = False) -> str:
    """Polynomial laws for people, in words or as LaTeX."""
    wording = _wording_of(found)
    head = f"Polynomial laws of degree at most {found.degree}: {len(found)}, {found.independent} independent"
    lines = [wording.latex(law) for law in found.laws] if latex else wording.summary(found.laws)
    return "\n".join([head, *(f"  {line}" for line in lines)])


def _wording_of(found: PolynomialLaws) -> Wording | ModuleWording:
    """The names of the weights that polynomials speak of."""
    from lawful.conservation.wording import ModuleWording, Wording

    return ModuleWording(found.places) if found.dag is None else Wording(found.dag)


# The page


LISTED = 500


def laws_page(
    count: LawCount,
    result: dict[str, Any],
    listed: Sequence[dict[str, Any]],
    pictures: Sequence[LevelSets],
    source: str,
    asked: str = "",
) -> str:
    """The page of `lawful laws --html`."""
    noun = "law" if count.laws == 1 else "laws"
    asked = asked or shlex.quote(source)
    headline = f"{count.laws:,} independent conservation {noun}"
    lead = f"{count.laws:,} independent conservation {noun} of {count.parameters:,} parameters: {count.status}."
    commands = (f"lawful laws {asked} --certificate laws.json", "lawful verify laws.json")
    if count.proved:
        chip = Chip("proved", "Proved", "", "To save the evidence and have an independent checker verify it:", commands)
    else:
        chip = Chip("open", count.status.capitalize(), "that there are no others is not proved", "", commands[:1])
    opening = Opening(
        file=source,
        kind=f"{count.parameters:,} weights",
        chip=chip,
        stage=_split(count),
        actions=[Action("See what else is known of it", "What can go, what is locked, what to do.",
                        f"lawful audit {asked} --html audit.html")],
    )  # fmt: skip
    paragraphs = [part for part in text(result, []).split("\n\n")[2:] if part]
    sections = [
        Section("How sure", paragraphs),
        Section("In short", list(count.summary()) or ["No law is explicit."], open=True),
    ]
    if pictures:
        sections.append(Section("Laws without a formula", [level_figure(picture) for picture in pictures]))
    rows = [(law["words"] or "", law["kind"], len(law["terms"])) for law in listed[:LISTED]]
    if rows:
        caption = f"The first {LISTED} of {len(listed):,}; --out has all." if len(listed) > LISTED else ""
        sections.append(Section("One by one", [Table(("law", "kind", "terms"), rows, caption)]))
    return render(headline, lead, sections, opening=opening)


def _split(count: LawCount) -> Picture:
    """The directions of the weights that training reaches, and those that its laws take away."""
    rows = [
        ("conserved quantities", float(count.laws)),
        ("directions left to training", float(count.states - count.laws)),
    ]
    return Picture("bars", {"rows": rows, "note": ""}, "conserved quantities beside the directions left to training")
