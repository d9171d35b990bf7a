"""What patterns are made of: operands in either order, numbers, and values without the reshape around them."""

from __future__ import annotations

from typing import Any

from lawful.program.program import Node


def both_orders(node: Node) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The operands of a sum or product, and the same the other way round."""
    return node.inputs, node.inputs[::-1]


def number_of(node: Node) -> Any:
    """The one number that a constant of one entry holds; None for other nodes."""
    return node["value"].item() if node.op == "constant" and node.size == 1 else None


def undo_reshape(node: Node) -> Node | None:
    """The value of which a node is a reshape. (Of movements in a row, the builder has made one.)"""
    if node.op != "take" or len(node.inputs) != 1 or node.inputs[0].size != node.size:
        return None
    return node.inputs[0] if node["map"].keeps_order else None


def peel(node: Node) -> Node:
    """What a value is a reshape of, or the value."""
    return undo_reshape(node) or node


def divide_by(node: Node, number: float) -> Node | None:
    """The x of number × x."""
    if node.op != "mul":
        return None
    return next((x for one, x in both_orders(node) if number_of(one) == number), None)


def read_inverse_root(node: Node) -> tuple[Node, float] | None:
    """(x, ε) of (x + ε)^-½."""
    if node.op != "power" or node["exponent"] != -0.5 or node.inputs[0].op != "add":
        return None
    numbers = ((x, number_of(one)) for one, x in both_orders(node.inputs[0]))
    return next(((x, float(number)) for x, number in numbers if number is not None), None)
