"""Every notebook of the docs runs, cell by cell, and shows something."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.md"))
CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.M | re.S)


def cells_of(path: Path) -> list[str]:
    """The code of a notebook; lines that start with ':' are options of a cell."""
    found = CELL.findall(path.read_text(encoding="utf-8"))
    return ["\n".join(line for line in cell.splitlines() if not line.startswith(":")) for cell in found]


def shown(value: Any) -> str:
    """What a notebook shows of the last expression of a cell."""
    render = getattr(value, "_repr_html_", None)
    return str(render()) if render is not None else repr(value)


def run_cell(code: str, names: dict[str, Any]) -> str:
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102
    if last is None:
        return ""
    value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307
    return "" if value is None else shown(value)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_the_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = [run_cell(code, names) for code in cells_of(path)]
    assert len(outputs) >= 3, "a notebook has cells"
    assert any(outputs), "a notebook shows something"
    assert sum(map(len, outputs)) < 2_000_000


def test_text_does_not_escape_to_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich would print past the text that is asked for, into the cell."""
    import rich.console

    import lawful

    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    for found in (lawful.show("3-4-1 relu"), lawful.audit("3-4-1 relu")):
        assert "parameters" in str(found)
        assert "<strong>" in found._repr_html_()
        assert f"<strong>{type(found).__name__}</strong>" not in found._repr_html_()


def test_there_are_notebooks_and_a_broken_one_would_fail() -> None:
    assert NOTEBOOKS
    with pytest.raises(ZeroDivisionError):
        run_cell("x = 1\nx / 0", {})
