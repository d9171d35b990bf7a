"""What a run of Leaky ResNets is asked for, and the user's own data for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from lawful.errors import LawfulError
from lawful.papers.leaky import TeacherTask, equidistant, irregular, parse_teacher
from lawful.types import Floats


@dataclass(frozen=True)
class LeakyPlan:
    """What to train; everything but the effective depths, which may be added later."""

    teacher: str  # or "" for the user's own data
    samples: int = 1000
    layers: int = 50
    width: int = 200
    steps: str = "adaptive"
    a: float = 0.9
    ridge: float = 0.04
    softness: float = 0.01
    method: str = "solver"
    tolerance: float = 1e-3
    evaluations: int = 5000
    seed: int = 0
    data: str = ""  # the digest of the user's own inputs and targets
    grids: int = 1  # numbers of layers to solve on, each twice the one before; the last is `layers`
    maps: str = "fixed"  # in and out; or "learned", with a penalty
    penalty: float = 0.0

    def check(self, effective_depths: tuple[float, ...]) -> None:
        """Refuse what cannot run, before anything is written."""
        if bool(self.teacher) == bool(self.data):
            raise LawfulError("a run has a teacher or data of its own: give one of the two")
        if not 1 <= self.grids <= 5 or self.layers >> (self.grids - 1) < 2:
            raise LawfulError(
                f"{self.grids} grids need at least {2 << (self.grids - 1)} layers, and at most 5 are used"
            )
        sizes = self.sizes(None)
        if self.maps not in ("fixed", "learned"):
            raise LawfulError(f"the maps in and out are fixed or learned, not {self.maps!r}")
        learned = self.maps == "learned"
        if not np.isfinite(self.penalty) or (self.penalty > 0) != learned:
            raise LawfulError("learned maps need a positive penalty, and fixed ones have none")
        if learned and self.method != "solver":
            raise LawfulError("maps are learned with a penalty by the solver: leave out the method")
        if self.steps not in ("equidistant", "irregular", "adaptive"):
            raise LawfulError(f"steps are equidistant, irregular or adaptive, not {self.steps!r}")
        if self.method not in ("solver", "paper"):
            raise LawfulError(f"the method is solver or paper, not {self.method!r}")
        if min(self.samples, self.layers, self.evaluations) < 2:
            raise LawfulError("samples, depth and evaluations must be at least 2")
        if sizes is not None:
            self.fits(*sizes)
        if not all(depth > 0 and depth * max(self.grid()) < 1 for depth in effective_depths):
            raise LawfulError(
                f"effective depths must be positive and below {1 / max(self.grid()):.4g}, "
                f"so that no layer of {self.layers} forgets its input"
            )
        if not (0 < self.ridge < np.inf and 0 < self.tolerance < np.inf and 0 <= self.softness < np.inf):
            raise LawfulError("ridge and tolerance must be positive numbers, softness not negative")

    def layer_counts(self, effective_depth: float) -> tuple[int, ...]:
        """Numbers of layers to solve on, the coarsest first: on average a layer keeps at least half of its input.

        >>> LeakyPlan("20-5-20", grids=3).layer_counts(7.0)
        (25, 50)
        """
        counts = [self.layers >> halvings for halvings in reversed(range(self.grids))]
        return (*(count for count in counts[:-1] if count >= 2 * effective_depth), self.layers)

    def sizes(self, task: TeacherTask | None) -> tuple[int, int] | None:
        """Numbers of inputs and outputs."""
        if self.teacher:
            return parse_teacher(self.teacher)[0], parse_teacher(self.teacher)[-1]
        return None if task is None else (task.inputs.shape[1], task.targets.shape[1])

    def fits(self, inputs: int, outputs: int) -> None:
        """Refuse data that are wider than the network."""
        if self.width < max(inputs, outputs):
            raise LawfulError(f"the width {self.width} is smaller than the data's {max(inputs, outputs)}")

    def grid(self, layers: int | None = None) -> Floats:
        """The layer steps to start from."""
        count = self.layers if layers is None else layers
        return irregular(count, self.a) if self.steps == "irregular" else equidistant(count)


def own_data(data: TeacherTask) -> tuple[str, TeacherTask]:
    """The user's data with every column centred and brought to variance 1, as teachers' are; and their digest."""
    columns = [(each - each.mean(axis=0)) / np.where(each.std(axis=0) > 0, each.std(axis=0), 1.0)
               for each in (data.inputs, data.targets)]  # fmt: skip
    task = TeacherTask(*columns)
    return hashlib.sha256(task.inputs.tobytes() + task.targets.tobytes()).hexdigest()[:16], task
