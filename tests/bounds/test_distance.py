"""Bounds of the distance of two networks: true, tight where an independent computation says so, and scale-free."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from bounds.distance_oracles import disguised, exact_distance, milp_distance, moved, random_mlp, sampled
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import Architecture, Mlp
from lawful.bounds.box_bounds import bound
from lawful.bounds.branch_and_bound import norm_above
from lawful.bounds.distance import distance
from lawful.bounds.layers import evaluate, exact_difference, exact_outputs, layers_of
from lawful.bounds.pair import align
from lawful.bounds.result import float_below, norm_below
from lawful.errors import LawfulError, Unsupported
from lawful.pruning.neurons.measure import measure
from lawful.pruning.neurons.prune import prune

# True


@settings(max_examples=trials(20, 60))
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([1e-7, 1e-2, 1.0, 100.0]))
def test_no_sample_exceeds_a_bound(seed: int, slope: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    widths = tuple(int(n) for n in rng.integers(1, 12, size=int(rng.integers(2, 6))))
    first = random_mlp(rng, widths, slope)
    kind = rng.integers(3)
    second = moved(first, rng, size) if kind == 0 else disguised(first, rng, single=True)
    if kind == 2:
        second = random_mlp(rng, (widths[0], *(int(n) for n in rng.integers(1, 12, size=2)), widths[-1]), slope)
    centre, radius = rng.normal(size=widths[0]), np.abs(rng.normal(size=widths[0])) * 10.0 ** rng.integers(-3, 2)
    radius[rng.random(widths[0]) < 0.2] = 0.0
    pair = align(layers_of(first), layers_of(second))
    low, high = centre - radius, centre + radius
    halves = [(low, centre), (centre, high), (low, high)]
    found = bound(pair, *(np.array(ends) for ends in zip(*halves, strict=True)))
    for number, (start, end) in enumerate(halves):
        points = rng.uniform(start, end, (500, widths[0]))
        points[::7] = np.where(rng.random(points[::7].shape) < 0.5, start, end)
        gaps = second.evaluate(points) - first.evaluate(points)
        slack = 1e-12 * np.abs(second.evaluate(points)).max(axis=0)  # of the sampling in floats
        assert (gaps <= found.high[number] + slack).all()
        assert (gaps >= found.low[number] - slack).all()


@pytest.mark.parametrize("seed", range(trials(8, 24)))
def test_rounding_is_outwards_where_nothing_else_is(seed: int) -> None:
    """On a single point all that separates the bounds is rounding: the exact difference lies between them."""
    rng = np.random.default_rng(seed)
    widths = (3, *[int(rng.integers(5, 30))] * int(rng.integers(1, 6)), 2)
    first = random_mlp(rng, widths, [0.0, 0.01, 0.5][seed % 3])
    second = disguised(first, rng, single=True) if seed % 2 else moved(first, rng, 10.0 ** rng.integers(-15, 1))
    point = rng.normal(size=3) * 10.0 ** rng.integers(-3, 9)
    other = np.nextafter(point, np.inf)
    pair = align(layers_of(first), layers_of(second))
    found = bound(pair, np.array([point, point]), np.array([point, other]))
    for number, ends in enumerate(([point], [point, other])):
        for x in ends:
            exact = exact_difference(layers_of(first), layers_of(second), x)
            for gap, low, high in zip(exact, found.low[number], found.high[number], strict=True):
                assert Fraction(float(low)) <= gap <= Fraction(float(high))
    size = max(np.abs(network.evaluate(point[None])).max() for network in (first, second))
    assert (found.high[0] - found.low[0]).max() <= 1e-9 * size  # and not by much


@pytest.mark.parametrize("seed", range(trials(3, 8)))
def test_graphs_with_skips(seed: int) -> None:
    rng = np.random.default_rng(seed)
    architecture = Architecture.parse("3-5-4-2 relu bias skip(0,2) skip(1,2)")
    first = architecture.initialise(seed=seed).to_dag()
    second = first.with_theta(first.theta + 0.05 * rng.normal(size=first.parameters))
    assert np.allclose(evaluate(layers_of(first), np.ones((2, 3))), first.evaluate(np.ones((2, 3))), rtol=1e-13)
    low, high = -np.ones(3), np.ones(3)
    found = distance(first, second, (low, high), seconds=20.0)
    assert sampled(first, second, low, high) <= found.upper
    assert found.upper <= float(found.lower) * 1.001


@pytest.mark.parametrize("seed", range(trials(3, 6)))
@pytest.mark.parametrize("norm", [math.inf, 1.0, 2.0])
def test_one_input_against_exact_kinks(seed: int, norm: float) -> None:
    rng = np.random.default_rng(seed)
    first = random_mlp(rng, (1, 6, 5, 2), [0.0, 0.25, 0.5][seed % 3])
    second = moved(first, rng, 0.1) if seed % 2 else random_mlp(rng, (1, 4, 2))
    true = exact_distance(first, second, -2.0, 3.0, norm)
    found = distance(first, second, ([-2.0], [3.0]), norm=norm, seconds=20.0)
    assert found.lower <= true <= Fraction(found.upper)
    assert found.upper <= float(true) * 1.002
    assert found.lower >= true * Fraction(999, 1000)


@pytest.mark.parametrize("seed", range(3))
def test_small_pairs_against_a_mixed_integer_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = random_mlp(rng, (3, 5, 4, 1))
    second = moved(first, rng, 0.1)
    low, high = np.array([-1.0, -0.5, 0.25]), np.array([1.0, 1.0, 0.25])
    found = distance(first, second, (low, high), seconds=30.0)
    assert found.upper == pytest.approx(milp_distance(first, second, low, high), rel=1e-3)
    assert float(found.lower) == pytest.approx(found.upper, rel=1e-3)


# Questions


def test_proved_violated_undecided() -> None:
    rng = np.random.default_rng(0)
    first = random_mlp(rng, (2, 10, 10, 2))
    second = moved(first, rng, 0.05)
    box = ([-1.0, -1.0], [1.0, 1.0])
    true = distance(first, second, box, seconds=30.0)
    assert distance(first, second, box, within=true.upper * 1.05, seconds=30.0).status == "proved"
    violated = distance(first, second, box, within=true.lower * Fraction(9, 10), seconds=30.0)
    assert violated.status == "violated"
    gaps = [b - a for a, b in zip(*(exact_outputs(layers_of(n), violated.input) for n in (first, second)), strict=True)]
    assert max(map(abs, gaps)) == violated.lower > true.lower * Fraction(9, 10)
    assert distance(first, second, box, within=true.lower, seconds=0.0).status == "undecided"


def test_the_same_answer_on_one_thread_and_on_two() -> None:
    rng = np.random.default_rng(3)
    first = random_mlp(rng, (3, 12, 12, 2))
    second = moved(first, rng, 0.02)
    one, two = (distance(first, second, (-np.ones(3), np.ones(3)), within=1.0, threads=n, seconds=60) for n in (1, 2))
    assert (one.tree, one.upper, one.lower, one.boxes) == (two.tree, two.upper, two.lower, two.boxes)


def test_the_same_tree_from_a_cluster() -> None:
    distributed = pytest.importorskip("distributed")
    rng = np.random.default_rng(3)
    first = random_mlp(rng, (3, 12, 12, 2))
    second = moved(first, rng, 0.02)
    box = -np.ones(3), np.ones(3)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        there = distance(first, second, box, within=1.0, seconds=60, scheduler=cluster.scheduler_address)
    here = distance(first, second, box, within=1.0, seconds=60)
    assert (there.tree, there.upper, there.lower) == (here.tree, here.upper, here.lower)


def test_time_zero_still_bounds() -> None:
    rng = np.random.default_rng(1)
    first = random_mlp(rng, (2, 5, 1))
    found = distance(first, moved(first, rng, 0.1), ([-1.0, 0.0], [1.0, 0.0]), seconds=0.0)
    assert found.boxes == 1
    assert found.lower <= Fraction(found.upper) < math.inf


# Parts


def test_norms_are_rounded_outwards() -> None:
    gaps = np.random.default_rng(0).uniform(size=(200, 5)) * 10.0 ** np.arange(-200, 200, 2)[:, None]
    for norm in (1.0, 2.0, math.inf):
        above = norm_above(gaps, norm)
        for row, high in zip(gaps, above, strict=True):
            exact = norm_below([Fraction(float(gap)) for gap in row], norm)
            assert exact <= Fraction(float(high))
            assert float(high) <= float_below(exact) * (1 + 1e-13)


@pytest.mark.parametrize("seed", range(trials(3, 6)))
def test_exact_outputs_of_graphs(seed: int) -> None:
    dag = Architecture.parse("2-4-3-2 leaky_relu(0.3) bias skip(0,2)").initialise(seed=seed).to_dag()
    point = np.random.default_rng(seed).normal(size=2)
    values = {int(node): Fraction(float(x)) for node, x in zip(dag.inputs, point, strict=True)}
    if dag.constant is not None:
        values[dag.constant] = Fraction(1)
    for layer in dag.layers[1:]:
        for node in layer:
            total = sum(
                (Fraction(float(dag.theta[e])) * values[int(dag.tails[e])] for e in np.flatnonzero(dag.heads == node)),
                Fraction(0),
            )
            values[int(node)] = total if total > 0 else Fraction(float(dag.slopes[node])) * total
    assert exact_outputs(layers_of(dag), point) == [values[int(node)] for node in dag.outputs]


# Misuse


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (([1.0, 0.0], [0.0, 1.0]), "input 0 of the box goes from 1.0 to 0.0"),
        (([0.0], [1.0]), "a box for 2 inputs"),
        (([0.0, -math.inf], [1.0, 1.0]), "give finite"),
        (([0.0, math.nan], [1.0, 1.0]), "give finite"),
    ],
)
def test_bad_boxes(box: tuple[list[float], list[float]], words: str) -> None:
    network = random_mlp(np.random.default_rng(0), (2, 3, 1))
    with pytest.raises(LawfulError, match=words):
        distance(network, network, box)


def test_bad_questions() -> None:
    rng = np.random.default_rng(0)
    network, box = random_mlp(rng, (2, 3, 1)), ([0.0, 0.0], [1.0, 1.0])
    for options in ({"within": -1.0}, {"within": math.nan}, {"norm": 3.0}, {"output": 1}, {"seconds": -1.0}):
        with pytest.raises(LawfulError):
            distance(network, network, box, **options)  # type: ignore[arg-type]
    with pytest.raises(LawfulError, match="1 and 2 outputs"):
        distance(network, random_mlp(rng, (2, 3, 2)), box)
    with pytest.raises(Unsupported, match="layer 1 has an activation of slope 2"):
        distance(network, random_mlp(rng, (2, 3, 1), 2.0), box)


def test_prunings_are_compared_as_a_whole() -> None:
    """The bounds of single steps add up; the distance of original and result is smaller, and no sample exceeds it."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(8, 3)), 0.3 * rng.normal(size=(8, 8)), 0.3 * rng.normal(size=(1, 8))]
    network = Mlp(weights, [rng.normal(size=8), rng.normal(size=8), [0.0]])
    pruned = prune(network, tolerance=1.0, box=(-np.ones(3), np.ones(3)))
    apart = measure(pruned).apart
    assert apart is not None
    assert pruned.measured(5000) <= apart < pruned.bound
    assert measure(prune(network, box=(-np.ones(3), np.ones(3)))).apart is None
