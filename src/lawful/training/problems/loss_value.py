"""A loss of the parameters whose ReLU pattern can be held still while the solver steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lawful.types import Floats, Indices


@dataclass(frozen=True)
class LossValue:
    """One evaluation: the loss, its gradient, and for every gate the pre-activation behind it and its push.

    Opening gate k by dα changes the gradient by `push_k ∇z_k dα`: the push is `(1 − slope) ∂L/∂h_k`.
    """

    loss: float
    gradient: Floats
    heights: Floats
    pushes: Floats


class Problem(Protocol):
    """A loss `L(θ)` that is smooth for a fixed pattern of *gates*, one per (sample, neuron with a kink).

    A gate is 1 where the pre-activation (its *height*) is positive, 0 where it is negative, and between them only
    while the flow is pinned to the kink. With gates held still a neuron computes `h = (slope + (1 − slope) gate) z`.
    """

    start: Floats

    def heights(self, theta: Floats, gates: Floats | None = None) -> Floats:
        """Pre-activations under a fixed pattern, or under the true one."""
        ...

    def evaluate(self, theta: Floats, gates: Floats | None = None) -> LossValue:
        """Loss, gradient and heights under a fixed pattern, or under the true one."""
        ...

    def height_gradients(self, theta: Floats, gates: Floats, chosen: Sequence[int]) -> Floats:
        """`∇z` of some heights (rows), under a fixed pattern."""
        ...

    def label(self, gate: int) -> tuple[int, str]:
        """Sample number and neuron name of a gate."""
        ...

    def rows(self, samples: Indices) -> Problem:
        """The same problem on some of the samples (a mini-batch)."""
        ...

    @property
    def samples(self) -> int:
        """Number of samples."""
        ...
