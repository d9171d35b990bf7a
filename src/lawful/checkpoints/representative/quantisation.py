"""What rounding to a few bits does to weights: symmetric, one grid for each tensor, vectors left as they are."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def quantise(state: Mapping[str, torch.Tensor], bits: int) -> dict[str, torch.Tensor]:
    """Every matrix and kernel on the grid `max|w| / (2^{bits−1} − 1)`.

    >>> quantise({"w": torch.tensor([[7.0, 3.4]])}, 4)["w"].tolist()
    [[7.0, 3.0]]
    """
    levels = 2 ** (bits - 1) - 1
    found = {}
    for name, tensor in state.items():
        if tensor.is_floating_point() and tensor.ndim > 1 and bool(tensor.any()):
            step = tensor.abs().max() / levels
            tensor = (tensor / step).round() * step
        found[name] = tensor
    return found


def rounding_error(state: Mapping[str, torch.Tensor], bits: int) -> float:
    """`‖Q(W) − W‖/‖W‖` over all matrices and kernels, each relative to itself (root mean square)."""
    shares = []
    for name, given in state.items():
        if given.is_floating_point() and given.ndim > 1 and bool(given.any()):
            given = given.double()
            rounded = quantise({name: given}, bits)[name]
            shares.append(float((rounded - given).norm() / given.norm()) ** 2)
    return float((sum(shares) / len(shares)) ** 0.5) if shares else 0.0
