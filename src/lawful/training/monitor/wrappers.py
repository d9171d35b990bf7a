"""What stands between a model and its training loop: wrappers, mixed precision, compilation, nested inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.amp.autocast_mode import autocast
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from lawful.symmetry.check import tensors_in


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself: what `DistributedDataParallel`, `DataParallel` and `torch.compile` wrap.

    >>> net = nn.Linear(2, 1)
    >>> unwrap(nn.DataParallel(net)) is net
    True
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(inner := model._modules.get("_orig_mod"), nn.Module):  # torch.compile's OptimizedModule
            model = inner
        else:
            return model


def sharded_parameters(model: nn.Module) -> list[str]:
    """Parameters of which this process holds a part alone (FSDP and tensor parallelism)."""
    return [
        name
        for name, value in model.named_parameters()
        if hasattr(value, "placements") or type(value).__name__ == "FlatParameter"
    ]


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Run modules as they are written: no autocast, the user's or the module's own, and nothing compiled.

    A module may enter autocast inside its forward pass, as those that `accelerate` prepares do. One opaque call would
    be all that is seen of its graph, and bfloat16 of its gradients; laws are those of the function that is rounded.
    """
    enter, leave = autocast.__enter__, autocast.__exit__
    kinds = [kind for kind in ("cpu", "cuda", "mps", "xpu") if torch.amp.is_autocast_available(kind)]
    before = {kind: torch.is_autocast_enabled(kind) for kind in kinds}
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
    # Whatever enters autocast calls these two, also in a function that it decorates.
    autocast.__enter__ = lambda self: self  # type: ignore[method-assign]
    autocast.__exit__ = lambda self, *_: None  # type: ignore[method-assign]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        autocast.__enter__, autocast.__exit__ = enter, leave  # type: ignore[method-assign]
        for kind, enabled in before.items():
            torch.set_autocast_enabled(kind, enabled)


class FlatCall(nn.Module):
    """A module as it was called, taking and giving tensors alone: what else it was given stays as it was.

    >>> class Named(nn.Module):
    ...     def forward(self, batch, scale):
    ...         return {"found": batch["x"] * scale, "size": 3}
    >>> call = FlatCall(Named(), [{"x": torch.ones(2)}, 2], {})
    >>> [tensor.tolist() for tensor in call.tensors], call(*call.tensors)
    ([[1.0, 1.0]], (tensor([2., 2.]),))
    """

    def __init__(self, module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        super().__init__()
        self.module = module
        self._leaves, self._spec = tree_flatten((tuple(inputs), dict(keywords)))
        self._places = [place for place, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [self._leaves[place] for place in self._places]
        for place in self._places:
            self._leaves[place] = None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the module with these tensors in the places of the first ones."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        inputs, keywords = tree_unflatten(leaves, self._spec)
        return tuple(output_tensors(self.module(*inputs, **keywords)))


def output_tensors(result: Any) -> list[torch.Tensor]:
    """All floating tensors in what a module returned, dataclasses included."""
    if is_dataclass(result) and not isinstance(result, type) and not hasattr(result, "to_tuple"):
        return [tensor for field in fields(result) for tensor in output_tensors(getattr(result, field.name))]
    return tensors_in(result)


def is_plain_call(inputs: Sequence[Any], keywords: Mapping[str, Any], output: Any) -> bool:
    """Whether a module was called with tensors in the first places, and returned tensors in known containers."""
    named = [leaf for leaf in tree_leaves(dict(keywords)) if leaf is not None]
    plain = (torch.Tensor, int, float, bool, str)
    return (
        all(isinstance(value, torch.Tensor) for value in inputs)
        and all(isinstance(leaf, plain) for leaf in named)
        and all(leaf is None or isinstance(leaf, plain) for leaf in tree_leaves(output))
    )


def batch_of(inputs: Sequence[Any], keywords: Mapping[str, Any]) -> int:
    """How many samples a module was called with: the length of the first tensor that has one, or 0."""
    leaves = tree_leaves((tuple(inputs), dict(keywords)))
    return next((len(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim > 0), 0)
