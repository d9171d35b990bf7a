"""Weights of a program of channels as they change: cells leave in sweeps, and their readers take over what they said.

Folded numbers are computed exactly and rounded to float64 as they come; no exact statement rests on a row that was
rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.exact.proportional_rows import ordinary, power_of_two
from lawful.program.core.functions import Value, combine, is_double, is_rational, nearest
from lawful.pruning.channels.constants_and_multiples import Facts
from lawful.pruning.channels.heads import HeadGrids
from lawful.pruning.channels.linear_dependence import dependent_sweeps
from lawful.pruning.channels.program import ChannelProgram, Operation
from lawful.pruning.channels.state import ChannelState, layer_name
from lawful.types import Floats

# What rows or columns of a layer take over: ("column" or "row" or "constant", weight of the layer, place, terms)
Move = tuple[str, str, int, tuple[tuple[int, Fraction], ...]]
# ("silent",), ("constant",), ("unscored",), ("duplicate", cell), or ("dependent", side that takes over, terms)
Reason = tuple[Any, ...]
LARGEST = 250_000_000  # parameters: the check compares them one by one, and large tensors are held by their digests


@dataclass(frozen=True)
class RemovedChannel:
    """A channel that left: the layer that wrote it, its place there, and why."""

    layer: str
    channel: int
    kind: str


def refuse_large(program: ChannelProgram, arrays: Mapping[str, Any]) -> None:
    """Refuse what no certificate holds: known before the work, from the sizes of the weights that operations use."""
    used = {name for operation in program.operations for name in operation.tensors.values() if name is not None}
    if sum(math.prod(arrays[name].shape) for name in used) > LARGEST:
        raise Unsupported(f"a certificate is about at most {LARGEST:,} weights: its check compares each of them")


class ChannelWeights(ChannelState):
    """The same, from which cells leave in sweeps."""

    def __init__(self, program: ChannelProgram, arrays: dict[str, Floats]) -> None:
        super().__init__(program, arrays)
        self.grids = HeadGrids(program)
        self.pinned |= self.grids.scoring.keys() & self.readers.keys()  # read in two ways
        self.removed: list[RemovedChannel] = []
        self.moves: list[Move] = []  # what a certificate lists
        members = [set(cells.tolist()) for cells in program.activations.values()]
        self.left = [len(cells) for cells in members]  # channels of every activation
        self.places: dict[int, list[int]] = {}
        for place, cells in enumerate(members):
            for cell in cells:
                self.places.setdefault(cell, []).append(place)
        self.channels = sum(
            int(cell) not in self.pinned for layer in self.layers for cell in program.activations[layer.name]
        )

    def sweep_all(self) -> None:
        """Until nothing leaves any more."""
        while self.sweep():
            pass

    def sweep(self) -> bool:
        """Look at all cells once and remove what can be; whether anything was."""
        # Facts are about the weights as the sweep finds them. They hold until it ends, for readers take over what a
        # cell said before it leaves, and a twin that others rely on stays.
        facts = Facts(self)
        gone: dict[int, Reason] = {}
        for cell, reason in self._redundant(facts).items():
            if any(self.left[place] <= 1 for place in self.places[cell]):  # an activation keeps one channel
                continue
            self._count_out(cell, str(reason[0]))
            self._absorb(cell, reason, facts)
            gone[cell] = reason
        for cell in gone:
            self.alive[cell] = False
        return bool(gone) or self._sweep_dependent()

    def _sweep_dependent(self) -> bool:
        """Remove channels that others of their linear space add up to; whether there were any."""
        sweeps = dependent_sweeps(self, self.grids)
        for side, gone in sweeps:
            for cell, terms in gone.items():
                self._take_over(side, cell, terms)
                self._count_out(cell, "dependent")
            for cell in gone:
                self.alive[cell] = False
        return bool(sweeps)

    def _take_over(self, side: str, cell: int, terms: Sequence[tuple[int, Fraction]]) -> None:
        if side == "readers":
            for operation, places in self.readers.get(cell, []):
                cells = self.program.activations[operation.sources[0]]
                leaders = [(np.flatnonzero(cells == leader).tolist(), factor) for leader, factor in terms]
                for number, mine in enumerate(places):
                    self._add_column(operation, mine, [(theirs[number], factor) for theirs, factor in leaders])
                self.own_weight(operation)[:, places] = 0.0
            return
        for layer, mine, others in self.grids.rows(side, cell, dict(terms), self.layers):
            self.moves.append(("row", str(layer.tensors["weight"]), mine, tuple(others.items())))
            for theirs, factor in others.items():
                self._add_row(layer, mine, theirs, factor)

    def _add_column(self, layer: Operation, mine: int, terms: Sequence[tuple[int, Fraction]]) -> None:
        """Columns of a layer take over multiples of another."""
        self.moves.append(("column", str(layer.tensors["weight"]), mine, tuple(terms)))
        for theirs, factor in terms:
            inexact = _add_multiple(self.own_weight(layer), mine, theirs, factor)
            self.rounded(layer)[inexact] = True

    def _add_row(self, layer: Operation, mine: int, theirs: int, factor: Fraction) -> None:
        """A row of a layer, with its bias, takes over a multiple of another."""
        turned = np.swapaxes(self.own_weight(layer), 0, 1)
        inexact = _add_multiple(turned, mine, theirs, factor).any()
        total = combine([(factor, self.exact_bias(layer, mine))], self.exact_bias(layer, theirs))
        bias = self.bias(layer).copy()
        bias[theirs] = nearest(total)
        self._set_bias(layer, bias)
        self._exact[str(layer.tensors["weight"]), theirs] = total
        self.rounded(layer)[theirs] |= bool(inexact) or not is_double(total)

    def _count_out(self, cell: int, kind: str) -> None:
        for place in self.places[cell]:
            self.left[place] -= 1
        self.removed += [
            RemovedChannel(layer_name(operation), int(at), kind)
            for operation in self.layers
            for at in np.flatnonzero(self.program.activations[operation.name] == cell)
        ]

    def _redundant(self, facts: Facts) -> dict[int, Reason]:
        """Cells that can leave now, each with its reason; a twin that another relies on stays."""
        reasons: dict[int, Reason] = {}
        leaders: dict[tuple[Any, ...], int] = {}
        columns = {operation.name: self._heard(operation) for operation in self.layers}
        relied_on: set[int] = set()
        for cell in sorted(cell for cell, alive in self.alive.items() if alive and cell not in self.pinned):
            if cell in self.grids.scoring:
                if self.grids.needs_no_score(cell, facts):
                    reasons[cell] = ("unscored",)
                continue
            heard = self.readers.get(cell, [])
            live = [(operation, places) for operation, places in heard if columns[operation.name][places].any()]
            if not live:
                reasons[cell] = ("silent",)
            elif all(self._foldable(operation, places, facts) for operation, places in live):
                reasons[cell] = ("constant",)
            else:
                key = tuple(self._seen(operation, places, facts) for operation, places in heard)
                leader = leaders.setdefault(key, cell)
                if leader != cell and leader not in reasons:
                    reasons[cell] = ("duplicate", leader)
                    relied_on.add(leader)
        reasons = {cell: reason for cell, reason in reasons.items() if cell not in relied_on}
        return self.grids.keep_whole(reasons, self.alive, self.pinned)

    def _foldable(self, operation: Operation, places: Sequence[int], facts: Facts) -> bool:
        """Whether a layer hears nothing but constants: beside a border of zeros, or without room for a bias, zeros.

        One that is used several times must hear the same constants, rationals, in all its uses.
        """
        closed = operation.tensors["bias"] is None and operation.tensors["weight"] in self.program.closed
        first, *others = (facts.values(reader.sources[0], places) for reader in self._uses(operation))
        if any(values != first for values in others) or (others and not all(map(is_rational, first))):
            return False
        return all(value is not None and (value == 0 or not (operation.padded or closed)) for value in first)

    def _seen(self, operation: Operation, places: Sequence[int], facts: Facts) -> tuple[Any, ...]:
        """What a layer hears at some places, factors aside: those of its other uses only beside its own."""
        source = operation.sources[0]
        parts = [(facts.keys[source][at], self._block(operation, at)) for at in places]
        others = [
            (facts.keys[use.sources[0]][at], facts.factors[use.sources[0]][at] / facts.factors[source][at])
            for use in self._uses(operation)[1:] for at in places
        ]  # fmt: skip
        return operation.name, *parts, *others

    def _uses(self, operation: Operation) -> list[Operation]:
        return self.uses[str(operation.tensors["weight"])]

    def _block(self, operation: Operation, column: int) -> int:
        """The group of a column: rows of another cannot take it over."""
        return column * operation.groups // len(self.program.activations[operation.sources[0]])

    def _heard(self, operation: Operation) -> NDArray[np.bool_]:
        """For every column of a layer whether a row that is left hears it."""
        weight = self.weight(operation)
        rows = self.alive_at(operation.name)
        return np.asarray(weight.reshape(*weight.shape[:2], -1)[rows].any(axis=(0, 2)))

    def _absorb(self, cell: int, reason: Reason, facts: Facts) -> None:
        """Readers take over what the cell said, and no longer hear it."""
        for operation, places in self.readers.get(cell, []):
            weight, source = self.own_weight(operation), operation.sources[0]
            if reason[0] == "constant":
                self._fold(operation, places, facts.values(source, places))
            elif reason[0] == "duplicate":
                twins = np.flatnonzero(self.program.activations[source] == reason[1]).tolist()
                for mine, theirs in zip(places, twins, strict=True):
                    ratio = facts.factors[source][mine] / facts.factors[source][theirs]
                    self._add_column(operation, mine, [(theirs, ratio)])
            weight[:, places] = 0.0

    def _fold(self, operation: Operation, places: Sequence[int], values: Sequence[Value | None]) -> None:
        weight = self.weight(operation)
        flat = weight.reshape(len(weight), weight.shape[1], -1)
        bias = self.bias(operation).copy()
        pairs = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        name = str(operation.tensors["weight"])
        self.moves += [("constant", name, place, ()) for place, value in pairs if value != 0]
        for row in np.flatnonzero(flat[:, [place for place, _ in pairs]].any(axis=(1, 2))).tolist():
            terms = ((tap, value) for place, value in pairs for tap in flat[row, place].tolist())
            # From the exact sum so far, not from its double: however often something is folded in, it is rounded once.
            total = combine(terms, self.exact_bias(operation, row))
            bias[row] = nearest(total)
            self._exact[str(operation.tensors["weight"]), row] = total
            if not is_double(total):
                self.rounded(operation)[row] = True
        self._set_bias(operation, bias)

    def _set_bias(self, operation: Operation, bias: Floats) -> None:
        name = operation.tensors["bias"]
        if name is not None:
            self.arrays[name] = bias
        elif bias.any():
            self.added[str(operation.tensors["weight"])] = bias


def _add_multiple(weight: Floats, mine: int, theirs: int, ratio: Fraction) -> NDArray[np.bool_]:
    """`weight[:, theirs] += ratio · weight[:, mine]`, each rounded once; which rows that was needed for."""
    target, other = weight[:, theirs], weight[:, mine]
    # Then the product is exact, and the error of each sum is a double, which Knuth's TwoSum gives without a fraction.
    if power_of_two(ratio) and ordinary(target) and ordinary(other):
        term = other * float(ratio)
        total = target + term
        late = total - target
        error = (target - (total - late)) + (term - late)
        weight[:, theirs] = total
        return np.asarray((error != 0).reshape(len(weight), -1).any(axis=1))
    inexact = np.zeros(len(weight), dtype=bool)
    for at in np.argwhere(other != 0):
        place = tuple(at.tolist())
        exact = Fraction(float(target[place])) + ratio * Fraction(float(other[place]))
        target[place] = float(exact)
        inexact[place[0]] |= Fraction(float(target[place])) != exact
    return inexact
