"""Which channels of a module go together: its exported graph as few kinds of operations on channels.

Every activation has one axis of channels, and each channel belongs to a *cell*. Layers make new cells; activations,
pools and normalisations pass them on; a sum makes the cells of its terms one. A cell can leave the module as a whole:
a row of each layer that writes it, a column of each that reads it, an entry of each normalisation on the way. What an
operation that is not understood touches is pinned and stays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name
from lawful.types import Indices

COPIES = ("clone", "contiguous", "detach", "alias")
HOMOGENEOUS = ("relu", "leaky_relu")
ELEMENTWISE = ("gelu", "silu", "sigmoid", "tanh", "hardtanh", "hardswish", "hardsigmoid", "elu", "softplus", "mish",
               "relu6", "celu", "selu")  # fmt: skip
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")
POOLS = ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
AVERAGES = ("avg_pool1d", "avg_pool2d", "avg_pool3d")


@dataclass(frozen=True, eq=False)
class Spot:
    """An activation: the axis of its channels, the cell of each, and the sizes of all its axes."""

    axis: int
    cells: Indices
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Operation:
    """One call on channels: its kind, the activations it takes, and the tensors it uses by role."""

    kind: str
    node: Any
    sources: tuple[str, ...] = ()
    tensors: dict[str, str | None] = field(default_factory=dict)
    padded: bool = False  # zeros are read beside the activation
    width: int = 1  # how many entries of the result each channel becomes


class ChannelCells:
    """The operations of a module in order, its activations, and the cells that must stay."""

    def __init__(self, read: ExportedModule) -> None:
        self.read = read
        self.spots: dict[str, Spot] = {}
        self.operations: list[Operation] = []
        self._parent: list[int] = []
        self._pinned: set[int] = set()
        self._norms: set[str] = set()
        uses = Counter(name for call in read.calls for name in _names(call) if name in read.tensors)
        self.shared = {name for name, times in uses.items() if times > 1}
        for name in read.inputs:
            node = next(node for node in read.graph.nodes if node.name == name)
            self._fresh(node, min(1, max(_rank(node) - 1, 0)), pinned=True)
        for call in read.calls:
            self._add(call)
        for result in read.results:
            if isinstance(result, fx.Node) and result.name in self.spots:
                self._pin(result.name)
        self.spots = {
            name: Spot(spot.axis, np.array([self.root(cell) for cell in spot.cells], dtype=np.intp), spot.shape)
            for name, spot in self.spots.items()
        }
        self.pinned = {self.root(cell) for cell in self._pinned}

    @property
    def cells(self) -> set[int]:
        """All cells, by their representatives."""
        return {int(cell) for spot in self.spots.values() for cell in spot.cells}

    def root(self, cell: int) -> int:
        """The representative of a cell."""
        while self._parent[cell] != cell:
            self._parent[cell] = self._parent[self._parent[cell]]
            cell = self._parent[cell]
        return cell

    # Reading

    def _add(self, call: Any) -> None:
        name = operator_name(call.target)
        sources = [part.name for part in _nodes(call) if part.name in self.spots]
        tensors = [part.name for part in _nodes(call) if part.name in self.read.tensors]
        if not sources:
            if _shape(call) is not None:
                self._fresh(call, max(_rank(call) - 1, 0), pinned=True)
            return
        own = all(tensor in self.read.names and tensor not in self.shared for tensor in tensors)
        if own and self._understood(name, call, sources):
            return
        for source in sources:
            self._pin(source)
        if _shape(call) is not None:
            self._fresh(call, min(1, max(_rank(call) - 1, 0)), pinned=True)

    def _understood(self, name: str, call: Any, sources: list[str]) -> bool:
        args, spot = list(call.args), self.spots[sources[0]]
        first = args[0].name if isinstance(args[0], fx.Node) else None
        if name in CONVOLUTIONS and first == sources[0] and len(sources) == 1:
            seen = self._along(sources[0], 1)
            return seen is not None and self._convolution(call, seen)
        if name == "linear" and first == sources[0] and len(sources) == 1:
            seen = self._along(sources[0], len(spot.shape) - 1)
            if seen is not None:
                self._layer(call, [seen], len(spot.shape) - 1, padded=False)
            return seen is not None
        if name in NORMS and spot.axis == 1 and len(sources) == 1:
            return self._norm(name, call, sources)
        if (name == "getitem" and args[1] == 0 and sources[0] in self._norms) or name in COPIES:
            self._pass(call, "copy", sources, spot)
            return True
        if name == "dropout" and not args[2]:
            self._pass(call, "copy", sources, spot)
            return True
        if name in (*HOMOGENEOUS, *ELEMENTWISE) and len(sources) == 1:
            self._pass(call, "same" if name in HOMOGENEOUS else "bend", sources, spot)
            return True
        if name in (*POOLS, *AVERAGES) and spot.axis == 1 and len(spot.shape) == int(name[-2]) + 2:
            odd = (
                [part for part in args[3:] if part is not None] if name in AVERAGES else []
            )  # padding, ceiling, divisor
            plain = all(not np.any(part) for part in odd[:2]) and len(odd) < 4
            self._pass(call, "pool", sources, Spot(1, spot.cells, _sizes(call)), padded=not plain)
            return True
        if name == "mean" and len(args) > 1 and isinstance(args[1], (list, tuple)):
            axes = {axis % len(spot.shape) for axis in args[1]}
            if 0 in axes or spot.axis in axes:
                return False
            keep = len(args) > 2 and bool(args[2])
            axis = spot.axis if keep else spot.axis - sum(other < spot.axis for other in axes)
            self._pass(call, "pool", sources, Spot(axis, spot.cells, _sizes(call)))
            return True
        if name in ("add", "mul") and len(sources) == 2 and not call.kwargs:
            return self._together(name, call, sources)
        if name in ("flatten", "view", "reshape"):
            return self._flat(call, sources, spot)
        if name == "cat":
            parts = [part.name for part in args[0]]
            if all(part in self.spots and self.spots[part].axis == self._axis(call) for part in parts):
                cells = np.concatenate([self.spots[part].cells for part in parts])
                self._pass(call, "cat", parts, Spot(self._axis(call), cells, _sizes(call)))
                return True
        return False

    def _axis(self, call: Any) -> int:
        axis = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)
        return int(axis) % len(_sizes(call))

    def _along(self, source: str, axis: int) -> str | None:
        """An activation whose channels lie along an axis; where they are pinned it may be seen along any."""
        spot = self.spots[source]
        if spot.axis == axis:
            return source
        if not all(cell in self._pinned for cell in spot.cells.tolist()) or not 0 <= axis < len(spot.shape):
            return None
        alias = f"{source} along {axis}"
        if alias not in self.spots:
            self._new(alias, axis, spot.shape, pinned=True)
        return alias

    def _convolution(self, call: Any, source: str) -> bool:
        spot = self.spots[source]
        args = [*call.args, *[None] * 7][:7]
        groups = 1 if args[6] is None else int(args[6])
        padded = args[4] is not None and args[4] != "valid" and bool(np.any(args[4] if args[4] != "same" else 1))
        if len(spot.shape) != len(_sizes(call)) or len(spot.shape) != _rank(call.args[1]):
            return False
        if groups == 1:
            self._layer(call, [source], 1, padded=padded)
            return True
        if groups == len(spot.cells) == _sizes(call)[1]:
            tensors = _tensors(call, ("weight", "bias"))
            self._pass(call, "depthwise", [source], Spot(1, spot.cells, _sizes(call)), tensors, padded)
            return True
        return False

    def _layer(self, call: Any, sources: list[str], axis: int, *, padded: bool) -> None:
        self._fresh(call, axis)
        self.operations.append(Operation("layer", call, tuple(sources), _tensors(call, ("weight", "bias")), padded))

    def _norm(self, name: str, call: Any, sources: list[str]) -> bool:
        if name == "batch_norm" and call.args[5]:
            return False
        spot = self.spots[sources[0]]
        tensors = _tensors(call, ("weight", "bias", "mean", "variance"))
        if tensors["mean"] is None or tensors["variance"] is None:
            return False
        self._pass(call, "norm", sources, spot, tensors)
        self._norms.add(call.name)
        return True

    def _together(self, name: str, call: Any, sources: list[str]) -> bool:
        one, two = (self.spots[source] for source in sources)
        if one.axis != two.axis or len(one.cells) != len(two.cells) or len(one.shape) != len(two.shape):
            return False
        if name == "add" and one.shape != two.shape:
            return False
        for first, second in zip(one.cells.tolist(), two.cells.tolist(), strict=True):
            self._parent[self.root(second)] = self.root(first)
        self._pass(call, name, sources, Spot(one.axis, one.cells, _sizes(call)))
        return True

    def _flat(self, call: Any, sources: list[str], spot: Spot) -> bool:
        shape = _sizes(call)
        joined = spot.axis == 1 and len(shape) == 2 and shape[0] == spot.shape[0]
        if not joined or shape[1] != math.prod(spot.shape[1:]):
            return False
        width = math.prod(spot.shape[2:])
        self._pass(call, "flat", sources, Spot(1, np.repeat(spot.cells, width), shape), width=width)
        return True

    def _pass(
        self,
        call: Any,
        kind: str,
        sources: Sequence[str],
        spot: Spot,
        tensors: dict[str, str | None] | None = None,
        padded: bool = False,
        width: int = 1,
    ) -> None:
        self.spots[call.name] = spot
        self.operations.append(Operation(kind, call, tuple(sources), tensors or {}, padded, width))

    def _fresh(self, node: Any, axis: int, *, pinned: bool = False) -> None:
        self._new(node.name, axis, _sizes(node), pinned=pinned)

    def _new(self, name: str, axis: int, shape: tuple[int, ...], *, pinned: bool) -> None:
        count = shape[axis] if shape else 1
        start = len(self._parent)
        self._parent.extend(range(start, start + count))
        self.spots[name] = Spot(axis, np.arange(start, start + count), shape)
        if pinned:
            self._pin(name)

    def _pin(self, name: str) -> None:
        self._pinned.update(self.spots[name].cells.tolist())


def _nodes(call: Any) -> list[fx.Node]:
    return list(call.all_input_nodes)


def _names(call: Any) -> list[str]:
    found: list[str] = []
    fx.map_arg((call.args, call.kwargs), lambda node: found.append(node.name))
    return found


def _tensors(call: Any, roles: Sequence[str]) -> dict[str, str | None]:
    """The tensors behind a call's arguments after the first."""
    parts = [*call.args[1:], *[None] * len(roles)][: len(roles)]
    return {role: part.name if isinstance(part, fx.Node) else None for role, part in zip(roles, parts, strict=True)}


def _shape(node: Any) -> tuple[int, ...] | None:
    value: Any = node.meta.get("val")
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    return tuple(int(size) for size in value.shape) if hasattr(value, "shape") else None


def _sizes(node: Any) -> tuple[int, ...]:
    return _shape(node) or ()


def _rank(node: Any) -> int:
    return len(_sizes(node))
