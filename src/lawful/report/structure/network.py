"""A network's summary as text, and its graph as SVG."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lawful.network import Dag, Role
from lawful.report.page.matrices import columns_of, draw_matrices
from lawful.report.plain import pick
from lawful.sentences import pruning as says
from lawful.sources.summary import Summary, TensorSummary

if TYPE_CHECKING:
    from lawful.program import Program

MAX_NODES, MAX_EDGES = 400, 6000  # a picture with more is a black square
MAX_TENSORS = 40
MAX_CELLS = 300_000  # weights whose maps take no time
ROOMY = 14  # neurons in a column that still leave place for their names


def print_summary(summary: Summary, console: Console) -> None:
    """One screen: a row per layer, then what stands out."""
    weights = f"{summary.parameters:,} parameters" + (f" ({summary.biases:,} biases)" if summary.biases else "")
    console.print(Text.assemble((summary.name, "bold"), f"  {weights}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading, side in (("layer", "left"), ("neurons", "right"), ("", "left"), ("activation", "left")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    if not summary.unrolled:
        table.add_column("parameters", justify="right")
    widest = max(layer.width for layer in summary.layers)
    for number, layer in enumerate(summary.layers):
        role = f"hidden {number}" if layer.role == "hidden" else layer.role
        bar = "▇" * max(1, round(24 * layer.width / widest))
        cells = [] if layer.parameters is None else [f"{layer.parameters:,}" if number else ""]
        table.add_row(role, f"{layer.width:,}", bar, layer.activation, *cells)
    console.print(table)
    for words, names in (
        ("out-bottlenecks (one outgoing edge)", summary.out_bottlenecks),
        ("in-bottlenecks (one incoming edge)", summary.in_bottlenecks),
    ):
        if names is not None:
            console.print(f"{words}: {_list_names(names)}", soft_wrap=True, highlight=False)
    for line in _activity_words(summary):
        console.print(line, soft_wrap=True, highlight=False)
    if summary.unrolled:
        words = f"its graph of scalar weights has {summary.edges:,} edges: {summary.unrolled[0]}"
        console.print(f"{words}. Balances of such neurons are not conserved.", soft_wrap=True, highlight=False)
    elif summary.balance is None:
        console.print(
            "no weights: balances, dead and linear neurons need them" if summary.hidden else "no hidden neurons"
        )
    else:
        low, middle, high = summary.balance
        console.print(f"balances B̃θ²: {low:.4g} to {high:.4g}, median {middle:.4g}", highlight=False)


def _activity_words(summary: Summary) -> Iterator[str]:
    """Neurons that are dead or never bend: none only where all were decided."""
    if summary.dead is None or summary.linear is None:
        return
    left = len(summary.undecided or ())
    if summary.dead:
        yield says.some_dead(_list_names(summary.dead), left)
    else:
        yield says.not_found("dead neurons (0 for every input)", left) if left else says.none_dead()
    if summary.linear:
        yield says.some_linear(_list_names(summary.linear), left)
    else:
        yield says.not_found("neurons that never bend", left) if left else says.none_linear()


def summary_text(summary: Summary) -> str:
    """The same screen as plain text."""
    lines = io.StringIO()
    print_summary(summary, Console(file=lines, width=100, color_system=None, force_jupyter=False))
    return lines.getvalue().rstrip()


def summary_json(summary: Summary) -> dict[str, Any]:
    """The summary as JSON's own types."""
    low, middle, high = summary.balance or (None, None, None)
    balance = {"min": low, "median": middle, "max": high} if summary.balance else None
    return asdict(summary) | {"balance": balance}


def tensors_text(found: TensorSummary) -> str:
    """The same screen as plain text."""
    lines = io.StringIO()
    print_tensors(found, Console(file=lines, width=80, color_system=None, force_jupyter=False))
    return lines.getvalue().rstrip()


def tensors_json(found: TensorSummary) -> dict[str, Any]:
    """A checkpoint or module of which no graph is known: how much it holds, and why there is no graph."""
    return {
        **pick(found, "name parameters"),
        "tensors": len(found.tensors),
        "graph": None,
        "reason": found.reason,
    }


def print_tensors(found: TensorSummary, console: Console) -> None:
    """One row per tensor, as many as fit on a screen, and what prevents more."""
    console.print(
        Text.assemble((found.name, "bold"), f"  {found.parameters:,} numbers in {len(found.tensors):,} tensors")
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("tensor", "type", "shape"):
        table.add_column(heading)
    for tensor in found.tensors[:MAX_TENSORS]:
        table.add_row(tensor.name, tensor.dtype, "×".join(map(str, tensor.shape)) or "1")
    console.print(table)
    if len(found.tensors) > MAX_TENSORS:
        console.print(f"and {len(found.tensors) - MAX_TENSORS:,} more (all of them with --json)")
    console.print(f"no graph of scalar weights: {found.reason}", soft_wrap=True)


def _list_names(names: tuple[str, ...], most: int = 6) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:most])
    return f"{len(names)} ({shown}{', ...' if len(names) > most else ''})"


def draw_graph(dag: Dag, notes: Mapping[int, str] | None = None, marked: Mapping[int, str] | None = None) -> str:
    """The graph as an SVG document: columns by level, colour by sign, thickness by size; hover names a node or edge.

    `notes` are texts about nodes (shown on hover and focus by the page), `marked` are fill colours of nodes. A network
    too large to see is drawn as one bar per layer.
    """
    notes, marked = notes or {}, marked or {}
    if len(dag.names) > MAX_NODES or dag.parameters > MAX_EDGES:
        return _draw_layers(dag)
    columns = columns_of(dag)
    tallest = max(len(column) for column in columns)
    step, radius = (34, 9) if tallest <= ROOMY else (14, 5)
    height = 40 + step * tallest
    width = 80 + 150 * (len(columns) - 1)
    place = {}
    for number, column in enumerate(columns):
        gap = (height - 20) / (len(column) + 1)
        for row, node in enumerate(column):
            place[int(node)] = (40 + 150 * number, round(10 + gap * (row + 1), 1))
    largest = float(np.abs(dag.weights).max()) if dag.weights is not None and dag.parameters else 1.0
    parts = []
    for edge in range(dag.parameters):
        (x1, y1), (x2, y2) = place[int(dag.tails[edge])], place[int(dag.heads[edge])]
        weight = None if dag.weights is None else float(dag.weights[edge])
        colour = "#888" if weight is None else "var(--minus,#c8553d)" if weight < 0 else "var(--plus,#2a6f97)"
        thick = 1.0 if weight is None else 0.3 + 2.7 * abs(weight) / (largest or 1.0)
        label = " → ".join(dag.edge_name(edge)) + ("" if weight is None else f": {weight:.4g}")
        parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="{thick:.2f}" '
            f'stroke-opacity="0.6"><title>{escape(label)}</title></line>'
        )
    plain, hidden = "var(--card,#fff)", "var(--fill,#dbe7ef)"
    fills = {Role.INPUT: plain, Role.HIDDEN: hidden, Role.OUTPUT: plain, Role.CONSTANT: "var(--line,#eee)"}
    for node, (x, y) in place.items():
        name, label = escape(dag.names[node]), escape(dag.names[node][:12])
        fill = marked.get(node, fills[Role(dag.roles[node])])
        note = f' tabindex="0" data-note="{escape(notes[node])}"' if node in notes else ""
        text = f'<text x="{x}" y="{y + 20}" font-size="12" text-anchor="middle" fill="currentColor">{label}</text>'
        circle = f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}" stroke="currentColor"/>'
        parts.append(f"<g{note}><title>{name}</title>{circle}{text if radius > 5 else ''}</g>")
    return _document(width, height, parts)


def draw_network(dag: Dag, notes: Mapping[int, str] | None = None, marked: Mapping[int, str] | None = None) -> str:
    """The graph where one can see it, the weight matrices where there are more than a dozen neurons in a layer."""
    if max(len(column) for column in columns_of(dag)) > ROOMY and dag.parameters <= MAX_CELLS:
        return draw_matrices(dag, notes, marked)
    return draw_graph(dag, notes, marked).replace("<svg ", '<svg class="graph" role="img" aria-label="the network" ', 1)


def _draw_layers(dag: Dag) -> str:
    columns = columns_of(dag)
    widest = max(len(column) for column in columns)
    parts = []
    for number, column in enumerate(columns):
        tall = max(4.0, 160 * len(column) / widest)
        x = 30 + 60 * number
        size = f'x="{x}" y="{100 - tall / 2:.1f}" width="24" height="{tall:.1f}"'
        parts.append(f'<rect {size} fill="var(--fill,#dbe7ef)" stroke="currentColor"/>')
        parts.append(f'<text x="{x + 12}" y="200" font-size="12" text-anchor="middle">{len(column):,}</text>')
    return _document(60 + 60 * len(columns), 215, parts)


def _document(width: float, height: float, parts: list[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def program_json(program: Program) -> dict[str, Any]:
    """The keys of `lawful show --program --json`."""
    return {
        "program": list(program.lines()),
        "digest": program.digest(names=False),
        "operators": dict(sorted(Counter(node.op for node in program.nodes).items())),
        "parameters": sum(node.size for node in program.parameters.values()),
        **pick(program, "opaque notes"),
    }


def program_text(program: Program) -> str:
    """The program line by line, then what it is called and what was not understood."""
    document = program_json(program)
    lines = [*document["program"], f"digest {document['digest']}"]
    lines.append(f"{len(program.nodes)} nodes, {document['parameters']:,} parameters")
    if document["opaque"]:
        lines.append(f"not in the table of operators: {', '.join(sorted(set(document['opaque'])))}")
    lines += [f"assumed: {words} ({count} times)" for words, count in document["notes"].items()]
    return "\n".join(lines)
