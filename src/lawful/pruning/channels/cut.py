"""What is left of a network without some channels: tensors at their new sizes, and the program that they belong to.

Idea: weights lose rows and columns, and which entries of all other values are left follows from that, movement by
movement. Invariant: what is left of a value stands in its old order, with sizes that count it; heads may keep different
channels, but equally many. So a smaller module is right if it reads as this program, node by node; where its class
cannot be, the program itself is. Cost: one pass over the program, and index arrays as large as its activations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.program.builder import Builder
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.index_map import IndexMap, Shape
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily, Refused
from lawful.pruning.channels.fold_and_drop import Tidying
from lawful.pruning.channels.groups import cut_rows, groups_left
from lawful.pruning.channels.program import Operation
from lawful.pruning.channels.reading.domain import ChannelReading
from lawful.pruning.channels.reading.values import Centred, Channels, Held, unwrap
from lawful.pruning.channels.state import ChannelState
from lawful.types import Floats


def cut_tensors(state: ChannelState) -> dict[str, Floats]:
    """Every tensor of the program at its new size; biases that layers gain are named beside their weights."""
    tensors: dict[str, Floats] = {}
    for operation in state.program.operations:
        if not operation.tensors:
            continue
        rows, columns = state.alive_at(operation.name), state.alive_at(operation.sources[0])
        for role, name in operation.tensors.items():
            if name is not None:
                array = state.arrays[name]
                array = array if rows.all() else array[rows]  # most tensors of most networks stay as they are
                if operation.groups > 1 and role == "weight":
                    array = cut_rows(state.arrays[name], operation.groups, rows, columns)
                elif operation.kind == "layer" and role == "weight":
                    array = array if columns.all() else array[:, columns]
                tensors[name] = np.swapaxes(array, 0, 1) if name in state.program.transposed else array
        weight = operation.tensors.get("weight")
        if weight in state.added:
            tensors[bias_beside(str(weight))] = state.added[str(weight)][rows]
    return tensors


def bias_beside(weight: str) -> str:
    """The name of the bias that belongs to a weight.

    >>> bias_beside("conv.weight"), bias_beside("W1")
    ('conv.bias', 'W1.bias')
    """
    owner, _, last = weight.rpartition(".")
    name = "bias" if last == "weight" else f"{last}.bias"
    return f"{owner}.{name}" if owner else name


Marks = NDArray[np.bool_]  # which entries are left; size 1 along axes along which that does not vary


class RemainingEntries(AbstractDomain[Marks]):
    """Which entries of a value are left: those of which something that is left is made."""

    def __init__(self, weights: Mapping[str, Marks]) -> None:
        self.weights = weights

    def leaf(self, node: Node) -> Marks:
        """Weights are cut; inputs and constants are whole."""
        return _thin(self.weights.get(node.attributes.get("name", ""), _whole(node)))

    def movement(self, node: Node, *sources: Marks) -> Marks:
        """Entries keep their marks; numbers beside them (padding, masked scores) are left where what they lie in is."""
        if all(bool(marks.all()) for marks in sources):
            return _whole(node)
        at = node["map"].positions
        flat = [
            np.broadcast_to(marks, operand.shape).ravel() for marks, operand in zip(sources, node.inputs, strict=True)
        ]
        known = np.concatenate([np.full(operand.size, operand.op != "constant") for operand in node.inputs])[at]
        marks = np.concatenate(flat)[at]
        left, gone = known & marks, known & ~marks
        # Padding has no mark of its own. Where known entries agree along every line of an axis, one mark stands for
        # each line, padding included; where they disagree the axis stays as it is. What met no channel stays.
        for axis in range(node.rank):
            some = left.any(axis=axis, keepdims=True), gone.any(axis=axis, keepdims=True)
            if not bool((some[0] & some[1]).any()):
                left, gone = some
        return np.asarray(~gone)

    def contraction(self, node: Node, x: Marks, y: Marks) -> Marks:
        """Where both operands have something left; an output of a convolution is left with its row of the weight."""
        if "spec" not in node.attributes:
            rows = 1 if node["transposed"] else 0
            left = y.any(axis=tuple(axis for axis in range(y.ndim) if axis != rows))
            return _thin(left.reshape(1, -1, *(1,) * (node.rank - 2)))
        operands, out = node["spec"].split("->")
        letters = list(dict.fromkeys(operands.replace(",", "")))
        spread = [_along(marks, axes, letters) for marks, axes in zip((x, y), operands.split(","), strict=True)]
        both = np.logical_and(*spread).any(axis=tuple(k for k, c in enumerate(letters) if c not in out), keepdims=True)
        # Summed axes have size 1 by now: this only drops them, and puts the others into the order of the result.
        return np.asarray(np.einsum("".join(letters) + "->" + out, both.astype(np.int64)) > 0)

    def reduction(self, node: Node, x: Marks) -> Marks:
        """Where something is left to reduce."""
        return np.asarray(x.any(axis=tuple(node.attributes.get("axes") or (node["axis"],)), keepdims=True))

    def lookup(self, node: Node, *operands: Marks) -> Marks:
        """Rows of a table have what the table has in any row."""
        if all(bool(marks.all()) for marks in operands):
            return _whole(node)
        place = node["axis"]
        table = operands[0].any(axis=place)
        wide = table.reshape(*table.shape[:place], *(1,) * (node.rank - table.ndim), *table.shape[place:])
        return np.asarray(wide)

    def other(self, node: Node, *operands: Marks) -> Marks:
        """Entry by entry, where all operands have something left."""
        if all(bool(marks.all()) for marks in operands):
            return _whole(node)
        return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*operands)))


def _whole(node: Node) -> Marks:
    return np.ones((1,) * node.rank, dtype=bool)


def _thin(marks: Marks) -> Marks:
    """Without axes along which marks do not vary."""
    for axis, size in enumerate(marks.shape):
        if size > 1 and bool((marks == marks.take([0], axis)).all()):
            marks = marks.take([0], axis)
    return marks


def _along(marks: Marks, own: str, letters: Sequence[str]) -> Marks:
    """Marks with an axis for every letter."""
    order = sorted(range(len(own)), key=lambda k: letters.index(own[k]))
    sizes = iter(marks.shape[k] for k in order)
    return marks.transpose(order).reshape([next(sizes) if c in own else 1 for c in letters])


def count_entries(marks: Marks, shape: Shape) -> Shape:
    """Sizes of what is left of a value; every line that is left must keep equally much.

    >>> count_entries(np.array([[True, False, True], [False, False, False], [True, True, False]]), (3, 3))
    (2, 2)
    """
    left, sizes = marks, []
    while left.ndim:
        sizes.append(int(left.sum(axis=-1).max(initial=0)))
        left = np.asarray(left.any(axis=-1))
    sizes.reverse()
    # Each size is the most that a line keeps: the product is at least the number of marks, and equal to it only if all
    # lines keep equally many. Which ones they keep may differ, as heads do.
    if math.prod(sizes) != marks.sum():
        raise Unsupported("lines of a value keep different numbers of channels")
    return tuple(n * whole if have == 1 else n for n, have, whole in zip(sizes, marks.shape, shape, strict=True))


def mark_weights(state: ChannelState) -> dict[str, Marks]:
    """For every entry of a weight whether it is left."""
    by_name: dict[str, Marks] = {}
    for operation in state.program.operations:
        for role, name in operation.tensors.items():
            if name is None:
                continue
            marks = np.ones(state.arrays[name].shape, dtype=bool)
            marks[~state.alive_at(operation.name)] = False
            if operation.kind == "layer" and role == "weight":
                marks[:, ~state.alive_at(operation.sources[0])] = False
            if operation.groups > 1 and role == "weight":  # written out as whole rows while channels leave
                every = np.ones(len(marks), dtype=bool), np.ones(len(marks[0]), dtype=bool)
                marks = cut_rows(marks, operation.groups, *every)
            by_name[name] = np.swapaxes(marks, 0, 1) if name in state.program.transposed else marks
    return by_name


def cut_program(reading: ChannelReading, state: ChannelState, tidied: Tidying | None = None) -> Program:
    """The program of what is left, with weights at their new sizes and the biases that layers gained.

    With a `tidied` module in view, normalisations are in the layers before them, and unseen biases are gone; numbers
    of weights are then not those that they have in it.
    """
    try:
        return _Cutting(reading, state, tidied or Tidying()).program()
    except Refused as refusal:
        raise Unsupported(f"what is left of the graph does not fit together: {refusal}") from None


class _Cutting:
    def __init__(self, reading: ChannelReading, state: ChannelState, tidied: Tidying) -> None:
        self.reading, self.source = reading, reading.source
        self.tensors: dict[str, Floats] = cut_tensors(state)
        self.marks = interpret(self.source, RemainingEntries(mark_weights(state)), self.source.nodes)
        self.groups = {
            str(operation.tensors["weight"]): _groups(state, operation)
            for operation in state.program.operations
            if operation.kind == "depthwise" or operation.groups > 1
        }
        self.norms = tidied.norms
        self.dropped = {str(layer.tensors["bias"]) for layer in tidied.dropped}
        folded = {str(layer.tensors["weight"]) for layer, _ in tidied.folded if layer.tensors["bias"] is None}
        self.gaining = {*state.added, *folded}
        self.b = Builder(self.source.source, {**self.source.tensors, **self.tensors})
        self.new: dict[Node, Node] = {}

    def program(self) -> Program:
        """What is left."""
        for node in self.source.as_run():
            self.b.step = node.step
            passed = self._pass_through(node)
            node_left = (
                self._remake(node, tuple(self.new[operand] for operand in node.inputs)) if passed is None else passed
            )
            if node_left.shape != count_entries(self.marks[node], node.shape):
                raise Refused(f"{node.op} of other sizes than are left")
            self.new[node] = self._with_bias(node, node_left)
        self.b.inputs = [self.new[node] for node in self.source.inputs]
        return self.b.finish(self.new[node] for node in self.source.outputs)

    def _pass_through(self, node: Node) -> Node | None:
        """What a normalisation that is folded into its layer reads, or what a bias that went was added to."""
        values = self.reading.values
        if node.family is OperatorFamily.ADDITION and len(self.dropped) and self._adds(node):
            return self.new[self._inside(node)]
        end = values[node]
        if not isinstance(end, Channels) or end.name not in self.norms or node.family is OperatorFamily.MOVEMENT:
            return None
        # A normalisation is several nodes (centre, scale, shift): what the first of them reads stands for them all.
        inside = node
        while isinstance(at := values[inside], Centred) or (isinstance(at, Channels) and at.name == end.name):
            inside = self._inside(inside)
        return self.new[inside]

    def _adds(self, node: Node) -> bool:
        names = [unwrap(operand).attributes.get("name") for operand in node.inputs]
        return any(name in self.dropped for name in names)

    def _inside(self, node: Node) -> Node:
        """The operand that depends on inputs."""
        return next(operand for operand in node.inputs if not isinstance(self.reading.values[operand], Held))

    def _remake(self, node: Node, operands: tuple[Node, ...]) -> Node:
        name = node.attributes.get("name")
        if node.family is OperatorFamily.LEAF and name in self.tensors:
            leaf = self.b.parameter if node.op == "parameter" else self.b.buffer
            return leaf(name, self.tensors[name], node.kind)
        if node.family is OperatorFamily.MOVEMENT:
            return self.b.take(operands, self._map(node))
        if node.family is OperatorFamily.CONTRACTION and "groups" in node.attributes:
            groups = self.groups.get(node.inputs[1].attributes.get("name", ""), node["groups"])
            return self.b.apply(node.op, operands, node.kind, **{**node.attributes, "groups": groups})
        return self.b.remake(node, operands)

    def _map(self, node: Node) -> IndexMap:
        """Where entries that are left come from, among those that are left."""
        index: IndexMap = node["map"]
        if all(bool(self.marks[operand].all()) for operand in node.inputs):
            return index
        left = np.concatenate([np.broadcast_to(self.marks[operand], operand.shape).ravel() for operand in node.inputs])
        # An entry stays only if the one that it comes from is left, so that its place among those is defined.
        place = np.cumsum(left) - 1
        staying = np.broadcast_to(self.marks[node], node.shape)
        shape = count_entries(self.marks[node], node.shape)
        return IndexMap.of(place[index.positions[staying]].reshape(shape))

    def _with_bias(self, node: Node, made: Node) -> Node:
        """A layer that gains a bias: its sum has rows last, or second in a convolution, and is permuted after that."""
        if node.family is not OperatorFamily.CONTRACTION:
            return made
        for axis, weight in _rows(node):
            if weight in self.gaining:
                name = bias_beside(weight)
                bias = self.b.parameter(name, self.tensors.get(name, np.zeros(made.shape[axis])))
                last = made.rank - 1 if "spec" in node.attributes else axis
                order = [*(k for k in range(made.rank) if k != axis)]
                order.insert(last, axis)
                layer = self.b.permute(made, order)  # which belongs to the contraction again
                sizes = [size if k == last else 1 for k, size in enumerate(layer.shape)]
                back = [order.index(k) for k in range(made.rank)]
                return self.b.permute(self.b.add(layer, self.b.reshape(bias, sizes)), back)
        return made


def _groups(state: ChannelState, operation: Operation) -> int:
    rows = state.alive_at(operation.name)
    return int(rows.sum()) if operation.kind == "depthwise" else groups_left(operation, rows)


def _rows(node: Node) -> list[tuple[int, str]]:
    """The weights of a contraction, with the axis of the result along which their rows lie."""
    named = [(k, operand["name"]) for k, operand in enumerate(node.inputs) if operand.op == "parameter"]
    if "spec" not in node.attributes:
        return [(1, name) for k, name in named if k == 1]
    operands, out = node["spec"].split("->")
    letters = operands.split(",")
    return [
        (out.index(rows[0]), name)
        for k, name in named
        if len(rows := [c for c in letters[k] if c in out and c not in letters[1 - k]]) == 1
    ]


def same_program(one: Program, other: Program) -> bool:
    """Whether two programs are one, node by node; numbers in weights aside."""
    return [node.identity for node in one.outputs] == [node.identity for node in other.outputs]
