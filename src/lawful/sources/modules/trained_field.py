"""Is what training follows the gradient of what a module computes?

Detached values, rows of an embedding that padding keeps still, hooks and backward passes of one's own make it another
field, of which the function's symmetries, its graph and its program say nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import pairwise

import torch

from lawful.errors import Unsupported
from lawful.sources.modules.functional_call import call_with, first_tensor

DIRECTIONS = 3
# Steps of differences, relative to the parameters. A jump may lie within one of them; between the kinks of a network of
# millions of parameters only the smallest fits, whose rounding (1e-16/1e-8) is still far below the agreement asked for.
STEPS = (1e-5, 1e-6, 1e-4, 1e-8)
AGREEMENT = 1e-3
Tensors = dict[str, torch.Tensor]
Inputs = tuple[torch.Tensor, ...]


def follows_gradient(module: torch.nn.Module, *inputs: torch.Tensor, without: Collection[str] = ()) -> bool:
    """Whether PyTorch's gradient of the output agrees with differences along random directions of the parameters.

    >>> tables = torch.nn.Embedding(3, 2), torch.nn.Embedding(3, 2, padding_idx=0)
    >>> [follows_gradient(table.double(), torch.tensor([[0, 1, 2]])) for table in tables]
    [True, False]
    """
    generator = torch.Generator().manual_seed(0)
    start, weights = _point(module, inputs, generator)
    slopes = _slopes(module, inputs, start, weights)

    def value_along(direction: Mapping[str, torch.Tensor], step: float) -> float:
        shifted = {name: value + step * direction[name] for name, value in start.items()}
        return float((_output(module, shifted, inputs).detach() * weights).sum())

    for _ in range(DIRECTIONS):
        direction = {name: (name not in without) * _noise(value, generator) for name, value in start.items()}
        terms = [slopes[name] * along for name, along in direction.items()]
        slope = float(sum(term.sum() for term in terms))
        size = float(sum(term.square().sum() for term in terms)) ** 0.5
        # Any step that agrees will do: each fails at kinks or by rounding, and a false gradient agrees with none.
        rises = [(value_along(direction, step) - value_along(direction, -step)) / (2 * step) for step in STEPS]
        if min(abs(rise - slope) - AGREEMENT * max(size, abs(rise)) for rise in rises) > 1e-9:
            return False
    return True


def refuse_special_parameters(module: torch.nn.Module) -> None:
    """Refuse parameters that a step of training moves otherwise than by their own gradients."""
    reason = find_special_parameters(module)
    if reason:
        raise Unsupported(reason)


def find_special_parameters(module: torch.nn.Module) -> str:
    """Why a step of training moves a parameter otherwise than by its gradient as it is taken here; empty if none does.

    >>> pair = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    >>> pair[1].weight = torch.nn.Parameter(pair[0].weight.data)
    >>> find_special_parameters(pair)
    '0.weight and 1.weight share memory, so that each moves by both gradients: make them one'
    """
    regions: dict[int, list[tuple[int, int, str]]] = defaultdict(list)  # by storage
    for name, tensor in module.named_parameters():
        if not tensor.requires_grad:
            continue
        if has_hooks(tensor):
            return f"a hook may change the gradient of {name}, which is taken here without hooks: remove it"
        if tensor.numel() and not tensor.is_meta and tensor.layout == torch.strided:
            span = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            start = int(tensor.storage_offset())
            regions[tensor.untyped_storage().data_ptr()].append((start, start + int(span), name))
    for parts in regions.values():
        for (_, end, one), (start, _, other) in pairwise(sorted(parts)):
            if start <= end:
                return f"{one} and {other} share memory, so that each moves by both gradients: make them one"
    return ""


def has_hooks(tensor: torch.Tensor) -> bool:
    """Whether code of one's own sees the gradient of a parameter, and may change it, before training does."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def drop_hooks(module: torch.nn.Module, batch: torch.Tensor) -> None:
    """Take away the hooks of a copy's backward pass, which `torch.func` does not run, unless they change gradients."""
    parts = [part for part in module.modules() if part._backward_hooks or part._backward_pre_hooks]
    if not parts:
        return
    start, weights = _point(module, (batch,), torch.Generator().manual_seed(0))
    before = _slopes(module, (batch,), start, weights)
    for part in parts:
        part._backward_hooks.clear()
        part._backward_pre_hooks.clear()
    after = _slopes(module, (batch,), start, weights)
    for name, slope in before.items():
        if not torch.allclose(slope, after[name], rtol=1e-9, atol=1e-12):
            raise Unsupported(f"a hook changes the gradient of {name}, and laws are counted without hooks: remove it")


def _point(module: torch.nn.Module, inputs: Inputs, generator: torch.Generator) -> tuple[Tensors, torch.Tensor]:
    """Parameters next to the module's own, and weights of its outputs."""
    values = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}
    start = {name: value + _noise(value, generator) / 20 for name, value in values.items()}
    with torch.no_grad():
        shape = _output(module, start, inputs).shape
    return start, torch.randn(shape, generator=generator, dtype=torch.float64)


def _slopes(
    module: torch.nn.Module, inputs: Inputs, start: Mapping[str, torch.Tensor], weights: torch.Tensor
) -> Tensors:
    """What a step of training sees."""
    leaves = {name: value.detach().requires_grad_(True) for name, value in start.items()}
    output = _output(module, leaves, inputs)
    if not output.requires_grad:
        return {name: torch.zeros_like(at) for name, at in leaves.items()}
    try:
        gradients = torch.autograd.grad((output * weights).sum(), list(leaves.values()), allow_unused=True)
    except Exception as error:  # code of one's own: a hook, or a backward pass
        raise Unsupported(f"the module's backward pass fails: {type(error).__name__}: {str(error)[:120]}") from None
    return {
        name: torch.zeros_like(at) if part is None else part
        for (name, at), part in zip(leaves.items(), gradients, strict=True)
    }


def _output(module: torch.nn.Module, values: Mapping[str, torch.Tensor], inputs: Inputs) -> torch.Tensor:
    """What a module computes, its dropout always the same; the first of several results."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # not `torch.manual_seed`, which also changes other devices, slowly
        return first_tensor(call_with(module, values, inputs))


def _noise(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    size = max(float(value.detach().square().mean().sqrt()), 0.2)
    return size * torch.randn(value.shape, generator=generator, dtype=torch.float64)
