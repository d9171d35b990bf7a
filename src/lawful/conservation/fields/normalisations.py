"""Normalisations written out, because PyTorch's own nested forward derivatives of them are wrong.

`torch.func.jvp` nested twice through layer and batch norm silently gives wrong second derivatives (PyTorch 2.13).
Inside `composite()` these functions are sums, products and roots, whose derivatives are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Tensor = torch.Tensor


@contextmanager
def composite() -> Iterator[None]:
    """Norms and gated linear units called inside are computed step by step, and detached values still move with θ.

    >>> x = torch.tensor([[1.0, 2.0, 4.0]])
    >>> with composite():
    ...     inside = functional.layer_norm(x, (3,))
    >>> bool(torch.allclose(inside, functional.layer_norm(x, (3,))))
    True
    """
    with _Composite(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield


def _layer_norm(
    values: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *rest: object,
) -> Tensor:
    axes = tuple(range(values.ndim - len(normalized_shape), values.ndim))
    return _affine(_standardise(values, axes, eps), weight, bias)


def _batch_norm(
    values: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    shape = (1, -1, *(1,) * (values.ndim - 2))
    if training or running_mean is None or running_var is None:
        axes = (0, *range(2, values.ndim))
        normal = _standardise(values, axes, eps)
    else:
        normal = (values - running_mean.view(shape)) * (running_var.view(shape) + eps).rsqrt()
    return _affine(normal, _broadcast_view(weight, shape), _broadcast_view(bias, shape))


def _group_norm(
    values: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    shape = (1, -1, *(1,) * (values.ndim - 2))
    grouped = values.reshape(values.shape[0], num_groups, -1)
    normal = _standardise(grouped, (2,), eps).reshape(values.shape)
    return _affine(normal, _broadcast_view(weight, shape), _broadcast_view(bias, shape))


def _instance_norm(
    values: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return _batch_norm(values, running_mean, running_var, weight, bias, eps=eps)
    shape = (1, -1, *(1,) * (values.ndim - 2))
    normal = _standardise(values, tuple(range(2, values.ndim)), eps)
    return _affine(normal, _broadcast_view(weight, shape), _broadcast_view(bias, shape))


def _rms_norm(
    values: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    axes = tuple(range(values.ndim - len(normalized_shape), values.ndim))
    small = torch.finfo(values.dtype).eps if eps is None else eps
    return _affine(values * ((values * values).mean(axes, keepdim=True) + small).rsqrt(), weight, None)


def _glu(values: Tensor, dim: int = -1) -> Tensor:
    first, gate = values.chunk(2, dim)
    return first * torch.sigmoid(gate)


class _Held(torch.autograd.Function):
    """A detached value: training sees no slope, but where the parameters go, it goes too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        """The same numbers."""
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        """No slope."""
        return torch.zeros_like(slope)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        """It moves."""
        return tangent.clone()


def _detach(values: Tensor) -> Tensor:
    if not values.is_floating_point():
        return values  # a condition or a place: no slope passes it anyway
    result: Tensor = _Held.apply(values)  # type: ignore[no-untyped-call]
    return result


def _standardise(values: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    centred = values - values.mean(axes, keepdim=True)
    return centred * ((centred * centred).mean(axes, keepdim=True) + eps).rsqrt()


def _affine(values: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = values if weight is None else values * weight
    return scaled if bias is None else scaled + bias


def _broadcast_view(value: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    return None if value is None else value.view(shape)


_WRITTEN_OUT: Mapping[Any, Callable[..., Tensor]] = {
    functional.layer_norm: _layer_norm,
    functional.batch_norm: _batch_norm,
    functional.group_norm: _group_norm,
    functional.instance_norm: _instance_norm,
    functional.rms_norm: _rms_norm,
    functional.glu: _glu,
    torch.layer_norm: _layer_norm,
    torch.rms_norm: _rms_norm,
    torch.group_norm: _group_norm,
    torch.Tensor.detach: _detach,
    torch.detach: _detach,
}


class _Composite(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _WRITTEN_OUT.get(func, func)(*args, **(kwargs or {}))
