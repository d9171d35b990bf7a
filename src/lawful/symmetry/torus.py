"""All diagonal symmetries of a small module: one logarithm of a scale for each entry of each parameter.

Gauges (`reading.py`) follow whole axes, and ask of a product of activations that it stands still. Here every entry e of
a parameter is multiplied by `exp t_e`, every entry of every value by `exp` of some t as well, and each call says which
sums of these must agree: `z = Σ_c x_c y_c` scales if `t_x(c) + t_y(c)` is one number for all c. What is not understood
has t = 0. The solutions are all diagonal symmetries that these rules can see, among them the free number of each head
of an attention without softmax; what gauges do not have is added to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import connected_components
from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name
from lawful.symmetry.families import Axis, MatrixLaws, ScaleLaws
from lawful.symmetry.gauges import Relation
from lawful.symmetry.labels import compact, on, squeezed, varying
from lawful.symmetry.nullspace import Nullspace, independent, nullspace
from lawful.symmetry.result import Space
from lawful.types import Mask, Residues

LARGEST = 20_000  # entries of all parameters
MOST_ROWS = 500_000  # equations of one call

MOVES = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "permute",
         "transpose", "t", "numpy_T", "mT", "movedim", "slice", "select", "narrow", "flip", "roll", "repeat",
         "contiguous", "clone", "alias", "to", "_to_copy", "neg"}  # fmt: skip
PASSES = {"relu", "leaky_relu", "abs", "dropout"}  # positive scales pass, entry by entry


class _Torus:
    """Labels of the logarithms, and what is demanded of them; label 0 is zero."""

    def __init__(self) -> None:
        self.count = 1
        self.equal: list[tuple[Residues, Residues]] = []
        self.relations: list[Relation] = []

    def fresh(self, count: int) -> torch.Tensor:
        self.count += count
        return torch.arange(self.count - count, self.count)

    def same(self, one: torch.Tensor, other: torch.Tensor) -> None:
        left, right = (part.reshape(-1).numpy() for part in squeezed(one, other)[0])
        self.equal.append((left, right))

    def pin(self, labels: torch.Tensor) -> None:
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
        self, one: torch.Tensor, other: torch.Tensor, factor: float = 1.0, summed: int | None = None
    ) -> torch.Tensor:
        """Labels of `t_one + factor · t_other`, broadcast; along `summed` they must be one number."""
        shape = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        (left, right), kept = squeezed(one.expand(shape), other.expand(shape))
        if left.numel() > MOST_ROWS:
            raise MemoryError
        inside = [d for d in kept if d != summed]
        size = int(np.prod([shape[d] for d in inside], dtype=int))
        result = on(inside, shape, self.fresh(size))
        wide = result
        for d in reversed(range(len(shape))):
            if d not in kept:
                wide = wide.select(d, 0)
        rows, first, second = (part.reshape(-1).numpy() for part in (wide.expand(left.shape), left, right))
        self.relations.append(Relation(rows, first, second, factor))
        return result if summed is None else result.narrow(summed, 0, 1)

    def solved(self) -> tuple[Residues, Nullspace]:
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


def torus_spaces(
    exported: ExportedModule,
    shapes: Mapping[str, tuple[int, ...]],
    known: Sequence[Space],
    dead: Mapping[str, Mask],
) -> list[Space]:
    """Diagonal symmetries that the spaces already known do not have, for a module of few parameters."""
    if sum(int(np.prod(shape, dtype=int)) for shape in shapes.values()) > LARGEST or not _has_products(exported):
        return []
    try:
        entries, torus = _read(exported, shapes)
    except MemoryError:
        return []
    root, solutions = torus.solved()
    place = np.full(torus.count, -1)
    place[solutions.coordinates] = np.arange(len(solutions.coordinates))
    columns = np.concatenate([place[root[entries[name]]] for name in shapes])
    alive = ~np.concatenate(
        [np.broadcast_to(dead.get(name, False), shape).reshape(-1) for name, shape in shapes.items()]
    )
    kept = np.flatnonzero((columns >= 0) & alive)
    pick = sparse.csr_array(
        (np.ones(len(kept)), (kept, columns[kept])), shape=(len(columns), len(solutions.coordinates))
    )
    own = (pick @ solutions.basis).tocsc()
    others = _diagonals(known, shapes, alive)
    basis = sparse.hstack([others, own]).tocsc()
    new = [number - others.shape[1] for number in independent(basis) if number >= others.shape[1]]
    return [_space(own[:, [number]], shapes) for number in new]


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
    kept = alive[row]
    found = sparse.csc_array((value[kept], (row[kept], column[kept])), shape=(len(alive), count))
    found.sum_duplicates()
    found.eliminate_zeros()
    return found


def _has_products(exported: ExportedModule) -> bool:
    """Whether two values that are no parameters are multiplied and summed."""
    held = {node.name for node in exported.graph.nodes if node.op == "placeholder"}
    return any(
        operator_name(call.target) in ("matmul", "bmm")
        and all(each.name not in held for each in call.all_input_nodes[:2])
        for call in exported.calls
    )


def _read(exported: ExportedModule, shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, Residues], _Torus]:
    torus = _Torus()
    values: dict[fx.Node, Any] = {}
    entries: dict[str, Residues] = {
        name: np.zeros(int(np.prod(shape, dtype=int)), np.int64) for name, shape in shapes.items()
    }
    for node in exported.graph.nodes:
        shape = _shape(node)
        if node.op == "placeholder" and node.name in exported.trained and exported.names[node.name] in shapes:
            labels = torus.fresh(int(np.prod(shape, dtype=int)))
            entries[exported.names[node.name]] = labels.numpy()
            values[node] = labels.reshape(shape)
        elif node.op == "call_function":
            values[node] = _call(torus, node, values)
        elif node.op == "output":
            for each in node.all_input_nodes:
                _pin(torus, values[each])
        else:
            values[node] = _still(shape)
    return entries, torus


def _call(torus: _Torus, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    name = operator_name(node.target)
    if name == "getitem":
        return values[node.args[0]][node.args[1]]  # type: ignore[index]
    rule = RULES.get(name)
    given = [values[each] for each in node.all_input_nodes]
    named = name == "scaled_dot_product_attention" or not node.kwargs  # options by name are not read
    if rule is not None and named and all(isinstance(each, torch.Tensor) for each in given):
        arguments = fx.map_arg(node.args, lambda each: values[each])
        try:
            result = rule(torus, node, *arguments)
            if tuple(result.shape) == _shape(node):
                return result
            torus.pin(result)
        except (TypeError, RuntimeError, IndexError, ValueError):
            pass
    for each in given:
        _pin(torus, each)
    found = node.meta.get("val")
    if isinstance(found, (tuple, list)):
        return tuple(_still(tuple(part.shape)) for part in found if isinstance(part, torch.Tensor))
    return _still(_shape(node))


def _pin(torus: _Torus, value: Any) -> None:
    for part in value if isinstance(value, tuple) else (value,):
        torus.pin(part)


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(int(size) for size in value.shape) if isinstance(value, torch.Tensor) else ()


def _still(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64).expand(shape)


# Rules: labels of the result from those of the arguments


def _moved(torus: _Torus, node: fx.Node, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    name = operator_name(node.target)
    if name in ("to", "_to_copy", "contiguous", "clone", "alias", "neg"):
        return x
    if name in ("view", "reshape", "_unsafe_view", "expand"):
        return compact(x.reshape(_shape(node)) if name != "expand" else x.expand(_shape(node)))
    return compact(node.target(x, *rest))  # type: ignore[operator]


def _same(torus: _Torus, node: fx.Node, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return x


def _sum(torus: _Torus, node: fx.Node, x: Any, y: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        raise TypeError("a number stands still")
    shape = _shape(node)
    torus.same(x.expand(shape), y.expand(shape))
    return x.expand(shape)


def _product(torus: _Torus, node: fx.Node, x: Any, y: Any) -> torch.Tensor:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        found: torch.Tensor = x if isinstance(x, torch.Tensor) else y
        return found
    return torus.total(x, y, -1.0 if operator_name(node.target) == "div" else 1.0)


def _power(torus: _Torus, node: fx.Node, x: torch.Tensor, exponent: float) -> torch.Tensor:
    return torus.total(_still(tuple(x.shape)), x, float(exponent))


def _matmul(torus: _Torus, node: fx.Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2 or y.dim() < 2:
        raise TypeError("vectors are not followed")
    wide = torus.total(x.unsqueeze(-1), y.unsqueeze(-3), summed=max(x.dim(), y.dim()) - 1)
    return wide.squeeze(-2)


def _linear(
    torus: _Torus, node: fx.Node, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    found = _matmul(torus, node, x, weight.transpose(-1, -2))
    if bias is not None:
        torus.same(found, bias.expand(found.shape))
    return found


def _embedding(torus: _Torus, node: fx.Node, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torus.level(weight, [0])[0].expand(_shape(node))


def _mean(torus: _Torus, node: fx.Node, x: torch.Tensor, dims: Sequence[int], *rest: Any) -> torch.Tensor:
    return torus.level(x, [d % x.dim() for d in dims]).reshape(_shape(node))


def _softmax(torus: _Torus, node: fx.Node, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    torus.pin(x)
    return _still(_shape(node))


def _normalised(torus: _Torus, node: fx.Node, x: torch.Tensor, size: Any, *rest: Any) -> torch.Tensor:
    """Norms of the last dimensions: the input stands still, gain and bias move alike."""
    torus.pin(x)
    gains = [part for part in rest if isinstance(part, torch.Tensor)]
    for other in gains[1:]:
        torus.same(gains[0], other)
    return gains[0].expand(_shape(node)) if gains and len(gains) == len(rest[:2]) else _softly(torus, node, gains)


def _softly(torus: _Torus, node: fx.Node, gains: Sequence[torch.Tensor]) -> torch.Tensor:
    if operator_name(node.target) == "rms_norm" and gains:
        return gains[0].expand(_shape(node))
    for each in gains:
        torus.pin(each)
    return _still(_shape(node))


def _attention(
    torus: _Torus, node: fx.Node, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> torch.Tensor:
    if any(isinstance(each, torch.Tensor) for each in rest) or node.kwargs.get("enable_gqa"):
        raise TypeError("masks and grouped heads are not followed")
    torus.pin(torus.total(q.unsqueeze(-2), k.unsqueeze(-3), summed=q.dim()).squeeze(-1))
    return torus.level(v, [v.dim() - 2]).expand(_shape(node))


Rule = Callable[..., torch.Tensor]
RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(PASSES, _same),
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "div": _product,
    "pow": _power,
    "matmul": _matmul,
    "bmm": _matmul,
    "linear": _linear,
    "embedding": _embedding,
    "mean": _mean,
    "softmax": _softmax,
    "layer_norm": _normalised,
    "rms_norm": _normalised,
    "scaled_dot_product_attention": _attention,
}
