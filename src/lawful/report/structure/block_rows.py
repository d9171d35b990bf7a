"""A module block by block: what each conserves by symmetry, its balances as points, what is dead in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.report.page.page import Picture

if TYPE_CHECKING:
    from lawful.invariant_set.locks.components import Components
    from lawful.symmetry.result import Symmetries

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
    found = re.match(r"(?:.*?\.)?\d+(?=\.)", name)
    return found[0] if found else name.rpartition(".")[0] or name


def group_words(group: str) -> str:
    """A group in words.

    >>> group_words("GL(12)"), group_words("scales")
    ('GL(12): any invertible 12 × 12 matrix', 'scales: one positive factor a channel')
    """
    if found := re.fullmatch(r"(GL|O)\((\d+)\)", group):
        kind = "invertible" if found[1] == "GL" else "orthogonal"
        return f"{group}: any {kind} {found[2]} × {found[2]} matrix"
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
