"""Deep networks of tanh or sigmoid: the function determines the weights up to order and signs of hidden units.

For tanh this is a theorem at any depth (Fefferman 1994 for generic weights; Vlačić and Bölcskei, *Affine symmetries and
neural network identifiability*, 2021, for all networks without units that repeat each other). It is used here under
conditions that imply those of the second and are easily checked in fractions: no weight is zero, and in every hidden
layer the biases are not zero and differ in absolute value. Both networks have to satisfy them after what repeats
another unit, or is heard by none, has gone. Sigmoid is tanh, `σ(z) = ½ + ½ tanh(z/2)`: the conditions are those of the
network of tanh that computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

Vector = tuple[Fraction, ...]
Layer = tuple[Sequence[Vector], Sequence[Fraction]]  # rows and biases
DEEP = (
    "a network of tanh without zero weights, whose biases differ in absolute value and are not zero in each hidden "
    "layer, is determined by its function (Vlačić and Bölcskei 2021)"
)


def deep_form(layers: Sequence[Layer], activation: str) -> tuple[tuple[tuple[Vector, ...], Vector], ...] | None:
    """The one member of the orbit whose hidden biases are positive and ascending; None if the conditions fail.

    >>> first = [(Fraction(1), Fraction(2)), (Fraction(3), Fraction(4))], [Fraction(-2), Fraction(1)]
    >>> second = [(Fraction(5), Fraction(6))], [Fraction(7)]
    >>> (rows, biases), (out, _) = deep_form([first, second], "tanh")
    >>> [int(b) for b in biases], [int(w) for w in rows[1]], [int(v) for v in out[0]]
    ([1, 2], [-1, -2], [6, -5])
    """
    plain = irreducible(layers if activation == "tanh" else as_tanh(layers))
    found: list[tuple[tuple[Vector, ...], Vector]] = []
    if not all(rows for rows, _ in plain):
        return None
    order, signs = list(range(len(plain[0][0][0]))), [1] * len(plain[0][0][0])
    for place, (rows, biases) in enumerate(plain):
        moved = [tuple(sign * row[unit] for unit, sign in zip(order, signs, strict=True)) for row in rows]
        if not all(all(row) for row in moved):
            return None
        if place == len(plain) - 1:
            return (*found, (tuple(moved), tuple(biases)))
        if not all(biases) or len({abs(bias) for bias in biases}) < len(biases):
            return None
        order = sorted(range(len(biases)), key=lambda unit: abs(biases[unit]))
        signs = [1 if biases[unit] > 0 else -1 for unit in order]
        turned = tuple(tuple(sign * w for w in moved[unit]) for unit, sign in zip(order, signs, strict=True))
        found.append((turned, tuple(abs(biases[unit]) for unit in order)))
    return None


def irreducible(layers: Sequence[Layer]) -> list[Layer]:
    """The same network of tanh, without units that repeat another up to sign and units that nobody hears.

    >>> first = [(Fraction(1),), (Fraction(-1),), (Fraction(3),)], [Fraction(2), Fraction(-2), Fraction(5)]
    >>> second = [(Fraction(4), Fraction(1), Fraction(0))], [Fraction(7)]
    >>> (rows, biases), (out, _) = irreducible([first, second])
    >>> [int(w) for w, in rows], [int(b) for b in biases], [int(v) for v in out[0]]
    ([1], [2], [3])
    """
    found = [(list(rows), list(biases)) for rows, biases in layers]
    for (rows, biases), (after, _) in pairwise(found):  # a unit that repeats another is added to it
        first: dict[Vector, int] = {}
        for unit, (row, bias) in enumerate(zip(rows, biases, strict=True)):
            sign = next((1 if value > 0 else -1 for value in (*row, bias) if value), 0)
            known = first.setdefault(tuple(sign * value for value in (*row, bias)), unit)
            if not sign:  # tanh 0
                after[:] = [(*r[:unit], Fraction(0), *r[unit + 1 :]) for r in after]
            elif known != unit:
                turn = sign * next(1 if value > 0 else -1 for value in (*rows[known], biases[known]) if value)
                for place, r in enumerate(after):
                    summed = list(r)
                    summed[known], summed[unit] = r[known] + turn * r[unit], Fraction(0)
                    after[place] = tuple(summed)
    for (rows, biases), (after, _) in reversed(list(pairwise(found))):
        heard = [unit for unit in range(len(rows)) if any(r[unit] for r in after)]
        rows[:], biases[:] = [rows[unit] for unit in heard], [biases[unit] for unit in heard]
        after[:] = [tuple(r[unit] for unit in heard) for r in after]
    return list(found)


def as_tanh(layers: Sequence[Layer]) -> list[Layer]:
    """The network of tanh that computes what this one of sigmoids does."""
    half, found = Fraction(1, 2), list[Layer]()
    for place, (rows, biases) in enumerate(layers):
        if place:  # what arrives is ½ + ½ tanh
            biases = [bias + half * sum(row, Fraction(0)) for row, bias in zip(rows, biases, strict=True)]
            rows = [tuple(half * w for w in row) for row in rows]
        if place < len(layers) - 1:
            rows, biases = [tuple(half * w for w in row) for row in rows], [half * bias for bias in biases]
        found.append((rows, biases))
    return found
