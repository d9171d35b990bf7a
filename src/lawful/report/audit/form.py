"""What every audit page has, of networks and of modules: a finding, what to do, locks, and what was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lawful.outward import at_least
from lawful.report.audit.audit import capital, rank_sentence, where_sentence
from lawful.report.page.page import (
    MOST_ACTIONS,
    Action,
    Answer,
    Block,
    Chip,
    Opening,
    Picture,
    Section,
    Table,
    render,
)
from lawful.report.structure.components import edge_words

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.invariant_set.locks.components import Components

RECHECK = "Decided in exact arithmetic. To save the evidence, and to have an independent checker verify it:"
MOST_ROWS = 10  # of a picture whose values are labelled one by one
MOST_LISTED = 200
SHOWN = 5  # digits of a number in a table: a barrier is rounded downwards to them


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

    def page(self, audit: Audit) -> str:
        """The self-contained page: at most three things to do, what was measured to help first."""
        best = [Action(capital(each.title), sentence_of(each.benefit), each.command) for each in audit.recommendations]
        actions = [*best, *self.questions][:MOST_ACTIONS]
        opening = Opening(audit.source, self.kind, self.chip, self.stage, actions, self.nothing)
        return render(self.headline, self.lead, self.details, opening=opening, answers=self.answers)


def sentence_of(words: str, end: str = ".") -> str:
    """The words with a capital, and the point at their end."""
    return capital(words) + end


def advised(audit: Audit) -> str:
    """The first recommendation with its number, as a headline."""
    first = audit.recommendations[0]
    if any(c.isdigit() for c in first.title):
        return sentence_of(first.title)
    return f"{capital(first.title)}: {first.benefit.split(',')[0].split(' (')[0]}."


def take_out(words: str, verb: str = "Take {} out.") -> str:
    """What can go, and that it should."""
    return f"{words}. {verb.format('it' if words.startswith('1 ') else 'them')}"


def locks_answer(audit: Audit, where: Components, heading: str, scope: str, otherwise: Block | None) -> Answer:
    """Which signs are locked; `otherwise` is the picture where none is."""
    commands = (
        f"lawful components {audit.asked} --certificate components.json",
        f"lawful verify components.json {audit.asked}",
    )
    chip = Chip("proved", "Proved", scope, RECHECK, commands)
    words = where_sentence(audit).removeprefix(heading).strip()
    picture = _barriers(where) if where.locked else otherwise
    return Answer("What is locked", heading.rstrip("."), words, picture, chip)


def _place(where: Components, edge: int) -> str:
    return edge_words(where.dag, edge).replace(" -> ", " → ")


def _barriers(where: Components) -> Picture:
    ranked = sorted(where.locked, key=lambda lock: -lock.barrier)[:MOST_ROWS]
    rows = [
        (_place(where, lock.edge), float(at_least(lock.barrier, 3)), float(abs(where.dag.theta[lock.edge])))
        for lock in ranked
    ]
    more = f" The {len(rows)} highest of {len(where.locked):,}." if len(where.locked) > len(rows) else ""
    note = "Gold: how close to zero the weight can come. Mark: its size now." + more
    return Picture("bars", {"rows": rows, "note": note, "marked": "now"}, "locked weights and their barriers")


def locks_section(where: Components) -> Section:
    """Every locked weight with its barrier."""
    rows = [
        (
            _place(where, lock.edge),
            "+" if lock.sign > 0 else "−",
            float(where.dag.theta[lock.edge]),
            float(at_least(lock.barrier, SHOWN)),
        )
        for lock in sorted(where.locked, key=lambda lock: -lock.barrier)[:MOST_LISTED]
    ]
    caption = "Weights whose sign training keeps, and the barrier that each can never pass on its way to zero."
    caption += f" The {MOST_LISTED} highest of {len(where.locked):,}." if len(where.locked) > MOST_LISTED else ""
    return Section("Locked weights", [Table(("weight", "sign", "value", "barrier"), rows, caption, bars=("barrier",))])


def largest_balances(where: Components) -> Picture | None:
    """The balances that are furthest from 0."""
    values = np.asarray(where.balance.values, dtype=float)
    order = [int(place) for place in np.argsort(-np.abs(values), kind="stable") if np.isfinite(values[place])]
    names = [where.dag.names[int(node)] for node in where.dag.hidden]
    rows = [(names[place], float(values[place])) for place in order[:MOST_ROWS]]
    if not any(value for _, value in rows):
        return None
    note = f"The largest balances of {len(values):,}; the largest is {rows[0][0]}."
    return Picture("bars", {"rows": rows, "note": note}, "the largest balances")


def rests_on(audit: Audit, read: str = "") -> list[Section]:
    """The rank of the balances, what the answers assume, what was left out, and how to ask for it."""
    rank = rank_sentence(audit)
    sections = [Section("Rank of the balances", [rank])] if rank else []
    assumed = audit.reading.assumed if audit.reading is not None else ()
    blocks: list[Block] = [f"Assumed: {'; '.join(assumed)}." if assumed else "Nothing was assumed."]
    if read:
        blocks.append(f"Read: {read}.")
    if audit.skipped:
        rows = [(part.part, part.reason, part.remedy) for part in audit.skipped]
        blocks.append(Table(("skipped", "why", "how to ask for it"), rows))
    return [*sections, Section("What was assumed, what was skipped", blocks)]
