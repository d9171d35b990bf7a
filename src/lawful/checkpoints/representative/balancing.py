"""The member of an orbit with the smallest norm, or with ranges that quantise best, found space by space.

A scale t of a unit multiplies squared norms n by t^{2p}: `Σ n t^{2p}` is convex in log t, and so is the sum over all
units (a geometric program), so that going round the spaces leads to the minimum. Of a pair `P → M P, N → M⁻ᵀ N`
(queries and keys, values and outputs) the invariant is `PᵀN`; with its singular value decomposition `U S Wᵀ`, the
factors `√S Uᵀ` and `√S Wᵀ` have the smallest norm, twice the nuclear norm of `PᵀN`. Rotations change no norm and stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from lawful.checkpoints.group.axis_actions import as_rows, frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisRows,
    BlockMove,
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
    members_of,
    then,
    turning,
)
from lawful.checkpoints.rewrite.folds import State
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
