"""Closed forms for the number of laws of a layered network: proved for two layers, checked beyond."""

from __future__ import annotations

from itertools import pairwise

from lawful.network import Architecture


def predicted_laws(architecture: Architecture) -> int | None:
    """How many laws the formulas predict, or None where there is none (skips, linear networks with biases).

    ReLU networks have one law per hidden neuron, linear ones `linear_laws`.

    >>> predicted_laws(Architecture.parse("6-5-6-4-3-6 linear")), predicted_laws(Architecture.parse("4-5-3 relu bias"))
    (52, 5)
    """
    if architecture.skips:
        return None
    if architecture.slope != 1.0:
        return sum(architecture.widths[1:-1])
    return None if architecture.bias else linear_laws(architecture.widths)


def balanced_laws(widths: tuple[int, ...]) -> int:
    """What balancedness gives: `Σ_i rk_i (2 n_i + 1 − rk_i)/2` over the hidden layers (one layer: P1 Proposition 4.2).

    `rk_i = min(n_i, n_{i−1} + n_{i+1})`.

    >>> balanced_laws((3, 2, 3)), balanced_laws((7, 3, 6, 2, 5))
    (3, 29)
    """
    total = 0
    for below, here, above in zip(widths, widths[1:], widths[2:], strict=False):
        rank = min(here, below + above)
        total += rank * (2 * here + 1 - rank) // 2
    return total


def linear_laws(widths: tuple[int, ...]) -> int:
    """The number of laws of a deep linear network without biases, also where layers have width 1.

    Cut the network at its layers of width 1. A piece between two of them computes one number from one number, so its
    fields are multiples of one field and all but one of its weights' directions are bound: D − 1 laws. Other pieces
    have `balanced_laws`, and each neuron at a cut has its own balance.

    >>> linear_laws((1, 2, 2, 1)), balanced_laws((1, 2, 2, 1))
    (7, 6)
    """
    ones = [place for place, width in enumerate(widths) if width == 1]
    cuts = sorted({0, len(widths) - 1, *ones})
    total = sum(0 < place < len(widths) - 1 for place in ones)
    for start, stop in pairwise(cuts):
        piece = widths[start : stop + 1]
        bound = piece[0] == piece[-1] == 1
        total += sum(a * b for a, b in pairwise(piece)) - 1 if bound else balanced_laws(piece)
    return total
