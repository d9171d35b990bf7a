"""A network of one input is a function with finitely many kinks: found here exactly, layer by layer."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from lawful import Mlp


def exact_value(network: Mlp, x: Fraction, layers: int | None = None) -> list[Fraction]:
    """The outputs, or the sums of an earlier layer."""
    values = [x]
    count = len(network.weights) if layers is None else layers
    for number, (weight, bias) in enumerate(zip(network.weights[:count], network.biases[:count], strict=True)):
        shifts = [Fraction(0)] * len(weight) if bias is None else [Fraction(float(b)) for b in bias]
        values = [
            sum((Fraction(float(w)) * v for w, v in zip(row, values, strict=True)), shift)
            for row, shift in zip(weight, shifts, strict=True)
        ]
        if number < count - 1:
            slope = Fraction(network.slopes[number])
            values = [v if v > 0 else slope * v for v in values]
    return values


def exact_kinks(network: Mlp, low: Fraction, high: Fraction) -> list[Fraction]:
    """Points between which the network is affine."""
    points = [low, high]
    for layer in range(1, len(network.weights)):
        sums = [exact_value(network, point, layer) for point in points]
        found = set(points)
        for (p, before), (q, after) in pairwise(zip(points, sums, strict=True)):
            found |= {p + (q - p) * a / (a - b) for a, b in zip(before, after, strict=True) if a * b < 0}
        points = sorted(found)
    return points
