"""Heads of attention leave whole, and every head that stays has inner channels of one number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.pruning.facts import Facts
from lawful.pruning.program import ChannelProgram, Heads, Operation
from lawful.types import Indices

Reasons = dict[int, tuple[Any, ...]]


class HeadGrids:
    """The cells of every attention as grids, a row for each group of heads."""

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

    def sizes(self, alive: Mapping[int, bool]) -> list[tuple[int, int, int]]:
        """Heads, groups of heads and inner channels that are left of every attention."""
        found = []
        for operation, heads in self.attends:
            left = [len(_left(row, alive)) for row in self.value_cells(operation, heads)]
            groups = sum(count > 0 for count in left)
            found.append((groups * heads.heads, groups, max(left)))
        return found

    def score_cells(self, operation: Operation, heads: Heads) -> Indices:
        """Cells of keys, and of the queries that they meet."""
        return np.asarray(self.program.spots[operation.sources[1]].cells[heads.keys])

    def value_cells(self, operation: Operation, heads: Heads) -> Indices:
        """Cells of values."""
        return np.asarray(self.program.spots[operation.sources[2]].cells[heads.values])

    def rows(
        self, side: str, cell: int, terms: Mapping[int, Fraction], layers: Sequence[Operation]
    ) -> Iterator[tuple[Operation, int, dict[int, Fraction]]]:
        """Rows that take over: the layer, the row of a cell, and the rows of others with their factors."""
        if side == "writers":
            for layer in layers:
                cells = self.program.spots[layer.name].cells.tolist()
                if cell in cells:
                    yield layer, cells.index(cell), {cells.index(other): factor for other, factor in terms.items()}
            return
        ((operation, heads, group),) = self.scoring[cell]
        written = {layer.name: layer for layer in layers}
        keys = heads.keys[group]
        place = {int(self.program.spots[operation.sources[1]].cells[key]): at for at, key in enumerate(keys)}
        for row in [keys] if side == "queries" else heads.queries[group]:
            layer = written[operation.sources[1 if side == "queries" else 0]]
            others = {int(row[place[other]]): factor for other, factor in terms.items()}
            yield layer, int(row[place[cell]]), others

    def unscored(self, cell: int, facts: Facts) -> bool:
        """Whether no score needs this inner channel."""
        for operation, heads, group in self.scoring[cell]:
            if heads.fixed:
                return False
            keys = self.program.spots[operation.sources[1]].cells
            for place, key in enumerate(heads.keys[group].tolist()):
                queries = heads.queries[group, :, place].tolist()
                if keys[key] == cell and not all(facts.unscored(operation, query, key) for query in queries):
                    return False
        return True

    def kept_whole(self, found: Reasons, alive: Mapping[int, bool], pinned: set[int]) -> Reasons:
        """What may leave such that all grids stay grids; the scores of heads that leave are silent."""
        for operation, heads in self.attends:
            scores, values = self.score_cells(operation, heads), self.value_cells(operation, heads)
            self._add_scores(found, scores, values, alive, pinned, heads)
        size = -1
        while size != len(found):
            size = len(found)
            for operation, heads in self.attends:
                self._trim(found, self.score_cells(operation, heads), self.value_cells(operation, heads), alive, heads)
        return found

    def _add_scores(
        self,
        found: Reasons,
        scores: Indices,
        values: Indices,
        alive: Mapping[int, bool],
        pinned: set[int],
        heads: Heads,
    ) -> None:
        """Queries and keys of groups whose values all leave go with them."""
        groups = [row for row in range(heads.groups) if _left(values[row], alive)]
        gone = [row for row in groups if heads.alike and all(cell in found for cell in _left(values[row], alive))]
        gone = [row for row in gone if not any(int(cell) in pinned for cell in scores[row])]
        gone = [row for row in gone if all(len(self.scoring[int(cell)]) == 1 for cell in scores[row])]
        for row in gone[: len(groups) - 1]:
            found |= dict.fromkeys(_left(scores[row], alive), ("silent",))

    def _trim(self, found: Reasons, scores: Indices, values: Indices, alive: Mapping[int, bool], heads: Heads) -> None:
        """Give up removals until the groups that stay have one size."""
        tables = [
            (_left(scores[row], alive), _left(values[row], alive))
            for row in range(heads.groups)
            if _left(values[row], alive)
        ]
        leaving = [both for both in tables if all(cell in found for side in both for cell in side)]
        if len(leaving) == len(tables) or not heads.alike:
            leaving = leaving[:-1] if heads.alike else []
        staying = [both for both in tables if both not in leaving]
        spare = [min(sum(cell in found for cell in both[side]) for both in staying) for side in (0, 1)]
        spare = [min(count, len(staying[0][side]) - 1) for side, count in enumerate(spare)]
        if heads.keys.shape[1] == heads.values.shape[1]:  # libraries have one inner size for both
            spare = [min(spare)] * 2
        for both in staying:
            for side, count in enumerate(spare):
                for cell in [cell for cell in both[side] if cell in found][count:]:
                    del found[cell]


def _left(row: Indices, alive: Mapping[int, bool]) -> list[int]:
    return [cell for cell in dict.fromkeys(map(int, row.tolist())) if alive[cell]]
