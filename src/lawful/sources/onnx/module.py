"""An ONNX file as a PyTorch module: its weights are the parameters, its program is read for each size of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.graphs import onnx_file
from lawful.network.reading import Reading, list_names
from lawful.program import Program
from lawful.program.backends.torch_calls import TorchProgram
from lawful.program.frontends.onnx import SizeStatement, read_onnx, read_statements, real_outputs, whole_inputs
from lawful.program.frontends.onnx_weights import OnnxWeights, held_tensors, read_weights
from lawful.program.table import OperatorFamily, TooShort

ROUNDS = "rounds to "  # how a program's notes begin that say of a cast to fewer bits
STEPS = "rounds between layers"  # and that say of a quantised network
SEVERAL = 2  # samples: a file that is written for one takes others one by one


class OnnxGraph:
    """A file's graph: what all copies of a module share. Its numbers are read once, into the module."""

    def __init__(self, model: Any, folder: Path) -> None:
        """Find what is trained and what the outputs are; refuse what no size could change."""
        graph = model.graph
        if graph.sparse_initializer:
            raise Unsupported("sparse initializers are not supported")
        self.model, self.folder, self.load = model, folder, partial(onnx_file.array, folder=folder)
        stored = {tensor.name for tensor in graph.initializer}
        self.inputs = tuple(entry.name for entry in graph.input if entry.name not in stored)
        self.outputs, self.left_out = real_outputs(graph)
        self.whole = whole_inputs(graph)
        self.weights: OnnxWeights = read_weights(graph, self.load)
        self.tensors = dict(held_tensors(graph))

    def __deepcopy__(self, memo: Any) -> OnnxGraph:
        return self


class OnnxModule(nn.Module):
    """What an ONNX graph computes. Weights have the names of their initializers, `names` maps ours to those.

    The first axis of an input counts samples. `alone` runs the graph on one sample after another, for graphs whose
    sizes are written for one; `bare` graphs know no samples at all. `input_sizes` are those of the inputs without the
    samples, as the file states them or as they were chosen; `8:int` is for whole numbers. Inputs in `values` are
    constants: a sampling rate, a scale. Normalisations keep their stored statistics.
    `reading` is how the file was read. `sizes` replace what nodes state of sizes, by their first outputs: channels may
    have left.
    """

    input_sizes: tuple[tuple[int, ...] | str, ...] = ()
    reading: Reading | None = None

    def __init__(self, model: Any, folder: Path) -> None:
        """Read the weights; programs are read when sizes are known."""
        super().__init__()
        self.graph = OnnxGraph(model, folder)
        self.alone, self.bare, self.fixed = False, False, 0
        self.names: dict[str, str] = {}
        weights = self.graph.weights
        for name in (*weights.trained, *weights.kept):
            numbers = torch.from_numpy(self.graph.load(self.graph.tensors[name]).copy())
            self._register(name, numbers, name in weights.trained)
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.values: dict[str, Any] = {}
        self.programs: dict[Any, TorchProgram] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Copies read their programs anew."""
        return {**self.__dict__, "programs": {}}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that are no constants."""
        return tuple(name for name in self.graph.inputs if name not in self.values)

    @property
    def casts(self) -> set[str]:
        """The types to which values are cast inside, as far as programs were read."""
        notes = {note for program in self.programs.values() for note in program.program.notes}
        return {note.removeprefix(ROUNDS) for note in notes if note.startswith(ROUNDS)}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its programs say besides: roundings between layers, and calls that are run but not understood."""
        programs = [program.program for program in self.programs.values()]
        words = []
        if any(note.startswith(STEPS) for program in programs for note in program.notes):
            words.append("values are rounded between layers (a quantised file): through a rounding the gradient is 0")
        unknown = sorted({name for program in programs for name in program.opaque})
        if unknown:
            share = max(_behind_unknown(program) for program in programs)
            words.append(f"{list_names(unknown)}: run by ONNX's reference and not understood, {share} feed it")
        return tuple(words)

    def program(self, inputs: Sequence[torch.Tensor | tuple[int, ...]]) -> Program:
        """The program for inputs of these sizes, with the module's own weights."""
        shapes = [tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else tuple(tensor) for tensor in inputs]
        state = {name: self._tensor(path).detach() for path, name in self.names.items()}
        return replace(self._program(shapes).program, tensors=state)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The outputs for a batch: a tensor, or a tuple if there are several."""
        if len(inputs) != len(self.inputs):
            raise Unsupported(f"it has {len(self.inputs)} inputs ({', '.join(self.inputs)}), not {len(inputs)}")
        results = self._run_each(inputs) if self.alone or self.bare else self._run(inputs)
        return results[0] if len(results) == 1 else results

    def keeps_apart(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether samples give the same side by side as one after another."""
        try:
            together = self._run(inputs)
        except LawfulError:
            if self.fixed != 1:
                raise
            self._run_each(inputs)  # what is wrong with one sample as well is said when the file is opened
            return False
        try:
            return is_close(together, self._run_each(inputs))
        except LawfulError:
            if self.fixed < SEVERAL:
                raise
            return False  # written for so many entries along its first axis, and for no others

    def _run_each(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        runs = [
            self._run([tensor[k] if self.bare else tensor[k : k + 1] for tensor in inputs])
            for k in range(len(inputs[0]))
        ]
        return tuple(
            torch.stack(parts) if self.bare or not parts[0].ndim else torch.cat(parts)
            for parts in zip(*runs, strict=True)
        )

    def _run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        program = self._program([tuple(int(n) for n in tensor.shape) for tensor in inputs])
        tensors = {name: self._tensor(path) for path, name in self.names.items()}
        real = next((tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), torch.float32)
        try:
            return program(inputs, tensors, real)
        except IndexError:
            raise Unsupported("an index lies outside its table: one of its inputs holds ids, and got others") from None
        except RuntimeError as error:
            if "Kernel size" not in str(error):
                raise
            raise TooShort from None

    def _program(self, shapes: Sequence[tuple[int, ...]]) -> TorchProgram:
        """The program for inputs of these sizes and weights of today's."""
        current = [self._tensor(path).shape for path in self.names]
        values = tuple((name, value.item()) for name, value in self.values.items())
        key = (tuple(shapes), tuple(current), tuple(sorted(self.sizes.items())), values)
        # A program is read for sizes, and sizes follow from inputs and weights: reading takes longer than running.
        if key not in self.programs:
            sizes = dict(zip(self.inputs, shapes, strict=True))
            program = read_onnx(self.graph.model, sizes, self.values, **self._settings(shapes))
            self._check(program)
            self.programs[key] = TorchProgram(program)
        return self.programs[key]

    def statements(self, inputs: Sequence[torch.Tensor]) -> tuple[Program, list[SizeStatement]]:
        """What the file's nodes state of sizes, for such inputs, and the program of the values that they speak of."""
        one = 0 if self.bare else slice(0, 1) if self.alone else slice(None)
        shapes = [tuple(tensor[one].shape) for tensor in inputs]
        sizes = dict(zip(self.inputs, shapes, strict=True))
        return read_statements(self.graph.model, sizes, self.values, **self._settings(shapes))

    def _settings(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, Any]:
        samples = shapes[0][0] if shapes and shapes[0] and self.fixed and not (self.alone or self.bare) else 0
        return {
            "outputs": self.graph.outputs,
            "weights": self.graph.weights,
            "tensors": {name: _Size(tuple(self._tensor(path).shape)) for path, name in self.names.items()},
            "stated": self.sizes,
            "samples": (self.fixed, samples) if samples else None,
            "load": self.graph.load,
        }

    def _check(self, program: Program) -> None:
        reached = set()
        for node in program.nodes:
            if node.op == "input" or any(operand in reached for operand in node.inputs):
                reached.add(node)
        if len(program.outputs) != len(self.graph.outputs):
            raise LawfulError("an output is a sequence, not a tensor")
        for name, node in zip(self.graph.outputs, program.outputs, strict=True):
            if node not in reached and node.family is OperatorFamily.LEAF:
                raise InvalidNetwork(f"its output {name[:80]!r} does not come from its input")

    def _tensor(self, path: str) -> torch.Tensor:
        where, _, last = path.rpartition(".")
        tensor: torch.Tensor = getattr(self.get_submodule(where), last)
        return tensor

    def _register(self, name: str, numbers: torch.Tensor, trained: bool) -> None:
        """A parameter or buffer under the initializer's name, by its dots; under a number if PyTorch allows no such."""
        *parents, last = name.split(".")
        # Users find their tensors by the names of the file, where PyTorch allows them.
        for path, leaf in ((parents, last), ([], f"tensor{len(self.names)}")):
            try:
                part: nn.Module = self
                for parent in path:
                    if parent not in part._modules:
                        part.add_module(parent, nn.Module())
                    part = part._modules[parent]  # type: ignore[assignment]
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


def _behind_unknown(program: Program) -> str:
    """How many of the parameters a call that is not understood depends on, in words."""
    left = [node for node in program.nodes if node.family is OperatorFamily.OPAQUE]
    seen = set(left)
    while left:
        fresh = [operand for operand in left.pop().inputs if operand not in seen]
        seen.update(fresh)
        left += fresh
    sizes = [node.size for node in program.parameters.values()]
    behind = sum(node.size for node in program.parameters.values() if node in seen)
    return f"{behind:,} of {sum(sizes):,} parameters"


class _Size:
    """A tensor of which a program needs the size alone: the module holds its numbers, today's."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


def list_tensors(found: Any) -> list[torch.Tensor]:
    """The outputs of a module, in float64."""
    return [output.double() for output in (found if isinstance(found, tuple) else (found,))]


def is_close(one: Any, two: Any, tolerance: float = 1e-3) -> bool:
    """Whether outputs agree within a tolerance, relative to the largest; infinite where the others are."""
    pairs = list(zip(list_tensors(one), list_tensors(two), strict=True))
    return all(
        a.shape == b.shape
        and bool((a.isfinite() == b.isfinite()).all())
        and bool((a - b).nan_to_num(0, 0, 0).abs().max() <= tolerance * (b.nan_to_num(0, 0, 0).abs().max() + 1e-6))
        for a, b in pairs
        if a.numel()
    )
