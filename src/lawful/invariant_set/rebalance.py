"""Rescale neurons so that a network lands on a prescribed balance, its function unchanged.

Idea: with factors e^s at the neurons, balances are the gradient of a convex function of s (see `rebalance`), so
Newton's method finds the one rescaling that has the balance asked for; its Hessian is a graph Laplacian, and a
preconditioned conjugate gradient takes each step. Invariant: the function never changes, since what goes into a neuron
is multiplied by what its outgoing weights are divided by. Cost: a few tens of sparse solves, whatever the depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import LinearOperator, bicgstab, cg, spilu

from lawful.errors import LawfulError
from lawful.invariant_set.balance import Balance, Number, divergence, rounding
from lawful.invariant_set.locks.components import components
from lawful.invariant_set.module_graph import Balanced, balanced_graph, told
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
    found = balanced_graph(network, input)
    dag = found.to_dag()
    wanted = _target(dag, target)
    nonzero = dag.theta != 0
    stuck = useless(dag.roles == Role.HIDDEN, dag.tails[nonzero], dag.heads[nonzero])
    live = ~stuck[dag.hidden]
    done, scales, steps = dag, np.zeros(len(dag.hidden)), 0
    for _ in range(PASSES):
        missing, through, _ = _at_unit_scale(done, wanted)
        if (missing <= 2 * EPSILON * through)[live].all() and (steps or not _vanished(done)):
            break
        more, taken = _newton(done, wanted, live)
        done, scales, steps = _rescaled(done, more), scales + more, steps + taken
    missing, through, _ = _at_unit_scale(done, wanted)
    unreachable = tuple(dag.hidden[stuck[dag.hidden] & (missing > 4 * EPSILON * through)].tolist())
    return told(Rebalanced(done, scales, wanted, steps, unreachable), found)


def _rescaled(dag: Balanced, scales: Floats) -> Balanced:
    half = np.exp(_spread(dag, scales) / 2)  # the factor itself may overflow where the weight does not
    with np.errstate(over="ignore", invalid="ignore"):
        theta = dag.theta * half * half
    if not np.isfinite(theta).all() or (theta[dag.theta != 0] == 0).any():
        raise LawfulError("the rescaled weights do not fit into float64: the balance asked for is too far away")
    return dag.with_theta(theta)


def _at_unit_scale(dag: Balanced, target: Floats) -> tuple[Floats, Floats, float]:
    """`|B̃θ² − c|` and the sum of all squares at each hidden node, after dividing the weights by a power of two."""
    scale = 2.0 ** int(np.frexp(np.abs(dag.theta).max(initial=0.0))[1] - 1)
    squares = (dag.theta / scale) ** 2
    with np.errstate(over="ignore", invalid="ignore"):
        return np.abs(divergence(dag, squares) - target / scale / scale), _sums_at(dag, squares), scale


def _vanished(dag: Balanced) -> bool:
    """Whether the square of some weight is lost beside the largest."""
    nonzero = np.abs(dag.theta[dag.theta != 0])
    return bool(len(nonzero)) and float(nonzero.min() / nonzero.max()) < 1e-150


def _logs(dag: Balanced, target: Floats) -> tuple[Floats, int]:
    """The logarithms of the squares over `4^k`, and k: such that the *rebalanced* squares fit into floats.

    A neuron with squares a in and b out ends near `√(ab)`, or at its target.
    """
    mantissa, exponent = np.frexp(np.abs(dag.theta))
    with np.errstate(divide="ignore"):
        logs = 2 * (np.log(mantissa) + np.log(2.0) * exponent)
        middle = (_log_sums(dag.heads, logs, len(dag.names)) + _log_sums(dag.tails, logs, len(dag.names)))[dag.hidden]
        sizes = np.concatenate([middle / 2, np.log(np.abs(target))])
    largest = max(sizes[np.isfinite(sizes)], default=0.0)
    power = int(np.floor(largest / np.log(4.0)))
    with np.errstate(divide="ignore"):
        return 2 * (np.log(mantissa) + np.log(2.0) * (exponent - power)), power


def _sums_at(dag: Balanced, values: Floats) -> Floats:
    count = len(dag.names)
    return np.asarray((np.bincount(dag.heads, values, count) + np.bincount(dag.tails, values, count))[dag.hidden])


def _target(dag: Balanced, target: Prescribed | float) -> Floats:
    if isinstance(target, (int, float)):
        return np.full(len(dag.hidden), float(target))
    exact = target if isinstance(target, Balance) else Balance.given(dag, target)
    return exact.values


def _spread(dag: Balanced, scales: Floats) -> Floats:
    """`s_j − s_i` on every edge, s zero on inputs and outputs."""
    everywhere = np.zeros(len(dag.names))
    everywhere[dag.hidden] = scales
    return everywhere[dag.heads] - everywhere[dag.tails]


def _newton(dag: Balanced, wanted: Floats, live: Mask) -> tuple[Floats, int]:
    """Damped Newton; stops when the gradient is round-off, or falls no longer."""
    logs, power = _logs(dag, wanted)
    target = np.ldexp(wanted, -2 * power)
    scales = _neuron_by_neuron(dag, logs, target, live)
    laplacian = _Laplacian(dag, live)
    now = np.exp(logs + 2 * _spread(dag, scales))
    slope = np.where(live, divergence(dag, now) - target, 0.0)
    for step in range(STEPS):
        through = _sums_at(dag, now)
        if (np.abs(slope) <= 2 * EPSILON * through).all():
            return scales, step
        move = np.zeros_like(scales)
        move[live] = -laplacian.solve(now, slope[live])
        # While no edge changes by more than a factor e, the Hessian stays comparable: such steps are always good.
        length = min(1.0, 1.0 / max(float(np.abs(_spread(dag, move)).max()), 1e-300))
        tried = scales + length * move
        now = np.exp(logs + 2 * _spread(dag, tried))
        ahead = np.where(live, divergence(dag, now) - target, 0.0)
        near = np.abs(slope).sum() <= 1e4 * EPSILON * through.sum()
        if near and np.abs(ahead).sum() >= np.abs(slope).sum() / 2:
            return (tried if np.abs(ahead).sum() < np.abs(slope).sum() else scales), step
        scales, slope = tried, ahead
    raise LawfulError(f"rebalancing did not converge in {STEPS} Newton steps: the weights span too many magnitudes")


def _neuron_by_neuron(dag: Balanced, logs: Floats, target: Floats, live: Mask) -> Floats:
    """Log-scales near the minimum: each neuron in turn, down and up the layers, solves its own equation exactly.

    `a e^{2s} − b e^{−2s} = c` for the squares a coming in and b going out. Newton alone crosses a weight that must
    grow by a factor `e^k` in about k steps.
    """
    scales = np.zeros(len(dag.names))
    targets = np.zeros(len(dag.names))
    targets[dag.hidden] = target
    alive = np.zeros(len(dag.names), dtype=bool)
    alive[dag.hidden] = live
    into, out = _edges_by_node(dag.heads, len(dag.names)), _edges_by_node(dag.tails, len(dag.names))
    layers = [chosen for layer in dag.layers if len(chosen := layer[alive[layer]])]
    for nodes in (*layers, *layers[::-1], *layers):
        entering, first = into(nodes)
        leaving, second = out(nodes)
        a = _log_sums(first, logs[entering] - 2 * scales[dag.tails[entering]], len(nodes))
        b = _log_sums(second, logs[leaving] + 2 * scales[dag.heads[leaving]], len(nodes))
        c = targets[nodes]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            hypotenuse = np.hypot(c, 2 * np.exp((a + b) / 2))  # e^{2s} = (c + this) / 2a, without cancellation
            rise = np.log(c + hypotenuse) - np.log(2.0) - a
            fall = np.log(2.0) + b - np.log(hypotenuse - c)
            found = 0.5 * np.where(c > 0, rise, fall)
        scales[nodes] = np.where(np.isfinite(found), found, scales[nodes])
    return scales[dag.hidden]


def _log_sums(places: Indices, logs: Floats, count: int) -> Floats:
    """`log Σ exp` of the numbers at each place."""
    top = np.full(count, -np.inf)
    np.maximum.at(top, places, logs)
    base = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(base + np.log(np.bincount(places, np.exp(logs - base[places]), count)))


def _edges_by_node(ends: Indices, count: int) -> Callable[[Indices], tuple[Indices, Indices]]:
    """A function from nodes to their edges, and for each of these the place of its node."""
    order = np.argsort(ends, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=count))])

    def edges(nodes: Indices) -> tuple[Indices, Indices]:
        length = starts[nodes + 1] - starts[nodes]
        offsets = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return order[np.repeat(starts[nodes], length) + offsets], np.repeat(np.arange(len(nodes)), length)

    return edges


class _Laplacian:
    """`L = 2 B̃ diag(w) B̃ᵀ` on the live neurons, for changing w: its sparsity pattern is found once."""

    def __init__(self, dag: Balanced, live: Mask) -> None:
        number = np.full(len(dag.names), -1, dtype=np.intp)
        number[dag.hidden[live]] = np.arange(live.sum())
        self.size = int(live.sum())
        self.tails, self.heads = number[dag.tails], number[dag.heads]
        self.inner = np.flatnonzero((self.tails >= 0) & (self.heads >= 0))
        rows = np.concatenate([np.arange(self.size), self.heads[self.inner], self.tails[self.inner]])
        columns = np.concatenate([np.arange(self.size), self.tails[self.inner], self.heads[self.inner]])
        places, self.place = np.unique(rows * self.size + columns, return_inverse=True)  # parallel edges share one
        starts = np.searchsorted(places, self.size * np.arange(self.size + 1))
        self.indices, self.indptr = places % max(self.size, 1), starts

    def matrix(self, weights: Floats) -> sparse.csr_array:
        """The Laplacian of edge weights w."""
        diagonal = np.bincount(self.heads + 1, weights, self.size + 1) + np.bincount(
            self.tails + 1, weights, self.size + 1
        )
        inner = weights[self.inner]
        entries = np.bincount(self.place, 2 * np.concatenate([diagonal[1:], -inner, -inner]), len(self.indices))
        return sparse.csr_array((entries, self.indices, self.indptr), shape=(self.size, self.size))

    def solve(self, weights: Floats, right: Floats) -> Floats:
        """`L⁻¹ right` to six digits by conjugate gradients; where they stall, with an incomplete factorisation.

        Chains and trees factorise exactly, and random graphs, whose factors would fill up, do not stall for long.
        """
        matrix = self.matrix(weights)
        inverse = 1 / matrix.diagonal()
        jacobi = LinearOperator(matrix.shape, matvec=lambda vector: inverse * vector.ravel())
        found, stalled = cg(matrix, right, rtol=ACCURACY, maxiter=ITERATIONS, M=jacobi)
        if stalled:
            try:
                factor = spilu(sparse.csc_matrix(matrix), drop_tol=1e-5, fill_factor=20, diag_pivot_thresh=0.0)
            except RuntimeError:  # singular to float64: what was found so far is all there is
                return np.asarray(found)
            nearly = LinearOperator(matrix.shape, matvec=factor.solve)
            better, _ = bicgstab(matrix, right, x0=found, rtol=ACCURACY, maxiter=ITERATIONS, M=nearly)
            if np.linalg.norm(matrix @ better - right) < np.linalg.norm(matrix @ found - right):
                found = better
        return np.asarray(found)
