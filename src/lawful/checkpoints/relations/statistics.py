"""Two statistics of a pair of checkpoints, with their laws if the two were started and trained apart.

*Places*: a start draws units in an order that means nothing, and training keeps it. So B is shuffled and aligned to A;
of strangers the units that come back to where they stood are then the fixed points of a random permutation, and k or
more of them in s spaces have probability at most sᵏ/k!. Invariant: this needs no assumption on the data or the search,
which never sees the stored order; spaces whose order means something (sorted, or pinned by a shared matrix) are left
out. *Held out*: one tensor is kept from the alignment, and the likeness of its rows is compared with random orders of
them. Networks that learnt one task are not quite exchangeable, so this confirms or words an answer and decides none.
Cost: one alignment for the places, and one for each tensor held out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, erfc, exp, lgamma, log, sqrt
from sys import float_info

import numpy as np
import torch
from scipy.stats import rankdata

from lawful.checkpoints.align.align import search, shiftless
from lawful.checkpoints.align.lazy_tensors import MadeTensors
from lawful.checkpoints.align.procrustes import unit_rows
from lawful.checkpoints.group.axis_actions import as_rows, frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisRows,
    GroupedUnits,
    HeadSpace,
    HiddenSpace,
    OrbitGroup,
    SpaceMove,
    UnitsMove,
    UnitSpace,
    identity,
    members_of,
    then,
)
from lawful.checkpoints.representative import balance
from lawful.types import Floats

# The laws of the two statistics for checkpoints that have nothing in common but their task.

# Networks that learnt one task are not quite exchangeable given the rest of their weights: even without the strongest
# half of all directions their deviations have heavier tails than the normal law. This decides no relation by itself.
INFLATION = 1.5


def places_tail(in_place: int, spaces: int) -> float:
    """The probability that so many units or more stand in place by chance, at most.

    >>> places_tail(0, 1), round(places_tail(3, 1), 6), places_tail(16, 2) < 1e-8, places_tail(256, 1) > 0
    (1.0, 0.166667, True, True)
    """
    return _factorial_tail(in_place, spaces)


def paired_places_tail(in_place: int, spaces: int) -> float:
    """The same if units were started in pairs of like ones that stay together: ⌈k/2⌉ pairs, each with its two units in
    one of two orders.

    >>> paired_places_tail(16, 1) < 1e-6 < paired_places_tail(8, 1)
    True
    """
    return _factorial_tail(ceil(in_place / 2), spaces / 2)


def _factorial_tail(count: int, mean: float) -> float:
    if not count or mean <= 0:
        return 1.0
    # 1/171! is below every normal float64: an upper bound may not be rounded down to 0
    return min(1.0, max(exp(count * log(mean) - lgamma(count + 1)), float_info.min))


def permutation_deviation(one: Floats, two: Floats) -> float | None:
    """By how many standard deviations rows agree more in this order than in a random one; None if they cannot.

    >>> round(permutation_deviation(np.eye(5), np.eye(5)), 6)
    4.0
    """
    products = one @ two.T
    count = len(products)
    centred = products - products.mean(0) - products.mean(1, keepdims=True) + products.mean()
    variance = float(np.square(centred).sum()) / (count - 1) if count > 1 else 0.0
    # Below rounding of the products nothing is left to compare.
    if not variance > (1e-12 * float(np.abs(products).max(initial=0.0))) ** 2:
        return None
    return float(np.trace(centred)) / sqrt(variance)


def deviation_tail(deviation: float, units: int) -> float:
    """The probability of such a deviation for strangers: a normal tail, widened, and no less than that of one order
    among all.

    >>> deviation_tail(0.0, 20), round(deviation_tail(30.0, 5) * 120, 6)
    (0.5, 1.0)
    """
    return min(1.0, max(0.5 * erfc(deviation / INFLATION / sqrt(2)), exp(-lgamma(units + 1)), float_info.min))


# Do units of B stand where the units of A stand that they are most like? Files as they are stored.

Tensors = Mapping[str, torch.Tensor]
# A file whose units were sorted by something has a rank correlation of 1 with it. By chance one space in 10,000 is left
# out, which costs power alone.
SORTED = 1e-4
COLUMNS = 8  # of each tensor, by which units may have been sorted


@dataclass(frozen=True)
class PlacesTest:
    """How many units stand in place, of how many in how many spaces; spaces left out; and the bounds on chance."""

    in_place: int
    units: int
    spaces: int
    left_out: tuple[str, ...]
    p_value: float
    paired_p_value: float
    moves: Mapping[int, SpaceMove] = field(default_factory=dict, repr=False, compare=False)  # that bring B to A

    @property
    def share(self) -> float:
        """Of the units that were looked at."""
        return self.in_place / self.units if self.units else 0.0


def compare_places(group: OrbitGroup, one: Tensors, two: Tensors, *, seed: int = 0) -> PlacesTest:
    """Align a shuffled B to A, and count the units that come back to where they were."""
    rng = np.random.default_rng((20_261_118, seed))
    shuffles: dict[int, SpaceMove] = {}
    for number, space in enumerate(group.spaces):
        move = identity(space)
        if isinstance(space, UnitSpace) and isinstance(move, UnitsMove) and space.permutes:
            move = UnitsMove(rng.permutation(space.size), move.scales, move.signs)
        shuffles[number] = move
    acting = frames(group, shuffles)
    alignment = search(group, one, MadeTensors(two, lambda name: move_tensors(two, acting, [name])))
    in_place = units = spaces = 0
    left_out = []
    for number, space in enumerate(group.spaces):
        back, shuffle = alignment.moves[number], shuffles[number]
        if not (isinstance(space, UnitSpace) and isinstance(back, UnitsMove) and isinstance(shuffle, UnitsMove)):
            continue
        if not space.permutes or space.size < 2:
            continue
        if _is_pinned(space, one, two) or all(_is_sorted(space, tensors) for tensors in (one, two)):
            left_out.append(space.name)
            continue
        in_place += int((shuffle.order[back.order] == np.arange(space.size)).sum())
        units, spaces = units + space.size, spaces + 1
    tails = places_tail(in_place, spaces), paired_places_tail(in_place, spaces)
    moves = {number: then(shuffles[number], move) for number, move in alignment.moves.items()}
    return PlacesTest(in_place, units, spaces, tuple(left_out), *tails, moves)


def _is_pinned(space: UnitSpace, one: Tensors, two: Tensors) -> bool:
    """Whether a matrix that is the same in both files tells the units apart."""
    for rows in space.members:
        table = unit_rows(rows, one)
        same = table.shape[1] > 1 and torch.equal(one[rows.tensor], two[rows.tensor])
        if same and not torch.equal(table, table[:1].expand_as(table)):
            return True
    return False


def _is_sorted(space: UnitSpace, tensors: Tensors) -> bool:
    """Whether places go up or down with some number of the units."""
    keys: list[Floats] = []
    for rows in space.members:
        table = unit_rows(rows, tensors).double().numpy()
        sizes = np.linalg.norm(table, axis=1)
        keys += [sizes, *table[:, :COLUMNS].T, *(table[:, :COLUMNS] / np.where(sizes > 0, sizes, 1.0)[:, None]).T]
    keys = [key for key in keys if np.ptp(key) > 0]
    if not keys:
        return False
    ranks = np.array([rankdata(key) for key in keys])
    ranks -= ranks.mean(1, keepdims=True)
    places = np.arange(space.size) - (space.size - 1) / 2
    rho = ranks @ places / (np.linalg.norm(ranks, axis=1) * np.linalg.norm(places))
    largest = float(np.abs(rho).max()) * sqrt(space.size - 1)
    return bool(len(keys) * erfc(largest / sqrt(2)) <= SORTED) or bool(np.abs(rho).max() > 1 - 1e-9)


# Do tensors that were left out of the alignment agree, and in what no task demands?

# Of a tensor, from which it is compared at all: six units have 720 orders, so that a deviation can reach `CONFIRMED`.
FEWEST_UNITS, FEWEST_NUMBERS = 6, 96
SPLIT = 8  # names of an axis from which it is split
ROTATED = 512  # names up to which the halves are those of a random rotation, beyond it of the names themselves
MOST = 512  # rows and columns of a tensor that are compared: more add time, not power
FOLDS = 6  # alignments at most
NOTHING = 1e-4  # of a tensor's size: a bulk below this may be the rounding of half precision
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
        one, two = (_balance(group, tensors) for tensors in (one, two))
    equal = {name for name in group.shapes if torch.equal(one[name], two[name])}
    group, (one, two) = _with_halves(group, (one, two), rng)
    candidates = [(name, rows) for name, rows in _candidates(group) if name.partition("|")[0] not in equal]
    tensors = []
    for fold in _folds(group, candidates):
        part = replace(group, spaces=tuple(_without(space, set(fold)) for space in group.spaces))
        acting = frames(group, search(part, one, two).moves, set(fold))
        for name, rows in fold.items():
            after = move_tensors(two, acting, [name])
            tensors.append(_compare(name, rows, one, after))
    return tuple(tensors)


def _balance(group: OrbitGroup, tensors: Tensors) -> Tensors:
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
    axes: dict[str, list[tuple[int, AxisRows]]] = {}
    for number, space in enumerate(group.spaces):
        for rows in members_of(space):
            axes.setdefault(rows.tensor, []).append((number, rows))
    return axes


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
    candidates = []
    for name, axes in _places(group).items():
        spaces = [group.spaces[number] for number, _ in axes]
        units = [rows for space, (_, rows) in zip(spaces, axes, strict=True)
                 if isinstance(space, UnitSpace) and space.permutes and len(rows.places) >= FEWEST_UNITS]  # fmt: skip
        bound = any(isinstance(space, (HeadSpace, GroupedUnits)) for space in spaces)
        inner = len(axes) > 1 if "|" not in name else name.endswith("|1")
        if units and inner and not bound and int(np.prod(group.shapes[name], dtype=int)) >= FEWEST_NUMBERS:
            candidates.append((name, max(units, key=lambda rows: len(rows.places))))
    return candidates


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
        reached = {
            (set(numbers) - known).pop() for numbers in matrices if sum(number not in known for number in numbers) == 1
        }
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
    left, right = (_thin(table) for table in (left, right))
    whole = _cosine(left, right)
    bulks = remove_strongest(left, right)
    name = name.partition("|")[0]
    if bulks is None:
        return HeldOutTensor(name, len(left), whole, None, None)
    deviation = permutation_deviation(*bulks)
    return HeldOutTensor(name, len(left), whole, _cosine(*bulks), deviation)


def _thin(table: Floats) -> Floats:
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
