"""Attention in a program: two contractions of activations with a softmax between them.

`softmax(scale q·k + mask) v`, however it is written: queries and keys are labelled values that share axes of heads and
contract their inner channels; rotary positions and norms mix channels, and must keep to one head and treat all alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.program.domains.evaluate import evaluate
from lawful.program.program import Node, Program
from lawful.pruning.channels.program import Heads
from lawful.pruning.channels.reading.record import ChannelRecord
from lawful.pruning.channels.reading.values import (
    Attended,
    Channels,
    Guard,
    HeadScores,
    Held,
    Mask,
    Mixture,
    Operand,
    Padded,
    Total,
    Value,
    constant_of,
)
from lawful.types import Indices

Side = tuple[Value, str]


def contract(record: ChannelRecord, node: Node, one: Side, two: Side, out: str) -> Value:
    """Products of queries and keys, or of their softmax and values."""
    if isinstance(two[0], Attended):
        one, two = two, one
    if isinstance(one[0], Attended):
        return _values(record, node, one[0], one[1], two, out) or record.other(node, one[0], two[0])
    return _scores(record, one, two, out, node) or record.other(node, one[0], two[0])


def _operand(record: ChannelRecord, value: Value) -> Operand | None:
    """A value whose labels are those of channels."""
    if isinstance(value, (Padded, Total)):
        value = record.settle(value) or value
    if isinstance(value, Mixture):
        return value
    return value if isinstance(value, Channels) and value.width == 1 else None


def _scores(record: ChannelRecord, one: Side, two: Side, out: str, node: Node) -> HeadScores | None:
    sides = [_operand(record, one[0]), _operand(record, two[0])]
    letters = [one[1], two[1]]
    inner = [c for c in letters[0] if c in letters[1] and c not in out]
    if sides[0] is None or sides[1] is None or len(inner) != 1:
        return None
    varying = [{c for c, n in zip(axes, side.labels.shape, strict=True) if n > 1}
               for axes, side in zip(letters, (sides[0], sides[1]), strict=True)]  # fmt: skip
    sizes = dict(zip(letters[0] + letters[1], (*sides[0].shape, *sides[1].shape), strict=True))
    if sizes[inner[0]] > 1 and not all(inner[0] in axes for axes in varying):
        return None
    heads = [c for c in out if c in varying[0] | varying[1]]
    if any(axes - {*heads, inner[0]} for axes in varying):
        return None
    tables = [
        _table(side.labels, axes, [*heads, inner[0]], sizes)
        for side, axes in zip((sides[0], sides[1]), letters, strict=True)
    ]
    owners = [frozenset(out.index(c) for c in axes if c in out) for axes in letters]
    return HeadScores(
        node.shape, (sides[0], sides[1]), (tables[0], tables[1]), (owners[0], owners[1]),
        tuple(out.index(c) for c in heads),
    )  # fmt: skip


def _table(labels: Indices, letters: str, wanted: Sequence[str], sizes: dict[str, int]) -> Indices:
    """Labels with axes of heads in front, one row each, and another axis last."""
    have = [c for c in wanted if c in letters]
    lines = labels[tuple(slice(None) if c in have else 0 for c in letters)]
    turned = lines.transpose([[c for c in letters if c in have].index(c) for c in have])
    spread = turned.reshape([turned.shape[have.index(c)] if c in have else 1 for c in wanted])
    return np.broadcast_to(spread, [sizes[c] for c in wanted]).reshape(-1, sizes[wanted[-1]])


def mask(record: ChannelRecord, node: Node, scores: HeadScores, added: Value, operand: Node) -> Value:
    """Something is added to scores: the same for all heads or not."""
    if not isinstance(added, (Held, Channels, Mixture)) or operand.rank != len(scores.shape):
        return record.other(node, scores, added)
    seen = None
    if isinstance(added, Held):
        record.touch(operand)
        values = _evaluate(record, operand)
        seen = None if values is None else np.isfinite(values)
    elif not record.is_pinned(added):
        return record.other(node, scores, added)
    return replace(scores, masks=(*scores.masks, Mask(operand.shape, seen)))


def _evaluate(record: ChannelRecord, node: Node) -> NDArray[np.float64] | None:
    try:
        return np.asarray(evaluate(Program.of((), (node,), record.source.tensors))[0])
    except (LawfulError, RuntimeError, ValueError):
        return None


def move(record: ChannelRecord, node: Node, sources: Sequence[Value]) -> Value:
    """HeadScores with numbers in place of some, or in no other order."""
    scores = [source for source in sources if isinstance(source, HeadScores)]
    if len(sources) == 1 and scores and (spread := _with_unit_axes(node, scores[0])) is not None:
        return spread
    fills = [operand for source, operand in zip(sources, node.inputs, strict=True) if isinstance(source, Held)]
    if len(scores) != 1 or len(fills) != len(sources) - 1 or node.shape != scores[0].shape:
        return record.other(node, *sources)
    start, offsets = 0, {}
    for value, operand in zip(sources, node.inputs, strict=True):
        offsets[id(value)] = start
        start += operand.size
    positions = node["map"].positions - offsets[id(scores[0])]
    inside = (positions >= 0) & (positions < scores[0].shape[0] * math.prod(scores[0].shape[1:]))
    here = np.arange(node.size).reshape(node.shape)
    constants = all(operand.op == "constant" for operand in fills)
    if not constants or bool((inside & (positions != here)).any()):
        return record.other(node, *sources)
    finite = all(bool(np.isfinite(operand["value"]).all()) for operand in fills)
    shape = tuple(1 if bool((inside == inside.take([0], axis)).all()) else size for axis, size in enumerate(node.shape))
    seen = np.ones((1,) * node.rank, dtype=bool) if finite else inside
    return replace(scores[0], masks=(*scores[0].masks, Mask(shape, seen)))


def _with_unit_axes(node: Node, scores: HeadScores) -> HeadScores | None:
    """Scores with axes of size 1 put in or left out; None if more than that changes."""
    old, new = ([axis for axis, size in enumerate(shape) if size > 1] for shape in (scores.shape, node.shape))
    if node.shape == scores.shape or [scores.shape[axis] for axis in old] != [node.shape[axis] for axis in new]:
        return None
    if not bool((node["map"].positions.ravel() == np.arange(node.size)).all()):
        return None
    place = dict(zip(old, new, strict=True))
    one, two = (frozenset(place[axis] for axis in axes if axis in place) for axes in scores.owners)
    masks = []
    for mask in scores.masks:
        sizes = {place[axis]: mask.shape[axis] for axis in old}
        shape = tuple(sizes.get(axis, 1) for axis in range(node.rank))
        seen = None if mask.seen is None else np.broadcast_to(mask.seen, mask.shape).reshape(shape)
        masks.append(Mask(shape, seen))
    heads = tuple(place[axis] for axis in scores.heads if axis in place)
    return replace(scores, shape=node.shape, owners=(one, two), heads=heads, masks=tuple(masks))


def choose(record: ChannelRecord, node: Node, operands: Sequence[Value]) -> Value:
    """HeadScores, or a number where a mask says so; a softmax, or 0 where it is no number."""
    if len(operands) != 3:
        return record.other(node, *operands)
    condition, *branches = operands
    main = next((branch for branch in branches if isinstance(branch, (HeadScores, Attended))), None)
    rest = [branch for branch in branches if branch is not main]
    number = constant_of(rest[0]) if len(rest) == 1 else None
    if main is None or number is None:
        return record.other(node, *operands)
    if isinstance(main, Attended):
        guarded = isinstance(condition, Guard) and number == 0
        ours = isinstance(condition, Guard) and _scores_of(condition.source) is main.softened
        return main if guarded and ours else record.other(node, *operands)
    pinned = isinstance(condition, (Channels, Mixture)) and record.is_pinned(condition)
    if not isinstance(condition, Held) and not pinned:
        return record.other(node, *operands)
    chooser = node.inputs[0]
    if chooser.rank != len(main.shape):
        return record.other(node, *operands)
    seen = np.ones((1,) * chooser.rank, dtype=bool) if math.isfinite(number) else None
    if isinstance(condition, Held):
        record.touch(chooser)
        chosen = _evaluate(record, chooser) if seen is None else None
        seen = seen if chosen is None else chosen.astype(bool) == (branches[0] is main)
    return replace(main, masks=(*main.masks, Mask(chooser.shape, seen)))


def _scores_of(value: HeadScores | Attended) -> HeadScores:
    return value.softened if isinstance(value, Attended) else value


def attend(record: ChannelRecord, node: Node, scores: HeadScores) -> Value:
    """The softmax along an axis that one side alone has: its keys."""
    axis = node.attributes.get("axis")
    owners, softened = [k for k, axes in enumerate(scores.owners) if axis in axes], scores
    if axis is None or axis in scores.heads or len(owners) != 1:
        return record.other(node, scores)
    if owners[0] == 0:  # queries first
        turned = {key: getattr(scores, key)[::-1] for key in ("sides", "tables", "owners")}
        scores = replace(scores, **turned)
    return Attended(scores, int(axis), softened)


def _values(
    record: ChannelRecord, node: Node, weights: Attended, letters: str, values: Side, out: str
) -> Channels | None:
    value, value_letters = _operand(record, values[0]), values[1]
    scores = weights.scores
    summed = [c for c in letters if c in value_letters and c not in out]
    heads = [letters[axis] for axis in scores.heads]
    sizes = {
        **dict(zip(letters, scores.shape, strict=True)),
        **dict(zip(value_letters, node_shape(value), strict=False)),
    }
    inner = [c for c in value_letters if c not in letters and c in out]
    if not isinstance(value, Channels) or summed != [letters[weights.axis]] or len(inner) != 1:
        return None
    varying = {c for c, n in zip(value_letters, value.labels.shape, strict=True) if n > 1}
    if varying - {*heads, inner[0]} or any(c not in out for c in heads):
        return None
    if sizes[inner[0]] > 1 and inner[0] not in varying:
        return None
    table = _table(value.labels, value_letters, [*heads, inner[0]], sizes)
    tables = _heads(record, scores, weights.axis, table)
    if tables is None:
        return None
    queries, keys = (_source(record, side) for side in scores.sides)
    name = record.name(node)
    record.attend(name, (queries, keys, value.name), tables)
    places = np.arange(table.size).reshape([sizes[c] for c in (*heads, inner[0])])
    order = sorted((*heads, inner[0]), key=out.index)
    turned = places.transpose([[*heads, inner[0]].index(c) for c in order])
    return Channels(name, turned.reshape([sizes[c] if c in order else 1 for c in out]), node.shape)


def node_shape(value: Operand | None) -> tuple[int, ...]:
    """The sizes of an operand, none for none."""
    return () if value is None else value.shape


def _source(record: ChannelRecord, side: Operand) -> str:
    """The activation behind queries or keys: a factor that all of them have belongs to the scores."""
    if isinstance(side, Mixture):
        return side.root
    name = side.name
    operation = record.operation(name)
    while operation is not None and operation.function == "mul number" and operation.arguments[0]:
        name = operation.sources[0]
        operation = record.operation(name)
    return name


def _heads(record: ChannelRecord, scores: HeadScores, axis: int, values: Indices) -> Heads | None:
    """Tables of heads, if all heads are treated alike and no channel is in two of them."""
    queries, keys = scores.tables
    mixed = scores.bent
    for side, table in zip(scores.sides, scores.tables, strict=True):
        mixture = side if isinstance(side, Mixture) else side.mixture
        rows = _drop_repeats(table)
        if isinstance(side, Mixture):
            mixed = True
        if isinstance(side, Mixture) and mixture is not None and not _keeps_apart(mixture, rows):
            return None
    repeats = _repeats(keys)
    if not np.array_equal(values, np.repeat(values[::repeats], repeats, axis=0)):
        repeats = 1
    keys, values = keys[::repeats], values[::repeats]
    if any(len(np.unique(table)) != table.size for table in (queries, keys, values)):
        return None
    alike = all(mask.shape[k] == 1 for mask in scores.masks for k in scores.heads)
    whole = not scores.masks or (len(scores.masks) == 1 and _sees_a_key(scores.masks[0], axis))
    groups = len(keys)
    grouped = queries.reshape(groups, len(queries) // groups, -1)
    return Heads(grouped, keys, values, mixed, mixed or record.fixed, alike, whole)


def _sees_a_key(mask: Mask, axis: int) -> bool:
    return mask.seen is not None and bool(mask.seen.any(axis=axis).all())


def _drop_repeats(table: Indices) -> Indices:
    return table[:: _repeats(table)]


def _repeats(table: Indices) -> int:
    """How many heads in a row are the same.

    >>> _repeats(np.array([[0, 1], [0, 1], [2, 3], [2, 3]]))
    2
    """
    whole = [index for index in range(1, len(table) + 1) if len(table) % index == 0]
    return max(index for index in whole if np.array_equal(table, np.repeat(table[::index], index, axis=0)))


def _keeps_apart(mixture: Mixture, table: Indices) -> bool:
    """Whether channels that met are of one head, and met alike in all heads."""
    home = {int(channel): (head, place) for head, row in enumerate(table) for place, channel in enumerate(row)}
    for one, two, channels in mixture.relations:
        first, second = np.broadcast_arrays(one, two)
        pairs = {(int(a), int(b)) for a, b in zip(first.ravel().tolist(), second.ravel().tolist(), strict=True)}
        met: dict[int, set[tuple[int, int]]] = {}
        for a, b in pairs:
            if a not in home or (channels and (b not in home or home[a][0] != home[b][0])):
                return False
            met.setdefault(home[a][0], set()).add((home[a][1], home[b][1] if channels else b))
        if len({frozenset(axes) for axes in met.values()}) > 1 or (met and len(met) != len(table)):
            return False
    return True
