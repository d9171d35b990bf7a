"""An audit as JSON, as one terminal page and as one HTML page."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from lawful.components.entries import as_dag
from lawful.figure import Figure, Panel, Series
from lawful.report.charts import locks, sorted_values
from lawful.report.network import draw_network
from lawful.report.page import Block, Markup, Section, Table, render

if TYPE_CHECKING:
    from lawful.study.audit import Audit, Recommendation, Skipped

BARS = "▁▂▃▄▅▆▇█"
LOCKED, DEAD, LINEAR = "var(--lock,#e0a31b)", "var(--dead,#b9bec6)", "var(--straight,#9cc48f)"
MOST_LISTED = 200
NOTHING = "Nothing: no rescaling or pruning would help this network."


def to_json(audit: Audit) -> dict[str, Any]:
    """The documented keys of `lawful audit --json`."""
    summary, found, pruning = audit.summary, audit.components, audit.pruning
    sizes = ("name", "inputs", "outputs", "hidden", "parameters", "biases")
    return {
        "network": audit.source,
        "summary": {size: getattr(summary, size) for size in sizes},
        "laws": [
            {"level": count.level, "laws": count.laws, "status": count.status, "loss": count.loss,
             "dimensions": count.dimensions}
            for count in (audit.laws, audit.near_laws, audit.data_laws) if count is not None
        ],
        "balance": dict(zip((found.dag.names[v] for v in found.dag.hidden), audit.balance.tolist(), strict=True)),
        "where": {
            "connected": found.connected,
            "log2_components": found.log2_components,
            "locked": [
                {"edge": found.dag.edge_name(lock.edge), "sign": lock.sign, "barrier": lock.barrier}
                for lock in found.locked
            ],
            "locked_after_rescaling": audit.locked_after_rescaling,
        },
        "waste": {
            "dead": summary.dead,
            "linear": summary.linear,
            "cut_off": audit.singularity.cut_off,
            "rank": audit.singularity.rank,
            "removable_neurons": pruning.neurons_before - pruning.neurons_after,
            "parameters_after": pruning.network.parameters,
            "bound": pruning.bound,
            "rounding": pruning.rounding,
            "removable_on_data_range": None if audit.box_pruning is None
            else audit.box_pruning.neurons_before - audit.box_pruning.neurons_after,
        },
        "same_function": _same_json(audit),
        "data": [asdict(layer) for layer in audit.activity] or None,
        "skipped": [vars(part) for part in audit.skipped],
        "recommendations": [vars(each) for each in audit.recommendations],
    }  # fmt: skip


def _same_json(audit: Audit) -> dict[str, Any] | None:
    if audit.identifiability is not None:
        found = audit.identifiability
        return {
            "identifiable": found.identifiable,
            "reasons": found.reasons,
            "fiber_dimension": audit.fiber_dimension,
        }
    if audit.normal_form is not None:
        kinds = [kind.value for kind in audit.normal_form.kinds]
        return {"kinds": kinds, "fiber_dimension": audit.fiber_dimension}
    return None


# What the facts say, once, for the terminal and the page


def sentences(audit: Audit) -> Iterator[tuple[str, str]]:
    """The answers in order of consequence: a heading and a sentence."""
    found, pruning, summary = audit.components, audit.pruning, audit.summary
    yield "where it can go", _where(audit)
    removed = pruning.neurons_before - pruning.neurons_after
    if removed:
        yield (
            "what is wasted",
            (
                f"{removed} of {pruning.neurons_before} hidden neurons can go and nothing changes for any input "
                f"(bound {pruning.bound:.3g}, rounding {pruning.rounding:.1e} on [-1, 1]): "
                f"{pruning.network.parameters:,} of {summary.parameters:,} parameters stay."
            ),
        )
    else:
        yield "what is wasted", "No neuron can be removed without changing the function for some input."
    if audit.box_pruning is not None:
        more = audit.box_pruning.neurons_before - audit.box_pruning.neurons_after
        yield (
            "on your data's range",
            (
                f"{more} neurons are redundant there (change at most "
                f"{audit.box_pruning.bound + audit.box_pruning.rounding:.1e})."
            ),
        )
    yield "what training conserves", _conserved(audit)
    yield (
        "rank",
        (
            f"rank J = {audit.singularity.rank} of {audit.singularity.hidden}"
            + (
                f"; cut off: {_listed(audit.singularity.cut_off)}."
                if audit.singularity.singular
                else ": a regular point."
            )
        ),
    )
    yield "the same function", _same(audit)
    if found.marginal:
        yield "near the edge", f"{len(found.marginal)} edges are locked or free by less than round-off: use --exact."


def _where(audit: Audit) -> str:
    found = audit.components
    if found.connected:
        return "Everywhere its balances allow: the invariant set is connected, no weight's sign is locked."
    text = (
        f"{found.log2_components} weights can never change sign: the invariant set has 2^{found.log2_components} parts."
    )
    confined = [f"{found.dag.names[o.output]} stays {o.confined} its bias" for o in audit.outputs if o.confined]
    text += f" {', '.join(confined)}." if confined else ""
    if audit.unlocked is not None:
        text += f" A rescaling that keeps the function leaves {audit.locked_after_rescaling} locked."
    return text


def _conserved(audit: Audit) -> str:
    """Counts of different things never stand side by side without saying of what."""
    hidden = audit.summary.hidden
    if audit.laws is None:
        return f"At least {hidden} quantities (the balances); that there are no others was not counted."
    text = f"{audit.laws.laws} independent quantities, wherever training starts and whatever the data"
    text += ": proved that there are no others of that kind." if audit.laws.proved else f" ({audit.laws.status})."
    if audit.near_laws is not None and audit.near_laws.laws > audit.laws.laws:
        word = "proved" if audit.near_laws.proved else f"{audit.near_laws.status}, not proved"
        text += (
            f" Close to the present weights fewer patterns of active neurons occur, so more is conserved for as "
            f"long as training stays close: {audit.near_laws.laws} ({word}), the {audit.laws.laws} among them."
        )
    if audit.data_laws is not None:
        text += f" On these data alone, which ask less of the weights: {audit.data_laws.laws}."
    return text


def _same(audit: Audit) -> str:
    hidden = audit.summary.hidden
    known = f"Rescaling {hidden} neurons and permuting them gives the same function"
    if audit.identifiability is not None:
        found = audit.identifiability
        if found.identifiable:
            return f"{known}, and nothing else does: the network is identifiable."
        word = "undecided" if found.identifiable is None else "so do others"
        return f"{known}; {word}: {'; '.join(found.reasons[:3])}."
    if audit.normal_form is not None:
        kinds = [kind.value for kind in audit.normal_form.kinds]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        more = "" if audit.fiber_dimension is None else f" Beyond that the fiber has dimension {audit.fiber_dimension}."
        return f"{known}. Its neurons: {counts}.{more}"
    return f"{known}; whether anything else does was not decided."


def _listed(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def sparkline(values: np.ndarray, bins: int = 24) -> str:
    """A histogram in one line.

    >>> sparkline(np.array([0.0, 0.0, 0.0, 1.0]), bins=4)
    '█  ▄'
    """
    counts = np.histogram(values, bins=bins)[0] if len(values) else np.zeros(bins)
    top = max(int(counts.max()), 1)
    return "".join(" " if count == 0 else BARS[int(np.ceil(7 * count / top))] for count in counts)


EVIDENCE = (
    "Evidence: laws, components, prune, singular and same save theirs with --certificate FILE; "
    "`lawful verify FILE NETWORK` re-checks it with other code."
)


def print_audit(audit: Audit, console: Console) -> None:
    """One page of at most 80 columns."""
    summary = audit.summary
    console.print(Text.assemble((audit.source, "bold"), f"  {summary.name}, {summary.parameters:,} parameters"))
    table = TextTable(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for heading, sentence in sentences(audit):
        table.add_row(heading, sentence)
    if len(audit.balance):
        low, high = float(audit.balance.min()), float(audit.balance.max())
        table.add_row("balances", f"{low:.3g} {sparkline(audit.balance)} {high:.3g}")
    for layer in audit.activity:
        rows = "; ".join(f"{t.label}: {t.fully} gone, {t.partially} cut" for t in layer.truncated[:4])
        facts = f"dimension {layer.dimension:.1f} of {layer.width}, {len(layer.never)} never fire; {rows}"
        table.add_row(f"layer {layer.layer} on data", facts)
    for part in audit.skipped:
        table.add_row("skipped", f"{part.part}: {part.reason} ({part.remedy})")
    console.print(table)
    if audit.recommendations:
        console.print(Text("what to do", style="bold"))
    for number, each in enumerate(audit.recommendations, 1):
        console.print(f" {number}. {each.title}: {each.benefit}", highlight=False, markup=False)
        console.print(f"    $ {each.command}", highlight=False, markup=False, soft_wrap=True, style="cyan")
    console.print(EVIDENCE, highlight=False, markup=False, style="dim")


def audit_text(audit: Audit) -> str:
    """The same page as plain text."""
    lines = io.StringIO()
    print_audit(audit, Console(file=lines, width=80, color_system=None, force_jupyter=False))
    return lines.getvalue().rstrip()


# The page


def html(audit: Audit) -> str:
    """The self-contained page."""
    summary = audit.summary
    sections = [
        Section("Answers", [Table(("question", "answer"), list(sentences(audit)))]),
        Section("What to do", [advice_block(audit.recommendations, "network", NOTHING), EVIDENCE]),
        Section("The network", [_graph(audit)]),
        Section("Where training can go", _where_blocks(audit)),
        Section("What training conserves", _law_blocks(audit)),
    ]
    if audit.activity:
        sections.append(Section("On your data", _data_blocks(audit)))
    if audit.skipped:
        sections.append(skipped_section(audit.skipped))
    lead = f"{summary.name}, {summary.parameters:,} parameters, {summary.hidden:,} hidden neurons"
    return render(f"Audit of {audit.source}", lead, sections)


def advice_block(recommendations: Sequence[Recommendation], noun: str, nothing: str) -> str | Markup:
    """What to do with a network or module, the best first; `nothing` says that there is nothing."""
    if not recommendations:
        return nothing
    items = "".join(
        f"<li>{escape(each.title)}: {escape(each.benefit)}<code>{escape(each.command)}</code></li>"
        for each in recommendations
    )
    return Markup(f'<ol class="advice">{items}</ol>', f"Ranked by the measured share of the {noun} that each improves.")


def skipped_section(skipped: Sequence[Skipped]) -> Section:
    """What was left out, and how to ask for it."""
    rows = [(part.part, part.reason, part.remedy) for part in skipped]
    return Section("Skipped", [Table(("what", "why", "how to ask for it"), rows)])


def _graph(audit: Audit) -> Markup:
    dag = as_dag(audit.components.dag)
    dead, linear = set(audit.summary.dead or ()), set(audit.summary.linear or ())
    locked = {int(node) for lock in audit.components.locked for node in (dag.tails[lock.edge], dag.heads[lock.edge])}
    notes, marked = {}, {}
    for number, node in enumerate(dag.hidden.tolist()):
        name = dag.names[node]
        kinds = ["has a sign-locked weight"] * (node in locked) + ["dead"] * (name in dead)
        kinds += ["never bends"] * (name in linear)
        notes[node] = f"{name}: balance {audit.balance[number]:.4g}" + (", " + ", ".join(kinds) if kinds else "")
        if kinds:
            marked[node] = DEAD if name in dead else LOCKED if node in locked else LINEAR
    picture = draw_network(dag, notes, marked)
    caption = "Blue weights are positive, red negative."
    if marked:
        caption += " Yellow neurons have a sign-locked weight, grey are dead, green never bend."
    if "matrices" in picture[:30]:
        caption += " A row is a neuron, a column one of its inputs; a bar at the left marks a neuron."
    return Markup(f"{picture}<output>Point at a neuron, or tab to it.</output>", caption)


def _where_blocks(audit: Audit) -> list[Block]:
    found = audit.components
    blocks: list[Block] = [_where(audit)]
    if found.locked:
        rows = [
            (
                *found.dag.edge_name(lock.edge),
                "+" if lock.sign > 0 else "-",
                float(found.dag.theta[lock.edge]),
                lock.barrier,
            )
            for lock in sorted(found.locked, key=lambda lock: -lock.barrier)[:MOST_LISTED]
        ]
        caption = "Weights whose sign training keeps, and the barrier that each can never pass on its way to zero."
        caption += f" The {MOST_LISTED} highest of {len(found.locked):,}." if len(found.locked) > MOST_LISTED else ""
        blocks.append(locks(found))
        blocks.append(Table(("from", "to", "sign", "weight", "barrier"), rows, caption, bars=("barrier",)))
    return blocks


def _law_blocks(audit: Audit) -> list[Block]:
    blocks: list[Block] = [_conserved(audit)]
    if audit.laws is not None:
        named = [(line,) for line in audit.laws.summary()[:20]]
        blocks += [Table(("conserved",), named)] if named else []
    if len(audit.balance):
        panel = sorted_values(audit.balance, "balances", "neuron, by rank", "balance")
        blocks.append(Figure("Every neuron's balance, largest first.", [panel]))
        dag = audit.components.dag
        rows = [(dag.names[v], float(c)) for v, c in zip(dag.hidden, audit.balance, strict=True)]
        rows.sort(key=lambda row: -abs(row[1]))
        caption = "Conserved by gradient flow, whatever the data and loss; largest first."
        caption += f" The first {MOST_LISTED} of {len(rows):,}." if len(rows) > MOST_LISTED else ""
        blocks.append(Table(("neuron", "balance"), rows[:MOST_LISTED], caption, bars=("balance",)))
    return blocks


def _data_blocks(audit: Audit) -> list[Block]:
    rows = [
        (layer.layer, layer.width, layer.dimension, len(layer.never), len(layer.always), t.label, t.untruncated,
         t.partially, t.fully)
        for layer in audit.activity for t in layer.truncated
    ]  # fmt: skip
    columns = ("layer", "neurons", "effective dimension", "never fire", "always fire", "class", "whole", "cut", "gone")
    dims = Series(
        [layer.dimension for layer in audit.activity], [layer.layer for layer in audit.activity], style="points"
    )
    figure: Figure | str = Figure(
        "Effective dimension of each hidden layer on your data: a dip is a bottleneck.",
        [Panel([dims], x="layer", y="effective dimension")],
    )
    if len(audit.activity) == 1:
        only = audit.activity[0]
        figure = f"On your data the {only.width} hidden neurons have an effective dimension of {only.dimension:.3g}."
    caption = "Samples that a layer keeps whole, cuts in some coordinates, or maps to 0."
    return [figure, Table(columns, rows, caption, bars=("whole", "cut", "gone"))]
