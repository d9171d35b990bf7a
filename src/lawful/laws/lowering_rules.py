"""How each ATen operation becomes steps of a program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lawful.errors import Unsupported
from lawful.laws.program import Writer


@dataclass(frozen=True, eq=False)
class TracedArray:
    """An array of the program seen as a tensor; `dead` marks the entries that are −∞ (masked before a softmax)."""

    number: int
    shape: tuple[int, ...]
    dead: torch.Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """The input, if it holds token ids: the program reads the unit vector of each."""

    shape: tuple[int, ...]


class Rules:
    """A method `do_NAME` for each operation, with the arguments of `torch.ops.aten.NAME`."""

    def __init__(self, write: Writer) -> None:
        self.write = write

    # Shapes

    def placed(self, value: Any, shape: Sequence[int]) -> int:
        """The number of an array that holds a value broadcast to a shape."""
        shape = tuple(shape)
        if not isinstance(value, TracedArray):
            tensor = torch.as_tensor(value, dtype=torch.float64)
            if not torch.isfinite(tensor).all():
                raise Unsupported("no proof covers infinite constants outside a softmax")
            return self.write.constant(tensor.expand(shape).numpy())
        if value.dead is not None:
            raise Unsupported("no proof covers masked arrays outside a softmax")
        if value.shape == shape:
            return value.number
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).expand(shape)
        return self.write.take((value.number,), numbers.reshape(-1).numpy())

    def binary(self, kind: str, first: Any, second: Any) -> TracedArray:
        """A sum or product with broadcasting."""
        shape = _common(first, second)
        return TracedArray(self.write.pair(kind, self.placed(first, shape), self.placed(second, shape)), shape)

    def unary(self, kind: str, value: TracedArray) -> TracedArray:
        """A function of every entry."""
        return TracedArray(self.write.function(kind, self.placed(value, value.shape)), value.shape)

    def scaled(self, value: TracedArray, factor: float) -> TracedArray:
        """Times a number."""
        return value if factor == 1 else self.binary("mul", value, factor)

    # Sums and products

    def do_add(self, first: Any, second: Any, alpha: float = 1) -> TracedArray:
        """`first + alpha · second`; −∞ in a constant masks."""
        if isinstance(first, TracedArray) and isinstance(second, torch.Tensor) and torch.isneginf(second).any():
            return self._masked(first, torch.isneginf(second), torch.nan_to_num(second, neginf=0.0))
        if alpha != 1:
            second = self.scaled(second, alpha) if isinstance(second, TracedArray) else second * alpha
        return self.binary("add", first, second)

    def _masked(self, value: TracedArray, dead: torch.Tensor, shift: torch.Tensor) -> TracedArray:
        found = self.binary("add", value, shift)
        return TracedArray(found.number, found.shape, dead.expand(found.shape))

    def do_sub(self, first: Any, second: Any, alpha: float = 1) -> TracedArray:
        """`first − alpha · second`."""
        return self.do_add(first, second, -alpha)

    def do_rsub(self, first: Any, second: Any, alpha: float = 1) -> TracedArray:
        """`second − alpha · first`."""
        return self.do_add(second, first, -alpha)

    def do_mul(self, first: Any, second: Any) -> TracedArray:
        """Entry by entry."""
        return self.binary("mul", first, second)

    def do_div(self, first: Any, second: Any) -> TracedArray:
        """Times the reciprocal."""
        return self.binary("mul", first, self.do_reciprocal(second))

    def do_reciprocal(self, value: Any) -> TracedArray:
        """One over it; of a constant too, since the quotient may be no float."""
        if isinstance(value, TracedArray):
            return self.unary("reciprocal", value)
        tensor = torch.as_tensor(value, dtype=torch.float64)
        constant = TracedArray(self.placed(tensor, tensor.shape), tuple(tensor.shape))
        return self.unary("reciprocal", constant)

    def do_neg(self, value: TracedArray) -> TracedArray:
        """Minus."""
        return self.scaled(value, -1.0)

    def do_sum(self, value: TracedArray, axes: Any = None, keepdim: bool = False) -> TracedArray:
        """Over some axes, which are moved last first."""
        count = len(value.shape)
        chosen = list(range(count)) if axes in (None, []) else [axes] if isinstance(axes, int) else list(axes)
        chosen = [axis % count for axis in chosen] if count else []
        kept = [axis for axis in range(count) if axis not in chosen]
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).permute(kept + chosen)
        moved = self.write.take((self.placed(value, value.shape),), numbers.reshape(-1).numpy())
        run = math.prod(value.shape[axis] for axis in chosen)
        shape = [1 if axis in chosen else size for axis, size in enumerate(value.shape)]
        if not keepdim:
            shape = [value.shape[axis] for axis in kept]
        return TracedArray(self.write.total(moved, run) if run > 1 else moved, tuple(shape))

    def do_mean(self, value: TracedArray, axes: Any = None, keepdim: bool = False) -> TracedArray:
        """A sum divided by a whole number, exactly."""
        total = self.do_sum(value, axes, keepdim)
        count = math.prod(value.shape) // max(math.prod(total.shape), 1)
        return total if count == 1 else self.do_div(total, float(count))

    def do_mm(self, first: Any, second: Any) -> TracedArray:
        """A matrix product."""
        (p, q), (_, r) = _shape(first), _shape(second)
        numbers = self.placed(first, (p, q)), self.placed(second, (q, r))
        return TracedArray(self.write.matmul(*numbers, (1, p, q, r)), (p, r))

    def do_bmm(self, first: Any, second: Any) -> TracedArray:
        """A stack of matrix products."""
        (n, p, q), (_, _, r) = _shape(first), _shape(second)
        numbers = self.placed(first, (n, p, q)), self.placed(second, (n, q, r))
        return TracedArray(self.write.matmul(*numbers, (n, p, q, r)), (n, p, r))

    def do_addmm(self, bias: Any, first: Any, second: Any, beta: float = 1, alpha: float = 1) -> TracedArray:
        """`beta · bias + alpha · first second`."""
        product = self.scaled(self.do_mm(first, second), alpha)
        return self.do_add(product, bias, beta)

    def do_convolution(
        self,
        value: Any,
        weight: Any,
        bias: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        outer: Any,
        groups: int,
    ) -> TracedArray:
        """Patches times kernels, group by group."""
        shape, kernel = _shape(value), _shape(weight)[2:]
        numbers = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64).reshape(shape)
        pads = [size for pad in reversed(list(padding)) for size in (pad, pad)]
        numbers = torch.nn.functional.pad(numbers, pads)
        for axis, (size, step, gap) in enumerate(zip(kernel, stride, dilation, strict=True)):
            numbers = numbers.unfold(axis + 2, gap * (size - 1) + 1, step)[..., ::gap]
        batch, channels = shape[:2]
        space = numbers.shape[2 : 2 + len(kernel)]
        per = channels // groups
        numbers = numbers.reshape(batch, groups, per, math.prod(space), math.prod(kernel)).permute(1, 0, 3, 2, 4)
        rows, inner = batch * math.prod(space), per * math.prod(kernel)
        patches = self.write.take((self.placed(value, shape),), numbers.reshape(-1).numpy().astype(np.intp) - 1)
        out = _shape(weight)[0]
        table = torch.arange(out * inner).reshape(groups, out // groups, inner).permute(0, 2, 1).reshape(-1).numpy()
        kernels = self.write.take((self.placed(weight, _shape(weight)),), table)
        product = self.write.matmul(patches, kernels, (groups, rows, inner, out // groups))
        order = torch.arange(rows * out).reshape(groups, batch, math.prod(space), out // groups).permute(1, 0, 3, 2)
        found = TracedArray(self.write.take((product,), order.reshape(-1).numpy()), (batch, out, *space))
        if bias is None:
            return found
        channel = TracedArray(self.placed(bias, (out,)), (out, *(1,) * len(kernel)))
        return self.binary("add", found, channel)

    def do_avg_pool2d(
        self, value: TracedArray, kernel: Any, stride: Any = (), padding: Any = (0, 0), *rest: Any
    ) -> TracedArray:
        """Means of windows, without padding."""
        if any(padding) or any(rest):
            raise Unsupported("no proof covers this average pooling")
        steps = list(stride) or list(kernel)
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape)
        for axis, (size, step) in enumerate(zip(kernel, steps, strict=True)):
            numbers = numbers.unfold(len(value.shape) - 2 + axis, size, step)
        patches = self.write.take((self.placed(value, value.shape),), numbers.reshape(-1).numpy())
        run = math.prod(kernel)
        total = TracedArray(self.write.total(patches, run), tuple(numbers.shape[:-2]))
        return self.do_div(total, float(run))

    # Functions of every entry

    def do_exp(self, value: TracedArray) -> TracedArray:
        """The exponential; of −∞ it is 0."""
        found = self.unary("exp", TracedArray(value.number, value.shape))
        return found if value.dead is None else self.binary("mul", found, (~value.dead).double())

    def do_erf(self, value: TracedArray) -> TracedArray:
        """The error function."""
        return self.unary("erf", value)

    def do_rsqrt(self, value: TracedArray) -> TracedArray:
        """One over the root."""
        return self.unary("rsqrt", value)

    def do_sqrt(self, value: TracedArray) -> TracedArray:
        """The root of a positive number."""
        return self.binary("mul", value, self.unary("rsqrt", value))

    def do_log(self, value: TracedArray) -> TracedArray:
        """The logarithm."""
        return self.unary("log", value)

    def do_sin(self, value: TracedArray) -> TracedArray:
        """The sine."""
        return self.unary("sin", value)

    def do_cos(self, value: TracedArray) -> TracedArray:
        """The cosine."""
        return self.unary("cos", value)

    def do_pow(self, value: Any, power: Any) -> TracedArray:
        """Whole powers, and halves of them."""
        if not isinstance(value, TracedArray) or isinstance(power, (TracedArray, torch.Tensor)) or (2 * power) % 1:
            raise Unsupported("no proof covers this power")
        whole, half = divmod(abs(float(power)), 1)
        if whole > 16:
            raise Unsupported("no proof covers this power")
        base = value if power > 0 else self.do_reciprocal(value)
        found = self.do_sqrt(base) if half else None
        for _ in range(int(whole)):
            found = base if found is None else self.binary("mul", found, base)
        return self.binary("mul", 1.0, base) if found is None else found

    def do_sigmoid(self, value: TracedArray) -> TracedArray:
        """`1/(1 + e^{−x})`."""
        return self.do_reciprocal(self.do_add(self.do_exp(self.do_neg(value)), 1.0))

    def do_tanh(self, value: TracedArray) -> TracedArray:
        """`1 − 2/(1 + e^{2x})`."""
        inner = self.do_reciprocal(self.do_add(self.do_exp(self.scaled(value, 2.0)), 1.0))
        return self.do_add(self.scaled(inner, -2.0), 1.0)

    def do_silu(self, value: TracedArray) -> TracedArray:
        """`x σ(x)`."""
        return self.binary("mul", value, self.do_sigmoid(value))

    def do_gelu(self, value: TracedArray, approximate: str = "none") -> TracedArray:
        """`x Φ(x)`, or its approximation by tanh."""
        if approximate == "tanh":
            cubic = self.do_add(value, self.scaled(self.do_pow(value, 3), 0.044715))
            inner = self.do_tanh(self.scaled(cubic, math.sqrt(2 / math.pi)))
        else:
            inner = self.do_erf(self.binary("mul", value, self.unary("rsqrt", self._fixed(2.0))))
        return self.binary("mul", self.scaled(value, 0.5), self.do_add(inner, 1.0))

    def _fixed(self, number: float) -> TracedArray:
        return TracedArray(self.write.constant(np.array([number])), ())

    def do__softmax(self, value: TracedArray, axis: int, half: bool = False) -> TracedArray:
        """Exponentials over their sum."""
        powers = self.do_exp(value)
        return self.do_div(powers, self.do_sum(powers, [axis], True))

    def do__log_softmax(self, value: TracedArray, axis: int, half: bool = False) -> TracedArray:
        """The logarithm of the softmax."""
        return self.do_sub(value, self.do_log(self.do_sum(self.do_exp(value), [axis], True)))

    def do_softplus(self, value: TracedArray, beta: float = 1, threshold: float = 20) -> TracedArray:
        """`log(1 + e^{βx})/β`, equal to PyTorch's below its threshold."""
        inner = self.do_log(self.do_add(self.do_exp(self.scaled(value, beta)), 1.0))
        return self._chosen(self.do_sub(threshold, self.scaled(value, beta)), self.do_div(inner, float(beta)), value)

    # Pieces

    def _chosen(self, sign: TracedArray, positive: Any, other: Any) -> TracedArray:
        shape = sign.shape
        numbers = self.placed(sign, shape), self.placed(positive, shape), self.placed(other, shape)
        return TracedArray(self.write.choose(*numbers), shape)

    def do_relu(self, value: TracedArray) -> TracedArray:
        """Zero below zero."""
        return self._chosen(value, value, 0.0)

    def do_leaky_relu(self, value: TracedArray, slope: float = 0.01) -> TracedArray:
        """Another slope below zero."""
        return self._chosen(value, value, self.scaled(value, slope))

    def do_abs(self, value: TracedArray) -> TracedArray:
        """Without its sign."""
        return self._chosen(value, value, self.do_neg(value))

    def do_elu(self, value: TracedArray, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> TracedArray:
        """`scale · x`, or `scale · alpha (e^{input_scale x} − 1)` below zero."""
        below = self.scaled(self.do_add(self.do_exp(self.scaled(value, input_scale)), -1.0), alpha * scale)
        return self._chosen(value, self.scaled(value, scale), below)

    def do_where(self, mask: Any, first: Any, second: Any) -> Any:
        """By a constant mask."""
        if isinstance(mask, TracedArray):
            raise Unsupported("no proof covers a choice by a computed condition")
        if isinstance(second, torch.Tensor) and torch.isneginf(second).any():
            shape = _common(first, second, mask)
            dead = torch.isneginf(second.expand(shape)) & ~mask.expand(shape)
            return TracedArray(self.placed(first, shape), shape, dead)
        if isinstance(first, torch.Tensor) and torch.isneginf(first).any():
            return self.do_where(~mask, second, first)
        shape = _common(mask, first, second)
        count = math.prod(shape)
        numbers = torch.arange(count).reshape(shape)
        chosen = torch.where(mask.expand(shape), numbers, numbers + count)
        sources = self.placed(first, shape), self.placed(second, shape)
        return TracedArray(self.write.take(sources, chosen.reshape(-1).numpy()), shape)

    def do_masked_fill(self, value: Any, mask: Any, fill: Any) -> Any:
        """By a constant mask."""
        number = torch.as_tensor(fill, dtype=torch.float64)
        return self.do_where(torch.as_tensor(mask), number, value)

    def do_eq(self, value: TracedArray, other: Any) -> torch.Tensor:
        """Which entries are masked; nothing else can be said of numbers that vary."""
        if other != -math.inf:
            raise Unsupported("no proof covers a comparison of computed numbers")
        return torch.zeros(value.shape, dtype=torch.bool) if value.dead is None else value.dead

    def do_full_like(self, value: TracedArray, fill: float, **rest: Any) -> torch.Tensor:
        """A constant of the same shape."""
        return torch.full(value.shape, float(fill), dtype=torch.float64)

    def do_zeros_like(self, value: TracedArray, **rest: Any) -> torch.Tensor:
        """Zeros of the same shape."""
        return torch.zeros(value.shape, dtype=torch.float64)

    def do_ones_like(self, value: TracedArray, **rest: Any) -> torch.Tensor:
        """Ones of the same shape."""
        return torch.ones(value.shape, dtype=torch.float64)


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (TracedArray, torch.Tensor)):
        return tuple(value.shape)
    return ()


def _common(*values: Any) -> tuple[int, ...]:
    """The shape that several values broadcast to."""
    return tuple(int(size) for size in np.broadcast_shapes(*(_shape(value) for value in values)))
