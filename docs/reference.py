"""Pages made from the code: commands, JSON, glossary, API, and terms explained on every page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes

from lawful.cli import _command
from lawful.cli.help import EXAMPLES, GROUPS
from lawful.report.page.terms import TERMS, mark_terms
from lawful.report.schema import TABLE, VERSION, json_schema, lines_of

EXPLAINED = ("start", "tutorials", "notebooks", "audit", "components", "distance", "explorer", "fibers", "flow", "laws",
             "leaky", "network", "pruning", "singular", "symmetry", "truncation", "verify")  # fmt: skip


def cell(text: str) -> str:
    """Text that is safe inside a table cell."""
    return re.sub(r"([\\|*_<>$`\[\]])", r"\\\1", " ".join(text.split()))


def write_commands(folder: Path) -> None:
    """A page per group of subcommands: what it does, its options, two examples, the keys of its JSON."""
    commands = _command().commands
    about = "Every subcommand with its options, from the commands themselves. `--json` prints one object; its keys "
    about += "stand with each of them, and as [JSON Schema](schemas.md)."
    index = ["# Commands", "", about, "", "```{toctree}", ":maxdepth: 2", ""]
    for title, verbs in GROUPS.items():
        name = "commands-" + title.split()[0].lower().strip(",")
        lines = [f"# {title}", ""]
        for verb in verbs:
            lines += _verb(verb, commands[verb])
        (folder / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")
        index.append(name)
    (folder / "commands.md").write_text("\n".join([*index, "```", ""]), encoding="utf-8")


def _verb(verb: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join(["lawful", verb, *(p.metavar or str(p.name).upper() for p in arguments)])
    lines = [f"## lawful {verb}", "", cell(command.help or ""), "", "```text", f"{usage} [OPTIONS]", "```", ""]
    rows = [(p.metavar or str(p.name).upper(), p.help or "") for p in arguments]
    rows += [(", ".join([*p.opts, *p.secondary_opts]), _described(p)) for p in options]
    lines += ["| option | meaning |", "|---|---|", *(f"| `{name}` | {cell(words)} |" for name, words in rows), ""]
    lines += ["```console", *(f"$ {line}" for line in EXAMPLES.get(verb, ())), "```", ""]
    if verb in TABLE:
        keys = [(k, t, a, m) for k, t, a, m in lines_of(verb) if k not in ("schema", "reading", "readings", "evidence")]
        lines += ["**JSON**", "", "| key | type | meaning |", "|---|---|---|"]
        lines += [
            f"| `{key}`{'' if always else ' (sometimes)'} | {cell(kind)} | {cell(m)} |" for key, kind, always, m in keys
        ]
        lines += [""]
    return lines


def _described(option: Any) -> str:
    words = str(option.help or "")
    default = option.default
    shown = default is not None and not callable(default) and not isinstance(default, bool) and str(default) != ""
    return f"{words} (default {default})" if shown and "default" not in words else words


def write_schemas(folder: Path, static: Path) -> None:
    """The JSON Schemas as files, and the page that lists them."""
    static.mkdir(parents=True, exist_ok=True)
    about = (
        f"`lawful VERB --json` prints one object. Its `schema` names the verb and the version ({VERSION}) of the table "
    )
    about += "that it keeps: within a version keys are only added. Errors are `{error, hint, exit}`."
    lines = ["# JSON", "", about, ""]
    for verb in TABLE:
        (static / f"{verb}.json").write_text(json.dumps(json_schema(verb), indent=1) + "\n", encoding="utf-8")
        lines.append(f"- `lawful {verb}`: <a href='../_static/schemas/{verb}.json'>{verb}.json</a>")
    (folder / "schemas.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


def write_glossary(folder: Path) -> None:
    """Every term once; on the other pages it is explained where it stands."""
    lines = ["# Glossary", "", "On all pages, and in the pages that `lawful` writes, point at an underlined word.", ""]
    lines += ["```{glossary}"]
    for term, meaning in sorted(TERMS.items()):
        if term != "sign-locked":
            lines += [term, f"  {meaning}", ""]
    (folder / "glossary.md").write_text("\n".join([*lines, "```", ""]), encoding="utf-8")


def write_api(folder: Path, source: Path) -> None:
    """A page per room, a section per file."""
    rooms = [room.name for room in sorted(source.iterdir()) if (room / "__init__.py").exists() and room.name != "cli"]
    for room in rooms:
        rows = [f"# lawful.{room}", "", "```{eval-rst}", f".. automodule:: lawful.{room}", "   :no-members:", "```", ""]
        for path in sorted((source / room).rglob("*.py")):
            module = ".".join(("lawful", *path.relative_to(source).with_suffix("").parts))
            if path.name != "__init__.py" and "claims" not in module:
                heading = module.removeprefix(f"lawful.{room}.")
                rows += [f"## {heading}", "", "```{eval-rst}", f".. automodule:: {module}", "```", ""]
        (folder / f"api-{room}.md").write_text("\n".join(rows), encoding="utf-8")
    about = (
        "The rooms; how data flow through them is [drawn here](../architecture.md). In Python every verb is a function "
    )
    about += "of `lawful` itself; what they are made of is in the rooms."
    index = ["# API", "", about, "", "```{toctree}", ":maxdepth: 1", "", *(f"api-{room}" for room in rooms), "```", ""]
    (folder / "api.md").write_text("\n".join(index), encoding="utf-8")


def explain_terms(app: Any, tree: Any, page: str) -> None:
    """The first use of a term on a page carries its explanation."""
    if not page.startswith(EXPLAINED):
        return
    seen: set[str] = set()
    for text in list(tree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.paragraph):
            continue
        html = mark_terms(text.astext(), seen)
        if "<abbr" in html:
            text.parent.replace(text, nodes.raw("", html, format="html"))
