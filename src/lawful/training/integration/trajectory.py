"""What an integration returns: snapshots, kinks, and why it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming
from lawful.formats.io.writing import write_bytes
from lawful.formats.tensors.npz import dump, load_arrays
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

    @property
    def resumable(self) -> bool:
        """Whether it ended short of what was asked, so that more time or a larger budget goes on from there."""
        return self.reason in (Reason.INTERRUPTED, Reason.EVALUATIONS)


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


# A flow that was killed goes on: everything an integration needs to continue with the same numbers, as one file.


NUMBERS = ("time", "step", "tolerance", "nested", "evaluations")
ARRAYS = ("state", "rows", "losses", "norms", "gates", "signs", "zeros", "pinned")


@dataclass(frozen=True, eq=False)
class FlowState:
    """Where an integration stands: its state and step, the snapshots so far, and the pattern of its gates.

    The solver starts afresh from every checkpoint, killed or not: both ways give the same bytes.
    """

    time: float
    step: float
    state: Floats
    rows: Floats
    losses: Floats
    norms: Floats
    kinks: tuple[Kink, ...]
    evaluations: int
    gates: Floats
    signs: Floats
    zeros: Floats
    tolerance: float
    pinned: tuple[int, ...]
    nested: bool


def write_checkpoint(state: FlowState, path: Path, about: str) -> None:
    """Write a checkpoint, whole or not at all; `about` says of which flow it is."""
    arrays: dict[str, Any] = {name: np.asarray(getattr(state, name), dtype=np.float64) for name in (*NUMBERS, *ARRAYS)}
    arrays["about"] = np.array(about)
    arrays["kink_times"] = np.array([kink.time for kink in state.kinks], dtype=np.float64)
    arrays["kink_samples"] = np.array([kink.sample for kink in state.kinks], dtype=np.float64)
    arrays["kink_words"] = np.array(
        [[kink.neuron, kink.kind] for kink in state.kinks] or np.zeros((0, 2)), dtype=np.str_
    )
    write_bytes(path, dump(arrays, None))


def read_checkpoint(path: Path, about: str) -> FlowState:
    """Read a checkpoint of the same flow, or say what is wrong with it."""
    with naming(path):
        arrays = load_arrays(path, kinds="fU")
        try:
            if str(arrays["about"]) != about:
                raise LawfulError("is of another flow: delete it, or name another folder")
            numbers = {name: float(arrays[name]) for name in NUMBERS}
            values = {name: arrays[name].astype(np.float64) for name in ARRAYS}
            words = arrays["kink_words"].reshape(-1, 2).tolist()
            times, samples = arrays["kink_times"].tolist(), arrays["kink_samples"].tolist()
            kinks = [Kink(time, int(sample), *word) for time, sample, word in zip(times, samples, words, strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            raise LawfulError(f"the checkpoint is damaged ({error}): delete it to start again") from None
    pinned = tuple(int(gate) for gate in values.pop("pinned"))
    rows = values["rows"]
    fits = rows.ndim == 2 and rows.shape[1:] == values["state"].shape and len(rows) == len(values["losses"])
    if not fits or not all(np.isfinite(value).all() for value in values.values()):
        raise LawfulError(f"{path}: the checkpoint is damaged: delete it to start again")
    return FlowState(
        time=numbers["time"], step=numbers["step"], kinks=tuple(kinks), evaluations=int(numbers["evaluations"]),
        tolerance=numbers["tolerance"], pinned=pinned, nested=bool(numbers["nested"]), **values,
    )  # fmt: skip
