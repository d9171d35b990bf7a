"""A core program as the straight-line program of a proof.

Values are constants, arrays of the straight-line program, conditions (where an array is positive) and token ids (unit
vectors, and what each token is mapped to). What has no such meaning is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError, Unsupported
from lawful.program.arrays import NUMPY
from lawful.program.core.steps import FUNCTIONS
from lawful.program.core.straight_line import StraightLineProgram, Writer
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.passes.core import lower as lower_to_core
from lawful.program.program import Node, Program
from lawful.types import Indices

MOST_SORTED = 16
MOST_POWER = 16  # a product of more factors is no short program


@dataclass(frozen=True, eq=False)
class StepArray:
    """An array of the straight-line program; `dead` marks the entries that are −∞ (masked before a softmax)."""

    number: int
    dead: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class SignCondition:
    """Where an array is positive (`above`), or where it is not: equality is a boundary that no proof touches."""

    sign: int
    above: bool = True


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids, as the unit vector of each, and a number or truth value for each token of the vocabulary."""

    number: int
    values: NDArray[Any]


Known = np.ndarray
Value = NDArray[Any] | StepArray | SignCondition | Tokens
Shape = tuple[int, ...]


def straighten(
    program: Program, shapes: Mapping[str, Shape], vocabulary: int | None = None, most: int | None = None
) -> StraightLineProgram:
    """A program as steps on its parameters, laid end to end in the order of `shapes`, and on its inputs.

    An input of integers holds ids of so many tokens; `most` entries are allowed in all steps together.
    """
    core = lower_to_core(program, exact=True)
    domain = _Straighten(core, shapes, vocabulary, most)
    output = core.outputs[0]
    try:
        result = interpret(core, domain)[output]
        if isinstance(result, Known):
            raise Unsupported("the module's output does not depend on its parameters")
        return domain.write.finish(domain.array(result, output.shape, output.shape))
    except LawfulError:
        raise
    except Exception as error:  # an operator in a way that its rule does not know
        raise Unsupported(
            f"no proof covers an operation of the module: {type(error).__name__}: {str(error)[:160]}"
        ) from None


class _Straighten(AbstractDomain[Value]):
    def __init__(self, core: Program, shapes: Mapping[str, Shape], vocabulary: int | None, most: int | None) -> None:
        self.tensors, self.vocabulary = core.tensors, vocabulary
        self.places: dict[str, tuple[int, int]] = {}
        start = 0
        for name, shape in shapes.items():
            self.places[name] = start, start + math.prod(shape)
            start += math.prod(shape)
        end = 0
        for node in core.inputs:
            count = node.size * ((vocabulary or 0) if node.kind == "i" else 1)
            self.places[f"input {node['name']}"] = end, end + count
            end += count
        self.write = Writer(start, end, most)

    def other(self, node: Node, *operands: Value) -> Value:
        """Refused by name."""
        raise Unsupported(f"no proof covers the operation {node['name'] if node.op == 'opaque' else node.op}")

    # Values

    def array(self, value: Value, shape: Shape, whole: Shape) -> int:
        """The number of an array that holds a value of a shape, broadcast to another."""
        if isinstance(value, Known):
            if not np.isfinite(value).all():
                raise Unsupported("no proof covers infinite constants outside a softmax")
            return self.write.constant(np.broadcast_to(value, whole))
        if isinstance(value, SignCondition):
            value = StepArray(self.chosen(value, *(self.array(np.array(x), (), shape) for x in (1.0, 0.0))))
        if isinstance(value, Tokens):
            table = self.write.constant(value.values.astype(np.float64))
            sizes = (1, math.prod(shape), len(value.values), 1)
            value = StepArray(self.write.matmul(value.number, table, sizes))
        if value.dead is not None:
            raise Unsupported("no proof covers masked arrays outside a softmax")
        return self.spread(value.number, shape, whole)

    def arrays(self, node: Node, *operands: Value) -> list[int]:
        """All operands, broadcast to the node's shape."""
        return [self.array(x, operand.shape, node.shape) for x, operand in zip(operands, node.inputs, strict=True)]

    def spread(self, number: int, shape: Shape, whole: Shape) -> int:
        """An array broadcast to another shape."""
        if shape == whole:
            return number
        return self.write.take((number,), np.broadcast_to(_count(shape), whole))

    def fold(self, node: Node, *operands: Value) -> Value | None:
        """Constants are computed, and so are functions of one token."""
        kinds = {type(operand) for operand in operands}
        if kinds == {Known}:
            with np.errstate(all="ignore"):
                return np.asarray(node.operator.meaning(NUMPY, node.attributes, *operands))
        if Tokens not in kinds or not kinds <= {Known, Tokens}:
            return None
        ids = {
            self._spread_tokens(x, operand.shape, node.shape)
            for x, operand in zip(operands, node.inputs, strict=True)
            if isinstance(x, Tokens)
        }
        fixed = [x for x in operands if isinstance(x, Known)]
        if len(ids) > 1 or any(x.size == 0 or (x != x.flat[0]).any() for x in fixed):
            return None
        samples = [x.values if isinstance(x, Tokens) else x.ravel()[:1] for x in operands]  # type: ignore[union-attr]
        return Tokens(ids.pop(), np.asarray(node.operator.meaning(NUMPY, node.attributes, *samples)))

    def _spread_tokens(self, tokens: Tokens, shape: Shape, whole: Shape) -> int:
        return self._move_tokens(tokens, np.broadcast_to(_count(shape), whole)).number

    def _move_tokens(self, tokens: Tokens, indices: Indices) -> Tokens:
        width = len(tokens.values)
        rows = indices.reshape(-1, 1) * width + np.arange(width)
        return Tokens(self.write.take((tokens.number,), rows), tokens.values)

    # Families

    def leaf(self, node: Node) -> Value:
        """Constants, parts of the parameters and of the input."""
        if node.op == "constant":
            return np.asarray(node["value"])
        if node.op == "buffer":
            tensor = self.tensors[node["name"]]
            return np.asarray(tensor.detach().double() if hasattr(tensor, "detach") else tensor)
        is_input = node.op == "input"
        places = np.arange(*self.places[f"input {node['name']}" if is_input else node["name"]])
        number = self.write.take((1 if is_input else 0,), places)
        if node.kind != "i":
            return StepArray(number)
        if self.vocabulary is None:
            raise Unsupported("no proof covers inputs that are integers")
        return Tokens(number, np.arange(self.vocabulary))

    def movement(self, node: Node, *sources: Value) -> Value:
        """Entries by place; 0 and −∞ of constants are places of their own."""
        indices = node["map"].positions.ravel()
        first = sources[0]
        if all(isinstance(source, Known) for source in sources):
            return np.asarray(NUMPY.take(sources, node["map"]))
        if len(sources) == 1 and isinstance(first, SignCondition):
            return SignCondition(self.write.take((first.sign,), indices), first.above)
        if len(sources) == 1 and isinstance(first, Tokens):
            return self._move_tokens(first, indices)
        return self._gather(node, sources, indices)

    def _gather(self, node: Node, sources: Sequence[Value], indices: Indices) -> StepArray:
        """Entries of the operands of a node laid end to end; the sources that have none of them are left out."""
        numbers: list[int] = []
        places: list[Indices] = []
        total = 0
        for value, source in zip(sources, node.inputs[len(node.inputs) - len(sources) :], strict=True):
            place = np.arange(total, total + source.size)
            if isinstance(value, Known):
                entries = value.ravel().astype(np.float64)
                masked = np.isneginf(entries)
                place[entries == 0], place[masked] = ZERO, DEAD
                if (place < 0).all():
                    places.append(place)
                    continue
                number = self.array(np.where(masked, 0.0, entries), entries.shape, entries.shape)
            elif isinstance(value, StepArray):
                number = value.number
                if value.dead is not None:
                    place[value.dead.ravel()] = DEAD
            else:
                number = self.array(value, source.shape, source.shape)
            numbers.append(number)
            places.append(place)
            total += source.size
        chosen = np.concatenate(places)[indices]
        dead = (chosen == DEAD).reshape(node.shape)
        return StepArray(self.write.take(tuple(numbers), np.maximum(chosen, ZERO)), dead if dead.any() else None)

    def elementwise(self, node: Node, *operands: Value) -> Value:
        """Smooth functions, powers, casts."""
        (x, *more) = operands
        power = node.attributes.get("exponent")
        known = self.fold(node, *operands) if power != -1 or not isinstance(x, Known) else None
        if known is not None:
            return known
        if more:
            return self.other(node, *operands)
        if power is not None:
            return StepArray(self._power(self.array(x, node.shape, node.shape), power))
        if node.op == "cast" and node.kind == "f":
            return StepArray(self.array(x, node.shape, node.shape))
        if node.op not in FUNCTIONS:
            return self.other(node, x)
        if node.op == "exp" and isinstance(x, StepArray) and x.dead is not None:  # of −∞ it is 0
            alive = self.write.constant((~x.dead).astype(np.float64))
            return StepArray(self.write.pair("mul", self.write.function("exp", x.number), alive))
        return StepArray(self.write.function(node.op, self.array(x, node.shape, node.shape)))

    def _power(self, x: int, power: float) -> int:
        """Whole powers, and halves of them; others by the logarithm, where there is one."""
        write = self.write
        if (2 * power) % 1:
            exponent = write.constant(np.full(write.length(x), power))
            return write.function("exp", write.pair("mul", write.function("log", x), exponent))
        whole, half = divmod(abs(power), 1)
        if whole > MOST_POWER or power == 0:
            raise Unsupported("no proof covers this power")
        if power == -0.5:
            return write.function("rsqrt", x)
        base = x if power > 0 else write.function("reciprocal", x)
        factors = [base] * int(whole) + ([write.pair("mul", base, write.function("rsqrt", base))] if half else [])
        result = factors.pop()
        while factors:
            result = write.pair("mul", result, factors.pop())
        return result

    def addition(self, node: Node, x: Value, y: Value) -> Value:
        """A sum; −∞ in a constant masks."""
        known = self.fold(node, x, y)
        if known is not None:
            return known
        dead = np.zeros(node.shape, dtype=bool)
        plain: list[Value] = []
        for value in (x, y):
            masked = np.isneginf(value) if isinstance(value, Known) else getattr(value, "dead", None)
            if masked is not None:
                dead |= masked
                value = np.where(masked, 0.0, value) if isinstance(value, Known) else replace(value, dead=None)  # type: ignore
            plain.append(value)
        one, two = self.arrays(node, *plain)
        return StepArray(self._plus(one, two), dead if dead.any() else None)

    def product(self, node: Node, x: Value, y: Value) -> Value:
        """Entry by entry."""
        known = self.fold(node, x, y)
        return StepArray(self.write.pair("mul", *self.arrays(node, x, y))) if known is None else known

    def contraction(self, node: Node, x: Value, y: Value) -> Value:
        """A stack of matrix products, in the order that leaves the result where it has to be."""
        known = self.fold(node, x, y) if isinstance(x, Known) and isinstance(y, Known) else None
        if known is not None:
            return known
        operand_letters, out = node["spec"].split("->")
        letters = operand_letters.split(",")
        sizes = {
            c: n
            for axes, operand in zip(letters, node.inputs, strict=True)
            for c, n in zip(axes, operand.shape, strict=True)
        }
        arrays = [
            self.array(value, operand.shape, operand.shape) for value, operand in zip((x, y), node.inputs, strict=True)
        ]
        batch = [c for c in out if c in letters[0] and c in letters[1]]
        inner = [c for c in letters[0] if c in letters[1] and c not in out]
        alone = [[c for c in out if c in axes and c not in batch] for axes in letters]
        large = [c for c in out if sizes[c] > 1]
        if large == [c for c in (*batch, *alone[1], *alone[0]) if sizes[c] > 1]:
            letters, arrays, alone = letters[::-1], arrays[::-1], alone[::-1]
        left = self._permute(arrays[0], letters[0], [*batch, *alone[0], *inner], sizes)
        right = self._permute(arrays[1], letters[1], [*batch, *inner, *alone[1]], sizes)
        counts = [math.prod(sizes[c] for c in part) for part in (batch, alone[0], inner, alone[1])]
        total = self.write.matmul(left, right, (counts[0], counts[1], counts[2], counts[3]))
        return StepArray(self._permute(total, [*batch, *alone[0], *alone[1]], out, sizes))

    def _permute(self, number: int, own: Sequence[str], wanted: Sequence[str], sizes: Mapping[str, int]) -> int:
        places = _count(tuple(sizes[c] for c in own)).transpose([list(own).index(c) for c in wanted])
        return self.write.take((number,), places)

    def reduction(self, node: Node, x: Value) -> Value:
        """Sums, products, and extremes by comparisons in pairs."""
        known = self.fold(node, x) if isinstance(x, Known) else None
        if known is not None:
            return known
        shape = node.inputs[0].shape
        axes = node.attributes.get("axes", ())
        outer = [axis for axis in range(len(shape)) if axis not in axes]
        lines = _count(shape).transpose([*outer, *axes]).reshape(node.size, -1)
        if node.op == "sum":
            number = self.write.take((self.array(x, shape, shape),), lines)
            return StepArray(self.write.total(number, lines.shape[1]) if lines.shape[1] > 1 else number)
        if node.op == "prod":
            number = self.array(x, shape, shape)
            result, *rest = (self.write.take((number,), column) for column in lines.T)
            for factor in rest:
                result = self.write.pair("mul", result, factor)
            return StepArray(result)
        if node.op in ("amax", "amin") and isinstance(x, StepArray):
            return self._extreme(node, x, lines)
        return self.other(node, x)

    def _extreme(self, node: Node, x: StepArray, lines: Indices) -> StepArray:
        """The largest or smallest entry of each line; −∞ never wins, so that only others are compared."""
        if x.dead is not None:
            if node.op == "amin":
                raise Unsupported("no proof covers the least of masked numbers")
            lines = np.sort(np.where(x.dead.ravel()[lines], ZERO, lines), axis=1)[:, ::-1]
        best = self.write.take((x.number,), lines[:, 0])
        for column in lines[:, 1:].T:
            here = np.flatnonzero(column >= 0)
            if not len(here):
                break
            candidate, before = self.write.take((x.number,), column[here]), self.write.take((best,), here)
            merged = np.arange(len(lines))
            merged[here] = len(lines) + np.arange(len(here))
            larger = self._larger(before, candidate) if node.op == "amax" else self._larger(before, candidate, False)
            best = self.write.take((best, larger), merged) if len(here) < len(lines) else larger
        dead = (lines[:, 0] < 0).reshape(node.shape)
        return StepArray(best, dead if dead.any() else None)

    def choice(self, node: Node, *operands: Value) -> Value:
        """By a condition, by comparing two arrays, or all in order."""
        known = self.fold(node, *operands)
        if known is not None:
            return known
        if node.op in ("maximum", "minimum"):
            one, two = self.arrays(node, *operands)
            return StepArray(self._larger(one, two, node.op == "maximum"))
        if node.op == "sorted":
            return StepArray(self._sort(self.array(operands[0], node.shape, node.shape), node))
        if len(operands) != 3:
            return self.other(node, *operands)
        condition, one_, two_ = operands
        shapes = [operand.shape for operand in node.inputs]
        if isinstance(condition, Known):
            count = [math.prod(shape) for shape in shapes[1:]]
            places = [np.broadcast_to(_count(shape), node.shape) for shape in shapes[1:]]
            chosen = np.where(np.broadcast_to(condition, node.shape), places[0], places[1] + count[0])
            return self._gather(node, (one_, two_), chosen.ravel())
        decided = self._condition(condition, shapes[0])
        decided = replace(decided, sign=self.spread(decided.sign, shapes[0], node.shape))
        branches = [self.array(x, shape, node.shape) for x, shape in zip((one_, two_), shapes[1:], strict=True)]
        return StepArray(self.chosen(decided, *branches))

    def _condition(self, value: Value, shape: Shape) -> SignCondition:
        if isinstance(value, SignCondition):
            return value
        if isinstance(value, Tokens):
            value = Tokens(value.number, 2.0 * value.values - 1.0)
            return SignCondition(self.array(value, shape, shape))
        raise Unsupported("no proof covers a choice by a computed condition")

    def comparison(self, node: Node, *operands: Value) -> Value:
        """The sign of a difference; masked entries are known, and equality is no question to numbers that vary."""
        known = self.fold(node, *operands)
        if known is not None:
            return known
        x = operands[0]
        if node.op == "not":
            condition = self._condition(x, node.shape)
            return replace(condition, above=not condition.above)
        if node.op in ("gt", "ge", "lt", "le"):
            one, two = operands if node.op in ("gt", "ge") else operands[::-1]
            shapes = [operand.shape for operand in node.inputs][:: 1 if node.op in ("gt", "ge") else -1]
            return self._order(one, two, shapes, node.shape)
        if node.op in ("and", "or"):
            return self._connect(node, *operands)
        dead = x.dead if isinstance(x, StepArray) else None
        masked = np.zeros(node.shape, dtype=bool) if dead is None else np.broadcast_to(dead, node.shape)
        if node.op == "isinf":
            return masked
        if node.op in ("eq", "ne") and any(isinstance(y, Known) and np.isneginf(y).all() for y in operands):
            return masked if node.op == "eq" else ~masked
        raise Unsupported("no proof covers a comparison of computed numbers")

    def _order(self, one: Value, two: Value, shapes: Sequence[Shape], whole: Shape) -> SignCondition:
        """Where the first is larger."""
        if isinstance(two, Known) and not two.any():
            return self._sign(self.array(one, shapes[0], whole), True)
        if isinstance(one, Known) and not one.any():
            return self._sign(self.array(two, shapes[1], whole), False)
        return SignCondition(self._minus(self.array(one, shapes[0], whole), self.array(two, shapes[1], whole)))

    def _sign(self, number: int, above: bool) -> SignCondition:
        """The sign of a multiple is that of the array itself, or the other one: choices by both share it."""
        factor = self._multiple(number)
        if factor is None or factor[0] == 0:
            return SignCondition(number, above)
        return self._sign(factor[1], above == (factor[0] > 0))

    def _connect(self, node: Node, *operands: Value) -> SignCondition:
        signs = []
        for value, operand in zip(operands, node.inputs, strict=True):
            condition = self._condition(value, operand.shape)
            sign = self.spread(condition.sign, operand.shape, node.shape)
            signs.append(sign if condition.above else self._times(-1.0, sign))
        one, two = signs
        return SignCondition(self.write.choose(one, two, one) if node.op == "and" else self.write.choose(one, one, two))

    def lookup(self, node: Node, *operands: Value) -> Value:
        """Slices of a table by token: unit vectors times the table."""
        table, tokens, *more = operands
        if more or not isinstance(tokens, Tokens) or node.op != "lookup":
            raise Unsupported(f"no proof covers {node.op} at positions that are data")
        shape, axis = node.inputs[0].shape, node["axis"]
        rows = np.where(tokens.values < 0, tokens.values + shape[axis], tokens.values)
        if ((rows < 0) | (rows >= shape[axis])).any():
            raise Unsupported("no proof covers tokens that are not in the table")
        places = np.moveaxis(_count(shape), axis, 0)[rows]
        width = math.prod(places.shape[1:])
        slices = self.write.take((self.array(table, shape, shape),), places)
        positions = node.inputs[1].shape
        result = self.write.matmul(tokens.number, slices, (1, math.prod(positions), len(rows), width))
        back = _count((math.prod(positions), *places.shape[1:]))
        return StepArray(self.write.take((result,), np.moveaxis(back, 0, axis)))

    # Steps

    def chosen(self, condition: SignCondition, positive: int, other: int) -> int:
        """One array where a condition holds, and another where it does not."""
        one, two = (positive, other) if condition.above else (other, positive)
        return self.write.choose(condition.sign, one, two)

    def _larger(self, one: int, two: int, larger: bool = True) -> int:
        return self.write.choose(self._minus(one, two) if larger else self._minus(two, one), one, two)

    def _minus(self, one: int, two: int) -> int:
        return self.write.pair("add", one, self._times(-1.0, two))

    def _sort(self, number: int, node: Node) -> int:
        """Neighbours are exchanged until all are in order (odd-even transposition)."""
        lines = np.moveaxis(_count(node.shape), node["axis"], 0)
        columns = [self.write.take((number,), line) for line in lines]
        if len(columns) > MOST_SORTED:
            raise Unsupported(f"no proof covers sorting more than {MOST_SORTED} numbers")
        for sweep in range(len(columns)):
            for place in range(sweep % 2, len(columns) - 1, 2):
                one, two = columns[place : place + 2]
                both = self._larger(one, two, False), self._larger(one, two)
                columns[place : place + 2] = both[::-1] if node["descending"] else both
        return self.write.take(tuple(columns), np.moveaxis(_count(lines.shape), 0, node["axis"]))

    def _multiple(self, number: int) -> tuple[float, int] | None:
        """The number and the array whose product an array is."""
        step = self.write.steps[number]
        for one, two in (step.sources, step.sources[::-1]) if step.kind == "mul" else ():
            values = self.write.steps[one].values
            if values is not None and len(values) and (values == values[0]).all():
                return float(values[0]), two
        return None

    def _times(self, factor: float, number: int) -> int:
        """A multiple of an array; two factors are one where their product is exact."""
        inner = self._multiple(number)
        if inner is not None and abs(factor) == 1:
            factor, number = factor * inner[0], inner[1]
        if factor == 1:
            return number
        return self.write.pair("mul", self.write.constant(np.full(self.write.length(number), factor)), number)

    def _plus(self, one: int, two: int) -> int:
        """A sum. Of two choices by one sign it is one choice: `relu(x) − s relu(−x)` has a slope on each side."""
        first, second = self._branches(one), self._branches(two)
        if first is None or second is None or first[0] != second[0]:
            return self.write.pair("add", one, two)
        return self.write.choose(first[0], *(self._sum(a, b) for a, b in zip(first[1:], second[1:], strict=True)))

    def _sum(self, one: int, two: int) -> int:
        if self._is_zero(one):
            return two
        return one if self._is_zero(two) else self._plus(one, two)

    def _is_zero(self, number: int) -> bool:
        values = self.write.steps[number].values
        return values is not None and not values.any()

    def _branches(self, number: int) -> tuple[int, int, int] | None:
        """The sign and both sides of a choice, or of the product of one with an array."""
        step = self.write.steps[number]
        if step.kind == "choose":
            return step.sources  # type: ignore[return-value]
        for factor, inner in (step.sources, step.sources[::-1]) if step.kind == "mul" else ():
            choice = self._branches(inner)
            if choice is not None:
                return choice[0], self._product(factor, choice[1]), self._product(factor, choice[2])
        return None

    def _product(self, factor: int, number: int) -> int:
        """A product with signs in front: nothing, or −1, or another number, times what is left."""
        if self._is_zero(number):
            return number
        multiple = self._multiple(number)
        if multiple is not None and abs(multiple[0]) == 1:
            return self._times(multiple[0], self._product(factor, multiple[1]))
        values = self.write.steps[factor].values
        if values is not None and len(values) and (values == values[0]).all():
            return self._times(float(values[0]), number)
        return self.write.pair("mul", factor, number)


ZERO, DEAD = -1, -2  # places that are no entries: of zeros and of −∞


def _count(shape: Shape) -> Indices:
    return np.arange(math.prod(shape)).reshape(shape)
