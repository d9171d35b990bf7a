"""The pieces of the site that are made from the code."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
CONCEPTS = (
    "audit", "components", "distance", "fibers", "flow", "laws", "leaky", "network", "pruning", "singular", "symmetry",
    "truncation",
)  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Any:
    sys.path.insert(0, str(DOCS))
    try:
        import mathml
        import pictures
        import reference

        yield {"pictures": pictures, "reference": reference, "mathml": mathml}
    finally:
        sys.path.remove(str(DOCS))
        for name in ("mathml", "pictures", "reference"):  # other tests have modules of these names
            sys.modules.pop(name, None)


def test_every_verb_has_its_reference(site: Any, tmp_path: Path) -> None:
    from lawful.cli import _command

    site["reference"].write_commands(tmp_path)
    text = "\n".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("commands-*.md"))
    for verb, command in _command().commands.items():
        assert f"## lawful {verb}\n" in text
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                assert f"`{option.opts[0]}" in text


def test_every_schema_is_a_file(site: Any, tmp_path: Path) -> None:
    site["reference"].write_schemas(tmp_path, tmp_path / "schemas")
    for file in (tmp_path / "schemas").iterdir():
        assert json.loads(file.read_text(encoding="utf-8"))["title"].startswith("lawful ")


def test_the_glossary_has_every_term(site: Any, tmp_path: Path) -> None:
    from lawful.report.page.terms import TERMS

    site["reference"].write_glossary(tmp_path)
    text = (tmp_path / "glossary.md").read_text(encoding="utf-8")
    assert all(meaning in text for meaning in TERMS.values())


@pytest.mark.parametrize("page", CONCEPTS)
def test_every_concept_has_a_picture(site: Any, page: str) -> None:
    assert (DOCS / f"{page}.md").exists()
    drawn = site["pictures"].PICTURES[page]()
    assert "<svg" in drawn
    assert "<figcaption>" in drawn


def test_all_mathematics_becomes_mathml(site: Any) -> None:
    count = 0
    for path in DOCS.rglob("*.md"):
        if {"_build", "generated", "jupyter_execute"} & set(path.parts):
            continue
        text = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
        for formula in re.findall(r"(?<![\\$])\$([^$\n]+)\$(?!\$)", text):
            assert site["mathml"].convert(formula).startswith("<math"), (path.name, formula)
            count += 1
    assert count > 50


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in [DOCS / "conf.py", *(DOCS / "_static").glob("*.css")]:
        assert "//cdn" not in path.read_text(encoding="utf-8")
    assert "mathjax" not in (DOCS / "conf.py").read_text(encoding="utf-8")
