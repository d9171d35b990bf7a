"""The form of every audit, of networks and of modules: a finding, a picture, what to do, answers, details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lawful.report.page.page import MOST_ACTIONS, Action, Answer, Block, Chip, Opening, Section, Table, render

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from lawful.api.audit import Audit, Recommendation, Skipped
    from lawful.api.module_audit import ModuleAudit

RECHECK = "Decided in exact arithmetic. To save the evidence, and to have an independent checker verify it:"


def is_of_module(audit: Audit | ModuleAudit) -> TypeIs[ModuleAudit]:
    """Which of the two it is, by its fields: the class would bring PyTorch, which an audit of layers does without."""
    return hasattr(audit, "symmetries")


@dataclass(frozen=True)
class Form:
    """What the two kinds of audit fill in."""

    kind: str
    headline: str
    lead: str
    chip: Chip | None
    stage: Block
    questions: Sequence[Action]
    nothing: str
    answers: Sequence[Answer]
    details: Sequence[Section]

    def page(self, audit: Audit | ModuleAudit) -> str:
        """The self-contained page."""
        opening = Opening(
            audit.source, self.kind, self.chip, self.stage, actions(audit.recommendations, self.questions), self.nothing
        )
        return render(self.headline, self.lead, self.details, opening=opening, answers=self.answers)


def print_advice(recommendations: Sequence[Recommendation], console: Console) -> None:
    """What to do, the best first, each with its command."""
    if recommendations:
        console.print(Text("what to do", style="bold"))
    for number, advice in enumerate(recommendations, 1):
        console.print(f" {number}. {advice.title}: {advice.benefit}", highlight=False, markup=False)
        console.print(f"    $ {advice.command}", highlight=False, markup=False, soft_wrap=True, style="cyan")


def actions(recommendations: Sequence[Recommendation], others: Sequence[Action]) -> list[Action]:
    """At most three things to do: what was measured to help first, then what else can be asked."""
    best = [
        Action(sentence_of(advice.title, ""), sentence_of(advice.benefit), advice.command) for advice in recommendations
    ]
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


def list_names(names: Sequence[str], most: int = 5) -> str:
    """Names, the first few of them, and how many there are."""
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")
