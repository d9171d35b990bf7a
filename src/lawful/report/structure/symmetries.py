"""Symmetries of a network as text, JSON and a page: block by block, what each conserves and what is dead in it."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.report.page.page import Action, Block, Chip, Opening, Picture, Section, Table, render
from lawful.report.plain import pick
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.invariant_set.locks.components import Components
    from lawful.symmetry.result import Space, Symmetries

MOST = 40  # lines of a table


def symmetries_json(found: Symmetries) -> dict[str, Any]:
    """The documented keys of `lawful symmetries --json`."""
    return {
        "spaces": [
            {
                **pick(space, "name size group laws=count parameters roles"),
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
        **pick(found, "dimension log10_discrete"),
        "pinned": [
            {"operation": pin.operation, "calls": pin.calls, "share": pin.share, "parameters": list(pin.parameters)}
            for pin in found.pinned
        ],
        **pick(found, "mode noted parameters"),
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
    for pin in found.pinned:
        lines.append(f"  not understood: {pin.operation}, {pin.calls} calls, touches {pin.share:.1%} of the parameters")
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
    table = Table(("space", "group", "size", "laws", "acts on"), single, caption, bars=("laws",))
    if single:
        sections.append(Section("One by one", [table]))
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


MOST_ROWS, MOST_POINTS = 24, 192
KINDS = (
    ("matrices: any invertible or orthogonal matrix of a head's size", "var(--k1)"),
    ("scales: one positive factor a channel", "var(--k2)"),
    ("shifts: a constant that cancels", "var(--k4)"),
    ("other", "var(--k3)"),
)


def block_of(name: str) -> str:
    """The block in which a parameter lives: its name up to the first number, or its module.

    >>> block_of("blocks.3.a.in_proj_weight"), block_of("0.weight"), block_of("head.weight"), block_of("gain")
    ('blocks.3', '0', 'head', 'gain')
    """
    block = re.match(r"(?:.*?\.)?\d+(?=\.)", name)
    return block[0] if block else name.rpartition(".")[0] or name


def group_words(group: str) -> str:
    """A group in words.

    >>> group_words("GL(12)"), group_words("scales")
    ('GL(12): any invertible 12 × 12 matrix', 'scales: one positive factor a channel')
    """
    if matrices := re.fullmatch(r"(GL|O)\((\d+)\)", group):
        kind = "invertible" if matrices[1] == "GL" else "orthogonal"
        return f"{group}: any {kind} {matrices[2]} × {matrices[2]} matrix"
    return KINDS[_kind(group)][0] if group in ("scales", "shifts") else group


def block_rows(found: Symmetries, where: Components | None = None) -> Picture:
    """The module as rows; a space stands in the block of the first parameter that it acts on."""
    parts: dict[str, list[int]] = {}
    for space in found.spaces:
        if space.count:
            parts.setdefault(block_of(space.name), [0] * len(KINDS))[_kind(space.group)] += space.count
    dead: dict[str, int] = {}
    for part in found.dead:
        dead[block_of(part.parameter)] = dead.get(block_of(part.parameter), 0) + part.entries
    points: dict[str, list[float]] = {}
    if where is not None:
        for node, value in zip(where.dag.hidden.tolist(), where.balance.values, strict=True):
            if np.isfinite(value):
                points.setdefault(block_of(re.sub(r"\.\d+$", "", where.dag.names[node])), []).append(
                    float(f"{value:.3g}")
                )
    names = list(dict.fromkeys([*parts, *dead, *points]))
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "parts": parts.get(name, [0] * len(KINDS)),
            "points": _some(points.get(name, [])),
            "dead": f"{dead[name]:,} dead" if name in dead else "",
        }
        for name in names[:MOST_ROWS]
    ]
    if len(names) > MOST_ROWS:
        rest = [sum(column) for column in zip(*(parts.get(name, [0] * 4) for name in names[MOST_ROWS:]), strict=True)]
        count = sum(dead.get(name, 0) for name in names[MOST_ROWS:])
        more = f"{len(names) - MOST_ROWS:,} more"
        rows.append({"name": more, "parts": rest, "points": [], "dead": f"{count:,} dead" if count else ""})
    used = [place for place in range(len(KINDS)) if any(row["parts"][place] for row in rows)]
    for row in rows:
        row["parts"] = [row["parts"][place] for place in used]
    kinds = [{"words": KINDS[place][0], "colour": KINDS[place][1]} for place in used]
    heads = ["block", "laws, by symmetry", "balances" if points else "", "dead" if dead else ""]
    data = {"heads": heads, "rows": rows, "kinds": kinds, "unit": "laws"}
    return Picture("rows", data, f"{len(names)} blocks with their laws, balances and dead parameters")


def _kind(group: str) -> int:
    if group.startswith(("GL", "O(")):
        return 0
    return {"scales": 1, "shifts": 2}.get(group, 3)


def _some(values: list[float]) -> list[float]:
    """As many as can be told apart, the extremes among them."""
    if len(values) <= MOST_POINTS:
        return values
    ranked = sorted(values)
    return [ranked[round(k * (len(ranked) - 1) / (MOST_POINTS - 1))] for k in range(MOST_POINTS)]
