"""Channels as a domain: a network's program as operations on channels, decided by families and traits.

Every entry of a value is a channel of an activation (`values`). Layers make new channels; functions of one number,
sums, products and normalisations by channel, pools and movements pass them on; what no rule follows is pinned. The
rules of each family are functions in a file of their own, which write to a `ChannelRecord`. At the end results stay,
tensors in two roles stay, and what leads to no result is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program
from lawful.pruning.channels.program import ChannelProgram, Operation
from lawful.pruning.channels.reading import arithmetic, functions, layers, movement, reductions
from lawful.pruning.channels.reading.record import ChannelRecord
from lawful.pruning.channels.reading.values import Centred, Held, Value


def read_channels(program: Program, *, fixed: bool = False, still: bool = False) -> ChannelReading:
    """The operations on channels of a program.

    `fixed`: inner channels of attentions stay, for scores may be divided by a number that depends on how many there
    are. `still`: channels stay that movements take elsewhere, into parts or other axes, for those may say how many
    there are.
    """
    return ChannelReading(program, fixed=fixed, still=still)


class ChannelReading(ChannelRecord, AbstractDomain[Value]):
    """A program as operations on channels, with what is known of every value in `values`."""

    def __init__(self, program: Program, *, fixed: bool, still: bool) -> None:
        super().__init__(program, fixed=fixed, still=still)
        self.values = interpret(program, self, program.nodes)
        complete(self, self.values)

    def leaf(self, node: Node) -> Value:
        """Inputs have channels along their second axis, which stay."""
        return self.pin(node, [], "") if node.op == "input" else Held(node)

    def movement(self, node: Node, *sources: Value) -> Value:
        """Labels move."""
        return movement.move(self, node, sources)

    def elementwise(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        return functions.bend(self, node, operands)

    def choice(self, node: Node, *operands: Value) -> Value:
        """A bound by a number, or any function of one channel."""
        return functions.choose(self, node, operands)

    def comparison(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        return functions.compare(self, node, operands)

    def addition(self, node: Node, x: Value, y: Value) -> Value:
        """A shift by channel, or a sum of two activations."""
        return arithmetic.add(self, node, x, y)

    def product(self, node: Node, x: Value, y: Value) -> Value:
        """A scale by channel, or a product of two activations."""
        return arithmetic.multiply(self, node, x, y)

    def contraction(self, node: Node, x: Value, y: Value) -> Value:
        """A layer, or a part of an attention."""
        return layers.contract(self, node, x, y)

    def lookup(self, node: Node, *operands: Value) -> Value:
        """A table of embeddings."""
        return layers.look_up(self, node, operands)

    def reduction(self, node: Node, x: Value) -> Value:
        """A pool over positions."""
        return reductions.reduce(self, node, x)

    def normalisation(self, node: Node, x: Value) -> Value:
        """A norm of each channel over positions, or a softmax of scores."""
        return reductions.normalise(self, node, x)


def complete(record: ChannelRecord, values: Mapping[Node, Value]) -> None:
    """Name the results, and leave the operations that they need.

    Tensors are shared out before cells get their final names, for channels of layers with one weight become one; tables
    come after that, for only then it is known which columns stay.
    """
    results = []
    for number, node in enumerate(record.source.outputs):
        value = values[node]
        if isinstance(value, Held):
            record.touch(node)  # a tensor that is returned has its own size
            continue
        settled = None if isinstance(value, Centred) else record.settle(value)
        name = None if settled is None else record.select(settled, np.unique(settled.labels))
        if name is None:
            name = record.pin(node, record.sources_of(value), f"result {number}").name
        results.append(name)
    _keep_shared(record)
    record.program.end(results)
    _forget_tables(record)
    _forget_unread(record)


def _keep_shared(record: ChannelRecord) -> None:
    """A tensor in two roles stays whole; a layer that is used several times reads and writes the same channels."""
    program = record.program
    heads = {source for each in program.operations if each.attention is not None for source in each.sources}
    users = _users(program)
    # An operation that is given up no longer uses its other tensors either, so start again after each.
    while tensor := next((name for name in users if _conflicts(record, name, users[name], heads)), None):
        for operation in users[tensor]:
            _give_up(record, operation)
        users = _users(program)
    for operations in users.values():
        for each in operations[1:]:
            program.join(operations[0].name, each.name)
            program.join(operations[0].sources[0], each.sources[0])


def _users(program: ChannelProgram) -> dict[str, list[Operation]]:
    """The operations that use each tensor."""
    users: dict[str, list[Operation]] = {}
    for operation in program.operations:
        for tensor in operation.tensors.values():
            if tensor is not None:
                users.setdefault(tensor, []).append(operation)
    return users


def _conflicts(record: ChannelRecord, tensor: str, users: list[Operation], heads: set[str]) -> bool:
    """Whether a tensor cannot be cut: it is used otherwise, in different roles, or by several sources of attentions."""
    unlike = len({_settings(each) for each in users}) > 1
    return tensor in record.touched or unlike or (len(users) > 1 and any(each.name in heads for each in users))


def _settings(operation: Operation) -> str:
    """All of an operation but what it reads and makes."""
    return repr(replace(operation, name="", sources=(), attention=None))


def _give_up(record: ChannelRecord, operation: Operation) -> None:
    """What an operation reads and makes stays, and its tensors with them."""
    tensors = {tensor for tensor in operation.tensors.values() if tensor is not None}
    record.touched |= tensors
    record.program.transposed -= tensors
    for name in (operation.name, *operation.sources):
        record.program.pin(name)
    said = operation.function or operation.kind
    record.replace_operation(Operation("other", operation.name, operation.sources, function=said))


def _forget_tables(record: ChannelRecord) -> None:
    """Tables all of whose columns stay, mostly because a normalisation reads them, need not be looked at."""
    for each in record.program.operations:
        if each.function == "embedding" and each.kind == "layer" and record.program.is_pinned(each.name):
            record.program.transposed.discard(str(each.tensors["weight"]))
            record.replace_operation(Operation("other", each.name, each.sources, function="embedding"))


def _forget_unread(record: ChannelRecord) -> None:
    """Steps that lead to no result."""
    needed = set(record.program.results)
    for each in reversed(record.program.operations):
        if each.name in needed:
            needed |= set(each.sources)
    record.keep_operations(needed)
