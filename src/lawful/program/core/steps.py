"""The steps of straight-line programs, each once: values and slopes as jets in any numbers, and what it is made of.

A linear or bilinear step is a table of terms, an entry being a sum of products of entries of its sources; a choice is
one as soon as the sides are known. A function of every entry is its float, its ball and its derivative; modulo a prime
it has no value, so any number may stand for it, if its derivative is then the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.program.core.jets import (
    Array,
    Jet,
    add_direction,
    below_prime,
    map_parts,
    plus,
    prime,
    product,
    scale_jet,
    split_jet,
    times,
    zeros,
)
from lawful.program.core.straight_line import ProgramStep
from lawful.types import Indices

DEPTH = 64  # products of two residues below 2²³ that add up exactly in float64: 2⁴⁶ · 2⁶ < 2⁵³
ZERO, ONE = -1, -2  # places of the numbers 0 and 1 behind all entries


@dataclass(frozen=True, eq=False)
class Terms:
    """Entry e is `Σ_k x[first[e, k]] x[second[e, k]]`, with x the entries of all sources, then 1 and 0."""

    first: Indices
    second: Indices


class CoreStep:
    """What a step computes; `degree` is that of its entries in those of its sources, None if there is no one degree."""

    degree: int | None = 1

    def count(self, step: ProgramStep) -> int:
        """How many terms an entry has."""
        return 1

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """The values, from those of the sources; `gate` are factors of choices and free values of functions."""
        raise NotImplementedError

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """The slope of one source from the slope of the step; `gate` are free slopes if there are any."""
        raise NotImplementedError

    def terms(self, step: ProgramStep, lengths: Sequence[int], sides: Array | None = None) -> Terms | None:
        """The terms of all entries; None if they are no sums of products. A choice needs the `sides` it takes."""
        return None


class Take(CoreStep):
    """Entries of the sources laid end to end."""

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """One indexing of all sources together."""
        indices = _indices(step)
        if len(arguments) == 1 and indices.min(initial=0) >= 0:
            return map_parts(arguments[0], lambda part: part[:, indices])
        result: Jet = {}
        for mask in {mask for jet in arguments for mask in jet}:
            rows = max(len(jet[mask]) for jet in arguments if mask in jet)
            like = next(jet[mask] for jet in arguments if mask in jet)
            pieces = []
            for jet in arguments:
                length = _length(jet)
                piece = jet.get(mask)
                piece = zeros((1, length), like) if piece is None else piece
                pieces.append(np.broadcast_to(piece, (rows, length)))
            pieces.append(zeros((rows, 1), like))  # what −1 points to
            result[mask] = np.concatenate(pieces, axis=1)[:, indices]
        return result

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """Every entry is added to the place that it was taken from."""
        lengths = [_length(jet) for jet in arguments]
        return map_parts(slope, lambda part: _scatter(part, step, sum(lengths[:place]), lengths[place]))

    def terms(self, step: ProgramStep, lengths: Sequence[int], sides: Array | None = None) -> Terms:
        """One entry, times 1."""
        return _linear(_indices(step)[:, None])


class Add(CoreStep):
    """Of two arrays."""

    def count(self, step: ProgramStep) -> int:
        """Two."""
        return 2

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """The sum."""
        return plus(arguments[0], arguments[1])

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """The slope itself."""
        return slope

    def terms(self, step: ProgramStep, lengths: Sequence[int], sides: Array | None = None) -> Terms:
        """One of each."""
        here = np.arange(step.length)
        return _linear(np.stack([here, lengths[0] + here], axis=1))


class SumRuns(CoreStep):
    """Sums of consecutive runs."""

    def count(self, step: ProgramStep) -> int:
        """The length of a run."""
        return step.sizes[0]

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """Run by run."""
        return map_parts(arguments[0], lambda part: below_prime(part.reshape(len(part), -1, step.sizes[0]).sum(axis=2)))

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """The slope of its run."""
        return map_parts(slope, lambda part: np.repeat(part, step.sizes[0], axis=1))

    def terms(self, step: ProgramStep, lengths: Sequence[int], sides: Array | None = None) -> Terms:
        """A run."""
        return _linear(np.arange(lengths[0]).reshape(-1, step.sizes[0]))


class Multiply(CoreStep):
    """Entry by entry."""

    degree = 2

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """The product."""
        return product(arguments[0], arguments[1], times)

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """Times the other factor."""
        return product(slope, arguments[1 - place], times)

    def terms(self, step: ProgramStep, lengths: Sequence[int], sides: Array | None = None) -> Terms:
        """One product."""
        here = np.arange(step.length)[:, None]
        return Terms(here, lengths[0] + here)


class MatMul(CoreStep):
    """A stack of matrix products."""

    degree = 2

    def count(self, step: ProgramStep) -> int:
        """The inner size."""
        return step.sizes[2]

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """The products."""
        return product(arguments[0], arguments[1], lambda a, b: _matmul(step.sizes, a, b))

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """Times the other factor, transposed."""
        n, p, q, r = step.sizes
        rows, columns = (q, r) if place == 0 else (p, q)
        turned = map_parts(
            arguments[1 - place],
            lambda part: part.reshape(-1, n, rows, columns).swapaxes(2, 3).reshape(len(part), -1),
        )
        if place == 0:
            return product(slope, turned, lambda g, b: _matmul((n, p, r, q), g, b))
        return product(slope, turned, lambda g, a: _matmul((n, q, p, r), a, g))

    def terms(self, step: ProgramStep, lengths: Sequence[int], sides: Array | None = None) -> Terms:
        """A row times a column."""
        n, p, q, r = step.sizes
        whole = (n, p, r, q)
        left = np.arange(n * p * q).reshape(n, p, 1, q)
        right = lengths[0] + np.arange(n * q * r).reshape(n, 1, q, r).swapaxes(2, 3)
        return Terms(*(np.broadcast_to(part, whole).reshape(-1, q) for part in (left, right)))


class Choose(CoreStep):
    """The entries of the second array where the first is positive, else of the third."""

    degree = None

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """By the signs, or a mixture by the gates."""
        if gate is not None:
            return plus(product({0: gate}, arguments[1], times), product({0: 1 - gate}, arguments[2], times))
        return _chosen(told_signs(arguments[0]), arguments[1], arguments[2])

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """Of what was chosen: a sign has no slope."""
        if place == 0:
            return {}
        if gate is not None:
            return product(slope, {0: gate if place == 1 else 1 - gate}, times)
        signs = told_signs(arguments[0])
        nothing: Jet = {mask: part * 0 for mask, part in slope.items()}
        return _chosen(signs, slope, nothing) if place == 1 else _chosen(signs, nothing, slope)

    def terms(self, step: ProgramStep, lengths: Sequence[int], sides: Array | None = None) -> Terms | None:
        """What was chosen."""
        if sides is None:
            return None
        here = lengths[0] + np.arange(step.length)
        return _linear(np.where(np.asarray(sides, dtype=bool), here, here + lengths[1])[:, None])


@dataclass(frozen=True, eq=False)
class Function(CoreStep):
    """A smooth function of every entry.

    `derivative(x, f(x))` is over jets. Where any number stands for f(x), the derivative is `free_slope(1/x, f(x))`,
    or the number that stands for another function of x, up to a sign: `partner`.
    """

    name: str
    floats: Callable[[Array], Array]
    ball: Callable[[Any], Any]
    derivative: Callable[[Jet, Jet], Jet]
    free_slope: Callable[[Callable[[], Array], Array], Array] | None = None
    partner: tuple[str, int] = ("", 1)
    rational: bool = False  # a quotient: it has a value in any field
    degree = None

    def apply(self, jet: Jet) -> Jet:
        """`f(a + εb) = f(a) + ε f'(a) b`, one infinitesimal after the other."""
        top = max(jet)
        if top == 0:
            return {0: self._values(jet[0])}
        epsilon = 1 << (top.bit_length() - 1)
        low, high = split_jet(jet, epsilon)
        value = self.apply(low)
        return add_direction(value, product(self.derivative(low, value), high, times), epsilon)

    def _values(self, value: Array) -> Array:
        if value.dtype == object:
            return np.asarray(np.frompyfunc(self.ball, 1, 1)(value), dtype=object)
        if value.dtype == np.int64:
            if not self.rational:
                raise Unsupported(f"{self.name} has no residues")
            return _inverse(value)
        with np.errstate(all="ignore"):
            return np.asarray(self.floats(value))

    def forward(self, step: ProgramStep, arguments: list[Jet], gate: Array | None = None) -> Jet:
        """The values, or the free ones."""
        return self.apply(arguments[0]) if gate is None else {0: gate}

    def backward(
        self, step: ProgramStep, place: int, slope: Jet, arguments: list[Jet], value: Jet, gate: Array | None = None
    ) -> Jet:
        """Times the derivative; beside a free value, the one that belongs to it."""
        if gate is None:
            return product(slope, self.derivative(arguments[0], value), times)
        if self.free_slope is not None:
            gate = self.free_slope(lambda: _inverse(arguments[0][0]), gate)
        return product(slope, {0: gate}, times)


def _gauss(at: Jet, _: Jet) -> Jet:
    """`erf' = 2/√π exp(−x²)`."""
    density = FUNCTIONS["exp"].apply(scale_jet(product(at, at, times), -1))
    return map_parts(density, lambda part: part * _two_over_root_pi(part.dtype == object))


def _two_over_root_pi(exact: bool) -> Any:
    from flint import arb

    number = 2 / arb.pi().sqrt()
    return number if exact else float(number.mid())


def _cube(_: Jet, value: Jet) -> Jet:
    """`(x^−½)' = −½ (x^−½)³`."""
    return map_parts(product(product(value, value, times), value, times), lambda part: part * -0.5)


def _minus_square(_: Jet, value: Jet) -> Jet:
    return scale_jet(product(value, value, times), -1)


def _half_inverse(inverse: Callable[[], Array], value: Array) -> Array:
    """`−½ f/x`; modulo a prime −½ is (p − 1)/2."""
    return times(times(value, inverse()), np.asarray((prime() - 1) // 2))


FUNCTIONS: dict[str, Function] = {
    each.name: each
    for each in (
        Function("exp", np.exp, lambda x: x.exp(), lambda at, value: value, lambda inverse, value: value),
        Function("erf", scipy.special.erf, lambda x: x.erf(), _gauss, partner=("slope of erf", 1)),
        Function("reciprocal", np.reciprocal, lambda x: 1 / x, _minus_square, rational=True),
        Function("rsqrt", lambda x: 1 / np.sqrt(x), lambda x: x.rsqrt(), _cube, _half_inverse),
        Function(
            "log", np.log, lambda x: x.log(), lambda at, _: FUNCTIONS["reciprocal"].apply(at),
            lambda inverse, value: inverse(),
        ),
        Function("sin", np.sin, lambda x: x.sin(), lambda at, _: FUNCTIONS["cos"].apply(at), partner=("cos", 1)),
        Function(
            "cos", np.cos, lambda x: x.cos(), lambda at, _: scale_jet(FUNCTIONS["sin"].apply(at), -1),
            partner=("sin", -1),
        ),
    )
}  # fmt: skip
STEPS: dict[str, CoreStep] = {
    "take": Take(), "add": Add(), "mul": Multiply(), "matmul": MatMul(), "sum": SumRuns(), "choose": Choose(),
    **FUNCTIONS,
}  # fmt: skip


def told_signs(jet: Jet) -> NDArray[np.bool_]:
    """Where the value is positive; where it cannot be told, the program has no derivative that can be trusted."""
    value = jet[0]
    if value.dtype == np.int64:
        raise Unsupported("residues have no sign")
    if value.dtype != object:
        return np.asarray(value > 0)
    positive = np.asarray(np.frompyfunc(lambda x: bool(x > 0), 1, 1)(value), dtype=bool)
    negative = np.asarray(np.frompyfunc(lambda x: bool(x < 0), 1, 1)(value), dtype=bool)
    if not (positive | negative).all():
        raise ArithmeticError("a sign cannot be told")
    return positive


def _inverse(value: Array) -> Array:
    """`1/x = x^(p−2)` modulo the prime."""
    if not value.all():
        raise ZeroDivisionError("a residue is 0")
    result, power, p = np.ones_like(value), value, prime()
    for digit in reversed(f"{p - 2:b}"):
        result = result * power % p if digit == "1" else result
        power = power * power % p
    return result


def _indices(step: ProgramStep) -> Indices:
    return step.indices if step.indices is not None else np.zeros(0, dtype=np.intp)


def _length(jet: Jet) -> int:
    return int(next(iter(jet.values())).shape[1])


def _linear(first: Indices) -> Terms:
    return Terms(first, np.full(first.shape, ONE))


def _matmul(sizes: tuple[int, ...], first: Array, second: Array) -> Array:
    n, p, q, r = sizes
    left, right = first.reshape(-1, n, p, q), second.reshape(-1, n, q, r)
    result = _residue_product(left, right) if first.dtype == np.int64 else np.matmul(left, right)
    return np.asarray(result.reshape(len(result), -1))


def _residue_product(left: Array, right: Array) -> Array:
    """In float64, exactly: residues below 2²³ and at most DEPTH products at a time."""
    total = np.zeros(1, dtype=np.int64)
    for start in range(0, left.shape[-1], DEPTH):
        part = left[..., start : start + DEPTH].astype(float) @ right[..., start : start + DEPTH, :].astype(float)
        total = (total + part.astype(np.int64)) % prime()
    return total


def _chosen(signs: NDArray[np.bool_], positive: Jet, other: Jet) -> Jet:
    zero = zeros((1, 1), next(iter({**positive, **other}.values())))
    return {
        mask: np.where(signs, positive.get(mask, zero), other.get(mask, zero))
        for mask in positive.keys() | other.keys()
    }


def _scatter(part: Array, step: ProgramStep, start: int, length: int) -> Array:
    """Add every entry to the place that it was taken from."""
    indices = _indices(step)
    here = np.flatnonzero((indices >= start) & (indices < start + length))
    targets = indices[here] - start
    result = zeros((len(part), length), part)
    if not len(targets):
        return result
    order = np.argsort(targets, kind="stable")
    distinct, first = np.unique(targets[order], return_index=True)
    if len(distinct) == len(targets):
        result[:, targets] = part[:, here]
    else:
        result[:, distinct] = below_prime(np.add.reduceat(part[:, here[order]], first, axis=1))
    return result
