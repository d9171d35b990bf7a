"""The same instruments on any torch network: effective dimension and speed of its blocks, read by hooks.

What carries over: representations `A_ℓ` on a data set, their stable rank and γ-stable cost of identity, how far
each block moves them, and the layer steps that would even this out (P3 Section 4). What does not: Hamiltonian, kinetic
energy and rank estimates, which assume layers `W σ(A)` trained with weight decay, as in a Leaky ResNet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import Unsupported
from lawful.leaky.mechanics import lifted, operator_norm, stable_norm, stable_rank
from lawful.types import Floats

GAMMA = 1e-3  # representations that no weight decay has shaped need a larger one than `path.GAMMA`


@dataclass(frozen=True, eq=False)
class BlockReadings:
    """One row per block. Distances compare a block's output with its input: `‖A_ℓ - A_{ℓ-1}‖ / ‖A_ℓ‖`."""

    names: tuple[str, ...]
    width: int
    samples: int
    stable_rank_in: float
    stable_rank: Floats  # ‖A‖_*² / ‖A‖_F², the effective dimension after each block
    coi: Floats  # ‖A‖²_{K+γ} after each block
    distance: Floats
    negative_share: Floats
    suggested_steps: Floats

    @property
    def narrowest(self) -> str:
        """The block after which the effective dimension is smallest."""
        return self.names[int(np.argmin(self.stable_rank))]

    @property
    def fast(self) -> tuple[str, ...]:
        """Blocks that move the representation more than twice the median."""
        limit = 2 * float(np.median(self.distance))
        return tuple(name for name, value in zip(self.names, self.distance, strict=True) if value > limit)

    @property
    def slow(self) -> tuple[str, ...]:
        """Blocks that move it less than half the median."""
        limit = 0.5 * float(np.median(self.distance))
        return tuple(name for name, value in zip(self.names, self.distance, strict=True) if value < limit)


def read_blocks(
    module: nn.Module, inputs: Tensor, *, blocks: Sequence[str] | None = None, gamma_ratio: float = GAMMA
) -> BlockReadings:
    """Run the module on `inputs` and measure its residual blocks.

    A block is a submodule whose output has the shape of its first input; without names, the longest chain of equal
    shape is taken, outermost modules first. Dimensions after the batch are flattened to neurons.

    >>> class Block(nn.Module):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.inner = nn.Linear(4, 4)
    ...     def forward(self, x: Tensor) -> Tensor:
    ...         return x + self.inner(x.relu())
    >>> net = nn.Sequential(nn.Linear(2, 4), Block(), Block(), nn.Linear(4, 1))
    >>> read_blocks(net, torch.randn(10, 2)).names
    ('1', '2')
    """
    records = _record(module, inputs, blocks)
    names = tuple(records)
    before = [pair[0] for pair in records.values()]
    after = [pair[1] for pair in records.values()]
    stack = np.stack(after)
    sizes = np.maximum(np.linalg.norm(stack, axis=(1, 2)), 1e-300)
    moves = np.linalg.norm(stack - np.stack(before), axis=(1, 2))
    distance = moves / sizes
    sigma = lifted(stack)
    slowness = 1 / np.maximum(distance, 1e-12 * max(float(distance.max()), 1e-300))
    return BlockReadings(
        names=names,
        width=stack.shape[1],
        samples=stack.shape[2],
        stable_rank_in=float(stable_rank(before[0])),
        stable_rank=stable_rank(stack),
        coi=stable_norm(stack, sigma, gamma_ratio * operator_norm(sigma)),
        distance=distance,
        negative_share=np.square(np.minimum(stack, 0)).sum(axis=(1, 2)) / sizes**2,
        suggested_steps=slowness / slowness.sum(),
    )


def _record(module: nn.Module, inputs: Tensor, blocks: Sequence[str] | None) -> dict[str, tuple[Floats, Floats]]:
    named = dict(module.named_modules())
    unknown = [name for name in blocks or () if name not in named]
    if unknown:
        raise Unsupported(f"the module has no block called {unknown[0]!r}; it has {', '.join(list(named)[1:9])} …")
    seen: dict[str, tuple[Floats, Floats]] = {}
    handles = [
        part.register_forward_hook(_keeper(name, seen))
        for name, part in named.items()
        if (name in blocks if blocks is not None else name and not isinstance(part, nn.ModuleList))
    ]
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        module.train(training)
        for handle in handles:
            handle.remove()
    return _chain(seen, blocks)


def _keeper(name: str, seen: dict[str, tuple[Floats, Floats]]):  # type: ignore[no-untyped-def]
    def keep(_module: nn.Module, given: tuple[object, ...], got: object) -> None:
        first = given[0] if given else None
        last = got[0] if isinstance(got, tuple) else got
        if isinstance(first, Tensor) and isinstance(last, Tensor) and first.shape == last.shape and last.ndim > 1:
            flat = [part.detach().double().reshape(len(part), -1).T.numpy().copy() for part in (first, last)]
            seen[name] = (flat[0], flat[1])

    return keep


def _chain(seen: dict[str, tuple[Floats, Floats]], blocks: Sequence[str] | None) -> dict[str, tuple[Floats, Floats]]:
    """Keep one width, and of nested modules the outermost that is not the whole network."""
    if blocks is not None:
        if not seen or len({pair[1].shape for pair in seen.values()}) > 1:
            raise Unsupported("the named blocks must keep the shape of their input, and all have the same")
        return {name: seen[name] for name in blocks if name in seen}
    outer = {
        name: pair
        for name, pair in seen.items()
        if not any(name.startswith(other + ".") for other in seen if other != name)
        and not np.array_equal(np.maximum(pair[0], 0), pair[1])  # an activation is no block
    }
    if not outer:
        raise Unsupported("no submodule keeps the shape of its input: name the blocks to read")
    shapes = [pair[1].shape for pair in outer.values()]
    common = max(set(shapes), key=lambda shape: (shapes.count(shape), -shapes.index(shape)))
    return {name: pair for name, pair in outer.items() if pair[1].shape == common}
