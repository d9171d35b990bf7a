"""A network as a program: nodes of one table of operators, each value computed once, all sizes known."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lawful.program.index_map import IndexMap, Shape
from lawful.program.table import Operator, OperatorFamily, Traits, ValueKind

KINDS: tuple[ValueKind, ...] = ("b", "i", "f", "c")
CHOOSES = (OperatorFamily.CHOICE, OperatorFamily.COMPARISON, OperatorFamily.OPAQUE)


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One value: an operator, the nodes that it reads, its attributes, the size and kind of the result.

    Nodes are values, not numbers: `add(x, 2)` cannot be mistaken for a sum with the second node. A value has a *kind*
    and no precision: a program is read over the reals, and where its source rounds, `Program.notes` says so.

    `structure` hashes what is computed without the names of parameters, `identity` with them. The first orders
    operands that commute, so that neither the spelling nor the naming of a module decides their order.
    """

    operator: Operator
    inputs: tuple[Node, ...]
    attributes: Mapping[str, Any]
    shape: Shape
    kind: ValueKind
    structure: bytes
    identity: bytes
    step: int = 0  # when its source computes it: the number of the call that made it first

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.operator.name

    @property
    def family(self) -> OperatorFamily:
        """The operator's family."""
        return self.operator.family

    @property
    def traits(self) -> Traits:
        """What holds of the operator with these attributes."""
        return self.operator.traits_of(self.attributes)

    @property
    def size(self) -> int:
        """How many entries the value has."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        """How many axes the value has."""
        return len(self.shape)

    @property
    def order(self) -> tuple[bytes, bytes]:
        """Where the node stands among operands that commute."""
        return self.structure, self.identity

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    def __repr__(self) -> str:
        name = f" {self.attributes['name']}" if "name" in self.attributes else ""
        return f"<{self.op}{name}: {self.kind}{list(self.shape)}>"


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """What a network computes.

    `nodes` are in an order in which each comes after what it reads, and a leaf just before its first use: whoever
    walks them and forgets values after their last use holds as few weights as possible. `tensors` are the parameters
    and buffers by the user's own names (tied ones once, under the first name); it may load them when asked. `notes`
    count what was assumed while reading: roundings, calls that are opaque. `places` say which call of the source first
    made a node, in words, for whoever has to refuse it by name; `parts` are the parts of the source (the
    submodules) in which its steps are.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    tensors: Mapping[str, Any]
    source: str = ""
    notes: Counter[str] = field(default_factory=Counter)
    places: Mapping[Node, str] = field(default_factory=dict)
    parts: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        inputs: Iterable[Node],
        outputs: Iterable[Node],
        tensors: Mapping[str, Any],
        source: str = "",
        notes: Counter[str] | None = None,
        places: Mapping[Node, str] | None = None,
    ) -> Program:
        """The program of these outputs: without nodes that none of them reads."""
        leaves, results = tuple(inputs), tuple(outputs)
        return cls(
            tuple(_sort_by_use((*leaves, *results))),
            leaves,
            results,
            tensors,
            source,
            Counter(notes or ()),
            places or {},
        )

    @property
    def parameters(self) -> dict[str, Node]:
        """The trained leaves by name."""
        return {node["name"]: node for node in self.nodes if node.op == "parameter"}

    @property
    def buffers(self) -> dict[str, Node]:
        """The leaves that are held but not trained, by name."""
        return {node["name"]: node for node in self.nodes if node.op == "buffer"}

    @property
    def opaque(self) -> list[str]:
        """The calls that the table does not know, in order."""
        return [node["name"] for node in self.nodes if node.op == "opaque"]

    @property
    def has_kinks(self) -> bool:
        """Whether an operator bends, jumps or chooses by a value that parameters or inputs move.

        By traits and families: a new operator needs no other line. Choices by constants (a causal mask) are movements
        by now. What an opaque call does is not known: it counts.

        >>> from lawful.program.frontends.layers import read_text
        >>> [read_text(f"2-3-1 {name}").has_kinks for name in ("linear", "relu", "leaky_relu(0.1)")]
        [False, True, True]
        """
        return any(map(_bends, self.nodes))

    @property
    def users(self) -> dict[Node, list[Node]]:
        """For every node, the nodes that read it, once for each operand."""
        result: dict[Node, list[Node]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for operand in node.inputs:
                result[operand].append(node)
        return result

    def as_run(self) -> tuple[Node, ...]:
        """The nodes in the order in which the source computes them, as far as that is one in which they can be.

        `nodes` are in an order that no spelling decides, by which a bias of the last layer may come before the first.
        """
        users, place = self.users, {node: number for number, node in enumerate(self.nodes)}
        waiting = {node: len(node.inputs) for node in self.nodes}
        ready = [(node.step, place[node], node) for node in self.nodes if not node.inputs]
        heapq.heapify(ready)
        order = []
        while ready:
            node = heapq.heappop(ready)[2]
            order.append(node)
            for user in users[node]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, (user.step, place[user], user))
        return tuple(order)

    def lines(self, names: bool = True) -> Iterator[str]:
        """The canonical text: nodes numbered in order; without `names`, leaves are numbered by their first use."""
        number: dict[Node, int] = {}
        leaves: dict[str, str] = {}
        for node in self.nodes:
            number[node] = len(number)
            attributes = {key: attribute_key(value) for key, value in sorted(node.attributes.items()) if key != "call"}
            if not names and node.op in ("input", "parameter", "buffer"):
                attributes["name"] = leaves.setdefault(f"{node.op} {node['name']}", f"{node.op[0]}{len(leaves)}")
            inside = [f"%{number[operand]}" for operand in node.inputs]
            inside += [f"{key}={value}" for key, value in attributes.items()]
            yield f"%{number[node]} = {node.op}({', '.join(inside)}) : {node.kind}{list(node.shape)}"
        yield "return " + ", ".join(f"%{number[output]}" for output in self.outputs)

    def text(self, names: bool = True) -> str:
        """The canonical text as one string."""
        return "\n".join(self.lines(names))

    def digest(self, names: bool = True) -> str:
        """Equal for programs that are the same line by line, whatever they were written as.

        It is about the function of inputs *and* parameters: the numbers in parameters do not matter, constants do.
        """
        return hashlib.sha256(self.text(names).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Program({self.source or 'unnamed'}: {len(self.nodes)} nodes, {len(self.parameters)} parameters)"


def _bends(node: Node) -> bool:
    traits = node.traits
    # Homogeneous and not linear: that is how a maximum along an axis is told from a sum, without its name.
    extreme = node.family is OperatorFamily.REDUCTION and traits.degree is not None and not traits.linear
    return bool(traits.kinks) or traits.steps or extreme or node.family in CHOOSES


def _sort_by_use(roots: tuple[Node, ...]) -> list[Node]:
    """All that the roots read, each after what it reads; without recursion, as networks are deep."""
    seen: dict[Node, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready:
            seen[node] = None
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(node.inputs) if operand not in seen)
    return list(seen)


def widest(*kinds: ValueKind) -> ValueKind:
    """The kind that holds values of all of these.

    >>> widest("b", "i")
    'i'
    """
    return KINDS[max(KINDS.index(kind) for kind in kinds)]


def attribute_key(value: Any) -> str:
    """An attribute as text: equal for equal values, and short for arrays."""
    if isinstance(value, IndexMap):
        return value.key
    if isinstance(value, np.ndarray):
        if value.size == 1:
            return repr(value.item())
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return repr(value)
