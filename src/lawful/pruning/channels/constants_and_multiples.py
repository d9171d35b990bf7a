"""What is known of every channel of every activation: its constant value, and which others it is a multiple of.

Both are facts of algebra about the weights as rational numbers; nothing is measured. A constant is a rational where it
is known as one, and a ball of 200 bits around it elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.exact.proportional_rows import ONE, rays
from lawful.program.core.functions import ONE_SIDED, ZERO, Value, apply_function, combine, normalise, parity, product
from lawful.pruning.channels.program import Heads, Operation
from lawful.pruning.channels.state import ChannelState
from lawful.types import Floats

BITS = 200
# Of every channel: the constant by place; a key; a factor. Channels of one key are multiples by their factors.
Known = tuple[dict[int, Value], Sequence[Any], Sequence[Fraction]]


class Facts:
    """For every activation: constants by place, and for each place a key and a factor.

    Channels with one key are multiples of one function, by their factors, which are not 0.
    """

    def __init__(self, state: ChannelState) -> None:
        self.state = state
        self.constant: dict[str, dict[int, Value]] = {}
        self.keys: dict[str, list[int]] = {}
        self.factors: dict[str, Sequence[Fraction]] = {}
        numbers: dict[Any, int] = {}
        known = {operation.name: operation for operation in state.program.operations}
        for name, cells in state.program.activations.items():
            operation = known.get(name)
            if operation is None or operation.kind == "other":
                constant, keys, factors = {}, range(len(cells)), [ONE] * len(cells)
            else:
                constant, keys, factors = getattr(self, f"_{operation.kind}")(operation)
            self.constant[name], self.factors[name] = constant, factors
            # Keys of different operations differ, whatever they are made of.
            self.keys[name] = [numbers.setdefault((name, key), len(numbers)) for key in keys]

    def values(self, name: str, places: Sequence[int]) -> list[Value | None]:
        """The constant at each place, or None."""
        return [self.constant[name].get(place) for place in places]

    def _of(self, name: str) -> Known:
        return self.constant[name], self.keys[name], self.factors[name]

    def _layer(self, operation: Operation) -> Known:
        source = operation.sources[0]
        weight, bias = self.state.weight(operation), self.state.bias(operation)
        flat = weight.reshape(len(weight), weight.shape[1], -1)
        steady = self._steady(operation)
        moving = np.ones(weight.shape[1], dtype=bool)
        moving[list(steady)] = False
        constant: dict[int, Value] = {}
        for row in np.flatnonzero(~flat[:, moving].any(axis=(1, 2))).tolist():
            heard = [place for place in steady if flat[row, place].any()]
            terms = ((tap, self.constant[source][place]) for place in heard for tap in flat[row, place].tolist())
            constant[row] = combine(terms, self.state.exact_bias(operation, row))
        keys, factors = rays(np.concatenate([weight.reshape(len(weight), -1), bias[:, None]], axis=1))
        rounded = self.state.rounded(operation)  # no exact statement rests on these: each is alone
        return constant, [("row", row) if rounded[row] else key for row, key in enumerate(keys)], factors

    def _steady(self, operation: Operation) -> dict[int, Value]:
        """Channels whose value is the same wherever the operation reads: not beside a border of zeros."""
        constants = self.constant[operation.sources[0]]
        return {place: value for place, value in constants.items() if not operation.padded or value == 0}

    def _depthwise(self, operation: Operation) -> Known:
        _, keys, factors = self._of(operation.sources[0])
        weight, bias = self.state.weight(operation), self.state.bias(operation)
        flat, steady = weight.reshape(len(weight), -1), self._steady(operation)
        constant: dict[int, Value] = {}
        for row, taps in enumerate(flat.tolist()):
            if not any(taps):
                constant[row] = Fraction(float(bias[row]))
            elif row in steady:
                constant[row] = combine(((tap, steady[row]) for tap in taps), Fraction(float(bias[row])))
        rows = [row.tobytes() for row in np.concatenate([flat, bias[:, None]], axis=1) + 0.0]
        return constant, list(zip(keys, factors, rows, strict=True)), [ONE] * len(flat)

    def _norm(self, operation: Operation) -> Known:
        constants, keys, factors = self._of(operation.sources[0])
        mean, variance = (self.state.arrays[str(operation.tensors[role])] for role in ("mean", "variance"))
        gain, shift = self._gain_and_shift(operation)
        epsilon = float(operation.arguments[0])
        constant = {place: Fraction(float(shift[place])) for place in np.flatnonzero(gain == 0).tolist()}
        for place, value in constants.items():
            at, spread, by, up = (float(array[place]) for array in (mean, variance, gain, shift))
            constant[place] = normalise(value, at, spread, epsilon, by, up)
        rows, multiples = rays(np.stack([gain, shift], axis=1))
        parts = zip(keys, factors, mean.tolist(), variance.tolist(), rows, strict=True)
        return constant, list(parts), multiples

    def _instance(self, operation: Operation) -> Known:
        constants, keys, factors = self._of(operation.sources[0])
        gain, shift = self._gain_and_shift(operation)
        constant = {place: Fraction(float(shift[place])) for place in {*np.flatnonzero(gain == 0).tolist(), *constants}}
        rows, multiples = rays(np.stack([gain, shift], axis=1))
        return constant, list(zip(keys, factors, rows, strict=True)), multiples

    def _scale(self, operation: Operation) -> Known:
        constants, keys, factors = self._of(operation.sources[0])
        gain, shift = self._gain_and_shift(operation)
        constant: dict[int, Value] = {
            place: Fraction(float(shift[place])) for place in np.flatnonzero(gain == 0).tolist()
        }
        for place, value in constants.items():
            constant[place] = combine([(float(gain[place]), value)], Fraction(float(shift[place])))
        rows: list[tuple[int, Any]] = []
        multiples: list[Fraction] = []
        for key, factor, by, up in zip(keys, factors, gain.tolist(), shift.tolist(), strict=True):
            slope = Fraction(float(by)) * factor
            if up:  # up (slope/up x + 1): multiples only of what has the same quotient
                rows.append((key, slope / Fraction(float(up))))
                multiples.append(Fraction(float(up)))
            else:  # through 0, multiples stay multiples; 0 itself is no multiple of what varies
                rows.append((key, "through 0" if slope else "zero"))
                multiples.append(slope or ONE)
        return constant, rows, multiples

    def _gain_and_shift(self, operation: Operation) -> tuple[Floats, Floats]:
        count = len(self.state.program.activations[operation.name])
        gain, shift = (
            np.full(count, default)
            if operation.tensors[role] is None
            else self.state.arrays[str(operation.tensors[role])].reshape(count)
            for role, default in (("weight", 1.0), ("bias", 0.0))
        )
        return gain, shift

    def _same(self, operation: Operation) -> Known:
        _, keys, factors = self._of(operation.sources[0])
        constant = self._apply_to_constants(operation)
        if operation.function == ONE_SIDED:
            return self._keep_sides_apart(operation, constant)
        return constant, keys, [abs(factor) for factor in factors] if parity(operation.function, ()) > 0 else factors

    def _pool(self, operation: Operation) -> Known:
        return self._keep_sides_apart(operation, self._steady(operation))

    def _keep_sides_apart(self, operation: Operation, constant: dict[int, Value]) -> Known:
        """What treats the two signs apart: only positive multiples stay multiples."""
        _, keys, factors = self._of(operation.sources[0])
        pairs = zip(keys, factors, strict=True)
        return constant, [(key, factor > 0) for key, factor in pairs], [abs(factor) for factor in factors]

    def _bend(self, operation: Operation) -> Known:
        _, keys, factors = self._of(operation.sources[0])
        kind = parity(operation.function, operation.arguments)
        rows = [(key, abs(factor) if kind else factor) for key, factor in zip(keys, factors, strict=True)]
        multiples = [-ONE if kind < 0 and factor < 0 else ONE for factor in factors]
        return self._apply_to_constants(operation), rows, multiples

    def _apply_to_constants(self, operation: Operation) -> dict[int, Value]:
        values = {
            place: apply_function(operation.function, operation.arguments, value)
            for place, value in self.constant[operation.sources[0]].items()
        }
        return {place: value for place, value in values.items() if value is not None}

    def _flat(self, operation: Operation) -> Known:
        constants, keys, factors = self._of(operation.sources[0])
        width = operation.width
        constant = {place * width + at: value for place, value in constants.items() for at in range(width)}
        rows = [(key, place) for key in keys for place in range(width)]
        return constant, rows, [factor for factor in factors for _ in range(width)]

    def _cat(self, operation: Operation) -> Known:
        constant: dict[int, Value] = {}
        keys: list[int] = []
        factors: list[Fraction] = []
        for source in operation.sources:
            constant |= {len(keys) + place: value for place, value in self.constant[source].items()}
            keys += self.keys[source]
            factors += self.factors[source]
        return constant, keys, factors

    def _part(self, operation: Operation) -> Known:
        constants, keys, factors = self._of(operation.sources[0])
        start = int(operation.arguments[0])
        mine = slice(start, start + len(self.state.program.activations[operation.name]))
        constant = {place - start: value for place, value in constants.items() if mine.start <= place < mine.stop}
        return constant, keys[mine], factors[mine]

    def _attend(self, operation: Operation) -> Known:
        """Values are averaged with the weights of their head: multiples stay multiples, and constants are kept."""
        heads = operation.attention
        if heads is None:
            raise AssertionError("an attention has heads")
        constants, keys, factors = self._of(operation.sources[2])
        scores = self._scores(operation, heads)
        places = [
            (score, int(place)) for group, row in enumerate(heads.values) for score in scores[group] for place in row
        ]
        constant = {
            at: constants[place] for at, (_, place) in enumerate(places)
            if place in constants and (heads.whole or constants[place] == 0)
        }  # fmt: skip
        return constant, [(score, keys[place]) for score, place in places], [factors[place] for _, place in places]

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

    def _add(self, operation: Operation) -> Known:
        first, second = map(self._of, operation.sources)
        parts = zip(first[1], second[1], first[2], second[2], strict=True)
        both = first[0].keys() & second[0].keys()
        constant = {place: combine([(1.0, second[0][place])], first[0][place]) for place in both}
        return constant, [(mine, theirs, other / factor) for mine, theirs, factor, other in parts], first[2]

    def _mul(self, operation: Operation) -> Known:
        (first, *one), (second, *two) = map(self._of, operation.sources)
        constant = {place: product(first[place], second[place]) for place in first.keys() & second.keys()}
        zeros = [place for constants in (first, second) for place, value in constants.items() if value == 0]
        keys, factors = zip(one[0], two[0], strict=True), zip(one[1], two[1], strict=True)
        return constant | dict.fromkeys(zeros, ZERO), list(keys), [factor * other for factor, other in factors]
