"""The nodes of an ONNX graph as operations on channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from lawful.network.formats.onnx_file import opset_of
from lawful.network.formats.onnx_options import options_of
from lawful.pruning.channels.program import Arguments, ChannelProgram, Operation, Spot

ELEMENTWISE = {"Relu": "relu", "Abs": "abs", "Neg": "neg", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softplus": "softplus",
               "HardSwish": "hardswish", "LeakyRelu": "leaky_relu", "Clip": "hardtanh"}  # fmt: skip
HOMOGENEOUS = ("relu", "leaky_relu", "abs", "neg")
POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")


class OnnxReader:
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
        self.transposed: set[str] = set()  # weights that are stored with inputs first
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
        kind, options = node.op_type, options_of(node, opset_of(self.model))
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
                "norm", node.output[0], sources, spot, roles, arguments=(float(options["epsilon"]),)
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
        spot = self.program.spots[source]
        if groups > 1 and spot.axis == 1 and groups == len(spot.cells) == weight.shape[0] and weight.shape[1] == 1:
            return self.program.passes(
                "depthwise", node.output[0], [source], Spot(1, spot.cells, self._shape(node)), tensors, padded=padded
            )
        return self._layer(node, source, tensors, (weight.shape[0], weight.shape[1] * groups), padded, groups)

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
        self,
        node: Any,
        source: str,
        tensors: dict[str, str | None],
        sizes: tuple[int, ...],
        padded: bool,
        groups: int = 1,
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
        self.program.add(Operation("layer", node.output[0], (source,), tensors, padded, groups=groups))
        return True

    def _elementwise(self, node: Any, sources: list[str], spot: Spot, options: Mapping[str, Any]) -> bool:
        function = ELEMENTWISE[node.op_type]
        arguments: Arguments = ()
        if function == "leaky_relu":
            arguments = (float(options["alpha"]),)
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
