"""Regions, facets, jumps and ridges against counting formulas, sampling and autodiff."""

from __future__ import annotations

import json
import time
from math import comb

import numpy as np
import pytest
import torch

import lawful
from lawful import Mlp
from lawful.fibers import Domain, Stack, cells
from lawful.fibers.deep.genericity import genericity
from lawful.fibers.random_members import hiding_network, random_network
from lawful.fibers.regions.cells import OutOfTime
from lawful.fibers.regions.comparison_proof import certificate
from lawful.fibers.regions.count import count_regions, polygon, polyhedral_complex, ridges
from lawful.formats.graphs.json_graph import decode


@pytest.mark.parametrize(("inputs", "neurons"), [(1, 5), (2, 6), (3, 5), (4, 3)])
def test_a_generic_arrangement_has_as_many_regions_as_zaslavsky_counts(inputs: int, neurons: int) -> None:
    network = random_network(inputs, neurons, 1, seed=inputs)
    expected = sum(comb(neurons, k) for k in range(inputs + 1))
    assert len(list(cells(Stack.of(network)))) == expected


@pytest.mark.parametrize("inputs", [1, 3, 7])
def test_what_does_not_bend_cuts_nothing(inputs: int) -> None:
    """Linear neurons, and values that skip a layer, have no sides: a line has one region, `x + relu(x - 1)` two."""
    rng = np.random.default_rng(inputs)
    line = Mlp([rng.normal(size=(3, inputs)), rng.normal(size=(1, 3))], slopes=[1.0])
    bent = Mlp([np.ones((1, inputs)), [[1.0], [-2.0]], [[1.0, 1.0]]], [[-1.0], None, None], [1.0, 0.0])
    assert [count_regions(network, None).regions for network in (line, bent)] == [1, 2]
    for network in (line, bent):
        assert lawful.verify(certificate(network, None, count_regions(network, None).regions)).facts["regions"] <= 2
    names = [f"x{place}" for place in range(inputs)]
    edges = [*([name, "h", 1.0] for name in names), *([name, "g", 2.0] for name in names), ["h", "g", 1.0],
             *([name, "y", -1.0] for name in names), ["h", "y", 1.0], ["g", "y", 3.0], ["h", "l", 1.0],
             ["l", "y", 1.0]]  # fmt: skip
    graph = {"inputs": names, "outputs": ["y"], "edges": edges, "biases": {"h": -1.0, "g": -4.0},
             "activation": {"h": "relu", "g": "leaky_relu(0.5)", "l": "linear"}}  # fmt: skip
    found = count_regions(decode(json.dumps(graph).encode()), (-1.0, 3.0), each=True, facets=True)
    assert (found.regions, len(found.each or ()), found.facets and found.facets.facets) == (3, 3, 2)


@pytest.mark.parametrize("widths", [(2, 4, 3, 1), (3, 3, 4, 2), (2, 3, 3, 2, 1)])
def test_sampling_finds_no_region_that_is_missing(widths: tuple[int, ...]) -> None:
    network = random_network(*widths, seed=3)
    found = {cell.key: cell for cell in cells(Stack.of(network))}
    rng = np.random.default_rng(0)
    points = np.concatenate([scale * rng.normal(size=(4000, widths[0])) for scale in (0.3, 1.0, 5.0, 100.0)])
    layers = [layer > 0 for layer in network.activations(points)[1:-1]]
    keys = {np.concatenate(bits).tobytes() for bits in zip(*layers, strict=True)}
    assert keys <= set(found)
    for cell in found.values():
        inside = network.activations(cell.point[None])
        assert all(
            (layer[0] > 0).tolist() == bits.tolist() for layer, bits in zip(inside[1:-1], cell.pattern, strict=True)
        )
        assert np.allclose(cell.matrix @ cell.point + cell.offset, inside[-1][0])


def test_the_affine_map_is_the_gradient() -> None:
    network = random_network(3, 4, 4, 2, seed=5)
    for cell in list(cells(Stack.of(network)))[::7]:
        jacobian = torch.autograd.functional.jacobian(
            lambda x: network.evaluate(x[None])[0], torch.tensor(cell.point, dtype=torch.float64)
        )
        assert np.allclose(jacobian.numpy(), cell.matrix)


def test_every_pattern_of_a_bottleneck_occurs() -> None:
    """P4 Lemma 32."""
    network = random_network(5, 4, 1, seed=0)
    assert len({cell.key for cell in cells(Stack.of(network))}) == 2**4


def test_a_box_cuts_regions_and_a_deadline_stops() -> None:
    stack = Stack.of(random_network(4, 5, 4, 1, seed=1))
    inside = list(cells(stack, Domain.box(4, -0.5, 0.5)))
    assert len(inside) < len(list(cells(stack)))
    assert all(np.abs(cell.point).max() <= 0.5 for cell in inside)
    with pytest.raises(OutOfTime):
        list(cells(stack, deadline=time.perf_counter() - 1.0))


@pytest.mark.parametrize("widths", [(2, 4, 3, 2), (3, 3, 3, 1), (2, 3, 3, 2, 1)])
def test_jumps_are_differences_of_gradients_and_balance(widths: tuple[int, ...]) -> None:
    """P4 Proposition 17 and Lemma 7."""
    complex = polyhedral_complex(random_network(*widths, seed=7))
    assert complex.facets
    for facet in complex.facets:
        off, on = (complex.regions[place].matrix for place in facet.regions)
        assert np.allclose(on - off, np.outer(facet.weight, facet.normal), atol=1e-10)
    crossings = ridges(complex)
    assert crossings
    assert max(ridge.imbalance for ridge in crossings) < 1e-9


def test_a_wrong_jump_is_out_of_balance() -> None:
    from dataclasses import replace

    complex = polyhedral_complex(random_network(2, 4, 3, 2, seed=7))
    seen = {place for ridge in ridges(complex) if ridge.imbalance == ridge.imbalance for place in ridge.facets}
    target = next(place for place in seen if np.abs(complex.facets[place].weight).max() > 1e-6)
    facets = list(complex.facets)
    facets[target] = replace(facets[target], weight=2 * facets[target].weight)
    assert max(ridge.imbalance for ridge in ridges(replace(complex, facets=tuple(facets)))) > 1e-3


def test_a_hidden_hyperplane_is_visible_nowhere() -> None:
    """P4 Section 3 and Definition 3: no facet of the hidden hyperplane shows, some facet of every other one does."""
    network = hiding_network(3, 3, 2, 1, neuron=1, seed=2)
    complex = polyhedral_complex(network)
    shown = {facet.neuron for facet in complex.visible()}
    assert {(0, 0), (0, 2), (1, 0), (1, 1)} <= shown
    assert (0, 1) not in shown
    assert complex.bent_hyperplane((0, 1))


def test_polygons_fill_the_square() -> None:
    network = random_network(2, 5, 4, 1, seed=1)
    domain = Domain.box(2, -2.0, 2.0)
    area = 0.0
    for cell in cells(Stack.of(network), domain):
        x, y = polygon(cell, domain).T
        area += 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))
    assert np.isclose(area, 16.0)


def test_genericity_names_the_reason() -> None:
    assert genericity(Stack.of(random_network(2, 2, 2, 1, seed=0))).holds is True
    parallel = Mlp([[[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0]]], [[0.0, 1.0], None])
    assert "rank" in genericity(Stack.of(parallel)).reason


def scaled_inputs(network: Mlp, *factors: float) -> Mlp:
    """The same network of inputs in other units."""
    return Mlp([network.weights[0] / np.array(factors), *network.weights[1:]], network.biases, network.slopes)


@pytest.mark.parametrize("factors", [(1e-6, 1e-6), (1e-7, 1e-7), (1e-9, 1e-9), (1e9, 1e-9), (2.0**60, 2.0**-60)])
def test_the_units_of_inputs_do_not_change_the_regions(factors: tuple[float, float]) -> None:
    """Counted over all of space and over a box in the same units; facets and ridges too."""
    network = random_network(2, 8, 3, 1, seed=0)
    moved = scaled_inputs(network, *factors)
    ends = np.array(factors)
    for domain, other in ((None, None), (Domain.box(2, -1.0, 1.0), Domain.box(2, -ends, ends))):
        ours, theirs = (list(cells(Stack.of(net), box)) for net, box in ((network, domain), (moved, other)))
        assert {cell.key for cell in ours} == {cell.key for cell in theirs}
        one, two = polyhedral_complex(network, domain), polyhedral_complex(moved, other)
        assert len(one.facets) == len(two.facets)
        assert len(one.visible()) == len(two.visible())
        assert len(ridges(one)) == len(ridges(two)) > 0
        assert max(ridge.imbalance for ridge in ridges(two)) < 1e-9


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
@pytest.mark.parametrize(("inputs", "neurons"), [(2, 12), (3, 8), (4, 7), (7, 6)])
def test_arrangements_of_any_scale_have_as_many_regions_as_zaslavsky_counts(
    inputs: int, neurons: int, scale: float
) -> None:
    network = random_network(inputs, neurons, 1, seed=inputs)
    biases = [np.array(network.biases[0]) * scale, network.biases[1]]
    expected = sum(comb(neurons, k) for k in range(inputs + 1))
    assert len(list(cells(Stack.of(Mlp(network.weights, biases))))) == expected


def test_regions_thinner_than_floats_are_counted() -> None:
    """Three lines that almost meet: the triangle between them has sides of 1e-15 and less."""
    for shift, expected in ((0.0, 6), (2.0**-50, 7), (2.0**-300, 7)):
        lines = Mlp([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]], [[0.0, 0.0, shift], None])
        assert len(list(cells(Stack.of(lines)))) == expected
        assert len(list(cells(Stack.of(lines), Domain.box(2, -1.0, 1.0)))) == expected
        high = Mlp([np.column_stack([lines.weights[0], np.zeros((3, 5))]), lines.weights[1]], lines.biases)
        assert len(list(cells(Stack.of(high)))) == expected  # seven inputs: by linear programs


@pytest.mark.parametrize("widths", [(2, 6, 5, 1), (3, 4, 4, 2), (4, 5, 3, 1), (2, 3, 3, 3, 1)])
def test_corners_and_programs_find_the_same_regions(widths: tuple[int, ...]) -> None:
    """Two ways to walk that share no decision."""
    from lawful.fibers.regions.pattern_tree import walk

    for seed in range(3):
        stack = Stack.of(random_network(*widths, seed=seed))
        domain = Domain.box(widths[0], -1.5, 1.0)
        by_corners, by_programs = list(cells(stack, domain)), list(walk(stack, domain, None))
        assert {cell.key for cell in by_corners} == {cell.key for cell in by_programs}
        assert len(by_corners) == len({cell.key for cell in by_corners})
        others = {cell.key: cell for cell in by_programs}
        for cell in by_corners:
            assert np.allclose(cell.matrix, others[cell.key].matrix)
            assert (cell.rows[:, :-1] @ cell.point + cell.rows[:, -1] > 0).all()
            assert cell.corners is not None
            assert (cell.rows[:, :-1] @ cell.corners.T + cell.rows[:, -1:] > -1e-9).all()


def test_a_network_through_the_origin_is_decided_exactly() -> None:
    """Without biases all hyperplanes of all layers meet in one point, and floats can tell nothing there."""
    network = Mlp(list(random_network(3, 5, 4, 1, seed=2).weights))
    everywhere = {cell.key for cell in cells(Stack.of(network))}
    inside = {cell.key for cell in cells(Stack.of(network), Domain.box(3, -1.0, 1.0))}
    assert everywhere == inside
    points = np.random.default_rng(0).normal(size=(20_000, 3))
    layers = [layer > 0 for layer in network.activations(points)[1:-1]]
    assert {np.concatenate(bits).tobytes() for bits in zip(*layers, strict=True)} <= everywhere
