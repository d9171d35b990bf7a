"""Generators are not believed: each is held against gradients of the module itself, in float64."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lawful.errors import Unsupported
from lawful.program.frontends.export import ExportedModule, twin_of
from lawful.program.frontends.torch_export import padded_rows
from lawful.sources.modules.trained_field import follows_gradient
from lawful.symmetry.laws.families import MatrixLaws, Parameters
from lawful.symmetry.result import Space, Symmetries, SymmetryCheck
from lawful.types import Floats

CHECKED_SIZE = 5_000_000
COUNTED = 300_000  # entries of all gradients of laws, whose rank is then computed
POINTS, MOST_POINTS = 2, 6
TOLERANCE, FLOOR = 1e-9, 1e-4  # relative to the size of the terms, but at least this share of the largest slope
LOOSE, LOOSE_FLOOR = 1e-3, 1e-2  # where the module itself computes in lower precision
NUDGE = 1e-5  # moves each weight by this share of itself: what is rounding is then rounded otherwise
NUDGES = 8  # what rounding leaves of 1 is one of a few multiples of a unit, which may come out alike by chance
AMPLIFIED = 1e4  # weights and activations multiply the rounding of outputs; an error beyond this is the generator's
STEADY = 0.5  # an error that a nudge changes by this share is none of the generator, which it changes by about a nudge


class _Precision(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether anything is computed in less than float64."""

    low = False

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        result = function(*arguments, **(options or {}))
        for part in tree_leaves(result):
            if isinstance(part, torch.Tensor) and part.is_floating_point() and part.dtype != torch.float64:
                self.low = True
        return result


class FalseSymmetry(AssertionError):
    """A generator that changes the module's function: a defect of ours, never the user's."""


def check_symmetries(
    found: Symmetries,
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    exported: ExportedModule,
    *,
    seed: int = 0,
    low: bool = False,
) -> Symmetries:
    """The result with its check, or `FalseSymmetry`: `⟨∇⟨w, f(x)⟩, ρ(X)θ⟩ = 0` for every generator at random θ, x, w.

    One backward pass serves all generators: the pairing is bilinear in gradient and parameters. `low` is for modules
    that compute in lower precision whatever they are given.
    """
    low = low or exported.rounds
    tolerance, floor = (LOOSE, LOOSE_FLOOR) if low else (TOLERANCE, FLOOR)
    worst, where, points, overflown, silenced = 0.0, None, 0, 0, 0
    silent = {number for number, space in enumerate(found.spaces) if space.group != "shifts"}
    confirmed: set[int] = set()
    lost: set[int] = set()  # spaces whose generators were off by rounding alone
    while points < POINTS or ((silent or lost - confirmed) and points < MOST_POINTS):  # units that are off say nothing
        number_of_point = seed * MOST_POINTS + points
        generator = torch.Generator().manual_seed(number_of_point)
        points += 1
        try:
            with _Precision() as precision:  # type: ignore[no-untyped-call]
                theta, slope, size = sample_point(module, inputs, exported, found.mode, generator, low=low)
        except Exception as error:  # the module's own code: some operations exist in single precision alone
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
            return replace(found, noted=f"{found.noted}; not checked, it does not run in float64: {reason}")
        if not all(bool(torch.isfinite(tensor).all()) for tensor in slope.values()):
            overflown += 1
            continue
        if not largest_of(slope.values()):
            silenced += 1
            continue
        errors = [space_error(space, theta, slope, floor) for space in found.spaces]
        if any(math.isnan(off) for off, _ in errors):  # products of finite numbers overflow too
            overflown += 1
            continue
        if precision.low and not low and any(off > tolerance for off, _ in errors):  # the graph does not show its casts
            return check_symmetries(found, module, inputs, exported, seed=seed, low=True)
        doubted = [found.spaces[number] for number, (off, _) in enumerate(errors) if off > tolerance]
        moved = [space_motion(space, theta, slope)[0] for space in doubted]
        largest = [float(np.abs(step).max(initial=0.0)) for step in moved]
        steady = [low or magnitude > AMPLIFIED * torch.finfo(torch.float64).eps * size for magnitude in largest]
        unsure = [place for place, known in enumerate(steady) if not known]
        changes = np.zeros((len(doubted), NUDGES))
        for nudge in range(NUDGES if unsure else 0):
            again = torch.Generator().manual_seed(number_of_point)
            nearby, other, _ = sample_point(module, inputs, exported, found.mode, again, low=low, nudge=nudge)
            for place in unsure:
                difference = space_motion(doubted[place], nearby, other)[0] - moved[place]
                changes[place, nudge] = np.abs(difference).max(initial=0.0)
        for place in unsure:
            steady[place] = bool(changes[place].max() <= STEADY * largest[place])
        rounded = [space for space, still in zip(doubted, steady, strict=True) if not still]
        for number, (off, heard) in enumerate(errors):
            if any(found.spaces[number] is space for space in rounded):
                lost.add(number)
                continue
            confirmed.add(number)
            if heard:
                silent.discard(number)
            if off > worst:
                worst, where = off, found.spaces[number]
    if not worst <= tolerance and where is not None:
        refuse_other_training(module, inputs, exported)
        raise FalseSymmetry(f"{where.group} on {', '.join(where.roles)} changes the function (off by {worst:.1e})")
    if worst <= tolerance and overflown < points:  # where weights are NaN, no point says anything
        _count_once(found, theta)
    if points == overflown + silenced:
        why = "are not finite" if overflown else "vanish, or are lost in rounding"
        return replace(found, noted=f"{found.noted}; not checked, its gradients at random weights {why}")
    if lost - confirmed:
        names = "; ".join(", ".join(found.spaces[number].roles) for number in sorted(lost - confirmed))
        found = replace(found, noted=f"{found.noted}; not checked, gradients are lost in rounding: {names}")
    return replace(found, checked=SymmetryCheck(points - overflown - silenced, worst, tolerance))


def refuse_other_training(module: nn.Module, inputs: Sequence[torch.Tensor], exported: ExportedModule) -> None:
    """A backward pass of one's own: symmetries of the function say nothing of training then.

    What is detached, and rows of an embedding that padding keeps still, the graph shows.
    """
    if exported.detaches:
        return
    padded = padded_rows(exported)
    twin, generator = twin_of(module).cpu().eval(), torch.Generator().manual_seed(0)
    for _ in range(MOST_POINTS):
        if not follows_gradient(twin, *random_inputs(inputs, exported, generator), without=padded):
            raise Unsupported(
                "training does not follow the gradient of what the module computes (a backward pass of its own, or a "
                "hook): symmetries of the function say nothing of it"
            )


def _count_once(found: Symmetries, theta: Parameters) -> None:
    """Laws of different spaces must not be the same law: their gradients are independent at a random point."""
    if len(found.laws) * found.parameters > COUNTED:
        return
    rows = found.laws.gradients(theta)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rank = int(np.linalg.matrix_rank(rows / np.where(lengths > 0, lengths, 1.0), tol=1e-11)) if rows.size else 0
    if rank < len(found.laws):
        raise FalseSymmetry(f"{len(found.laws)} laws were stated, and only {rank} of them are independent")


def space_error(space: Space, theta: Parameters, slope: Parameters, floor: float) -> tuple[float, bool]:
    """How far a space's generators are from keeping the function, and whether all its terms could be seen at all."""
    if space.laws is None:
        return 0.0, True
    moved, size = space_motion(space, theta, slope)
    largest = largest_of(slope.values())
    if not largest:
        return 0.0, False
    off = float((np.abs(moved) / np.maximum(size, floor * largest)).max(initial=0.0))
    return off, bool((size > floor * floor * largest).all())


def space_motion(space: Space, theta: Parameters, slope: Parameters) -> tuple[Floats, Floats]:
    """How fast each generator of a space with laws changes `⟨w, f(x)⟩`, and the size of the terms of that sum."""
    laws = space.laws
    if laws is None:
        return np.zeros(0), np.zeros(0)
    if not isinstance(laws, MatrixLaws):
        return laws.along(theta, slope), laws.size_along(theta, slope)
    moved, size = laws.turning(theta, slope)
    if space.group.startswith("O"):
        moved = moved - moved.T
        if space.group.endswith("fixing 1"):
            centre = np.eye(laws.size) - 1.0 / laws.size
            moved, size = centre @ moved @ centre, np.full_like(size, size.max(initial=0.0))
    return moved, size


def random_point(
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    exported: ExportedModule,
    mode: str,
    generator: torch.Generator,
    *,
    low: bool = False,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Random parameters and the gradient of `⟨w, f(x)⟩` there: zeros where it would be nothing but rounding."""
    theta, slope, _ = sample_point(module, inputs, exported, mode, generator, low=low)
    return theta, slope


def sample_point(
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    exported: ExportedModule,
    mode: str,
    generator: torch.Generator,
    *,
    low: bool,
    nudge: int | None = None,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], float]:
    """A random point, its gradient, and the size of the outputs that were paired with weights.

    Behind a saturated softmax gradients are differences of numbers of the outputs' size. They are known to within the
    machine's precision times that size, and to the tolerance only if they are so much larger. A `nudge` is the seed of
    slight changes of the parameters.
    """
    twin = twin_of(module).cpu()
    twin.train(mode == "train")
    named = {name: tensor for name, tensor in twin.named_parameters() if tensor.requires_grad}
    padded = padded_rows(exported)
    with torch.no_grad():
        for name, tensor in named.items():
            still = tensor[padded[name]].clone() if name in padded else None
            spread = float(tensor.std()) if tensor.numel() > 1 else float(tensor.abs().max()) if tensor.numel() else 0.0
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            tensor.add_(noise, alpha=0.5 * (spread or 0.5))
            if still is not None:  # a padded row is where it was made
                tensor[padded[name]] = still
        if nudge is not None:
            slight = torch.Generator().manual_seed(nudge)
            for tensor in named.values():
                noise = torch.randn(tensor.shape, generator=slight, dtype=torch.float64)
                tensor.addcmul_(tensor, noise, value=NUDGE)
    drawn = random_inputs(inputs, exported, generator)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(int(torch.randint(1 << 30, (1,), generator=generator)))
        outputs = [tensor for tensor in tensors_in(twin(*drawn)) if tensor.requires_grad]
        paired = [torch.randn(output.shape, generator=generator, dtype=output.dtype) * output for output in outputs]
        slopes = torch.autograd.grad(
            sum((output.sum() for output in paired), torch.zeros((), dtype=torch.float64)),
            list(named.values()),
            allow_unused=True,
        )
    theta = {name: tensor.detach() for name, tensor in named.items()}
    slope = {
        name: torch.zeros_like(theta[name]) if gradient is None else gradient
        for name, gradient in zip(theta, slopes, strict=True)
    }
    tolerance = LOOSE if low else TOLERANCE
    size = largest_of(paired)
    seen = torch.finfo(torch.float32 if low else torch.float64).eps / tolerance * size
    if largest_of(slope[name] * theta[name] for name in theta) <= seen:
        slope = {name: torch.zeros_like(tensor) for name, tensor in slope.items()}
    return theta, slope, size


def largest_of(tensors: Iterable[torch.Tensor]) -> float:
    """The largest absolute value of all entries, 0 if there are none."""
    return max((float(tensor.detach().abs().max()) for tensor in tensors if tensor.numel()), default=0.0)


def tensors_in(result: Any) -> list[torch.Tensor]:
    """All floating tensors in a module's output."""
    if isinstance(result, torch.Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, dict):
        result = list(result.values())
    if hasattr(result, "to_tuple"):
        result = result.to_tuple()
    if isinstance(result, (list, tuple)):
        return [tensor for part in result for tensor in tensors_in(part)]
    return []


def random_inputs(
    given: Sequence[torch.Tensor], exported: ExportedModule, generator: torch.Generator
) -> list[torch.Tensor]:
    """Random inputs of the sizes and kinds of the examples; ids that every embedding has."""
    return [_random_input(example, place, exported, generator) for place, example in enumerate(given)]


def _random_input(
    example: torch.Tensor, place: int, exported: ExportedModule, generator: torch.Generator
) -> torch.Tensor:
    if example.is_floating_point():
        return torch.randn(example.shape, generator=generator, dtype=torch.float64)
    if example.dtype == torch.bool:
        return example.cpu()
    return torch.randint(exported.count_ids(place), example.shape, generator=generator, dtype=example.dtype)
