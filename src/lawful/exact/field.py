"""Numbers modulo a prime below 2²³, and nested dual numbers over them for derivatives to any order.

The prime is so small that sums of products stay exact in int64 and in float64 products.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
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

    def scale(self, factors: Residues) -> Dual:
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


PRIME = 8_388_593  # the largest prime below 2²³
_STEP, _FIRST, _SECOND = (np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def is_prime(number: int) -> bool:
    """Whether a number is prime, by trial division.

    >>> is_prime(PRIME), is_prime(PRIME + 2)
    (True, False)
    """
    return number >= 2 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


@cache
def check_prime(prime: int) -> int:
    """The prime itself, or an error if this arithmetic cannot use it."""
    if not 1000 < prime <= PRIME or not is_prime(prime):
        raise LawfulError(f"exact arithmetic needs a prime between 1,000 and {PRIME:,}, not {prime}")
    return prime


def residues(seed: int, labels: tuple[int, ...], rows: ArrayLike, columns: int, prime: int) -> Residues:
    """Pseudo-random residues that depend on nothing but their labels: row i is the same in any batch.

    Each label, then the row number, then the column number is stirred into the state by SplitMix64's finaliser.

    >>> residues(0, (1, 2), [5, 6], 3, PRIME)[1].tolist() == residues(0, (1, 2), [6], 3, PRIME)[0].tolist()
    True
    """
    with np.errstate(over="ignore"):
        state = np.array(seed % 2**64, dtype=np.uint64)
        for label in labels:
            state = _stir(state, np.array(label, dtype=np.uint64))
        state = _stir(state, np.asarray(rows, dtype=np.uint64)[:, None])
        state = _stir(state, np.arange(columns, dtype=np.uint64)[None, :])
    return np.asarray(state % np.uint64(prime)).astype(np.int64)


def _stir(state: NDArray[np.uint64], label: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = state + _STEP * (label + np.uint64(1))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def to_residues(values: ArrayLike, prime: int = PRIME) -> Residues:
    """Floats are dyadic fractions: their exact residues modulo an odd prime.

    >>> to_residues([0.5, -3.0], 101).tolist()
    [51, 98]
    """
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise LawfulError("only finite numbers have a residue")
    if prime >= 2**31:  # products of residues do not fit into 64 bits
        fractions = [float(value).as_integer_ratio() for value in array.ravel()]
        residues = [top % prime * pow(bottom, -1, prime) % prime for top, bottom in fractions]
        return np.array(residues, dtype=np.int64).reshape(array.shape)
    parts, exponents = np.frexp(array)
    whole = np.ldexp(parts, 53).astype(np.int64)  # value = whole · 2^(exponent − 53)
    least, most = int(exponents.min(initial=0)), int(exponents.max(initial=0))
    powers = np.array([pow(2, exponent - 53, prime) for exponent in range(least, most + 1)], dtype=np.int64)
    return np.asarray(whole % prime * powers[exponents - least] % prime)


def rational(residue: int, prime: int = PRIME) -> Fraction | None:
    """The fraction a/b with |a|, b ≤ √(p/2) that a residue stands for, if there is one (it is then unique).

    >>> rational(pow(3, -1, PRIME) * 2 % PRIME)
    Fraction(2, 3)
    """
    bound = int((prime / 2) ** 0.5)
    before, now, left, right = prime, residue % prime, 0, 1
    while now > bound:
        quotient = before // now
        before, now, left, right = now, before - quotient * now, right, left - quotient * right
    if right == 0 or abs(right) > bound:
        return None
    return Fraction(now, right)
