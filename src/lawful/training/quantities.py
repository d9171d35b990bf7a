"""Quantities that the flow conserves, as functions of θ that also predict how finite steps break them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import spsolve

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.sources.opening import Source, open_free
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class Quantities:
    """Named functions of θ. If they are quadratic laws, a step of gradient descent changes them by `η² c(g)` exactly.

    For a homogeneous quadratic `c` with `⟨∇c(θ), g⟩ = 0`: `c(θ − ηg) = c(θ) − η⟨∇c(θ), g⟩ + η² c(g)`.

    >>> pair = balances(Mlp([[[3.0]], [[2.0]]]))
    >>> pair.names, pair.values(np.array([3.0, 2.0]))
    (('h1.0',), array([5.]))
    """

    names: tuple[str, ...]
    values: Callable[[Floats], Floats]
    quadratic: bool = True

    def along(self, thetas: Floats) -> Floats:
        """Values at several parameters (rows)."""
        return np.array([self.values(theta) for theta in thetas]).reshape(len(thetas), len(self.names))

    def __add__(self, other: Quantities) -> Quantities:
        return Quantities(
            self.names + other.names,
            lambda theta: np.concatenate([self.values(theta), other.values(theta)]),
            self.quadratic and other.quadratic,
        )


def balances(network: Mlp | Dag) -> Quantities:
    """`c = B̃ θ²`: squares of the weights into each hidden neuron less those out of it (P0 Proposition 2)."""
    dag = network.to_dag()
    incidence = dag.hidden_incidence
    return Quantities(tuple(dag.names[node] for node in dag.hidden), lambda theta: np.asarray(incidence @ theta**2))


def linear_laws(network: Mlp) -> Quantities:
    """Off-diagonal entries of `W_l W_lᵀ + b_l b_lᵀ − W_{l+1}ᵀ W_{l+1}` at every linear layer (P1 Proposition 4.1)."""
    names, pairs = [], []
    for layer, slope in enumerate(network.slopes):
        if slope == 1.0:
            width = network.widths[layer + 1]
            pairs.append((layer, np.triu_indices(width, 1)))
            names += [f"h{layer + 1}.{i}*{j}" for i in range(width) for j in range(i + 1, width)]

    def values(theta: Floats) -> Floats:
        at = network.with_theta(theta)
        matrices = [layer_matrix(at, layer)[upper] for layer, upper in pairs]
        return np.concatenate(matrices) if matrices else np.zeros(0)

    return Quantities(tuple(names), values)


def layer_matrix(network: Mlp, layer: int, neurons: list[int] | None = None) -> Floats:
    """`W_l[Λ] W_l[Λ]ᵀ + b_l[Λ] b_l[Λ]ᵀ − W_{l+1}[:,Λ]ᵀ W_{l+1}[:,Λ]` of hidden layer `layer` (from 0; P4 Theorem 6).

    Its diagonal is the balance of each neuron; the whole matrix is conserved while the neurons Λ act linearly.
    """
    chosen = list(range(network.widths[layer + 1])) if neurons is None else neurons
    below, above = network.weights[layer][chosen], network.weights[layer + 1][:, chosen]
    matrix = below @ below.T - above.T @ above
    bias = network.biases[layer]
    return np.asarray(matrix if bias is None else matrix + np.outer(bias[chosen], bias[chosen]))


def known_laws(network: Source) -> Quantities:
    """Balances of every hidden neuron, and the rest of the matrices of linear layers."""
    graph = open_free(network)
    mlp = graph if isinstance(graph, Mlp) else as_mlp(graph)
    laws = balances(graph)
    return laws + linear_laws(mlp) if mlp is not None and 1.0 in mlp.slopes else laws


def quantities_of(functions: Mapping[str, Callable[[Floats], float]]) -> Quantities:
    """Any functions of θ by name, for instance laws found elsewhere."""
    return Quantities(
        tuple(functions),
        lambda theta: np.array([float(measure(theta)) for measure in functions.values()]),
        quadratic=False,
    )


def balance_projection(network: Mlp | Dag, target: Floats | None = None) -> Callable[[Floats], Floats]:
    """A function that moves θ to the nearest-by-Newton point of `H(c) = {B̃θ² = c}`; c is the network's own by default.

    `θ ← θ − Jᵀ (J Jᵀ)⁻¹ (B̃θ² − c)` with `J = 2 B̃ diag θ`; `J Jᵀ` is a grounded graph Laplacian, so sparse.
    """
    dag = network.to_dag()
    incidence = dag.hidden_incidence.tocsc()
    goal = np.asarray(incidence @ dag.theta**2) if target is None else np.asarray(target, dtype=np.float64)
    if goal.shape != (len(dag.hidden),):
        raise LawfulError(f"{len(dag.hidden)} hidden neurons need as many balances, not {goal.size}")

    def project(theta: Floats) -> Floats:
        for _ in range(20):
            error = incidence @ theta**2 - goal
            if np.abs(error).max(initial=0.0) <= 1e-15 * max(1.0, float(theta @ theta)):
                break
            laplacian = (incidence * theta**2) @ incidence.T
            step = np.atleast_1d(spsolve(2.0 * laplacian.tocsc(), error))
            if not np.isfinite(step).all():
                raise Unsupported("cannot project onto the invariant set here: θ is a singular point of it")
            theta = theta - theta * (incidence.T @ step)
        return theta

    return project


def singular_values(network: Mlp | Dag, theta: Floats) -> Floats:
    """Singular values of `J = 2 B̃ diag θ`, largest first, from the |Ṽ|×|Ṽ| matrix `J Jᵀ` (P0 Section 3)."""
    incidence = network.to_dag().hidden_incidence
    gram = ((incidence * (2.0 * theta) ** 2) @ incidence.T).toarray()
    return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)))
