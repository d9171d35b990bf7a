"""Hamilton's equations integrated across the kinks of ReLU: the signs of A are held still between two crossings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.integrate import DOP853

from lawful.errors import LawfulError
from lawful.papers.leaky.mechanics import motion
from lawful.types import Floats, Mask

TOLERANCE = 1e-12  # relative error of a step
PAST = 1e-13  # how far past zero an entry goes before its sign changes, relative to the largest at the start
LOOKS = 4  # places in a step at which signs are looked at
STALL = 1000  # sign changes in a row without progress
LARGEST = 1e75


def integrate(
    A: Floats, B: Floats, depth: float, *, until: float = 1.0, steps: int = 1000, softness: float = 0.0
) -> tuple[Floats, Floats]:
    """Hamilton's equations from `(A, B)`: `A_p` and `B_p` at `steps + 1` times.

    For ReLU `∂_p B` jumps where an entry of A changes its sign, while `∂_p A` does not: entries cross, none is held. An
    eighth-order method follows the smooth equations of fixed signs and starts again at each crossing, so 𝓗 is kept to
    the method's tolerance. With softness the equations are smooth enough as they are.

    >>> from lawful.papers.leaky.mechanics import hamiltonian
    >>> rng = np.random.default_rng(0)
    >>> A, B = integrate(rng.normal(size=(3, 4)), 0.1 * rng.normal(size=(3, 4)), 2.0, until=0.5, steps=10)
    >>> energy = hamiltonian(A, B, 2.0)
    >>> bool(np.ptp(energy) < 1e-9 * abs(energy[0]))
    True
    """
    if steps < 1 or not (np.isfinite(until) and until > 0):
        raise LawfulError(f"a path needs a positive length and at least one step, got {until} and {steps}")
    return _Crossing(A, B, depth, softness).follow(np.linspace(0.0, until, steps + 1))


class _Crossing:
    """One integration in progress."""

    def __init__(self, A: Floats, B: Floats, depth: float, softness: float) -> None:
        self.shape, self.depth, self.softness = A.shape, depth, softness
        self.state = np.concatenate([np.ravel(A), np.ravel(B)]).astype(np.float64)
        self.size = A.size
        self.active: Mask | None = None if softness else A > 0
        self.past = PAST * max(float(np.abs(A).max(initial=0.0)), 1e-300)

    def _field(self, _: float, state: Floats) -> Floats:
        A, B = (part.reshape(self.shape) for part in np.split(state, 2))
        if self.active is None:
            move, push = motion(A, B, self.depth, self.softness)
        else:
            sigma = np.concatenate([A * self.active, np.ones((1, self.shape[1]))])
            product = B @ sigma.T
            move = self.depth * (product @ sigma - A)
            push = self.depth * (B - (product.T @ B)[:-1] * self.active)
        return np.concatenate([move.ravel(), push.ravel()])

    def follow(self, times: Floats) -> tuple[Floats, Floats]:
        """The states at the times."""
        found, now, stalled = [self.state.copy()], 0.0, 0
        while len(found) < len(times):
            solver = DOP853(self._field, now, self.state, times[-1], rtol=TOLERANCE, atol=TOLERANCE * self._scale())
            while solver.status == "running":
                with np.errstate(over="ignore", invalid="ignore"):
                    solver.step()
                if solver.status == "failed" or not np.abs(solver.y).max() < LARGEST:
                    raise LawfulError(f"the path blows up near p = {now:.4g}: follow it for a shorter time")
                path = solver.dense_output()
                crossed = self._crossed(path, solver.t_old, solver.t)
                end = solver.t if crossed is None else crossed
                while len(found) < len(times) and times[len(found)] <= end:
                    found.append(path(times[len(found)]))
                stalled = 0 if end > now else stalled + 1
                now, self.state = end, path(end) if crossed is not None else solver.y
                if stalled > STALL:
                    raise LawfulError(f"the path stays on a kink near p = {now:.4g}: use softness")
                if crossed is not None:
                    break
        halves = [np.split(each, 2) for each in found]
        return np.array([a.reshape(self.shape) for a, _ in halves]), np.array(
            [b.reshape(self.shape) for _, b in halves]
        )

    def _scale(self) -> float:
        return max(float(np.abs(self.state).max()), 1e-300)

    def _crossed(self, path: Callable[[float], Floats], start: float, end: float) -> float | None:
        """The first time at which an entry of A is past zero; its sign is changed."""
        if self.active is None:
            return None
        signs = np.where(self.active, 1.0, -1.0).ravel()

        def wrong(time: float) -> Mask:
            return np.asarray(signs * path(time)[: self.size] < -self.past)

        low = start
        for high in np.linspace(start, end, LOOKS + 1)[1:]:
            if wrong(high).any():
                break
            low = high
        else:
            return None
        while high - low > 1e-15 * max(1.0, abs(high)):
            middle = 0.5 * (low + high)
            if not low < middle < high:
                break
            low, high = (low, middle) if wrong(middle).any() else (middle, high)
        self.active = self.active ^ wrong(high).reshape(self.shape)
        return float(high)
