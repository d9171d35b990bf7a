"""ReLUs of z and -z: one of the two is folded away, in the search and, by other code, in the checker."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from bounds.test_split import as_dag

from lawful import write
from lawful.bounds.layers import Layer, exact_outputs, fold_mirrors, keep_sparse
from lawful.bounds.property import check_regions
from lawful.bounds.split.certificate import certificate_of_specification
from lawful.formats.queries.specification import ForbiddenHalfSpace, ForbiddenRegion
from lawful.network import Mlp
from lawful.sources.onnx import reader
from lawful.verify import verify
from lawful.verify.bounds import split_tree
from lawful.verify.bounds.network import PackedLayer


def random_layers(rng: np.random.Generator) -> tuple[Layer, ...]:
    """Layers with neurons that mirror others, some dead, some of zeros, with weights whose sums round or cancel."""
    widths = [2, *rng.integers(2, 9, rng.integers(1, 4)).tolist(), 2]
    layers = []
    for below, width in pairwise(widths):
        weight, bias = rng.integers(-2, 3, (width, below)).astype(float), rng.integers(-1, 2, width).astype(float)
        weight = weight * np.where(rng.random((width, 1)) < 0.3, 0.1, 1.0)
        for one in range(width // 2):
            other = width - 1 - one
            if rng.random() < 0.7:
                weight[other], bias[other] = -weight[one], -bias[one]
        weight[:, rng.random(below) < 0.15] = 0.0
        layers.append(Layer(weight, bias, rng.choice([0.0, 0.0, 0.0, 0.5, 1.0], width)))
    layers[-1] = layers[-1]._replace(slopes=np.ones(2))
    return tuple(layers)


@pytest.mark.parametrize("seed", range(60))
def test_folding_keeps_the_function_exactly_and_both_programs_fold_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = random_layers(rng)
    folded = fold_mirrors(layers)
    for point in ([Fraction(int(a), 7) for a in rng.integers(-20, 21, 2)] for _ in range(20)):
        assert exact_outputs(layers, point) == exact_outputs(folded, point)
    packed = [PackedLayer(*layer) for layer in layers]
    for ours, theirs in zip(folded, split_tree.fold_mirrors(packed), strict=True):
        assert np.array_equal(ours.slopes, theirs.slopes)
        assert np.array_equal(ours.weight, theirs.weight)


def test_weights_whose_sum_rounds_are_not_folded() -> None:
    # 1 + 2^-60 is no double: the folded reader would be another function.
    for reader_weights, slope in (([1.0, 2.0**-60], 0.0), ([1.0, 0.5], 1.0)):
        layers = (
            Layer(np.array([[1.0], [-1.0]]), np.zeros(2), np.zeros(2)),
            Layer(np.array([reader_weights]), np.zeros(1), np.ones(1)),
        )
        assert fold_mirrors(layers)[0].slopes.tolist() == [0.0, slope]
        assert split_tree.fold_mirrors([PackedLayer(*layer) for layer in layers])[0].slopes.tolist() == [0.0, slope]


def minimum_layers(count: int) -> list[tuple[np.ndarray, float]]:
    """The least of `2^count` values, as tllverifybench writes it: four ReLUs for each pair."""
    layers = []
    for width in (2**power for power in range(count, 0, -1)):
        pairs = np.zeros((2 * width, width))
        for pair in range(width // 2):
            for row, (a, b) in enumerate(((1, 1), (-1, -1), (1, -1), (-1, 1))):
                pairs[4 * pair + row, 2 * pair : 2 * pair + 2] = a, b
        layers += [(pairs, 0.0), (np.kron(np.eye(width // 2), [[0.5, -0.5, -0.5, -0.5]]), 1.0)]
    return layers


def minimum_network(seed: int, sparse: bool) -> tuple[Layer, ...]:
    rng = np.random.default_rng(seed)
    tents = Layer(rng.normal(size=(16, 2)), rng.normal(size=16), np.ones(16))
    layers = [Layer(keep_sparse(weight) if sparse else weight, np.zeros(len(weight)), np.full(len(weight), slope))
              for weight, slope in minimum_layers(4)]  # fmt: skip
    return (tents, *layers)


@pytest.mark.parametrize("seed", range(3))
def test_minima_written_with_four_relus_are_decided_in_few_boxes(seed: int) -> None:
    layers = minimum_network(seed, sparse=True)
    low, high = (Fraction(-1),) * 2, (Fraction(1),) * 2
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 2), axis=-1).reshape(-1, 2)
    tents = grid @ layers[0].weight.T + layers[0].bias
    above = Fraction(float(tents.min(axis=1).max())) + Fraction(1, 10)
    region = ForbiddenRegion(low, high, ((ForbiddenHalfSpace((Fraction(-1),), (), -above, False),),))
    found = check_regions(as_dag(layers), [region], seconds=60.0, threads=1)
    assert found.status == "holds"
    assert found.boxes < 14  # 3 to 11; without folding 15 to 21
    verify(certificate_of_specification(as_dag(layers), found.regions, point=None, proofs=found.proofs))


def test_files_too_large_for_edges_of_weight_zero_are_read_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlp = Mlp([[[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], [[1.0, 0.0, 2.0]]])
    file = tmp_path / "sparse.onnx"
    write(mlp, file)
    dense = reader.load(file)
    assert dense.parameters == 9
    monkeypatch.setattr("lawful.program.domains.scalar_graph.MAX_TERMS", 8)
    sparse = reader.load(file, drop_useless=True)
    assert sparse.parameters == 4  # the neuron of weight 2 is read by nobody
    points = np.random.default_rng(0).normal(size=(5, 2))
    assert np.array_equal(sparse.evaluate(points), dense.evaluate(points))
    assert sparse.reading is not None
    assert sparse.reading.entangled
