"""The group of an architecture, read from the symmetries of its graph: blocks, heads, units, shifts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.checkpoints.group import (
    AxisPlace,
    AxisRows,
    HeadSpace,
    HiddenSpace,
    Kind,
    MatrixBlock,
    OrbitGroup,
    UnitSpace,
    members_of,
)
from lawful.symmetry.cells import Cells
from lawful.symmetry.families import MatrixLaws
from lawful.symmetry.gauges import PINNED, Gauges, Link
from lawful.symmetry.labels import occurrences
from lawful.symmetry.reading import Demands
from lawful.symmetry.row_laws import ScaleLaws
from lawful.symmetry.shift_solution import solve_shifts
from lawful.symmetry.shift_spaces import shift_spaces
from lawful.symmetry.solve import GaugeSolution, link_components, solve
from lawful.symmetry.spaces import ParameterSide, matrix_spaces, parameter_sides, scale_spaces
from lawful.types import Indices, Residues


def read_group(demands: Demands, gains: set[str], biases: Mapping[str, str]) -> OrbitGroup:
    """The spaces of what was read; permutations, signs and phases are proposals until a probe has tried them.

    `gains` are parameters that multiply values: a sign that all values of a unit share leaves them alone. `biases` are
    those of linear layers, by the name of their weight.
    """
    reader = _GroupReader(demands, gains, biases)
    blocks = reader.blocks()
    heads, used = reader.heads(blocks)
    single = [block for number, block in blocks.items() if number not in used]
    units, left_out = reader.units(used)
    spaces: list[HiddenSpace] = [*single, *heads, *units]
    order = {name: place for place, name in enumerate(demands.shapes)}
    spaces.sort(key=lambda space: min(order[rows.tensor] for rows in members_of(space)))
    shifts = shift_spaces(solve_shifts(demands.shifts), demands.shapes)[0]
    laws = tuple(space.laws for space in shifts if space.laws is not None)
    return OrbitGroup(tuple(spaces), laws, dict(demands.shapes), left_out)


class _GroupReader:
    def __init__(self, demands: Demands, gains: set[str], biases: Mapping[str, str]) -> None:
        self.demands, self.gains, self.biases = demands, gains, biases
        self.solution: GaugeSolution = solve(demands.gauges)
        self.sides: list[ParameterSide] = [
            side for side in parameter_sides(demands) if side.axis.centre is None or not np.any(side.axis.centre)
        ]
        self.labels = {(side.axis.parameter, side.axis.dims): side.labels for side in self.sides}
        orders = [np.argsort(side.labels) for side in self.sides]
        self.distinct = [  # sides on which every label is once: their rows by label
            (side.axis, order, side.labels[order])
            for side, order in zip(self.sides, orders, strict=True)
            if len(order) and bool(np.diff(side.labels[order]).all())
        ]
        self.unit = link_components(demands.gauges)
        alone = np.bincount(self.solution.cell)[self.solution.cell] == 1
        self.alone = alone

    # Blocks

    def blocks(self) -> dict[int, MatrixBlock]:
        """Matrix spaces by the number of their block of labels."""
        ones = np.concatenate([np.zeros(0, np.int64), *self.demands.gauges.ones])
        found: dict[int, MatrixBlock] = {}
        for space in matrix_spaces(self.sides, self.solution, ones):
            laws = space.laws
            if not isinstance(laws, MatrixLaws):
                continue
            kind: Kind = "GL" if space.group.startswith("GL") else "O fixing 1" if "fixing" in space.group else "O"
            tables: dict[tuple[AxisPlace, float], list[Indices]] = defaultdict(list)
            for each in laws.members:
                tables[(each.axis.parameter, each.axis.dims), float(each.sign)].append(each.places.T)
            members = tuple(
                AxisRows(where[0], where[1], _in_order(np.concatenate(parts, 1)), (sign,))
                for (where, sign), parts in tables.items()
            )
            first = members[0]
            label = self.labels[first.place][first.places[0, 0]]
            found[int(self.solution.block[label])] = MatrixBlock(space.name, laws.size, kind, members)
        return found

    # Heads

    def heads(self, blocks: dict[int, MatrixBlock]) -> tuple[list[HeadSpace], set[int]]:
        """For each attention, its heads; and the numbers of the blocks and units that are in them."""
        found, used = [], set[int]()
        for query, key, value in self.demands.gauges.attentions:
            groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
            for head, labels in enumerate(key.tolist()):
                groups[tuple(labels)].append(head)
            rows = [self._head(blocks, query[each], key[each[0]], value[each[0]]) for each in groups.values()]
            taken = {number for row in rows for _, numbers in row for number in numbers}
            slots = {tuple(_signature(block) for block, _ in row) for row in rows}
            if not rows or not rows[0] or len(slots) != 1 or taken & used:
                continue
            used |= taken
            blocked = tuple(tuple(block for block, _ in row) for row in rows)
            copies = {len(each) for each in groups.values()}
            first = blocked[0][0]
            found.append(HeadSpace(first.name, blocked, copies.pop(), len(rows) > 1))
        return found, used

    def _head(
        self, blocks: dict[int, MatrixBlock], query: Residues, key: Residues, value: Residues
    ) -> list[tuple[MatrixBlock, set[int]]]:
        """The blocks of one group of heads: queries with keys, values with outputs.

        Where only some coordinates of queries and keys turn with positions, these and the others are two blocks.
        """
        found: list[tuple[MatrixBlock, set[int]]] = []
        numbers = self.solution.block[key]
        turning = np.ones(len(key), dtype=bool)
        for number in dict.fromkeys(numbers.tolist()):
            here = numbers == number
            if number in blocks and len(blocks[number].members[0].places) == here.sum():
                found.append((blocks[number], {number}))
                turning &= ~here
        if turning.any() and (turned := self._rotary(query[:, turning], key[turning])) is not None:
            found.append((turned, {-1 - int(unit) for unit in np.unique(self.unit[key[turning]])}))
        number = int(self.solution.block[value[0]])
        if number in blocks:
            found.append((blocks[number], {number}))
        return found

    def _rotary(self, query: Residues, key: Residues) -> MatrixBlock | None:
        """Queries and keys of a head whose coordinates turn in pairs: pairs are units with two labels in the head."""
        units = self.unit[key]
        if not all((self.unit[each] == units).all() for each in query) or not self.alone[key].all():
            return None
        where: dict[int, list[int]] = defaultdict(list)
        for coordinate, unit in enumerate(units.tolist()):
            where[unit].append(coordinate)
        if any(len(each) != 2 for each in where.values()):
            return None
        members = []
        for labels, power in ((key[None], -1.0), (query, 1.0)):
            for axis, order, sorted_labels in self.distinct:
                at = np.minimum(np.searchsorted(sorted_labels, labels), len(order) - 1)
                if (sorted_labels[at] == labels).all():
                    members.append(AxisRows(axis.parameter, axis.dims, order[at].T.astype(np.intp), (power,)))
        members += [AxisRows(self.biases[rows.tensor], (0,), rows.places, rows.powers) for rows in members
                    if rows.tensor in self.biases and len(rows.dims) == 1]  # fmt: skip
        if not any(rows.powers[0] > 0 for rows in members) or not any(rows.powers[0] < 0 for rows in members):
            return None
        pairs = tuple((each[0], each[1]) for each in where.values())
        return MatrixBlock(f"{members[0].tensor}", len(key), "rotary", tuple(members), pairs)

    # Units

    def units(self, used: set[int]) -> tuple[list[UnitSpace], int]:
        """UnitSpace that change places, then units that only have scales; how many scales fit neither."""
        generators, left_out = self._generators()
        taken = {-1 - number for number in used if number < 0}
        found = []
        for family in self._families(taken):
            found.append(self._units(family, generators, permutes=True))
            taken.update(family.tolist())
        rest: dict[tuple[AxisPlace, ...], list[int]] = defaultdict(list)
        for unit in generators:
            if unit not in taken:
                rest[tuple(dict.fromkeys(place for each in generators[unit] for place, _ in each))].append(unit)
        for units in rest.values():
            found.append(self._units(np.array(units), generators, permutes=False))
        return [each for each in found if each is not None], left_out

    def _generators(self) -> tuple[dict[int, list[dict[tuple[AxisPlace, int], float]]], int]:
        """The scales of each unit: by how much they multiply which rows."""
        found: dict[int, list[dict[tuple[AxisPlace, int], float]]] = defaultdict(list)
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
                found[int(units[columns[0]])].append(
                    {places[column]: float(entry) for column, entry in zip(columns, entries, strict=True)}
                )
        return found, left_out

    def _families(self, taken: set[int]) -> list[Residues]:
        """Sets of units that may change places, as far as the graph says."""
        cells, links = _permutable_cells(self.demands.gauges)
        sizes = np.bincount(cells.of)
        tails, heads = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for link in links:
            kept = (link.left != PINNED) & (link.right != PINNED)
            tails.append(cells.of[link.left[kept]])
            heads.append(cells.of[link.right[kept]])
        tail, head = np.concatenate(tails), np.concatenate(heads)
        graph = sparse.coo_array((np.ones(len(tail), np.int8), (tail, head)), shape=(len(sizes), len(sizes)))
        family = connected_components(graph, directed=False)[1]
        on_rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(side.labels for side in self.sides)]))
        on_rows = on_rows[(sizes[cells.of[on_rows]] > 1) & self.alone[on_rows]]
        found = []
        for number in np.unique(family[cells.of[on_rows]]).tolist():
            labels = on_rows[family[cells.of[on_rows]] == number]
            units = np.unique(self.unit[labels])
            if taken & set(units.tolist()) or not self._fits(labels, units, cells.of):
                continue
            found.append(units)
        return found

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
        for side in self.sides:
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
        for number, (where, table) in enumerate(tables):
            own = tuple(each[number] for each in powers)
            odd = any(power % 2 for power in own) if scales else where[0] not in self.gains
            members.append(AxisRows(where[0], where[1], table, own, odd))
        return UnitSpace(tables[0][0][0], len(units), tuple(members), scales, permutes, signed=True)

    def _pattern(
        self,
        unit: int,
        index: int,
        tables: list[tuple[AxisPlace, Indices]],
        generators: dict[int, list[dict[tuple[AxisPlace, int], float]]],
    ) -> tuple[tuple[float, ...], ...]:
        """For each scale of a unit, the power with which it acts on every table."""
        found = []
        for generator in generators.get(unit, []):
            powers = []
            for where, table in tables:
                each = {generator.get((where, int(row)), 0.0) for row in table[index]}
                if len(each) != 1:
                    return ()
                powers.append(each.pop())
            found.append(tuple(powers))
        return tuple(sorted(found))


def _permutable_cells(gauges: Gauges) -> tuple[Cells, list[Link]]:
    """Labels that may change places, as far as the operations of the graph demand, and the links between them."""
    links = list(gauges.links)
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


def _signature(block: MatrixBlock) -> tuple[object, ...]:
    """What two blocks must share to stand in for each other."""
    members = tuple((rows.tensor, rows.dims, rows.places.shape, rows.powers) for rows in block.members)
    return block.kind, block.size, members
