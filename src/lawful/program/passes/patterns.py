"""Normalisations that are written out, recognised once.

`x / √(mean x² + ε)` is one node, however its quotient and root are spelled, and with `x - mean x` in it a centred one:
the RMSNorm of language models, and LayerNorm as exporters write it. It is a pass, not a rule of the builder: `core`
takes normalisations apart, and a builder that put them together again would undo that.
"""

from __future__ import annotations

import math

from lawful.program.builder import Builder
from lawful.program.passes.activations import WrittenActivations
from lawful.program.passes.matching import both_orders, divide_by, number_of, peel
from lawful.program.passes.parts import cut_product, join_parts, join_sums, split_sums
from lawful.program.passes.rebuild import rebuild
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

ROOT_HALF = math.sqrt(0.5)


def recognise(program: Program, exact: bool = False) -> Program:
    """The program with written-out activations and normalisations as nodes of their own.

    An `exact` one keeps its normalisations: floats round the quotients in them.
    """
    written = WrittenActivations()

    def rule(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        replacement = next(filter(None, (join(b, node, operands) for join in _PARTS)), None)
        if replacement is None and not exact:
            replacement = _normalisation(b, node, operands)
        return written(b, node, operands) if replacement is None else replacement

    return rebuild(program, rule, exact)


def _function_of_parts(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    """The parts of a value, each through one function and put together again: the function of the value."""
    first = operands[0] if node.op == "take" else None
    if first is None or first.family is not OperatorFamily.ELEMENTWISE or first.kind != "f" or len(first.inputs) != 1:
        return None
    if any(operand.op != first.op or operand.attributes != first.attributes for operand in operands):
        return None
    sources = [operand.inputs[0] for operand in operands]
    moved = b.take(sources, node["map"])
    simpler = moved.op != "take" or len(moved.inputs) < len(operands)
    if not simpler or moved.kind != "f" or moved.size > sum(source.size for source in sources):
        return None
    return b.elementwise(first.op, moved, **first.attributes)


def _factor_gain(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    """`x s + (β - m s)` with held numbers m as `(x - m) s + β`: a batch norm as a scale and a shift."""
    if node.op != "add" or node.kind != "f" or b.exact:
        return None
    for product, rest in (operands, operands[::-1]):
        bare = peel(rest)
        if product.op != "mul" or bare.op != "add":
            continue
        for shift, moved in both_orders(bare):
            negative, gained = _number_and_rest(b, moved) if moved.op == "mul" else (None, None)
            for x, gain in both_orders(product):
                mean = None if gained is None else _held_factor(gained, gain)
                # A trained m would be read twice in one spelling and once in the other: only held numbers are factored
                # out.
                if mean is not None and negative is not None:
                    start, offset = (_laid_out(b, vector, bare, rest) for vector in (b.mul(mean, negative), shift))
                    return b.add(b.mul(b.add(x, start), gain), offset)
    return None


def _held_factor(product: Node, gain: Node) -> Node | None:
    """The held m of m s, where s is `gain`, perhaps with axes of size 1 more or less."""
    if product.op != "mul":
        return None
    for mean, other in both_orders(product):
        if peel(other) is peel(gain) and peel(mean).op in ("buffer", "constant"):
            return mean
    return None


def _laid_out(b: Builder, x: Node, before: Node, after: Node) -> Node:
    """A summand of `before` as one of `after`, which is the same value in another shape."""
    return b.reshape(b.expand(x, before.shape), after.shape)


_PARTS = (_function_of_parts, join_parts, cut_product, join_sums, split_sums, _factor_gain)


def _normalisation(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
    if node.op != "mul" or node.kind != "f":
        return None
    for x, root in (operands, operands[::-1]):
        read = _inverse_root_mean_square(b, root)
        if read is None:
            continue
        y, axes, epsilon = read
        if y is x and x.rank == node.rank:
            before = _read_centring(b, x, axes)
            source = x if before is None else before
            return b.apply("normalise", (source,), axes=axes, centre=before is not None, epsilon=epsilon)
    return None


def _inverse_root_mean_square(b: Builder, node: Node) -> tuple[Node, tuple[int, ...], float] | None:
    """(x, axes, ε) of (mean x² + ε)^-½."""
    if node.op != "power" or node["exponent"] != -0.5:
        return None
    inside, epsilon = node.inputs[0], 0.0
    if inside.op == "add":
        number, rest = _number_and_rest(b, inside)
        if number is None or rest is None or number < 0:
            return None
        inside, epsilon = rest, float(number)
    read = _mean(b, inside)
    if read is None or read[0].op != "power" or read[0]["exponent"] != 2.0:
        return None
    square, axes = read
    return square.inputs[0], axes, epsilon


def _number_and_rest(b: Builder, node: Node) -> tuple[float | None, Node | None]:
    for one, other in both_orders(node):
        number = b.number(one)
        if number is not None:
            return float(number), other
    return None, None


def _mean(b: Builder, node: Node, factor: float = 1.0) -> tuple[Node, tuple[int, ...]] | None:
    """(x, axes) of factor × mean x: a sum times the float nearest to factor / n, or itself where n is 1."""
    if node.op != "mul":
        return None
    number, total = _number_and_rest(b, node)
    if number is None or total is None or total.op != "sum":
        return None
    x = total.inputs[0]
    count = math.prod(x.shape[axis] for axis in total["axes"])
    # The very float that a mean is written with: a sum times a number near to 1 / n is another function.
    return (x, total["axes"]) if number == factor * (1.0 / count) else None


def _read_centring(b: Builder, x: Node, axes: tuple[int, ...]) -> Node | None:
    """The y of which x is y - mean y."""
    read = find_centring(x)
    return read[0] if read is not None and read[1] == axes else None


def find_centring(node: Node) -> tuple[Node, tuple[int, ...]] | None:
    """(x, axes) of x - mean x."""
    b = Builder()
    for x, mean in both_orders(node) if node.op == "add" else ():
        read = _mean(b, mean, -1.0) or _negated_mean(b, mean)
        if read is not None and read[0] is x:
            return read
    return None


def _negated_mean(b: Builder, node: Node) -> tuple[Node, tuple[int, ...]] | None:
    if node.op != "mul" or b.number(node.inputs[0]) != -1:
        return None
    return _mean(b, node.inputs[1])


def gelu_operand(node: Node) -> Node | None:
    """The z of z Φ(z), as the table writes it: ½ z times 1 + erf(z √½)."""
    if node.op != "mul":
        return None
    for half, rest in both_orders(node):
        z = divide_by(half, 0.5)
        for one, erf in both_orders(rest) if rest.op == "add" else ():
            if z is not None and number_of(one) == 1.0 and erf.op == "erf" and divide_by(erf.inputs[0], ROOT_HALF) is z:
                return z
    return None
