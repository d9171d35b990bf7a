"""A network in single precision, whoever runs it: libraries add up in different orders, and round differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from lawful.network import Mlp
from lawful.types import Floats

Singles = NDArray[np.float32]
Layer = Callable[[Singles, Singles, Singles], Singles]


def in_single_precision(network: Mlp, points: Floats) -> Iterator[Floats]:
    """The outputs, once for each order of summation; not finite if the data do not fit in single precision.

    >>> large = Mlp([np.array([[1.0, -1.0]])], [np.array([0.5])], [])
    >>> [float(outputs[0, 0]) for outputs in in_single_precision(large, np.array([[2.0**25, 2.0**25]]))]
    [0.5, 0.0, 0.5, 0.5]
    """
    for layer in (_product, _bias_first, _bias_last, _multiply_add):
        with np.errstate(over="ignore", invalid="ignore"):
            values = points.astype(np.float32)
            for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True), 1):
                assert bias is not None  # noqa: S101 (for the type checker: chains have biases)
                values = layer(values, weight.astype(np.float32), bias.astype(np.float32))
                if number < len(network.weights):
                    values = np.maximum(values, np.float32(0))
        yield values.astype(np.float64)


def _product(values: Singles, weight: Singles, bias: Singles) -> Singles:
    return np.asarray(values @ weight.T + bias)


def _bias_first(values: Singles, weight: Singles, bias: Singles) -> Singles:
    total = np.tile(bias, (len(values), 1))
    for column in range(values.shape[1]):
        total += values[:, column, None] * weight[:, column]
    return total


def _bias_last(values: Singles, weight: Singles, bias: Singles) -> Singles:
    total = np.zeros((len(values), len(bias)), dtype=np.float32)
    for column in reversed(range(values.shape[1])):
        total += values[:, column, None] * weight[:, column]
    return total + bias


def _multiply_add(values: Singles, weight: Singles, bias: Singles) -> Singles:
    """Sums of exact products, rounded at the end, as fused multiplications come close to."""
    return np.asarray(values.astype(np.float64) @ weight.T.astype(np.float64) + bias).astype(np.float32)
