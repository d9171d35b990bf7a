"""What the domain of channels knows of a value: which channel of which activation every entry is.

An *activation* is a list of channels of a `ChannelProgram`. A value of the network holds entries of one, along any of
its axes: `labels` has their places in that list, and size 1 along axes of positions, along which every channel is
treated alike. Movements change labels and nothing else, so views, permutations, slices and splits need no rule: it
only has to be decided whether positions moved alike in all channels (`follow`).

Mixtures are functions of several channels of one activation, followed as long as they may be heads of an attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.program.index_map import IndexMap, Shape, row_major
from lawful.program.program import Node
from lawful.program.table import OperatorFamily
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class Held:
    """A value that no input changes."""

    node: Node


@dataclass(frozen=True, eq=False)
class Mixture:
    """A value whose entries are some function of channels that met in it: of its own label and those related to it.

    `relations` pairs the channels that met, and channels with what else tells them apart (a place in a table of
    cosines): heads of an attention are alike if they have the same ones.
    """

    node: Node
    root: str
    labels: Indices
    said: str
    relations: tuple[tuple[Indices, Indices, bool], ...] = ()  # labels, labels or codes, whether they are labels

    @property
    def shape(self) -> Shape:
        """The sizes of the value."""
        return self.node.shape


@dataclass(frozen=True, eq=False)
class Channels:
    """Entries of an activation; with `width`, each channel is spelled out into so many places.

    `root` is the activation of which this one is a function channel by channel.
    """

    name: str
    labels: Indices
    shape: Shape
    width: int = 1
    root: str = ""
    mixture: Mixture | None = None  # the same as a function of another activation's channels

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes along which channels lie."""
        return tuple(axis for axis, size in enumerate(self.labels.shape) if size > 1)

    @property
    def origin(self) -> str:
        """The root, which may be itself."""
        return self.root or self.name


@dataclass(frozen=True, eq=False)
class Padded:
    """A value with a number beside it: `outside` says where, size 1 along channels."""

    value: Channels
    number: float
    outside: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over positions that may turn out to be a mean: `count` entries each (size 1 where that does not vary)."""

    node: Node
    value: Channels
    count: Floats
    padded: bool


@dataclass(frozen=True, eq=False)
class Centred:
    """A value less the fixed mean of each channel, as a normalisation starts."""

    value: Channels
    mean: str


Operand = Channels | Mixture


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Products of queries and keys: both with a table (heads, inner channels), and the letters of their axes.

    `heads` are the axes along which heads lie, `masks` what is added to scores or says which are left out.
    """

    shape: Shape
    sides: tuple[Operand, Operand]
    tables: tuple[Indices, Indices]
    owners: tuple[frozenset[int], frozenset[int]]  # the axes of scores that each side has
    heads: tuple[int, ...]
    masks: tuple[Mask, ...] = ()
    bent: bool = False


@dataclass(frozen=True, eq=False)
class Mask:
    """What changes scores before the softmax: alike for all heads or not, and where it leaves a score in."""

    shape: Shape
    seen: NDArray[np.bool_] | None  # None: it depends on inputs


@dataclass(frozen=True, eq=False)
class Attended:
    """The softmax of scores along the axis of keys; `softened` is what it was taken of, maybe with keys first."""

    scores: HeadScores
    axis: int
    softened: HeadScores


@dataclass(frozen=True, eq=False)
class Guard:
    """Whether scores or their softmax are no numbers, or all left out: asked for by guards."""

    source: HeadScores | Attended


Value = Held | Channels | Mixture | Padded | Total | Centred | HeadScores | Attended | Guard


def constant_of(value: Value) -> float | None:
    """The one number that a held value is everywhere, which may be infinite."""
    if not isinstance(value, Held) or value.node.op != "constant" or value.node["value"].size != 1:
        return None
    return float(value.node["value"].item())


def number_of(value: Value) -> float | None:
    """The one finite number that a held value is everywhere."""
    number = constant_of(value)
    return number if number is not None and math.isfinite(number) else None


def unwrap(node: Node) -> Node:
    """What a node only reshapes: all its entries, in their order."""
    while node.family is OperatorFamily.MOVEMENT and len(node.inputs) == 1 and node["map"].keeps_order:
        if node.size != node.inputs[0].size:
            break
        node = node.inputs[0]
    return node


def tensor_name(value: Value) -> str | None:
    """The name of the tensor that a value is, as it is stored."""
    if not isinstance(value, Held) or value.node.family is not OperatorFamily.LEAF:
        return None
    return str(value.node["name"]) if "name" in value.node.attributes else None


def vector_name(node: Node, count: int) -> str | None:
    """The name of the tensor of `count` numbers, along its first axis, that a node is but for its shape."""
    node = unwrap(node)
    return tensor_name(Held(node)) if node.shape[:1] == (count,) and node.size == count else None


LARGEST = 200_000  # channels into which positions are spelled out: beyond, the lists in Python take too long


@dataclass(frozen=True, eq=False)
class Moved:
    """Labels of the result, by how much each channel was widened, and where something else than channels is."""

    labels: Indices
    width: int = 1
    outside: NDArray[np.bool_] | None = None


def follow(index: IndexMap, sources: Sequence[tuple[Shape, Indices | None]]) -> Moved | None:
    """Labels after a movement; sources have sizes and labels, None for constants. None: channels move apart.

    Positions must move alike in all channels. Where positions become channels, every channel is widened to them.

    >>> turned = IndexMap.affine((2, 4, 3), (12, 1, 4))  # (2, 3, 4) with its last axes exchanged
    >>> follow(turned, [((2, 3, 4), np.arange(3).reshape(1, 3, 1))]).labels.tolist()
    [[[0, 1, 2]]]
    """
    if len(sources) == 1 and index.strides is not None and sources[0][1] is not None:
        quick = _affine(index, sources[0][0], sources[0][1])
        if quick is not None:
            return quick
    # Of several sources, positions are compared by number: no claim ever connects channels of different activations.
    sizes = {tuple(n for n in _positions(shape, labels) if n > 1) for shape, labels in sources if labels is not None}
    if len(sizes) != 1 or not index.size:
        return None
    places = (*sizes.pop(), 1)
    at = index.positions
    code = np.concatenate([_codes(shape, labels) for shape, labels in sources])[at]
    place = np.concatenate([_places(shape, labels) for shape, labels in sources])[at]
    moved = _uniform(code, place)
    if moved is not None or bool((code < 0).any()):
        return moved
    parts = np.unravel_index(place, places)
    varying = [axis for axis in range(code.ndim) if bool((code != code.take([0], axis)).any())]
    merged = [k for k, part in enumerate(parts) if any((part != part.take([0], axis)).any() for axis in varying)]
    width = math.prod(places[k] for k in merged)
    if width * (int(code.max()) + 1) > LARGEST:
        return None
    inside = np.ravel_multi_index([parts[k] for k in merged], [places[k] for k in merged])
    staying = [k for k in range(len(places)) if k not in merged]
    rest = (
        np.ravel_multi_index([parts[k] for k in staying], [places[k] for k in staying])
        if staying
        else np.zeros_like(place)
    )
    moved = _uniform(code * width + inside, rest)
    return None if moved is None else Moved(moved.labels, width)


def _uniform(code: Indices, place: Indices) -> Moved | None:
    """Labels that vary along some axes alone, along which positions do not."""
    outside = code < 0
    filled = bool(outside.any())
    if bool(outside.all()):
        return None
    start = np.unravel_index(int(np.argmax(~outside)), code.shape)
    varying = []
    for axis, size in enumerate(code.shape):
        if size > 1:
            line = code[tuple(slice(None) if k == axis else at for k, at in enumerate(start))]
            whole = not filled and bool((code != code.take([0], axis)).any())
            if whole or bool((line[line >= 0] != code[start]).any()):
                varying.append(axis)
    first = tuple(slice(at, at + 1) if k not in varying else slice(None) for k, at in enumerate(start))
    along = tuple(slice(at, at + 1) if k in varying else slice(None) for k, at in enumerate(start))
    labels = code[first]
    same = bool(((code == labels) | outside).all()) and bool(((place == place[along]) | outside).all())
    if not same or bool((outside != outside[along]).any()):
        return None
    return Moved(np.array(labels), 1, outside[along] if filled else None)


def _affine(index: IndexMap, shape: Shape, labels: Indices) -> Moved | None:
    """The same without arrays of positions, where every axis of the result runs along axes of the source."""
    if 0 in shape:
        return None  # of no entries, steps are 0
    steps = row_major(shape)
    strides = index.strides or ()
    start, left = [], index.offset
    for step in steps:
        start.append(left // step)
        left -= start[-1] * step
    moves: list[list[int]] = []
    for size, stride in zip(index.shape, strides, strict=True):
        digits, rest = [0] * len(shape), stride if size > 1 else 0
        if rest < 0:
            return None
        for k, step in enumerate(steps):
            if shape[k] > 1:
                digits[k], rest = divmod(rest, step)
        if rest:
            return None
        moves.append(digits)
    last = [at + sum((n - 1) * d[k] for n, d in zip(index.shape, moves, strict=True)) for k, at in enumerate(start)]
    if any(end >= size for end, size in zip(last, shape, strict=True)):
        return None  # an index would carry over into the next axis
    mine = [k for k, size in enumerate(labels.shape) if size > 1]
    varying = [axis for axis, digits in enumerate(moves) if any(digits[k] for k in mine)]
    if any(moves[axis][k] for axis in varying for k in range(len(shape)) if k not in mine):
        return None
    where = []
    for k in range(len(shape)):
        at = np.full((1,) * len(index.shape), start[k] if k in mine else 0)
        for axis in varying if k in mine else ():
            line = (moves[axis][k] * np.arange(index.shape[axis])).reshape(
                [-1 if k == axis else 1 for k in range(len(index.shape))]
            )
            at = at + line
        where.append(at)
    after = labels[tuple(np.broadcast_arrays(*where))] if where else labels.reshape((1,) * len(index.shape))
    for axis in varying:  # an axis along which labels happen to repeat is one of positions
        if bool((after == after.take([0], axis)).all()):
            return None
    return Moved(np.asarray(after))


def collapse(labels: Indices, width: int) -> Indices | None:
    """Labels of channels again, where those that were widened lie apart from their places.

    >>> collapse(np.arange(6).reshape(1, 2, 3), 3).tolist()
    [[[0], [1]]]
    """
    channel, place = labels // width, labels % width
    varying = [
        {axis for axis in range(labels.ndim) if bool((parts != parts.take([0], axis)).any())}
        for parts in (channel, place)
    ]
    if varying[0] & varying[1]:
        return None
    return np.asarray(channel[tuple(slice(None) if axis in varying[0] else slice(0, 1) for axis in range(labels.ndim))])


def _positions(shape: Shape, labels: Indices) -> Shape:
    return tuple(1 if labels.shape[axis] > 1 else size for axis, size in enumerate(shape))


def _codes(shape: Shape, labels: Indices | None) -> Indices:
    if labels is None:
        return np.full(math.prod(shape), -1)
    return np.broadcast_to(labels, shape).ravel()


def _places(shape: Shape, labels: Indices | None) -> Indices:
    if labels is None:
        return np.zeros(math.prod(shape), dtype=np.int64)
    sizes = _positions(shape, labels)
    return np.broadcast_to(np.arange(math.prod(sizes)).reshape(sizes), shape).ravel()


BY_CHANNEL = frozenset({OperatorFamily.ELEMENTWISE, OperatorFamily.CHOICE, OperatorFamily.COMPARISON})
BLENDING = BY_CHANNEL | {OperatorFamily.ADDITION, OperatorFamily.PRODUCT, OperatorFamily.NORMALISATION}


def mixture_of(node: Node, value: Value) -> Mixture | None:
    """The mixture that a node's value is, maybe one of single channels."""
    if isinstance(value, Mixture):
        return value
    if isinstance(value, Channels) and value.width == 1:
        return value.mixture or Mixture(node, value.origin, value.labels, "")
    return None


def blend(node: Node, operands: Sequence[Value], pinned: Sequence[bool]) -> Mixture | None:
    """Operands that meet entry by entry, or in a norm; `pinned` says of which all channels stay.

    Operands that stay come last: the first other one says which activation is mixed, and those beside it only tell
    channels apart.
    """
    parts: list[Mixture] = []
    beside: list[tuple[int, ...]] = []
    for value, source, stays in sorted(zip(operands, node.inputs, pinned, strict=True), key=lambda each: each[2]):
        if not isinstance(value, (Held, Channels, Mixture)):
            return None
        mixture = mixture_of(source, value)
        if mixture is not None and (not parts or mixture.root == parts[0].root):
            parts.append(mixture)
        elif stays:
            beside.append(source.shape)
        else:
            return None
    if not parts or any(part.labels.shape != parts[0].labels.shape for part in parts):
        return None
    first = parts[0].labels
    relations = [relation for part in parts for relation in part.relations]
    relations += [(first, part.labels, True) for part in parts[1:]]
    for shape in beside:
        sizes = [n if first.shape[k] > 1 else 1 for k, n in enumerate(shape)]
        if math.prod(sizes) > 1:
            code = np.arange(math.prod(sizes)).reshape(sizes)
            relations.append((first, np.broadcast_to(code, first.shape), False))
    if node.family is OperatorFamily.NORMALISATION:  # all channels along its axes meet: each meets the first one
        axes = node.attributes.get("axes", (node.attributes.get("axis"),))
        start = first[tuple(slice(0, 1) if k in axes else slice(None) for k in range(first.ndim))]
        relations.append((np.broadcast_to(start, first.shape), first, True))
    return Mixture(node, parts[0].root, first, _reason(node, parts), tuple(relations))


def move_mixtures(node: Node, sources: Sequence[Channels | Mixture | None]) -> Mixture | None:
    """Entries of several functions of one activation's channels after a movement."""
    parts = [mixture for source in sources if source is not None and (mixture := mixture_of(node, source)) is not None]
    if len(parts) < len(sources) or len({part.root for part in parts}) > 1:
        return None
    shapes = [operand.shape for operand in node.inputs]
    moved = follow(node["map"], [(s, part.labels) for s, part in zip(shapes, parts, strict=True)])
    if moved is None or moved.width > 1 or moved.outside is not None:
        return None
    relations = [relation for part in parts for relation in part.relations]
    if len(parts) > 1:
        # Heads are alike only if each entry comes from the same source in all of them: sources are codes of labels.
        count = len(parts)
        coded = [(s, part.labels * count + k) for k, (s, part) in enumerate(zip(shapes, parts, strict=True))]
        numbered = follow(node["map"], coded)
        if numbered is None or numbered.width > 1:
            return None
        labels, codes = np.broadcast_arrays(moved.labels, numbered.labels % count)
        relations.append((labels, codes, False))
    return Mixture(node, parts[0].root, moved.labels, _reason(node, parts), tuple(relations))


def _reason(node: Node, parts: Sequence[Mixture]) -> str:
    """The operator that is named where a mixture is not followed: the first one that mixed."""
    return next((part.said for part in parts if part.said), "") or node.op
