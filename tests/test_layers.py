"""Imports point one way: rooms do not call sideways or upwards, and no files import each other in a circle."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lawful"
GROUND = {"errors", "types", "extras", "figure", "result", "version", "outward", "sentences"}
READ = GROUND | {"exact", "network", "formats", "program", "sources"}  # whatever a user has, as a network or a program
MAY_IMPORT = {
    "errors": set[str](),
    "types": set[str](),
    "version": set[str](),
    "extras": {"errors"},
    "figure": {"extras"},
    "result": {"errors", "figure"},
    "outward": set[str](),
    "sentences": {"outward"},
    "verify": {"errors", "outward"},
    "exact": GROUND,
    "network": GROUND | {"exact"},
    "formats": GROUND | {"network"},
    "program": GROUND | {"exact", "network"},
    "sources": GROUND | {"network", "formats", "program"},
    "symmetry": READ,
    "conservation": READ | {"symmetry"},
    "invariant_set": READ | {"symmetry"},
    "bounds": READ,
    "fibers": READ | {"bounds"},
    "pruning": READ | {"symmetry", "invariant_set", "bounds", "fibers"},
    "training": READ | {"symmetry"},
    "papers": READ,
    "checkpoints": READ | {"symmetry"},
}
MAY_IMPORT["api"] = {*MAY_IMPORT} - {"verify"}
MAY_IMPORT["report"] = {*MAY_IMPORT}
MAY_IMPORT["cli"] = MAY_IMPORT["report"] | {"report"}
MAY_IMPORT["testing"] = MAY_IMPORT["api"] | {"api", "verify"}  # what users import in their own tests
MAY_IMPORT["__main__"] = {"cli"}
# The package gives names to the outside, and results their views: nobody imports it.
MAY_IMPORT[""] = MAY_IMPORT["cli"] | {"cli"}
# Claims are outside the wheel. Who runs them imports them where they are needed, and does without where they are not.
MOST_FILES = 20  # of a folder: more are two ideas
RUN_CLAIMS = {
    "lawful",
    "lawful.api.sweeps.jobs",
    "lawful.cli.sweep",
    "lawful.report.views",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in SOURCE.rglob("*.py")}


@cache
def imports_of(module: str) -> dict[str, int]:
    """The modules of ours that a module names in any import (in functions and under TYPE_CHECKING too), and where."""
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in FILES else node.module or "" for name in whole]
        for name in names:
            if name in FILES:
                found.setdefault(name, getattr(node, "lineno", 0))
    return found


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def wrong_imports(module: str, room: str) -> list[str]:
    return [
        f"{module}:{line} imports {target}"
        for target, line in imports_of(module).items()
        if room_of(target) != room and room_of(target) not in MAY_IMPORT[room]
    ]


def circle(links: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(links).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_room_imports_sideways_or_upwards() -> None:
    assert {room_of(module) for module in FILES} <= set(MAY_IMPORT)
    assert [line for module in FILES for line in wrong_imports(module, room_of(module))] == []


def test_the_drawing_has_no_circle() -> None:
    assert circle(MAY_IMPORT) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    """A package's `__init__` stands for its files only where it is imported itself."""
    assert circle({module: set(imports_of(module)) for module in FILES}) == []


def test_no_rooms_import_each_other_in_a_circle() -> None:
    rooms: dict[str, set[str]] = {}
    for module in FILES:
        rooms.setdefault(room_of(module), set()).update(map(room_of, imports_of(module)))
    assert circle({room: targets - {room} for room, targets in rooms.items()}) == []


def test_imports_in_functions_and_for_types_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lawful.types import Floats\n"
    (tmp_path / "one.py").write_text(text + "def call():\n    import lawful.errors\n    from lawful import figure\n")
    monkeypatch.setitem(FILES, "lawful.one", tmp_path / "one.py")
    assert set(imports_of("lawful.one")) == {"lawful.types", "lawful.errors", "lawful.figure"}


def test_no_import_of_ours_hides_in_a_string() -> None:
    """Only a package gives names of its own files away by `import_module`."""
    for name, path in FILES.items():
        for home in re.findall(r"""import_module\(f?["'](lawful[\w.]*)""", path.read_text(encoding="utf-8")):
            assert path.name == "__init__.py", f"{name} imports {home}"
            assert home.rstrip(".") == name, f"{name} imports {home}"


def test_no_public_class_is_defined_twice() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in FILES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    twice = {name: sorted(where) for name, where in homes.items() if len(where) > 1}
    assert twice == {}


def test_claims_are_imported_by_those_who_run_them_alone() -> None:
    importers = {
        module
        for module, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "reproduction"
    }
    assert importers <= RUN_CLAIMS


def test_no_package_hides_a_submodule() -> None:
    """`import lawful.fibers.same as s` gives the file: no package binds a file's name to something else."""
    for module, path in FILES.items():
        if path.name != "__init__.py" or module == "lawful":
            continue
        below = {name.rpartition(".")[2] for name in FILES if name.rpartition(".")[0] == module}
        bound = {
            (alias.asname or alias.name)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if f"{node.module}.{alias.name}" not in FILES
        }
        assert below & bound == set(), module


def test_folders_stay_small() -> None:
    """About fifteen files of one idea, twenty at most; what waits for its cut is listed."""
    sizes: dict[str, int] = {}
    for path in FILES.values():
        sizes[str(path.parent.relative_to(SOURCE))] = sizes.get(str(path.parent.relative_to(SOURCE)), 0) + 1
    assert not [folder for folder, files in sizes.items() if files > MOST_FILES]


def test_the_checks_can_fail() -> None:
    assert wrong_imports("lawful.network.dag", "verify") != []
    assert wrong_imports("lawful.api.audit", "network") != []
    assert circle({"a": {"b"}, "b": {"a"}}) != []
