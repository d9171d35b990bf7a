"""Heads of attention, and groups of convolutions, leave whole; those that stay keep equally many channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.pruning.channels.constants_and_multiples import Facts
from lawful.pruning.channels.groups import tables
from lawful.pruning.channels.program import ChannelProgram, Heads, Operation
from lawful.types import Indices

Reasons = dict[int, tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells that groups read and make, a row for each: groups of heads, or of a convolution.

    Groups leave only where they are `alike`. Libraries have `one_size` for queries, keys and values.
    """

    name: str
    read: Indices
    made: Indices
    alike: bool = True
    one_size: bool = False


class HeadGrids:
    """The cells of every attention, and of every grouped convolution, as grids."""

    def __init__(self, program: ChannelProgram) -> None:
        self.program = program
        self.attends = [
            (operation, operation.attention) for operation in program.operations if operation.attention is not None
        ]
        self.scoring: dict[int, list[tuple[Operation, Heads, int]]] = {}
        for operation, heads in self.attends:
            for group, row in enumerate(self.score_cells(operation, heads)):
                for cell in dict.fromkeys(row.tolist()):
                    self.scoring.setdefault(int(cell), []).append((operation, heads, group))
        self.grids = [
            Grid(
                operation.name, self.score_cells(operation, heads), self.value_cells(operation, heads), heads.alike,
                heads.keys.shape[1] == heads.values.shape[1],
            )
            for operation, heads in self.attends
        ]  # fmt: skip
        self.grids += [
            Grid(operation.name, *tables(program, operation))
            for operation in program.operations
            if operation.groups > 1
        ]
        self.heard: dict[int, set[str]] = {}  # who reads a cell
        for operation in program.operations:
            if operation.kind == "layer":
                for cell in program.activations[operation.sources[0]].tolist():
                    self.heard.setdefault(cell, set()).add(operation.name)
        for cell, places in self.scoring.items():
            self.heard.setdefault(cell, set()).update(f"{reader.name} {group}" for reader, _, group in places[1:])
            self.heard[cell].add(places[0][0].name)

    def sizes(self, alive: Mapping[int, bool]) -> list[tuple[int, int, int]]:
        """Heads, groups of heads and inner channels that are left of every attention."""
        by_attention = []
        for operation, heads in self.attends:
            left = [len(_left(row, alive)) for row in self.value_cells(operation, heads)]
            groups = sum(count > 0 for count in left)
            by_attention.append((groups * heads.heads, groups, max(left)))
        return by_attention

    def score_cells(self, operation: Operation, heads: Heads) -> Indices:
        """Cells of keys, and of the queries that they meet."""
        return np.asarray(self.program.activations[operation.sources[1]][heads.keys])

    def value_cells(self, operation: Operation, heads: Heads) -> Indices:
        """Cells of values."""
        return np.asarray(self.program.activations[operation.sources[2]][heads.values])

    def rows(
        self, side: str, cell: int, terms: Mapping[int, Fraction], layers: Sequence[Operation]
    ) -> Iterator[tuple[Operation, int, dict[int, Fraction]]]:
        """Rows that take over: the layer, the row of a cell, and the rows of others with their factors."""
        if side == "writers":
            for layer in layers:
                cells = self.program.activations[layer.name].tolist()
                if cell in cells:
                    yield layer, cells.index(cell), {cells.index(other): factor for other, factor in terms.items()}
            return
        ((operation, heads, group),) = self.scoring[cell]
        written = {layer.name: layer for layer in layers}
        keys = heads.keys[group]
        place = {int(self.program.activations[operation.sources[1]][key]): at for at, key in enumerate(keys)}
        for row in [keys] if side == "queries" else heads.queries[group]:
            layer = written[operation.sources[1 if side == "queries" else 0]]
            others = {int(row[place[other]]): factor for other, factor in terms.items()}
            yield layer, int(row[place[cell]]), others

    def needs_no_score(self, cell: int, facts: Facts) -> bool:
        """Whether no score needs this inner channel."""
        for operation, heads, group in self.scoring[cell]:
            if heads.fixed:
                return False
            keys = self.program.activations[operation.sources[1]]
            for place, key in enumerate(heads.keys[group].tolist()):
                queries = heads.queries[group, :, place].tolist()
                if keys[key] == cell and not all(facts.needs_no_score(operation, query, key) for query in queries):
                    return False
        return True

    def keep_whole(self, reasons: Reasons, alive: Mapping[int, bool], pinned: set[int]) -> Reasons:
        """What may leave such that all grids stay grids; what only a group reads that leaves is silent."""
        fed: set[int] = set()
        for grid in self.grids:
            fed |= self._add_fed(reasons, grid, alive, pinned)
        # Grids share cells, so that what one gives up can leave another uneven: again until nothing changes. Removals
        # are only given up here, so this ends; what is added comes before.
        size = -1
        while size != len(reasons):
            size = len(reasons)
            for grid in self.grids:
                _trim(reasons, grid, alive, fed)
        return reasons

    def _add_fed(self, reasons: Reasons, grid: Grid, alive: Mapping[int, bool], pinned: set[int]) -> set[int]:
        """What is read only by groups whose results all leave goes with them."""
        groups = [row for row, cells in enumerate(grid.made) if _left(cells, alive)]
        gone = [row for row in groups if grid.alike and all(cell in reasons for cell in _left(grid.made[row], alive))]
        added: set[int] = set()
        for row in gone[: len(groups) - 1]:
            cells = [cell for cell in _left(grid.read[row], alive) if cell not in reasons]
            if not any(cell in pinned or self.heard.get(cell) != {grid.name} for cell in cells):
                added |= set(cells)
        reasons |= dict.fromkeys(added, ("silent",))
        return added


def _trim(reasons: Reasons, grid: Grid, alive: Mapping[int, bool], fed: set[int]) -> None:
    """Give up removals until the groups that stay have one size."""
    tables = [
        (_left(read, alive), _left(results, alive))
        for read, results in zip(grid.read, grid.made, strict=True)
        if _left(results, alive)
    ]
    # A group leaves with all that it reads and makes, or stays; the last one stays in any case.
    leaving = [both for both in tables if all(cell in reasons for side in both for cell in side)]
    if len(leaving) == len(tables) or not grid.alike:
        leaving = leaving[:-1] if grid.alike else []
    staying = [both for both in tables if both not in leaving]
    for read, _ in staying:  # what was silent only because its group was to leave is heard again
        for cell in [cell for cell in read if cell in fed and cell in reasons]:
            del reasons[cell]
    # As many of each group as the one that can spare least, and never all: a head without channels is none.
    spare = [min(sum(cell in reasons for cell in both[side]) for both in staying) for side in (0, 1)]
    spare = [min(count, len(staying[0][side]) - 1) for side, count in enumerate(spare)]
    if grid.one_size:
        spare = [min(spare)] * 2
    for both in staying:
        for side, count in enumerate(spare):
            for cell in [cell for cell in both[side] if cell in reasons][count:]:
                del reasons[cell]


def _left(row: Indices, alive: Mapping[int, bool]) -> list[int]:
    return [cell for cell in dict.fromkeys(map(int, row.tolist())) if alive[cell]]
