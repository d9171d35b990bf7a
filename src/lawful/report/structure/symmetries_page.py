"""Symmetries of a module as a page: spaces that repeat from block to block are one row, the largest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lawful.figure import Figure, Panel, Series
from lawful.report.page.charts import laws_by_group
from lawful.report.page.page import Block, Section, Table, render
from lawful.report.structure.symmetries import check_words
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.symmetry.result import Space, Symmetries

LISTED = 200  # spaces that are listed one by one
ACTED = 4  # parameters that a row names


def symmetries_page(found: Symmetries, source: str) -> str:
    """The page of `lawful symmetries --html`."""
    laws = f"{len(found.laws):,} conservation laws from the symmetries of {found.parameters:,} parameters."
    lead = f"{laws} {says.group(found.dimension, found.log10_discrete)}"
    sections = [
        Section("Spaces", space_blocks(found.spaces)),
        Section("Evidence", [f"Checked: {check_words(found)}.", f"Read: {found.noted}."]),
        *waste_sections(found),
    ]
    single = [
        (space.name, space.group, space.size, space.count, ", ".join(space.roles)) for space in found.spaces[:LISTED]
    ]
    caption = f"The first {LISTED} of {len(found.spaces):,}; --json has all." if len(found.spaces) > LISTED else ""
    each = Table(("space", "group", "size", "laws", "acts on"), single, caption, bars=("laws",))
    return render(f"Symmetries of {source}", lead, [*sections, Section("One by one", [each])])


def space_blocks(spaces: Sequence[Space]) -> list[Block]:
    """Laws by group, then a row for each kind of space: where it lives (* is the number of a block), how often."""
    if not spaces:
        return ["No hidden space with a symmetry was found."]
    kinds: dict[tuple[str, str, int], list[Space]] = {}
    for space in spaces:
        kinds.setdefault((_pattern(space), space.group, space.size), []).append(space)
    rows = [
        (where, group, size, len(alike), alike[0].count, sum(space.count for space in alike))
        for (where, group, size), alike in kinds.items()
    ]
    rows.sort(key=lambda row: -row[-1])
    caption = "Kinds of space, those with most laws first; * stands for the number of a block."
    columns = ("acts on", "group", "size", "spaces", "laws each", "laws in all")
    return [_figure(spaces), Table(columns, rows, caption, bars=("laws in all",))]


def waste_sections(found: Symmetries) -> list[Section]:
    """Dead parameters, and what was not understood."""
    sections = []
    if found.dead:
        rows = [
            (
                part.parameter,
                part.entries,
                part.of,
                "never read, or detached" if part.unused else "no loss sees them",
            )
            for part in sorted(found.dead, key=lambda part: -part.entries)
        ]
        sections.append(
            Section("Dead parameters", [Table(("parameter", "entries", "of", "why"), rows, bars=("entries",))])
        )
    if found.pinned:
        pinned = [(part.operation, part.calls, part.share, ", ".join(part.parameters[:5])) for part in found.pinned]
        words = "The spaces that these operations touch were taken to have no symmetry: there may be more laws."
        sections.append(
            Section("Not understood", [words, Table(("operation", "calls", "share", "parameters"), pinned)])
        )
    return sections


def in_any_block(name: str) -> str:
    """The name of a parameter, with * for the number of its block."""
    return re.sub(r"\.\d+\.", ".*.", name, count=1)


def _pattern(space: Space) -> str:
    names = list(dict.fromkeys(map(in_any_block, space.parameters)))
    return ", ".join(names[:ACTED]) + (f", and {len(names) - ACTED} more" if len(names) > ACTED else "")


def _block(space: Space) -> int | None:
    """The number of the block in which all its parameters live."""
    numbers = {found[1] if (found := re.search(r"\.(\d+)\.", name)) else None for name in space.parameters}
    number = numbers.pop() if len(numbers) == 1 else None
    return None if number is None else int(number)


def _figure(spaces: Sequence[Space]) -> Figure:
    """Laws by group, and where there are blocks, over depth."""
    figure = laws_by_group(spaces)
    counts: dict[str, dict[int, int]] = {}
    for space in spaces:
        if (block := _block(space)) is not None and space.count:
            of_group = counts.setdefault(space.group, {})
            of_group[block] = of_group.get(block, 0) + space.count
    if not counts:
        return figure
    series = [
        Series([per[block] for block in sorted(per)], sorted(per), group, "points") for group, per in counts.items()
    ]
    depth = Panel(series, "laws over depth", "block", "laws", log_y=True)
    return Figure("Conservation laws by the group that they come from, in all and block by block.",
                  [*figure.panels, depth])  # fmt: skip
