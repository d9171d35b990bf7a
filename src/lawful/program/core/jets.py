"""Jets: nested derivatives in float64, in balls or modulo a prime.

A jet is a polynomial in infinitesimals ε₁, ε₂, … with εᵢ² = 0: a map from sets of them (bit masks) to arrays. All
arrays have a row per field; where rows do not differ, a single one stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.exact import PRIME, to_residues

Array = NDArray[Any]  # of float64, of flint.arb, or of residues (int64) modulo the prime
Jet = dict[int, Array]
_PRIME = ContextVar("prime", default=PRIME)


def prime() -> int:
    """The prime of all residues."""
    return _PRIME.get()


@contextmanager
def modulo(other: int) -> Iterator[None]:
    """Residues modulo another prime below 2²³, inside."""
    token = _PRIME.set(other)
    try:
        yield
    finally:
        _PRIME.reset(token)


def lift(values: Array, like: Array) -> Array:
    """Floats as numbers of the same kind as others."""
    if like.dtype == object:
        return np.asarray(_arb(values), dtype=object)
    return to_residues(values, prime()) if like.dtype == np.int64 else values


def zeros(shape: tuple[int, ...], like: Array) -> Array:
    """Zeros of the same kind as other numbers."""
    if like.dtype == object:
        return np.broadcast_to(np.asarray(_arb(np.zeros(1)), dtype=object), shape).copy()
    return np.zeros(shape, dtype=like.dtype)


def below_prime(values: Array) -> Array:
    """Residues brought below the prime again; other numbers as they are."""
    return np.asarray(values % prime()) if values.dtype == np.int64 else np.asarray(values)


def _number(value: float) -> Any:
    from flint import arb

    return arb(float(value))


_arb = np.frompyfunc(_number, 1, 1)


# Jets


def plus(first: Jet, second: Jet) -> Jet:
    """The sum."""
    both = {mask: below_prime(first[mask] + second[mask]) for mask in first.keys() & second.keys()}
    return {**first, **second, **both}


def scale_jet(jet: Jet, factor: int) -> Jet:
    """Times a whole number."""
    return {mask: below_prime(part * factor) for mask, part in jet.items()}


def map_parts(jet: Jet, function: Callable[[Array], Array]) -> Jet:
    """A linear function of every coefficient."""
    return {mask: function(part) for mask, part in jet.items()}


def product(first: Jet, second: Jet, times: Callable[[Array, Array], Array]) -> Jet:
    """A bilinear product: masks that share an infinitesimal vanish."""
    result: Jet = {}
    for left, a in first.items():
        for right, b in second.items():
            if not left & right:
                term = times(a, b)
                result[left | right] = below_prime(result[left | right] + term) if left | right in result else term
    return result


def add_direction(state: Jet, direction: Jet, epsilon: int) -> Jet:
    """`state + ε direction`."""
    return state | {mask | epsilon: part for mask, part in direction.items()}


def split_jet(jet: Jet, epsilon: int) -> tuple[Jet, Jet]:
    """What is left of a jet without an infinitesimal, and the factor of that infinitesimal."""
    without = {mask: part for mask, part in jet.items() if not mask & epsilon}
    return without, {mask ^ epsilon: part for mask, part in jet.items() if mask & epsilon}


def times(first: Array, second: Array) -> Array:
    """Entry by entry."""
    return below_prime(first * second)
