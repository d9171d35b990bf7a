"""Do tensors that were left out of the alignment agree, and in what no task demands?

A tensor W is left out, B is aligned to A by all the rest, and only then are the two W compared: nothing was fitted to
them. Strangers that learnt one task still agree in the strongest directions of W, which the task determines. So the
strongest half of the directions of both together is removed; of what is left (the *bulk*) training moves little, and
relatives agree in it where strangers do not.

Of a tensor whose other axis has names (pixels), half of the directions along that axis is left out. Heads are never
used: the task determines them. No symmetry of the architecture changes any of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from lawful.checkpoints.align.align import search, shiftless
from lawful.checkpoints.align.lazy_tensors import MadeTensors
from lawful.checkpoints.align.unit_rows import unit_rows
from lawful.checkpoints.group.axis_actions import as_rows, frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisRows,
    GroupedUnits,
    HeadSpace,
    HiddenSpace,
    OrbitGroup,
    UnitSpace,
    members_of,
)
from lawful.checkpoints.relations.null import deviation_tail, permutation_deviation
from lawful.checkpoints.representative.balancing import balance
from lawful.types import Floats

Tensors = Mapping[str, torch.Tensor]
FEWEST_UNITS, FEWEST_NUMBERS = 6, 96  # of a tensor, from which it is compared at all
SPLIT = 8  # names of an axis from which it is split
ROTATED = 512  # names up to which the halves are those of a random rotation, beyond it of the names themselves
MOST = 512  # rows and columns of a tensor that are compared: more add time, not power
FOLDS = 6  # alignments at most
NOTHING = 1e-4  # of a tensor's size: a bulk below this is rounding
MANY = 2**24  # numbers from which units are not balanced before


@dataclass(frozen=True)
class HeldOutTensor:
    """A tensor that was left out: cosine of the whole, cosine of its bulk and by how many standard deviations the order
    of units agrees in it (None if there is no bulk)."""

    tensor: str
    units: int
    cosine: float
    bulk: float | None
    deviation: float | None

    @property
    def p_value(self) -> float:
        """Of the deviation, for strangers."""
        return 1.0 if self.deviation is None else deviation_tail(self.deviation, self.units)


def compare_held_out(group: OrbitGroup, one: Tensors, two: Tensors, *, seed: int = 0) -> tuple[HeldOutTensor, ...]:
    """Every tensor that can be left out, after an alignment by the others."""
    rng = np.random.default_rng((20_261_118, seed))
    one, two = (shiftless(tensors, group.shifts) for tensors in (one, two))
    group = replace(group, shifts=())
    if sum(int(np.prod(shape, dtype=int)) for shape in group.shapes.values()) <= MANY:
        one, two = (_balanced(group, tensors) for tensors in (one, two))
    equal = {name for name in group.shapes if torch.equal(one[name], two[name])}
    group, (one, two) = _with_halves(group, (one, two), rng)
    candidates = [(name, rows) for name, rows in _candidates(group) if name.partition("|")[0] not in equal]
    found = []
    for fold in _folds(group, candidates):
        part = replace(group, spaces=tuple(_without(space, set(fold)) for space in group.spaces))
        acting = frames(group, search(part, one, two).moves, set(fold))
        for name, rows in fold.items():
            after = move_tensors(two, acting, [name])
            found.append(_compare(name, rows, one, after))
    return tuple(found)


def _balanced(group: OrbitGroup, tensors: Tensors) -> Tensors:
    """Scales that make the norm least: a file may have any others, and large rows would count alone."""
    scaled = tuple(space for space in group.spaces if isinstance(space, UnitSpace) and space.scales)
    if not scaled:
        return tensors
    names = {rows.tensor for space in scaled for rows in space.members}
    state = {name: tensors[name].double() for name in names}
    return {**{name: tensors[name] for name in tensors}, **balance(replace(group, spaces=scaled), state, "norm").state}


# What is left out


def _places(group: OrbitGroup) -> dict[str, list[tuple[int, AxisRows]]]:
    """For each tensor its axes that belong to hidden spaces."""
    found: dict[str, list[tuple[int, AxisRows]]] = {}
    for number, space in enumerate(group.spaces):
        for rows in members_of(space):
            found.setdefault(rows.tensor, []).append((number, rows))
    return found


def _with_halves(
    group: OrbitGroup, both: tuple[Tensors, Tensors], rng: np.random.Generator
) -> tuple[OrbitGroup, tuple[Tensors, Tensors]]:
    """Tensors that join units with names, cut into two along the names: `W|0` and `W|1`."""
    halves: dict[str, tuple[AxisRows, list[torch.Tensor]]] = {}
    for name, axes in _places(group).items():
        (number, rows), shape = axes[0], group.shapes[name]
        count = int(np.prod([size for d, size in enumerate(shape) if d not in rows.dims], dtype=int))
        if len(axes) > 1 or not isinstance(group.spaces[number], UnitSpace) or rows.dims != (0,) or count < SPLIT:
            continue
        if count <= ROTATED:
            turn = torch.as_tensor(np.linalg.qr(rng.normal(size=(count, count)))[0])
            halves[name] = rows, [turn[:, : count // 2], turn[:, count // 2 :]]
        else:
            order = torch.as_tensor(rng.permutation(count))
            halves[name] = rows, [order[: count // 2], order[count // 2 :]]
    if not halves:
        return group, both
    shapes = dict(group.shapes)
    for name, (_, parts) in halves.items():
        for k, part in enumerate(parts):
            shapes[f"{name}|{k}"] = (group.shapes[name][0], part.shape[-1])
    spaces = tuple(
        replace(space, members=tuple(part for rows in space.members for part in _parts(rows, halves)))
        if isinstance(space, UnitSpace)
        else space
        for space in group.spaces
    )

    def cut(tensors: Tensors) -> Tensors:
        def make(name: str) -> dict[str, torch.Tensor]:
            whole, _, number = name.partition("|")
            if not number:
                return {name: tensors[name]}
            table, part = as_rows(tensors[whole], (0,)), halves[whole][1][int(number)]
            return {name: table.double() @ part if part.is_floating_point() else table[:, part]}

        return MadeTensors([*tensors, *(name for name in shapes if "|" in name)], make)

    return replace(group, spaces=spaces, shapes=shapes), (cut(both[0]), cut(both[1]))


def _parts(rows: AxisRows, halves: Mapping[str, object]) -> list[AxisRows]:
    return [replace(rows, tensor=f"{rows.tensor}|{k}") for k in (0, 1)] if rows.tensor in halves else [rows]


def _candidates(group: OrbitGroup) -> list[tuple[str, AxisRows]]:
    """Tensors that may be left out, with the axis whose units are permuted: halves of first layers, and matrices
    between hidden spaces."""
    found = []
    for name, axes in _places(group).items():
        spaces = [group.spaces[number] for number, _ in axes]
        units = [rows for space, (_, rows) in zip(spaces, axes, strict=True)
                 if isinstance(space, UnitSpace) and space.permutes and len(rows.places) >= FEWEST_UNITS]  # fmt: skip
        bound = any(isinstance(space, (HeadSpace, GroupedUnits)) for space in spaces)
        inner = len(axes) > 1 if "|" not in name else name.endswith("|1")
        if units and inner and not bound and int(np.prod(group.shapes[name], dtype=int)) >= FEWEST_NUMBERS:
            found.append((name, max(units, key=lambda rows: len(rows.places))))
    return found


def _folds(group: OrbitGroup, candidates: Iterable[tuple[str, AxisRows]]) -> list[dict[str, AxisRows]]:
    """Sets of tensors that are left out together: every space can still be aligned by what is left."""
    axes = _places(group)
    folds: list[dict[str, AxisRows]] = []
    for name, rows in candidates:
        for fold in folds:
            if _can_align(group, axes, {*fold, name}):
                fold[name] = rows
                break
        else:
            if len(folds) < FOLDS and _can_align(group, axes, {name}):
                folds.append({name: rows})
    return folds


def _can_align(group: OrbitGroup, axes: Mapping[str, list[tuple[int, AxisRows]]], gone: set[str]) -> bool:
    """Whether matrices lead from names to every space, one after the other."""
    matrices = [[number for number, _ in {(number, rows.dims) for number, rows in places}]
                for name, places in axes.items()
                if name not in gone and _has_columns(group.shapes[name], places[0][1])]  # fmt: skip
    known: set[int] = set()
    while True:
        reached = {(set(each) - known).pop() for each in matrices if sum(number not in known for number in each) == 1}
        if not reached:
            return known >= {number for places in axes.values() for number, _ in places}
        known |= reached


def _has_columns(shape: tuple[int, ...], rows: AxisRows) -> bool:
    return int(np.prod([size for d, size in enumerate(shape) if d not in rows.dims], dtype=int)) > 1


def _without(space: HiddenSpace, names: set[str]) -> HiddenSpace:
    """A space that some tensors tell nothing about."""
    if isinstance(space, (HeadSpace, GroupedUnits)):
        return space
    return replace(space, members=tuple(rows for rows in space.members if rows.tensor not in names))


# The comparison


def _compare(name: str, rows: AxisRows, one: Tensors, two: Tensors) -> HeldOutTensor:
    left, right = (unit_rows(rows, tensors).double().numpy() for tensors in (one, two))
    left, right = (_thinned(table) for table in (left, right))
    whole = _cosine(left, right)
    bulks = remove_strongest(left, right)
    name = name.partition("|")[0]
    if bulks is None:
        return HeldOutTensor(name, len(left), whole, None, None)
    deviation = permutation_deviation(*bulks)
    return HeldOutTensor(name, len(left), whole, _cosine(*bulks), deviation)


def _thinned(table: Floats) -> Floats:
    """Some rows and columns of a large table, the same ones of every table of its size."""
    rows, columns = (np.arange(0, size, -(-size // MOST)) for size in table.shape)
    return np.asarray(table[np.ix_(rows, columns)])


def remove_strongest(one: Floats, two: Floats) -> tuple[Floats, Floats] | None:
    """Two tables without the strongest half of the directions of both together; None if nothing is left.

    >>> rng = np.random.default_rng(0)
    >>> low = rng.normal(size=(8, 2)) @ rng.normal(size=(2, 8))
    >>> remove_strongest(low, low) is None, remove_strongest(np.eye(4), np.eye(4)) is None
    (True, False)
    """
    sizes = float(np.linalg.norm(one)), float(np.linalg.norm(two))
    if not min(sizes) > 0:
        return None
    both = np.vstack([one / sizes[0], two / sizes[1]])
    strongest = np.linalg.svd(both, full_matrices=False)[2][: min(one.shape) // 2]
    left, right = (table - table @ strongest.T @ strongest for table in (one, two))
    if min(float(np.linalg.norm(left)) / sizes[0], float(np.linalg.norm(right)) / sizes[1]) < NOTHING:
        return None
    return left, right


def _cosine(one: Floats, two: Floats) -> float:
    size = float(np.linalg.norm(one) * np.linalg.norm(two))
    return float((one * two).sum()) / size if size > 0 else 0.0
