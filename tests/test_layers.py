"""Imports point one way: rooms do not call sideways or upwards."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "lawful"
BASE = {"errors", ""}
MAY_IMPORT = {
    "errors": set(),
    "exact": BASE,
    "network": BASE,
    "laws": BASE | {"exact", "network"},
    "invariant": BASE | {"network"},
    "flow": BASE | {"network"},
    "bottleneck": BASE | {"network", "flow"},
    "fibers": BASE | {"exact", "network"},
    "report": BASE | {"exact", "network", "laws", "invariant", "flow", "bottleneck", "fibers"},
    "study": BASE | {"exact", "network", "laws", "invariant", "flow", "bottleneck", "fibers", "report"},
    "cli": BASE | {"exact", "network", "laws", "invariant", "flow", "bottleneck", "fibers", "report", "study"},
}


def wrong_imports(path: Path, room: str) -> list[str]:
    wrong = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if node.level == 0 else [f"lawful.{room}"]
        for name in names:
            parts = name.split(".")
            if parts[0] == "lawful":
                target = parts[1] if len(parts) > 1 else ""
                if target != room and target not in MAY_IMPORT[room]:
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} imports {name}")
    return wrong


def test_no_room_imports_sideways_or_upwards() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(files) > 10
    wrong = [
        line for path in files for line in wrong_imports(path, path.relative_to(SOURCE).parts[0].removesuffix(".py"))
    ]
    assert wrong == []


def test_the_check_can_fail(tmp_path: Path) -> None:
    bad = SOURCE / "network" / "dag.py"
    assert wrong_imports(bad, "exact") != []
