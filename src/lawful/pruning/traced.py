"""The exported graph of a PyTorch module as operations on channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name
from lawful.pruning.attention import TracedAttention, attentions
from lawful.pruning.channels.program import OWN_MEANS, ChannelProgram, Heads, Operation, Spot
from lawful.pruning.functions import function_of
from lawful.pruning.reshaped import VIEWS, moved_axis
from lawful.pruning.uses import alike, uses_of

COPIES = ("clone", "contiguous", "detach", "alias")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")
WITH_PLACES = ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")  # which also say where
POOLS = ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
         *WITH_PLACES)  # fmt: skip
AVERAGES = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
AVERAGED = ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")  # of shares that add up to 1
UPSAMPLED = tuple(f"upsample_{way}" for way in ("nearest1d", "nearest2d", "nearest3d", *AVERAGED))
TURNED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
REDUCED = {"mean": False, "amax": False, "amin": False, "sum": True}  # whether a constant changes
PADS = ("pad", "constant_pad_nd")
PARTS = ("chunk", "split", "split_with_sizes")


def traced_channels(read: ExportedModule, stay: Sequence[str] = (), *, fixed: bool = False) -> ChannelProgram:
    """The operations of a module; kinds of operation that are to `stay` are not followed.

    `fixed`: inner channels of attentions that are written out stay, for their scale may depend on how many there are.
    """
    return _Tracer(read, stay, fixed).program


class _Tracer:
    def __init__(self, read: ExportedModule, stay: Sequence[str], fixed: bool) -> None:
        self.read, self.stay = read, stay
        self.program = ChannelProgram()
        self.spots = self.program.spots
        self._firsts: set[str] = set()  # calls of several results, the first of which is followed
        self._parts: dict[str, str] = {}  # calls that cut an activation along its channels
        for name in read.inputs:
            node = next(node for node in read.graph.nodes if node.name == name)
            self.program.fresh(name, min(1, max(_rank(node) - 1, 0)), _sizes(node), pinned=True)
        found = attentions(read, fixed=fixed)
        heads = {source for each in found for source in each.sources}
        self.uses = uses_of(read)
        self.shared = {name for name, calls in self.uses.items() if len(calls) > 1 and not alike(calls, read, heads)}
        self._results = {each.result: each for each in found}
        inner = {name for each in found for name in each.inner}
        for call in read.calls:
            if call.name not in inner:
                self._add(call)
        self._join_uses()
        self.program.end([each.name for each in read.results if isinstance(each, fx.Node) and each.name in self.spots])
        self._forget_whole_tables()

    def _add(self, call: Any) -> None:
        name = operator_name(call.target)
        if call.name in self._results:
            self._attend(call, self._results[call.name])
            return
        sources = [part.name for part in _nodes(call) if part.name in self.spots]
        tensors = [part.name for part in _nodes(call) if part.name in self.read.tensors]
        own = all(tensor in self.read.names and tensor not in self.shared for tensor in tensors)
        if name == "embedding" and own:
            self._embedding(call, sources)
            return
        if sources and own and name not in self.stay and self._understood(name, call, sources):
            return
        if name == "getitem" and call.args[0].name in self._parts:
            source = self._parts[call.args[0].name]
            before = call.args[0].meta["val"][: call.args[1]]
            self._part(call, source, sum(int(each.shape[self.spots[source].axis]) for each in before))
            return
        for source in sources:
            self.program.pin(source)
        if _shape(call) is not None:
            axis = min(1, max(_rank(call) - 1, 0)) if sources else max(_rank(call) - 1, 0)
            self.program.fresh(call.name, axis, _sizes(call), pinned=True)
            stored = name == OWN_MEANS and not call.args[5]
            said = f"{name} of stored statistics" if stored else name
            self.program.add(Operation("other", call.name, tuple(sources), function=said))

    def _understood(self, name: str, call: Any, sources: list[str]) -> bool:
        args, spot = list(call.args), self.spots[sources[0]]
        first = args[0].name if isinstance(args[0], fx.Node) else None
        alone = len(sources) == 1 and first == sources[0]
        if name in CONVOLUTIONS and alone:
            seen = self.program.along(sources[0], 1)
            return seen is not None and self._convolution(call, seen)
        if name in TURNED and alone and spot.axis == 1:
            return self._turned_convolution(call, sources[0])
        if name == "linear" and alone:
            seen = self.program.along(sources[0], len(spot.shape) - 1)
            if seen is not None:
                self._layer(call, seen, len(spot.shape) - 1, padded=False)
            return seen is not None
        if name == "addmm" and len(sources) == 1:
            return self._transposed_layer(call, sources)
        if name == "product" and alone:
            return self._product(call, sources[0])
        if name in NORMS and spot.axis == 1 and alone:
            return self._norm(name, call, sources)
        if name == OWN_MEANS and spot.axis == 1 and alone:
            return self._instance_norm(call, sources, spot)
        if (name == "getitem" and args[1] == 0 and sources[0] in self._firsts) or name in COPIES:
            return self.program.passes("copy", call.name, sources, spot)
        if name == "dropout" and not args[2]:
            return self.program.passes("copy", call.name, sources, spot)
        if alone and (function := function_of(call)) is not None:
            kind, said, arguments = function
            return self.program.passes(kind, call.name, sources, spot, function=said, arguments=arguments)
        if name == "prelu" and spot.axis == 1 and alone:
            return self._prelu(call, sources, spot)
        if name in (*POOLS, *AVERAGES) and spot.axis == 1 and len(spot.shape) == int(name[-2]) + 2:
            odd = [part for part in args[3:] if part is not None] if name in AVERAGES else []
            if name in WITH_PLACES:
                self._firsts.add(call.name)
            plain = all(not np.any(part) for part in odd[:2]) and len(odd) < 4  # padding, ceiling, divisor
            return self.program.passes("pool", call.name, sources, Spot(1, spot.cells, _sizes(call)), padded=not plain)
        if name in UPSAMPLED and spot.axis == 1:
            return self.program.passes("pool", call.name, sources, Spot(1, spot.cells, _sizes(call)))
        if name in PADS and alone:
            return self._pad(call, sources, spot)
        if name in REDUCED and alone:
            return self._reduced(call, sources, spot, changed=REDUCED[name])
        if name in ("add", "sub", "mul") and len(sources) == len(args) == 2 and not call.kwargs:
            return self._together(name, call, [part.name for part in args])
        if alone and (axis := moved_axis(call, spot.axis, spot.shape, _sizes(call))) is not None:
            return self.program.passes("copy", call.name, sources, Spot(axis, spot.cells, _sizes(call)))
        if name in VIEWS and alone:
            return self._flat(call, sources, spot)
        if name == "cat":
            return self._cat(call)
        if name in PARTS and alone:
            axis = int(args[2] if len(args) > 2 else call.kwargs.get("dim", 0))
            if axis % len(spot.shape) != spot.axis:
                return False
            self._parts[call.name] = sources[0]
            return True
        if name == "slice" and alone and len(args) > 2 and args[4:] in ([], [1]):
            return int(args[1]) % len(spot.shape) == spot.axis and self._part(call, sources[0], int(args[2] or 0))
        return False

    def _join_uses(self) -> None:
        """A layer that is used several times reads and writes the same cells in all its uses, or all of them stay."""
        for name, calls in self.uses.items():
            if len(calls) < 2 or name in self.shared or name not in self.read.names:
                continue
            tensor = self.read.names[name]
            mine = [each for each in self.program.operations if tensor in each.tensors.values()]
            for each in mine:
                for one, two in ((mine[0].name, each.name), (mine[0].sources[0], each.sources[0])):
                    self.program.join(one, two)
            if len(mine) < len(calls):
                for each in mine:
                    self.program.pin(each.name)
                    self.program.pin(each.sources[0])

    def _part(self, call: Any, source: str, start: int) -> bool:
        """Some of the channels, from one of them on."""
        spot, shape = self.spots[source], _sizes(call)
        start = min(start + len(spot.cells), len(spot.cells)) if start < 0 else start
        cells = spot.cells[max(start, 0) : max(start, 0) + shape[spot.axis]]
        return self.program.passes(
            "part", call.name, [source], Spot(spot.axis, cells, shape), arguments=(float(max(start, 0)),)
        )

    def _attend(self, call: Any, found: TracedAttention) -> None:
        queries, keys, values = (
            self.program.along(source, len(self.spots[source].shape) - 1) for source in found.sources
        )
        if queries is None or keys is None or values is None:
            raise AssertionError("the channels of a layer lie along its last axis")
        heads = Heads(
            found.queries, found.keys, found.values, found.rotary, found.rotary or not found.scaled, found.alike,
            found.whole,
        )  # fmt: skip
        self.program.attend(call.name, (queries, keys, values), heads, _sizes(call))

    def _embedding(self, call: Any, sources: list[str]) -> None:
        """A table is a layer without a bias that reads one row: its columns are the channels."""
        name = self.read.names[call.args[0].name]
        for source in sources:
            self.program.pin(source)
        self.program.fresh(f"{call.name} row", 1, (1, _sizes(call.args[0])[0]), pinned=True)
        self.program.add(Operation("other", f"{call.name} row", tuple(sources)))
        self.program.transposed.add(name)
        self.program.fresh(call.name, _rank(call) - 1, _sizes(call))
        self.program.add(
            Operation("layer", call.name, (f"{call.name} row",), {"weight": name, "bias": None}, function="embedding")
        )

    def _forget_whole_tables(self) -> None:
        """Tables all of whose columns stay, mostly because a normalisation hears them, need not be looked at."""
        for place, each in enumerate(self.program.operations):
            if each.function == "embedding" and each.kind == "layer" and self.program.is_pinned(each.name):
                self.program.transposed.discard(str(each.tensors["weight"]))
                self.program.operations[place] = Operation("other", each.name, each.sources, function="embedding")

    def _product(self, call: Any, source: str) -> bool:
        """`x @ weight`, with a bias or without."""
        seen = self.program.along(source, len(self.spots[source].shape) - 1)
        if seen is None:
            return False
        tensors = self._tensors(call, ("weight", "bias"))
        self.program.transposed.add(str(tensors["weight"]))
        self.program.fresh(call.name, _rank(call) - 1, _sizes(call))
        self.program.add(Operation("layer", call.name, (seen,), tensors))
        return True

    def _transposed_layer(self, call: Any, sources: list[str]) -> bool:
        """`addmm(bias, x, weight)`, as older transformers write a layer."""
        bias, x, weight = call.args
        if call.kwargs or x.name != sources[0] or not all(part.name in self.read.tensors for part in (bias, weight)):
            return False
        seen = self.program.along(x.name, 1)
        if seen is None or len(_sizes(bias)) != 1:
            return False
        names = {role: self.read.names[part.name] for role, part in (("weight", weight), ("bias", bias))}
        self.program.transposed.add(names["weight"])
        self.program.fresh(call.name, 1, _sizes(call))
        self.program.add(Operation("layer", call.name, (seen,), dict(names)))
        return True

    def _convolution(self, call: Any, source: str) -> bool:
        spot = self.spots[source]
        args = [*call.args, *[None] * 7][:7]
        groups = 1 if args[6] is None else int(args[6])
        padded = args[4] is not None and args[4] != "valid" and bool(np.any(args[4] if args[4] != "same" else 1))
        if len(spot.shape) != len(_sizes(call)) or len(spot.shape) != _rank(call.args[1]):
            return False
        if 1 < groups == len(spot.cells) == _sizes(call)[1]:
            tensors = self._tensors(call, ("weight", "bias"))
            return self.program.passes(
                "depthwise", call.name, [source], Spot(1, spot.cells, _sizes(call)), tensors, padded=padded
            )
        self._layer(call, source, 1, padded=padded, groups=groups)
        return True

    def _turned_convolution(self, call: Any, source: str) -> bool:
        """What one place says is added at several: beside the border there is less to add, as beside zeros."""
        groups = call.args[6] if len(call.args) > 6 else 1
        if groups != 1 or len(self.spots[source].shape) != len(_sizes(call)):
            return False
        self._layer(call, source, 1, padded=True)
        self.program.transposed.add(self.read.names[call.args[1].name])
        return True

    def _layer(self, call: Any, source: str, axis: int, *, padded: bool, groups: int = 1) -> None:
        self.program.fresh(call.name, axis, _sizes(call))
        tensors = self._tensors(call, ("weight", "bias"))
        self.program.add(Operation("layer", call.name, (source,), tensors, padded, groups=groups))

    def _norm(self, name: str, call: Any, sources: list[str]) -> bool:
        if name == "batch_norm" and call.args[5]:
            return False
        tensors = self._tensors(call, ("weight", "bias", "mean", "variance"))
        if tensors["mean"] is None or tensors["variance"] is None:
            return False
        epsilon = float(call.args[7 if name == "batch_norm" else 6])
        self.program.passes("norm", call.name, sources, self.spots[sources[0]], tensors, arguments=(epsilon,))
        self._firsts.add(call.name)
        return True

    def _instance_norm(self, call: Any, sources: list[str], spot: Spot) -> bool:
        """Of its own means; stored ones would be cut as well."""
        args = call.args
        if args[3] is not None or args[4] is not None or not args[5] or not args[7] > 0 or len(spot.shape) < 3:
            return False
        tensors = self._tensors(call, ("weight", "bias"))
        return self.program.passes(
            "instance", call.name, sources, spot, tensors, function=OWN_MEANS, arguments=(float(args[7]),)
        )

    def _pad(self, call: Any, sources: list[str], spot: Spot) -> bool:
        """Zeros or anything else beside the places; no padding of channels."""
        pads, mode = call.args[1], call.args[2] if operator_name(call.target) == "pad" and len(call.args) > 2 else ""
        if len(pads) // 2 > len(spot.shape) - 1 - spot.axis or any(pad < 0 for pad in pads):
            return False
        value = call.args[3] if len(call.args) > 3 else call.args[2] if mode == "" and len(call.args) > 2 else 0
        zeros = mode in ("", "constant")
        if zeros and value not in (0, None):
            return False
        return self.program.passes("pool", call.name, sources, Spot(spot.axis, spot.cells, _sizes(call)), padded=zeros)

    def _reduced(self, call: Any, sources: list[str], spot: Spot, *, changed: bool) -> bool:
        """A mean, a maximum or a sum over axes beside those of batch and channels."""
        given = call.args[1] if len(call.args) > 1 else None
        axes = {axis % len(spot.shape) for axis in (given if isinstance(given, (list, tuple)) else ())}
        if 0 in axes or spot.axis in axes or not axes:
            return False
        keep = len(call.args) > 2 and bool(call.args[2])
        axis = spot.axis if keep else spot.axis - sum(other < spot.axis for other in axes)
        return self.program.passes("pool", call.name, sources, Spot(axis, spot.cells, _sizes(call)), padded=changed)

    def _prelu(self, call: Any, sources: list[str], spot: Spot) -> bool:
        """One slope for all channels is a number; else each has its own."""
        slopes = self.read.tensors[call.args[1].name]
        if slopes.numel() == 1:
            return self.program.passes(
                "same", call.name, sources, spot, function="leaky_relu", arguments=(float(slopes),)
            )
        return self.program.passes("slopes", call.name, sources, spot, self._tensors(call, ("weight",)))

    def _together(self, name: str, call: Any, sources: list[str]) -> bool:
        one, two = (self.spots[source] for source in sources)
        if one.axis != two.axis or len(one.cells) != len(two.cells) or len(one.shape) != len(two.shape):
            return False
        if name != "mul" and one.shape != two.shape:
            return False
        self.program.join(*sources)
        return self.program.passes(name, call.name, sources, Spot(one.axis, one.cells, _sizes(call)))

    def _flat(self, call: Any, sources: list[str], spot: Spot) -> bool:
        """Places become channels."""
        shape = _sizes(call)
        joined = spot.axis == 1 and len(shape) == 2 and shape[0] == spot.shape[0]
        if not joined or shape[1] != math.prod(spot.shape[1:]):
            return False
        width = math.prod(spot.shape[2:])
        return self.program.passes(
            "flat", call.name, sources, Spot(1, np.repeat(spot.cells, width), shape), width=width
        )

    def _cat(self, call: Any) -> bool:
        shape = _sizes(call)
        axis = int(call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)) % len(shape)
        parts = [part.name for part in call.args[0]]
        if not all(part in self.spots and self.spots[part].axis == axis for part in parts):
            return False
        cells = np.concatenate([self.spots[part].cells for part in parts])
        return self.program.passes("cat", call.name, parts, Spot(axis, cells, shape))

    def _tensors(self, call: Any, roles: Sequence[str]) -> dict[str, str | None]:
        """The module's names of the tensors behind a call's arguments after the first."""
        parts = [*call.args[1:], *[None] * len(roles)][: len(roles)]
        names = [self.read.names[part.name] if isinstance(part, fx.Node) else None for part in parts]
        return dict(zip(roles, names, strict=True))


def _nodes(call: Any) -> list[fx.Node]:
    return list(call.all_input_nodes)


def _shape(node: Any) -> tuple[int, ...] | None:
    value: Any = node.meta.get("val")
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    return tuple(int(size) for size in value.shape) if hasattr(value, "shape") else None


def _sizes(node: Any) -> tuple[int, ...]:
    return _shape(node) or ()


def _rank(node: Any) -> int:
    return len(_sizes(node))
