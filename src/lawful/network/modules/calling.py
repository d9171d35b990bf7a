"""A module called with other tensors in the place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch.func import functional_call


def called_with(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], inputs: tuple[Any, ...]) -> Any:
    """What a module returns with these parameters and buffers, named as `named_parameters` does; its own stay.

    PyTorch's `functional_call` leaves the new tensors behind in a layer that is used under two names (version 2.13), so
    every tensor is handed over once for each layer that holds it.

    >>> layer = torch.nn.Linear(2, 2, bias=False)
    >>> twice = torch.nn.Sequential(layer, torch.nn.Tanh(), layer)
    >>> before = layer.weight.clone()
    >>> called_with(twice, {"0.weight": torch.zeros(2, 2)}, (torch.ones(1, 2),)).tolist(), layer.weight.equal(before)
    ([[0.0, 0.0]], True)
    """
    first = {id(tensor): name for name, tensor in chain(module.named_parameters(), module.named_buffers())}
    given: dict[str, torch.Tensor] = {}
    for prefix, part in module.named_modules():
        for name, tensor in chain(part._parameters.items(), part._buffers.items()):
            if tensor is not None and first.get(id(tensor)) in tensors:
                given[f"{prefix}.{name}" if prefix else name] = tensors[first[id(tensor)]]
    return functional_call(module, given, inputs, tie_weights=False)
