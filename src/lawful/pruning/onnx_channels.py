"""Channels of an ONNX file: the same removals as for modules, and the file with smaller weights.

The graph stays as it is, node by node; weights become smaller, and a convolution may gain a bias.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from flint import ctx
from numpy.typing import NDArray
from onnx import numpy_helper, shape_inference

from lawful.errors import InvalidNetwork, Unsupported
from lawful.pruning.channel_weights import ChannelWeights, Reason, RemovedChannel
from lawful.pruning.constants import BITS
from lawful.pruning.cut import bias_beside, cut_tensors
from lawful.pruning.program import Arguments, ChannelProgram, Operation, Spot, notes_of
from lawful.shown import Shown
from lawful.types import Floats

ELEMENTWISE = {"Relu": "relu", "Abs": "abs", "Neg": "neg", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softplus": "softplus",
               "HardSwish": "hardswish", "LeakyRelu": "leaky_relu", "Clip": "hardtanh"}  # fmt: skip
HOMOGENEOUS = ("relu", "leaky_relu", "abs", "neg")
POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
QUANTISED = ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")
Singles = NDArray[np.float32]
COMPARED = 1e-4  # relative difference of outputs in float32


@dataclass(frozen=True, eq=False)
class OnnxPruning(Shown):
    """The smaller file, and the channels that went; `compared` is the largest difference of outputs seen."""

    model: onnx.ModelProto
    removed: tuple[RemovedChannel, ...]
    channels_before: int
    parameters_before: int
    parameters_after: int
    compared: float
    program: ChannelProgram
    sweeps: tuple[Mapping[int, Reason], ...]
    before: Mapping[str, Singles]
    after: Mapping[str, Singles]
    notes: tuple[str, ...] = ()

    @property
    def channels_after(self) -> int:
        """Channels that are left."""
        return self.channels_before - len(self.removed)


def prune_onnx(model: onnx.ModelProto, *, seed: int = 0) -> OnnxPruning:
    """Remove the channels of convolutions and `Gemm` layers that are silent, constant or multiples of others."""
    quantised = next(
        (node.op_type for node in model.graph.node if "Quantize" in node.op_type or node.op_type in QUANTISED), None
    )
    if quantised is not None:
        raise Unsupported(
            f"the file has quantised layers ({quantised}): their numbers are no real weights; prune before quantising"
        )
    reader = _OnnxReader(model)
    weights = ChannelWeights(reader.program, reader.arrays())
    before = {name: array.copy() for name, array in weights.arrays.items()}
    with ctx.workprec(BITS):
        weights.sweep_all()
    cut = cut_tensors(weights)
    small = reader.written(cut, weights) if weights.removed else copy.deepcopy(model)
    after = {name: array.astype(np.float32) for name, array in (cut or before).items()}
    return OnnxPruning(
        small, tuple(weights.removed), weights.channels, _parameters(model), _parameters(small),
        _difference(model, small, seed) if weights.removed else 0.0, reader.program, tuple(weights.sweeps),
        {name: array.astype(np.float32) for name, array in before.items()}, after, notes_of(reader.program),
    )  # fmt: skip


class _OnnxReader:
    """The nodes of a graph as operations on channels."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.program = ChannelProgram()
        graph = model.graph
        self.initial = {tensor.name: tensor for tensor in graph.initializer}
        self.values = {name: numpy_helper.to_array(tensor) for name, tensor in self.initial.items()}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.uses = Counter(name for node in graph.node for name in node.input)
        self.shapes = _shapes(model)
        self.transposed: set[str] = set()
        self.reshaped: dict[str, str] = {}  # output of a Reshape: its activation
        for value in graph.input:
            if value.name not in self.initial:
                self._unknown(value.name, ())
        for node in graph.node:
            sources = [name for name in node.input if name in self.program.spots]
            if node.op_type == "Constant":
                continue
            if not (sources and len(node.output) == 1 and self._understood(node, sources)):
                for source in sources:
                    self.program.pin(source)
                for output in node.output:
                    self._unknown(output, sources, node.op_type)
        self.program.end([value.name for value in graph.output if value.name in self.program.spots])

    def _unknown(self, name: str, sources: Sequence[str], function: str = "") -> None:
        shape = tuple(max(size, 1) for size in self.shapes.get(name, ()))
        self.program.fresh(name, min(1, max(len(shape) - 1, 0)), shape, pinned=True)
        if sources:
            self.program.add(Operation("other", name, tuple(sources), function=function))

    def _own(self, *names: str) -> bool:
        """Tensors in float32 that no other node uses."""
        return all(
            name in self.initial and self.uses[name] == 1 and self.values[name].dtype == np.float32 for name in names
        )

    def _understood(self, node: Any, sources: list[str]) -> bool:
        kind, options = node.op_type, {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        spot, alone = self.program.spots[sources[0]], len(sources) == 1 and node.input[0] == sources[0]
        if kind == "Conv" and alone:
            return self._convolution(node, sources[0], options)
        if kind == "Gemm" and alone:
            return self._gemm(node, sources[0], options)
        if kind == "BatchNormalization" and alone and spot.axis == 1:
            if not self._own(*node.input[1:5]) or options.get("training_mode", 0):
                return False
            roles = dict(zip(("weight", "bias", "mean", "variance"), node.input[1:5], strict=True))
            return self.program.passes(
                "norm", node.output[0], sources, spot, roles, arguments=(float(options.get("epsilon", 1e-5)),)
            )
        if kind in ("Identity", "Dropout") and alone:
            return self.program.passes("copy", node.output[0], sources, spot)
        if kind in ELEMENTWISE and alone:
            return self._elementwise(node, sources, spot, options)
        if kind in POOLS and alone and spot.axis == 1:
            padded = kind == "AveragePool" and bool(
                np.any(options.get("pads", [0]))
                or options.get("ceil_mode", 0)
                or options.get("auto_pad", b"NOTSET") != b"NOTSET"
            )
            return self.program.passes(
                "pool", node.output[0], sources, Spot(1, spot.cells, self._shape(node)), padded=padded
            )
        if kind == "ReduceMean" and alone and spot.axis == 1:
            return self._mean(node, sources, spot, options)
        if kind in ("Add", "Sub", "Mul") and len(sources) == 2:
            return self._together(node, list(node.input))
        if kind == "Concat" and len(sources) == len(set(node.input)):
            return self._cat(node, options)
        if kind in ("Flatten", "Reshape") and alone:
            return self._flat(node, sources, spot, options)
        return False

    def _shape(self, node: Any) -> tuple[int, ...]:
        return self.shapes.get(node.output[0], ())

    def _convolution(self, node: Any, source: str, options: Mapping[str, Any]) -> bool:
        names = list(node.input[1:])
        if not self._own(*names):
            return False
        weight, groups = self.values[names[0]], int(options.get("group", 1))
        padded = bool(np.any(options.get("pads", [0]))) or options.get("auto_pad", b"NOTSET") in (
            b"SAME_UPPER",
            b"SAME_LOWER",
        )
        tensors = {"weight": names[0], "bias": names[1] if len(names) > 1 else None}
        if groups == 1:
            return self._layer(node, source, tensors, weight.shape[:2], padded)
        spot = self.program.spots[source]
        if spot.axis == 1 and groups == len(spot.cells) == weight.shape[0] and weight.shape[1] == 1:
            return self.program.passes(
                "depthwise", node.output[0], [source], Spot(1, spot.cells, self._shape(node)), tensors, padded=padded
            )
        return False

    def _gemm(self, node: Any, source: str, options: Mapping[str, Any]) -> bool:
        names = list(node.input[1:])
        plain = options.get("alpha", 1.0) == 1 and options.get("beta", 1.0) == 1 and not options.get("transA", 0)
        if not plain or not self._own(*names) or any(self.values[name].ndim != 1 for name in names[1:]):
            return False
        weight = self.values[names[0]]
        if not options.get("transB", 0):
            self.transposed.add(names[0])
            weight = weight.T
        if len(names) > 1 and len(self.values[names[1]]) != len(weight):
            return False
        tensors = {"weight": names[0], "bias": names[1] if len(names) > 1 else None}
        return self._layer(node, source, tensors, weight.shape, False)

    def _layer(
        self, node: Any, source: str, tensors: dict[str, str | None], sizes: tuple[int, ...], padded: bool
    ) -> bool:
        spot = self.program.spots[source]
        if spot.axis != 1 or len(spot.cells) != sizes[1]:
            if not self.program.is_pinned(source):
                return False
            alias = f"{node.output[0]} reads"
            self.program.fresh(alias, 1, (1, sizes[1]), pinned=True)
            self.program.add(Operation("other", alias, (source,)))
            source = alias
        shape = self._shape(node) or (1, sizes[0])
        self.program.fresh(node.output[0], 1, (shape[0], sizes[0], *shape[2:]))
        self.program.add(Operation("layer", node.output[0], (source,), tensors, padded))
        return True

    def _elementwise(self, node: Any, sources: list[str], spot: Spot, options: Mapping[str, Any]) -> bool:
        function = ELEMENTWISE[node.op_type]
        arguments: Arguments = ()
        if function == "leaky_relu":
            arguments = (float(np.float32(options.get("alpha", 0.01))),)
        elif function == "softplus":
            arguments = (1.0, 1e300)
        elif function == "hardtanh":
            ends = [self.values.get(name) for name in node.input[1:3]]
            if len(ends) != 2 or any(end is None for end in ends) or options:
                return False
            arguments = tuple(float(end) for end in ends if end is not None)
        kind = "same" if function in HOMOGENEOUS else "bend"
        return self.program.passes(kind, node.output[0], sources, spot, function=function, arguments=arguments)

    def _mean(self, node: Any, sources: list[str], spot: Spot, options: Mapping[str, Any]) -> bool:
        """An average over places only."""
        given = options.get("axes", self.values.get(node.input[1]) if len(node.input) > 1 else None)
        axes = set() if given is None else {int(axis) % max(len(spot.shape), 1) for axis in given}
        if not axes or axes & {0, 1}:
            return False
        kept = int(options.get("keepdims", 1))
        shape = tuple(1 if at in axes else size for at, size in enumerate(spot.shape) if kept or at not in axes)
        return self.program.passes("pool", node.output[0], sources, Spot(1, spot.cells, shape))

    def _together(self, node: Any, sources: list[str]) -> bool:
        one, two = (self.program.spots[source] for source in sources)
        if one.axis != two.axis or len(one.cells) != len(two.cells) or len(one.shape) != len(two.shape):
            return False
        if node.op_type != "Mul" and one.shape != two.shape:
            return False
        self.program.join(*sources)
        return self.program.passes(
            node.op_type.lower(), node.output[0], sources, Spot(one.axis, one.cells, self._shape(node))
        )

    def _cat(self, node: Any, options: Mapping[str, Any]) -> bool:
        parts = [self.program.spots[name] for name in node.input]
        axis = int(options["axis"]) % max(len(parts[0].shape), 1)
        if any(part.axis != axis for part in parts):
            return False
        cells = np.concatenate([part.cells for part in parts])
        return self.program.passes("cat", node.output[0], list(node.input), Spot(axis, cells, self._shape(node)))

    def _flat(self, node: Any, sources: list[str], spot: Spot, options: Mapping[str, Any]) -> bool:
        width = int(np.prod(spot.shape[2:], dtype=int))
        if spot.axis != 1 or any(size < 1 for size in spot.shape[2:]):
            return False
        if node.op_type == "Reshape":
            sizes = self.values.get(node.input[1])
            whole = len(spot.cells) * width
            if (
                sizes is None
                or len(sizes) != 2
                or sizes[1] not in (-1, whole)
                or self.shapes.get(node.output[0], (0, 0))[1] != whole
            ):
                return False
            if sizes[0] not in (0, -1) and sizes[0] != spot.shape[0]:
                return False
            self.reshaped[node.output[0]] = sources[0]
        elif options.get("axis", 1) != 1:
            return False
        shape = (spot.shape[0], len(spot.cells) * width)
        return self.program.passes(
            "flat", node.output[0], sources, Spot(1, np.repeat(spot.cells, width), shape), width=width
        )

    def arrays(self) -> dict[str, Floats]:
        """The weights of all operations, rows first, in float64."""
        names = [name for each in self.program.operations for name in each.tensors.values() if name is not None]
        found = {
            name: np.array(self.values[name].T if name in self.transposed else self.values[name], dtype=np.float64)
            for name in names
        }
        bad = next((name for name, array in found.items() if not np.isfinite(array).all()), None)
        if bad is not None:
            raise InvalidNetwork(f"a weight of {bad[:60]} is not finite")
        return found

    def written(self, cut: Mapping[str, Floats], weights: ChannelWeights) -> onnx.ModelProto:
        """The file with its weights at their new sizes."""
        small = copy.deepcopy(self.model)
        graph = small.graph
        del graph.value_info[:]  # sizes of activations as they were
        for tensor in graph.initializer:
            if tensor.name in cut:
                array = cut[tensor.name].astype(np.float32)
                array = array.T if tensor.name in self.transposed else array
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
        outputs = {node.output[0]: node for node in graph.node if len(node.output) == 1}
        for operation in self.program.operations:
            for option in outputs[operation.name].attribute if operation.kind == "depthwise" else ():
                if option.name == "group":
                    option.i = int(weights.alive_at(operation.name).sum())
        for operation in weights.layers:
            name = bias_beside(str(operation.tensors["weight"]))
            if operation.tensors["weight"] in weights.added:
                graph.initializer.append(numpy_helper.from_array(cut[name].astype(np.float32), name))
                outputs[operation.name].input.append(name)
        for output, source in self.reshaped.items():
            spot = self.program.spots[source]
            count = int(weights.alive_at(source).sum()) * int(np.prod(spot.shape[2:], dtype=int))
            sizes = np.array([self.values[outputs[output].input[1]][0], count], dtype=np.int64)
            graph.initializer.append(numpy_helper.from_array(sizes, f"{output}.sizes"))
            outputs[output].input[1] = f"{output}.sizes"
        used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
        for tensor in [each for each in graph.initializer if each.name not in used]:
            graph.initializer.remove(tensor)
        declared = {tensor.name for tensor in graph.initializer}
        for value in [each for each in graph.input if each.name in declared]:  # sizes of weights as they were
            graph.input.remove(value)
        return small


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Sizes of activations as far as they are known; 0 for a size that is not."""
    try:
        graph = shape_inference.infer_shapes(model).graph
    except (shape_inference.InferenceError, ValueError):
        graph = model.graph
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            found[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    return found


def _parameters(model: onnx.ModelProto) -> int:
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    return sum(int(np.prod(each.dims, dtype=int)) for each in model.graph.initializer if each.data_type in kinds)


def _difference(one: onnx.ModelProto, two: onnx.ModelProto, seed: int) -> float:
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(seed)
    initial = {tensor.name for tensor in one.graph.initializer}
    feeds = {}
    for value in one.graph.input:
        if value.name not in initial:
            shape = [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
            feeds[value.name] = rng.normal(size=shape).astype(np.float32)
    worst = 0.0
    pairs = zip(*(ReferenceEvaluator(each).run(None, feeds) for each in (one, two)), strict=True)
    for before, after in pairs:
        gap = float(np.abs(before - after).max(initial=0.0)) if before.shape == after.shape else np.inf
        if not gap <= COMPARED * max(float(np.abs(before).max(initial=0.0)), 1e-30):
            raise Unsupported(f"the smaller file computes something else: outputs differ by {gap:.2g}")
        worst = max(worst, gap)
    return worst
