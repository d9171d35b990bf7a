"""Put a network together from tensors of pending sums: what the scalar graph of a program is made of.

A `Value` is a tensor whose entries are pending sums over nodes. An activation turns the entries into hidden nodes. A
weight matrix that meets sums of several terms, or another weight matrix's, first turns them into linear hidden nodes:
so two Linear layers in a row keep the layer between them, and nothing grows by multiplying matrices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.network.dag import Dag, useful_dag
from lawful.network.mlp import Mlp
from lawful.network.validity import Role
from lawful.types import Floats, Indices

MAX_TERMS = 20_000_000


@dataclass(frozen=True, eq=False)
class Matrix:
    """A sparse linear map as its stored entries, row by row; a stored zero stays an edge."""

    rows: Indices
    columns: Indices
    entries: Floats


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor without its batch: entry i is `bias_i + Σ coefficient · node` over the terms of row i."""

    shape: tuple[int, ...]
    indptr: Indices
    nodes: Indices
    coefficients: Floats
    bias: Floats
    biased: NDArray[np.bool_]
    weighted: bool  # a weight matrix has been applied since the last activation

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.bias)

    @property
    def simple(self) -> bool:
        """Whether every entry is at most one node, scaled and shifted."""
        return not self.weighted and len(self.nodes) <= self.size and bool((np.diff(self.indptr) <= 1).all())

    def take(self, entries: Indices, shape: tuple[int, ...]) -> Value:
        """A tensor of chosen entries: what transposing, slicing and repeating have in common."""
        places = _spans(self.indptr, entries)
        indptr = np.concatenate([[0], np.cumsum(np.diff(self.indptr)[entries])])
        terms = indptr, self.nodes[places], self.coefficients[places]
        return Value(shape, *terms, self.bias[entries], self.biased[entries], self.weighted)

    def reshape(self, shape: tuple[int, ...]) -> Value:
        """The same entries under another shape."""
        if math.prod(shape) != self.size:
            raise InvalidNetwork(f"cannot reshape {sizes(self.shape)} to {sizes(shape)}")
        return replace(self, shape=shape)

    def broadcast(self, shape: tuple[int, ...]) -> Value:
        """Repeat entries as NumPy does."""
        if shape == self.shape:
            return self
        if len(shape) != len(self.shape):
            raise Unsupported(f"shapes {sizes(self.shape)} and {sizes(shape)} (without batch) differ in rank")
        check_terms(math.prod(shape))
        return self.take(np.broadcast_to(np.arange(self.size).reshape(self.shape), shape).ravel(), shape)

    def scale(self, factors: ArrayLike) -> Value:
        """Each entry times a fixed number."""
        factor = np.broadcast_to(factors, self.shape).ravel()
        coefficients = self.coefficients * np.repeat(factor, np.diff(self.indptr))
        return replace(self, coefficients=coefficients, bias=self.bias * factor)

    def shift(self, offsets: ArrayLike) -> Value:
        """Each entry plus a fixed number, which becomes a bias."""
        offset = np.broadcast_to(offsets, self.shape).ravel()
        return replace(self, bias=self.bias + offset, biased=np.ones(self.size, dtype=bool))

    def __add__(self, other: Value) -> Value:
        shape = joint_shape(self.shape, other.shape)
        first, second = self.broadcast(shape), other.broadcast(shape)
        check_terms(len(first.nodes) + len(second.nodes))
        rows = np.concatenate([_rows(first.indptr), _rows(second.indptr)])
        nodes = np.concatenate([first.nodes, second.nodes])
        terms = _merge_terms(rows, nodes, np.concatenate([first.coefficients, second.coefficients]), first.size)
        biased = first.biased | second.biased
        return Value(shape, *terms, first.bias + second.bias, biased, first.weighted or second.weighted)

    def map(self, matrix: Matrix, shape: tuple[int, ...], *, weighted: bool) -> Value:
        """A linear map of the flattened entries; `weighted` says that its numbers are parameters."""
        counts = np.diff(self.indptr)[matrix.columns]
        size = math.prod(shape)
        check_terms(max(int(counts.sum()), size))
        places = _spans(self.indptr, matrix.columns)
        rows = np.repeat(matrix.rows, counts)
        products = np.repeat(matrix.entries, counts) * self.coefficients[places]
        terms = _merge_terms(rows, self.nodes[places], products, size)
        offsets = matrix.entries * self.bias[matrix.columns]
        bias: Floats = np.bincount(matrix.rows, offsets, minlength=size).astype(np.float64)
        biased = np.bincount(matrix.rows, self.biased[matrix.columns], minlength=size) > 0
        return Value(shape, *terms, bias, biased, self.weighted or weighted)


def fixed_value(numbers: Floats) -> Value:
    """A tensor that does not depend on the input."""
    size = numbers.size
    none = np.zeros(0, dtype=np.intp)
    start = np.zeros(size + 1, dtype=np.intp)
    return Value(numbers.shape, start, none, np.zeros(0), numbers.ravel(), np.ones(size, dtype=bool), weighted=False)


def join(values: Sequence[Value]) -> Value:
    """The entries of several tensors, one after the other."""
    counts = np.concatenate([np.diff(value.indptr) for value in values])
    check_terms(max(int(counts.sum()), len(counts)))
    return Value(
        (len(counts),),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([value.nodes for value in values]),
        np.concatenate([value.coefficients for value in values]),
        np.concatenate([value.bias for value in values]),
        np.concatenate([value.biased for value in values]),
        any(value.weighted for value in values),
    )


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes made together, with the pending sums that enter them."""

    value: Value
    slopes: Floats


class Assembly:
    """Collects the hidden nodes of a network while its operations are read in order."""

    def __init__(self, input_shape: tuple[int, ...]) -> None:
        self.inputs = math.prod(input_shape)
        if self.inputs < 1:
            raise InvalidNetwork(f"the input size {sizes(input_shape)} is empty")
        check_terms(self.inputs)
        self.input_shape = input_shape
        self.groups: list[Group] = []
        self.nodes, self.terms = self.inputs, 0
        self.sums: dict[Value, Value] = {}  # pending sums that have linear nodes already

    def input(self) -> Value:
        """The network's input."""
        return self._fresh(0, self.input_shape)

    def activate(self, value: Value, slope: ArrayLike) -> Value:
        """`max(z, 0) + slope min(z, 0)` of every entry: one hidden node each."""
        self.terms += len(value.nodes) + value.size
        check_terms(self.terms)
        self.groups.append(Group(value, np.broadcast_to(np.asarray(slope, dtype=np.float64), value.shape).ravel()))
        self.nodes += value.size
        return self._fresh(self.nodes - value.size, value.shape)

    def finish(self, value: Value, *, drop_useless: bool = False) -> Mlp | Dag:
        """The network with this output: an `Mlp` if it is one exactly, else a `Dag`."""
        check_terms(self.terms + len(value.nodes) + value.size)
        groups = [*self.groups, Group(value, np.ones(value.size))]
        constant = self.nodes + value.size
        tails, heads, weights, start = [], [], [], self.inputs
        for group in groups:
            sums = group.value
            biased = np.flatnonzero(sums.biased)
            tails += [sums.nodes, np.full(len(biased), constant)]
            heads += [start + _rows(sums.indptr), start + biased]
            weights += [sums.coefficients, sums.bias[biased]]
            start += sums.size
        biases = any(group.value.biased.any() for group in groups)
        counts = (self.inputs, self.nodes - self.inputs, value.size, int(biases))
        roles = np.repeat((Role.INPUT, Role.HIDDEN, Role.OUTPUT, Role.CONSTANT), counts)
        slopes = np.concatenate([np.ones(self.inputs), *(group.slopes for group in groups), np.ones(int(biases))])
        make = useful_dag if drop_useless else Dag
        arrays = np.concatenate(tails), np.concatenate(heads), np.concatenate(weights), slopes
        return as_layers(make(self._names(value.size, biases), roles, *arrays))

    def settle(self, value: Value) -> Value:
        """The same entries, each at most one node: sums that are needed more than once get linear nodes."""
        return value if value.simple else self._sum_nodes(value)

    def _sum_nodes(self, value: Value) -> Value:
        """Linear nodes for pending sums, made once however many weights they meet."""
        if value not in self.sums:
            self.sums[value] = self.activate(value, 1.0)
        return self.sums[value]

    def _fresh(self, start: int, shape: tuple[int, ...]) -> Value:
        size = math.prod(shape)
        nodes, none = np.arange(start, start + size), np.zeros(size, dtype=bool)
        return Value(shape, np.arange(size + 1), nodes, np.ones(size), np.zeros(size), none, weighted=False)

    def _names(self, outputs: int, biases: bool) -> list[str]:
        hidden = [f"h{k}.{i}" for k, group in enumerate(self.groups, 1) for i in range(group.value.size)]
        ends = [f"y{i}" for i in range(outputs)] + ["bias"] * biases
        return [f"x{i}" for i in range(self.inputs)] + hidden + ends


def as_layers(dag: Dag) -> Mlp | Dag:
    """The `Mlp` with the same edges, if the graph is layered and every layer complete; else the graph."""
    widths = [len(dag.inputs), *np.bincount(dag.levels[dag.hidden], minlength=1)[1:].tolist(), len(dag.outputs)]
    if sum(below * above for below, above in itertools.pairwise(widths)) > dag.parameters:
        return dag  # without making matrices that may be far larger than the graph
    try:
        mlp = Mlp.from_dag(dag)
    except (InvalidNetwork, Unsupported):
        return dag
    return mlp if mlp.parameters == dag.parameters else dag


def as_mlp(dag: Dag) -> Mlp | None:
    """The `Mlp` whose graph this is, name by name and weight by weight in the same order; None if there is none."""
    layered = as_layers(dag) if dag.weights is not None else dag
    if not isinstance(layered, Mlp):
        return None
    twin = layered.to_dag()
    same = twin.names == dag.names and np.array_equal(twin.tails, dag.tails) and np.array_equal(twin.heads, dag.heads)
    return layered if same else None


def check_terms(count: int) -> None:
    """Refuse networks that would not fit."""
    if count > MAX_TERMS:
        raise Unsupported(f"{count:,} edges are more than the {MAX_TERMS:,} that a converted network may have")


def sizes(shape: tuple[int, ...]) -> str:
    """A shape for people: `3×8×8`."""
    return "×".join(map(str, shape)) or "a scalar"


def joint_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that NumPy would give a sum."""
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        raise InvalidNetwork(f"shapes {sizes(first)} and {sizes(second)} cannot be added") from None


def _rows(indptr: Indices) -> Indices:
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def _spans(indptr: Indices, rows: Indices) -> Indices:
    """Places of the terms of chosen rows, in their order."""
    begin, length = indptr[rows], np.diff(indptr)[rows]
    offsets = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return np.asarray(np.repeat(begin, length) + offsets)


def _merge_terms(rows: Indices, nodes: Indices, coefficients: Floats, size: int) -> tuple[Indices, Indices, Floats]:
    """Terms sorted by row and node, those of one node in one row summed; explicit zeros stay."""
    keys = rows * (nodes.max(initial=0) + 1) + nodes
    steps = np.diff(keys)
    if (steps < 0).any():
        order = np.argsort(keys, kind="stable")
        rows, nodes, coefficients = rows[order], nodes[order], coefficients[order]
        steps = np.diff(keys[order])
    if (steps == 0).any():
        first = np.concatenate([[True], steps > 0])
        coefficients = np.add.reduceat(coefficients, np.flatnonzero(first))
        rows, nodes = rows[first], nodes[first]
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=size))]), nodes, coefficients
