"""A stranger follows each tutorial: its Python and its commands run as they stand, in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "start.md", DOCS / "testing.md", *sorted((DOCS / "tutorials").glob("*.md"))]
STEP = re.compile(r"^```(python|console)\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_tutorial_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    steps = 0
    for kind, text in STEP.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)  # noqa: S102
            steps += 1
            continue
        for line in text.splitlines():
            if line.startswith("$ lawful "):
                run = in_process(*shlex.split(line)[2:], cwd=tmp_path)
                assert run.returncode in (0, 1), (line, run.stderr)  # a definite no is an answer too
                assert run.stdout.strip(), line
                steps += 1
    assert steps >= 2
