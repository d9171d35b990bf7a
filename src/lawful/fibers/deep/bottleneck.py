"""Three layers with a bottleneck: hidden hyperplanes, identifiability, the whole generic fiber (P4 Sections 5, 6)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

import numpy as np

from lawful.errors import LawfulError, Unsupported
from lawful.fibers.deep.identification import rank_of
from lawful.fibers.deep.single_neuron import falls, ramp_volume, reverse
from lawful.fibers.layers import Stack
from lawful.fibers.reduce import Reduced, head, hidden_neuron, simplify
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import Flip, Reorder, Rescale, Translate
from lawful.fibers.same import same
from lawful.fibers.shallow.fiber import LayerwiseFiber, layerwise_fiber
from lawful.fibers.verdict import Equal
from lawful.network import Mlp
from lawful.types import Floats


def check_bottleneck(stack: Stack) -> None:
    """Raise unless this is a three-layer ReLU network whose first layer is no wider than its input."""
    if stack.hidden != 2 or stack.slopes != (0.0, 0.0):
        raise Unsupported(f"the theorem needs two hidden ReLU layers, not {stack.hidden} with slopes {stack.slopes}")
    if stack.widths[1] > stack.widths[0]:
        wide, inputs = stack.widths[1], stack.widths[0]
        raise Unsupported(f"not a bottleneck: the first layer has {wide} neurons for {inputs} inputs")


def identifiable_volume(first: int, second: int) -> Fraction:
    """The exact share of parameters `(W2, b2)` of widths `n1`, `n2` that are identifiable.

    `(1 − 2^{−n1})^{n2} − n1 2^{−(n1+1) n2}`: signs are independent, and the three events of Theorem 5 almost so. One
    neuron in the first layer has a fourth one, that every row of the second is (−, +): `2^{−n2} − 2·4^{−n2}`.

    >>> identifiable_volume(2, 2), identifiable_volume(1, 2), identifiable_volume(1, 1)
    (Fraction(17, 32), Fraction(1, 8), Fraction(0, 1))
    """
    check_widths(first, second)
    if first == 1:
        return ramp_volume(second)
    rows = (1 - Fraction(1, 2**first)) ** second
    return rows - Fraction(first, 2 ** ((first + 1) * second))


def check_widths(first: int, second: int) -> None:
    """Refuse layers without neurons."""
    if first < 1 or second < 1:
        raise LawfulError(f"widths are positive, not {first} and {second}")


@dataclass(frozen=True, eq=False)
class BottleneckFiber:
    """Every generic parameter of one function, for three layers with a bottleneck (P4 Section 6).

    A first layer of one neuron has more: samples of it are some of them.

    Not hiding: the first layer is rigid, the rest is a layerwise fiber on the orthant. Hiding hyperplane i: its
    translations by `t > lowest_shift`, times the `2^(n1 − 1)` flips if one second-layer neuron remains.
    """

    stack: Stack
    dropped: int
    hidden: int | None
    head: LayerwiseFiber | None
    lowest_shift: float | None
    flips: int

    @property
    def dimension(self) -> int:
        """Continuous freedom modulo permutation and scaling; dropped dead neurons not counted."""
        return self.head.dimension if self.head is not None else 1

    def sample(self, count: int, seed: int = 0) -> list[Mlp]:
        """Random parameters of the fiber, on as many components as `count` allows."""
        return [self._one(number, seed + number) for number in range(count)]

    def contains(self, other: Mlp, tolerance: float | None = None) -> bool:
        """Whether another parameter is the same function, proved by `same`."""
        return isinstance(same(self.stack.to_mlp(), other, tolerance=tolerance), Equal)

    def _one(self, number: int, seed: int) -> Mlp:
        rng = np.random.default_rng(seed)
        stack = self.stack
        if number % 2 and stack.widths[1] == 1 and falls(stack):
            stack = reverse(stack).floating()
        elif self.head is not None:
            live = list(islice((c for c in self.head.components() if c.dimension is not None), 64))
            above = self.head.sample(live[number % len(live)].flipped, seed)
            biases = (
                stack.biases[0],
                *(np.zeros(len(w)) if b is None else b for w, b in zip(above.weights, above.biases, strict=True)),
            )
            stack = Stack((stack.weights[0], *above.weights), biases, (0.0, 0.0))
        elif self.hidden is not None and self.lowest_shift is not None:
            if self.flips:
                others = [k for k in range(stack.widths[1]) if k != self.hidden]
                chosen = tuple(k for k in others if rng.random() < 0.5) if number else ()
                stack = Flip(1, self.hidden, chosen).apply(stack)
            shift = self.lowest_shift + rng.exponential(scale=abs(self.lowest_shift) + 1e-3)
            stack = Translate(1, self.hidden, shift).apply(stack)
        width = stack.widths[1]
        scales = np.exp2(rng.integers(-2, 3, size=width)) if width == 1 else np.exp(rng.normal(size=width))
        stack = Rescale(1, tuple(scales)).apply(stack)
        return Reorder(1, tuple(rng.permutation(width).tolist())).apply(stack).to_mlp()


def bottleneck_fiber(network: Mlp | Stack) -> BottleneckFiber:
    """The complete generic fiber; dead second-layer neurons are removed first, since their weights are free."""
    layers = network if isinstance(network, Stack) else Stack.of(network)
    check_bottleneck(layers)
    reduced = simplify(Reduced(layers.rational()), 0.0)
    exact = reduced.stack
    check_bottleneck(exact)
    stack = exact.floating()
    if not stack.widths[1] or not stack.widths[2]:
        raise Unsupported("nothing of this network reaches the output: it is constant")
    if rank_of(exact.weights[0]) < stack.widths[1]:
        raise Unsupported("not generic: the first layer's weights are linearly dependent")
    hidden = hidden_neuron(exact)
    if hidden is None:
        fiber = layerwise_fiber(head(exact, 1), Domain.orthant(stack.widths[1]))
        return BottleneckFiber(stack, len(reduced.steps), None, fiber, None, 0)
    ratio: Floats = stack.biases[1] / stack.weights[1][:, hidden]
    flips = stack.widths[1] - 1 if stack.widths[2] == 1 else 0
    return BottleneckFiber(stack, len(reduced.steps), hidden, None, float(ratio.max()), flips)
