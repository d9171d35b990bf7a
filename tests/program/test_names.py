"""Operators are named in the table alone: no other package lists calls of PyTorch or ONNX."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lawful.program import operators
from lawful.program.table import ATEN, ATEN_CASTS, ATEN_FACTORIES, ATEN_MOVEMENTS, ONNX

SOURCE = Path(operators.__file__).parents[2]
MOST = 5  # names of operators that are words of other things too: "linear", "relu" and "tanh" are activations
# Files that list calls, and why. Nothing may be added; a file that no longer does has to go from here.
LISTED: dict[str, str] = {
    # The table says what calls of a traced graph mean. These meet functions of Python while a user's code runs, loss
    # and module alike, before anything is traced: which of them to answer themselves has to be said by name.
    "training/problems/piecewise.py": "intercepts functions of PyTorch while they run",
    "sources/modules/randomness.py": "intercepts functions of PyTorch while they run",
    "sources/modules/convert.py": "the words of the command line for layers that it writes",
}


def names() -> set[str]:
    aten = {name.split(".")[0] for name in (*ATEN, *ATEN_MOVEMENTS, *ATEN_CASTS, *ATEN_FACTORIES)}
    return aten | set(ONNX)


def strings(tree: ast.AST) -> Iterator[str]:
    """String constants that are no documentation; a string of several words counts if all are names."""
    documentation = {
        id(part.body[0].value)
        for part in ast.walk(tree)
        if isinstance(part, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and part.body
        and isinstance(part.body[0], ast.Expr)
    }
    for part in ast.walk(tree):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in documentation:
            yield part.value


def listed_in(path: Path, known: set[str]) -> set[str]:
    every: set[str] = set()
    for text in strings(ast.parse(path.read_text(encoding="utf-8"))):
        words = text.split()
        if words and all(word in known for word in words):
            every.update(words)
    return every


def test_no_other_package_lists_operators() -> None:
    known = names()
    lists = {
        str(path.relative_to(SOURCE)): sorted(said)
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in ("program", "verify")  # the kernel shares nothing with makers
        and len(said := listed_in(path, known)) > MOST
    }
    assert {name: said for name, said in lists.items() if name not in LISTED} == {}
    assert set(LISTED) <= set(lists), "no longer lists operators: take it from LISTED"


def test_a_list_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('"""relu view"""\nSAME = {"view", "reshape"}\nMORE = "clone detach".split()\n')
    assert listed_in(tmp_path / "one.py", names()) == {"view", "reshape", "clone", "detach"}
