"""What is known of channels: which are constant, and which are multiples or sums of others, for every input."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from lawful.verify.channels.heads import HeadTables
from lawful.verify.channels.program import ONE, ChangedWeights, ChannelStep
from lawful.verify.channels.values import ZERO, Value, bent, exact, is_zero, mirrored, plus, standardised, times


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
            case "slopes":
                value = self.read(at, place)
                slope = weights.entry(str(step.tensors["weight"]), place)
                return None if value is None else bent("leaky_relu", [slope], value)
            case "scale":
                gain, shift = weights.gains(at, place)
                if is_zero(gain):
                    return shift
                value = self.read(at, place)
                return None if value is None else plus([(gain, value)], shift)
            case "instance":
                gain, shift = weights.gains(at, place)
                return shift if not gain or self.read(at, place) is not None else None
            case "cat":
                return self.constant(*self._part(step, place))
            case "part":
                return self.constant(step.sources[0], step.start + place)
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
        for column in self.weights.columns(at, row):
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
        """`r ≠ 0` with channel `one` equal to r times channel `two` for every input, if that is known."""
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
                columns = sorted({*weights.columns(at, one), *weights.columns(at, two)})
                mine, theirs = (
                    [weights.bias(at, row), *(tap for c in columns for tap in weights.kernel(at, row, c))]
                    for row in (one, two)
                )
                return _proportion(mine, theirs)
            case "cat":
                (source, first), (other, second) = self._part(step, one), self._part(step, two)
                return self.ratio(source, first, second) if source == other else None
            case "part":
                return self.ratio(step.sources[0], step.start + one, step.start + two)
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
            case "slopes":
                name = str(step.tensors["weight"])
                alike = weights.entry(name, one) == weights.entry(name, two)
                return found[0] if alike and found[0] > 0 else None  # type: ignore[operator]
            case "instance":
                alike = found == [ONE]
                return _proportion(weights.gains(at, one), weights.gains(at, two)) if alike else None
            case "scale":
                (gain, shift), theirs = weights.gains(at, one), weights.gains(at, two)
                return _proportion([times(found[0], gain), shift], theirs)
            case "pool":
                return found[0] if found[0] > 0 else None  # type: ignore[operator]
            case "same" if step.function in ("relu", "leaky_relu"):
                return found[0] if found[0] > 0 else None  # type: ignore[operator]
            case "same" if step.function == "abs":
                return abs(found[0])  # type: ignore[arg-type]
            case "bend":
                kind = mirrored(step.function, step.arguments)
                return ONE if found == [ONE] else Fraction(kind) if kind and found == [-ONE] else None
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
        """Whether a row of a layer is this sum of multiples of others of its group, as rationals."""
        if len({self.weights.columns(at, place) for place in (row, *terms)}) > 1:
            return False
        rows = {place: self._row(at, place, bias) for place in (row, *terms)}
        if not all(exact(value) for values in rows.values() for value in values):
            return False
        sums = (sum((factor * rows[other][n] for other, factor in terms.items()), ZERO) for n in range(len(rows[row])))
        return all(total == value for total, value in zip(sums, rows[row], strict=True))

    def _row(self, at: int, row: int, bias: bool) -> list[Value]:
        taps = [tap for column in self.weights.columns(at, row) for tap in self.weights.kernel(at, row, column)]
        return [self.weights.bias(at, row), *taps] if bias else taps


def _proportion(mine: list[Value], theirs: list[Value]) -> Fraction | None:
    """`r ≠ 0` with `mine = r · theirs`, as rationals; 1 for two rows of zeros."""
    if not all(exact(value) for value in (*mine, *theirs)):
        return None
    pairs = [(a, b) for a, b in zip(mine, theirs, strict=True) if a or b]
    if not pairs:
        return ONE
    first, second = pairs[0]
    factor = first / second if second else ZERO
    return factor if factor and all(a == factor * b for a, b in pairs) else None
