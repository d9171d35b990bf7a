"""The one loop: a program's nodes in order, each by the method of its family."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from lawful.program.program import Node, Program
from lawful.program.table import Refused

V = TypeVar("V")


class AbstractDomain(Generic[V]):
    """What values are, and what each family of operators does to them.

    A domain answers for families, with the traits of the operator in `node.traits`, and never for single operators that
    another entry may join tomorrow. A family that it has no method for goes to `other`, which refuses and names the
    call; a domain that can go on (pin, widen to everything) overrides it. It never guesses.
    """

    def leaf(self, node: Node) -> V:
        """An input, a parameter, a buffer or a constant."""
        return self.other(node)

    def movement(self, node: Node, *sources: V) -> V:
        """Entries of the sources at `node["map"]`."""
        return self.other(node, *sources)

    def elementwise(self, node: Node, *operands: V) -> V:
        """A function of numbers, entry by entry."""
        return self.other(node, *operands)

    def addition(self, node: Node, x: V, y: V) -> V:
        """x + y."""
        return self.other(node, x, y)

    def product(self, node: Node, x: V, y: V) -> V:
        """x y, entry by entry."""
        return self.other(node, x, y)

    def contraction(self, node: Node, x: V, y: V) -> V:
        """An Einstein sum or a convolution."""
        return self.other(node, x, y)

    def reduction(self, node: Node, x: V) -> V:
        """A reduction along axes, which keep size 1."""
        return self.other(node, x)

    def normalisation(self, node: Node, x: V) -> V:
        """Division by a size that the operand has along axes."""
        return self.other(node, x)

    def choice(self, node: Node, *operands: V) -> V:
        """One of the operands, by comparing."""
        return self.other(node, *operands)

    def comparison(self, node: Node, *operands: V) -> V:
        """A truth value."""
        return self.other(node, *operands)

    def lookup(self, node: Node, *operands: V) -> V:
        """Reading or writing at positions that are data."""
        return self.other(node, *operands)

    def opaque(self, node: Node, *operands: V) -> V:
        """A call that the table does not know."""
        return self.other(node, *operands)

    def other(self, node: Node, *operands: V) -> V:
        """A family without a method."""
        name = node["name"] if node.op == "opaque" else node.op
        raise Refused(f"{type(self).__name__} cannot follow {name}")


def interpret(program: Program, domain: AbstractDomain[V], keep: Collection[Node] = ()) -> dict[Node, V]:
    """The values of the outputs, and of the nodes to keep; every other value is forgotten after its last use."""
    last = {source: node for node in program.nodes for source in node.inputs}
    wanted = {*program.outputs, *keep}
    values: dict[Node, V] = {}
    for node in program.nodes:
        values[node] = getattr(domain, node.family.value)(node, *(values[operand] for operand in node.inputs))
        for source in {*node.inputs, node}:
            if source not in wanted and last.get(source, source) is node:
                del values[source]
    return values
