"""Formulas that the papers print and the package does not need, to be checked against it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from lawful.fibers.deep.bottleneck import check_widths
from lawful.fibers.layers import floating
from lawful.fibers.shallow.fiber import LayerwiseFiber, separating_direction
from lawful.fibers.shallow.normal_form import Kind, normal_form
from lawful.network import Mlp
from lawful.types import Floats


def product_metric(z: ArrayLike, delta: float) -> Floats:
    """`M = ‖z‖_δ I + zzᵀ/‖z‖_δ` for `φ(u, v) = uv`, with `‖z‖_δ = δ + √(δ² + ‖z‖²)`, `δ = (u² − ‖v‖²)/2` (P1 Ex. 3.9).

    >>> product_metric([6.0], (4.0 - 9.0) / 2).round(9)   # u = 2, v = 3: u² + v²
    array([[13.]])
    """
    vector = np.asarray(z, dtype=np.float64)
    size = delta + np.sqrt(delta**2 + vector @ vector)
    return np.asarray(size * np.eye(len(vector)) + np.outer(vector, vector) / size)


def polar_metric(z: ArrayLike, delta: float) -> Floats:
    """The metric of `φ(u, v) = (u‖v‖, v/‖v‖)` at `z = (r, h)`, with `δ = (u² − ‖v‖²)/2` (P1 Example F.2, corrected).

    `M = diag(2√(r² + δ²), P_h/(√(r² + δ²) − δ))`: the entries are `u² + ‖v‖²` and `1/‖v‖²`.

    >>> polar_metric([6.0, 1.0, 0.0], (4.0 - 9.0) / 2).diagonal().round(9)   # u = 2, ‖v‖ = 3
    array([13.        ,  0.        ,  0.11111111])
    """
    vector = np.asarray(z, dtype=np.float64)
    radius, direction = vector[0], vector[1:]
    root = np.sqrt(radius**2 + delta**2)
    metric = np.zeros((len(vector),) * 2)
    metric[0, 0] = 2 * root
    projector = np.eye(len(direction)) - np.outer(direction, direction) / (direction @ direction)
    metric[1:, 1:] = projector / (root - delta)
    return metric


def volume_bounds(first: int, second: int) -> tuple[Fraction, Fraction]:
    """The bounds that P4's corollary prints; for a first layer of one neuron the lower one does not hold.

    >>> volume_bounds(2, 2)
    (Fraction(15, 32), Fraction(49, 64))
    """
    check_widths(first, second)
    row = Fraction(1, 2 ** (first + 1))
    return 1 - 2 * second * row - first * row**second, (1 - row) ** second


def sampled_volume(first: int, second: int, samples: int, seed: int = 0) -> float:
    """The same share by Monte Carlo: signs of Gaussian `[W2 | b2]`, judged by the conditions one by one."""
    check_widths(first, second)
    rows = np.random.default_rng(seed).normal(size=(samples, second, first + 1))
    wrong = np.any((rows < 0).all(axis=2), axis=1) | np.any((rows > 0).all(axis=2), axis=1)
    if first == 1:
        wrong |= ((rows[:, :, 0] < 0) & (rows[:, :, 1] > 0)).all(axis=1)
    for i in range(first):
        others = np.delete(rows, i, axis=2)
        wrong |= (rows[:, :, i] > 0).all(axis=1) & (others < 0).all(axis=(1, 2))
    return float(1 - wrong.mean())


def flip_matrix(width: int, neuron: int, flipped: tuple[int, ...]) -> Floats:
    """`F_S`: its own inverse, and `F_S F_T = F_{SΔT}`.

    >>> flip_matrix(3, 0, (1, 2))
    array([[ 1., -1., -1.],
           [ 0., -1.,  0.],
           [ 0.,  0., -1.]])
    """
    matrix = np.eye(width)
    for k in flipped:
        matrix[k, k] = -1.0
        matrix[neuron, k] = -1.0
    return matrix


def nonnegative_rank(matrix: Floats, tolerance: float = 1e-10) -> int:
    """The least k with `A = U V`, `V ≥ 0` and k rows.

    `rank ≤ rank⁺ ≤ rank + 1` (P4 Proposition 28), and `rank⁺ = rank` exactly if the columns lie in a simplicial cone
    of the column space (Proposition 29), that is if their cone is pointed.

    >>> nonnegative_rank(np.array([[1.0, -1.0]])), nonnegative_rank(np.array([[1.0, 2.0]]))
    (2, 1)
    """
    basis, values, _ = np.linalg.svd(matrix)
    size = int((values > tolerance * max(float(values.max(initial=0.0)), 1e-300)).sum())
    return size if size == 0 or separating_direction(basis[:, :size].T @ matrix)[0] > 1e-9 else size + 1


def fiber_dimension_at(network: Mlp, fiber: LayerwiseFiber) -> int:
    """The dimension of the fiber near a parameter, measured: corank of the map to `(U V, offset)` less the scalings."""
    form = normal_form(network, fiber.domain)
    linear = [number for number, kind in enumerate(form.kinds) if kind is Kind.LINEAR]
    outer, inner = floating(network.weights[1])[:, linear], network.weights[0][linear]
    outputs, count, inputs = len(outer), len(linear), inner.shape[1]
    columns = []
    for row in range(outputs):
        for column in range(count):
            change = np.zeros((outputs, inputs))
            change[row] = inner[column]
            columns.append(change.ravel())
    for row in range(count):
        for column in range(inputs):
            change = np.zeros((outputs, inputs))
            change[:, column] = outer[:, row]
            columns.append(change.ravel())
    fixed = int(np.linalg.matrix_rank(np.array(columns))) if columns else 0
    return len(columns) - fixed  # + one bias per linear neuron − one scaling per linear neuron
