"""Another member of a checkpoint's orbit, chosen for what it is good for: the same function, written in its place.

Idea: the norm is least, or ranges quantise best, space by space. A scale t of a unit multiplies squared norms n by
t^{2p}: `Σ n t^{2p}` is convex in log t, and so is the sum over all units (a geometric program), so that going round the
spaces leads to the minimum. Of a pair `P → M P, N → M⁻ᵀ N` (queries and keys, values and outputs) the invariant is
`PᵀN`; with its singular value decomposition `U S Wᵀ`, the factors `√S Uᵀ` and `√S Wᵀ` have the smallest norm, twice the
nuclear norm of `PᵀN`. Rotations change no norm and stay. Every step is a member of the group, so the function stays
wherever the search stops; what is written is compared with what was read all the same. Cost: a pass over all weights
for each sweep.
"""

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
    BlockMove,
    GroupedUnits,
    GroupsMove,
    HeadsMove,
    HeadSpace,
    HiddenSpace,
    MatrixBlock,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    UnitSpace,
    identity,
    inverse,
    members_of,
    then,
    turning,
)
from lawful.checkpoints.opening import CheckpointPair, OpenCheckpoint
from lawful.checkpoints.read_architecture import read_for
from lawful.checkpoints.rewrite.folds import Folding, State
from lawful.result import Shown
from lawful.symmetry.inputs import Input
from lawful.types import Floats

# What rounding to a few bits does to weights: symmetric, one grid for each tensor, vectors left as they are.


def quantise(state: Mapping[str, torch.Tensor], bits: int) -> dict[str, torch.Tensor]:
    """Every matrix and kernel on the grid `max|w| / (2^{bits−1} − 1)`.

    >>> quantise({"w": torch.tensor([[7.0, 3.4]])}, 4)["w"].tolist()
    [[7.0, 3.0]]
    """
    levels = 2 ** (bits - 1) - 1
    rounded = {}
    for name, tensor in state.items():
        if tensor.is_floating_point() and tensor.ndim > 1 and bool(tensor.any()):
            step = tensor.abs().max() / levels
            tensor = (tensor / step).round() * step
        rounded[name] = tensor
    return rounded


def rounding_error(state: Mapping[str, torch.Tensor], bits: int) -> float:
    """`‖Q(W) − W‖/‖W‖` over all matrices and kernels, each relative to itself (root mean square)."""
    shares = []
    for name, tensor in state.items():
        if tensor.is_floating_point() and tensor.ndim > 1 and bool(tensor.any()):
            tensor = tensor.double()
            rounded = quantise({name: tensor}, bits)[name]
            shares.append(float((rounded - tensor).norm() / tensor.norm()) ** 2)
    return float((sum(shares) / len(shares)) ** 0.5) if shares else 0.0


Objective = Literal["norm", "range"]
# The norm converges (linearly, by a factor that the depth sets); ranges may go round in circles, and the best is kept.
SWEEPS = {"norm": 400, "range": 40}
STILL = 1e-11  # changes of logarithms below which nothing moves
# Relative size of a singular value below which a pair of factors is left alone: its root divides what is stored, and
# 1/√1e-9 = 3e4 times the rounding of float32 is still half a percent.
SINGULAR = 1e-9
TURNS = 3  # random rotations of a head that are tried for its ranges


@dataclass(frozen=True, eq=False)
class BalancedTensors:
    """The tensors, the moves that led there, how many times all spaces were visited, and what was left alone."""

    state: State
    moves: dict[int, SpaceMove]
    sweeps: int
    notes: tuple[str, ...]


def balance(
    group: OrbitGroup, state: Mapping[str, torch.Tensor], objective: Objective, seed: int = 0
) -> BalancedTensors:
    """Go round the spaces until nothing moves; for ranges, keep the best that was met."""
    current = dict(state)
    del state  # tensors that nobody else holds are let go once they have moved
    notes: list[str] = []
    moves: dict[int, SpaceMove] = {number: identity(space) for number, space in enumerate(group.spaces)}
    best = (dict(current), dict(moves)) if objective == "range" else None
    least = _error(current) if objective == "range" else 0.0
    sweep = 0
    for sweep in range(1, SWEEPS[objective] + 1):
        change = 0.0
        for number, space in enumerate(group.spaces):
            move = _step(space, current, objective, notes, seed if sweep == 1 else None)
            if move is None:
                continue
            names = list(dict.fromkeys(rows.tensor for rows in members_of(space)))
            current.update(move_tensors(current, frames(group, {number: move}), names))
            moves[number] = then(moves[number], move)
            change = max(change, _size(move))
        if objective == "range" and (error := _error(current)) < least:
            best, least = (dict(current), dict(moves)), error
        if change < STILL:
            break
    else:
        if objective == "norm":
            notes.append(f"weights still move by {change:.0e} of themselves after {sweep} rounds")
    balanced, taken = (current, moves) if best is None else best
    return BalancedTensors(balanced, taken, sweep, tuple(dict.fromkeys(notes)))


def _error(state: Mapping[str, torch.Tensor]) -> float:
    return rounding_error(state, 4)


def _size(move: SpaceMove) -> float:
    if isinstance(move, UnitsMove):
        return float(np.abs(np.log(move.scales)).max(initial=0.0))
    if isinstance(move, GroupsMove):
        return max(_size(slot) for slot in move.slots)
    matrices = [move.matrix] if isinstance(move, BlockMove) else [m for head in move.matrices for m in head]
    return max((float(np.abs(np.abs(np.linalg.det(m)) - 1)) if len(m) < 3 else float(np.abs(m - np.eye(len(m))).max())
                for m in matrices), default=0.0)  # fmt: skip


def _step(
    space: HiddenSpace, state: State, objective: Objective, notes: list[str], seed: int | None
) -> SpaceMove | None:
    if isinstance(space, UnitSpace):
        if not space.scales:
            return None
        base = identity(space)
        scales = _least_norm(space, state) if objective == "norm" else _even_ranges(space, state)
        return UnitsMove(base.order, scales, base.signs) if isinstance(base, UnitsMove) else None
    if isinstance(space, MatrixBlock):
        matrix = _block(space, state, objective, notes)
        return None if matrix is None else BlockMove(matrix)
    base = identity(space)
    if not isinstance(space, HeadSpace) or not isinstance(base, HeadsMove):
        return None
    solutions = [[_block(block, state, objective, notes) for block in head] for head in space.heads]
    matrices = [
        [
            np.eye(block.size) if matrix is None else matrix
            for block, matrix in zip(head, solutions_of_head, strict=True)
        ]
        for head, solutions_of_head in zip(space.heads, solutions, strict=True)
    ]
    move = HeadsMove(base.order, base.copies, tuple(tuple(head) for head in matrices))
    return move if objective == "norm" or seed is None else _turn_heads(space, state, move, seed)


def _squares(rows: AxisRows, state: State) -> Floats:
    """The squared norm of each unit's rows."""
    flat = as_rows(state[rows.tensor], rows.dims)
    return np.asarray(flat.square().sum(1).numpy()[rows.places].sum(1))


def _largest(rows: AxisRows, state: State) -> Floats:
    flat = as_rows(state[rows.tensor], rows.dims)
    return np.asarray(flat.abs().amax(1).numpy()[rows.places].max(1))


def _least_norm(space: UnitSpace, state: State) -> Floats:
    """For each unit the scales that minimise the sum of squares, one after the other."""
    scales = np.ones((space.size, space.scales))
    for scale in range(space.scales):
        powers = np.array([rows.powers[scale] for rows in space.members])
        squares = np.array([
            _squares(rows, state) * np.prod([scales[:, other] ** (2 * rows.powers[other]) for other in range(scale)], 0)
            for rows in space.members
        ])  # fmt: skip
        live = (squares[powers > 0].sum(0) > 0) & (squares[powers < 0].sum(0) > 0)
        log = np.zeros(space.size)
        for _ in range(60):
            terms = squares * np.exp(2 * powers[:, None] * log)
            slope = (2 * powers[:, None] * terms).sum(0)
            bend = (4 * powers[:, None] ** 2 * terms).sum(0)
            step = np.where(live, -slope / np.where(bend > 0, bend, 1.0), 0.0)
            log += np.clip(step, -1.0, 1.0)
            if np.abs(step).max(initial=0.0) < 1e-14:
                break
        scales[:, scale] = np.exp(log)
    return scales


def _even_ranges(space: UnitSpace, state: State) -> Floats:
    """Cross-layer equalisation: the largest weights into and out of a unit become equal; where one side is a vector,
    which is not quantised, all units of the other side become equal."""
    scales = np.ones((space.size, space.scales))
    for scale in range(space.scales):
        sides = []
        for sign in (1, -1):
            ranges = [
                _largest(rows, state) * np.prod([scales[:, s] ** rows.powers[s] for s in range(scale)], 0)
                for rows in space.members
                if rows.powers[scale] * sign > 0 and state[rows.tensor].ndim > 1
            ]
            sides.append(np.max(ranges, 0) if ranges else None)
        power = max(abs(rows.powers[scale]) for rows in space.members)
        into, out = sides
        if into is not None and out is not None:
            live = (into > 0) & (out > 0)
            ratio = np.where(live, out, 1.0) / np.where(live, into, 1.0)
            scales[:, scale] = ratio ** (0.5 / power)
        elif (side := into if into is not None else out) is not None:
            live = side > 0
            middle = np.exp(np.log(side[live]).mean()) if live.any() else 1.0
            ratio = np.where(live, middle / np.where(live, side, 1.0), 1.0)
            scales[:, scale] = ratio ** ((1.0 if into is not None else -1.0) / power)
    return scales


def _block(block: MatrixBlock, state: State, objective: Objective, notes: list[str]) -> Floats | None:
    """The matrix that balances a pair of factors; None where nothing is to be done."""
    if block.kind in ("O", "O fixing 1"):
        return None
    sides = []
    for sign in (1, -1):
        parts = [as_rows(state[rows.tensor], rows.dims).numpy()[copy]
                 for rows in block.members if rows.powers[0] * sign > 0 for copy in rows.places.T]  # fmt: skip
        sides.append(np.concatenate(parts, 1) if parts else None)
    into, out = sides
    if into is None or out is None:
        return None
    if block.kind == "rotary":
        power = 0.25 if objective == "norm" else 0.5
        sizes = [tuple(_pair_size(side[list(pair)], objective) for side in (into, out)) for pair in block.pairs]
        return turning(block, np.array([(b / a) ** power if a > 0 and b > 0 else 1.0 for a, b in sizes], dtype=complex))
    return _least_pair(into, out, block.name, notes)


def _pair_size(part: Floats, objective: Objective) -> float:
    return float((part**2).sum() if objective == "norm" else np.abs(part).max())


def _least_pair(into: Floats, out: Floats, name: str, notes: list[str]) -> Floats | None:
    """M with `M P = √S Uᵀ…` for `PᵀN = U S Wᵀ`, through triangular factors."""
    if min(into.shape[1], out.shape[1]) < len(into):
        notes.append(f"{name}: a head of deficient rank is left as it is")
        return None
    one, two = (np.asarray(np.linalg.qr(side.T)[1], dtype=np.float64) for side in (into, out))
    left, values, _ = np.linalg.svd(one @ two.T)
    spectra = [np.linalg.svd(factor, compute_uv=False) for factor in (one, two)]
    if any(spectrum[-1] <= SINGULAR * spectrum[0] for spectrum in (*spectra, values)):
        notes.append(f"{name}: a head of deficient rank is left as it is")
        return None
    turned = left.T
    after = turned @ np.linalg.solve(one.T, into)  # orthonormal rows: a sign for each that order does not change
    signs = np.sign((after**3).sum(1))
    signs[signs == 0] = 1.0
    return np.asarray(signs[:, None] * np.sqrt(values)[:, None] * turned @ np.linalg.inv(one.T))


def _turn_heads(space: HeadSpace, state: State, move: HeadsMove, seed: int) -> HeadsMove:
    """Balanced heads in the basis, of a few random ones and the one that they have, whose weights round best."""
    rng = np.random.default_rng(seed)
    kinds = [block.kind for block in space.heads[0]]
    candidates = [identity(space), move]
    for _ in range(TURNS):
        matrices = tuple(
            tuple(
                np.linalg.qr(rng.normal(size=matrix.shape))[0] @ matrix if kind == "GL" else matrix
                for kind, matrix in zip(kinds, head, strict=True)
            )
            for head in move.matrices
        )
        candidates.append(HeadsMove(move.order, move.copies, matrices))
    names = list(dict.fromkeys(rows.tensor for rows in members_of(space)))
    alone = OrbitGroup((space,), (), {name: tuple(state[name].shape) for name in names}, 0)

    def error(candidate: SpaceMove) -> float:
        return rounding_error(move_tensors(state, frames(alone, {0: candidate}), names), 4)

    best = min(candidates, key=error)
    return best if isinstance(best, HeadsMove) else move


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
    whole = read_for([opened.state], module, input)
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
    architecture = read_for([opened.state], module, input, folding=folding)
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
