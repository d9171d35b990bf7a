"""A program, node by node, in a new builder: what passes share."""

from __future__ import annotations

from collections.abc import Callable

from lawful.program.builder import Builder
from lawful.program.program import Node, Program
from lawful.program.table import Refused

Rule = Callable[[Builder, Node, tuple[Node, ...]], Node | None]


def rebuild(program: Program, rule: Rule, exact: bool = False) -> Program:
    """The program with `rule(builder, node, new operands)` in place of nodes, and others as they are (None)."""
    b = Builder(program.source, program.tensors, exact=exact)
    b.notes.update(program.notes)
    b.parts.update(program.parts)
    b.places.update(program.places)
    new: dict[Node, Node] = {}
    for node in program.as_run():
        b.step = node.step
        operands = tuple(new[each] for each in node.inputs)
        b.place = program.places.get(node, "")
        made = rule(b, node, operands)
        if made is None:
            made = node if all(map(_same, operands, node.inputs)) and node.inputs else b.remake(node, operands)
        if made.shape != node.shape:
            raise Refused(f"{node.op} became {list(made.shape)} instead of {list(node.shape)}")
        new[node] = made
    b.inputs = [new[each] for each in program.inputs]
    return b.finish(new[each] for each in program.outputs)


def _same(one: Node, other: Node) -> bool:
    return one is other
