"""How ATen operations that choose between numbers become steps of a program: pieces of piecewise smooth modules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lawful.errors import Unsupported
from lawful.laws.lowering_functions import FunctionRules
from lawful.laws.lowering_rules import TracedArray


@dataclass(frozen=True, eq=False)
class TracedCondition:
    """Where a traced array is positive (`above`), or where it is not."""

    sign: TracedArray
    above: bool = True


class ChoiceRules(FunctionRules):
    """Comparisons, clamps and the activations made of them."""

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
        return self.chosen(mask.sign, first, second) if mask.above else self.chosen(mask.sign, second, first)

    def as_number(self, value: Any) -> Any:
        """A computed condition as 1 or 0, anything else as it is."""
        return self.do_where(value, 1.0, 0.0) if isinstance(value, TracedCondition) else value

    def do_mul(self, first: Any, second: Any) -> TracedArray:
        """Entry by entry; a condition counts as 1 or 0."""
        return super().do_mul(self.as_number(first), self.as_number(second))

    def do_masked_fill(self, value: Any, mask: Any, fill: Any) -> Any:
        """A number where a computed condition holds, or a constant mask."""
        return (
            self.do_where(mask, fill, value)
            if isinstance(mask, TracedCondition)
            else super().do_masked_fill(value, mask, fill)
        )

    def do_maximum(self, first: Any, second: Any) -> TracedArray:
        """The larger."""
        return self.chosen(self.do_sub(first, second), first, second)

    def do_minimum(self, first: Any, second: Any) -> TracedArray:
        """The smaller."""
        return self.chosen(self.do_sub(second, first), first, second)

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
        return self.chosen(value, value, self.binary("mul", value, TracedArray(slope.number, tuple(shape))))

    do__prelu_kernel = do_prelu

    def do_relu(self, value: TracedArray) -> TracedArray:
        """Zero below zero."""
        return self.chosen(value, value, 0.0)

    def do_leaky_relu(self, value: TracedArray, slope: float = 0.01) -> TracedArray:
        """Another slope below zero."""
        return self.chosen(value, value, self.scaled(value, slope))

    def do_rrelu_with_noise(
        self,
        value: TracedArray,
        noise: Any,
        lower: float = 1 / 8,
        upper: float = 1 / 3,
        train: bool = False,
        *rest: Any,
    ) -> TracedArray:
        """Evaluated: the mean of both slopes below zero."""
        if train:
            raise Unsupported("no proof covers random slopes")
        return self.do_leaky_relu(value, (lower + upper) / 2)

    def do_abs(self, value: TracedArray) -> TracedArray:
        """Without its sign."""
        return self.chosen(value, value, self.do_neg(value))

    def do_elu(self, value: TracedArray, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> TracedArray:
        """`scale · x`, or `scale · alpha (e^{input_scale x} − 1)` below zero."""
        below = self.scaled(self.do_add(self.do_exp(self.scaled(value, input_scale)), -1.0), alpha * scale)
        return self.chosen(value, self.scaled(value, scale), below)

    def do_sign(self, value: TracedArray) -> TracedArray:
        """1 or −1."""
        return self.chosen(value, 1.0, -1.0)
