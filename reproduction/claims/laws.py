"""Claims about conservation laws: which there are, that there are no others, and what they do (P1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lawful.conservation import count_laws, known_laws
from lawful.conservation.known.polynomial import polynomial_laws
from lawful.conservation.theorems import balanced_laws, linear_laws
from lawful.figure import Figure, Panel, Series
from lawful.network import Architecture, Dag, Role
from lawful.types import Floats
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest


def gradient_of_squared_error(dag: Dag, inputs: Floats, targets: Floats) -> Callable[[Floats], Floats]:
    """`θ → ∇ mean ‖g_θ(x) − y‖²`, with one small dense matrix for all weights."""
    count = len(dag.names)
    hidden_slopes = np.where(dag.roles == Role.HIDDEN, dag.slopes, 1.0)[:, None]

    def gradient(theta: Floats) -> Floats:
        matrix = np.zeros((count, count))
        matrix[dag.heads, dag.tails] = theta
        values, gates = np.zeros((count, len(inputs))), np.ones((count, len(inputs)))
        values[dag.inputs] = inputs.T
        if dag.constant is not None:
            values[dag.constant] = 1.0
        for nodes in dag.layers[1:]:
            read = matrix[nodes] @ values
            gates[nodes] = np.where(read > 0, 1.0, hidden_slopes[nodes])
            values[nodes] = gates[nodes] * read
        blame = np.zeros_like(values)
        blame[dag.outputs] = 2 * (values[dag.outputs] - targets.T) / targets.size
        for nodes in reversed(dag.layers):
            blame[nodes] = (blame[nodes] + matrix[:, nodes].T @ blame) * gates[nodes]
        return np.asarray((values[dag.tails] * blame[dag.heads]).sum(axis=1))

    return gradient


def runge_kutta(velocity: Callable[[Floats], Floats], start: Floats, time: float, steps: int) -> Floats:
    """States along a flow, one row per step; the error of a smooth flow is of order (time/steps)⁴."""
    states, size = [start], time / steps
    for _ in range(steps):
        now = states[-1]
        first = velocity(now)
        second = velocity(now + size / 2 * first)
        third = velocity(now + size / 2 * second)
        fourth = velocity(now + size * third)
        states.append(now + size / 6 * (first + 2 * second + 2 * third + fourth))
    return np.array(states)


def trained(dag: Dag, inputs: Floats, targets: Floats, time: float = 1.0, steps: int = 400) -> Floats:
    """Weights along gradient flow of the squared error, one row per step."""
    gradient = gradient_of_squared_error(dag, inputs, targets)
    return runge_kutta(lambda theta: -gradient(theta), dag.theta, time, steps)


def drift(values: Floats) -> float:
    """Largest change over time, relative to the size of what changes."""
    return float(np.abs(values - values[0]).max() / largest(1.0, np.abs(values[0]).max()))


def example(text: str, seed: int = 0, samples: int = 20) -> tuple[Dag, Floats, Floats]:
    """A network with weights, inputs and targets."""
    dag = Architecture.parse(text).initialise("xavier", seed).to_dag()
    rng = np.random.default_rng(seed)
    return dag, rng.normal(size=(samples, len(dag.inputs))), rng.normal(size=(samples, len(dag.outputs)))


@claim(
    "p1-orthogonality",
    "Propositions 2.5, 2.9",
    "a function is conserved by every gradient flow iff its gradient is orthogonal to all fields",
    size=Size("2 networks 3-4-3-2", "6 networks 3-4-3-2", "every model"),
)
def orthogonality(full: bool) -> Outcome:
    """Follow the flow: orthogonal gradients stay constant, the others move, and the angle predicts which."""
    still, moving = [], []
    for seed in range(6 if full else 2):
        dag, inputs, targets = example("3-4-3-2 linear", seed)
        path = trained(dag, inputs, targets)
        laws = known_laws(dag)
        still.append(drift(np.array([laws.values(theta) for theta in path])))
        rng = np.random.default_rng(seed)
        others = rng.normal(size=(5, dag.parameters))  # random quadratic forms: their gradients are not orthogonal
        moving.append(smallest(drift((path**2) @ other) for other in others))
    return Outcome(
        largest(still) < 1e-7 and smallest(moving) > 1e-3,
        {"largest_drift_of_laws": largest(still), "smallest_drift_of_others": smallest(moving)},
    )


@claim(
    "p1-loss-span",
    "Theorem 2.8, Lemma B.5, Remark B.6",
    "output gradients of squared error and logistic loss span; those of cross-entropy span the sum-zero plane, "
    "which adds one law per node that feeds the outputs to the laws of the network with one output less",
    size=Size("4 outputs, 6 architectures", "4 outputs, 9 architectures", "every size"),
)
def loss_span(full: bool) -> Outcome:
    """Measure the spans by autodiff, then count with w orthogonal to 1 and compare with the prediction."""
    spans = {name: _span(loss, 4) for name, loss in LOSS_GRADIENTS.items()}
    wrong = []
    texts = [
        "3-4-3 relu",
        "3-4-3 relu bias",
        "3-3-4 linear",
        "2-5-3 linear",
        "2-3-4-3 linear bias",
        "4-3-3-2 relu bias",
    ]
    for text in texts if not full else [*texts, "6-5-4-5 linear", "8-8-8-8 relu bias", "2-9-3 linear bias"]:
        architecture = Architecture.parse(text)
        *widths, outputs = architecture.widths
        reduced = Architecture((*widths, outputs - 1), architecture.slope, architecture.bias)
        found = count_laws(architecture, loss="cross-entropy")
        predicted = count_laws(reduced).laws + widths[-1] + architecture.bias
        if found.laws != predicted or not found.proved:
            wrong.append(text)
    right = spans == {"squared": 4, "logistic": 1, "cross-entropy": 3}
    return Outcome(right and not wrong, {"spans_of_output_gradients": spans, "counts_off": wrong})


def _span(gradient: Callable[[Any], Floats], size: int) -> int:
    rng = np.random.default_rng(0)
    rows = gradient((rng.normal(size=size), rng))
    return int(np.linalg.matrix_rank(np.atleast_2d(rows)))


def _squared(case: Any) -> Floats:
    z, rng = case
    return np.array([2 * (z - rng.normal(size=len(z))) for _ in range(20)])


def _logistic(case: Any) -> Floats:
    z = case[0][0]
    return np.array([[-y * np.exp(-z * y) / (1 + np.exp(-z * y))] for y in (-1, 1)])


def _cross_entropy(case: Any) -> Floats:
    z = torch.tensor(case[0], requires_grad=True)
    rows = [
        torch.autograd.grad(torch.nn.functional.cross_entropy(z[None], torch.tensor([y])), z)[0] for y in range(len(z))
    ]
    return np.asarray(torch.stack(rows).numpy())


LOSS_GRADIENTS = {"squared": _squared, "logistic": _logistic, "cross-entropy": _cross_entropy}


@claim(
    "p1-example-2-3",
    "Examples 2.3, 2.10",
    "u² − v² is the only law of uv: no other, and no other polynomial one but its powers",
    size=Size("polynomials up to degree 6", "polynomials up to degree 8", "all functions"),
)
def example_2_3(full: bool) -> Outcome:
    """Count exactly, and find all polynomial laws up to degree 6."""
    count = count_laws("1-1-1 linear")
    found = polynomial_laws("1-1-1 linear", 8 if full else 6)
    kinds = [law.kind for law in found.laws]
    only_powers = kinds == ["neuron"] + ["product"] * (found.degree // 2 - 1)
    terms = {edges: int(factor) for edges, factor in found.laws[0].terms.items()}
    holds = count.proved and count.laws == 1 and only_powers and terms == {(0, 0): 1, (1, 1): -1}
    return Outcome(holds, {"laws": count.laws, "status": count.status, "polynomials": kinds, "independent": 1})


@claim(
    "p1-known-laws",
    "Proposition 4.1",
    "balancedness is conserved by linear and ReLU networks, biases included: matrices for linear layers, "
    "their diagonal for ReLU",
    size=Size("4 networks, time 1", "16 networks, time 1", "every depth and width"),
)
def known_are_conserved(full: bool) -> Outcome:
    """Train by gradient flow and watch the laws; for ReLU the off-diagonal products must move."""
    drifts: dict[str, float] = {}
    products: list[float] = []
    for text in ["4-3-4-2 linear bias", "3-5-4-2 relu bias", "3-4-4-2 leaky_relu(0.2)", "3-4-4-2 relu skip(1,2)"]:
        for seed in range(4 if full else 1):
            dag, inputs, targets = example(text, seed)
            path = trained(dag, inputs, targets, 1.0, 4000 if full else 800)
            laws = known_laws(dag)
            drifts[text] = largest(drifts.get(text, 0.0), drift(np.array([laws.values(theta) for theta in path])))
            if "relu bias" in text:
                pairs = known_laws(Dag(dag.names, dag.roles, dag.tails, dag.heads, dag.theta, 1.0))
                off = np.array([pairs.values(theta) for theta in path])[:, len(dag.hidden) :]
                products.append(float(np.abs(off - off[0]).max()))
    return Outcome(
        largest(drifts.values()) < 1e-5 and smallest(products) > 1e-3,
        {"drift": drifts, "smallest_motion_of_relu_products": smallest(products)},
    )


def appendix_i(count: int, linear: bool, seed: int, *, depths: tuple[int, int], widths: tuple[int, int]) -> list[str]:
    """Random architectures as P1 Appendix I draws them: depth is the number of weight matrices."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        depth = int(rng.integers(depths[0], depths[1] + 1))
        layers = rng.integers(widths[0], widths[1] + 1, size=depth + 1)
        bias = " bias" if not linear and rng.random() < 0.5 else ""
        found.append("-".join(map(str, layers)) + (" linear" if linear else " relu") + bias)
    return found


@claim(
    "p1-appendix-i-count",
    "Appendix I, Section 4.2",
    "for 50 random ReLU and 50 random linear architectures there are exactly as many laws as are known",
    size=Size("100 random architectures", "1000 random architectures", "100 random architectures"),
)
def appendix_i_count(full: bool) -> Outcome:
    """Count all 100 and demand a proof for each; `full` draws 1000."""
    size = 500 if full else 50
    texts = appendix_i(size, False, 1, depths=(2, 5), widths=(2, 10))
    texts += appendix_i(size, True, 2, depths=(2, 5), widths=(2, 6))
    counts = [count_laws(text) for text in texts]
    unproved = [text for text, count in zip(texts, counts, strict=True) if not count.proved]
    known = [count.independent for count in counts]
    figure = Figure(
        "Laws counted against laws known, 100 random architectures: all on the diagonal.",
        [
            Panel(
                [
                    Series([c.laws for c in counts[:size]], known[:size], "ReLU", "points"),
                    Series([c.laws for c in counts[size:]], known[size:], "linear", "points"),
                ],
                x="known independent laws",
                y="D − dim Lie(V)",
            )
        ],
    )
    measured = {
        "architectures": len(texts),
        "proved": len(texts) - len(unproved),
        "unproved": unproved[:5],
        "largest_number_of_parameters": max(count.parameters for count in counts),
    }
    return Outcome(not unproved, measured, figure=figure)


@claim(
    "p1-appendix-i-polynomial",
    "Appendix I, Section 2.4",
    "the polynomial laws of degree 2 of 10 random ReLU and 10 random linear architectures are the known ones",
    size=Size("20 random architectures", "100 random architectures", "20 random architectures"),
)
def appendix_i_polynomial(full: bool) -> Outcome:
    """Find all laws of degree at most 2 without being told any, and compare with the exact count."""
    size = 50 if full else 10
    texts = appendix_i(size, False, 3, depths=(2, 4), widths=(2, 5))
    texts += appendix_i(size, True, 4, depths=(2, 4), widths=(2, 5))
    wrong, unrecognised = [], 0
    for text in texts:
        found = polynomial_laws(text, 2)
        unrecognised += sum(law.kind == "polynomial" for law in found.laws)
        if found.independent != count_laws(text).laws:
            wrong.append(text)
    measured = {"architectures": len(texts), "incomplete": wrong, "laws_of_no_known_kind": unrecognised}
    return Outcome(not wrong and unrecognised == 0, measured)


@claim(
    "p1-deep-formula",
    "beyond Section 4.1 (q > 2 is left open)",
    "summed over hidden layers, the two-layer formula counts the laws of every deep linear network of the atlas "
    "without layers of width 1, and all of them are proved",
    size=Size("64 deep linear networks", "307 deep linear networks", "beyond the paper"),
    criterion="ours: the statement is not in the paper",
)
def deep(full: bool) -> Outcome:
    """An atlas of exact, proved counts; `full` takes every network with five layers of width 2 to 4."""
    rng = np.random.default_rng(5)
    shapes = [tuple(int(width) for width in rng.integers(2, 8, size=rng.integers(4, 7))) for _ in range(60)]
    shapes += [(7, 3, 6, 2, 5), (4, 6, 3, 6, 2), (2, 9, 2, 9, 2), (2, 9, 2, 3, 2)]
    if full:
        shapes += [tuple(int(digit) + 2 for digit in np.base_repr(n, 3).zfill(5)) for n in range(3**5)]
    wrong = []
    for shape in shapes:
        count = count_laws(Architecture(shape, slope=1.0))
        if not count.proved or not count.laws == balanced_laws(shape) == linear_laws(shape):
            wrong.append(shape)
    return Outcome(not wrong, {"networks": len(shapes), "wrong": wrong[:5]})


@claim(
    "p1-width-one",
    "beyond Section 4.2 (widths there are at least 2)",
    "balancedness is not everything: between two layers of width 1 a linear network with two or more wider layers has "
    "more laws (1-2-2-1 has 7, balancedness gives 6), none of them a polynomial of low degree",
    size=Size("85 shapes of widths 1 to 3", "247 shapes of widths 1 to 3", "beyond the paper"),
    criterion="ours: the statement is not in the paper",
)
def width_one(full: bool) -> Outcome:
    """Count all small shapes with layers of width 1, compare with both formulas, and search for polynomials."""
    digits = 5 if full else 4
    shapes = [tuple(int(digit) + 1 for digit in np.base_repr(n, 3).zfill(digits)) for n in range(3**digits)]
    shapes += [(1, 1, 2, 3, 1, 2), (1, 3, 2, 2, 1), (2, 1, 2, 2, 1, 3), (1, 2, 2, 1, 2, 2, 1)]
    wrong, more = [], []
    for shape in shapes:
        count = count_laws(Architecture(shape, slope=1.0))
        if count.laws != linear_laws(shape):
            wrong.append(shape)
        if count.laws > balanced_laws(shape):
            more.append(shape)
    found = polynomial_laws("1-2-2-1 linear", 6 if full else 4)
    measured = {
        "networks": len(shapes),
        "wrong": wrong[:5],
        "with_more_laws_than_balancedness": len(more),
        "laws_of_1-2-2-1": count_laws("1-2-2-1 linear").laws,
        "independent_polynomial_laws": found.independent,
        "up_to_degree": found.degree,
    }
    return Outcome(
        not wrong and measured["laws_of_1-2-2-1"] == 7 and len(more) > 0 and found.independent == 6, measured
    )


CLAIMS = (
    orthogonality,
    loss_span,
    example_2_3,
    known_are_conserved,
    appendix_i_count,
    appendix_i_polynomial,
    deep,
    width_one,
)
