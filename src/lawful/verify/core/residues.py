"""Arithmetic at random points: every number is a polynomial, known by its values modulo random primes.

Eight *lanes* hold a value at once: four random primes of 31 bits, two random points for each. A polynomial of degree d
that is not zero vanishes at a random point modulo p with a chance of at most d/p (Schwartz and Zippel), so in all lanes
with at most (d/p)^8, plus the chance that a prime divides all its coefficients. Primes and points are drawn by the
checker after it has read the certificate: nobody can choose numbers that only look equal.

The two points of a prime tell more: if y = s x for a number s, then y/x is the same at both, and the other way round.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

Residues = np.ndarray[Any, np.dtype[np.int64]]

PRIMES = 4  # of 31 bits: a product of two residues fits 62 bits; together 124 bits to name a ratio of numbers
# Two points for each prime: the quotient of a value at both is the same for all its multiples.
LANES = 2 * PRIMES
HALF = 16  # bits that one factor of a matrix product is cut at: sums of 2^21 terms are exact in float64
TERMS = 2**21
LEAST_BITS = 20  # of the chance of an error: whatever is less sure is left open
SIGN_BITS = 62  # a factor looks like a small number, whose sign counts, once in so many bits
LOG_PRIMES = 25.5  # of the 5·10^7 primes between 2^30 and 2^31
SMALL = 2**30  # numerators and denominators that are recognised without having been listed


class NotCovered(Exception):
    """What no rule follows: the function is left open, nothing is wrong."""


class Collision(Exception):
    """Two values share a hash, which happens once in 2^24 programs of a million values: draw again."""


def _is_prime(n: int) -> bool:
    """Whether an odd number below 2^32 is prime: these bases decide it (Jaeschke 1993)."""
    d, s = n - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for base in (2, 7, 61):
        x = pow(base, d, n)
        if x in (1, n - 1):
            continue
        for _ in range(s - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


class Lanes:
    """The lanes: arrays of residues are `(LANES, *shape)`."""

    def __init__(self) -> None:
        primes: list[int] = []
        while len(primes) < PRIMES:
            n = secrets.randbits(30) | 1 << 30 | 1
            if n not in primes and _is_prime(n):
                primes.append(n)
        self.primes = primes
        self.modulus: int = prod(primes)
        self.p: Residues = np.array([*primes, *primes], dtype=np.int64)
        self.random: np.random.Generator = np.random.Generator(np.random.Philox(secrets.randbits(128)))
        self.mixing = self.random.integers(0, 2**63, LANES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self.signed: dict[bytes, Fraction | None] = {}  # ratios that were met, as the numbers that they are

    def primes_for(self, array: Residues) -> Residues:
        """The primes, shaped to act on an array of residues."""
        return self.p[: len(array)].reshape((-1,) + (1,) * (array.ndim - 1))

    def reduce(self, array: Residues) -> Residues:
        """Each lane modulo its prime."""
        return array % self.primes_for(array)

    def draw(self, shape: tuple[int, ...]) -> Residues:
        """Random points: new variables."""
        lanes = [self.random.integers(0, int(p), shape, dtype=np.int64) for p in self.p]
        return np.stack(lanes)

    def zeros(self, shape: tuple[int, ...]) -> Residues:
        """The number 0."""
        return np.zeros((LANES, *shape), dtype=np.int64)

    def rational(self, value: Fraction | int) -> Residues:
        """One exact number."""
        value = Fraction(value)
        return np.array(
            [value.numerator % int(p) * pow(value.denominator, -1, int(p)) % int(p) for p in self.p], dtype=np.int64
        )

    def floats(self, values: np.ndarray[Any, Any], lanes: int = LANES) -> Residues:
        """Floating-point numbers, exactly: an integer of 53 bits times a power of two each."""
        share, exponent = np.frexp(np.asarray(values, dtype=np.float64))
        whole = np.ldexp(share, 53).astype(np.int64)
        kinds, which = np.unique(exponent - 53, return_inverse=True)
        residues = np.empty((lanes, *np.shape(values)), dtype=np.int64)
        for lane, p in enumerate(self.p[:lanes].tolist()):
            powers = np.array([pow(2, int(e), p) for e in kinds], dtype=np.int64)
            residues[lane] = (whole % p) * powers[which].reshape(np.shape(values)) % p
        return residues

    def integers(self, values: np.ndarray[Any, Any]) -> Residues:
        """Integers, exactly."""
        whole = np.asarray(values, dtype=np.int64)
        return np.stack([whole % p for p in self.p])

    def times(self, a: Residues, b: Residues) -> Residues:
        """Entry by entry."""
        return self.reduce(a * b)

    def power(self, a: Residues, n: int) -> Residues:
        """A whole power; of degree -1, 0 stays 0 (which no random point is)."""
        if n < 0:
            return self.power(self.inverse(a), -n)
        total = np.ones_like(a)
        while n:
            total = self.times(total, a) if n & 1 else total
            a, n = self.times(a, a), n >> 1
        return total

    def inverse(self, a: Residues) -> Residues:
        """Fermat: a^(p-2)."""
        inverses = np.empty_like(a)
        for lane in range(len(a)):
            p = int(self.p[lane])
            base, total, n = a[lane], np.ones_like(a[lane]), p - 2
            while n:
                total = total * base % p if n & 1 else total
                base, n = base * base % p, n >> 1
            inverses[lane] = total
        return inverses

    def matmul(self, a: Residues, b: Residues) -> Residues:
        """Matrix products lane by lane, by exact products of halves in float64."""
        inner = a.shape[-1]
        if inner > TERMS:
            raise NotCovered("sums of so many terms")
        p = self.p[: len(a)].reshape((-1,) + (1,) * (max(a.ndim, b.ndim) - 1))
        if inner * min(a.shape[-2], b.shape[-1]) <= 16:  # too thin for a matrix product
            return np.asarray(sum(a[..., :, k, None] * b[..., None, k, :] % p for k in range(inner)) % p)
        low = (1 << HALF) - 1
        ah, al = (a >> HALF).astype(np.float64), (a & low).astype(np.float64)
        bh, bl = (b >> HALF).astype(np.float64), (b & low).astype(np.float64)
        high, middle, rest = ah @ bh, ah @ bl + al @ bh, al @ bl
        total = (high.astype(np.int64) % p << HALF) % p + middle.astype(np.int64) % p
        return np.asarray(((total % p << HALF) + rest.astype(np.int64) % p) % p)

    def groups(self, keys: Residues) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Columns that are the same in all lanes: the first of each kind, and of which kind each is.

        A secret hash sorts them, and then the columns themselves are compared: a collision is seen, never used.
        """
        mixing = self.mixing
        if len(keys) > len(mixing):
            mixing = np.resize(mixing, len(keys)) * (
                np.arange(len(keys), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
            )
        with np.errstate(over="ignore"):
            line = keys.astype(np.uint64)
            line = (line ^ (line << np.uint64(29))) * mixing[: len(keys), None]
            line = (line ^ (line >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
            hashed = np.bitwise_xor.reduce(line ^ (line >> np.uint64(29)), axis=0)
        _, first, kind = np.unique(hashed, return_index=True, return_inverse=True)
        kind = kind.reshape(-1)
        if not np.array_equal(keys, keys[:, first[kind]]):
            raise Collision
        return first, kind

    def number(self, ratio: Residues) -> Fraction | None:
        """The number with these residues: one that the certificate lists, or one of small size; None if there is none.

        At most one fraction with numerator and denominator below sqrt(M/2) has given residues modulo M (Wang 1981). Any
        residue has one of nearly that size, which says nothing: below 2^30 of the 2^124 only one in 2^64 has one.
        """
        key = ratio[:PRIMES].tobytes()
        if key not in self.signed:
            self.signed[key] = self._reconstruct([int(r) for r in ratio[:PRIMES]])
        return self.signed[key]

    def know(self, value: Fraction) -> None:
        """A number that the certificate lists: it is recognised whatever its size."""
        self.signed[self.rational(value)[:PRIMES].tobytes()] = value

    def _reconstruct(self, residues: list[int]) -> Fraction | None:
        total = 0
        for residue, p in zip(residues, self.primes, strict=True):
            rest = self.modulus // p
            total += residue * rest * pow(rest, -1, p)
        r0, r1, t0, t1 = self.modulus, total % self.modulus, 0, 1
        while r1 >= SMALL:
            q = r0 // r1
            r0, r1, t0, t1 = r1, r0 - q * r1, t1, t0 - q * t1
        return Fraction(r1, t1) if t1 and abs(t1) < SMALL else None


# New variables for functions that are no arithmetic: the same value gets the same variable, in all runs.

SMALL_TABLE = 200_000  # values of a function that are remembered one by one, to be met again at another node


@dataclass(eq=False)
class SideValues:
    """One array a run; the same object where runs cannot differ. `below`: entries that are minus infinity in all."""

    sides: list[Any]
    below: np.ndarray[Any, Any] | None = None
    positions: np.ndarray[Any, Any] | None = None  # the integers that a constant is


class FunctionVariables:
    """New variables for functions of values that runs share: the same value gets the same variable."""

    def __init__(self, field: Lanes) -> None:
        self.field = field
        self.known: dict[tuple[str, float], dict[bytes, Residues]] = {}
        self.node: object = None
        self.parted: object = None  # the first node at which one run has a value that the first run has not

    def distinct(self, sides: list[Residues]) -> list[Residues]:
        """The different arrays among the sides."""
        return list({id(array): array for array in sides}.values())

    def spread(
        self, sides: list[Residues], table: Residues, kinds: Any, shape: tuple[int, ...], scale: Any = None
    ) -> SideValues:
        """For each side its part of one long line of results."""
        line = table[:, kinds]
        if scale is not None:
            line = self.field.times(line, scale)
        parts: dict[int, Residues] = {}
        start = 0
        for array in self.distinct(sides):
            size = prod(array.shape[1:])
            parts[id(array)] = line[:, start : start + size].reshape(LANES, *shape)
            start += size
        return SideValues([parts[id(array)] for array in sides])

    def note_parting(self, sides: list[Residues], kinds: Any) -> None:
        """Remember the first node at which one side has values that the first side has not."""
        if self.parted is not None:
            return
        start, first = 0, None
        for array in self.distinct(sides):
            size = prod(array.shape[1:])
            values = np.unique(kinds[start : start + size])
            start += size
            if first is None:
                first = values
            elif not np.isin(values, first).all():
                self.parted = self.node
                return

    def variables(self, sides: list[Residues], shape: tuple[int, ...]) -> SideValues:
        """A variable for every different column of the keys `(lanes, *shape)`."""
        line = np.concatenate([array.reshape(len(array), -1) for array in self.distinct(sides)], axis=1)
        first, kinds = self.field.groups(line)
        self.note_parting(sides, kinds)
        return self.spread(sides, self.field.draw((len(first),)), kinds, shape)

    def function(self, name: str, detail: float, x: SideValues, shape: tuple[int, ...]) -> SideValues:
        """A function of one number whose values are remembered, so that another node or a fold meets them again."""
        sides = self.distinct(x.sides)
        line = np.concatenate([array.reshape(LANES, -1) for array in sides], axis=1)
        first, kinds = self.field.groups(line)
        self.note_parting(x.sides, kinds)
        if len(first) > SMALL_TABLE:
            return self.spread(x.sides, self.field.draw((len(first),)), kinds, shape)
        memory = self.known.setdefault((name, detail), {})
        table = self.field.draw((len(first),))
        for place, column in enumerate(np.ascontiguousarray(line[:, first].T)):
            if name == "power" and bool((column == 1).all()):
                table[:, place] = 1  # a value that is 1 at all points is the number 1
            else:
                table[:, place] = memory.setdefault(column.tobytes(), table[:, place].copy())
        return self.spread(x.sides, table, kinds, shape)

    def homogeneous(
        self, sides: list[Residues], extra: list[Residues] | None, degree: int, even: bool = False
    ) -> SideValues:
        """f with f(s x) = s^degree f(x) for numbers s > 0, degree 0 or 1.

        Values that are multiples of each other have the same quotient of their two points. The multiple is a number
        that has to be recognised: only then its sign is known.
        """
        field, shape = self.field, sides[0].shape[1:]
        line = np.concatenate([item.reshape(LANES, -1) for item in self.distinct(sides)], axis=1)
        beside = None
        if extra is not None:
            chosen = {id(one): two for one, two in zip(sides, extra, strict=True)}
            beside = np.concatenate([chosen[id(item)].reshape(LANES, -1) for item in self.distinct(sides)], axis=1)
        one, two = line[:PRIMES], line[PRIMES:]
        ratio = field.times(two, field.inverse(one))
        zero = np.asarray(~line.any(0))
        keys = np.concatenate([ratio, zero[None].astype(np.int64)] + ([] if beside is None else [beside]))
        first, kinds = field.groups(keys)
        scale = field.times(one, field.inverse(one[:, first[kinds]]))
        scale[:, zero] = 1
        scales, which = field.groups(scale)
        numbers = [field.number(scale[:, place]) for place in scales]
        sign = np.array([0 if item is None else (1 if item > 0 else -1) for item in numbers])[which]
        # Three kinds of variables: of the value that came first, of its opposite, and of what is no known multiple.
        by_value = np.zeros(len(kinds), dtype=np.int64)
        if (sign == 0).any():
            whole = line if beside is None else np.concatenate([line, beside])
            by_value = field.groups(whole)[1] + 1
        opposite = (sign < 0) & (not even)
        firsts, final = field.groups(np.stack([kinds, np.where(sign == 0, by_value, 0), opposite]).astype(np.int64))
        self.note_parting(sides, final)
        table = field.draw((len(firsts),))
        if degree == 0:
            return self.spread(sides, table, final, shape)
        table[:, zero[firsts]] = 0
        size = np.where(sign < 0, field.primes_for(scale) - scale, scale)
        size = np.where(sign == 0, 1, size)
        return self.spread(sides, table, final, shape, np.concatenate([size, size]))
