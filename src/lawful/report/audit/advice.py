"""What an audit advises and what it left out, the same for networks and modules."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lawful.report.page.page import Markup, Section, Table

if TYPE_CHECKING:
    from lawful.api.audit import Recommendation, Skipped


def print_advice(recommendations: Sequence[Recommendation], console: Console) -> None:
    """What to do, the best first, each with its command."""
    if recommendations:
        console.print(Text("what to do", style="bold"))
    for number, each in enumerate(recommendations, 1):
        console.print(f" {number}. {each.title}: {each.benefit}", highlight=False, markup=False)
        console.print(f"    $ {each.command}", highlight=False, markup=False, soft_wrap=True, style="cyan")


def advice_block(recommendations: Sequence[Recommendation], noun: str, nothing: str) -> str | Markup:
    """What to do with a network or module, the best first; `nothing` says that there is nothing."""
    if not recommendations:
        return nothing
    items = "".join(
        f"<li>{escape(each.title)}: {escape(each.benefit)}<code>{escape(each.command)}</code></li>"
        for each in recommendations
    )
    return Markup(f'<ol class="advice">{items}</ol>', f"Ranked by the measured share of the {noun} that each improves.")


def skipped_section(skipped: Sequence[Skipped]) -> Section:
    """What was left out, and how to ask for it."""
    rows = [(part.part, part.reason, part.remedy) for part in skipped]
    return Section("Skipped", [Table(("what", "why", "how to ask for it"), rows)])
