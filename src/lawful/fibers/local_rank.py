"""How many parameters a function fixes near the ones that it has: the rank of its derivatives, at any depth or width.

The derivatives of the outputs with respect to the parameters span at most as many dimensions as there are parameters,
less one for each hidden neuron, which can be rescaled. If those at some inputs span as many, then near these parameters
only rescalings give the same function: parameters with the same outputs there form a manifold of that dimension, and
the rescalings fill it. A rank modulo a prime is never larger than the true one, so what is counted is proved; whether
distant parameters give the function too stays open (P4 G.1 and G.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.exact.elimination import rank
from lawful.fibers.domain import Domain
from lawful.fibers.scales import input_scales
from lawful.fibers.search import on_bent_hyperplanes
from lawful.fibers.stack import Array, Stack
from lawful.types import Floats, Mask

PRIME = 8_388_593
MOST_PARAMETERS = 1_500
MORE = 2.5  # times as many derivatives as parameters are looked at
UNIT = 2.0**-53
Integers = NDArray[np.int64]


class FixedDirections(NamedTuple):
    """The function fixes at least `fixed` directions of the parameters; `most` leave only rescalings."""

    fixed: int
    most: int


def fixed_directions(stack: Stack, seed: int = 0) -> FixedDirections | None:
    """How many directions are fixed near these parameters, counted from below; None if the network is too large.

    >>> from lawful.network import Mlp
    >>> weights = [[[1.0], [-2.0]], [[1.0, -1.0], [3.0, 1.0]], [[1.0, -1.0]]]
    >>> fixed_directions(Stack.of(Mlp(weights, [[1.0, 1.0], [0.5, -2.0], [0.0]])))
    FixedDirections(fixed=8, most=9)
    """
    parameters = sum(weight.size + len(bias) for weight, bias in zip(stack.weights, stack.biases, strict=True))
    if parameters > MOST_PARAMETERS or min(stack.widths) == 0 or stack.exact:
        return None
    floats = stack.floating()
    points, masks = _settled(floats, _inputs(floats, int(MORE * parameters / stack.widths[-1]) + 8, seed))
    found = rank(_derivatives(stack, points, masks), PRIME) if len(points) else 0
    return FixedDirections(found, parameters - sum(stack.widths[1:-1]))


def _inputs(stack: Stack, count: int, seed: int) -> Floats:
    """Inputs at several sizes, and near the zero sets of all neurons; few digits each."""
    rng = np.random.default_rng(seed)
    scales = input_scales(stack)
    near = [on_bent_hyperplanes(stack, layer, Domain.space(stack.widths[0]), rng) for layer in range(stack.hidden)]
    sizes = scales * 10.0 ** rng.uniform(-1, 1, (count, 1))
    points = np.concatenate([*near, rng.normal(size=(count, stack.widths[0])) * sizes])
    points = points[np.isfinite(points).all(axis=1)]
    return np.asarray(points.astype(np.float32).astype(np.float64))


def _settled(stack: Stack, points: Floats) -> tuple[Floats, list[Mask]]:
    """The points at which no preactivation may be zero, whatever was rounded, and which neurons are active there."""
    values, error, masks = points, np.zeros_like(points), []
    sure = np.ones(len(points), dtype=bool)
    with np.errstate(all="ignore"):
        for weight, bias, slope in zip(stack.weights[:-1], stack.biases[:-1], stack.slopes, strict=True):
            size = np.abs(weight).T
            error = error @ size + 4 * (weight.shape[1] + 4) * UNIT * (np.abs(values) @ size + np.abs(bias)) + 1e-300
            values = values @ weight.T + bias
            sure &= (np.abs(values) > 2 * error).all(axis=1)
            masks.append(values > 0)
            gain = np.where(masks[-1], 1.0, slope)
            values, error = gain * values, np.abs(gain) * error + 2 * UNIT * np.abs(values)
    return points[sure], [mask[sure] for mask in masks]


def _derivatives(stack: Stack, points: Floats, masks: list[Mask]) -> Integers:
    """Of every output at every point with respect to all weights and biases, modulo the prime."""
    weights = [_residues(weight) for weight in stack.weights]
    values, entering, gains = _residues(points), [], []
    for number, (weight, bias) in enumerate(zip(weights, stack.biases, strict=True)):
        entering.append(values)
        if number < stack.hidden:
            gains.append(np.where(masks[number], 1, _residues(np.array([stack.slopes[number]]))[0]))
            values = (values @ weight.T + _residues(bias)) % PRIME * gains[number] % PRIME
    rows = []
    for output in range(stack.widths[-1]):
        back = np.zeros((len(points), stack.widths[-1]), dtype=np.int64)
        back[:, output] = 1
        parts: list[Integers] = []
        for number in range(stack.hidden, -1, -1):
            product = back[:, :, None] * entering[number][:, None, :] % PRIME
            parts += [back, product.reshape(len(points), -1)]
            if number:
                back = back @ weights[number] % PRIME * gains[number - 1] % PRIME
        rows.append(np.concatenate(parts, axis=1))
    return np.concatenate(rows)


def _residues(values: Array) -> Integers:
    """Floats, which are integers over powers of two, modulo the prime."""
    ratios = [float(value).as_integer_ratio() for value in values.ravel()]
    found = [top * pow(bottom, -1, PRIME) % PRIME for top, bottom in ratios]
    return np.array(found, dtype=np.int64).reshape(values.shape)
