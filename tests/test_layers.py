"""Imports point one way: rooms do not call sideways or upwards."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "lawful"
BASE = {"errors", ""}
ROOMS = {"exact", "network", "laws", "invariant", "flow", "bottleneck", "fibers"}
MAY_IMPORT = {
    "errors": set(),
    "exact": BASE,
    "network": BASE,
    "laws": BASE | {"exact", "network"},
    "invariant": BASE | {"network"},
    "flow": BASE | {"network"},
    "bottleneck": BASE | {"network", "flow"},
    "fibers": BASE | {"exact", "network"},
    "figure": BASE,  # report/figure.py: figures as data
    "study": BASE | ROOMS | {"figure"},
    "report": BASE | ROOMS | {"figure", "study"},
    "cli": BASE | ROOMS | {"figure", "study", "report"},
}


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return "figure" if parts == ("report", "figure") else parts[0]


def wrong_imports(path: Path, room: str) -> list[str]:
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            whole = node.module == "lawful" or node.level > 0
            names = [f"lawful.{alias.name}" for alias in node.names] if whole else [node.module or ""]
        for name in names:
            parts = name.split(".")
            target = "figure" if parts[1:3] == ["report", "figure"] else parts[1] if len(parts) > 1 else ""
            if parts[0] == "lawful" and target in MAY_IMPORT and target != room and target not in MAY_IMPORT[room]:
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} imports {name}")
    return wrong


def test_no_room_imports_sideways_or_upwards() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert {room_of(path) for path in files} <= set(MAY_IMPORT)
    assert [line for path in files for line in wrong_imports(path, room_of(path))] == []


def test_the_check_can_fail() -> None:
    assert wrong_imports(SOURCE / "network" / "dag.py", "exact") != []
    assert wrong_imports(SOURCE / "study" / "audit.py", "network") != []
