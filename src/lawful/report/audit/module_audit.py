"""The audit of a module as JSON, as one terminal page and as one HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from lawful.figure import Figure
from lawful.outward import at_least
from lawful.report.audit.advice import advice_block, print_advice, skipped_section
from lawful.report.audit.audit import listed
from lawful.report.page.charts import locks, sorted_values
from lawful.report.page.page import Block, Section, Table, render
from lawful.report.structure.components import edge_words
from lawful.report.structure.symmetries import symmetries_json
from lawful.report.structure.symmetries_page import space_blocks, waste_sections
from lawful.sentences import audit as of_balances
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.api.module_audit import ModuleAudit

MOST_LISTED = 500
SHOWN = 5  # digits of a number in a table: a barrier is rounded downwards to them
NOTHING = "Nothing was found: no rescaling that the audit tries helps, and no rule finds a dead parameter."
SHARED = ("spaces", "dead", "pinned", "dimension", "log10_discrete", "mode", "noted")  # with `lawful symmetries`


def module_audit_json(audit: ModuleAudit) -> dict[str, Any]:
    """The documented keys of `lawful audit --json` of a module."""
    found, where = audit.symmetries, audit.components
    described = symmetries_json(found)
    return {
        "network": audit.source,
        "summary": {"name": audit.kind, "parameters": audit.parameters, "frozen": audit.frozen},
        "laws": [{"level": "phi", "laws": len(found.laws), "status": "at least", "loss": "full", "dimensions": []}],
        **{key: described[key] for key in SHARED},
        "where": None if where is None else {
            "connected": None if where.connected and where.beyond else where.connected,
            "log2_components": where.log2_components,
            "locked": [
                {"edge": list(where.dag.edge_name(lock.edge)), "entry": edge_words(where.dag, lock.edge),
                 "sign": lock.sign, "barrier": lock.barrier}
                for lock in where.locked
            ],
            "locked_after_rescaling": audit.locked_after_rescaling,
            "beyond": list(where.beyond),
            "balances": len(where.dag.hidden),
        },
        "rank": None if audit.singularity is None else audit.singularity.rank,
        "skipped": [vars(part) for part in audit.skipped],
        "recommendations": [vars(each) for each in audit.recommendations],
    }  # fmt: skip


def module_sentences(audit: ModuleAudit) -> Iterator[tuple[str, str]]:
    """The answers in order of consequence: a heading and a sentence."""
    found, where = audit.symmetries, audit.components
    if where is not None:
        yield "where it can go", _where(audit)
    dead = [(part.parameter, part.entries) for part in found.dead]
    yield "what is wasted", says.dead(sum(count for _, count in dead), dead) if dead else says.none_dead_found()
    yield "what training conserves", says.conserved(len(found.laws), found.parameters, found.mode)
    yield "same function", says.group(found.dimension, found.log10_discrete)
    point = audit.singularity
    if point is not None and point.singular:
        yield "rank", of_balances.singular(point.rank, point.hidden, listed(point.cut_off))
    elif point is not None and point.hidden:
        yield "rank", of_balances.regular(point.rank)
    for each in found.pinned:
        yield "not understood", f"{each.operation} ({each.calls} calls) touches {each.share:.1%} of the parameters."
    yield "read", found.noted


def _where(audit: ModuleAudit) -> str:
    where = audit.components
    if where is None:
        return ""
    text = says.locked(len(where.dag.hidden), len(where.locked))
    if audit.locked_after_rescaling is not None and audit.locked_after_rescaling < len(where.locked):
        text += f" {says.unlocked(audit.locked_after_rescaling)}"
    return text + "".join(f" Beyond them: {reason}." for reason in where.beyond)


def print_module_audit(audit: ModuleAudit, console: Console) -> None:
    """One page of at most 80 columns."""
    console.print(Text.assemble((audit.source, "bold"), f"  {audit.kind}, {audit.parameters:,} parameters"))
    table = TextTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, sentence in module_sentences(audit):
        table.add_row(heading, Text(sentence))
    for part in audit.skipped:
        table.add_row("skipped", Text(f"{part.part}: {part.reason} ({part.remedy})"))
    console.print(table)
    print_advice(audit.recommendations, console)


def module_audit_text(audit: ModuleAudit) -> str:
    """The same page as plain text."""
    lines = io.StringIO()
    print_module_audit(audit, Console(file=lines, width=80, color_system=None, force_jupyter=False))
    return lines.getvalue().rstrip()


def module_audit_html(audit: ModuleAudit) -> str:
    """The self-contained page."""
    found = audit.symmetries
    sections = [
        Section("Answers", [Table(("question", "answer"), list(module_sentences(audit)))]),
        Section("What to do", [advice_block(audit.recommendations, "module", NOTHING)]),
        Section("Where training can go", _where_blocks(audit)),
        Section("What training conserves", space_blocks(found.spaces)),
        *waste_sections(found),
    ]
    if audit.skipped:
        sections.append(skipped_section(audit.skipped))
    lead = f"{audit.kind}, {audit.parameters:,} parameters, {audit.frozen:,} of them frozen"
    return render(f"Audit of {audit.source}", lead, sections)


def _where_blocks(audit: ModuleAudit) -> list[Block]:
    where = audit.components
    if where is None:
        return ["Not looked at: see what was skipped."]
    blocks: list[Block] = [_where(audit)]
    if len(where.dag.hidden):
        panel = sorted_values(where.balance.values, "balances", "node, by rank", "balance")
        blocks.append(Figure("Balances of the scaling graph, largest first.", [panel]))
    if where.locked:
        rows = [
            (edge_words(where.dag, lock.edge), "+" if lock.sign > 0 else "-", float(where.dag.theta[lock.edge]),
             float(at_least(lock.barrier, SHOWN)))
            for lock in where.locked[:MOST_LISTED]
        ]  # fmt: skip
        caption = "Weights whose sign training keeps, and how close to zero each can come."
        blocks += [Table(("entry", "sign", "weight", "barrier"), rows, caption), locks(where)]
    return blocks
