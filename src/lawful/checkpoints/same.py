"""Are two checkpoints of one architecture the same function? Equal with the group element, different with an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare import NOISES, ROUNDINGS, WeightComparison, compare, rounding_unit
from lawful.checkpoints.element import draw, frames, moved
from lawful.checkpoints.folds import State, fold
from lawful.checkpoints.uniqueness import UniquenessVerdict

TRIALS = 4
FAR, FAR_ALIGNED = 30.0, 3.0  # beyond the effect of rounding; less where all but a few entries were found again
PLAIN = 64.0  # and those are off by so many times what rounding may do
REPLAY = 1e3  # and beyond the error of the replay itself

Word = Literal["equal", "different", "undecided"]


@dataclass(frozen=True, eq=False)
class OutputReplay:
    """Outputs of both checkpoints at one input, in float64, relative to their size.

    `error` is what another member of A's own orbit differs by in the same arithmetic (an estimate of the replay's
    error), `rounding` what such a member differs by once its weights are rounded like those of the files.
    """

    inputs: tuple[torch.Tensor, ...]
    gap: float
    error: float
    rounding: float
    outputs: tuple[float, float]  # where they differ most


@dataclass(frozen=True, eq=False)
class CheckpointVerdict:
    """Equal, different or undecided, and what it rests on.

    `within` says which equality: "exactly", "weight by weight" (each entry within `epsilon` of itself) or "copy by
    weights" (each entry within `epsilon` of the sum of the absolute values of its terms; outputs are not bounded).
    """

    verdict: Word
    within: str | None
    epsilon: float | None
    reason: str
    comparison: WeightComparison
    replay: OutputReplay | None
    theorem: UniquenessVerdict | None = None  # what decides, where the function determines the weights

    @property
    def certified(self) -> bool:
        """Whether there is something to re-check."""
        return self.verdict == "equal" or self.theorem is not None


def same_checkpoints(
    architecture: CheckpointArchitecture, first: State, second: State, *, seed: int = 0
) -> CheckpointVerdict:
    """Decide whether two states of one architecture are the same function."""
    found = compare(architecture, first, second)
    off = [each for each in found.distances if not each.fits]
    if not off:
        return _equal(found)
    worst = max(off, key=lambda each: (not np.isfinite(each.relative), each.relative))
    share = sum(not each.fits for each in found.distances)
    where = f"{worst.tensor} is off by {worst.relative:.1e} of its size after alignment"
    where += f", and {share - 1} other tensors" if share > 1 else ""
    replay = _replayed(architecture, first, second, found, seed)
    far = FAR_ALIGNED if _pinned_down(found) else FAR
    if replay.gap > far * replay.rounding and replay.gap > REPLAY * replay.error:
        return CheckpointVerdict("different", None, None, where, found, replay)
    reason = f"{where}; at {TRIALS} random inputs outputs differ by {replay.gap:.1e}, which rounding may explain"
    return CheckpointVerdict("undecided", None, None, reason, found, replay)


def _pinned_down(found: WeightComparison) -> bool:
    """Whether most tensors were found again up to rounding, and some entry of the others is plainly another one."""
    near = sum(each.exact or each.relative <= NOISES * each.noise for each in found.distances)
    plainly = any(each.entry > PLAIN * ROUNDINGS * each.unit for each in found.distances if not each.fits)
    return plainly and 2 * near > len(found.distances)


def _equal(found: WeightComparison) -> CheckpointVerdict:
    worked = [each for each in found.distances if each.entry > 0]
    if not any(not each.moved_only for each in found.distances):
        if not worked:
            words = "every number of B is one of A, moved, or multiplied by a power of two"
            return CheckpointVerdict("equal", "exactly", 0.0, words, found, None)
        epsilon = max(each.entry for each in worked)
        words = f"every number of B is one of A, moved, and stored in fewer bits: within {epsilon:.1e} of itself"
        return CheckpointVerdict("equal", "weight by weight", epsilon, words, found, None)
    worked = [each for each in found.distances if not each.moved_only or each.entry > 0]
    epsilon = max(each.entry for each in worked)
    sums = any(frame.blocks for frame in found.frames.values()) or found.shifts or found.architecture.folds
    within = "copy by weights" if sums else "weight by weight"
    unit = max(each.unit for each in worked)
    words = f"each entry within {epsilon:.1e} of {'the sum of its terms' if sums else 'itself'}"
    words += f"; stored numbers are rounded at {unit:.1e}"
    return CheckpointVerdict("equal", within, epsilon, words, found, None)


def _replayed(
    architecture: CheckpointArchitecture, first: State, second: State, found: WeightComparison, seed: int
) -> OutputReplay:
    """The input with the largest gap relative to what rounding does there."""
    kinds = {state[name].dtype for state in (first, second) for name in architecture.group.shapes}
    coarse = max(kinds, key=rounding_unit)
    twins = [_twin(architecture, first, seed + number) for number in range(2)]
    trials: list[OutputReplay] = []
    harder = max(1.0, found.conditioning / 10.0)
    for trial in range(TRIALS):
        inputs = architecture.draw_inputs(seed + 100 + trial)
        one, two = (architecture.outputs(state, inputs) for state in (first, second))
        size = max((float(tensor.abs().max()) for tensor in one), default=0.0) or 1.0
        gap, outputs = _gap(one, two)
        error = rounding = 1e-16
        for twin in twins:
            other = architecture.outputs(twin, inputs)
            error = max(error, _gap(one, other)[0] / size)
            rounded = {name: tensor.to(coarse) if tensor.is_floating_point() else tensor
                       for name, tensor in twin.items()}  # fmt: skip
            rounding = max(rounding, _gap(one, architecture.outputs(rounded, inputs))[0] / size)
        trials.append(OutputReplay(tuple(inputs), gap / size, error, rounding * harder, outputs))
    return max(trials, key=lambda each: each.gap / each.rounding)


def _gap(one: Sequence[torch.Tensor], two: Sequence[torch.Tensor]) -> tuple[float, tuple[float, float]]:
    gap, where = 0.0, (0.0, 0.0)
    for a, b in zip(one, two, strict=True):
        apart = (a - b).abs().reshape(-1)
        place = int(apart.argmax())
        if not float(apart[place]) <= gap:
            gap, where = float(apart[place]), (float(a.reshape(-1)[place]), float(b.reshape(-1)[place]))
    return gap, where


def _twin(architecture: CheckpointArchitecture, state: Mapping[str, torch.Tensor], seed: int) -> State:
    """A random member of the orbit of a state, in float64."""
    wide = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    folded = fold(wide, architecture.folds)
    acting = frames(architecture.group, draw(architecture.group, np.random.default_rng(seed)))
    return folded | moved(folded, acting, list(architecture.group.shapes))
