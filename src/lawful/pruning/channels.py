"""Lossless pruning of any module: channels that nobody hears, that are constant, or that repeat another's.

A walk along the module's operations says for every channel whether it is *identically* constant (a filter of zeros, a
gain of zero, an activation of a constant), and which channels of one activation are positive multiples of each other.
Both are facts of algebra about the weights as rational numbers; nothing is measured. Readers absorb what leaves, in
float64, rounded to the module's own type at the end; the outputs of both modules are compared as well.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.network.modules.export import export_module
from lawful.pruning.cells import ChannelCells, Operation, Spot
from lawful.pruning.permanent import permanent
from lawful.shown import Shown
from lawful.types import Floats

COMPARED = 1e-9  # relative difference of outputs in float64


@dataclass(frozen=True)
class RemovedChannel:
    """A channel that left: the layer that wrote it, its place there, and why."""

    layer: str
    channel: int
    kind: str


@dataclass(frozen=True, eq=False)
class ChannelPruning(Shown):
    """The smaller module, and the channels that went; `compared` is the largest difference of outputs seen, in float64.

    `parameters_after` counts what is left. The module has the class, the names and the type that it had.
    """

    module: nn.Module
    removed: tuple[RemovedChannel, ...]
    channels_before: int
    parameters_before: int
    parameters_after: int
    compared: float
    notes: tuple[str, ...] = ()

    @property
    def channels_after(self) -> int:
        """Channels that are left."""
        return self.channels_before - len(self.removed)


def prune_channels(
    module: nn.Module, inputs: Sequence[torch.Tensor | tuple[int, ...]], *, seed: int = 0
) -> ChannelPruning:
    """Remove the channels that are silent, constant or multiples of others; `inputs` are tensors or sizes with batch.

    Convolutions (depthwise ones too), Linear layers on any axis, batch normalisation in eval mode, residual sums,
    concatenations, pools and elementwise activations are followed; channels that anything else touches stay.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    >>> with torch.no_grad():
    ...     _ = model[1].weight[2].zero_()
    ...     _ = model[3].weight[:, 0].zero_()
    >>> found = prune_channels(model, [(2, 1, 8, 8)])
    >>> [(gone.layer, gone.channel, gone.kind) for gone in found.removed], found.module[3]
    ([('0', 0, 'silent'), ('0', 2, 'constant')], Conv2d(2, 2, kernel_size=(1, 1), stride=(1, 1)))
    """
    double, notes = permanent(module)
    double = double.double()
    examples = [_example(entry, seed + place) for place, entry in enumerate(inputs)]
    state = _State(double, ChannelCells(export_module(double, [tuple(each.shape) for each in examples])))
    while state.sweep():
        pass
    small = copy.deepcopy(double)
    _shrink(small, state)
    difference = _difference(double, small, examples)
    kind = next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)
    small = small.to(kind)
    modes = {name: part.training for name, part in module.named_modules()}
    for name, part in small.named_modules():
        part.training = modes[name]
    sizes = [sum(tensor.numel() for tensor in each.parameters()) for each in (double, small)]
    return ChannelPruning(small, tuple(state.removed), state.channels, sizes[0], sizes[1], difference, notes)


def _example(entry: torch.Tensor | tuple[int, ...], seed: int) -> torch.Tensor:
    if isinstance(entry, torch.Tensor):
        return entry.double() if entry.is_floating_point() else entry
    return torch.randn(*entry, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class _State:
    """The weights as they change, the cells that are left, and what the walk knows of every activation."""

    def __init__(self, module: nn.Module, wiring: ChannelCells) -> None:
        self.wiring, self.module = wiring, module
        read = wiring.read
        self.arrays = {place: tensor.detach().numpy().copy() for place, tensor in read.tensors.items()}
        self.names = read.names
        self.added: dict[str, Floats] = {}  # biases of layers that had none, by their weight's place
        self.alive = dict.fromkeys(wiring.cells, True)
        self.layers = [operation for operation in wiring.operations if operation.kind == "layer"]
        self.removed: list[RemovedChannel] = []
        self.readers = self._readers()
        members = [set(spot.cells.tolist()) for spot in wiring.spots.values()]
        self.left = [len(cells) for cells in members]  # channels of every activation
        self.places: dict[int, list[int]] = {}
        for place, cells in enumerate(members):
            for cell in cells:
                self.places.setdefault(cell, []).append(place)
        self.channels = sum(self._hidden(operation) for operation in self.layers)

    def _hidden(self, operation: Operation) -> int:
        return sum(int(cell) not in self.wiring.pinned for cell in self.wiring.spots[operation.node.name].cells)

    def weight(self, operation: Operation) -> Floats:
        """The weight of a layer."""
        return self.arrays[str(operation.tensors["weight"])]

    def bias(self, operation: Operation) -> Floats:
        """The bias of a layer, zeros if it has none."""
        place = operation.tensors["bias"]
        if place is not None:
            return self.arrays[place]
        weight = str(operation.tensors["weight"])
        return self.added.get(weight, np.zeros(len(self.arrays[weight])))

    def sweep(self) -> bool:
        """Look at all cells once and remove what can be; whether anything was."""
        facts = _Facts(self)
        found = False
        for cell, reason in self._redundant(facts).items():
            if any(self.left[place] <= 1 for place in self.places[cell]):  # an activation keeps one channel
                continue
            for place in self.places[cell]:
                self.left[place] -= 1
            self._absorb(cell, reason, facts)
            self.alive[cell] = False
            self.removed += [
                RemovedChannel(self._layer_name(operation), int(at), str(reason[0]))
                for operation in self.layers
                for at in np.flatnonzero(self.wiring.spots[operation.node.name].cells == cell)
            ]
            found = True
        return found

    def _layer_name(self, operation: Operation) -> str:
        return self.names[str(operation.tensors["weight"])].rpartition(".")[0]

    def _redundant(self, facts: _Facts) -> dict[int, tuple[Any, ...]]:
        """Cells that can leave now, each with its reason; a twin that another relies on stays."""
        found: dict[int, tuple[Any, ...]] = {}
        leaders: dict[tuple[Any, ...], int] = {}
        heard_columns = {operation.node.name: self._heard(operation) for operation in self.layers}
        kept: set[int] = set()
        for cell in sorted(cell for cell, alive in self.alive.items() if alive and cell not in self.wiring.pinned):
            heard = self.readers.get(cell, [])
            live = [
                (operation, places) for operation, places in heard if heard_columns[operation.node.name][places].any()
            ]
            if not live:
                found[cell] = ("silent",)
                continue
            constants = [facts.constant[operation.sources[0]][places] for operation, places in live]
            foldable = all(
                not np.isnan(values).any() and (not operation.padded or not values.any())
                for (operation, _), values in zip(live, constants, strict=True)
            )
            if foldable:
                found[cell] = ("constant",)
                continue
            key = tuple(
                (operation.node.name, tuple(facts.keys[operation.sources[0]][place] for place in places))
                for operation, places in heard
            )
            leader = leaders.setdefault(key, cell)
            if leader != cell and leader not in found:
                found[cell] = ("duplicate", leader)
                kept.add(leader)
        return {cell: reason for cell, reason in found.items() if cell not in kept}

    def _readers(self) -> dict[int, list[tuple[Operation, list[int]]]]:
        """For every cell the layers that read it, and at which of their columns."""
        found: dict[int, list[tuple[Operation, list[int]]]] = {}
        for operation in self.layers:
            places: dict[int, list[int]] = {}
            for place, cell in enumerate(self.wiring.spots[operation.sources[0]].cells.tolist()):
                places.setdefault(cell, []).append(place)
            for cell, where in places.items():
                found.setdefault(cell, []).append((operation, where))
        return found

    def _heard(self, operation: Operation) -> Any:
        """For every column of a layer whether a row that is left hears it."""
        rows = np.array([self.alive[int(cell)] for cell in self.wiring.spots[operation.node.name].cells])
        weight = self.weight(operation)
        return weight.reshape(*weight.shape[:2], -1)[rows].any(axis=(0, 2))

    def _absorb(self, cell: int, reason: tuple[Any, ...], facts: _Facts) -> None:
        """Readers take over what the cell said, and no longer hear it."""
        for operation, places in self.readers.get(cell, []):
            weight, source = self.weight(operation), operation.sources[0]
            if reason[0] == "constant":
                values = facts.constant[source][places]
                taps = weight[:, places].reshape(len(weight), len(places), -1).sum(axis=2)
                shift = taps @ np.where(np.isnan(values), 0.0, values)
                if shift.any():
                    self._shift(operation, shift)
            elif reason[0] == "duplicate":
                cells = self.wiring.spots[source].cells
                twins = np.flatnonzero(cells == reason[1])
                for mine, theirs in zip(places, twins.tolist(), strict=True):
                    ratio = facts.factors[source][mine] / facts.factors[source][theirs]
                    weight[:, theirs] += float(ratio) * weight[:, mine]
            weight[:, places] = 0.0

    def _shift(self, operation: Operation, shift: Floats) -> None:
        place = operation.tensors["bias"]
        if place is not None:
            self.arrays[place] = self.arrays[place] + shift
        else:
            self.added[str(operation.tensors["weight"])] = self.bias(operation) + shift


class _Facts:
    """For every channel of every activation: its constant value or NaN, and a key and factor.

    Channels with one key are multiples of one function, by their positive factors.
    """

    def __init__(self, state: _State) -> None:
        self.state = state
        self.constant: dict[str, Floats] = {}
        self.keys: dict[str, list[int]] = {}
        self.factors: dict[str, list[Fraction]] = {}
        self._numbers: dict[Any, int] = {}
        known = {operation.node.name: operation for operation in state.wiring.operations}
        for name, spot in state.wiring.spots.items():
            operation = known.get(name)
            if operation is None:
                self._unknown(name, spot)
            else:
                getattr(self, f"_{operation.kind}")(operation, spot)

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _unknown(self, name: str, spot: Spot) -> None:
        self._set(name, np.full(len(spot.cells), np.nan), [(name, place) for place in range(len(spot.cells))])

    def _set(self, name: str, constant: Floats, keys: Sequence[Any], factors: list[Fraction] | None = None) -> None:
        self.constant[name] = constant
        self.keys[name] = [self._number(key) for key in keys]
        self.factors[name] = factors or [Fraction(1)] * len(self.keys[name])

    def _layer(self, operation: Operation, spot: Spot) -> None:
        name, source, state = operation.node.name, operation.sources[0], self.state
        weight, bias = state.weight(operation), state.bias(operation)
        values = self.constant[source]
        spoilt = np.isnan(values) | (operation.padded & (values != 0))
        flat = weight.reshape(len(weight), weight.shape[1], -1)
        varies = flat[:, spoilt].any(axis=(1, 2))
        constant = bias + flat.sum(axis=2) @ np.where(spoilt, 0.0, values)
        rows = np.concatenate([weight.reshape(len(weight), -1), bias[:, None]], axis=1)
        keys, factors = _rays(rows)
        self._set(name, np.where(varies, np.nan, constant), [(name, key) for key in keys], factors)

    def _depthwise(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.node.name, operation.sources[0]
        weight, bias = self.state.weight(operation), self.state.bias(operation)
        values, flat = self.constant[source], weight.reshape(len(weight), -1)
        steady = ~np.isnan(values) & (~np.array(operation.padded) | (values == 0))
        silent = ~flat.any(axis=1)
        constant = np.where(steady | silent, bias + flat.sum(axis=1) * np.where(steady, values, 0.0), np.nan)
        rows = [row.tobytes() for row in np.concatenate([flat, bias[:, None]], axis=1) + 0.0]
        pairs = zip(self.keys[source], self.factors[source], rows, strict=True)
        self._set(name, constant, [(name, *pair) for pair in pairs])

    def _norm(self, operation: Operation, spot: Spot) -> None:
        name, source, arrays = operation.node.name, operation.sources[0], self.state.arrays
        mean, variance = (arrays[str(operation.tensors[role])] for role in ("mean", "variance"))
        gain, shift = (
            np.full(len(mean), default) if operation.tensors[role] is None else arrays[str(operation.tensors[role])]
            for role, default in (("weight", 1.0), ("bias", 0.0))
        )
        scale = gain / np.sqrt(variance + float(operation.node.args[-1 if len(operation.node.args) < 8 else 7]))
        steady = ~np.isnan(self.constant[source])
        inner = np.where(steady, self.constant[source], 0.0) - mean
        constant = np.where(steady | (gain == 0), np.where(steady, scale * inner, 0.0) + shift, np.nan)
        rays, factors = _rays(np.stack([gain, shift], axis=1))
        parts = zip(self.keys[source], self.factors[source], mean.tolist(), variance.tolist(), rays, strict=True)
        self._set(name, constant, [(name, *part) for part in parts], factors)

    def _copy(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.node.name, operation.sources[0]
        self._set(name, self.constant[source], [(name, key) for key in self.keys[source]], self.factors[source])

    def _same(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.node.name, operation.sources[0]
        constant = _applied(operation, self.constant[source])
        self._set(name, constant, [(name, key) for key in self.keys[source]], self.factors[source])

    def _bend(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.node.name, operation.sources[0]
        pairs = zip(self.keys[source], self.factors[source], strict=True)
        self._set(name, _applied(operation, self.constant[source]), [(name, *pair) for pair in pairs])

    def _pool(self, operation: Operation, spot: Spot) -> None:
        name, source = operation.node.name, operation.sources[0]
        values = self.constant[source]
        constant = np.where(values == 0, 0.0, np.nan) if operation.padded else values
        self._set(name, constant, [(name, key) for key in self.keys[source]], self.factors[source])

    def _flat(self, operation: Operation, spot: Spot) -> None:
        name, source, width = operation.node.name, operation.sources[0], operation.width
        keys = [(name, key, place) for key in self.keys[source] for place in range(width)]
        factors = [factor for factor in self.factors[source] for _ in range(width)]
        self._set(name, np.repeat(self.constant[source], width), keys, factors)

    def _cat(self, operation: Operation, spot: Spot) -> None:
        sources = operation.sources
        keys = [(operation.node.name, key) for source in sources for key in self.keys[source]]
        factors = [factor for source in sources for factor in self.factors[source]]
        self._set(operation.node.name, np.concatenate([self.constant[source] for source in sources]), keys, factors)

    def _add(self, operation: Operation, spot: Spot) -> None:
        name, (one, two) = operation.node.name, operation.sources
        parts = zip(self.keys[one], self.keys[two], self.factors[one], self.factors[two], strict=True)
        keys = [(name, first, second, other / own) for first, second, own, other in parts]
        self._set(name, self.constant[one] + self.constant[two], keys, self.factors[one])

    def _mul(self, operation: Operation, spot: Spot) -> None:
        name, (one, two) = operation.node.name, operation.sources
        keys = [(name, first, second) for first, second in zip(self.keys[one], self.keys[two], strict=True)]
        factors = [own * other for own, other in zip(self.factors[one], self.factors[two], strict=True)]
        first, second = self.constant[one], self.constant[two]
        zero = (first == 0) | (second == 0)
        self._set(name, np.where(zero, 0.0, first * second), keys, factors)


def _applied(operation: Operation, values: Floats) -> Floats:
    """An elementwise operation on constants, by the operation itself."""
    node: Any = operation.node
    result: torch.Tensor = node.target(torch.tensor(values), *node.args[1:], **node.kwargs)
    return result.numpy()


def _rays(rows: Floats) -> tuple[list[Any], list[Fraction]]:
    """For every row a key, equal only for rows that are exact positive multiples of each other, and its factor."""
    groups: dict[bytes, list[int]] = {}
    keys: list[Any] = []
    factors: list[Fraction] = []
    for place, row in enumerate(rows):
        size = float(np.abs(row).max(initial=0.0))
        if not size:
            keys.append(("zero",))
            factors.append(Fraction(1))
            continue
        leaders = groups.setdefault((row / size + 0.0).tobytes(), [])
        leader = next((other for other in leaders if _multiple(row, rows[other])), None)
        if leader is None:
            leaders.append(place)
        at = place if leader is None else leader
        keys.append(at)
        factors.append(Fraction(size) / Fraction(float(np.abs(rows[at]).max())))
    return keys, factors


def _multiple(row: Floats, leader: Floats) -> bool:
    """Whether one row is an exact positive multiple of another, as rational numbers."""
    at = int(np.argmax(np.abs(leader)))
    own, other = Fraction(float(row[at])), Fraction(float(leader[at]))
    mantissa_exact = own == other or (own / other).numerator & ((own / other).numerator - 1) == 0 == (
        (own / other).denominator & ((own / other).denominator - 1)
    )
    if mantissa_exact:  # a power of two: floats multiply exactly
        return bool((row == leader * float(own / other)).all())
    return all(Fraction(a) * other == Fraction(b) * own for a, b in zip(row.tolist(), leader.tolist(), strict=True))


@torch.no_grad()
def _shrink(module: nn.Module, state: _State) -> None:
    """Cut every tensor to the cells that are left, and let the layers know their sizes."""
    for operation in state.wiring.operations:
        if not operation.tensors:
            continue
        kept = {
            name: np.array([state.alive[int(cell)] for cell in state.wiring.spots[name].cells])
            for name in (operation.node.name, *operation.sources)
        }
        rows, columns = kept[operation.node.name], kept[operation.sources[0]]
        for role, place in operation.tensors.items():
            if place is not None and place in state.names:
                array = state.arrays[place][rows]
                _put(
                    module,
                    state.names[place],
                    array[:, columns] if operation.kind == "layer" and role == "weight" else array,
                )
        weight = operation.tensors.get("weight")
        if weight in state.added:
            owner = state.names[weight].rpartition(".")[0]
            _put(module, f"{owner}.bias" if owner else "bias", state.added[weight][rows])
    for part in module.modules():
        weight = getattr(part, "weight", None)
        if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            if part.groups == part.in_channels == part.out_channels:
                part.groups = len(part.weight)
            part.out_channels, part.in_channels = len(part.weight), part.weight.shape[1] * part.groups
        elif isinstance(part, nn.Linear):
            part.out_features, part.in_features = part.weight.shape
        elif isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)) and part.running_mean is not None:
            part.num_features = len(part.running_mean)


def _put(module: nn.Module, name: str, array: Floats) -> None:
    where, _, last = name.rpartition(".")
    owner = module.get_submodule(where)
    tensor = torch.as_tensor(np.ascontiguousarray(array))
    old = getattr(owner, last, None)
    if last in owner._buffers:
        setattr(owner, last, tensor)
    else:
        setattr(owner, last, nn.Parameter(tensor, requires_grad=True if old is None else old.requires_grad))


@torch.no_grad()
def _difference(one: nn.Module, two: nn.Module, examples: Sequence[torch.Tensor]) -> float:
    expected = _outputs(one(*examples))
    try:
        found = _outputs(two(*examples))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        lines = str(error).strip().splitlines() or [""]
        raise Unsupported(
            f"{type(one).__name__} fixes the sizes of its layers in its own code ({lines[0][:120]})"
        ) from None
    worst = 0.0
    for before, after in zip(expected, found, strict=True):
        scale = float(before.abs().max()) or 1.0
        gap = float((before - after).abs().max()) if before.shape == after.shape else np.inf
        if not gap <= COMPARED * scale:
            raise Unsupported(
                f"{type(one).__name__} computes something else than its graph shows: outputs differ by {gap:.2g}"
            )
        worst = max(worst, gap)
    return worst


def _outputs(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _outputs(part)]
