"""The audit of a module in the form of every audit, and the page of its blocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from lawful.outward import at_least
from lawful.report.audit.form import RECHECK, Form, assumed_section, sentence_of
from lawful.report.audit.module_audit import dead_words, rank_words, removable_words, where_words
from lawful.report.page.page import Action, Answer, Block, Chip, Opening, Picture, Section, Table, render
from lawful.report.structure.components import edge_words
from lawful.report.structure.symmetries import (
    block_of,
    block_rows,
    check_words,
    group_words,
    pinned_blocks,
    space_table,
)
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.api.module_audit import ModuleAudit

MOST_LISTED, MOST_ROWS = 500, 10
SHOWN = 5  # digits of a number in a table: a barrier is rounded downwards to them
NOTHING = "Nothing was found: no rescaling that the audit tries helps, and no rule finds a dead parameter."


def module_form(audit: ModuleAudit) -> Form:
    """What the audit of a module fills into the form."""
    return Form(
        _kind(audit), _headline(audit), _lead(audit), _removal_chip(audit) or _check_chip(audit),
        block_rows(audit.symmetries, audit.components), _questions(audit), NOTHING,
        [_waste(audit), _laws_answer(audit), _locks_answer(audit), _same(audit)], _details(audit),
    )  # fmt: skip


def _kind(audit: ModuleAudit) -> str:
    frozen = f", {audit.frozen:,} of them frozen" if audit.frozen else ""
    return f"{audit.kind}, {audit.parameters:,} weights{frozen}"


def blocks_page(audit: ModuleAudit) -> str:
    """The module block by block, as `lawful explore` shows it: what each block conserves, carries and does not need."""
    symmetries = audit.symmetries
    count = len({block_of(space.name) for space in symmetries.spaces})
    blocks = f"{count:,} block{'s' * (count != 1)}"
    opening = Opening(
        file=audit.source,
        kind=_kind(audit),
        chip=_check_chip(audit),
        stage=block_rows(symmetries, audit.components),
        actions=[
            Action("See what to do about it", "Everything known of it on one page.",
                   f"lawful audit {audit.asked} --html audit.html"),
            *_questions(audit)[:1],
        ],
    )  # fmt: skip
    conserved = _at_least(audit)
    title = f"{blocks}, {conserved[0].lower()}{conserved[1:]} conserved."
    lead = says.group(symmetries.dimension, symmetries.log10_discrete)
    answers = [_laws_answer(audit), _waste(audit), _locks_answer(audit)]
    return render(title, lead, _details(audit), opening=opening, answers=answers)


def _headline(audit: ModuleAudit) -> str:
    """The first recommendation with its number, or what is conserved if there is none."""
    if not audit.recommendations:
        return f"{_at_least(audit)} conserved; nothing was found to improve."
    first = audit.recommendations[0]
    if first.title.startswith("remove "):
        return _and_then(removable_words(audit).partition(" and nothing")[0], "Take {} out.")
    if first.title.startswith("leave out"):
        return _and_then(dead_words(audit).partition(",")[0], "Leave {} out.")
    benefit = first.benefit.split(",")[0].split(" (")[0]
    return sentence_of(first.title if any(c.isdigit() for c in first.title) else f"{first.title}: {benefit}")


def _lead(audit: ModuleAudit) -> str:
    """What the headline left unsaid of the first recommendation, or the group."""
    first = audit.recommendations[0].title if audit.recommendations else ""
    if first.startswith("remove "):
        return _capital(removable_words(audit).partition(" can go and ")[2])
    if first.startswith("leave out"):
        return _capital(dead_words(audit).partition(", ")[2])
    symmetries = audit.symmetries
    return says.group(symmetries.dimension, symmetries.log10_discrete)


def _and_then(words: str, advice: str) -> str:
    return f"{words}. {advice.format('it' if words.startswith('1 ') else 'them')}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _at_least(audit: ModuleAudit) -> str:
    symmetries = audit.symmetries
    return says.conserved(len(symmetries.laws), symmetries.parameters, symmetries.mode).partition(" of ")[0]


def _check_chip(audit: ModuleAudit) -> Chip:
    group, command = audit.symmetries, f"lawful symmetries {audit.asked} --html symmetries.html"
    if group.checked is None:
        ask = f"lawful symmetries {audit.asked} --check"
        return Chip("open", "Symmetries read from the graph", "not held against gradients", "To do it:", (ask,))
    more = f"{sentence_of(group.noted)} Derivatives of the module along each generator, in float64: measured, no proof."
    return Chip("here", f"Checked: {check_words(group)}", "", more, (command,))


def _questions(audit: ModuleAudit) -> list[Action]:
    return [
        Action("See every symmetry", "Which tensors each acts on, and what it conserves.",
               f"lawful symmetries {audit.asked} --html symmetries.html"),
        Action("Look at it block by block", "Laws, balances and dead weights of each block.",
               f"lawful explore {audit.asked} --html explorer.html"),
    ]  # fmt: skip


# One answer, one picture, one chip


def _removal_chip(audit: ModuleAudit) -> Chip | None:
    """The evidence of the first recommendation, if that is to prune."""
    first = audit.recommendations[0].command if audit.recommendations else ""
    if not first.startswith("lawful prune "):
        return None
    more = "To save the evidence and have an independent checker verify it:"
    return Chip("open", "Not re-checked", "", more, (first, "lawful verify pruned.json"))


def _waste(audit: ModuleAudit) -> Answer:
    dead = sorted(audit.symmetries.dead, key=lambda part: -part.entries)
    pruning, can_go = audit.pruning, removable_words(audit)
    counts = Counter((gone.layer, gone.kind) for gone in pruning.removed) if pruning is not None else Counter()
    rows = [(f"{layer}: {kind} channels", float(count)) for (layer, kind), count in counts.most_common(MOST_ROWS)]
    rows += [(f"{part.parameter}: dead entries of {part.of:,}", float(part.entries)) for part in dead[:MOST_ROWS]]
    if not rows:
        words = "The rules that find what no loss can see, and channels that change nothing, found nothing here."
        return Answer("What can go", says.none_dead_found().rstrip("."), words, None, None)
    note = f"The {MOST_ROWS} largest of {len(dead):,}." if len(dead) > MOST_ROWS else ""
    picture = Picture("bars", {"rows": rows, "note": note}, "redundant channels, and dead entries of parameters")
    words = " ".join(filter(None, (can_go, dead_words(audit) if dead else "")))
    if can_go:
        return Answer("What can go", can_go.partition(" and nothing")[0], words, picture, _removal_chip(audit))
    chip = Chip("proved", "For any weights", "read from the graph", "", (f"lawful symmetries {audit.asked}",))
    return Answer("What can go", dead_words(audit).partition(",")[0], words, picture, chip)


def _laws_answer(audit: ModuleAudit) -> Answer:
    symmetries = audit.symmetries
    heading = _at_least(audit)
    kinds: dict[str, int] = {}
    for space in symmetries.spaces:
        kinds[space.group] = kinds.get(space.group, 0) + space.count
    rows = [
        (group_words(name), float(count)) for name, count in sorted(kinds.items(), key=lambda each: -each[1]) if count
    ]
    picture = Picture("bars", {"rows": rows[:MOST_ROWS], "note": ""}, "laws by group") if rows else None
    chip = Chip("open", "At least", "others were not counted", "The symmetries give these.",
                (f"lawful symmetries {audit.asked}",))  # fmt: skip
    words = says.conserved(len(symmetries.laws), symmetries.parameters, symmetries.mode)
    return Answer("What training conserves", heading, words, picture, chip)


def _largest(counts: dict[str, int]) -> list[tuple[str, float]]:
    """Groups in words, those with most first."""
    return [(group_words(name), float(n)) for name, n in sorted(counts.items(), key=lambda each: -each[1]) if n]


def _locks_answer(audit: ModuleAudit) -> Answer:
    where = audit.components
    if where is None:
        return Answer("What is locked", "Not looked at", "What was skipped, and why, stands below.")
    heading = says.locked(len(where.dag.hidden), len(where.locked))
    commands = (
        f"lawful components {audit.asked} --certificate components.json",
        f"lawful verify components.json {audit.asked}",
    )
    chip = Chip("proved", "Proved", "of these balances", RECHECK, commands)
    words = where_words(audit).removeprefix(heading).strip()
    return Answer("What is locked", heading.rstrip("."), words, _balances(audit), chip)


def _balances(audit: ModuleAudit) -> Block | None:
    where = audit.components
    if where is None or not len(where.dag.hidden):
        return None
    if where.locked:
        ranked = sorted(where.locked, key=lambda lock: -lock.barrier)[:MOST_ROWS]
        bars = [
            (edge_words(where.dag, lock.edge), float(at_least(lock.barrier, 3)), float(abs(where.dag.theta[lock.edge])))
            for lock in ranked
        ]
        note = "Gold: how close to zero the weight can come. Mark: its size now."
        return Picture("bars", {"rows": bars, "note": note, "marked": "now"}, "locked weights and their barriers")
    values = np.asarray(where.balance.values, dtype=float)
    order = np.argsort(-np.abs(values), kind="stable")[:MOST_ROWS]
    names = [where.dag.names[int(where.dag.hidden[place])] for place in order]
    rows = [
        (name, float(values[place])) for name, place in zip(names, order, strict=True) if np.isfinite(values[place])
    ]
    if not any(value for _, value in rows):
        return None
    note = f"The largest balances of {len(values):,}; the largest is {names[0]}."
    return Picture("bars", {"rows": rows, "note": note}, "the largest balances")


def _same(audit: ModuleAudit) -> Answer:
    symmetries = audit.symmetries
    heading = (
        "A group of at least this size"
        if symmetries.dimension or symmetries.log10_discrete
        else "No symmetry was found"
    )
    if symmetries.dimension:
        heading = f"A group of dimension {symmetries.dimension:,}"
    sizes: dict[str, int] = {}
    for space in symmetries.spaces:
        sizes[space.group] = sizes.get(space.group, 0) + space.dimension
    rows = _largest(sizes)
    picture = Picture("bars", {"rows": rows[:MOST_ROWS], "note": ""}, "dimension by group") if rows else None
    words = says.group(symmetries.dimension, symmetries.log10_discrete)
    return Answer("Which other weights are this function", heading, words, picture, _check_chip(audit))


# Folded


def _details(audit: ModuleAudit) -> list[Section]:
    symmetries, where = audit.symmetries, audit.components
    sections = [Section("Every kind of symmetry", [space_table(symmetries.spaces)])] if symmetries.spaces else []
    if symmetries.dead:
        rows = [
            (part.parameter, part.entries, part.of, "never read, or detached" if part.unused else "no loss sees them")
            for part in sorted(symmetries.dead, key=lambda part: -part.entries)
        ]
        sections.append(Section("Dead parameters", [Table(("parameter", "entries", "of", "why"), rows)]))
    if where is not None and where.locked:
        rows_of_locks = [
            (edge_words(where.dag, lock.edge), "+" if lock.sign > 0 else "−", float(where.dag.theta[lock.edge]),
             float(at_least(lock.barrier, SHOWN)))
            for lock in where.locked[:MOST_LISTED]
        ]  # fmt: skip
        caption = "Weights whose sign training keeps, and how close to zero each can come."
        sections.append(
            Section("Locked weights", [Table(("entry", "sign", "weight", "barrier"), rows_of_locks, caption)])
        )
    if symmetries.pinned:
        sections.append(Section("Not understood", pinned_blocks(symmetries)))
    if words := rank_words(audit):
        sections.append(Section("Rank of the balances", [words]))
    sections.append(assumed_section((), audit.skipped, symmetries.noted))
    return sections
