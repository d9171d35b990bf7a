"""Channels as a domain: a network's program as operations on channels, decided by families and traits.

Every entry of a value is a channel of an activation (`values`). Layers make new channels; functions of one number,
sums, products and normalisations by channel, pools and movements pass them on; what no rule follows is pinned.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.program.arrays import NUMPY
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.pruning.channels import attention
from lawful.pruning.channels.movement import collapse, follow
from lawful.pruning.channels.program import OWN_MEANS, Arguments, ChannelProgram, Operation, Spot
from lawful.pruning.channels.values import (
    Attended,
    Centred,
    Channels,
    Guard,
    HeadScores,
    Held,
    Mixture,
    Padded,
    Total,
    Value,
)
from lawful.types import Indices

MOST_PARTS = 1000  # that one concatenation has in a certificate
# Names that certificates have for functions of one number, where they are not the table's own.
ROOTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
CLAMPS = {"maximum": "clamp_min", "minimum": "clamp_max"}
UNBOUNDED = 1e300  # a softplus that is linear nowhere
BY_CHANNEL = frozenset({OperatorFamily.ELEMENTWISE, OperatorFamily.CHOICE, OperatorFamily.COMPARISON})
BLENDING = BY_CHANNEL | {OperatorFamily.ADDITION, OperatorFamily.PRODUCT, OperatorFamily.NORMALISATION}
WITH_BIAS = ("layer", "depthwise", "norm", "scale")


def read_channels(program: Program, *, fixed: bool = False, still: bool = False) -> ChannelReading:
    """The operations on channels of a program.

    `fixed`: inner channels of attentions stay, for scores may be divided by a number that depends on how many there
    are. `still`: channels stay that movements take elsewhere, into parts or other axes, for those may say how many
    there are.
    """
    return ChannelReading(program, fixed, still)


class ChannelReading(AbstractDomain[Value]):
    """A program as operations on channels, with what is known of every value in `values`."""

    def __init__(self, program: Program, fixed: bool, still: bool) -> None:
        self.source, self.fixed, self.still = program, fixed, still
        self.program = ChannelProgram()
        self.touched: set[str] = set()  # tensors in use that no rule can cut
        self._place: dict[str, int] = {}  # of operations by name
        self._made: dict[Any, str] = {}
        self._readers = Counter(each for node in program.nodes for each in node.inputs)
        self._readers.update(program.outputs)
        self.values = interpret(program, self, program.nodes)
        self._finish()

    # Activations

    @property
    def spots(self) -> dict[str, Spot]:
        """The activations by name."""
        return self.program.spots

    def name(self, node: Node, role: str = "") -> str:
        """The name of what a node makes: the same for equal nodes of any program."""
        return f"{node.op} {node.identity.hex()[:16]}{role}"

    def operation(self, name: str) -> Operation | None:
        """The operation that makes an activation."""
        return self.program.operations[self._place[name]] if name in self._place else None

    def _add(self, operation: Operation, cells: Indices | None = None) -> str:
        self._place[operation.name] = len(self.program.operations)
        self.program.add(operation, None if cells is None else Spot(0, cells, (len(cells),)))
        return operation.name

    def _passed(
        self,
        kind: str,
        name: str,
        sources: Sequence[str],
        *,
        tensors: dict[str, str | None] | None = None,
        padded: bool = False,
        function: str = "",
        arguments: Arguments = (),
    ) -> str:
        """An operation channel by channel."""
        given = Operation(kind, name, tuple(sources), tensors or {}, padded, 1, function, arguments)
        return self._add(given, self.spots[sources[0]].cells)

    def _fresh(self, name: str, count: int, *, pinned: bool = False) -> None:
        self.program.fresh(name, 0, (count,), pinned=pinned)

    def sequence(self, x: Channels, labels: Indices) -> str | None:
        """The activation whose channels are those at labels, in this order; None if it has too many parts."""
        order = labels.ravel()
        name = x.name
        if x.width > 1:
            name = self._widened(x.name, x.width)
        count = len(self.spots[name].cells)
        if len(order) == count and bool((order == np.arange(count)).all()):
            return name
        key = name, order.tobytes()
        if key not in self._made:
            starts = np.flatnonzero(np.diff(order, prepend=-2) != 1)
            if len(starts) > MOST_PARTS:
                return None
            runs = [(int(order[a]), int(b - a)) for a, b in zip(starts, [*starts[1:], len(order)], strict=True)]
            parts = [self._part(name, start, size) for start, size in runs]
            made = parts[0]
            if len(parts) > 1:
                cells = np.concatenate([self.spots[part].cells for part in parts])
                made = self._add(Operation("cat", f"{name} in order {len(self._made)}", tuple(parts)), cells)
            self._made[key] = made
        return self._made[key]

    def _part(self, name: str, start: int, size: int) -> str:
        if start == 0 and size == len(self.spots[name].cells):
            return name
        made = f"{name} from {start} to {start + size}"
        if made not in self.spots:
            cells = self.spots[name].cells[start : start + size]
            self._add(Operation("part", made, (name,), arguments=(float(start),)), cells)
        return made

    def _widened(self, name: str, width: int) -> str:
        made = f"{name} by {width}"
        if made not in self.spots:
            self._add(Operation("flat", made, (name,), width=width), np.repeat(self.spots[name].cells, width))
        return made

    def along(self, x: Channels, axis: int) -> str:
        """The channels along one axis; where channels lie elsewhere they stay, and positions are seen as channels."""
        size = x.shape[axis]
        if x.labels.size == x.labels.shape[axis] == size:
            found = self.sequence(x, x.labels)
            if found is not None:
                return found
        name = f"{x.name} seen along {axis} of {list(x.shape)}"
        if name not in self.spots:
            self.program.pin(x.name)
            self._fresh(name, size, pinned=True)
            self._add(Operation("other", name, (x.name,)))
        return name

    # Values

    def settle(self, value: Value) -> Channels | None:
        """A value as channels: what was left open until its reader is known is decided now; None if it is none."""
        if isinstance(value, Channels):
            return value
        if isinstance(value, Padded) and value.number == 0:
            name = f"{value.value.name} padded {value.outside.shape}{hash(value.outside.tobytes())}"
            if name not in self.spots:
                self._passed("pool", name, [value.value.name], padded=True)
            return replace(value.value, name=name, root="")
        if isinstance(value, Total):
            return self._summed(value)
        if isinstance(value, Mixture):
            axes = [axis for axis, size in enumerate(value.labels.shape) if size > 1]
            return self._pinned(value.node, [value.root], value.said, axes[0] if len(axes) == 1 else None)
        return None

    def _summed(self, total: Total) -> Channels:
        """A sum is a mean times how many there are; beside padding only 0 stays what it is."""
        name = self.name(total.node)
        if name not in self.spots:
            if total.padded or total.count.size > 1:
                self._passed("pool", name, [total.value.name], padded=True)
            else:
                mean = self._passed("pool", f"{name} mean", [total.value.name])
                numbers = (float(total.count.flat[0]),)
                self._passed("same", name, [mean], function="mul number", arguments=numbers)
        return replace(total.value, name=name, root="")

    def sources_of(self, value: Value) -> list[str]:
        """The activations that a value is made of."""
        match value:
            case Channels():
                return [value.name]
            case Mixture():
                return [value.root]
            case Padded() | Total() | Centred():
                return [value.value.name]
            case HeadScores():
                return [name for side in value.sides for name in self.sources_of(side)]
            case Attended():
                return self.sources_of(value.scores)
            case Guard():
                return self.sources_of(value.source)
        return []

    def _pinned(self, node: Node, sources: Sequence[str], said: str, axis: int | None = None) -> Channels:
        """A value that no rule follows: what it reads stays."""
        name = self.name(node, " as a whole")
        if axis is None:
            axis = min(1, max(node.rank - 1, 0))
        count = node.shape[axis] if node.shape else 1
        if name not in self.spots:
            for source in sources:
                self.program.pin(source)
            self._fresh(name, count, pinned=True)
            if node.inputs:
                self._add(Operation("other", name, tuple(dict.fromkeys(sources)), function=said))
        sizes = [count if k == axis else 1 for k in range(node.rank)]
        return Channels(name, np.arange(count).reshape(sizes), node.shape)

    def other(self, node: Node, *operands: Value) -> Value:
        """What no rule follows: a mixture of one activation's channels while it may be one of heads, else pinned."""
        if all(isinstance(each, Held) for each in operands) and node.family is not OperatorFamily.OPAQUE:
            return Held(node)
        for each in operands:
            if isinstance(each, Held):
                self._touch(each.node)
        if node.family in BLENDING:
            blend = self._blend(node, operands)
            if blend is not None:
                return blend
        sources = [name for each in operands for name in self.sources_of(each)]
        return self._pinned(node, sources, node["name"] if node.family is OperatorFamily.OPAQUE else node.op)

    def _touch(self, node: Node) -> None:
        """Tensors behind a value are used in a way that no rule can cut."""
        stack = [node]
        while stack:
            each = stack.pop()
            stack += each.inputs
            if "name" in each.attributes and each.family is OperatorFamily.LEAF:
                self.touched.add(each["name"])

    def _blend(self, node: Node, operands: Sequence[Value]) -> Mixture | None:
        parts: list[Mixture] = []
        beside: list[tuple[int, ...]] = []
        for each, given in sorted(zip(operands, node.inputs, strict=True), key=lambda pair: self._stays(pair[0])):
            mixture = None if isinstance(each, Held) else self._as_mixture(given, each)
            if not isinstance(each, (Held, Channels, Mixture)):
                return None
            if mixture is not None and (not parts or mixture.root == parts[0].root):
                parts.append(mixture)
            elif self._stays(each):
                beside.append(given.shape)
            else:
                return None
        if not parts or any(each.labels.shape != parts[0].labels.shape for each in parts):
            return None
        first = parts[0].labels
        relations = [relation for each in parts for relation in each.relations]
        relations += [(first, each.labels, True) for each in parts[1:]]
        for shape in beside:
            sizes = [n if first.shape[k] > 1 else 1 for k, n in enumerate(shape)]
            if math.prod(sizes) > 1:
                code = np.arange(math.prod(sizes)).reshape(sizes)
                relations.append((first, np.broadcast_to(code, first.shape), False))
        if node.family is OperatorFamily.NORMALISATION:
            axes = node.attributes.get("axes", (node.attributes.get("axis"),))
            start = first[tuple(slice(0, 1) if k in axes else slice(None) for k in range(first.ndim))]
            relations.append((np.broadcast_to(start, first.shape), first, True))
        said = next((each.said for each in parts if each.said), "") or node.op
        return Mixture(node, parts[0].root, first, said, tuple(relations))

    def _stays(self, value: Value) -> bool:
        """Whether all that a value is made of stays."""
        return all(self.program.is_pinned(name) for name in self.sources_of(value))

    def _as_mixture(self, node: Node, value: Value) -> Mixture | None:
        if isinstance(value, Mixture):
            return value
        if isinstance(value, Channels) and value.width == 1:
            return value.mixture or Mixture(node, value.origin, value.labels, "")
        return None

    # Families

    def leaf(self, node: Node) -> Value:
        """Inputs have channels along their second axis, which stay."""
        if node.op != "input":
            return Held(node)
        return self._pinned(node, [], "")

    def movement(self, node: Node, *sources: Value) -> Value:
        """Labels move."""
        if all(isinstance(each, Held) for each in sources):
            return Held(node)
        if any(isinstance(each, (HeadScores, Attended)) for each in sources):
            return attention.move(self, node, sources)
        if len(sources) == 1 and isinstance(sources[0], Total):
            total = sources[0]
            moved = self.movement(node, total.value)
            count = total.count
            if count.size > 1:
                count = np.broadcast_to(count, node.inputs[0].shape).ravel()[node["map"].positions]
            else:
                count = count.reshape((1,) * node.rank)
            if isinstance(moved, Channels) and moved.name == total.value.name:
                return Total(total.node, moved, count, total.padded)
        given: list[Channels | Mixture | None] = []
        for each in sources:
            if isinstance(each, Held):
                if each.node.op != "constant":
                    return self.other(node, *sources)
                given.append(None)
            elif isinstance(each, Mixture):
                given.append(each)
            else:
                settled = self.settle(each)
                if settled is None:
                    return self.other(node, *sources)
                given.append(settled)
        known = [each for each in given if each is not None]
        if any(isinstance(each, Mixture) for each in known):
            mixed = self._mixed(node, given)
            return self.other(node, *sources) if mixed is None else mixed
        return self._moved(node, given) or self.other(node, *sources)  # type: ignore[arg-type]

    def _mixed(self, node: Node, given: Sequence[Channels | Mixture | None]) -> Mixture | None:
        """Entries of several functions of one activation's channels."""
        parts = [None if each is None else self._as_mixture(node, each) for each in given]
        if any(part is None for part in parts):
            return None
        whole = [part for part in parts if part is not None]
        if len({part.root for part in whole}) > 1:
            return None
        shapes = [each.shape for each in node.inputs]
        moved = follow(node["map"], [(s, p.labels) for s, p in zip(shapes, whole, strict=True)])
        if moved is None or moved.width > 1 or moved.outside is not None:
            return None
        relations = [relation for part in whole for relation in part.relations]
        if len(whole) > 1:
            numbered = follow(
                node["map"],
                [(s, p.labels * len(whole) + k) for k, (s, p) in enumerate(zip(shapes, whole, strict=True))],
            )
            if numbered is None or numbered.width > 1:
                return None
            both = np.broadcast_arrays(moved.labels, numbered.labels % len(whole))
            relations.append((both[0], both[1], False))
        said = next((part.said for part in whole if part.said), "") or node.op
        return Mixture(node, whole[0].root, moved.labels, said, tuple(relations))

    def _moved(self, node: Node, given: Sequence[Channels | None]) -> Value | None:
        known = [each for each in given if each is not None]
        one = len({(each.name, each.width) for each in known}) == 1
        starts, total = {}, 0
        for each in known:
            if each.name not in starts:
                starts[each.name] = 0 if one else total
                total += len(self.spots[each.name].cells) * each.width
        if not one and any(each.width != 1 for each in known):
            return None
        shapes = [each.shape for each in node.inputs]
        labelled = [
            (shape, None if each is None else each.labels + starts[each.name])
            for shape, each in zip(shapes, given, strict=True)
        ]
        moved = follow(node["map"], labelled)
        if moved is None:
            return None
        number = self._fill(node, given)
        if number is None and moved.outside is not None:
            return None
        width, labels = known[0].width * moved.width, moved.labels
        if width > 1 and (collapsed := collapse(labels, width)) is not None:
            width, labels = 1, collapsed
        if self.still and not (one and width == 1 and _same_places(labels, known[0].labels)):
            return None
        mixture = None
        if one:
            name, root = known[0].name, known[0].root
            if known[0].mixture is not None and len(given) == 1:
                mixture = self._mixed(node, [known[0].mixture])
        else:
            name, root = self.name(node), ""
            cells = np.concatenate([self.spots[each].cells for each in starts])
            self._add(Operation("cat", name, tuple(starts)), cells)
            if len({each.mixture.root if each.mixture else each.origin for each in known}) == 1:
                mixture = self._mixed(node, given)
        value = Channels(name, labels, node.shape, width, root, mixture)
        return value if number is None or moved.outside is None else Padded(value, number, moved.outside)

    def _fill(self, node: Node, given: Sequence[Channels | None]) -> float | None:
        """The one number that lies beside the channels."""
        numbers = [
            each["value"].ravel() for each, known in zip(node.inputs, given, strict=True) if known is None
        ]  # a constant among sources holds each number once, and all are used
        flat = np.concatenate(numbers) if numbers else np.zeros(0)
        return float(flat[0]) if len(flat) == 1 else None

    def elementwise(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        if all(isinstance(each, Held) for each in operands):
            return Held(node)
        if len(operands) > 1:
            return self._entrywise(node, *operands)
        x = operands[0]
        if isinstance(x, HeadScores):
            return replace(x, bent=True)
        if isinstance(x, Mixture):
            return self.other(node, x)
        settled = self.settle(x)
        if settled is None:
            return self.other(node, x)
        kind, function, arguments = function_of(node)
        return self._function(node, settled, kind, function, arguments)

    def _function(self, node: Node, x: Channels, kind: str, function: str, arguments: Arguments = ()) -> Channels:
        name = self._passed(kind, self.name(node), [x.name], function=function, arguments=arguments)
        return replace(x, name=name, shape=node.shape, root=x.origin, mixture=None)

    def _entrywise(self, node: Node, *operands: Value) -> Value:
        """A function of each channel, made of several functions of it: a key of its own."""
        known = [self.settle(each) if isinstance(each, (Channels, Padded, Total)) else each for each in operands]
        mine = [each for each in known if isinstance(each, Channels)]
        rest = [each for each in known if not isinstance(each, Channels)]
        numbers = all(isinstance(each, Held) and self._number(each) is not None for each in rest)
        alike = mine and all(
            (each.origin, each.width) == (mine[0].origin, mine[0].width)
            and each.labels.shape == mine[0].labels.shape
            and bool((each.labels == mine[0].labels).all())
            for each in mine
        )
        if not alike or not numbers or node.family not in BY_CHANNEL:
            return self.other(node, *operands)
        name = self._passed("bend", self.name(node), [mine[0].origin], function=f"entrywise {node.op}")
        return replace(mine[0], name=name, shape=node.shape, root=mine[0].origin, mixture=None)

    def _number(self, value: Value) -> float | None:
        """The one number that a held value is everywhere."""
        if not isinstance(value, Held) or value.node.op != "constant" or value.node["value"].size != 1:
            return None
        number = float(value.node["value"].item())
        return number if math.isfinite(number) else None

    def _scalar(self, value: Held) -> float | None:
        """The number in a tensor of one entry, which all channels share."""
        name = self._leaf_name(value.node, 1)
        if name is None:
            return None
        self.touched.add(name)
        return float(self.source.tensors[name].reshape(-1)[0])

    def addition(self, node: Node, x: Value, y: Value) -> Value:
        """A bias, a shift by channel, a number, the start of a normalisation, or a sum of two activations."""
        if isinstance(x, Held) and isinstance(y, Held):
            return Held(node)
        given = x, y
        (x, one), (y, two) = sorted(((x, node.inputs[0]), (y, node.inputs[1])), key=lambda p: isinstance(p[0], Held))
        if isinstance(x, HeadScores):
            return attention.mask(self, node, x, y, two)
        if not isinstance(y, Held):
            return self._pair(node, "add", *given)
        number = self._number(y)
        settled = None if isinstance(x, Mixture) else self.settle(x)
        if settled is None:
            return self.other(node, *given)
        if number is not None:
            return self._function(node, settled, "bend", "add number", (number,))
        if (vector := self._vector(y.node, settled)) is not None:
            return self._shift(node, one, settled, vector)
        if (scalar := self._scalar(y)) is not None:
            return self._function(node, settled, "bend", "add number", (scalar,))
        if (mean := self._negative(y.node, settled)) is not None:
            return Centred(settled, mean)
        return self.other(node, *given)

    def _shift(self, node: Node, operand: Node, x: Channels, bias: str) -> Value:
        """The bias of the layer or normalisation before, if nothing else reads that; else a step of its own."""
        operation = self.operation(x.name)
        whole = x.width == 1 and np.array_equal(x.labels.ravel(), np.arange(len(self.spots[x.name].cells)))
        fits = operation is not None and operation.kind in WITH_BIAS and operation.tensors["bias"] is None
        fits = fits and len(self.source.tensors[bias].shape) == 1  # a layer's own bias: files also hold (1, C, 1, 1)
        if operation is not None and fits and whole and self._alone(operand):
            place = self._place[x.name]
            self.program.operations[place] = replace(operation, tensors={**operation.tensors, "bias": bias})
            return replace(x, shape=node.shape)
        return self._scaled(node, x, {"weight": None, "bias": bias})

    def _alone(self, operand: Node) -> bool:
        """Whether one node alone reads what an operation makes, through movements that only one node reads."""
        while self._readers[operand] == 1 and operand.family is OperatorFamily.MOVEMENT and len(operand.inputs) == 1:
            operand = operand.inputs[0]
        return self._readers[operand] == 1 and operand.family is not OperatorFamily.MOVEMENT

    def _scaled(self, node: Node, x: Channels, tensors: dict[str, str | None]) -> Value:
        source = self.sequence(x, x.labels)
        if source is None:
            return self._pinned(node, [x.name], node.op)
        name = self._passed("scale", self.name(node), [source], tensors=tensors)
        return Channels(name, np.arange(x.labels.size).reshape(x.labels.shape), node.shape)

    def _vector(self, node: Node, x: Channels) -> str | None:
        """The tensor with a number for each channel of x."""
        return self._leaf_name(node, x.labels.size) if node.shape == x.labels.shape else None

    def _negative(self, node: Node, x: Channels) -> str | None:
        """The tensor of which a held value is minus one times."""
        if node.shape != x.labels.shape:
            return None
        inside = unwrap(node)
        if inside.family is not OperatorFamily.PRODUCT:
            return None
        for factor, vector in (inside.inputs, inside.inputs[::-1]):
            if self._number(Held(factor)) == -1:
                return self._leaf_name(vector, x.labels.size)
        return None

    def product(self, node: Node, x: Value, y: Value) -> Value:
        """A number, a scale by channel, the end of a mean or of a normalisation, or a product of two activations."""
        if isinstance(x, Held) and isinstance(y, Held):
            return Held(node)
        given = x, y
        x, y = sorted((x, y), key=lambda p: isinstance(p, Held))
        if isinstance(x, HeadScores) and self._number(y):
            return x
        if not isinstance(y, Held):
            return self._pair(node, "mul", *given)
        if isinstance(x, Centred):
            return self._norm(node, x, y, given)
        if isinstance(x, Total) and y.node.op == "constant":
            mean = self._mean(node, x, y.node)
            if mean is not None:
                return mean
        settled = None if isinstance(x, Mixture) else self.settle(x)
        if settled is None:
            return self.other(node, *given)
        number = self._number(y)
        if number is not None:
            made = self._function(node, settled, "same", "mul number", (number,))
            return replace(made, mixture=settled.mixture) if settled.mixture else made
        if (vector := self._vector(y.node, settled)) is not None:
            return self._scaled(node, settled, {"weight": vector, "bias": None})
        if (scalar := self._scalar(y)) is not None:
            return self._function(node, settled, "same", "mul number", (scalar,))
        return self.other(node, *given)

    def _mean(self, node: Node, total: Total, factor: Node) -> Channels | None:
        """A sum times one over the number of its terms; a number that is an exact multiple of that as well."""
        value, count = factor["value"], total.count
        try:
            inverse = np.broadcast_to(1.0 / count, np.broadcast_shapes(count.shape, value.shape))
        except ValueError:
            return None
        if bool((inverse == value).all()):  # the quotient that reading rounded: it is a mean
            name = self._passed("pool", self.name(node), [total.value.name])
            return replace(total.value, name=name, shape=node.shape, root="")
        if total.padded or count.size > 1 or value.size > 1 or not math.isfinite(float(value.item())):
            return None
        number = Fraction(float(value.item())) * int(count.item())
        if Fraction(float(number)) != number:
            return None
        mean = self._passed("pool", f"{self.name(node)} mean", [total.value.name])
        name = self._passed("same", self.name(node), [mean], function="mul number", arguments=(float(number),))
        return replace(total.value, name=name, shape=node.shape, root="")

    def _norm(self, node: Node, x: Centred, factor: Held, given: Sequence[Value]) -> Value:
        """(x - mean) γ / √(variance + ε)."""
        if factor.node.shape != x.value.labels.shape:
            return self.other(node, *given)
        held = unwrap(factor.node)
        gain, root = None, held
        if held.family is OperatorFamily.PRODUCT:
            gain, root = next(
                (pair for pair in (held.inputs, held.inputs[::-1]) if pair[1].traits.degree == -0.5), held.inputs
            )
        read = self._variance(root)
        names = [None if gain is None else self._leaf_name(gain, x.value.labels.size)]
        source = self.sequence(x.value, x.value.labels)
        if read is None or source is None or (gain is not None and names[0] is None):
            return self.other(node, *given)
        variance, epsilon = read
        if self._sized(variance) != x.value.labels.size:
            return self.other(node, *given)
        tensors = {"weight": names[0], "bias": None, "mean": x.mean, "variance": variance}
        name = self._passed("norm", self.name(node), [source], tensors=tensors, arguments=(epsilon,))
        return Channels(name, np.arange(x.value.labels.size).reshape(x.value.labels.shape), node.shape)

    def _sized(self, name: str) -> int:
        return int(np.prod(self.source.tensors[name].shape, dtype=int))

    def _leaf_name(self, node: Node, count: int) -> str | None:
        node = unwrap(node)
        plain = node.family is OperatorFamily.LEAF and "name" in node.attributes and node.shape[:1] == (count,)
        return str(node["name"]) if plain and node.size == count else None

    def _variance(self, node: Node) -> tuple[str, float] | None:
        """The tensor and ε of (variance + ε)^-½."""
        if node.family is not OperatorFamily.ELEMENTWISE or node.traits.degree != -0.5:
            return None
        inside = node.inputs[0]
        if inside.family is not OperatorFamily.ADDITION:
            name = self._leaf_name(inside, inside.size)
            return None if name is None else (name, 0.0)
        for number, vector in (inside.inputs, inside.inputs[::-1]):
            epsilon, name = self._number(Held(number)), self._leaf_name(vector, vector.size)
            if epsilon is not None and name is not None:
                return name, epsilon
        return None

    def _pair(self, node: Node, kind: str, x: Value, y: Value) -> Value:
        """Two activations, channel by channel: channels of both are one from now on."""
        if isinstance(x, Mixture) or isinstance(y, Mixture):
            return self.other(node, x, y)
        one, two = self.settle(x), self.settle(y)
        if one is None or two is None or one.labels.shape != two.labels.shape:
            return self.other(node, x, y)
        if any(
            a != b and 1 in (a, b) and n > 1 for a, b, n in zip(one.shape, two.shape, one.labels.shape, strict=True)
        ):
            return self.other(node, x, y)
        sources = [self.sequence(each, each.labels) for each in (one, two)]
        if None in sources:
            return self.other(node, x, y)
        shrunk = self._shrinkage(one, two) if kind == "add" and np.array_equal(one.labels, two.labels) else None
        if shrunk is not None:  # relu(x - λ) - relu(-x - λ) is odd, which its parts do not say
            name = self._passed("bend", self.name(node), [shrunk[0]], function="softshrink", arguments=(shrunk[1],))
            return replace(one, name=name, shape=node.shape, root=one.origin, mixture=None)
        names = [str(each) for each in sources]
        self.program.join(*names)
        name = self._passed(kind, self.name(node), names)
        root = one.origin if one.origin == two.origin and np.array_equal(one.labels, two.labels) else ""
        labels = np.arange(one.labels.size).reshape(one.labels.shape)
        if root and names == [one.name, two.name]:
            return Channels(name, one.labels, node.shape, one.width, root)
        return Channels(name, labels, node.shape)

    def _shrinkage(self, one: Channels, two: Channels) -> tuple[str, float] | None:
        """The activation x and λ ≥ 0 of relu(x - λ) - relu(-x - λ)."""
        for right, left in ((one.name, two.name), (two.name, one.name)):
            bound, x = self._before(self._before(right, "relu")[1], "add number")
            turned = self._before(self._before(left, "mul number", -1.0)[1], "relu")[1]
            other, y = self._before(turned, "add number")
            if (
                x
                and bound is not None
                and bound == other
                and bound <= 0
                and self._before(y, "mul number", -1.0)[1] == x
            ):
                return x, -bound
        return None

    def _before(self, name: str, function: str, number: float | None = None) -> tuple[float | None, str]:
        """The number of a function that makes an activation, and what it reads; nothing if another one does."""
        operation = self.operation(name)
        if operation is None or operation.function != function or number not in (None, *operation.arguments):
            return None, ""
        return (float(operation.arguments[0]) if operation.arguments else None), operation.sources[0]

    def contraction(self, node: Node, x: Value, y: Value) -> Value:
        """A layer, a fixed map of positions, or a part of an attention."""
        if isinstance(x, Held) and isinstance(y, Held):
            return Held(node)
        if "spec" not in node.attributes:
            return self._convolution(node, x, y)
        given, (letters, out) = (x, y), node["spec"].split("->")
        (x, lx), (y, ly) = sorted(zip(given, letters.split(","), strict=True), key=lambda p: isinstance(p[0], Held))
        if not isinstance(y, Held):
            return attention.contract(self, node, (x, lx), (y, ly), out)
        settled = self.settle(x)
        inner, outer = [c for c in lx if c not in out], [c for c in ly if c not in lx]
        plain = len(inner) == len(outer) == 1 and len(ly) == 2
        if settled is None:
            return self.other(node, *given)
        if plain and y.node.family is OperatorFamily.LEAF and "name" in y.node.attributes:
            source = self.along(settled, lx.index(inner[0]))
            return self._layer(node, source, str(y.node["name"]), out.index(outer[0]), turned=ly[0] == inner[0])
        mine = {lx[axis] for axis in settled.axes}
        if y.node.op == "constant" and not mine & set(ly):
            weights = np.asarray(y.node["value"], dtype=np.float64)
            sums = weights.sum(axis=tuple(k for k, c in enumerate(ly) if c in inner))
            terms = math.prod(weights.shape[k] for k, c in enumerate(ly) if c in inner)
            # shares of interpolations add up to 1 but for the rounding of each when they were read
            steady = bool((np.abs(sums - 1) <= 2.0**-52 * terms).all())
            name = self._passed("pool", self.name(node), [settled.name], padded=not steady)
            return self._linear(node, settled, lx, out, name)
        return self.other(node, *given)

    def _linear(self, node: Node, x: Channels, letters: str, out: str, name: str) -> Channels:
        """Labels after a contraction of positions."""
        kept = [c for c in out if c in letters]
        lines = x.labels[tuple(slice(None) if c in out else 0 for c in letters)]
        turned = lines.transpose([[c for c in letters if c in out].index(c) for c in kept])
        sizes = [turned.shape[kept.index(c)] if c in kept else 1 for c in out]
        return replace(x, name=name, labels=turned.reshape(sizes), shape=node.shape, root="", mixture=None)

    def _layer(
        self,
        node: Node,
        source: str,
        weight: str,
        axis: int,
        *,
        turned: bool = False,
        padded: bool = False,
        groups: int = 1,
    ) -> Channels:
        name, count = self.name(node), node.shape[axis]
        if turned:
            self.program.transposed.add(weight)
        self._fresh(name, count)
        self._add(Operation("layer", name, (source,), {"weight": weight, "bias": None}, padded, groups=groups))
        sizes = [count if k == axis else 1 for k in range(node.rank)]
        return Channels(name, np.arange(count).reshape(sizes), node.shape)

    def _convolution(self, node: Node, x: Value, weight: Value) -> Value:
        settled = self.settle(x) if not isinstance(x, Held) else None
        named = (
            isinstance(weight, Held) and weight.node.family is OperatorFamily.LEAF and "name" in weight.node.attributes
        )
        if settled is None or not named or not isinstance(weight, Held):
            return self.other(node, x, weight)
        groups, padded = node["groups"], any(node["padding"])
        name = str(weight.node["name"])
        if node["transposed"]:  # beside the border there is less to add, as beside zeros
            if groups != 1:
                return self.other(node, settled, weight)
            return self._layer(node, self.along(settled, 1), name, 1, turned=True, padded=True)
        source = self.along(settled, 1)
        if 1 < groups == settled.shape[1] == node.shape[1]:
            made = self._passed(
                "depthwise", self.name(node), [source], tensors={"weight": name, "bias": None}, padded=padded
            )
            sizes = [groups if k == 1 else 1 for k in range(node.rank)]
            return Channels(made, np.arange(groups).reshape(sizes), node.shape)
        return self._layer(node, source, name, 1, padded=padded, groups=groups)

    def reduction(self, node: Node, x: Value) -> Value:
        """A pool over positions."""
        if isinstance(x, (Held, Mixture)):
            return self.other(node, x)
        if isinstance(x, (HeadScores, Attended)):
            return Guard(x)
        axes, traits = node.attributes.get("axes", ()), node.traits
        padded = x if isinstance(x, Padded) else None
        value = x.value if isinstance(x, Padded) else self.settle(x)
        if value is None or not axes or set(axes) & set(value.axes):
            return self.other(node, x)
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
        if traits.linear == "jointly":
            if padded is not None and padded.number != 0:
                return self.other(node, x)
            count = np.full((1,) * node.rank, float(math.prod(value.shape[axis] for axis in axes)))
            if padded is not None:
                whole = tuple(value.shape[axis] if axis in axes else n for axis, n in enumerate(padded.outside.shape))
                count = (~np.broadcast_to(padded.outside, whole)).sum(axis=tuple(axes), keepdims=True).astype(float)
            return Total(node, replace(value, shape=shape), count, padded is not None)
        if traits.shift != 1 or traits.degree != 1:
            return self.other(node, x)
        if padded is not None:
            pair = NUMPY.cast(np.array([padded.number, 0.0]), "f")
            neutral = float(np.asarray(node.operator.meaning(NUMPY, {"axes": (0,)}, pair)).item()) == 0.0
            whole = tuple(value.shape[axis] if axis in axes else n for axis, n in enumerate(padded.outside.shape))
            full = bool((~np.broadcast_to(padded.outside, whole)).any(axis=tuple(axes)).all())
            if not (neutral and full and math.isinf(padded.number)):
                settled = self.settle(x)
                if settled is None:
                    return self.other(node, x)
                value = settled
        name = self._passed("pool", self.name(node), [value.name])
        return replace(value, name=name, shape=shape, root="", mixture=None)

    def normalisation(self, node: Node, x: Value) -> Value:
        """Each channel by its own mean and deviation over positions; a softmax of scores."""
        if isinstance(x, Held):
            return self.other(node, x)
        if isinstance(x, HeadScores):
            return attention.attend(self, node, x)
        settled = None if isinstance(x, Mixture) else self.settle(x)
        if settled is None:
            return self.other(node, x)
        own = node.attributes.get("centre", False) and node.attributes.get("epsilon", 0.0) > 0
        if not own or set(node["axes"]) & set(settled.axes):
            return self.other(node, settled)
        name = self._passed(
            "instance", self.name(node), [settled.name], tensors={"weight": None, "bias": None}, function=OWN_MEANS,
            arguments=(float(node["epsilon"]),),
        )  # fmt: skip
        return replace(settled, name=name, shape=node.shape, root="", mixture=None)

    def choice(self, node: Node, *operands: Value) -> Value:
        """A bound on both sides by numbers; else any function of one channel."""
        if all(isinstance(each, Held) for each in operands):
            return Held(node)
        if any(isinstance(each, (HeadScores, Attended, Guard)) for each in operands):
            return attention.choose(self, node, operands)
        if node.op in CLAMPS and len(operands) == 2:
            x, bound = sorted(operands, key=lambda each: isinstance(each, Held))
            settled = self.settle(x) if not isinstance(x, (Held, Mixture)) else None
            number = self._number(bound)
            if settled is not None and number is not None:
                return self._function(node, settled, "bend", CLAMPS[node.op], (number,))
        return self._entrywise(node, *operands)

    def comparison(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        if all(isinstance(each, Held) for each in operands):
            return Held(node)
        special = [each for each in operands if isinstance(each, (HeadScores, Attended, Guard))]
        if special:
            source = special[0].source if isinstance(special[0], Guard) else special[0]
            return Guard(source) if len(special) == 1 else self.other(node, *operands)
        return self._entrywise(node, *operands)

    def lookup(self, node: Node, *operands: Value) -> Value:
        """A table is a layer without a bias that reads one row: its columns are the channels."""
        if all(isinstance(each, Held) for each in operands):
            return Held(node)
        table, *rest = operands
        named = isinstance(table, Held) and table.node.family is OperatorFamily.LEAF and "name" in table.node.attributes
        if not named or not isinstance(table, Held) or len(rest) != 1:
            return self.other(node, *operands)
        rows = table.node
        shaped = rows.rank == 2 and node.attributes.get("axis") == 0
        if not shaped or node.shape != (*node.inputs[1].shape, rows.shape[1]):
            return self.other(node, *operands)
        sources = self.sources_of(rest[0])
        for source in sources:
            self.program.pin(source)
        row = self.name(node, " row")
        self._fresh(row, rows.shape[0], pinned=True)
        self._add(Operation("other", row, tuple(sources)))
        made = self._layer(node, row, str(rows["name"]), node.rank - 1, turned=True)
        place = self._place[made.name]
        self.program.operations[place] = replace(self.program.operations[place], function="embedding")
        return made

    # The end

    def _finish(self) -> None:
        results = []
        for number, node in enumerate(self.source.outputs):
            value = self.values[node]
            if isinstance(value, Held):
                self._touch(node)  # a tensor that is returned has its own size
                continue
            settled = self.settle(value) if not isinstance(value, Centred) else None
            name = None if settled is None else self.sequence(settled, np.unique(settled.labels))
            if name is None:
                name = self._pinned(node, self.sources_of(value), f"result {number}").name
            results.append(name)
        self._keep_shared()
        self.program.end(results)
        self._forget_tables()
        self._forget_unread()

    def _keep_shared(self) -> None:
        """A tensor in two roles stays whole; a layer that is used several times reads and writes the same channels."""
        heads = {source for each in self.program.operations if each.attention is not None for source in each.sources}
        changed = True
        while changed:
            changed = False
            users: dict[str, list[Operation]] = {}
            for each in self.program.operations:
                for tensor in each.tensors.values():
                    if tensor is not None:
                        users.setdefault(tensor, []).append(each)
            for tensor, operations in users.items():
                alike = len({_settings(each) for each in operations}) == 1
                apart = len(operations) > 1 and any(each.name in heads for each in operations)
                if tensor in self.touched or not alike or apart:
                    for each in operations:
                        self._give_up(each)
                    changed = True
                    break
        for operations in users.values():
            for each in operations[1:]:
                self.program.join(operations[0].name, each.name)
                self.program.join(operations[0].sources[0], each.sources[0])

    def _give_up(self, operation: Operation) -> None:
        """What an operation reads and makes stays."""
        for tensor in operation.tensors.values():
            self.touched |= set() if tensor is None else {tensor}
            self.program.transposed.discard(str(tensor))
        for name in (operation.name, *operation.sources):
            self.program.pin(name)
        said = operation.function or operation.kind
        place = self._place[operation.name]
        self.program.operations[place] = Operation("other", operation.name, operation.sources, function=said)

    def _forget_tables(self) -> None:
        """Tables all of whose columns stay, mostly because a normalisation reads them, need not be looked at."""
        for place, each in enumerate(self.program.operations):
            if each.function == "embedding" and each.kind == "layer" and self.program.is_pinned(each.name):
                self.program.transposed.discard(str(each.tensors["weight"]))
                self.program.operations[place] = Operation("other", each.name, each.sources, function="embedding")

    def _forget_unread(self) -> None:
        """Steps that lead to no result."""
        needed = set(self.program.results)
        for each in reversed(self.program.operations):
            if each.name in needed:
                needed |= set(each.sources)
        self.program.operations = [each for each in self.program.operations if each.name in needed]
        self.program.spots = {name: spot for name, spot in self.program.spots.items() if name in needed}
        self._place = {each.name: place for place, each in enumerate(self.program.operations)}


def function_of(node: Node) -> tuple[str, str, Arguments]:
    """Kind, name and numbers that certificates have for a function of one number.

    `same` commutes with positive factors.
    """
    traits, numbers = node.traits, tuple(float(v) for v in node.attributes.values() if isinstance(v, (int, float)))
    if node.op == "power" and node["exponent"] in ROOTS:
        return "bend", ROOTS[node["exponent"]], ()
    if node.op == "softplus":
        return "bend", node.op, (1.0, UNBOUNDED)
    return ("same" if node.op in ("relu", "abs") and traits.degree == 1 else "bend"), node.op, numbers


def _same_places(one: Indices, two: Indices) -> bool:
    """Whether the same channels lie along the same axes."""
    return one.shape == two.shape and bool((one == two).all())


def unwrap(node: Node) -> Node:
    """What a node only reshapes: all its entries, in their order."""
    while node.family is OperatorFamily.MOVEMENT and len(node.inputs) == 1 and node["map"].keeps_order:
        if node.size != node.inputs[0].size:
            break
        node = node.inputs[0]
    return node


def _settings(operation: Operation) -> str:
    """All of an operation but what it reads and makes."""
    return repr(replace(operation, name="", sources=(), attention=None))
