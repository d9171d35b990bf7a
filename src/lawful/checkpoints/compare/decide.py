"""Are two checkpoints of one architecture the same function? Equal with the group element, different with an input.

Idea: both definite answers carry evidence of their own. *Equal* is about weights: a member of the group, which leaves
every output alone, takes B's numbers to A's, entry by entry, where something was computed up to the
rounding of what is stored (`distances.py`). *Different* is about outputs: one input at which two float64 runs are
further apart than rounding of weights and arithmetic explain, both measured at that input. Invariant: neither is
concluded from the failure of the other; between them the answer is *undecided*. Cost: one alignment, then some ten runs
of the module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from lawful.checkpoints.align.align import plus
from lawful.checkpoints.align.lazy_tensors import MadeTensors, folded_tensors, rounding_unit
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.distances import NOISES
from lawful.checkpoints.compare.entries import WeightComparison, compare, stored_alike
from lawful.checkpoints.compare.uniqueness import UniquenessVerdict
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.random_members import random_member
from lawful.checkpoints.rewrite.folds import DropFold, State
from lawful.network.reading import list_names
from lawful.outward import at_most
from lawful.program.table import OperatorFamily
from lawful.result import Shown, truth_of

SIZES = (1.0, 1.0, 10.0, 100.0)  # of random inputs: far out, biases hide less and what is capped is reached
# *Different* rests on outputs: two float64 runs at one input whose gap exceeds everything that could explain it. The
# error of the replay is measured, not bounded (another member of A's orbit, run in the same arithmetic), hence the
# factor REPLAY. What rounding of the stored weights does is measured on rounded members of A's orbit; alignment finds
# only one member of B's, so that a true copy may look FAR times worse, or FAR_ALIGNED times where all but a few entries
# were found again. Up to a million numbers the gap is then certified in ball arithmetic (`outputs-differ`), where no
# such factor enters; a gap between these limits is *undecided*.
FAR, FAR_ALIGNED = 30.0, 3.0
REPLAY = 1e3
ROWS = 4  # tokens that are furthest apart, of which an input is made
# Entries off by so many times what rounding may do to one (2.5 to 10 units, see distances.py) are plainly others.
PLAIN = 64.0

SINGLE = 2.0**-24  # rounding of float32, in which networks are computed: their arithmetic alone loses as much

Word = Literal["equal", "rounded", "different", "undecided"]


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
    place: int  # of that among all outputs, flattened


@dataclass(frozen=True, eq=False)
class CheckpointVerdict(Shown):
    """Equal, rounded, different or undecided, and what it rests on.

    `within` says which equality: "exactly", "weight by weight" (each entry within `epsilon` of itself) or "copy by
    weights" (each entry within `epsilon` of the sum of the absolute values of its terms; outputs are not bounded). A
    *rounded* copy has the weights of the other up to rounding to fewer bits than float32 has, and other outputs: it is
    another function. As a truth value, equal is true, rounded and different are false, and undecided is none.
    """

    verdict: Word
    within: str | None
    epsilon: float | None
    reason: str
    comparison: WeightComparison
    replay: OutputReplay | None
    theorem: UniquenessVerdict | None = None  # what decides, where the function determines the weights
    retraced: bool = False  # whether the steps to the outputs can be listed, for others to carry out
    rewritten: tuple[str, ...] = ()  # what brought the two to one form
    seconds: float = 0.0

    @property
    def certified(self) -> bool:
        """Whether there is something to re-check."""
        return self.is_copy or self.theorem is not None or self.retraced

    @property
    def is_copy(self) -> bool:
        """Whether B has the weights of A, moved by symmetries, exactly or up to rounding."""
        return self.verdict in ("equal", "rounded")

    def __bool__(self) -> bool:
        return truth_of(self.verdict, self.reason)


def same_checkpoints(
    architecture: CheckpointArchitecture, first: State, second: State, *, seed: int = 0
) -> CheckpointVerdict:
    """Decide whether two states of one architecture are the same function."""
    comparison = compare(architecture, first, second)
    off = [distance for distance in comparison.distances if not distance.fits]
    if architecture.unread:
        return CheckpointVerdict("undecided", None, None, unread_words(architecture.unread), comparison, None)
    if not off:
        return _leave_open(architecture, copy_verdict(comparison, first, second, seed=seed))
    worst = max(off, key=lambda distance: (not np.isfinite(distance.relative), distance.relative))
    share = sum(not distance.fits for distance in comparison.distances)
    of = "its size" if worst.beside is None else f"the size of {worst.beside}"
    where = f"{worst.tensor} is off by {worst.relative:.1e} of {of} after alignment"
    where += f", and {share - 1} other tensors" if share > 1 else ""
    replay = _replay_hardest(architecture, first, second, comparison, seed)
    far = FAR_ALIGNED if _pinned_down(comparison) else FAR
    if replay.gap > far * replay.rounding and replay.gap > REPLAY * replay.error:
        return CheckpointVerdict("different", None, None, where, comparison, replay)
    reason = f"{where}; at {len(SIZES)} random inputs outputs differ by {replay.gap:.1e}, which rounding may explain"
    return CheckpointVerdict("undecided", None, None, reason, comparison, replay)


def unread_words(unread: Sequence[str]) -> str:
    """Why nothing is said of the function."""
    return f"{'; '.join(unread)}: what the weights compute is not known (give --model module:factory)"


def _leave_open(architecture: CheckpointArchitecture, equal: CheckpointVerdict) -> CheckpointVerdict:
    """Equal weights are equal functions only in modules that compute the same at every size of inputs."""
    if not architecture.unsettled:
        return equal
    reason = f"the weights are equal ({equal.reason}), but {'; '.join(architecture.unsettled)}"
    return replace(equal, verdict="undecided", within=None, epsilon=None, reason=reason)


def _pinned_down(comparison: WeightComparison) -> bool:
    """Whether most tensors were found again up to rounding, and some entry of the others is plainly another one."""
    near = sum(distance.exact or distance.relative <= NOISES * distance.noise for distance in comparison.distances)
    plainly = any(
        distance.entry > PLAIN * distance.unit if distance.moved_only else distance.excess > PLAIN
        for distance in comparison.distances
        if not distance.fits
    )
    return plainly and 2 * near > len(comparison.distances)


def copy_verdict(comparison: WeightComparison, first: State, second: State, *, seed: int = 0) -> CheckpointVerdict:
    """The verdict on weights that fit: the same function, or a rounded copy, which an input has to show."""
    equal = _equal(comparison)
    if comparison.architecture.returns_more and (doubt := _doubt_of_other_outputs(comparison, first, second)):
        reason = f"the first tensor that the module returns is the same ({equal.reason}); it does not read {doubt}"
        return replace(equal, verdict="undecided", within=None, epsilon=None, reason=reason)
    coarse = (
        distance.moved_only or distance.unit > SINGLE < distance.entry
        for distance in comparison.distances
        if distance.entry > 0
    )
    if not any(coarse):
        return equal
    replay = _replay_once(comparison.architecture, first, second, comparison, seed)
    if replay.gap > REPLAY * replay.error:
        return replace(equal, verdict="rounded", replay=replay)
    reason = f"a rounded copy ({equal.reason}), and at a random input outputs differ by {replay.gap:.1e}: no more than "
    reason += "the arithmetic explains"
    return replace(equal, verdict="undecided", within=None, epsilon=None, reason=reason, replay=replay)


def _replay_once(
    architecture: CheckpointArchitecture, first: State, second: State, comparison: WeightComparison, seed: int
) -> OutputReplay:
    """Both at one random input, beside A in B's own order and axes, whose outputs differ by arithmetic alone."""
    inputs = architecture.draw_inputs(seed + 100)
    runs = [(state, inputs) for state in (first, second, _as_placed(architecture, first, comparison))]
    one, two, disguised = architecture.beside(runs)
    size = max((float(tensor.abs().max()) for tensor in one), default=0.0) or 1.0
    gap, outputs, place = gap_of(one, two)
    error = max(1e-16, gap_of(one, disguised)[0] / size)
    return OutputReplay(tuple(inputs), gap / size, error, gap / size, outputs, place)


def _as_placed(
    architecture: CheckpointArchitecture, first: State, comparison: WeightComparison
) -> Mapping[str, torch.Tensor]:
    """A in the disguise of B, as alignment found it; not rounded."""
    folded = folded_tensors(first, architecture.folds)
    acting = frames(architecture.group, comparison.alignment.moves)
    unshifted = plus(folded, {name: [-piece for piece in pieces] for name, pieces in comparison.shifts.items()})
    return MadeTensors(folded, lambda name: move_tensors(unshifted, acting, [name], back=True))


def _equal(comparison: WeightComparison) -> CheckpointVerdict:
    worked = [distance for distance in comparison.distances if distance.entry > 0]
    if not any(not distance.moved_only for distance in comparison.distances):
        if not worked:
            words = "every number of B is one of A, moved, or multiplied by a power of two"
            return CheckpointVerdict("equal", "exactly", 0.0, words, comparison, None)
        epsilon = max(distance.entry for distance in worked)
        words = f"both hold the same numbers, moved, one in fewer bits: each within {at_most(epsilon)} of itself"
        return CheckpointVerdict("equal", "weight by weight", epsilon, words, comparison, None)
    worked = [distance for distance in comparison.distances if not distance.moved_only or distance.entry > 0]
    epsilon = max(distance.entry for distance in worked)
    sums = (
        any(frame.blocks for frame in comparison.frames.values()) or comparison.shifts or comparison.architecture.folds
    )
    within = "copy by weights" if sums else "weight by weight"
    unit = max(distance.unit for distance in worked)
    words = f"each entry within {at_most(epsilon)} of {'the sum of its terms' if sums else 'itself'}"
    words += f"; stored numbers are rounded at {unit:.1e}"
    if not comparison.architecture.returns_more and (unread := _unread_differences(comparison)):
        words += f"; left out, since no output sees them: {list_names(unread, 4)}"
    return CheckpointVerdict("equal", within, epsilon, words, comparison, None)


def _doubt_of_other_outputs(comparison: WeightComparison, first: State, second: State) -> str:
    """Why outputs behind the first may differ where that is the same; nothing if they cannot.

    Symmetries are those of the first output alone. One of them that permutes a layer is none of a second head that
    reads the layer, unless that head is permuted too: so weights that no first output reads have to stand beside
    weights that did not move at all.
    """
    if unread := _unread_differences(comparison):
        return f"{list_names(unread, 4)}, in which A and B differ, and what else it returns may"
    unread = _unread(comparison)
    if unread and not all(stored_alike(first[name], second[name]) for name in first):
        return f"{list_names(unread, 4)}, which may read the weights that moved"
    return ""


def _unread(comparison: WeightComparison) -> list[str]:
    """The tensors that no output reads."""
    return [step.tensor for step in comparison.architecture.folds if isinstance(step, DropFold)]


def _unread_differences(comparison: WeightComparison) -> list[str]:
    """Those of them that are not the same in both."""
    dropped = set(_unread(comparison))
    return [distance.tensor for distance in comparison.distances
            if distance.tensor in dropped and not (distance.moved_only and distance.exact)]  # fmt: skip


def draw_trials(architecture: CheckpointArchitecture, seed: int) -> list[list[torch.Tensor]]:
    """The random inputs at which two checkpoints are compared."""
    return [
        [
            tensor * size if tensor.is_floating_point() else tensor
            for tensor in architecture.draw_inputs(seed + 100 + trial)
        ]
        for trial, size in enumerate(SIZES)
    ]


def _replay_hardest(
    architecture: CheckpointArchitecture, first: State, second: State, comparison: WeightComparison, seed: int
) -> OutputReplay:
    """The input with the largest gap relative to what rounding does there.

    What rounding does is seen on A in disguise, rounded like B: in B's own disguise, as alignment found it, and in two
    random ones.
    """
    group = architecture.group
    folded = folded_tensors(first, architecture.folds)
    disguised = _as_placed(architecture, first, comparison)
    many = draw_trials(architecture, seed)
    many += _inputs_of_far_tokens(architecture, folded, comparison, many[0])
    one, two = (architecture.replays(state, many) for state in (first, second))
    sizes = [max((float(tensor.abs().max()) for tensor in outputs), default=0.0) or 1.0 for outputs in one]
    error, rounding = ([1e-16] * len(many) for _ in range(2))
    harder = max(1.0, comparison.conditioning / 10.0)
    twins = [
        (disguised, 1.0),
        *((random_member(group, folded, seed + number, mirrored=True), harder) for number in range(2)),
    ]
    for twin, factor in twins:
        exact, rounded = (architecture.replays(state, many) for state in (twin, _stored_like(twin, first, second)))
        for trial, size in enumerate(sizes):
            error[trial] = max(error[trial], gap_of(one[trial], exact[trial])[0] / size)
            rounding[trial] = max(rounding[trial], factor * gap_of(one[trial], rounded[trial])[0] / size)
    trials = []
    for trial, size in enumerate(sizes):
        gap, outputs, place = gap_of(one[trial], two[trial])
        trials.append(OutputReplay(tuple(many[trial]), gap / size, error[trial], rounding[trial], outputs, place))
    return max(trials, key=lambda trial_replay: trial_replay.gap / trial_replay.rounding)


def _inputs_of_far_tokens(
    architecture: CheckpointArchitecture,
    folded: Mapping[str, torch.Tensor],
    comparison: WeightComparison,
    like: Sequence[torch.Tensor],
) -> list[list[torch.Tensor]]:
    """Inputs made of the numbers (tokens) whose rows in a table of embeddings are furthest apart."""
    program, apart = architecture.program, {distance.tensor for distance in comparison.distances if not distance.fits}
    inputs = []
    for node in () if program is None else program.nodes:
        if node.family is not OperatorFamily.LOOKUP or node.inputs[0].op != "parameter" or program is None:
            continue
        table, index = node.inputs[:2]
        name = table["name"]
        if name in apart and index in program.inputs and table.rank == 2 and node.attributes.get("axis") == 0:
            off = (comparison.aligned[name] - folded[name]).square().sum(1)
            worst = off.topk(min(ROWS, len(off))).indices
            place = program.inputs.index(index)
            tokens = worst[torch.arange(like[place].numel()) % len(worst)].reshape(like[place].shape)
            inputs.append([tokens.to(tensor.dtype) if n == place else tensor for n, tensor in enumerate(like)])
    return inputs


def _stored_like(twin: Mapping[str, torch.Tensor], first: State, second: State) -> Mapping[str, torch.Tensor]:
    """A state in the coarser type of numbers of the two."""

    def make(name: str) -> State:
        tensor = twin[name]
        if tensor.is_floating_point():
            tensor = tensor.to(max((first[name].dtype, second[name].dtype), key=rounding_unit))
        return {name: tensor}

    return MadeTensors(twin, make)


def gap_of(one: Sequence[torch.Tensor], two: Sequence[torch.Tensor]) -> tuple[float, tuple[float, float], int]:
    """By how much outputs differ at most, what both are there, and where that is among all of them, flattened."""
    a, b = (torch.cat([tensor.reshape(-1) for tensor in (*outputs, torch.zeros(1))]) for outputs in (one, two))
    apart = (a - b).abs()
    place = int(apart.argmax())
    return float(apart[place]), (float(a[place]), float(b[place])), place
