"""Laws without a closed form: functions that training keeps, evaluated by following a line of flow."""

import numpy as np
import pytest
from flint import arb, ctx
from scipy.integrate import solve_ivp

from lawful.conservation import count_laws
from lawful.conservation.known.flow_box import flow_box, level_sets
from lawful.errors import LawfulError
from lawful.network import Architecture
from lawful.network.dynamics import GradientFlow, Metric


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
    assert max(before.error, later.error) < 1e-15
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


def _to_level(theta, level):
    """The line of 1-2-2-1 linear followed in 30 digits: T and ∇T by hand, Gragg's extrapolated midpoint rule."""
    mpmath = pytest.importorskip("mpmath")

    def number(at):
        u, v, a, c, b, d, p, q = at
        return (u * a + v * c) * p + (u * b + v * d) * q

    def motion(at):
        u, v, a, c, b, d, p, q = at
        slope = [a * p + b * q, c * p + d * q, u * p, v * p, u * q, v * q, u * a + v * c, u * b + v * d]
        return [way * entry / mpmath.fdot(slope, slope) for entry in slope]

    def moved(at, speed, by):
        return [x + by * dx for x, dx in zip(at, speed, strict=True)]

    steps, orders = 6, 8
    with mpmath.workdps(30):
        at = [mpmath.mpf(float(weight)) for weight in theta]
        way = level - number(at)
        for _ in range(steps):
            table = []
            for order in range(1, orders + 1):
                step = mpmath.mpf(1) / (2 * order * steps)
                before, here = at, moved(at, motion(at), step)
                for _ in range(2 * order - 1):
                    before, here = here, moved(before, motion(here), 2 * step)
                ends = [(x + y) / 2 for x, y in zip(before, moved(here, motion(here), step), strict=True)]
                row = [ends]
                for k in range(1, order):
                    ratio = mpmath.mpf(order) / (order - k)
                    change = [(x - y) / (ratio**2 - 1) for x, y in zip(row[-1], table[-1][k - 1], strict=True)]
                    row.append(moved(row[-1], change, 1))
                table.append(row)
            at = table[-1][-1]
        return [str(x) for x in at]


@pytest.mark.parametrize("scale", [1.0, 1e9, 1e-9])
@pytest.mark.parametrize("level", [2.5, 9.0])
def test_the_bound_holds(scale, level):
    theta = np.array([1.0, 2.0, 0.5, -1.0, 1.0, 0.5, 2.0, 1.0]) * scale
    count = count_laws("1-2-2-1 linear")
    found = flow_box(count, theta, level=level * scale**3)
    assert found.error < 1e-15 * scale
    with ctx.workprec(120):
        for ball, weight, text in zip(found.balls, found.weights, _to_level(theta, level * scale**3), strict=True):
            true = arb(text)
            assert ball.overlaps(true)
            assert abs(arb(float(weight)) - true) < found.error
    sharper = flow_box(count, theta, level=level * scale**3, digits=40)
    assert all(ball.contains(inner) for ball, inner in zip(found.balls, sharper.balls, strict=True))
    assert max(ball.rad() for ball in sharper.balls) < 1e-39 * scale


def test_other_flows_have_other_lines():
    """Under a metric the line follows M∇T, and with weight decay e^{λt}θ stays on it: both are kept by training."""
    dag = Architecture.parse("1-2-2-1 linear").initialise(seed=4).to_dag()
    x, y = np.array([[1.0], [-0.5]]), np.array([[2.0], [-1.5]])
    diagonal, decay, span = np.linspace(0.5, 2.0, 8), 0.4, 1.0

    def after(flow):
        def motion(_, theta):
            def loss(weights):
                return 0.5 * float(((dag.with_theta(weights).evaluate(x) - y) ** 2).sum())

            eye = np.eye(8) * 1e-5
            gradient = np.array([(loss(theta + e) - loss(theta - e)) / 2e-5 for e in eye])
            return -diagonal * gradient if isinstance(flow, Metric) else -gradient - decay * theta

        return solve_ivp(motion, (0.0, span), dag.theta, rtol=1e-8, atol=1e-10).y[:, -1]

    for flow in (Metric(diagonal), GradientFlow(decay=decay)):
        count = count_laws("1-2-2-1 linear", flow=flow)
        assert count.proved
        one = flow_box(count, dag.theta, level=0.3)
        end = after(flow)
        two = flow_box(count, end, level=0.3, time=span)
        assert np.allclose(one.weights, two.weights, atol=1e-6)
        plain = flow_box(count_laws("1-2-2-1 linear"), end, level=0.3)
        assert np.abs(plain.weights - one.weights).max() > 1e-3


def test_bad_input():
    with pytest.raises(LawfulError, match="not seen to reach"):
        flow_box(count_laws("1-2-2-1 linear"), np.zeros(8), level=1.0)
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
    assert found.error < 1e-9
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
