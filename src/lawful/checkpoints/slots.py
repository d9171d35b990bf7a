"""The parametrised operations of a graph in the order in which it runs: what two ways to write one model share.

Tables, convolutions and linear layers have to be in both; linear layers that read the same value are one bundle (so
fused and separate queries, keys and values are the same slot). Gains and BatchNorms may be in one of them alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import fx

from lawful.network.modules.export import ExportedModule, operator_name

STEPS = {"view", "reshape", "_unsafe_view", "to", "_to_copy", "contiguous", "clone", "alias", "dropout", "type_as"}
CONVOLUTIONS = {"conv1d", "conv2d", "conv3d"}


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer: `axis` is the one along which it reads."""

    weight: str
    axis: int
    bias: str | None
    outputs: int


@dataclass(frozen=True, eq=False)
class Slot:
    """What has to be in both: a bundle of linear layers, a convolution, or any other use of a parameter."""

    kind: str
    layers: list[LinearLayer] = field(default_factory=list)
    tensors: tuple[str, ...] = ()
    value: fx.Node | None = None


@dataclass(frozen=True)
class OptionalSlot:
    """A gain (with or without an offset) or a BatchNorm, and how many slots come before it."""

    kind: str
    place: int
    tensors: tuple[str | None, ...]
    epsilon: float | None = None


@dataclass(frozen=True, eq=False)
class Slots:
    """All of a graph, how many of its operations take a mean away (LayerNorm), and what norms add to a variance."""

    needed: tuple[Slot, ...]
    optional: tuple[OptionalSlot, ...]
    centring: int
    epsilons: tuple[float | None, ...]


def read_slots(exported: ExportedModule) -> Slots:
    """The slots of a graph."""
    return _SlotReader(exported).read()


class _SlotReader:
    def __init__(self, exported: ExportedModule) -> None:
        self.exported = exported
        self.needed: list[Slot] = []
        self.optional: list[OptionalSlot] = []
        self.centring = 0
        self.epsilons: list[float | None] = []

    def read(self) -> Slots:
        for node in self.exported.calls:
            self._visit(node, operator_name(node.target))
        return Slots(tuple(self.needed), tuple(self.optional), self.centring, tuple(self.epsilons))

    def name(self, node: Any) -> str | None:
        """The parameter that a node is, seen through changes of its shape and type."""
        while isinstance(node, fx.Node) and node.op == "call_function" and operator_name(node.target) in STEPS:
            node = node.args[0]
        if isinstance(node, fx.Node) and node.name in self.exported.trained:
            return self.exported.names[node.name]
        return None

    def _visit(self, node: fx.Node, name: str) -> None:
        given: list[Any] = [*node.args, *[None] * 8]
        if name in STEPS:
            return
        if name in ("rsqrt", "sqrt") and isinstance(given[0], fx.Node) and operator_name(given[0].target) == "add":
            self.epsilons += [float(each) for each in given[0].args if isinstance(each, (int, float))]
        if name == "linear" and self.name(given[1]):
            self._linear(given[0], given[1], 1, given[2])
        elif name == "addmm" and self.name(given[2]):
            self._linear(given[1], given[2], 0, given[0])
        elif name in ("mm", "matmul") and self.name(given[1]):
            self._linear(given[0], given[1], 0, None)
        elif name in CONVOLUTIONS and self.name(given[1]):
            bias = given[2] if given[2] is not None else node.kwargs.get("bias")
            layer = LinearLayer(str(self.name(given[1])), 1, self.name(bias), _sizes(given[1])[0])
            self.needed.append(Slot("convolution", [layer]))
        elif name in ("layer_norm", "rms_norm"):
            self.centring += name == "layer_norm"
            self.epsilons.append(given[4] if name == "layer_norm" else given[3])
            gain, offset = self.name(given[2]), self.name(given[3]) if name == "layer_norm" else None
            if gain or offset:
                self.optional.append(OptionalSlot("gain", len(self.needed), (gain, offset)))
        elif name == "batch_norm" and not given[5]:
            held = (self.exported.names.get(each.name) if isinstance(each, fx.Node) else None for each in given[1:5])
            self.optional.append(OptionalSlot("statistics", len(self.needed), tuple(held), float(given[7])))
        else:
            self._other(node, name)

    def _linear(self, value: Any, weight: Any, axis: int, bias: Any) -> None:
        while isinstance(value, fx.Node) and value.op == "call_function" and operator_name(value.target) in STEPS:
            value = value.args[0]
        layer = LinearLayer(str(self.name(weight)), axis, self.name(bias), _sizes(weight)[1 - axis])
        last = self.needed[-1] if self.needed else None
        if last is not None and last.kind == "linear" and last.value is value:
            last.layers.append(layer)
        else:
            self.needed.append(Slot("linear", [layer], value=value))

    def _other(self, node: fx.Node, name: str) -> None:
        found = tuple(own for each in node.all_input_nodes if (own := self.name(each)) is not None)
        if not found:
            return
        vector = name == "mul" and len(found) == 1 and len(node.all_input_nodes) == 2
        if vector and sum(size > 1 for size in self._shape(found[0])) <= 1:
            self.optional.append(OptionalSlot("gain", len(self.needed), (found[0], None)))
        elif name == "add" and len(node.all_input_nodes) == 1:  # `1 + gain`: the product that follows is the slot
            user = next(iter(node.users), None)
            if user is not None and operator_name(user.target) == "mul":
                self.optional.append(OptionalSlot("gain", len(self.needed), (found[0], None)))
            else:
                self.needed.append(Slot(name, tensors=found))
        else:
            self.needed.append(Slot(name, tensors=found))

    def _shape(self, name: str) -> tuple[int, ...]:
        node = next(each for each, own in self.exported.names.items() if own == name)
        return tuple(self.exported.tensors[node].shape)


def _sizes(node: fx.Node) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["val"].shape)
