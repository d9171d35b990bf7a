"""Symmetries of a network as text and JSON."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lawful.report.page.page import Action, Block, Chip, Opening, Section, Table, render
from lawful.report.structure.block_rows import block_rows
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.symmetry.result import Space, Symmetries

MOST = 40  # lines of a table


def symmetries_json(found: Symmetries) -> dict[str, Any]:
    """The documented keys of `lawful symmetries --json`."""
    return {
        "spaces": [
            {
                "name": space.name,
                "size": space.size,
                "group": space.group,
                "laws": space.count,
                "parameters": list(space.parameters),
                "roles": list(space.roles),
            }
            for space in found.spaces
        ],
        "laws": len(found.laws),
        "dead": {
            "count": sum(part.entries for part in found.dead),
            "parameters": [
                {"name": part.parameter, "entries": part.entries, "of": part.of, "unused": part.unused}
                for part in found.dead
            ],
        },
        "dimension": found.dimension,
        "log10_discrete": found.log10_discrete,
        "pinned": [
            {"operation": each.operation, "calls": each.calls, "share": each.share, "parameters": list(each.parameters)}
            for each in found.pinned
        ],
        "mode": found.mode,
        "noted": found.noted,
        "parameters": found.parameters,
        "checked": None
        if found.checked is None
        else {"points": found.checked.points, "worst": found.checked.worst, "tolerance": found.checked.tolerance},
    }


def symmetries_text(found: Symmetries) -> str:
    """The answer first, then the spaces, then what is dead or was not understood."""
    noun = "law" if len(found.laws) == 1 else "laws"
    lines = [
        f"{len(found.laws):,} conservation {noun} from the symmetries of {found.parameters:,} parameters",
        "",
        f"  {'continuous group':20}dimension {found.dimension:,}",
        f"  {'permutations':20}{says.orders(found.log10_discrete)} at least",
        f"  {'read':20}{found.noted}",
        f"  {'checked':20}{check_words(found)}",
    ]
    if found.spaces:
        lines += ["", f"  {'laws':>10}  {'group':16}acts on"]
        lines += [_line(space) for space in found.spaces[:MOST]]
        if len(found.spaces) > MOST:
            rest = sum(space.count for space in found.spaces[MOST:])
            lines.append(f"  {rest:>10,}  and {len(found.spaces) - MOST:,} more spaces (--json lists them all)")
    for part in found.dead[:MOST]:
        why = "never read, or detached" if part.unused else "no loss sees them"
        lines.append(f"  dead: {part.entries:,} of {part.of:,} entries of {part.parameter} ({why})")
    if len(found.dead) > MOST:
        lines.append(f"  dead: {sum(part.entries for part in found.dead[MOST:]):,} more entries")
    for each in found.pinned:
        lines.append(
            f"  not understood: {each.operation}, {each.calls} calls, touches {each.share:.1%} of the parameters"
        )
    return "\n".join(lines)


def _line(space: Space) -> str:
    roles = textwrap.shorten(", ".join(space.roles), 90, placeholder=" ...")
    group = f"{space.size:,} {space.group}" if space.group in ("scales", "shifts") else space.group
    return f"  {space.count:>10,}  {group:16}{roles}"


def check_words(found: Symmetries) -> str:
    """Whether and how the generators were held against gradients."""
    if found.checked is None:
        return "no (the module has no weights here, or too many; --check does it)"
    return says.checked(found.checked.points, found.checked.worst)


# The page


LISTED = 200  # spaces that are listed one by one
ACTED = 4  # parameters that a row names


def symmetries_page(found: Symmetries, source: str, asked: str = "") -> str:
    """The page of `lawful symmetries --html`; `asked` is how a command names the network."""
    laws = len(found.laws)
    noun = "quantity is" if laws == 1 else "quantities are"
    headline = f"At least {laws:,} {noun} conserved." if laws else "0 conservation laws were found."
    asked = asked or shlex.quote(source)
    opening = Opening(
        file=source,
        kind=f"{found.parameters:,} trained weights, {found.mode} mode",
        chip=_chip(found, asked),
        stage=block_rows(found),
        actions=[
            Action("Rescale it to equal norms", "The function stays; weights that share a scale get equal norms.",
                   f"lawful rebalance {asked} --balance zero --out balanced.safetensors"),
            Action("See what can go", "Everything known of it on one page, with what to do.",
                   f"lawful audit {asked} --html audit.html"),
        ],
    )  # fmt: skip
    lead = f"{says.conserved(laws, found.parameters, found.mode)} {says.group(found.dimension, found.log10_discrete)}"
    sections = [Section("Spaces", space_blocks(found.spaces)), *waste_sections(found)]
    single = [
        (space.name, space.group, space.size, space.count, ", ".join(space.roles)) for space in found.spaces[:LISTED]
    ]
    caption = f"The first {LISTED} of {len(found.spaces):,}; --json has all." if len(found.spaces) > LISTED else ""
    each = Table(("space", "group", "size", "laws", "acts on"), single, caption, bars=("laws",))
    if single:
        sections.append(Section("One by one", [each]))
    return render(headline, lead, sections, opening=opening)


def _chip(found: Symmetries, asked: str) -> Chip:
    if found.checked is None:
        more = "Read from the graph and not held against gradients. To do it:"
        return Chip("open", "Not checked", check_words(found), more, (f"lawful symmetries {asked} --check",))
    more = f"Read: {found.noted}. Derivatives along each generator, in float64: measured, no proof."
    return Chip("here", f"Checked: {check_words(found)}", "", more, (f"lawful symmetries {asked}",))


def space_blocks(spaces: Sequence[Space]) -> list[Block]:
    """A row for each kind of space: where it lives (* is the number of a block), how often."""
    return [space_table(spaces)] if spaces else ["No hidden space with a symmetry was found."]


def space_table(spaces: Sequence[Space]) -> Table:
    """Kinds of space, those with most laws first."""
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
    return Table(columns, rows, caption, bars=("laws in all",))


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
        sections.append(Section("Not understood", pinned_blocks(found)))
    return sections


def pinned_blocks(found: Symmetries) -> list[Block]:
    """Operations without a rule, and what that costs."""
    pinned = [(part.operation, part.calls, part.share, ", ".join(part.parameters[:5])) for part in found.pinned]
    words = "The spaces that these operations touch were taken to have no symmetry: there may be more laws."
    return [words, Table(("operation", "calls", "share", "parameters"), pinned)]


def in_any_block(name: str) -> str:
    """The name of a parameter, with * for the number of its block."""
    return re.sub(r"\.\d+\.", ".*.", name, count=1)


def _pattern(space: Space) -> str:
    names = list(dict.fromkeys(map(in_any_block, space.parameters)))
    return ", ".join(names[:ACTED]) + (f", and {len(names) - ACTED} more" if len(names) > ACTED else "")
