"""Which axes of a parameter are one space: how the program reads it says so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from lawful.program.index_map import IndexMap
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.symmetry.demands.gauges import Gauges
from lawful.symmetry.demands.labels import compact, on, varying
from lawful.symmetry.demands.motion import Shape, index_fields, move_labels

Users = Mapping[Node, Sequence[Node]]


def users_of(program: Program) -> dict[Node, list[Node]]:
    """The nodes that read each node, once for each operand; an output is read from outside and not counted."""
    users: dict[Node, list[Node]] = {node: [] for node in program.nodes}
    for node in program.nodes:
        for operand in node.inputs:
            users[operand].append(node)
    return users


@dataclass(frozen=True)
class Sides:
    """The axes of a parameter along the two sides of the matrix that it is read as, and those that number matrices."""

    matrix: frozenset[tuple[int, ...]]
    stack: tuple[int, ...]


def parameter_fields(gauges: Gauges, node: Node, users: Users) -> tuple[torch.Tensor, ...]:
    """One field for each axis. Convolutions with groups have one input space for each group, stacks of matrices one
    gauge for each matrix, and an axis of size 1 that is summed over or written has a scale of its own."""
    shape = node.shape
    readings = list(_readings(node, users))
    products = [(user, at) for user, _, at in readings if user.family is OperatorFamily.CONTRACTION]
    kernels = [user for user, at in products if "groups" in user.attributes and (at is None or at.shape == shape)]
    groups = max((int(user["groups"]) for user in kernels if user.inputs[1].shape == shape), default=1)
    if groups > 1:
        return _grouped_fields(gauges, shape, groups)
    if len(shape) > 2:
        sides = {_sides(user, place, at, shape, users) for user, place, at in readings}
        stacks = {side for side in sides if side is not None and side.stack}
        whole = next(iter(sides)) if len(sides) == 1 and not stacks else None
        if whole is not None:
            return tuple(
                on(axes, shape, gauges.fresh(math.prod(shape[axis] for axis in axes))) for axes in sorted(whole.matrix)
            )
        if len(stacks) == 1:
            return _stacked_fields(gauges, shape, stacks.pop())
    fields = [on([axis], shape, gauges.fresh(size)) for axis, size in enumerate(shape) if size > 1]
    ends = shape[:2] if any("groups" in user.attributes for user, _ in products) else shape
    if 1 in ends if products else not fields:
        fields.append(gauges.fresh(1).reshape((1,) * len(shape)).expand(shape))
    return tuple(fields)


def _readings(node: Node, users: Users) -> Iterator[tuple[Node, int, IndexMap | None]]:
    """What reads a parameter, as which operand, looking through a movement of it alone."""
    for user in dict.fromkeys(users[node]):
        moved = user.family is OperatorFamily.MOVEMENT and len(user.inputs) == 1
        for reader in dict.fromkeys(users[user]) if moved else (user,):
            for place, operand in enumerate(reader.inputs):
                if operand is (user if moved else node):
                    yield reader, place, user["map"] if moved else None


def _sides(user: Node, place: int, at: IndexMap | None, shape: Shape, users: Users) -> Sides | None:
    """The matrix that a reading takes a parameter for; None if it is none."""
    indices = list(index_fields(shape))
    if at is not None:
        indices = [compact(move_labels(index, at)) for index in indices]
    if user.family is OperatorFamily.LOOKUP and place == 0 and picks_matrices(user, users):
        product = users[user][0]
        place = product.inputs.index(user)
        user = product
    if "spec" not in user.attributes:
        return None
    operands, out = user["spec"].split("->")
    letters, other = operands.split(",")[place], operands.split(",")[1 - place]
    kinds: dict[str, list[int]] = {"stack": [], "inner": [], "outer": []}
    for d, letter in enumerate(letters):
        kind = "stack" if letter in other and letter in out else "inner" if letter in other else "outer"
        kinds[kind] += [axis for axis, index in enumerate(indices) if d in varying(index)]
    parts = [axis for axes in kinds.values() for axis in axes]
    if sorted(parts) != [axis for axis, size in enumerate(shape) if size > 1] or not kinds["inner"]:
        return None
    if not kinds["outer"]:
        return None
    matrix = frozenset((tuple(sorted(kinds["inner"])), tuple(sorted(kinds["outer"]))))
    return Sides(matrix, tuple(sorted(kinds["stack"])))


def picks_matrices(node: Node, users: Users) -> bool:
    """Whether data pick a matrix of a stack for each row of one value, and nothing else is done with the matrices."""
    table, index = node.inputs[:2]
    if node["axis"] != 0 or index.rank != 1 or table.rank != 3 or index.size < 2 * table.shape[0]:
        return False
    for user in users[node]:
        if "spec" not in user.attributes or user.inputs[0] is user.inputs[1]:
            return False
        place = user.inputs.index(node)
        operands, out = user["spec"].split("->")
        letters, other = operands.split(",")[place], operands.split(",")[1 - place]
        rows = user.inputs[1 - place]
        if letters[0] != other[0] or letters[0] not in out:
            return False
        if rows.family is OperatorFamily.LOOKUP and rows.inputs[0].family is OperatorFamily.LEAF:
            return False  # rows of a table, picked by data too
    return bool(users[node])


def _grouped_fields(gauges: Gauges, shape: Shape, groups: int) -> tuple[torch.Tensor, ...]:
    """Of a weight (o, i/g, ...) or, transposed, (i, o/g, ...): both channel spaces split into groups."""
    across, inside = shape[0] // groups, shape[1]
    fields = []
    for size, place in (((groups, across, 1), [1]), ((groups, 1, inside), [2])):
        labels = gauges.fresh(math.prod(size)).reshape(size)
        gauges.same(labels, labels, line=place)
        whole = labels.expand(groups, across, inside).reshape(*shape[:2], *(1,) * (len(shape) - 2))
        fields.append(compact(whole.expand(shape)))
    gauges.tie_heads(groups, fields, 0)
    return tuple(fields)


def _stacked_fields(gauges: Gauges, shape: Shape, sides: Sides) -> tuple[torch.Tensor, ...]:
    """Of a stack of matrices: a row space and a column space for each."""
    fields = []
    count = math.prod(shape[axis] for axis in sides.stack)
    for side in sorted(sides.matrix):
        axes = [*sides.stack, *side]
        labels = gauges.fresh(math.prod(shape[axis] for axis in axes)).reshape(count, -1)
        gauges.same(labels, labels, line=[1])
        order = sorted(range(len(axes)), key=lambda k: axes[k])
        fields.append(on(axes, shape, labels.reshape([shape[axis] for axis in axes]).permute(order)))
    rest = [axis for axis in range(len(shape)) if axis not in sides.stack]
    lead = [field.permute([*sides.stack, *rest]).reshape(count, *(shape[axis] for axis in rest)) for field in fields]
    gauges.tie_heads(count, [compact(field) for field in lead], 0)
    return tuple(fields)
