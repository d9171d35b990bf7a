"""The pages that specify certificates name the keys that their checkers read: all of them, and no others."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lawful
from lawful.verify import KINDS, OF_FILES

PAGES = Path(__file__).parents[2] / "docs" / "certificates"
ROOT = Path(lawful.__file__).parent / "verify"
EVERY = {"kind", "version", "about"}
TABLES = {
    "fibers.agreement": ("STEPS", "ENDINGS"), "papers.separation": ("EVIDENCE",),
    "conservation.laws": ("MORE", "FLOWS"), "pruning.program": ("ROLES",), "relational.program": ("OPERATORS",),
}  # keys by the kind of a step or an answer  # fmt: skip
ALL = {**KINDS, **OF_FILES}


def page(kind: str) -> str:
    return (PAGES / f"{kind}.md").read_text(encoding="utf-8")


@cache
def specified(kind: str) -> frozenset[str]:
    blocks = re.findall(r"```\n(.*?)```", page(kind), re.DOTALL)
    return frozenset(re.findall(r'"([a-z_0-9]+)":', "".join(blocks)))


def imported(name: str) -> set[str]:
    """The files of the kernel that a file of it imports, and so on."""
    found, waiting = {name}, [name]
    while waiting:
        path = Path(str(import_module(waiting.pop()).__file__))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lawful.verify."):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                for each in [w if (ROOT / f"{w[14:].replace('.', '/')}.py").exists() else node.module for w in whole]:
                    if each and each not in found:
                        found.add(each)
                        waiting.append(each)
    return found


def words_of(value: Any) -> set[str]:
    """The words in a text, or in the texts of a table."""
    if isinstance(value, str):
        return set(value.split())
    if isinstance(value, dict):
        return {word for each in value.values() for word in words_of(each)}
    if isinstance(value, (tuple, list)):
        return {word for each in value for word in words_of(each)}
    return set()


def texts_in(node: ast.AST) -> set[str]:
    """The words of texts in an expression, but for those that are compared with, and the keys of tables."""
    if isinstance(node, ast.Compare):
        return set()
    if isinstance(node, ast.Constant):
        return set(node.value.split()) if isinstance(node.value, str) else set()
    parts = node.values if isinstance(node, ast.Dict) else ast.iter_child_nodes(node)
    return {word for part in parts for word in texts_in(part)}


def keys_of(expression: ast.expr, function: ast.AST, module: ModuleType) -> set[str]:
    """The keys that a call of `object_with_keys` can name: texts in it, constants of the file, values of its names."""
    found = texts_in(expression)
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            if hasattr(module, node.id):
                found |= words_of(getattr(module, node.id))
            for line in ast.walk(function):
                if isinstance(line, ast.Assign) and any(
                    isinstance(target, ast.Name) and target.id == node.id for target in line.targets
                ):
                    found |= texts_in(line.value)
    return found


@cache
def read_by(name: str) -> frozenset[str]:
    """The keys of all objects that a file of the kernel reads."""
    module = import_module(name)
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    tables = TABLES.get(name.removeprefix("lawful.verify."), ())
    found = {word for table in tables for word in words_of(getattr(module, table))}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "object_with_keys"
                ):
                    for argument in (*node.args[2:], *(each.value for each in node.keywords)):
                        found |= keys_of(argument, function, module)
    return frozenset(word for word in found if re.fullmatch("[a-z_0-9]+", word))


@pytest.mark.parametrize("kind", ALL)
def test_page_and_checker_name_the_same_keys(kind: str) -> None:
    files = imported(f"lawful.verify.{ALL[kind].checker}")
    read = {key for name in files for key in read_by(name)} | EVERY
    links = {name for name in re.findall(r"\]\((\w[\w-]*)\.md\)", page(kind)) if name in ALL}
    allowed = specified(kind) | specified("common") | {key for name in links for key in specified(name)}
    assert read - allowed == set(), "keys that the checker reads and no page names"
    assert specified(kind) - read == set(), "keys of the page that the checker does not read"


@pytest.mark.parametrize("kind", ALL)
def test_a_page_says_all_that_it_should(kind: str) -> None:
    text = page(kind)
    assert text.startswith(f"# {kind}\n")
    assert f"Version {ALL[kind].version}." in text
    assert f'"kind": "{kind}", "version": {ALL[kind].version}' in text
    for part in ("**Sentence.**", "**Check", "**Cost.**", "**A forger may try**"):
        assert part in text, part
    assert "**Why.**" in text or "**Not checked:**" in text
    assert kind in (PAGES / "index.md").read_text(encoding="utf-8").split()


def test_the_common_keys_are_read_somewhere() -> None:
    read = {key for kind in ALL for name in imported(f"lawful.verify.{ALL[kind].checker}") for key in read_by(name)}
    assert specified("common") - read - EVERY == set()
    assert {path.stem for path in PAGES.glob("*.md")} == {*ALL, "common", "index", "relational"}


def test_the_collector_sees_tables_and_texts() -> None:
    assert {"do", "layer", "flipped", "shift"} <= read_by("lawful.verify.fibers.agreement")
    assert {"rotary", "queries"} <= read_by("lawful.verify.pruning.program")
    assert {"normal", "rotation"} <= read_by("lawful.verify.papers.separation")


TIER_ONE = ("components", "path", "rebalance", "singular", "truncation-separation", "pruning", "same")
MOST_LINES = 1_850  # of the first tier, with the command that runs it; sentences are not trusted with a verdict


@pytest.mark.parametrize("kind", TIER_ONE)
def test_a_kind_of_the_first_tier_needs_its_family_and_the_core_alone(kind: str) -> None:
    family = ALL[kind].checker.split(".")[0]
    files = imported(f"lawful.verify.{ALL[kind].checker}")
    assert {name.split(".")[2] for name in files} <= {family, "core"}, (
        "words and other families are not trusted with it"
    )
    checkers = {f"lawful.verify.{each.checker}" for other, each in ALL.items() if other != kind}
    assert not files & checkers, "no kind needs the checker of another"


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comments nor docstrings."""
    text = path.read_text(encoding="utf-8")
    words: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            words.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in words
        for number, line in enumerate(text.splitlines(), 1)
    )


@pytest.mark.parametrize("kind", ALL)
def test_the_page_says_how_much_code_a_kind_trusts(kind: str) -> None:
    files = imported(f"lawful.verify.{ALL[kind].checker}")
    lines = sum(code_lines(Path(str(import_module(name).__file__))) for name in files)
    text = (PAGES.parent / "verify.md").read_text(encoding="utf-8").split("## How much code a verdict rests on")[1]
    row = re.search(rf"\| `{kind}` \| ([0-9,]+) \| ([0-9,]+) \|", text)
    assert row is not None, f"{kind} is missing; it has {len(files)} files and {lines} lines"
    most_files, most_lines = (int(number.replace(",", "")) for number in row.groups())
    assert len(files) <= most_files <= len(files) + 5, len(files)
    assert lines <= most_lines <= 1.25 * lines, lines


def test_the_first_tier_can_be_read_in_a_day() -> None:
    checkers = {name for kind in TIER_ONE for name in imported(f"lawful.verify.{ALL[kind].checker}")}
    entry = {f"lawful.verify.{name}" for name in ("core.binding", "core.tensors", "__main__")}
    files = {Path(str(import_module(name).__file__)) for name in {*checkers, *entry, "lawful.verify"}}
    assert sum(map(code_lines, files)) <= MOST_LINES
