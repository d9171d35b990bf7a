"""The audit of a module as JSON, and the sentences that the terminal and the page repeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lawful.report.audit.form import list_names
from lawful.report.structure.components import edge_words
from lawful.report.structure.symmetries import symmetries_json
from lawful.sentences import audit as of_balances
from lawful.sentences import symmetries as says

if TYPE_CHECKING:
    from lawful.api.module_audit import ModuleAudit

SHARED = ("spaces", "dead", "pinned", "dimension", "log10_discrete", "mode", "noted")  # with `lawful symmetries`


def module_json(audit: ModuleAudit) -> dict[str, Any]:
    """The documented keys of `lawful audit --json` of a module."""
    group, where = audit.symmetries, audit.components
    described = symmetries_json(group)
    return {
        "network": audit.source,
        "summary": {"name": audit.kind, "parameters": audit.parameters, "frozen": audit.frozen},
        "laws": [{"level": "phi", "laws": len(group.laws), "status": "at least", "loss": "full", "dimensions": []}],
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
        "removable_channels": None if audit.pruning is None else len(audit.pruning.removed),
        "rank": None if audit.singularity is None else audit.singularity.rank,
        "skipped": [vars(part) for part in audit.skipped],
        "recommendations": [vars(recommendation) for recommendation in audit.recommendations],
    }  # fmt: skip


def module_sentences(audit: ModuleAudit) -> Iterator[tuple[str, str]]:
    """The answers in order of consequence: a heading and a sentence."""
    symmetries, where = audit.symmetries, audit.components
    if where is not None:
        yield "where it can go", where_words(audit)
    yield "what is wasted", " ".join(filter(None, (removable_words(audit), dead_words(audit))))
    yield "what training conserves", says.conserved(len(symmetries.laws), symmetries.parameters, symmetries.mode)
    yield "same function", says.group(symmetries.dimension, symmetries.log10_discrete)
    if words := rank_words(audit):
        yield "rank", words
    for pin in symmetries.pinned:
        yield "not understood", f"{pin.operation} ({pin.calls} calls) touches {pin.share:.1%} of the parameters."
    yield "read", symmetries.noted


def removable_words(audit: ModuleAudit) -> str:
    """Channels that the rules of pruning remove; nothing where they find none, which proves nothing."""
    pruning = audit.pruning
    if pruning is None or not pruning.removed:
        return ""
    sizes = pruning.channels_before, pruning.parameters_after, pruning.parameters_before
    return of_balances.removable(len(pruning.removed), *sizes, None, "channels")


def dead_words(audit: ModuleAudit) -> str:
    """Entries that training never moves."""
    dead = [(part.parameter, part.entries) for part in audit.symmetries.dead]
    return says.dead(sum(count for _, count in dead), dead) if dead else says.none_dead_found()


def rank_words(audit: ModuleAudit) -> str:
    """Whether the balances have independent derivatives at these weights."""
    point = audit.singularity
    if point is not None and point.singular:
        return of_balances.singular(point.rank, point.hidden, list_names(point.cut_off))
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
