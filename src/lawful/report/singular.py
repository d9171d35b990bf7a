"""Singularities as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

BLOCKS = "▁▂▃▄▅▆▇█"


def singular_text(result: Mapping[str, Any]) -> str:
    """What `lawful singular` found, answer first."""
    rank, hidden = result["rank"], result["hidden"]
    cut = result["cut_off"]
    word = "singular" if rank < hidden else "regular"
    lines = [f"{word}: rank J = {rank} of {hidden} hidden neurons"]
    if result["tolerance"]:
        lines[0] += f" (weights up to {result['tolerance']:g} read as 0)"
    if cut:
        lines.append(named(f"{len(cut)} cut off from every input and output", cut))
    values = result["singular_values"]
    if values is not None and len(values):
        lines.append(f"singular values of J: {values[-1]:.3g} to {values[0]:.3g}, {result['null']} below 0.001")
        lines.append("  " + sparkline(values))
        lines.append(f"rank by singular values: {result['rank_by_singular_values']}")
    elif values is None:
        lines.append("singular values: too many neurons to compute them all")
    exist = result.get("exist")
    if exist is not None:
        lines.append(fill(f"singular points on H(c): {exist['answer']}: {exist['reason']}", 79, subsequent_indent="  "))
    return "\n".join(lines)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Values as a row of blocks, largest first; at most `width` of them, evenly chosen."""
    step = max(1, -(-len(values) // width))
    chosen = list(values)[::step]
    top = max(chosen) or 1.0
    shares = (1.0 if value == top else value / top for value in chosen)  # the top may be infinite
    return "".join(BLOCKS[min(7, int(8 * share))] for share in shares)


def named(head: str, names: Sequence[str], shown: int = 8) -> str:
    """Names after a head line, the first few of them."""
    tail = ", ..." if len(names) > shown else ""
    return fill(f"{head}: {', '.join(names[:shown])}{tail}", 79, subsequent_indent="    ")
