"""A model whose blocks are not those of another, one by one: some gone, repeated, or in another order.

Tensors of blocks are named by the number of their block, as in `h.3.up.weight`. If B has A's tensors with other such
numbers, any choice of A's blocks is a checkpoint of B's architecture. Sketches of blocks tell which block of A each
block of B is, and the rest is about A with these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from lawful.checkpoints.align.align import search, shiftless
from lawful.checkpoints.align.lazy_tensors import folded_tensors
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.spaces import (
    AxisRows,
    GroupedUnits,
    HeadSpace,
    HiddenSpace,
    MatrixBlock,
    OrbitGroup,
    SpaceMove,
    UnitSpace,
    members_of,
)
from lawful.checkpoints.identity.sketch import NUMBERS, likeness, named_numbers
from lawful.checkpoints.opening import ApartPair, CheckpointPair, OpenCheckpoint
from lawful.checkpoints.relations.kinship import KeptBlock, KeptBlocks, Kinship, kinship
from lawful.checkpoints.relations.verdict import Lineage, trace_lineage
from lawful.checkpoints.rewrite.folds import State
from lawful.network import Mlp
from lawful.result import Shown
from lawful.types import Floats

# Networks of layers as tensors with the group that acts on them: nothing has to be traced.


def layer_group(network: Mlp) -> OrbitGroup:
    """Units of each hidden layer may be permuted and scaled (with a sign too, in a linear layer)."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        shapes[f"{layer}.weight"] = weight.shape
        if bias is not None:
            shapes[f"{layer}.bias"] = bias.shape
    spaces = []
    for layer, slope in enumerate(network.slopes):
        places = np.arange(len(network.weights[layer]))[:, None]
        members = [AxisRows(f"{layer}.weight", (0,), places, (1.0,))]
        if f"{layer}.bias" in shapes:
            members.append(AxisRows(f"{layer}.bias", (0,), places, (1.0,)))
        members.append(AxisRows(f"{layer + 1}.weight", (1,), places, (-1.0,)))
        spaces.append(UnitSpace(f"hidden layer {layer + 1}", len(places), tuple(members), 1, True, slope == 1))
    return OrbitGroup(tuple(spaces), (), shapes, 0)


def layer_tensors(network: Mlp) -> dict[str, torch.Tensor]:
    """Weights and biases under the names of the group."""
    tensors = {}
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        tensors[f"{layer}.weight"] = torch.tensor(weight)
        if bias is not None:
            tensors[f"{layer}.bias"] = torch.tensor(bias)
    return tensors


def trace_layers(first: Mlp, second: Mlp) -> Lineage:
    """The lineage of two networks with the same layers.

    >>> rng = np.random.default_rng(0)
    >>> one = Mlp([rng.normal(size=(24, 9)), rng.normal(size=(2, 24))])
    >>> near = Mlp([weight + 0.01 * rng.normal(size=weight.shape) for weight in one.weights])
    >>> other = Mlp([rng.normal(size=(24, 9)), rng.normal(size=(2, 24))])
    >>> trace_layers(one, near).found, trace_layers(one, other).found
    ('related', 'none')
    """
    return trace_lineage(layer_group(first), layer_tensors(first), layer_tensors(second))


# Two checkpoints of different architectures: in which sizes these differ, and how far apart what corresponds is.


@dataclass(frozen=True)
class OtherSize:
    """A hidden space or a tensor that has other sizes in A and in B."""

    name: str
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Correspondence(Shown):
    """Sizes that differ, tensors that only one has, and of those with one name and one size the distance as stored."""

    reason: str
    spaces: tuple[OtherSize, ...]
    tensors: tuple[OtherSize, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    common: tuple[tuple[str, float], ...]  # ‖B − A‖ relative to the larger of both


def corresponding(pair: ApartPair) -> Correspondence:
    """Compare by names, without alignment."""
    one, two = pair.first.state, pair.second.state
    sizes = [_sizes(architecture) for architecture in pair.architectures]
    common = []
    for name in one:
        if name in two and one[name].shape == two[name].shape and one[name].is_floating_point():
            left, right = one[name].double(), two[name].double()
            largest = max(float(left.norm()), float(right.norm()))
            common.append((name, float((left - right).norm()) / largest if largest else 0.0))
    return Correspondence(
        pair.reason,
        tuple(OtherSize(name, (size,), (sizes[1][name],)) for name, size in sizes[0].items()
              if sizes[1].get(name, size) != size),
        tuple(OtherSize(name, tuple(one[name].shape), tuple(two[name].shape)) for name in one
              if name in two and one[name].shape != two[name].shape),
        tuple(name for name in one if name not in two),
        tuple(name for name in two if name not in one),
        tuple(common),
    )  # fmt: skip


def _sizes(architecture: CheckpointArchitecture) -> dict[str, int]:
    return {space.name: _size(space) for space in architecture.group.spaces}


def _size(space: HiddenSpace) -> int:
    if isinstance(space, HeadSpace):
        return len(space.heads)
    return space.slots[0].size if isinstance(space, GroupedUnits) else space.size


BLOCK = re.compile(r"(.*?)\.(\d+)\.(.*)")
Inner = Mapping[str, tuple[tuple[str, AxisRows], ...]]


@dataclass(frozen=True, eq=False)
class BlockSketches:
    """What is needed to sketch the blocks of a container: its spaces, some of them shared with the rest."""

    architecture: CheckpointArchitecture
    container: str

    def within(self, tensor: str) -> bool:
        """Whether a tensor belongs to a block."""
        parts = BLOCK.fullmatch(tensor)
        return parts is not None and parts[1] == self.container

    def outer_moves(self, first: State, second: State) -> dict[int, SpaceMove]:
        """B's spaces outside of blocks, aligned to A's by the tensors outside of blocks."""
        group, folds = self.architecture.group, self.architecture.folds
        outside = {number: part for number, space in enumerate(group.spaces) if (part := self._outside(space))}
        shapes = {name: shape for name, shape in group.shapes.items() if not self.within(name)}
        shifts = tuple(laws for laws in group.shifts if not any(map(self.within, laws.parameters)))
        alone = OrbitGroup(tuple(outside.values()), shifts, shapes, 0)
        alignment = search(alone, *(folded_tensors(state, folds) for state in (first, second)))
        return {number: alignment.moves[place] for place, number in enumerate(outside)}

    def _outside(self, space: HiddenSpace) -> HiddenSpace | None:
        members = tuple(rows for rows in members_of(space) if not self.within(rows.tensor))
        whole = isinstance(space, (HeadSpace, GroupedUnits))
        if not members or (whole and len(members) < len(members_of(space))):
            return None
        return replace(space, members=members) if isinstance(space, (UnitSpace, MatrixBlock)) else space

    def inner(self, moves: Mapping[int, SpaceMove]) -> Inner:
        """Tensors of blocks with one axis in the spaces of that block, and nothing else that may move."""
        parts_by_tensor: dict[str, list[tuple[str, AxisRows]]] = {}
        places: dict[str, set[tuple[int, ...]]] = {}
        for number, space in enumerate(self.architecture.group.spaces):
            if number in moves:
                continue
            for block in _blocks(space):
                for rows in block.members:
                    parts_by_tensor.setdefault(rows.tensor, []).extend(_parts(block, rows))
                    places.setdefault(rows.tensor, set()).add(rows.dims)
        shapes = self.architecture.group.shapes
        return {name: tuple(parts) for name, parts in parts_by_tensor.items()
                if self.within(name) and len(places[name]) == 1
                and len(shapes[name]) > len(parts[0][1].dims)}  # fmt: skip

    def sketches(self, state: State, moves: Mapping[int, SpaceMove], inner: Inner, count: int) -> Floats:
        """For each of the blocks the sketches of its tensors, a row each."""
        group = self.architecture.group
        folded = shiftless(folded_tensors(state, self.architecture.folds), group.shifts)
        acting = frames(group, dict(moves)) if moves else {}
        kinds = sorted({BLOCK.fullmatch(name)[3] for name in inner})  # type: ignore[index]
        table = np.zeros((count, len(kinds), NUMBERS))
        for block in range(count):
            for number, kind in enumerate(kinds):
                name = f"{self.container}.{block}.{kind}"
                if name in inner:
                    tensor = move_tensors(
                        folded, {place: acting[place] for place in acting if place[0] == name}, [name]
                    )[name]
                    table[block, number] = sum(named_numbers(tensor.double(), *part, number) for part in inner[name])
        sizes = np.linalg.norm(table, axis=2, keepdims=True)
        return np.asarray(table / np.where(sizes > 0, sizes, 1.0))


def block_likeness(
    architecture: CheckpointArchitecture, container: str, firsts: Sequence[State], second: State, count: int
) -> Floats:
    """How alike each of the `count` blocks of B is to every block of A.

    A may have more blocks than the architecture: `firsts` are its checkpoints of that architecture, each with the next
    ones of its blocks.
    """
    blocks = BlockSketches(architecture, container)
    moves = blocks.outer_moves(firsts[0], second)
    inner = blocks.inner(moves)
    mine = blocks.sketches(second, moves, inner, count)
    theirs = np.concatenate([blocks.sketches(state, {}, inner, count) for state in firsts])
    mean = theirs.mean(0)
    return np.array([likeness(row, theirs, mean) for row in mine])


def _blocks(space: HiddenSpace) -> Sequence[UnitSpace | MatrixBlock]:
    if isinstance(space, HeadSpace):
        return [block for head in space.heads for block in head]
    return space.slots if isinstance(space, GroupedUnits) else [space]


def _parts(block: UnitSpace | MatrixBlock, rows: AxisRows) -> list[tuple[str, AxisRows]]:
    """What the sketch of some rows is the sum of: units, bases of each copy, pairs of rotary coordinates."""
    if isinstance(block, UnitSpace):
        return [("units", rows)]
    if block.kind == "rotary":
        return [("turned", replace(rows, places=copy[list(pair)][:, None]))
                for copy in rows.places.T for pair in block.pairs]  # fmt: skip
    return [(block.kind, replace(rows, places=copy[:, None])) for copy in rows.places.T]


def block_numbers(state: Mapping[str, torch.Tensor]) -> dict[str, set[int]]:
    """The containers of blocks, with the numbers that these have."""
    numbers: dict[str, set[int]] = {}
    for name in state:
        if (parts := BLOCK.fullmatch(name)) is not None:
            numbers.setdefault(parts[1], set()).add(int(parts[2]))
    return numbers


STRANGE = 0.5  # share of units whose partners agree, below which blocks may be others
# Likeness from which blocks are one, and how many times that of the second it has to be: that of unrelated blocks is 0,
# with a standard deviation of 1/8 for each tensor sketched (see sketch.py), and a block in doubt matches none.
ALIKE, BEHIND = 0.5, 2.0


def other_depth(pair: ApartPair, *, seed: int = 0) -> Kinship | None:
    """B's relation to A with the blocks that B has; None if they differ in anything else, or no block stands out."""
    container_sizes = _container(pair.first.state, pair.second.state)
    if container_sizes is None:
        return None
    container, count, count_in_b = container_sizes
    rounds = -(-count // count_in_b)
    choices = [[(start * count_in_b + place) % count for place in range(count_in_b)] for start in range(rounds)]
    states = [_chosen(pair.first, container, order).state for order in choices]
    alike = block_likeness(pair.architectures[1], container, states, pair.second.state, count_in_b)[:, :count]
    blocks = _match_blocks(alike)
    if blocks is None:
        return None
    near = CheckpointPair(
        pair.architectures[1], _chosen(pair.first, container, [block.of for block in blocks]), pair.second
    )
    return replace(kinship(near, seed=seed), kept=KeptBlocks(container, count, blocks))


def other_order(pair: CheckpointPair, known: Kinship, *, seed: int = 0) -> Kinship | None:
    """If B has A's blocks in another order (or some twice): the relation to A with its blocks like that."""
    strange = [agreement.space for agreement in known.agreements if agreement.share < STRANGE]
    first = pair.first.state
    for container, numbers in block_numbers(first).items():
        kinds = [_kinds(first, container, number) for number in sorted(numbers)]
        alike = numbers == set(range(len(numbers))) and all(shapes == kinds[0] for shapes in kinds)
        if not alike or len(numbers) < 2 or not any(name.startswith(f"{container}.") for name in strange):
            continue
        blocks = _match_blocks(block_likeness(pair.architecture, container, [first], pair.second.state, len(numbers)))
        if blocks is None or all(block.block == block.of for block in blocks):
            continue
        near = replace(pair, first=_chosen(pair.first, container, [block.of for block in blocks]))
        again = kinship(near, seed=seed)
        if again.relation == "copy" or (again.lineage is not None and again.lineage.found not in ("none", "undecided")):
            return replace(again, kept=KeptBlocks(container, len(numbers), blocks))
    return None


def _match_blocks(alike: Floats) -> tuple[KeptBlock, ...] | None:
    """For each block of B the one of A, if it stands out; distances are 1 − likeness."""
    blocks = []
    for block, row in enumerate(alike):
        order = np.argsort(-row, kind="stable")
        best, second = float(row[order[0]]), float(row[order[1]]) if len(order) > 1 else 0.0
        if best < ALIKE or best < BEHIND * second:
            return None
        blocks.append(KeptBlock(block, int(order[0]), 1 - best, 1 - second))
    return tuple(blocks)


def _kinds(state: Mapping[str, torch.Tensor], container: str, number: int) -> dict[str, torch.Size]:
    """The tensors of a block by their names in it."""
    within = f"{container}.{number}."
    return {name.removeprefix(within): tensor.shape for name, tensor in state.items() if name.startswith(within)}


def _container(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> tuple[str, int, int] | None:
    """What holds the blocks, and how many A and B have; None unless B is A with fewer or more of them."""
    one, two = block_numbers(first), block_numbers(second)
    other = [name for name in two if len(two[name]) != len(one.get(name, two[name]))]
    if len(other) != 1:
        return None
    (container,) = other
    sizes = [len(blocks[container]) for blocks in (one, two)]
    if any(blocks[container] != set(range(size)) for blocks, size in zip((one, two), sizes, strict=True)):
        return None
    shorter, longer = sorted((first, second), key=len)
    gone = tuple(f"{container}.{number}." for number in range(min(sizes), max(sizes)))
    left = {name: tensor.shape for name, tensor in longer.items() if not name.startswith(gone)}
    alike = left == {name: tensor.shape for name, tensor in shorter.items()}
    kinds = [_kinds(longer, container, number) for number in range(max(sizes))]
    return (container, sizes[0], sizes[1]) if alike and all(shapes == kinds[0] for shapes in kinds) else None


def _chosen(first: OpenCheckpoint, container: str, order: Sequence[int]) -> OpenCheckpoint:
    """A checkpoint with some of its blocks, in some order."""
    state: dict[str, torch.Tensor] = {}
    for name, tensor in first.state.items():
        parts = BLOCK.fullmatch(name)
        if parts is None or parts[1] != container:
            state[name] = tensor
        elif not int(parts[2]):
            state |= {f"{container}.{place}.{parts[3]}": first.state[f"{container}.{number}.{parts[3]}"]
                      for place, number in enumerate(order)}  # fmt: skip
    return replace(first, state=state, keys={name: name for name in state}, sources={}, stored=None)
