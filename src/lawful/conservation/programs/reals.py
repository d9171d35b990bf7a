"""Modules that cast numbers to a type of their own: over the reals such a cast is nothing, and all runs in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

NARROW = (torch.float32, torch.float16, torch.bfloat16)
CASTS = ("float", "half", "bfloat16")  # methods that name a type


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
