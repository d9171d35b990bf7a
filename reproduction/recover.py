"""Explore a fiber without theory: directions that keep the function, and parameters that fitting leads back to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from lawful.fibers.counterexample import on_bent_hyperplanes, preimages
from lawful.fibers.layers import Stack
from lawful.fibers.regions.domain import Domain
from lawful.network import Mlp
from lawful.types import Floats

REACHES = (0.05, 0.2, 0.5, 1.0)  # how far from the parameter descents start


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The measured dimension of a fiber modulo scaling, and other parameters found on it."""

    dimension: int
    gap: float
    reached: tuple[Mlp, ...]


def parameter_jacobian(network: Mlp, points: Floats) -> Floats:
    """`∂f/∂θ` at many inputs, a row per input and output, columns in the order of `theta`."""
    layers = network.activations(points)
    samples, outputs = layers[-1].shape
    back = np.broadcast_to(np.eye(outputs), (samples, outputs, outputs))
    parts: list[Floats] = []
    for number in reversed(range(len(network.weights))):
        weight = np.einsum("sok,sj->sokj", back, layers[number]).reshape(samples, outputs, -1)
        parts = [weight, *([] if network.biases[number] is None else [back]), *parts]
        if number:
            slope = np.where(layers[number] > 0, 1.0, network.slopes[number - 1])
            back = (back @ network.weights[number]) * slope[:, None, :]
    return np.concatenate(parts, axis=2).reshape(samples * outputs, -1)


def informative_points(network: Mlp, seed: int = 0, count: int = 400) -> Floats:
    """Inputs near and far, and near every bent hyperplane of the last hidden layer, where rare neurons act."""
    rng = np.random.default_rng(seed)
    stack, domain = Stack.of(network), Domain.space(network.widths[0])
    near = [on_bent_hyperplanes(stack, stack.hidden - 1, domain, rng)]
    if stack.hidden > 1 and stack.widths[1] <= stack.widths[0]:
        near += [preimages(stack, rng) for _ in range(8)]
    near = [points + 0.3 * scale * rng.normal(size=points.shape) for points in near for scale in (0.0, 1.0, 5.0)]
    clouds = [scale * rng.normal(size=(count, network.widths[0])) for scale in (0.5, 2.0, 8.0)]
    return np.concatenate([*near, *clouds])


def neighbours_on_the_fiber(network: Mlp, *, tries: int = 10, seed: int = 0) -> Neighbours:
    """Corank of the parameter Jacobian less one per hidden neuron; and Gauss-Newton descents from random places nearby.

    Nothing here knows the symmetries: what is found tests whether they are all there are (P4 Section 6).
    """
    points = informative_points(network, seed)
    values = np.linalg.svd(parameter_jacobian(network, points), compute_uv=False)
    small = values < 1e-9 * values[0]
    gap = float(values[small].max() / values[~small].min()) if small.any() else 0.0
    rng = np.random.default_rng(seed)
    points = points[rng.permutation(len(points))[:800]]
    target = network.evaluate(points).ravel()
    found = []
    for number in range(tries):
        reach = REACHES[number % len(REACHES)]
        start = network.theta + reach * rng.normal(size=network.parameters)
        fit = least_squares(
            lambda theta: network.with_theta(theta).evaluate(points).ravel() - target,
            start,
            jac=lambda theta: parameter_jacobian(network.with_theta(theta), points),
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=200,
        )
        if np.abs(fit.fun).max() < 1e-9 * np.abs(target).max():
            found.append(network.with_theta(fit.x))
    return Neighbours(int(small.sum()) - sum(network.widths[1:-1]), gap, tuple(found))
