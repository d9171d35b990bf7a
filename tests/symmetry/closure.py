"""An independent count: the dimension of the Lie algebra that gradients span, by nested automatic differentiation.

Norms and attention are written out here: nested forward mode through PyTorch's own layer and batch normalisation gives
wrong second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    dims = tuple(range(-len(shape), 0))
    y = x - x.mean(dims, keepdim=True)
    y = y * torch.rsqrt((y * y).mean(dims, keepdim=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, *rest: Any, **more: Any
) -> Any:
    dims, shape = [d for d in range(x.dim()) if d != 1], [1, -1, *(1,) * (x.dim() - 2)]
    if training:
        y = x - x.mean(dims, keepdim=True)
        y = y * torch.rsqrt((y * y).mean(dims, keepdim=True) + 1e-5)
    else:
        y = (x - mean.view(shape)) * torch.rsqrt(var.view(shape) + 1e-5)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


def _group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    y = x.reshape(x.shape[0], groups, -1)
    y = _layer_norm(y, y.shape[-1:], eps=eps).reshape(x.shape)
    shape = [1, -1, *(1,) * (x.dim() - 2)]
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


def _attention(q: Any, k: Any, v: Any, attn_mask: Any = None, is_causal: bool = False, **more: Any) -> Any:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if is_causal:
        scores = scores + torch.full(scores.shape[-2:], -1e30, dtype=scores.dtype).triu(1)
    return scores.softmax(-1) @ v


@contextmanager
def written_out() -> Iterator[None]:
    with (
        mock.patch.object(functional, "layer_norm", _layer_norm),
        mock.patch.object(functional, "batch_norm", _batch_norm),
        mock.patch.object(functional, "group_norm", _group_norm),
        mock.patch.object(functional, "scaled_dot_product_attention", _attention),
        mock.patch("torch.backends.mha.get_fastpath_enabled", return_value=False),
    ):
        yield


def lie_laws(module: nn.Module, draw: Callable[[], torch.Tensor], seed: int = 0, known: int = -1) -> int:
    """The number of laws near a random point: parameters less the dimension reached by brackets of gradients.

    Where that many laws are `known` to be true the dimension cannot grow any further, and brackets end.
    """
    torch.manual_seed(seed)
    module = module.double().train()
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.track_running_stats, part.running_mean, part.running_var = False, None, None
    named = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    sizes = [tensor.numel() for tensor in named.values()]
    start = torch.cat([(t.detach() + 0.5 * torch.randn_like(t)).flatten() for t in named.values()])

    def value(theta: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        parts = zip(named.items(), theta.split(sizes), strict=True)
        out = functional_call(module, {name: part.view(t.shape) for (name, t), part in parts}, (x,))
        return (w * out).sum()

    def bracket(level: int) -> Any:
        field = grad(value)
        if level == 0:
            return lambda t, xs, ws: field(t, xs[0], ws[0])
        inner = bracket(level - 1)

        def found(t: Any, xs: Any, ws: Any) -> Any:
            def outer(u: Any) -> Any:
                return field(u, xs[-1], ws[-1])

            def before(u: Any) -> Any:
                return inner(u, xs[:-1], ws[:-1])

            return jvp(outer, (t,), (before(t),))[1] - jvp(before, (t,), (outer(t),))[1]

        return found

    with written_out():
        shape = functional_call(module, {}, (draw(),)).shape
        rows, reached, scale = torch.zeros(0, len(start), dtype=torch.float64), -1, 1.0
        for level in range(6):
            count = len(start) - max(reached, 0) + 10
            xs = [torch.stack([draw() for _ in range(count)]) for _ in range(level + 1)]
            ws = [torch.randn(count, *shape, dtype=torch.float64) for _ in range(level + 1)]
            if any(isinstance(part, nn.RNNBase) for part in module.modules()):  # their steps cannot be batched
                samples = zip(zip(*xs, strict=True), zip(*ws, strict=True), strict=True)
                new = torch.stack([bracket(level)(start, list(x), list(w)) for x, w in samples]).detach()
            else:
                new = vmap(bracket(level), in_dims=(None, 0, 0), chunk_size=64)(start, xs, ws).detach()
            length = new.norm(dim=1, keepdim=True)
            scale = float(length.median()) if level == 0 else scale
            _, values, basis = torch.linalg.svd(
                torch.cat([rows, new / length.clamp_min(1e-4 * scale)]), full_matrices=False
            )
            rank = int((values > 1e-9 * values[0]).sum())
            rows = basis[:rank]
            if rank in (reached, len(start), len(start) - known):
                return len(start) - rank
            reached = rank
    return len(start) - reached


def drawing(module: nn.Module, given: Any, vocabulary: int = 5) -> Callable[[], torch.Tensor]:
    """Random inputs for a module, a batch of two each."""
    if isinstance(given, str):
        return lambda: torch.randint(vocabulary, (2, int(given.split(":")[0])))
    return lambda: torch.randn(2, *given, dtype=torch.float64)
