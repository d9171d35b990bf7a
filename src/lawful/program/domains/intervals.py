"""Bounds of every value over boxes of inputs and parameters: float64 intervals, rounded outwards.

Rules follow families and traits. An operator of which nothing is known but its range gets its range; one without even
that gets the whole line. So bounds of a new operator are sound before anybody thinks of them, and tight if its entry
says that it is monotone or homogeneous. What no interval can follow (positions that are data, opaque calls) is refused.

Truth values are intervals too: (0, 0) is false, (1, 1) true, (0, 1) either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.program.arrays import NUMPY
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program
from lawful.program.table import INFINITY, OperatorFamily

Ends = tuple[NDArray[np.float64], NDArray[np.float64]]
EPSILON = float(np.finfo(np.float64).eps)
LARGEST = float(np.finfo(np.float64).max)
TINY = float(np.finfo(np.float64).tiny)
SAFETY = 4  # what the table says of errors was measured, so that it may be more
FUNCTION_ERROR = 16 * EPSILON


class Intervals(AbstractDomain[Ends]):
    """Pairs of arrays, below and above."""

    def __init__(self, program: Program, boxes: Mapping[str, tuple[Any, Any]]) -> None:
        """`boxes` are the ends of inputs, and of parameters that move; other parameters are what they are."""
        self.program, self.boxes = program, boxes

    def leaf(self, node: Node) -> Ends:
        """A box, or one point."""
        if node.op == "constant":
            value = node["value"]
            return value.astype(np.float64), value.astype(np.float64)
        if node["name"] in self.boxes:
            low, high = self.boxes[node["name"]]
            return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        tensor = self.program.tensors[node["name"]]
        value = np.asarray(tensor.detach().double() if hasattr(tensor, "detach") else tensor, dtype=np.float64)
        return value, value

    def movement(self, node: Node, *sources: Ends) -> Ends:
        """Ends move like values."""
        low, high = (NUMPY.take([source[k] for source in sources], node["map"]) for k in (0, 1))
        return low, high

    def elementwise(self, node: Node, *operands: Ends) -> Ends:
        """By monotony, by homogeneity, or by range alone."""
        traits = node.traits
        if node.kind != "f" and node.op != "cast" and not _is_point(*operands):
            return self.other(node, *operands)
        if _is_point(*operands) or traits.monotone:
            first, last = (operands, operands) if traits.monotone >= 0 else (_swap_ends(operands), _swap_ends(operands))
            ends = (
                self._run(node, *(pair[0] for pair in first)),
                self._run(node, *(pair[1] for pair in last)),
            )
        elif traits.degree is not None and len(operands) == 1:
            ends = self._homogeneous(node, traits.degree, operands[0])
        else:
            ends = np.full(node.shape, -INFINITY), np.full(node.shape, INFINITY)
        if traits.error == INFINITY:
            return np.full(node.shape, traits.range[0]), np.full(node.shape, traits.range[1])
        return self._within(_outward(*ends, SAFETY * traits.error * EPSILON), traits.range)

    def _homogeneous(self, node: Node, degree: float, x: Ends) -> Ends:
        """f(x) = x^d f(1) for x > 0 and |x|^d f(-1) for x < 0: on each side monotone, so its ends are at ends."""
        zeros = np.zeros_like(x[0])
        edge = zeros if degree > 0 else np.copysign(zeros, 1.0)
        sides = []
        for sign in (1.0, -1.0):
            near = np.maximum(sign * x[0] if sign > 0 else -x[1], 0.0)
            far = sign * x[1] if sign > 0 else -x[0]
            inside = far > 0
            values = [self._run(node, sign * np.where(inside, size, 1.0)) for size in (np.maximum(near, edge), far)]
            if degree < 0:  # the end at 0 is infinite, with the sign that f has on this side
                limit = np.sign(self._run(node, np.full_like(zeros, sign))) * INFINITY
                values[0] = np.where(near == 0, limit, values[0])
            sides.append((inside, np.minimum(*values), np.maximum(*values)))
        at_zero = (x[0] <= 0) & (x[1] >= 0)
        low, high = np.full(node.shape, INFINITY), np.full(node.shape, -INFINITY)
        for inside, least, most in sides:
            low, high = np.where(inside, np.minimum(low, least), low), np.where(inside, np.maximum(high, most), high)
        if degree > 0:
            low, high = np.where(at_zero, np.minimum(low, 0.0), low), np.where(at_zero, np.maximum(high, 0.0), high)
        else:
            value = self._run(node, zeros)
            low, high = (
                np.where(at_zero, pick(end, value), end) for pick, end in ((np.minimum, low), (np.maximum, high))
            )
        return low, high

    def addition(self, node: Node, x: Ends, y: Ends) -> Ends:
        """Each end rounded once."""
        return _outward(_plus(x[0], y[0], -INFINITY), _plus(x[1], y[1], INFINITY), EPSILON)

    def product(self, node: Node, x: Ends, y: Ends) -> Ends:
        """The extremes of the four products; 0 times an infinite end is 0, since the end itself is never attained."""
        with np.errstate(invalid="ignore", over="ignore"):
            corners = [np.where((a == 0) | (b == 0), 0.0, a * b) for a in x for b in y]
        return _outward(np.minimum.reduce(corners), np.maximum.reduce(corners), EPSILON)

    def contraction(self, node: Node, x: Ends, y: Ends) -> Ends:
        """Around the product of the middles: |f(x, y) - f(m, n)| ≤ f(|m|, s) + f(r, |n|) + f(r, s) for radii r, s.

        f sums products of entries with coefficients 0 and 1, and a computed sum of k of them errs by at most
        (k + 1) ε f(|x|, |y|). Three such sums are computed here, and a few roundings more: 8 (k + 2) ε covers them.
        """
        if not all(bool(np.isfinite(end).all()) for end in (*x, *y)):
            return np.full(node.shape, -INFINITY), np.full(node.shape, INFINITY)
        (m, r), (n, s) = _middle(*x), _middle(*y)
        size = self._run(node, np.abs(m) + r, np.abs(n) + s)
        terms = float(self._run(node, np.ones(m.shape), np.ones(n.shape)).max(initial=1.0))
        radius = size - self._run(node, np.abs(m), np.abs(n)) + 8 * (terms + 2) * EPSILON * size + TINY
        middle = self._run(node, m, n)
        with np.errstate(invalid="ignore", over="ignore"):
            return _sound(middle - radius, middle + radius)

    def reduction(self, node: Node, x: Ends) -> Ends:
        """Monotone reductions at the ends; a sum of k terms errs by at most k ε Σ |x|."""
        if not node.traits.monotone and node.kind == "f":
            return self._within((np.full(node.shape, -INFINITY), np.full(node.shape, INFINITY)), node.traits.range)
        if node.kind == "i" and not _is_point(x) and node.family is OperatorFamily.REDUCTION and not node.traits.linear:
            return self.other(node, x)
        with np.errstate(invalid="ignore", over="ignore"):
            low, high = (self._run(node, end).astype(np.float64) for end in x)
            low, high = np.where(np.isnan(low), -INFINITY, low), np.where(np.isnan(high), INFINITY, high)
        if not node.traits.linear:
            return _sound(low, high)
        count = max(math.prod(x[0].shape) // max(math.prod(low.shape), 1), 1)
        slack = 2 * count * EPSILON * NUMPY.sum(np.maximum(np.abs(x[0]), np.abs(x[1])), node["axes"])
        return _sound(low - np.where(np.isfinite(slack), slack, 0.0), high + np.where(np.isfinite(slack), slack, 0.0))

    def normalisation(self, node: Node, x: Ends) -> Ends:
        """Within its range; n entries divided by their root mean square are at most √n."""
        if node.op == "normalise":
            most = math.sqrt(math.prod(x[0].shape[k] for k in node["axes"])) * (1 + FUNCTION_ERROR)
            return np.full(node.shape, -most), np.full(node.shape, most)
        return self._within((np.full(node.shape, -INFINITY), np.full(node.shape, INFINITY)), node.traits.range)

    def choice(self, node: Node, *operands: Ends) -> Ends:
        """Monotone at the ends; where a condition is open, either branch."""
        if node.op == "where":
            (no, yes), one, two = operands
            low = np.where(no == 1, one[0], np.where(yes == 0, two[0], np.minimum(one[0], two[0])))
            high = np.where(no == 1, one[1], np.where(yes == 0, two[1], np.maximum(one[1], two[1])))
            return low, high
        if not node.traits.monotone and not _is_point(*operands):
            return self.other(node, *operands)
        low, high = (self._run(node, *(operand[k] for operand in operands)).astype(np.float64) for k in (0, 1))
        return low, high

    def comparison(self, node: Node, *operands: Ends) -> Ends:
        """Known where all operands are points, or where intervals do not overlap."""
        if _is_point(*operands):
            value = self._run(node, *(operand[0] for operand in operands)).astype(np.float64)
            return value, value
        open_ends = np.zeros(node.shape), np.ones(node.shape)
        if node.op not in _ORDERS:
            return open_ends
        x, y = operands if node.op in ("lt", "le") else operands[::-1]
        strict = node.op in ("lt", "gt")
        surely = x[1] < y[0] if strict else x[1] <= y[0]
        perhaps = x[0] < y[1] if strict else x[0] <= y[1]
        return surely.astype(np.float64), perhaps.astype(np.float64)

    def lookup(self, node: Node, *operands: Ends) -> Ends:
        """At known positions, reading and writing are monotone."""
        if not node.traits.monotone or not _is_point(operands[1]):
            return self.other(node, *operands)
        low, high = (self._run(node, *(operand[k] for operand in operands)) for k in (0, 1))
        return low, high

    def _run(self, node: Node, *operands: NDArray[Any]) -> NDArray[Any]:
        """The operator's meaning, of operands in their own kinds."""
        kinds = [operand.kind for operand in node.inputs]
        with np.errstate(all="ignore"):
            arrays = [NUMPY.cast(operand, kind) for operand, kind in zip(operands, kinds, strict=True)]
            return np.asarray(node.operator.meaning(NUMPY, node.attributes, *arrays))

    def _within(self, ends: Ends, bounds: tuple[float, float]) -> Ends:
        """Cut to a range; an end that is NaN (outside of the function's domain) is open."""
        low, high = _sound(*ends)
        return np.maximum(low, bounds[0]), np.minimum(high, bounds[1])


_ORDERS = ("lt", "le", "gt", "ge")


def _is_point(*operands: Ends) -> bool:
    return all(bool((low == high).all()) for low, high in operands)


def _swap_ends(operands: tuple[Ends, ...]) -> tuple[Ends, ...]:
    return tuple((high, low) for low, high in operands)


def _plus(x: NDArray[np.float64], y: NDArray[np.float64], open_end: float) -> NDArray[np.float64]:
    """x + y; ∞ - ∞ is open."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = x + y
    return np.where(np.isnan(total), open_end, total)


def _outward(low: NDArray[Any], high: NDArray[Any], error: float) -> Ends:
    """Ends moved outwards by a relative error, and by the smallest normal number for those near 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        down, up = low - (error * np.abs(low) + TINY), high + (error * np.abs(high) + TINY)
    return _sound(np.where(np.isinf(low), low, down), np.where(np.isinf(high), high, up))


def _sound(low: NDArray[Any], high: NDArray[Any]) -> Ends:
    """An end that overflowed or is NaN says no more than it knows: a lower one is at most the largest float."""
    return (
        np.where(np.isnan(low), -INFINITY, np.minimum(low, LARGEST)),
        np.where(np.isnan(high), INFINITY, np.maximum(high, -LARGEST)),
    )


def _middle(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A middle and a radius that covers both ends whatever was rounded; none for a point."""
    middle = low / 2 + high / 2
    radius = np.maximum(high - middle, middle - low)
    return np.where(low == high, low, middle), np.where(low == high, 0.0, radius * (1 + 2 * EPSILON) + TINY)


def bounds(program: Program, boxes: Mapping[str, tuple[Any, Any]]) -> list[Ends]:
    """Bounds of the outputs over boxes of inputs (and parameters)."""
    values = interpret(program, Intervals(program, boxes))
    return [values[output] for output in program.outputs]
