"""Layers of hidden channels in a module's symmetries: what writes them, what reads them, and what stands between.

A space of `lawful.symmetries` that scales (or mixes) channels which one layer writes and one other reads conserves
`Σ in² − Σ out²` of each channel. So whatever symmetries are read from (convolutions, norms, attention, skips), its
layers are known here; this file looks at no kind of layer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lawful.network.topology import groups_cut_off
from lawful.program.arrays import NUMPY
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.symmetry.laws.families import Axis, MatrixLaws, ScaleLaws
from lawful.symmetry.result import Space
from lawful.types import Floats, Indices

OTHERWISE = "training does not follow the gradient of what it computes"


@dataclass(frozen=True, eq=False)
class Joint:
    """A layer of hidden channels: what writes them, what reads them, and whether a kink stands between.

    `columns` are the channels that the entries of the reader's second axis belong to. `slope` is that of the activation
    for negative inputs (1 without one), None if it is no such number.
    """

    name: str
    reader: str
    below: Any  # a layer with a weight that has a row for each channel, and perhaps a bias
    above: Any
    columns: Indices
    units: int
    kinked: bool
    slope: float | None
    space: Space

    @property
    def parameters(self) -> set[str]:
        """Names of the parameters that its balances tie."""
        biases = {f"{self.name}.bias"} if self.below.bias is not None else set()
        return {f"{self.name}.weight", f"{self.reader}.weight"} | biases

    @torch.no_grad()
    def sides(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums of squares of the weights into and out of each channel."""
        weight, bias = self.below.weight, self.below.bias
        into = torch.linalg.vector_norm(weight.reshape(self.units, -1), dim=1, dtype=torch.float64).square()
        if bias is not None:
            into = into + bias.double().square()
        squares = self.above.weight.double().square()  # faster than a norm over a strided dimension
        readers = squares.sum([axis for axis in range(squares.ndim) if axis != 1])
        out = torch.zeros_like(into).index_add(0, torch.as_tensor(self.columns, device=into.device), readers)
        return into, out


@dataclass(frozen=True, eq=False)
class Parts:
    """The joints of a module, grouped into maximal chains of layers, and what is not understood, with the reason."""

    joints: tuple[Joint, ...]
    chains: tuple[tuple[str, ...], ...]
    ignored: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, model: nn.Module, joints: Iterable[Joint], reasons: dict[str, str], otherwise: str) -> Parts:
        """The chains of these joints; other layers with parameters have the reason given for them, or another."""
        all_joints = tuple(joints)
        chains = _chains(all_joints)
        inside = {name for chain in chains for name in chain}
        own_parameters = {name: list(part.parameters(recurse=False)) for name, part in model.named_modules()}
        left = []
        for name in (name for name, parameters in own_parameters.items() if parameters and name not in inside):
            frozen = not any(tensor.requires_grad for tensor in own_parameters[name])
            left.append((name, "frozen" if frozen else reasons.get(name, otherwise)))
        return cls(all_joints, chains, tuple(left))

    def __str__(self) -> str:
        lines = ["balances: " + " - ".join(chain) for chain in self.chains] or ["balances: none"]
        return "\n".join(lines + [f"no balances: {name or 'the module itself'} ({why})" for name, why in self.ignored])


def find_joints(model: nn.Module, spaces: Sequence[Space], program: Program, prefix: str = "") -> list[Joint]:
    """The spaces whose channels one layer writes and one other reads.

    Names in `spaces` and `program` begin with `prefix`, which those of the model do not have.
    """
    users = program.users
    joints = []
    for space in spaces:
        if (sides := _sides(space)) is None:
            continue
        written, read = sides
        name, reader = (rows.axis.parameter.removeprefix(prefix).rpartition(".")[0] for rows in sides)
        below, above = cast("Any", model.get_submodule(name)), cast("Any", model.get_submodule(reader))
        width = above.weight.shape[1] if above.weight.ndim > 1 else 0
        columns = read.channels if space.size > 1 else np.zeros(width, dtype=np.intp)
        if len(below.weight) != space.size or len(columns) != width or not width:
            continue  # one channel may be written and read by layers of other shapes
        between = _between(program, users, written.axis.parameter, read.axis.parameter)
        kinked = any(node.family is OperatorFamily.ELEMENTWISE and node.traits.kinks for node in between)
        slope = _negative_slope(between)
        joints.append(Joint(name, reader, below, above, columns, space.size, kinked, slope, space))
    return joints


class _Rows(NamedTuple):
    """Rows of a parameter, the channel that each belongs to, and the sign of their squares in its law (0: several)."""

    axis: Axis
    picked: Indices
    channels: Indices
    sign: float


def _sides(space: Space) -> tuple[_Rows, _Rows] | None:
    """Rows of the weight of one layer, which with its bias writes the channels, and columns of the one that reads."""
    laws = space.laws
    if isinstance(laws, MatrixLaws):
        order = np.arange(laws.size)
        every = [
            _Rows(member.axis, np.ravel(member.places), np.tile(order, len(member.places)), member.sign)
            for member in laws.members
        ]
    elif isinstance(laws, ScaleLaws) and laws.weights.shape[0] == space.size == laws.count:
        ends = np.cumsum([0, *map(len, laws.picked)])
        table = laws.weights.tocsc()
        if not (np.diff(table.indptr) == 1).all():  # some rows are in several laws, or in none
            return None
        every = [
            _Rows(axis, picked, table.indices[start:end], _common_sign(table.data[start:end]))
            for axis, picked, start, end in zip(laws.axes, laws.picked, ends[:-1], ends[1:], strict=True)
        ]
    else:
        return None
    if space.size == 1:  # one channel alone: its layers have no axis, but a sign
        written, read = ([rows for rows in every if rows.sign == side * every[0].sign] for side in (1, -1))
    else:
        written, read = ([rows for rows in every if rows.axis.dims == (axis,)] for axis in (0, 1))
    names, channels = {rows.axis.parameter for rows in written}, np.arange(space.size)
    layer = min(names, default="").rpartition(".")[0]
    plain = (
        len(read) == 1
        and len(written) + 1 == len(every)
        and names in ({f"{layer}.weight"}, {f"{layer}.weight", f"{layer}.bias"})
        and read[0].axis.parameter.endswith(".weight")
        and read[0].axis.parameter not in names
        and {rows.sign for rows in written} == {-read[0].sign} != {0.0}
        and all(rows.axis.centre is None for rows in every)
        and all(np.array_equal(part, channels) for rows in written for part in (rows.picked, rows.channels))
        and np.array_equal(np.sort(read[0].picked), np.arange(len(read[0].picked)))
    )
    if not plain:
        return None
    in_order = read[0]._replace(channels=read[0].channels[np.argsort(read[0].picked)])
    return next(rows for rows in written if rows.axis.parameter == f"{layer}.weight"), in_order


def _common_sign(shares: Floats) -> float:
    """1 or −1 if all shares are, else 0."""
    return float(shares[0]) if len(shares) and (shares == shares[0]).all() and abs(shares[0]) == 1 else 0.0


def _between(program: Program, users: dict[Node, list[Node]], writer: str, reader: str) -> list[Node]:
    """The nodes that depend on one parameter and not on the other."""
    parameters = program.parameters
    reached = []
    for name in (writer, reader):
        inside, waiting = set[Node](), [parameters[name]]
        while waiting:
            fresh = [user for user in users[waiting.pop()] if user not in inside]
            inside.update(fresh)
            waiting += fresh
        reached.append(inside)
    return [node for node in program.nodes if node in reached[0] and node not in reached[1]]


def _negative_slope(between: Sequence[Node]) -> float | None:
    """The slope for negative numbers of the activation that these nodes end with, if they do; noise counts as 1.

    The channels are written by the last node that reads anything but its own kind, constants and noise.
    """
    inside, values = set(between), dict[Node, Floats]()
    for node in between:
        outside = [operand for operand in node.inputs if operand not in inside and operand.op != "constant"]
        if any(not operand.traits.noise for operand in outside):
            values = {node: np.array([1.0, -1.0])}
        elif node.family is OperatorFamily.MOVEMENT and node.inputs[0] in values:
            values[node] = values[node.inputs[0]]
        elif node.family in (OperatorFamily.ELEMENTWISE, OperatorFamily.ADDITION, OperatorFamily.PRODUCT):
            operands = [values.get(operand, _number(operand)) for operand in node.inputs]
            if any(number is None for number in operands):
                return None
            values[node] = np.asarray(node.operator.meaning(NUMPY, node.attributes, *operands), dtype=np.float64)
        else:
            return None
    up, down = values[between[-1]] if between and between[-1] in values else (0.0, 0.0)
    return float(-down) + 0.0 if up == 1.0 else None


def _number(node: Node) -> Floats | None:
    """The value of a constant whose entries are all the same number."""
    if node.traits.noise:
        return np.ones(1)
    value = np.asarray(node["value"]).reshape(-1) if node.op == "constant" else np.zeros(0)
    return value[:1] if len(value) and (value == value[0]).all() else None


def _chains(joints: Collection[Joint]) -> tuple[tuple[str, ...], ...]:
    following = {joint.name: joint.reader for joint in joints}
    starts = [name for name in following if name not in following.values()]
    chains = []
    for name in starts:
        chain = [name]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        chains.append(tuple(chain))
    return tuple(chains)


def jacobian_rank(
    sides: Sequence[tuple[Joint, torch.Tensor, torch.Tensor]], chains: Sequence[tuple[str, ...]]
) -> int | None:
    """Sum of the ranks of the chains: hidden units less the groups cut off from inputs and outputs.

    If every unit has a nonzero weight into it, each is joined to the inputs, and the rank is full.
    """
    if not sides:
        return None
    by_name = {joint.name: (joint, into) for joint, into, _ in sides}
    return sum(_chain_rank([by_name[name] for name in chain[:-1]]) for chain in chains)


def _chain_rank(joints: Sequence[tuple[Joint, torch.Tensor]]) -> int:
    units = sum(joint.units for joint, _ in joints)
    if all(bool((into > 0).all()) for _, into in joints):
        return units
    rows, columns, start = [], [], 1  # node 0 is the inputs, outputs and constant, glued together
    for number, (joint, _) in enumerate(joints):
        weight = _nonzero(joint.below.weight).reshape(joint.units, -1)
        here = start + np.arange(joint.units)
        if number == 0:
            linked = np.flatnonzero(weight.any(axis=1))
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        else:
            below = joints[number - 1][0]
            entries = weight.reshape(joint.units, len(below.columns), -1)
            unit, column = np.nonzero(entries.any(axis=2))
            rows.append(here[unit])
            columns.append(start - below.units + below.columns[column])
        if joint.below.bias is not None:
            linked = np.flatnonzero(_nonzero(joint.below.bias))
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        if number == len(joints) - 1:
            weights = _nonzero(joint.above.weight)
            read = weights.reshape(len(weights), len(joint.columns), -1).any(axis=(0, 2))
            linked = np.unique(joint.columns[read])
            rows.append(here[linked])
            columns.append(np.zeros(len(linked), dtype=np.intp))
        start += joint.units
    left, right = np.concatenate(rows), np.concatenate(columns)
    return units - len(groups_cut_off(units, left, right))


def _nonzero(tensor: torch.Tensor) -> NDArray[np.bool_]:
    return np.asarray((tensor.detach() != 0).cpu())  # NumPy has no bfloat16
