"""Derivatives along a direction, as a program: whatever evaluates a program evaluates its derivative.

So jets over floats, balls or residues need no rules of their own: a number type that can run the core runs tangents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from lawful.program.builder import Builder
from lawful.program.passes.core import lower
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily, Refused

MARK = "d "  # before the name of a leaf: the direction in which it moves


def differentiate(program: Program, along: Collection[str] | None = None) -> Program:
    """The program of the outputs and then of their derivatives, while the leaves in `along` move.

    Each of them (all parameters unless they are named) has a new input, `d NAME`, for its direction. Where a function
    has no derivative, one of the one-sided ones is taken: that of `relu` at 0 is 0, and of several entries that
    attain a maximum the first counts.
    """
    core = lower(program)
    moving = set(core.parameters if along is None else along)
    b = Builder(core.source, core.tensors)
    b.notes.update(core.notes)
    b.inputs = list(core.inputs)
    values: dict[Node, Node] = {}
    tangents: dict[Node, Node | None] = {}  # None: it does not move
    for node in core.nodes:
        operands = [values[each] for each in node.inputs]
        made = values[node] = b.remake(node, operands)
        if node.family is OperatorFamily.LEAF:
            moves = node.op != "constant" and node["name"] in moving
            tangents[node] = b.input(MARK + node["name"], node.shape) if moves else None
        else:
            tangents[node] = _tangent(b, made, operands, [tangents[each] for each in node.inputs])
    ends = [tangents[each] or _zeros(b, each) for each in core.outputs]
    return b.finish([*(values[each] for each in core.outputs), *ends])


def _zeros(b: Builder, node: Node) -> Node:
    return b.expand(b.constant(0.0), node.shape)


def _tangent(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node | None:
    """How a node moves when its operands do."""
    if node.kind != "f" or all(each is None for each in dx):
        return None
    rule = _RULES.get(node.family)
    if rule is None:
        name = node["name"] if node.op == "opaque" else node.op
        raise Refused(f"the derivative of {name}")
    return rule(b, node, x, dx)


def _whole(b: Builder, x: Sequence[Node], dx: Sequence[Node | None]) -> list[Node]:
    return [_zeros(b, each) if moved is None else moved for each, moved in zip(x, dx, strict=True)]


def _movement(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    return b.take(_whole(b, x, dx), node["map"]) if node.op == "take" else _zeros(b, node)


def _elementwise(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    derivative = node.operator.derivative
    if derivative is None or len(x) != 1 or dx[0] is None:
        raise Refused(f"the derivative of {node.op}")
    return b.mul(derivative(b, node.attributes, x[0], node), dx[0])


def _addition(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    moved = [each for each in dx if each is not None]
    return b.expand(moved[0] if len(moved) == 1 else b.add(*moved), node.shape)


def _product(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    parts = [b.mul(moved, other) for moved, other in zip(dx, reversed(x), strict=True) if moved is not None]
    return parts[0] if len(parts) == 1 else b.add(*parts)


def _contraction(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    parts = []
    for k, moved in enumerate(dx):
        if moved is not None:
            parts.append(b.contract(node["spec"], *(moved if j == k else each for j, each in enumerate(x))))
    return parts[0] if len(parts) == 1 else b.add(*parts)


def _reduction(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    (moved,) = _whole(b, x, dx)
    if node.traits.linear:
        return b.reduce(node.op, moved, node["axes"], True)
    if node.traits.shift == 1:  # a maximum or minimum: the first entry that attains it
        return _at_first(b, x[0], node, moved)
    raise Refused(f"the derivative of {node.op}")


def _at_first(b: Builder, x: Node, node: Node, moved: Node) -> Node:
    """Entries of `moved` where x first is what a reduction of it found. Not all such entries: equal ones count once."""
    over = node["axes"]
    rest = [k for k in range(x.rank) if k not in over]
    attains = b.as_kind(b.elementwise("eq", x, node), "i")
    flags, entries = (
        b.reshape(b.permute(each, (*rest, *over)), (*(x.shape[k] for k in rest), _count(x, over)))
        for each in (attains, moved)
    )
    first = b.reduce("argmax", flags, len(rest), True)
    return b.reshape(b.apply("gather", (entries, first), "f", axis=len(rest)), node.shape)


def _count(x: Node, axes: Sequence[int]) -> int:
    return math.prod(x.shape[k] for k in axes)


def _choice(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    if node.op == "where":
        one, two = _whole(b, x[1:], dx[1:])
        return b.where(x[0], one, two)
    if len(x) == 2:  # the operand that was picked
        one, two = _whole(b, x, dx)
        return b.where(b.elementwise("eq", x[0], node), one, two)
    order = b.apply("argsort", (x[0],), **node.attributes)
    return b.apply("gather", (_whole(b, x, dx)[0], order), "f", axis=node["axis"])


def _lookup(b: Builder, node: Node, x: Sequence[Node], dx: Sequence[Node | None]) -> Node:
    if not node.traits.linear and node.attributes.get("reduce") != "add":
        raise Refused(f"the derivative of {node.op}")
    moved = [each if each.kind != "f" else change for each, change in zip(x, _whole(b, x, dx), strict=True)]
    return b.apply(node.op, moved, node.kind, **node.attributes)


_RULES: Mapping[OperatorFamily, Callable[..., Node]] = {
    OperatorFamily.MOVEMENT: _movement,
    OperatorFamily.ELEMENTWISE: _elementwise,
    OperatorFamily.ADDITION: _addition,
    OperatorFamily.PRODUCT: _product,
    OperatorFamily.CONTRACTION: _contraction,
    OperatorFamily.REDUCTION: _reduction,
    OperatorFamily.CHOICE: _choice,
    OperatorFamily.LOOKUP: _lookup,
}
