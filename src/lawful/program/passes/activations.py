"""Activations that are written out, recognised once: ReLU and its kin, sigmoid, softplus, softmax.

`where(h > 0, h, 0)`, `h * (h > 0)`, `(h + |h|) / 2` and `h - min(h, 0)` are one function, and it has a slope `right`
where h > 0 and a slope `left` where h < 0. Such *rays* of one h are closed under sums, factors, maxima,
minima, |·|, relu and choices by the sign of h, so the pass carries a ray for every node, from its operands' rays alone,
and writes a node in one way wherever that is simpler. Slopes are rationals: a factor that
floats would round is left as it stands. Cost: one lookup a node.

All of it holds for reals; NaN and infinities may come out differently, which a note says.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lawful.program.builder import Builder
from lawful.program.operators.reduction import logsumexp
from lawful.program.passes.matching import both_orders
from lawful.program.program import Node

FINITE = "values are taken to be finite where activations are written out"
_BY_SIGN = {"gt": True, "ge": True, "lt": False, "le": False}


@dataclass(frozen=True)
class Ray:
    """`right h` where h > 0, `left h` where h < 0."""

    h: Node
    right: Fraction
    left: Fraction

    def times(self, factor: Fraction) -> Ray:
        """The ray of factor × the value."""
        return Ray(self.h, factor * self.right, factor * self.left)


class WrittenActivations:
    """The rule of a pass: written-out activations as nodes of their own."""

    def __init__(self) -> None:
        self._rays: dict[Node, Ray] = {}

    def __call__(self, b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        """The node in one spelling; None where there is nothing to rewrite."""
        if node.kind != "f":
            return None
        ray = self._join(b, node, operands)
        rewritten = _exponential(b, node, operands) if ray is None else None
        if ray is not None:
            rewritten = _write(b, ray) if self._pays(b, node, operands, ray) else None
            rewritten = b.remake(node, operands) if rewritten is None else rewritten
            # Of the node that stays, in whichever spelling: it is what readers ask about.
            self._rays[rewritten] = ray
        if rewritten is None or rewritten.shape != node.shape:
            return None
        if rewritten.identity != node.identity and node.op not in ("relu", "abs", "maximum", "minimum"):
            b.notes[FINITE] += 1
        return rewritten

    def _ray(self, b: Builder, node: Node) -> Ray:
        known = self._rays.get(node)
        if known is None:
            known = Ray(node, Fraction(1), Fraction(1))
            factor, rest = _factor(b, node) if node.op == "mul" else (Fraction(0), None)
            if rest is not None:
                known = self._ray(b, rest).times(factor)
            elif node.op in ("relu", "abs"):
                known = self._bend(b, node, node.inputs[0])
            self._rays[node] = known
        return known

    def _bend(self, b: Builder, node: Node, operand: Node) -> Ray:
        ray = self._ray(b, operand)
        if node.op == "relu":
            return Ray(ray.h, max(ray.right, Fraction(0)), min(ray.left, Fraction(0)))
        return Ray(ray.h, abs(ray.right), -abs(ray.left))

    def _join(self, b: Builder, node: Node, operands: tuple[Node, ...]) -> Ray | None:
        """The ray of a node whose operands are rays of one value; None where it is a value of its own."""
        if node.op in ("relu", "abs"):
            return self._bend(b, node, operands[0])
        if node.op == "where":
            return self._choice(b, node, *operands)
        if node.op == "mul":
            return self._mask(b, *operands) or self._mask(b, *operands[::-1])
        if node.op not in ("add", "maximum", "minimum"):
            return None
        one, two = (self._ray(b, operand) for operand in operands)
        # Where an operand is broadcast, its h has fewer entries than the result.
        if one.h is not two.h or any(operand.shape != node.shape for operand in operands):
            return None
        if node.op == "add":
            return Ray(one.h, one.right + two.right, one.left + two.left)
        outer, inner = (max, min) if node.op == "maximum" else (min, max)  # where h < 0, larger slopes are lower
        return Ray(one.h, outer(one.right, two.right), inner(one.left, two.left))

    def _pays(self, b: Builder, node: Node, operands: tuple[Node, ...], ray: Ray) -> bool:
        """Whether a ray says it better than the node: `x + relu(x)` and `relu(x / 2)` stay as they are written."""
        if node.op in ("relu", "abs"):
            inner = self._ray(b, operands[0])
            return inner.right != inner.left
        return node.op != "add" or not (ray.right and ray.left) or abs(ray.right) == abs(ray.left)

    def _choice(self, b: Builder, node: Node, condition: Node, x: Node, y: Node) -> Ray | None:
        tested = _sign_test(b, condition)
        if tested is None:
            return None
        h, positive = self._ray(b, tested[0]), tested[1]
        # Only a nonzero multiple of h has its sign: relu(h) ≥ 0 holds for every h.
        if h.right != h.left or not h.right or h.h.shape != node.shape:
            return None
        if h.right < 0:
            positive = not positive
        branches = []
        for branch in (x, y):
            ray = Ray(h.h, Fraction(0), Fraction(0)) if b.number(branch) == 0 else self._ray(b, branch)
            if ray.h is not h.h:
                return None
            branches.append(ray)
        above, below = branches if positive else branches[::-1]
        return Ray(h.h, above.right, below.left)

    def _mask(self, b: Builder, value: Node, mask: Node) -> Ray | None:
        """h times a truth value of its sign, or times its sign, or times 1 plus its sign."""
        shift = Fraction(0)
        if mask.op == "where" and mask.inputs[0].op == "eq":  # a value at 0 alone, where h is 0 whatever it is times
            at = [operand for operand in mask.inputs[0].inputs if b.number(operand) == 0]
            mask = mask.inputs[2] if at and value in mask.inputs[0].inputs else mask
        if mask.op == "add":
            number, rest = _number_and_rest(b, mask)
            if number is None or rest is None:
                return None
            shift, mask = number, rest
        scale = Fraction(1)
        if mask.op == "mul":
            scale, inner = _factor(b, mask)
            if inner is None:
                return None
            mask = inner
        step = _step(b, mask)
        if step is None:
            return None
        source, values = step
        ray, h = self._ray(b, value), self._ray(b, source)
        if ray.h is not h.h or h.right != h.left or not h.right or value.shape != mask.shape:
            return None
        above, below = values if h.right > 0 else values[::-1]
        return Ray(ray.h, ray.right * (scale * above + shift), ray.left * (scale * below + shift))


def _write(b: Builder, ray: Ray) -> Node | None:
    """The one spelling of a ray; None where floats cannot say its slopes, or it is constant zero."""
    # A slope that floats do not hold stays as it was written: a rewrite may not round.
    right, left = float(ray.right), float(ray.left)
    if Fraction(right) != ray.right or Fraction(left) != ray.left or (not right and not left):
        return None
    h = ray.h
    if right == left:
        return b.mul(h, right)
    if right == -left:
        return b.mul(b.function("abs", h), right)
    above = b.mul(b.function("relu", h), right) if right else None
    below = b.mul(b.function("relu", b.neg(h)), -left) if left else None
    if above is None or below is None:
        return below if above is None else above
    return b.add(above, below)


def _number(b: Builder, node: Node) -> Fraction | None:
    """The number that a real constant is everywhere."""
    number = b.number(node) if node.kind == "f" else None
    return Fraction(number) if number is not None and abs(number) < float("inf") else None


def _number_and_rest(b: Builder, node: Node) -> tuple[Fraction | None, Node | None]:
    for one, other in both_orders(node):
        number = _number(b, one)
        if number is not None and other.shape == node.shape:
            return number, other
    return None, None


def _factor(b: Builder, node: Node) -> tuple[Fraction, Node | None]:
    """(c, x) of c x."""
    number, rest = _number_and_rest(b, node)
    return (Fraction(0), None) if number is None else (number, rest)


def _step(b: Builder, mask: Node) -> tuple[Node, tuple[Fraction, Fraction]] | None:
    """(h, the numbers where h > 0 and where h < 0) of a value that the sign of h decides; at 0 it may be anything."""
    if mask.op == "sign":
        return mask.inputs[0], (Fraction(1), Fraction(-1))
    if mask.op != "cast":
        return None
    condition, numbers = mask.inputs[0], (Fraction(1), Fraction(0))
    if condition.op == "where":
        condition, *branches = condition.inputs
        chosen = [b.number(branch) for branch in branches]
        if None in chosen:
            return None
        numbers = Fraction(chosen[0] or 0), Fraction(chosen[1] or 0)
    tested = _sign_test(b, condition)
    return None if tested is None else (tested[0], numbers if tested[1] else numbers[::-1])


def _sign_test(b: Builder, condition: Node) -> tuple[Node, bool] | None:
    """(h, whether it holds for h > 0) of a comparison with 0; what it says of 0 itself makes no difference here."""
    if condition.op == "not":
        inner = _sign_test(b, condition.inputs[0])
        return None if inner is None else (inner[0], not inner[1])
    if condition.op == "or":  # `x < 0 or x is NaN`
        rest = [operand for operand in condition.inputs if operand.op != "isnan"]
        return _sign_test(b, rest[0]) if len(rest) == 1 else None
    if condition.op not in _BY_SIGN:
        return None
    x, y = condition.inputs
    if x.kind != "f":
        return None
    if b.number(y) == 0:
        return x, _BY_SIGN[condition.op]
    return (y, not _BY_SIGN[condition.op]) if b.number(x) == 0 else None


# Functions of exponentials


def _exponential(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    if b.exact:  # proofs take them apart again, and numbers there are exact however they are written
        return None
    if node.op == "power" and node["exponent"] == -1 and operands[0].op == "add":
        z = _one_plus_exponential(b, operands[0])
        return None if z is None else b.function("sigmoid", b.neg(z))
    if node.op == "log1p" and operands[0].op == "exp":
        return b.function("softplus", operands[0].inputs[0])
    if node.op == "log" and operands[0].op == "add":
        z = _one_plus_exponential(b, operands[0])
        return None if z is None else b.function("softplus", z)
    if node.op == "exp":
        return _softmax_of_logarithm(b, operands[0])
    return (_softmax(b, node, operands) or _tanh(b, operands)) if node.op == "mul" else None


def _tanh(b: Builder, operands: tuple[Node, ...]) -> Node | None:
    """sinh(z) / cosh(z)."""
    for sinh, inverse in (operands, operands[::-1]):
        if sinh.op == "sinh" and inverse.op == "power" and inverse["exponent"] == -1:
            cosh = inverse.inputs[0]
            if cosh.op == "cosh" and cosh.inputs[0] is sinh.inputs[0]:
                return b.function("tanh", cosh.inputs[0])
    return None


def _softmax_of_logarithm(b: Builder, logarithm: Node) -> Node | None:
    """exp(z - log Σ exp(z)), as the table writes the logarithm."""
    for z, shift in both_orders(logarithm) if logarithm.op == "add" else ():
        number, total = _number_and_rest(b, shift) if shift.op == "mul" else (None, None)
        for axis in range(z.rank) if number == -1 and total is not None else ():
            expected = b.as_kind(z, "f")
            if total is not None and logsumexp(b, expected, [axis], True).identity == total.identity:
                return b.apply("softmax", (expected,), axis=axis)
    return None


def _one_plus_exponential(b: Builder, node: Node) -> Node | None:
    """The z of 1 + exp(z)."""
    number, rest = _number_and_rest(b, node)
    return rest.inputs[0] if number == 1 and rest is not None and rest.op == "exp" else None


def _softmax(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    """exp(z) / Σ exp(z), whether or not z was shifted by its maximum."""
    for weights, inverse in (operands, operands[::-1]):
        if weights.op != "exp" or inverse.op != "power" or inverse["exponent"] != -1:
            continue
        total = inverse.inputs[0]
        if total.op != "sum" or total.inputs[0] is not weights or len(total["axes"]) != 1:
            continue
        z, (axis,) = weights.inputs[0], total["axes"]
        return b.apply("softmax", (_without_maximum(b, z, axis),), axis=axis)
    return None


def _without_maximum(b: Builder, z: Node, axis: int) -> Node:
    """The x of x - max x along an axis; z itself where it is nothing like that."""
    for x, shift in both_orders(z) if z.op == "add" else ():
        number, largest = _number_and_rest(b, shift) if shift.op == "mul" else (None, None)
        is_maximum = number == -1 and largest is not None and largest.op == "amax"
        if largest is not None and is_maximum and largest.inputs[0] is x and largest["axes"] == (axis,):
            return x
    return z
