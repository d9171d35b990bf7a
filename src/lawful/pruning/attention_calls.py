"""Where a graph attends: a call of PyTorch's attention, or a softmax of products between two products.

Both are `softmax(scale q·k + mask) v`. Written out, the scale is one number or several, and masks are added, or fill in
minus infinities; scores may be bent on the way, one by one. Norms of queries and keys over the last axis are found here
too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name

ATTEND = "scaled_dot_product_attention"
PRODUCTS = ("matmul", "bmm")
PASSING = ("clone", "contiguous", "alias", "detach", "to", "expand")
NORMS = ("layer_norm", "rms_norm")
BENDS = ("tanh", "sigmoid", "relu", "silu", "gelu")


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One attention: the call that makes its result, what it takes, and the calls between when it is written out.

    A mask is added, or says what is seen, or what is not: then it comes with True. `turned` says that keys come with
    their last axes exchanged, `scaled` that the scale is a number of its own, `bent` that the softmax sees a function
    of the scores, so that what is the same for all keys matters.
    """

    call: fx.Node
    query: fx.Node
    key: fx.Node
    value: fx.Node
    masks: tuple[tuple[fx.Node, bool], ...]
    scaled: bool
    turned: bool = False
    between: tuple[fx.Node, ...] = ()
    bent: bool = False


def attention_calls(read: ExportedModule) -> Iterator[AttentionCall]:
    """All attentions of a graph, in order."""
    for node in read.calls:
        name = operator_name(node.target)
        found = _called(node) if name == ATTEND else _written_out(node) if name == "softmax" else None
        if found is not None:
            yield found


def _called(node: fx.Node) -> AttentionCall | None:
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given: dict[str, Any] = dict(zip((part.name for part in schema), node.args, strict=False)) | node.kwargs
    if given.get("dropout_p", 0.0):
        return None
    mask = given.get("attn_mask")
    return AttentionCall(
        node,
        given["query"],
        given["key"],
        given["value"],
        () if mask is None else ((mask, False),),
        given.get("scale") is not None,
    )


def _written_out(softmax: fx.Node) -> AttentionCall | None:
    """The attention around a softmax over the last axis."""
    shape = softmax.meta["val"].shape
    if softmax.args[1] not in (-1, len(shape) - 1):
        return None
    between: list[fx.Node] = [softmax]
    masks: list[tuple[fx.Node, bool]] = []
    node: Any = softmax.args[0]
    while isinstance(node, fx.Node) and node.op == "call_function" and operator_name(node.target) not in PRODUCTS:
        step = _before_softmax(node)
        if step is None:
            return None
        between.append(node)
        masks += [] if step[1] is None else [(step[1], operator_name(node.target) == "masked_fill")]
        node = step[0]
    last = _after_softmax(softmax, between)
    if not isinstance(node, fx.Node) or node.op != "call_function" or last is None or len(node.users) != 1:
        return None
    between.append(node)
    query, key = node.args[:2]
    value = last.args[1]
    if not all(isinstance(each, fx.Node) for each in (query, key, value)):
        return None
    exact = all(
        each.meta["val"].dtype in (torch.float64, torch.bool) for each in between
    )  # rounded weights change with every sum
    bent = any(operator_name(each.target) in BENDS for each in between)
    return AttentionCall(last, query, key, value, tuple(masks), exact, True, tuple(between), bent)  # type: ignore[arg-type]


def _before_softmax(node: fx.Node) -> tuple[Any, fx.Node | None] | None:
    """What a call between the products passes on, and the mask that it adds."""
    name, args = operator_name(node.target), node.args
    if (name in PASSING and name != "expand") or (name in BENDS and len(node.all_input_nodes) == 1):
        return args[0], None
    number = len(args) == 2 and isinstance(args[1], (int, float)) and not node.kwargs
    if number and name in ("mul", "div", "add", "sub"):
        return args[0], None
    if name == "add" and len(args) == 2 and not node.kwargs and all(isinstance(each, fx.Node) for each in args):
        one, two = args
        if _multiplies(two) is _multiplies(one):
            return None
        return (one, two) if _multiplies(one) else (two, one)  # type: ignore[return-value]
    if name == "masked_fill" and len(args) == 3 and isinstance(args[2], (int, float)):
        return args[0], args[1]  # type: ignore[return-value]
    return None


def _multiplies(node: Any) -> bool:
    """Whether a call comes from a product through calls between a product and a softmax."""
    while isinstance(node, fx.Node) and node.op == "call_function":
        name = operator_name(node.target)
        if name in PRODUCTS:
            return True
        if name not in (*PASSING, *BENDS, "mul", "div", "add", "masked_fill"):
            return False
        if name == "add":
            return any(_multiplies(each) for each in node.args)
        node = node.args[0]
    return False


def _after_softmax(softmax: fx.Node, between: list[fx.Node]) -> fx.Node | None:
    """The product of the weights with the values."""
    node = softmax
    while len(readers := _readers(node, between)) == 1:
        user = readers[0]
        name = operator_name(user.target) if user.op == "call_function" else ""
        if name in PRODUCTS:
            return user if user.args[0] is node else None
        if name == "where":  # `_readers` has looked at what it does
            between.append(user)
            node = user
            continue
        if user.args[:1] != (node,) or not (name in PASSING or (name == "dropout" and not user.args[2])):
            return None
        if tuple(user.meta["val"].shape) != tuple(node.meta["val"].shape):
            return None
        between.append(user)
        node = user
    return None


def _readers(node: fx.Node, between: list[fx.Node]) -> list[fx.Node]:
    """Who reads a node; weights that are no numbers become 0, as they are where a query sees no key at all."""
    users = list(node.users)
    odd = next((user for user in users if user.op == "call_function" and operator_name(user.target) == "isnan"), None)
    if odd is None or len(users) != 2 or len(odd.users) != 1:
        return users
    (chosen,) = odd.users
    if chosen in users and operator_name(chosen.target) == "where" and chosen.args == (odd, 0, node):
        between.append(odd)
        return [chosen]
    return users


def last_axis_norm(node: fx.Node) -> tuple[fx.Node, list[fx.Node]] | None:
    """What a call normalises along its last axis alone, and the calls of its statistics; None for any other call."""
    name = operator_name(node.target) if node.op == "call_function" else ""
    if name in NORMS:
        axes: Any = node.args[1]
        return (node.args[0], []) if len(axes) == 1 else None  # type: ignore[return-value]
    if name != "mul" or len(node.args) != 2:
        return None
    for x, factor in (node.args, node.args[::-1]):
        chain = _chain(factor, ("rsqrt", "add", "mean", "pow"))
        if not isinstance(x, fx.Node) or chain is None:
            continue
        _, added, mean, power = chain
        plain = isinstance(added.args[1], (int, float)) and mean.args[1] in ([-1], [len(x.meta["val"].shape) - 1])
        if plain and power.args == (x, 2) and all(len(each.users) == 1 for each in chain):
            return x, chain
    return None


def _chain(node: Any, names: tuple[str, ...]) -> list[fx.Node] | None:
    """Calls of these names, each reading the next."""
    found = []
    for name in names:
        if not isinstance(node, fx.Node) or node.op != "call_function" or operator_name(node.target) != name:
            return None
        found.append(node)
        node = node.args[0]
    return found
