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

from lawful.report.audit.neurons import Neurons, neurons_of
from lawful.report.plain import few, pick
from lawful.report.structure.components import edge_words
from lawful.report.structure.pruning import decided_json, decided_sentence, smallest_json, smallest_sentence, upper
from lawful.report.structure.symmetries import symmetries_json
from lawful.sentences import audit as says
from lawful.sentences import symmetries as of_module

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.symmetry import Symmetries

BARS = "▁▂▃▄▅▆▇█"
LARGEST = float(np.finfo(np.float64).max)
SIZES = ("name", "inputs", "outputs", "hidden", "parameters", "biases")
SHARED = ("spaces", "dead", "pinned", "dimension", "log10_discrete", "mode", "noted")  # with `lawful symmetries`


def to_json(audit: Audit) -> dict[str, Any]:
    """The documented keys of `lawful audit --json`."""
    group = audit.symmetries
    return {
        "network": audit.source,
        "laws": _laws_json(audit),
        "where": _where_json(audit),
        **(_neurons_json(audit, neurons_of(audit)) if group is None else _module_json(audit, group)),
        "skipped": [vars(part) for part in audit.skipped],
        "recommendations": [vars(recommendation) for recommendation in audit.recommendations],
    }


def _laws_json(audit: Audit) -> list[dict[str, Any]]:
    if audit.symmetries is not None:
        laws = len(audit.symmetries.laws)
        return [{"level": "phi", "laws": laws, "status": "at least", "loss": "full", "dimensions": []}]
    return [
        {key: getattr(count, key) for key in ("level", "laws", "status", "loss", "dimensions")}
        for count in (audit.laws, audit.near_laws, audit.data_laws)
        if count is not None
    ]


def _where_json(audit: Audit) -> dict[str, Any] | None:
    where = audit.components
    if where is None:
        return None
    return {
        "connected": None if where.connected and where.beyond else where.connected,
        "log2_components": where.log2_components,
        "locked": [
            {
                "edge": list(where.dag.edge_name(lock.edge)),
                "entry": edge_words(where.dag, lock.edge),
                **pick(lock, "sign barrier"),
            }
            for lock in where.locked
        ],
        "locked_after_rescaling": audit.locked_after_rescaling,
        "beyond": list(where.beyond),
        "balances": len(where.dag.hidden),
    }


def _module_json(audit: Audit, group: Symmetries) -> dict[str, Any]:
    described = symmetries_json(group)
    removed = getattr(audit.pruning, "removed", None)
    return {key: described[key] for key in SHARED} | {
        "summary": {"name": audit.kind, "parameters": audit.parameters, "frozen": audit.frozen},
        "removable_channels": None if removed is None else len(removed),
        "rank": None if audit.singularity is None else audit.singularity.rank,
    }


def _neurons_json(audit: Audit, facts: Neurons) -> dict[str, Any]:
    summary, pruning, box = facts.summary, facts.pruning, audit.box_pruning
    return {
        "summary": {size: getattr(summary, size) for size in SIZES},
        "balance": dict(zip(facts.names, audit.balance.tolist(), strict=True)),
        "waste": {
            **pick(summary, "dead linear undecided"),
            **pick(facts.singularity, "cut_off rank"),
            "removable_neurons": facts.removed,
            "parameters_after": pruning.network.parameters,
            **pick(pruning, "bound rounding"),
            "left": decided_json(pruning),
            "smallest_equivalent": smallest_json(audit.smallest),
            "removable_on_data_range": None if box is None else box.neurons_before - box.neurons_after,
        },
        "same_function": _same_json(audit),
        "data": [asdict(layer) for layer in audit.activity] or None,
    }


def _same_json(audit: Audit) -> dict[str, Any] | None:
    if audit.identifiability is not None:
        answer = audit.identifiability
        return {
            **pick(answer, "identifiable reasons"),
            "fiber_dimension": audit.fiber_dimension,
        }
    if audit.normal_form is not None:
        kinds = [kind.value for kind in audit.normal_form.kinds]
        return {"kinds": kinds, "fiber_dimension": audit.fiber_dimension}
    return None


# What the facts say, once, for the terminal and the page


def sentences(audit: Audit) -> Iterator[tuple[str, str]]:
    """The answers in order of consequence: a heading and a sentence."""
    group = audit.symmetries
    if audit.components is not None:
        yield "where it can go", where_sentence(audit)
    yield "what is wasted", wasted_sentence(neurons_of(audit)) if group is None else wasted_words(audit)
    if words := smallest_words(audit):
        yield "smallest", words
    if words := range_sentence(audit):
        yield "on your data's range", words
    yield "what training conserves", conserved_sentence(audit)
    if words := rank_sentence(audit):
        yield "rank", words
    yield "the same function", same_sentence(audit)
    if group is not None:
        for pin in group.pinned:
            yield "not understood", f"{pin.operation} ({pin.calls} calls) touches {pin.share:.1%} of the parameters."
        yield "read", group.noted


def smallest_words(audit: Audit) -> str:
    """How many neurons any network of the same depth needs, where that is known."""
    return "" if audit.smallest is None else capital(smallest_sentence(audit.smallest)) + "."


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
    if point is not None and point.singular:
        return says.singular(point.rank, point.hidden, few(point.cut_off, 5))
    return says.regular(point.rank) if point is not None and point.hidden else ""


def wasted_sentence(facts: Neurons) -> str:
    """What can go, and what is known of the neurons that are left."""
    left = facts.pruning.neurons_after
    words = ""
    if facts.removed:
        words = facts.removable + (" Of those left, " if left else "")
    if left == 0:
        return words or "It has no hidden neuron."
    known = decided_sentence(facts.pruning)
    return words + (known if facts.removed else capital(known)) + "."


def wasted_words(audit: Audit) -> str:
    """Channels that can go, and entries that are dead."""
    return " ".join(filter(None, (removable_channels(audit), dead_words(audit))))


def removable_channels(audit: Audit) -> str:
    """Channels that the rules of pruning remove; nothing where they find none, which proves nothing."""
    pruning: Any = audit.pruning
    if pruning is None or not pruning.removed:
        return ""
    sizes = pruning.channels_before, pruning.parameters_after, pruning.parameters_before
    return says.removable(len(pruning.removed), *sizes, None, "channels")


def dead_words(audit: Audit) -> str:
    """Entries of a module that training never moves."""
    dead = [(part.parameter, part.entries) for part in audit.symmetries.dead] if audit.symmetries is not None else []
    return of_module.dead(sum(count for _, count in dead), dead) if dead else of_module.none_dead_found()


def capital(words: str) -> str:
    """The words with a capital."""
    return words[:1].upper() + words[1:]


def where_sentence(audit: Audit) -> str:
    """Whether signs are locked, and what that means for the outputs, or what else confines training."""
    where, left = audit.components, audit.locked_after_rescaling
    if where is None:
        return ""
    if audit.symmetries is not None:
        words = [of_module.locked(len(where.dag.hidden), len(where.locked))]
        words += [of_module.unlocked(left)] if left is not None and left < len(where.locked) else []
        return " ".join([*words, *(f"Beyond them: {reason}." for reason in where.beyond)])
    if where.connected:
        return says.connected()
    words = [says.locked(where.log2_components)]
    if sides := [(where.dag.names[o.output], str(o.confined)) for o in audit.outputs if o.confined]:
        words.append(says.confined(sides))
    return " ".join([*words, *([says.unlocked(left)] if left is not None else [])])


def conserved_sentence(audit: Audit) -> str:
    """Counts of different things never stand side by side without saying of what."""
    if (group := audit.symmetries) is not None:
        return of_module.conserved(len(group.laws), group.parameters, group.mode)
    everywhere, near, on_data = audit.laws, audit.near_laws, audit.data_laws
    if everywhere is None:
        return says.balances(len(audit.balance))
    words = [says.conserved(everywhere.laws, everywhere.proved, everywhere.status)]
    if near is not None and near.laws > everywhere.laws:
        words.append(says.conserved_near(near.laws, everywhere.laws, near.proved, near.status))
    if on_data is not None:
        words.append(says.conserved_on_data(on_data.laws, on_data.proved, on_data.status))
    return " ".join(words)


def same_sentence(audit: Audit) -> str:
    """Which other weights are this function, as far as that was decided."""
    if (group := audit.symmetries) is not None:
        return of_module.group(group.dimension, group.log10_discrete)
    hidden, answer = len(audit.balance), audit.identifiability
    known = says.rescaling(hidden, audit.depth is not None)
    if hidden == 0:
        return known + "."
    if answer is not None:
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


def print_audit(audit: Audit, console: Console) -> None:
    """One page of at most 80 columns."""
    console.print(Text.assemble((audit.source, "bold"), f"  {audit.kind}, {audit.parameters:,} parameters"))
    table = TextTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, sentence in [*sentences(audit), *_numbers(audit)]:
        table.add_row(heading, Text(sentence))
    for part in audit.skipped:
        table.add_row("skipped", Text(f"{part.part}: {part.reason} ({part.remedy})"))
    console.print(table)
    if audit.recommendations:
        console.print(Text("what to do", style="bold"))
    for number, advice in enumerate(audit.recommendations, 1):
        console.print(f" {number}. {advice.title}: {advice.benefit}", highlight=False, markup=False)
        console.print(f"    $ {advice.command}", highlight=False, markup=False, soft_wrap=True, style="cyan")
    if audit.symmetries is None:
        console.print(EVIDENCE, highlight=False, markup=False, style="dim")


def _numbers(audit: Audit) -> Iterator[tuple[str, str]]:
    """What is no sentence: the balances of neurons at a glance, and what each layer does to the data."""
    if len(audit.balance):
        low, high = float(audit.balance.min()), float(audit.balance.max())
        yield "balances", f"{low:.3g} {sparkline(audit.balance)} {high:.3g}"
    for layer in audit.activity:
        rows = "; ".join(f"{t.label}: {t.fully} gone, {t.partially} cut" for t in layer.truncated[:4])
        facts = f"dimension {layer.dimension:.1f} of {layer.width}, {len(layer.never)} never fire; {rows}"
        yield f"layer {layer.layer} on data", facts


def audit_text(audit: Audit) -> str:
    """The same page as plain text."""
    lines = io.StringIO()
    print_audit(audit, Console(file=lines, width=80, color_system=None, force_jupyter=False))
    return lines.getvalue().rstrip()
