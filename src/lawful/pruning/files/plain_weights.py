"""A copy of a module whose weights are plain tensors: masks, norms of weights, parametrisations applied for good."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import remove_spectral_norm, remove_weight_norm
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.prune import remove as remove_mask
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from lawful.errors import InvalidNetwork, Unsupported
from lawful.program.frontends.export import copied


@torch.no_grad()
def permanent(module: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """A copy, in eval mode, and what was made permanent in it; refused if hooks are left or a weight is not finite.

    Tensors are shared with the module where nothing has to be made permanent.

    >>> from torch.nn.utils.prune import l1_unstructured
    >>> plain, notes = permanent(nn.Sequential(l1_unstructured(nn.Linear(2, 2), "weight", amount=1)))
    >>> notes, int((plain[0].weight == 0).sum())
    (('0: the mask of its weight was made permanent',), 1)
    """
    for part in module.modules():  # a tensor with a history cannot be copied; both hooks compute it anew in each call
        for hook in part._forward_pre_hooks.values():
            name = _tensor_of(hook)
            if name in vars(part):
                vars(part)[name] = vars(part)[name].detach()
    altered = any(part._forward_pre_hooks or is_parametrized(part) for part in module.modules())
    plain = copied(module, shared=not altered).eval()
    notes: list[str] = []
    for name, part in list(plain.named_modules()):
        where = name or type(module).__name__
        for hook in list(part._forward_pre_hooks.values()):
            if isinstance(hook, BasePruningMethod):
                remove_mask(part, hook._tensor_name)  # type: ignore[no-untyped-call]
                notes.append(f"{where}: the mask of its {hook._tensor_name} was made permanent")
            elif isinstance(hook, WeightNorm):
                remove_weight_norm(part, hook.name)
                notes.append(f"{where}: weight normalisation of its {hook.name} was made permanent")
            elif isinstance(hook, SpectralNorm):
                remove_spectral_norm(part, hook.name)
                notes.append(f"{where}: spectral normalisation of its {hook.name} was made permanent")
        if "quantized" in type(part).__module__:
            raise Unsupported(f"{where} is quantised: its numbers are no real weights; prune before quantising")
        if is_parametrized(part):
            notes += [f"{where}: {note}" for note in _without_parametrisations(part)]
        if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            raise Unsupported(f"{where} has forward hooks: what they change is not read; remove them first")
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise InvalidNetwork(f"a weight of {where} is not finite")
    return plain, tuple(notes)


def _tensor_of(hook: object) -> str:
    if isinstance(hook, BasePruningMethod):
        return str(hook._tensor_name)
    return str(hook.name) if isinstance(hook, (WeightNorm, SpectralNorm)) else ""


def _without_parametrisations(part: nn.Module) -> list[str]:
    """Give a copy its own class back. PyTorch's own way changes the class, which the original shares."""
    found = {str(name): getattr(part, str(name)).clone() for name in part.parametrizations}  # type: ignore[union-attr]
    part.__class__ = type_before_parametrizations(part)
    del part._modules["parametrizations"]
    for name, tensor in found.items():
        part.register_parameter(name, nn.Parameter(tensor))
    return [f"the parametrisation of its {name} was made permanent" for name in found]
