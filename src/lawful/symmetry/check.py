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
from lawful.program.frontends.torch_export import padded_tables
from lawful.sources.modules.trained_field import follows_gradient
from lawful.symmetry.laws.families import MatrixLaws, Parameters
from lawful.symmetry.result import Space, Symmetries, SymmetryCheck

CHECKED_SIZE = 5_000_000
COUNTED = 300_000  # entries of all gradients of laws, whose rank is then computed
POINTS, MOST_POINTS = 2, 6
TOLERANCE, FLOOR = 1e-9, 1e-4  # relative to the size of the terms, but at least this share of the largest slope
LOOSE, LOOSE_FLOOR = 1e-3, 1e-2  # where the module itself computes in lower precision


class _Precision(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether anything is computed in less than float64."""

    low = False

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        found = function(*arguments, **(options or {}))
        for part in tree_leaves(found):
            if isinstance(part, torch.Tensor) and part.is_floating_point() and part.dtype != torch.float64:
                self.low = True
        return found


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
    while points < POINTS or (silent and points < MOST_POINTS):  # where units are off, gradients say nothing
        generator = torch.Generator().manual_seed(seed * MOST_POINTS + points)
        points += 1
        try:
            with _Precision() as precision:  # type: ignore[no-untyped-call]
                theta, slope = random_point(module, inputs, exported, found.mode, generator, low=low)
        except Exception as error:  # the module's own code: some operations exist in single precision alone
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
            return replace(found, noted=f"{found.noted}; not checked, it does not run in float64: {reason}")
        if not all(bool(torch.isfinite(each).all()) for each in slope.values()):
            overflown += 1
            continue
        if not largest_of(slope.values()):
            silenced += 1
            continue
        errors = [space_error(space, theta, slope, floor) for space in found.spaces]
        if any(math.isnan(off) for off, _ in errors):  # products of finite numbers overflow too
            overflown += 1
            continue
        for number, (off, heard) in enumerate(errors):
            if heard:
                silent.discard(number)
            if off > worst:
                worst, where = off, found.spaces[number]
        if worst > tolerance and precision.low and not low:  # it casts where the graph of its own type does not show it
            return check_symmetries(found, module, inputs, exported, seed=seed, low=True)
    if not worst <= tolerance and where is not None:
        refuse_other_training(module, inputs, exported)
        raise FalseSymmetry(f"{where.group} on {', '.join(where.roles)} changes the function (off by {worst:.1e})")
    if worst <= tolerance and overflown < points:  # where weights are NaN, no point says anything
        _count_once(found, theta)
    if points == overflown + silenced:
        why = "are not finite" if overflown else "vanish, or are lost in rounding"
        return replace(found, noted=f"{found.noted}; not checked, its gradients at random weights {why}")
    return replace(found, checked=SymmetryCheck(points - overflown - silenced, worst, tolerance))


def refuse_other_training(module: nn.Module, inputs: Sequence[torch.Tensor], exported: ExportedModule) -> None:
    """A backward pass of one's own: symmetries of the function say nothing of training then.

    What is detached, and rows of an embedding that padding keeps still, the graph shows.
    """
    if exported.detaches:
        return
    padded = padded_tables(exported)
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
    laws = space.laws
    if laws is None:
        return 0.0, True
    if isinstance(laws, MatrixLaws):
        moved, size = laws.turning(theta, slope)
        if space.group.startswith("O"):
            moved = moved - moved.T
            if space.group.endswith("fixing 1"):
                centre = np.eye(laws.size) - 1.0 / laws.size
                moved, size = centre @ moved @ centre, np.full_like(size, size.max(initial=0.0))
    else:
        moved, size = laws.along(theta, slope), laws.size_along(theta, slope)
    largest = largest_of(slope.values())
    if not largest:
        return 0.0, False
    off = float((np.abs(moved) / np.maximum(size, floor * largest)).max(initial=0.0))
    return off, bool((size > floor * floor * largest).all())


def random_point(
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    exported: ExportedModule,
    mode: str,
    generator: torch.Generator,
    *,
    low: bool = False,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Random parameters and the gradient of `⟨w, f(x)⟩` there: zeros where it would be nothing but rounding.

    Behind a saturated softmax gradients are differences of numbers of the outputs' size. They are known to within the
    machine's precision times that size, and to the tolerance only if they are so much larger.
    """
    twin = twin_of(module).cpu()
    twin.train(mode == "train")
    named = {name: tensor for name, tensor in twin.named_parameters() if tensor.requires_grad}
    with torch.no_grad():
        for tensor in named.values():
            spread = float(tensor.std()) if tensor.numel() > 1 else float(tensor.abs().max()) if tensor.numel() else 0.0
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            tensor.add_(noise, alpha=0.5 * (spread or 0.5))
    given = random_inputs(inputs, exported, generator)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(int(torch.randint(1 << 30, (1,), generator=generator)))
        outputs = [tensor for tensor in tensors_in(twin(*given)) if tensor.requires_grad]
        paired = [torch.randn(each.shape, generator=generator, dtype=each.dtype) * each for each in outputs]
        slopes = torch.autograd.grad(
            sum((each.sum() for each in paired), torch.zeros((), dtype=torch.float64)),
            list(named.values()),
            allow_unused=True,
        )
    theta = {name: tensor.detach() for name, tensor in named.items()}
    slope = {
        name: torch.zeros_like(theta[name]) if each is None else each for name, each in zip(theta, slopes, strict=True)
    }
    tolerance = LOOSE if low else TOLERANCE
    seen = torch.finfo(torch.float32 if low else torch.float64).eps / tolerance * largest_of(paired)
    if largest_of(slope[name] * theta[name] for name in theta) <= seen:
        slope = {name: torch.zeros_like(each) for name, each in slope.items()}
    return theta, slope


def largest_of(tensors: Iterable[torch.Tensor]) -> float:
    """The largest absolute value of all entries, 0 if there are none."""
    return max((float(each.detach().abs().max()) for each in tensors if each.numel()), default=0.0)


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
    return [_random_input(each, place, exported, generator) for place, each in enumerate(given)]


def _random_input(
    example: torch.Tensor, place: int, exported: ExportedModule, generator: torch.Generator
) -> torch.Tensor:
    if example.is_floating_point():
        return torch.randn(example.shape, generator=generator, dtype=torch.float64)
    if example.dtype == torch.bool:
        return example.cpu()
    return torch.randint(exported.count_ids(place), example.shape, generator=generator, dtype=example.dtype)
