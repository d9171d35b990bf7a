"""The field's words in docs, help texts and messages, and links that lead somewhere."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What we once said, and what the field says.
WORDS = {
    r"\bmended\b": "fixed",
    r"\bchang(e|es|ed|ing) places\b": "are permuted",
    r"\bin balls\b": "in ball arithmetic",
    r"\bthat are none\b": "NaN or infinite values",
    r"\bnobody hears\b|\bmute\b": "no nonzero outgoing weight, constant zero",
    r"\bstand-ins?\b": "surrogates",
    r"\bdisguis(e|es|ed|ing)\b": "symmetry-transformed",
    r"\bduller\b": "independent",
    r"\bno file of a kind\b": "unsupported file type",
    r"\bverbs?\b": "subcommands",
    r"\b(the|all|every|each|other|two|of) rooms?\b": "packages",
    r"\bdoors\b": "readers and writers",
    r"\bnobody (hears|sees|reads|listens)\b|\bno (input|output) (can )?sees?\b": "affects no output",
    r"\bspeaks? for\b": "replaces",
    r"\b(of|by) the clock\b|\bof the processor\b": "wall-clock time, processor time",
    r"\bgo(es)? on where\b": "resumes",
    r"\bwhat (left|went)\b": "what was removed",
    r"\bwhoever\b": "name who or what",
    r"\banew\b": "again",
    r"\bnumbers that are told\b": "determined numbers",
    r"\bbeside others?\b": "compared with others",
    r"\b0\.0e\+00\b": "0",
    r"\b1 (weights|neurons|channels|boxes|laws|regions|layers|files|inputs|outputs)\b": "one in the singular",
}


def passages() -> Iterator[tuple[str, str]]:
    """Every page, and every text in the code of the command line and of the functions, with the file it stands in."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")]
    for path in (*pages, *(ROOT / "docs" / "notebooks").glob("*.md")):
        yield (
            path.relative_to(ROOT).as_posix(),
            re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.S),
        )
    for package in ("cli", "api"):
        for path in (ROOT / "src" / "lawful" / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            texts = [
                node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
            yield path.relative_to(ROOT).as_posix(), "\n".join(text for text in texts if " " in text)


def test_words_of_the_field() -> None:
    said = {
        place: matches
        for place, text in passages()
        if (matches := [m[0] for word in WORDS for m in re.finditer(word, text, re.I)])
    }
    assert not said


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/index.md", "docs/start.md", "docs/testing.md"]
)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    links = [*re.findall(r"\]\(([^)#\s]+)", text), *re.findall(r'src="([^"]+)"', text)]
    for link in links:
        if "://" not in link and "generated/" not in link:
            assert ((ROOT / page).parent / link).exists(), link


def test_dead_links_of_a_site_are_found(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from links import dead_links
    finally:
        sys.path.remove(str(ROOT / "docs"))
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#there">b</a><a href="#top">up</a><img src="no.svg">'
    )
    (tmp_path / "b.html").write_text('<a href="a.html#gone">a</a><a href="https://example.org/none">away</a>')
    assert dead_links(tmp_path) == ["a.html: b.html#there", "a.html: no.svg", "b.html: a.html#gone"]
