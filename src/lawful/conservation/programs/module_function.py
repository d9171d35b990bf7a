"""A PyTorch module as a function of its trainable parameters, looked at once and refused if it cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from lawful.conservation.fields.normalisations import composite
from lawful.conservation.programs.single_tensor import join_outputs, list_tensors, several_tensors, with_classes_last
from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.reading import list_names
from lawful.program.core.straight_line import StraightLineProgram
from lawful.program.domains.straighten import straighten
from lawful.program.frontends.export import twin_of
from lawful.program.frontends.torch_function import read_function
from lawful.sources.modules.classes import assumed_of_inputs, vocabulary_of
from lawful.sources.modules.classes import classes_axis as axis_of_classes
from lawful.sources.modules.convert import input_shapes
from lawful.sources.modules.functional_call import call_with
from lawful.sources.modules.randomness import Draw, draw_from, open_gates, read_draws, sample_draws
from lawful.sources.modules.trained_field import drop_hooks, follows_gradient, refuse_special_parameters

MIXED = 8  # inputs in one field: piecewise linear modules need to be seen in many of their pieces
SIZES = 0.7  # and inputs of sizes from 10^-0.7 to 10^0.7
FAR_OUT = 0.25  # of which this share is ten times as large where there are kinks
LARGE = 5.0  # the size of a parameter tensor's entries above which any others serve better
MODES = ("eval", "train")
RANDOM_IN = {
    "eval": "eval mode: {} is off, though training draws from it",
    "train": "train mode: {} draws new random numbers at every step, and laws hold whatever they are",
}
WITHOUT_CASTS = "the module's casts to narrower types of numbers are left out: its numbers count as real ones"
NARROW = (torch.float32, torch.float16, torch.bfloat16)
CASTS = ("float", "half", "bfloat16")  # methods that name a type


@dataclass(frozen=True, eq=False)
class Probe:
    """A module as a function of its trainable parameters: `f(θ) = ⟨w, g_θ(x)⟩`."""

    module: torch.nn.Module
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    data: torch.Tensor | None
    loss: str
    vocabulary: int | None = None
    piecewise: bool = True
    has_modes: bool = False
    mode: str = "eval"
    gradient: bool = True  # training follows the gradient of what the module computes
    padded: tuple[str, ...] = ()  # tables with a row that training leaves alone
    mixes: bool = False  # a sample's output depends on the rest of its batch
    random: tuple[str, ...] = ()  # the functions that draw random numbers in this mode
    iterated: tuple[str, ...] = ()  # buffers of power iterations, which may be any numbers: training moves them
    assumed: tuple[str, ...] = ()  # what the counts rest on: the mode, the classes

    @property
    def size(self) -> int:
        """Number of trainable parameters."""
        return sum(shape.numel() for shape in self.shapes)

    @property
    def places(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The names and shapes of the trainable parameters."""
        return tuple((name, tuple(shape)) for name, shape in zip(self.names, self.shapes, strict=True))

    @property
    def unlike(self) -> str:
        """Why training follows another field than the gradient."""
        still = f"padding keeps a row of {', '.join(self.padded)} still" if self.padded else ""
        detached = "" if self.gradient else "it detaches a value, or has a hook or a backward pass of its own"
        return " and ".join(part for part in (still, detached) if part)

    def unflatten(self, theta: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parameters by name."""
        parts = torch.split(theta, [shape.numel() for shape in self.shapes])
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def value(
        self, theta: torch.Tensor, inputs: torch.Tensor, weights: torch.Tensor, numbers: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`⟨w, g_θ(x)⟩`, with these random numbers if it draws any."""
        return (self.output(self.unflatten(theta), inputs, numbers) * weights).sum()

    def output(
        self, tensors: Mapping[str, torch.Tensor], inputs: torch.Tensor, numbers: torch.Tensor | None
    ) -> torch.Tensor:
        """`g_θ(x)`; the random numbers come after the buffers that may be any."""
        iterates: dict[str, torch.Tensor] = {}
        for name in self.iterated:
            if numbers is not None:
                buffer = self.module.get_buffer(name)
                iterates[name] = numbers[: buffer.numel()].reshape(buffer.shape)
                numbers = numbers[buffer.numel() :]
        with draw_from(numbers if self.random else None):
            result: torch.Tensor = call_with(self.module, {**tensors, **iterates}, (inputs,))
        return result

    @property
    def classes(self) -> int:
        """How many outputs in a row have slopes that sum to 0: the classes of cross-entropy, which stand last."""
        return self.output_shape[-1] if self.loss == "cross-entropy" else 0

    def draws(self, samples: int) -> tuple[Draw, ...]:
        """What a call on so many samples draws, after the buffers that may be any numbers."""
        iterates = tuple(Draw("real", self.module.get_buffer(name).numel(), name) for name in self.iterated)
        if not self.random:
            return iterates
        kind = torch.float64 if self.vocabulary is None else torch.int64
        batch = torch.zeros((samples, *self.input_shape), dtype=kind)
        with torch.no_grad():
            return iterates + read_draws(lambda: self.module(batch))

    def own_theta(self) -> torch.Tensor:
        """The module's parameters."""
        parameters = dict(self.module.named_parameters())
        return torch.cat([parameters[name].detach().double().flatten() for name in self.names])

    def theta(self, seed: int, spread: float) -> torch.Tensor:
        """The module's parameters, each tensor moved by `spread` times its own size, to be generic.

        Where any weights will do (a spread of 1) tensors of large numbers are scaled down first: float64 has no room
        for them beside others.
        """
        generator = torch.Generator().manual_seed(seed)
        parts = []
        parameters = dict(self.module.named_parameters())
        for name, shape in zip(self.names, self.shapes, strict=True):
            values = parameters[name].detach()
            scale = max(float(values.square().mean().sqrt()), 0.2)
            if spread == 1.0 and scale > LARGE:
                values, scale = values * (LARGE / scale), LARGE
            noise = torch.randn(shape, generator=generator, dtype=torch.float64)
            parts.append((values + spread * scale * noise).flatten())
        return torch.cat(parts)

    def draw(self, seed: int, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Random inputs (or all the data), output weights, orthogonal to 1 for cross-entropy, and random numbers."""
        generator = torch.Generator().manual_seed(seed)
        if self.data is None:
            inputs = self._draw_inputs((rows, MIXED, *self.input_shape), generator)
        else:
            inputs = self.data.expand(rows, *self.data.shape)
        samples = inputs.shape[1]
        weights = torch.randn((rows, samples, *self.output_shape), generator=generator, dtype=torch.float64)
        if self.loss == "cross-entropy":
            weights = weights - weights.mean(dim=-1, keepdim=True)
        return inputs, weights, sample_draws(self.draws(samples), rows, generator)

    def sizes(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """How large random inputs are; some are larger for modules with kinks, which may lie far out."""
        exponents = 2 * SIZES * torch.rand(shape, generator=generator, dtype=torch.float64) - SIZES
        if self.piecewise:
            exponents = exponents + (torch.rand(shape, generator=generator) < FAR_OUT)
        return 10**exponents

    def _draw_inputs(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """Tokens for a module with an embedding, else normal numbers of many sizes."""
        if self.vocabulary is not None:
            return torch.randint(self.vocabulary, shape, generator=generator)
        sizes = self.sizes(shape[:2], generator)
        inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
        return inputs * sizes.view(*shape[:2], *([1] * len(self.input_shape)))


def probe(
    module: torch.nn.Module,
    input_shape: tuple[int, ...] | None,
    data: ArrayLike | None = None,
    loss: str = "full",
    mode: str = "train",
    classes_axis: int | None = None,
) -> Probe:
    """Look at a module once: its parameters, its output, and whether it can be differentiated at all.

    In the mode "train" the module runs as in training: batch norms use the statistics of the batch (eight random
    inputs, or all the data) and move no others, and what is random draws its numbers from the samples of fields.
    Several outputs count as one. Under cross-entropy the classes are the axis 1 of the output, as in PyTorch, or the
    last axis of a module that reads tokens, if `classes_axis` says nothing else.
    """
    if mode not in MODES:
        raise LawfulError(f"unknown mode {mode!r}: choose from {', '.join(MODES)}")
    refuse_special_parameters(module)
    options = input_shape, data, loss, mode, classes_axis
    try:
        return _look(module, _twin(module), *options)
    except _FailingModule as error:
        try:
            without_autocast = _look(module, without_casts(_twin(module)), *options)
        except LawfulError:
            raise error from None
    return replace(without_autocast, assumed=(*without_autocast.assumed, WITHOUT_CASTS))


def _twin(module: torch.nn.Module) -> torch.nn.Module:
    try:
        return twin_of(module).eval()
    except Exception as error:
        raise Unsupported(f"the module cannot be copied: {first_line(error)}") from None


class _FailingModule(Unsupported):
    """A module whose own code raises."""


def _look(
    module: torch.nn.Module,
    twin: torch.nn.Module,
    input_shape: tuple[int, ...] | None,
    data: ArrayLike | None,
    loss: str,
    mode: str,
    classes_axis: int | None,
) -> Probe:
    has_modes = any(isinstance(part, torch.nn.modules.batchnorm._NormBase) for part in twin.modules())
    if mode == "train":
        _train(twin)
    if isinstance(twin, torch.nn.RNNBase):
        twin.batch_first = True  # samples are the first axis here: an input is one sequence
    trainable = [(name, value) for name, value in twin.named_parameters() if value.requires_grad]
    if not trainable:
        raise InvalidNetwork("the module has no trainable parameters")
    if data is None and input_shape is None:
        input_shape = _guess_shape(twin)
    shape = tuple(np.shape(data)[1:]) if data is not None else tuple(input_shape or ())
    vocabulary = vocabulary_of(twin, shape)
    points = None
    if data is not None:
        points = torch.as_tensor(np.asarray(data, dtype=np.float64 if vocabulary is None else np.int64))
    batch = points if points is not None else torch.randn((MIXED, *shape), generator=_fixed(), dtype=torch.float64)
    if points is None and vocabulary is not None:
        batch = torch.randint(vocabulary, (MIXED, *shape), generator=_fixed())
    assumed: tuple[str, ...] = assumed_of_inputs(twin, shape) if data is None else ()
    iterated: tuple[str, ...] = ()
    with torch.random.fork_rng(devices=[]):
        if mode == "train":
            iterated = _hold_iterations(twin)
            _refuse_changes(twin, batch, shape)
        first = _call(twin, batch, shape)
        if not isinstance(first, torch.Tensor):
            if loss == "cross-entropy" and several_tensors(first):
                raise Unsupported("cross-entropy of a module with several outputs: which of them are classes?")
            twin = join_outputs(twin, _sample_axes(twin, batch, shape))
        drop_hooks(twin, batch)
        draws = read_draws(lambda: _call(twin, batch, shape))
        if loss == "cross-entropy":
            twin, words = _with_classes(twin, batch, shape, classes_axis, vocabulary)
            assumed += words
        with _Calls() as calls:
            output = _output(twin, batch, shape)
        names, values = zip(*trainable, strict=True)
        shapes = tuple(value.shape for value in values)
        kinked = _is_piecewise(twin, dict(trainable), batch)
        padded = tuple(name for name, value in trainable if id(value) in calls.padded)
        gradient = follows_gradient(twin, batch, without=padded)
        random = tuple(dict.fromkeys(draw.function for draw in draws))
        case = Probe(
            twin, names, shapes, shape, tuple(output.shape[1:]), points, loss, vocabulary, kinked, has_modes, mode,
            gradient, padded, _mixes(twin, batch, output), random, iterated,
        )  # fmt: skip
        dropped = {draw.function for draw in draws} if mode == "train" else _drawn_in_training(module, batch)
    if iterated:
        assumed += (f"train mode: the vectors {list_names(iterated)} of power iterations may be any",)
    if dropped:
        assumed += (RANDOM_IN[mode].format(list_names(sorted(dropped))),)
    return replace(case, has_modes=has_modes or bool(dropped), assumed=assumed)


def _drawn_in_training(module: torch.nn.Module, batch: torch.Tensor) -> set[str]:
    """The functions that would draw random numbers in train mode, as far as can be told."""
    with suppress(Exception), torch.no_grad():  # whatever the module's own code raises
        twin = twin_of(module)
        _train(twin)
        return {draw.function for draw in read_draws(lambda: twin(batch))}
    return set()


def _with_classes(
    twin: torch.nn.Module, batch: torch.Tensor, shape: tuple[int, ...], axis: int | None, vocabulary: int | None
) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """The module with the classes of cross-entropy on its last axis, and what was assumed of them."""
    sizes = tuple(_call(twin, batch, shape).shape)
    chosen = axis_of_classes(sizes, tokens=vocabulary is not None, axis=axis)
    words: tuple[str, ...] = ()
    if len(sizes) > 2 and axis is None:
        habit = "as language models are trained" if vocabulary is not None else "as in PyTorch"
        words = (f"the {sizes[chosen]} classes of cross-entropy are axis {chosen} of the output, {habit}",)
    return (twin if chosen == len(sizes) - 1 else with_classes_last(twin, chosen)), words


def _is_piecewise(twin: torch.nn.Module, tensors: dict[str, torch.Tensor], batch: torch.Tensor) -> bool:
    """Whether a module may be smooth in pieces only; so it is sampled if its calls cannot be listed."""

    def output(tensors: dict[str, torch.Tensor], inputs: torch.Tensor) -> Any:
        with open_gates():
            return call_with(twin, tensors, (inputs,))

    try:
        return read_function(output, {name: value.detach() for name, value in tensors.items()}, [batch]).has_kinks
    except LawfulError:
        return True


class _Calls(TorchFunctionMode):
    """The tables with a row for padding that are looked up inside."""

    def __init__(self) -> None:
        super().__init__()
        self.padded: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.embedding:
            self._looked_up(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _looked_up(
        self, input: torch.Tensor, weight: torch.Tensor, padding_idx: int | None = None, *rest: Any, **options: Any
    ) -> None:
        if padding_idx is not None:
            self.padded.add(id(weight))


def _train(module: torch.nn.Module) -> None:
    """Train mode, without running statistics, which it does not read."""
    for part in module.modules():
        part.training = True
        if isinstance(part, torch.nn.modules.batchnorm._NormBase):
            part.track_running_stats = False
            part.running_mean = part.running_var = part.num_batches_tracked = None


def _hold_iterations(module: torch.nn.Module) -> tuple[str, ...]:
    """Stop power iterations (`spectral_norm`): their vectors follow the weights, so any vectors have to be allowed."""
    names: list[str] = []
    for prefix, part in module.named_modules():
        dot = f"{prefix}." if prefix else ""
        if isinstance(part, _SpectralNorm):
            part.training = False
            names += [f"{dot}{name}" for name in ("_u", "_v") if name in part._buffers]
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm):
                hook.n_power_iterations = 0
                names += [f"{dot}{hook.name}{end}" for end in ("_u", "_v")]
    return tuple(names)


def _refuse_changes(module: torch.nn.Module, batch: torch.Tensor, shape: tuple[int, ...]) -> None:
    """A module whose calls change what later calls compute has no one field that training follows."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    _call(module, batch, shape)
    changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, before[name])]
    with torch.no_grad():
        for name in changed:
            module.get_buffer(name).copy_(before[name])
    if changed:
        raise Unsupported(
            f"in train mode every call changes {list_names(changed)}, which later calls may read: "
            "what training follows is not known"
        )


def _sample_axes(module: torch.nn.Module, batch: torch.Tensor, shape: tuple[int, ...]) -> list[int]:
    """Which axis of each output counts samples (that of a recurrent layer's states is the second)."""
    whole, half = (list_tensors(_call(module, part, shape)) for part in (batch, batch[: max(len(batch) // 2, 1)]))
    axes = [
        [axis for axis, sizes in enumerate(zip(one.shape, two.shape, strict=True)) if sizes[0] != sizes[1]]
        for one, two in zip(whole, half, strict=True)
    ]
    return [candidates[0] if len(candidates) == 1 else 0 for candidates in axes]


def _mixes(module: torch.nn.Module, batch: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether the first half of a batch has other outputs alone, with all gates open."""
    half = max(len(batch) // 2, 1)
    with torch.no_grad():
        try:
            with open_gates():
                alone: torch.Tensor = module(batch[:half])
        except Exception:  # statistics of one sample
            return True
    return alone.shape != output[:half].shape or not torch.allclose(alone, output[:half], rtol=1e-9, atol=1e-12)


def _output(module: torch.nn.Module, batch: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """What it computes with all gates open; refused if the same draws give something else."""
    with open_gates():
        first: torch.Tensor = _call(module, batch, shape)
        again: torch.Tensor = _call(module, batch, shape)
    if not torch.equal(first, again):
        raise Unsupported("the module is random in a way that is not read: two runs on one input differ")
    if not first.is_floating_point() or not first.requires_grad:
        raise Unsupported("the module's output cannot be differentiated by its parameters")
    if not torch.isfinite(first).all():
        raise Unsupported("the module's output is not finite")
    return first.detach()


def _call(module: torch.nn.Module, batch: torch.Tensor, shape: tuple[int, ...]) -> Any:
    try:
        return module(batch)
    except Exception as error:
        raise _FailingModule(f"the module fails on an input of size {shape}: {first_line(error)}") from None


def _guess_shape(module: torch.nn.Module) -> tuple[int, ...]:
    stated = [size for size in getattr(module, "input_sizes", ()) if isinstance(size, str)]  # ids, as "2048:int"
    ids = [tuple(int(n) for n in size.removesuffix(":int").split(",")) for size in stated if size.endswith(":int")]
    for shape, kind in [*((shape, torch.int64) for shape in ids), *((s, torch.float64) for s in input_shapes(module))]:
        with torch.no_grad(), suppress(Exception):  # whatever the module's own code raises
            module(torch.zeros((MIXED, *shape), dtype=kind))
            return shape
    raise LawfulError("the module's input size is not known: give it (--input 3,8,8)")


def _fixed() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def first_line(error: Exception) -> str:
    """An error of someone else's code, on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


def without_casts(module: nn.Module) -> nn.Module:
    """The module itself, from now on without casts to narrower real types, and with new tensors in float64.

    >>> class Narrow(nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).float()
    >>> without_casts(Narrow(2, 1).double())(torch.zeros(1, 2).double()).dtype
    torch.float64
    """
    kind = type(module)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _WithoutCasts():
                return kind.forward(self, *args, **kwargs)
        finally:
            torch.set_default_dtype(before)

    module.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return module


class _WithoutCasts(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in CASTS and args and isinstance(args[0], torch.Tensor):
            return args[0].double()
        args, kwargs = tree_map(_to_float64, (args, kwargs or {}))
        return func(*args, **kwargs)


def _to_float64(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def lower(case: Probe, batch: torch.Tensor) -> StraightLineProgram:
    """The program that computes the module's output from its parameters and an input of the batch's size."""
    draws = case.draws(len(batch))
    numbers = (torch.zeros(sum(draw.count for draw in draws), dtype=torch.float64),) if draws else ()

    def function(tensors: dict[str, torch.Tensor], inputs: torch.Tensor, *drawn_before: torch.Tensor) -> torch.Tensor:
        return case.output(tensors, inputs, drawn_before[0] if drawn_before else None)

    shapes = dict(zip(case.names, case.shapes, strict=True))
    tensors = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    with composite():
        program = read_function(function, tensors, (batch, *numbers))
    straight = straighten(program, shapes, vocabulary=case.vocabulary)
    return replace(straight, draws=tuple((draw.kind, draw.count) for draw in draws))
