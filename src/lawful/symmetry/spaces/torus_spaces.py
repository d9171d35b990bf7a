"""All diagonal symmetries of a small module: one logarithm of a scale for each entry of each parameter.

Gauges (`demands/gauge_domain.py`) follow whole axes, and ask of a product of activations that it stands still. Here
every entry e of a parameter is multiplied by `exp t_e`, every entry of every value by `exp` of some t as well, and each
operator says which sums of these must agree: `z = Σ_c x_c y_c` scales if `t_x(c) + t_y(c)` is one number for all c.
What is not understood has t = 0. The solutions are all diagonal symmetries that these rules can see, among them the
free number of each head of an attention without softmax; what gauges do not have is added to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import connected_components

from lawful.program.arrays import NUMPY
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.index_map import IndexMap
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.symmetry.demands.contractions import SumLetters
from lawful.symmetry.demands.gauges import Relation
from lawful.symmetry.demands.labels import align, compact, on, squeeze_fields, varying
from lawful.symmetry.demands.motion import Shape, move_labels
from lawful.symmetry.laws.families import Axis, MatrixLaws, ScaleLaws
from lawful.symmetry.result import Space
from lawful.symmetry.solver.nullspace import Nullspace, independent_columns, nullspace
from lawful.types import Mask, Residues

MOST_ROWS = 500_000  # equations of one call


class Logarithms:
    """Labels of the logarithms, and what is demanded of them; label 0 is zero."""

    def __init__(self) -> None:
        self.count = 1
        self.equal: list[tuple[Residues, Residues]] = []
        self.relations: list[Relation] = []

    def fresh(self, count: int) -> torch.Tensor:
        """New labels."""
        self.count += count
        return torch.arange(self.count - count, self.count)

    def same(self, one: torch.Tensor, other: torch.Tensor) -> None:
        """Demand that labels have equal logarithms."""
        left, right = (part.reshape(-1).numpy() for part in squeeze_fields(one, other)[0])
        self.equal.append((left, right))

    def pin(self, labels: torch.Tensor) -> None:
        """Demand that labels do not move."""
        self.same(labels, torch.zeros((), dtype=torch.int64).expand(labels.shape))

    def level(self, labels: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """Demand that labels do not change along dimensions; returned with size 1 there."""
        for d in dims:
            first = labels.narrow(d, 0, 1)
            if d in varying(labels):
                self.same(labels, first.expand(labels.shape))
            labels = first
        return labels

    def total(
        self, one: torch.Tensor, other: torch.Tensor, factor: float = 1.0, summed: Sequence[int] = ()
    ) -> torch.Tensor:
        """Labels of `t_one + factor · t_other`, broadcast; along `summed` they must be one number, with size 1 then."""
        shape = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        (left, right), dimensions = squeeze_fields(one.expand(shape), other.expand(shape))
        if left.numel() > MOST_ROWS:
            raise MemoryError
        inside = [d for d in dimensions if d not in summed]
        size = int(np.prod([shape[d] for d in inside], dtype=int))
        result = on(inside, shape, self.fresh(size))
        wide = result
        for d in reversed(range(len(shape))):
            if d not in dimensions:
                wide = wide.select(d, 0)
        rows, first, second = (part.reshape(-1).numpy() for part in (wide.expand(left.shape), left, right))
        self.relations.append(Relation(rows, first, second, factor))
        for d in summed:
            result = result.narrow(d, 0, 1)
        return result

    def solve(self) -> tuple[Residues, Nullspace]:
        """The label that stands for each label, and all solutions."""
        left = np.concatenate([np.zeros(0, np.int64), *(pair[0] for pair in self.equal)])
        right = np.concatenate([np.zeros(0, np.int64), *(pair[1] for pair in self.equal)])
        graph = sparse.coo_array((np.ones(len(left), np.int8), (left, right)), shape=(self.count, self.count))
        component = connected_components(graph, directed=False)[1]
        first = np.full(int(component.max()) + 1, self.count, dtype=np.int64)
        np.minimum.at(first, component, np.arange(self.count))
        root = first[component]
        free = (root == np.arange(self.count)) & (root != 0)
        return root, nullspace(self.relations, root, np.ones(self.count, np.int64), free)


LARGEST = 20_000  # entries of all parameters


def torus_spaces(
    program: Program,
    shapes: Mapping[str, tuple[int, ...]],
    known: Sequence[Space],
    dead: Mapping[str, Mask],
) -> list[Space]:
    """Diagonal symmetries that the spaces already known do not have, for a module of few parameters."""
    if sum(int(np.prod(shape, dtype=int)) for shape in shapes.values()) > LARGEST or not _has_products(program):
        return []
    try:
        entries, torus = read_logarithms(program, shapes)
    except MemoryError:
        return []
    root, solutions = torus.solve()
    place = np.full(torus.count, -1)
    place[solutions.coordinates] = np.arange(len(solutions.coordinates))
    columns = np.concatenate([place[root[entries[name]]] for name in shapes])
    alive = ~np.concatenate(
        [np.broadcast_to(dead.get(name, False), shape).reshape(-1) for name, shape in shapes.items()]
    )
    moving = np.flatnonzero((columns >= 0) & alive)
    pick = sparse.csr_array(
        (np.ones(len(moving)), (moving, columns[moving])), shape=(len(columns), len(solutions.coordinates))
    )
    diagonals = (pick @ solutions.basis).tocsc()
    others = _diagonals(known, shapes, alive)
    basis = sparse.hstack([others, diagonals]).tocsc()
    new = [number - others.shape[1] for number in independent_columns(basis) if number >= others.shape[1]]
    return [_space(diagonals[:, [number]], shapes) for number in new]


def _space(column: sparse.csc_array, shapes: Mapping[str, tuple[int, ...]]) -> Space:
    weights = np.zeros(column.shape[0])
    weights[column.indices] = column.data
    axes, picked, used, start = [], [], [], 0
    for name, shape in shapes.items():
        size = int(np.prod(shape, dtype=int))
        here = np.flatnonzero(weights[start : start + size])
        if len(here):
            axes.append(Axis(name, tuple(range(len(shape)))))
            picked.append(here.astype(np.intp))
            used.append(weights[start + here])
        start += size
    laws = ScaleLaws(tuple(axes), tuple(picked), sparse.csr_array(np.concatenate(used)[None, :]), 1)
    return Space(axes[0].parameter, 1, "scales", 1, tuple(f"{axis.parameter} (entries)" for axis in axes), laws)


def _diagonals(known: Sequence[Space], shapes: Mapping[str, tuple[int, ...]], alive: Mask) -> sparse.csc_array:
    """The diagonal generators of spaces, entry by entry: of scales all, of GL(m) its m coordinates."""
    starts, before = {}, 0
    for name, shape in shapes.items():
        starts[name], before = before, before + int(np.prod(shape, dtype=int))
    rows, columns, data, count = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)], 0

    def places(axis: Axis) -> Residues:
        shape = shapes[axis.parameter]
        table = torch.arange(int(np.prod(shape, dtype=int)), dtype=torch.float64).reshape(shape)
        return np.asarray(axis.rows(table).numpy()).astype(np.int64) + starts[axis.parameter]

    for space in known:
        laws = space.laws
        if isinstance(laws, ScaleLaws):
            table = laws.weights.tocoo()
            lines = np.concatenate([np.empty((0, 2), int), *(
                np.stack([np.full(len(chosen), number), chosen], axis=1)
                for number, chosen in enumerate(laws.picked)
            )])  # fmt: skip
            at = [places(axis) for axis in laws.axes]
            for law, line, weight in zip(*table.coords, table.data, strict=True):
                entries = at[lines[line, 0]][lines[line, 1]]
                rows.append(entries)
                columns.append(np.full(len(entries), count + law))
                data.append(np.full(len(entries), weight))
            count += laws.weights.shape[0]
        elif isinstance(laws, MatrixLaws) and space.group.startswith("GL"):
            for member in laws.members:
                at_rows = places(member.axis)
                for copy in member.places:
                    for coordinate, row in enumerate(copy.tolist()):
                        rows.append(at_rows[row])
                        columns.append(np.full(at_rows.shape[1], count + coordinate))
                        data.append(np.full(at_rows.shape[1], float(member.sign)))
            count += laws.size
    row, column, value = np.concatenate(rows), np.concatenate(columns), np.concatenate(data)
    learned = alive[row]
    result = sparse.csc_array((value[learned], (row[learned], column[learned])), shape=(len(alive), count))
    result.sum_duplicates()
    result.eliminate_zeros()
    return result


def _has_products(program: Program) -> bool:
    """Whether two values that are no parameters are multiplied and summed."""
    return any("spec" in node.attributes and not any(map(_is_held, node.inputs)) for node in program.nodes)


def _is_held(node: Node) -> bool:
    """Whether a value is a leaf, or the entries of one in another order."""
    while node.family is OperatorFamily.MOVEMENT and len(node.inputs) == 1:
        (node,) = node.inputs
    return node.family is OperatorFamily.LEAF


def read_logarithms(program: Program, shapes: Mapping[str, Shape]) -> tuple[dict[str, Residues], Logarithms]:
    """The label of every entry of each parameter (0 if nothing reads it), and the equations that operators demand."""
    domain = TorusDomain(shapes)
    for value in interpret(program, domain).values():
        domain.torus.pin(value)
    return domain.entries, domain.torus


class TorusDomain(AbstractDomain[torch.Tensor]):
    """Labels of logarithms, entry by entry; label 0 stands still."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.torus = Logarithms()
        self.entries = {name: np.zeros(int(np.prod(shape, dtype=int)), np.int64) for name, shape in shapes.items()}

    def leaf(self, node: Node) -> torch.Tensor:
        """The entries of parameters that train; all else stands still."""
        if node.op != "parameter" or node["name"] not in self.entries:
            return _still(node.shape)
        labels = self.torus.fresh(node.size)
        self.entries[node["name"]] = labels.numpy()
        return labels.reshape(node.shape)

    def movement(self, node: Node, *sources: torch.Tensor) -> torch.Tensor:
        """Labels move like entries."""
        if len(sources) == 1:
            return compact(move_labels(sources[0], node["map"]))
        at = torch.from_numpy(np.ascontiguousarray(node["map"].positions)).reshape(node.shape)
        return compact(torch.cat([source.reshape(-1) for source in sources])[at])

    def addition(self, node: Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Both have one scale."""
        return self._homogeneous(node, x, y, degree=1.0)

    def product(self, node: Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Scales multiply: logarithms add up."""
        return self.torus.total(align(x, node.shape), align(y, node.shape))

    def contraction(self, node: Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """All products that are summed have one scale; convolutions are not followed."""
        if "spec" not in node.attributes:
            return self.opaque(node, x, y)
        letters = SumLetters(node["spec"], tuple(x.shape), tuple(y.shape))
        total = self.torus.total(letters.place(x, letters.x), letters.place(y, letters.y), summed=letters.line)
        return letters.result(total.reshape(letters.shape))

    def lookup(self, node: Node, *operands: torch.Tensor) -> torch.Tensor:
        """Nobody knows what is picked: one scale along the axis, so that any position shows where entries go."""
        if len(operands) > 2:  # what is written somewhere
            return self.opaque(node, *operands)
        table, index = operands
        self.torus.pin(index)
        where: Any = np.arange(node.inputs[0].size).reshape(node.inputs[0].shape)
        at = node.operator.meaning(NUMPY, node.attributes, where, np.zeros(node.inputs[1].shape, np.int64))
        level = self.torus.level(table, [int(node["axis"])]).expand(table.shape)
        return compact(move_labels(level, IndexMap.of(np.asarray(at))))

    def other(self, node: Node, *operands: torch.Tensor) -> torch.Tensor:
        """Functions by their degree in all real operands together; what has none sees every scale."""
        degree = node.traits.degree if node.traits.gradient else None
        if degree is not None and node.inputs:
            return self._homogeneous(node, *operands, degree=float(degree))
        return self.opaque(node, *operands)

    def opaque(self, node: Node, *operands: torch.Tensor) -> torch.Tensor:
        """A call that the table does not know sees every scale."""
        for operand in operands:
            self.torus.pin(operand)
        return _still(node.shape)

    def _homogeneous(self, node: Node, *operands: torch.Tensor, degree: float) -> torch.Tensor:
        """`f(s x) = s^degree f(x)`: the entries that make an entry of the result have one scale s.

        Along an axis of its own, f combines all of them. Conditions (truth values, integers) stand still.
        """
        axes = [*node.attributes.get("axes", ()), *([node["axis"]] if "axis" in node.attributes else [])]
        first: torch.Tensor | None = None
        for operand, source in zip(operands, node.inputs, strict=True):
            if source.kind != "f":
                self.torus.pin(operand)
                continue
            labels = self.torus.level(operand, [int(axis) for axis in axes])
            labels = align(labels, node.shape)
            if first is None:
                first = labels
            else:
                self.torus.same(first, labels)
        if first is None or degree == 0:
            return _still(node.shape)
        return first if degree == 1 else self.torus.total(_still(node.shape), first, degree)


def _still(shape: Shape) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64).expand(shape)
