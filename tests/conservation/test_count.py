"""Counts against published values, a path-enumerating oracle, and proofs on random graphs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import Architecture, CertificateError, Dag, InvalidNetwork, LawfulError, Mlp, Unsupported
from lawful import training as flows
from lawful.conservation import GradientFlow, HeavyBall, Metric, count_laws, known_laws
from lawful.conservation.closure.error_probability import miss, random_prime
from lawful.conservation.closure.lie_closure import close
from lawful.conservation.fields.gradient import Gradients
from lawful.conservation.known.polynomial import is_law
from lawful.conservation.theorems import linear_laws

sys.path.insert(0, str(Path(__file__).parent))
from oracle import dimensions

PRIME = 8_388_593


@pytest.mark.parametrize(
    ("text", "laws", "first"),
    [
        ("1-1-1 linear", 1, 1),  # P1 Example 2.3
        ("3-2-3 linear", 3, 8),  # P1 Appendix H, corrected
        ("6-5-6-4-3-6 linear", 52, 27),
        ("7-3-6-2-5 linear", 29, None),
        ("4-6-3-6-2 linear", 47, None),
        ("2-3-2 relu", 3, 9),  # P1 Example 3.6
        ("4-5-4-3 relu bias", 9, None),
        ("10-10-10-10-10-10 relu bias", 40, 510),
        ("3-3-3 leaky_relu(0.1)", 3, 15),
        ("3-2 linear bias", 0, 8),
        ("5-4-3-2 relu skip(0,2) skip(0,1)", 7, None),
        ("2-200-2 linear", 794, 4),  # far more pairs than independent ones
    ],
)
def test_published_and_measured_counts(text: str, laws: int, first: int | None) -> None:
    count = count_laws(text)
    assert (count.laws, count.status) == (laws, "proved")
    assert count.parameters - count.dimensions[-1] == laws
    assert first is None or count.dimensions[0] == first


def test_the_closure_runs_until_it_stagnates_when_it_is_not_told_the_answer() -> None:
    dag = Architecture.parse("6-5-6-4-3-6 linear").to_dag()
    found = close(Gradients(dag, PRIME), dag.parameters)
    assert found.dimensions == (27, 61, 62, 62)
    assert found.stagnated


@pytest.mark.parametrize(
    "text",
    [
        "2-3-2 relu", "2-2-2 relu bias", "2-2-2-1 relu bias", "3-2-3 linear", "2-2-2 linear bias",
        "2-2-2-2 leaky_relu(0.3) bias skip(1,2)", "1-3-2-2 linear skip(0,1)",
    ],
)  # fmt: skip
def test_random_gates_span_what_enumerated_paths_span(text: str) -> None:
    dag = Architecture.parse(text).to_dag()
    found = close(Gradients(dag, PRIME), dag.parameters).dimensions
    assert (*found, found[-1])[:2] == dimensions(dag)


def test_random_graphs_agree_with_enumerated_paths(dag: Dag) -> None:
    if dag.parameters > 45:
        dag = Architecture.parse("2-3-2 relu").to_dag()
    found = close(Gradients(dag, PRIME), dag.parameters).dimensions
    assert (*found, found[-1])[:2] == dimensions(dag)


def test_every_network_is_proved_and_its_laws_are_laws(dag: Dag) -> None:
    count = count_laws(dag)
    assert count.proved
    assert count.laws == count.independent >= len(dag.hidden)
    assert all(is_law(law, dag) for law in count.known if law.exponent is None)


@settings(max_examples=trials(8, 25), deadline=None)
@given(st.lists(st.integers(1, 6), min_size=3, max_size=5), st.booleans(), st.sampled_from(["relu", "linear"]))
def test_layered_networks_have_the_laws_of_proposition_4_1_and_no_others(
    widths: list[int], bias: bool, activation: str
) -> None:
    text = "-".join(map(str, widths)) + f" {activation}" + " bias" * bias
    count = count_laws(text)
    if activation == "linear" and not bias:
        assert count.laws == linear_laws(tuple(widths))
        assert count.proved
        return
    assert count.proved
    if activation == "relu":
        assert count.laws == sum(widths[1:-1])


def test_strings_architectures_networks_and_modules_count_alike() -> None:
    import torch

    architecture = Architecture.parse("3-4-2 relu bias")
    network = architecture.initialise(seed=0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    counts = [count_laws(each) for each in ("3-4-2 relu bias", architecture, network, network.to_dag(), module)]
    assert {(count.laws, count.status, count.arithmetic) for count in counts} == {(4, "proved", "exact")}


def test_another_prime_or_seed_gives_the_same_count() -> None:
    for prime, seed in ((PRIME, 1), (8_388_587, 0), (1_000_003, 5)):
        assert count_laws("4-5-3-2 linear bias", prime=prime, seed=seed).laws == count_laws("4-5-3-2 linear bias").laws


def test_a_point_too_small_a_field_misses_is_not_called_proved() -> None:
    """Modulo a small prime the rank may drop: the result may be weaker, never wrong."""
    count = count_laws("3-4-3 linear", prime=1009)
    assert count.laws >= 10
    assert count.proved == (count.laws == 10)


# Cross-entropy


@pytest.mark.parametrize(
    ("text", "laws"), [("3-3-3 relu", 6), ("3-3-3 relu bias", 7), ("3-2-3 linear", 5), ("2-3-4-2 linear bias", 21)]
)
def test_cross_entropy_adds_the_sums_of_outgoing_weights(text: str, laws: int) -> None:
    """P1 Remark B.6: with w ⊥ 1 the weights from a node to all outputs keep their sum."""
    count = count_laws(text, loss="cross-entropy")
    assert (count.laws, count.status) == (laws, "proved")
    assert any(law.kind == "sum" for law in count.known)


def test_one_output_under_cross_entropy_never_trains() -> None:
    count = count_laws("3-3-1 relu", loss="cross-entropy")
    assert (count.laws, count.dimensions, count.status) == (12, (0,), "proved")


# Laws that are no polynomials


def bridge(extra: int = 1) -> Dag:
    """A direct edge x → y beside `extra` linear neurons from x to y."""
    tails, heads = [0], [extra + 1]
    for neuron in range(1, extra + 1):
        tails += [0, neuron]
        heads += [neuron, extra + 1]
    return Dag(["x", *(f"h{i}" for i in range(extra)), "y"], [0, *[1] * extra, 2], tails, heads, None, 1.0)


@pytest.mark.parametrize("extra", [1, 2, 3])
def test_a_linear_neuron_beside_a_direct_edge_has_an_exponential_law(extra: int) -> None:
    """s' = g, p' = qg, q' = pg: one direction only, so all but one of the 2k + 1 weights are bound."""
    count = count_laws(bridge(extra))
    assert (count.laws, count.status) == (2 * extra, "proved")
    theta = np.random.default_rng(0).normal(size=2 * extra + 1)
    field = np.concatenate([[1.0], *([theta[2 * i], theta[2 * i - 1]] for i in range(1, extra + 1))])
    assert np.abs(count.known.gradients(theta) @ field).max() < 1e-12
    step = 1e-6 * np.eye(len(theta))
    numeric = [(count.known.values(theta + e) - count.known.values(theta - e)) / 2e-6 for e in step]
    assert np.allclose(np.transpose(numeric), count.known.gradients(theta), atol=1e-8)


def test_balancedness_is_not_everything_where_layers_have_width_one() -> None:
    """One input, one output, all linear: every field is a multiple of one, so D − 1 functions are conserved."""
    count = count_laws("1-2-2-1 linear")
    assert (count.laws, count.independent, count.status) == (7, 6, "proved")
    assert count.dimensions == (1,)


# Other flows


@pytest.mark.parametrize(
    ("text", "laws"),
    [("2-2-2 linear", 1), ("3-3-2 linear", 3), ("2-2-2-2 linear", 2), ("2-3-2 relu", 0), ("3-2-3 linear bias", 1)],
)
def test_momentum_keeps_rotations_only(text: str, laws: int) -> None:
    with_time = count_laws(text, flow=HeavyBall(0.5))
    assert (with_time.laws, with_time.status) == (laws, "proved")
    assert count_laws(text, flow=HeavyBall(0.0, autonomous=True)).laws == laws
    assert count_laws(text, flow=HeavyBall(0.5, autonomous=True)).laws == max(laws - 1, 0)  # ratios only


def test_momentum_dimensions_in_phase_space() -> None:
    from lawful.conservation.fields.flows import Momentum

    family = Momentum(Gradients(Architecture.parse("3-3-2 linear").to_dag(), PRIME), HeavyBall())
    assert close(family, family.size).dimensions == (7, 13, 25, 28, 28)


def test_a_diagonal_metric_keeps_neurons_and_breaks_pairs() -> None:
    rng = np.random.default_rng(0)
    generic = count_laws("3-2-3 linear", flow=Metric(rng.uniform(1, 2, size=12)))
    assert (generic.laws, generic.status) == (2, "proved")
    layers = count_laws("3-2-3 linear", flow=Metric(np.repeat([3.0, 0.5], 6)))
    assert (layers.laws, layers.status) == (3, "proved")
    fraction = next(iter(layers.known)).terms
    assert {abs(float(value)) for value in fraction.values()} == {1 / 3, 2.0}


def test_a_block_metric_keeps_the_sums_it_does_not_see() -> None:
    """A block over weights of two neurons breaks both balances but not their sum."""
    block = np.array([[2.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 3.0]])
    count = count_laws("2-3-2 relu bias", flow=Metric(blocks=((np.arange(3), block),)))
    assert (count.laws, count.status) == (2, "proved")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Metric(np.array([1.0, -1.0])), "positive"),
        (lambda: Metric(blocks=((np.arange(2), np.array([[1.0, 2.0], [2.0, 1.0]])),)), "positive definite"),
        (lambda: Metric(blocks=((np.arange(2), np.eye(3)),)), "symmetric matrix of that size"),
        (lambda: count_laws("2-2-2 relu", flow=Metric(np.ones(3))), "3 entries for 8"),
        (lambda: count_laws("2-2-2 relu", flow=Metric(blocks=((np.array([0, 0]), np.eye(2)),))), "twice"),
        (lambda: HeavyBall(-1.0), "friction"),
    ],
)
def test_flows_that_are_none(make, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LawfulError, match=words):
        make()


# Known laws


def test_values_and_gradients_of_a_family_are_those_of_its_laws(dag: Dag) -> None:
    laws = known_laws(dag, loss="cross-entropy")
    theta = np.random.default_rng(3).normal(size=dag.parameters)
    assert np.allclose(laws.values(theta), [law.value(theta) for law in laws])
    assert np.allclose(laws.gradients(theta), [law.gradient(theta) for law in laws])
    point = np.arange(1, dag.parameters + 1)
    polynomial = [n for n, law in enumerate(laws) if law.exponent is None]
    exact = [laws.laws[n].gradient_modulo(point[:, None], PRIME)[:, 0] for n in polynomial]
    assert (laws.gradients_modulo(point, PRIME)[polynomial] == np.array(exact).reshape(-1, dag.parameters)).all()


def test_balancedness_as_matrices() -> None:
    """P1 Proposition 4.1, with the bias as one more incoming weight."""
    mlp = Architecture.parse("3-4-2 linear bias").initialise(seed=1)
    assert isinstance(mlp, Mlp)
    first, second = mlp.weights
    matrix = first @ first.T + np.outer(mlp.biases[0], mlp.biases[0]) - second.T @ second
    laws = known_laws(mlp.to_dag())
    found = dict(zip([law.nodes for law in laws], laws.values(mlp.theta), strict=True))
    start = 3
    for (a, *b), value in found.items():
        assert value == pytest.approx(matrix[a - start, (b[0] if b else a) - start])


# Misuse


def test_bad_input_is_named() -> None:
    with pytest.raises(InvalidNetwork, match="width 0"):
        count_laws("3-0-2 relu")
    with pytest.raises(LawfulError, match="unknown level"):
        count_laws("3-2", level="everywhere")
    with pytest.raises(LawfulError, match="unknown loss"):
        count_laws("3-2", loss="hinge")
    with pytest.raises(LawfulError, match="go together"):
        count_laws("3-2", level="data")
    with pytest.raises(Unsupported, match="no weights"):
        count_laws("3-2-2", level="near")
    with pytest.raises(LawfulError, match="cannot read a int as a network"):
        count_laws(3)  # type: ignore[arg-type]


def test_a_network_beyond_memory_is_refused_with_the_estimate() -> None:
    with pytest.raises(Unsupported, match=r"need about .* GB"):
        count_laws("3000-3000-10 relu", flow=HeavyBall())


@pytest.mark.parametrize("flow", ["momentum", 3, GradientFlow, HeavyBall(lambda time: 3 / (time + 1))])
def test_a_flow_that_cannot_be_counted_is_refused(flow: Any) -> None:
    with pytest.raises(LawfulError, match="accepted: GradientFlow"):
        count_laws("3-4-2 linear", flow=flow)


def test_the_heavy_ball_is_one_noun() -> None:
    """P1 Conclusion: with time as a state r(r−1)/2 laws, wherever the flow was imported from."""
    assert flows.HeavyBall is HeavyBall
    assert count_laws("3-4-2 linear", flow=flows.HeavyBall(0.5)).laws == 6


@pytest.mark.parametrize(
    ("text", "laws"),
    [("1-2-2-1 linear", 7), ("1-1-2-2-1 linear", 8), ("1-2-2-1-2 linear", 8), ("1-2-2-1-2-2-1 linear", 15),
     ("2-1-2-3-1-2 linear", 12), ("1-2-2-2-1 linear", 11)],
)  # fmt: skip
def test_parts_that_pass_one_number_on_are_proved(text: str, laws: int) -> None:
    """All fields are multiples of one in such a part: D − 1 laws there by the flow box theorem (P1 Corollary 3.5)."""
    from lawful import verify
    from lawful.conservation.certificate import certificate

    count = count_laws(text)
    assert (count.laws, count.status) == (laws, "proved")
    assert any("flow box" in line for line in count.summary())
    proof = certificate(count)
    assert verify(proof).facts["laws"] == laws
    ends = next(item for item in proof["known"] if item[0] == "part")
    for lie in (["part", ends[1], ends[1] + 1], ["part", ends[2], ends[1]]):
        with pytest.raises(CertificateError):
            verify(proof | {"known": [item for item in proof["known"] if item[0] != "part"] + [lie]})


def test_theorems_answer_at_any_size() -> None:
    found = count_laws("784-512-10 relu bias")
    assert (found.laws, found.status, found.theorem, found.claim) == (512, "proved", "P1 Example 3.6", "phi")
    linear = count_laws("784-300-10 linear")
    assert (linear.laws, linear.status) == (300 * 301 // 2, "proved")
    deep = count_laws("784-300-300-10 relu")
    assert (deep.laws, deep.status) == (600, "at least")
    with pytest.raises(Unsupported, match="GB"):
        count_laws("784-300-300-10 relu", loss="cross-entropy")


def test_no_probability_says_that_no_activation_pattern_was_missed() -> None:
    """Patterns that were found by sampling bound the laws from above; how likely others exist is not known."""
    network = Architecture.parse("5-2-6-2-3 relu").initialise(seed=0)
    count = count_laws(network, level="near")
    assert (count.status, count.error) == ("numerical", None)


def test_the_chance_of_an_unlucky_prime_and_point_is_small_and_grows_with_the_network() -> None:
    chances = [miss(Architecture.parse(text).to_dag(), 3, None, None) for text in ("1-2-1", "3-4-2", "9-9-9-9")]
    assert 0 < chances[0] < chances[1] < chances[2] < 0.02
    small = Architecture.parse("1-2-2-1 linear").to_dag()
    assert miss(small, 2, None, np.array([0.1])) > miss(small, 2, None, None)  # 0.1 has 55 binary digits


@pytest.mark.parametrize("number", range(3))
def test_random_primes(number: int) -> None:
    prime = random_prime(0, number)
    assert 2**22 < prime < 2**23
    assert all(prime % divisor for divisor in range(2, 2900))
