"""The rank of a network's derivatives in fractions, at inputs inside all of its regions: an independent count."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np

from lawful import Mlp
from lawful.fibers import Stack, cells


def jacobian_rank(mlp: Mlp) -> int:
    """On a region the derivatives are affine in the input, so few inputs inside each region show all of them."""
    rng = np.random.default_rng(0)
    rows = []
    for cell in cells(Stack.of(mlp)):
        reach = 0.4 * min(cell.radius, 1.0)
        for step in rng.normal(size=(mlp.widths[0] + 1, mlp.widths[0])):
            rows += derivatives(mlp, cell.point + reach * step / np.linalg.norm(step))
    found: int = flint.fmpq_mat([[flint.fmpq(v.numerator, v.denominator) for v in row] for row in rows]).rank()
    return found


def derivatives(mlp: Mlp, point: np.ndarray) -> list[list[Fraction]]:
    """Of every output with respect to all weights and biases, layer by layer."""
    weights = [[[Fraction(float(w)) for w in row] for row in weight] for weight in mlp.weights]
    values = [Fraction(float(x)) for x in point]
    entering, gains = [], []
    for number, (weight, bias) in enumerate(zip(weights, mlp.biases, strict=True)):
        shifts = [Fraction(0)] * len(weight) if bias is None else [Fraction(float(b)) for b in bias]
        sums = [
            sum((w * v for w, v in zip(row, values, strict=True)), b) for row, b in zip(weight, shifts, strict=True)
        ]
        slope = Fraction(float(mlp.slopes[number])) if number < len(weights) - 1 else Fraction(1)
        entering.append(values)
        gains.append([Fraction(1) if z > 0 else slope for z in sums])
        values = [z * gain for z, gain in zip(sums, gains[-1], strict=True)]
    rows = []
    for output in range(len(values)):
        back, row = [Fraction(int(k == output)) for k in range(len(values))], []
        for weight, below, gain in zip(reversed(weights), reversed(entering), reversed(gains), strict=True):
            back = [b * g for b, g in zip(back, gain, strict=True)]
            row += [*back, *(b * v for b in back for v in below)]
            back = [sum(b * line[k] for b, line in zip(back, weight, strict=True)) for k in range(len(below))]
        rows.append(row)
    return rows
