"""Laws without a closed form: functions that training keeps, evaluated by following a line of flow."""

import numpy as np
import pytest

from lawful.errors import LawfulError
from lawful.laws import count_laws
from lawful.laws.flow_box import flow_box
from lawful.laws.level_sets import level_sets
from lawful.network import Architecture


def _trained(dag, theta, x, y, steps, step):
    """Gradient flow of ½(f − y)² by Runge-Kutta, with gradients by differences of the graph's own evaluation."""

    def slope(at):
        def loss(weights):
            return 0.5 * float(((dag.with_theta(weights).evaluate(x) - y) ** 2).sum())

        eye = np.eye(len(at)) * 1e-6
        return -np.array([(loss(at + e) - loss(at - e)) / 2e-6 for e in eye])

    for _ in range(steps):
        one = slope(theta)
        two = slope(theta + step / 2 * one)
        three = slope(theta + step / 2 * two)
        theta = theta + step / 6 * (one + 2 * two + 2 * three + slope(theta + step * three))
    return theta


def test_training_keeps_the_laws_that_have_no_formula():
    """1-2-2-1 linear has 7 laws, balancedness gives 6 (claim p1-width-one): the flow box has all seven."""
    count = count_laws("1-2-2-1 linear")
    dag = Architecture.parse("1-2-2-1 linear").initialise(seed=4).to_dag()
    x, y = np.array([[1.0], [-0.5]]), np.array([[2.0], [-1.5]])
    after = _trained(dag, dag.theta, x, y, 150, 0.01)
    assert np.abs(after - dag.theta).max() > 0.05
    level = 0.3
    before, later = flow_box(count, dag.theta, level=level), flow_box(count, after, level=level)
    assert max(before.error, later.error) < 1e-6
    assert np.allclose(before.weights, later.weights, atol=1e-6)
    other = flow_box(count, dag.theta * 1.1, level=level)
    assert np.abs(other.weights - before.weights).max() > 1e-2


def test_its_laws_are_seven_independent_functions():
    count = count_laws("1-2-2-1 linear")
    theta = Architecture.parse("1-2-2-1 linear").initialise(seed=4).to_dag().theta
    steps = np.eye(8) * 1e-4
    slopes = [
        flow_box(count, theta + e, level=0.3).weights - flow_box(count, theta - e, level=0.3).weights for e in steps
    ]
    sizes = np.linalg.svd(np.array(slopes) / 2e-4, compute_uv=False)
    assert sizes[6] > 1e-3
    assert sizes[7] < 1e-5


def test_one_sample_is_a_source_too():
    network = Architecture.parse("3-2-2-1 linear").initialise(seed=1)
    sample = np.array([[1.0, 2.0, -1.0]])
    count = count_laws(network, level="data", data=sample)
    assert (count.laws, count.status) == (11, "proved")
    dag = network.to_dag()
    after = _trained(dag, dag.theta, sample, np.array([[1.5]]), 80, 0.005)
    assert np.abs(after - dag.theta).max() > 0.02
    whole = max(range(len(count.parts)), key=lambda number: len(count.parts[number].edges))
    before, later = (flow_box(count, theta, whole, level=0.2) for theta in (dag.theta, after))
    assert np.allclose(before.weights, later.weights, atol=1e-6)


def test_bad_input():
    with pytest.raises(LawfulError, match="0 parts"):
        flow_box(count_laws("2-3-2 relu"), np.ones(12))
    count = count_laws("1-2-2-1 linear")
    with pytest.raises(LawfulError, match="8 finite entries"):
        flow_box(count, np.ones(7))
    with pytest.raises(LawfulError, match="8 finite entries"):
        flow_box(count, np.full(8, np.nan))


def test_level_sets_are_level_sets():
    """Points of one line have one value of the law; another computation of it, point by point, says the same."""
    count = count_laws("1-2-2-1 linear")
    theta = Architecture.parse("1-2-2-1 linear").initialise(seed=0).to_dag().theta
    found = level_sets(count, theta)
    assert found.error < 1e-6
    assert len(found.lines) >= 5
    value, x, y = found.lines[2]
    for place in (0, len(x) // 2, len(x) - 1):
        at = theta.copy()
        at[count.parts[0].edges[0]], at[count.parts[0].edges[1]] = x[place], y[place]
        assert flow_box(count, at, level=found.level).weights[0] == pytest.approx(value, abs=2e-3)
    with pytest.raises(LawfulError, match="two different weights"):
        level_sets(count, theta, weights=(1, 1))


def test_the_page_shows_them(lawful, tmp_path):
    page = tmp_path / "laws.html"
    lawful("laws", "1-2-2-1 linear", "--html", page)
    text = page.read_text()
    assert "Laws without a formula" in text
    assert "Level sets of a law" in text
    lawful("laws", "3-4-2 relu <b>", "--html", page, code=2)
