"""The end of a reading: results stay, tensors in two roles stay, and what leads to no result is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lawful.program.program import Node
from lawful.pruning.channels.program import ChannelProgram, Operation
from lawful.pruning.channels.reading.record import ChannelRecord
from lawful.pruning.channels.reading.values import Centred, Held, Value


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
