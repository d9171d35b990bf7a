"""Which channels of a network go together: its operations, of few kinds, on channels.

Every activation has one axis of channels, and each channel belongs to a *cell*. Layers make new cells; activations,
pools and normalisations pass them on; a sum makes the cells of its terms one. A cell can leave the network as a whole:
a row of each layer that writes it, a column of each that reads it, an entry of each normalisation on the way. What an
operation that is not understood touches is pinned and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lawful.types import Indices

Arguments = tuple[float | str, ...]
OWN_MEANS = "instance_norm"  # subtracts the mean of each channel from it: what is added to all of it goes


@dataclass(frozen=True, eq=False)
class Spot:
    """An activation: the axis of its channels, the cell of each, and the sizes of all its axes."""

    axis: int
    cells: Indices
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Heads:
    """Which channels of its three sources an attention takes as queries, keys and values, group by group.

    `queries` is (groups, heads of a group, inner size), `keys` and `values` are (groups, inner size); the results are
    head by head. Inner channels of queries and keys are units that can leave unless they are `fixed` (rotary
    positions mix them, or the scale depends on their number); heads can leave where `alike`, all seeing one mask. In a
    `whole` attention every query sees some key: a constant value stays one.
    """

    queries: Indices
    keys: Indices
    values: Indices
    rotary: bool = False
    fixed: bool = False
    alike: bool = True
    whole: bool = True

    @property
    def groups(self) -> int:
        """Sets of heads with the same keys and values."""
        return len(self.keys)

    @property
    def heads(self) -> int:
        """Heads of a group."""
        return int(self.queries.shape[1])


@dataclass(frozen=True, eq=False)
class Operation:
    """One call on channels: its kind, the activation it makes, those it takes, and the tensors it uses by role.

    | kind | what it computes for each channel |
    |---|---|
    | layer | a sum over all channels (of its group) and taps of a kernel, and a bias |
    | depthwise | a sum over the taps of its own kernel, and a bias |
    | norm | (x − mean)/√(variance + epsilon) · weight + bias |
    | same, bend | `function` of each entry; `same` commutes with positive factors |
    | slopes | max(x, 0) + weight · min(x, 0) |
    | instance | (x − its mean)/√(its variance + epsilon) · weight + bias, over places |
    | pool | a maximum or an average over places; a sum, if `padded` |
    | flat | its places become channels, `width` of each |
    | cat, add, sub, mul, copy | as they say |
    | part | channels from `arguments[0]` on |
    | attend | heads of attention: see `Heads` |
    | other | anything: what it touches is pinned |
    """

    kind: str
    name: str
    sources: tuple[str, ...] = ()
    tensors: dict[str, str | None] = field(default_factory=dict)
    padded: bool = False  # zeros are read beside the activation
    width: int = 1
    function: str = ""
    arguments: Arguments = ()
    attention: Heads | None = None
    groups: int = 1


class ChannelProgram:
    """The operations of a network in order, its activations, and the cells that must stay."""

    def __init__(self) -> None:
        self.spots: dict[str, Spot] = {}
        self.operations: list[Operation] = []
        self.results: list[str] = []
        self.transposed: set[str] = set()  # weights that are stored with inputs first
        self.closed: set[str] = set()  # weights whose layer has no room for a bias
        self._parent: list[int] = []
        self._pinned: set[int] = set()

    @property
    def cells(self) -> set[int]:
        """All cells, by their representatives."""
        return {int(cell) for spot in self.spots.values() for cell in spot.cells}

    @property
    def pinned(self) -> set[int]:
        """Cells that stay."""
        return {self.root(cell) for cell in self._pinned}

    @property
    def not_followed(self) -> list[str]:
        """Names of operations without a rule here that read an activation."""
        unknown = (
            operation
            for operation in self.operations
            if operation.kind == "other" and operation.sources and operation.function
        )
        return sorted({operation.function for operation in unknown})

    def root(self, cell: int) -> int:
        """The representative of a cell."""
        while self._parent[cell] != cell:
            self._parent[cell] = self._parent[self._parent[cell]]
            cell = self._parent[cell]
        return cell

    def fresh(self, name: str, axis: int, shape: tuple[int, ...], *, pinned: bool = False) -> None:
        """An activation with new cells."""
        count = shape[axis] if shape else 1
        start = len(self._parent)
        self._parent.extend(range(start, start + count))
        self.spots[name] = Spot(axis, np.arange(start, start + count), shape)
        if pinned:
            self.pin(name)

    def add(self, operation: Operation, spot: Spot | None = None) -> None:
        """An operation, and its activation if that passes cells on."""
        if spot is not None:
            self.spots[operation.name] = spot
        self.operations.append(operation)

    def passes(
        self,
        kind: str,
        name: str,
        sources: Sequence[str],
        spot: Spot,
        tensors: dict[str, str | None] | None = None,
        *,
        padded: bool = False,
        width: int = 1,
        function: str = "",
        arguments: Arguments = (),
    ) -> bool:
        """Add an operation that passes cells on, to where `spot` says; a rule ends with it: understood."""
        self.add(Operation(kind, name, tuple(sources), tensors or {}, padded, width, function, arguments), spot)
        return True

    def join(self, one: str, two: str) -> None:
        """Make the channels of two activations one, place by place."""
        for first, second in zip(self.spots[one].cells.tolist(), self.spots[two].cells.tolist(), strict=True):
            self._parent[self.root(second)] = self.root(first)

    def attend(self, name: str, sources: tuple[str, str, str], heads: Heads, shape: tuple[int, ...]) -> None:
        """An attention: an inner channel is one cell with its queries and keys, or all those of a group if mixed."""
        queries, keys, values = (self.spots[source].cells for source in sources)
        for group in range(heads.groups):
            for place, key in enumerate(heads.keys[group].tolist()):
                first = int(keys[heads.keys[group, 0] if heads.rotary else key])
                for cell in (keys[key], *queries[heads.queries[group, :, place]]):
                    self._parent[self.root(int(cell))] = self.root(first)
        cells = values[np.repeat(heads.values, heads.heads, axis=0).ravel()]
        self.add(Operation("attend", name, sources, attention=heads), Spot(len(shape) - 1, cells, shape))

    def pin(self, name: str) -> None:
        """All channels of an activation stay."""
        self._pinned.update(self.spots[name].cells.tolist())

    def is_pinned(self, name: str) -> bool:
        """Whether all channels of an activation are known to stay."""
        pinned = self.pinned
        return all(self.root(cell) in pinned for cell in self.spots[name].cells.tolist())

    def along(self, source: str, axis: int) -> str | None:
        """An activation whose channels lie along an axis; one whose channels all stay may be seen along any."""
        spot = self.spots[source]
        if spot.axis == axis:
            return source
        if not 0 <= axis < len(spot.shape):
            return None
        self.pin(source)
        alias = f"{source} along {axis}"
        if alias not in self.spots:
            self.fresh(alias, axis, spot.shape, pinned=True)
            self.operations.append(Operation("other", alias, (source,)))
        return alias

    def end(self, results: Sequence[str]) -> None:
        """Pin what is returned, and name every cell by its representative."""
        self.results = list(results)
        for name in results:
            self.pin(name)
        self.spots = {
            name: Spot(spot.axis, np.array([self.root(cell) for cell in spot.cells], dtype=np.intp), spot.shape)
            for name, spot in self.spots.items()
        }


def notes_of(program: ChannelProgram) -> tuple[str, ...]:
    """What was not followed, in words."""
    names = program.not_followed
    notes = [f"not followed, so that channels they touch stay: {', '.join(names)}"] if names else []
    return tuple(notes)
