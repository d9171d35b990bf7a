"""The audit of a module as JSON and as one terminal page; the sentences that its HTML page repeats."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from lawful.report.audit.advice import print_advice
from lawful.report.audit.audit import listed
from lawful.report.structure.components import edge_words
from lawful.report.structure.symmetries import symmetries_json
from lawful.sentences import audit as of_balances
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.api.module_audit import ModuleAudit

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
        yield "where it can go", where_words(audit)
    yield "what is wasted", dead_words(audit)
    yield "what training conserves", says.conserved(len(found.laws), found.parameters, found.mode)
    yield "same function", says.group(found.dimension, found.log10_discrete)
    if words := rank_words(audit):
        yield "rank", words
    for each in found.pinned:
        yield "not understood", f"{each.operation} ({each.calls} calls) touches {each.share:.1%} of the parameters."
    yield "read", found.noted


def dead_words(audit: ModuleAudit) -> str:
    """Entries that training never moves."""
    dead = [(part.parameter, part.entries) for part in audit.symmetries.dead]
    return says.dead(sum(count for _, count in dead), dead) if dead else says.none_dead_found()


def rank_words(audit: ModuleAudit) -> str:
    """Whether the balances have independent derivatives at these weights."""
    point = audit.singularity
    if point is not None and point.singular:
        return of_balances.singular(point.rank, point.hidden, listed(point.cut_off))
    return of_balances.regular(point.rank) if point is not None and point.hidden else ""


def where_words(audit: ModuleAudit) -> str:
    """Whether balances lock signs, and what else may confine training."""
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
