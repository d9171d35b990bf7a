"""Layer steps `ρ_1, …, ρ_L`: how much of the path `p ∈ [0, 1]` each layer covers (P3 Section 4)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.types import Floats

LARGEST_LEAK = 0.9  # a layer keeps 1 - ρ L̃ of its input; beyond 1 the skip connection would turn negative


def equidistant(layers: int) -> Floats:
    """`ρ_ℓ = 1/L`.

    >>> equidistant(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    _check_layers(layers)
    return np.full(layers, 1.0 / layers)


def irregular(layers: int, a: float = 0.9) -> Floats:
    """Short steps near input and output, long ones between: `ρ_ℓ ∝ 1 + a (1/4 - |ℓ/L - 1/2|)`, `a ∈ [0, 1)`.

    The printed rule divides by `L` and sums to 1 only for even `L`; here the steps are normalised.

    >>> irregular(4, 0.5).round(4)
    array([0.25  , 0.2812, 0.25  , 0.2188])
    >>> float(irregular(7, 0.9).sum().round(12))
    1.0
    """
    _check_layers(layers)
    if not 0 <= a < 1:
        raise LawfulError(f"irregular steps need 0 <= a < 1, got a = {a}")
    raw = 1 + a * (0.25 - np.abs(np.arange(1, layers + 1) / layers - 0.5))
    return np.asarray(raw / raw.sum())


def adapt_steps(steps: ArrayLike, path: ArrayLike, effective_depth: float) -> Floats:
    """Steps that move the representation by the same relative distance: `ρ_ℓ ∝ ρ_ℓ ‖A_ℓ‖ / ‖A_ℓ - A_{ℓ-1}‖`.

    `path` holds `A_0, …, A_L`. Steps keep their sum and are capped so that `ρ_ℓ L̃` stays below 1.

    >>> path = np.array([1.0, 2.0, 2.1, 2.2, 4.0])[:, None, None]  # fast, slow, slow, fast
    >>> adapt_steps([0.25] * 4, path, 1.0).round(2)
    array([0.04, 0.44, 0.47, 0.05])
    """
    old, nodes = np.asarray(steps, dtype=np.float64), np.asarray(path, dtype=np.float64)
    if len(nodes) != len(old) + 1:
        raise LawfulError(f"{len(old)} steps need {len(old) + 1} representations, got {len(nodes)}")
    sizes = np.array([np.linalg.norm(node) for node in nodes[1:]])
    moves = np.array([np.linalg.norm(after - before) for before, after in pairwise(nodes)])
    wanted = old * sizes / np.maximum(moves, 1e-12 * sizes.max() + np.finfo(float).tiny)
    return cap_steps(wanted, float(old.sum()), LARGEST_LEAK / effective_depth if effective_depth > 0 else np.inf)


def cap_steps(wanted: Floats, total: float, cap: float) -> Floats:
    """Scale to the given sum with no entry above `cap`: what is cut off is shared among the others.

    >>> cap_steps(np.array([1.0, 1.0, 8.0]), total=1.0, cap=0.5)
    array([0.25, 0.25, 0.5 ])
    """
    if cap * len(wanted) <= total:
        return np.full(len(wanted), total / len(wanted))
    steps = wanted * (total / wanted.sum())
    full = np.zeros(len(steps), dtype=bool)
    while (over := (steps > cap) & ~full).any():
        full |= over
        steps[full] = cap
        rest = ~full
        steps[rest] *= (total - cap * full.sum()) / steps[rest].sum()
    return np.asarray(steps)


def _check_layers(layers: int) -> None:
    if layers < 1:
        raise LawfulError(f"a network needs at least one layer, got {layers}")


def positions(steps: ArrayLike) -> Floats:
    """`p_0 = 0, p_1, …, p_L`, the ends of the layers."""
    return np.concatenate([[0.0], np.cumsum(np.asarray(steps, dtype=np.float64))])


def resample(weights: Floats, steps: Floats, new_steps: Floats) -> Floats:
    """`W_p` on another grid: each new layer takes the mean of `W_p` over its own stretch of p.

    >>> resample(np.array([[[1.0]], [[3.0]]]), equidistant(2), equidistant(4))[:, 0, 0]
    array([1., 1., 3., 3.])
    """
    old, new = positions(steps), positions(new_steps)
    overlap = np.minimum(old[None, 1:], new[1:, None]) - np.maximum(old[None, :-1], new[:-1, None])
    share = np.maximum(overlap, 0.0) / np.asarray(new_steps)[:, None]
    return np.asarray(np.tensordot(share, weights, axes=1))
