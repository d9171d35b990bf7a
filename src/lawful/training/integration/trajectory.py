"""What an integration returns: snapshots, kinks, and why it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from lawful.errors import LawfulError
from lawful.types import Floats


class Reason(StrEnum):
    """Why an integration ended."""

    TIME = "time"
    GRADIENT = "gradient"
    LOSS = "loss"
    BLOW_UP = "blow-up"
    EVALUATIONS = "evaluations"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Stop:
    """Why and when an integration ended, in words."""

    reason: Reason
    time: float
    message: str

    @property
    def complete(self) -> bool:
        """Whether it ended as asked: at its time, or at a stop condition."""
        return self.reason in (Reason.TIME, Reason.GRADIENT, Reason.LOSS)


@dataclass(frozen=True)
class Kink:
    """A neuron's pre-activation on one sample reached zero: it `crossed`, was `pinned` there, or was `released`.

    Pinned: both sides of the kink push back to it, so the flow slides along it (Filippov's solution).
    """

    time: float
    sample: int
    neuron: str
    kind: str


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A flow at its snapshot times: parameters, loss and gradient norm (rows are times)."""

    times: Floats
    theta: Floats
    losses: Floats
    gradient_norms: Floats
    kinks: tuple[Kink, ...]
    stop: Stop
    evaluations: int
    velocity: Floats | None = None
    path: Callable[[float], Floats] | None = None

    @property
    def end(self) -> Floats:
        """The last parameters."""
        last: Floats = self.theta[-1]
        return last

    def at(self, time: float) -> Floats:
        """Parameters at any time, from the dense output (integrate with `dense=True`)."""
        if self.path is None:
            raise LawfulError("this trajectory keeps snapshots only: integrate with dense=True")
        if not self.times[0] <= time <= self.stop.time:
            raise LawfulError(f"the trajectory covers times {self.times[0]:g} to {self.stop.time:g}, not {time:g}")
        return self.path(time)
