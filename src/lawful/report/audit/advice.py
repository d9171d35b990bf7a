"""What an audit advises and what it left out, the same for networks and modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lawful.report.page.page import MOST_ACTIONS, Action, Block, Section, Table

if TYPE_CHECKING:
    from lawful.api.audit import Recommendation, Skipped

RECHECK = "Decided in exact arithmetic. To save the evidence, and to have an independent checker verify it:"


def print_advice(recommendations: Sequence[Recommendation], console: Console) -> None:
    """What to do, the best first, each with its command."""
    if recommendations:
        console.print(Text("what to do", style="bold"))
    for number, each in enumerate(recommendations, 1):
        console.print(f" {number}. {each.title}: {each.benefit}", highlight=False, markup=False)
        console.print(f"    $ {each.command}", highlight=False, markup=False, soft_wrap=True, style="cyan")


def actions(recommendations: Sequence[Recommendation], others: Sequence[Action]) -> list[Action]:
    """At most three things to do: what was measured to help first, then what else can be asked."""
    best = [Action(sentence_of(each.title, ""), sentence_of(each.benefit), each.command) for each in recommendations]
    return [*best, *others][:MOST_ACTIONS]


def sentence_of(words: str, end: str = ".") -> str:
    """The words with a capital, and the point at their end."""
    return words[:1].upper() + words[1:] + end


def assumed_section(assumed: Sequence[str], skipped: Sequence[Skipped], read: str = "") -> Section:
    """What the answers rest on, what was left out, and how to ask for it."""
    blocks: list[Block] = [f"Assumed: {'; '.join(assumed)}."] if assumed else ["Nothing was assumed."]
    if read:
        blocks.append(f"Read: {read}.")
    if skipped:
        rows = [(part.part, part.reason, part.remedy) for part in skipped]
        blocks.append(Table(("skipped", "why", "how to ask for it"), rows))
    return Section("What was assumed, what was skipped", blocks)
