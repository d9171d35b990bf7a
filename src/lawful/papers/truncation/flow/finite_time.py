"""Does a cluster collapse to a point in finite time? P2 Propositions 4.1 and 4.2 as checks with numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from lawful.papers.truncation.flow.field import Maps, Separated
from lawful.papers.truncation.flow.integrate import TruncationTrajectory, integrate
from lawful.types import Floats


class Equilibrium(StrEnum):
    """What the flow does where it starts (Proposition 4.1, corrected)."""

    REST = "at rest"
    TURNED = "R at rest, β moves at rate 1"
    MOVING = "moving"


def equilibrium(points: Floats, target: Floats, shift: Floats, rotation: Floats) -> Equilibrium:
    """Untruncated data are at rest. Fully truncated data keep R, but `∂_s β = −(β + ỹ)`: at rest only if β = −ỹ.

    >>> points, zero, one = np.array([[1.0, 2.0], [3.0, 1.0]]), np.zeros(2), np.eye(2)
    >>> equilibrium(points, zero, zero, one).value, equilibrium(-points, np.ones(2), zero, one).value
    ('at rest', 'R at rest, β moves at rate 1')
    """
    z = (points + shift) @ rotation.T
    if (z > 0).all():
        return Equilibrium.REST
    if (z <= 0).all():
        return Equilibrium.REST if not (shift + target).any() else Equilibrium.TURNED
    return Equilibrium.MOVING


@dataclass(frozen=True)
class Hypotheses:
    """Proposition 4.2's constants for one cluster, sound over the whole neighbourhood that it speaks of.

    `eta0`: along every coordinate a share `> 1 − η0` of the points stays truncated. `eta1`: first moment of what may
    lie in mixed sectors. Within `γ|β(0) + ỹ|` of the target everything is truncated (4.16). At `β = −ỹ` that reads
    `R(x − ỹ) <= 0`, so `0 < z_i <= v_i` on active coordinates, `HMH^⊥ = ½(z₊v₋ᵀ + (v − z)₊z₋ᵀ)` and
    `|Ω| <= ½η1|β + ỹ|`, half of the printed (4.25). `eta2` bounds how far R can turn by that. Then
    `s_1 <= log(1/γ)/(1 − η0)` =: `bound`; Ω is antisymmetric and does not enter the rate, so the printed rate
    `1 − η0 − η1'` is safe. `reason` says which hypothesis fails, if one does.
    """

    eta0: float
    eta1: float
    eta2: float
    gamma: float
    bound: float
    reason: str | None

    @property
    def holds(self) -> bool:
        """Whether all hypotheses hold, so that the cluster collapses before `bound`."""
        return self.reason is None

    @property
    def small(self) -> bool:
        """Whether the constants also lie below 1/10, as the paper asks (the proof does not need it)."""
        return self.holds and max(self.eta0, self.eta1, self.gamma) < 0.1


def hypotheses(points: Floats, target: Floats, shift: Floats, rotation: Floats) -> Hypotheses:
    """Check Proposition 4.2 at `(β(0), R(0))`.

    With `z = R(x − ỹ) + R(β + ỹ)`, every `|β + ỹ| <= ρ` and `‖R − R(0)‖ <= η2` move z by at most `ρ + η2|x − ỹ|`, so
    each hypothesis becomes a comparison per point. η2 is the least self-consistent value, found from below.

    >>> cluster = np.vstack([np.full((99, 2), -3.0), [[-0.9, -3.0]]])
    >>> found = hypotheses(cluster, np.zeros(2), np.array([1.0, 0.0]), np.eye(2))
    >>> found.holds, round(found.eta0, 3), round(found.bound, 3)
    (True, 0.01, 0.183)
    """
    radius = float(np.linalg.norm(shift + target))
    place = (points - target) @ rotation.T
    reach = np.linalg.norm(points - target, axis=1)
    if (place + radius <= 0).all():
        return Hypotheses(0.0, 0.0, 0.0, 1.0, 0.0, None)  # collapsed from the start
    eta2 = 0.0
    for _ in range(60):
        slack = (radius + eta2 * reach)[:, None]
        eta0 = float(1.0 - (place + slack <= 0).mean(axis=0).min())
        mixed = ~((place + slack <= 0).all(axis=1) | (place - slack > 0).all(axis=1))
        eta1 = float(((reach + radius) * mixed).mean())
        depth = float((-place - eta2 * reach[:, None]).min())
        gamma = min(1.0, depth / radius) if depth > 0 else 0.0
        rate = 1.0 - eta0
        if gamma <= 0 or rate <= 0:
            reason = (
                "a point is not truncated even at the target (4.16)" if gamma <= 0 else
                "along some coordinate no point is sure to stay truncated (4.14)"
            )  # fmt: skip
            return Hypotheses(eta0, eta1, eta2, gamma, np.inf, reason)
        bound = float(np.log(1 / gamma)) / rate
        turned = 0.5 * eta1 * radius / rate
        if turned <= eta2:
            return Hypotheses(eta0, eta1, eta2, gamma, bound, None)
        eta2 = 1.01 * turned
    return Hypotheses(eta0, eta1, eta2, gamma, np.inf, "R may turn too far for the other hypotheses (4.15)")


@dataclass(frozen=True, eq=False)
class Confirmation:
    """The run that confirms (or refutes) a prediction: when the last coordinate was truncated, and what came after."""

    time: float
    turned_after: float
    rate_after: float
    trajectory: TruncationTrajectory


def confirm(points: Floats, target: Floats, shift: Floats, rotation: Floats, until: float) -> Confirmation:
    """Integrate to `until` and measure `s_1`, how much R moves after it (0), and the rate of `|β + ỹ|` (1)."""
    start = Maps(np.array(shift)[None], np.array(rotation)[None])
    field = Separated(points, target)
    trajectory = integrate(field, start, [0.0, until, until + 1.0])
    before, after = trajectory.maps[-2], trajectory.maps[-1]
    whole = bool((field.preactivations(before) <= 0).all())
    time = max((event.time for event in trajectory.events), default=0.0) if whole else np.inf
    lengths = [float(np.linalg.norm(maps.shifts[0] + target)) for maps in (before, after)]
    rate = float(np.log(lengths[0] / lengths[1])) if min(lengths) > 0 else np.nan
    return Confirmation(time, float(np.abs(after.rotations - before.rotations).max()), rate, trajectory)
