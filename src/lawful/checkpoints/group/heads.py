"""The heads of attentions: which blocks of rows belong to each, and which rows move with a head as they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lawful.checkpoints.group.spaces import AxisRows, HeadSpace, MatrixBlock
from lawful.symmetry.demands.gauges import PINNED, AttentionLabels
from lawful.symmetry.demands.reading import Demands
from lawful.symmetry.solver.gauge_solution import GaugeSolution
from lawful.symmetry.spaces.parameter_spaces import ParameterSide
from lawful.types import Indices, Residues

Slots = list[tuple[MatrixBlock, set[int]]]  # blocks, and the numbers of the blocks and units that are in them


class HeadReader:
    """All of it is proposed, and tried on the module before it is used."""

    def __init__(
        self,
        demands: Demands,
        solution: GaugeSolution,
        sides: Sequence[ParameterSide],
        unit: Residues,
        biases: Mapping[str, str],
    ) -> None:
        self.demands, self.solution, self.unit, self.biases = demands, solution, unit, biases
        self.alone = np.bincount(solution.cell)[solution.cell] == 1
        orders = [np.argsort(side.labels) for side in sides]
        self.distinct = [  # sides on which every label is once: their rows by label
            (side, order, side.labels[order])
            for side, order in zip(sides, orders, strict=True)
            if len(order) and bool(np.diff(side.labels[order]).all())
        ]
        self._factors: dict[int, set[int]] | None = None

    def read(self, blocks: Mapping[int, MatrixBlock]) -> tuple[list[HeadSpace], set[int]]:
        """For each attention its heads, one space for all that share a table; and the numbers that are in them."""
        spaces, used = [], set[int]()
        for together in _sharing_tables(self.demands.gauges.attentions):
            groups = _groups(together[0])
            rows: list[Slots] = [[] for _ in groups]
            parts = [self._slots(blocks, attention, groups) for attention in together]
            for part in (*parts, self._tables(together, groups)):
                for slots_of_group, slots in zip(rows, part, strict=True):
                    slots_of_group += slots
            taken = {number for row in rows for _, numbers in row for number in numbers}
            kinds = {tuple(_signature(block) for block, _ in row) for row in rows}
            if not rows or not rows[0] or len(kinds) != 1 or taken & used:
                continue
            used |= taken
            blocked = tuple(tuple(block for block, _ in row) for row in rows)
            copies = {len(group) for group in groups}.pop()
            spaces.append(HeadSpace(blocked[0][0].name, blocked, copies, len(rows) * copies > 1))
        return spaces, used

    def _slots(
        self, blocks: Mapping[int, MatrixBlock], attention: AttentionLabels, groups: list[list[int]]
    ) -> list[Slots]:
        """The blocks of each group of heads: queries with keys, values with outputs."""
        rows: list[Slots] = []
        still = False
        for group in groups:
            matched, turning = self._pairs(blocks, attention.query[group], attention.key[group[0]])
            number = int(self.solution.block[attention.value[group[0], 0]])
            rows.append(matched + ([(blocks[number], {number})] if number in blocks else []))
            still = still or turning
        if still:
            for slots_of_group, slots in zip(rows, self._still(attention, groups), strict=True):
                slots_of_group += slots
        return rows

    def _pairs(self, blocks: Mapping[int, MatrixBlock], query: Residues, key: Residues) -> tuple[Slots, bool]:
        """Queries and keys of a head, and whether some of them are in no block.

        Where only some coordinates turn with positions, these and the others are two blocks.
        """
        pairs: Slots = []
        numbers = self.solution.block[key]
        turning = np.ones(len(key), dtype=bool)
        for number in dict.fromkeys(numbers.tolist()):
            here = numbers == number
            if number in blocks and len(blocks[number].members[0].places) == here.sum():
                pairs.append((blocks[number], {number}))
                turning &= ~here
        if not turning.any():
            return pairs, False
        turned = self._rotary(query[:, turning], key[turning])
        if turned is None:
            return pairs, True
        pairs.append((turned, {-1 - int(unit) for unit in np.unique(self.unit[key[turning]])}))
        return pairs, False

    def _rotary(self, query: Residues, key: Residues) -> MatrixBlock | None:
        """Queries and keys of a head whose coordinates turn in pairs: pairs are units with two labels in the head."""
        units = self.unit[key]
        if not all((self.unit[labels] == units).all() for labels in query) or not self.alone[key].all():
            return None
        where: dict[int, list[int]] = defaultdict(list)
        for coordinate, unit in enumerate(units.tolist()):
            where[unit].append(coordinate)
        if any(len(coordinates) != 2 for coordinates in where.values()):
            return None
        members = []
        for labels, power in ((key[None], -1.0), (query, 1.0)):
            for side, order, sorted_labels in self.distinct:
                at = np.minimum(np.searchsorted(sorted_labels, labels), len(order) - 1)
                if (sorted_labels[at] == labels).all():
                    where_from = side.axis.parameter, side.axis.dims
                    members.append(AxisRows(*where_from, order[at].T.astype(np.intp), (power,)))
        members += self._with_biases(members)
        if not any(rows.powers[0] > 0 for rows in members) or not any(rows.powers[0] < 0 for rows in members):
            return None
        pairs = tuple((coordinates[0], coordinates[1]) for coordinates in where.values())
        return MatrixBlock(f"{members[0].tensor}", len(key), "rotary", tuple(members), pairs)

    def _with_biases(self, members: Sequence[AxisRows]) -> list[AxisRows]:
        return [AxisRows(self.biases[rows.tensor], (0,), rows.places, rows.powers) for rows in members
                if rows.tensor in self.biases and len(rows.dims) == 1]  # fmt: skip

    # Rows that move with their head, and stand still in it

    def _still(self, attention: AttentionLabels, groups: list[list[int]]) -> list[Slots]:
        """The rows of which queries and keys are made (under norms, times gains), where each belongs to one head."""
        still: list[Slots] = [[] for _ in groups]
        firsts = [group[:1] for group in groups]
        for labels, heads in ((attention.query, groups), (attention.key, firsts)):
            reached = [[self._factors_of(labels[head]) for head in group] for group in heads]
            for side, order, sorted_labels in self.distinct:
                rows = [
                    [_places(order, sorted_labels, labels) for labels in labels_of_group] for labels_of_group in reached
                ]
                every = [places for rows_of_group in rows for places in rows_of_group]
                if not len(every[0]) or len({len(places) for places in every}) != 1:
                    continue
                if len(np.unique(np.concatenate(every))) < len(every) * len(every[0]):
                    continue
                for rows_of_group, slots in zip(rows, still, strict=True):
                    members = [AxisRows(side.axis.parameter, side.axis.dims, np.stack(rows_of_group, 1), (0.0,))]
                    units = {-1 - int(unit) for unit in np.unique(self.unit[side.labels[members[0].places]])}
                    for member in (*members, *self._with_biases(members)):
                        slots.append((MatrixBlock(member.tensor, len(member.places), "still", (member,)), units))
        return still

    def _factors_of(self, labels: Residues) -> Residues:
        """The labels of which some are products, and these labels themselves."""
        if self._factors is None:
            self._factors = defaultdict(set)
            for relation in self.demands.gauges.relations:
                for result, *parts in zip(relation.result.tolist(), relation.first.tolist(), relation.second.tolist(),
                                          strict=True):  # fmt: skip
                    self._factors[result].update(parts)
        waiting, reached = labels.tolist(), set(labels.tolist())
        while waiting:
            fresh = self._factors.get(waiting.pop(), set()) - reached - {PINNED}
            reached |= fresh
            waiting += fresh
        return np.array(sorted(reached))

    def _tables(self, attentions: Sequence[AttentionLabels], groups: list[list[int]]) -> list[Slots]:
        """Tables that are added to scores and have one axis for the heads."""
        tables: list[Slots] = [[] for _ in groups]
        count = sum(len(group) for group in groups)
        for name in dict.fromkeys(name for attention in attentions for name in attention.tables):
            shape = self.demands.shapes.get(name, ())
            axes = [d for d, size in enumerate(shape) if size == count]
            if len(axes) != 1:
                continue
            for heads, slots in zip(groups, tables, strict=True):
                rows = AxisRows(name, (axes[0],), np.array([heads], dtype=np.intp), (0.0,))
                slots.append((MatrixBlock(name, 1, "still", (rows,)), set()))
        return tables


def _places(order: Indices, sorted_labels: Residues, labels: Residues) -> Indices:
    """The rows of an axis that have some of these labels."""
    at = np.minimum(np.searchsorted(sorted_labels, labels), len(order) - 1)
    return np.sort(order[at[sorted_labels[at] == labels]]).astype(np.intp)


def _groups(attention: AttentionLabels) -> list[list[int]]:
    """Heads that share their keys."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for head, labels in enumerate(attention.key.tolist()):
        groups[tuple(labels)].append(head)
    return list(groups.values())


def _sharing_tables(attentions: Sequence[AttentionLabels]) -> Iterator[list[AttentionLabels]]:
    """Attentions with what they add to scores in common: their heads change places together.

    Where these are grouped in different ways, each is by itself.
    """
    waiting = list(attentions)
    while waiting:
        together, names = [waiting.pop(0)], set[str]()
        while not names >= {name for attention in together for name in attention.tables}:
            names |= {name for attention in together for name in attention.tables}
            together += [attention for attention in waiting if names & set(attention.tables)]
            waiting = [attention for attention in waiting if not names & set(attention.tables)]
        if all(_groups(attention) == _groups(together[0]) for attention in together):
            yield together
        else:
            yield from ([attention] for attention in together)


def _signature(block: MatrixBlock) -> tuple[object, ...]:
    """What two blocks must share to stand in for each other."""
    members = tuple((rows.tensor, rows.dims, rows.places.shape, rows.powers) for rows in block.members)
    return block.kind, block.size, members
