"""Two checkpoints after alignment, entry by entry: equal exactly, equal up to the rounding of their numbers, or not.

What is compared is `g · fold(B) + shift` with `fold(A)`. An entry may differ by ε times the sum of the absolute values
of the terms that made it, and only where something was computed: an entry that is merely moved (or multiplied by a
power of two) has to be the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import torch

from lawful.checkpoints.align.align import Alignment, plus, search, shift_parts
from lawful.checkpoints.align.lazy_tensors import (
    MadeTensors,
    fold_clusters,
    folded_tensors,
    rounding_unit,
    working_types,
)
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.distances import (
    WORKED,
    AlignedDifference,
    TensorDistance,
    beside_others,
    find_computed,
    moved_distance,
    rounding_noise,
)
from lawful.checkpoints.group.axis_actions import AxisFrame, frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisPlace,
    BlockMove,
    GroupsMove,
    HeadsMove,
    MatrixBlock,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    identity,
)
from lawful.checkpoints.rewrite.folds import State
from lawful.symmetry.laws.families import SpaceLaws
from lawful.types import Floats

# So near to a power of two, or to a permutation, a move is taken to be one: relative, or in units of the rounding of
# stored numbers. Numbers that are merely moved then have to be equal, so a wrong guess cannot make unequal ones equal.
SNAP, SNAP_UNITS = 1e-6, 8.0


def snap(move: SpaceMove, unit: float) -> SpaceMove:
    """A move that only permutes and multiplies by powers of two, if the whole of it is that near to one.

    Then it is held to that: numbers that are merely moved have to be equal. A space that is scaled or mixed in any of
    its units is left as it is. `unit` is the rounding of the stored numbers.
    """
    near = max(SNAP, SNAP_UNITS * unit)
    if isinstance(move, UnitsMove):
        return _snapped_units(move, near)
    if isinstance(move, GroupsMove):
        return GroupsMove(tuple(_snapped_units(slot, near) for slot in move.slots))
    if isinstance(move, BlockMove):
        clean = _permutation(move.matrix, near)
        return move if clean is None else BlockMove(clean)
    cleaned = [[_permutation(matrix, near) for matrix in head] for head in move.matrices]
    if any(matrix is None for head in cleaned for matrix in head):
        return HeadsMove(
            move.order,
            move.copies,
            tuple(tuple(_without_phases(matrix, near) for matrix in head) for head in move.matrices),
        )
    return HeadsMove(move.order, move.copies, tuple(tuple(m for m in head if m is not None) for head in cleaned))


def _snapped_units(move: UnitsMove, near: float) -> UnitsMove:
    powers = np.exp2(np.round(np.log2(move.scales)))
    meant = bool((np.abs(move.scales / powers - 1) < near).all())
    return UnitsMove(move.order, powers, move.signs) if meant else move


def _without_phases(matrix: Floats, near: float) -> Floats:
    """A matrix of rotary pairs without phases, if all of them are so small that they are rounding."""
    if (matrix != 0).sum(1).max() > 2:
        return matrix
    small = np.abs(matrix) < near * np.abs(matrix).max(1, keepdims=True)
    alone = (~small).sum(1) == 1
    return np.where(small, 0.0, matrix) if bool(alone.all()) else matrix


def _permutation(matrix: Floats, near: float) -> Floats | None:
    """The permutation with powers of two that a matrix is, if it is one."""
    largest = np.abs(matrix).argmax(1)
    rows = np.arange(len(matrix))
    values = matrix[rows, largest]
    if len(set(largest.tolist())) < len(matrix) or not (np.abs(values) > 0).all():
        return None
    powers = np.sign(values) * np.exp2(np.round(np.log2(np.abs(values))))
    clean = np.zeros_like(matrix)
    clean[rows, largest] = powers
    return clean if bool((np.abs(matrix - clean).max(1) < near * np.abs(powers)).all()) else None


SOLVED = 1e-9  # of the largest constant that is added: less, where nothing is missing, is an error of solving


@dataclass(frozen=True, eq=False)
class WeightComparison:
    """Everything that alignment found: the group element as frames, the shifts, and the distances that are left."""

    architecture: CheckpointArchitecture
    alignment: Alignment
    frames: Mapping[AxisPlace, AxisFrame]
    shifts: Mapping[str, list[torch.Tensor]]
    distances: tuple[TensorDistance, ...]
    aligned: Mapping[str, torch.Tensor]  # folded, made when asked for
    conditioning: float

    @property
    def fits(self) -> bool:
        """Whether B is A up to the rounding of stored numbers."""
        return all(distance.fits for distance in self.distances)


def compare(architecture: CheckpointArchitecture, first: State, second: State) -> WeightComparison:
    """Align the tensors of B to those of A and compare them."""
    group, folds = architecture.group, architecture.folds
    kinds = working_types(first, second)
    if all(stored_alike(first[name], second[name]) for name in first):
        unmoved = Alignment({number: identity(space) for number, space in enumerate(group.spaces)}, 0)
        return _measure(architecture, unmoved, first, second, kinds)
    unit = max((rounding_unit(state[name].dtype) for state in (first, second) for name in group.shapes), default=0.0)
    one, two = (folded_tensors(state, folds, kinds) for state in (first, second))
    alignment = search(group, one, two, unit=unit)
    moves = {number: snap(move, unit) for number, move in alignment.moves.items()}
    return _measure(architecture, Alignment(moves, alignment.passes), first, second, kinds)


def compare_moved(
    architecture: CheckpointArchitecture, moves: Mapping[int, SpaceMove], first: State, second: State
) -> WeightComparison:
    """Compare after moves that are known."""
    return _measure(architecture, Alignment(dict(moves), 0), first, second, working_types(first, second))


def _measure(
    architecture: CheckpointArchitecture,
    alignment: Alignment,
    first: State,
    second: State,
    kinds: Mapping[str, torch.dtype],
) -> WeightComparison:
    """Compare after one alignment, one cluster of tensors after the other."""
    group, folds = architecture.group, architecture.folds
    acting = frames(group, alignment.moves)
    one, two = (folded_tensors(state, folds, kinds) for state in (first, second))
    turned = MadeTensors(second, lambda name: move_tensors(two, acting, [name]))
    units = {
        name: (max(rounding_unit(first[name].dtype), WORKED), max(rounding_unit(second[name].dtype), WORKED))
        for name, tensor in first.items()
        if tensor.is_floating_point()
    }
    shifts = _shifts(group.shifts, one, turned, units)
    aligned = plus(turned, shifts)
    worked, carried = find_computed(architecture, first, second, acting, shifts)
    clusters = fold_clusters(first, folds)
    sizes = [folded_tensors(state, folds, kinds, absolute=True) for state in (first, second)]
    distances = []
    for cluster in dict.fromkeys(clusters.values()):
        noise: dict[str, float] | None = None
        by: dict[AxisPlace, AxisFrame]
        for name in cluster.names:
            if name not in units:
                same = torch.equal(first[name], second[name])
                if not same and not name.endswith("num_batches_tracked"):
                    distances.append(TensorDistance(name, inf, 0.0, inf, 0.0, exact=False, moved_only=True, size=inf))
            elif name in carried:
                by = {(name, (0,)): carried[name]}
                distances.append(moved_distance(name, first[name], second[name], by, max(units[name])))
            elif name not in worked:
                distances.append(moved_distance(name, first[name], second[name], acting, max(units[name])))
            else:
                if noise is None:
                    noise = rounding_noise(cluster, first, kinds, {}, 1)
                    for other, more in rounding_noise(cluster, second, kinds, acting, 2).items():
                        noise[other] += more
                by = {place: frame for place, frame in acting.items() if place[0] == name}
                terms = sizes[0][name], sizes[1][name]
                off = AlignedDifference(one[name], aligned[name], terms, by, shifts.get(name, []), units[name])
                distances.append(off.distance(name, noise[name]))
        for tensors in (one, two, turned, aligned, *sizes):
            if isinstance(tensors, MadeTensors):  # no other cluster needs them
                tensors.forget(cluster.names)
    order = {name: place for place, name in enumerate(first)}
    distances.sort(key=lambda distance: order[distance.tensor])
    if any(distance.off and not distance.size for distance in distances):
        distances = beside_others(distances, {name: float(first[name].norm()) for name in units})
    acting |= {(name, (0,)): frame for name, frame in carried.items()}
    return WeightComparison(
        architecture, alignment, acting, shifts, tuple(distances), aligned, _conditioning(group, alignment.moves)
    )


def _shifts(
    laws: tuple[SpaceLaws, ...],
    one: Mapping[str, torch.Tensor],
    turned: Mapping[str, torch.Tensor],
    units: Mapping[str, tuple[float, float]],
) -> dict[str, list[torch.Tensor]]:
    """What has to be added to B along directions that no operation sees."""
    touched = list(dict.fromkeys(name for law in laws for name in law.parameters))
    apart = MadeTensors(touched, lambda name: {name: one[name] - turned[name]})
    shifts = {}
    parts = shift_parts(apart, laws)
    most = max((float(piece.abs().max()) for pieces in parts.values() for piece in pieces), default=0.0)
    for name, pieces in parts.items():
        largest = float(torch.maximum(one[name].abs().max(), turned[name].abs().max()))
        least = max(units[name]) * largest
        whole = float(sum(pieces[1:], pieces[0]).abs().max())
        if whole <= SOLVED * most and not bool(apart[name].any()):  # such as biases that are zero in both
            continue
        if larger := [piece for piece in pieces if float(piece.abs().max()) > least]:  # the others are rounding
            shifts[name] = larger
    return shifts


def stored_alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether tensors hold the same numbers, once both are stored in the fewer bits of the two."""
    if not one.is_floating_point() or not two.is_floating_point():
        return True
    kind = max((one.dtype, two.dtype), key=rounding_unit)
    return torch.equal(one.to(kind), two.to(kind))


def _conditioning(group: OrbitGroup, moves: Mapping[int, SpaceMove]) -> float:
    worst = 1.0
    for number, move in moves.items():
        space = group.spaces[number]
        if isinstance(move, (UnitsMove, GroupsMove)):
            units = move.slots if isinstance(move, GroupsMove) else (move,)
            worst = max(worst, *(float(max(s.max(), 1 / s.min())) for slot in units for s in slot.scales.T), 1.0)
        elif not (isinstance(space, MatrixBlock) and space.kind in ("O", "O fixing 1")):
            matrices = [move.matrix] if isinstance(move, BlockMove) else [m for head in move.matrices for m in head]
            worst = max(worst, *(float(np.linalg.cond(matrix)) for matrix in matrices))
    return worst
