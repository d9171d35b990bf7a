"""What can be folded in a graph: found, and taken out of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import fx

from lawful.checkpoints.folds import Fold, GainFold, LinearReader, StatisticsFold
from lawful.network.modules.export import ExportedModule, operator_name

PASSES = {"view", "reshape", "_unsafe_view", "to", "_to_copy", "contiguous", "clone", "alias", "dropout", "unsqueeze",
          "slice", "select", "flatten", "type_as", "squeeze", "index", "transpose", "permute"}  # fmt: skip
Folding = Literal["all", "statistics", "none"]
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


def find_folds(exported: ExportedModule, *, shared: bool = False, kinds: Folding = "all") -> tuple[Fold, ...]:
    """What can be folded; the graph is changed into the one that is left when it is.

    `shared`: also into weights that are used elsewhere, for those who have a weight of its own for every use.
    `kinds` may be "statistics" (BatchNorms alone) or "none".
    """
    finder = _Finder(exported, shared, kinds)
    found: list[Fold] = []
    for node in list(exported.graph.nodes):
        if node.op == "call_function":
            one = finder.at(node)
            if one is not None:
                found.append(one)
    exported.graph.eliminate_dead_code()
    return tuple(found)


def gains_of(exported: ExportedModule) -> set[str]:
    """Parameters that multiply values entry by entry."""
    found = set[str]()
    for node in exported.calls:
        place = {"layer_norm": 2, "rms_norm": 2, "batch_norm": 1, "group_norm": 2}.get(operator_name(node.target))
        if operator_name(node.target) == "mul":
            given: tuple[Any, ...] = node.args[:2]
        else:
            given = node.args[place : place + 1] if place is not None else ()
        found |= {exported.names[each.name] for each in given
                  if isinstance(each, fx.Node) and each.name in exported.trained}  # fmt: skip
    return found


class _Finder:
    def __init__(self, exported: ExportedModule, shared: bool, kinds: Folding) -> None:
        self.exported, self.shared, self.kinds = exported, shared, kinds

    def at(self, node: fx.Node) -> Fold | None:
        name = operator_name(node.target)
        if self.kinds == "none" or (self.kinds == "statistics" and name != "batch_norm"):
            return None
        if name == "layer_norm":
            return self._norm(node, 2, 3)
        if name == "rms_norm":
            return self._norm(node, 2, None)
        if name == "batch_norm":
            return self._batch_norm(node)
        if name == "mul":
            return self._product(node)
        return None

    def parameter(self, node: Any, *, alone: bool = True) -> str | None:
        """The name of the parameter that a node is, if nothing else reads it."""
        if not isinstance(node, fx.Node) or node.name not in self.exported.trained:
            return None
        alone = alone and not self.shared
        return self.exported.names[node.name] if not alone or len(node.users) == 1 else None

    def _norm(self, node: fx.Node, gain_at: int, offset_at: int | None) -> Fold | None:
        sizes = node.args[1]
        arguments = [*node.args, *[None] * 5][:6]
        gain = self.parameter(arguments[gain_at])
        offset = None if offset_at is None else self.parameter(arguments[offset_at])
        if not isinstance(sizes, (list, tuple)) or len(sizes) != 1:
            return None
        wanted = (gain_at, gain), (offset_at, offset)
        if any(place is not None and arguments[place] is not None and name is None for place, name in wanted):
            return None
        readers = self._readers(node, _number(sizes[0]))
        if not readers:
            return None
        carried = offset is None or all(reader.bias for reader in readers)
        centred = offset_at is not None and carried
        if gain is None and not centred:
            return None
        arguments[gain_at] = None
        if offset_at is not None and carried:
            arguments[offset_at] = None
        node.args = tuple(arguments[: max(len(node.args), gain_at + 1)])
        return GainFold(gain, offset, 0.0, readers, centred)

    def _product(self, node: fx.Node) -> Fold | None:
        """`x̂ · w` with a vector w of parameters (perhaps plus 1), as norms are often written out."""
        for vector, value in (node.args[:2], node.args[1::-1]):
            if not isinstance(vector, fx.Node) or not isinstance(value, fx.Node):
                continue
            plus, source = self._vector(vector)
            gain = self.parameter(source)
            if gain is None or len(vector.users) != 1 or self._is_constant(value):
                continue
            if len(_shape(source)) != 1 or _shape(value)[-1:] != _shape(source):
                continue
            readers = self._readers(node, _shape(source)[0])
            if readers:
                node.replace_all_uses_with(value)
                return GainFold(gain, None, plus, readers, centred=False)
        return None

    def _vector(self, node: fx.Node) -> tuple[float, fx.Node]:
        plus = 0.0
        while node.op == "call_function" and len(node.users) == 1:
            name = operator_name(node.target)
            if name in ("to", "_to_copy", "type_as"):
                node = node.args[0]  # type: ignore[assignment]
            elif name == "add" and len(node.args) == 2 and not node.kwargs:
                numbers = [each for each in node.args if isinstance(each, (int, float))]
                others = [each for each in node.args if isinstance(each, fx.Node)]
                if len(numbers) != 1 or len(others) != 1 or plus:
                    break
                plus, node = float(numbers[0]), others[0]
            else:
                break
        return plus, node

    def _is_constant(self, node: fx.Node) -> bool:
        return node.op != "call_function"

    def _batch_norm(self, node: fx.Node) -> Fold | None:
        value, gain, offset, mean, variance, training, _, epsilon = node.args[:8]
        names = self.parameter(gain), self.parameter(offset)
        held = [self.exported.names.get(each.name) if isinstance(each, fx.Node) else None for each in (mean, variance)]
        if training or None in (*names, *held) or not isinstance(value, fx.Node) or not isinstance(epsilon, float):
            return None
        shape = _shape(node)
        writer = self._writer(value)
        graph = self.exported.graph
        with graph.inserting_before(node):
            if writer is None:
                value = self._call(graph, torch.ops.aten.mul.Tensor, node, value, self._laid(graph, gain, shape))
            moved = self._call(graph, torch.ops.aten.add.Tensor, node, value, self._laid(graph, offset, shape))
        node.replace_all_uses_with(moved)
        graph.erase_node(node)
        return StatisticsFold(str(names[0]), str(names[1]), str(held[0]), str(held[1]), epsilon, writer)

    def _laid(self, graph: fx.Graph, vector: Any, shape: tuple[int, ...]) -> fx.Node:
        size = [-1, *[1] * (len(shape) - 2)]
        found = graph.call_function(torch.ops.aten.view.default, (vector, size))
        found.meta["val"] = torch.empty([shape[1], *size[1:]], device="meta")
        return found

    def _call(self, graph: fx.Graph, target: Any, like: fx.Node, *arguments: Any) -> fx.Node:
        found = graph.call_function(target, arguments)
        found.meta["val"] = like.meta["val"]
        return found

    def _writer(self, node: fx.Node) -> LinearReader | None:
        """The convolution or linear layer that alone feeds a BatchNorm; its bias is taken out of the graph."""
        name = operator_name(node.target) if node.op == "call_function" else ""
        if name not in (*CONVOLUTIONS, "linear") or len(node.users) != 1:
            return None
        weight = self.parameter(node.args[1])
        given = node.args[2] if len(node.args) > 2 else None
        bias = self.parameter(given)
        if weight is None or (given is not None and bias is None):
            return None
        if bias is not None:
            node.args = (*node.args[:2], None, *node.args[3:])
        return LinearReader(weight, 0, bias)

    def _readers(self, node: fx.Node, size: int) -> tuple[LinearReader, ...]:
        """The linear layers that alone read a value, or nothing if anything else does."""
        found: list[LinearReader] = []
        for reader in self._reading(node, size):
            if reader is None:
                return ()
            found.append(reader)
        return tuple(found)

    def _reading(self, node: fx.Node, size: int) -> Iterator[LinearReader | None]:
        for user in node.users:
            name = operator_name(user.target) if user.op == "call_function" else user.op
            if name == "linear" and user.args[0] is node:
                yield self._reader(user.args[1], 1, user.args[2] if len(user.args) > 2 else user.kwargs.get("bias"))
            elif name == "addmm" and user.args[1] is node and not user.kwargs:
                yield self._reader(user.args[2], 0, user.args[0])
            elif name in ("mm", "matmul") and user.args[0] is node and len(_shape(user.args[1])) == 2:
                weight: Any = user.args[1]
                turned = isinstance(weight, fx.Node) and weight.op == "call_function" and len(weight.users) == 1
                if turned and operator_name(weight.target) in ("t", "transpose", "permute"):
                    yield self._reader(weight.args[0], 1, None)
                else:
                    yield self._reader(weight, 0, None)
            elif name in PASSES and user.args[0] is node and _keeps_last(user, name, size):
                yield from self._reading(user, size)
            else:
                yield None

    def _reader(self, weight: Any, axis: int, bias: Any) -> LinearReader | None:
        name = self.parameter(weight)
        biased = None if bias is None else self.parameter(bias)
        if name is None or (bias is not None and biased is None):
            return None
        return LinearReader(name, axis, biased)


def _shape(node: Any) -> tuple[int, ...]:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return tuple(int(size) for size in value.shape) if isinstance(value, torch.Tensor) else ()


def _keeps_last(user: fx.Node, name: str, size: int) -> bool:
    """Whether an operation leaves the last dimension as it is."""
    before, after = _shape(user.args[0]), _shape(user)
    if not before or not after or after[-1] != size or before[-1] != size:
        return False
    if name in ("slice", "select"):
        return _number(user.args[1] if len(user.args) > 1 else 0) % len(before) != len(before) - 1
    if name in ("view", "reshape", "_unsafe_view", "flatten"):
        return math.prod(before[:-1]) == math.prod(after[:-1])
    if name in ("unsqueeze", "squeeze"):
        dim = _number(user.args[1] if len(user.args) > 1 else 0)
        return dim % len(before) != len(before) - 1 and dim != -1
    if name == "index":
        places = user.args[1]
        return isinstance(places, (list, tuple)) and len(places) < len(before)
    if name == "transpose":
        return all(_number(d) % len(before) != len(before) - 1 for d in user.args[1:3])
    if name == "permute":
        dims = user.args[1]
        return isinstance(dims, (list, tuple)) and _number(dims[-1]) % len(before) == len(before) - 1
    return True


def _number(value: Any) -> int:
    return int(value)
