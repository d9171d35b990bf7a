"""Rescale neurons so that a network lands on a prescribed balance, its function unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import LinearOperator, bicgstab, cg, spilu

from lawful.components.balance import Balance, Number, balance, divergence
from lawful.errors import LawfulError
from lawful.network import Dag, Mlp, Role
from lawful.network.topology import useless
from lawful.types import Floats, Indices, Mask

Prescribed = Balance | Mapping[str, Number] | Sequence[Number] | Floats
STEPS = 100
ITERATIONS = 300  # of conjugate gradients: about the cost of factorising a layered network
ACCURACY = 1e-6  # of each Newton step: the next one finds what is left


@dataclass(frozen=True, eq=False)
class Rebalanced:
    """The rescaled network, `θ_e exp(s_j − s_i)` on edge i→j, and how close its balance is to the one asked for."""

    dag: Dag
    log_scales: Floats  # s, one per hidden node
    target: Floats
    steps: int
    unreachable: tuple[int, ...]  # neurons whose balance cannot be reached by any rescaling

    @property
    def residual(self) -> float:
        """The largest `|B̃θ² − c|` over the neurons that can be rebalanced."""
        wrong = np.abs(balance(self.dag) - self.target)
        wrong[np.isin(self.dag.hidden, self.unreachable)] = 0.0
        return float(wrong.max(initial=0.0))

    @property
    def reached(self) -> bool:
        """Whether every neuron has the balance asked for."""
        return not self.unreachable


def rebalance(network: Mlp | Dag, target: Prescribed | float = 0.0) -> Rebalanced:
    """The rescaling that moves a network to balance `target` (one number for all neurons, or one each).

    It minimises the convex `½ Σ_e θ_e² e^{2(s_j − s_i)} − Σ_v c_v s_v`, whose gradient is `B̃θ'² − c` and whose Hessian
    is the grounded graph Laplacian `2 B̃ diag(θ'²) B̃ᵀ`: Newton's method, one sparse solve a step. The minimum
    exists and is unique when every neuron has a path of nonzero weights from an input and to an output; neurons without
    one are left as they are and reported.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("3-4-4-1 relu bias").initialise(seed=1).to_dag()
    >>> done = rebalance(dag)
    >>> done.residual < 1e-14, np.abs(dag.evaluate(np.ones((1, 3))) - done.dag.evaluate(np.ones((1, 3)))).max() < 1e-14
    (True, np.True_)
    """
    dag = network.to_dag()
    wanted = _target(dag, target)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = dag.theta**2
        finite = np.isfinite(divergence(dag, squares)).all()
    if not finite:
        raise LawfulError("the squares of the weights overflow: rescale the network first")
    nonzero = squares > 0
    stuck = useless(dag.roles == Role.HIDDEN, dag.tails[nonzero], dag.heads[nonzero])
    scales, steps = _newton(dag, squares, wanted, ~stuck[dag.hidden])
    done = dag.with_theta(dag.theta * np.exp(_spread(dag, scales)))
    unequal = ~np.isclose(balance(done), wanted, rtol=1e-9, atol=1e-12 * float(squares.max(initial=0.0)))
    unreachable = tuple(dag.hidden[stuck[dag.hidden] & unequal].tolist())
    return Rebalanced(done, scales, wanted, steps, unreachable)


def _target(dag: Dag, target: Prescribed | float) -> Floats:
    if isinstance(target, (int, float)):
        return np.full(len(dag.hidden), float(target))
    exact = target if isinstance(target, Balance) else Balance.given(dag, target)
    return exact.values


def _spread(dag: Dag, scales: Floats) -> Floats:
    """`s_j − s_i` on every edge, s zero on inputs and outputs."""
    everywhere = np.zeros(len(dag.names))
    everywhere[dag.hidden] = scales
    return everywhere[dag.heads] - everywhere[dag.tails]


def _newton(dag: Dag, squares: Floats, target: Floats, live: Mask) -> tuple[Floats, int]:
    """Damped Newton; stops when the gradient is round-off, or falls no longer."""
    rounding = np.finfo(np.float64).eps
    if (np.abs(divergence(dag, squares) - target)[live] <= rounding * np.abs(target[live])).all():
        return np.zeros(len(dag.hidden)), 0
    scales = _neuron_by_neuron(dag, squares, target, live)
    laplacian = _Laplacian(dag, live)
    now = squares * np.exp(2 * _spread(dag, scales))
    slope = np.where(live, divergence(dag, now) - target, 0.0)
    for step in range(STEPS):
        through = (np.bincount(dag.heads, now, len(dag.names)) + np.bincount(dag.tails, now, len(dag.names)))[
            dag.hidden
        ]
        if (np.abs(slope) <= 2 * rounding * through).all():
            return scales, step
        move = np.zeros_like(scales)
        move[live] = -laplacian.solve(now, slope[live])
        # While no edge changes by more than a factor e, the Hessian stays comparable: such steps are always good.
        length = min(1.0, 1.0 / max(float(np.abs(_spread(dag, move)).max()), 1e-300))
        tried = scales + length * move
        now = squares * np.exp(2 * _spread(dag, tried))
        ahead = np.where(live, divergence(dag, now) - target, 0.0)
        near = np.abs(slope).sum() <= 1e4 * rounding * through.sum()
        if near and np.abs(ahead).sum() >= np.abs(slope).sum() / 2:
            return (tried if np.abs(ahead).sum() < np.abs(slope).sum() else scales), step
        scales, slope = tried, ahead
    raise LawfulError(f"rebalancing did not converge in {STEPS} Newton steps: the weights span too many magnitudes")


def _neuron_by_neuron(dag: Dag, squares: Floats, target: Floats, live: Mask) -> Floats:
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
        a = np.bincount(first, squares[entering] * np.exp(-2 * scales[dag.tails[entering]]), len(nodes))
        b = np.bincount(second, squares[leaving] * np.exp(2 * scales[dag.heads[leaving]]), len(nodes))
        c = targets[nodes]
        root = np.hypot(c, 2 * np.sqrt(a) * np.sqrt(b))  # e^{2s} = (c + root) / 2a, written without cancellation
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 0.5 * np.where(c > 0, np.log(c + root) - np.log(2 * a), np.log(2 * b) - np.log(root - c))
        scales[nodes] = np.where(np.isfinite(found), found, scales[nodes])
    return scales[dag.hidden]


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

    def __init__(self, dag: Dag, live: Mask) -> None:
        number = np.full(len(dag.names), -1, dtype=np.intp)
        number[dag.hidden[live]] = np.arange(live.sum())
        self.size = int(live.sum())
        self.tails, self.heads = number[dag.tails], number[dag.heads]
        self.inner = np.flatnonzero((self.tails >= 0) & (self.heads >= 0))
        rows = np.concatenate([np.arange(self.size), self.heads[self.inner], self.tails[self.inner]])
        columns = np.concatenate([np.arange(self.size), self.tails[self.inner], self.heads[self.inner]])
        pattern = sparse.csr_array((np.arange(len(rows)), (rows, columns)), shape=(self.size, self.size))
        self.order, self.indices, self.indptr = pattern.data, pattern.indices, pattern.indptr

    def matrix(self, weights: Floats) -> sparse.csr_array:
        """The Laplacian of edge weights w."""
        diagonal = np.bincount(self.heads + 1, weights, self.size + 1) + np.bincount(
            self.tails + 1, weights, self.size + 1
        )
        inner = weights[self.inner]
        entries = 2 * np.concatenate([diagonal[1:], -inner, -inner])
        return sparse.csr_array((entries[self.order], self.indices, self.indptr), shape=(self.size, self.size))

    def solve(self, weights: Floats, right: Floats) -> Floats:
        """`L⁻¹ right` to six digits by conjugate gradients; where they stall, with an incomplete factorisation.

        Chains and trees factorise exactly, and random graphs, whose factors would fill up, do not stall for long.
        """
        matrix = self.matrix(weights)
        inverse = 1 / matrix.diagonal()
        jacobi = LinearOperator(matrix.shape, matvec=lambda vector: inverse * vector.ravel())
        found, stalled = cg(matrix, right, rtol=ACCURACY, maxiter=ITERATIONS, M=jacobi)
        if stalled:
            factor = spilu(sparse.csc_matrix(matrix), drop_tol=1e-5, fill_factor=20, diag_pivot_thresh=0.0)
            nearly = LinearOperator(matrix.shape, matvec=factor.solve)
            better, _ = bicgstab(matrix, right, x0=found, rtol=ACCURACY, maxiter=ITERATIONS, M=nearly)
            if np.linalg.norm(matrix @ better - right) < np.linalg.norm(matrix @ found - right):
                found = better
        return np.asarray(found)
