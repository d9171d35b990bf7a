"""Numbers that are none are found before anything is done with the others."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from lawful.errors import InvalidNetwork


def check_numbers(state: Mapping[str, torch.Tensor], which: str) -> None:
    """Refuse NaN and infinities, by name."""
    for name, tensor in state.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        ends = torch.stack(torch.aminmax(tensor.detach()))  # NaN if any number is
        if not bool(torch.isfinite(ends).all()):
            raise InvalidNetwork(f"{which}: {name} holds NaN or infinite numbers")
