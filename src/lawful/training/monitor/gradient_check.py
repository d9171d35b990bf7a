"""Laws are not believed: each is held against a gradient of the module itself, as training would take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from lawful.program.frontends.export import twin_of
from lawful.training.monitor.wrappers import batch_of, exact_arithmetic, output_tensors

SEEN = 8  # samples of a batch that are looked at
POINTS = 3  # where units are off, a gradient says nothing of them
Tensors = dict[str, torch.Tensor]


def slopes_in_training(
    module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None = None
) -> Iterator[tuple[Tensors, Tensors]]:
    """Parameters about the module's own, and there the gradient of a random combination of its outputs; a few times.

    A float64 copy of the module runs in its own mode on the first samples of a batch; detached values, hooks of layers
    and backward passes of one's own take part. What no gradient reaches has slope zero.

    >>> theta, slope = next(slopes_in_training(nn.Linear(2, 1), [torch.zeros(3, 2)]))
    >>> slope["weight"].tolist(), bool(slope["bias"] == 0)
    ([[0.0, 0.0]], False)
    """
    call = (tuple(inputs), dict(keywords or {}))
    whole = batch_of(*call)
    for point in range(POINTS):
        generator = torch.Generator().manual_seed(point)
        twin = twin_of(module).cpu()
        trained = {name: tensor for name, tensor in twin.named_parameters() if tensor.requires_grad}
        with torch.no_grad():
            for tensor in trained.values():
                size = max(float(tensor.square().mean().sqrt()), 0.2) if tensor.numel() else 0.0
                tensor.add_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64), alpha=size / 2)
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), exact_arithmetic():
            shown, named = tree_map(lambda tensor: _first_samples(tensor, whole), call)
            heard = [output for output in output_tensors(twin(*shown, **named)) if output.requires_grad]
            weights = [torch.randn(output.shape, generator=generator, dtype=output.dtype) for output in heard]
            slopes = torch.autograd.grad(heard, list(trained.values()), weights, allow_unused=True) if heard else ()
        theta = {name: tensor.detach() for name, tensor in trained.items()}
        slope = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
        yield (
            theta,
            slope | {name: gradient for name, gradient in zip(trained, slopes, strict=False) if gradient is not None},
        )


def are_finite(slopes: Iterable[tuple[Tensors, Tensors]]) -> bool:
    """Whether slopes can show anything: NaN compares with nothing."""
    return all(bool(torch.isfinite(tensor).all()) for pair in slopes for values in pair for tensor in values.values())


def _first_samples(value: Any, whole: int) -> Any:
    """The first samples of what a module was given, in float64."""
    if not isinstance(value, torch.Tensor):
        return value
    part = value.detach()[:SEEN] if value.ndim > 0 and len(value) == whole else value.detach()
    return part.cpu().to(torch.float64 if part.is_floating_point() else part.dtype).clone()
