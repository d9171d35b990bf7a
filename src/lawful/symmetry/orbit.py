"""Finite members of the group: other weights of the same function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.program.frontends.export import ExportedModule, copy_module, export_module, twin_of
from lawful.symmetry.check import FalseSymmetry, random_inputs, tensors_in
from lawful.symmetry.inputs import Input, examples
from lawful.symmetry.laws.families import ColumnLaws, MatrixLaws, MeanLaw, ScaleLaws, SumLaws
from lawful.symmetry.result import Mode, Space, Symmetries
from lawful.types import Floats

SPREAD = 0.3  # of the logarithm of a scale
AGREE, AGREE_SINGLE = 1e-8, 1e-2  # relative to the outputs, in float64 and where the module itself uses less
DOUBLED = 100_000_000  # parameters up to which outputs are compared in float64: a copy of 0.8 GB


@dataclass(frozen=True, eq=False)
class Disguise:
    """Weights on the same orbit, and how much the outputs differ (relative to their size, in float64)."""

    weights: Mapping[str, torch.Tensor]
    difference: float


def disguise(module: nn.Module, input: Input | Sequence[Input] | None, found: Symmetries, *, seed: int = 0) -> Disguise:
    """Apply a random member of the group to a module's weights; the outputs are compared before anything is returned.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> from lawful.symmetry import symmetries
    >>> twin = disguise(net, (3,), symmetries(net, (3,)), seed=1)
    >>> twin.difference < 1e-12, torch.equal(twin.weights["0.weight"], net[0].weight)
    (True, False)
    """
    theta = {name: tensor.detach().double().clone() for name, tensor in module.named_parameters()}
    if any(tensor.device.type == "meta" for tensor in theta.values()):
        raise LawfulError("a module on the meta device has no weights to move")
    rng = np.random.default_rng(seed)
    for space in found.spaces:
        move(space, theta, rng)
    moved = twin_of(module)
    with torch.no_grad():
        for name, tensor in moved.named_parameters():
            tensor.copy_(theta[name])
    difference = output_difference(module, moved, input, mode=found.mode, seed=seed)
    weights = {
        name: tensor.to(original.dtype)
        for (name, tensor), original in zip(moved.state_dict().items(), module.state_dict().values(), strict=True)
    }
    return Disguise(weights, difference)


def move(space: Space, theta: dict[str, torch.Tensor], rng: np.random.Generator) -> None:
    """Act on parameters by a random member of the group of one space."""
    laws = space.laws
    if isinstance(laws, MatrixLaws):
        matrix = _matrix(space, rng)
        inverse = np.linalg.inv(matrix).T
        for member in laws.members:
            tensor = theta[member.axis.parameter]
            rows = member.axis.centred_rows(tensor)
            action = torch.as_tensor(matrix if member.sign > 0 else inverse)
            for places in member.places:
                rows[places] = action @ rows[places]
            theta[member.axis.parameter] = member.axis.restore(rows, tensor.shape)
    elif isinstance(laws, MeanLaw):
        for member, rows in laws.scale_means(dict(theta), float(np.exp(rng.normal(scale=SPREAD)))):
            theta[member.axis.parameter] = member.axis.restore(rows, theta[member.axis.parameter].shape)
    elif isinstance(laws, ScaleLaws):
        logarithms = laws.weights.T @ rng.normal(scale=SPREAD, size=laws.weights.shape[0])
        start = 0
        for axis, picked in zip(laws.axes, laws.picked, strict=True):
            tensor = theta[axis.parameter]
            rows = axis.centred_rows(tensor)
            rows[picked] *= torch.as_tensor(np.exp(logarithms[start : start + len(picked)]))[:, None]
            start += len(picked)
            theta[axis.parameter] = axis.restore(rows, tensor.shape)
    elif isinstance(laws, (SumLaws, ColumnLaws)):
        for name, piece in laws.pull(theta, rng.normal(scale=SPREAD, size=len(laws.values(theta)))):
            theta[name] = theta[name] + piece


def _matrix(space: Space, rng: np.random.Generator) -> Floats:
    """A random matrix of the group, well conditioned."""
    size = space.size
    if space.group.startswith("GL"):
        left, right = (np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(2))
        return np.asarray(left * np.exp(rng.normal(scale=SPREAD, size=size)) @ right)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    if not space.group.endswith("fixing 1"):
        return np.asarray(turn)
    basis = np.linalg.qr(np.column_stack([np.ones(size), rng.normal(size=(size, size - 1))]))[0]
    inner = np.eye(size)
    inner[1:, 1:] = np.linalg.qr(rng.normal(size=(size - 1, size - 1)))[0]
    return np.asarray(basis @ inner @ basis.T)


def output_difference(
    module: nn.Module,
    other: nn.Module | Callable[[bool], nn.Module],
    input: Input | Sequence[Input] | None,
    *,
    mode: Mode = "train",
    seed: int = 0,
    exported: ExportedModule | None = None,
) -> float:
    """The largest difference of two modules' outputs on random inputs, relative to their size; in float64.

    More than rounding means that a member of the group changed the function: `FalseSymmetry`. `exported` is the first
    module in this mode, if it is at hand. `other` may be a function that makes the other module, in float64 or not: it
    is called when the copy of the first has gone. Beyond `DOUBLED` parameters both compute in their own types.
    """
    double = sum(tensor.numel() for tensor in module.parameters()) <= DOUBLED
    samples = examples(module, input)
    if exported is None:
        exported = export_module(module, samples, training=mode == "train")
    inputs = random_inputs(samples, exported, torch.Generator().manual_seed(seed))
    if not double:
        inputs = [drawn.to(example.dtype) for drawn, example in zip(inputs, samples, strict=True)]
    results = []
    for side in (module, other):
        network = (twin_of(side) if double else copy_module(side)) if isinstance(side, nn.Module) else side(double)
        twin = network.train(mode == "train")
        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(seed)
            try:
                results.append(tensors_in(twin(*inputs)))
            except RuntimeError as error:
                raise Unsupported(f"it does not compute in float64, where outputs are compared: {error}") from None
        del twin, network
    if not all(bool(torch.isfinite(tensor).all()) for tensor in results[0]):
        raise LawfulError("its outputs at random inputs are not finite: moved weights cannot be held against its own")
    size = max(float(tensor.abs().max()) for tensor in results[0])
    gap = max(float((one - two).abs().max()) for one, two in zip(*results, strict=True))
    difference = gap / size if size else gap
    tolerance = AGREE if all(tensor.dtype == torch.float64 for tensor in results[0]) else AGREE_SINGLE
    if not difference <= max(tolerance, AGREE_SINGLE if exported.rounds else 0.0):
        if exported.detaches:
            raise LawfulError("it detaches values from training: what conserves its laws changes what it computes")
        raise FalseSymmetry(f"a member of the group changed the outputs by {difference:.1e} of their size")
    return difference
