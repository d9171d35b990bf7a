"""What can leave a trained network as a whole (a channel, or a head), who reads it, and what it costs.

A *unit* is a set of cells of a channel program: one channel with every layer that writes it, or a group of heads with
its queries, keys and values. Once no reader has a nonzero weight for it, exact pruning removes it, and with it all that
only it needed. So removal is two steps: here columns of readers become 0 and the others change; there what is silent
goes, with a proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.program import Operation
from lawful.pruning.channels.reading.domain import ChannelReading
from lawful.pruning.channels.state import layer_name
from lawful.pruning.channels.weights import ChannelWeights
from lawful.types import Indices

PlacesOf = Callable[[Sequence[int]], dict[str, tuple[int, ...]] | None]


@dataclass(frozen=True, eq=False)
class Reader:
    """A layer that reads units: its operation, its nodes (one for each use), and its kernel's taps."""

    operation: Operation
    nodes: tuple[Node, ...]
    taps: int

    @property
    def weight(self) -> str:
        """The name of its weight."""
        return str(self.operation.tensors["weight"])


@dataclass(frozen=True, eq=False)
class Unit:
    """Cells that leave together; `places` are the columns of each reader, by its weight, that read it."""

    site: int
    name: str
    cells: tuple[int, ...]
    places: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Site:
    """Units that are interchangeable: channels that one set of layers writes; `heads` are counted whole."""

    name: str
    units: tuple[int, ...]
    heads: bool = False


@dataclass(frozen=True, eq=False)
class Sites:
    """All units of a network, where they are, who reads them."""

    units: tuple[Unit, ...]
    sites: tuple[Site, ...]
    readers: Mapping[str, Reader]
    notes: tuple[str, ...] = ()


def find_readers(reading: ChannelReading, state: ChannelWeights) -> dict[str, Reader]:
    """The Linear layers and plain convolutions of a program, by their weights: those that least squares can refit."""
    nodes = {reading.name(node): node for node in reading.source.nodes if node.family is OperatorFamily.CONTRACTION}
    readers: dict[str, Reader] = {}
    for weight, uses in state.uses.items():
        at = tuple(nodes[operation.name] for operation in uses if operation.name in nodes)
        if uses[0].groups == 1 and len(at) == len(uses) and all(map(can_unfold, at)):
            readers[weight] = Reader(uses[0], at, math.prod(state.arrays[weight].shape[2:]))
    return readers


def find_sites(reading: ChannelReading, state: ChannelWeights, *, heads_stay: bool = False) -> Sites:
    """The units of a program whose readers are Linear layers and plain convolutions."""
    program = reading.program
    readers = find_readers(reading, state)
    refused = state.uses.keys() - readers.keys()
    grouped = {
        int(cell) for operation in program.operations if operation.groups > 1
        for name in (operation.name, operation.sources[0]) for cell in program.activations[name]
    }  # fmt: skip
    writers: dict[int, list[str]] = {}
    for layer in state.layers:
        for cell in dict.fromkeys(program.activations[layer.name].tolist()):
            writers.setdefault(int(cell), []).append(layer_name(layer))

    def places_of(cells: Sequence[int]) -> dict[str, tuple[int, ...]] | None:
        """The columns that read some cells; None if one of these must stay."""
        columns_by_weight: dict[str, list[int]] = {}
        for cell in cells:
            if cell in state.pinned or cell in grouped:
                return None
            for operation, columns in state.readers.get(cell, []):
                weight = str(operation.tensors["weight"])
                if weight in refused:
                    return None
                columns_by_weight.setdefault(weight, []).extend(columns)
        return {weight: tuple(sorted(columns)) for weight, columns in columns_by_weight.items()} or None

    units: list[Unit] = []
    sites: list[Site] = []
    taken: set[int] = set(state.grids.scoring)
    for operation, heads in state.grids.attends:
        scores, values = state.grids.score_cells(operation, heads), state.grids.value_cells(operation, heads)
        taken.update(map(int, values.ravel()))
        if heads_stay or not heads.alike or heads.groups < 2:
            continue
        group = _heads(scores, values, places_of, len(sites))
        if group:
            units += group
            sites.append(
                Site(group[0].name.rpartition(" ")[0], tuple(range(len(units) - len(group), len(units))), True)
            )
    by_writers: dict[tuple[str, ...], list[int]] = {}
    for cell in sorted(writers.keys() - taken):
        by_writers.setdefault(tuple(sorted(writers[cell])), []).append(cell)
    for names, cells in by_writers.items():
        movable = [(cell, places) for cell in cells if (places := places_of([cell])) is not None]
        if len(movable) > 1:
            start = len(units)
            units += [Unit(len(sites), f"{names[0]} {k}", (cell,), places) for k, (cell, places) in enumerate(movable)]
            sites.append(Site(", ".join(names), tuple(range(start, len(units)))))
    used = {weight for unit in units for weight in unit.places}
    notes = (
        [f"channels that {len(refused)} grouped, transposed or three-dimensional layers read stay"] if refused else []
    )
    return Sites(tuple(units), tuple(sites), {w: reader for w, reader in readers.items() if w in used}, tuple(notes))


def _heads(scores: Indices, values: Indices, places_of: PlacesOf, site: int) -> list[Unit]:
    """A unit for every group of heads; none at all if one must stay, for classes keep equally many channels in each."""
    units = []
    for group, (score, value) in enumerate(zip(scores, values, strict=True)):
        cells = tuple(dict.fromkeys(map(int, value)))
        places = places_of(cells)
        if places is None:
            return []
        both = (*cells, *dict.fromkeys(map(int, score)))
        units.append(Unit(site, f"heads of {next(iter(places))} {group}", both, places))
    return units


def can_unfold(node: Node) -> bool:
    """Whether what a contraction reads can be written as rows of features: one letter is summed, or a plain window."""
    if "spec" in node.attributes:
        return True
    return not node["transposed"] and node["groups"] == 1 and node.rank in (3, 4)


def data_operand(node: Node) -> Node:
    """The value that a layer reads: its operand that is no weight."""
    return node.inputs[_data_place(node)]


def channel_axes(node: Node) -> tuple[int, int]:
    """The axes of channels in what a layer reads, and in what it writes."""
    if "spec" not in node.attributes:
        return 1, 1
    place = _data_place(node)
    operands, out = node["spec"].split("->")
    mine, weight = operands.split(",")[place], operands.split(",")[1 - place]
    return (
        next(k for k, letter in enumerate(mine) if letter not in out),
        next(k for k, letter in enumerate(out) if letter in weight and letter not in mine),
    )


def _data_place(node: Node) -> int:
    if "spec" not in node.attributes:
        return 0
    return next(
        k for k, operand in enumerate(node.inputs) if operand.op == "input" or operand.family is not OperatorFamily.LEAF
    )


def count_macs(program: Program) -> int:
    """Multiplications of all contractions, for the batch that the program was read with."""
    return sum(layer_macs(node) for node in program.nodes if node.family is OperatorFamily.CONTRACTION)


def layer_macs(node: Node) -> int:
    """Multiplications of one contraction."""
    if "spec" in node.attributes:
        sizes: dict[str, int] = {}
        for letters, operand in zip(node["spec"].split("->")[0].split(","), node.inputs, strict=True):
            sizes |= dict(zip(letters, operand.shape, strict=True))
        return math.prod(sizes.values())
    weight = node.inputs[1].shape
    places = node.inputs[0] if node["transposed"] else node
    return math.prod(places.shape[2:]) * places.shape[0] * math.prod(weight)


class Costs:
    """Multiplications and parameters of what is left, as units leave: counted layer by layer.

    A layer costs its rows times its columns, so what a unit saves depends on what has left before.
    """

    def __init__(self, reading: ChannelReading, state: ChannelWeights, sites: Sites, kind: str) -> None:
        self.kind = kind
        program = reading.program
        nodes = {reading.name(node): node for node in reading.source.nodes if node.family is OperatorFamily.CONTRACTION}
        self.rows: dict[str, int] = {}
        self.columns: dict[str, int] = {}
        self.each: dict[str, float] = {}  # the cost of one entry (row, column) of a layer
        self.touches: list[dict[str, tuple[int, int]]] = [{} for _ in sites.units]
        self._of_cell = {cell: number for number, unit in enumerate(sites.units) for cell in unit.cells}
        trained = reading.source.parameters
        counted: set[str] = set()  # a tensor with several uses is one
        for operation in program.operations:
            rows = program.activations[operation.name]
            layer = operation.kind == "layer"
            columns = program.activations[operation.sources[0]] if layer else rows[:0]
            if kind == "flops":
                if operation.name in nodes and operation.tensors:
                    self._count(operation.name, float(layer_macs(nodes[operation.name])), rows, columns)
                continue
            for role, tensor in operation.tensors.items():
                if tensor in trained and tensor not in counted:
                    counted.add(tensor)
                    inside = columns if layer and role == "weight" else columns[:0]
                    self._count(f"{operation.name} {role}", float(trained[tensor].size), rows, inside)
        self.total = sum(self.each[name] * self.rows[name] * self.columns[name] for name in self.each)
        if kind == "params":
            all_parameters = sum(math.prod(node.shape) for node in reading.source.parameters.values())
            self.fixed = all_parameters - self.total
        else:
            self.fixed = 0.0
            between = count_macs(reading.source) - self.total  # products of two activations: those of heads
            heads = [number for number, unit in enumerate(sites.units) if sites.sites[unit.site].heads]
            for number in heads:
                name = f"heads {number}"
                self.rows[name], self.columns[name], self.each[name] = 1, 1, between / len(heads)
                self.touches[number][name] = (1, 0)
            if not heads:
                self.fixed = between
        self.total = self.left
        self.now = self.total

    def _count(self, name: str, cost: float, rows: Indices, columns: Indices) -> None:
        """A cost that is shared by rows, and by columns if there are any."""
        self.rows[name], self.columns[name] = len(rows), max(len(columns), 1)
        self.each[name] = cost / (self.rows[name] * self.columns[name])
        for place, cells in enumerate((rows, columns)):
            for cell in cells.tolist():
                unit = self._of_cell.get(int(cell))
                if unit is not None:
                    old = self.touches[unit].get(name, (0, 0))
                    self.touches[unit][name] = (old[0] + (place == 0), old[1] + (place == 1))

    @property
    def left(self) -> float:
        """The cost of what is left."""
        return self.fixed + sum(self.each[name] * self.rows[name] * self.columns[name] for name in self.each)

    def saved(self, unit: int) -> float:
        """What the next removal of a unit would save."""
        total = 0.0
        for name, (rows, columns) in self.touches[unit].items():
            r, c = self.rows[name], self.columns[name]
            total += self.each[name] * (r * c - (r - rows) * (c - columns))
        return total

    def remove(self, unit: int) -> None:
        """Count a unit out."""
        self.now -= self.saved(unit)
        for name, (rows, columns) in self.touches[unit].items():
            self.rows[name] -= rows
            self.columns[name] -= columns

    def restore(self, units: Sequence[int]) -> None:
        """Count units in again."""
        for unit in units:
            for name, (rows, columns) in self.touches[unit].items():
                self.rows[name] += rows
                self.columns[name] += columns
            self.now += self.saved(unit)

    def return_cost(self, units: Sequence[int]) -> float:
        """What units that left would cost if they came back."""
        before = self.now
        self.restore(units)
        difference = self.now - before
        for unit in reversed(units):
            self.remove(unit)
        return difference
