"""Modules that are written alike: the same code and settings, other weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from lawful.program.frontends.export import ExportedModule

INNER = set(vars(nn.Module()))  # what every module has


def written(module: nn.Module) -> Hashable | None:
    """All that a module's graph depends on: classes, attributes, buffers, sizes, shared tensors, not its weights; None
    if an attribute does not say what it is."""
    found: list[Hashable] = []
    for name, part in module.named_modules():
        held = {key: value for key, value in vars(part).items() if key not in INNER}
        words = repr({key: value.tolist() if torch.is_tensor(value) else value for key, value in held.items()})
        if " at 0x" in words or "..." in words or part._forward_hooks or part._forward_pre_hooks:
            return None
        found.append((name, type(part), type(part).forward, part.training, words))
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    if any(tensor.is_meta for _, tensor in tensors):
        return None
    first: dict[int, int] = {}
    for number, (name, tensor) in enumerate(tensors):
        numbers = None if isinstance(tensor, nn.Parameter) else repr(tensor.tolist())
        found.append((name, first.setdefault(id(tensor), number), *_kind(tensor), numbers))
    return tuple(found)


def _kind(tensor: torch.Tensor) -> tuple[Hashable, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad


def exported_once(export: Callable[..., ExportedModule]) -> Callable[..., ExportedModule]:
    """The function, which is asked once for modules that are written alike; each gets a graph of its own."""
    known: dict[Hashable, ExportedModule] = {}

    def exported(
        module: nn.Module, examples: tuple[torch.Tensor, ...], keywords: Any, **options: Any
    ) -> ExportedModule:
        own, words = written(module), repr(keywords)
        if own is None or " at 0x" in words or "..." in words:
            return export(module, examples, keywords, **options)
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_default_dtype()
        key = own, tuple(map(_kind, examples)), words, repr(options), modes
        if key not in known:
            known[key] = export(module, examples, keywords, **options)
        first = known[key]
        if any(node.op == "get_attr" for node in first.graph.nodes):  # parts of the graph belong to the module
            return known.pop(key)
        tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(
            module.named_buffers(remove_duplicate=False)
        )
        mine = {place: tensors[first.names[place]] if place in first.names else constant
                for place, constant in first.tensors.items()}  # fmt: skip
        graph = copy.deepcopy(first.graph)
        for node, other in zip(graph.nodes, first.graph.nodes, strict=True):
            node.name = other.name  # a copy would call an input named `input` otherwise
        return replace(first, graph=graph, tensors=mine)

    return exported
