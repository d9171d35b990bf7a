"""A traced graph in normal form, and with numbers in place of some of its tensors: for those who read graphs alone.

What a call computes is seen in the program. One that computes what another did before it (a copy, a cast, a product
with 1, parts that are joined again) is that other; a BatchNorm without statistics is a product and a sum. A scale or
shift of its own that a call may do without is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx

from lawful.program.builder import Builder
from lawful.program.frontends.export import ExportedModule
from lawful.program.frontends.torch_export import graph_values
from lawful.program.program import Node

CALLS = {"add": torch.ops.aten.add.Tensor, "mul": torch.ops.aten.mul.Tensor}


def with_numbers(exported: ExportedModule, numbers: Mapping[str, float]) -> ExportedModule:
    """The graph with a number for every entry of tensors by their names in the module.

    >>> from lawful.program.frontends.export import export_module
    >>> class Joined(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return torch.cat(super().forward(x).clone().chunk(2, 1), 1)
    >>> traced = export_module(Joined(3, 4), [(2, 3)])
    >>> [len(each.calls) for each in (traced, with_numbers(traced, {}))]
    [6, 1]
    """
    given = _copy(exported)
    graph, b = given.graph, Builder()
    constants = {
        node: b.constant(np.full(tuple(given.tensors[node.name].shape), numbers[given.names[node.name]]))
        for node in graph.nodes
        if node.op == "placeholder" and given.names.get(node.name) in numbers
    }
    values = graph_values(b, given, constants)
    gone = set(constants)
    writer = _Writer(graph, values, gone)
    for node in list(graph.nodes):
        value = values[node] if node.op == "call_function" else None
        if value is None:
            continue
        if not gone.intersection(node.all_input_nodes):
            there = writer.made.get(value, node) if isinstance(value, Node) else node
            if there is not node:
                node.replace_all_uses_with(there)
            continue
        if isinstance(value, Node) and value.op == "constant":
            gone.add(node)
            continue
        written = writer.write(value, node) if isinstance(value, Node) else None
        if written is None:
            _leave_out(node, gone)
        else:
            node.replace_all_uses_with(written)
            if writer.made.get(value) is node:
                writer.made[value] = written
    graph.eliminate_dead_code()
    still_read = {node.name for node in constants if node.users}
    tensors = {
        place: torch.full_like(tensor, numbers[given.names[place]]) if place in still_read else tensor
        for place, tensor in given.tensors.items()
    }
    names = {place: name for place, name in given.names.items() if place not in still_read}
    return replace(given, tensors=tensors, names=names, trained=given.trained - still_read)


def _copy(exported: ExportedModule) -> ExportedModule:
    """A copy that may be changed; nodes with the names of Python's own functions have others in it."""
    graph = copy.deepcopy(exported.graph)
    new = {one.name: two.name for one, two in zip(exported.graph.nodes, graph.nodes, strict=True)}
    return ExportedModule(
        graph,
        {new[place]: tensor for place, tensor in exported.tensors.items()},
        {new[place]: name for place, name in exported.names.items()},
        frozenset(new[place] for place in exported.trained),
        tuple(new[place] for place in exported.inputs),
    )


class _Writer:
    """Calls for values that sums, products and reshapes make of values of calls that are there."""

    def __init__(self, graph: fx.Graph, values: Mapping[fx.Node, Any], gone: set[fx.Node]) -> None:
        self.graph = graph
        self.made: dict[Node, fx.Node] = {}
        for place, value in values.items():
            if isinstance(value, Node) and place not in gone:
                self.made.setdefault(value, place)

    def write(self, value: Node, at: fx.Node) -> fx.Node | None:
        """A node of the graph with this value that is not the one it is for."""
        there = self.made.get(value)
        if there is not None and there is not at:
            return there
        if value.op == "take" and value["map"].keeps_order and value.size == value.inputs[0].size:
            source = self.write(value.inputs[0], at)
            return (
                None if source is None else self._call(torch.ops.aten.view.default, at, value, source, [*value.shape])
            )
        if value.op not in CALLS:
            return None
        operands = [self.write(each, at) for each in value.inputs]
        return None if None in operands else self._call(CALLS[value.op], at, value, *operands)

    def _call(self, target: Any, at: fx.Node, value: Node, *arguments: Any) -> fx.Node:
        with self.graph.inserting_before(at):
            node = self.graph.call_function(target, arguments)
        node.meta["val"] = torch.empty(value.shape, dtype=at.meta["val"].dtype, device="meta")
        if self.made.get(value, at) is at:
            self.made[value] = node
        return node


def _leave_out(node: fx.Node, gone: set[fx.Node]) -> None:
    """None for a scale or shift that the call does not need, once it does nothing."""
    schema: Any = node.target._schema.arguments  # type: ignore[union-attr]
    optional = {k for k, each in enumerate(schema) if isinstance(each.type, torch.OptionalType)}
    node.args = tuple(None if each in gone and k in optional else each for k, each in enumerate(node.args))
