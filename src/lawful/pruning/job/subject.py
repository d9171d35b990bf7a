"""What a job prunes: a module or an ONNX file, read as a program, given new weights, cut, and timed."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.program.frontends.onnx import read_onnx
from lawful.program.program import Program
from lawful.pruning.channels.prune import ChannelPruning, prune_channels, read_program_of
from lawful.pruning.files.exported_module import graph_bytes
from lawful.pruning.files.hugging_face_config import without_caches
from lawful.pruning.files.onnx_channels import OnnxPruning, prune_onnx
from lawful.pruning.files.plain_weights import permanent
from lawful.pruning.job.latency import runtime_latency, torch_latency


class Subject(Protocol):
    """A network before or after."""

    def read(self, size: tuple[int, ...], batch: int) -> Program:
        """Its program for a batch of samples of a size."""

    def cut(
        self, tensors: Mapping[str, torch.Tensor], size: tuple[int, ...]
    ) -> tuple[ChannelPruning | OnnxPruning, Subject]:
        """Put new numbers in, and remove what is silent then: the pruning, and the smaller network."""

    def latency(self, given: torch.Tensor) -> dict[str, float | None]:
        """Milliseconds for some samples, by runtime."""


@dataclass(frozen=True, eq=False)
class ModuleSubject:
    """A PyTorch module in evaluation mode; `whole` samples are numbers of tokens."""

    module: nn.Module
    whole: bool = False

    @classmethod
    def of(cls, module: nn.Module, whole: bool = False) -> ModuleSubject:
        """A copy with plain weights: no masks, norms or parametrisations in between."""
        plain, _ = permanent(module)
        plain = copy.deepcopy(plain).eval()
        without_caches(plain)
        return cls(plain, whole)

    def example(self, size: tuple[int, ...], batch: int) -> torch.Tensor:
        """Zeros that it takes."""
        if self.whole:
            return torch.zeros((batch, *size), dtype=torch.int64)
        kind = next((each.dtype for each in self.module.parameters() if each.is_floating_point()), torch.float32)
        return torch.zeros((batch, *size), dtype=kind)

    def read(self, size: tuple[int, ...], batch: int) -> Program:
        """As exact pruning reads it, so that both know the same channels."""
        return read_program_of(self.module, [self.example(size, batch)])

    def cut(self, tensors: Mapping[str, torch.Tensor], size: tuple[int, ...]) -> tuple[ChannelPruning, ModuleSubject]:
        """A copy with new weights, without what is silent in it."""
        changed = copy.deepcopy(self.module)
        held = {**dict(changed.named_parameters()), **dict(changed.named_buffers())}
        with torch.no_grad():
            for name, tensor in tensors.items():
                held[name].copy_(tensor.reshape(held[name].shape))
        example = self.example(size, 2)
        found = prune_channels(changed, [example if self.whole else tuple(example.shape)])
        return found, ModuleSubject(found.module.eval(), self.whole)

    def latency(self, given: torch.Tensor) -> dict[str, float | None]:
        """PyTorch, and ONNX Runtime where the module can be exported."""
        example = given if self.whole else given.to(self.example((1,), 1).dtype)
        found: dict[str, float | None] = {"PyTorch": torch_latency(self.module, [example])}
        try:
            found["ONNX Runtime"] = runtime_latency(graph_bytes(self.module, [example], ".onnx"), [example])
        except (LawfulError, ImportError):
            found["ONNX Runtime"] = None
        return found


@dataclass(frozen=True, eq=False)
class OnnxSubject:
    """The model of an ONNX file."""

    model: onnx.ModelProto

    def read(self, size: tuple[int, ...], batch: int) -> Program:
        """For the batch that the file states, or for this one where it states none."""
        held = {tensor.name for tensor in self.model.graph.initializer}
        inputs = [entry for entry in self.model.graph.input if entry.name not in held]
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
            values += [(node.output[0], each.t) for each in node.attribute if not node.input and each.name == "value"]
        for name, tensor in values:
            if name in left:
                old = numpy_helper.to_array(tensor)
                new = np.ascontiguousarray(left.pop(name).numpy().astype(old.dtype).reshape(old.shape))
                tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
        if left:
            raise Unsupported(f"the file computes {next(iter(left))[:60]} instead of holding it")
        found = prune_onnx(changed, size=size)
        return found, OnnxSubject(found.model)

    def latency(self, given: torch.Tensor) -> dict[str, float | None]:
        """ONNX Runtime."""
        return {"ONNX Runtime": runtime_latency(self.model.SerializeToString(), [given])}
