"""A self-contained page: no network requests, light and dark, sortable tables that download as CSV and JSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lawful.figure import Figure, draw

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Table:
    """Rows under headings; numbers sort as numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclass(frozen=True)
class Markup:
    """HTML that our own code made, such as a drawn graph. Never pass text from a file here."""

    html: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; plain strings are paragraphs."""

    title: str
    blocks: Sequence[str | Table | Figure | Markup]


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole page as text. Everything but `Markup` is escaped."""
    contents = "".join(f'<li><a href="#{_anchor(s.title)}">{escape(s.title)}</a></li>' for s in sections)
    body = "".join(_section(section) for section in sections)
    style = (HERE / "page.css").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(lead)}</p>"
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav></header>\n<main>{body}</main>\n'
        f"<script>{script}</script>\n</body></html>\n"
    )


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    return f'<section id="{_anchor(section.title)}"><h2>{escape(section.title)}</h2>\n{blocks}\n</section>\n'


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _block(block: str | Table | Figure | Markup) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Markup):
        caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
        return f"<figure>{block.html}{caption}</figure>"
    picture = io.BytesIO()
    draw(block, picture, "svg")
    svg = picture.getvalue().decode()
    svg = svg[svg.index("<svg") :]
    label = escape(block.caption)
    return f'<figure class="plot" role="group" aria-label="{label}">{svg}<figcaption>{label}</figcaption></figure>'


def _table(table: Table) -> str:
    heads = "".join(f'<th aria-sort="none"><button type="button">{escape(c)}</button></th>' for c in table.columns)
    rows = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    data = json.dumps(
        [dict(zip(table.columns, map(_json, row), strict=True)) for row in table.rows], ensure_ascii=False
    )
    data = data.replace("<", "\\u003c")
    return (
        f'<div class="table"><table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        f'<script type="application/json">{data}</script>'
        '<p class="get"><button type="button" data-get="csv">CSV</button> '
        '<button type="button" data-get="json">JSON</button></p></div>'
    )


def _json(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if value is None or isinstance(value, str):
        return f"<td>{escape(value or '')}</td>"
    if isinstance(value, float):
        return f'<td class="number" data-value="{value!r}">{value:.5g}</td>'
    return f'<td class="number" data-value="{escape(str(value))}">{escape(str(value))}</td>'
