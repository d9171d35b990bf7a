"""Functions with kinks, written with ReLUs alone, so that every kink is a change of sign that can be located."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from lawful.program.arrays import NUMPY
from lawful.program.table import OPERATORS, OperatorFamily

Relu = Callable[..., torch.Tensor]  # takes a height, and a slope for negative ones
Rewriting = Callable[..., torch.Tensor]

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def _relu(relu: Relu, x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return relu(x)


def _leaky(relu: Relu, x: torch.Tensor, negative_slope: float = 0.01, inplace: bool = False) -> torch.Tensor:
    return relu(x, float(negative_slope))


def _prelu(relu: Relu, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    shape = [1, -1] + [1] * (x.ndim - 2) if x.ndim > 1 else [-1]
    above = relu(x)
    return above + weight.reshape(shape if weight.numel() > 1 else [1] * x.ndim) * (x - above)


def _abs(relu: Relu, x: torch.Tensor) -> torch.Tensor:
    return relu(x, -1.0)


def _clamp(relu: Relu, x: torch.Tensor, min: Any = None, max: Any = None) -> torch.Tensor:
    if min is not None:
        x = min + relu(x - min)
    return x if max is None else max - relu(max - x)


def _clamp_max(relu: Relu, x: torch.Tensor, max: Any) -> torch.Tensor:
    return _clamp(relu, x, None, max)


def _hardtanh(
    relu: Relu, x: torch.Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> torch.Tensor:
    return _clamp(relu, x, min_val, max_val)


def _relu6(relu: Relu, x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return _clamp(relu, x, 0.0, 6.0)


def _hardsigmoid(relu: Relu, x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return _clamp(relu, x + 3.0, 0.0, 6.0) / 6.0


def _hardswish(relu: Relu, x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return x * _hardsigmoid(relu, x)


def _elu(relu: Relu, x: torch.Tensor, alpha: float = 1.0, inplace: bool = False) -> torch.Tensor:
    above = relu(x)
    return above + alpha * torch.expm1(x - above)


def _celu(relu: Relu, x: torch.Tensor, alpha: float = 1.0, inplace: bool = False) -> torch.Tensor:
    above = relu(x)
    return above + alpha * torch.expm1((x - above) / alpha)


def _selu(relu: Relu, x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return SELU_SCALE * _elu(relu, x, SELU_ALPHA)


def _softshrink(relu: Relu, x: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    return x - _clamp(relu, x, -lambd, lambd)


def _maximum(relu: Relu, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return other + relu(x - other)


def _minimum(relu: Relu, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return x - relu(x - other)


def _max(relu: Relu, x: torch.Tensor, other: Any = None, **others: Any) -> torch.Tensor:
    if not isinstance(other, torch.Tensor) or others:
        raise NotImplementedError
    return _maximum(relu, x, other)


def _min(relu: Relu, x: torch.Tensor, other: Any = None, **others: Any) -> torch.Tensor:
    return -_max(relu, -x, -other if isinstance(other, torch.Tensor) else None, **others)


def _largest(relu: Relu, candidates: torch.Tensor) -> torch.Tensor:
    """The largest along the last axis, one comparison after the other."""
    largest = candidates[..., 0]
    for number in range(1, candidates.shape[-1]):
        largest = _maximum(relu, candidates[..., number], largest)
    return largest


def _amax(relu: Relu, x: torch.Tensor, dim: Any = (), keepdim: bool = False) -> torch.Tensor:
    axes = [axis % x.ndim for axis in ((dim,) if isinstance(dim, int) else dim or range(x.ndim))]
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    pooled_values = _largest(relu, x.permute(*rest, *axes).reshape([x.shape[axis] for axis in rest] + [-1]))
    return (
        pooled_values.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)])
        if keepdim
        else pooled_values
    )


def _amin(relu: Relu, x: torch.Tensor, dim: Any = (), keepdim: bool = False) -> torch.Tensor:
    return -_amax(relu, -x, dim, keepdim)


def _max_pool(spatial: int) -> Rewriting:
    def pool(relu: Relu, x: torch.Tensor, kernel_size: Any, stride: Any = None, **others: Any) -> torch.Tensor:
        if others.get("dilation", 1) not in (1, (1,) * spatial) or any(
            others.get(name) not in (None, False, 0, (0,) * spatial)
            for name in ("padding", "ceil_mode", "return_indices")
        ):
            raise NotImplementedError
        sizes = (kernel_size,) * spatial if isinstance(kernel_size, int) else tuple(kernel_size)
        steps = sizes if not stride else (stride,) * spatial if isinstance(stride, int) else tuple(stride)
        for size, step in zip(sizes, steps, strict=True):
            x = x.unfold(-spatial, size, step)
        return _largest(relu, x.flatten(-spatial))

    return pool


LOCATED: dict[Any, tuple[str, Rewriting]] = {
    function: (name, rewriting)
    for name, rewriting, functions in (
        ("relu", _relu, (torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_)),
        ("relu", _relu, (functional.relu, functional.relu_)),
        ("leaky_relu", _leaky, (functional.leaky_relu, functional.leaky_relu_)),
        ("prelu", _prelu, (torch.prelu, torch.Tensor.prelu)),
        ("abs", _abs, (torch.abs, torch.absolute, torch.Tensor.abs, torch.Tensor.absolute, torch.Tensor.__abs__)),
        ("clamp", _clamp, (torch.clamp, torch.clip, torch.Tensor.clamp, torch.Tensor.clip)),
        ("clamp", _clamp, (torch.clamp_min, torch.Tensor.clamp_min)),
        ("clamp", _clamp_max, (torch.clamp_max, torch.Tensor.clamp_max)),
        ("hardtanh", _hardtanh, (functional.hardtanh,)),
        ("relu6", _relu6, (functional.relu6,)),
        ("hardsigmoid", _hardsigmoid, (functional.hardsigmoid,)),
        ("hardswish", _hardswish, (functional.hardswish,)),
        ("elu", _elu, (functional.elu,)),
        ("celu", _celu, (functional.celu, torch.celu)),
        ("selu", _selu, (functional.selu, torch.selu)),
        ("softshrink", _softshrink, (functional.softshrink,)),
        ("maximum", _maximum, (torch.maximum, torch.Tensor.maximum)),
        ("minimum", _minimum, (torch.minimum, torch.Tensor.minimum)),
        ("max", _max, (torch.max, torch.Tensor.max)),
        ("min", _min, (torch.min, torch.Tensor.min)),
        ("amax", _amax, (torch.amax, torch.Tensor.amax)),
        ("amin", _amin, (torch.amin, torch.Tensor.amin)),
        ("max_pool1d", _max_pool(1), (functional.max_pool1d,)),
        ("max_pool2d", _max_pool(2), (functional.max_pool2d,)),
    )
    for function in functions
}
UNLOCATED = """
    absolute adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d argmax argmin argsort bucketize ceil clip
    clamp_min clamp_max cosine_embedding_loss cummax cummin floor fmod frac ge gt hardshrink heaviside
    hinge_embedding_loss kthvalue l1_loss le lt margin_ranking_loss max_pool3d median msort multi_margin_loss
    multilabel_margin_loss nanmedian nanquantile quantile remainder round rrelu searchsorted sgn sign signbit sort
    threshold topk triplet_margin_loss triplet_margin_with_distance_loss trunc unique
"""
KINKED = {name for name, _ in LOCATED.values()} | set(UNLOCATED.split())


def rewritten(function: Any, arguments: Any, options: dict[str, Any], relu: Callable[[str], Relu]) -> Any:
    """The call with ReLUs in the place of its kinks, or None if it has no kinks, or some that cannot be located.

    >>> x = torch.tensor([-3.0, -0.5, 2.0])
    >>> rewritten(torch.clamp, (x, -1.0), {"max": 1.0}, lambda name: torch.relu)
    tensor([-1.0000, -0.5000,  1.0000])
    >>> rewritten(torch.tanh, (x,), {}, lambda name: torch.relu) is None
    True
    """
    value = next((argument for argument in (*arguments, *options.values()) if isinstance(argument, torch.Tensor)), None)
    if value is not None and not value.is_floating_point():  # no weight moves integers
        return None
    if function not in LOCATED:
        return None if value is None else _two_slopes(function, value, relu)
    name, rewriting = LOCATED[function]
    options = {"x" if key in ("input", "self") else key: value for key, value in options.items()}
    try:
        call = inspect.signature(rewriting).bind(relu(name), *arguments, **options)
        return rewriting(*call.args, **call.kwargs)
    except (NotImplementedError, TypeError):  # other options than those that are understood
        return None


def _two_slopes(function: Any, x: torch.Tensor, relu: Callable[[str], Relu]) -> torch.Tensor | None:
    """Two slopes, read off at ±1, of whatever else the table says is homogeneous and bends at 0 alone."""
    name = str(getattr(function, "__name__", ""))
    operator = (
        OPERATORS.get(name) if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket) else None
    )
    if operator is None or operator.family is not OperatorFamily.ELEMENTWISE or operator.attributes:
        return None
    traits = operator.traits_of({})
    if traits.degree != 1 or traits.kinks != (0.0,):
        return None
    up, down = (float(operator.meaning(NUMPY, {}, np.array([side]))[0]) for side in (1.0, -1.0))
    return up * relu(name)(x, -down / up) if up else down * relu(name)(-x)


def unlocated_call(function: Any, arguments: Any) -> str | None:
    """The name of a call whose kinks are not located, if it is one and something that trains goes into it."""
    name = str(getattr(function, "__name__", "")).strip("_")
    moving = any(isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments)
    operator = OPERATORS.get(name)
    bends = operator is not None and not operator.attributes and bool(operator.traits_of({}).kinks)
    return name if (name in KINKED or bends) and moving else None
