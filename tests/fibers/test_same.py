"""Equal, different or undecided, with the traps that caught other solvers."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import Architecture, LawfulError, Mlp
from lawful.fibers import Different, Equal, Stack, Undecided
from lawful.fibers.counterexample import Pair
from lawful.fibers.random_members import deepen, disguise, hiding_network, random_network
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import Reorder, Rescale
from lawful.fibers.same import same
from lawful.fibers.verdict import Verdict


def changed(network: Mlp, layer: int, row: int, column: int, by: float) -> Mlp:
    weights = [weight.copy() for weight in network.weights]
    weights[layer][row, column] += by
    return Mlp(weights, network.biases, network.slopes)


def with_bias(network: Mlp, layer: int, row: int, by: float) -> Mlp:
    biases = [np.array(bias) for bias in network.biases]
    biases[layer][row] += by
    return Mlp(network.weights, biases, network.slopes)


def powers_of_two(network: Mlp, seed: int) -> Mlp:
    """A disguise without any rounding."""
    rng = np.random.default_rng(seed)
    stack = Stack.of(network)
    for layer in range(1, stack.hidden + 1):
        width = stack.widths[layer]
        stack = Reorder(layer, tuple(rng.permutation(width).tolist())).apply(stack)
        stack = Rescale(layer, tuple((2.0 ** rng.integers(-3, 4, size=width)).tolist())).apply(stack)
    return stack.to_mlp()


SHAPES = [(3, 2), (4, 6, 3), (4, 3, 3, 2), (5, 5, 8, 1), (3, 7, 6, 2), (4, 6, 5, 7, 3), (2, 3, 3, 3, 3, 1)]


@settings(max_examples=trials(10, 30), deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 10_000))
def test_disguised_copies_are_equal(widths: tuple[int, ...], seed: int) -> None:
    network = random_network(*widths, seed=seed)
    assert same(network, disguise(network, seed=seed)).verdict == "equal"
    assert same(network, powers_of_two(network, seed), exact=True).verdict == "equal"


@settings(max_examples=trials(10, 30), deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 10_000), st.sampled_from([1e-1, 1e-4, 1e-7]))
def test_a_changed_weight_is_different(widths: tuple[int, ...], seed: int, by: float) -> None:
    network = random_network(*widths, seed=seed)
    other = changed(disguise(network, seed=seed), len(widths) - 2, 0, 0, by)
    verdict = same(network, other, seconds=10)
    if isinstance(verdict, Different):
        assert verdict.counterexample is not None
        assert verdict.counterexample.gap > 0
    else:  # the changed weight may belong to a neuron that never acts
        assert oracle(network, other)


@settings(max_examples=trials(8, 20), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(4, 4, 3, 2), (5, 4, 1, 2), (4, 4, 1, 1), (6, 3, 2, 1)]))
def test_hidden_hyperplanes_are_followed(seed: int, widths: tuple[int, ...]) -> None:
    """P4 E.3, cases 2 and 3: translation and flips."""
    network = hiding_network(*widths, neuron=1, seed=seed)
    moved = disguise(network, seed=seed)
    verdict = same(network, moved)
    assert isinstance(verdict, Equal)
    names = {type(step).__name__ for step in verdict.witness.second}
    assert "Translate" in names
    assert same(network, with_bias(network, 0, 1, 0.3)).verdict == "different"


@settings(max_examples=trials(8, 20), deadline=None)
@given(st.integers(0, 10_000))
def test_linear_neurons_of_the_second_layer(seed: int) -> None:
    """P4 E.3, case 1: the induced networks on the orthant agree, though no permutation matches them."""
    rng = np.random.default_rng(seed)
    network = random_network(5, 4, 6, 3, seed=seed)
    second, bias = network.weights[1].copy(), np.array(network.biases[1])
    second[:2], bias[:2] = np.abs(second[:2]), np.abs(bias[:2])
    mix = rng.uniform(0.1, 1.0, size=(2, 2)) + np.eye(2)
    other, other_bias, out = second.copy(), bias.copy(), network.weights[2].copy()
    other[:2], other_bias[:2], out[:, :2] = mix @ second[:2], mix @ bias[:2], out[:, :2] @ np.linalg.inv(mix)
    first = Mlp([network.weights[0], second, network.weights[2]], [network.biases[0], bias, network.biases[2]])
    twin = Mlp([network.weights[0], other, out], [network.biases[0], other_bias, network.biases[2]])
    verdict = same(first, disguise(twin, seed=seed))
    assert isinstance(verdict, Equal)
    assert verdict.method == "normal form on the orthant"


def test_a_rounded_counterexample_is_not_believed() -> None:
    """A solver may propose an input where the outputs only differ by rounding: replayed, it proves nothing."""
    network = random_network(4, 4, 3, 1, seed=1)
    twin = disguise(network, seed=2)
    pair = Pair(Stack.of(network), Stack.of(twin), Domain.space(4), 1e-10)
    rng = np.random.default_rng(0)
    assert all(pair.replay(point) is None for point in rng.normal(size=(20, 4)))
    gaps = [
        abs(a - b)
        for point in rng.normal(size=(20, 4))
        for a, b in zip(pair.first.exact_outputs(point), pair.second.exact_outputs(point), strict=True)
    ]
    assert 0 < max(gaps) < Fraction(1, 10**12)  # there is a difference, of rounding size


def far_twin(network: Mlp, distance: float, seed: int = 0) -> Mlp:
    """One more first-layer neuron that is silent where all |x_k| < distance."""
    rng = np.random.default_rng(seed)
    row = rng.normal(size=network.widths[0])
    row /= np.abs(row).sum()
    first = np.concatenate([network.weights[0], row[None]])
    second = np.column_stack([network.weights[1], rng.normal(size=network.widths[2])])
    bias = np.append(np.array(network.biases[0]), -distance)
    return Mlp([first, second, *network.weights[2:]], [bias, *network.biases[1:]])


def test_networks_that_agree_on_a_box_and_differ_far_away() -> None:
    network = random_network(8, 8, 6, 1, seed=3)
    twin = far_twin(network, 30.0)
    assert same(network, twin, box=(-1.0, 1.0)).verdict == "equal"
    verdict = same(network, twin)
    assert isinstance(verdict, Different)
    assert verdict.counterexample is not None
    assert np.abs(verdict.counterexample.point).max() > 1.0


@pytest.mark.parametrize("depth", [2.5, 3.5])
def test_a_network_active_on_a_tiny_part_of_a_box(depth: float) -> None:
    """Uniform sampling of the box sees nothing; the weights say where to look."""
    network = hiding_network(8, 8, 3, 1, neuron=2, depth=depth, seed=1)
    points = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 8))
    active = (network.activations(points)[2] > 0).any(axis=1).mean()
    assert active < 0.0006
    moved = with_bias(network, 0, 2, 0.05)
    for box in (None, (-1.0, 1.0)):
        assert same(network, moved, box=box).verdict == "different"


def test_single_precision_is_excused_and_reported() -> None:
    network = random_network(6, 5, 4, 2, seed=0)
    single = network.with_theta(network.theta.astype(np.float32))
    twin = disguise(single, seed=1)
    verdict = same(single, twin.with_theta(twin.theta.astype(np.float32)))
    assert isinstance(verdict, Equal)
    assert verdict.tolerance == 1e-6
    assert 1e-9 < verdict.witness.residual < 1e-6
    assert same(network, single).verdict == "different"
    assert same(network, single, tolerance=1e-6).verdict == "equal"


def test_small_changes_of_all_weights_are_seen_through_large_sums() -> None:
    """The terms that a deep network sums are far larger than its outputs, and excuse nothing by themselves."""
    network = random_network(12, 20, 20, 12, 3, seed=1)
    rng = np.random.default_rng(0)
    twin = disguise(network, seed=2)
    verdict = same(network, twin.with_theta(twin.theta * (1 + 1e-8 * rng.normal(size=twin.parameters))), seconds=5)
    assert isinstance(verdict, Different)


def test_exact_mode_sees_the_last_bit() -> None:
    network = random_network(4, 3, 3, 2, seed=0)
    theta = network.theta.copy()
    theta[-1] = np.nextafter(theta[-1], 10.0)
    verdict = same(network, network.with_theta(theta), exact=True)
    assert isinstance(verdict, Different)
    assert verdict.counterexample is not None
    assert 0 < verdict.counterexample.gap < Fraction(1, 10**14)
    assert same(network, network.with_theta(theta)).verdict == "equal"


def test_shapes_that_cannot_agree() -> None:
    for other in (random_network(3, 3, 2), random_network(4, 3, 1)):
        verdict = same(random_network(4, 3, 2), other)
        assert isinstance(verdict, Different)
        assert verdict.counterexample is None
        assert "against" in verdict.reason


def test_different_depths_are_compared_by_regions() -> None:
    """`a = relu(a − 1) − relu(1 − a) + 1`: one more layer that changes nothing, but no permutation shows it."""
    network, deep = deepen(random_network(2, 3, 2, 1, seed=4))
    verdict = same(network, deep)
    assert isinstance(verdict, Equal)
    assert (verdict.method, verdict.within.kind) == ("region search in exact arithmetic", "exactly")
    assert same(network, changed(deep, 1, 0, 1, 0.01)).verdict == "different"


def test_linear_layers_above_a_relu_collapse() -> None:
    network = random_network(2, 3, 2, 1, seed=4)
    first, second, third = network.weights
    deep = Mlp([first, np.eye(3), second, third], [network.biases[0], None, *network.biases[1:]])
    verdict = same(network, deep)
    assert isinstance(verdict, Equal)
    assert verdict.within.kind == "exactly"
    assert verdict.witness.regions is None


def test_exact_proofs_by_regions() -> None:
    """No symmetry relates the two: only their regions, judged in rational arithmetic."""
    network, deep = deepen(random_network(3, 3, 2, 1, seed=4))
    for box in (None, (-1.0, 1.0)):
        verdict = same(network, deep, exact=True, box=box)
        assert isinstance(verdict, Equal)
        assert verdict.method == "region search in exact arithmetic"
        assert verdict.witness.decisions
    assert same(network, changed(deep, 1, 0, 1, 1e-12), exact=True).verdict == "different"


def test_undecided_says_what_was_tried() -> None:
    network, deep = deepen(random_network(6, 9, 8, 1, seed=4))
    verdict = same(network, deep, seconds=0.5)
    assert isinstance(verdict, Undecided)
    assert "different depths" in verdict.reason
    assert "time limit" in verdict.reason


def test_graphs_with_skips() -> None:
    dag = Architecture.parse("3-4-4-2 relu bias skip(1,2)").initialise(seed=0).to_dag()
    twin = dag.rescaled(np.exp(np.random.default_rng(0).normal(size=len(dag.hidden))))
    assert same(dag, twin).verdict == "equal"
    assert same(dag, twin.with_theta(twin.theta * 1.01)).verdict == "different"


def test_leaky_and_linear_layers() -> None:
    network = Mlp([np.eye(3) + 0.1, np.ones((2, 3)), np.ones((1, 2))], [None, [0.3, -0.2], None], [1.0, 0.25])
    assert same(network, disguise(network)).verdict == "equal"
    product = Mlp([np.ones((2, 3)) @ (np.eye(3) + 0.1), np.ones((1, 2))], [[0.3, -0.2], None], 0.25)
    assert same(network, product).verdict == "equal"


def test_dead_networks_are_constant() -> None:
    dead = Mlp([np.ones((2, 2)), -np.ones((2, 2)), np.ones((1, 2))], [None, [-1.0, -1.0], [3.0]])
    other = Mlp([np.ones((2, 2)), np.zeros((1, 2))], [None, [3.0]])
    assert same(dead, other).verdict == "equal"


@pytest.mark.filterwarnings("error")
def test_numbers_that_overflow_are_never_agreement() -> None:
    network = random_network(2, 3, 2, 1)
    large = network.with_theta(network.theta * 1e150)
    verdict = same(large, network)
    assert isinstance(verdict, Different)
    assert verdict.counterexample is not None
    assert verdict.counterexample.gap > 10**300
    assert same(large, disguise(large), seconds=1).verdict != "different"
    small = network.with_theta(network.theta * 1e-200)
    assert same(small, disguise(small)).verdict == "equal"


def test_bad_questions() -> None:
    network = random_network(2, 2, 1)
    for arguments in (
        {"tolerance": -1.0},
        {"tolerance": float("nan")},
        {"exact": True, "tolerance": 1e-6},
        {"box": (1, 0)},
    ):
        with pytest.raises(LawfulError):
            same(network, network, **arguments)  # type: ignore[arg-type]


def oracle(first: Mlp, second: Mlp) -> bool:
    """Equality by brute force: thousands of points and all midpoints, near and far."""
    rng = np.random.default_rng(7)
    points = np.concatenate([scale * rng.normal(size=(4000, first.widths[0])) for scale in (0.3, 1.0, 5.0, 50.0)])
    return bool(np.allclose(first.evaluate(points), second.evaluate(points), rtol=1e-7, atol=1e-7))


@settings(max_examples=trials(13, 40), deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_small_integer_networks_agree_with_brute_force(seed: int, twin: bool) -> None:
    """Nothing here is generic: weights are -1, 0, 1."""
    rng = np.random.default_rng(seed)
    widths = tuple(int(w) for w in rng.integers(1, 4, size=4))
    draws = [[rng.integers(-1, 2, size=(n, m)) for m, n in pairwise(widths)] for _ in range(2)]
    first = Mlp(draws[0], [rng.integers(-1, 2, size=n) for n in widths[1:]])
    second = powers_of_two(first, seed) if twin else Mlp(draws[1], first.biases)
    verdict: Verdict = same(first, second, seconds=5)
    if not isinstance(verdict, Undecided):
        assert (verdict.verdict == "equal") == oracle(first, second)
    if twin:
        assert verdict.verdict == "equal"


def test_layers_of_other_widths_above_are_compared() -> None:
    """The first layers have as many neurons, but no order and scale makes them agree; the next ones do not."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        first = Mlp([rng.normal(size=(2, 1)), rng.normal(size=(2, 2)), rng.normal(size=(1, 2))])
        second = Mlp([rng.normal(size=(2, 1)), rng.normal(size=(3, 2)), rng.normal(size=(1, 3))])
        assert same(first, second, seconds=2.0).verdict == "different"


def test_a_translation_that_only_rounding_allows_is_no_evidence() -> None:
    """A hidden hyperplane at the end of its way: in floats the step back fits, in rationals it uncovers the neuron."""
    first = Mlp([[[2.0]], [[1.0], [1.0]], [[-1.0, 1.0]]], [[1.0], [-1.0, 0.0], [0.0]])
    weights = [
        [[4.548353612436141]],
        [[0.6119032682864818], [0.11945979889791508]],
        [[-0.7186095776503775, 3.680899794264669]],
    ]
    second = Mlp(weights, [[4.714434530393256], [-2.8847778972702782, -0.29151269698905163], [0.0]])
    assert same(first, second, seconds=5.0).verdict == "undecided"
    assert same(first, second, exact=True, seconds=5.0).verdict == "different"
