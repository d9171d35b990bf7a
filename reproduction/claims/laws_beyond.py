"""Claims beyond P1's networks and flows: momentum, modules, and neurons that act linearly (P4 Section 7)."""

from __future__ import annotations

import numpy as np
import torch

from lawful.conservation import HeavyBall, count_laws, known_laws
from lawful.conservation.fields.flows import laws_of_momentum
from lawful.conservation.known.polynomial import polynomial_laws
from lawful.network import Dag, Mlp, Role
from lawful.types import Floats
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.example_modules import EXAMPLES
from reproduction.claims.laws import drift, example, gradient_of_squared_error, runge_kutta, trained


@claim(
    "p1-momentum",
    "Conclusion",
    "with momentum a two-layer linear network keeps r(r−1)/2 laws that name time, and a ReLU network none",
    size=Size("5 networks", "8 networks", "beyond the paper"),
    criterion="ours: the paper asks, the count is not in it",
)
def momentum(full: bool) -> Outcome:
    """Count in phase space, then integrate the heavy ball and watch e^{γt} times the angular momenta."""
    wrong = {}
    cases = [("2-2-2 linear", 1), ("3-3-2 linear", 3), ("3-2-3 linear", 1), ("2-3-2 relu", 0), ("2-3-2 relu bias", 0)]
    if full:
        cases += [("4-4-4 linear", 6), ("2-3-3-2 relu", 0), ("3-4-3 linear", 6)]
    for text, expected in cases:
        count = count_laws(text, flow=HeavyBall(0.7))
        if count.laws != expected or not count.proved:
            wrong[text] = count.laws
    moved = _heavy_ball_drift(0.7)
    return Outcome(not wrong and moved < 1e-7, {"wrong_counts": wrong, "drift_of_damped_momenta": moved})


def _heavy_ball_drift(friction: float) -> float:
    dag, inputs, targets = example("3-3-2 linear")
    size = dag.parameters
    gradient = gradient_of_squared_error(dag, inputs, targets)

    def motion(state: Floats) -> Floats:
        return np.concatenate([state[size:], -friction * state[size:] - gradient(state[:size])])

    start = np.concatenate([dag.theta, np.random.default_rng(1).normal(size=size)])
    path = runge_kutta(motion, start, 2.0, 400)
    rotations = laws_of_momentum(known_laws(dag), HeavyBall(friction))
    values = np.array([rotations.values(state) for state in path])
    return drift(np.exp(friction * np.linspace(0.0, 2.0, len(path)))[:, None] * values)


@claim(
    "p1-modules",
    "Conclusion",
    "convolutions, attention, normalisation and residual blocks have the laws of their channels and heads, no others; "
    "smooth activations have none",
    size=Size("10 small modules", "10 small modules", "beyond the paper"),
    criterion="ours: the paper asks, the counts are not in it",
)
def modules(full: bool) -> Outcome:
    """Count in float64: attention with inner width k has k(k+1) laws, a convolution one per inner channel."""
    wrong, measured = {}, {}
    for name, (make, shape, expected) in EXAMPLES.items():
        torch.manual_seed(0)
        count = count_laws(make(), input_shape=shape)
        measured[name] = count.laws
        if count.laws != expected or count.status != "proved":
            wrong[name] = (count.laws, expected, count.status)
    return Outcome(not wrong, {"laws": measured, "wrong": wrong})


@claim(
    "p4-linear-neurons",
    "Theorems 6, 35, 36",
    "where neurons of a layer act linearly, W W^T + b b^T − W'^T W' on those neurons is conserved as a whole matrix",
    size=Size("one network 3-4-5-2", "one network 3-4-5-2", "every three-layer network"),
)
def linear_neurons(full: bool) -> Outcome:
    """Count near weights whose second layer has always-active neurons, then train there and watch the matrix."""
    rng = np.random.default_rng(0)
    mixed = np.abs(rng.normal(size=(2, 4))) * [[1, -1, 1, -1], [-1, 1, -1, 1]]
    second = np.vstack([np.abs(rng.normal(size=(3, 4))), mixed])  # three neurons always on, two sometimes
    bias = np.concatenate([np.full(3, 1.0), rng.normal(size=2)])
    mlp = Mlp([rng.normal(size=(4, 3)), second, rng.normal(size=(2, 5))], [rng.normal(size=4), bias, np.zeros(2)])
    dag = mlp.to_dag()
    anywhere, here = count_laws(dag), count_laws(dag, level="near")
    inputs, targets = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    path = trained(dag, inputs, targets, 0.05)
    still, moving = [], []
    for theta in path:
        now = mlp.with_theta(theta)
        incoming = np.column_stack([now.weights[1], np.asarray(now.biases[1])])
        matrix = incoming @ incoming.T - now.weights[2].T @ now.weights[2]
        still.append(matrix[:3, :3].ravel())
        moving.append(matrix[3:, :3].ravel())
    steady, others = drift(np.array(still)), drift(np.array(moving))
    measured = {
        "laws_anywhere": anywhere.laws,
        "laws_here": here.laws,
        "status": here.status,
        "drift_on_linear_neurons": steady,
        "drift_off_them": others,
    }
    return Outcome(here.proved and here.laws == anywhere.laws + 3 and steady < 1e-7 < 1e-3 < others, measured)


@claim(
    "p1-beyond-polynomial",
    "Sections 2.4, 4.2 (in all cases tested there, polynomials give all laws)",
    "a linear neuron with weights p, q beside a direct edge s has the law (p + q)e^(−s), which no polynomial replaces",
    size=Size("polynomials up to degree 8", "polynomials up to degree 12", "beyond the paper"),
    criterion="ours: the statement is not in the paper",
)
def beyond_polynomial(full: bool) -> Outcome:
    """Count exactly, find all polynomial laws up to a degree, and follow the flow."""
    dag = Dag(("x", "h", "y"), [Role.INPUT, Role.HIDDEN, Role.OUTPUT], [0, 0, 1], [1, 2, 2], [0.7, -0.2, 0.4], 1.0)
    count = count_laws(dag)
    found = polynomial_laws(dag, 12 if full else 8)
    rng = np.random.default_rng(0)
    path = trained(dag, rng.normal(size=(20, 1)), rng.normal(size=(20, 1)) + 1.0, 3.0)
    exponential = drift((path[:, 0] + path[:, 2]) * np.exp(-path[:, 1]))
    moving = drift(path[:, 0] + path[:, 2])
    measured = {
        "laws": count.laws,
        "status": count.status,
        "independent_polynomial_laws": found.independent,
        "drift_of_the_exponential_law": exponential,
        "motion_of_p_plus_q": moving,
    }
    holds = count.proved and count.laws == 2 and found.independent == 1 and exponential < 1e-9
    return Outcome(holds and moving > 1e-2, measured)


CLAIMS = (momentum, modules, linear_neurons, beyond_polynomial)
