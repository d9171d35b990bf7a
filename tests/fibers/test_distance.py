"""Bounds of the distance of two networks: true, tight where an independent computation says so, and scale-free."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from lawful import Architecture, Dag, Mlp
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.distance import distance
from lawful.fibers.distance.bound import bound
from lawful.fibers.distance.exact import exact_difference, exact_outputs
from lawful.fibers.distance.layers import evaluate, layers_of
from lawful.fibers.distance.pair import align
from lawful.fibers.distance.result import float_below, norm_below
from lawful.fibers.distance.split import norm_above
from lawful.pruning.measure import measure
from lawful.pruning.prune import prune


def random_mlp(rng: np.random.Generator, widths: tuple[int, ...], slope: float = 0.0) -> Mlp:
    weights = [rng.normal(size=(m, n)) * math.sqrt(2 / n) for n, m in pairwise(widths)]
    return Mlp(weights, [0.3 * rng.normal(size=m) for m in widths[1:]], slope)


def moved(network: Mlp, rng: np.random.Generator, size: float) -> Mlp:
    return network.with_theta(network.theta + size * rng.normal(size=network.parameters))


def disguised(network: Mlp, rng: np.random.Generator, scales: float = 1.0, single: bool = False) -> Mlp:
    """The same function: neurons permuted and rescaled."""
    weights, biases = [np.array(w) for w in network.weights], [np.array(b) for b in network.biases]
    for layer in range(len(weights) - 1):
        order, factor = rng.permutation(len(weights[layer])), np.exp(scales * rng.normal(size=len(weights[layer])))
        weights[layer], biases[layer] = (weights[layer] * factor[:, None])[order], (biases[layer] * factor)[order]
        weights[layer + 1] = (weights[layer + 1] / factor)[:, order]
    kind = np.float32 if single else np.float64
    return Mlp([w.astype(kind) for w in weights], [b.astype(kind) for b in biases], network.slopes)


def sampled(first: Mlp | Dag, second: Mlp | Dag, low: np.ndarray, high: np.ndarray, norm: float = math.inf) -> float:
    points = np.random.default_rng(5).uniform(low, high, (4000, len(low)))
    gaps = second.evaluate(points) - first.evaluate(points)
    return float(np.linalg.norm(gaps, ord=norm, axis=1).max())


def knots(network: Mlp, low: Fraction, high: Fraction) -> list[Fraction]:
    """All kinks of a network of one input, exactly: neurons are tracked as lists of (point, value)."""
    points = [low, high]
    values = [[point] for point in points]
    for weight, bias, slope in zip(network.weights, network.biases, (*network.slopes, 1.0), strict=True):
        rows = [[Fraction(float(w)) for w in row] for row in weight]
        shifts = [Fraction(float(b)) for b in (np.zeros(len(weight)) if bias is None else bias)]

        def summed(vector: list[Fraction], rows=rows, shifts=shifts) -> list[Fraction]:  # type: ignore[no-untyped-def]
            return [
                sum((a * b for a, b in zip(row, vector, strict=True)), c) for row, c in zip(rows, shifts, strict=True)
            ]

        before = [summed(vector) for vector in values]
        fresh = dict(zip(points, before, strict=True))
        if slope != 1:
            for (p, a), (q, b) in pairwise(zip(points, before, strict=True)):
                for one, other in zip(a, b, strict=True):
                    if one * other < 0:
                        share = one / (one - other)
                        fresh[p + share * (q - p)] = [u + share * (v - u) for u, v in zip(a, b, strict=True)]
        points = sorted(fresh)
        leak = Fraction(slope)
        values = [[v if v > 0 else leak * v for v in fresh[point]] for point in points]
    return points


def exact_distance(first: Mlp, second: Mlp, low: float, high: float, norm: float = math.inf) -> Fraction:
    """The largest difference of two networks of one input, attained at a kink of one of them (norms are convex)."""
    ends = Fraction(low), Fraction(high)
    places = sorted({*knots(first, *ends), *knots(second, *ends)})
    return max(
        norm_below([b - a for a, b in zip(value(first, x), value(second, x), strict=True)], norm) for x in places
    )


def value(network: Mlp, x: Fraction) -> list[Fraction]:
    vector = [x]
    for weight, bias, slope in zip(network.weights, network.biases, (*network.slopes, 1.0), strict=True):
        shifts = np.zeros(len(weight)) if bias is None else bias
        sums = [
            sum((Fraction(float(w)) * v for w, v in zip(row, vector, strict=True)), Fraction(float(shift)))
            for row, shift in zip(weight, shifts, strict=True)
        ]
        vector = [s if s > 0 else Fraction(slope) * s for s in sums]
    return vector


def milp_distance(first: Mlp, second: Mlp, low: np.ndarray, high: np.ndarray) -> float:
    """The largest `|g − f|` of one output by a mixed-integer program with generous constants."""
    inputs, best = len(low), 0.0
    for sign in (1.0, -1.0):
        rows, lower, upper, start = [], [], [], []
        count, integral = inputs, [0] * inputs
        bounds_low, bounds_high = list(low), list(high)
        ends = []
        for network in (first, second):
            below = [({i: 1.0}, 0.0) for i in range(inputs)]  # affine expressions
            for weight, bias, slope in zip(network.weights, network.biases, (*network.slopes, 1.0), strict=True):
                above = []
                for row, shift in zip(weight, bias, strict=True):
                    terms: dict[int, float] = {}
                    constant = float(shift)
                    for w, (expression, offset) in zip(row, below, strict=True):
                        constant += w * offset
                        for name, factor in expression.items():
                            terms[name] = terms.get(name, 0.0) + w * factor
                    if slope == 1.0:
                        above.append((terms, constant))
                        continue
                    h, delta, big = count, count + 1, 60.0
                    count += 2
                    integral += [0, 1]
                    bounds_low += [0.0, 0.0]
                    bounds_high += [big, 1.0]
                    for more, lo, hi in (
                        ({h: 1.0, **{k: -v for k, v in terms.items()}}, constant, np.inf),  # h ≥ z
                        ({h: 1.0, delta: big, **{k: -v for k, v in terms.items()}}, -np.inf, constant + big),
                        ({h: 1.0, delta: -big}, -np.inf, 0.0),
                    ):
                        rows.append(more)
                        lower.append(lo)
                        upper.append(hi)
                    above.append(({h: 1.0}, 0.0))
                below = above
            ends.append(below[0])
        cost = np.zeros(count)
        for factor, (terms, _) in ((1.0, ends[0]), (-1.0, ends[1])):
            for name, each in terms.items():
                cost[name] += sign * factor * each
        matrix = np.zeros((len(rows), count))
        for number, row in enumerate(rows):
            for name, each in row.items():
                matrix[number, name] = each
        found = milp(
            cost, integrality=np.array(integral), bounds=Bounds(bounds_low, bounds_high),
            constraints=LinearConstraint(matrix, lower, upper), options={"mip_rel_gap": 1e-9},
        )  # fmt: skip
        assert found.success
        best = max(best, -found.fun + sign * (ends[1][1] - ends[0][1]))
        start.append(best)
    return best


# True


@settings(max_examples=60)
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


@pytest.mark.parametrize("seed", range(24))
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


@pytest.mark.parametrize("seed", range(8))
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


@pytest.mark.parametrize("seed", range(6))
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


# The same function, and near copies


@pytest.mark.parametrize("widths", [(3, 8, 8, 2), (5, 50, 50, 50, 5)])
def test_an_exact_copy_is_at_distance_zero(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    first = random_mlp(rng, widths)
    weights, biases = [np.array(w) for w in first.weights], [np.array(b) for b in first.biases]
    for layer in range(len(weights) - 1):
        order, factor = rng.permutation(len(weights[layer])), 2.0 ** rng.integers(-30, 30, size=len(weights[layer]))
        weights[layer], biases[layer] = (weights[layer] * factor[:, None])[order], (biases[layer] * factor)[order]
        weights[layer + 1] = (weights[layer + 1] / factor)[:, order]
    found = distance(first, Mlp(weights, biases), (-np.ones(widths[0]), np.ones(widths[0])))
    assert (found.lower, found.upper, found.boxes) == (0, 0.0, 1)


def test_single_precision_copies_in_disguise_are_near() -> None:
    rng = np.random.default_rng(4)
    first = random_mlp(rng, (4, 20, 20, 20, 3))
    copy = disguised(first, rng, single=True)
    found = distance(first, copy, (-np.ones(4), np.ones(4)), within=1e-4, seconds=30.0)
    assert found.status == "proved"
    assert found.upper < 1e-4
    assert found.boxes < 20  # the whole box, or nearly: differences are what is bounded


@pytest.mark.parametrize("shift", [1e-3, 0.1, 10_000.0])
def test_a_shifted_output_is_seen(shift: float) -> None:
    rng = np.random.default_rng(6)
    first = random_mlp(rng, (4, 20, 20, 20, 3))
    biases = [np.array(b) for b in first.biases]
    biases[-1][1] += shift
    second = Mlp(first.weights, biases)
    found = distance(first, second, (-np.ones(4), np.ones(4)), seconds=5.0)
    assert float(found.lower) == pytest.approx(shift, rel=1e-9)
    assert found.upper == pytest.approx(shift, rel=1e-9)
    assert [each.upper > 0.5 * shift for each in found.per_output] == [False, True, False]


@pytest.mark.parametrize("power", [-9, 9])
@pytest.mark.parametrize("what", ["inputs", "neurons"])
def test_scales_change_nothing(power: int, what: str) -> None:
    rng = np.random.default_rng(7)
    first = random_mlp(rng, (3, 8, 8, 2))
    second = moved(first, rng, 0.05)
    plain = distance(first, second, (-np.ones(3), np.ones(3)), within=0.9, seconds=30.0)
    factor = 2.0 ** (power * 3.32)
    ends = np.ones(3)
    networks = []
    for network in (first, second):
        weights, biases = [np.array(w) for w in network.weights], [np.array(b) for b in network.biases]
        if what == "inputs":
            weights[0][:, 1] /= factor
        else:
            weights[1][::2] *= factor
            biases[1][::2] *= factor
            weights[2][:, ::2] /= factor
        networks.append(Mlp(weights, biases))
    if what == "inputs":
        ends[1] *= factor
    found = distance(*networks, (-ends, ends), within=0.9, seconds=30.0)
    assert found.status == plain.status
    assert float(found.lower) == pytest.approx(float(plain.lower), rel=0.2)


def test_overflow_is_never_a_proof() -> None:
    first = Mlp([[[1e200], [-1e200]], [[1e200, 1e200], [1.0, 1.0]], [[1.0, -1.0]]])
    second = Mlp([[[1e200], [-1e200]], [[1e200, 2e200], [1.0, 1.0]], [[1.0, -1.0]]])
    found = distance(first, second, ([-1.0], [1.0]), within=1e308, seconds=1.0)
    assert found.status != "proved"
    big = Mlp([[[1e308], [-1e308]], [[1.0, 1.0]]]), Mlp([[[1e308], [-1e308]], [[1.0, 0.0]]])
    found = distance(*big, ([-1.0], [1.0]), within=1e300, seconds=1.0)
    assert found.status == "violated"
    assert found.lower > 10**307


def test_tiny_weights_and_dead_neurons() -> None:
    tiny = Mlp([[[5e-324]], [[1.0]]]), Mlp([[[1e-323]], [[1.0]]])
    found = distance(*tiny, ([-1.0], [1.0]))
    assert 0 < found.lower <= Fraction(found.upper) < 1e-290
    dead = Mlp([[[1.0], [1.0]], [[1.0, 3.0]]], [[0.0, -10.0], None]), Mlp([[[1.0]], [[1.0]]])
    found = distance(*dead, ([-1.0], [1.0]))
    assert found.upper < 1e-12


def test_quantised_copies() -> None:
    rng = np.random.default_rng(8)
    first = random_mlp(rng, (4, 16, 16, 3))
    half = Mlp(*([a.astype(np.float16) for a in arrays] for arrays in (first.weights, first.biases)))
    steps = [np.abs(w).max() / 127 for w in first.weights]
    whole = Mlp([np.round(w / s) * s for w, s in zip(first.weights, steps, strict=True)], first.biases)
    for copy, most in ((half, 0.02), (whole, 0.6)):
        found = distance(first, copy, (-np.ones(4), np.ones(4)), seconds=3.0)
        assert sampled(first, copy, -np.ones(4), np.ones(4)) <= found.upper < most


# Parts


def test_norms_are_rounded_outwards() -> None:
    gaps = np.random.default_rng(0).uniform(size=(200, 5)) * 10.0 ** np.arange(-200, 200, 2)[:, None]
    for norm in (1.0, 2.0, math.inf):
        above = norm_above(gaps, norm)
        for row, high in zip(gaps, above, strict=True):
            exact = norm_below([Fraction(float(gap)) for gap in row], norm)
            assert exact <= Fraction(float(high))
            assert float(high) <= float_below(exact) * (1 + 1e-13)


@pytest.mark.parametrize("seed", range(6))
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
