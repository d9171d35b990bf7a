"""A program, node by node, in a new builder: what passes share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lawful.program.builder import Builder
from lawful.program.program import Node, Program
from lawful.program.table import Refused

Rule = Callable[[Builder, Node, tuple[Node, ...]], Node | None]


def rebuild(
    program: Program,
    rule: Rule,
    exact: bool = False,
    outputs: Callable[[Builder, Sequence[Node]], Sequence[Node]] | None = None,
) -> Program:
    """The program with `rule(builder, node, new operands)` in place of nodes, and others as they are (None).

    A rule may make an input a constant; `outputs` makes others of the outputs.
    """
    b = Builder(program.source, program.tensors, exact=exact)
    b.notes.update(program.notes)
    b.parts.update(program.parts)
    b.places.update(program.places)
    new: dict[Node, Node] = {}
    # As it ran, not in canonical order: of nodes that become one, the first gives step and place.
    for node in program.as_run():
        b.step = node.step
        operands = tuple(new[operand] for operand in node.inputs)
        b.place = program.places.get(node, "")
        unchanged = bool(node.inputs) and all(map(_same, operands, node.inputs))
        if unchanged:
            b.adopt(node)  # a rule that makes it again gets this very node
        replacement = rule(b, node, operands)
        if replacement is None:
            replacement = node if unchanged else b.remake(node, operands)
        # The readers of a node were built for its axes: a rule of another shape would be wrong without an error.
        if replacement.shape != node.shape:
            raise Refused(f"{node.op} became {list(replacement.shape)} instead of {list(node.shape)}")
        new[node] = replacement
    # `remake` met the inputs in the order of their use; calls pass them in the program's own.
    b.inputs = [new[operand] for operand in program.inputs if new[operand].op == "input"]
    results = [new[output] for output in program.outputs]
    return b.finish(results if outputs is None else outputs(b, results))


def _same(one: Node, other: Node) -> bool:
    return one is other
