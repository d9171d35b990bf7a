"""Channels of an ONNX file: the same removals as for modules, and the file with smaller weights.

The graph stays as it is, node by node; weights become smaller, and a convolution may gain a bias. Normalisations leave
it only where folding is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from flint import ctx
from onnx import numpy_helper

from lawful.errors import LawfulError, Unsupported
from lawful.program.frontends.onnx import read_onnx
from lawful.program.program import Program
from lawful.pruning.channels.constants_and_multiples import BITS
from lawful.pruning.channels.cut import bias_beside, cut_tensors
from lawful.pruning.channels.fold_and_drop import Tidying, foldable, tidy_notes, with_norm
from lawful.pruning.channels.groups import groups_left
from lawful.pruning.channels.program import ChannelProgram, Operation, notes_of
from lawful.pruning.channels.reading.domain import read_channels
from lawful.pruning.channels.state import read_arrays
from lawful.pruning.channels.weights import ChannelWeights, Move, RemovedChannel, refuse_large
from lawful.result import Shown
from lawful.types import Floats

QUANTISED = ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")
TYPES = (np.float16, np.float32, np.float64)
OPEN = (64, 224, 32, 16, 8, 16_000)  # sizes beside the batch that are tried where a file leaves them open
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
    moves: tuple[Move, ...]
    gone: tuple[int, ...]
    before: Mapping[str, Floats]
    after: Mapping[str, Floats]
    notes: tuple[str, ...] = ()
    tidied: Tidying = field(default_factory=Tidying)

    @property
    def channels_after(self) -> int:
        """Channels that are left."""
        return self.channels_before - len(self.removed)


def prune_onnx(
    model: onnx.ModelProto,
    *,
    fold: bool = False,
    seed: int = 0,
    size: tuple[int, ...] | None = None,
    certified: bool = False,
) -> OnnxPruning:
    """Remove the channels of convolutions and `Gemm` layers that are silent, constant or multiples of others.

    With `fold`, normalisations go into the layers before them. `size` is that of an input that the file leaves open,
    without the batch. If it is to be `certified`, what is too large for a certificate is refused before the work.
    """
    quantised = next(
        (node.op_type for node in model.graph.node if "Quantize" in node.op_type or node.op_type in QUANTISED), None
    )
    if quantised is not None:
        raise Unsupported(
            f"the file has quantised layers ({quantised}): their numbers are no real weights; prune before quantising"
        )
    sizes, program = _read(model, size)
    reading = read_channels(program).program
    nodes = {name: node for node in reversed(model.graph.node) for name in node.input}  # the first that reads a tensor
    layers = [operation for operation in reading.operations if operation.kind in ("layer", "depthwise")]
    reading.closed = {str(layer.tensors["weight"]) for layer in layers if not _takes_bias(nodes, layer)}
    arrays = read_arrays(program, reading)
    if certified:
        refuse_large(reading, arrays)
    weights = ChannelWeights(reading, arrays)
    with ctx.workprec(BITS):
        weights.sweep_all()
    folded = [(layer, norm) for layer, norm in foldable(reading) if _takes_bias(nodes, layer)]
    tidied = Tidying(tuple(folded)) if fold else Tidying()
    changed = bool(weights.removed or tidied.folded)
    small = copy.deepcopy(model)
    if changed:
        _write(small, _fold_norms(cut_tensors(weights), tidied), weights, tidied)
        _restate(model, small, sizes)
    return OnnxPruning(
        small, tuple(weights.removed), weights.channels, _parameters(model), _parameters(small),
        _difference(model, small, seed, sizes) if changed else 0.0, reading, tuple(weights.moves), weights.gone,
        weights_of(model), weights_of(small),
        (*notes_of(reading), *tidy_notes(reading, tidied if fold else None)), tidied,
    )  # fmt: skip


def has_channels(model: onnx.ModelProto) -> bool:
    """Whether a file can be read, and has channels that may leave."""
    try:
        reading = read_channels(_read(model)[1]).program
    except LawfulError:
        return False
    return any(operation.kind == "layer" and not reading.is_pinned(operation.name) for operation in reading.operations)


def weights_of(model: onnx.ModelProto) -> dict[str, Floats]:
    """The real numbers of a file by name, as a certificate of its pruning has them."""
    tensors = {name: numpy_helper.to_array(tensor) for name, tensor in _held(model.graph).items()}
    return {name: array for name, array in tensors.items() if array.dtype in TYPES}


def _held(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """All tensors of a graph by name: those beside its nodes, and those that nodes hold."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for option in node.attribute:
            if not node.input and option.name == "value":
                tensors[node.output[0]] = option.t
    return tensors


def _read(model: onnx.ModelProto, size: tuple[int, ...] | None = None) -> tuple[dict[str, tuple[int, ...]], Program]:
    """The sizes of inputs for which a file can be read, and its program; open sizes are tried, the usual ones first."""
    stored_names = {tensor.name for tensor in model.graph.initializer}
    inputs = {
        entry.name: entry.type.tensor_type.shape.dim for entry in model.graph.input if entry.name not in stored_names
    }
    refusal: LawfulError | None = None
    for guess in OPEN if size is None else (size,):
        sizes = {name: _fill_open_sizes(dims, guess) for name, dims in inputs.items()}
        try:
            return sizes, read_onnx(model, sizes)
        except LawfulError as error:
            refusal = error
        except (ValueError, IndexError, AssertionError) as error:  # sizes that do not fit each other
            refusal = Unsupported(f"its nodes do not fit inputs of size {guess}: {error}")
    raise refusal or Unsupported("it has no inputs")


def _fill_open_sizes(dims: Sequence[Any], guess: int | tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of an input: what is open (left out, or -1) is filled with one number, or from a whole size."""
    if isinstance(guess, tuple) and len(guess) != len(dims) - 1:
        raise Unsupported(f"its input has {len(dims) - 1} sizes beside the batch, and {len(guess)} were given")
    open_sizes = (2, *(guess if isinstance(guess, tuple) else (guess,) * (len(dims) - 1)))
    return tuple(dim.dim_value if dim.dim_value > 0 else size for dim, size in zip(dims, open_sizes, strict=False))


def _takes_bias(nodes: Mapping[str, onnx.NodeProto], layer: Operation) -> bool:
    """Whether the node of a layer has a bias, or room for one: a third input that may be missing."""
    node = nodes.get(str(layer.tensors["weight"]))
    if node is None or layer.tensors["bias"] is not None:
        return node is not None
    inputs = onnx.defs.get_schema(node.op_type).inputs
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return len(inputs) == 3 and inputs[2].option == optional and len(node.input) == 2


def _bias_name(operation: Operation) -> str:
    return str(operation.tensors["bias"] or bias_beside(str(operation.tensors["weight"])))


def _fold_norms(cut: dict[str, Floats], tidied: Tidying) -> dict[str, Floats]:
    """Tensors with normalisations inside the layers before them."""
    for layer, norm in tidied.folded:
        parts = [cut.pop(str(norm.tensors[role])) for role in ("mean", "variance", "weight", "bias")]
        weight, bias = str(layer.tensors["weight"]), _bias_name(layer)
        cut[weight], cut[bias] = with_norm(cut[weight], cut.get(bias), parts, float(norm.arguments[0]))
    return cut


def _write(model: onnx.ModelProto, cut: Mapping[str, Floats], weights: ChannelWeights, tidied: Tidying) -> None:
    """Put weights at their new sizes into a file."""
    graph = model.graph
    del graph.value_info[:]  # sizes of activations as they were
    tensors = _held(graph)
    for name in cut.keys() & tensors.keys():
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensors[name].data_type)
        tensors[name].CopyFrom(
            numpy_helper.from_array(np.ascontiguousarray(cut[name].astype(kind)), tensors[name].name)
        )
    nodes = {name: node for node in reversed(graph.node) for name in node.input}
    for operation in weights.program.operations:
        node = nodes.get(str(operation.tensors.get("weight")))
        if operation.kind == "depthwise" or operation.groups > 1:
            rows = weights.alive_at(operation.name)
            count = int(rows.sum()) if operation.kind == "depthwise" else groups_left(operation, rows)
            next(option for option in node.attribute if option.name == "group").i = count  # type: ignore[union-attr]
        if operation.kind in ("layer", "depthwise") and operation.tensors["bias"] is None:
            name = _bias_name(operation)
            if name in cut and node is not None:
                kind = onnx.helper.tensor_dtype_to_np_dtype(tensors[str(operation.tensors["weight"])].data_type)
                graph.initializer.append(numpy_helper.from_array(cut[name].astype(kind), name))
                node.input.append(name)
    for layer, norm in tidied.folded:  # the layer says now what the normalisation said
        gone = nodes[str(norm.tensors["mean"])]
        nodes[str(layer.tensors["weight"])].output[0] = gone.output[0]
        graph.node.remove(gone)
    used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    declared = {tensor.name for tensor in graph.initializer}
    for value in [value for value in graph.input if value.name in declared]:  # sizes of weights as they were
        graph.input.remove(value)


def _restate(model: onnx.ModelProto, small: onnx.ModelProto, sizes: Mapping[str, tuple[int, ...]]) -> None:
    """Sizes that nodes state, where what they reshape is smaller now: one axis beside the batch is.

    A wrong guess shows: outputs are compared.
    """
    before, settled = _shapes(model, sizes), set()
    while True:
        after, tensors = _shapes(small, sizes), _held(small.graph)
        for node in small.graph.node:
            states = len(node.input) == 2 and node.input[1] in tensors and node.output[0] not in settled
            if not states or onnx.defs.get_schema(node.op_type).inputs[1].name != "shape":
                continue
            old, new, whole = before.get(node.input[0]), after.get(node.input[0]), before.get(node.output[0])
            if old is None or new is None or whole is None or np.prod(old) == np.prod(new):
                continue
            stated = numpy_helper.to_array(tensors[node.input[1]]).ravel().tolist()
            ratio = Fraction(int(np.prod(new)), int(np.prod(old)))
            fits = [axis for axis in range(1, len(whole)) if (whole[axis] * ratio).denominator == 1]
            if not fits:
                raise Unsupported(f"the sizes that {node.name or node.output[0]} states are not followed")
            axis = min(fits, key=lambda each: -whole[each])
            if stated[axis] > 0:
                stated[axis] = int(whole[axis] * ratio)
                name = f"{node.output[0]}.sizes"
                small.graph.initializer.append(numpy_helper.from_array(np.array(stated, dtype=np.int64), name))
                node.input[1] = name
            settled.add(node.output[0])
            break
        else:
            return


def _shapes(model: onnx.ModelProto, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Sizes of activations for inputs of these sizes, as far as they follow."""
    sized = onnx.ModelProto()
    sized.CopyFrom(model)
    for entry in sized.graph.input:
        for dim, size in zip(entry.type.tensor_type.shape.dim, sizes.get(entry.name, ()), strict=False):
            dim.dim_value = size
    for entry in sized.graph.output:
        entry.type.tensor_type.ClearField("shape")
    del sized.graph.value_info[:]
    try:
        graph = onnx.shape_inference.infer_shapes(sized, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, ValueError):
        return {}
    by_name = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            by_name[value.name] = tuple(dim.dim_value for dim in dims)
    return by_name


def _parameters(model: onnx.ModelProto) -> int:
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    return sum(
        int(np.prod(tensor.dims, dtype=int)) for tensor in _held(model.graph).values() if tensor.data_type in kinds
    )


def _difference(one: onnx.ModelProto, two: onnx.ModelProto, seed: int, sizes: Mapping[str, tuple[int, ...]]) -> float:
    from onnx.reference import ReferenceEvaluator

    rng = np.random.default_rng(seed)
    feeds = {}
    for value in one.graph.input:
        if value.name in sizes:
            kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            feeds[value.name] = rng.normal(size=sizes[value.name]).astype(kind)
    worst = 0.0
    pairs = zip(*(ReferenceEvaluator(model).run(None, feeds) for model in (one, two)), strict=True)
    for before, after in pairs:
        gap = float(np.abs(before - after).max(initial=0.0)) if before.shape == after.shape else np.inf
        if not gap <= COMPARED * max(float(np.abs(before).max(initial=0.0)), 1e-30):
            raise Unsupported(f"the smaller file computes something else: outputs differ by {gap:.2g}")
        worst = max(worst, gap)
    return worst
