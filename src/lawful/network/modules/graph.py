"""Follow an exported graph, call by call, with a pending tensor in place of the input."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from lawful.errors import LawfulError, Unsupported
from lawful.network.assemble import Assembly, Value, check_terms, sizes
from lawful.network.modules.export import ExportedModule, operator_name
from lawful.network.modules.operands import BATCH, Call, per_axis
from lawful.network.modules.operators import OPERATORS, PLAIN, SUPPORTED, TAILS, WEIGHED


@dataclass(frozen=True, eq=False)
class Cut:
    """What a tail such as softmax makes of a pending tensor: nothing but regroupings may follow."""

    value: Value
    operator: str


class Interpreter:
    """Runs an exported graph; `entangled` collects why its edges are not the module's parameters one by one."""

    def __init__(self, read: ExportedModule, assembly: Assembly, frozen: frozenset[str]) -> None:
        self.read, self.assembly, self.frozen = read, assembly, frozen
        self.entangled: list[str] = []
        self.used: Counter[str] = Counter()
        self.computed = False  # whether weights were worked out from others
        self.tail: list[fx.Node] = []

    def run(self) -> Value | Cut:
        """The module's one result."""
        if len(self.read.inputs) != 1:
            raise Unsupported(f"the module has {len(self.read.inputs)} inputs: one is supported")
        check_terms(sum(_edges(node) for node in self.read.graph.nodes))
        known: dict[fx.Node, Any] = {}
        for node in self.read.graph.nodes:
            if node.op == "placeholder":
                mine = node.name in self.read.inputs
                known[node] = self.assembly.input() if mine else self.read.tensors.get(node.name)
            elif node.op == "call_function":
                known[node] = self._call(node, known)
            elif node.op == "get_attr":
                raise Unsupported("the module branches on its input")
        results = [known[node] if isinstance(node, fx.Node) else node for node in self.read.results]
        if len(results) != 1 or not isinstance(results[0], (Value, Cut)):
            kinds = ", ".join(type(each).__name__.replace("Value", "tensor") for each in results)
            raise Unsupported(f"the module returns ({kinds}): it must return one tensor made from its input")
        twice = [self.read.names[place] for place, times in self.used.items() if times > 1 and place in self.read.names]
        if twice:
            self.entangled.append(f"{twice[0]} is used more than once")
        return results[0]

    def _call(self, node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
        args = fx.map_arg(node.args, known.__getitem__)
        options = fx.map_arg(node.kwargs, known.__getitem__)
        name = operator_name(node.target)
        parts = _flat((*args, *options.values()))
        if name == "getitem":
            return args[0][args[1]]  # type: ignore[index]
        place = f"{_where(node)}{name}"
        try:
            if any(isinstance(part, Cut) for part in parts) or (name in TAILS and _ends(node)):
                return self._cut(node, name, parts)
            self.used.update(each.name for each in node.all_input_nodes if each.name in self.read.tensors)
            if not any(isinstance(part, Value) for part in parts):
                return self._computed(node, args, options)
            if name not in OPERATORS:
                raise Unsupported(f"is not supported; supported are {SUPPORTED}")
            self._note(node, name, place, parts)
            return OPERATORS[name](Call(self.assembly, node.target, _shape(node)), *args, **options)
        except LawfulError as error:
            raise type(error)(f"{place}: {error}") from None
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError, KeyError) as error:
            raise Unsupported(f"{place} is used in an unsupported way ({str(error).splitlines()[0][:120]})") from None

    def _computed(self, node: fx.Node, args: Any, options: Any) -> Any:
        """Numbers that do not depend on the input."""
        with torch.no_grad():
            found = node.target(*args, **options)  # type: ignore[operator]
        if isinstance(found, torch.Tensor) and found.is_floating_point():
            self.entangled.append(f"{_where(node)}{operator_name(node.target)} computes a weight from others")
            self.computed = True
        return found

    def _note(self, node: fx.Node, name: str, place: str, parts: list[Any]) -> None:
        """Remember whatever makes training of the graph differ from training of the module."""
        held = [
            each.name for each in node.all_input_nodes if each.op == "placeholder" and each.name in self.read.tensors
        ]
        value = next(part for part in parts if isinstance(part, Value))
        self.computed = self.computed or "batch_norm" in name
        if name not in PLAIN and not (name in WEIGHED and len(value.shape) == 1):
            self.entangled.append(f"{place} shares, fixes or folds weights")
        elif name in WEIGHED and any(each not in self.read.trained or each in self.frozen for each in held):
            self.entangled.append(f"{place} has weights that do not train")

    def _cut(self, node: fx.Node, name: str, parts: list[Any]) -> Cut:
        pending = [part for part in parts if isinstance(part, (Value, Cut))]
        kept = next((part for part in parts if isinstance(part, Cut)), None)
        if kept is not None and (len(pending) > 1 or not _follows(name)):
            raise Unsupported(f"follows {kept.operator}, which is no piecewise linear function")
        self.tail.append(node)
        return kept or Cut(next(part for part in parts if isinstance(part, Value)), name.strip("_"))

    def tail_words(self) -> str:
        """The operations that were cut off, as they would be written down: equal words are equal tails."""
        return ", ".join(_told(node) for node in self.tail if not _stays(node))

    def tail_of(self, outputs: torch.Tensor) -> torch.Tensor:
        """What the operations that were cut off make of the graph's outputs, sample by sample."""
        found: dict[fx.Node, Any] = {}
        for node in self.tail:
            first = node.all_input_nodes[0]
            found[node] = _rerun(node, found.get(first, outputs))
        last: torch.Tensor = found[self.tail[-1]]
        return last


def _edges(node: fx.Node) -> int:
    """How many edges a convolution unrolls into, by its sizes alone: taps that fall beside the picture are none.

    Counted before anything is unrolled, so that a large network is given up at once.
    """
    if node.op != "call_function" or operator_name(node.target) not in ("conv1d", "conv2d", "conv3d"):
        return 0
    places: list[Any] = [*node.args[:2], node]
    picture, kernel, result = (tuple(each.meta["val"].shape) for each in places)
    settings: list[Any] = [*node.args[3:6], *(1, 0, 1)[max(0, len(node.args) - 3) :]]
    stride, padding, dilation = settings
    if isinstance(padding, str) or node.kwargs or len(picture) != len(kernel):
        return 0
    count = kernel[0] * kernel[1]
    steps = (per_axis(part, len(kernel) - 2) for part in (stride, padding, dilation))
    for inside, taps, outside, step, before, apart in zip(picture[2:], kernel[2:], result[2:], *steps, strict=True):
        spots = np.arange(outside)[:, None] * step - before + np.arange(taps) * apart
        count *= int(((spots >= 0) & (spots < inside)).sum())
    return int(count)


def _rerun(node: fx.Node, value: torch.Tensor) -> Any:
    swapped = fx.map_arg(node.args, lambda _: value)
    sized = [_unbatched(part, len(value)) for part in swapped]
    return node.target(*sized, **node.kwargs)  # type: ignore[operator]


def _unbatched(part: Any, batch: int) -> Any:
    """Sizes of the traced batch, adapted to another."""
    if isinstance(part, (list, tuple)) and part and part[0] == BATCH:
        return [batch, *part[1:]]
    return part


def _ends(node: fx.Node) -> bool:
    """Whether everything that follows only regroups or is a tail too."""
    waiting, seen = list(node.users), set[fx.Node]()
    while waiting:
        user = waiting.pop()
        if user in seen or user.op == "output":
            continue
        seen.add(user)
        if not _follows(operator_name(user.target)):
            return False
        waiting += user.users
    return True


def _follows(name: str) -> bool:
    """Whether an operation may follow a tail: it regroups, or is a tail too, and bends nothing."""
    return name in TAILS or (name in PLAIN and "relu" not in name)


def _stays(node: fx.Node) -> bool:
    """Whether an operation leaves everything in its place."""
    name, first = operator_name(node.target), node.all_input_nodes[0].meta["val"]
    kept = name in PLAIN and name not in ("permute", "transpose", "t", "numpy_T", "movedim", "flip", "roll")
    return kept and tuple(node.meta["val"].shape) == tuple(first.shape)


def _told(node: fx.Node) -> str:
    """An operation with its settings, axes counted from the front; along the only axis of a sample, its name alone.

    Along one of several axes it is another function for another shape.
    """
    name, first = operator_name(node.target).strip("_"), node.all_input_nodes[0].meta["val"]
    settings: list[Any] = [
        part for part in (*node.args, *node.kwargs.values()) if not isinstance(part, fx.Node) and part is not None
    ]
    if operator_name(node.target) in TAILS:
        settings = [part for part in settings if isinstance(part, int) and not isinstance(part, bool)]
        settings = [part for part in settings if part % first.ndim != first.ndim - 1]
    shape = tuple(int(size) for size in first.shape[1:])
    if "sigmoid" not in name and math.prod(shape[:-1]) != 1:
        settings.append(f"of {sizes(shape)}")
    return f"{name}({', '.join(map(str, settings))})" if settings else name


def _shape(node: fx.Node) -> tuple[int, ...]:
    found = node.meta.get("val")
    if isinstance(found, (list, tuple)):
        found = found[0] if found else None
    if not isinstance(found, torch.Tensor):
        return ()
    if not found.ndim or len(found) != BATCH:
        raise Unsupported(f"makes a tensor of {sizes(tuple(found.shape))}, which does not keep the batch apart")
    return tuple(int(size) for size in found.shape[1:])


def _where(node: fx.Node) -> str:
    """The layer that a call belongs to, in the words of its module."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack or not stack[-1][0]:
        return ""
    name, kind = stack[-1]
    return f"layer {str(name)!r} ({str(getattr(kind, '__name__', kind)).rsplit('.', 1)[-1]}), "


def _flat(parts: Any) -> list[Any]:
    return [each for part in parts for each in (_flat(part) if isinstance(part, (list, tuple)) else [part])]
