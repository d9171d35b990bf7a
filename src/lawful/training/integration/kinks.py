"""Crossing ReLU kinks without losing the solver's order: the pattern is held still, and changes only at events.

Idea: a solver of order eight is of order one across a jump of the gradient. So every gate is frozen, which makes the
right-hand side smooth beyond the kink as well, and the step is cut at the first time that a pre-activation changes its
sign. There the gates are decided anew: crossed, or pinned where both sides push back (Filippov's sliding solution, with
the gate that keeps the pre-activation at zero; a linear complementarity problem if several meet).

Invariant: between events the pattern is the true one up to `tolerance`; a law is conserved on every piece and, because
the sliding velocity is a mean of both sides' velocities, along every kink too. Cost: one root search for each kink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from lawful.network.dynamics import Dynamics, HeavyBall
from lawful.training.integration.trajectory import Kink
from lawful.training.problems.loss_value import LossValue, Problem
from lawful.types import Floats

TOLERANCE = 1e-13  # how far past zero a pre-activation goes before its gate changes, relative to the largest at start
SLACK = 1e-9  # how far out of [0, 1] the gate of a pinned neuron goes before it is released
NEWTON = 8  # corrections of the gates of pinned neurons in one evaluation, at most
LOOKS = 8  # parts of a step in which an event is looked for when the step ends where it began


class Pattern:
    """The gates of a problem along a flow: which neurons are on, off, or pinned to their kink.

    On a kink the gradient jumps. Where the flow on both sides runs into the kink it can only slide along it, with the
    gate α ∈ (0, 1) that keeps `ż = 0` (Filippov's solution). Every law c with `⟨∇c, g⟩ = 0` survives, because the
    sliding velocity is a combination of the velocities on both sides.
    """

    def __init__(self, problem: Problem, dynamics: Dynamics, theta: Floats) -> None:
        self.problem, self.dynamics, self.evaluations = problem, dynamics, 0
        heights = problem.heights(theta)
        self.gates = (heights > 0).astype(np.float64)
        self.signs = 2.0 * self.gates - 1.0
        self.zeros = np.zeros_like(heights)  # where each gate changes: 0 up to the error made while pinned
        self.tolerance = TOLERANCE * max(1.0, float(np.abs(heights).max(initial=0.0)))
        self.pinned: list[int] = []
        self.nested = False

    def evaluate(self, theta: Floats) -> LossValue:
        """The loss and gradient under this pattern; gates of pinned neurons are solved for."""
        value = self._plain(theta)
        for _ in range(NEWTON if self.pinned else 0):
            rates, matrix, slopes = self._rates(theta, value, self.pinned)
            change = _solve(matrix, -rates)
            self.gates[self.pinned] += change
            # With z = 0 a gate changes nothing but the gradient, and that linearly, unless pinned neurons feed others.
            value = replace(value, gradient=value.gradient + (value.pushes[self.pinned] * change) @ slopes)
            if not self.nested or np.abs(change).max() < 1e-9:
                break
            value = self._plain(theta)
        return value

    def margins(self, heights: Floats) -> Floats:
        """All positive while the pattern is the true one (to the tolerance): signed heights, then pinned gates."""
        low = self.signs * (heights - self.zeros) + self.tolerance
        if not self.pinned:
            return low
        alpha = self.gates[self.pinned]
        return np.concatenate([low, np.minimum(alpha, 1.0 - alpha) + SLACK])

    def margins_at(self, theta: Floats) -> Floats:
        """The margins at a point, solving for the gates of pinned neurons."""
        return self.margins(self.evaluate(theta).heights if self.pinned else self.problem.heights(theta, self.gates))

    def switch(self, theta: Floats, time: float) -> list[Kink]:
        """Change the gates at an event; returns what happened."""
        heights = self.evaluate(theta).heights
        beyond = self.signs * (heights - self.zeros) <= -0.5 * self.tolerance
        hits, pinned = [int(gate) for gate in np.flatnonzero(beyond)], self.pinned
        self.gates[hits] = 1.0 - self.gates[hits]
        if not isinstance(self.dynamics, HeavyBall):  # a ball has one velocity on both sides: it always crosses
            self._settle(theta, [*hits, *pinned])
        here = np.array([*hits, *pinned], dtype=np.intp)
        inside = (self.gates[here] > 0.0) & (self.gates[here] < 1.0)
        self.pinned = [int(gate) for gate in here[inside]]
        samples = [self.problem.label(gate)[0] for gate in self.pinned]
        self.nested = len(set(samples)) < len(samples)
        self.signs[here] = np.where(inside, 0.0, 2.0 * self.gates[here] - 1.0)
        released = [gate for gate in pinned if gate not in self.pinned]
        self.zeros[released] = heights[released]
        events = {gate: "pinned" if gate in self.pinned else "crossed" for gate in hits} | dict.fromkeys(
            released, "released"
        )
        return [Kink(time, *self.problem.label(gate), kind) for gate, kind in events.items()]

    def _settle(self, theta: Floats, gates: list[int]) -> None:
        """Gates at their kink agree with the velocities: 0 where `ż < 0`, 1 where `ż > 0`, between only if `ż = 0`."""
        for _ in range(NEWTON if gates else 0):
            before = self.gates[gates]
            rates, matrix, _ = self._rates(theta, self._plain(theta), gates)
            self.gates[gates] = complementary(rates, matrix, before)
            if np.abs(self.gates[gates] - before).max() < 1e-9:
                return

    def _plain(self, theta: Floats) -> LossValue:
        self.evaluations += 1
        return self.problem.evaluate(theta, self.gates)

    def _rates(self, theta: Floats, value: LossValue, gates: list[int]) -> tuple[Floats, Floats, Floats]:
        """`ż` of some gates, its derivative in the gates (`−push_l ⟨∇z_k, ∇z_l⟩` for a gradient flow), and `∇z`."""
        assert not isinstance(self.dynamics, HeavyBall)  # noqa: S101 (for the type checker)
        slopes = self.problem.height_gradients(theta, self.gates, gates)
        rates = slopes @ self.dynamics.velocity(theta, value.gradient)
        return rates, slopes @ self.dynamics.response(theta, slopes).T * value.pushes[gates], slopes


def complementary(rates: Floats, matrix: Floats, start: Floats) -> Floats:
    """Gates `α ∈ [0, 1]` with `F = rates + matrix (α − start)`: F ≤ 0 at 0, F ≥ 0 at 1, F = 0 between.

    Projected Gauss-Seidel. A gate whose own push is not against it is not pinned: it takes the side it moves to.

    >>> complementary(np.array([1.0]), np.array([[-4.0]]), np.array([0.0]))  # pushed back from both sides: slides
    array([0.25])
    >>> complementary(np.array([1.0]), np.array([[-0.5]]), np.array([0.0]))  # passes
    array([1.])
    """
    alpha = start.copy()
    for _ in range(10_000):
        before = alpha.copy()
        for k in range(len(alpha)):
            rate = rates[k] + matrix[k] @ (alpha - start)
            if matrix[k, k] < 0:
                alpha[k] = min(1.0, max(0.0, alpha[k] - rate / matrix[k, k]))
            else:
                alpha[k] = float(rate > 0)
        if np.abs(alpha - before).max() < 1e-14:
            break
    return alpha


def _solve(matrix: Floats, rates: Floats) -> Floats:
    if len(rates) == 1:
        return np.asarray(rates / matrix[0])
    return np.asarray(np.linalg.lstsq(matrix, rates, rcond=1e-12)[0])


def first_zero(heights: Callable[[float], Floats], start: float, end: float) -> float | None:
    """The first time in a step at which one of several functions is negative (to rounding), or None.

    The answer is on the negative side of the root.

    >>> round(first_zero(lambda t: np.array([2.0 - t * t, 4.0 - t]), 0.0, 3.0), 12)
    1.414213562373
    """
    high, above, below = end, heights(start), heights(end)
    if (above < 0).any():
        return start
    if (below >= 0).all():  # all is well at the end: look for something that went and came back
        for time in np.linspace(start, end, LOOKS + 1)[1:-1]:
            high, below = float(time), heights(time)
            if (below < 0).any():
                break
        else:
            return None
    tiny = 1e-14 * max(abs(end), end - start)
    while True:
        candidates = np.flatnonzero(below < 0)
        first = candidates[np.argmin(above[candidates] / (above[candidates] - below[candidates]))]
        root = float(brentq(lambda time, first=first: heights(time)[first], start, high, xtol=tiny, rtol=1e-15))
        step = tiny
        while (below := heights(root))[first] >= 0 and root < high:
            root, step = min(root + step, high), 2.0 * step
        if (below < 0).sum() == 1 or root > high - 2.0 * tiny:
            return root
        below[first] = 0.0  # another one was earlier
        high = root
