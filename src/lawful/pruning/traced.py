"""The exported graph of a PyTorch module as operations on channels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name
from lawful.pruning.attention import TracedAttention, attentions
from lawful.pruning.program import OWN_MEANS, Arguments, ChannelProgram, Heads, Operation, Spot

COPIES = ("clone", "contiguous", "detach", "alias")
HOMOGENEOUS = ("relu", "leaky_relu", "abs", "neg")
ELEMENTWISE = ("gelu", "silu", "sigmoid", "tanh", "hardtanh", "hardswish", "hardsigmoid", "elu", "softplus", "mish",
               "relu6", "celu", "selu", "erf")  # fmt: skip
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")
POOLS = ("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
AVERAGES = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
UPSAMPLED = ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
PADS = ("pad", "constant_pad_nd")


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
        self._norms: set[str] = set()
        uses = Counter(name for call in read.calls for name in _names(call) if name in read.tensors)
        self.shared = {name for name, times in uses.items() if times > 1}
        for name in read.inputs:
            node = next(node for node in read.graph.nodes if node.name == name)
            self.program.fresh(name, min(1, max(_rank(node) - 1, 0)), _sizes(node), pinned=True)
        found = attentions(read, fixed=fixed)
        self._results = {each.result: each for each in found}
        inner = {name for each in found for name in each.inner}
        for call in read.calls:
            if call.name not in inner:
                self._add(call)
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
        if (name == "getitem" and args[1] == 0 and sources[0] in self._norms) or name in COPIES:
            return self.program.passes("copy", call.name, sources, spot)
        if name == "dropout" and not args[2]:
            return self.program.passes("copy", call.name, sources, spot)
        if name in (*HOMOGENEOUS, *ELEMENTWISE) and alone:
            kind = "same" if name in HOMOGENEOUS else "bend"
            return self.program.passes(kind, call.name, sources, spot, function=name, arguments=_numbers(call))
        if name == "pow" and alone and isinstance(args[1], (int, float)):
            power: Arguments = (float(args[1]),)
            return self.program.passes("bend", call.name, sources, spot, function="power", arguments=power)
        if name in ("add", "sub", "mul", "div") and alone and len(args) == 2 and not call.kwargs:
            if not isinstance(args[1], (int, float)):
                return False
            kind = "same" if name in ("mul", "div") else "bend"
            return self.program.passes(
                kind, call.name, sources, spot, function=f"{name} number", arguments=(float(args[1]),)
            )
        if name in (*POOLS, *AVERAGES) and spot.axis == 1 and len(spot.shape) == int(name[-2]) + 2:
            odd = [part for part in args[3:] if part is not None] if name in AVERAGES else []
            plain = all(not np.any(part) for part in odd[:2]) and len(odd) < 4  # padding, ceiling, divisor
            return self.program.passes("pool", call.name, sources, Spot(1, spot.cells, _sizes(call)), padded=not plain)
        if name in UPSAMPLED and spot.axis == 1:
            return self.program.passes("pool", call.name, sources, Spot(1, spot.cells, _sizes(call)))
        if name in PADS and alone:
            return self._pad(call, sources, spot)
        if name == "mean" and len(args) > 1 and isinstance(args[1], (list, tuple)):
            return self._mean(call, sources, spot)
        if name in ("add", "sub", "mul") and len(sources) == len(args) == 2 and not call.kwargs:
            return self._together(name, call, [part.name for part in args])
        if name in ("flatten", "view", "reshape"):
            return self._flat(call, sources, spot)
        if name == "cat":
            return self._cat(call)
        return False

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
        self._norms.add(call.name)
        return True

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

    def _mean(self, call: Any, sources: list[str], spot: Spot) -> bool:
        axes = {axis % len(spot.shape) for axis in call.args[1]}
        if 0 in axes or spot.axis in axes or not axes:
            return False
        keep = len(call.args) > 2 and bool(call.args[2])
        axis = spot.axis if keep else spot.axis - sum(other < spot.axis for other in axes)
        return self.program.passes("pool", call.name, sources, Spot(axis, spot.cells, _sizes(call)))

    def _together(self, name: str, call: Any, sources: list[str]) -> bool:
        one, two = (self.spots[source] for source in sources)
        if one.axis != two.axis or len(one.cells) != len(two.cells) or len(one.shape) != len(two.shape):
            return False
        if name != "mul" and one.shape != two.shape:
            return False
        self.program.join(*sources)
        return self.program.passes(name, call.name, sources, Spot(one.axis, one.cells, _sizes(call)))

    def _flat(self, call: Any, sources: list[str], spot: Spot) -> bool:
        shape = _sizes(call)
        if spot.axis == len(spot.shape) - 1 and shape[-1:] == spot.shape[-1:]:  # tokens regrouped, channels as they are
            return self.program.passes("copy", call.name, sources, Spot(len(shape) - 1, spot.cells, shape))
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


def _numbers(call: Any) -> Arguments:
    """All that an elementwise call takes beside its activation, in the order of its schema."""
    found = list(call.args[1:])
    for argument in call.target._schema.arguments[1 + len(found) :]:
        found.append(call.kwargs.get(argument.name, argument.default_value))
    return tuple(part if isinstance(part, str) else float(part) for part in found)


def _nodes(call: Any) -> list[fx.Node]:
    return list(call.all_input_nodes)


def _names(call: Any) -> list[str]:
    found: list[str] = []
    fx.map_arg((call.args, call.kwargs), lambda node: found.append(node.name))
    return found


def _shape(node: Any) -> tuple[int, ...] | None:
    value: Any = node.meta.get("val")
    if isinstance(value, (tuple, list)) and value:
        value = value[0]
    return tuple(int(size) for size in value.shape) if hasattr(value, "shape") else None


def _sizes(node: Any) -> tuple[int, ...]:
    return _shape(node) or ()


def _rank(node: Any) -> int:
    return len(_sizes(node))
