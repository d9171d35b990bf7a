"""The parametrised operators of a program in the order in which it runs: what two ways to write one model share.

Tables, convolutions and linear layers have to be in both; linear layers that read the same value are one bundle (so
fused and separate queries, keys and values are the same slot). Gains and BatchNorms may be in one of them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from lawful.program.passes.fold import ContractionLayer, LayerReader, ScaleAndShift, Statistics
from lawful.program.passes.matching import peel
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

# How a tensor of the common form is made of those of one file: moved, cut, joined or constant, never computed.


@dataclass(frozen=True)
class TensorSource:
    """Parts (tensors by name, each transposed if so said, or so many zeros) joined along `axis`, then rows picked.

    >>> fused = {"qkv": torch.arange(6.0)[:, None]}
    >>> TensorSource(("qkv",), rows=(2, 3)).make(fused).flatten().tolist()
    [2.0, 3.0]
    """

    parts: tuple[str | int, ...] = ()
    axis: int = 0
    transposed: bool = False
    rows: tuple[int, ...] | None = None
    constant: float | None = None
    shape: tuple[int, ...] = ()

    @property
    def plain(self) -> str | None:
        """The name of the tensor that this is, as it stands."""
        if self.constant is None and self.rows is None and not self.transposed and len(self.parts) == 1:
            return self.parts[0] if isinstance(self.parts[0], str) else None
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that it is make of."""
        return tuple(part for part in self.parts if isinstance(part, str))

    def make(self, state: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The tensor."""
        if self.constant is not None:
            like = next((tensor for tensor in state.values() if tensor.is_floating_point()), torch.zeros(0))
            return torch.full(self.shape, self.constant, dtype=like.dtype)
        if (name := self.plain) is not None:
            return state[name]
        named = {part: state[part].T if self.transposed else state[part] for part in self.names}
        kind = next((tensor.dtype for tensor in named.values()), torch.float32)
        parts = [named[part] if isinstance(part, str) else torch.zeros(part, dtype=kind) for part in self.parts]
        whole = torch.cat(parts, self.axis) if len(parts) > 1 else parts[0]
        return whole if self.rows is None else whole.index_select(self.axis, torch.tensor(self.rows))


def of(name: str) -> TensorSource:
    """A tensor as it stands."""
    return TensorSource((name,))


def constant(value: float, *shape: int) -> TensorSource:
    """A tensor of one value."""
    return TensorSource(constant=value, shape=shape)


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer: `axis` is the one along which it reads."""

    weight: str
    axis: int
    bias: str | None
    outputs: int


@dataclass(frozen=True)
class FusedLayout:
    """How a fused layer holds the rows of several layers: the order of these, and whether they alternate by heads.

    Without `heads` it holds one after the other, as `[q; k; v]`; else the first head of each, then the second of each,
    and so on, as `[q₁; k₁; v₁; q₂; ...]`.
    """

    order: tuple[int, ...]
    heads: int = 0


Layouts = Mapping[int, FusedLayout]  # by the number of layers that are fused


def starts_of(sizes: Sequence[int]) -> list[int]:
    """Where each of several pieces begins when they are joined."""
    return [sum(sizes[:k]) for k in range(len(sizes))]


def match_rows(host: Sequence[LinearLayer], guest: Sequence[LinearLayer], layout: FusedLayout) -> list[int]:
    """For each row of the host's layers, one layer after the other, the row of the guest's that it holds.

    >>> two = [LinearLayer("q", 1, None, 4), LinearLayer("k", 1, None, 4)]
    >>> match_rows([LinearLayer("qk", 1, None, 8)], two, FusedLayout((1, 0)))
    [4, 5, 6, 7, 0, 1, 2, 3]
    >>> match_rows([LinearLayer("qk", 1, None, 8)], two, FusedLayout((0, 1), heads=2))
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    split = host if len(host) > len(guest) else guest
    starts = starts_of([layer.outputs for layer in split])
    blocks = [range(starts[k], starts[k] + split[k].outputs) for k in layout.order]
    fused = [row for block in blocks for row in block]
    if layout.heads and len(host) != len(guest) and len({len(block) for block in blocks}) == 1:
        size = len(blocks[0]) // layout.heads
        fused = [block[row] for start in range(0, layout.heads * size, size) for block in blocks
                 for row in range(start, start + size)]  # fmt: skip
    # Row i of the fused layer is row `fused[i]` of the split ones: that is asked if the host is fused, and its inverse
    # permutation if the guest is.
    return sorted(range(len(fused)), key=fused.__getitem__) if split is host else fused


@dataclass(frozen=True, eq=False)
class HostRows:
    """What one layer of the host is made of: layers of the guest, and which of their rows, joined (None: all)."""

    layer: LinearLayer
    parts: list[LinearLayer]
    rows: tuple[int, ...] | None


def cut_rows(host: Sequence[LinearLayer], guest: Sequence[LinearLayer], matched: Sequence[int]) -> Iterator[HostRows]:
    """The rows of each layer of the host, from the matching of all of them."""
    origins = [(number, row) for number, layer in enumerate(guest) for row in range(layer.outputs)]
    start = 0
    for layer in host:
        wanted = [origins[row] for row in matched[start : start + layer.outputs]]
        start += layer.outputs
        numbers = sorted({number for number, _ in wanted})
        sizes = [guest[number].outputs for number in numbers]
        before = dict(zip(numbers, starts_of(sizes), strict=True))
        rows = tuple(before[number] + row for number, row in wanted)
        yield HostRows(layer, [guest[number] for number in numbers], None if rows == tuple(range(sum(sizes))) else rows)


@dataclass(frozen=True, eq=False)
class Slot:
    """What has to be in both: a bundle of linear layers, a convolution, or any other use of a parameter."""

    kind: str
    layers: list[LinearLayer] = field(default_factory=list)
    tensors: tuple[str, ...] = ()
    value: Node | None = None


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


def read_slots(program: Program) -> Slots:
    """The slots of a program."""
    return _SlotReader(program).read()


class _SlotReader:
    def __init__(self, program: Program) -> None:
        self.program, self.reader = program, LayerReader(program)
        self.needed: list[Slot] = []
        self.optional: list[OptionalSlot] = []
        self.centring = 0
        self.epsilons: list[float | None] = []
        self.parts: dict[Node, ContractionLayer | Statistics | ScaleAndShift] = {}
        self.uses_of_parts: set[tuple[Node, Node]] = set()  # a node and a parameter whose use there belongs to a part
        for node in program.nodes:
            part = self.reader.layer(node) or self.reader.statistics(node) or self.reader.scale(node)
            if part is not None:
                self.parts[node] = part
                self._tell(node, part)

    def _tell(self, node: Node, part: ContractionLayer | Statistics | ScaleAndShift) -> None:
        """Whose uses of parameters these are: at the product, at the sum, and inside `1 + gain` or `gain / √v`."""
        if isinstance(part, ContractionLayer):
            self.uses_of_parts |= {(node, part.weight)} | (set() if part.bias is None else {(part.result, part.bias)})
            return
        if part.shift is not None:
            self.uses_of_parts.add((part.result, part.shift))
        if part.scale is not None:
            inside = (peel(operand) for operand in node.inputs)
            self.uses_of_parts |= {(factor, part.scale) for factor in (node, *inside)}

    def read(self) -> Slots:
        for node in self.program.as_run():
            self._visit(node)
        return Slots(tuple(self.needed), tuple(self.optional), self.centring, tuple(self.epsilons))

    def _visit(self, node: Node) -> None:
        if node.family is OperatorFamily.LEAF or _source(node) is not None:
            return
        if node.family is OperatorFamily.NORMALISATION and "centre" in node.attributes:
            self.centring += node["centre"]
            self.epsilons.append(node["epsilon"])
        elif abs(node.attributes.get("exponent", 0.0)) == 0.5:
            self._root(node)
        part = self.parts.get(node)
        if isinstance(part, ContractionLayer):
            self._layer(part)
        elif isinstance(part, Statistics):
            names = _names(part.scale, part.shift, part.mean, part.variance)
            self.optional.append(OptionalSlot("statistics", len(self.needed), names, part.epsilon))
        elif part is not None and (part.scale or part.shift):
            self.optional.append(OptionalSlot("gain", len(self.needed), _names(part.scale, part.shift)))
        self._others(node)

    def _root(self, node: Node) -> None:
        """What is added under a root, unless that is a root of statistics."""
        inside = node.inputs[0]
        if inside.family is OperatorFamily.ADDITION and not any(
            peel(operand).op == "buffer" for operand in inside.inputs
        ):
            self.epsilons += [float(operand["value"].item()) for operand in inside.inputs
                              if operand.op == "constant" and operand.size == 1]  # fmt: skip

    def _layer(self, layer: ContractionLayer) -> None:
        bias = None if layer.bias is None else str(layer.bias["name"])
        outputs = layer.weight.shape[0 if layer.is_convolution else 1 - layer.axis]
        linear = LinearLayer(str(layer.weight["name"]), layer.axis, bias, outputs)
        if layer.is_convolution:
            self.needed.append(Slot("convolution", [linear]))
            return
        value = peel(layer.value)
        last = self.needed[-1] if self.needed else None
        if last is not None and last.kind == "linear" and last.value is value:
            last.layers.append(linear)
        else:
            self.needed.append(Slot("linear", [linear], value=value))

    def _others(self, node: Node) -> None:
        """Any other use of parameters."""
        leaves = [
            leaf for leaf in map(_parameter, node.inputs) if leaf is not None and (node, leaf) not in self.uses_of_parts
        ]
        factor = node.family is OperatorFamily.PRODUCT and len(leaves) == 1
        if factor and sum(size > 1 for size in leaves[0].shape) <= 1:
            self.optional.append(OptionalSlot("gain", len(self.needed), (str(leaves[0]["name"]), None)))
        elif leaves:
            self.needed.append(Slot(node.op, tensors=tuple(str(leaf["name"]) for leaf in leaves)))


def _names(*leaves: Node | None) -> tuple[str | None, ...]:
    return tuple(None if leaf is None else str(leaf["name"]) for leaf in leaves)


def _source(node: Node) -> Node | None:
    """What a movement takes all its entries from."""
    return node.inputs[0] if node.family is OperatorFamily.MOVEMENT and len(node.inputs) == 1 else None


def _parameter(node: Node) -> Node | None:
    """The parameter that a node is, perhaps moved."""
    while (source := _source(node)) is not None:
        node = source
    return node if node.op == "parameter" else None
