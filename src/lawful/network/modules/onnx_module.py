"""An ONNX graph as a PyTorch module: its initializers are the parameters, its nodes are run one after another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.formats import onnx_file
from lawful.network.formats.limits import check_numbers
from lawful.network.formats.onnx_constants import COMPUTED, computed
from lawful.network.formats.onnx_options import options_of
from lawful.network.formats.onnx_refusals import DOMAINS, unread
from lawful.network.modules.onnx_calls import CALLS
from lawful.network.modules.onnx_moves import split
from lawful.network.modules.onnx_values import Operand
from lawful.network.modules.onnx_weights import WeightNames, weights_of
from lawful.network.reading import Reading

KNOWN = {*CALLS, "Split", "Shape", "Size", "Cast", "Constant", *COMPUTED}


class OnnxModule(nn.Module):
    """What an ONNX graph computes. Weights have the names of their initializers, `names` maps ours to those.

    The first axis of an input counts samples. `alone` runs the graph on one sample after another, for graphs whose
    sizes are written for one; `bare` graphs know no samples at all. `input_sizes` are those of the inputs without the
    samples, where the file states them; `8:int` is for whole numbers. Normalisations keep their stored statistics.
    `told` is how the file was read. `sizes` replace what a Reshape or Split states, by
    its first output: channels may have left.
    """

    input_sizes: tuple[tuple[int, ...] | str, ...] = ()
    told: Reading | None = None

    def __init__(self, model: Any, folder: Path) -> None:
        """Read the graph; nodes on which no answer depends are left out."""
        super().__init__()
        graph = model.graph
        if graph.sparse_initializer:
            raise Unsupported("sparse initializers are not supported")
        self.opset = onnx_file.opset_of(model)
        self.folder, self.alone, self.bare, self.fixed = folder, False, False, 0
        held: dict[str, NDArray[Any]] = {each.name: onnx_file.array(each, folder) for each in graph.initializer}
        self.inputs = tuple(entry.name for entry in graph.input if entry.name not in held)
        self.outputs, self.left_out = _answers(graph)
        self.nodes = _needed(graph, self.outputs)
        for node in self.nodes:
            _check_known(node)
        self.options = [options_of(node, self.opset) for node in self.nodes]
        for node in self.nodes:
            if node.op_type == "Constant":
                held[node.output[0]] = computed(node, [], self.opset, folder)[0]
        found: WeightNames = weights_of(self.nodes, held, set(self.inputs))
        self.shared = found.shared
        self.names: dict[str, str] = {}
        for name in (*found.trained, *found.kept):
            self._hold(name, torch.from_numpy(held.pop(name).copy()), name in found.trained)
        self.constants: dict[str, Operand] = dict(held)
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.casts: set[str] = set()

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The outputs for a batch: a tensor, or a tuple if there are several."""
        if not (self.alone or self.bare):
            return self._run(inputs)
        found = [
            self._run([each[k] if self.bare else each[k : k + 1] for each in inputs]) for k in range(len(inputs[0]))
        ]
        join = torch.stack if self.bare else torch.cat
        if len(self.outputs) == 1:
            return join(found)
        return tuple(join([sample[place] for sample in found]) for place in range(len(self.outputs)))

    def _run(self, inputs: Any) -> Any:
        if len(inputs) != len(self.inputs):
            raise Unsupported(f"it has {len(self.inputs)} inputs ({', '.join(self.inputs)}), not {len(inputs)}")
        values: dict[str, Operand] = {**self.constants, **dict(zip(self.inputs, inputs, strict=True))}
        for path, name in self.names.items():
            values[name] = self._tensor(path)
        for node, options in zip(self.nodes, self.options, strict=True):
            if node.op_type != "Constant":
                self._step(node, options, values, len(inputs[0]) if inputs[0].ndim else 1)
        results = [values[name] for name in self.outputs]
        for name, result in zip(self.outputs, results, strict=True):
            if not isinstance(result, torch.Tensor):
                raise InvalidNetwork(f"its output {name[:80]!r} does not come from its input")
        return results[0] if len(results) == 1 else tuple(results)

    def _step(self, node: Any, options: dict[str, Any], values: dict[str, Operand], samples: int) -> None:
        place = _place(node)
        missing = next((name for name in node.input if name and name not in values), None)
        if missing is not None:
            raise InvalidNetwork(f"{place} reads {missing[:80]!r} before it is computed: a cycle, or a missing node")
        operands = [values[name] if name else None for name in node.input]
        try:
            results = self._results(node, options, operands, samples)
        except LawfulError as error:
            raise type(error)(f"{place}: {error}") from None
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [""])[0][:120]
            raise Unsupported(f"{place} is used in an unsupported way ({reason})") from None
        for each in results:
            if isinstance(each, torch.Tensor):
                check_numbers(f"the result of {place}", each.shape)
        values.update(zip(node.output, results, strict=False))

    def _results(self, node: Any, options: dict[str, Any], operands: list[Operand], samples: int) -> list[Operand]:
        kind, first = node.op_type, operands[0] if operands else None
        stated = self.sizes.get(node.output[0])
        if not any(isinstance(each, torch.Tensor) for each in operands):
            return list(computed(node, operands, self.opset, self.folder))
        if kind in ("Shape", "Size"):
            sizes = np.array(tuple(first.shape) if first is not None else (), dtype=np.int64)
            return [sizes[options.get("start", 0) : options.get("end")] if kind == "Shape" else np.array(sizes.prod())]
        if kind == "Split":
            given = options if stated is None else options | {"split": stated}
            return list(split(given, len(node.output), *operands))
        if kind == "Cast":
            return [self._cast(options["to"], operands[0])]
        if kind not in CALLS:
            raise Unsupported("is supported for constants alone")
        if kind == "Reshape" and len(operands) > 1:
            operands[1] = self._resized(operands[1] if stated is None else np.array(stated), samples)
            options = options if stated is None else {}  # a 0 passes a size on
        if kind in ("Softmax", "LogSoftmax"):
            return [CALLS[kind](options, *operands, opset=self.opset)]
        return [CALLS[kind](options, *operands)]

    def _resized(self, shape: Operand, samples: int) -> Operand:
        """A size that is written for one number of samples, for as many as there are."""
        if not isinstance(shape, np.ndarray) or not shape.size or not self.fixed or self.alone or self.bare:
            return shape
        written = int(shape.ravel()[0]) == self.fixed != samples
        return np.array([samples, *shape.ravel()[1:]]) if written and 0 not in shape else shape

    def _cast(self, kind: int, operand: Operand) -> torch.Tensor:
        """Real numbers stay in the module's own type; what a coarser one would round is noted."""
        from onnx import TensorProto

        if not isinstance(operand, torch.Tensor):
            raise Unsupported("its operand is missing")
        reals = {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16",
                 TensorProto.BFLOAT16: "bfloat16"}  # fmt: skip
        whole = {TensorProto.INT64: torch.int64, TensorProto.INT32: torch.int32, TensorProto.BOOL: torch.bool}
        if kind in reals:
            if operand.is_floating_point():
                self.casts.add(reals[kind])
                return operand
            own = next((each.dtype for each in self.parameters() if each.is_floating_point()), torch.float32)
            return operand.to(own)
        if kind not in whole:
            raise Unsupported("casts to a type that is not supported")
        return operand.to(whole[kind])

    def _tensor(self, path: str) -> torch.Tensor:
        where, _, last = path.rpartition(".")
        found: torch.Tensor = getattr(self.get_submodule(where), last)
        return found

    def _hold(self, name: str, numbers: torch.Tensor, trained: bool) -> None:
        """A parameter or buffer under the initializer's name, by its dots; under a number if PyTorch allows no such."""
        *parents, last = name.split(".")
        for path, leaf in ((parents, last), ([], f"tensor{len(self.names)}")):
            try:
                part: nn.Module = self
                for each in path:
                    if each not in part._modules:
                        part.add_module(each, nn.Module())
                    part = part._modules[each]  # type: ignore[assignment]
                if trained:
                    part.register_parameter(leaf, nn.Parameter(numbers))
                else:
                    part.register_buffer(leaf, numbers)
            except KeyError:  # empty, or a name that every module has
                continue
            self.names[".".join((*path, leaf))] = name
            return

    def initializers(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Weights under the names of the file."""
        return {self.names[path]: tensor for path, tensor in weights.items() if path in self.names}


def _place(node: Any) -> str:
    return f"node {(node.name or (node.output[0] if node.output else ''))[:80]!r} ({node.op_type[:40]})"


def _check_known(node: Any) -> None:
    """Refuse what no input could change: an operator that is not known."""
    if node.domain not in DOMAINS or node.op_type not in KNOWN:
        raise Unsupported(f"{_place(node)}: {unread(node)}")


def _answers(graph: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The outputs that are real numbers (those that go into a dictionary, too), and what is left out of the others."""
    from onnx import TensorProto

    reals = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.UNDEFINED)
    makers = {name: node for node in graph.node for name in node.output}
    found: list[str] = []
    left: list[str] = []
    for entry in graph.output:
        maker = makers.get(entry.name)
        if maker is not None and maker.op_type == "ZipMap":
            found.append(maker.input[0])
            left.append(f"the names of classes in output {entry.name[:80]!r} (ZipMap)")
        elif entry.type.WhichOneof("value") in (None, "tensor_type") and entry.type.tensor_type.elem_type in reals:
            found.append(entry.name)
        else:
            left.append(f"output {entry.name[:80]!r} (labels)")
    if not found:
        raise Unsupported("none of its outputs is a tensor of real numbers")
    return tuple(found), tuple(left)


def _needed(graph: Any, outputs: tuple[str, ...]) -> list[Any]:
    """The nodes on which the answers depend, in order."""
    wanted, found = set(outputs), []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            wanted |= set(node.input)
            found.append(node)
    return found[::-1]
