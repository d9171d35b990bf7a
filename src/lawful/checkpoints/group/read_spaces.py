"""The group of an architecture, read from the symmetries of its graph: blocks, heads, units, shifts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.csgraph import connected_components

from lawful.checkpoints.group.channel_groups import join_groups, join_routers
from lawful.checkpoints.group.heads import HeadReader
from lawful.checkpoints.group.spaces import (
    AxisPlace,
    AxisRows,
    Kind,
    MatrixBlock,
    OrbitGroup,
    UnitSpace,
    members_of,
)
from lawful.symmetry.demands.gauges import PINNED, Gauges, Link
from lawful.symmetry.demands.labels import occurrences
from lawful.symmetry.demands.reading import Demands
from lawful.symmetry.laws.families import MatrixLaws
from lawful.symmetry.laws.row_laws import ScaleLaws
from lawful.symmetry.solver.cells import Cells
from lawful.symmetry.solver.gauge_solution import GaugeSolution, link_components, solve
from lawful.symmetry.solver.shift_solution import solve_shifts
from lawful.symmetry.spaces.parameter_spaces import ParameterSide, matrix_spaces, parameter_sides, scale_spaces
from lawful.symmetry.spaces.shift_spaces import shift_spaces
from lawful.types import Indices, Residues


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
        self.unit = _joined(link_components(demands.gauges), _depthwise(demands.gauges))
        self.alone = np.bincount(self.solution.cell)[self.solution.cell] == 1

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
                action: dict[tuple[AxisPlace, int], float] = defaultdict(float)
                for column, entry in zip(columns, entries, strict=True):
                    action[places[column]] += float(entry)  # what is read and written may be rows of one axis
                found[int(units[columns[0]])].append(action)
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
            own = tuple(each[number] for each in powers)
            odd = any(power % 2 for power in own) if scales else where[0] not in self.gains and where not in centred
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


def _depthwise(gauges: Gauges) -> list[Link]:
    """What is read and what is written of each channel, where a convolution keeps all channels apart.

    Either may have a scale of its own, but they change places together.
    """
    found = []
    for count, fields in gauges.heads:
        if len(fields) == 2 and all(len(np.unique(labels)) == count for labels, _ in fields):
            one, two = (labels[np.unique(place, return_index=True)[1]] for labels, place in fields)
            found.append(Link(one, two, 1, np.zeros(count, dtype=np.int64)))
    return found


def _joined(number: Residues, links: list[Link]) -> Residues:
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
