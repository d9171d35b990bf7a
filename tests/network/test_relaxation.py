"""Ranges by linear relaxation: never too narrow, against linear programs over all activation patterns."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from lawful.network import Architecture, Mlp
from lawful.network.relaxation import lines, preactivation_bounds, relaxed_bounds
from lawful.types import Floats

SLOPES = (0.0, 0.1, -0.5, 1.0, 2.0)


def largest(mlp: Mlp, row: int, box: tuple[Floats, Floats]) -> float:
    """The largest value of one output: a linear program for every pattern of signs (oracle)."""
    best = -np.inf
    widths = [len(weight) for weight in mlp.weights[:-1]]
    for signs in product([1.0, -1.0], repeat=sum(widths)):
        matrix, offset = np.eye(len(box[0])), np.zeros(len(box[0]))
        above, below, at = [], [], 0
        for weight, bias, slope in zip(mlp.weights[:-1], mlp.biases[:-1], mlp.slopes, strict=True):
            matrix, offset = weight @ matrix, weight @ offset + bias
            sign = np.array(signs[at : at + len(weight)])
            above.append(-sign[:, None] * matrix)
            below.append(sign * offset)
            scale = np.where(sign > 0, 1.0, slope)
            matrix, offset, at = scale[:, None] * matrix, scale * offset, at + len(weight)
        matrix, offset = mlp.weights[-1] @ matrix, mlp.weights[-1] @ offset + mlp.biases[-1]
        found = linprog(
            -matrix[row], A_ub=np.concatenate(above), b_ub=np.concatenate(below), bounds=np.stack(box, axis=1)
        )
        if found.status == 0:
            best = max(best, -found.fun + offset[row])
    return best


@pytest.mark.parametrize("slope", SLOPES)
def test_ranges_contain_the_true_ones_and_are_no_wider_than_intervals(slope: float) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        widths = (2, 3, 3, 2, 1)
        pairs = list(zip(widths[1:], widths[:-1], strict=True))
        mlp = Mlp([rng.normal(size=pair) for pair in pairs], [rng.normal(size=n) for n in widths[1:]], [slope] * 3)
        box = np.array([-1.0, -0.5]), np.array([0.5, 2.0])
        dag = mlp.to_dag()
        low, high = relaxed_bounds(dag, box)
        rough = preactivation_bounds(dag, *box)
        assert (low >= rough[0]).all()
        assert (high <= rough[1]).all()
        inner = Mlp(mlp.weights[:3], mlp.biases[:3], mlp.slopes[:2])
        for row in range(2):
            node = dag.index[f"h3.{row}"]
            top = largest(inner, row, box)
            negative = Mlp([*inner.weights[:2], -inner.weights[2]], [*inner.biases[:2], -inner.biases[2]], inner.slopes)
            assert top <= high[node] + 1e-9
            assert low[node] <= -largest(negative, row, box) + 1e-9


@settings(max_examples=trials(13, 40), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SLOPES), st.integers(-20, 20))
def test_no_input_leaves_its_range_whatever_the_scale(seed: int, slope: float, power: int) -> None:
    """Graphs with skips; the same ranges at every scale of inputs and biases."""
    graph = Architecture.parse(f"3-5-5-4-2 leaky_relu({slope}) bias skip(0,2) skip(1,3)").to_dag()
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=graph.parameters)
    scale = 2.0**power
    theta = np.where(graph.tails == graph.constant, theta * scale, theta)
    dag = graph.with_theta(theta)
    box = -scale * np.ones(3), scale * np.ones(3)
    low, high = relaxed_bounds(dag, box)
    batch = rng.uniform(*box, (300, 3))
    values = dag.activations(np.concatenate([batch, np.sign(batch) * scale]))
    sums = np.zeros_like(values)
    np.add.at(sums.T, dag.heads, dag.theta[:, None] * values[:, dag.tails].T)
    assert (sums[:, dag.hidden] <= high[dag.hidden] + 1e-12 * scale).all()
    assert (sums[:, dag.hidden] >= low[dag.hidden] - 1e-12 * scale).all()


@settings(max_examples=trials(33, 100), deadline=None)
@given(st.floats(-10, 10), st.floats(0, 10), st.sampled_from(SLOPES), st.booleans())
def test_lines_lie_above_and_below(low: float, width: float, slope: float, parallel: bool) -> None:
    ends = np.array([low]), np.array([low + width])
    found = lines(*ends, np.array([slope]))
    found = found.parallel if parallel else found
    z = np.linspace(low, low + width, 101)
    value = np.maximum(z, 0) + slope * np.minimum(z, 0)
    room = 1e-15 * (1 + abs(low) + width)
    assert (found.high * z + found.shift >= value - room).all()
    assert (found.low * z + found.low_shift <= value + room).all()
    assert (np.abs(value) <= found.scale + room).all()
    if slope <= 1:
        assert (found.flat * z <= value + room).all()


@settings(max_examples=trials(67, 200), deadline=None)
@given(st.floats(-1e3, 0), st.floats(0, 1e3), st.sampled_from(SLOPES), st.booleans())
def test_lines_are_exactly_true_at_the_ends_and_at_the_kink(
    low: float, high: float, slope: float, parallel: bool
) -> None:
    """In rationals, without room: lines around a convex or concave function are true if they are at these places."""
    found = lines(np.array([low]), np.array([high]), np.array([slope]))
    found = found.parallel if parallel else found
    below, below_shift, above, above_shift = (Fraction(float(end[0])) for end in found[:4])
    for z in (Fraction(low), Fraction(0), Fraction(high)):
        value = max(z, Fraction(0)) + Fraction(slope) * min(z, Fraction(0))
        assert below * z + below_shift <= value <= above * z + above_shift


def test_unbounded_boxes_fall_back_on_intervals() -> None:
    dag = Architecture.parse("1-3-2 relu bias").initialise(seed=0).to_dag()
    box = np.array([-np.inf]), np.array([1.0])
    for one, other in zip(relaxed_bounds(dag, box), preactivation_bounds(dag, *box), strict=True):
        assert (one == other).all()
