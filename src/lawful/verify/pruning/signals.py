"""The two networks of a pruning, run side by side at random points: what each channel carries for every input.

**Idea.** The signal of a channel is a sum of terms: a number, times linear maps of positions that were applied one
after the other (a tap of a kernel, a head of attention), times a signal that some function made, or the signal 1.
Numbers are taken modulo random primes, and maps and signals are random variables: equal sums are equal signals, but
for a small chance (Schwartz and Zippel). A function of a signal is a new variable, the same one for the same signal,
in both networks.

**Invariant.** Each map belongs to one operation, and operations are applied in their order, so a product of maps says
in which order they came. Every term has exactly one signal: a product of two signals is a new one. The signal 1 is
kept apart (`still`), since a map leaves it as it is unless a border of zeros is read. A channel without any other is
a constant, and its number is known in a table by its residues: as a fraction, or as a ball.

**Laws of functions** that are used: f(s x) = s f(x) for numbers s > 0 (relu, pools), f(-x) = -f(x) or f(x); a softmax
does not see what is added to all keys, so only what moves of a key counts, and scores are told by Σ q(x) k(x') at two
points.

Nothing is inferred about channels: the smaller network is run with the numbers that follow from what the certificate
lists, and its outputs have to be the same. Cost: every weight once, modulo four primes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import log2, prod
from typing import Any, NamedTuple

import numpy as np

from lawful.errors import CertificateError, Unsupported
from lawful.verify.core.residues import (
    LANES,
    LEAST_BITS,
    LOG_PRIMES,
    PRIMES,
    SIGN_BITS,
    FunctionVariables,
    Lanes,
    Residues,
)
from lawful.verify.core.schema import MOST_SUM_BITS, check_clock, require
from lawful.verify.pruning.constants import ZERO, Value, evaluate, exact, parity, plus, standardise, times
from lawful.verify.pruning.program import ChannelStep, Move, Tensor

AT_ONCE = 2**19  # weights that are taken modulo the primes together: 70 MB with what a product needs
# From the largest number of a type to the last bit of its smallest, so that all are integers of so many bits.
TYPE_BITS = {"float16": 41.0, "bfloat16": 262.0, "float32": 278.0, "float64": 2099.0}
MOST_LENGTH = 2.0**64  # bits that are still counted: whatever is longer is refused
FACTORS = ("neg", "mul number", "div number")
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Signals(NamedTuple):
    """Channels `(LANES, 2, channels)`, before and after: what moves with the input, and multiples of the signal 1."""

    moving: Residues
    still: Residues
    degree: float  # of the polynomials in random variables
    bits: float  # of their numbers

    @property
    def constant(self) -> Mask:
        """Which channels are numbers, in each network."""
        still_ones: Mask = np.logical_not(self.moving.any(0))
        return still_ones


class ChannelRun(FunctionVariables):
    """One pass over the operations, in both networks at once."""

    def __init__(
        self,
        steps: Sequence[ChannelStep],
        tensors: dict[str, Tensor],
        alive: Sequence[Mask],
        moves: Sequence[Move],
        dropped: Sequence[int],
    ) -> None:
        super().__init__(Lanes())  # primes and points are drawn here, when all has been read
        self.steps, self.tensors, self.alive, self.dropped = steps, tensors, alive, set(dropped)
        self.moves: dict[int, list[Move]] = {}
        self.factor_bits = 60.0  # of factors that come out of functions: small ones, and those that are listed
        for move in moves:
            self.moves.setdefault(move.step, []).append(move)
            for _, factor in move.terms:
                self.know(factor)
        self.one = self.field.draw(())  # the signal 1 where all of a signal is told by one residue
        self.drawn: dict[object, Residues] = {}
        self.numbers: dict[bytes, Value] = {self.field.zeros(()).tobytes(): ZERO}
        self.folded: dict[tuple[int, int], Value] = {}  # the constants that readers take over, by layer and column
        self._folded: dict[tuple[int, int], Residues] = {}
        self.grown: dict[int, float] = {}  # bits that moves add to the weights of a layer
        self.pairs = self.told = 1.0
        self.most_degree = self.most_bits = 1.0

    def know(self, factor: Fraction) -> None:
        """A factor whose sign is recognised."""
        if factor:
            for ratio in (factor, -factor, 1 / factor, -1 / factor):
                self.field.know(ratio)
            self.factor_bits = max(self.factor_bits, 2.0 * _bits(factor))

    def same_results(self, results: Sequence[int]) -> bool:
        """Run both; whether all results are the same signals."""
        last = {source: at for at, step in enumerate(self.steps) for source in step.sources}
        values: dict[int, Signals] = {}
        for at, step in enumerate(self.steps):
            check_clock()
            self.node = at
            signals = self.value(at, step, [values[source] for source in step.sources])
            for part in (signals.moving, signals.still):
                part[:, 1, ~self.alive[at]] = 0
            self.most_degree = max(self.most_degree, signals.degree)
            self.most_bits = max(self.most_bits, signals.bits)
            values[at] = signals
            for source in {*step.sources, at} - set(results):
                if last.get(source, at) == at:
                    del values[source]
        return all(np.array_equal(part[:, 0], part[:, 1]) for at in results for part in values[at][:2])

    def check_chance(self) -> int:
        """A number k so that other signals are taken for the same with a chance below 2^-k, if it is large enough.

        Keys are compared in four lanes at least (quotients of two points, products of two points): each has a chance of
        2d/p. A number of h bits is 0 modulo one of at most h/30 primes. Both count for each pair that is compared.
        """
        by_points = PRIMES * (30 - log2(4 * self.most_degree)) - log2(self.pairs)
        by_primes = PRIMES * (LOG_PRIMES - log2(max(4 * self.most_bits / 30, 1))) - log2(self.pairs)
        k = int(min(by_points, by_primes, SIGN_BITS - log2(self.told)) - 2)
        if k < LEAST_BITS:
            raise Unsupported("a chance of an error that is too large: operations that multiply so many numbers")
        return k

    # Parts

    def variable(self, *key: object) -> Residues:
        """The variable that stands for something."""
        if key not in self.drawn:
            self.drawn[key] = self.field.draw(())
        return self.drawn[key]

    def number(self, x: Signals, side: int, channel: int) -> Value | None:
        """The number that a constant channel is, if it is known."""
        if x.moving[:, side, channel].any():
            return None
        return self.numbers.get(x.still[:, side, channel].tobytes())

    def note(self, found: Signals, value_of: Callable[[int, int], Value | None]) -> Signals:
        """Put the numbers of constant channels into the table."""
        for side, channel in np.argwhere(found.constant & found.still.any(0)).tolist():
            key = found.still[:, side, channel].tobytes()
            if key not in self.numbers:
                self.remember(key, value_of(side, channel))
        return found

    def remember(self, key: bytes, value: Value | None) -> None:
        """The number that residues stand for. Squares of squares would have bits without end, so long ones are refused:
        what is made of one below the limit (a ninth power at most) can still be made."""
        if value is not None:
            if exact(value) and _bits(value) > MOST_SUM_BITS:
                raise Unsupported(f"a constant channel has a number of more than {MOST_SUM_BITS:,} bits")
            self.numbers[key] = value

    def affine(self, x: Signals, factor: Residues, shift: Residues, bits: float) -> Signals:
        """Each channel times a number, plus a number."""
        by, to = factor[:, None], shift[:, None]
        still = self.field.reduce(self.field.times(x.still, by) + to)
        return Signals(self.field.times(x.moving, by), still, x.degree + 1, x.bits + bits)

    def know_ratios(self, found: Signals, numbers: np.ndarray[Any, Any]) -> None:
        """Rows whose signals are multiples of each other: their factor is that of their first number that is not 0."""
        line = self.whole(found)[:, 0]
        ratio = self.field.times(line[PRIMES:], self.field.inverse(line[:PRIMES]))
        first, kinds = self.field.groups(ratio)
        for row in np.flatnonzero(first[kinds] != np.arange(len(kinds))).tolist():
            leader = numbers[first[kinds[row]]]
            place = int(np.argmax(leader != 0))
            mine, other = float(numbers[row][place]), float(leader[place])
            if mine and other and mine != other:
                self.know(Fraction(mine) / Fraction(other))

    def whole(self, x: Signals) -> Residues:
        """All of each signal as one residue."""
        return self.field.reduce(x.moving + self.field.times(x.still, self.one[:, None, None]))

    # Operations

    def value(self, at: int, step: ChannelStep, x: list[Signals]) -> Signals:
        """What the channels of an operation carry."""
        match step.kind:
            case "input":
                drawn = self.field.draw((step.channels,))
                return self.new_variables(drawn, drawn)
            case "other" if step.function != "instance_norm" or [operand.moving.shape[2] for operand in x] != [
                step.channels
            ]:
                return self.opaque(step, x)  # whatever else it reads counts
            case "other" | "instance":
                return self.instance(step, x[0])
            case "layer" | "depthwise":
                return self.layer(at, step, x[0])
            case "norm" | "scale":
                return self.norm(step, x[0])
            case "add" | "sub" | "mul":
                return self.combine(step.kind, *x)
            case "attend":
                return self.attend(at, step, *x)
            case "cat":
                return _join([np.arange(operand.moving.shape[2]) for operand in x], x)
            case "part":
                return _join([np.arange(step.start, step.start + step.channels)], x)
            case "copy":
                return _join([np.arange(step.channels)], x)
            case "flat":
                return self.flat(at, step, x[0])
        return self.bend(step, x[0])

    def new_variables(self, before: Residues, after: Residues, bits: float = 1.0) -> Signals:
        """New variables."""
        moving = np.stack([before, after], axis=1)
        return Signals(moving, np.zeros_like(moving), 1.0, bits)

    def opaque(self, step: ChannelStep, x: list[Signals]) -> Signals:
        """Anything: the same operands have the same result."""
        same = all(np.array_equal(part[:, 0], part[:, 1]) for operand in x for part in operand[:2])
        if not same:
            raise CertificateError("an operation that is not followed reads something else in the smaller network")
        drawn = self.field.draw((step.channels,))
        return self.new_variables(drawn, drawn)

    def instance(self, step: ChannelStep, x: Signals) -> Signals:
        """A channel without its mean, which takes the signal 1 with it, over its deviation."""
        variables = self.each_signal(x.moving)
        variables[:, x.constant] = 0
        values = self.vector(step, "bias", 0.0)
        gain, shift = (self.field.floats(vector) for vector in (self.vector(step, "weight", 1.0), values))
        signals = self.affine(
            Signals(variables, np.zeros_like(variables), 1.0, 1.0), gain, shift, self.tensor_bits(step)
        )
        if step.tensors.get("weight") is not None:
            self.know_ratios(signals, self.vector(step, "weight", 1.0)[:, None])
        return self.note(signals, lambda _, c: Fraction(float(values[c])))

    def vector(self, step: ChannelStep, role: str, default: float) -> np.ndarray[Any, Any]:
        """A vector of weights as floats."""
        name = step.tensors.get(role)
        return np.full(step.channels, default) if name is None else np.asarray(self.tensors[name].values).reshape(-1)

    def tensor_bits(self, step: ChannelStep) -> float:
        """Of numbers that are sums of products with the weights of an operation."""
        names = [name for name in step.tensors.values() if name is not None]
        size = max((prod(self.tensors[name].shape) for name in names), default=1)
        return sum(TYPE_BITS[self.tensors[name].dtype] for name in names) + log2(size + 1)

    def norm(self, step: ChannelStep, x: Signals) -> Signals:
        """Minus the mean, times γ/sqrt(variance + ε), plus β, all of them numbers; a scale has γ and β alone."""
        field, gain, shift = self.field, self.vector(step, "weight", 1.0), self.vector(step, "bias", 0.0)
        mean, inside = np.zeros(step.channels), [Fraction(1)] * step.channels
        factor = field.floats(gain)
        if step.kind == "norm":
            mean, epsilon = self.vector(step, "mean", 0.0), Fraction(step.arguments[0])
            inside = [Fraction(value) + epsilon for value in self.vector(step, "variance", 0.0).tolist()]
            factor = field.times(factor, np.stack([self.variable("1/sqrt", values) for values in inside], axis=1))
        to = field.reduce(field.floats(shift) - field.times(field.floats(mean), factor))
        signals = self.affine(x, factor, to, self.tensor_bits(step) + 64)
        self.know_ratios(signals, gain[:, None])

        def number(side: int, c: int) -> Value | None:
            away, by, added = (Fraction(float(values[c])) for values in (mean, gain, shift))
            value = self.number(x, side, c) if by else ZERO
            if value is None or step.kind == "scale":
                return None if value is None else plus([(by, value)], added)
            return standardise(value, away, inside[c], by, added)

        return self.note(signals, number)

    def combine(self, kind: str, x: Signals, y: Signals) -> Signals:
        """x + y, x - y, or x y: of a product, the part in which both move is a new signal."""
        field = self.field
        if kind != "mul":
            sign = 1 if kind == "add" else -1
            moving, still = (field.reduce(a + sign * b) for a, b in zip(x[:2], y[:2], strict=True))
            signals = Signals(moving, still, max(x.degree, y.degree), max(x.bits, y.bits) + 1)

            def total(side: int, c: int) -> Value | None:
                one, two = self.number(x, side, c), self.number(y, side, c)
                return None if one is None or two is None else plus([(Fraction(sign), two)], one)

            return self.note(signals, total)
        moving = field.reduce(field.times(x.moving, y.still) + field.times(y.moving, x.still) + self.product(x, y))
        still = field.times(x.still, y.still)

        def value(side: int, c: int) -> Value | None:
            one, two = self.number(x, side, c), self.number(y, side, c)
            return None if one is None or two is None else times(one, two)

        return self.note(Signals(moving, still, x.degree + y.degree + 1, 2 * (x.bits + y.bits) + 2), value)

    def product(self, x: Signals, y: Signals) -> Residues:
        """Of the parts that move: numbers come out of it, whatever their sign.

        The quotient of the two points of a prime is the same for all multiples of a signal.
        """
        field, shape = self.field, x.moving.shape
        one, two = (operand.moving.reshape(LANES, -1) for operand in (x, y))
        moved: Mask = np.logical_and(one.any(0), two.any(0))
        keys = [field.times(operand[PRIMES:], field.inverse(operand[:PRIMES])) for operand in (one, two)]
        first, kinds = field.groups(np.concatenate([*keys, moved[None].astype(np.int64)]))
        self.count(kinds)
        result = field.draw((len(first),))[:, kinds]
        for operand in (one, two):
            scale = field.times(operand[:PRIMES], field.inverse(operand[:PRIMES, first[kinds]]))
            result = field.times(result, np.concatenate([scale, scale]))
        result[:, ~moved] = 0
        return result.reshape(shape)

    def flat(self, at: int, step: ChannelStep, x: Signals) -> Signals:
        """Every place of a channel is a channel of its own: a map for each place."""
        places = np.stack([self.variable("place", at, k) for k in range(step.width)], axis=1)
        moving = self.field.times(x.moving[..., None], places[:, None, None]).reshape(LANES, 2, -1)
        return Signals(moving, np.repeat(x.still, step.width, axis=2), x.degree + 1, x.bits)

    def layer(self, at: int, step: ChannelStep, x: Signals) -> Signals:
        """Sums over channels and taps; after the moves of the certificate in the smaller network."""
        field, owner = self.field, at if step.first is None else step.first
        moves = self.moves.get(owner, [])
        name = str(step.tensors["weight"])
        shape = self.tensors[name].shape
        taps = prod(shape[2:])
        maps, edges = (np.stack([self.variable(kind, at, k) for k in range(taps)], 1) for kind in ("tap", "edge"))
        moving, still, folded = x.moving.copy(), x.still.copy(), np.zeros_like(x.still)
        for move in reversed([move for move in moves if move.kind != "row"]):  # W M1 M2 x: the last move comes first
            place = move.place
            if move.kind == "constant":
                moving[:, 1, place] = still[:, 1, place] = 0
                number = self.fold_constant(owner, place, x)
                # A bias that is dropped takes nothing over: the smaller network has none.
                folded[:, 1, place] = 0 if owner in self.dropped else number
                continue
            for part in (moving, still, folded):
                part[:, 1, place] = 0
                for other, factor in move.terms:
                    term = field.times(part[:, 1, other], field.rational(factor))
                    part[:, 1, place] = field.reduce(part[:, 1, place] + term)
        # A border of zeros is not what the signal 1 is read as; a bias that took over a constant is.
        met = field.times(moving[..., None], maps[:, None, None])
        if step.padded:
            met, still = field.reduce(met + field.times(still[..., None], edges[:, None, None])), folded
        else:
            still = field.reduce(still + folded)
        wide = np.broadcast_to(still[..., None], met.shape)
        sums, rest = self.through(step, name, np.stack([met, wide]))
        if step.tensors["bias"] is not None:
            bias = np.repeat(field.floats(self.vector(step, "bias", 0.0))[:, None], 2, axis=1)
            if owner in self.dropped:
                bias[:, 1] = 0
            rest = field.reduce(rest + bias)
        for move in (move for move in moves if move.kind == "row"):
            for other, factor in move.terms:
                for part in (sums, rest):
                    term = field.times(part[:, 1, move.place], field.rational(factor))
                    part[:, 1, other] = field.reduce(part[:, 1, other] + term)
        bits = self.tensor_bits(step) + self.move_bits(owner)
        signals = Signals(sums, rest, x.degree + 1, x.bits + bits)
        if step.kind == "layer":
            self.know_ratios(signals, np.asarray(self.tensors[name].values).reshape(shape[0], -1))
        return self.note(signals, lambda side, row: self.row_number(step, x, side, row))

    def move_bits(self, owner: int) -> float:
        """How much longer the weights of a layer become by its moves.

        A column that takes over r times another one has sums of products with r, and the other one may have taken over
        before: in a chain the lengths of all factors add up.
        """
        if owner not in self.grown:
            lengths: dict[tuple[bool, int], float] = {}
            for kind, _, place, terms in self.moves.get(owner, ()):
                row = kind == "row"
                for other, factor in terms:
                    longer = lengths.get((row, place), 0.0) + _bits(factor) + 1
                    lengths[row, other] = min(lengths.get((row, other), 0.0) + longer, MOST_LENGTH)
            columns, rows = (
                max((length for (row, _), length in lengths.items() if row is side), default=0.0)
                for side in (False, True)
            )
            self.grown[owner] = columns + rows
        return self.grown[owner]

    def through(self, step: ChannelStep, name: str, inside: Residues) -> tuple[Residues, Residues]:
        """The weights of a layer times `(2, LANES, 2, channels, taps)`, a few rows at a time."""
        values = np.asarray(self.tensors[name].values).reshape(self.tensors[name].shape[0], -1)
        count = step.channels
        if step.kind == "depthwise":
            weights = self.field.floats(values)[:, None]
            sums, rest = (self.field.reduce(self.field.times(part, weights).sum(-1)) for part in inside)
            return sums, rest
        # (parts, points, primes, networks, groups, columns) -> (groups, primes, columns, parts x points x networks)
        laid = inside.reshape(2, 2, PRIMES, 2, step.groups, -1)
        right = laid.transpose(4, 2, 5, 0, 1, 3).reshape(step.groups, PRIMES, -1, 8)
        products = np.empty((PRIMES, count, 8), dtype=np.int64)
        rows, chunk = count // step.groups, max(1, AT_ONCE // max(1, values.shape[1]))
        for group in range(step.groups):
            for start in range(group * rows, (group + 1) * rows, chunk):
                stop = min(start + chunk, (group + 1) * rows)
                check_clock()
                products[:, start:stop] = self.field.matmul(self.field.floats(values[start:stop], PRIMES), right[group])
        sums = products.reshape(PRIMES, count, 2, 2, 2).transpose(2, 3, 0, 4, 1).reshape(2, LANES, 2, count)
        return sums[0], sums[1]

    def fold_constant(self, owner: int, column: int, x: Signals) -> Residues:
        """The constant that a reader takes over: the one that the layer meets where it is used first."""
        key = owner, column
        if key not in self._folded:
            value = self.number(x, 0, column)
            if value is None:
                raise CertificateError("a channel is not constant wherever it is read, or its number is not known")
            self._folded[key], self.folded[key] = x.still[:, 0, column], value
        return self._folded[key]

    def row_number(self, step: ChannelStep, x: Signals, side: int, row: int) -> Value | None:
        """The number of a row of weights that meets constants only, or what cancels."""
        name = str(step.tensors["weight"])
        taps = np.asarray(self.tensors[name].values).reshape(*self.tensors[name].shape[:2], -1)[row]
        start = step.group(row) * len(taps) if step.kind == "layer" else row
        here = slice(start, start + len(taps))
        met = x.still[:, side, here].any(0) & taps.any(1)
        if side or (met & ~x.constant[side, here]).any() or (step.padded and met.any()):
            return None
        total: Value = Fraction(float(self.vector(step, "bias", 0.0)[row]))
        for column in np.flatnonzero(met).tolist():
            check_clock()
            value = self.number(x, side, start + column)
            if value is None:
                return None
            total = plus(((Fraction(float(tap)), value) for tap in taps[column]), total)
        return total

    def bend(self, step: ChannelStep, x: Signals) -> Signals:
        """A function of each channel; of constants the numbers themselves."""
        if step.function in FACTORS and step.kind == "same":
            number = Fraction(step.arguments[0]) if step.arguments else Fraction(-1)
            require(number != 0, "a channel is multiplied with zero, or divided by it")
            by = self.field.rational(1 / number if step.function == "div number" else number)[:, None]
            signals = self.affine(x, by, np.zeros_like(by), float(_bits(number)))

            def product(side: int, c: int) -> Value | None:
                value = self.number(x, side, c)
                return None if value is None else evaluate(step.function, step.arguments, value)

            return self.note(signals, product)
        constants = x.constant & ~(x.still.any(0) if step.padded else np.zeros_like(x.constant))
        slopes = self.vector(step, "weight", 0.0) if step.kind == "slopes" else None
        line = self.whole(x)
        if step.kind in ("same", "pool", "slopes"):
            values = self.commuting(step, line, slopes)
        else:
            even = parity(step.function, step.arguments)
            flip = 2 * line[0] > int(self.field.p[0])
            upright = np.where(flip, self.field.reduce(-line), line) if even else line
            values = self.each_signal(upright)
            values = np.where(flip, self.field.reduce(-values), values) if even < 0 else values
            if even < 0:
                values[:, ~line.any(0)] = 0
        values[:, constants] = 0
        still, bits = np.zeros_like(values), self.factor_bits
        for side, channel in np.argwhere(constants).tolist():
            still[:, side, channel], size = self.constant(step, slopes, x.still[:, side, channel], channel)
            bits = max(bits, size)
        return Signals(values, still, 1.0, bits)

    def constant(self, step: ChannelStep, slopes: Any, given: Residues, channel: int) -> tuple[Residues, float]:
        """A function of a number: its residues, and the bits of a fraction."""
        if step.kind == "pool":
            return given, 1.0
        name, arguments = (step.function, step.arguments) if slopes is None else (
            "leaky_relu", (Fraction(float(slopes[channel])),)
        )  # fmt: skip
        value = self.numbers.get(given.tobytes())
        result = None if value is None else evaluate(name, arguments, value)
        if result is not None and exact(result):
            residue, size = self.field.rational(result), float(_bits(result))
        else:
            residue, size = self.variable(name, arguments, given.tobytes()), 1.0
        self.remember(residue.tobytes(), result)
        return residue, size

    def commuting(self, step: ChannelStep, line: Residues, slopes: Any) -> Residues:
        """Functions that commute with positive factors."""
        extra = None if slopes is None else [self.field.floats(slopes)] * 2
        sides = [np.ascontiguousarray(line[:, side]) for side in (0, 1)]
        self.count(line[0])
        even = step.kind == "same" and step.function == "abs"  # a pool or slopes of that name are not
        return np.stack(self.homogeneous(sides, extra, 1, even=even).sides, axis=1)

    def each_signal(self, line: Residues) -> Residues:
        """A variable for each different signal."""
        self.count(line[0])
        sides = [np.ascontiguousarray(line[:, side]) for side in (0, 1)]
        return np.stack(self.variables(sides, sides[0].shape[1:]).sides, axis=1)

    def count(self, *compared: np.ndarray[Any, Any]) -> None:
        """All pairs of signals that are compared."""
        size = float(sum(keys.size for keys in compared))
        self.pairs += size * size
        self.told += size

    def attend(self, at: int, step: ChannelStep, queries: Signals, keys: Signals, values: Signals) -> Signals:
        """For each head a map that is known by its scores; constants stay where every query sees some key."""
        heads, field = step.heads, self.field
        if heads is None:
            raise AssertionError("an attention has heads")
        groups = len(heads.keys)
        query = self.whole(queries)[:, :, np.array(heads.queries)]  # (LANES, 2, groups, heads, inner)
        place = np.array(heads.keys)
        if heads.rotary:
            key = np.broadcast_to(self.whole(keys)[:, :, place][:, :, :, None], query.shape)
            scores = np.concatenate([query, key]).transpose(0, 4, 1, 2, 3).reshape(-1, 2, groups * heads.heads)
        else:
            key = np.roll(keys.moving, PRIMES, axis=0)[:, :, place]
            scores = field.reduce(field.times(query, key[:, :, :, None]).sum(-1)).reshape(LANES, 2, -1)
        if not heads.alike:
            number = np.broadcast_to(np.arange(scores.shape[2]), (1, *scores.shape[1:]))
            scores = np.concatenate([scores, number])
        maps = self.each_signal(scores)
        written, which = np.array(heads.written), np.repeat(np.arange(scores.shape[2]), len(heads.values[0]))
        moving = field.times(values.moving[:, :, written], maps[:, :, which])
        still = values.still[:, :, written]
        if not heads.whole:
            moving = field.reduce(moving + field.times(still, self.each_signal(scores)[:, :, which]))
            still = np.zeros_like(still)
        self.most_degree = max(self.most_degree, queries.degree + keys.degree)
        self.most_bits = max(self.most_bits, queries.bits + keys.bits + log2(len(place[0]) + 1))
        return Signals(moving, still, values.degree + 1, values.bits)


def _join(places: Sequence[np.ndarray[Any, Any]], x: Sequence[Signals]) -> Signals:
    """Some channels of each operand, one after the other."""
    parts = [(operand.moving[:, :, at], operand.still[:, :, at]) for at, operand in zip(places, x, strict=True)]
    moving, still = (np.concatenate(operand, axis=2) for operand in zip(*parts, strict=True))
    return Signals(moving, still, max(operand.degree for operand in x), max(operand.bits for operand in x))


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()
