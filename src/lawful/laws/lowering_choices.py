"""How ATen operations that choose between numbers become steps of a program: pieces of piecewise smooth modules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch

from lawful.errors import Unsupported
from lawful.laws.lowering_rules import Rules, TracedArray


@dataclass(frozen=True, eq=False)
class TracedCondition:
    """Where a traced array is positive (`above`), or where it is not."""

    sign: TracedArray
    above: bool = True


class ChoiceRules(Rules):
    """Comparisons, clamps, maxima and the activations made of them."""

    def do_gt(self, first: Any, second: Any) -> TracedCondition:
        """Where the first is larger; equality is a boundary that no proof touches."""
        return TracedCondition(self.do_sub(first, second))

    do_ge = do_gt

    def do_lt(self, first: Any, second: Any) -> TracedCondition:
        """Where the second is larger."""
        return TracedCondition(self.do_sub(second, first))

    do_le = do_lt

    def do_logical_not(self, condition: TracedCondition) -> TracedCondition:
        """The other side."""
        return TracedCondition(condition.sign, not condition.above)

    do_bitwise_not = do_logical_not

    def do_where(self, mask: Any, first: Any, second: Any) -> Any:
        """By a computed condition, or a constant mask."""
        if not isinstance(mask, TracedCondition):
            return super().do_where(mask, first, second)
        return self._chosen(mask.sign, first, second) if mask.above else self._chosen(mask.sign, second, first)

    def do_maximum(self, first: Any, second: Any) -> TracedArray:
        """The larger."""
        return self._chosen(self.do_sub(first, second), first, second)

    def do_minimum(self, first: Any, second: Any) -> TracedArray:
        """The smaller."""
        return self._chosen(self.do_sub(second, first), first, second)

    def do_clamp(self, value: TracedArray, low: float | None = None, high: float | None = None) -> TracedArray:
        """Between two numbers."""
        found = value if low is None else self.do_maximum(value, low)
        return found if high is None else self.do_minimum(found, high)

    def do_clamp_min(self, value: TracedArray, low: float) -> TracedArray:
        """At least a number."""
        return self.do_maximum(value, low)

    def do_hardtanh(self, value: TracedArray, low: float = -1.0, high: float = 1.0) -> TracedArray:
        """Between −1 and 1, or other numbers."""
        return self.do_clamp(value, low, high)

    def do_relu6(self, value: TracedArray) -> TracedArray:
        """Between 0 and 6."""
        return self.do_clamp(value, 0.0, 6.0)

    def do_hardsigmoid(self, value: TracedArray) -> TracedArray:
        """`clamp(x + 3, 0, 6) / 6`."""
        return self.do_div(self.do_relu6(self.do_add(value, 3.0)), 6.0)

    def do_hardswish(self, value: TracedArray) -> TracedArray:
        """`x · hardsigmoid(x)`."""
        return self.binary("mul", value, self.do_hardsigmoid(value))

    def do_prelu(self, value: TracedArray, slope: TracedArray) -> TracedArray:
        """A trained slope below zero, one for each channel or for all."""
        shape = [1] * len(value.shape)
        if len(value.shape) > 1:
            shape[1] = math.prod(slope.shape)
        return self._chosen(value, value, self.binary("mul", value, TracedArray(slope.number, tuple(shape))))

    do__prelu_kernel = do_prelu

    # Maxima

    def do_amax(self, value: TracedArray, axes: Any = (), keepdim: bool = False) -> TracedArray:
        """The largest over some axes."""
        count = len(value.shape)
        chosen = [axes] if isinstance(axes, int) else list(axes) or list(range(count))
        chosen = [axis % count for axis in chosen]
        kept = [axis for axis in range(count) if axis not in chosen]
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).permute(kept + chosen)
        shape = tuple(value.shape[axis] for axis in kept)
        found = self._largest(value, numbers.reshape(*shape, -1))
        whole = tuple(1 if axis in chosen else size for axis, size in enumerate(value.shape))
        return TracedArray(found.number, whole if keepdim else shape)

    def do_max(self, value: TracedArray, *rest: Any) -> Any:
        """Of all entries, of two arrays, or along an axis with the places (which are not computed)."""
        if not rest:
            return self.do_amax(value)
        if isinstance(rest[0], TracedArray):
            return self.do_maximum(value, rest[0])
        return self.do_amax(value, *rest), None

    def do_max_pool2d_with_indices(
        self,
        value: TracedArray,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0, 0),
        dilation: Sequence[int] = (1, 1),
        ceil: bool = False,
    ) -> tuple[TracedArray, None]:
        """The largest in each window; padded places never win, so only windows without them are covered."""
        if any(padding) or ceil:
            raise Unsupported("no proof covers max pooling with padding")
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape)
        steps = list(stride) or list(kernel)
        for axis, (size, step, gap) in enumerate(zip(kernel, steps, dilation, strict=True)):
            numbers = numbers.unfold(len(value.shape) - 2 + axis, gap * (size - 1) + 1, step)[..., ::gap]
        return self._largest(value, numbers.flatten(-2)), None

    def _largest(self, value: TracedArray, numbers: torch.Tensor) -> TracedArray:
        """The largest of the entries that the last axis of `numbers` lists, by comparisons in pairs."""
        number, shape = self.placed(value, value.shape), tuple(numbers.shape[:-1])
        columns = [
            TracedArray(self.write.take((number,), numbers[..., place].reshape(-1).numpy()), shape)
            for place in range(numbers.shape[-1])
        ]
        return reduce(self.do_maximum, columns)

    # Norms and transposed convolutions

    def do_linalg_vector_norm(
        self, value: TracedArray, order: float = 2, axes: Any = None, keepdim: bool = False
    ) -> TracedArray:
        """The root of the sum of squares."""
        if order != 2:
            raise Unsupported("no proof covers norms other than the Euclidean one")
        return self.do_sqrt(self.do_sum(self.binary("mul", value, value), axes, keepdim))

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
            return super().do_convolution(value, weight, bias, stride, padding, dilation, False, outer, groups)
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
        return super().do_convolution(spread_out, turned, bias, ones, zeros, dilation, False, zeros, groups)
