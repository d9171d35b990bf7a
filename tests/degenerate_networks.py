"""Small networks with planted degeneracies, and exact truths about them by plain enumeration.

Everything here is worked out in fractions from the weights, with no code of the package beyond `Mlp` itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product

import numpy as np

from lawful.network import Mlp

WIDTHS = ((1, 1, 1), (1, 2, 1), (2, 2, 1), (1, 3, 2), (1, 1, 1, 1), (1, 2, 2, 1), (2, 2, 1, 1), (1, 2, 1, 2))


def networks(count: int, seed: int, widths: tuple[tuple[int, ...], ...] = WIDTHS) -> Iterator[Mlp]:
    """Random small integer weights: zero, duplicate, facing and dead neurons come by themselves, and are planted."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        sizes = widths[number % len(widths)]
        weights = [rng.integers(-2, 3, size=(b, a)).astype(float) for a, b in pairwise(sizes)]
        biases = [rng.integers(-2, 3, size=b).astype(float) for b in sizes[1:]]
        layer = int(rng.integers(0, len(sizes) - 2))
        plant = number // len(widths) % 5
        if plant == 1 and sizes[layer + 1] > 1:  # a duplicate, or facing
            factor = float(rng.choice([2.0, -1.0]))
            weights[layer][1], biases[layer][1] = factor * weights[layer][0], factor * biases[layer][0]
        elif plant == 2:  # nobody reads it
            weights[layer + 1][:, 0] = 0.0
        elif plant == 3:  # constant
            weights[layer][0] = 0.0
        elif plant == 4 and layer > 0:  # dead by its signs
            weights[layer][0], biases[layer][0] = -np.abs(weights[layer][0]), -np.abs(biases[layer][0])
        yield Mlp(weights, biases)


def sums(network: Mlp, point: tuple[Fraction, ...]) -> list[list[Fraction]]:
    """The sums of all layers, exactly."""
    values, found = list(point), []
    for weight, bias in zip(network.weights, network.biases, strict=True):
        shift = np.zeros(len(weight)) if bias is None else bias
        total = [
            sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(b))
            for row, b in zip(weight, shift, strict=True)
        ]
        found.append(total)
        values = [max(each, Fraction(0)) for each in total]
    return found


def points(network: Mlp) -> list[tuple[Fraction, ...]]:
    """Inputs of a fine grid and far away: with weights of at most 2 nearly every region holds some."""
    alone = network.widths[0] == 1
    near = [Fraction(k, 8) for k in range(-40, 41)] if alone else [Fraction(k, 2) for k in range(-6, 7)]
    far = [Fraction(k) for k in (-1000, -20, 20, 1000)]
    return list(product([*near, *far], repeat=network.widths[0]))


def values(network: Mlp) -> list[list[list[Fraction]]]:
    """The sums of all layers at all those inputs."""
    return [sums(network, point) for point in points(network)]


def describe(network: Mlp) -> str:
    return f"{[w.tolist() for w in network.weights]} {[None if b is None else b.tolist() for b in network.biases]}"


def rank(rows: list[list[Fraction]]) -> int:
    """The rank of a matrix of fractions."""
    table, found = [list(row) for row in rows], 0
    for column in range(len(table[0]) if table else 0):
        pivot = next((k for k in range(found, len(table)) if table[k][column]), None)
        if pivot is None:
            continue
        table[found], table[pivot] = table[pivot], table[found]
        for k in range(found + 1, len(table)):
            if table[k][column]:
                factor = table[k][column] / table[found][column]
                table[k] = [a - factor * b for a, b in zip(table[k], table[found], strict=True)]
        found += 1
    return found


def agree(one: Mlp, two: Mlp) -> bool:
    """Whether two networks have the same outputs at all those inputs."""
    return all(sums(one, point)[-1] == sums(two, point)[-1] for point in points(one))


def without(
    network: Mlp, layer: int, neuron: int, stand_in: tuple[int, ...] = (), constant: Fraction = Fraction(0)
) -> Mlp:
    """The network without a neuron of a hidden layer (from 0); small integers times others, and a constant, for it."""
    weights, biases = [w.copy() for w in network.weights], [None if b is None else b.copy() for b in network.biases]
    column, above = weights[layer + 1][:, neuron].copy(), weights[layer + 1]
    others = [k for k in range(above.shape[1]) if k != neuron]
    above[:, others] += np.outer(column, stand_in or [0] * len(others))
    above[:, neuron] = 0.0
    shift = np.zeros(len(above)) if biases[layer + 1] is None else biases[layer + 1]
    biases[layer + 1] = shift + column * float(constant)
    return Mlp(weights, biases)
