"""Site settings; claims, errata, commands, JSON, glossary, API and pictures are generated from the code."""

from __future__ import annotations

import ast
import gc
import logging
import os
import re
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from reproduction.claim import EDITIONS
from reproduction.claims import all_claims

gc.disable()  # a build ends soon; looking for cycles among its trees took another quarter
logging.disable(logging.DEBUG)  # a hundred thousand lines that nobody reads
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from operators import write_operators  # noqa: E402
from pictures import PICTURES, write_pictures  # noqa: E402
from reference import explain_terms, write_api, write_commands, write_glossary, write_schemas  # noqa: E402
from touch import cards, write_touch, write_try  # noqa: E402

project = "lawful"
author = "The lawful developers"
copyright = "2026, the lawful developers. Apache License 2.0"
version = release = installed_version("lawful")
extensions = ["myst_nb", "sphinx.ext.autodoc", "mathml", "names"]
html_math_renderer = "mathml"
RUNS = os.environ.get("LAWFUL_DOCS") != "quick"  # quick: what the tests run already is only laid out
nb_execution_mode = "auto" if RUNS else "off"  # notebooks/*.md are run at every build; an error stops it
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
toc_object_entries = RUNS  # every class in the contents of every page takes a quarter of the time
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "furo"
html_title = "lawful"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_use_type_comments = False  # there are none
autodoc_default_options = {"members": True, "show-inheritance": False}
suppress_warnings = ["ref.python"]  # two rooms may have a class of the same name
PAPERS = {
    "P0": "Topology and geometry of the learning space of ReLU networks (Nurisso, Leroy, Petri, Vaccarino)",
    "P1": "Abide by the law and follow the flow (Marcotte, Gribonval, Peyré)",
    "P2": "Effective gradient flow (Chen)",
    "P3": "Leaky ResNets (Jacot, Kaiser)",
    "P4": "Symmetries of three-layer ReLU networks",
}


def write_generated() -> None:
    """Pages that would be wrong one day if they were typed by hand."""
    folder = HERE / "generated"
    folder.mkdir(exist_ok=True)
    for old in (*folder.glob("api-*.md"), *folder.glob("commands-*.md")):
        old.unlink()
    claims = all_claims()
    lines = ["# Claims", "", "Each line runs: `lawful reproduce ID`.", ""]
    errata = [
        "# Errata",
        "",
        "Where a paper's printed words fail and what holds instead. Each runs: `lawful reproduce ID`.",
        "",
    ]
    for paper, title in PAPERS.items():
        mine = [claim for claim in claims if claim.paper == paper]
        if mine:
            lines += [f"## {paper}: {title}", "", "| id | reference | statement |", "|---|---|---|"]
            lines += [f"| `{c.id}` | {cell(c.reference)} | {cell(c.statement)} |" for c in mine] + [""]
        wrong = [claim for claim in mine if claim.erratum is not None]
        if wrong:
            errata += [
                f"## {paper}: {title}",
                "",
                f"In {EDITIONS[paper]}.",
                "",
                "| id | where | printed | correct | checked by |",
                "|---|---|---|---|---|",
            ]
            errata += [
                f"| `{c.id}` | {cell(c.reference)} | {cell(c.erratum.printed)} | {cell(c.erratum.correct)} "
                f"| {cell(c.erratum.checked)} |"
                for c in wrong
                if c.erratum is not None
            ] + [""]
    (folder / "claims.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / "errata.md").write_text("\n".join(errata), encoding="utf-8")
    write_examples(folder)
    write_api(folder, HERE.parent / "src" / "lawful")
    write_commands(folder)
    write_schemas(folder, HERE / "_static" / "schemas")
    write_glossary(folder)
    write_operators(folder)
    write_pictures(folder / "pictures")
    write_notebooks(HERE / "_static" / "notebooks")
    (folder / "touch.html").write_text(cards(), encoding="utf-8")
    write_try(HERE / "_static" / "try")
    if RUNS:
        write_touch(HERE / "_static" / "touch")


def write_notebooks(folder: Path) -> None:
    """Every notebook as an `.ipynb` to take away."""
    import nbformat

    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((HERE / "notebooks").glob("*.md")):
        text = path.read_text(encoding="utf-8").split("---", 2)[2]
        pieces = re.split(r"^```\{code-cell\} python\n(.*?)^```$", text, flags=re.M | re.S)
        cells = [
            (nbformat.v4.new_code_cell if number % 2 else nbformat.v4.new_markdown_cell)(piece.strip(), id=f"c{number}")
            for number, piece in enumerate(pieces)
            if piece.strip()
        ]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / f"{path.stem}.ipynb")


def add_pictures(app: Any, page: str, source: list[str]) -> None:
    """A concept page shows its picture after its first paragraph; a notebook can be taken away."""
    if page in PICTURES:
        head, first, rest = [*source[0].split("\n\n", 2), "", ""][:3]
        up = "../" * page.count("/")
        picture = f"```{{raw}} html\n:file: {up}generated/pictures/{page}.html\n```"
        source[0] = "\n\n".join([head, first, picture, rest])
    if page.startswith("notebooks/") and page != "notebooks/index":
        name = page.partition("/")[2]
        source[0] += f"\n\n<a href='../_static/notebooks/{name}.ipynb' download>Take this notebook away</a>\n"


def write_examples(folder: Path) -> None:
    """Every example with the output that it gives now."""
    lines = ["# Examples", "", "One question per file in `examples/`, with what it prints.", ""]
    for path in sorted((HERE.parent / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        question, _, answer = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
        command = [sys.executable, path.name]
        printed = "(quick build)"
        if RUNS:
            printed = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=True).stdout  # noqa: S603
        code = source.split('"""', 2)[2].strip()
        lines += [f"## {question.strip()}", "", answer.strip(), "", f"`examples/{path.name}` prints", ""]
        lines += ["```text", printed.rstrip(), "```", "", "```python", code, "```", ""]
    (folder / "examples.md").write_text("\n".join(lines), encoding="utf-8")


def cell(text: str) -> str:
    """Text that is safe inside a table cell."""
    return re.sub(r"([\\|*_<>$`\[\]])", r"\\\1", text)


def plain_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code`; keep Sphinx from reading |E| or θ* as markup."""
    in_doctest = False
    for number, line in enumerate(lines):
        in_doctest = line.lstrip().startswith(">>>") or (in_doctest and bool(line.strip()))
        if not in_doctest:
            parts = re.split(r"(`[^`]+`)", line)
            lines[number] = "".join(
                f"`{part}`" if part.startswith("`") else re.sub(r"([\\|*_])", r"\\\1", part) for part in parts
            )


def without_search(app: Any) -> None:
    """A quick build is looked at by nobody: no index of its words."""
    app.builder.search = RUNS


def setup(app: Any) -> None:
    """Sphinx calls this before it reads any page."""
    write_generated()
    app.connect("builder-inited", without_search)
    app.connect("source-read", add_pictures)
    app.connect("doctree-resolved", explain_terms)
    app.connect("autodoc-process-docstring", plain_docstring)
