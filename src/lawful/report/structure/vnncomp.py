"""Results of an instances file as text and JSON; computes nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lawful.api.verification.vnncomp import InstanceResult

MOST_SHOWN = 200


def vnncomp_json(results: Sequence[InstanceResult], total: Mapping[str, float]) -> dict[str, Any]:
    """The keys of `lawful vnncomp --json`."""
    return {**total, "results": [asdict(each) for each in results]}


def vnncomp_text(results: Sequence[InstanceResult], total: Mapping[str, float]) -> str:
    """A line for each instance, then the counts."""
    lines = []
    for each in results[:MOST_SHOWN]:
        checked = f"re-checked in {each.recheck_seconds:.2f} s" if each.recheck_seconds >= 0 else each.note
        name = f"{each.network.rpartition('/')[2]}  {each.specification.rpartition('/')[2]}"
        lines.append(f"{each.result:8}{each.seconds:8.2f} s  {name}  {checked}")
    if len(results) > MOST_SHOWN:
        lines.append(f"and {len(results) - MOST_SHOWN} more")
    lines.append(
        f"{total['instances']} instances: {total['unsat']} unsat, {total['sat']} sat, {total['timeout']} timeout, "
        f"{total['error']} errors, {total['open']} not run; {total['certified']} answers re-checked"
    )
    lines.append(f"{total['seconds']:.1f} s to find, {total['recheck_seconds']:.1f} s to re-check")
    return "\n".join(lines)
