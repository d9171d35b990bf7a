"""Values that no input changes: the constants and named tensors behind them."""

from __future__ import annotations

import math

from lawful.program.program import Node
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.reading.values import Held, Value


def constant_of(value: Value) -> float | None:
    """The one number that a held value is everywhere, which may be infinite."""
    if not isinstance(value, Held) or value.node.op != "constant" or value.node["value"].size != 1:
        return None
    return float(value.node["value"].item())


def number_of(value: Value) -> float | None:
    """The one finite number that a held value is everywhere."""
    number = constant_of(value)
    return number if number is not None and math.isfinite(number) else None


def unwrap(node: Node) -> Node:
    """What a node only reshapes: all its entries, in their order."""
    while node.family is OperatorFamily.MOVEMENT and len(node.inputs) == 1 and node["map"].keeps_order:
        if node.size != node.inputs[0].size:
            break
        node = node.inputs[0]
    return node


def tensor_name(value: Value) -> str | None:
    """The name of the tensor that a value is, as it is stored."""
    if not isinstance(value, Held) or value.node.family is not OperatorFamily.LEAF:
        return None
    return str(value.node["name"]) if "name" in value.node.attributes else None


def vector_name(node: Node, count: int) -> str | None:
    """The name of the tensor of `count` numbers, along its first axis, that a node is but for its shape."""
    node = unwrap(node)
    return tensor_name(Held(node)) if node.shape[:1] == (count,) and node.size == count else None
