"""Is a program smooth, or only in pieces? By traits and families: a new operator needs no other line."""

from __future__ import annotations

from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

CHOOSES = (OperatorFamily.CHOICE, OperatorFamily.COMPARISON, OperatorFamily.OPAQUE)


def has_kinks(program: Program) -> bool:
    """Whether an operator bends, jumps or chooses by a value that parameters or inputs move.

    Choices by constants (a causal mask) are movements by now. What an opaque call does is not known: it counts.

    >>> from lawful.program.frontends.text import read_text
    >>> [has_kinks(read_text(f"2-3-1 {name}")) for name in ("linear", "relu", "leaky_relu(0.1)")]
    [False, True, True]
    """
    return any(map(_bends, program.nodes))


def _bends(node: Node) -> bool:
    traits = node.traits
    extreme = node.family is OperatorFamily.REDUCTION and traits.degree is not None and not traits.linear
    return bool(traits.kinks) or traits.steps or extreme or node.family in CHOOSES
