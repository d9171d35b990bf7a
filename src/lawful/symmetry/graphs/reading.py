"""Follow a module's exported graph, one rule for each call, and collect what the calls demand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx

from lawful.program.frontends.export import ExportedModule, operator_name
from lawful.symmetry.gauges import Gauges
from lawful.symmetry.graphs.motion import GraphMotion, Shape, Step, index_fields
from lawful.symmetry.graphs.patterns import (
    blind_calls,
    centrings,
    score_tables,
    shapes_of,
    skips_of,
    written_attentions,
)
from lawful.symmetry.graphs.rules import KEEPS_SQUARES, RULES
from lawful.symmetry.graphs.rules.arithmetic import homogeneous
from lawful.symmetry.graphs.rules.attention import note_heads
from lawful.symmetry.graphs.uses import CONVOLUTIONS, PRODUCTS, STACKED, groups_of, matrix_sides, uses_of
from lawful.symmetry.labels import compact, on, varying
from lawful.symmetry.reading import Demands
from lawful.symmetry.shifts import Shifts

PASSES_CONSTANTS = {"add", "sub", "linear", "addmm", "to", "_to_copy", "contiguous", "clone", "alias"} | (
    set(CONVOLUTIONS)
)  # f(x) + c = f(x + c) for what is added to a bias or next to it
RUNS_ANYWAY = {"getitem", "embedding", "layer_norm", "zeros", "zeros_like", "new_zeros"}  # though nothing moves
KNOWN = 4_000_000  # entries of a constant that is worked out while reading


def read_graph(
    exported: ExportedModule, frozen: Iterable[str] = (), *, centred: bool = False, means: bool = False
) -> Demands:
    """Go through the graph once; parameters in `frozen` do not train and count as constants.

    If `centred`, a skip around a bare linear map or gain, `x + Ax`, is read as one map: its gauges act on `I + A`.
    `means` asks for what acts on the mean of a space alone.
    """
    reader = _Reader(exported, frozenset(frozen), Gauges(means=means))
    if centred:
        reader.skips = dict(skips_of(exported, reader.frozen))
        reader.inside = set(reader.skips.values())
    last = reader.last_uses()
    for node in exported.graph.nodes:
        reader.visit(node)
        for each in last.get(node, ()):  # labels of long sequences take room
            del reader.values[each]
    unused = tuple(
        exported.names[node.name] for node in exported.graph.nodes
        if node.op == "placeholder" and node.name in exported.trained and reader.unseen(node)
        and exported.names[node.name] not in reader.frozen
    )  # fmt: skip
    return Demands(reader.gauges, reader.shifts, reader.shapes, reader.fields, unused, reader.unknown)


class _Reader:
    def __init__(self, exported: ExportedModule, frozen: frozenset[str], gauges: Gauges) -> None:
        self.exported, self.frozen = exported, frozen
        self.gauges, self.shifts = gauges, Shifts()
        self.shapes: dict[str, Shape] = {}
        self.fields: dict[str, tuple[torch.Tensor, ...]] = {}
        self.unknown: dict[str, int] = {}
        self.values: dict[fx.Node, Any] = {}
        self.skips: dict[fx.Node, fx.Node] = {}  # a sum x + Ax, and the call that makes Ax
        self.inside: set[fx.Node] = set()  # those calls
        self.blind = blind_calls(exported)
        self.centred = dict(centrings(exported))
        self.scores = dict(written_attentions(exported))  # the product that makes them, and the one that reads them
        self.asked: dict[
            fx.Node, tuple[GraphMotion, GraphMotion]
        ] = {}  # queries and keys, by the product that reads scores

    def last_uses(self) -> dict[fx.Node, list[fx.Node]]:
        """For each call the values that nothing reads after it."""
        found: dict[fx.Node, list[fx.Node]] = {}
        seen: set[fx.Node] = set()
        for node in reversed(self.exported.graph.nodes):
            product = self.skips.get(node)
            for each in (*node.all_input_nodes, *(() if product is None else product.all_input_nodes)):
                if each not in seen:
                    seen.add(each)
                    found.setdefault(node, []).append(each)
        return found

    def unseen(self, node: fx.Node) -> bool:
        """Whether training never moves a parameter: nothing reads it, or only what is detached."""
        return all(user in self.blind or operator_name(user.target) == "detach" for user in node.users)

    def visit(self, node: fx.Node) -> None:
        """One node of the graph, after those it depends on."""
        if node.op == "placeholder":
            self.values[node] = self._placeholder(node)
        elif node in self.blind:
            self.values[node] = self._taken_for_data(node)
        elif node in self.centred:
            self.values[node] = self._centred(node, *self.centred[node])
        elif node in self.inside:
            self.values[node] = GraphMotion(shapes_of(node)[0])  # read with the sum around it
        elif node in self.skips:
            self.values[node] = self._skip(self.skips[node])
        elif node.op == "call_function":
            known = len(self.gauges.attentions)
            if node in self.scores or node in self.asked:
                self._note_attention(node)
            self.values[node] = self._call(node)
            self._note_tables(node, known)
        elif node.op == "output":
            step = self._step(node, "output", node.target, ())
            step.pin(*(self._resolved(step, self.values[each]) for each in node.all_input_nodes))
        else:
            self.values[node] = GraphMotion(shapes_of(node)[0] if shapes_of(node) else (), steady=True)

    def _placeholder(self, node: fx.Node) -> GraphMotion:
        shape = (shapes_of(node) or ((),))[0]
        name = self.exported.names.get(node.name)
        if name is None or node.name not in self.exported.trained or name in self.frozen:
            tensor = self.exported.tensors.get(node.name)
            small = tensor is not None and tensor.device.type != "meta" and tensor.numel() <= KNOWN
            return GraphMotion(
                shape, steady=tensor is not None, known=tensor.detach() if small and tensor is not None else None
            )
        if self.unseen(node):
            return GraphMotion(shape)
        self.shapes[name] = shape
        self.fields[name] = self._parameter_fields(node, shape)
        alone = len(node.users) == 1 and len(self.fields[name]) == 1
        absorber = name if alone else None
        return GraphMotion(shape, self.fields[name], raw=name, indices=index_fields(shape), absorber=absorber)

    def _parameter_fields(self, node: fx.Node, shape: Shape) -> tuple[torch.Tensor, ...]:
        """One field for each axis. Convolutions with groups have one input space for each group, stacks of matrices
        one gauge for each matrix, and an axis of size 1 that is summed over or written has a scale of its own."""
        uses = set(uses_of(node))
        groups = groups_of(node, shape)
        if groups > 1:
            return self._grouped_fields(shape, groups)
        sides = matrix_sides(node, shape) if len(shape) > 2 else None
        if sides is not None:
            return tuple(on(axes, shape, self.gauges.fresh(math.prod(shape[axis] for axis in axes))) for axes in sides)
        if len(shape) > 2 and uses & STACKED:
            return self._stacked_fields(shape)
        found = [on([axis], shape, self.gauges.fresh(size)) for axis, size in enumerate(shape) if size > 1]
        ends = shape[:2] if uses & set(CONVOLUTIONS) else shape
        if 1 in ends if uses & PRODUCTS else not found:
            found.append(self.gauges.fresh(1).reshape((1,) * len(shape)).expand(shape))
        return tuple(found)

    def _grouped_fields(self, shape: Shape, groups: int) -> tuple[torch.Tensor, ...]:
        """Of a weight (o, i/g, ...) or, transposed, (i, o/g, ...): both channel spaces split into groups."""
        across, inside = shape[0] // groups, shape[1]
        found = []
        for size, place in (((groups, across, 1), [1]), ((groups, 1, inside), [2])):
            labels = self.gauges.fresh(math.prod(size)).reshape(size)
            self.gauges.same(labels, labels, line=place)
            whole = labels.expand(groups, across, inside).reshape(*shape[:2], *(1,) * (len(shape) - 2))
            found.append(compact(whole.expand(shape)))
        self.gauges.tie_heads(groups, found, 0)
        return tuple(found)

    def _stacked_fields(self, shape: Shape) -> tuple[torch.Tensor, ...]:
        """Of a stack of matrices: a row space and a column space for each."""
        found = []
        for axis in (-2, -1):
            labels = self.gauges.fresh(math.prod(shape[:-2]) * shape[axis]).reshape(-1, shape[axis])
            self.gauges.same(labels, labels, line=[1])
            found.append(labels.reshape(*shape[:-2], shape[axis]).unsqueeze(-3 - axis).expand(shape))
        count = math.prod(shape[:-2])
        self.gauges.tie_heads(count, [field.reshape(count, *shape[-2:]) for field in found], 0)
        return tuple(found)

    def _step(self, node: fx.Node, name: str, target: Any, shapes: tuple[Shape, ...]) -> Step:
        shape = shapes[0] if shapes else ()
        return Step(name, shape, shapes, target, self.gauges, self.shifts, self.shapes)

    def _call(self, node: fx.Node) -> Any:
        name = operator_name(node.target).removesuffix("_default")
        step = self._step(node, name, node.target, shapes_of(node))
        values = [self.values[each] for each in node.all_input_nodes]
        known = self._worked_out(node)
        if known is not None:
            return known
        rule = RULES.get(name)
        moving = any(_moves(value) for value in values)
        if not moving and name not in RUNS_ANYWAY:
            steady = all(isinstance(value, GraphMotion) and value.steady for value in values) and not _by_chance(node)
            kept = any(isinstance(value, GraphMotion) and value.zero for value in values) and rule is not None
            if not kept:
                parts = tuple(GraphMotion(shape, steady=steady) for shape in step.shapes)
                return parts[0] if len(parts) == 1 and not _several(node) else parts
        if rule is None:
            return self._not_understood(node, step)
        open_squares = name in KEEPS_SQUARES
        arguments = fx.map_arg(node.args, lambda each: self._given(step, each, open_squares))
        options = fx.map_arg(node.kwargs, lambda each: self._given(step, each, open_squares))
        try:
            result = rule(step, *arguments, **options)
        except (TypeError, ValueError, RuntimeError, IndexError, AssertionError):
            return self._not_understood(node, step)
        if not isinstance(result, GraphMotion):
            return result
        passes = name in PASSES_CONSTANTS and len(node.users) == 1
        return replace(result, known=None, absorber=result.absorber if passes else None)

    def _note_attention(self, node: fx.Node) -> None:
        """Remember the heads of an attention that is written out, once its values are met."""
        step = self._step(node, "attention", node.target, shapes_of(node))
        given = [self.values[each] for each in node.args[-2:] if isinstance(each, fx.Node)]
        if len(given) != 2 or not all(isinstance(each, GraphMotion) for each in given):
            return
        one, two = (step.settled(self._resolved(step, each)) for each in given)
        if node in self.scores:
            self.asked[self.scores[node]] = one, two.turned() if len(two.shape) > 1 else two
        else:
            note_heads(step, *self.asked[node], two)

    def _note_tables(self, node: fx.Node, known: int) -> None:
        """Remember what is added to the scores of the attentions that were met after the first so many."""
        for place in range(known, len(self.gauges.attentions)):
            tables = tuple(score_tables(self.exported, node))
            self.gauges.attentions[place] = self.gauges.attentions[place]._replace(tables=tables)

    def _skip(self, product: fx.Node) -> Any:
        """`x + Ax = (I + A)x`, or `x + gx = (1 + g)x`: a map about a centre."""
        weight = next(each for each in product.all_input_nodes if each.name in self.exported.trained)
        linear = operator_name(product.target) == "linear"
        self.gauges.recentre(self.exported.names[weight.name], np.eye(shapes_of(weight)[0][0]) if linear else 1.0)
        return replace(self._call(product), absorber=None)

    def _taken_for_data(self, node: fx.Node) -> Any:
        """A call that training only sees detached: it asks nothing of gauges, but it tells positions apart."""
        for each in node.all_input_nodes:
            for part in _parts(self.values[each]):
                for field in part.gauges if isinstance(part, GraphMotion) else ():
                    self.gauges.tell_apart(field, range(field.dim()))
        parts = tuple(GraphMotion(shape) for shape in shapes_of(node))
        return parts if _several(node) else parts[0] if parts else GraphMotion(())

    def _centred(self, node: fx.Node, value: fx.Node, dims: Sequence[int]) -> GraphMotion:
        """`x − mean x`: constants along the dimensions are not seen."""
        step = self._step(node, "sub", node.target, shapes_of(node))
        x = step.settled(self._given(step, value, False))
        step.shifts.unseen(x.shifts, dims)
        for field in x.gauges:
            if set(varying(field)) & set(dims):
                step.levelled(field, dims)
        return GraphMotion(x.shape, x.gauges, centred=list(dims) == [len(x.shape) - 1])

    def _given(self, step: Step, node: fx.Node, open_squares: bool) -> Any:
        value = self.values[node]
        return value if open_squares else self._resolved(step, value)

    def _resolved(self, step: Step, value: Any) -> Any:
        """An open x² becomes a power."""
        if isinstance(value, GraphMotion) and value.square_of is not None:
            return homogeneous(replace(step, shape=value.shape), value.square_of, 2.0)
        return value

    def _not_understood(self, node: fx.Node, step: Step) -> Any:
        self.unknown[step.name] = self.unknown.get(step.name, 0) + 1
        step.pin(*(self._resolved(step, part) for each in node.all_input_nodes for part in _parts(self.values[each])))
        parts = tuple(GraphMotion(shape) for shape in step.shapes)
        return parts if _several(node) else parts[0] if parts else GraphMotion(())

    def _worked_out(self, node: fx.Node) -> GraphMotion | None:
        """The value of a call on constants alone, if it is small."""
        value = node.meta.get("val")
        inputs = [self.values[each] for each in node.all_input_nodes]
        if not isinstance(value, torch.Tensor) or value.numel() > KNOWN or _by_chance(node):
            return None
        if not all(isinstance(each, GraphMotion) and each.known is not None for each in inputs):
            return None
        try:
            arguments = fx.map_arg(node.args, lambda each: self.values[each].known)
            options = fx.map_arg(node.kwargs, lambda each: self.values[each].known)
            if options.get("device") is not None:
                options = {**options, "device": torch.device("cpu")}
            found = node.target(*arguments, **options)  # type: ignore[operator]
        except Exception:  # whatever an operator raises on tensors that it was not traced with
            return None
        if not isinstance(found, torch.Tensor) or found.device.type == "meta":
            return None
        zero = found.is_floating_point() and not bool(found.any())
        return GraphMotion(tuple(found.shape), steady=True, known=found, zero=zero)


def _by_chance(node: fx.Node) -> bool:
    """Whether a call gives other numbers each time: random ones, or whatever memory holds."""
    random = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
    return random or "empty" in operator_name(node.target)


def _moves(value: Any) -> bool:
    return any(
        isinstance(part, GraphMotion) and (part.gauges or part.shifts or part.raw or part.square_of)
        for part in _parts(value)
    )


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _several(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))
