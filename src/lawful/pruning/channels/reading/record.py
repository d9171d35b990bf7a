"""The record that a reading writes: operations on channels so far, and how values become activations of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from hashlib import sha256

import numpy as np

from lawful.program.core.functions import Arguments
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.program import ChannelProgram, Heads, Operation
from lawful.pruning.channels.reading.values import (
    BLENDING,
    Attended,
    Centred,
    Channels,
    Guard,
    HeadScores,
    Held,
    Mixture,
    Padded,
    Total,
    Value,
    blend,
)
from lawful.types import Indices

MOST_PARTS = 1000  # that one concatenation has in a certificate


class ChannelRecord:
    """Operations on channels in order, with the activations by name, and the tensors that cannot be cut."""

    def __init__(self, source: Program, *, fixed: bool = False, still: bool = False) -> None:
        self.source, self.fixed, self.still = source, fixed, still
        self.program = ChannelProgram()
        self.touched: set[str] = set()  # tensors in use that no rule can cut
        self.readers = Counter(operand for node in source.nodes for operand in node.inputs)
        self.readers.update(source.outputs)
        self._place: dict[str, int] = {}  # of operations by name
        self._sequences: dict[tuple[str, bytes], str] = {}

    # Operations

    @property
    def activations(self) -> dict[str, Indices]:
        """The cell of each channel of every activation."""
        return self.program.activations

    def name(self, node: Node, role: str = "") -> str:
        """The name of what a node makes: the same for equal nodes of any program."""
        return f"{node.op} {node.identity.hex()[:16]}{role}"

    def count(self, name: str) -> int:
        """How many channels an activation has."""
        return len(self.activations[name])

    def operation(self, name: str) -> Operation | None:
        """The operation that makes an activation."""
        return self.program.operations[self._place[name]] if name in self._place else None

    def add(self, operation: Operation, cells: Indices | None = None) -> str:
        """An operation whose activation is there already, or passes these cells on; its name."""
        self._place[operation.name] = len(self.program.operations)
        self.program.add(operation, cells)
        return operation.name

    def add_source(self, operation: Operation, count: int, *, pinned: bool = False) -> None:
        """An operation that makes new channels."""
        self.program.add_channels(operation.name, count, pinned=pinned)
        self.add(operation)

    def add_by_channel(
        self,
        kind: str,
        name: str,
        sources: Sequence[str],
        *,
        tensors: dict[str, str | None] | None = None,
        padded: bool = False,
        function: str = "",
        arguments: Arguments = (),
    ) -> str:
        """An operation channel by channel: it passes the cells of its first source on."""
        operation = Operation(kind, name, tuple(sources), tensors or {}, padded, 1, function, arguments)
        return self.add(operation, self.activations[sources[0]])

    def attend(self, name: str, sources: tuple[str, str, str], heads: Heads) -> None:
        """An attention of queries, keys and values."""
        self._place[name] = len(self.program.operations)
        self.program.attend(name, sources, heads)

    def replace_operation(self, operation: Operation) -> None:
        """Another operation in place of the one that makes the same activation."""
        self.program.operations[self._place[operation.name]] = operation

    def keep_operations(self, names: Collection[str]) -> None:
        """Only operations and activations with these names are left."""
        self.program.operations = [operation for operation in self.program.operations if operation.name in names]
        self.program.activations = {name: cells for name, cells in self.activations.items() if name in names}
        self._place = {operation.name: place for place, operation in enumerate(self.program.operations)}

    def touch(self, node: Node) -> None:
        """Tensors behind a value are used in a way that no rule can cut."""
        stack = [node]
        while stack:
            behind = stack.pop()
            stack += behind.inputs
            if "name" in behind.attributes and behind.family is OperatorFamily.LEAF:
                self.touched.add(behind["name"])

    # Activations of some of the channels

    def sequence(self, x: Channels) -> str | None:
        """The activation whose channels are those of a value, in their order; None if it has too many parts."""
        return self.select(x, x.labels)

    def select(self, x: Channels, labels: Indices) -> str | None:
        """The activation whose channels are those at labels, in this order; None if it has too many parts."""
        order = labels.ravel()
        name = self._widen(x.name, x.width) if x.width > 1 else x.name
        if np.array_equal(order, np.arange(self.count(name))):
            return name
        key = name, order.tobytes()
        if key not in self._sequences:
            starts = np.flatnonzero(np.diff(order, prepend=-2) != 1)  # of runs of neighbours, each one part
            if len(starts) > MOST_PARTS:
                return None
            runs = [(int(order[a]), int(b - a)) for a, b in zip(starts, [*starts[1:], len(order)], strict=True)]
            parts = [self._slice(name, start, size) for start, size in runs]
            sequence = parts[0]
            if len(parts) > 1:
                cells = np.concatenate([self.activations[part] for part in parts])
                label = f"{name} in order {len(self._sequences)}"
                sequence = self.add(Operation("cat", label, tuple(parts)), cells)
            self._sequences[key] = sequence
        return self._sequences[key]

    def _slice(self, name: str, start: int, size: int) -> str:
        if start == 0 and size == self.count(name):
            return name
        part = f"{name} from {start} to {start + size}"
        if part not in self.activations:
            cells = self.activations[name][start : start + size]
            self.add(Operation("part", part, (name,), arguments=(float(start),)), cells)
        return part

    def _widen(self, name: str, width: int) -> str:
        """Every channel spelled out into so many places."""
        wide = f"{name} by {width}"
        if wide not in self.activations:
            self.add(Operation("flat", wide, (name,), width=width), np.repeat(self.activations[name], width))
        return wide

    def along(self, x: Channels, axis: int) -> str:
        """The channels along one axis; where channels lie elsewhere they stay, and positions are seen as channels."""
        size = x.shape[axis]
        if x.labels.size == x.labels.shape[axis] == size:
            sequence = self.sequence(x)
            if sequence is not None:
                return sequence
        name = f"{x.name} seen along {axis} of {list(x.shape)}"
        if name not in self.activations:
            self.program.pin(x.name)
            self.add_source(Operation("other", name, (x.name,)), size, pinned=True)
        return name

    # Values

    def settle(self, value: Value) -> Channels | None:
        """A value as channels: what was left open until its reader is known is decided now; None if it is none."""
        if isinstance(value, Channels):
            return value
        if isinstance(value, Padded) and value.number == 0:
            border = sha256(value.outside.tobytes()).hexdigest()[:16]  # names stand in certificates: the same each time
            name = f"{value.value.name} padded {value.outside.shape}{border}"
            if name not in self.activations:
                self.add_by_channel("pool", name, [value.value.name], padded=True)
            return replace(value.value, name=name, root="")
        if isinstance(value, Total):
            return self._settle_total(value)
        if isinstance(value, Mixture):
            axes = [axis for axis, size in enumerate(value.labels.shape) if size > 1]
            return self.pin(value.node, [value.root], value.said, axes[0] if len(axes) == 1 else None)
        return None

    def _settle_total(self, total: Total) -> Channels:
        """A sum is a mean times how many there are; beside padding only 0 stays what it is."""
        name = self.name(total.node)
        if name not in self.activations:
            if total.padded or total.count.size > 1:
                self.add_by_channel("pool", name, [total.value.name], padded=True)
            else:
                self.add_mean(name, total.value.name, float(total.count.flat[0]))
        return replace(total.value, name=name, root="")

    def add_mean(self, name: str, source: str, factor: float) -> None:
        """A mean over positions times a number."""
        mean = self.add_by_channel("pool", f"{name} mean", [source])
        self.add_by_channel("same", name, [mean], function="mul number", arguments=(factor,))

    def sources_of(self, value: Value) -> list[str]:
        """The activations that a value is made of."""
        match value:
            case Channels():
                return [value.name]
            case Mixture():
                return [value.root]
            case Padded() | Total() | Centred():
                return [value.value.name]
            case HeadScores():
                return [name for side in value.sides for name in self.sources_of(side)]
            case Attended():
                return self.sources_of(value.scores)
            case Guard():
                return self.sources_of(value.source)
        return []

    def is_pinned(self, value: Value) -> bool:
        """Whether all that a value is made of stays."""
        return all(self.program.is_pinned(name) for name in self.sources_of(value))

    def pin(self, node: Node, sources: Sequence[str], said: str, axis: int | None = None) -> Channels:
        """A value that no rule follows: what it reads stays."""
        name = self.name(node, " as a whole")
        if axis is None:
            axis = min(1, max(node.rank - 1, 0))
        count = node.shape[axis] if node.shape else 1
        if name not in self.activations:
            for source in sources:
                self.program.pin(source)
            self.program.add_channels(name, count, pinned=True)
            if node.inputs:
                self.add(Operation("other", name, tuple(dict.fromkeys(sources)), function=said))
        return channels_along(name, node, axis, count)

    def other(self, node: Node, *operands: Value) -> Value:
        """What no rule follows: a mixture of one activation's channels while it may be one of heads, else pinned."""
        opaque = node.family is OperatorFamily.OPAQUE
        if not opaque and all(isinstance(operand, Held) for operand in operands):
            return Held(node)
        for operand in operands:
            if isinstance(operand, Held):
                self.touch(operand.node)
        if node.family in BLENDING:
            mixture = blend(node, operands, [self.is_pinned(operand) for operand in operands])
            if mixture is not None:
                return mixture
        sources = [name for operand in operands for name in self.sources_of(operand)]
        return self.pin(node, sources, node["name"] if opaque else node.op)


def channels_along(name: str, node: Node, axis: int, count: int) -> Channels:
    """A node's value whose channels are all those of an activation, in order along one axis."""
    sizes = [count if k == axis else 1 for k in range(node.rank)]
    return Channels(name, np.arange(count).reshape(sizes), node.shape)


def renumber(name: str, node: Node, x: Channels) -> Channels:
    """A node's value whose channels lie as those of x, all those of an activation in order."""
    return Channels(name, np.arange(x.labels.size).reshape(x.labels.shape), node.shape)
