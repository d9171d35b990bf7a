"""Another member of a checkpoint's orbit, chosen for what it is good for: the same function, written in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from lawful.checkpoints.align.lazy_tensors import MadeTensors, folded_tensors
from lawful.checkpoints.architecture import CheckpointArchitecture, check_numbers
from lawful.checkpoints.compare.decide import CheckpointVerdict, copy_verdict, same_checkpoints
from lawful.checkpoints.compare.entries import compare_moved
from lawful.checkpoints.group.axis_actions import as_rows, frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisRows,
    GroupedUnits,
    HeadsMove,
    HeadSpace,
    MatrixBlock,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    UnitSpace,
    identity,
    inverse,
    members_of,
    then,
)
from lawful.checkpoints.opening import CheckpointPair, OpenCheckpoint
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.representative.balancing import balance, quantise, rounding_error
from lawful.checkpoints.rewrite.folds import Folding, State
from lawful.result import Shown
from lawful.symmetry.inputs import Input
from lawful.types import Floats

Purpose = Literal["norm", "range", "canonical"]
FOLDING: dict[str, tuple[Folding, ...]] = {
    "norm": ("statistics",),
    "range": ("none", "statistics"),
    "canonical": ("all",),
}
BITS = (8, 4)
TIE = 1e-6  # relative gap of the sizes of two units below which their order is said to be chance


@dataclass(frozen=True)
class RoundingErrors:
    """What symmetric rounding to so many bits does, before and after: to weights, and to outputs (relative)."""

    bits: int
    weights: tuple[float, float]
    outputs: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Representative(Shown):
    """The chosen member, and how its function was compared with that of the checkpoint.

    `weights` have the names and types of numbers of the file; `norms` are `‖θ‖` before and after.
    """

    purpose: Purpose
    weights: dict[str, torch.Tensor]
    norms: tuple[float, float]
    errors: tuple[RoundingErrors, ...]
    measured_on: str
    sweeps: int
    notes: tuple[str, ...]
    verdict: CheckpointVerdict
    pair: CheckpointPair


def represent(
    opened: OpenCheckpoint,
    module: nn.Module,
    purpose: Purpose,
    *,
    input: Input | Sequence[Input] | None = None,
    inputs: Sequence[torch.Tensor] | None = None,
    seed: int = 0,
) -> Representative:
    """The member of the orbit with the smallest norm, with the most even ranges, or in the standard place.

    `norm` uses scales and the pairs of attention, with gains as they are and BatchNorms folded; `range` tries that
    with BatchNorms folded and not, and keeps what rounds best, be it the checkpoint itself; `canonical` folds
    everything, and puts units and heads in the order of their size.
    """
    check_numbers(opened.state, opened.source)
    whole = read_architecture(module, input)
    probes = list(inputs) if inputs is not None else whole.draw_inputs(seed)
    tried = [_balance(opened, module, purpose, input, folding, seed) for folding in FOLDING[purpose]]
    ranked = [(_errors(whole, opened.state, candidate[0], probes), candidate) for candidate in tried]
    errors, (stored, sweeps, notes, known) = min(ranked, key=lambda one: _loss(one[0]))
    if purpose == "range" and _loss(errors) >= 1.0:
        stored, notes = dict(opened.state), ["no member that was tried rounds better: the checkpoint stays as it is"]
        errors = _errors(whole, opened.state, stored, probes)
    weights = {key: stored[name].contiguous() for name, key in opened.keys.items()}
    second = OpenCheckpoint(stored, opened.keys, f"{opened.source} ({purpose})")
    verdict = same_checkpoints(whole, opened.state, stored, seed=seed)
    if not verdict.is_copy:  # what was done is known: nothing has to be found again
        again = compare_moved(known[0], known[1], opened.state, stored)
        if again.fits:
            whole, verdict = known[0], copy_verdict(again, opened.state, stored, seed=seed)
    parameters = list(dict(module.named_parameters()))
    norms = tuple(float(sum(state[name].double().square().sum() for name in parameters)) ** 0.5
                  for state in (opened.state, stored))  # fmt: skip
    return Representative(
        purpose,
        weights,
        (norms[0], norms[1]),
        errors,
        "random inputs" if inputs is None else f"{len(probes[0])} samples",
        sweeps,
        tuple(dict.fromkeys(notes)),
        verdict,
        CheckpointPair(whole, opened, second),
    )


def _balance(
    opened: OpenCheckpoint, module: nn.Module, purpose: Purpose, input: Any, folding: Folding, seed: int
) -> tuple[State, int, list[str], tuple[CheckpointArchitecture, dict[int, SpaceMove]]]:
    """A member of the orbit as it is stored, after how many sweeps, what was left alone, and the way back."""
    architecture = read_architecture(module, input, folding=folding)
    whole = [space for space in architecture.group.spaces if isinstance(space, GroupedUnits)]
    architecture = replace(architecture, group=architecture.group.with_groups_in_place())
    balanced = balance(
        architecture.group,
        dict(folded_tensors(opened.state, architecture.folds)),
        "range" if purpose == "range" else "norm",
        seed,
    )
    state, notes = balanced.state, [*architecture.notes, *balanced.notes]
    if purpose == "canonical":
        _in_order(architecture.group, state, notes, balanced.moves)
        notes += [f"{space.name}: its {space.count} groups are left in their order" for space in whole]
    stored = {}
    for name, tensor in opened.state.items():
        tensor_made = state.pop(name)  # so that not all are there twice
        stored[name] = tensor_made.to(tensor.dtype) if tensor_made.is_floating_point() else tensor_made
    return stored, balanced.sweeps, notes, (architecture, {n: inverse(move) for n, move in balanced.moves.items()})


def _loss(errors: Sequence[RoundingErrors]) -> float:
    """By what factor rounded outputs are worse than before, in the mean."""
    ratios = [error.outputs[1] / error.outputs[0] if error.outputs[0] else 1.0 for error in errors]
    return float(np.prod(ratios) ** (1 / len(ratios)))


def _errors(
    architecture: CheckpointArchitecture, before: State, after: State, inputs: Sequence[torch.Tensor]
) -> tuple[RoundingErrors, ...]:
    return tuple(_measure_rounding(architecture, before, after, inputs, bits) for bits in BITS)


def _measure_rounding(
    architecture: CheckpointArchitecture, before: State, after: State, inputs: Sequence[torch.Tensor], bits: int
) -> RoundingErrors:
    names = set(dict(architecture.module.named_parameters()))
    exact = _outputs(architecture, before, inputs)
    size = float(sum(tensor.square().sum() for tensor in exact)) ** 0.5 or 1.0
    off, errors = [], []
    for state in (before, after):
        rounded = _outputs(architecture, _on_a_grid(state, names, bits), inputs)
        gap = float(sum((a - b).square().sum() for a, b in zip(exact, rounded, strict=True))) ** 0.5
        off.append(gap / size)
        errors.append(rounding_error({name: tensor for name, tensor in state.items() if name in names}, bits))
    return RoundingErrors(bits, (errors[0], errors[1]), (off[0], off[1]))


def _on_a_grid(state: State, names: set[str], bits: int) -> MadeTensors:
    """Parameters rounded to a few bits, made when asked for."""

    def make(name: str) -> State:
        return quantise({name: state[name].double()}, bits) if name in names else {name: state[name]}

    return MadeTensors(state, make)


def _outputs(
    architecture: CheckpointArchitecture, state: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Tensor by tensor if the inputs have the sizes with which the module was read."""
    if [tensor.shape for tensor in inputs] == [tensor.shape for tensor in architecture.inputs]:
        return architecture.replays(state, [inputs])[0]
    return architecture.outputs(state, inputs)


# Order


def _in_order(group: OrbitGroup, current: State, notes: list[str], moves: dict[int, SpaceMove]) -> None:
    """Units and heads by their size, signs by the first rows that show one: in the given tensors."""
    for number, space in enumerate(group.spaces):
        move: SpaceMove | None = None
        if isinstance(space, UnitSpace):
            sizes = np.sum([_squares(rows, current) for rows in space.members], 0)
            order = np.argsort(-sizes, kind="stable") if space.permutes else np.arange(space.size)
            _name_ties(space.name, sizes[order], space.permutes, notes)
            base = identity(space)
            first = next((rows for rows in space.members if rows.odd), None)
            signs = np.ones(space.size)
            if space.signed and first is not None:
                sums = as_rows(current[first.tensor], first.dims).sum(1).numpy()[first.places].sum(1)[order]
                signs = np.where(sums < 0, -1.0, 1.0)
            if isinstance(base, UnitsMove):
                move = UnitsMove(order, base.scales, signs)
        elif isinstance(space, HeadSpace) and space.permutes:
            move = _heads_in_order(space, current, notes)
        elif isinstance(space, MatrixBlock) and space.kind.startswith("O"):
            notes.append(f"{space.name}: rotations of a space of {space.size} change no norm and are left as they are")
        if move is not None:
            names = list(dict.fromkeys(rows.tensor for rows in members_of(space)))
            current.update(move_tensors(current, frames(group, {number: move}), names))
            moves[number] = then(moves[number], move)


def _squares(rows: AxisRows, state: State) -> Floats:
    return np.asarray(as_rows(state[rows.tensor], rows.dims).square().sum(1).numpy()[rows.places].sum(1))


def _heads_in_order(space: HeadSpace, state: State, notes: list[str]) -> SpaceMove:
    sizes = np.array([sum(_squares(rows, state).sum() for block in head for rows in block.members)
                      for head in space.heads])  # fmt: skip
    order = np.argsort(-sizes, kind="stable")
    _name_ties(space.name, sizes[order], True, notes)
    base = identity(space)
    if not isinstance(base, HeadsMove):
        return base
    copies = base.copies.copy()
    for h, head in enumerate(order.tolist()):
        members = [rows for block in space.heads[head] for rows in block.members]
        copy_sizes = np.zeros(space.copies)
        for rows in members:
            if space.copies > 1 and rows.places.shape[1] == space.copies:
                flat = as_rows(state[rows.tensor], rows.dims).square().sum(1).numpy()
                copy_sizes += flat[rows.places].sum(0)
        copies[h] = np.argsort(-copy_sizes, kind="stable")
    return HeadsMove(order, copies, base.matrices)


def _name_ties(name: str, sizes: Floats, permutes: bool, notes: list[str]) -> None:
    close = np.flatnonzero(sizes[:-1] - sizes[1:] <= TIE * sizes[:-1])
    if permutes and len(close):
        notes.append(f"{name}: {len(close)} units have the size of their neighbour, so that their order is chance")
