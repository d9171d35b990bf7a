"""A program as text and as JSON; computes nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.program import Program


def program_json(program: Program) -> dict[str, Any]:
    """The keys of `lawful show --program --json`."""
    return {
        "program": list(program.lines()),
        "digest": program.digest(names=False),
        "operators": dict(sorted(Counter(node.op for node in program.nodes).items())),
        "parameters": sum(node.size for node in program.parameters.values()),
        "opaque": program.opaque,
        "notes": dict(program.notes),
    }


def program_text(program: Program) -> str:
    """The program line by line, then what it is called and what was not understood."""
    found = program_json(program)
    lines = [*found["program"], f"digest {found['digest']}"]
    lines.append(f"{len(program.nodes)} nodes, {found['parameters']:,} parameters")
    if found["opaque"]:
        lines.append(f"not in the table of operators: {', '.join(sorted(set(found['opaque'])))}")
    lines += [f"assumed: {words} ({count} times)" for words, count in found["notes"].items()]
    return "\n".join(lines)
