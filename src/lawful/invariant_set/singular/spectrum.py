"""The rank of the invariant set's Jacobian, the neurons that are cut off (P0 Section 3.3), and scores (A.8.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.module_graph import Balanced
from lawful.network import Dag
from lawful.network.topology import groups_cut_off
from lawful.types import Floats

NULL = 1e-3  # the paper counts singular values below this as null (P0 A.8.1)
LARGEST_SPECTRUM = 6000  # hidden neurons; past this a dense eigenvalue solver takes minutes


@dataclass(frozen=True)
class Singularity:
    """Where a parameter stands on its invariant set.

    `groups` are the sets of hidden neurons that no edge heavier than `tolerance` joins to an input, an output or the
    rest; each lowers `rank J` by one (P0 Theorem 2). The parameter is singular when there is one.
    """

    hidden: int
    groups: tuple[tuple[str, ...], ...]
    tolerance: float

    @property
    def rank(self) -> int:
        """`rank J(θ)`, with weights up to the tolerance read as zero."""
        return self.hidden - len(self.groups)

    @property
    def singular(self) -> bool:
        """Whether the rank is less than the number of hidden neurons."""
        return bool(self.groups)

    @property
    def cut_off(self) -> tuple[str, ...]:
        """All neurons without any path to an input or an output, direction ignored."""
        return tuple(name for group in self.groups for name in group)


@dataclass(frozen=True)
class Spectrum:
    """Singular values of `J(θ)`, largest first, and the absolute error they may carry.

    They are square roots of the eigenvalues of `J Jᵀ`, so values below `resolution` cannot be told from zero.
    """

    values: Floats
    resolution: float

    @property
    def rank(self) -> int:
        """Number of singular values above the resolution; the rank by components is exact."""
        return int((self.values > self.resolution).sum())

    @property
    def gap(self) -> tuple[float, float]:
        """The smallest value counted and the largest one not counted (0 if there is none): far apart is good."""
        above, left = self.values[: self.rank], self.values[self.rank :]
        return float(above.min(initial=np.inf)), float(left.max(initial=0.0))

    def null(self, threshold: float = NULL) -> int:
        """Number of singular values below a threshold: the paper's count of lost neurons."""
        return int((self.values < threshold).sum())


def singularity(dag: Balanced, tolerance: float = 0.0) -> Singularity:
    """Which neurons are cut off: `rank J = |Ṽ| + 1 − CC(G')`, inputs and outputs glued together (P0 Theorem 2).

    >>> from lawful.network import Mlp
    >>> mlp = Mlp([[[1.0, 2.0], [0.0, 0.0]], [[1.0, 0.0]]])
    >>> found = singularity(mlp.to_dag())
    >>> found.rank, found.cut_off
    (1, ('h1.1',))
    """
    if not tolerance >= 0:
        raise LawfulError(f"a tolerance is at least 0, not {tolerance}")
    place = np.zeros(len(dag.names), dtype=np.intp)  # every input and output, and the constant, is vertex 0
    place[dag.hidden] = np.arange(1, len(dag.hidden) + 1)
    live = np.abs(dag.theta) > tolerance
    groups = groups_cut_off(len(dag.hidden), place[dag.tails[live]], place[dag.heads[live]])
    names = [tuple(dag.names[dag.hidden[member - 1]] for member in group) for group in groups]
    return Singularity(len(dag.hidden), tuple(names), tolerance)


def spectrum(dag: Balanced) -> Spectrum:
    """Singular values of `J(θ) = 2B̃diag(θ)`, from the `|Ṽ|×|Ṽ|` grounded Laplacian and never from J itself.

    >>> from lawful.network import Mlp
    >>> spectrum(Mlp([[[3.0, 0.0]], [[4.0]]]).to_dag()).values
    array([10.])
    """
    if len(dag.hidden) > LARGEST_SPECTRUM:
        raise Unsupported(
            f"all singular values of {len(dag.hidden)} neurons take too long (at most {LARGEST_SPECTRUM}): "
            "the rank by components has no such limit"
        )
    if not len(dag.hidden):
        return Spectrum(np.zeros(0), 0.0)
    exponent = int(np.frexp(np.abs(dag.theta).max(initial=0.0))[1])
    scale = 2.0 ** min(exponent, 1023)  # there squares neither overflow nor vanish
    squares = np.linalg.eigvalsh(4.0 * _laplacian(dag, dag.theta / scale))[::-1]
    values = scale * np.sqrt(np.maximum(squares, 0.0))
    error = len(values) * np.finfo(np.float64).eps * max(float(squares[0]), 0.0)
    return Spectrum(values, scale * float(np.sqrt(error)))


def _laplacian(dag: Balanced, theta: Floats) -> Floats:
    """`B̃ diag(θ²) B̃ᵀ`, dense; entries of a module's kernels are parallel edges."""
    place = np.full(len(dag.names), -1, dtype=np.intp)
    place[dag.hidden] = np.arange(len(dag.hidden))
    tails, heads, squares = place[dag.tails], place[dag.heads], theta**2
    matrix = np.zeros((len(dag.hidden), len(dag.hidden)))
    for ends in (tails, heads):
        inside = ends >= 0
        np.add.at(matrix, (ends[inside], ends[inside]), squares[inside])
    both = (tails >= 0) & (heads >= 0)
    np.subtract.at(matrix, (tails[both], heads[both]), squares[both])
    np.subtract.at(matrix, (heads[both], tails[both]), squares[both])
    return matrix


def subnetwork(dag: Dag, tolerance: float = 0.0) -> Dag:
    """The smaller network that a (nearly) singular parameter really is: all but the cut-off neurons.

    At tolerance 0 the function is the same.

    >>> from lawful.network import Mlp
    >>> subnetwork(Mlp([[[1.0, 2.0], [0.0, 0.0]], [[1.0, 0.0]]]).to_dag())
    Dag(inputs=2, hidden=1, outputs=1, edges=3)
    """
    gone = np.array([dag.index[name] for name in singularity(dag, tolerance).cut_off], dtype=np.intp)
    return dag.without_nodes(gone, drop_useless=True)  # some others may have spoken only to those


Score = Callable[[Dag, Floats], Floats]


def product_score(dag: Balanced, theta: Floats | None = None) -> Floats:
    """`s_k = (Σ_i θ_ik²)(Σ_j θ_kj²)` of every hidden neuron (P0 (29)); rescaling a neuron does not change it.

    >>> from lawful.network import Mlp
    >>> product_score(Mlp([[[3.0, 4.0]], [[2.0]]]).to_dag())
    array([100.])
    """
    entering, leaving = _norms(dag, theta)
    return entering * leaving


def largest_score(dag: Balanced, theta: Floats | None = None) -> Floats:
    """`s'_k = max(Σ_i θ_ik², Σ_j θ_kj²)` of every hidden neuron (P0 (30)).

    >>> from lawful.network import Mlp
    >>> largest_score(Mlp([[[3.0, 4.0]], [[2.0]]]).to_dag())
    array([25.])
    """
    return np.maximum(*_norms(dag, theta))


SCORES: dict[str, Score] = {"product": product_score, "largest": largest_score}


def _norms(dag: Balanced, theta: Floats | None) -> tuple[Floats, Floats]:
    squares = (dag.theta if theta is None else theta) ** 2
    count = len(dag.names)
    entering = np.bincount(dag.heads, squares, minlength=count).astype(np.float64)
    leaving = np.bincount(dag.tails, squares, minlength=count).astype(np.float64)
    return entering[dag.hidden], leaving[dag.hidden]


@dataclass(frozen=True)
class PruningCurve:
    """Neurons in the order in which they went, and a measure of the network after each (first: before any)."""

    order: tuple[str, ...]
    measured: Floats


def pruning_curve(
    dag: Dag, measure: Callable[[Dag], float], score: Score = product_score, count: int | None = None
) -> PruningCurve:
    """Cut the neuron of least score, score the others anew, and so on (`count` times); `measure` is a test loss, say.

    A neuron is cut by zeroing its weights and nothing is folded, as in the paper.

    >>> from lawful.network import Mlp
    >>> dag = Mlp([[[3.0], [0.0]], [[2.0, 1.0]]]).to_dag()
    >>> curve = pruning_curve(dag, lambda network: float(network.evaluate([[1.0]])[0, 0]))
    >>> curve.order, curve.measured
    (('h1.1', 'h1.0'), array([6., 6., 0.]))
    """
    theta = dag.theta.copy()
    left = np.ones(len(dag.hidden), dtype=bool)
    order, measured = [], [measure(dag)]
    for _ in range(len(dag.hidden) if count is None else min(count, len(dag.hidden))):
        scores = np.where(left, score(dag, theta), np.inf)
        if np.isnan(scores).any():
            raise LawfulError("a score is not a number")
        least = int(np.argmin(scores))
        left[least] = False
        node = dag.hidden[least]
        order.append(dag.names[node])
        theta[(dag.heads == node) | (dag.tails == node)] = 0.0
        measured.append(measure(dag.with_theta(theta)))
    return PruningCurve(tuple(order), np.array(measured))
