"""What the domain of channels knows of a value: which channel of which activation every entry is.

An *activation* is a list of channels of a `ChannelProgram`. A value of the network holds entries of one, along any of
its axes: `labels` has their places in that list, and size 1 along axes of positions, along which every channel is
treated alike. Movements change labels and nothing else, so views, permutations, slices and splits need no rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.program.index_map import Shape
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
