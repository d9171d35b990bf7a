"""Laws of a network as a page: the count, the laws, and pictures of those that have no formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lawful.report.page.charts import laws as dimensions_figure
from lawful.report.page.charts import level_sets as level_figure
from lawful.report.page.page import Section, Table, render
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
) -> str:
    """The page of `lawful laws --html`."""
    noun = "law" if count.laws == 1 else "laws"
    lead = f"{count.laws:,} independent conservation {noun} of {count.parameters:,} parameters: {count.status}."
    paragraphs = [part for part in text(result, []).split("\n\n")[2:] if part]
    sections = [
        Section("How sure", [*paragraphs, dimensions_figure(count)]),
        Section("In short", list(count.summary()) or ["No law is explicit."]),
    ]
    if pictures:
        sections.append(Section("Laws without a formula", [level_figure(found) for found in pictures]))
    rows = [(law["words"] or "", law["kind"], len(law["terms"])) for law in listed[:LISTED]]
    if rows:
        caption = f"The first {LISTED} of {len(listed):,}; --out has all." if len(listed) > LISTED else ""
        sections.append(Section("One by one", [Table(("law", "kind", "terms"), rows, caption)]))
    return render(f"Laws of {source}", lead, sections)
