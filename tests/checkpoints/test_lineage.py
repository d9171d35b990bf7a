"""Lineage: null laws against enumeration, networks trained apart, relatives, files in another order."""

from __future__ import annotations

import json
from itertools import permutations, product
from math import factorial

import numpy as np
import pytest
import torch
from torch import nn

from lawful import Mlp, diff
from lawful.checkpoints.group.spaces import AxisRows, OrbitGroup, UnitSpace
from lawful.checkpoints.relations.block_matching import layer_group, layer_tensors, trace_layers
from lawful.checkpoints.relations.statistics import (
    compare_held_out,
    compare_places,
    deviation_tail,
    paired_places_tail,
    permutation_deviation,
    places_tail,
    remove_strongest,
)


def network(seed: int, *widths: int, scale: float = 1.0) -> Mlp:
    rng = np.random.default_rng(seed)
    sizes = list(zip(widths[1:], widths, strict=False))
    return Mlp([scale * rng.normal(size=size) for size in sizes], [rng.normal(size=size[0]) for size in sizes])


def near(given: Mlp, size: float = 0.02, seed: int = 9) -> Mlp:
    rng = np.random.default_rng(seed)
    return given.with_theta(given.theta + size * rng.normal(size=given.parameters) * np.abs(given.theta))


def permuted(given: Mlp, seed: int = 0, spread: float = 0.0) -> Mlp:
    rng = np.random.default_rng(seed)
    weights, biases = [np.array(w) for w in given.weights], [np.array(b) for b in given.biases]
    for layer in range(len(weights) - 1):
        order, scale = rng.permutation(len(weights[layer])), np.exp(spread * rng.normal(size=len(weights[layer])))
        weights[layer], biases[layer] = weights[layer][order] * scale[:, None], biases[layer][order] * scale
        weights[layer + 1] = weights[layer + 1][:, order] / scale
    return Mlp(weights, biases)


# Null laws


@pytest.mark.parametrize("sizes", [(5,), (3, 4), (2, 2, 3)])
def test_the_bound_on_places_holds_by_enumeration(sizes: tuple[int, ...]) -> None:
    """All products of permutations; the bound is the expected number of sets of fixed units, exact for k = n."""
    counts = [sum(int((np.array(order) == np.arange(len(order))).sum()) for order in orders)
              for orders in product(*(permutations(range(size)) for size in sizes))]  # fmt: skip
    for k in range(sum(sizes) + 1):
        assert np.mean(np.array(counts) >= k) <= places_tail(k, len(sizes)) + 1e-12
    if len(sizes) == 1:
        assert places_tail(sizes[0], 1) == pytest.approx(1 / factorial(sizes[0]))


def test_the_bound_for_units_in_pairs_holds_by_enumeration() -> None:
    """Pairs change places as wholes, and each may be turned around: 3 pairs, 48 orders."""
    counts = []
    for order in permutations(range(3)):
        for turned in product((0, 1), repeat=3):
            units = [2 * pair + (place ^ turn) for pair, turn in zip(order, turned, strict=True) for place in (0, 1)]
            counts.append(int((np.array(units) == np.arange(6)).sum()))
    for k in range(7):
        assert np.mean(np.array(counts) >= k) <= paired_places_tail(k, 1) + 1e-12


def test_deviations_are_those_of_all_orders() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 5, 3))
    sums = [np.trace(one @ two[list(order)].T) for order in permutations(range(5))]
    expected = (sums[0] - np.mean(sums)) / np.std(sums)
    assert permutation_deviation(one, two) == pytest.approx(expected)
    assert permutation_deviation(one, np.zeros((5, 3))) is None
    assert permutation_deviation(one, np.ones((5, 3))) is None
    assert permutation_deviation(one[:1], two[:1]) is None
    assert deviation_tail(100.0, 4) == pytest.approx(1 / 24)
    assert remove_strongest(np.zeros((4, 4)), np.eye(4)) is None


# Places


def test_places_of_strangers_are_random_even_with_dead_and_duplicate_units() -> None:
    """The number of units in place has mean 1 in each space, whatever ties the search has to break."""
    seen = []
    for seed in range(20):
        one, two = network(seed, 4, 12, 3), network(100 + seed, 4, 12, 3)
        dead = [Mlp([np.vstack([w.weights[0][:4], w.weights[0][:4], np.zeros((4, 4))]), w.weights[1]], w.biases)
                for w in (one, two)]  # fmt: skip
        seen.append(compare_places(layer_group(one), *map(layer_tensors, dead), seed=seed).in_place)
    assert 0.2 < np.mean(seen) < 2.2
    assert max(seen) < 8


def test_files_with_sorted_units_and_shared_tables_are_left_out() -> None:
    def ordered(given: Mlp) -> Mlp:
        order = np.argsort(np.linalg.norm(given.weights[0], axis=1))
        return Mlp([given.weights[0][order], given.weights[1][:, order]], [given.biases[0][order], given.biases[1]])

    one, two = (ordered(network(seed, 4, 24, 3)) for seed in (0, 1))
    found = trace_layers(one, two)
    assert found.places.left_out == ("hidden layer 1",)
    assert (found.found, found.p_value, found.effect) == ("undecided", None, None)
    assert trace_layers(one, network(3, 4, 24, 3)).places.units == 24  # one file at random is enough
    frozen = Mlp([one.weights[0], two.weights[1]], [two.biases[0], two.biases[1]])
    assert trace_layers(one, frozen).found == "shared"


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_relatives_of_any_size_are_found(scale: float) -> None:
    one = network(0, 5, 16, 16, 2, scale=scale)
    found = trace_layers(one, near(one))
    assert (found.found, found.relation) == ("related", "child")
    assert found.p_value < 1e-20
    assert trace_layers(one, network(1, 5, 16, 16, 2, scale=scale)).relation == "stranger"


def test_a_relative_in_other_coordinates_is_alike_and_undecided() -> None:
    one = network(0, 5, 16, 16, 2)
    found = trace_layers(one, permuted(near(one), spread=1.0))
    assert (found.found, found.relation, found.is_alike) == ("alike", "undecided", True)
    assert found.p_value > 1e-3


def test_students_of_one_teacher_are_alike_and_not_called_related() -> None:
    """Training from different starts ends at the same weights: noise of a percent around permuted copies."""
    teacher = network(0, 8, 24, 24, 3)
    one, two = (near(permuted(teacher, seed, 0.5), 0.01, seed) for seed in (1, 2))
    found = trace_layers(one, two)
    assert (found.found, found.relation) == ("alike", "undecided")
    assert found.deviation > 8


def test_an_aligned_stranger_stands_in_place_and_is_not_called_related() -> None:
    """Putting B into the order of A is a step of merging; that says nothing about starts."""
    one, two = network(0, 4, 16, 2), network(1, 4, 16, 2)
    moves = compare_places(layer_group(one), *map(layer_tensors, (one, two))).moves
    order = moves[0].order
    aligned = Mlp([two.weights[0][order], two.weights[1][:, order]], [two.biases[0][order], two.biases[1]])
    found = trace_layers(one, aligned)
    assert found.effect > 0.5
    assert found.relation in ("undecided", "stranger")
    assert found.found in ("places", "undecided")


@pytest.mark.parametrize("widths", [(3, 2), (3, 1, 2), (3, 2, 1, 2), (1, 6, 1)])
def test_too_few_units_are_undecided(widths: tuple[int, ...]) -> None:
    one = network(0, *widths)
    for other in (near(one), network(1, *widths)):
        assert trace_layers(one, other).relation == "undecided"


def test_zero_and_tied_weights_do_not_fail() -> None:
    zero, one = (Mlp([w, v], [np.zeros(20), np.zeros(2)]) for w, v in
                 ((np.zeros((20, 4)), np.zeros((2, 20))), (np.ones((20, 4)), np.ones((2, 20)))))  # fmt: skip
    for first, second in ((zero, one), (one, zero), (one, one), (zero, network(0, 4, 20, 2))):
        found = trace_layers(first, second)
        assert not found.is_related
        assert np.isfinite(found.places.p_value)


def test_held_out_tensors_are_not_part_of_their_own_alignment() -> None:
    """With all evidence gone but noise, what was left out agrees by chance alone: nothing of it was fitted."""
    size = 24
    places = np.arange(size)[:, None]
    space = [UnitSpace(name, size, (AxisRows(f"{name} in", (0,), places, ()),
                                    AxisRows("inner", (number,), places, ())), 0, True, False)
             for number, name in enumerate(("a", "b"))]  # fmt: skip
    group = OrbitGroup(tuple(space), (), {"a in": (size, 5), "b in": (size, 5), "inner": (size, size)}, 0)
    deviations = []
    for seed in range(12):
        rng = torch.Generator().manual_seed(seed)
        one, two = ({name: torch.randn(shape, generator=rng, dtype=torch.float64)
                     for name, shape in group.shapes.items()} for _ in range(2))  # fmt: skip
        (found,) = compare_held_out(group, one, two)
        assert found.tensor == "inner"
        deviations.append(found.deviation)
    assert abs(np.mean(deviations)) < 1
    assert max(np.abs(deviations)) < 4


# diff


def test_state_dicts_of_perceptrons_on_the_command_line(tmp_path, lawful) -> None:  # type: ignore[no-untyped-def]
    def module(seed: int) -> nn.Sequential:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))

    first, other = module(0), module(1)
    tuned = {
        name: tensor + 0.01 * tensor.std() * torch.randn_like(tensor) for name, tensor in first.state_dict().items()
    }
    order = torch.randperm(20)
    moved = {"0.weight": 2 * tuned["0.weight"][order], "0.bias": 2 * tuned["0.bias"][order],
             "2.weight": tuned["2.weight"][:, order] / 2, "2.bias": tuned["2.bias"]}  # fmt: skip
    states = {"a": first.state_dict(), "tuned": tuned, "moved": moved, "other": other.state_dict()}
    for name, state in states.items():
        torch.save(state, tmp_path / f"{name}.pt")

    def compared(name: str) -> dict:  # type: ignore[type-arg]
        options = ("--activation", "relu", "--seconds", 2, "--json")
        return lawful("diff", tmp_path / "a.pt", tmp_path / f"{name}.pt", *options).json  # type: ignore[no-any-return]

    found = {name: compared(name) for name in states}
    assert [found[name]["relation"] for name in states] == ["copy", "child", "undecided", "stranger"]
    assert [found[name]["alike"] for name in states] == [None, True, True, False]
    assert found["tuned"]["p_value"] < 1e-15
    assert found["tuned"]["effect"] == 1.0
    assert found["other"]["relation_word"] == "no relation found"
    assert found["other"]["lineage"]["places"]["units"] == 20
    json.dumps(found)
    text = lawful("diff", tmp_path / "a.pt", tmp_path / "other.pt", "--activation", "relu", "--seconds", 2).stdout
    assert "no relation found" in text
    assert max(map(len, text.splitlines())) <= 80
    page = tmp_path / "page.html"
    lawful("diff", tmp_path / "a.pt", tmp_path / "tuned.pt", "--activation", "relu", "--seconds", 2, "--html", page)
    assert "Fine-tuned: " in page.read_text()


def test_a_graph_without_layers_is_not_tested() -> None:
    one = network(0, 3, 8, 2)
    found = diff(one.to_dag(), near(one).to_dag())
    assert (found.relation, found.lineage) == ("undecided", None)
    assert "without layers" in found.reason
