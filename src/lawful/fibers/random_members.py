"""Random networks, and random members of their fibers, to test what recognises them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lawful.errors import LawfulError
from lawful.fibers.deep.identifiability import Identifiability, identifiable
from lawful.fibers.layers import Stack
from lawful.fibers.reduce import hidden_neuron
from lawful.fibers.reparametrisations import Flip, Reorder, Rescale, Translate
from lawful.fibers.same import same
from lawful.fibers.shallow.normal_form import group_rows
from lawful.fibers.verdict import Verdict
from lawful.network import Mlp

# Identifiable pair by pair, not as a whole: the construction of P4 Section 7 and F.1.


@dataclass(frozen=True, eq=False)
class NotLocalisable:
    """A network, another parameter of the same function, and what each pair of layers says.

    `lower` judges layers 1 to 3, `upper` layers 2 to 4; `moved` is the largest change of a weight, `change` of the
    function on many inputs; `rescaling` says whether order and scale of neurons explain the move; `verdict` is the
    proof of `same` that the function stayed.
    """

    network: Mlp
    other: Mlp
    lower: Identifiability
    upper: Identifiability
    moved: float
    change: float
    rescaling: bool
    verdict: Verdict


def not_localisable(widths: tuple[int, ...] = (5, 4, 3, 3, 2), *, size: float = 0.05, seed: int = 0) -> NotLocalisable:
    """Bound the image of the second layer, so that the third, whose signs are mixed, acts linearly on it.

    `W2 < 0 < b2` makes the second layer's values lie in `[0, b2]`; a large `b3` then keeps the third layer active, and
    `(I + M) W3`, `W4 (I + M)^{-1}` with a small M is the same function.
    """
    rng = np.random.default_rng(seed)
    inputs, first, second, third, outputs = widths
    weights = [
        rng.normal(size=shape) for shape in ((first, inputs), (second, first), (third, second), (outputs, third))
    ]
    weights[1] = -np.abs(weights[1])
    weights[2] = np.where(np.eye(third, second) > 0, -np.abs(weights[2]), weights[2])  # a negative entry in every row
    top = np.abs(rng.normal(size=second)) + 0.5
    most = np.abs(weights[2]) @ top + 1.0
    biases = [rng.normal(size=first), top, most, rng.normal(size=outputs)]
    network = Mlp(weights, biases)
    mix = np.eye(third) + size * rng.normal(size=(third, third)) / third
    moved = [weights[0], weights[1], mix @ weights[2], weights[3] @ np.linalg.inv(mix)]
    other = Mlp(moved, [biases[0], biases[1], mix @ most, biases[3]])
    points = np.concatenate([scale * rng.normal(size=(2000, inputs)) for scale in (1.0, 10.0, 100.0)])
    rows = np.concatenate([np.column_stack([w, b]) for w, b in ((weights[2], most), (moved[2], mix @ most))])
    return NotLocalisable(
        network,
        other,
        identifiable(Mlp(weights[:3], biases[:3])),
        identifiable(Mlp(weights[1:], biases[1:])),
        float(np.abs(network.theta - other.theta).max()),
        float(np.abs(network.evaluate(points) - other.evaluate(points)).max()),
        len(group_rows(rows, 1e-9)) == third,
        same(network, other),
    )


def random_network(*widths: int, seed: int = 0) -> Mlp:
    """Gaussian weights and biases: generic with probability one."""
    rng = np.random.default_rng(seed)
    pairs = list(pairwise(widths))
    return Mlp([rng.normal(size=(out, into)) for into, out in pairs], [rng.normal(size=out) for _, out in pairs])


def hiding_network(*widths: int, neuron: int = 0, depth: float = 0.0, seed: int = 0) -> Mlp:
    """A random three-layer network whose second layer hides a first-layer hyperplane (P4 Definition 3).

    The deeper it hides, the smaller the part of space on which anything is active.
    """
    if len(widths) != 4:
        raise LawfulError(f"hiding is a matter of three layers: give four widths, not {widths}")
    network = random_network(*widths, seed=seed)
    above = -np.abs(network.weights[1])
    above[:, neuron] *= -1
    bias = network.biases[1]
    shifted = -depth - (0.0 if bias is None else np.abs(bias))
    return Mlp([network.weights[0], above, network.weights[2]], [network.biases[0], shifted, network.biases[2]])


def deepen(network: Mlp) -> tuple[Mlp, Mlp]:
    """A three-layer network rounded to few bits, and exactly the same function with one layer more.

    `a = relu(a − 1) − relu(1 − a) + 1` carries the first layer through another one; no symmetry of layers shows it.
    """
    network = network.with_theta(np.round(network.theta * 64) / 64)
    first, second, third = network.weights
    width = len(first)
    zero = [
        np.zeros(len(weight)) if bias is None else bias
        for weight, bias in zip(network.weights, network.biases, strict=True)
    ]
    deep = Mlp(
        [first, np.concatenate([np.eye(width), -np.eye(width)]), np.column_stack([second, -second]), third],
        [zero[0], np.repeat([-1.0, 1.0], width), zero[1] + second.sum(axis=1), zero[2]],
    )
    return network, deep


def disguise(network: Mlp, *, seed: int = 0, spread: float = 1.0) -> Mlp:
    """The same function at a random place of its fiber: order, scale, and where they exist translation and flips.

    >>> network = hiding_network(3, 3, 1, 2)
    >>> points = np.random.default_rng(0).normal(size=(100, 3))
    >>> bool(np.allclose(disguise(network).evaluate(points), network.evaluate(points)))
    True
    """
    rng = np.random.default_rng(seed)
    stack = Stack.of(network)
    for layer in range(1, stack.hidden + 1):
        width = stack.widths[layer]
        neuron = hidden_neuron(stack, layer)
        if neuron is not None:
            if stack.widths[layer + 1] == 1:
                others = [k for k in range(width) if k != neuron]
                stack = Flip(layer, neuron, tuple(k for k in others if rng.random() < 0.5)).apply(stack)
            lowest = float((stack.biases[layer] / stack.weights[layer][:, neuron]).max())
            stack = Translate(layer, neuron, lowest + rng.exponential(1 + abs(lowest))).apply(stack)
        stack = Reorder(layer, tuple(rng.permutation(width).tolist())).apply(stack)
        stack = Rescale(layer, tuple(np.exp(spread * rng.normal(size=width)).tolist())).apply(stack)
    return stack.to_mlp()
