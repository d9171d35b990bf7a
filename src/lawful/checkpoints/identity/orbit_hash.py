"""A hash that all members of an orbit share in exact arithmetic, and no other function of this architecture.

Scales that are powers of two are taken out by exponents, signs and order by colours that depend on the numbers alone
(each unit is coloured by the multiset of its weights and of the colours at their other ends, until colours split no
more). Of a pair on which a matrix acts (queries and keys, values and outputs) the products `PᵀN` are taken, as exact
residues modulo four primes; large ones are not multiplied out. Parameters that no output sees (biases of keys, tensors
that are never read) are left out; shifts of several numbers at once, which LayerNorm does not see, are named as not
covered. What is hashed in the end, by SHA-256, is the graph and the numbers in the order of the colours: so equal
hashes mean equal numbers, whatever the colours did.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from lawful.checkpoints.architecture import CheckpointArchitecture, check_numbers
from lawful.checkpoints.group.axis_actions import as_rows
from lawful.checkpoints.group.spaces import (
    AxisPlace,
    AxisRows,
    GroupedUnits,
    HeadSpace,
    HiddenSpace,
    MatrixBlock,
    OrbitGroup,
    UnitSpace,
    members_of,
)
from lawful.checkpoints.identity.colour_refinement import (
    ColouredNumbers,
    NodeAxis,
    NumberTable,
    ProductTable,
    times_modulo,
)
from lawful.checkpoints.rewrite.folds import State, StatisticsFold
from lawful.checkpoints.rewrite.same_program import signature, write_settings
from lawful.errors import Unsupported
from lawful.exact.field import to_residues
from lawful.symmetry.laws.families import SumLaws
from lawful.types import Floats


def take_out_scales(group: OrbitGroup, wide: dict[str, Floats]) -> None:
    """Multiply by powers of two until the largest weight into each unit is between 1/2 and 1.

    Space after space, from what is fixed: a tensor counts if its other axes are settled. A unit that shows nothing
    there is scaled by whatever it has when all others are done.
    """
    touching: dict[AxisPlace, set[int]] = defaultdict(set)
    for number, space in enumerate(group.spaces):
        if isinstance(space, UnitSpace) and space.scales:
            for rows in space.members:
                if any(rows.powers):
                    touching[rows.place].add(number)
    waiting = {number for numbers in touching.values() for number in numbers}
    moving = {rows.tensor for space in group.spaces if not isinstance(space, UnitSpace) for rows in members_of(space)}

    def usable(rows: AxisRows) -> bool:
        others = [place for place in touching if place[0] == rows.tensor and place != rows.place]
        return rows.tensor not in moving and not any(touching[place] & waiting for place in others)

    while waiting:
        number = max(sorted(waiting), key=lambda n: sum(
            usable(rows) for rows in group.spaces[n].members if any(rows.powers)))  # type: ignore[union-attr]  # fmt: skip
        space = group.spaces[number]
        if isinstance(space, UnitSpace):
            settled = np.zeros((space.size, space.scales), dtype=bool)
            for wanted in (usable, lambda rows: rows.tensor not in moving):
                _scale(space, wide, [rows for rows in space.members if wanted(rows)], settled)
        waiting.discard(number)


def _scale(space: UnitSpace, wide: dict[str, Floats], members: list[AxisRows], settled: NDArray[np.bool_]) -> None:
    for scale in range(space.scales):
        for rows in members:
            power = rows.powers[scale]
            if not power or settled[:, scale].all():
                continue
            flat = as_rows(torch.from_numpy(wide[rows.tensor]), rows.dims).abs().amax(1).numpy()
            largest = flat[rows.places].max(1)
            now = (largest > 0) & ~settled[:, scale]
            exponent = np.frexp(np.where(now, largest, 0.5))[1]
            steps = np.where(now, -np.floor_divide(exponent, power), 0.0)
            settled[:, scale] |= now
            for other in space.members:
                if other.powers[scale]:
                    _multiply(wide, other, np.ldexp(1.0, (steps * other.powers[scale]).astype(int)))


def _multiply(wide: dict[str, Floats], rows: AxisRows, factors: Floats) -> None:
    """In place: the numbers are a copy of the checkpoint's."""
    array = wide[rows.tensor]
    line = np.ones([array.shape[d] for d in rows.dims]).reshape(-1)
    line[rows.places] = factors[:, None]
    laid = line.reshape([array.shape[d] for d in rows.dims]).transpose(np.argsort(rows.dims))
    array *= laid.reshape([size if d in rows.dims else 1 for d, size in enumerate(array.shape)])


# The four largest primes below 2^23. A weight is a fraction with a power of two below, so products of different
# matrices agree modulo one prime with probability 2^-23 for each entry, and modulo all with 2^-92.
PRIMES = (8_388_593, 8_388_587, 8_388_581, 8_388_571)
VERSION = 2  # of what is hashed: 1 was the calls of a module, 2 is the program that all its spellings share
MOST = 3e9  # steps for the products of rotary pairs: a matter of time alone
WRITTEN_OUT = 2**22  # entries of the products of a pair of tensors up to which they are multiplied out


@dataclass(frozen=True)
class OrbitHash:
    """The hash, or why there is none; `ties` are spaces with units that the numbers do not tell apart.

    `dead` are tensors of which some numbers are left out, `shifted` those that may be shifted without any output seeing
    it: such members of the orbit have other hashes.
    """

    hash: str | None
    reason: str
    ties: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    shifted: tuple[str, ...] = ()


def orbit_hash(architecture: CheckpointArchitecture, state: State) -> OrbitHash:
    """Hash a checkpoint; the architecture has to be read with folding="statistics".

    >>> from lawful.checkpoints.read_architecture import read_architecture
    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> turned = {"0.weight": 4 * one[0].weight.flip(0), "0.bias": 4 * one[0].bias.flip(0),
    ...           "2.weight": one[2].weight.flip(1) / 4, "2.bias": one[2].bias}
    >>> found = read_architecture(one, (3,), folding="statistics")
    >>> orbit_hash(found, one.state_dict()) == orbit_hash(found, turned)
    True
    """
    check_numbers(state, "the checkpoint")
    if architecture.program is None:
        return OrbitHash(None, "what the module computes is not known call by call")
    loose, groups = _free_groups(architecture.group)
    group = _raw_group(replace(architecture, group=loose))
    turning = [space for space in group.spaces if isinstance(space, MatrixBlock) and space.kind.startswith("O")]
    if turning:
        words = f"rotations act on {turning[0].name}, and rounding moves every number: no exact hash is shared"
        return OrbitHash(None, f"{words}; `lawful fingerprint --index` keeps a sketch instead")
    cost = _cost(group)
    if cost > MOST:
        return OrbitHash(None, f"the products of its rotary pairs take {cost:.0e} steps, more than {MOST:.0e}")
    wide = {
        name: tensor.detach().double().numpy().copy() for name, tensor in state.items() if tensor.is_floating_point()
    }
    total = hashlib.sha256(f"{VERSION}\n{signature(architecture.program, names=False)}".encode())
    total.update(write_settings(architecture.module, state).encode())  # a window may be longer than the input is
    for name, shape in sorted((name, array.shape) for name, array in wide.items()):
        total.update(f"{name} {shape}\n".encode())
    if unread := _read_elsewhere(architecture):
        for name in sorted(wide):
            total.update((wide[name] + 0.0).tobytes())  # + 0.0 makes one number of 0 and -0
        words = f"all numbers where they are stored, for {', '.join(unread)[:200]} may read what symmetries would move"
        return OrbitHash(f"orbit:{total.hexdigest()[:32]}", words)
    dead, shifted = _leave_out_dead(architecture, wide)
    take_out_scales(group, wide)
    try:
        numbers = _relations(group, groups, wide)
        numbers.settle_signs()
        done = numbers.canonical()
    except Unsupported as error:
        return OrbitHash(None, str(error))
    if done is None:
        ties = tuple(numbers.tied_spaces())
        return OrbitHash(None, f"units of {', '.join(ties)[:200]} are not told apart by their weights", ties)
    total.update(done)
    words = "all numbers in a standard place"
    words += f"; left out, since no output sees them: numbers of {', '.join(dead)[:200]}" if dead else ""
    words += f"; not covered: shifts of {', '.join(shifted)[:200]}" if shifted else ""
    return OrbitHash(f"orbit:{total.hexdigest()[:32]}", words, (), dead, shifted)


def _read_elsewhere(architecture: CheckpointArchitecture) -> list[str]:
    """Parameters that the hashed tensor does not read, where the module returns others that may.

    Symmetries of the one are none of the others, so no number may be moved to a standard place.
    """
    if not architecture.returns_more or architecture.program is None:
        return []
    read = set(architecture.program.parameters)
    return [name for name, tensor in architecture.module.named_parameters() if name not in read and tensor.ndim]


def _leave_out_dead(
    architecture: CheckpointArchitecture, wide: dict[str, Floats]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Set to zero what nothing reads, and entries that may be anything; then the tensors with other shifts.

    Where the module returns more than the tensor that is hashed, that may read the rest: it counts as it stands.
    """
    program = architecture.program
    read = set(wide) if architecture.returns_more or program is None else {*program.parameters, *program.buffers}
    dead = {name: None for name in wide if name not in read}
    for name in dead:
        wide[name][:] = 0.0
    shifted: dict[str, None] = {}
    for laws in architecture.group.shifts:
        alone = isinstance(laws, SumLaws) and len(laws.axes) == 1 and wide[laws.axes[0].parameter].ndim == 1
        if isinstance(laws, SumLaws) and alone and bool((np.diff(laws.weights.indptr) == 1).all()):
            name = laws.axes[0].parameter
            wide[name][laws.picked[0][laws.weights.indices]] = 0.0
            dead[name] = None
        else:
            shifted.update(dict.fromkeys(laws.parameters))
    return tuple(dead), tuple(shifted)


Groups = list[tuple[GroupedUnits, int]]  # and the number of its first slot among all spaces


def _free_groups(group: OrbitGroup) -> tuple[OrbitGroup, Groups]:
    """Units in groups as units that may go anywhere; which group they belong to is a relation of its own."""
    spaces: list[HiddenSpace] = []
    groups: Groups = []
    for space in group.spaces:
        if isinstance(space, GroupedUnits):
            groups.append((space, len(spaces)))
            spaces += [replace(slot, permutes=True) for slot in space.slots]
        else:
            spaces.append(space)
    return replace(group, spaces=tuple(spaces)), groups


def _raw_group(architecture: CheckpointArchitecture) -> OrbitGroup:
    """The group on tensors as they are stored: BatchNorm's vectors move with their channels, and take the scales."""
    group = architecture.group
    for step in architecture.folds:
        if not isinstance(step, StatisticsFold):
            continue
        spaces = []
        for space in group.spaces:
            offsets = None
            if isinstance(space, UnitSpace):
                offsets = next((rows for rows in space.members if rows.place == (step.offset, (0,))), None)
            if offsets is not None and isinstance(space, UnitSpace):
                still = replace(offsets, powers=tuple(0.0 for _ in offsets.powers), odd=False)
                written = {} if step.writer is None else {
                    (step.writer.weight, (step.writer.axis,)): True, (str(step.writer.bias), (0,)): True
                }  # fmt: skip
                members = [
                    replace(rows, powers=still.powers, odd=False) if rows.place in written else rows
                    for rows in space.members
                ]
                members += [replace(offsets, tensor=step.gain)]
                members += [replace(still, tensor=name) for name in (step.mean, step.variance)]
                bias = step.writer.bias if step.writer else None
                if bias is not None and all(rows.tensor != bias for rows in members):
                    members.append(replace(still, tensor=bias))
                space = replace(space, members=tuple(members), signed=False)
            spaces.append(space)
        group = replace(group, spaces=tuple(spaces))
    return group


def _cost(group: OrbitGroup) -> float:
    total = 0.0
    for space in group.spaces:
        heads = space.heads if isinstance(space, HeadSpace) else ((space,),) if isinstance(space, MatrixBlock) else ()
        for block in (block for head in heads for block in head if block.kind == "rotary"):
            sides = [0, 0]
            for rows in block.members:
                columns = int(np.prod(group.shapes[rows.tensor])) // max(
                    int(np.prod([group.shapes[rows.tensor][d] for d in rows.dims])), 1
                )
                sides[rows.powers[0] < 0] += columns * rows.places.shape[1]
            total += float(block.size) * sides[0] * sides[1] * len(PRIMES)
    return total


# Relations


class _Axes:
    """The axes of tensors as nodes; those that nothing moves stand still."""

    def __init__(self, numbers: ColouredNumbers, wide: Mapping[str, Floats]) -> None:
        self.numbers, self.wide = numbers, wide
        self.axes_of: dict[str, dict[tuple[int, ...], NodeAxis]] = defaultdict(dict)
        self.signed: set[AxisPlace] = set()

    def at(self, name: str, dims: tuple[int, ...]) -> NodeAxis:
        """One axis; `Unsupported` if its dimensions are grouped in another way too."""
        axes = self.axes_of[name]
        if dims not in axes:
            if any(set(dims) & set(other) for other in axes):
                raise Unsupported(f"{name}: its axes are regrouped in two ways")
            count = int(np.prod([self.wide[name].shape[d] for d in dims], dtype=int))
            axes[dims] = self.numbers.axis(f"{name} {dims}", count)
        return axes[dims]

    def take(self, space: UnitSpace) -> NDArray[np.int64]:
        """The rows of a space belong to its units, the nodes that are returned."""
        nodes = self.numbers.nodes(space.name, space.size, space.permutes, space.signed)
        for rows in space.members:
            axis = self.at(rows.tensor, rows.dims)
            axis.nodes[rows.places] = nodes[:, None]
            axis.copies[rows.places] = np.arange(rows.places.shape[1])
            if rows.odd and space.signed:
                self.signed.add(rows.place)
        return nodes

    def relation(self, name: str) -> NumberTable:
        """A whole tensor."""
        array = self.wide[name]
        for d in range(array.ndim):
            if not any(d in dims for dims in self.axes_of[name]):
                self.at(name, (d,))
        order = sorted(self.axes_of[name])
        axes = [self.axes_of[name][dims] for dims in order]
        flat = np.transpose(array, [d for dims in order for d in dims]).reshape([len(axis.nodes) for axis in axes])
        return NumberTable(name, flat, axes, [(name, dims) in self.signed for dims in order])


def _relations(group: OrbitGroup, groups: Groups, wide: Mapping[str, Floats]) -> ColouredNumbers:
    """Every tensor as numbers between nodes: units, heads, and fixed places."""
    numbers = ColouredNumbers()
    axes = _Axes(numbers, wide)
    in_heads: dict[AxisPlace, NDArray[np.bool_]] = {}
    units: dict[int, NDArray[np.int64]] = {}
    for number, space in enumerate(group.spaces):
        if isinstance(space, UnitSpace):
            units[number] = axes.take(space)
            continue
        for rows in members_of(space):
            count = int(np.prod([wide[rows.tensor].shape[d] for d in rows.dims], dtype=int))
            in_heads.setdefault(rows.place, np.zeros(count, dtype=bool))[rows.places] = True
    for (name, _), mask in in_heads.items():
        if not mask.all():
            raise Unsupported(f"{name}: only some of its rows belong to heads")
    covered = {name for name, _ in in_heads}
    if len(covered) < len(in_heads):
        raise Unsupported("a tensor has heads along two of its axes")
    numbers.relations += [axes.relation(name) for name in wide if name not in covered]
    for space in group.spaces:
        if isinstance(space, HeadSpace):
            _head_relations(numbers, space.heads, space.copies, space.permutes, axes)
        elif isinstance(space, MatrixBlock):
            _head_relations(numbers, ((space,),), 1, False, axes)
    for whole, first in groups:
        _group_relations(numbers, whole, [units[first + number] for number in range(len(whole.slots))])
    return numbers


def _group_relations(numbers: ColouredNumbers, space: GroupedUnits, units: Sequence[NDArray[np.int64]]) -> None:
    """Which units belong to which group, in every slot; and to which place in it, if they have to stay there."""
    groups = numbers.nodes(f"groups of {space.name}", space.count, space.permutes, False)
    for number, (slot, nodes) in enumerate(zip(space.slots, units, strict=True)):
        size = slot.size // space.count
        tables = [("group", groups, np.repeat(np.eye(space.count), size, axis=1))]
        if not slot.permutes:
            places = numbers.nodes(f"places in groups of {space.name} {number}", size, False, False)
            tables.append(("place", places, np.tile(np.eye(size), space.count)))
        for word, others, table in tables:
            both = [NodeAxis(axis_nodes, np.zeros(len(axis_nodes), dtype=np.int64)) for axis_nodes in (others, nodes)]
            numbers.relations.append(NumberTable(f"{number} {word} of {space.name}", table, both, [False, False]))


def _head_relations(
    numbers: ColouredNumbers, heads: Sequence[tuple[MatrixBlock, ...]], copies: int, permutes: bool, axes: _Axes
) -> None:
    """For each query head the products of its pairs: its attention depends on nothing else."""
    count = len(heads) * copies
    nodes = NodeAxis(
        numbers.nodes(f"heads of {heads[0][0].name}", count, permutes, False), np.zeros(count, dtype=np.int64)
    )
    for slot, first in enumerate(heads[0]):
        for rows in first.members if first.kind == "still" else ():
            parts = [_rows_of(head[slot], rows, copy, copies, axes.wide) for head in heads for copy in range(copies)]
            inside, place = (
                numbers.axis(f"{slot} {rows.tensor} rows", first.size),
                (rows.tensor, _rest(rows, axes.wide)),
            )
            signed = [False, False, place in axes.signed]
            named = f"{slot} {rows.tensor}"
            numbers.relations.append(NumberTable(named, np.stack(parts), [nodes, inside, axes.at(*place)], signed))
        for one in (rows for rows in first.members if rows.powers[0] > 0):
            for two in (rows for rows in first.members if rows.powers[0] < 0):
                sides = [
                    [_rows_of(head[slot], rows, copy, copies, axes.wide) for head in heads for copy in range(copies)]
                    for rows in (one, two)
                ]
                places = [(rows.tensor, _rest(rows, axes.wide)) for rows in (one, two)]
                between = [nodes, *(axes.at(*place) for place in places)]
                signed = [False, *(place in axes.signed for place in places)]
                name = f"{slot} {one.tensor} {two.tensor}"
                widths = [part[0].shape[1] for part in sides]
                if first.kind == "GL" and count * widths[0] * widths[1] > WRITTEN_OUT and min(widths) >= first.size:
                    left, right = ([to_residues(np.stack(part), prime) for prime in PRIMES] for part in sides)
                    numbers.relations.append(ProductTable(name, left, right, PRIMES, between, signed))
                    continue
                table = np.stack([_product(first, *pair) for pair in zip(*sides, strict=True)])
                numbers.relations.append(NumberTable(name, table, between, signed, _moduli(first)))


def _rows_of(block: MatrixBlock, like: AxisRows, copy: int, copies: int, wide: Mapping[str, Floats]) -> Floats:
    rows = next(
        rows_of_block
        for rows_of_block in block.members
        if rows_of_block.place == like.place and rows_of_block.powers == like.powers
    )
    flat = as_rows(torch.from_numpy(wide[rows.tensor]), rows.dims).numpy()
    return np.asarray(flat[rows.places[:, copy if rows.places.shape[1] == copies else 0]])


def _rest(rows: AxisRows, wide: Mapping[str, Floats]) -> tuple[int, ...]:
    return tuple(d for d in range(wide[rows.tensor].ndim) if d not in rows.dims)


def _moduli(block: MatrixBlock) -> NDArray[np.int64]:
    return np.repeat(np.array(PRIMES, dtype=np.int64), 1 if block.kind == "GL" else 2 * len(block.pairs))


def _product(block: MatrixBlock, one: Floats, two: Floats) -> NDArray[np.int64]:
    """`PᵀN` modulo the primes; of rotary pairs the real and the imaginary part of each pair."""
    products = []
    for prime in PRIMES:
        left, right = (to_residues(part, prime).reshape(part.shape) for part in (one, two))
        if block.kind == "GL":
            products.append(times_modulo(left.T, right, prime))
            continue
        for a, b in block.pairs:
            products.append((np.outer(left[a], right[a]) + np.outer(left[b], right[b])) % prime)
            products.append((np.outer(left[b], right[a]) - np.outer(left[a], right[b])) % prime)
    return np.stack(products, -1)
