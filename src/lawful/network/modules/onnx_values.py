"""What an ONNX operator is given in PyTorch: tensors, and NumPy arrays that depend on no input and no weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from lawful.errors import Unsupported

Operand = torch.Tensor | NDArray[Any] | None
Options = dict[str, Any]
Call = Callable[..., Any]


def ints(operand: Operand) -> list[int]:
    """Sizes, axes or steps, which must not depend on the input."""
    if operand is None or isinstance(operand, torch.Tensor):
        raise Unsupported("its sizes or axes depend on the input")
    return [int(number) for number in np.asarray(operand).ravel()]


def number(operand: Operand) -> float:
    """One number, which must not depend on the input."""
    if operand is None or isinstance(operand, torch.Tensor) or np.size(operand) != 1:
        raise Unsupported("it needs a constant number")
    return float(np.asarray(operand).ravel()[0])


def like(operand: Operand, other: torch.Tensor) -> Any:
    """The operand beside a tensor: a tensor as it is, a single constant as a number, others in the tensor's type."""
    if operand is None or isinstance(operand, torch.Tensor):
        return operand
    if operand.size == 1 and operand.ndim <= other.ndim:
        return operand.ravel()[0].item()
    found = torch.as_tensor(np.ascontiguousarray(operand))
    return found.to(other.dtype) if found.is_floating_point() and other.is_floating_point() else found


def tensor(operand: Operand) -> torch.Tensor:
    """The operand as a tensor."""
    if operand is None:
        raise Unsupported("an operand is missing")
    return operand if isinstance(operand, torch.Tensor) else torch.as_tensor(np.ascontiguousarray(operand))


def axes_of(options: Options, operand: Operand) -> list[int]:
    """The axes among the settings, or in the operand that replaced them."""
    return list(options["axes"]) if "axes" in options else [] if operand is None else ints(operand)


def padded(value: torch.Tensor, before: Sequence[int], after: Sequence[int], fill: float) -> torch.Tensor:
    """Numbers around a tensor, so many before and after along each of its last axes."""
    widths = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    return functional.pad(value, widths, value=fill) if any(widths) else value
