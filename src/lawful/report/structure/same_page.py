"""Two networks as a page: one function or two, the input that tells them apart, the weights of both."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from lawful.outward import at_least
from lawful.report.page.page import Action, Block, Chip, ChipKind, Opening, Picture, Section, Table, render
from lawful.sentences import fibers as says

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
        apart = [(each["tensor"], each["distance"], each["fits"]) for each in tensors]
        table = Table(("tensor", "distance after alignment", "fits"), apart, bars=("distance after alignment",))
        folded.append(Section("Tensor by tensor", [table]))
    return render(_headline(result, lines[0], thetas), _lead(result), folded, opening=opening)


def _lead(result: Mapping[str, Any]) -> str:
    """How it was found, and where; an input of a few numbers is said."""
    found, method = result["counterexample"], f"By {result['method']}."
    if found is None:
        reason = f" {str(result['reason'])[:1].upper()}{str(result['reason'])[1:]}." if result["reason"] else ""
        return method + reason
    point = found["input"]
    short = len(point) <= SHORT_INPUT and isinstance(point[0], (int, float))
    where = f"At the input ({', '.join(f'{value:.6g}' for value in point)}), found" if short else "At one input, found"
    return f"{where} by {result['method']}; the outputs there are below."


def _headline(
    result: Mapping[str, Any], first_line: str, thetas: tuple[Sequence[float], Sequence[float]] | None
) -> str:
    """The verdict with its number; what *equal* means is said as the text says it."""
    found = result["counterexample"]
    verdict = first_line.partition(": by ")[0].partition(" (")[0].capitalize().replace("r^", "R^")
    if result["verdict"] == "different" and found is not None and found.get("exact_outputs"):
        gap = max(abs(Fraction(a) - Fraction(b)) for a, b in zip(*found["exact_outputs"], strict=True))
        return f"Different. {says.different(at_least(gap))}."
    if result["verdict"] in ("different", "rounded") and found is not None:
        word = "Different" if result["verdict"] == "different" else "A rounded copy"
        return f"{word}: outputs {found['outputs'][0]:.6g} and {found['outputs'][1]:.6g} at one input."
    if result["verdict"] == "different":
        return f"Different: 0 inputs needed, {result['reason']}."
    if result["verdict"] == "undecided":
        return f"Undecided after {result['seconds']:.3g} seconds: no input tells them apart, no proof that none does."
    if thetas is None:
        return f"{verdict}: {_numbers(result):,} weights on each side."
    if len(thetas[0]) != len(thetas[1]):
        return f"{len(thetas[0]):,} weights and {len(thetas[1]):,} weights. {verdict}."
    moved = sum(one != two for one, two in zip(*thetas, strict=True))
    return f"{moved:,} of {len(thetas[0]):,} weights differ. {verdict}."


def _numbers(result: Mapping[str, Any]) -> int:
    """Weights of the first network, as it was read."""
    return sum(math.prod(layer["shape"]) for layer in result["readings"][0]["layers"])


def _stage(result: Mapping[str, Any], thetas: tuple[Sequence[float], Sequence[float]] | None) -> Block:
    """The outputs where they differ; else the weights of both, one above the other; else what was compared."""
    found = result["counterexample"]
    if found is not None:
        many = isinstance(found["outputs"][0], (list, tuple))  # one number each is the output that differs most
        sides = found["outputs"] if many else [[value] for value in found["outputs"]]
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
    sizes = [(each["name"], float(math.prod(each["shape"]))) for each in result["readings"][0]["layers"]]
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
