"""Results in a notebook: short, in the notebook's own colours, with the same blocks as the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lawful.figure import STYLE, Figure
from lawful.figure.inline_svg import svg

MOST_LINES, MOST_ROWS, MOST_COLUMNS, MOST_WORDS = 14, 8, 6, 40
LOOK = (
    ".lawful-result{max-width:60rem;line-height:1.4}"
    ".lawful-result pre{white-space:pre-wrap;margin:.3rem 0;font-size:.85em}"
    ".lawful-result table{border-collapse:collapse;font-size:.85em;margin:.3rem 0}"
    ".lawful-result td,.lawful-result th{padding:.1rem .6rem;border-bottom:1px solid #8884;text-align:left}"
    ".lawful-result td.n{text-align:right;font-variant-numeric:tabular-nums}"
)


def render(kind: str, text: str, rows: Sequence[Mapping[str, Any]], figure: Figure | None) -> str:
    """One card: the answer, what it rests on, the first rows, the picture.

    >>> print(render("LawCount", "3 laws\\n\\n  proved", [], None)[-75:])
    <div class="lawful-result"><strong>3 laws</strong><pre>  proved</pre></div>
    """
    head, _, rest = text.partition("\n")
    lines = rest.strip("\n").splitlines()
    shown = "\n".join(lines[:MOST_LINES]) + (
        f"\n  ... {len(lines) - MOST_LINES} more lines" if len(lines) > MOST_LINES else ""
    )
    parts = [f"<strong>{escape(head[:300] or kind)}</strong>"]
    parts += [f"<pre>{escape(shown[:2500])}</pre>"] if shown else []
    parts += [_table(rows)] if rows else []
    parts += (
        [svg(figure.caption, figure.panels), f"<small>{escape(figure.caption)}</small>"] if figure is not None else []
    )
    return f'<style>{STYLE}{LOOK}</style><div class="lawful-result">{"".join(parts)}</div>'


def frame(page: str) -> str:
    """A whole page inside a notebook, apart from everything else there."""
    look = "width:100%;height:46rem;border:1px solid #8884;border-radius:6px"
    return f'<iframe title="explorer" sandbox="allow-scripts" style="{look}" srcdoc="{escape(page)}"></iframe>'


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = [name for name in rows[0] if not isinstance(rows[0][name], (dict, list))][:MOST_COLUMNS] or list(rows[0])[
        :1
    ]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(_cell(row.get(name)) for name in names) + "</tr>" for row in rows[:MOST_ROWS])
    more = (
        f"<small>{len(rows) - MOST_ROWS:,} more rows: to_dataframe() has all</small>" if len(rows) > MOST_ROWS else ""
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="n">{value:.5g}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="n">{value:,}</td>'
    words = "" if value is None else str(value)
    return f"<td>{escape(words if len(words) <= MOST_WORDS else words[: MOST_WORDS - 1] + '…')}</td>"
