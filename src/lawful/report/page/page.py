"""A self-contained page: no network requests, light and dark, sortable tables that download as CSV and JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lawful.figure import STYLE, Figure
from lawful.figure.inline_svg import svg
from lawful.report.page.terms import explained

HERE = Path(__file__).parent
WIDE = 8  # columns from which on a table is set more closely


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


Block = str | Table | Figure | Markup


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; plain strings are paragraphs."""

    title: str
    blocks: Sequence[Block]


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page as text. Everything but `Markup` is escaped."""
    contents = "".join(f'<li><a href="#{_anchor(s.title)}">{escape(s.title)}</a></li>' for s in sections)
    seen: set[str] = set()
    body = "".join(_section(section, seen) for section in sections)
    style = (HERE / "page.css").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}{STYLE}</style></head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p>{explained(lead, seen)}</p>"
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav></header>\n<main>{body}</main>\n'
        f"<script>{script}</script>\n</body></html>\n"
    )


def _section(section: Section, seen: set[str]) -> str:
    blocks = "\n".join(block_html(block, seen) for block in section.blocks)
    return f'<section id="{_anchor(section.title)}"><h2>{escape(section.title)}</h2>\n{blocks}\n</section>\n'


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def block_html(block: Block, seen: set[str]) -> str:
    """One block; `seen` are the terms that were explained already."""
    if isinstance(block, str):
        return f"<p>{explained(block, seen)}</p>"
    if isinstance(block, Table):
        return _table(block, seen)
    caption = f"<figcaption>{explained(block.caption, seen)}</figcaption>" if block.caption else ""
    if isinstance(block, Markup):
        return f"<figure>{block.html}{caption}</figure>"
    return f'<figure class="plot">{svg(block.caption, block.panels)}<output></output>{caption}</figure>'


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
    caption = f"<caption>{explained(table.caption, seen)}</caption>" if table.caption else ""
    data = json.dumps(
        [dict(zip(table.columns, map(_json, row), strict=True)) for row in table.rows], ensure_ascii=False
    )
    data = data.replace("<", "\\u003c")
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
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _cell(value: Any, largest: float, seen: set[str]) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if value is None or isinstance(value, str):
        return f"<td>{explained(value or '', seen)}</td>"
    if isinstance(value, float) and largest and math.isfinite(value):
        side = "less" if value < 0 else "more"
        share = f' style="--share:{100 * abs(value) / largest:.1f}%"'
        return f'<td class="number bar {side}"{share} data-value="{value!r}">{value:.5g}</td>'
    if isinstance(value, float):
        return f'<td class="number" data-value="{value!r}">{value:.5g}</td>'
    text = escape(str(value))
    bar = f' style="--share:{100 * abs(value) / largest:.1f}%"' if isinstance(value, int) and largest else ""
    return f'<td class="number{" bar more" if bar else ""}"{bar} data-value="{text}">{text}</td>'
