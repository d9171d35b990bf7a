"""Calls of a graph that mean something together: a skip around a linear map, a mean taken off, values kept as data,
attention that is written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from lawful.program.frontends.export import ExportedModule, operator_name
from lawful.symmetry.graphs.motion import Shape

PRODUCTS = {"matmul", "bmm", "baddbmm"}
SAME_ENTRIES = {"to", "_to_copy", "type_as", "clone", "contiguous", "alias", "dropout", "view", "reshape",
                "_unsafe_view", "expand"}  # fmt: skip
BENT_SCORES = {"mul", "div", "add", "sub", "masked_fill", "where", "tanh"}  # scaled, masked, capped
TABLES = {"embedding", "index", "index_select", "permute", "transpose", "unsqueeze", "squeeze", "slice", "select",
          "cat", "pad", "constant_pad_nd", "repeat", "softmax", "_softmax", "sigmoid", "neg"}  # fmt: skip


def shapes_of(node: fx.Node) -> tuple[Shape, ...]:
    """The shapes of a call's results."""
    value = node.meta.get("val")
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(tuple(int(size) for size in part.shape) for part in parts if isinstance(part, torch.Tensor))


def skips_of(exported: ExportedModule, frozen: frozenset[str]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Sums of a value and a linear map or multiple of it, whose weight nothing else reads."""
    for node in exported.calls:
        if operator_name(node.target) != "add" or len(node.args) != 2 or node.kwargs:
            continue
        for value, product in (node.args, node.args[::-1]):
            if not isinstance(product, fx.Node) or product.op != "call_function" or len(product.users) != 1:
                continue
            weight = _factor(product, value)
            if weight is None or weight.name not in exported.trained or len(weight.users) != 1:
                continue
            if exported.names[weight.name] not in frozen and shapes_of(product) == shapes_of(node.all_input_nodes[0]):
                yield node, product
                break


def _factor(product: fx.Node, value: Any) -> fx.Node | None:
    """What a value is multiplied by: the weight of a linear map, or one factor of a product of entries."""
    name, first, *rest = operator_name(product.target), *product.args
    if name == "linear" and first is value:
        return rest[0] if isinstance(rest[0], fx.Node) else None
    if name == "mul" and isinstance(first, fx.Node) and isinstance(rest[0], fx.Node) and first is not rest[0]:
        return rest[0] if first is value else first if rest[0] is value else None
    return None


def centrings(exported: ExportedModule) -> Iterator[tuple[fx.Node, tuple[fx.Node, list[int]]]]:
    """Calls `x − mean(x)`, with x and the dimensions of the mean."""
    for node in exported.calls:
        value, mean = (*node.args, None, None)[:2]
        if operator_name(node.target) != "sub" or node.kwargs or not isinstance(value, fx.Node):
            continue
        if not isinstance(mean, fx.Node) or operator_name(mean.target) != "mean" or mean.args[0] is not value:
            continue
        rank = len(shapes_of(value)[0])
        if len(mean.args) == 3 and mean.args[2] and len(shapes_of(mean)[0]) == rank:
            dims: Any = mean.args[1]
            yield node, (value, sorted(d % rank for d in dims))


def blind_calls(exported: ExportedModule) -> set[fx.Node]:
    """Calls whose results training only sees detached."""
    found: set[fx.Node] = set()
    for node in reversed(exported.graph.nodes):
        kept = (user in found or operator_name(user.target) == "detach" for user in node.users)
        if node.op == "call_function" and node.users and all(kept):
            found.add(node)
    return found


def written_attentions(exported: ExportedModule) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Attention that is written out, `softmax(q kᵀ) v`: the calls of its two products."""
    for node in exported.calls:
        if operator_name(node.target) not in ("softmax", "_softmax"):
            continue
        scores = {each for each in _met(node, back=True) if operator_name(each.target) in PRODUCTS}
        results = {each for each in _met(node, back=False) if operator_name(each.target) in PRODUCTS}
        if len(scores) == len(results) == 1:
            yield scores.pop(), results.pop()


def _met(node: fx.Node, *, back: bool) -> Iterator[fx.Node]:
    """The calls before (after) a softmax, as far as those between work entry by entry."""
    passed = SAME_ENTRIES | BENT_SCORES if back else SAME_ENTRIES
    waiting, seen = [node], {node}
    while waiting:
        each = waiting.pop()
        for other in each.all_input_nodes if back else each.users:
            if other in seen or other.op != "call_function":
                continue
            seen.add(other)
            if operator_name(other.target) in passed:
                waiting.append(other)
            else:
                yield other


def score_tables(exported: ExportedModule, node: fx.Node) -> Iterator[str]:
    """The parameters whose entries, looked up and put in place, are added to the scores of an attention.

    The call is that of the attention, or of the product that reads its weights if it is written out.
    """
    whole = operator_name(node.target) not in PRODUCTS
    mask = [*node.args[3:4], node.kwargs.get("attn_mask")] if whole else node.args[-2:-1]
    waiting = [each for each in mask if isinstance(each, fx.Node)]
    seen = set(waiting)
    while waiting:
        each = waiting.pop()
        if each.name in exported.trained:
            yield exported.names[each.name]
        elif each.op == "call_function" and operator_name(each.target) in SAME_ENTRIES | BENT_SCORES | TABLES:
            fresh = [other for other in each.all_input_nodes if other not in seen]
            seen.update(fresh)
            waiting += fresh
