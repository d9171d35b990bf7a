"""Attention in an exported graph: which channels of which layers are its queries, keys and values, head by head.

Between the layers and the product of queries and keys lie calls that only move entries (views, transpositions,
splits). They need no rule: they are run on the numbers of the channels. Rotary positions and norms of queries and keys
mix entries; they must keep to one head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name
from lawful.pruning.attention_calls import NORMS, AttentionCall, attention_calls, last_axis_norm
from lawful.types import Indices

MOVES = ("view", "reshape", "transpose", "permute", "split", "chunk", "unbind", "select", "slice", "contiguous",
         "clone", "unsqueeze", "squeeze", "expand", "unflatten", "flatten", "alias", "split_with_sizes", "_unsafe_view",
         "t", "repeat_interleave")  # fmt: skip
MIXES = ("mul", "add", "sub", "neg", "cat", "stack")  # of rotary positions: entries of one head with each other
LAYERS = ("linear", "addmm", "product")
CASTS = ("to", "type_as", "_to_copy")  # of the first argument


@dataclass(frozen=True, eq=False)
class TracedAttention:
    """One attention `softmax(scale q·k + mask) v`, as tables of channels of the layers that write q, k and v.

    `queries` is (groups, heads of a group, inner size), `keys` and `values` are (groups, inner size); `inner` are the
    calls on the way. With `rotary` positions, or anything else that mixes entries of a head or bends its scores, an
    inner channel is no unit. `scaled` says that the scale does not depend on the inner size, `alike` that the mask is
    the same for all heads, `whole` that some key is always seen: a constant value stays one.
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


def attentions(read: ExportedModule, *, fixed: bool = False) -> list[TracedAttention]:
    """Every attention of a graph that is understood as a whole; `fixed` keeps inner channels of those written out."""
    found = [(_Match(read, each).found, each.between) for each in attention_calls(read)]
    return [
        replace(each, scaled=each.scaled and not (fixed and between)) for each, between in found if each is not None
    ]


Labelled = Any  # a tensor of labels, or several


class _Match:
    """One attention, followed back to its layers and on to its result."""

    def __init__(self, read: ExportedModule, attention: AttentionCall) -> None:
        self.read, self.attention, self.call = read, attention, attention.call
        self.inner: dict[fx.Node, tuple[str | None, Any]] = dict.fromkeys(attention.between, (None, None))
        self.mixed = False
        self.together: list[tuple[torch.Tensor, torch.Tensor]] = []  # entries that meet: their channels are of one head
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
        given = self.attention
        tables, sources, mixed = [], [], []
        for part in (given.query, given.key, given.value):
            self.mixed, self.together = False, []
            source = self._source(part)
            labels = self._labels(part, source, {})
            if part is given.key and given.turned:
                labels = labels.transpose(-1, -2)
            if labels.ndim != 4 or not torch.equal(labels, labels[:1, :, :1].expand(labels.shape)):
                return None
            tables.append(labels[0, :, 0].numpy())
            if not self._apart(tables[-1]):
                return None
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
        wanted = np.arange(heads * groups * values.shape[1])
        alone = all(user is result or user in self.inner for node in self.inner for user in node.users)
        distinct = all(len(np.unique(table)) == table.size for table in (queries, keys, values))
        if mixed[2] or not (alone and distinct and np.array_equal(order, wanted)):
            return None
        return TracedAttention(
            self.call.name, result.name, {node.name: entries for node, entries in self.inner.items()},
            (sources[0], sources[1], sources[2]), queries.reshape(groups, heads, -1), keys, values,
            rotary=mixed[0] or mixed[1] or given.bent, scaled=given.scaled,
            alike=all(_alike(mask) for mask, _ in given.masks),
            whole=not given.masks or (len(given.masks) == 1 and _sees_a_key(self.read, *given.masks[0])),
        )  # fmt: skip

    def _apart(self, table: Indices) -> bool:
        """Whether entries that met are of one head."""
        head = {int(channel): number for number, row in reversed(list(enumerate(table))) for channel in row}
        pairs = {pair for one, two in self.together for pair in _pairs(one, two)}
        return all(one in head and two in head and head[one] == head[two] for one, two in pairs)

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
            elif name in NORMS or name in CASTS:
                stack.append(node.args[0])  # type: ignore[arg-type]
            elif name in (*MOVES, *MIXES, "getitem"):
                stack += node.all_input_nodes
        if len(found) != 1:
            raise ValueError(f"{len(found)} layers")
        return found.pop()

    def _labels(self, node: fx.Node, source: fx.Node, known: dict[fx.Node, Any]) -> Labelled:
        """The channel of the source at every entry of a call's result; None for what does not come from it."""
        if node in known:
            return known[node]
        name = operator_name(node.target) if node.op == "call_function" else ""
        normed = last_axis_norm(node)
        if node is source:
            shape = node.meta["val"].shape
            known[node] = torch.arange(shape[-1]).expand(*map(int, shape))
        elif normed is not None:
            known[node] = self._labels(normed[0], source, known)
            if known[node] is not None:
                self.mixed = True
                self.together.append((known[node][..., :1].expand(known[node].shape), known[node]))
                self.inner |= dict.fromkeys(normed[1], (source.name, None))
                self.inner[node] = source.name, known[node]
        elif name not in (*MOVES, *MIXES, *CASTS, "getitem"):
            known[node] = None
        else:
            given = node.all_input_nodes[:1] if name in CASTS else node.all_input_nodes
            below = {each: self._labels(each, source, known) for each in given}
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
        if name in CASTS or (name == "mul" and len(below) == 1 and len(node.args) == 2 and _one_number(node)):
            return first
        self.mixed = True
        if name in ("cat", "stack"):
            parts = [below[each] for each in list(node.args[0])]  # type: ignore[arg-type]
            if any(part is None for part in parts):
                raise ValueError("channels beside something else")
            return node.target(parts, *node.args[1:])  # type: ignore[operator]
        shape = tuple(map(int, node.meta["val"].shape))
        for each in ours:
            if below[each].shape != shape:
                raise ValueError("channels meet others")
            self.together.append((first, below[each]))
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


def _pairs(one: torch.Tensor, two: torch.Tensor) -> set[tuple[int, int]]:
    """The channels that meet, entry by entry."""
    both = np.unique(np.stack([one.reshape(-1).numpy(), two.reshape(-1).numpy()]), axis=1)
    return {(int(first), int(second)) for first, second in both.T}


def _repeats(keys: Indices) -> int:
    """How many heads in a row share their keys."""
    same = [index for index in range(1, len(keys) + 1) if len(keys) % index == 0]
    return max(index for index in same if np.array_equal(keys, np.repeat(keys[::index], index, axis=0)))


def _alike(mask: Any) -> bool:
    if not isinstance(mask, fx.Node):
        return True
    shape = mask.meta["val"].shape
    return len(shape) < 3 or int(shape[-3]) == 1


def _sees_a_key(read: ExportedModule, mask: fx.Node, hides: bool) -> bool:
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
    return bool((~seen if hides else seen).any(dim=-1).all())


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
