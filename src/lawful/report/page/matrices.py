"""A network that is too wide to draw neuron by neuron: its weight matrices as maps of their cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np

from lawful.network import Dag, Role
from lawful.types import Floats

SIDE, MOST_CELLS, MARGIN = 220.0, 48, 16.0


def columns_of(dag: Dag) -> list[np.ndarray]:
    """Nodes by level, the outputs together in the last column."""
    inner = [layer[dag.roles[layer] != Role.OUTPUT] for layer in dag.layers]
    return [*(layer for layer in inner if len(layer)), dag.outputs]


def draw_matrices(dag: Dag, notes: Mapping[int, str] | None = None, marked: Mapping[int, str] | None = None) -> str:
    """One map per pair of neighbouring columns: rows are neurons, columns their inputs, colour sign, strength size.

    A bar at the left of a row marks its neuron; edges that pass a layer are not drawn.
    """
    columns = columns_of(dag)
    theta = np.ones(dag.parameters) if dag.weights is None else dag.theta
    largest = float(np.abs(theta).max(initial=0.0)) or 1.0
    drawn = []
    for number, (below, above) in enumerate(pairwise(columns), 1):
        place, rank = (np.full(len(dag.names), -1) for _ in range(2))
        place[below], rank[above] = np.arange(len(below)), np.arange(len(above))
        between = np.flatnonzero((place[dag.tails] >= 0) & (rank[dag.heads] >= 0))
        if not len(between):
            continue
        matrix = np.zeros((len(above), len(below)))
        matrix[rank[dag.heads[between]], place[dag.tails[between]]] = theta[between]
        drawn.append(_matrix(matrix / largest, number, [dag.names[n] for n in above], _marks(above, notes, marked)))
    return f'<div class="matrices">{"".join(drawn)}</div>'


def _marks(
    nodes: np.ndarray, notes: Mapping[int, str] | None, marked: Mapping[int, str] | None
) -> dict[int, tuple[str, str]]:
    ranked = {rank: int(node) for rank, node in enumerate(nodes) if int(node) in (notes or marked or {})}
    return {
        rank: ((marked or {}).get(node, "transparent"), (notes or {}).get(node, "")) for rank, node in ranked.items()
    }


def _matrix(matrix: Floats, number: int, names: Sequence[str], marks: Mapping[int, tuple[str, str]]) -> str:
    cells = _strongest(_strongest(matrix, 0), 1)
    rows, columns = cells.shape
    unit = min((SIDE - MARGIN) / max(rows, columns), 14.0)
    wide, tall = MARGIN + unit * columns, MARGIN + unit * rows
    parts = [f'<text x="{MARGIN}" y="11">layer {number}: {matrix.shape[0]} × {matrix.shape[1]}</text>']
    for row, column in zip(*np.nonzero(cells), strict=True):
        value = float(cells[row, column])
        colour = "var(--minus,#c8553d)" if value < 0 else "var(--plus,#2a6f97)"
        at = f'x="{MARGIN + unit * column:.1f}" y="{MARGIN + unit * row:.1f}" width="{unit:.1f}" height="{unit:.1f}"'
        parts.append(f'<rect {at} fill="{colour}" fill-opacity="{min(1.0, 0.05 + abs(value)):.2f}"/>')
    scale = rows / matrix.shape[0]
    for rank, (colour, note) in marks.items():
        words = escape(note or names[rank])
        at = f'x="4" y="{MARGIN + unit * scale * rank:.1f}" width="8" height="{max(unit * scale, 1.5):.1f}"'
        focus = f' tabindex="0" data-note="{words}"' if note else ""
        parts.append(f'<g{focus}><title>{words}</title><rect {at} fill="{colour}"/></g>')
    label = f"weights of layer {number}"
    size = f'viewBox="0 0 {max(wide, 120):.0f} {tall + 2:.0f}"'
    return f'<svg {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _strongest(cells: Floats, axis: int) -> Floats:
    """Of neighbours that cannot be told apart, the one of largest size."""
    if cells.shape[axis] <= MOST_CELLS:
        return cells
    parts = [np.moveaxis(part, axis, 0) for part in np.array_split(cells, MOST_CELLS, axis=axis)]
    chosen = [part[np.abs(part).argmax(axis=0), np.arange(part.shape[1])] for part in parts]
    return np.stack(chosen, axis=axis)
