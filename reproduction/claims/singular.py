"""Claims about singular points: rank, balances, the Hessian's identity (P0 Section 3.3, A.5 to A.7)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components

from lawful.invariant_set.certificate import singular_certificate as certificate
from lawful.invariant_set.singular.existence import exact_balance, singular_points
from lawful.invariant_set.singular.spectrum import singularity, spectrum
from lawful.network import Architecture, Dag
from lawful.verify import verify
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest
from reproduction.claims.network import example_dags


def with_zeros(dag: Dag, rng: np.random.Generator) -> Dag:
    """Random weights with many zeros, so that groups of neurons come off."""
    theta = dag.theta * (rng.random(dag.parameters) > rng.uniform(0.3, 0.9))
    cut = rng.choice(dag.hidden, size=rng.integers(0, min(4, len(dag.hidden)) + 1), replace=False)
    inside = np.isin(np.arange(len(dag.names)), cut)
    theta[inside[dag.tails] != inside[dag.heads]] = 0.0
    return dag.with_theta(theta)


@claim(
    "p0-rank",
    "Theorem 2",
    "rank J = hidden neurons + 1 - connected components of the graph of nonzero weights, inputs and outputs glued",
    size=Size("60 random DAGs", "400 random DAGs", "every DAG"),
)
def rank(full: bool) -> Outcome:
    """Compare the count of components with the rank of the dense matrix and with our singular values."""
    rng = np.random.default_rng(0)
    wrong = singular = 0
    for dag in example_dags(400 if full else 60, seed=1):
        parameter = with_zeros(dag, rng)
        dense = int(np.linalg.matrix_rank(2 * parameter.hidden_incidence.toarray() * parameter.theta))
        found = singularity(parameter)
        wrong += found.rank != dense or spectrum(parameter).rank != dense
        singular += found.singular
    return Outcome(wrong == 0 and singular > 10, {"wrong_ranks": wrong, "singular_parameters": singular})


@claim(
    "p0-homology",
    "Appendix A.5",
    "the cokernel of B, not its kernel, counts connected components; the kernel counts independent cycles",
    erratum=Erratum(
        "ker B is the 0th homology group, of dimension the number of components",
        "coker B is: dim = nodes - rank B; dim ker B = edges - rank B is the number of independent cycles",
        "ranks of incidence matrices of random graphs",
    ),
    size=Size("20 random graphs", "100 random graphs", "every graph"),
)
def homology(full: bool) -> Outcome:
    """Compare both dimensions with the number of components of random graphs."""
    kernel_fits = cokernel_fits = total = 0
    for dag in example_dags(100 if full else 20, seed=2):
        matrix = dag.incidence.toarray()
        count, _ = connected_components(dag.incidence @ dag.incidence.T, directed=False)
        ranked = int(np.linalg.matrix_rank(matrix))
        cokernel_fits += matrix.shape[0] - ranked == count
        kernel_fits += matrix.shape[1] - ranked == count
        total += 1
    measured = {"graphs": total, "cokernel_fits": cokernel_fits, "kernel_fits": kernel_fits}
    return Outcome(cokernel_fits == total, measured, printed_holds=kernel_fits == total)


@claim(
    "p0-singular-balance",
    "Proposition 6",
    "a singular point forces a set of neurons whose balances sum to zero; random initialisations admit none",
    size=Size("40 DAGs, 8 initialisations", "200 DAGs, 40 initialisations", "every DAG"),
)
def singular_balance(full: bool) -> Outcome:
    """Exact sums over cut-off groups of singular points; exact decisions at random initialisations."""
    rng = np.random.default_rng(3)
    groups = nonzero = 0
    for dag in example_dags(200 if full else 40, seed=3):
        parameter = with_zeros(dag, rng)
        balance = exact_balance(parameter)
        for group in singularity(parameter).groups:
            groups += 1
            nonzero += sum((balance[name] for name in group), Fraction(0)) != 0
    admitting = decided = tried = 0
    for number, text in enumerate(("3-5-4-2 relu bias", "4-6-6-6-1", "5-40-3 bias", "3-6-6-2 skip(1,2)")):
        for seed in range(10 if full else 2):
            start = Architecture.parse(text).initialise(seed=10 * number + seed).to_dag()
            balance = exact_balance(start)
            answer = singular_points(start, balance)
            if answer.exist is not None:
                verify(certificate(start, answer))
            tried += 1
            decided += answer.exist is not None
            admitting += answer.exist is True
    measured = {"groups": groups, "nonzero_sums": nonzero, "decided": decided, "admitting": admitting}
    return Outcome(groups > 10 and nonzero == 0 and decided == tried and admitting == 0, measured)


@claim(
    "p0-hessian",
    "A.7 (26)-(28)",
    "B diag(theta) H + B diag(g) = 0 for the Hessian H and gradient g of any loss, so J moves by dJ/dt = J H",
    size=Size("6 random DAGs", "20 random DAGs", "every DAG"),
)
def hessian(full: bool) -> Outcome:
    """Hessian and gradient by automatic differentiation; the velocity of J along -g by its definition."""
    worst = flow = other = 0.0
    for dag in example_dags(20 if full else 6, seed=4):
        rng = np.random.default_rng(dag.parameters)
        inputs = torch.tensor(rng.normal(size=(40, len(dag.inputs))))
        goal = torch.tensor(rng.normal(size=(40, len(dag.outputs))))

        def loss(
            theta: torch.Tensor, dag: Dag = dag, inputs: torch.Tensor = inputs, goal: torch.Tensor = goal
        ) -> torch.Tensor:
            return torch.as_tensor((dag.evaluate(inputs, theta) - goal).square().mean())

        theta = torch.tensor(dag.theta, requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(theta), theta)
        matrix = torch.autograd.functional.hessian(loss, theta.detach())  # type: ignore[no-untyped-call]
        incidence = torch.tensor(dag.hidden_incidence.toarray())
        jacobian = 2 * incidence * theta.detach()
        scale = float((incidence * gradient).abs().max())
        identity = 0.5 * jacobian @ matrix + incidence * gradient
        worst = largest(worst, float(identity.abs().max()) / scale)
        flow = largest(flow, float((-2 * incidence * gradient - jacobian @ matrix).abs().max()) / scale)
        shifted = 0.5 * jacobian @ matrix - incidence * gradient  # the wrong sign must not fit
        other = largest(other, float(shifted.abs().max()) / scale)
    measured = {"identity_error": worst, "flow_error": flow, "error_with_the_wrong_sign": other}
    return Outcome(worst < 1e-10 and flow < 1e-10 and other > 0.1, measured)


CLAIMS = (rank, homology, singular_balance, hessian)
