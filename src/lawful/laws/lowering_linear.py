"""How sums, products, convolutions and means become steps of a program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from lawful.errors import Unsupported
from lawful.laws.lowering_rules import Rules, TracedArray, shape_of

MOST_LINEAR = 1024  # entries of an image that is interpolated


class LinearRules(Rules):
    """Operations that are linear in each of their arguments, and quotients."""

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

    def do_var(
        self, value: TracedArray, axes: Any = None, correction: Any = None, keepdim: bool = False
    ) -> TracedArray:
        """The mean square about the mean, with one sample less unless told."""
        centred = self.do_sub(value, self.do_mean(value, axes, True))
        total = self.do_sum(self.binary("mul", centred, centred), axes, keepdim)
        count = math.prod(value.shape) // max(math.prod(total.shape), 1)
        return self.do_div(total, float(count - (1 if correction is None else correction)))

    def do_var_mean(
        self, value: TracedArray, axes: Any = None, correction: Any = None, keepdim: bool = False
    ) -> list[TracedArray]:
        """Both, as norms that are broken down ask for them."""
        return [self.do_var(value, axes, correction, keepdim), self.do_mean(value, axes, keepdim)]

    def do_cumsum(self, value: TracedArray, axis: int) -> TracedArray:
        """Partial sums along an axis, by a matrix of ones below the diagonal."""
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).movedim(axis, -1)
        size = numbers.shape[-1]
        rows = TracedArray(
            self.write.take((self.placed(value, value.shape),), numbers.reshape(-1).numpy()),
            (math.prod(numbers.shape[:-1]), size),
        )
        found = self.do_mm(rows, torch.ones((size, size), dtype=torch.float64).triu())
        back = torch.arange(numbers.numel()).reshape(numbers.shape).movedim(-1, axis)
        return TracedArray(self.write.take((found.number,), back.reshape(-1).numpy()), value.shape)

    def do_prod(self, value: TracedArray, axis: int | None = None, keepdim: bool = False) -> TracedArray:
        """The product along an axis, or of all entries."""
        if axis is None:
            flat = TracedArray(value.number, (math.prod(value.shape),), value.dead)
            return TracedArray(self._products(flat, 0)[-1].number, ())
        found = self._products(value, axis)[-1]
        shape = list(value.shape)
        shape[axis] = 1
        return TracedArray(found.number, tuple(shape) if keepdim else found.shape)

    def do_cumprod(self, value: TracedArray, axis: int) -> TracedArray:
        """Products of the first entries along an axis."""
        parts = self._products(value, axis)
        order = torch.arange(math.prod(value.shape)).reshape(len(parts), *parts[0].shape).movedim(0, axis)
        whole = self.write.take(tuple(part.number for part in parts), order.reshape(-1).numpy())
        return TracedArray(whole, value.shape)

    def _products(self, value: TracedArray, axis: int) -> list[TracedArray]:
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).movedim(axis, 0)
        number, shape = self.placed(value, value.shape), tuple(numbers.shape[1:])
        found: list[TracedArray] = []
        for part in numbers:
            entry = TracedArray(self.write.take((number,), part.reshape(-1).numpy()), shape)
            found.append(self.binary("mul", found[-1], entry) if found else entry)
        return found

    def linear(self, operation: Any, value: TracedArray, *rest: Any) -> TracedArray:
        """An operation that is linear in its only array: one image of a channel times the matrix of the operation."""
        kept, image = value.shape[:2], value.shape[2:]
        size = math.prod(image)
        if size > MOST_LINEAR:
            raise Unsupported(f"no proof covers {operation} of more than {MOST_LINEAR} numbers")
        table = operation(torch.eye(size, dtype=torch.float64).reshape(1, size, *image), *rest)
        rows = TracedArray(self.placed(value, value.shape), (math.prod(kept), size))
        return TracedArray(self.do_mm(rows, table.reshape(size, -1)).number, (*kept, *table.shape[2:]))

    def do_mm(self, first: Any, second: Any) -> TracedArray:
        """A matrix product."""
        (p, q), (_, r) = shape_of(first), shape_of(second)
        numbers = self.placed(first, (p, q)), self.placed(second, (q, r))
        return TracedArray(self.write.matmul(*numbers, (1, p, q, r)), (p, r))

    def do_bmm(self, first: Any, second: Any) -> TracedArray:
        """A stack of matrix products."""
        (n, p, q), (_, _, r) = shape_of(first), shape_of(second)
        numbers = self.placed(first, (n, p, q)), self.placed(second, (n, q, r))
        return TracedArray(self.write.matmul(*numbers, (n, p, q, r)), (n, p, r))

    def do_addmm(self, bias: Any, first: Any, second: Any, beta: float = 1, alpha: float = 1) -> TracedArray:
        """`beta · bias + alpha · first second`."""
        product = self.scaled(self.do_mm(first, second), alpha)
        return self.do_add(product, bias, beta)

    def _convolution(
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
        shape, kernel = shape_of(value), shape_of(weight)[2:]
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
        out = shape_of(weight)[0]
        table = torch.arange(out * inner).reshape(groups, out // groups, inner).permute(0, 2, 1).reshape(-1).numpy()
        kernels = self.write.take((self.placed(weight, shape_of(weight)),), table)
        product = self.write.matmul(patches, kernels, (groups, rows, inner, out // groups))
        order = torch.arange(rows * out).reshape(groups, batch, math.prod(space), out // groups).permute(1, 0, 3, 2)
        found = TracedArray(self.write.take((product,), order.reshape(-1).numpy()), (batch, out, *space))
        if bias is None:
            return found
        channel = TracedArray(self.placed(bias, (out,)), (out, *(1,) * len(kernel)))
        return self.binary("add", found, channel)

    def do_avg_pool2d(
        self,
        value: TracedArray,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0, 0),
        ceil: bool = False,
        counted: bool = True,
        divisor: int | None = None,
    ) -> TracedArray:
        """Means of windows; padded places are zeros, and count unless told."""
        if ceil or divisor:
            raise Unsupported("no proof covers this average pooling")
        numbers = self.windows(value, kernel, stride, padding)
        patches = self.write.take((self.placed(value, value.shape),), numbers.reshape(-1).numpy())
        run = numbers.shape[-1]
        total = TracedArray(self.write.total(patches, run), tuple(numbers.shape[:-1]))
        sizes = (numbers >= 0).sum(-1).double()
        return self.do_div(total, float(run)) if counted else self.do_div(total, sizes)

    def windows(
        self, value: TracedArray, kernel: Any, stride: Any, padding: Any, dilation: Any = (1, 1)
    ) -> torch.Tensor:
        """The numbers of the entries in each window of an image, along a last axis; −1 where there is padding."""
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape)
        edges = [size for pad in reversed(list(padding)) for size in (pad, pad)]
        numbers = torch.nn.functional.pad(numbers, edges, value=-1)
        first = len(value.shape) - len(kernel)
        for axis, (size, step, gap) in enumerate(zip(kernel, list(stride) or list(kernel), dilation, strict=True)):
            numbers = numbers.unfold(first + axis, gap * (size - 1) + 1, step)[..., ::gap]
        return numbers.flatten(-len(kernel))

    def do__trilinear(
        self, one: Any, two: Any, three: Any, first: Any, second: Any, third: Any, summed: Any, unroll: int = 1
    ) -> TracedArray:
        """A product of three arrays, each with axes of size 1 inserted, summed over some axes."""
        parts = []
        for value, axes in ((one, first), (two, second), (three, third)):
            shape = torch.empty(value.shape)
            for axis in axes:
                shape = shape.unsqueeze(axis)
            parts.append(TracedArray(self.placed(value, value.shape), tuple(shape.shape)))
        return self.do_sum(self.binary("mul", self.binary("mul", parts[0], parts[1]), parts[2]), list(summed))

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
        """Transposed: the input spread out by zeros, convolved with the kernel turned round."""
        if not transposed:
            return self._convolution(value, weight, bias, stride, padding, dilation, False, outer, groups)
        if not isinstance(value, TracedArray) or not isinstance(weight, TracedArray):
            raise Unsupported("no proof covers transposed convolutions of constants")
        kernel = weight.shape[2:]
        numbers = torch.arange(1, math.prod(value.shape) + 1).reshape(value.shape)
        for axis, step in enumerate(stride):
            size = numbers.shape[axis + 2]
            spread = list(numbers.shape)
            spread[axis + 2] = (size - 1) * step + 1
            wide = torch.zeros(spread, dtype=numbers.dtype)
            wide.index_copy_(axis + 2, torch.arange(size) * step, numbers)
            numbers = wide
        pads: list[int] = []
        for axis in reversed(range(len(kernel))):
            edge = dilation[axis] * (kernel[axis] - 1) - padding[axis]
            if edge < 0:
                raise Unsupported("no proof covers this padding of a transposed convolution")
            pads += [edge, edge + outer[axis]]
        numbers = torch.nn.functional.pad(numbers, pads)
        spread_out = TracedArray(
            self.write.take((self.placed(value, value.shape),), numbers.reshape(-1).numpy() - 1), tuple(numbers.shape)
        )
        channels, out = weight.shape[:2]
        table = torch.arange(math.prod(weight.shape)).reshape(groups, channels // groups, out, *kernel)
        table = table.flip(tuple(range(3, 3 + len(kernel)))).transpose(1, 2)
        turned = TracedArray(
            self.write.take((self.placed(weight, weight.shape),), table.reshape(-1).numpy()),
            (groups * out, channels // groups, *kernel),
        )
        ones, zeros = [1] * len(kernel), [0] * len(kernel)
        return self._convolution(spread_out, turned, bias, ones, zeros, dilation, False, zeros, groups)
