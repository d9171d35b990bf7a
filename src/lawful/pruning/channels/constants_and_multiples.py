"""What is known of every channel of every activation: its constant value, and which others it is a multiple of.

Both are facts of algebra about the weights as rational numbers; nothing is measured. A constant is a rational where it
is known as one, and a ball of 200 bits around it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from lawful.exact.proportional_rows import ONE, rays
from lawful.pruning.channels.program import Arguments, ChannelProgram, Heads, Operation, Spot
from lawful.types import Floats

BITS = 200
Value = Any  # a Fraction, or a ball of FLINT that holds the real number
ZERO = Fraction(0)
# Of the functions that readings name, those of which the verifier knows as much: the table of operators says it of more
# (asin, round), and what rests on those would be refused.
VANISHING = ("tanh", "erf", "sin", "sinh", "atan", "expm1", "log1p", "sqrt", "softshrink")  # 0 at 0
ODD = ("tanh", "erf", "sin", "atan", "sinh", "softshrink")  # f(−x) = −f(x)
EVEN = ("cos", "cosh")  # f(−x) = f(x)


def parity(function: str, arguments: Arguments) -> int:
    """−1 for an odd function, 1 for an even one, 0 for others.

    >>> parity("tanh", ()), parity("power", (2.0,)), parity("sigmoid", ())
    (-1, 1, 0)
    """
    if function == "power" and isinstance(arguments[0], float) and arguments[0].is_integer():
        return 1 if arguments[0] % 2 == 0 else -1
    return -1 if function in ODD else 1 if function in EVEN else 0


def ball(value: Value) -> Any:
    """A ball around a value."""
    return arb(fmpq(value.numerator, value.denominator)) if isinstance(value, Fraction) else value


def nearest(value: Value) -> float:
    """A value as a double."""
    return float(value) if isinstance(value, Fraction) else float(value.mid())


def is_rational(value: Value | None) -> bool:
    """Whether a value is known exactly."""
    return isinstance(value, Fraction)


def is_double(value: Value) -> bool:
    """Whether a value is known exactly, and is a double."""
    return isinstance(value, Fraction) and Fraction(nearest(value)) == value


def combine(terms: Iterable[tuple[float | Fraction, Value]], start: Value = ZERO) -> Value:
    """`start + Σ weight · value`.

    >>> combine([(2.0, Fraction(1, 3)), (0.5, Fraction(1))])
    Fraction(7, 6)
    """
    total = start
    for weight, value in terms:
        factor = Fraction(weight)
        if not factor or (isinstance(value, Fraction) and not value):
            continue
        if isinstance(total, Fraction) and isinstance(value, Fraction):
            total = total + factor * value
        else:
            total = ball(total) + ball(factor) * ball(value)
    return total


def product(one: Value, two: Value) -> Value:
    """The product; a rational 0 stays one."""
    if isinstance(one, Fraction) and isinstance(two, Fraction):
        return one * two
    return ZERO if one == ZERO or two == ZERO else ball(one) * ball(two)


def normalise(value: Value, mean: float, variance: float, epsilon: float, gain: float, shift: float) -> Value:
    """`(value − mean)/√(variance + epsilon) · gain + shift`."""
    away = combine([(-1.0, Fraction(mean))], value)
    if gain == 0 or (isinstance(away, Fraction) and not away):
        return Fraction(shift)
    root = ball(Fraction(variance) + Fraction(epsilon)).sqrt()
    return ball(away) * ball(Fraction(gain)) / root + ball(Fraction(shift))


def apply_function(function: str, arguments: Arguments, value: Value) -> Value | None:
    """An elementwise function of a value; None where the function is not known here.

    >>> apply_function("relu", (), Fraction(-3)), apply_function("clamp_max", (6.0,), Fraction(9))
    (Fraction(0, 1), Fraction(6, 1))
    >>> apply_function("tanh", (), Fraction(0))
    Fraction(0, 1)
    """
    numbers = [Fraction(part) for part in arguments if not isinstance(part, str)]
    match function:
        case "relu":
            return _rectify(value)
        case "power":
            whole = numbers[0].denominator == 1 and 0 < numbers[0] < 10
            return value ** int(numbers[0]) if whole else None
        case "abs":
            return abs(value)
        case "clamp_min" | "clamp_max":
            return _clamp(value, numbers[0], below=function == "clamp_min")
        case "add number":
            return combine([(1.0, numbers[0])], value)
        case "mul number":
            return product(value, numbers[0])
    if value == ZERO and function in VANISHING:
        return ZERO
    x, one = ball(value), arb(1)
    match function:
        case "sigmoid":
            return one / (one + (-x).exp())
        case "tanh":
            return x.tanh()
        case "erf":
            return x.erf()
        case "softplus" if bool(x * ball(numbers[0]) < ball(numbers[1])):
            return (one + (x * ball(numbers[0])).exp()).log() / ball(numbers[0])
        case "exp":
            return x.exp()
        case "sin":
            return x.sin()
        case "cos":
            return x.cos()
    return None


def _sign(value: Value) -> int:
    """1 or −1 where it is sure, else 0."""
    return 1 if value > 0 else -1 if value < 0 else 0


def _rectify(value: Value) -> Value:
    if isinstance(value, Fraction):
        return max(value, ZERO)
    sign = _sign(value)
    return value if sign > 0 else ZERO if sign < 0 else (value + abs(value)) / 2


def _clamp(value: Value, bound: Fraction, *, below: bool) -> Value | None:
    """`max(value, bound)`, or `min`; None for a ball that holds the bound."""
    if isinstance(value, Fraction):
        return max(value, bound) if below else min(value, bound)
    sign = _sign(value - ball(bound))
    return None if not sign else value if (sign > 0) is below else bound


SIDED = ("relu", "leaky_relu")  # treat positive and negative values apart


class RowWeights(Protocol):
    """The weights of a program as they are now."""

    program: ChannelProgram

    @property
    def arrays(self) -> Mapping[str, Floats]:
        """All tensors by name."""

    def weight(self, operation: Operation) -> Floats:
        """The weight of a layer."""

    def bias(self, operation: Operation) -> Floats:
        """Its bias, zeros if it has none."""

    def exact_bias(self, operation: Operation, row: int) -> Value:
        """One entry of the bias, before it was rounded."""

    def rounded(self, operation: Operation) -> NDArray[np.bool_]:
        """Rows that are not exactly what they should be: no exact statement rests on them."""


class Facts:
    """For every activation: constants by place, and for each place a key and a factor.

    Channels with one key are multiples of one function, by their factors, which are not 0.
    """

    def __init__(self, weights: RowWeights) -> None:
        self.weights = weights
        self.constant: dict[str, dict[int, Value]] = {}
        self.keys: dict[str, list[int]] = {}
        self.factors: dict[str, list[Fraction]] = {}
        self._numbers: dict[Any, int] = {}
        known = {operation.name: operation for operation in weights.program.operations}
        for name, spot in weights.program.spots.items():
            operation = known.get(name)
            if operation is None or operation.kind == "other":
                self._set(name, {}, [(name, place) for place in range(len(spot.cells))])
            else:
                getattr(self, f"_{operation.kind}")(operation, spot)

    def values(self, name: str, places: Sequence[int]) -> list[Value | None]:
        """The constant at each place, or None."""
        constants = self.constant[name]
        return [constants.get(place) for place in places]

    def _set(
        self, name: str, constant: dict[int, Value], keys: Sequence[Any], factors: list[Fraction] | None = None
    ) -> None:
        self.constant[name] = constant
        self.keys[name] = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        self.factors[name] = factors or [ONE] * len(self.keys[name])

    def _layer(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.name, operation.sources[0]
        weight, bias = self.weights.weight(operation), self.weights.bias(operation)
        flat = weight.reshape(len(weight), weight.shape[1], -1)
        steady = self._steady(operation)
        moving = np.ones(weight.shape[1], dtype=bool)
        moving[list(steady)] = False
        constant: dict[int, Value] = {}
        for row in np.flatnonzero(~flat[:, moving].any(axis=(1, 2))).tolist():
            heard = [place for place in steady if flat[row, place].any()]
            terms = ((tap, self.constant[source][place]) for place in heard for tap in flat[row, place].tolist())
            constant[row] = combine(terms, self.weights.exact_bias(operation, row))
        keys, factors = rays(np.concatenate([weight.reshape(len(weight), -1), bias[:, None]], axis=1))
        rounded = self.weights.rounded(operation)
        alone = [(name, "row", row) if rounded[row] else (name, key) for row, key in enumerate(keys)]
        self._set(name, constant, alone, factors)

    def _steady(self, operation: Operation) -> dict[int, Value]:
        """Channels whose value is the same wherever the operation reads: not beside a border of zeros."""
        constants = self.constant[operation.sources[0]]
        return {place: value for place, value in constants.items() if not operation.padded or value == 0}

    def _depthwise(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.name, operation.sources[0]
        weight, bias = self.weights.weight(operation), self.weights.bias(operation)
        flat, steady = weight.reshape(len(weight), -1), self._steady(operation)
        constant: dict[int, Value] = {}
        for row in range(len(flat)):
            if not flat[row].any():
                constant[row] = Fraction(float(bias[row]))
            elif row in steady:
                constant[row] = combine(((tap, steady[row]) for tap in flat[row].tolist()), Fraction(float(bias[row])))
        rows = [row.tobytes() for row in np.concatenate([flat, bias[:, None]], axis=1) + 0.0]
        pairs = zip(self.keys[source], self.factors[source], rows, strict=True)
        self._set(name, constant, [(name, *pair) for pair in pairs])

    def _norm(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.name, operation.sources[0]
        mean, variance, gain, shift = norm_tensors(operation, self.weights.arrays)
        epsilon = float(operation.arguments[0])
        constant = {place: Fraction(float(shift[place])) for place in np.flatnonzero(gain == 0).tolist()}
        for place, value in self.constant[source].items():
            at, spread, by, up = (float(array[place]) for array in (mean, variance, gain, shift))
            constant[place] = normalise(value, at, spread, epsilon, by, up)
        keys, factors = rays(np.stack([gain, shift], axis=1))
        parts = zip(self.keys[source], self.factors[source], mean.tolist(), variance.tolist(), keys, strict=True)
        self._set(name, constant, [(name, *part) for part in parts], factors)

    def _copy(self, operation: Operation, spot: Spot) -> None:
        source = operation.sources[0]
        self._follow(operation, dict(self.constant[source]))

    def _same(self, operation: Operation, spot: Spot) -> None:
        if operation.function in SIDED:
            self._keep_sides_apart(operation, self._apply_to_constants(operation))
        elif operation.function == "abs":
            name, source = operation.name, operation.sources[0]
            keys = [(name, key) for key in self.keys[source]]
            self._set(name, self._apply_to_constants(operation), keys, [abs(factor) for factor in self.factors[source]])
        else:
            self._follow(operation, self._apply_to_constants(operation))

    def _slopes(self, operation: Operation, spot: Spot) -> None:
        slopes = self.weights.arrays[str(operation.tensors["weight"])].tolist()
        constants = self.constant[operation.sources[0]].items()
        constant = {place: apply_function("leaky_relu", (slopes[place],), value) for place, value in constants}
        self._keep_sides_apart(operation, constant, slopes)

    def _keep_sides_apart(
        self, operation: Operation, constant: dict[int, Value], own: Sequence[float] | None = None
    ) -> None:
        """What treats the two signs apart: only positive multiples stay multiples."""
        name, source = operation.name, operation.sources[0]
        parts = zip(self.keys[source], self.factors[source], own or [0.0] * len(self.keys[source]), strict=True)
        keys = [(name, key, factor > 0, offset) for key, factor, offset in parts]
        self._set(name, constant, keys, [abs(factor) for factor in self.factors[source]])

    def _instance(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.name, operation.sources[0]
        gain, shift = self._gains(operation, len(spot.cells))
        still = {*np.flatnonzero(gain == 0).tolist(), *self.constant[source]}
        keys, factors = rays(np.stack([gain, shift], axis=1))
        parts = zip(self.keys[source], self.factors[source], keys, strict=True)
        self._set(
            name, {place: Fraction(float(shift[place])) for place in still}, [(name, *part) for part in parts], factors
        )

    def _scale(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.name, operation.sources[0]
        gain, shift = self._gains(operation, len(spot.cells))
        constant: dict[int, Value] = {
            place: Fraction(float(shift[place])) for place in np.flatnonzero(gain == 0).tolist()
        }
        for place, value in self.constant[source].items():
            constant[place] = combine([(float(gain[place]), value)], Fraction(float(shift[place])))
        if not shift.any():  # multiples stay multiples
            still = [place for place in range(len(gain)) if gain[place] == 0]
            factors = [
                factor * Fraction(float(by)) if by else ONE
                for factor, by in zip(self.factors[source], gain.tolist(), strict=True)
            ]
            keys: list[tuple[Any, ...]] = [(name, key) for key in self.keys[source]]
            for place in still:
                keys[place] = (name, "zero", self.keys[source][place])
            self._set(name, constant, keys, factors)
            return
        rows = [
            (key, Fraction(float(by)) * factor / Fraction(float(up)) if up else ("through 0", key), bool(by))
            for key, factor, by, up in zip(
                self.keys[source], self.factors[source], gain.tolist(), shift.tolist(), strict=True
            )
        ]
        factors = [
            Fraction(float(up)) if up else (Fraction(float(by)) * factor if by else ONE)
            for factor, by, up in zip(self.factors[source], gain.tolist(), shift.tolist(), strict=True)
        ]
        self._set(name, constant, [(name, *row) for row in rows], factors)

    def _gains(self, operation: Operation, count: int) -> tuple[Floats, Floats]:
        gain, shift = (
            np.full(count, default)
            if operation.tensors[role] is None
            else self.weights.arrays[str(operation.tensors[role])].reshape(count)
            for role, default in (("weight", 1.0), ("bias", 0.0))
        )
        return gain, shift

    def _bend(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.name, operation.sources[0]
        kind = parity(operation.function, operation.arguments)
        pairs = list(zip(self.keys[source], self.factors[source], strict=True))
        keys = [(name, key, abs(factor) if kind else factor) for key, factor in pairs]
        self._set(
            name,
            self._apply_to_constants(operation),
            keys,
            [-ONE if kind < 0 and factor < 0 else ONE for _, factor in pairs],
        )

    def _apply_to_constants(self, operation: Operation) -> dict[int, Value]:
        values = {
            place: apply_function(operation.function, operation.arguments, value)
            for place, value in self.constant[operation.sources[0]].items()
        }
        return {place: value for place, value in values.items() if value is not None}

    def _pool(self, operation: Operation, spot: Spot) -> None:
        self._keep_sides_apart(operation, self._steady(operation))

    def _follow(self, operation: Operation, constant: dict[int, Value]) -> None:
        name, source = operation.name, operation.sources[0]
        self._set(name, constant, [(name, key) for key in self.keys[source]], self.factors[source])

    def _flat(self, operation: Operation, spot: Spot) -> None:
        name, source, width = operation.name, operation.sources[0], operation.width
        keys = [(name, key, place) for key in self.keys[source] for place in range(width)]
        factors = [factor for factor in self.factors[source] for _ in range(width)]
        values = self.constant[source].items()
        self._set(name, {place * width + at: value for place, value in values for at in range(width)}, keys, factors)

    def _cat(self, operation: Operation, spot: Spot) -> None:
        sources = operation.sources
        keys = [(operation.name, key) for source in sources for key in self.keys[source]]
        factors = [factor for source in sources for factor in self.factors[source]]
        constant: dict[int, Value] = {}
        start = 0
        for source in sources:
            constant |= {start + place: value for place, value in self.constant[source].items()}
            start += len(self.keys[source])
        self._set(operation.name, constant, keys, factors)

    def _part(self, operation: Operation, spot: Spot) -> None:
        name, source, start = operation.name, operation.sources[0], int(operation.arguments[0])
        mine = slice(start, start + len(spot.cells))
        constants = self.constant[source].items()
        constant = {place - start: value for place, value in constants if mine.start <= place < mine.stop}
        self._set(name, constant, [(name, key) for key in self.keys[source][mine]], self.factors[source][mine])

    def _attend(self, operation: Operation, spot: Spot) -> None:
        """Values are averaged with the weights of their head: multiples stay multiples, and constants are kept."""
        heads, source = operation.attention, operation.sources[2]
        if heads is None:
            raise AssertionError("an attention has heads")
        scores = self._scores(operation, heads)
        places = [
            (score, int(place)) for group, row in enumerate(heads.values) for score in scores[group] for place in row
        ]
        constants = self.constant[source]
        constant = {
            at: constants[place] for at, (_, place) in enumerate(places)
            if place in constants and (heads.whole or constants[place] == 0)
        }  # fmt: skip
        keys = [(operation.name, score, self.keys[source][place]) for score, place in places]
        self._set(operation.name, constant, keys, [self.factors[source][place] for _, place in places])

    def _scores(self, operation: Operation, heads: Heads) -> list[list[Any]]:
        """For every head a key: heads with one key have the same scores, whatever is read."""
        queries, keys = operation.sources[:2]
        by_group: list[list[Any]] = []
        for group in range(heads.groups):
            by_group.append([])
            for head in range(heads.heads):
                terms: list[Any] = []
                for place, (query, key) in enumerate(
                    zip(heads.queries[group, head].tolist(), heads.keys[group].tolist(), strict=True)
                ):
                    names = self.keys[queries][query], self.keys[keys][key]
                    factors = self.factors[queries][query], self.factors[keys][key]
                    if heads.rotary:
                        terms.append((place, *names, *factors))
                    elif not self.needs_no_score(operation, query, key):
                        terms.append((*names, factors[0] * factors[1]))
                by_group[-1].append(tuple(terms if heads.rotary else sorted(terms)) if heads.alike else (group, head))
        return by_group

    def needs_no_score(self, operation: Operation, query: int, key: int) -> bool:
        """Whether a product of an inner channel changes no weights: it is 0, or the same for all keys."""
        one, two = self.constant[operation.sources[0]].get(query), self.constant[operation.sources[1]].get(key)
        return (two is not None) or (one is not None and one == ZERO)

    def _add(self, operation: Operation, spot: Spot, sign: float = 1.0) -> None:
        name, (one, two) = operation.name, operation.sources
        parts = zip(self.keys[one], self.keys[two], self.factors[one], self.factors[two], strict=True)
        keys = [(name, first, second, other / divisor) for first, second, divisor, other in parts]
        both = self.constant[one].keys() & self.constant[two].keys()
        constant = {place: combine([(sign, self.constant[two][place])], self.constant[one][place]) for place in both}
        self._set(name, constant, keys, self.factors[one])

    def _sub(self, operation: Operation, spot: Spot) -> None:
        self._add(operation, spot, -1.0)

    def _mul(self, operation: Operation, spot: Spot) -> None:
        name, (one, two) = operation.name, operation.sources
        keys = [(name, first, second) for first, second in zip(self.keys[one], self.keys[two], strict=True)]
        factors = [factor * other for factor, other in zip(self.factors[one], self.factors[two], strict=True)]
        first, second = self.constant[one], self.constant[two]
        constant = {place: product(first[place], second[place]) for place in first.keys() & second.keys()}
        constant |= {
            place: Fraction(0) for constants in (first, second) for place, value in constants.items() if value == 0
        }
        self._set(name, constant, keys, factors)


def norm_tensors(operation: Operation, arrays: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean, variance, gain and shift of a normalisation."""
    mean, variance = (arrays[str(operation.tensors[role])] for role in ("mean", "variance"))
    gain, shift = (
        np.full(len(mean), default) if operation.tensors[role] is None else arrays[str(operation.tensors[role])]
        for role, default in (("weight", 1.0), ("bias", 0.0))
    )
    return mean, variance, gain, shift
