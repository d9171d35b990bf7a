"""Calls of an exported program in terms of simpler ones: parts under `no_grad`, and calls that the table lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import fx

from lawful.program.frontends.complex_pairs import COMPLEX_CALLS
from lawful.program.table import ATEN, ATEN_CASTS, ATEN_FACTORIES, ATEN_MOVEMENTS

# Calls that compute nothing.
SILENT = frozenset({"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size"})


def operator_name(target: Any) -> str:
    """The bare name of an ATen operator or a Python function: `linear`, `getitem`."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    return str(getattr(target, "__name__", target))


def detach_regions(program: Any) -> None:
    """Write the parts of a program that run under `torch.no_grad()` in line, their results detached.

    Training takes those results for data, and decompositions would forget that.
    """
    graph = program.graph_module.graph
    for call in [node for node in graph.nodes if operator_name(node.target) == "wrap_with_set_grad_enabled"]:
        enabled, inside, *given = call.args
        part = getattr(program.graph_module, inside.target).graph
        values = dict(zip((node for node in part.nodes if node.op == "placeholder"), given, strict=True))
        with graph.inserting_before(call):
            for node in part.nodes:
                if node.op == "call_function":
                    values[node] = graph.node_copy(node, values.__getitem__)
            last = next(node for node in part.nodes if node.op == "output")
            results = [_ended(graph, values[node], enabled) if isinstance(node, fx.Node) else node
                       for node in last.args[0]]  # fmt: skip
        for reader in list(call.users):  # each takes one of the results
            reader.replace_all_uses_with(results[reader.args[1]])
            graph.erase_node(reader)
        graph.erase_node(call)


def _ended(graph: fx.Graph, node: fx.Node, enabled: bool) -> fx.Node:
    if enabled:
        return node
    found = graph.call_function(torch.ops.aten.detach.default, (node,))
    found.meta = dict(node.meta)
    return found


@cache
def core_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """How PyTorch computes operations in terms of ATen's core, but for those that it takes apart whenever it is asked.

    `core_aten_decompositions` is the same with the latter, for which it walks through all operations at every call.

    >>> torch.ops.aten.addcmul.default in core_decompositions(), torch.ops.aten.mm.default in core_decompositions()
    (True, False)
    """
    from torch._decomp import _core_aten_decompositions_post_autograd

    return dict(_core_aten_decompositions_post_autograd())


def break_down(program: Any) -> Any:
    """The exported program with new values for changes in place, and without calls that the table does not know.

    Those are written as PyTorch itself computes them, where it says how.
    """
    from torch._export.utils import _get_decomp_for_cia

    known = (
        {each.split(".")[0] for each in ATEN} | ATEN_MOVEMENTS | ATEN_FACTORIES | ATEN_CASTS | SILENT | COMPLEX_CALLS
    )
    core, smaller, again = core_decompositions(), {}, False
    for node in program.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload):
            again |= target._schema.is_mutable
            if operator_name(target) in known:
                continue
            if target._can_decompose():
                smaller[target] = _get_decomp_for_cia(target)
            elif target in core:
                smaller[target] = core[target]
        else:  # `torch.vmap` leaves marks of its own around the calls of one sample
            again |= "functorch" in str(getattr(target, "__module__", ""))
    return program.run_decompositions(smaller) if smaller or again else program
