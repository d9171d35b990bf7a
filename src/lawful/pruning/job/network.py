"""The network of a job: the module or ONNX file that is given new weights, cut and timed, and its program as it runs.

A `Subject` is what is pruned; a `RunnableProgram` is run batch by batch, with weights that change and watched values.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.program.backends.torch_calls import TorchProgram
from lawful.program.frontends.onnx import read_onnx
from lawful.program.program import Node, Program
from lawful.pruning.channels.model_files import graph_bytes, without_caches
from lawful.pruning.channels.onnx_file import OnnxPruning, prune_onnx
from lawful.pruning.channels.prune import ChannelPruning, make_permanent, prune_channels, read_program_of
from lawful.types import Floats

REAL = torch.float32  # what networks are trained and run in; sums of products are kept in float64


class RunnableProgram:
    """A program, and its weights as tensors by name; the batch is the one that it was read with."""

    def __init__(self, program: Program, tensors: Mapping[str, Any] | None = None) -> None:
        if len(program.inputs) != 1:
            raise Unsupported(f"a network with one input is pruned to a size, and this one has {len(program.inputs)}")
        self.program = program
        self.batch = program.inputs[0].shape[0]
        several = len(program.outputs) > 1
        if several and any(output.shape[:1] != (self.batch,) for output in program.outputs):
            raise Unsupported("an output of this network has no axis of samples: outputs cannot be compared by sample")
        numbers = program.tensors if tensors is None else tensors
        self.tensors = {name: _tensor(numbers[name]) for name in (*program.parameters, *program.buffers)}
        self._runs: dict[tuple[Node, ...], TorchProgram] = {}

    @property
    def classes(self) -> int:
        """How many columns of the outputs are score labels: those of the first output, 0 if it is no row of them."""
        sizes = self.program.outputs[0].shape
        return sizes[1] if len(sizes) == 2 and sizes[1] > 1 else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Which of several outputs a statement is about."""
        count = len(self.program.outputs)
        return (f"labels are those of the first of {count} outputs; changes are of all",) if count > 1 else ()

    def with_tensors(self, tensors: Mapping[str, Any]) -> RunnableProgram:
        """The same program with other numbers."""
        changed = RunnableProgram(self.program, {**self.tensors, **tensors})
        changed._runs = self._runs
        return changed

    def batches(self, x: Floats, *, whole: bool = False) -> Iterator[tuple[slice, torch.Tensor]]:
        """Samples in batches; the last one is filled up with its first sample, or left out if batches are `whole`."""
        if x.shape[1:] != self.program.inputs[0].shape[1:]:
            raise LawfulError(f"samples have size {x.shape[1:]}, the network takes {self.program.inputs[0].shape[1:]}")
        kind = REAL if self.program.inputs[0].kind == "f" else torch.int64
        for start in range(0, len(x), self.batch):
            rows = slice(start, min(start + self.batch, len(x)))
            batch = torch.as_tensor(np.ascontiguousarray(x[rows])).to(kind)
            missing = self.batch - len(batch)
            if missing and whole:
                return
            if missing:
                batch = torch.cat([batch, batch[:1].expand(missing, *batch.shape[1:])])
            yield rows, batch

    def run(self, given: torch.Tensor, watched: Sequence[Node] = ()) -> tuple[torch.Tensor, ...]:
        """All outputs as one tensor (`join_outputs`), and the watched values."""
        key, program = tuple(watched), self.program
        if key not in self._runs:
            wanted = Program.of(program.inputs, (*program.outputs, *key), program.tensors)
            self._runs[key] = TorchProgram(wanted)
        values = self._runs[key]([given], self.tensors, REAL)
        count = len(program.outputs)
        return join_outputs(values[:count]), *values[count:]

    def values(self, given: torch.Tensor, watched: Sequence[Node]) -> tuple[torch.Tensor, ...]:
        """Watched values alone: nothing behind them is computed."""
        key = (*watched, self.program.inputs[0])
        if key not in self._runs:
            self._runs[key] = TorchProgram(Program.of(self.program.inputs, watched, self.program.tensors))
        return self._runs[key]([given], self.tensors, REAL)

    @torch.no_grad()
    def outputs(self, x: Floats) -> torch.Tensor:
        """All outputs for all samples."""
        return torch.cat([self.run(batch)[0][: rows.stop - rows.start] for rows, batch in self.batches(x)])


def join_outputs(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """One output as it is; several side by side, a row of all their entries for each sample.

    No output may be left out: what no score, repair or measurement looks at would be pruned away.

    >>> join_outputs([torch.zeros(2, 3), torch.zeros(2, 4, 5)]).shape
    torch.Size([2, 23])
    """
    if len(outputs) == 1:
        return outputs[0]
    return torch.cat([output.reshape(len(output), -1) for output in outputs], 1)


def module_outputs(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The outputs of a module in the same form."""
    return join_outputs(_tensors_in(module(x)))


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a result in their order: a tensor, or a tuple, list or dictionary of results."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _tensors_in(part)]


def _tensor(held: Any) -> torch.Tensor:
    tensor = held.detach().cpu() if isinstance(held, torch.Tensor) else torch.as_tensor(np.array(held))
    return tensor.to(REAL) if tensor.is_floating_point() else tensor


# Time is the least of so many runs, or of those in so many seconds, on one thread.
RUNS, SECONDS = 60, 0.5
Runs = Mapping[str, Callable[[], Any] | None]


class Subject(Protocol):
    """A network before or after."""

    def read(self, size: tuple[int, ...], batch: int) -> Program:
        """Its program for a batch of samples of a size."""

    def cut(
        self, tensors: Mapping[str, torch.Tensor], size: tuple[int, ...]
    ) -> tuple[ChannelPruning | OnnxPruning, Subject]:
        """Put new numbers in, and remove what is silent then: the pruning, and the smaller network."""

    def runs(self, given: torch.Tensor) -> Runs:
        """Calls with some samples, by runtime; None where a runtime is missing or refuses the network."""


@dataclass(frozen=True, eq=False)
class ModuleSubject:
    """A PyTorch module in evaluation mode; `whole` samples are numbers of tokens."""

    module: nn.Module
    whole: bool = False

    @classmethod
    def of(cls, module: nn.Module, whole: bool = False) -> ModuleSubject:
        """A copy with plain weights: no masks, norms or parametrisations in between."""
        plain, _ = make_permanent(module)
        plain = copy.deepcopy(plain).eval()
        without_caches(plain)
        return cls(plain, whole)

    def example(self, size: tuple[int, ...], batch: int) -> torch.Tensor:
        """Zeros that it takes."""
        if self.whole:
            return torch.zeros((batch, *size), dtype=torch.int64)
        kind = next(
            (parameter.dtype for parameter in self.module.parameters() if parameter.is_floating_point()), torch.float32
        )
        return torch.zeros((batch, *size), dtype=kind)

    def batch(self, x: Floats) -> torch.Tensor:
        """Samples as it takes them."""
        return torch.as_tensor(x).to(self.example((1,), 1).dtype)

    def read(self, size: tuple[int, ...], batch: int) -> Program:
        """As exact pruning reads it, so that both know the same channels."""
        return read_program_of(self.module, [self.example(size, batch)])

    @torch.no_grad()
    def with_numbers(self, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
        """A copy of the module in which some tensors are others, each rounded to the type that it is stored in."""
        changed = copy.deepcopy(self.module)
        by_name = {**dict(changed.named_parameters()), **dict(changed.named_buffers())}
        for name, tensor in tensors.items():
            by_name[name].copy_(tensor.reshape(by_name[name].shape))
        return changed

    def cut(self, tensors: Mapping[str, torch.Tensor], size: tuple[int, ...]) -> tuple[ChannelPruning, ModuleSubject]:
        """A copy with new weights, without what is silent in it."""
        example = self.example(size, 2)
        pruning = prune_channels(self.with_numbers(tensors), [example if self.whole else tuple(example.shape)])
        return pruning, ModuleSubject(pruning.module.eval(), self.whole)

    def runs(self, given: torch.Tensor) -> Runs:
        """PyTorch, and ONNX Runtime where the module can be exported."""
        example = given if self.whole else given.to(self.example((1,), 1).dtype)
        try:
            exported = _session_run(graph_bytes(self.module, [example], ".onnx"), example)
        except (LawfulError, ImportError):
            exported = None
        return {"PyTorch": lambda: self.module(example), "ONNX Runtime": exported}


@dataclass(frozen=True, eq=False)
class OnnxSubject:
    """The model of an ONNX file."""

    model: onnx.ModelProto

    def read(self, size: tuple[int, ...], batch: int) -> Program:
        """For the batch that the file states, or for this one where it states none."""
        stored_names = {tensor.name for tensor in self.model.graph.initializer}
        inputs = [entry for entry in self.model.graph.input if entry.name not in stored_names]
        if len(inputs) != 1:
            raise Unsupported(f"a network with one input is pruned to a size, and this one has {len(inputs)}")
        stated = [dim.dim_value for dim in inputs[0].type.tensor_type.shape.dim]
        if stated and len(stated) == len(size) and math.prod(stated) == math.prod(size):
            raise Unsupported("its input has no axis of samples")
        return read_onnx(self.model, {inputs[0].name: ((stated[0] if stated and stated[0] > 0 else batch), *size)})

    def cut(self, tensors: Mapping[str, torch.Tensor], size: tuple[int, ...]) -> tuple[OnnxPruning, OnnxSubject]:
        """The file with new numbers, without what is silent in it."""
        changed = onnx.ModelProto()
        changed.CopyFrom(self.model)
        left = dict(tensors)
        values = [(tensor.name, tensor) for tensor in changed.graph.initializer]
        for node in changed.graph.node:
            values += [
                (node.output[0], attribute.t)
                for attribute in node.attribute
                if not node.input and attribute.name == "value"
            ]
        for name, tensor in values:
            if name in left:
                old = numpy_helper.to_array(tensor)
                new = np.ascontiguousarray(left.pop(name).numpy().astype(old.dtype).reshape(old.shape))
                tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
        if left:
            raise Unsupported(f"the file computes {next(iter(left))[:60]} instead of holding it")
        pruning = prune_onnx(changed, size=size)
        return pruning, OnnxSubject(pruning.model)

    def runs(self, given: torch.Tensor) -> Runs:
        """ONNX Runtime."""
        return {"ONNX Runtime": _session_run(self.model.SerializeToString(), given)}


@torch.no_grad()
def time_together(before: Runs, after: Runs) -> dict[str, tuple[float | None, float | None]]:
    """Milliseconds of one call before and after, by runtime, on one thread: the least of some runs, taken in turn.

    In turn, for a machine that is busy for a while is so for both; the least, for it only makes calls longer.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {name: _least_times(run, after.get(name)) for name, run in before.items()}
    finally:
        torch.set_num_threads(threads)


def _least_times(*runs: Callable[[], Any] | None) -> tuple[float | None, float | None]:
    best = [float("inf") if run is not None else None for run in runs]
    for run in runs:
        if run is not None:
            run()
    started = time.perf_counter()
    for _ in range(RUNS):
        for place, run in enumerate(runs):
            if run is not None:
                begin = time.perf_counter()
                run()
                best[place] = min(best[place] or 0.0, 1e3 * (time.perf_counter() - begin))
        if time.perf_counter() - started > len(runs) * SECONDS:
            break
    return best[0], best[1]


def _session_run(content: bytes, example: torch.Tensor) -> Callable[[], Any] | None:
    """A call of an ONNX file in ONNX Runtime; None where that is not installed or refuses the file."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        feeds = {session.get_inputs()[0].name: example.numpy()}
        session.run(None, feeds)
    except Exception:  # whatever the runtime raises: its kinds of errors have no common base
        return None
    return lambda: session.run(None, feeds)
