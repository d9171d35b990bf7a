"""How many parameters a function fixes near the ones that it has: the rank of its derivatives, at any depth or width.

The derivatives of the outputs with respect to the parameters span at most as many dimensions as there are parameters,
less one for each hidden neuron, which can be rescaled. If those at some inputs span `r`, then near these parameters
those with the same outputs there form a manifold of `parameters − r` dimensions, and the function's lie in it. A rank
modulo a prime is never larger than the true one, so what is counted is proved; whether distant parameters give the
function too stays open (P4 G.1 and G.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.exact.elimination import rank
from lawful.fibers.counterexample import on_bent_hyperplanes
from lawful.fibers.deep.identification import PRIME, Integers, residues
from lawful.fibers.layers import Stack, input_scales
from lawful.fibers.regions.cells import cells
from lawful.fibers.regions.domain import Domain
from lawful.network import Dag, Role
from lawful.types import Floats, Mask

MOST_PARAMETERS = 1_500
MORE = 2.5  # times as many derivatives as parameters are looked at, and again near bends, and again region by region
MOST_REGIONS = 300
UNIT = 2.0**-53


class FixedDirections(NamedTuple):
    """The function fixes at least `fixed` directions of the parameters; `most` leave only rescalings."""

    fixed: int
    most: int


def fixed_directions(stack: Stack, seed: int = 0, graph: Dag | None = None) -> FixedDirections | None:
    """How many directions are fixed near these parameters, counted from below; None if the network is too large.

    The parameters are those of the layers, or of the `graph` that the layers stand for.

    >>> from lawful.network import Mlp
    >>> weights = [[[1.0], [-2.0]], [[1.0, -1.0], [3.0, 1.0]], [[1.0, -1.0]]]
    >>> fixed_directions(Stack.of(Mlp(weights, [[1.0, 1.0], [0.5, -2.0], [0.0]])))
    FixedDirections(fixed=8, most=9)
    """
    parameters = sum(weight.size + len(bias) for weight, bias in zip(stack.weights, stack.biases, strict=True))
    if graph is not None:
        parameters = graph.parameters
    if parameters > MOST_PARAMETERS or min(stack.widths) == 0:
        return None
    dag = stack.to_mlp().to_dag() if graph is None else graph
    most, best = parameters - len(dag.hidden), 0
    rows = np.zeros((0, parameters), dtype=np.int64)
    for points in _inputs(stack.floating(), int(MORE * parameters / stack.widths[-1]) + 8, seed):
        settled, masks = _settle(dag, points)
        rows = np.concatenate([rows, _derivatives(dag, settled, masks)])
        best = rank(rows, PRIME) if len(rows) else 0
        if best == most:
            break
    return FixedDirections(best, most)


def _inputs(stack: Stack, count: int, seed: int) -> Iterator[Floats]:
    """Inputs at several sizes and near the zero sets of all neurons; then some inside each of many regions."""
    rng = np.random.default_rng(seed)
    space = Domain.space(stack.widths[0])
    near = [on_bent_hyperplanes(stack, layer, space, rng) for layer in range(stack.hidden)]
    sizes = input_scales(stack) * 10.0 ** rng.uniform(-1, 1, (count, 1))
    yield _short(np.concatenate([*near, rng.normal(size=(count, stack.widths[0])) * sizes]))
    inside = []
    for cell in islice(cells(stack), MOST_REGIONS):
        corners = rng.normal(size=(stack.widths[0] + 1, stack.widths[0]))
        reach = 0.5 * cell.radius if cell.radius < np.inf else 1.0
        inside.append(cell.point + reach * corners / np.linalg.norm(corners, axis=1, keepdims=True))
    yield _short(np.concatenate(inside)) if inside else np.zeros((0, stack.widths[0]))


def _short(points: Floats) -> Floats:
    return np.asarray(points[np.isfinite(points).all(axis=1)])


def _settle(dag: Dag, points: Floats) -> tuple[Floats, Mask]:
    """The points at which no preactivation may be zero, whatever was rounded, and which nodes are active there."""
    values, error = np.zeros((len(dag.names), len(points))), np.zeros((len(dag.names), len(points)))
    values[dag.inputs], values[dag.roles == Role.CONSTANT] = points.T, 1.0
    active = np.ones((len(dag.names), len(points)), dtype=bool)
    with np.errstate(all="ignore"):
        for node, edges in _entering(dag):
            weight = dag.theta[edges, None]
            below, size = values[dag.tails[edges]], np.abs(weight)
            summed = (weight * below).sum(axis=0)
            doubt = (size * error[dag.tails[edges]]).sum(axis=0)
            doubt += 4 * (len(edges) + 4) * UNIT * (size * np.abs(below)).sum(axis=0) + 1e-300
            if dag.roles[node] == Role.HIDDEN:
                active[node] = np.where(np.abs(summed) > 2 * doubt, summed > 0, False)
                sure = np.abs(summed) > 2 * doubt
                gain = np.where(active[node], 1.0, dag.slopes[node])
                summed, doubt = gain * summed, gain * doubt + 2 * UNIT * np.abs(summed)
                doubt = np.where(sure, doubt, np.inf)
            values[node], error[node] = summed, doubt
    settled = np.isfinite(error[dag.hidden]).all(axis=0)
    return points[settled], active[:, settled]


def _derivatives(dag: Dag, points: Floats, active: Mask) -> Integers:
    """Of every output at every point with respect to all weights, modulo the prime."""
    theta = residues(dag.theta)
    gains = np.where(active, 1, residues(dag.slopes)[:, None])
    values = np.zeros((len(dag.names), len(points)), dtype=np.int64)
    values[dag.inputs], values[dag.roles == Role.CONSTANT] = residues(points).T, 1
    order = list(_entering(dag))
    for node, edges in order:
        summed = (theta[edges, None] * values[dag.tails[edges]] % PRIME).sum(axis=0)
        values[node] = summed % PRIME * gains[node] % PRIME
    rows = []
    for output in dag.outputs:
        back = np.zeros_like(values)
        back[output] = 1
        for node, edges in reversed(order):  # every node comes after all that hear it
            slope = back[node] * gains[node] % PRIME
            back[node] = slope
            np.add.at(back, dag.tails[edges], theta[edges, None] * slope % PRIME)
            back[dag.tails[edges]] %= PRIME
        rows.append((back[dag.heads] * values[dag.tails] % PRIME).T)
    return np.concatenate(rows) if rows else np.zeros((0, dag.parameters), dtype=np.int64)


def _entering(dag: Dag) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Nodes that compute, from the inputs up, each with its edges."""
    order = np.argsort(dag.heads, kind="stable")
    ends = np.searchsorted(dag.heads[order], np.arange(len(dag.names) + 1))
    for node in np.concatenate(dag.layers):
        if ends[node + 1] > ends[node]:
            yield int(node), order[ends[node] : ends[node + 1]]
