"""A self-contained page: no network requests, light and dark, sortable tables that download as CSV and JSON.

Its order is always the same: one sentence with the number that matters, one picture of the thing itself, what to do,
answers with a picture and their evidence, and the rest folded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

from lawful.figure import STYLE, Figure
from lawful.figure.inline_svg import svg
from lawful.report.page.terms import as_prose, mark_terms

HERE = Path(__file__).parent
WIDE = 8  # columns from which on a table is set more closely
LONG = 60  # characters of a headline that is set smaller: more than three lines of it would push the picture down
MOST_ACTIONS = 3
# Nothing is loaded and nothing is sent: what a file's text could smuggle in would have nowhere to go.
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data: blob:\">"
)
ChipKind = Literal["proved", "open", "here", "void"]
MARKS: Mapping[str, str] = {"proved": "✓", "open": "◐", "here": "≈", "void": "⊘"}


@dataclass(frozen=True)
class Table:
    """Rows under headings; numbers sort as numbers, and those of the columns in `bars` are drawn behind themselves."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    bars: Sequence[str] = ()


@dataclass(frozen=True)
class Markup:
    """HTML that our own code made, such as a drawn graph. Never pass text from a file here."""

    html: str
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """Data that `pictures.js` draws at the width of its box, so that text keeps its size; `kind` names the function."""

    kind: str
    data: Mapping[str, Any]
    label: str


@dataclass(frozen=True)
class Chip:
    """What a claim rests on; a state never rests on its colour alone, and a chip says no more than its evidence."""

    kind: ChipKind
    words: str
    scope: str = ""
    more: str = ""
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Action:
    """Something to do: a verb, what it brings, and the command that does it."""

    title: str
    gain: str
    command: str


Block = str | Table | Figure | Markup | Picture | Chip


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; strings are paragraphs. Without a picture it is folded, unless `open`."""

    title: str
    blocks: Sequence[Block]
    open: bool = False


@dataclass(frozen=True)
class Answer:
    """A question, the answer as its heading, one picture and one chip."""

    topic: str
    heading: str
    words: str = ""
    picture: Block | None = None
    chip: Chip | None = None


@dataclass(frozen=True)
class Opening:
    """What stands first: whose page it is, the evidence of the headline, the picture, and at most three actions."""

    file: str = ""
    kind: str = ""
    chip: Chip | None = None
    stage: Block | None = None
    actions: Sequence[Action] = ()
    nothing: str = ""


def render(
    title: str,
    lead: str,
    sections: Sequence[Section],
    *,
    opening: Opening | None = None,
    answers: Sequence[Answer] = (),
) -> str:
    """The whole page as text. Everything but `Markup` is escaped."""
    opening = opening or Opening()
    seen: set[str] = set()
    introduction = mark_terms(lead, seen)  # before all that stands under it: a term is explained where it is met first
    chip = _chip(opening.chip) if opening.chip else ""
    stage = f'<div class="stage">{block_html(opening.stage, seen)}</div>' if opening.stage else ""
    parts = [
        _actions(opening),
        *(_answer(answer, seen) for answer in answers),
        *(_section(section, seen) for section in sections),
    ]
    style = "".join(map(asset, ("tokens.css", "page.css")))
    script = "".join(map(asset, ("pictures.js", "page.js")))
    owner = (
        f"<span><b><bdi>{escape(opening.file)}</bdi></b> {escape(opening.kind)}</span>"  # names may run right to left
    )
    theme = '<nav aria-label="page"><button type="button" id="theme" aria-label="light or dark">◐</button></nav>'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{POLICY}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(as_prose(title))}</title><style>{style}{STYLE}</style></head>\n<body>\n"
        f'<div class="top">{owner}{theme}</div>\n'
        f'<header>{headline(title)}<p class="lead">{introduction}</p>{chip}</header>\n'
        f"<main>{stage}{''.join(parts)}</main>\n<script>{script}</script>\n</body></html>\n"
    )


def asset(name: str) -> str:
    """A style or script that stands beside this file."""
    return (HERE / name).read_text(encoding="utf-8")


def headline(words: str) -> str:
    """The sentence that a reader takes away, its first number in colour.

    >>> headline("24 of 32 neurons can go")
    '<h1><em>24 of 32</em> neurons can go</h1>'
    """
    words = as_prose(words)
    # Digits inside a name (conv2, v1.5-rc, 3-4-2) are not the number: no letter, dot or dash may touch it.
    number = re.search(r"(?<![\w.-])\d[\d,]*(\.\d+)?%?( of \d[\d,]*)?(?![\w.-]*\w)", words)
    size = ' class="long"' if len(words) > LONG else ""
    if number is None:
        return f"<h1{size}>{escape(words)}</h1>"
    before, after = words[: number.start()], words[number.end() :]
    return f"<h1{size}>{escape(before)}<em>{escape(number[0])}</em>{escape(after)}</h1>"


def _chip(chip: Chip) -> str:
    scope = f" <span>{escape(as_prose(chip.scope))}</span>" if chip.scope else ""
    more = f"<p>{escape(as_prose(chip.more))}</p>" if chip.more else ""
    commands = "".join(map(command_html, chip.commands))
    summary = f"<summary>{MARKS[chip.kind]} {escape(as_prose(chip.words))}{scope}</summary>"
    return f'<details class="chip {chip.kind}">{summary}<div>{more}{commands}</div></details>'


def command_html(command: str) -> str:
    """A command with a button that copies it."""
    return f'<div class="cmd"><code>{escape(command)}</code><button type="button">Copy</button></div>'


def _actions(opening: Opening) -> str:
    if not opening.actions:
        return f"<h2>What to do</h2><p>{escape(opening.nothing)}</p>" if opening.nothing else ""
    cards = "".join(
        f"<li><b>{escape(as_prose(action.title))}</b><p>{escape(as_prose(action.gain))}</p>{command_html(action.command)}</li>"
        for action in opening.actions[:MOST_ACTIONS]
    )
    return f'<section id="what-to-do"><h2>What to do</h2><ol class="do">{cards}</ol></section>'


def _answer(answer: Answer, seen: set[str]) -> str:
    topic = f"<small>{escape(answer.topic)}</small>"
    words = f"<p>{mark_terms(answer.words, seen)}</p>" if answer.words else ""
    chip = _chip(answer.chip) if answer.chip else ""
    picture = f"<div>{block_html(answer.picture, seen)}</div>" if answer.picture is not None else ""
    head = f"<h2>{topic}{escape(as_prose(answer.heading))}</h2>"
    return f'<section class="a" id="{_anchor(answer.topic)}"><div>{head}{words}{chip}</div>{picture}</section>\n'


def _section(section: Section, seen: set[str]) -> str:
    blocks = "\n".join(block_html(block, seen) for block in section.blocks)
    title, anchor = escape(section.title), _anchor(section.title)
    # What a reader can see at a glance stands open; rows of numbers and long texts wait until somebody asks.
    if section.open or any(isinstance(block, (Picture, Markup, Figure)) for block in section.blocks):
        return f'<section id="{anchor}"><h2>{title}</h2>\n{blocks}\n</section>\n'
    return f'<details class="fold" id="{anchor}"><summary>{title}</summary>\n{blocks}\n</details>\n'


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def block_html(block: Block, seen: set[str]) -> str:
    """One block; `seen` are the terms that were explained already."""
    if isinstance(block, str):
        return f"<p>{mark_terms(block, seen)}</p>"
    if isinstance(block, Table):
        return _table(block, seen)
    if isinstance(block, Chip):
        return _chip(block)
    if isinstance(block, Picture):
        return _picture(block)
    caption = f"<figcaption>{mark_terms(block.caption, seen)}</figcaption>" if block.caption else ""
    if isinstance(block, Markup):
        return f"<figure>{block.html}{caption}</figure>"
    return f'<figure class="plot">{svg(block.caption, block.panels)}<output></output>{caption}</figure>'


def _picture(picture: Picture) -> str:
    data = json_text(picture.data)
    return (
        f'<figure class="picture" data-picture="{escape(picture.kind)}" data-label="{escape(picture.label)}">'
        f'<script type="application/json">{data}</script></figure>'
    )


def json_text(data: Any) -> str:
    """JSON that no parser of HTML takes for markup."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _table(table: Table, seen: set[str]) -> str:
    heads = "".join(
        f'<th aria-sort="none"{_side(table, place)}><button type="button">{escape(name)}</button></th>'
        for place, name in enumerate(table.columns)
    )
    wide = ' class="wide"' if len(table.columns) > WIDE else ""
    largest = [_largest(table, place) if name in table.bars else 0.0 for place, name in enumerate(table.columns)]
    rows = "".join(
        "<tr>" + "".join(_cell(value, most, seen) for value, most in zip(row, largest, strict=True)) + "</tr>"
        for row in table.rows
    )
    caption = f"<caption>{mark_terms(table.caption, seen)}</caption>" if table.caption else ""
    data = json_text([dict(zip(table.columns, map(_json, row), strict=True)) for row in table.rows])
    return (
        f'<div class="table"><table{wide}>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        f'<script type="application/json">{data}</script>'
        '<p class="get"><button type="button" data-get="csv">CSV</button> '
        '<button type="button" data-get="json">JSON</button></p></div>'
    )


def _side(table: Table, place: int) -> str:
    """A heading stands over its numbers."""
    first = next((row[place] for row in table.rows if row[place] is not None), None)
    return ' class="number"' if isinstance(first, (int, float)) and not isinstance(first, bool) else ""


def _largest(table: Table, place: int) -> float:
    sizes = [abs(row[place]) for row in table.rows if isinstance(row[place], (int, float))]
    return float(max((size for size in sizes if math.isfinite(size)), default=0.0))


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):  # which JSON has no number for
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _cell(value: Any, largest: float, seen: set[str]) -> str:
    if isinstance(value, bool):  # before numbers: in Python it is one
        return f"<td>{'yes' if value else 'no'}</td>"
    if value is None or isinstance(value, str):
        return f"<td>{mark_terms(value or '', seen)}</td>"
    if isinstance(value, float) and largest and math.isfinite(value):
        side = "less" if value < 0 else "more"
        share = f' style="--share:{100 * abs(value) / largest:.1f}%"'
        return f'<td class="number bar {side}"{share} data-value="{value!r}">{as_prose(f"{value:.5g}")}</td>'
    if isinstance(value, float):
        return f'<td class="number" data-value="{value!r}">{as_prose(f"{value:.5g}")}</td>'
    text = escape(str(value))
    bar = f' style="--share:{100 * abs(value) / largest:.1f}%"' if isinstance(value, int) and largest else ""
    return f'<td class="number{" bar more" if bar else ""}"{bar} data-value="{text}">{text}</td>'
