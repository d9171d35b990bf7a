"""Channels of an ONNX file: the same removals as for modules, and the file with smaller weights.

The graph stays as it is, node by node; weights become smaller, and a convolution may gain a bias. Normalisations leave
it only where folding is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from flint import ctx
from numpy.typing import NDArray
from onnx import numpy_helper

from lawful.errors import InvalidNetwork, Unsupported
from lawful.pruning.channel_weights import ChannelWeights, Reason, RemovedChannel
from lawful.pruning.constants import BITS
from lawful.pruning.cut import bias_beside, cut_tensors
from lawful.pruning.groups import groups_left
from lawful.pruning.onnx_reader import OnnxReader
from lawful.pruning.program import ChannelProgram, Operation, notes_of
from lawful.pruning.tidy import Tidying, foldable, tidy_notes, with_norm
from lawful.shown import Shown
from lawful.types import Floats

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
    tidied: Tidying = field(default_factory=Tidying)

    @property
    def channels_after(self) -> int:
        """Channels that are left."""
        return self.channels_before - len(self.removed)


def prune_onnx(model: onnx.ModelProto, *, fold: bool = False, seed: int = 0) -> OnnxPruning:
    """Remove the channels of convolutions and `Gemm` layers that are silent, constant or multiples of others.

    With `fold`, normalisations go into the layers before them.
    """
    quantised = next(
        (node.op_type for node in model.graph.node if "Quantize" in node.op_type or node.op_type in QUANTISED), None
    )
    if quantised is not None:
        raise Unsupported(
            f"the file has quantised layers ({quantised}): their numbers are no real weights; prune before quantising"
        )
    reader = OnnxReader(model)
    before = _arrays(reader)
    weights = ChannelWeights(reader.program, {name: array.copy() for name, array in before.items()})
    with ctx.workprec(BITS):
        weights.sweep_all()
    tidied = Tidying(tuple(foldable(reader.program))) if fold else Tidying()
    cut = _folded(cut_tensors(weights), tidied)
    changed = bool(weights.removed or tidied.folded)
    small = _written(reader, cut, weights, tidied) if changed else copy.deepcopy(model)
    return OnnxPruning(
        small, tuple(weights.removed), weights.channels, _parameters(model), _parameters(small),
        _difference(model, small, seed) if changed else 0.0, reader.program, tuple(weights.sweeps),
        {name: array.astype(np.float32) for name, array in before.items()},
        {name: array.astype(np.float32) for name, array in cut.items()},
        (*notes_of(reader.program), *tidy_notes(reader.program, tidied if fold else None)), tidied,
    )  # fmt: skip


def weights_of(model: onnx.ModelProto) -> dict[str, Singles]:
    """The weights of a file by name, as a certificate of its pruning has them: rows first."""
    return {name: array.astype(np.float32) for name, array in _arrays(OnnxReader(model)).items()}


def _arrays(reader: OnnxReader) -> dict[str, Floats]:
    """The weights of all operations, rows first, in float64."""
    names = [name for each in reader.program.operations for name in each.tensors.values() if name is not None]
    found = {
        name: np.array(reader.values[name].T if name in reader.transposed else reader.values[name], dtype=np.float64)
        for name in names
    }
    bad = next((name for name, array in found.items() if not np.isfinite(array).all()), None)
    if bad is not None:
        raise InvalidNetwork(f"a weight of {bad[:60]} is not finite")
    return found


def _bias_name(operation: Operation) -> str:
    return str(operation.tensors["bias"] or bias_beside(str(operation.tensors["weight"])))


def _folded(cut: dict[str, Floats], tidied: Tidying) -> dict[str, Floats]:
    """Tensors with normalisations inside the layers before them."""
    for layer, norm in tidied.folded:
        parts = [cut.pop(str(norm.tensors[role])) for role in ("mean", "variance", "weight", "bias")]
        weight, bias = str(layer.tensors["weight"]), _bias_name(layer)
        cut[weight], cut[bias] = with_norm(cut[weight], cut.get(bias), parts, float(norm.arguments[0]))
    return cut


def _written(
    reader: OnnxReader, cut: Mapping[str, Floats], weights: ChannelWeights, tidied: Tidying
) -> onnx.ModelProto:
    """The file with its weights at their new sizes."""
    small = copy.deepcopy(reader.model)
    graph = small.graph
    del graph.value_info[:]  # sizes of activations as they were
    for tensor in graph.initializer:
        if tensor.name in cut:
            array = cut[tensor.name].astype(np.float32)
            array = array.T if tensor.name in reader.transposed else array
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
    outputs = {node.output[0]: node for node in graph.node if len(node.output) == 1}
    for operation in reader.program.operations:
        if operation.kind == "depthwise" or operation.groups > 1:
            rows = weights.alive_at(operation.name)
            count = int(rows.sum()) if operation.kind == "depthwise" else groups_left(operation, rows)
            next(option for option in outputs[operation.name].attribute if option.name == "group").i = count
        if operation.kind in ("layer", "depthwise") and operation.tensors["bias"] is None:
            name = _bias_name(operation)
            if name in cut:
                graph.initializer.append(numpy_helper.from_array(cut[name].astype(np.float32), name))
                outputs[operation.name].input.append(name)
    for layer, norm in tidied.folded:  # the layer says now what the normalisation said
        graph.node.remove(outputs[norm.name])
        outputs[layer.name].output[0] = norm.name
    for output, source in reader.reshaped.items():
        spot = reader.program.spots[source]
        count = int(weights.alive_at(source).sum()) * int(np.prod(spot.shape[2:], dtype=int))
        sizes = np.array([reader.values[outputs[output].input[1]][0], count], dtype=np.int64)
        graph.initializer.append(numpy_helper.from_array(sizes, f"{output}.sizes"))
        outputs[output].input[1] = f"{output}.sizes"
    used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for tensor in [each for each in graph.initializer if each.name not in used]:
        graph.initializer.remove(tensor)
    declared = {tensor.name for tensor in graph.initializer}
    for value in [each for each in graph.input if each.name in declared]:  # sizes of weights as they were
        graph.input.remove(value)
    return small


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
