"""Numbers that are none are found before anything is done with the others."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from lawful.errors import InvalidNetwork


def check_numbers(state: Mapping[str, torch.Tensor], which: str) -> None:
    """Refuse NaN and infinities, by name."""
    for name, tensor in state.items():
        wide = torch.float64 if tensor.element_size() > 2 else torch.float32
        if not tensor.is_floating_point() or bool(torch.isfinite(tensor.sum(dtype=wide))):
            continue  # a sum of numbers that are none is none
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidNetwork(f"{which}: {name} holds NaN or infinite numbers")
