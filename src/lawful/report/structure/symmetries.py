"""Symmetries of a network as text and JSON."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

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
