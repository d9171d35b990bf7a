"""Operations on channels with their weights, as a certificate writes them, and what is known of each channel.

ChangedWeights stay the doubles they are; entries that changed are rationals (biases also balls) in a table beside them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite, prod
from typing import Any

from lawful.errors import NotACertificate
from lawful.verify.channel_heads import HeadTables, read_heads
from lawful.verify.channel_values import ZERO, Value, bent, exact, is_zero, plus, standardised, times
from lawful.verify.schema import listed, need, number, record, truth, whole, wholes, word

TYPES = {"float32": "f", "float64": "d"}
KEYS = "kind sources channels tensors padded width function arguments"
ROLES = {"layer": ("weight", "bias"), "depthwise": ("weight", "bias"), "norm": ("weight", "bias", "mean", "variance")}
TWO = ("add", "sub", "mul")
KINDS = ("input", "other", *ROLES, "same", "bend", "pool", "flat", "cat", "copy", "attend", *TWO)
SAME = ("relu", "leaky_relu", "abs", "neg", "mul number", "div number")  # commute with positive factors
ONE = Fraction(1)


@dataclass(frozen=True)
class Tensor:
    """Numbers with their type and sizes."""

    dtype: str
    shape: tuple[int, ...]
    values: Any
    line: str  # what stands for it in the digest of all weights

    def turned(self) -> Tensor:
        """A matrix with its axes exchanged."""
        need(len(self.shape) == 2, "only a matrix is stored with its inputs first")
        rows, columns = self.shape
        values = array(TYPES[self.dtype])
        for column in range(columns):
            values.extend(self.values[column::columns])
        return Tensor(self.dtype, (columns, rows), values, self.line)


def read_tensor(value: object) -> Tensor:
    """A tensor written as the base64 of its little-endian bytes."""
    given = record(value, "tensor", "dtype shape data")
    dtype = word(given["dtype"], "dtype", *TYPES)
    shape = tuple(wholes(given["shape"], "shape", 0, 10**7, most=8))
    try:
        raw = base64.b64decode(given["data"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise NotACertificate("tensor: its data is not base64") from None
    values = array(TYPES[dtype])
    need(len(raw) == prod(shape) * values.itemsize, "a tensor has other sizes than its data")
    values.frombytes(raw)
    need(all(map(isfinite, values)), "a weight is not finite")
    return Tensor(dtype, shape, values, f"{dtype} {list(shape)} {hashlib.sha256(raw).hexdigest()}")


@dataclass(frozen=True)
class ChannelStep:
    """An operation and the channels it makes."""

    kind: str
    sources: tuple[int, ...]
    channels: int
    tensors: Mapping[str, str | None]
    padded: bool
    width: int
    function: str
    arguments: tuple[Fraction | str, ...]
    heads: HeadTables | None = None


def read_program(value: object, tensors: dict[str, Tensor]) -> list[ChannelStep]:
    """Operations in order; each must fit what it reads. Weights that are stored with inputs first are turned."""
    found: list[ChannelStep] = []
    used: set[str] = set()
    for item in listed(value, "program", most=100_000):
        given = record(item, "program", KEYS, "heads transposed")
        kind = word(given["kind"], "program.kind", *KINDS)
        sources = tuple(wholes(given["sources"], "sources", 0, len(found) - 1, most=1000))
        roles = ROLES.get(kind, ())
        names = record(given["tensors"], "tensors", " ".join(roles))
        for name in names.values():
            need(name is None or (isinstance(name, str) and name in tensors), "an operation uses an unknown tensor")
            need(name is None or name not in used, "two operations share a tensor")
            used |= set() if name is None else {name}
        function = given["function"]
        need(isinstance(function, str) and len(function) < 40, "a function has no name")
        need(kind != "same" or function in SAME, "a function that does not commute with factors")
        arguments = tuple(
            part if isinstance(part, str) else Fraction(number(part, "arguments"))
            for part in listed(given["arguments"], "arguments", most=8)
        )
        if "transposed" in given:
            need(kind == "layer" and truth(given["transposed"], "transposed"), "only a layer is transposed")
            tensors[str(names["weight"])] = tensors[str(names["weight"])].turned()
        channels, heads = whole(given["channels"], "channels", 1, 10**7), None
        need(("heads" in given) is (kind == "attend"), "an attention has heads, and nothing else has")
        if kind == "attend":
            need(len(sources) == 3, "an attention has three sources")
            heads = read_heads(given["heads"], [found[source].channels for source in sources], channels)
        step = ChannelStep(
            kind, sources, channels, names, truth(given["padded"], "padded"),
            whole(given["width"], "width", 1, 10**7), function, arguments, heads,
        )  # fmt: skip
        _check_fit(step, found, tensors)
        found.append(step)
    need(used == set(tensors), "a tensor is used nowhere")
    return found


def _check_fit(step: ChannelStep, before: list[ChannelStep], tensors: Mapping[str, Tensor]) -> None:
    below = [before[source].channels for source in step.sources]
    count = {"input": 0, "cat": len(below), "other": len(below), "attend": 3}.get(
        step.kind, 2 if step.kind in TWO else 1
    )
    need(len(below) == count, f"a {step.kind} has another number of sources")
    shapes = {role: tensors[name].shape for role, name in step.tensors.items() if name is not None}
    if step.kind in ("layer", "depthwise"):
        weight = shapes.get("weight", ())
        need(len(weight) >= 2 and weight[0] == step.channels, f"a {step.kind} has other rows than channels")
        need(weight[1] == (below[0] if step.kind == "layer" else 1), f"a {step.kind} does not fit what it reads")
        need(step.kind == "layer" or step.channels == below[0], "a depthwise layer does not fit what it reads")
        need(shapes.get("bias", (step.channels,)) == (step.channels,), f"a {step.kind} has another bias")
    elif step.kind == "norm":
        need("mean" in shapes and "variance" in shapes, "a normalisation lacks its statistics")
        need(all(shape == (step.channels,) for shape in shapes.values()), "a normalisation does not fit")
        need(len(step.arguments) == 1 and isinstance(step.arguments[0], Fraction), "a normalisation lacks its epsilon")
        need(step.channels == below[0], "a normalisation does not fit what it reads")
        spread = tensors[str(step.tensors["variance"])].values
        need(
            Fraction(min(spread)) + Fraction(step.arguments[0]) > 0,
            "a normalisation divides by the root of no positive number",
        )
    elif step.kind == "cat":
        need(step.channels == sum(below), "a concatenation does not fit")
    elif step.kind not in ("input", "other", "attend"):
        need(all(step.channels == each * step.width for each in below), f"a {step.kind} does not fit what it reads")
        need(step.width == 1 or step.kind == "flat", "only a flattening widens")


@dataclass
class ChangedWeights:
    """The weights of a program as they change: `changed` maps (tensor, place) to its exact value and size of terms."""

    steps: list[ChannelStep]
    tensors: Mapping[str, Tensor]
    changed: dict[tuple[str, int], tuple[Value, Fraction]] = field(default_factory=dict)
    added: dict[tuple[int, int], tuple[Value, Fraction]] = field(default_factory=dict)  # biases that were not there

    def taps(self, at: int) -> int:
        """How many numbers a kernel has."""
        return prod(self.tensors[str(self.steps[at].tensors["weight"])].shape[2:])

    def entry(self, name: str, place: int) -> Value:
        """One number, exactly."""
        found = self.changed.get((name, place))
        return Fraction(self.tensors[name].values[place]) if found is None else found[0]

    def kernel(self, at: int, row: int, column: int) -> list[Fraction]:
        """The taps from one channel to another."""
        name, taps = str(self.steps[at].tensors["weight"]), self.taps(at)
        start = (row * self.tensors[name].shape[1] + column) * taps
        return [self.entry(name, place) for place in range(start, start + taps)]

    def hears(self, at: int, row: int, column: int) -> bool:
        """Whether any tap is not 0."""
        name, taps = str(self.steps[at].tensors["weight"]), self.taps(at)
        start = (row * self.tensors[name].shape[1] + column) * taps
        if not self.changed:
            return any(self.tensors[name].values[start : start + taps])
        return any(self.kernel(at, row, column))

    def bias(self, at: int, row: int) -> Value:
        """The bias of a row."""
        name = self.steps[at].tensors["bias"]
        return self.added.get((at, row), (ZERO, ZERO))[0] if name is None else self.entry(name, row)

    def of_norm(self, at: int, place: int) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """Mean, variance with epsilon, gain and shift."""
        names = self.steps[at].tensors
        mean, variance = (self.entry(str(names[role]), place) for role in ("mean", "variance"))
        gain = ONE if names["weight"] is None else self.entry(str(names["weight"]), place)
        shift = ZERO if names["bias"] is None else self.entry(str(names["bias"]), place)
        return mean, variance + self.steps[at].arguments[0], gain, shift


class ChannelFacts:
    """Facts about channels at one moment, found where they are asked for."""

    def __init__(self, weights: ChangedWeights) -> None:
        self.weights, self.steps = weights, weights.steps
        self._constants: dict[tuple[int, int], Value | None] = {}
        self._ratios: dict[tuple[int, int, int], Fraction | None] = {}

    def constant(self, at: int, place: int) -> Value | None:
        """The value of a channel that is the same for every input and at every place; else None."""
        key = at, place
        if key not in self._constants:
            self._constants[key] = self._constant(at, place)
        return self._constants[key]

    def read(self, at: int, place: int) -> Value | None:
        """The same for what an operation reads: beside a border of zeros only 0 is."""
        step = self.steps[at]
        found = self.constant(step.sources[0], place)
        return found if found is not None and (not step.padded or is_zero(found)) else None

    def _constant(self, at: int, place: int) -> Value | None:
        step, weights = self.steps[at], self.weights
        match step.kind:
            case "input" | "other":
                return None
            case "layer":
                return self._layer(at, place)
            case "depthwise":
                kernel = weights.kernel(at, place, 0)
                if not any(kernel):
                    return weights.bias(at, place)
                value = self.read(at, place)
                return None if value is None else plus(((tap, value) for tap in kernel), weights.bias(at, place))
            case "norm":
                mean, variance, gain, shift = weights.of_norm(at, place)
                if not gain:
                    return shift
                value = self.read(at, place)
                return None if value is None else standardised(value, mean, variance, gain, shift)
            case "cat":
                return self.constant(*self._part(step, place))
            case "attend" if step.heads is not None:
                value = self.constant(step.sources[2], step.heads.written[place])
                return value if value is not None and (step.heads.whole or is_zero(value)) else None
        values = [self.constant(source, place // step.width) for source in step.sources]
        if step.kind == "mul" and any(value is not None and is_zero(value) for value in values):
            return ZERO
        if any(value is None for value in values):
            return None
        match step.kind:
            case "same" | "bend":
                return bent(step.function, step.arguments, values[0])
            case "add" | "sub":
                return plus([(ONE if step.kind == "add" else -ONE, values[1])], values[0])
            case "mul":
                return times(*values)
            case "pool":
                return self.read(at, place)
        return values[0]

    def _layer(self, at: int, row: int) -> Value | None:
        total = self.weights.bias(at, row)
        for column in range(self.steps[self.steps[at].sources[0]].channels):
            if self.weights.hears(at, row, column):
                value = self.read(at, column)
                if value is None:
                    return None
                total = plus(((tap, value) for tap in self.weights.kernel(at, row, column)), total)
        return total

    def _part(self, step: ChannelStep, place: int) -> tuple[int, int]:
        """Where a concatenation took a channel from."""
        for source in step.sources:
            if place < self.steps[source].channels:
                return source, place
            place -= self.steps[source].channels
        raise IndexError(place)

    def ratio(self, at: int, one: int, two: int) -> Fraction | None:
        """`r > 0` with channel `one` equal to r times channel `two` for every input, if that is known."""
        if one == two:
            return ONE
        key = at, one, two
        if key not in self._ratios:
            self._ratios[key] = self._ratio(at, one, two)
        return self._ratios[key]

    def _ratio(self, at: int, one: int, two: int) -> Fraction | None:
        step, weights = self.steps[at], self.weights
        match step.kind:
            case "input" | "other":
                return None
            case "layer":
                columns = range(self.steps[step.sources[0]].channels)
                mine, theirs = (
                    [weights.bias(at, row), *(tap for c in columns for tap in weights.kernel(at, row, c))]
                    for row in (one, two)
                )
                return _proportion(mine, theirs)
            case "cat":
                (source, first), (other, second) = self._part(step, one), self._part(step, two)
                return self.ratio(source, first, second) if source == other else None
            case "flat":
                if one % step.width != two % step.width:
                    return None
                return self.ratio(step.sources[0], one // step.width, two // step.width)
            case "attend" if step.heads is not None:
                places = step.heads.written
                homes = step.heads.home(one), step.heads.home(two)
                alike = homes[0] == homes[1] or self._same_scores(at, step.heads, *homes)
                return self.ratio(step.sources[2], places[one], places[two]) if alike else None
        found = [self.ratio(source, one, two) for source in step.sources]
        if any(each is None for each in found):
            return None
        match step.kind:
            case "depthwise":
                alike = weights.kernel(at, one, 0) == weights.kernel(at, two, 0)
                return ONE if found == [ONE] and alike and weights.bias(at, one) == weights.bias(at, two) else None
            case "norm":
                ours, others = weights.of_norm(at, one), weights.of_norm(at, two)
                alike = found == [ONE] and ours[:2] == others[:2]
                return _proportion(list(ours[2:]), list(others[2:])) if alike else None
            case "bend":
                return ONE if found == [ONE] else None
            case "add" | "sub":
                return found[0] if found[0] == found[1] else None
            case "mul":
                return found[0] * found[1]  # type: ignore[operator]
        return found[0]

    def unscored(self, at: int, query: int, key: int) -> bool:
        """Whether a product of queries and keys changes no weights: it is 0, or the same for all keys."""
        one, two = self.constant(self.steps[at].sources[0], query), self.constant(self.steps[at].sources[1], key)
        return two is not None or (one is not None and is_zero(one))

    def _same_scores(self, at: int, heads: HeadTables, one: tuple[int, int], two: tuple[int, int]) -> bool:
        """Whether two heads weigh their values alike: their products are the same, in some order."""
        if not heads.alike:
            return False
        mine, theirs = (
            list(zip(heads.queries[group][head], heads.keys[group], strict=True)) for group, head in (one, two)
        )
        sources = self.steps[at].sources
        if heads.rotary:
            rows = zip(mine, theirs, strict=True)
            return all(self.ratio(sources[side], a[side], b[side]) == 1 for a, b in rows for side in (0, 1))
        mine, theirs = ([pair for pair in each if not self.unscored(at, *pair)] for each in (mine, theirs))
        for first in mine:
            for place, second in enumerate(theirs):
                ratios = [self.ratio(sources[side], first[side], second[side]) for side in (0, 1)]
                if ratios[0] is not None and ratios[1] is not None and ratios[0] * ratios[1] == 1:
                    del theirs[place]
                    break
            else:
                return False
        return not theirs

    def combination(self, at: int, place: int, terms: Mapping[int, Fraction]) -> bool:
        """Whether a channel is this sum of multiples of others, for every input."""
        step = self.steps[at]
        if step.kind == "copy":
            return self.combination(step.sources[0], place, terms)
        if step.kind == "attend" and step.heads is not None:
            places, home = step.heads.written, step.heads.home(place)
            inside = all(step.heads.home(other) == home for other in terms)
            return inside and self.combination(
                step.sources[2], places[place], {places[other]: factor for other, factor in terms.items()}
            )
        return step.kind == "layer" and self.rows_add_up(at, place, terms, bias=True)

    def rows_add_up(self, at: int, row: int, terms: Mapping[int, Fraction], *, bias: bool) -> bool:
        """Whether a row of a layer is this sum of multiples of others, as rationals."""
        rows = {place: self._row(at, place, bias) for place in (row, *terms)}
        if not all(exact(value) for values in rows.values() for value in values):
            return False
        sums = (sum((factor * rows[other][n] for other, factor in terms.items()), ZERO) for n in range(len(rows[row])))
        return all(total == value for total, value in zip(sums, rows[row], strict=True))

    def _row(self, at: int, row: int, bias: bool) -> list[Value]:
        columns = range(self.steps[self.steps[at].sources[0]].channels)
        taps = [tap for column in columns for tap in self.weights.kernel(at, row, column)]
        return [self.weights.bias(at, row), *taps] if bias else taps


def _proportion(mine: list[Value], theirs: list[Value]) -> Fraction | None:
    """`r > 0` with `mine = r · theirs`, as rationals; 1 for two rows of zeros."""
    if not all(exact(value) for value in (*mine, *theirs)):
        return None
    pairs = [(a, b) for a, b in zip(mine, theirs, strict=True) if a or b]
    if not pairs:
        return ONE
    first, second = pairs[0]
    factor = first / second if second else ZERO
    return factor if factor > 0 and all(a == factor * b for a, b in pairs) else None
