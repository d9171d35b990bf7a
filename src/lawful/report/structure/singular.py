"""Singularities as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.api.invariant_set import SingularityReport
    from lawful.invariant_set.singular.existence import SingularPoints

BLOCKS = "▁▂▃▄▅▆▇█"


def report_json(found: SingularityReport) -> dict[str, Any]:
    """The documented keys of `lawful singular --json`."""
    at, values = found.singularity, found.spectrum
    result = {
        "rank": at.rank,
        "hidden": at.hidden,
        "singular": at.singular,
        "tolerance": found.tolerance,
        "cut_off": list(at.cut_off),
        "groups": [list(group) for group in at.groups],
        "rank_by_singular_values": None if values is None else values.rank,
        "singular_values": None if values is None else values.values,
        "null": None if values is None else values.null(),
        "gap": None if values is None else values.gap,
        "scores": found.scores,
        "beyond": list(found.beyond),
    }
    return result if found.exist is None else result | {"exist": existence_json(found.exist)}


def existence_json(found: SingularPoints) -> dict[str, Any]:
    """Whether the invariant set has singular points at all."""
    answer = {True: "yes", False: "no", None: "undecided"}[found.exist]
    witness = None
    if found.witness is not None:
        witness = {"cut_off": list(found.witness.cut_off), "parameter": found.witness.parameter}
    return {"answer": answer, "reason": found.reason, "witness": witness}


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
    for reason in result["beyond"]:
        lines.append(fill(f"of the balances alone: {reason}", 79, subsequent_indent="  "))
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
