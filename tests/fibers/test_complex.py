"""Regions, facets, jumps and ridges against counting formulas, sampling and autodiff."""

from __future__ import annotations

import time
from math import comb

import numpy as np
import pytest
import torch

from lawful import Mlp
from lawful.fibers import Domain, Stack, cells
from lawful.fibers.cells import OutOfTime
from lawful.fibers.disguise import hiding_network, random_network
from lawful.fibers.genericity import genericity
from lawful.fibers.polyhedral import polygon, polyhedral_complex, ridges


@pytest.mark.parametrize(("inputs", "neurons"), [(1, 5), (2, 6), (3, 5), (4, 3)])
def test_a_generic_arrangement_has_as_many_regions_as_zaslavsky_counts(inputs: int, neurons: int) -> None:
    network = random_network(inputs, neurons, 1, seed=inputs)
    expected = sum(comb(neurons, k) for k in range(inputs + 1))
    assert len(list(cells(Stack.of(network)))) == expected


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
    good = Stack.of(random_network(2, 2, 2, 1, seed=0))
    assert genericity(good, regions=True).holds is True
    parallel = Mlp([[[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0]]], [[0.0, 1.0], None])
    assert "rank" in genericity(Stack.of(parallel)).reason
    through_one_point = Mlp([[[1.0, 0.5], [0.5, 1.0], [1.0, -1.0]], [[1.0, 2.0, 3.0]]], [[0.0, 0.0, 0.0], None])
    found = genericity(Stack.of(through_one_point), regions=True)
    assert found.holds is False
    assert "meet" in found.reason
