"""Sums, products, powers and choices, in one spelling each.

Each rule holds for all reals, keeps NaN and infinities where they were, and computes no number that is not exact.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lawful.program.builder.movements import MovementBuilder
from lawful.program.builder.nodes import Operand
from lawful.program.index_map import IndexMap
from lawful.program.program import Node, widest
from lawful.program.table import ValueKind


class AlgebraBuilder(MovementBuilder):
    """A little algebra."""

    def add(self, x: Operand, y: Operand) -> Node:
        """x + y. `x + 0` is x (as reals: 0 and -0 are one), `(x + y) + y` is x + 2 y. Other sums of sums stay.

        Flattening them would make a residual stream of depth n a sum of n terms in n places.
        """
        a, b = self._pair(x, y, "i")
        shape = np.broadcast_shapes(a.shape, b.shape)
        for one, other in ((a, b), (b, a)):
            if self.number(one) == 0:
                return self.expand(other, shape)
            if one.op == "add" and one.shape == shape:
                term = self.align(other, one.rank)
                if term in one.inputs:
                    rest = one.inputs[1 - one.inputs.index(term)]
                    return self.add(rest, self.mul(other, 2))
        return self.elementwise("add", a, b, commutes=True)

    def mul(self, x: Operand, y: Operand) -> Node:
        """x y. `1 x` is x, `x x` is x², and c (d x) is (c d) x where the product of the numbers is exact.

        `0 x` stays: it is NaN where x is infinite or NaN.
        """
        a, b = self._pair(x, y, "i")
        shape = np.broadcast_shapes(a.shape, b.shape)
        for one, other in ((a, b), (b, a)):
            factor = self.number(one)
            if factor == 1:
                return self.expand(other, shape)
            # Only where floats multiply as reals do: a digest must not depend on who rounded a product first.
            inner = self.number(other.inputs[0]) if factor is not None and other.op == "mul" else None
            if inner is not None and _exact_product(factor, inner) and other.shape == shape:
                return self.mul(factor * inner, other.inputs[1])  # type: ignore[operator]
        # Integers have no powers: their square stays a product.
        if a is b and a.kind == "f":
            return self.power(a, 2.0)
        return self.elementwise("mul", a, b, commutes=True)

    def neg(self, x: Operand) -> Node:
        """-x is (-1) x."""
        return self.mul(x, -1)

    def sub(self, x: Operand, y: Operand) -> Node:
        """x - y is x + (-1) y."""
        a, b = self._pair(x, y, "i")
        return self.add(a, self.neg(b))

    def div(self, x: Operand, y: Operand) -> Node:
        """x / y is x y⁻¹; a number in y is inverted at once."""
        a, b = self._pair(x, y, "f")
        return self.mul(a, self.power(b, -1.0))

    def power(self, x: Operand, exponent: float) -> Node:
        """x to a fixed power. `√x` to an odd power is x to half of it: both are NaN for x < 0 (an even one is not)."""
        a = self.as_kind(self.operand(x), "f")
        if exponent == 1:
            return a
        if a.op == "power" and a["exponent"] == 0.5 and exponent % 2 == 1:
            return self.power(a.inputs[0], exponent / 2)
        return self.elementwise("power", a, exponent=float(exponent))

    def maximum(self, x: Operand, y: Operand) -> Node:
        """max(x, y); with 0 it is relu, however it is written, with -∞ it is x. NaN passes both."""
        a, b = self._pair(x, y)
        for one, other in ((a, b), (b, a)):
            number = self.number(one) if other.kind == "f" else None
            if number == 0 or number == -math.inf:
                value = self.elementwise("relu", other) if number == 0 else other
                return self.expand(value, np.broadcast_shapes(a.shape, b.shape))
        return self.elementwise("maximum", a, b, commutes=True)

    def minimum(self, x: Operand, y: Operand) -> Node:
        """min(x, y); with 0 it is -relu(-x), with ∞ it is x."""
        a, b = self._pair(x, y)
        for one, other in ((a, b), (b, a)):
            number = self.number(one) if other.kind == "f" else None
            if number == 0 or number == math.inf:
                value = self.neg(self.elementwise("relu", self.neg(other))) if number == 0 else other
                return self.expand(value, np.broadcast_shapes(a.shape, b.shape))
        return self.elementwise("minimum", a, b, commutes=True)

    def where(self, condition: Node, x: Operand, y: Operand) -> Node:
        """x where the condition holds, else y. Equal branches need no condition; a known one is a movement."""
        a, b = self._pair(x, y)
        condition = self.as_kind(condition, "b")
        shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
        if a is b:
            return self.expand(a, shape)
        mask = self.value(condition)
        if mask is None:
            return self.elementwise("where", condition, a, b, kind=a.kind)
        # Of a branch that no entry takes nothing is left: the value no longer depends on it.
        if bool(mask.all()) or not bool(mask.any()):
            return self.expand(a if bool(mask.all()) else b, shape)
        one, two = self.expand(a, shape), self.expand(b, shape)
        # One number behind a mask is what every layer of a causal model has: the map is built once for all of them.
        for value, fill, known in ((one, b, mask), (two, a, ~mask)):
            if value.op not in ("take", "constant") and self.number(fill) is not None:
                return self._fill(value, fill, condition, known)
        return self.move(lambda s, t: np.where(mask, s, t), one, two)

    def _fill(self, x: Node, fill: Node, condition: Node, mask: NDArray[np.bool_]) -> Node:
        """A number where a mask does not hold: what `move` would make of it, by one index map for all layers."""
        open_first = bool(mask.flat[0])  # sources stand in the order of their first use
        key = condition.identity, x.shape, open_first
        if key not in self._masks:
            # The number is the entry before all of x, or the one after.
            at = np.arange(x.size).reshape(x.shape)
            self._masks[key] = IndexMap.of(np.where(mask, at, x.size) if open_first else np.where(mask, at + 1, 0))
        number = self.constant(np.asarray(self.value(fill)).ravel()[:1], x.kind)
        sources = (x, number) if open_first else (number, x)
        return self._emit("take", sources, {"map": self._masks[key]}, x.shape, x.kind)

    def _pair(self, x: Operand, y: Operand, least: ValueKind = "b") -> tuple[Node, Node]:
        """Two operands of one kind."""
        a, b = self.operand(x, y), self.operand(y, x)
        kind = widest(least, a.kind, b.kind)
        return self.as_kind(a, kind), self.as_kind(b, kind)


def _exact_product(a: float | int | bool | None, b: float | int | bool) -> bool:
    """Whether the floats' product is that of the reals."""
    if a is None or not (math.isfinite(a) and math.isfinite(b)) or not math.isfinite(a * b):
        return False
    return Fraction(a) * Fraction(b) == Fraction(a * b)
