"""What a user says about a module's inputs becomes example tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from lawful.errors import LawfulError

Input = torch.Tensor | tuple[int, ...] | str
BATCH = 2  # what holds for a batch of one may be an accident


def examples(module: nn.Module, given: Input | Sequence[Input] | None) -> list[torch.Tensor]:
    """Example tensors for a module's inputs; several as a list, or as text such as `3,8,8;8:int`.

    >>> [(tensor.shape, tensor.dtype) for tensor in examples(nn.Linear(3, 2), ["3", "4:int"])]
    [(torch.Size([2, 3]), torch.float32), (torch.Size([2, 4]), torch.int64)]
    """
    if given is None:
        given = _guess_inputs(module)
    if isinstance(given, list) and given and all(isinstance(entry, str) and "=" in entry for entry in given):
        given = ";".join(given)
    if isinstance(given, str) and "=" in given:
        given = _by_name(module, given)
    if isinstance(given, str) and ";" in given:
        given = given.split(";")
    several = isinstance(given, list) or (
        isinstance(given, tuple) and any(not isinstance(entry, int) for entry in given)
    )
    return [_example(module, entry) for entry in (given if several else [given])]


def _by_name(module: nn.Module, text: str) -> list[Any]:
    """Sizes such as `input_ids=8:int,decoder_input_ids=4:int` in the order of the module's inputs."""
    defaults = dict(zip(getattr(module, "input_names", ()), getattr(module, "input_sizes", ()), strict=False))
    defaults = defaults or dict.fromkeys(getattr(module, "inputs", ()))
    result: dict[str, str] = {}
    for part in re.split(r"[;,](?=[^,;=]*=)", text):
        name, _, size = part.partition("=")
        result[name.strip()] = size.strip()
    unknown = next((name for name in result if name not in defaults), None)
    if unknown is not None:
        names = ", ".join(defaults) or "not named"
        raise LawfulError(f"no input is called {unknown[:40]!r}: its inputs are {names}")
    sizes = [result.get(name, size) for name, size in defaults.items()]
    if None in sizes:
        raise LawfulError(f"give a size for each of its inputs: {', '.join(defaults)}")
    return sizes


def _example(module: nn.Module, given: Any) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        if given.ndim == 0 or len(given) == 0:
            raise LawfulError("an example input needs a batch: at least one sample along its first axis")
        return given if len(given) >= BATCH else torch.cat([given] * BATCH)
    weight = next((tensor for tensor in module.parameters() if tensor.is_floating_point()), torch.zeros(0))
    if isinstance(given, str):
        result = re.fullmatch(r"(\d{1,7}(?:,\d{1,7})*)(:int)?", given.replace(" ", ""))
        if result is None:
            raise LawfulError(f"an input size is like 3,224,224 or 8:int, not {given[:40]!r}")
        size = tuple(int(part) for part in result[1].split(","))
        kind = torch.int64 if result[2] else weight.dtype
    elif isinstance(given, (tuple, torch.Size)):
        size, kind = tuple(given), weight.dtype
    else:
        raise LawfulError(f"an input is a tensor, a size or text, not a {type(given).__name__}")
    if any(part < 1 for part in size):
        raise LawfulError(f"an input size is made of positive numbers, not {size}")
    return torch.zeros((BATCH, *size), dtype=kind, device=weight.device)


def _guess_inputs(module: nn.Module) -> Any:
    """The inputs of a module that states their sizes, as one read from an ONNX file does, or whose first layer does."""
    if sizes := getattr(module, "input_sizes", ()):
        return list(sizes)
    first = next((part for part in module.modules() if not list(part.children())), None)
    if isinstance(first, nn.Linear):
        return (first.in_features,)
    raise LawfulError("its input size is unknown: give it without the batch, like --input 3,224,224 or --input 8:int")
