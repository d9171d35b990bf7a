"""The last layer of a constructed network: labels for the collapsed clusters, whatever rounding does before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lawful.network import Mlp
from lawful.papers.truncation.cumulative import Chain, TruncationMap
from lawful.types import Floats

TRIALS = 32  # networks with rounded weights from which the rounding is learned
UNIT = 2.0**-24  # of single precision
FLOOR = 1e-3  # of the largest spread: what counts beside it


def with_output(maps: Sequence[TruncationMap], examples: Floats, labels: Floats) -> Mlp:
    """The maps as hidden layers, and an affine map from what becomes of a point of each cluster to the labels.

    Rounding moves these points in the directions in which some map is badly conditioned. Of all affine maps that send
    them to the labels we take the one with the least `Tr V C Vᵀ`, where C is the covariance of that motion when every
    weight is off by a unit of single precision: it hardly sees it.
    """
    width = examples.shape[1]
    chain = Chain(tuple(maps), np.eye(width), np.zeros(width)).to_mlp()
    hidden = _hidden(chain, examples, None)
    rng = np.random.default_rng(0)
    moved = np.concatenate([_hidden(chain, examples, rng) - hidden for _ in range(TRIALS)])
    values, basis = np.linalg.eigh(moved.T @ moved)
    sizes = np.sqrt(np.maximum(values, max(FLOOR**2 * values[-1], np.finfo(float).tiny)))
    centre, mean = hidden.mean(axis=0), labels.mean(axis=0)
    solved = np.linalg.pinv((hidden - centre) @ (basis / sizes), rcond=1e-14) @ (labels - mean)
    last = ((basis / sizes) @ solved).T
    return Mlp([*chain.weights[:-1], last], [*chain.biases[:-1], mean - last @ centre], chain.slopes)


def with_steps(maps: tuple[TruncationMap, ...], apexes: Floats, labels: Floats) -> Mlp:
    """A last layer `σ(u·x − t_k)` over the points' order along u makes them affinely independent, however many."""
    along = max((np.eye(apexes.shape[1])[axis] for axis in range(apexes.shape[1])), key=lambda u: _closest(apexes @ u))
    rng = np.random.default_rng(0)
    tilted = [direction / np.linalg.norm(direction) for direction in rng.normal(size=(64, apexes.shape[1]))]
    along = max([along, *tilted], key=lambda u: _closest(apexes @ u))
    heights = apexes @ along
    knots = np.sort(heights)[:-1]
    weight, bias = np.tile(along, (len(knots), 1)), -knots
    steps = np.maximum(apexes @ weight.T + bias, 0.0)
    solved = np.linalg.solve(np.c_[steps, np.ones(len(steps))], labels)
    body = Chain(maps, weight, bias).to_mlp()
    return Mlp([*body.weights, solved[:-1].T], [*body.biases, solved[-1]], [*body.slopes, 0.0])


def _hidden(network: Mlp, points: Floats, rng: np.random.Generator | None) -> Floats:
    """What the last hidden layer says about the points; with `rng`, in single precision and with weights a unit off."""
    kind = np.float64 if rng is None else np.float32
    values = points.astype(kind)
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        assert bias is not None  # noqa: S101 (for the type checker: chains have biases)
        off = weight if rng is None else weight * (1 + UNIT * rng.choice([-1.0, 1.0], size=weight.shape))
        values = np.maximum(values @ off.T.astype(kind) + bias.astype(kind), kind(0))
    return values.astype(np.float64)


def _closest(heights: Floats) -> float:
    return float(np.diff(np.sort(heights)).min())
