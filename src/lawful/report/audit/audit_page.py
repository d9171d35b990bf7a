"""An audit as one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lawful.figure import Figure, Panel, Series
from lawful.invariant_set.module_graph import as_dag
from lawful.outward import at_least
from lawful.report.audit.advice import advice_block, skipped_section
from lawful.report.audit.audit import EVIDENCE, conserved_sentence, sentences, where_sentence
from lawful.report.page.charts import locks, sorted_values
from lawful.report.page.page import Block, Markup, Section, Table, render
from lawful.report.structure.network import draw_network

if TYPE_CHECKING:
    from lawful.api.audit import Audit

LOCKED, DEAD, LINEAR = "var(--lock,#e0a31b)", "var(--dead,#b9bec6)", "var(--straight,#9cc48f)"
MOST_LISTED = 200
SHOWN = 5  # digits of a number in a table: a barrier is rounded downwards to them
NOTHING = "Nothing was found: no rescaling or pruning that the audit tries makes this network smaller or freer."


def audit_page(audit: Audit) -> str:
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
    blocks: list[Block] = [where_sentence(audit)]
    if found.locked:
        rows = [
            (
                *found.dag.edge_name(lock.edge),
                "+" if lock.sign > 0 else "-",
                float(found.dag.theta[lock.edge]),
                float(at_least(lock.barrier, SHOWN)),
            )
            for lock in sorted(found.locked, key=lambda lock: -lock.barrier)[:MOST_LISTED]
        ]
        caption = "Weights whose sign training keeps, and the barrier that each can never pass on its way to zero."
        caption += f" The {MOST_LISTED} highest of {len(found.locked):,}." if len(found.locked) > MOST_LISTED else ""
        blocks.append(locks(found))
        blocks.append(Table(("from", "to", "sign", "weight", "barrier"), rows, caption, bars=("barrier",)))
    return blocks


def _law_blocks(audit: Audit) -> list[Block]:
    blocks: list[Block] = [conserved_sentence(audit)]
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
