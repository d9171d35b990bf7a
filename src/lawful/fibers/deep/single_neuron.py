"""A first layer of one neuron: the network is a function of one number, and P4 Theorem 5 does not hold.

All bends are parallel. The function is constant on the side where the first neuron is silent, and bends once there and
once for every second-layer neuron at most; so its first bend is the first layer's, if it bends that often. If it is
constant on the other side too, its last bend can be the first layer's as well: reversed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import fmpq

from lawful.errors import LawfulError
from lawful.fibers.deep.identification import balanced_subset
from lawful.fibers.layers import Array, Stack
from lawful.fibers.shallow.normal_form import group_rows


def is_ramp(stack: Stack) -> bool:
    """Whether this is a network of two hidden ReLU layers, the first of one neuron that listens."""
    return stack.hidden == 2 and stack.slopes == (0.0, 0.0) and stack.widths[1] == 1 and bool(stack.weights[0].any())


def falls(stack: Stack) -> bool:
    """Whether every second-layer neuron starts active and falls silent as the first grows."""
    weights, biases = stack.weights[1][:, 0], stack.biases[1]
    return bool(len(weights)) and bool((weights < 0).all()) and bool((biases > 0).all())


def bends_fully(stack: Stack) -> bool | None:
    """Whether no two second-layer neurons share a bend, and no set of them can be reversed; None if not decided.

    Then a network whose second-layer neurons all bend has one bend for each, one where the first layer's neuron starts,
    and a slope at the end: the sums of those that would have to vanish are sums over sets of neurons.
    """
    exact = stack.rational()
    if any(len(group) > 1 for group in group_rows(exact.row(1), 0.0)):
        return False
    flips = balanced_subset([exact.weights[2][:, j] * exact.weights[1][j, 0] for j in range(exact.widths[2])])
    return None if flips is None else not flips


def reverse(stack: Stack) -> Stack:
    """The twin of a network whose second-layer neurons all fall: the first layer starts where the last one ends.

    >>> from lawful.network import Mlp
    >>> found = reverse(Stack.of(Mlp([[[1.0]], [[-1.0]], [[1.0]]], [[0.0], [1.0], [0.0]]))).to_mlp()
    >>> [weight.tolist() for weight in found.weights], [bias.tolist() for bias in found.biases]
    ([[[-1.0]], [[-1.0]], [[-1.0]]], [[1.0], [1.0], [1.0]])
    """
    exact = stack.rational()
    if not is_ramp(exact) or not falls(exact):
        raise LawfulError("only a first layer of one neuron, with which every second-layer neuron falls, is reversed")
    ends = [-bias / weight for weight, bias in zip(exact.weights[1][:, 0], exact.biases[1], strict=True)]
    last = ends.index(max(ends))
    far = ends[last]
    jumps = [out * -weight for out, weight in zip(exact.weights[2].T, exact.weights[1][:, 0], strict=True)]
    # seen from the far end, neuron j starts at far − ends[j]; all of them stop where the first layer's neuron started
    total = sum(jumps[1:], jumps[0])
    starts = [far if j == last else far - end for j, end in enumerate(ends)]
    shares = [-total if j == last else jump for j, jump in enumerate(jumps)]
    rest = sum((share * start for share, start in zip(shares, starts, strict=True)), exact.biases[2] * 0)
    second: Array = np.array([[fmpq(-1)]] * len(ends), dtype=object)
    return Stack(
        (-exact.weights[0], second, np.array(shares, dtype=object).T),
        (far - exact.biases[0], np.array(starts, dtype=object), exact.biases[2] - rest),
        stack.slopes,
    )


def as_one_layer(stack: Stack) -> Stack:
    """The same function with one hidden layer: one neuron, looking as the first layer's does, for every bend.

    >>> from lawful.network import Mlp
    >>> found = as_one_layer(Stack.of(Mlp([[[1.0]], [[-1.0]], [[1.0]]], [[0.0], [1.0], [0.0]]))).to_mlp()
    >>> found.weights[0].ravel(), found.biases[0], found.weights[1].ravel(), found.biases[1]
    (array([1., 1.]), array([ 0., -1.]), array([-1.,  1.]), array([1.]))
    """
    exact = stack.rational()
    zero = fmpq(0)
    weights, biases, outs = exact.weights[1][:, 0], exact.biases[1], exact.weights[2]
    start = outs[:, 0] * 0
    offset = exact.biases[2]
    rows, jumps = [], []
    for j, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        offset = offset + outs[:, j] * max(bias, zero)
        if bias > 0 or (bias == 0 and weight > 0):
            start = start + outs[:, j] * weight
        if weight * bias < 0:
            rows.append(np.array([*exact.weights[0][0], exact.biases[0][0] + bias / weight], dtype=object))
            jumps.append(outs[:, j] * abs(weight))
    rows.insert(0, exact.row(0)[0])
    jumps.insert(0, start)
    table = np.array(rows, dtype=object)
    return Stack((table[:, :-1], np.array(jumps, dtype=object).T), (table[:, -1], offset), (0.0,))


def ramp_volume(second: int) -> Fraction:
    """The share of `(W2, b2)` that are identifiable: rows all grow or fall (`2^{−n2}`), not all the same way.

    >>> ramp_volume(1), ramp_volume(2)
    (Fraction(0, 1), Fraction(1, 8))
    """
    return Fraction(1, 2**second) - 2 * Fraction(1, 4**second)
