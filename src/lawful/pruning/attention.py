"""Attention in an exported graph: which channels of which layers are its queries, keys and values, head by head.

Between the layers and the product of queries and keys lie calls that only move entries (views, transpositions,
splits). They need no rule: they are run on the numbers of the channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name
from lawful.types import Indices

MOVES = ("view", "reshape", "transpose", "permute", "split", "chunk", "unbind", "select", "slice", "contiguous",
         "clone", "unsqueeze", "squeeze", "expand", "unflatten", "flatten", "alias", "split_with_sizes", "_unsafe_view",
         "t", "repeat_interleave")  # fmt: skip
MIXES = ("mul", "add", "sub", "neg", "cat", "stack")  # of rotary positions: entries of one head with each other
LAYERS = ("linear", "addmm")


@dataclass(frozen=True, eq=False)
class TracedAttention:
    """One attention `softmax(scale q·k + mask) v`, as tables of channels of the layers that write q, k and v.

    `queries` is (groups, heads of a group, inner size), `keys` and `values` are (groups, inner size); `inner` are the
    calls on the way. With `rotary` positions, or anything else that mixes entries of a head, an inner channel is no
    unit. `scaled` says that the scale does not depend on the inner size, `alike` that the mask is the same for all
    heads, `whole` that some key is always seen: a constant value stays one.
    """

    call: str
    result: str
    inner: Mapping[str, tuple[str | None, Any]]  # calls on the way: whose channels their entries are (or the result's)
    sources: tuple[str, str, str]
    queries: Indices
    keys: Indices
    values: Indices
    rotary: bool
    scaled: bool
    alike: bool
    whole: bool


def attentions(read: ExportedModule) -> list[TracedAttention]:
    """Every attention of a graph that is understood as a whole."""
    found = (_Match(read, call).found for call in read.calls if operator_name(call.target) == ATTEND)
    return [each for each in found if each is not None]


ATTEND = "scaled_dot_product_attention"
Labelled = Any  # a tensor of labels, or several


class _Match:
    """One call of attention, followed back to its layers and on to its result."""

    def __init__(self, read: ExportedModule, call: fx.Node) -> None:
        self.read, self.call = read, call
        self.inner: dict[fx.Node, tuple[str | None, Any]] = {}
        self.mixed = False
        try:
            self.found = self._matched()
        except (
            ValueError,
            RuntimeError,
            TypeError,
            IndexError,
            NotImplementedError,
        ):  # moves that labels cannot follow
            self.found = None

    def _matched(self) -> TracedAttention | None:
        schema = self.call.target._schema.arguments  # type: ignore[union-attr]
        given: dict[str, Any] = dict(zip((part.name for part in schema), self.call.args, strict=False))
        given |= self.call.kwargs
        tables, sources, mixed = [], [], []
        for name in ("query", "key", "value"):
            self.mixed = False
            source = self._source(given[name])
            labels = self._labels(given[name], source, {})
            if labels.ndim != 4 or not torch.equal(labels, labels[:1, :, :1].expand(labels.shape)):
                return None
            tables.append(labels[0, :, 0].numpy())
            sources.append(source.name)
            mixed.append(self.mixed)
        queries, keys, values = tables
        repeats = _repeats(keys) if len(keys) == len(queries) else 1
        if len(keys) == len(queries) and not np.array_equal(values, np.repeat(values[::repeats], repeats, axis=0)):
            repeats = 1
        groups = len(keys) // repeats
        heads = len(queries) // groups
        keys, values = keys[::repeats], values[::repeats]
        result, order = self._result(heads * groups, values.shape[1])
        mask = given.get("attn_mask")
        wanted = np.arange(heads * groups * values.shape[1])
        alone = all(user is result or user in self.inner for node in self.inner for user in node.users)
        distinct = all(len(np.unique(table)) == table.size for table in (queries, keys, values))
        if mixed[2] or given.get("dropout_p", 0.0) or not (alone and distinct and np.array_equal(order, wanted)):
            return None
        return TracedAttention(
            self.call.name, result.name, {node.name: entries for node, entries in self.inner.items()},
            (sources[0], sources[1], sources[2]), queries.reshape(groups, heads, -1), keys, values,
            rotary=mixed[0] or mixed[1], scaled=given.get("scale") is not None, alike=_alike(mask),
            whole=mask is None or _sees_a_key(self.read, mask),
        )  # fmt: skip

    def _source(self, target: fx.Node) -> fx.Node:
        """The one layer that an argument of the attention comes from."""
        found: set[fx.Node] = set()
        stack, seen = [target], set()
        while stack:
            node = stack.pop()
            if node in seen or node.op != "call_function":
                continue
            seen.add(node)
            name = operator_name(node.target)
            if name in LAYERS:
                found.add(node)
            elif name in (*MOVES, *MIXES, "getitem", "to"):
                stack += node.all_input_nodes
        if len(found) != 1:
            raise ValueError(f"{len(found)} layers")
        return found.pop()

    def _labels(self, node: fx.Node, source: fx.Node, known: dict[fx.Node, Any]) -> Labelled:
        """The channel of the source at every entry of a call's result; None for what does not come from it."""
        if node in known:
            return known[node]
        name = operator_name(node.target) if node.op == "call_function" else ""
        if node is source:
            shape = node.meta["val"].shape
            known[node] = torch.arange(shape[-1]).expand(*map(int, shape))
        elif name not in (*MOVES, *MIXES, "getitem", "to"):
            known[node] = None
        else:
            below = {each: self._labels(each, source, known) for each in node.all_input_nodes}
            known[node] = self._moved(node, name, below)
            if known[node] is not None:
                self.inner[node] = source.name, known[node]
        return known[node]

    def _moved(self, node: fx.Node, name: str, below: Mapping[fx.Node, Any]) -> Labelled:
        ours = [each for each, labels in below.items() if labels is not None]
        if not ours:
            return None
        if name in MOVES or name == "getitem":
            arguments = fx.map_arg(node.args, lambda each: below[each])
            return node.target(*arguments, **fx.map_arg(node.kwargs, lambda each: below[each]))  # type: ignore[operator]
        first = below[ours[0]]
        if name == "to" or (name == "mul" and len(below) == 1 and len(node.args) == 2 and _one_number(node)):
            return first
        self.mixed = True
        if name in ("cat", "stack"):
            parts = [below[each] for each in list(node.args[0])]  # type: ignore[arg-type]
            if any(part is None for part in parts):
                raise ValueError("channels beside something else")
            return node.target(parts, *node.args[1:])  # type: ignore[operator]
        shape = tuple(map(int, node.meta["val"].shape))
        for each in ours:  # every head keeps to itself
            if below[each].shape != shape or not _same_heads(first, below[each]):
                raise ValueError("heads are mixed")
        return first

    def _result(self, heads: int, size: int) -> tuple[fx.Node, Indices]:
        """The last call that only moves entries, and the channels (head by head) along its last axis."""
        shape = tuple(map(int, self.call.meta["val"].shape))
        labels = torch.arange(heads * size).reshape(1, heads, 1, size).expand(shape)
        node = self.call
        self.inner[node] = None, labels
        while len(node.users) == 1:
            user = next(iter(node.users))
            if user.op != "call_function" or operator_name(user.target) not in MOVES:
                break
            moved = self._moved(user, operator_name(user.target), {node: labels})
            if not isinstance(moved, torch.Tensor):
                break
            node, labels = user, moved
            self.inner[node] = None, labels
            if torch.equal(labels, labels.reshape(-1, labels.shape[-1])[0].expand(labels.shape)):
                break
        del self.inner[node]
        return node, labels.reshape(-1, labels.shape[-1])[0].numpy()


def _one_number(node: fx.Node) -> bool:
    return any(isinstance(part, (int, float)) for part in node.args)


def _same_heads(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors (batch, head, token, inner) hold the same channels in every head."""
    if one.ndim != 4:
        return False
    return all(set(a.unique().tolist()) == set(b.unique().tolist()) for a, b in zip(one[0], two[0], strict=True))


def _repeats(keys: Indices) -> int:
    """How many heads in a row share their keys."""
    same = [index for index in range(1, len(keys) + 1) if len(keys) % index == 0]
    return max(index for index in same if np.array_equal(keys, np.repeat(keys[::index], index, axis=0)))


def _alike(mask: Any) -> bool:
    if not isinstance(mask, fx.Node):
        return True
    shape = mask.meta["val"].shape
    return len(shape) < 3 or int(shape[-3]) == 1


def _sees_a_key(read: ExportedModule, mask: fx.Node) -> bool:
    """Whether a mask that no input changes lets every query see some key."""
    values: dict[fx.Node, Any] = {}
    wanted = _above(mask)
    for node in read.graph.nodes:
        if node.op == "placeholder" and node.name in read.tensors:
            values[node] = read.tensors[node.name]
        elif node in wanted and node.op == "call_function" and all(each in values for each in node.all_input_nodes):
            values[node] = node.target(*_filled(node.args, values), **_filled(node.kwargs, values))
    if mask not in values or not isinstance(values[mask], torch.Tensor):
        return False
    seen = values[mask] if values[mask].dtype == torch.bool else torch.isfinite(values[mask])
    return bool(seen.any(dim=-1).all())


def _above(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if each not in found:
            found.add(each)
            stack += each.all_input_nodes
    return found


def _filled(arguments: Any, values: Mapping[fx.Node, Any]) -> Any:
    return fx.map_arg(arguments, lambda each: values[each])
