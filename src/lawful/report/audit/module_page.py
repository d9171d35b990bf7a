"""The audit of a module in the form of every audit, and the page of its blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from lawful.report.audit.audit import (
    capital,
    conserved_sentence,
    dead_words,
    removable_channels,
    same_sentence,
    wasted_words,
)
from lawful.report.audit.form import (
    MOST_ROWS,
    Form,
    advised,
    largest_balances,
    locks_answer,
    locks_section,
    rests_on,
    sentence_of,
    take_out,
)
from lawful.report.page.page import Action, Answer, Chip, Opening, Picture, Section, render
from lawful.report.structure.symmetries import (
    block_of,
    block_rows,
    check_words,
    group_words,
    space_table,
    waste_sections,
)
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.symmetry import Space, Symmetries

NOTHING = "Nothing was found: no rescaling that the audit tries helps, and no rule finds a dead parameter."


def module_form(audit: Audit, group: Symmetries) -> Form:
    """What the audit of a module fills into the form."""
    answers = [_waste(audit, group), _laws_answer(audit, group), _locks_answer(audit), _same(audit, group)]
    return Form(
        _kind(audit), _headline(audit), _lead(audit), _removal_chip(audit) or _check_chip(audit, group),
        block_rows(group, audit.components), _questions(audit), NOTHING, answers, _details(audit, group),
    )  # fmt: skip


def _kind(audit: Audit) -> str:
    frozen = f", {audit.frozen:,} of them frozen" if audit.frozen else ""
    return f"{audit.kind}, {audit.parameters:,} weights{frozen}"


def blocks_page(audit: Audit, group: Symmetries) -> str:
    """The module block by block, as `lawful explore` shows it: what each block conserves, carries and does not need."""
    count = len({block_of(space.name) for space in group.spaces})
    blocks = f"{count:,} block{'s' * (count != 1)}"
    opening = Opening(
        file=audit.source,
        kind=_kind(audit),
        chip=_check_chip(audit, group),
        stage=block_rows(group, audit.components),
        actions=[
            Action("See what to do about it", "Everything known of it on one page.",
                   f"lawful audit {audit.asked} --html audit.html"),
            *_questions(audit)[:1],
        ],
    )  # fmt: skip
    conserved = _at_least(audit)
    title = f"{blocks}, {conserved[0].lower()}{conserved[1:]} conserved."
    answers = [_laws_answer(audit, group), _waste(audit, group), _locks_answer(audit)]
    return render(title, same_sentence(audit), _details(audit, group), opening=opening, answers=answers)


def _headline(audit: Audit) -> str:
    """The first recommendation with its number, or what is conserved if there is none."""
    match _first(audit):
        case "":
            return f"{_at_least(audit)} conserved; nothing was found to improve."
        case "remove":
            return take_out(removable_channels(audit).partition(" and nothing")[0])
        case "leave":
            return take_out(dead_words(audit).partition(",")[0], "Leave {} out.")
        case _:
            return advised(audit)


def _lead(audit: Audit) -> str:
    """What the headline left unsaid of the first recommendation, or the group."""
    match _first(audit):
        case "remove":
            return capital(removable_channels(audit).partition(" can go and ")[2])
        case "leave":
            return capital(dead_words(audit).partition(", ")[2])
        case _:
            return same_sentence(audit)


def _first(audit: Audit) -> str:
    """The verb of the first recommendation."""
    return audit.recommendations[0].title.split()[0] if audit.recommendations else ""


def _at_least(audit: Audit) -> str:
    return conserved_sentence(audit).partition(" of ")[0]


def _check_chip(audit: Audit, group: Symmetries) -> Chip:
    command = f"lawful symmetries {audit.asked} --html symmetries.html"
    if group.checked is None:
        ask = f"lawful symmetries {audit.asked} --check"
        return Chip("open", "Symmetries read from the graph", "not held against gradients", "To do it:", (ask,))
    more = f"{sentence_of(group.noted)} Derivatives of the module along each generator, in float64: measured, no proof."
    return Chip("here", f"Checked: {check_words(group)}", "", more, (command,))


def _questions(audit: Audit) -> list[Action]:
    return [
        Action("See every symmetry", "Which tensors each acts on, and what it conserves.",
               f"lawful symmetries {audit.asked} --html symmetries.html"),
        Action("Look at it block by block", "Laws, balances and dead weights of each block.",
               f"lawful explore {audit.asked} --html explorer.html"),
    ]  # fmt: skip


# One answer, one picture, one chip


def _removal_chip(audit: Audit) -> Chip | None:
    """The evidence of the first recommendation, if that is to prune."""
    first = audit.recommendations[0].command if audit.recommendations else ""
    if not first.startswith("lawful prune "):
        return None
    more = "To save the evidence and have an independent checker verify it:"
    return Chip("open", "Not re-checked", "", more, (first, "lawful verify pruned.json"))


def _waste(audit: Audit, group: Symmetries) -> Answer:
    dead = sorted(group.dead, key=lambda part: -part.entries)
    removed, can_go = getattr(audit.pruning, "removed", ()), removable_channels(audit)
    counts = Counter((channel.layer, channel.kind) for channel in removed)
    rows = [(f"{layer}: {kind} channels", float(count)) for (layer, kind), count in counts.most_common(MOST_ROWS)]
    rows += [(f"{part.parameter}: dead entries of {part.of:,}", float(part.entries)) for part in dead[:MOST_ROWS]]
    if not rows:
        words = "The rules that find what no loss can see, and channels that change nothing, found nothing here."
        return Answer("What can go", says.none_dead_found().rstrip("."), words, None, None)
    note = f"The {MOST_ROWS} largest of {len(dead):,}." if len(dead) > MOST_ROWS else ""
    picture = Picture("bars", {"rows": rows, "note": note}, "redundant channels, and dead entries of parameters")
    words = wasted_words(audit) if dead else can_go
    if can_go:
        return Answer("What can go", can_go.partition(" and nothing")[0], words, picture, _removal_chip(audit))
    chip = Chip("proved", "For any weights", "read from the graph", "", (f"lawful symmetries {audit.asked}",))
    return Answer("What can go", dead_words(audit).partition(",")[0], words, picture, chip)


def _laws_answer(audit: Audit, group: Symmetries) -> Answer:
    chip = Chip("open", "At least", "others were not counted", "The symmetries give these.",
                (f"lawful symmetries {audit.asked}",))  # fmt: skip
    picture = _by_group("laws by group", group, lambda space: space.count)
    return Answer("What training conserves", _at_least(audit), conserved_sentence(audit), picture, chip)


def _by_group(label: str, group: Symmetries, number: Callable[[Space], int]) -> Picture | None:
    """A number of each kind of group, the largest first."""
    counts: Counter[str] = Counter()
    for space in group.spaces:
        counts[space.group] += number(space)
    rows = [(group_words(name), float(count)) for name, count in counts.most_common(MOST_ROWS) if count]
    return Picture("bars", {"rows": rows, "note": ""}, label) if rows else None


def _locks_answer(audit: Audit) -> Answer:
    where = audit.components
    if where is None:
        return Answer("What is locked", "Not looked at", "What was skipped, and why, stands below.")
    heading = says.locked(len(where.dag.hidden), len(where.locked))
    return locks_answer(audit, where, heading, "of these balances", largest_balances(where))


def _same(audit: Audit, group: Symmetries) -> Answer:
    heading = "A group of at least this size" if group.log10_discrete else "No symmetry was found"
    if group.dimension:
        heading = f"A group of dimension {group.dimension:,}"
    picture = _by_group("dimension by group", group, lambda space: space.dimension)
    return Answer(
        "Which other weights are this function", heading, same_sentence(audit), picture, _check_chip(audit, group)
    )


# Folded


def _details(audit: Audit, group: Symmetries) -> list[Section]:
    sections = [Section("Every kind of symmetry", [space_table(group.spaces)])] if group.spaces else []
    sections += waste_sections(group)
    if audit.components is not None and audit.components.locked:
        sections.append(locks_section(audit.components))
    return [*sections, *rests_on(audit, group.noted)]
