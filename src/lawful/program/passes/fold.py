"""Which parameters of a program one linear layer could take over from another: layers, scales, shifts, statistics.

A layer is a contraction of a value with a matrix of parameters and the vector that is added to nothing but its result,
however both are written. A scale is a vector of parameters (perhaps plus a number) that multiplies a value along one
axis, a shift one that is added. BatchNorm in evaluation is a scale and a shift with statistics in them. A parameter
that was folded is a number from then on: `substitute` brings the program to normal form again, and it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lawful.program.builder import Builder
from lawful.program.passes.matching import both_orders, divide_by, number_of, peel, read_inverse_root, undo_reshape
from lawful.program.passes.rebuild import rebuild
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily


@dataclass(frozen=True, eq=False)
class ContractionLayer:
    """`weight` times a value along `value_axis`, plus `bias`: the result lies along `result_axis` of `result`."""

    weight: Node
    axis: int  # of the weight, along which it reads
    bias: Node | None
    value: Node
    value_axis: int
    result: Node
    result_axis: int

    @property
    def is_convolution(self) -> bool:
        """Whether it reads windows."""
        return self.weight.rank != 2


@dataclass(frozen=True, eq=False)
class ScaleAndShift:
    """`value` times (`plus` + `scale`) along an axis, plus `shift` where nothing else reads the product."""

    value: Node
    axis: int
    scale: Node | None
    plus: float
    shift: Node | None
    result: Node


@dataclass(frozen=True, eq=False)
class Statistics:
    """`(value - mean) scale / √(variance + ε) + shift` along axis 1."""

    value: Node
    scale: Node | None
    shift: Node | None
    mean: Node
    variance: Node
    epsilon: float
    result: Node


class LayerReader:
    """Layers, scales and statistics around the nodes of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.users, self.results = program, program.users, set(program.outputs)
        self.values = set(program.inputs)  # what the inputs move
        for node in program.nodes:
            if not self.values.isdisjoint(node.inputs):
                self.values.add(node)

    def only_user(self, node: Node) -> Node | None:
        """The one node that reads a value, if it is read once."""
        users = self.users[node]
        return users[0] if len(users) == 1 and node not in self.results else None

    def is_read_once(self, leaf: Node) -> bool:
        """Whether a leaf is used in one place, perhaps behind movements."""
        node: Node | None = leaf
        while (node := self.only_user(node)) is not None:  # type: ignore[arg-type]
            if node.family is not OperatorFamily.MOVEMENT:
                return True
        return False

    def layer(self, node: Node) -> ContractionLayer | None:
        """The layer that a contraction is the product of: one of its operands is a matrix (or kernel) of parameters."""
        if node.family is not OperatorFamily.CONTRACTION:
            return None
        result = _matrix_product(node) if "spec" in node.attributes else _convolution(node)
        if result is None:
            return None
        after, axis = node, result.result_axis
        # Exporters flatten a batch for the product and undo it before the bias: channels must stay the last axis.
        while (user := self.only_user(after)) is not None and undo_reshape(user) and axis == after.rank - 1:
            if user.shape[-1:] != after.shape[-1:]:
                break
            after, axis = user, user.rank - 1
        bias = self._read_shift(after, axis)
        if bias is None:
            return result
        weight, value = result.weight, result.value
        return ContractionLayer(weight, result.axis, bias[0], value, result.value_axis, bias[1], axis)

    def _read_shift(self, node: Node, axis: int) -> tuple[Node, Node] | None:
        """The vector of parameters that is added to a value along an axis, and the sum, if nothing else reads it."""
        user = self.only_user(node)
        if user is None or user.family is not OperatorFamily.ADDITION or user.shape != node.shape:
            return None
        vector = _vector(next(operand for operand in user.inputs if operand is not node), user, axis)
        return None if vector is None else (vector, user)

    def scale(self, node: Node) -> ScaleAndShift | None:
        """A product with a vector of parameters along an axis, or a bare normalisation, as one without."""
        if node.family is OperatorFamily.NORMALISATION and "centre" in node.attributes and len(node["axes"]) == 1:
            user = self.only_user(node)
            if user is not None and user.family is OperatorFamily.PRODUCT and self.scale(user) is not None:
                return None  # that product is the scale
            axis = node["axes"][0]
            shift = self._read_shift(node, axis)
            return ScaleAndShift(node, axis, None, 0.0, shift and shift[0], shift[1] if shift else node)
        if node.family is not OperatorFamily.PRODUCT:
            return None
        for value, factor in both_orders(node):
            for axis in range(node.rank - 1, -1, -1):
                plus, vector = _plus_vector(factor, node, axis)
                if vector is None or value.shape != node.shape or value not in self.values:
                    continue
                shift = self._read_shift(node, axis) if value.family is OperatorFamily.NORMALISATION else None
                return ScaleAndShift(value, axis, vector, plus, shift and shift[0], shift[1] if shift else node)
        return None

    def statistics(self, node: Node) -> Statistics | None:
        """BatchNorm in evaluation, at its product."""
        if node.family is not OperatorFamily.PRODUCT or node.rank < 2:
            return None
        for centred, factor in both_orders(node):
            if centred.family is not OperatorFamily.ADDITION or factor.size != node.shape[1]:
                continue
            root, gain = peel(factor), None
            if root.family is OperatorFamily.PRODUCT:
                gain, root = next(
                    ((peel(one), peel(two)) for one, two in both_orders(root)
                     if peel(one).op == "parameter"), (None, root))  # fmt: skip
            spread = read_inverse_root(root)
            if spread is None or peel(spread[0]).op != "buffer":
                continue
            variance, epsilon = peel(spread[0]), spread[1]
            for value, minus in both_orders(centred):
                mean = divide_by(peel(minus), -1.0)
                if mean is not None and peel(mean).op == "buffer" and minus.size == node.shape[1]:
                    shift = self._read_shift(node, 1)
                    result = shift[1] if shift else node
                    return Statistics(value, gain, shift and shift[0], peel(mean), variance, epsilon, result)
        return None

    def readers(self, node: Node, axis: int) -> list[ContractionLayer] | None:
        """The linear layers that alone read a value along an axis, perhaps behind movements; None if others do."""
        if node in self.results:
            return None
        result: list[ContractionLayer] = []
        for user in self.users[node]:
            if user.family is OperatorFamily.MOVEMENT:
                moved = _axis_after(user, node, axis)
                behind = None if moved is None else self.readers(user, moved)
                if behind is None:
                    return None
                result += behind
                continue
            layer = self.layer(user)
            # No convolutions: their padding is zero whatever was added, so that a shift would differ at the borders.
            if layer is None or layer.is_convolution or layer.value is not node or layer.value_axis != axis:
                return None
            result.append(layer)
        return result

    def writer(self, node: Node, axis: int) -> ContractionLayer | None:
        """The layer that alone makes a value, which is read once; channels are along an axis."""
        for start in (node, *(operand for operand in node.inputs if node.family is OperatorFamily.ADDITION)):
            layer = self.layer(start)
            if layer is not None and layer.result is node and layer.result_axis == axis:
                return layer if self.only_user(node) is not None else None
        return None


def substitute(program: Program, numbers: Mapping[str, float]) -> Program:
    """The program with a number for every entry of some parameters and buffers."""

    def rule(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.op in ("parameter", "buffer") and node["name"] in numbers:
            return b.constant(np.full(node.shape, numbers[node["name"]]))
        return None

    return rebuild(program, rule)


def factors(program: Program) -> Iterator[str]:
    """The names of parameters that multiply values entry by entry."""
    for node in program.nodes:
        if node.family is OperatorFamily.PRODUCT:
            yield from (factor["name"] for factor in map(peel, node.inputs) if factor.op == "parameter")


def _matrix_product(node: Node) -> ContractionLayer | None:
    letters, out = node["spec"].split("->")
    for k, weight_letters in enumerate(letters.split(",")):
        weight, value, other = node.inputs[k], node.inputs[1 - k], letters.split(",")[1 - k]
        if weight.op != "parameter" or weight.rank != 2 or value.op == "parameter":
            continue
        for axis in (1, 0):
            read, outgoing = weight_letters[axis], weight_letters[1 - axis]
            # An axis that the value has too and the result keeps counts matrices: such a product is no layer of one
            # matrix.
            if read in other and read not in out and outgoing in out and outgoing not in other:
                return ContractionLayer(weight, axis, None, value, other.index(read), node, out.index(outgoing))
    return None


def _convolution(node: Node) -> ContractionLayer | None:
    value, weight = node.inputs
    if weight.op != "parameter" or node["transposed"]:
        return None
    return ContractionLayer(weight, 1, None, value, 1, node, 1)


def _vector(node: Node, like: Node, axis: int) -> Node | None:
    """The parameter with one axis that a node lays along an axis of another."""
    plus, vector = _plus_vector(node, like, axis)
    return None if plus else vector


def _plus_vector(node: Node, like: Node, axis: int) -> tuple[float, Node | None]:
    """A number and a parameter with one axis whose sum a node lays along an axis of another."""
    if node.rank != like.rank or node.shape[axis] != node.size:
        return 0.0, None
    inner, plus = peel(node), 0.0
    if inner.family is OperatorFamily.ADDITION:
        for one, other in both_orders(inner):
            if (number := number_of(one)) is not None:
                plus, inner = float(number), peel(other)
                break
    whole = inner.op == "parameter" and inner.rank == 1 and inner.size == like.shape[axis]
    return plus, inner if whole else None


def _axis_after(node: Node, source: Node, axis: int) -> int | None:
    """Where an axis of the one source of a movement lies in its result, if every entry keeps its index along it."""
    size = source.shape[axis]
    # One index along an axis says nothing of where the axis went.
    if len(node.inputs) != 1 or "map" not in node.attributes or size == 1:
        return None
    step = int(np.prod(source.shape[axis + 1 :], dtype=np.int64))
    index = node["map"].positions // step % size
    for place in range(node.rank - 1, -1, -1):
        if node.shape[place] == size:
            expected = np.arange(size).reshape(-1, *(1,) * (node.rank - place - 1))
            if bool((index == expected).all()):
                return place
    return None
