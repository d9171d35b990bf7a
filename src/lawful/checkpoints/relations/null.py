"""The laws of the two statistics for checkpoints that have nothing in common but their task.

*Places.* The start of a network is exchangeable under permutations of hidden units and training commutes with them, so
the matching of its units with those of a stranger is a uniform permutation in each hidden space, however alike the
functions are. The expected number of sets of k units that all stand in place, over L spaces, is
`Σ_{k₁+…+k_L=k} Π 1/k_l! ≤ L^k / k!`, which bounds `P(k or more in place)`.

*Held-out tensors.* Rows of a tensor of B are permuted against those of A; the mean and the variance of
`Σ_i ⟨a_i, b_π(i)⟩` over all π are known in closed form (Hoeffding 1951).
"""

from __future__ import annotations

from math import ceil, erfc, exp, lgamma, log, sqrt
from sys import float_info

import numpy as np

from lawful.types import Floats

# Networks that learnt one task are not quite exchangeable given the rest of their weights: even without the strongest
# half of all directions their deviations have heavier tails than the normal law. This decides no relation by itself.
INFLATION = 1.5


def places_tail(in_place: int, spaces: int) -> float:
    """The probability that so many units or more stand in place by chance, at most.

    >>> places_tail(0, 1), round(places_tail(3, 1), 6), places_tail(16, 2) < 1e-8, places_tail(256, 1) > 0
    (1.0, 0.166667, True, True)
    """
    return _bounded(in_place, spaces)


def paired_places_tail(in_place: int, spaces: int) -> float:
    """The same if units were started in pairs of like ones that stay together: ⌈k/2⌉ pairs, each with its two units in
    one of two orders.

    >>> paired_places_tail(16, 1) < 1e-6 < paired_places_tail(8, 1)
    True
    """
    return _bounded(ceil(in_place / 2), spaces / 2)


def _bounded(count: int, mean: float) -> float:
    if not count or mean <= 0:
        return 1.0
    # 1/171! is below every normal float64: an upper bound may not be rounded down to 0
    return min(1.0, max(exp(count * log(mean) - lgamma(count + 1)), float_info.min))


def permutation_deviation(one: Floats, two: Floats) -> float | None:
    """By how many standard deviations rows agree more in this order than in a random one; None if they cannot.

    >>> round(permutation_deviation(np.eye(5), np.eye(5)), 6)
    4.0
    """
    products = one @ two.T
    count = len(products)
    centred = products - products.mean(0) - products.mean(1, keepdims=True) + products.mean()
    variance = float(np.square(centred).sum()) / (count - 1) if count > 1 else 0.0
    # Below rounding of the products nothing is left to compare.
    if not variance > (1e-12 * float(np.abs(products).max(initial=0.0))) ** 2:
        return None
    return float(np.trace(centred)) / sqrt(variance)


def deviation_tail(deviation: float, units: int) -> float:
    """The probability of such a deviation for strangers: a normal tail, widened, and no less than that of one order
    among all.

    >>> deviation_tail(0.0, 20), round(deviation_tail(30.0, 5) * 120, 6)
    (0.5, 1.0)
    """
    return min(1.0, max(0.5 * erfc(deviation / INFLATION / sqrt(2)), exp(-lgamma(units + 1)), float_info.min))
