"""Laws of a network as a page: the count, the laws, and pictures of those that have no formula."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lawful.report.page.charts import level_sets as level_figure
from lawful.report.page.page import Action, Chip, Opening, Picture, Section, Table, render
from lawful.report.structure.laws import text

if TYPE_CHECKING:
    from lawful.conservation import LawCount
    from lawful.conservation.known.level_sets import LevelSets

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
        Section("In short", list(count.summary()) or ["No law is explicit."]),
    ]
    if pictures:
        sections.append(Section("Laws without a formula", [level_figure(found) for found in pictures]))
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
