"""The group of an architecture, read from the symmetries of its graph: blocks, heads, units, shifts.

`symmetry/` says which labels of axes are tied and which scales and matrices act on each. Here labels become rows of
tensors that move together: what a matrix acts on is a block, blocks and rows of one attention are heads, labels that
no operation tells apart are units that may change places, and units that come in like sets are groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.checkpoints.group.heads import HeadReader
from lawful.checkpoints.group.spaces import (
    AxisPlace,
    AxisRows,
    GroupedUnits,
    HiddenSpace,
    Kind,
    MatrixBlock,
    OrbitGroup,
    UnitSpace,
    members_of,
)
from lawful.symmetry.demands.gauges import PINNED, Gauges, Link
from lawful.symmetry.demands.labels import occurrences
from lawful.symmetry.demands.reading import Demands
from lawful.symmetry.laws.families import MatrixLaws, ScaleLaws
from lawful.symmetry.solver.gauge_solution import Cells, GaugeSolution, link_components, solve, solve_shifts
from lawful.symmetry.spaces.parameter_spaces import (
    ParameterSide,
    matrix_spaces,
    parameter_sides,
    scale_spaces,
    shift_spaces,
)
from lawful.types import Indices, Residues

# Groups of units that may change places as wholes: the groups of a convolution, those of a GroupNorm.

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
    joined: list[UnitSpace | GroupedUnits] = []
    while several:
        taken, count, fits = [several.pop(0)], 0, True
        slots, count = [_join_slot(taken[0])], len(taken[0])
        for slot in slots:  # which grows
            for other in [*several, *single]:
                try:
                    groups = _groups_of(slot, count, other, shapes)
                except _Apart:
                    fits, groups = False, np.zeros(0, dtype=np.intp)
                if groups is None:
                    continue
                taken.append(other)
                slots += [_pick_units(_join_slot(other), np.argsort(groups, kind="stable"))] if fits else []
                several, single = (
                    [remaining for remaining in some if remaining is not other] for some in (several, single)
                )
        if fits:
            joined.append(GroupedUnits(slots[0].name, tuple(slots), count, permutes=True))
        else:
            joined += [space for slot in taken for space in slot]
    return [*(slot[0] for slot in single), *joined]


def join_routers(spaces: Sequence[HiddenSpace], shapes: Shapes) -> list[HiddenSpace]:
    """Spaces, with the rows of what weighs or chooses between stacked matrices (experts) joined to these: along axes as
    long as the stack that nothing else moves, of the tensors that stand nearest to it in the module."""
    order = {name: place for place, name in enumerate(shapes)}
    moving = {(rows.tensor, d) for space in spaces for rows in members_of(space) for d in rows.dims}
    stacks = [space for space in spaces if isinstance(space, GroupedUnits) and _is_stack(space, shapes)]
    free = [(name, d) for name, shape in shapes.items() for d, size in enumerate(shape)
            if len(shape) < 3 and (name, d) not in moving and any(size == stack.count for stack in stacks)]  # fmt: skip
    beside: dict[int, list[AxisRows]] = defaultdict(list)
    for name, d in free:
        fitting = [stack for stack in stacks if stack.count == shapes[name][d]]
        near = min(fitting, key=lambda stack: min(abs(order[rows.tensor] - order[name]) for rows in members_of(stack)))
        places = np.arange(near.count, dtype=np.intp)[:, None]
        beside[id(near)].append(AxisRows(name, (d,), places, (), odd=False))
    joined: list[HiddenSpace] = []
    for space in spaces:
        if isinstance(space, GroupedUnits) and (rows := beside.get(id(space))):
            router = UnitSpace(rows[0].tensor, space.count, tuple(rows), 0, permutes=False, signed=False)
            space = replace(space, slots=(*space.slots, router))
        joined.append(space)
    return joined


def _is_stack(space: GroupedUnits, shapes: Shapes) -> bool:
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
    disjoint = []
    for space in spaces:
        if not any(taken[rows.place].intersection(rows.places.ravel().tolist()) for rows in space.members):
            disjoint.append(space)
            for rows in space.members:
                taken[rows.place].update(rows.places.ravel().tolist())
    return disjoint


def _kind(space: UnitSpace) -> object:
    """What the groups of one kind have in common."""
    rows = tuple(
        (member.tensor, member.dims, member.places.shape, member.powers, member.odd) for member in space.members
    )
    return space.size, space.scales, space.permutes, space.signed, rows


def _join_slot(slot: Slot) -> UnitSpace:
    """The units of all groups, group after group."""
    members = zip(*(space.members for space in slot), strict=True)
    rows = tuple(
        replace(same_axis[0], places=np.concatenate([member.places for member in same_axis])) for same_axis in members
    )
    return replace(slot[0], size=sum(space.size for space in slot), members=rows)


def _pick_units(space: UnitSpace, order: Indices) -> UnitSpace:
    return replace(space, members=tuple(replace(rows, places=rows.places[order]) for rows in space.members))


def _groups_of(slot: UnitSpace, count: int, other: Slot, shapes: Shapes) -> Indices | None:
    """The group to which each unit of another slot belongs, by the entries of tensors that they share; None if it moves
    freely."""
    group = np.repeat(np.arange(count), slot.size // count)[:, None]
    group_of_unit: Indices | None = None
    whole = _join_slot(other)
    for rows in slot.members:
        for others in whole.members:
            shared = sorted(set(rows.dims) & set(others.dims))
            if rows.tensor != others.tensor or rows.dims == others.dims or not shared:
                continue
            mine, theirs = (_along(places, shared, shapes[rows.tensor]) for places in (rows, others))
            owner = np.full(max(int(mine.max()), int(theirs.max())) + 1, -1)
            owner[mine] = group
            if not (owner[mine] == group).all():  # all groups lie there together
                continue
            met = owner[theirs]
            if all(len(np.unique(line)) == count for line in met) and (met >= 0).all():
                continue
            if not (met == met[:, :1]).all() or (
                group_of_unit is not None and not np.array_equal(group_of_unit, met[:, 0])
            ):
                raise _Apart
            group_of_unit = np.asarray(met[:, 0], dtype=np.intp)
    if group_of_unit is None:
        return None
    even = np.array_equal(
        np.bincount(group_of_unit[group_of_unit >= 0], minlength=count), np.full(count, whole.size // count)
    )
    by_space = np.split(group_of_unit, len(other))
    if not even or (whole.permutes and not all((groups == groups[0]).all() for groups in by_space)):
        raise _Apart
    if whole.permutes and len(other) != count:
        raise _Apart
    return group_of_unit


def _along(rows: AxisRows, dims: Sequence[int], shape: tuple[int, ...]) -> Indices:
    """Where rows lie along some of the dimensions of their axis."""
    places = np.unravel_index(rows.places, [shape[d] for d in rows.dims])
    picked = [places[rows.dims.index(d)] for d in dims]
    return np.asarray(np.ravel_multi_index(picked, [shape[d] for d in dims]), dtype=np.intp)


def read_group(demands: Demands, gains: set[str], biases: Mapping[str, str]) -> OrbitGroup:
    """The spaces of what was read; permutations, signs and phases are proposals until a probe has tried them.

    `gains` are parameters that multiply values: a sign that all values of a unit share leaves them alone. `biases` are
    those of linear layers, by the name of their weight.
    """
    reader = _GroupReader(demands, gains)
    blocks = reader.blocks()
    heads, used = HeadReader(demands, reader.solution, reader.sides, reader.unit, biases).read(blocks)
    single = [block for number, block in blocks.items() if number not in used]
    units, left_out = reader.units(used)
    spaces = join_routers([*single, *heads, *join_groups(units, demands.shapes)], demands.shapes)
    order = {name: place for place, name in enumerate(demands.shapes)}
    spaces.sort(key=lambda space: min(order[rows.tensor] for rows in members_of(space)))
    shifts = shift_spaces(solve_shifts(demands.shifts), demands.shapes)[0]
    laws = tuple(space.laws for space in shifts if space.laws is not None)
    return OrbitGroup(tuple(spaces), laws, dict(demands.shapes), left_out)


class _GroupReader:
    def __init__(self, demands: Demands, gains: set[str]) -> None:
        self.demands, self.gains = demands, gains
        self.solution: GaugeSolution = solve(demands.gauges)
        self.sides: list[ParameterSide] = []
        self.centred: list[ParameterSide] = []  # gains beside a constant, `1 + γ`: they change places, and that is all
        for side in parameter_sides(demands):
            (self.sides if side.axis.centre is None or not np.any(side.axis.centre) else self.centred).append(side)
        self.labels = {(side.axis.parameter, side.axis.dims): side.labels for side in self.sides}
        self.unit = _join_links(link_components(demands.gauges), _depthwise(demands.gauges))
        self.alone = np.bincount(self.solution.cell)[self.solution.cell] == 1

    # Blocks

    def blocks(self) -> dict[int, MatrixBlock]:
        """Matrix spaces by the number of their block of labels."""
        ones = np.concatenate([np.zeros(0, np.int64), *self.demands.gauges.ones])
        blocks: dict[int, MatrixBlock] = {}
        for space in matrix_spaces(self.sides, self.solution, ones):
            laws = space.laws
            if not isinstance(laws, MatrixLaws):
                continue
            kind: Kind = "GL" if space.group.startswith("GL") else "O fixing 1" if "fixing" in space.group else "O"
            tables: dict[tuple[AxisPlace, float], list[Indices]] = defaultdict(list)
            for member in laws.members:
                tables[(member.axis.parameter, member.axis.dims), float(member.sign)].append(member.places.T)
            members = tuple(
                AxisRows(where[0], where[1], _in_order(np.concatenate(parts, 1)), (sign,))
                for (where, sign), parts in tables.items()
            )
            first = members[0]
            label = self.labels[first.place][first.places[0, 0]]
            blocks[int(self.solution.block[label])] = MatrixBlock(space.name, laws.size, kind, members)
        return blocks

    # Units

    def units(self, used: set[int]) -> tuple[list[UnitSpace], int]:
        """UnitSpace that change places, then units that only have scales; how many scales fit neither."""
        generators, left_out = self._generators()
        taken = {-1 - number for number in used if number < 0}
        spaces = []
        for family in self._families(taken):
            spaces.append(self._units(family, generators, permutes=True))
            taken.update(family.tolist())
        rest: dict[tuple[AxisPlace, ...], list[int]] = defaultdict(list)
        for unit in generators:
            if unit not in taken:
                rest[tuple(dict.fromkeys(place for generator in generators[unit] for place, _ in generator))].append(
                    unit
                )
        for units in rest.values():
            spaces.append(self._units(np.array(units), generators, permutes=False))
        return [space for space in spaces if space is not None], left_out

    def _generators(self) -> tuple[dict[int, list[dict[tuple[AxisPlace, int], float]]], int]:
        """The scales of each unit: by how much they multiply which rows."""
        generators: dict[int, list[dict[tuple[AxisPlace, int], float]]] = defaultdict(list)
        left_out = 0
        for space in scale_spaces(self.sides, self.solution):
            laws = space.laws
            if not isinstance(laws, ScaleLaws):
                continue
            places = [
                ((axis.parameter, axis.dims), int(row))
                for axis, picked in zip(laws.axes, laws.picked, strict=True)
                for row in picked
            ]
            units = np.array([self.unit[self.labels[place][row]] for place, row in places])
            weights = laws.weights
            for law in range(weights.shape[0]):
                columns = weights.indices[weights.indptr[law] : weights.indptr[law + 1]]
                entries = weights.data[weights.indptr[law] : weights.indptr[law + 1]]
                if len(np.unique(units[columns])) != 1:
                    left_out += 1
                    continue
                action: dict[tuple[AxisPlace, int], float] = defaultdict(float)
                for column, entry in zip(columns, entries, strict=True):
                    action[places[column]] += float(entry)  # what is read and written may be rows of one axis
                generators[int(units[columns[0]])].append(action)
        return generators, left_out

    def _families(self, taken: set[int]) -> list[Residues]:
        """Sets of units that may change places, as far as the graph says."""
        cells, links = _permutable_cells(self.demands.gauges)
        sizes = np.bincount(cells.of)
        tails, heads = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for link in links:
            unpinned = (link.left != PINNED) & (link.right != PINNED)
            tails.append(cells.of[link.left[unpinned]])
            heads.append(cells.of[link.right[unpinned]])
        tail, head = np.concatenate(tails), np.concatenate(heads)
        graph = sparse.coo_array((np.ones(len(tail), np.int8), (tail, head)), shape=(len(sizes), len(sizes)))
        family = connected_components(graph, directed=False)[1]
        on_rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(side.labels for side in self.sides)]))
        on_rows = on_rows[(sizes[cells.of[on_rows]] > 1) & self.alone[on_rows]]
        families = []
        for number in np.unique(family[cells.of[on_rows]]).tolist():
            labels = on_rows[family[cells.of[on_rows]] == number]
            units = np.unique(self.unit[labels])
            if taken & set(units.tolist()) or not self._fits(labels, units, cells.of):
                continue
            families.append(units)
        return families

    def _fits(self, labels: Residues, units: Residues, cell: Residues) -> bool:
        """Whether every cell of the family holds each of its units exactly once."""
        for number in np.unique(cell[labels]):
            here = self.unit[np.flatnonzero(cell == number)]
            if len(here) != len(units) or not np.array_equal(np.sort(here), units):
                return False
        return True

    def _units(
        self, units: Residues, generators: dict[int, list[dict[tuple[AxisPlace, int], float]]], permutes: bool
    ) -> UnitSpace | None:
        """The rows of some units, all alike."""
        place = np.full(int(self.unit.max()) + 1, -1)
        place[units] = np.arange(len(units))
        tables: list[tuple[AxisPlace, Indices]] = []
        for side in (*self.sides, *self.centred):
            mine = place[self.unit[side.labels]]
            rows = np.flatnonzero(mine >= 0)
            if not len(rows):
                continue
            turn = occurrences(mine[rows])
            copies = int(turn.max()) + 1
            if len(rows) != copies * len(units):
                if permutes:
                    return None
                continue
            table = np.empty((len(units), copies), dtype=np.intp)
            table[mine[rows], turn] = rows
            tables.append(((side.axis.parameter, side.axis.dims), table))
        if not tables:
            return None
        patterns = [self._pattern(unit, index, tables, generators) for index, unit in enumerate(units.tolist())]
        scales = len(patterns[0]) if len(set(patterns)) == 1 else 0
        powers = patterns[0] if scales else ()
        members = []
        centred = {(side.axis.parameter, side.axis.dims) for side in self.centred}
        for number, (where, table) in enumerate(tables):
            unit_powers = tuple(pattern[number] for pattern in powers)
            odd = (
                any(power % 2 for power in unit_powers)
                if scales
                else where[0] not in self.gains and where not in centred
            )
            members.append(AxisRows(where[0], where[1], table, unit_powers, odd))
        return UnitSpace(tables[0][0][0], len(units), tuple(members), scales, permutes, signed=True)

    def _pattern(
        self,
        unit: int,
        index: int,
        tables: list[tuple[AxisPlace, Indices]],
        generators: dict[int, list[dict[tuple[AxisPlace, int], float]]],
    ) -> tuple[tuple[float, ...], ...]:
        """For each scale of a unit, the power with which it acts on every table."""
        pattern = []
        for generator in generators.get(unit, []):
            powers = []
            for where, table in tables:
                exponents = {generator.get((where, int(row)), 0.0) for row in table[index]}
                if len(exponents) != 1:
                    return ()
                powers.append(exponents.pop())
            pattern.append(tuple(powers))
        return tuple(sorted(pattern))


def _depthwise(gauges: Gauges) -> list[Link]:
    """What is read and what is written of each channel, where a convolution keeps all channels apart.

    Either may have a scale of its own, but they change places together.
    """
    links = []
    for count, fields in gauges.heads:
        if len(fields) == 2 and all(len(np.unique(labels)) == count for labels, _ in fields):
            one, two = (labels[np.unique(place, return_index=True)[1]] for labels, place in fields)
            links.append(Link(one, two, 1, np.zeros(count, dtype=np.int64)))
    return links


def _join_links(number: Residues, links: list[Link]) -> Residues:
    """Numbers of parts, one for all that links tie together."""
    empty = np.zeros(0, np.int64)
    tails = np.concatenate([empty, *(number[link.left] for link in links)])
    heads = np.concatenate([empty, *(number[link.right] for link in links)])
    size = int(number.max()) + 1
    graph = sparse.coo_array((np.ones(len(tails), np.int8), (tails, heads)), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1][number], dtype=np.int64)


def _permutable_cells(gauges: Gauges) -> tuple[Cells, list[Link]]:
    """Labels that may change places, as far as the operations of the graph demand, and the links between them.

    Where every group of a link is one label, the groups say that nothing mixes, which permutations do not.
    """
    links = [replace(link, group=np.zeros_like(link.group)) if len(np.unique(link.group)) == len(link.group) else link
             for link in gauges.links]  # fmt: skip
    links += _depthwise(gauges)
    for relation in gauges.relations:
        for other in (relation.first, relation.second):
            links.append(Link(relation.result, other, 1, np.zeros(len(other), dtype=np.int64)))
    cells = Cells(gauges.axes, links)
    cells.separate(np.concatenate([[0], *(pin.labels for pin in gauges.pins if not pin.permutes)]).astype(np.int64))
    cells.settle()
    return cells, links


def _in_order(places: Indices) -> Indices:
    """Copies by their first row."""
    return np.ascontiguousarray(places[:, np.argsort(places[0], kind="stable")])
