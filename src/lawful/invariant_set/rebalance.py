"""Rescale neurons so that a network lands on a prescribed balance, its function unchanged.

Idea: with factors e^s at the neurons, balances are the gradient of a convex function of s (see `rebalance`), so
Newton's method finds the one rescaling that has the balance asked for; its Hessian is a graph Laplacian, and a
preconditioned conjugate gradient takes each step. Invariant: the function never changes, since what goes into a neuron
is multiplied by what its outgoing weights are divided by. Cost: a few tens of sparse solves, whatever the depth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import LinearOperator, bicgstab, cg, spilu

from lawful.errors import LawfulError
from lawful.invariant_set.balance import Balance, Number, rounding, sums_of_squares
from lawful.invariant_set.locks.components import components
from lawful.invariant_set.module_graph import Balanced, EntryGraph, balanced_graph, edges_of, with_readings
from lawful.network import Role
from lawful.network.topology import useless
from lawful.result import Shown
from lawful.sources.opening import Source
from lawful.types import Floats, Indices, Mask

Prescribed = Balance | Mapping[str, Number] | Sequence[Number] | Floats
STEPS = 100
PASSES = 3  # the second finds what the logarithms of extreme weights rounded away
ITERATIONS = 300  # of conjugate gradients: about the cost of factorising a layered network
ACCURACY = 1e-6  # of each Newton step: the next one finds what is left
FACTORISED = 5_000_000  # edges up to which the Laplacian is written down: 24 bytes each, and its factor more
TOO_FAR = "the rescaled weights do not fit into float64: the balance asked for is too far away"
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Rebalanced(Shown):
    """The rescaled network, `θ_e exp(s_j − s_i)` on edge i→j, and how close its balance is to the one asked for."""

    dag: Balanced
    log_scales: Floats  # s, one per hidden node
    target: Floats
    steps: int
    unreachable: tuple[int, ...]  # neurons whose balance cannot be reached by any rescaling

    @property
    def residual(self) -> float:
        """The largest `|B̃θ² − c|` over the neurons that can be rebalanced."""
        wrong, _, scale = _at_unit_scale(self.dag, self.target)
        wrong[np.isin(self.dag.hidden, self.unreachable)] = 0.0
        return float(wrong.max(initial=0.0)) * scale * scale

    @property
    def locked(self) -> int:
        """Edges that stay locked whatever the rounding of the weights; a balance of 0 is met to rounding only."""
        return components(self.dag, tolerance=rounding(self.dag)).log2_components

    @property
    def reached(self) -> bool:
        """Whether every neuron has the balance asked for."""
        return not self.unreachable


def rebalance(network: Source, target: Prescribed | float = 0.0, *, input: Any = None) -> Rebalanced:
    """The rescaling that moves a network to balance `target` (one number for all neurons, or one each).

    It minimises the convex `½ Σ_e θ_e² e^{2(s_j − s_i)} − Σ_v c_v s_v`, whose gradient is `B̃θ'² − c` and whose Hessian
    is the grounded graph Laplacian `2 B̃ diag(θ'²) B̃ᵀ`: Newton's method, one sparse solve a step. The minimum
    exists and is unique when every neuron has a path of nonzero weights from an input and to an output; neurons without
    one are left as they are and reported. Of a module the nodes of its scaling graph are rescaled.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("3-4-4-1 relu bias").initialise(seed=1).to_dag()
    >>> done = rebalance(dag)
    >>> done.residual < 1e-14, np.abs(dag.evaluate(np.ones((1, 3))) - done.dag.evaluate(np.ones((1, 3)))).max() < 1e-14
    (True, np.True_)
    """
    graph = balanced_graph(network, input)
    dag = graph.to_dag()
    wanted = _target(dag, target)
    live = _live(dag)
    done, scales, steps = dag, np.zeros(len(dag.hidden)), 0
    for _ in range(PASSES):
        missing, through, _ = _at_unit_scale(done, wanted)
        if (missing <= 2 * EPSILON * through)[live].all() and (steps or not _has_vanished_weights(done)):
            break
        more, taken = _newton(done, wanted, live)
        done, scales, steps = _rescale(done, more), scales + more, steps + taken
    missing, through, _ = _at_unit_scale(done, wanted)
    unreachable = tuple(dag.hidden[~live & (missing > 4 * EPSILON * through)].tolist())
    return with_readings(Rebalanced(done, scales, wanted, steps, unreachable), graph)


def _rescale(dag: Balanced, scales: Floats) -> Balanced:
    if isinstance(dag, EntryGraph):
        done: Balanced = dag.rescaled(scales)
    else:
        half = np.exp(_spread(dag, scales) / 2)  # the factor itself may overflow where the weight does not
        with np.errstate(over="ignore", invalid="ignore"):
            theta = dag.theta * half * half
        if not np.isfinite(theta).all():
            raise LawfulError(TOO_FAR)
        done = dag.with_theta(theta)
    for before, after in zip(edges_of(dag), edges_of(done), strict=True):
        if not np.isfinite(after.weights).all() or (after.weights[before.weights != 0] == 0).any():
            raise LawfulError(TOO_FAR)
    return done


def _spread(dag: Balanced, scales: Floats) -> Floats:
    """`s_j − s_i` on every edge, s zero on inputs and outputs."""
    everywhere = np.zeros(len(dag.names))
    everywhere[dag.hidden] = scales
    return everywhere[dag.heads] - everywhere[dag.tails]


def _at_unit_scale(dag: Balanced, target: Floats) -> tuple[Floats, Floats, float]:
    """`|B̃θ² − c|` and the sum of all squares at each hidden node, after dividing the weights by a power of two."""
    largest = max((float(np.abs(part.weights).max(initial=0.0)) for part in edges_of(dag)), default=0.0)
    scale = 2.0 ** int(np.frexp(largest)[1] - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        entering, leaving = sums_of_squares(dag, scale)
        return np.abs(entering - leaving - target / scale / scale), entering + leaving, scale


def _has_vanished_weights(dag: Balanced) -> bool:
    """Whether the square of some weight is lost beside the largest."""
    sizes = [np.abs(part.weights[part.weights != 0]) for part in edges_of(dag)]
    ends = [(float(row.min()), float(row.max())) for row in sizes if len(row)]
    return bool(ends) and min(low for low, _ in ends) / max(high for _, high in ends) < 1e-150


@dataclass(frozen=True, eq=False)
class _Block:
    """Squares of edges: between one node and another (1-D), or between all of some and all of others (heads × tails).

    Edges between the same two nodes (the taps of a kernel) are one.
    """

    heads: Indices
    tails: Indices
    values: Floats  # squares, or their logarithms

    def spread(self, scales: Floats) -> Floats:
        """`s_j − s_i` on every edge."""
        if self.values.ndim == 1:
            return np.asarray(scales[self.heads] - scales[self.tails])
        return np.asarray(scales[self.heads][:, None] - scales[self.tails])

    def add_products(self, at: Floats, sums: Floats) -> None:
        """Add `Σ_e w_e x_tail` at each head, and `Σ_e w_e x_head` at each tail."""
        if self.values.ndim == 1:
            into, out = self.values * at[self.tails], self.values * at[self.heads]
        else:
            into, out = self.values @ at[self.tails], at[self.heads] @ self.values
        sums += np.bincount(self.heads, into, len(sums))
        sums += np.bincount(self.tails, out, len(sums))

    def log_sums(self, scales: Floats, entering: bool) -> Floats:
        """`log Σ e^v` for each head of `v − 2 s_tail`, or for each tail of `v + 2 s_head`."""
        if self.values.ndim == 1:
            return self.values - 2 * scales[self.tails] if entering else self.values + 2 * scales[self.heads]
        terms = self.values - 2 * scales[self.tails] if entering else self.values + 2 * scales[self.heads][:, None]
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.reduce(terms, axis=1 if entering else 0))


def _blocks(dag: Balanced, power: int) -> list[_Block]:
    """The logarithms of the squares of all edges over `4^power`, as blocks."""
    if not isinstance(dag, EntryGraph):
        return [_Block(dag.heads, dag.tails, _log_squares(dag.theta, power))]
    blocks = []
    for start, block in zip(dag.starts, dag.blocks, strict=False):
        logs = np.full(math.prod(block.shape), -np.inf)
        for part in dag.edges_of(block, start):
            logs[part.positions] = _log_squares(part.weights, power)
        logs = logs.reshape(block.shape)
        rows, columns = (
            [axis for axis, size in enumerate(ends.shape) if size > 1] for ends in (block.heads, block.tails)
        )
        taps = tuple(axis for axis in range(logs.ndim) if axis not in rows and axis not in columns)
        if taps and math.prod(block.shape[axis] for axis in taps) > 1:
            logs = np.logaddexp.reduce(logs.transpose([*(a for a in range(logs.ndim) if a not in taps), *taps]).reshape(
                *(block.shape[a] for a in range(logs.ndim) if a not in taps), -1), axis=-1)  # fmt: skip
        else:
            logs = logs.reshape([block.shape[a] for a in range(logs.ndim) if a not in taps])
        union = [axis for axis in range(len(block.shape)) if axis not in taps]
        heads, tails = block.heads.reshape(-1), block.tails.reshape(-1)
        if set(rows) & set(columns):
            sizes = [block.shape[axis] for axis in union]
            heads, tails = (
                np.broadcast_to(ends.reshape([ends.shape[axis] for axis in union]), sizes).reshape(-1)
                for ends in (block.heads, block.tails)
            )
            blocks.append(_Block(heads, tails, logs.reshape(-1)))
        else:
            order = [union.index(axis) for axis in (*rows, *columns)]
            blocks.append(_Block(heads, tails, logs.transpose(order).reshape(len(heads), len(tails))))
    return blocks


def _log_squares(weights: Floats, power: int) -> Floats:
    mantissa, exponent = np.frexp(np.abs(weights))
    with np.errstate(divide="ignore"):
        return np.asarray(2 * (np.log(mantissa) + np.log(2.0) * (exponent - power)))


def _live(dag: Balanced) -> Mask:
    """Hidden nodes with a path of nonzero weights from an input and to an output."""
    if not isinstance(dag, EntryGraph):
        nonzero = dag.theta != 0
        return ~useless(dag.roles == Role.HIDDEN, dag.tails[nonzero], dag.heads[nonzero])[dag.hidden]
    fed, heard = (np.zeros(len(dag.names), dtype=bool) for _ in range(2))
    fed[[0, -1]] = heard[[0, -1]] = True
    order = list(zip(dag.starts, dag.blocks, strict=False))
    while True:
        before = int(fed.sum() + heard.sum())
        for start, block in (*order, *order[::-1]):  # parameters mostly come in the order of their use
            for part in dag.edges_of(block, start):
                tails, heads = part.tails[part.weights != 0], part.heads[part.weights != 0]
                fed[heads[fed[tails]]] = True
                heard[tails[heard[heads]]] = True
        if int(fed.sum() + heard.sum()) == before:
            return np.asarray((fed & heard)[dag.hidden])


def _fit(blocks: Sequence[_Block], target: Floats, hidden: Indices, count: int) -> int:
    """k such that the *rebalanced* squares over `4^k` fit into floats.

    A neuron with squares a in and b out ends near `√(ab)`, or at its target.
    """
    none = np.zeros(count)
    with np.errstate(divide="ignore"):
        middle = (_log_sums(blocks, none, entering=True) + _log_sums(blocks, none, entering=False))[hidden]
        sizes = np.concatenate([middle / 2, np.log(np.abs(target))])
    return int(np.floor(max(sizes[np.isfinite(sizes)], default=0.0) / np.log(4.0)))


def _target(dag: Balanced, target: Prescribed | float) -> Floats:
    if isinstance(target, (int, float)):
        return np.full(len(dag.hidden), float(target))
    exact = target if isinstance(target, Balance) else Balance.given(dag, target)
    return exact.values


def _newton(dag: Balanced, wanted: Floats, live: Mask) -> tuple[Floats, int]:
    """Damped Newton; stops when the gradient is round-off, or falls no longer."""
    count = len(dag.names)
    blocks = _blocks(dag, 0)
    power = _fit(blocks, wanted, dag.hidden, count)
    target = np.ldexp(wanted, -2 * power)
    if power:  # made anew: large logarithms have lost the last digits
        del blocks
        blocks = _blocks(dag, power)
    laplacian = _Laplacian(blocks, dag.hidden[live], count)
    scales = _neuron_by_neuron(blocks, _groups(dag), target, dag.hidden, dag.hidden[live], count)
    for block in blocks:  # from here on the squares themselves, in place: rescaled at every step
        block.values[...] = np.exp(block.values + 2 * block.spread(scales))
    slope, through = laplacian.slope(target, dag.hidden, live)
    for step in range(STEPS):
        if (np.abs(slope) <= 2 * EPSILON * through).all():
            return scales[dag.hidden], step
        move = np.zeros(count)
        move[dag.hidden[live]] = -laplacian.solve(slope[live])
        # While no edge changes by more than a factor e, the Hessian stays comparable: such steps are always good.
        steepest = max((float(np.abs(block.spread(move)).max(initial=0.0)) for block in blocks), default=0.0)
        move *= min(1.0, 1.0 / max(steepest, 1e-300))
        for block in blocks:
            block.values[...] *= np.exp(2 * block.spread(move))
        before, sizes = slope, through
        slope, through = laplacian.slope(target, dag.hidden, live)
        near = np.abs(before).sum() <= 1e4 * EPSILON * sizes.sum()
        if near and np.abs(slope).sum() >= np.abs(before).sum() / 2:
            better = np.abs(slope).sum() < np.abs(before).sum()
            return (scales + move if better else scales)[dag.hidden], step
        scales = scales + move
    raise LawfulError(f"rebalancing did not converge in {STEPS} Newton steps: the weights span too many magnitudes")


def _groups(dag: Balanced) -> list[Indices]:
    """Nodes that move at once, from inputs to outputs: the layers of a graph, the ends of blocks of a module.

    Blocks that share nodes on one side are one group, so that a residual stream is.
    """
    if not isinstance(dag, EntryGraph):
        return list(dag.layers)
    first = np.full(len(dag.names), -1, dtype=np.intp)
    number = 0
    for block in dag.blocks:
        for ends in (block.tails, block.heads):
            nodes = np.unique(ends)
            nodes = nodes[(nodes > 0) & (nodes < len(dag.names) - 1)]
            old = np.unique(first[nodes])
            old = old[old >= 0]
            place = int(old[0]) if len(old) else number
            number += not len(old)
            first[np.isin(first, old)] = place
            first[nodes] = place
    return [np.flatnonzero(first == place) for place in range(number) if (first == place).any()]


def _neuron_by_neuron(
    blocks: Sequence[_Block], groups: Sequence[Indices], target: Floats, hidden: Indices, live: Indices, count: int
) -> Floats:
    """Log-scales near the minimum: each neuron in turn, down and up the layers, solves its own equation exactly.

    `a e^{2s} − b e^{−2s} = c` for the squares a coming in and b going out. Newton alone crosses a weight that must
    grow by a factor `e^k` in about k steps. Neurons of one group that feed each other go half of the way: both would
    take the whole of it.
    """
    scales, targets, alive = np.zeros(count), np.zeros(count), np.zeros(count, dtype=bool)
    targets[hidden] = target
    alive[live] = True
    parts = [(nodes[alive[nodes]], *_around(blocks, nodes[alive[nodes]], count)) for nodes in groups]
    parts = [part for part in parts if len(part[0])]
    for nodes, near, inside in (*parts, *parts[::-1], *parts):
        a, b = (_log_sums(near, scales, entering=way)[nodes] for way in (True, False))
        c = targets[nodes]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            hypotenuse = np.hypot(c, 2 * np.exp((a + b) / 2))  # e^{2s} = (c + this) / 2a, without cancellation
            rise = np.log(c + hypotenuse) - np.log(2.0) - a
            fall = np.log(2.0) + b - np.log(hypotenuse - c)
            steps = 0.5 * np.where(c > 0, rise, fall)
        step = np.where(np.isfinite(steps), steps, scales[nodes]) - scales[nodes]
        scales[nodes] += step / 2 if inside else step
    return scales


def _around(blocks: Sequence[_Block], nodes: Indices, count: int) -> tuple[list[_Block], bool]:
    """The edges of some nodes, as parts of blocks, and whether one of them joins two of these nodes."""
    chosen = np.zeros(count, dtype=bool)
    chosen[nodes] = True
    visited, inside = [], False
    for block in blocks:
        into, out = chosen[block.heads], chosen[block.tails]
        if block.values.ndim == 1:
            here = into | out
            if here.any():
                visited.append(_Block(block.heads[here], block.tails[here], block.values[here]))
                inside = inside or bool((into & out).any())
        elif into.any() or out.any():
            visited.append(block)
            inside = inside or bool(into.any() and out.any())
    return visited, inside


def _log_sums(blocks: Sequence[_Block], scales: Floats, *, entering: bool) -> Floats:
    """`log Σ exp` of what enters (or leaves) each node."""
    ends = np.concatenate([block.heads if entering else block.tails for block in blocks])
    logs = np.concatenate([block.log_sums(scales, entering) for block in blocks])
    top = np.full(len(scales), -np.inf)
    np.maximum.at(top, ends, logs)
    base = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(base + np.log(np.bincount(ends, np.exp(logs - base[ends]), len(scales))))


class _Laplacian:
    """`L = 2 B̃ diag(w) B̃ᵀ` on the live neurons, for squares w that change in place."""

    def __init__(self, blocks: Sequence[_Block], live: Indices, count: int) -> None:
        self.blocks, self.live, self.count = blocks, live, count

    def slope(self, target: Floats, hidden: Indices, live: Mask) -> tuple[Floats, Floats]:
        """`B̃w − c` at the live neurons, and the sum of the squares at each hidden one."""
        entering, leaving = np.zeros(self.count), np.zeros(self.count)
        for block in self.blocks:
            into, out = (block.values,) * 2 if block.values.ndim == 1 else (block.values.sum(1), block.values.sum(0))
            entering += np.bincount(block.heads, into, self.count)
            leaving += np.bincount(block.tails, out, self.count)
        return np.where(live, (entering - leaving)[hidden] - target, 0.0), (entering + leaving)[hidden]

    def times(self, vector: Floats, diagonal: Floats) -> Floats:
        """`L x`."""
        at, product = np.zeros(self.count), np.zeros(self.count)
        at[self.live] = vector.ravel()
        for block in self.blocks:
            block.add_products(at, product)
        return np.asarray(2 * (diagonal * at[self.live] - product[self.live]))

    def solve(self, right: Floats) -> Floats:
        """`L⁻¹ right` to six digits by conjugate gradients; where they stall, with an incomplete factorisation.

        Chains and trees factorise exactly, and random graphs, whose factors would fill up, do not stall for long.
        """
        ones, sums = np.ones(self.count), np.zeros(self.count)
        for block in self.blocks:
            block.add_products(ones, sums)
        diagonal = sums[self.live]
        shape = (len(self.live),) * 2
        operator = LinearOperator(shape, matvec=lambda vector: self.times(vector, diagonal))
        jacobi = LinearOperator(shape, matvec=lambda vector: vector.ravel() / (2 * diagonal))
        solution, stalled = cg(operator, right, rtol=ACCURACY, maxiter=ITERATIONS, M=jacobi)
        if stalled and sum(block.values.size for block in self.blocks) <= FACTORISED:
            try:
                factor = spilu(self.matrix(diagonal), drop_tol=1e-5, fill_factor=20, diag_pivot_thresh=0.0)
            except RuntimeError:  # singular to float64: what was found so far is all there is
                return np.asarray(solution)
            nearly = LinearOperator(shape, matvec=factor.solve)
            better, _ = bicgstab(operator, right, x0=solution, rtol=ACCURACY, maxiter=ITERATIONS, M=nearly)
            if np.linalg.norm(operator @ better - right) < np.linalg.norm(operator @ solution - right):
                solution = better
        return np.asarray(solution)

    def matrix(self, diagonal: Floats) -> sparse.csc_matrix:
        """The Laplacian, written down."""
        place = np.full(self.count, -1, dtype=np.intp)
        place[self.live] = np.arange(len(self.live))
        rows, columns, values = [np.arange(len(self.live))], [np.arange(len(self.live))], [2 * diagonal]
        for block in self.blocks:
            heads, tails = place[block.heads], place[block.tails]
            if block.values.ndim == 2:
                heads, tails = np.repeat(heads, len(tails)), np.tile(tails, len(heads))
            inner = (heads >= 0) & (tails >= 0)
            weights = -2 * block.values.reshape(-1)[inner]
            rows += [heads[inner], tails[inner]]
            columns += [tails[inner], heads[inner]]
            values += [weights, weights]
        places = (np.concatenate(rows), np.concatenate(columns))
        return sparse.csc_matrix((np.concatenate(values), places), shape=(len(self.live),) * 2)
