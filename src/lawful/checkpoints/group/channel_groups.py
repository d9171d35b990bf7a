"""Groups of units that may change places as wholes: the groups of a convolution, those of a GroupNorm.

The graph keeps the units of different groups apart, so that each group is a space of its own. Spaces with like rows of
the same tensors are groups of one kind. What a group reads and what it writes meet in one weight, along the axis where
the groups lie: these move together. All of it is proposed, and tried on the module before it is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lawful.checkpoints.group.spaces import AxisPlace, AxisRows, GroupedUnits, HiddenSpace, UnitSpace, members_of
from lawful.types import Indices

Shapes = Mapping[str, tuple[int, ...]]
Slot = list[UnitSpace]  # spaces of one kind, one for each group


class _Apart(Exception):
    """What meets the groups is not divided as they are."""


def join_groups(spaces: Sequence[UnitSpace], shapes: Shapes) -> list[UnitSpace | GroupedUnits]:
    """Spaces, with those that are groups of one kind joined.

    >>> rows = [AxisRows("w", (0,), np.array([[k], [k + 1]]), ()) for k in (0, 2, 4)]
    >>> three = [UnitSpace("w", 2, (each,), 0, True, False) for each in rows]
    >>> [(found.count, found.slots[0].size) for found in join_groups(three, {"w": (6, 5)})]
    [(3, 6)]
    """
    kinds: dict[object, Slot] = defaultdict(list)
    for space in _apart(spaces, shapes):
        kinds[_kind(space)].append(space)
    several = [slot for slot in kinds.values() if len(slot) > 1 and slot[0].permutes]
    single = [[space] for slot in kinds.values() if slot not in several for space in slot]
    found: list[UnitSpace | GroupedUnits] = []
    while several:
        taken, count, fits = [several.pop(0)], 0, True
        slots, count = [_joined(taken[0])], len(taken[0])
        for own in slots:  # which grows
            for other in [*several, *single]:
                try:
                    groups = _groups_of(own, count, other, shapes)
                except _Apart:
                    fits, groups = False, np.zeros(0, dtype=np.intp)
                if groups is None:
                    continue
                taken.append(other)
                slots += [_picked(_joined(other), np.argsort(groups, kind="stable"))] if fits else []
                several, single = ([each for each in some if each is not other] for some in (several, single))
        if fits:
            found.append(GroupedUnits(slots[0].name, tuple(slots), count, permutes=True))
        else:
            found += [space for slot in taken for space in slot]
    return [*(slot[0] for slot in single), *found]


def join_routers(spaces: Sequence[HiddenSpace], shapes: Shapes) -> list[HiddenSpace]:
    """Spaces, with the rows of what weighs or chooses between stacked matrices (experts) joined to these: along axes as
    long as the stack that nothing else moves, of the tensors that stand nearest to it in the module."""
    order = {name: place for place, name in enumerate(shapes)}
    moving = {(rows.tensor, d) for space in spaces for rows in members_of(space) for d in rows.dims}
    stacks = [space for space in spaces if isinstance(space, GroupedUnits) and _stacked(space, shapes)]
    free = [(name, d) for name, shape in shapes.items() for d, size in enumerate(shape)
            if len(shape) < 3 and (name, d) not in moving and any(size == stack.count for stack in stacks)]  # fmt: skip
    beside: dict[int, list[AxisRows]] = defaultdict(list)
    for name, d in free:
        fitting = [stack for stack in stacks if stack.count == shapes[name][d]]
        near = min(fitting, key=lambda stack: min(abs(order[rows.tensor] - order[name]) for rows in members_of(stack)))
        places = np.arange(near.count, dtype=np.intp)[:, None]
        beside[id(near)].append(AxisRows(name, (d,), places, (), odd=False))
    found: list[HiddenSpace] = []
    for space in spaces:
        if isinstance(space, GroupedUnits) and (rows := beside.get(id(space))):
            router = UnitSpace(rows[0].tensor, space.count, tuple(rows), 0, permutes=False, signed=False)
            space = replace(space, slots=(*space.slots, router))
        found.append(space)
    return found


def _stacked(space: GroupedUnits, shapes: Shapes) -> bool:
    """Whether groups are the matrices of stacks, along the first dimension."""
    for slot in space.slots:
        group = np.repeat(np.arange(space.count), slot.size // space.count)[:, None]
        for rows in slot.members:
            if 0 not in rows.dims or len(shapes[rows.tensor]) < 3 or shapes[rows.tensor][0] != space.count:
                return False
            if not (_along(rows, [0], shapes[rows.tensor]) == group).all():
                return False
    return True


def _apart(spaces: Sequence[UnitSpace], shapes: Shapes) -> list[UnitSpace]:
    """Those that share no rows with one before: where a convolution makes several channels of each, what it reads and
    what it writes would move the same rows twice."""
    taken: dict[AxisPlace, set[int]] = defaultdict(set)
    found = []
    for space in spaces:
        if not any(taken[rows.place].intersection(rows.places.ravel().tolist()) for rows in space.members):
            found.append(space)
            for rows in space.members:
                taken[rows.place].update(rows.places.ravel().tolist())
    return found


def _kind(space: UnitSpace) -> object:
    """What the groups of one kind have in common."""
    rows = tuple((each.tensor, each.dims, each.places.shape, each.powers, each.odd) for each in space.members)
    return space.size, space.scales, space.permutes, space.signed, rows


def _joined(slot: Slot) -> UnitSpace:
    """The units of all groups, group after group."""
    members = zip(*(space.members for space in slot), strict=True)
    rows = tuple(replace(own[0], places=np.concatenate([each.places for each in own])) for own in members)
    return replace(slot[0], size=sum(space.size for space in slot), members=rows)


def _picked(space: UnitSpace, order: Indices) -> UnitSpace:
    return replace(space, members=tuple(replace(rows, places=rows.places[order]) for rows in space.members))


def _groups_of(own: UnitSpace, count: int, other: Slot, shapes: Shapes) -> Indices | None:
    """The group to which each unit of another slot belongs, by the entries of tensors that they share; None if it moves
    freely."""
    group = np.repeat(np.arange(count), own.size // count)[:, None]
    found: Indices | None = None
    whole = _joined(other)
    for rows in own.members:
        for others in whole.members:
            shared = sorted(set(rows.dims) & set(others.dims))
            if rows.tensor != others.tensor or rows.dims == others.dims or not shared:
                continue
            mine, theirs = (_along(each, shared, shapes[rows.tensor]) for each in (rows, others))
            owner = np.full(max(int(mine.max()), int(theirs.max())) + 1, -1)
            owner[mine] = group
            if not (owner[mine] == group).all():  # all groups lie there together
                continue
            met = owner[theirs]
            if all(len(np.unique(line)) == count for line in met) and (met >= 0).all():
                continue
            if not (met == met[:, :1]).all() or (found is not None and not np.array_equal(found, met[:, 0])):
                raise _Apart
            found = np.asarray(met[:, 0], dtype=np.intp)
    if found is None:
        return None
    even = np.array_equal(np.bincount(found[found >= 0], minlength=count), np.full(count, whole.size // count))
    by_space = np.split(found, len(other))
    if not even or (whole.permutes and not all((each == each[0]).all() for each in by_space)):
        raise _Apart
    if whole.permutes and len(other) != count:
        raise _Apart
    return found


def _along(rows: AxisRows, dims: Sequence[int], shape: tuple[int, ...]) -> Indices:
    """Where rows lie along some of the dimensions of their axis."""
    places = np.unravel_index(rows.places, [shape[d] for d in rows.dims])
    picked = [places[rows.dims.index(d)] for d in dims]
    return np.asarray(np.ravel_multi_index(picked, [shape[d] for d in dims]), dtype=np.intp)
