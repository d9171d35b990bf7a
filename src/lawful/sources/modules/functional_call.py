"""A module called with other tensors in the place of its own, and on samples as it takes them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch.func import functional_call

from lawful.errors import LawfulError
from lawful.program.frontends.export import in_mode
from lawful.types import Floats

TABLES = (torch.nn.Embedding, torch.nn.EmbeddingBag)


def call_with(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], inputs: tuple[Any, ...]) -> Any:
    """What a module returns with these parameters and buffers, named as `named_parameters` does; its own stay.

    PyTorch's `functional_call` leaves the new tensors behind in a layer that is used under two names (version 2.13), so
    every tensor is handed over once for each layer that holds it.

    >>> layer = torch.nn.Linear(2, 2, bias=False)
    >>> twice = torch.nn.Sequential(layer, torch.nn.Tanh(), layer)
    >>> before = layer.weight.clone()
    >>> call_with(twice, {"0.weight": torch.zeros(2, 2)}, (torch.ones(1, 2),)).tolist(), layer.weight.equal(before)
    ([[0.0, 0.0]], True)
    """
    first = {id(tensor): name for name, tensor in chain(module.named_parameters(), module.named_buffers())}
    by_layer: dict[str, torch.Tensor] = {}
    for prefix, part in module.named_modules():
        for name, tensor in chain(part._parameters.items(), part._buffers.items()):
            if tensor is not None and first.get(id(tensor)) in tensors:
                by_layer[f"{prefix}.{name}" if prefix else name] = tensors[first[id(tensor)]]
    return functional_call(module, by_layer, inputs, tie_weights=False)


def first_tensor(result: Any) -> torch.Tensor:
    """The first tensor of what a module returns: dicts, lists and tuples, in one another, are opened."""
    while isinstance(result, (dict, list, tuple)):
        result = next(iter(result.values() if isinstance(result, dict) else result))
    tensor: torch.Tensor = result
    return tensor


def as_taken(
    module: torch.nn.Module, samples: Floats, dtype: torch.dtype = torch.float64, where: str = ""
) -> torch.Tensor:
    """Samples as a module takes them: numbers, or token ids where it has tables and runs on ids but not on numbers.

    >>> import numpy as np
    >>> as_taken(torch.nn.Embedding(5, 2), np.array([[0.0, 3.0]]))
    tensor([[0, 3]])
    >>> as_taken(torch.nn.Linear(2, 2), np.array([[0.0, 3.0]]), torch.float32)
    tensor([[0., 3.]])
    """
    exact = torch.from_numpy(samples.copy())
    numbers = exact.to(dtype)
    if not any(isinstance(part, TABLES) for part in module.modules()) or _runs(module, numbers[:1]):
        return numbers
    if bool((exact == exact.round()).all()):
        return exact.long()
    if _runs(module, torch.zeros_like(exact[:1], dtype=torch.long)):
        raise LawfulError(f"{where}the network takes tokens, so x must be whole numbers")
    return numbers


def _runs(module: torch.nn.Module, sample: torch.Tensor) -> bool:
    try:
        with torch.no_grad(), in_mode(module, training=False):
            module(sample)
    except Exception:  # the module's own code
        return False
    return True
