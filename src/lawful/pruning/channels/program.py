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

from lawful.program.core.functions import Arguments
from lawful.types import Indices

OWN_MEANS = "instance_norm"  # subtracts the mean of each channel from it: what is added to all of it goes


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
    | instance | (x − its mean)/√(its variance + epsilon) · weight + bias, over places |
    | pool | a maximum or an average over places; a sum, if `padded` |
    | flat | its places become channels, `width` of each |
    | cat, add, mul | as they say |
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
        self.activations: dict[str, Indices] = {}  # the cell of each channel
        self.operations: list[Operation] = []
        self.results: list[str] = []
        self.transposed: set[str] = set()  # weights that are stored with inputs first
        self.closed: set[str] = set()  # weights whose layer has no room for a bias
        self._parent: list[int] = []
        self._pinned: set[int] = set()

    @property
    def cells(self) -> set[int]:
        """All cells, by their representatives."""
        return {int(cell) for cells in self.activations.values() for cell in cells}

    @property
    def pinned(self) -> set[int]:
        """Cells that stay."""
        return {self.root(cell) for cell in self._pinned}

    def root(self, cell: int) -> int:
        """The representative of a cell."""
        while self._parent[cell] != cell:
            self._parent[cell] = self._parent[self._parent[cell]]
            cell = self._parent[cell]
        return cell

    def add_channels(self, name: str, count: int, *, pinned: bool = False) -> None:
        """An activation with new cells."""
        start = len(self._parent)
        self._parent.extend(range(start, start + count))
        self.activations[name] = np.arange(start, start + count)
        if pinned:
            self.pin(name)

    def add(self, operation: Operation, cells: Indices | None = None) -> None:
        """An operation, and its activation if that passes cells on."""
        if cells is not None:
            self.activations[operation.name] = cells
        self.operations.append(operation)

    def join(self, one: str, two: str) -> None:
        """Make the channels of two activations one, place by place."""
        for first, second in zip(self.activations[one].tolist(), self.activations[two].tolist(), strict=True):
            self._parent[self.root(second)] = self.root(first)

    def attend(self, name: str, sources: tuple[str, str, str], heads: Heads) -> None:
        """An attention: an inner channel is one cell with its queries and keys, or all those of a group if mixed."""
        queries, keys, values = (self.activations[source] for source in sources)
        for group in range(heads.groups):
            for place, key in enumerate(heads.keys[group].tolist()):
                first = int(keys[heads.keys[group, 0] if heads.rotary else key])
                for cell in (keys[key], *queries[heads.queries[group, :, place]]):
                    self._parent[self.root(int(cell))] = self.root(first)
        cells = values[np.repeat(heads.values, heads.heads, axis=0).ravel()]
        self.add(Operation("attend", name, sources, attention=heads), cells)

    def pin(self, name: str) -> None:
        """All channels of an activation stay."""
        self._pinned.update(self.activations[name].tolist())

    def is_pinned(self, name: str) -> bool:
        """Whether all channels of an activation are known to stay."""
        pinned = self.pinned
        return all(self.root(cell) in pinned for cell in self.activations[name].tolist())

    def end(self, results: Sequence[str]) -> None:
        """Pin what is returned, and name every cell by its representative."""
        self.results = list(results)
        for name in results:
            self.pin(name)
        self.activations = {
            name: np.array([self.root(cell) for cell in cells], dtype=np.intp)
            for name, cells in self.activations.items()
        }


def notes_of(program: ChannelProgram) -> tuple[str, ...]:
    """Which operations that read an activation have no rule here, in words."""
    names = {
        operation.function for operation in program.operations
        if operation.kind == "other" and operation.sources and operation.function
    }  # fmt: skip
    return (f"not followed, so that channels they touch stay: {', '.join(sorted(names))}",) if names else ()
