"""Nested dual numbers over residues: exact directional derivatives of polynomial maps, to any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.types import Residues


@dataclass(frozen=True, eq=False)
class Dual:
    """An array with 2^k parts: the coefficients of the products of ε₁ … ε_k, where every ε² = 0.

    The part with index i belongs to the product of those ε_j whose bit j is set in i. `prime` is below 2²³, so that a
    few hundred thousand products can be added before one remainder is taken.

    >>> x = Dual(np.array([[3], [1]]), 101)       # 3 + ε
    >>> (x * x).parts.ravel().tolist()             # 9 + 6ε
    [9, 6]
    """

    parts: Residues
    prime: int

    @classmethod
    def constant(cls, values: Residues, prime: int) -> Dual:
        """An array without infinitesimal parts."""
        return cls(values[None], prime)

    @property
    def order(self) -> int:
        """Number of infinitesimals."""
        return len(self.parts).bit_length() - 1

    @property
    def real(self) -> Residues:
        """The part without any ε."""
        return np.asarray(self.parts[0])

    def raw_product(self, other: Dual) -> Residues:
        """Parts of the product before the remainder; each is a sum of at most 2^k products."""
        return _product(self.parts, other.parts)

    def __mul__(self, other: Dual) -> Dual:
        return Dual(self.raw_product(other) % self.prime, self.prime)

    def __sub__(self, other: Dual) -> Dual:
        return Dual((self.parts - other.parts) % self.prime, self.prime)

    def scaled(self, factors: Residues) -> Dual:
        """Times an array without infinitesimal parts."""
        return Dual(self.parts * factors % self.prime, self.prime)

    def moved_along(self, direction: Dual) -> Dual:
        """`x + ε_new · direction`: one more infinitesimal, the highest."""
        return Dual(np.concatenate([self.parts, direction.parts]), self.prime)

    def derivative(self) -> Dual:
        """The coefficient of the highest infinitesimal."""
        return Dual(self.parts[len(self.parts) // 2 :], self.prime)

    def base(self) -> Dual:
        """The number with the highest infinitesimal set to 0."""
        return Dual(self.parts[: len(self.parts) // 2], self.prime)


def _product(left: Residues, right: Residues) -> Residues:
    if len(left) == 1 or len(right) == 1:
        return np.asarray(left * right)
    if len(left) != len(right):
        raise ValueError("dual numbers of different order")
    half = len(left) // 2
    low = _product(left[:half], right[:half])
    high = _product(left[:half], right[half:]) + _product(left[half:], right[:half])
    return np.concatenate([low, high])
