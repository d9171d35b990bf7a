"""How functions of every entry become steps of a program."""

from __future__ import annotations

import math
from typing import Any

import torch

from lawful.errors import Unsupported
from lawful.laws.lowering_linear import LinearRules
from lawful.laws.lowering_rules import TracedArray


class FunctionRules(LinearRules):
    """Exponentials, roots and what is made of them."""

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

    def do_expm1(self, value: TracedArray) -> TracedArray:
        """`e^x − 1`."""
        return self.do_add(self.do_exp(value), -1.0)

    def do_log1p(self, value: TracedArray) -> TracedArray:
        """`log(1 + x)`."""
        return self.do_log(self.do_add(value, 1.0))

    def do_sin(self, value: TracedArray) -> TracedArray:
        """The sine."""
        return self.unary("sin", value)

    def do_cos(self, value: TracedArray) -> TracedArray:
        """The cosine."""
        return self.unary("cos", value)

    def do_pow(self, value: Any, power: Any) -> TracedArray:
        """Whole powers, and halves of them; others by the logarithm, where there is one."""
        if not isinstance(value, TracedArray) or isinstance(power, (TracedArray, torch.Tensor)) or (2 * power) % 1:
            return self.do_exp(self.binary("mul", self.do_log(self._traced(value)), power))
        whole, half = divmod(abs(float(power)), 1)
        if whole > 16 or power == 0:
            raise Unsupported("no proof covers this power")
        base = value if power > 0 else self.do_reciprocal(value)
        found = self.do_sqrt(base) if half else None
        for _ in range(int(whole)):
            found = base if found is None else self.binary("mul", found, base)
        return base if found is None else found

    def _traced(self, value: Any) -> TracedArray:
        if isinstance(value, TracedArray):
            return value
        tensor = torch.as_tensor(value, dtype=torch.float64)
        return TracedArray(self.placed(tensor, tensor.shape), tuple(tensor.shape))

    def do_exp2(self, value: TracedArray) -> TracedArray:
        """`2^x`."""
        return self.do_pow(2.0, value)

    def do_sinh(self, value: TracedArray) -> TracedArray:
        """`(e^x − e^{−x})/2`."""
        return self.scaled(self.do_sub(self.do_exp(value), self.do_exp(self.do_neg(value))), 0.5)

    def do_cosh(self, value: TracedArray) -> TracedArray:
        """`(e^x + e^{−x})/2`."""
        return self.scaled(self.do_add(self.do_exp(value), self.do_exp(self.do_neg(value))), 0.5)

    def do_hypot(self, first: Any, second: Any) -> TracedArray:
        """The root of the sum of two squares."""
        return self.do_sqrt(self.do_add(self.binary("mul", first, first), self.binary("mul", second, second)))

    def do_logsumexp(self, value: TracedArray, axes: Any, keepdim: bool = False) -> TracedArray:
        """The logarithm of the sum of exponentials."""
        return self.do_log(self.do_sum(self.do_exp(value), axes, keepdim))

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
            inner = self.do_erf(self.binary("mul", value, self.unary("rsqrt", self.fixed(2.0))))
        return self.binary("mul", self.scaled(value, 0.5), self.do_add(inner, 1.0))

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
        return self.chosen(self.do_sub(threshold, self.scaled(value, beta)), self.do_div(inner, float(beta)), value)

    def do_linalg_vector_norm(
        self, value: TracedArray, order: float = 2, axes: Any = None, keepdim: bool = False
    ) -> TracedArray:
        """The root of the sum of squares."""
        if order != 2:
            raise Unsupported("no proof covers norms other than the Euclidean one")
        return self.do_sqrt(self.do_sum(self.binary("mul", value, value), axes, keepdim))
