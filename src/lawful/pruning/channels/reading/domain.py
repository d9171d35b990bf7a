"""Channels as a domain: a network's program as operations on channels, decided by families and traits.

Every entry of a value is a channel of an activation (`values`). Layers make new channels; functions of one number,
sums, products and normalisations by channel, pools and movements pass them on; what no rule follows is pinned. The
rules of each family are functions in a file of their own, which write to a `ChannelRecord`. At the end results stay,
tensors in two roles stay, and what leads to no result is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program
from lawful.pruning.channels.program import ChannelProgram, Operation
from lawful.pruning.channels.reading import arithmetic, attention, reductions
from lawful.pruning.channels.reading.arithmetic import bend, choose, compare
from lawful.pruning.channels.reading.record import ChannelRecord, channels_along
from lawful.pruning.channels.reading.values import (
    Attended,
    Centred,
    Channels,
    HeadScores,
    Held,
    Mixture,
    Padded,
    Total,
    Value,
    collapse,
    follow,
    move_mixtures,
    tensor_name,
)


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
        return move_entries(self, node, sources)

    def elementwise(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        return bend(self, node, operands)

    def choice(self, node: Node, *operands: Value) -> Value:
        """A bound by a number, or any function of one channel."""
        return choose(self, node, operands)

    def comparison(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        return compare(self, node, operands)

    def addition(self, node: Node, x: Value, y: Value) -> Value:
        """A shift by channel, or a sum of two activations."""
        return arithmetic.add(self, node, x, y)

    def product(self, node: Node, x: Value, y: Value) -> Value:
        """A scale by channel, or a product of two activations."""
        return arithmetic.multiply(self, node, x, y)

    def contraction(self, node: Node, x: Value, y: Value) -> Value:
        """A layer, or a part of an attention."""
        return contract_operands(self, node, x, y)

    def lookup(self, node: Node, *operands: Value) -> Value:
        """A table of embeddings."""
        return look_up(self, node, operands)

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
    heads = {
        source for operation in program.operations if operation.attention is not None for source in operation.sources
    }
    users = _users(program)
    # An operation that is given up no longer uses its other tensors either, so start again after each.
    while tensor := next((name for name in users if _conflicts(record, name, users[name], heads)), None):
        for operation in users[tensor]:
            _give_up(record, operation)
        users = _users(program)
    for operations in users.values():
        for other in operations[1:]:
            program.join(operations[0].name, other.name)
            program.join(operations[0].sources[0], other.sources[0])


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
    unlike = len({_settings(operation) for operation in users}) > 1
    return (
        tensor in record.touched or unlike or (len(users) > 1 and any(operation.name in heads for operation in users))
    )


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
    label = operation.function or operation.kind
    record.replace_operation(Operation("other", operation.name, operation.sources, function=label))


def _forget_tables(record: ChannelRecord) -> None:
    """Tables all of whose columns stay, mostly because a normalisation reads them, need not be looked at."""
    for operation in record.program.operations:
        if operation.function == "embedding" and operation.kind == "layer" and record.program.is_pinned(operation.name):
            record.program.transposed.discard(str(operation.tensors["weight"]))
            record.replace_operation(Operation("other", operation.name, operation.sources, function="embedding"))


def _forget_unread(record: ChannelRecord) -> None:
    """Steps that lead to no result."""
    needed = set(record.program.results)
    for operation in reversed(record.program.operations):
        if operation.name in needed:
            needed |= set(operation.sources)
    record.keep_operations(needed)


def contract_operands(record: ChannelRecord, node: Node, x: Value, y: Value) -> Value:
    """A layer, a fixed map of positions, or a part of an attention."""
    if isinstance(x, Held) and isinstance(y, Held):
        return Held(node)
    if "spec" not in node.attributes:
        return _convolve(record, node, x, y)
    letters, out = node["spec"].split("->")
    operands = zip((x, y), letters.split(","), strict=True)
    # Tensors come second, whichever side they are written on; two values that depend on inputs are an attention's.
    (term, lx), (factor, ly) = sorted(operands, key=lambda pair: isinstance(pair[0], Held))
    if not isinstance(factor, Held):
        return attention.contract(record, node, (term, lx), (factor, ly), out)
    settled = record.settle(term)
    if settled is None:
        return record.other(node, x, y)
    inner, outer = [c for c in lx if c not in out], [c for c in ly if c not in lx]
    weight = tensor_name(factor)
    if weight is not None and len(inner) == len(outer) == 1 and len(ly) == 2:
        source = record.along(settled, lx.index(inner[0]))
        return add_layer(record, node, source, weight, out.index(outer[0]), turned=ly[0] == inner[0])
    if factor.node.op == "constant" and not {lx[axis] for axis in settled.axes} & set(ly):
        shares = np.asarray(factor.node["value"], dtype=np.float64)
        summed = tuple(k for k, c in enumerate(ly) if c in inner)
        terms = math.prod(shares.shape[k] for k in summed)
        # Shares of interpolations add up to 1 but for the rounding of each when they were read.
        steady = bool((np.abs(shares.sum(axis=summed) - 1) <= 2.0**-52 * terms).all())
        name = record.add_by_channel("pool", record.name(node), [settled.name], padded=not steady)
        return _contract_positions(node, settled, lx, out, name)
    return record.other(node, x, y)


def _contract_positions(node: Node, x: Channels, letters: str, out: str, name: str) -> Channels:
    """Labels after a contraction of positions: their axes in the order of the result, and size 1 along its new ones."""
    before, after = [c for c in letters if c in out], [c for c in out if c in letters]
    lines = x.labels[tuple(slice(None) if c in out else 0 for c in letters)]
    turned = lines.transpose([before.index(c) for c in after])
    sizes = [turned.shape[after.index(c)] if c in after else 1 for c in out]
    return replace(x, name=name, labels=turned.reshape(sizes), shape=node.shape, root="", mixture=None)


def _convolve(record: ChannelRecord, node: Node, x: Value, weight: Value) -> Value:
    settled, name = record.settle(x), tensor_name(weight)
    if settled is None or name is None:
        return record.other(node, x, weight)
    groups, padded = node["groups"], any(node["padding"])
    if node["transposed"] and groups != 1:
        return record.other(node, settled, weight)
    source = record.along(settled, 1)
    if node["transposed"]:  # beside the border there is less to add, as beside zeros
        return add_layer(record, node, source, name, 1, turned=True, padded=True)
    if 1 < groups == settled.shape[1] == node.shape[1]:
        tensors = {"weight": name, "bias": None}
        name_of_result = record.add_by_channel("depthwise", record.name(node), [source], tensors=tensors, padded=padded)
        return channels_along(name_of_result, node, 1, groups)
    return add_layer(record, node, source, name, 1, padded=padded, groups=groups)


def look_up(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """A table is a layer without a bias that reads one row: its columns are the channels."""
    if all(isinstance(operand, Held) for operand in operands):
        return Held(node)
    name, rows = tensor_name(operands[0]), node.inputs[0]
    whole_rows = rows.rank == 2 and node.attributes.get("axis") == 0 and len(operands) == 2
    if name is None or not whole_rows or node.shape != (*node.inputs[1].shape, rows.shape[1]):
        return record.other(node, *operands)
    sources = record.sources_of(operands[1])
    for source in sources:
        record.program.pin(source)
    row = record.name(node, " row")
    record.add_source(Operation("other", row, tuple(sources)), rows.shape[0], pinned=True)
    return add_layer(record, node, row, name, node.rank - 1, turned=True, function="embedding")


def add_layer(
    record: ChannelRecord,
    node: Node,
    source: str,
    weight: str,
    axis: int,
    *,
    turned: bool = False,
    padded: bool = False,
    groups: int = 1,
    function: str = "",
) -> Channels:
    """A layer without a bias so far, whose channels lie along an axis; `turned`: its weight has inputs first."""
    if turned:
        record.program.transposed.add(weight)
    tensors = {"weight": weight, "bias": None}
    layer = Operation("layer", record.name(node), (source,), tensors, padded, function=function, groups=groups)
    record.add_source(layer, node.shape[axis])
    return channels_along(layer.name, node, axis, node.shape[axis])


def move_entries(record: ChannelRecord, node: Node, sources: Sequence[Value]) -> Value:
    """Entries of the sources in other places."""
    if all(isinstance(source, Held) for source in sources):
        return Held(node)
    if any(isinstance(source, (HeadScores, Attended)) for source in sources):
        return attention.move(record, node, sources)
    if len(sources) == 1 and isinstance(sources[0], Total):
        total = _move_total(record, node, sources[0])
        if total is not None:
            return total
    labelled: list[Channels | Mixture | None] = []
    for source in sources:
        if isinstance(source, Held) and source.node.op == "constant":
            labelled.append(None)
            continue
        known = (
            source if isinstance(source, Mixture) else record.settle(source)
        )  # a tensor among sources is not settled
        if known is None:
            return record.other(node, *sources)
        labelled.append(known)
    channels = [source for source in labelled if not isinstance(source, Mixture)]
    if len(channels) < len(labelled):
        return move_mixtures(node, labelled) or record.other(node, *sources)
    return _move_channels(record, node, channels) or record.other(node, *sources)


def _move_total(record: ChannelRecord, node: Node, total: Total) -> Total | None:
    """A sum over positions that stays one, for it may become a mean later."""
    moved = move_entries(record, node, [total.value])
    if not isinstance(moved, Channels) or moved.name != total.value.name:
        return None
    if total.count.size > 1:
        count = np.broadcast_to(total.count, node.inputs[0].shape).ravel()[node["map"].positions]
    else:
        count = total.count.reshape((1,) * node.rank)
    return Total(total.node, moved, count, total.padded)


def _move_channels(record: ChannelRecord, node: Node, sources: Sequence[Channels | None]) -> Value | None:
    """Channels of one activation, or of several that become one: labels of each start where the last one's end."""
    known = [source for source in sources if source is not None]
    one = len({(channel.name, channel.width) for channel in known}) == 1
    if not one and any(channel.width != 1 for channel in known):
        return None
    starts, total = {}, 0
    for channels in known:
        if channels.name not in starts:
            starts[channels.name] = 0 if one else total
            total += record.count(channels.name) * channels.width
    labelled = [
        (operand.shape, None if source is None else source.labels + starts[source.name])
        for operand, source in zip(node.inputs, sources, strict=True)
    ]
    moved = follow(node["map"], labelled)
    if moved is None:
        return None
    number = _number_beside(node, sources)
    if number is None and moved.outside is not None:
        return None
    width, labels = known[0].width * moved.width, moved.labels
    if width > 1 and (collapsed := collapse(labels, width)) is not None:
        width, labels = 1, collapsed
    if record.still and not (one and width == 1 and np.array_equal(labels, known[0].labels)):
        return None
    mixture = None
    if one:
        name, root = known[0].name, known[0].root
        if known[0].mixture is not None and len(sources) == 1:
            mixture = move_mixtures(node, [known[0].mixture])
    else:
        name, root = record.name(node), ""
        cells = np.concatenate([record.activations[source] for source in starts])
        record.add(Operation("cat", name, tuple(starts)), cells)
        if len({channel.mixture.root if channel.mixture else channel.origin for channel in known}) == 1:
            mixture = move_mixtures(node, sources)
    value = Channels(name, labels, node.shape, width, root, mixture)
    return value if number is None or moved.outside is None else Padded(value, number, moved.outside)


def _number_beside(node: Node, sources: Sequence[Channels | None]) -> float | None:
    """The one number that lies beside the channels."""
    # A constant among the sources of a movement holds each number once, and all of them are used.
    numbers = [operand["value"].ravel() for operand, source in zip(node.inputs, sources, strict=True) if source is None]
    flat = np.concatenate(numbers) if numbers else np.zeros(0)
    return float(flat[0]) if len(flat) == 1 else None
