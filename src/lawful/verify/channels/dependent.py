"""Channels of linear spaces that others add up to: one side depends on others there, and the other side takes over."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Protocol

from lawful.verify.channels.facts import ChannelFacts
from lawful.verify.channels.program import ChangedWeights, ChannelStep
from lawful.verify.channels.values import Value, is_zero, plus
from lawful.verify.core.schema import items, rational, require, word

Cell = tuple[int, int]


class ReplayedCells(Protocol):
    """A replay of a pruning: its cells, and its weights as they change."""

    steps: list[ChannelStep]
    weights: ChangedWeights
    cells: list[list[Cell]]
    pinned: set[Cell]
    alive: set[Cell]
    used_again: set[Cell]
    readers: dict[Cell, dict[int, list[int]]]
    scoring: dict[Cell, set[tuple[int, int]]]

    def cell(self, value: object) -> Cell:
        """A cell, named by one of its channels."""

    def rows(self, at: int) -> list[int]:
        """The channels of a step that are left."""

    def add(self, at: int, row: int, column: int | None, terms: list[Value]) -> None:
        """Add to a bias, or tap by tap to a kernel."""

    def forget(self, cell: Cell, rows: Mapping[int, list[int]]) -> None:
        """No row hears it any more."""


def dependent_sweep(replay: ReplayedCells, known: ChannelFacts, value: object) -> None:
    """Channels leave together: all is checked before anything changes."""
    _DependentSweep(replay, known).sweep(value)


class _DependentSweep:
    """Inner channels of a linear space leave: one side depends on others there, and the other side takes over.

    Behind `readers` a channel is a sum of multiples of others wherever it is read, and its readers hear those instead;
    behind `writers` the readers' columns are, and the rows that write take over. The same for `queries` and `keys`. One
    side at a time, and what stays does not leave in the same sweep.
    """

    def __init__(self, replay: ReplayedCells, known: ChannelFacts) -> None:
        self.replay, self.known = replay, known
        self.updates: list[tuple[int, int, int | None, list[Value]]] = []

    def sweep(self, value: object) -> None:
        """All is checked before anything changes."""
        replay = self.replay
        found: dict[Cell, dict[Cell, Fraction]] = {}
        sides = set()
        for item in items(value, "sweeps"):
            parts = items(item, "sweeps", length=4)
            word(parts[1], "sweeps", "dependent")
            sides.add(word(parts[2], "sweeps", "readers", "writers", "queries", "keys"))
            cell = replay.cell(parts[0])
            require(cell not in found, "a channel leaves twice")
            terms = {}
            for pair in items(parts[3], "sweeps"):
                leader, factor = items(pair, "sweeps", length=2)
                terms[replay.cell(leader)] = rational(factor, "sweeps")
            require(len(terms) == len(parts[3]), "a channel is named twice")
            found[cell] = terms
        require(len(sides) == 1, "two sides take over at once")
        side = sides.pop()
        for cell, terms in found.items():
            require(
                cell in replay.alive and cell not in replay.pinned, "a channel that must stay leaves, or leaves twice"
            )
            require(not {cell, *terms} & replay.used_again, "a layer that is used again takes over for one use")
            require(set(terms) <= replay.alive and not set(terms) & set(found), "a twin leaves as well")
            (self._linear if side in ("readers", "writers") else self._scored)(side, cell, terms)
        rows = {at: replay.rows(at) for at, step in enumerate(replay.steps) if step.kind == "layer"}
        for at, row, column, added in self.updates:
            replay.add(at, row, column, added)
        for cell in found:
            replay.forget(cell, rows)
        replay.alive -= set(found)

    def _linear(self, side: str, cell: Cell, terms: Mapping[Cell, Fraction]) -> None:
        replay, known = self.replay, self.known
        require(not {cell, *terms} & set(replay.scoring), "queries and keys have sides of their own")
        readers = replay.readers.get(cell, {})
        shapes = [{at: len(c) for at, c in replay.readers.get(each, {}).items()} for each in (cell, *terms)]
        require(all(shape == shapes[0] for shape in shapes), "a twin is read elsewhere")
        origins: set[tuple[int, int, tuple[tuple[int, Fraction], ...]]] = set()
        for at, columns in readers.items():
            for number, column in enumerate(columns):
                there = {replay.readers[other][at][number]: factor for other, factor in terms.items()}
                if side == "readers":
                    holds = known.combination(replay.steps[at].sources[0], column, there)
                    require(holds, "a channel is not what others add up to")
                    for row in replay.rows(at):
                        taps = replay.weights.kernel(at, row, column)
                        for target, factor in there.items() if any(taps) else ():
                            self.updates.append((at, row, target, [factor * tap for tap in taps]))
                    continue
                for row in replay.rows(at):
                    kernels = [replay.weights.kernel(at, row, each) for each in (column, *there)]
                    for own, *others in zip(*kernels, strict=True):
                        total = sum((f * tap for f, tap in zip(there.values(), others, strict=True)), Fraction(0))
                        require(own == total, "a column is not what others add up to")
                origins.add(self._origin(replay.steps[at].sources[0], column, there))
        if side == "writers":
            require(not set(terms) & replay.pinned, "a channel that must stay changes")
            require(len(origins) == 1, "rows that take over are written twice")
            at, row, taking = origins.pop()
            self._rows(at, row, dict(taking))

    def _origin(
        self, at: int, place: int, terms: Mapping[int, Fraction]
    ) -> tuple[int, int, tuple[tuple[int, Fraction], ...]]:
        """The layer that writes channels which nothing bends on the way, and their rows there."""
        step = self.replay.steps[at]
        if step.kind == "copy":
            return self._origin(step.sources[0], place, terms)
        if step.kind == "attend" and step.heads is not None:
            require(all(step.heads.home(other) == step.heads.home(place) for other in terms), "heads are mixed")
            written = step.heads.written
            return self._origin(step.sources[2], written[place], {written[o]: f for o, f in terms.items()})
        require(step.kind == "layer", "something bends a channel on its way")
        return at, place, tuple(terms.items())

    def _rows(self, at: int, row: int, terms: Mapping[int, Fraction]) -> None:
        """Rows of a layer, with their biases, take over another's."""
        weights = self.replay.weights
        for other, factor in terms.items():
            for column in weights.columns(at, row):
                taps = weights.kernel(at, row, column)
                if any(taps):
                    self.updates.append((at, other, column, [factor * tap for tap in taps]))
            bias = weights.bias(at, row)
            if not is_zero(bias):
                self.updates.append((at, other, None, [plus([(factor, bias)], Fraction(0))]))

    def _scored(self, side: str, cell: Cell, terms: Mapping[Cell, Fraction]) -> None:
        replay = self.replay
        homes = replay.scoring.get(cell, set())
        require(
            len(homes) == 1 and all(replay.scoring.get(each) == homes for each in terms), "channels of other groups"
        )
        require(not {cell, *terms} & set(replay.readers), "a channel of queries and keys is read elsewhere")
        require(not set(terms) & replay.pinned, "a channel that must stay changes")
        ((at, group),) = homes
        step = replay.steps[at]
        if step.heads is None:
            raise AssertionError("scores belong to attention")
        require(not step.heads.fixed, "an inner channel leaves that must stay")
        queries, keys = step.sources[:2]
        require(replay.steps[queries].kind == replay.steps[keys].kind == "layer", "no layer writes queries or keys")
        place = {replay.cells[keys][key]: number for number, key in enumerate(step.heads.keys[group])}
        own, others = place[cell], {place[each]: factor for each, factor in terms.items()}
        row = step.heads.keys[group]
        if side == "queries":
            for head in step.heads.queries[group]:
                there = {head[other]: factor for other, factor in others.items()}
                holds = self.known.rows_add_up(queries, head[own], there, bias=True)
                require(holds, "a query is not what others add up to")
            self._rows(keys, row[own], {row[other]: factor for other, factor in others.items()})
            return
        there = {row[other]: factor for other, factor in others.items()}
        require(self.known.rows_add_up(keys, row[own], there, bias=False), "a key is not what others add up to")
        for head in step.heads.queries[group]:
            self._rows(queries, head[own], {head[other]: factor for other, factor in others.items()})
