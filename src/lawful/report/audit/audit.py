"""An audit as JSON and as one terminal page; the sentences that its HTML page repeats."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from lawful.report.audit.form import is_of_module, list_names, print_advice
from lawful.report.audit.module_audit import module_json, module_sentences
from lawful.report.structure.pruning import decided_json, decided_sentence, smallest_json, smallest_sentence, upper
from lawful.sentences import audit as says

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.api.module_audit import ModuleAudit

BARS = "▁▂▃▄▅▆▇█"
LARGEST = float(np.finfo(np.float64).max)


def to_json(audit: Audit | ModuleAudit) -> dict[str, Any]:
    """The documented keys of `lawful audit --json`."""
    return module_json(audit) if is_of_module(audit) else _network_json(audit)


def _network_json(audit: Audit) -> dict[str, Any]:
    summary, components, pruning = audit.summary, audit.components, audit.pruning
    dag = components.dag
    sizes = ("name", "inputs", "outputs", "hidden", "parameters", "biases")
    return {
        "network": audit.source,
        "summary": {size: getattr(summary, size) for size in sizes},
        "laws": [
            {"level": count.level, "laws": count.laws, "status": count.status, "loss": count.loss,
             "dimensions": count.dimensions}
            for count in (audit.laws, audit.near_laws, audit.data_laws) if count is not None
        ],
        "balance": dict(zip((dag.names[v] for v in dag.hidden), audit.balance.tolist(), strict=True)),
        "where": {
            "connected": components.connected,
            "log2_components": components.log2_components,
            "locked": [
                {"edge": dag.edge_name(lock.edge), "sign": lock.sign, "barrier": lock.barrier}
                for lock in components.locked
            ],
            "locked_after_rescaling": audit.locked_after_rescaling,
        },
        "waste": {
            "dead": summary.dead,
            "linear": summary.linear,
            "undecided": summary.undecided,
            "cut_off": audit.singularity.cut_off,
            "rank": audit.singularity.rank,
            "removable_neurons": pruning.neurons_before - pruning.neurons_after,
            "parameters_after": pruning.network.parameters,
            "bound": pruning.bound,
            "rounding": pruning.rounding,
            "left": decided_json(pruning),
            "smallest_equivalent": smallest_json(audit.smallest),
            "removable_on_data_range": None if audit.box_pruning is None
            else audit.box_pruning.neurons_before - audit.box_pruning.neurons_after,
        },
        "same_function": _same_json(audit),
        "data": [asdict(layer) for layer in audit.activity] or None,
        "skipped": [vars(part) for part in audit.skipped],
        "recommendations": [vars(recommendation) for recommendation in audit.recommendations],
    }  # fmt: skip


def _same_json(audit: Audit) -> dict[str, Any] | None:
    if audit.identifiability is not None:
        answer = audit.identifiability
        return {
            "identifiable": answer.identifiable,
            "reasons": answer.reasons,
            "fiber_dimension": audit.fiber_dimension,
        }
    if audit.normal_form is not None:
        kinds = [kind.value for kind in audit.normal_form.kinds]
        return {"kinds": kinds, "fiber_dimension": audit.fiber_dimension}
    return None


# What the facts say, once, for the terminal and the page


def sentences(audit: Audit) -> Iterator[tuple[str, str]]:
    """The answers in order of consequence: a heading and a sentence."""
    yield "where it can go", where_sentence(audit)
    yield "what is wasted", wasted_sentence(audit)
    if words := smallest_words(audit):
        yield "smallest", words
    if words := range_sentence(audit):
        yield "on your data's range", words
    yield "what training conserves", conserved_sentence(audit)
    if words := rank_sentence(audit):
        yield "rank", words
    yield "the same function", same_sentence(audit)


def smallest_words(audit: Audit) -> str:
    """How many neurons any network of the same depth needs, where that is known."""
    return "" if audit.smallest is None else _capital(smallest_sentence(audit.smallest)) + "."


def range_sentence(audit: Audit) -> str:
    """What can go on the range of the data, if there are data."""
    less = audit.box_pruning
    if less is None:
        return ""
    removed = less.neurons_before - less.neurons_after
    return (
        says.on_the_range(removed, upper(less.bound, less.rounding)) if removed else "No neuron was found that can go."
    )


def rank_sentence(audit: Audit) -> str:
    """Whether the balances have independent derivatives at these weights."""
    point = audit.singularity
    if point.singular:
        return says.singular(point.rank, point.hidden, list_names(point.cut_off))
    return says.regular(point.rank) if point.hidden else ""


def wasted_sentence(audit: Audit) -> str:
    """What can go, and what is known of the neurons that are left."""
    pruning, parameters = audit.pruning, audit.summary.parameters
    removed, left = pruning.neurons_before - pruning.neurons_after, pruning.neurons_after
    words = ""
    if removed:
        words = says.removable(
            removed, pruning.neurons_before, pruning.network.parameters, parameters, pruning.rounding
        )
        words += " Of those left, " if left else ""
    if left == 0:
        return words or "It has no hidden neuron."
    known = decided_sentence(pruning)
    return words + (known if removed else _capital(known)) + "."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def where_sentence(audit: Audit) -> str:
    """Whether signs are locked, and what that means for the outputs."""
    components = audit.components
    if components.connected:
        return says.connected()
    words = [says.locked(components.log2_components)]
    if sides := [(components.dag.names[o.output], str(o.confined)) for o in audit.outputs if o.confined]:
        words.append(says.confined(sides))
    if audit.unlocked is not None and audit.locked_after_rescaling is not None:
        words.append(says.unlocked(audit.locked_after_rescaling))
    return " ".join(words)


def conserved_sentence(audit: Audit) -> str:
    """Counts of different things never stand side by side without saying of what."""
    everywhere, near, on_data = audit.laws, audit.near_laws, audit.data_laws
    if everywhere is None:
        return says.balances(audit.summary.hidden)
    words = [says.conserved(everywhere.laws, everywhere.proved, everywhere.status)]
    if near is not None and near.laws > everywhere.laws:
        words.append(says.conserved_near(near.laws, everywhere.laws, near.proved, near.status))
    if on_data is not None:
        words.append(says.conserved_on_data(on_data.laws, on_data.proved, on_data.status))
    return " ".join(words)


def same_sentence(audit: Audit) -> str:
    """Which other weights are this function, as far as that was decided."""
    known = says.rescaling(audit.summary.hidden, audit.depth is not None)
    if audit.summary.hidden == 0:
        return known + "."
    if audit.identifiability is not None:
        answer = audit.identifiability
        if answer.identifiable is None:
            return f"{known}; whether anything else does is undecided: {'; '.join(answer.reasons[:3])}."
        if answer.identifiable:
            return says.identifiable(known, answer.among != "all")
        return says.not_identifiable(known, answer.reasons[:3])
    if audit.normal_form is not None:
        names = [kind.value for kind in audit.normal_form.kinds]
        words = [f"{known}.", says.kinds([(kind, names.count(kind)) for kind in dict.fromkeys(names)])]
        if audit.fiber_dimension is not None:
            words.append(says.fiber_dimension(audit.fiber_dimension))
        return " ".join(words)
    return f"{known}; whether anything else does was not decided."


def sparkline(values: np.ndarray, bins: int = 24) -> str:
    """A histogram in one line.

    >>> sparkline(np.array([0.0, 0.0, 0.0, 1.0]), bins=4)
    '█  ▄'
    >>> sparkline(np.array([1e18, np.nextafter(1e18, 2e18), np.inf]), bins=2)
    '█▅'
    """
    halves = np.clip(values, -LARGEST, LARGEST) / 2  # so that no difference overflows
    low, high = (float(halves.min()), float(halves.max())) if len(values) else (0.0, 0.0)
    shares = (halves - low) / (high - low) if high > low else np.full(len(halves), 0.5)
    counts = np.bincount(np.minimum((shares * bins).astype(int), bins - 1), minlength=bins)
    top = max(int(counts.max()), 1)
    return "".join(" " if count == 0 else BARS[int(np.ceil(7 * count / top))] for count in counts)


EVIDENCE = (
    "Evidence: laws, components, prune, singular and same save theirs with --certificate FILE; "
    "`lawful verify FILE NETWORK` re-checks it with other code."
)


def print_audit(audit: Audit | ModuleAudit, console: Console) -> None:
    """One page of at most 80 columns, of a network or of a module."""
    name, answers = _of_module(audit) if is_of_module(audit) else _of_network(audit)
    console.print(Text.assemble((audit.source, "bold"), f"  {name} parameters"))
    table = TextTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, sentence in answers:
        table.add_row(heading, Text(sentence))
    for part in audit.skipped:
        table.add_row("skipped", Text(f"{part.part}: {part.reason} ({part.remedy})"))
    console.print(table)
    print_advice(audit.recommendations, console)
    if not is_of_module(audit):
        console.print(EVIDENCE, highlight=False, markup=False, style="dim")


def _of_module(audit: ModuleAudit) -> tuple[str, list[tuple[str, str]]]:
    return f"{audit.kind}, {audit.parameters:,}", list(module_sentences(audit))


def _of_network(audit: Audit) -> tuple[str, list[tuple[str, str]]]:
    answers = list(sentences(audit))
    if len(audit.balance):
        low, high = float(audit.balance.min()), float(audit.balance.max())
        answers.append(("balances", f"{low:.3g} {sparkline(audit.balance)} {high:.3g}"))
    for layer in audit.activity:
        rows = "; ".join(f"{t.label}: {t.fully} gone, {t.partially} cut" for t in layer.truncated[:4])
        facts = f"dimension {layer.dimension:.1f} of {layer.width}, {len(layer.never)} never fire; {rows}"
        answers.append((f"layer {layer.layer} on data", facts))
    return f"{audit.summary.name}, {audit.summary.parameters:,}", answers


def audit_text(audit: Audit | ModuleAudit) -> str:
    """The same page as plain text."""
    lines = io.StringIO()
    print_audit(audit, Console(file=lines, width=80, color_system=None, force_jupyter=False))
    return lines.getvalue().rstrip()
