"""A builder that writes programs in one normal form: what is spelled in two ways becomes the same nodes.

- Equal nodes are one (hash-consing), so ties and repeated subexpressions need no search.
- A node whose operands are constants is evaluated at once. Shape arithmetic and masks disappear by this alone.
- Movements in a row are one, and one that moves nothing is none.
- Operands of elementwise operators have one rank, and size 1 along axes where they only repeat.
- Operands that commute stand in the order of what they compute.
- A little algebra, in `add`, `mul`, `power`, `maximum`, `where`: each rule holds for all reals, keeps NaN and
  infinities where they were, and computes no number that is not exact, so that no proof rests on a rounding here.

Folding does round, as every evaluation in float64 does; `notes` count it.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.program.arrays import NUMPY
from lawful.program.index_map import IndexMap, Shape, row_major
from lawful.program.program import Node, Program, attribute_key, widest
from lawful.program.table import OPERATORS, OperatorFamily, Refused, ValueKind

Operand = Node | bool | int | float
_KIND_OF_TYPE: dict[str, ValueKind] = {"b": "b", "i": "i", "u": "i", "f": "f", "c": "c"}
_EMPTY = {"amax": -math.inf, "amin": math.inf}  # of nothing
OPAQUE = "opaque: "
FOLDED = "constants are folded in float64"


class Builder:
    """Makes the nodes of one program.

    >>> b = Builder()
    >>> x = b.input("x", (2, 3))
    >>> b.add(b.permute(b.permute(x, (1, 0)), (1, 0)), 0.0) is x
    True
    >>> b.maximum(x, 0.0) is b.elementwise("relu", x)
    True
    """

    def __init__(
        self,
        source: str = "",
        tensors: Mapping[str, Any] | None = None,
        *,
        exact: bool = False,
        trains: bool = False,
    ) -> None:
        """`exact` programs are for exact arithmetic: quotients of constants stay quotients where floats round them.

        If the program `trains`, it says where values are detached from training.
        """
        self.source, self.exact, self.trains = source, exact, trains
        self.tensors: dict[str, Any] = dict(tensors or {})
        self.inputs: list[Node] = []
        self.notes: Counter[str] = Counter()
        self.most = math.inf  # entries that a call may make: a few bytes of a file must not become gigabytes
        self.place = ""  # the call of the source that is being read
        self.places: dict[Node, str] = {}
        self._known: dict[bytes, Node] = {}
        self._opaque_calls = 0
        self.step = 0  # of the source: whoever reads one counts its calls here
        self.parts: dict[int, str] = {}  # of the source, by step

    # Leaves

    def input(self, name: str, shape: Sequence[int], kind: ValueKind = "f") -> Node:
        """A value that is given when the program runs."""
        node = self._emit("input", (), {"name": name}, shape, kind)
        self.inputs.append(node)
        return node

    def parameter(self, name: str, tensor: Any, kind: ValueKind = "f") -> Node:
        """A value that training changes, under the user's own name."""
        self.tensors.setdefault(name, tensor)
        return self._emit("parameter", (), {"name": name}, tensor.shape, kind)

    def buffer(self, name: str, tensor: Any, kind: ValueKind = "f") -> Node:
        """A value that is held beside the parameters: statistics, tables of positions."""
        self.tensors.setdefault(name, tensor)
        return self._emit("buffer", (), {"name": name}, tensor.shape, kind)

    def constant(self, value: Any, kind: ValueKind | None = None) -> Node:
        """A value that never changes."""
        array = np.asarray(value)
        if array.dtype.name == "bfloat16":  # which NumPy itself does not have
            array = array.astype(np.float64)
        if array.dtype.kind not in _KIND_OF_TYPE:
            raise Refused(f"numbers of type {array.dtype}")
        kind = kind or _KIND_OF_TYPE[array.dtype.kind]
        array = np.array(NUMPY.cast(array, kind))
        array.setflags(write=False)
        return self._emit("constant", (), {"value": array}, array.shape, kind)

    def check_size(self, count: float) -> None:
        """Refuse a call that makes so many entries."""
        if count > self.most:
            raise Unsupported(f"computes {count:,} constants, more than {self.most:,}")

    def operand(self, x: Operand, like: Operand | None = None) -> Node:
        """A node for an argument that may be a plain number; beside reals it is real."""
        if isinstance(x, Node):
            return x
        if not isinstance(x, (bool, int, float)):
            raise Refused(f"an operand of type {type(x).__name__}")
        real = isinstance(x, float) or (isinstance(like, Node) and like.kind == "f")
        return self.constant(float(x) if real else x)

    def opaque(
        self, name: str, operands: Sequence[Node], call: Callable[..., Any], shape: Shape, kind: ValueKind, detail: str
    ) -> Node:
        """A call that the table does not know. It can be run, and no two are ever taken for one: it may be random."""
        self._opaque_calls += 1
        attributes = {"name": name, "detail": detail, "number": self._opaque_calls, "call": call, "shape": shape}
        return self._emit("opaque", tuple(operands), attributes, shape, kind)

    def gates(self, name: str, shape: Sequence[int], share: float) -> Node:
        """Random gates, of which a share is shut: what dropout multiplies by in training. No two are ever one."""
        self._opaque_calls += 1
        sizes = tuple(int(size) for size in shape)
        attributes = {"name": name, "number": self._opaque_calls, "shape": sizes, "share": share}
        return self._emit("gates", (), attributes, sizes, "f")

    # Nodes

    def apply(self, name: str, operands: Iterable[Node], kind: ValueKind | None = None, **attributes: Any) -> Node:
        """A node of the table; its value at once where all operands are constants."""
        operator = OPERATORS[name]
        operands = tuple(operands)
        if set(attributes) != set(operator.attributes):
            raise TypeError(f"{name} has the attributes {operator.attributes}, not {tuple(attributes)}")
        if any(each.kind == "c" for each in operands):
            raise Refused(f"{name} of complex numbers")
        kind = kind or operator.kind or widest(*(each.kind for each in operands))
        folds = bool(operands) and all(each.op == "constant" for each in operands)
        if folds and not (self.exact and _rounds_quotient(name, attributes, operands)):
            if operator.shape is None:
                self.check_size(math.prod(np.broadcast_shapes(*(each.shape for each in operands))))
            if kind == "f":
                self.notes[FOLDED] += 1
            with np.errstate(all="ignore"):
                value = operator.meaning(NUMPY, attributes, *(each["value"] for each in operands))
            return self.constant(np.asarray(value), kind)
        shapes = [each.shape for each in operands]
        shape = operator.shape(attributes, *shapes) if operator.shape else np.broadcast_shapes(*shapes)
        return self._emit(name, operands, attributes, shape, kind)

    def elementwise(
        self, name: str, *operands: Operand, kind: ValueKind | None = None, commutes: bool = False, **attributes: Any
    ) -> Node:
        """An operator entry by entry; its operands broadcast, and stand in order if it `commutes`.

        An axis along which all operands only repeat is repeated *after* the operator: `relu(expand(x))` and
        `expand(relu(x))` are one.
        """
        first = next((each for each in operands if isinstance(each, Node)), None)
        nodes = [self.operand(each, first) for each in operands]
        whole = np.broadcast_shapes(*(each.shape for each in nodes))
        aligned = [self.reshape(each, (1,) * (len(whole) - each.rank) + each.shape) for each in nodes]
        small = [self._without_repetition(each) for each in aligned]
        if commutes:  # by what they are now: a reshape that broadcasting adds changes what a node computes
            small.sort(key=lambda each: (self.number(each) is None, each.order))
        return self.expand(self.apply(name, small, kind, **attributes), whole)

    def function(self, name: str, x: Operand, **attributes: Any) -> Node:
        """A function of one real operand."""
        return self.elementwise(name, self.as_kind(self.operand(x), "f"), **attributes)

    def as_kind(self, x: Node, kind: ValueKind) -> Node:
        """The value as another kind; between types of one kind there is nothing to do."""
        if x.kind == kind:
            return x
        if "c" in (x.kind, kind):
            raise Refused("a cast of complex numbers")
        return self.elementwise("cast", x, kind=kind, to=kind)

    def remake(self, node: Node, operands: Sequence[Node]) -> Node:
        """A node with other operands, brought to normal form again: what passes are made of."""
        if node.family is OperatorFamily.LEAF:
            if node.op == "input" and node not in self.inputs:
                self.inputs.append(node)
            return self._known.setdefault(node.identity, node)
        if node.family is OperatorFamily.OPAQUE:
            return self._emit(node.op, tuple(operands), node.attributes, node.shape, node.kind)
        if node.op == "take":
            return self.take(operands, node["map"])
        if node.op in ("add", "mul", "maximum", "minimum", "where"):
            return getattr(self, node.op)(*operands)  # type: ignore[no-any-return]
        if node.op == "contract":
            return self.contract(node["spec"], *operands)
        if node.op == "power":
            return self.power(operands[0], node["exponent"])
        if node.family is OperatorFamily.ELEMENTWISE or node.family is OperatorFamily.COMPARISON:
            commutes = node.op in ("and", "or", "xor")
            return self.elementwise(node.op, *operands, kind=node.kind, commutes=commutes, **node.attributes)
        return self.apply(node.op, operands, node.kind, **node.attributes)

    def finish(self, outputs: Iterable[Node]) -> Program:
        """The program of these outputs."""
        results = tuple(outputs)
        program = Program.of(self.inputs, results, self.tensors, self.source)
        used = {*program.parameters, *program.buffers}
        notes = Counter({note: count for note, count in self.notes.items() if not note.startswith(OPAQUE)})
        notes.update(OPAQUE + name for name in program.opaque)  # of those that an output still reads
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in used}
        places = {node: self.places[node] for node in program.nodes if node in self.places}
        return replace(program, tensors=tensors, notes=notes, places=places, parts=self.parts)

    def _emit(
        self,
        name: str,
        operands: tuple[Node, ...],
        attributes: Mapping[str, Any],
        shape: Sequence[int],
        kind: ValueKind,
    ) -> Node:
        operator = OPERATORS[name]
        sizes = tuple(int(size) for size in shape)
        keys = {key: attribute_key(value) for key, value in sorted(attributes.items()) if key != "call"}
        identity = _hash(name, [each.identity for each in operands], keys, sizes, kind)
        node = self._known.get(identity)
        if node is None:
            if operator.family is OperatorFamily.LEAF:
                keys.pop("name", None)  # of inputs, parameters and buffers
            structure = _hash(name, [each.structure for each in operands], keys, sizes, kind)
            node = Node(operator, operands, dict(attributes), sizes, kind, structure, identity, self.step)
            self._known[identity] = node
            if self.place:
                self.places[node] = self.place
        return node

    # What is known of constants

    def value(self, x: Node) -> NDArray[Any] | None:
        """The array of a constant."""
        return x["value"] if x.op == "constant" else None

    def number(self, x: Operand) -> float | int | bool | None:
        """The one number that a constant holds everywhere."""
        if not isinstance(x, Node):
            return x
        value = self.value(x)
        if value is None or value.size == 0 or x.kind == "c":
            return None
        first = value.flat[0]
        return first.item() if value.size == 1 or bool((value == first).all()) else None

    def numbers(self, x: Node, what: str) -> list[Any]:
        """The entries of an operand that must be known: sizes, axes, positions."""
        value = self.value(x)
        if value is None:
            raise Refused(f"{what} that depend on data")
        return value.ravel().tolist()

    def _without_repetition(self, x: Node) -> Node:
        if x.op == "take":
            index = x["map"]
            return self.take(x.inputs, index.first_along(index.repeated_axes()))
        value = self.value(x)
        if value is not None and value.size > 1:
            for axis, size in enumerate(value.shape):
                if size > 1 and bool((value == value.take([0], axis)).all()):
                    value = value.take([0], axis)
            return self.constant(value, x.kind)
        return x

    # Movement

    def take(self, sources: Iterable[Node], index: IndexMap) -> Node:
        """The entries of the sources, laid end to end, at an index map."""
        sources = tuple(sources)
        if len(sources) == 1:
            source = sources[0]
            if source.op == "take":
                return self.take(source.inputs, index.after(source["map"]))
            if source.shape == index.shape and index.keeps_order:
                return source
            order = index.permutation_of(source.shape) if source.op == "contract" else None
            if order is not None:  # a permutation of the result belongs to the contraction
                given, out = source["spec"].split("->")
                return self.contract(f"{given}->{''.join(out[axis] for axis in order)}", *source.inputs)
        else:
            sources, index = self._merge_sources(sources, index)
            if len(sources) == 1:
                return self.take(sources, index)
        kind = widest(*(each.kind for each in sources))
        if all(each.op == "constant" for each in sources):
            self.check_size(index.size)
            arrays = [NUMPY.cast(each["value"], kind) for each in sources]
            return self.constant(NUMPY.take(arrays, index), kind)
        return self._emit(
            "take", tuple(self.as_kind(each, kind) for each in sources), {"map": index}, index.shape, kind
        )

    def _merge_sources(self, sources: tuple[Node, ...], index: IndexMap) -> tuple[tuple[Node, ...], IndexMap]:
        """Sources of sources; each once, in the order of their first use; unused ones go; constants become one."""
        kind = widest(*(each.kind for each in sources))
        start: dict[Node, int] = {}  # where each source of sources begins among all of them
        total = 0
        parts = []
        for source in sources:
            source = self.as_kind(source, kind)
            inner = source.inputs if source.op == "take" else (source,)
            at = source["map"].positions.ravel() if source.op == "take" else np.arange(source.size)
            bounds = np.cumsum([0, *(each.size for each in inner)])
            for each in inner:
                if each not in start:
                    start[each] = total
                    total += each.size
            shift = np.array([start[each] - low for each, low in zip(inner, bounds, strict=False)], dtype=np.int64)
            parts.append(at + shift[np.searchsorted(bounds, at, side="right") - 1])
        at = np.concatenate(parts)[index.positions]
        flat = tuple(start)
        bounds = np.cumsum([0, *(each.size for each in flat)])
        owner = np.searchsorted(bounds, at.ravel(), side="right") - 1
        used, first = np.unique(owner, return_index=True)
        if not used.size:
            return (flat[0],), IndexMap.of(at)
        position = at.ravel() - bounds[owner]
        order = [int(k) for k in used[np.argsort(first)]]
        constants = [k for k in order if flat[k].op == "constant"]
        if len(constants) > 1 or (constants and len(order) > 1):
            order, owner, position, pool = self._pool_constants(flat, order, constants, owner, position, kind)
            flat = (*flat, pool)
        starts = np.zeros(len(flat), dtype=np.int64)
        total = 0
        for k in order:
            starts[k] = total
            total += flat[k].size
        return tuple(flat[k] for k in order), IndexMap.of((position + starts[owner]).reshape(at.shape))

    def _pool_constants(
        self, flat: tuple[Node, ...], order: list[int], constants: list[int], owner: Any, position: Any, kind: ValueKind
    ) -> tuple[list[int], Any, Any, Node]:
        """The constant entries of a movement come from one source that holds each value once, in order of use.

        Else padding with zeros, `cat` with a vector of zeros and `where` with a mask would differ.
        """
        fixed = np.isin(owner, constants)
        values = np.zeros(owner.shape, dtype=NUMPY.cast(np.zeros(1), kind).dtype)
        for k in constants:
            mine = owner == k
            values[mine] = flat[k]["value"].ravel()[position[mine]]
        distinct, first, inverse = np.unique(values[fixed], return_index=True, return_inverse=True)
        by_use = np.argsort(first)
        rank = np.empty_like(by_use)
        rank[by_use] = np.arange(len(by_use))
        owner, position = owner.copy(), position.copy()
        owner[fixed], position[fixed] = len(flat), rank[inverse]
        where = next(k for k, each in enumerate(order) if each in constants)
        order = [each for each in order if each not in constants]
        order.insert(where, len(flat))
        return order, owner, position, self.constant(distinct[by_use], kind)

    def move(self, function: Callable[..., Any], *sources: Node, fill: Operand = 0) -> Node:
        """A movement that a function of arrays carries out: found by running it on labels.

        Labels start at 1; where the function leaves 0, the result is `fill`. A function that returns views says where
        entries come from by their strides, and is run on memory that is never touched.
        """
        if len(sources) == 1 and sources[0].size:
            blank = np.empty(sources[0].shape, dtype=np.int64)
            view = function(blank)
            if view.size and np.may_share_memory(view, blank):
                return self.take(sources, _index_of_view(view, blank))
        labels, total = [], 1
        for source in sources:
            labels.append(np.arange(total, total + source.size, dtype=np.int64).reshape(source.shape))
            total += source.size
        return self.take_labels(function(*labels), sources, fill)

    def take_labels(self, labels: NDArray[np.int64], sources: Sequence[Node], fill: Operand = 0) -> Node:
        """The entries that labels name: 1, 2, ... through the sources laid end to end, 0 for `fill`."""
        empty = labels == 0
        if not bool(empty.any()):
            return self.take(sources, IndexMap.of(labels - 1))
        outside = self.as_kind(self.reshape(self.operand(fill, sources[0]), (1,)), sources[0].kind)
        total = sum(each.size for each in sources)
        return self.take((*sources, outside), IndexMap.of(np.where(empty, total, labels - 1)))

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        """The entries in their order, in another shape."""
        if math.prod(shape) != x.size:
            raise Refused(f"a reshape of {list(x.shape)} to {list(shape)}")
        return self.take((x,), IndexMap.contiguous(shape))

    def permute(self, x: Node, order: Sequence[int]) -> Node:
        """The axes in another order."""
        steps = row_major(x.shape)
        return self.take((x,), IndexMap.affine([x.shape[k] for k in order], [steps[k] for k in order]))

    def expand(self, x: Node, shape: Sequence[int]) -> Node:
        """Repeated along axes of size 1 and along new axes in front."""
        if tuple(shape) == x.shape:
            return x
        padded = (1,) * (len(shape) - x.rank) + x.shape
        steps = (0,) * (len(shape) - x.rank) + row_major(x.shape)
        if any(old not in (1, new) for old, new in zip(padded, shape, strict=True)):
            raise Refused(f"an expansion of {list(x.shape)} to {list(shape)}")
        return self.take((x,), IndexMap.affine(shape, [s if n > 1 else 0 for s, n in zip(steps, padded, strict=True)]))

    def pick(self, x: Node, axis: int, positions: NDArray[np.int64], fill: Operand = 0) -> Node:
        """Entries at positions along an axis, which the axes of `positions` replace; -1 is `fill`."""
        axis %= x.rank
        self.check_size(positions.size * (x.size // max(x.shape[axis], 1)))
        outside = positions < 0
        mask = outside.reshape((*outside.shape, *(1,) * (x.rank - axis - 1)))

        def at(labels: NDArray[np.int64]) -> NDArray[np.int64]:
            rows = np.take(labels, np.where(outside, 0, positions), axis=axis)
            return np.where(mask, 0, rows)

        return self.move(at, x, fill=fill)

    def slice(self, x: Node, axis: int, cut: slice) -> Node:
        """A slice along an axis."""
        return self.move(lambda t: t[(slice(None),) * (axis % x.rank) + (cut,)], x)

    def concatenate(self, parts: Sequence[Node], axis: int) -> Node:
        """One after the other along an axis."""
        return self.move(lambda *t: np.concatenate(t, axis), *parts)

    # Algebra

    def add(self, x: Operand, y: Operand) -> Node:
        """x + y. `x + 0` is x (as reals: 0 and -0 are one). Sums of sums stay as they are written.

        Flattening them would make a residual stream of depth n a sum of n terms in n places.
        """
        a, b = self._pair(x, y, "i")
        shape = np.broadcast_shapes(a.shape, b.shape)
        for one, other in ((a, b), (b, a)):
            if self.number(one) == 0:
                return self.expand(other, shape)
        return self.elementwise("add", a, b, commutes=True)

    def mul(self, x: Operand, y: Operand) -> Node:
        """x y. `1 x` is x, `x x` is x², and c (d x) is (c d) x where the product of the numbers is exact.

        `0 x` stays: it is NaN where x is infinite or NaN.
        """
        a, b = self._pair(x, y, "i")
        shape = np.broadcast_shapes(a.shape, b.shape)
        for one, other in ((a, b), (b, a)):
            factor = self.number(one)
            if factor == 1:
                return self.expand(other, shape)
            inner = self.number(other.inputs[0]) if factor is not None and other.op == "mul" else None
            if inner is not None and _exact_product(factor, inner) and other.shape == shape:
                return self.mul(factor * inner, other.inputs[1])  # type: ignore[operator]
        if a is b and a.kind == "f":
            return self.power(a, 2.0)
        return self.elementwise("mul", a, b, commutes=True)

    def neg(self, x: Operand) -> Node:
        """-x is (-1) x."""
        return self.mul(x, -1)

    def sub(self, x: Operand, y: Operand) -> Node:
        """x - y is x + (-1) y."""
        a, b = self._pair(x, y, "i")
        return self.add(a, self.neg(b))

    def div(self, x: Operand, y: Operand) -> Node:
        """x / y is x y⁻¹; a number in y is inverted at once."""
        a, b = self._pair(x, y, "f")
        return self.mul(a, self.power(b, -1.0))

    def power(self, x: Operand, exponent: float) -> Node:
        """x to a fixed power. `√x` to an odd power is x to half of it: both are NaN for x < 0 (an even one is not)."""
        a = self.as_kind(self.operand(x), "f")
        if exponent == 1:
            return a
        if a.op == "power" and a["exponent"] == 0.5 and exponent % 2 == 1:
            return self.power(a.inputs[0], exponent / 2)
        return self.elementwise("power", a, exponent=float(exponent))

    def maximum(self, x: Operand, y: Operand) -> Node:
        """max(x, y); with 0 it is relu, however it is written. NaN passes both."""
        a, b = self._pair(x, y)
        for one, other in ((a, b), (b, a)):
            if self.number(one) == 0 and other.kind == "f":
                return self.expand(self.elementwise("relu", other), np.broadcast_shapes(a.shape, b.shape))
        return self.elementwise("maximum", a, b, commutes=True)

    def minimum(self, x: Operand, y: Operand) -> Node:
        """min(x, y); with 0 it is -relu(-x)."""
        a, b = self._pair(x, y)
        for one, other in ((a, b), (b, a)):
            if self.number(one) == 0 and other.kind == "f":
                negative = self.neg(self.elementwise("relu", self.neg(other)))
                return self.expand(negative, np.broadcast_shapes(a.shape, b.shape))
        return self.elementwise("minimum", a, b, commutes=True)

    def where(self, condition: Node, x: Operand, y: Operand) -> Node:
        """x where the condition holds, else y. Equal branches need no condition; a known one is a movement."""
        a, b = self._pair(x, y)
        condition = self.as_kind(condition, "b")
        shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
        if a is b:
            return self.expand(a, shape)
        mask = self.value(condition)
        if mask is None:
            return self.elementwise("where", condition, a, b, kind=a.kind)
        if bool(mask.all()) or not bool(mask.any()):
            return self.expand(a if bool(mask.all()) else b, shape)
        one, two = self.expand(a, shape), self.expand(b, shape)
        return self.move(lambda s, t: np.where(mask, s, t), one, two)

    def _pair(self, x: Operand, y: Operand, least: ValueKind = "b") -> tuple[Node, Node]:
        """Two operands of one kind."""
        a, b = self.operand(x, y), self.operand(y, x)
        kind = widest(least, a.kind, b.kind)
        return self.as_kind(a, kind), self.as_kind(b, kind)

    # Reductions and contractions

    def axes(self, x: Node, axes: int | Sequence[int] | None) -> tuple[int, ...]:
        """Axes as numbers from 0, in order; all of them for None."""
        if axes is None:
            return tuple(range(x.rank))
        given = (axes,) if isinstance(axes, int) else tuple(axes)
        if any(not -max(x.rank, 1) <= axis < max(x.rank, 1) for axis in given):
            raise Refused(f"axes {list(given)} of {x.rank}")
        return tuple(sorted({int(axis) % x.rank for axis in given})) if x.rank else ()

    def reduce(self, name: str, x: Node, axes: int | Sequence[int] | None = None, keep: bool = False) -> Node:
        """A reduction along axes. Its node keeps them with size 1; a reshape drops them."""
        over = self.axes(x, axes)
        active = tuple(axis for axis in over if x.shape[axis] != 1)
        if name in _EMPTY and any(x.shape[axis] == 0 for axis in active):
            if x.kind == "i":
                raise Refused(f"{name} of no integers")
            kept = [1 if axis in over else n for axis, n in enumerate(x.shape)]
            result = (
                self.constant(np.full(kept, _EMPTY[name]), x.kind)
                if x.kind == "f"
                else self.constant(np.full(kept, _EMPTY[name] > 0))
            )
            return result if keep else self.reshape(result, [n for axis, n in enumerate(x.shape) if axis not in over])
        result = x
        if active or OPERATORS[name].kind is not None:
            if x.kind == "b" and OPERATORS[name].kind is None:
                result = self.as_kind(x, "i")
            if OPERATORS[name].attributes == ("axis",):
                result = self.apply(name, (result,), axis=over[0]) if x.rank else self.constant(0)
            else:
                result = self.apply(name, (result,), axes=active)
        elif x.kind == "b":
            result = self.as_kind(x, "i")
        return result if keep else self.reshape(result, [n for axis, n in enumerate(x.shape) if axis not in over])

    def sum(self, x: Node, axes: int | Sequence[int] | None = None, keep: bool = False) -> Node:
        """The sum along axes."""
        return self.reduce("sum", x, axes, keep)

    def mean(self, x: Node, axes: int | Sequence[int] | None = None, keep: bool = False) -> Node:
        """The mean along axes: their sum, divided by how many entries it has."""
        total = self.sum(self.as_kind(x, "f"), axes, keep)
        if not total.size:
            return total
        return self.div(total, float(x.size // total.size)) if x.size else self.mul(total, math.nan)

    def contract(self, spec: str, *operands: Node) -> Node:
        """An Einstein sum: of two operands, or of more from the left.

        Normal form: permutations of operands are in the letters; an axis along which an operand only repeats is not
        among its letters if the other operand has it; operands stand in the order of what they compute, and letters
        are named in the order in which they appear.
        """
        given, out = spec.split("->")
        letters = given.split(",")
        while len(operands) > 2:
            needed = set("".join(letters[2:]) + out)
            joint = "".join(dict.fromkeys(c for c in letters[0] + letters[1] if c in needed))
            operands = (self.contract(f"{letters[0]},{letters[1]}->{joint}", *operands[:2]), *operands[2:])
            letters = [joint, *letters[2:]]
        kind = widest("i", *(each.kind for each in operands))
        nodes = [self._diagonal(self.as_kind(each, kind), own) for each, own in zip(operands, letters, strict=True)]
        letters = ["".join(dict.fromkeys(own)) for own in letters]
        if len(nodes) == 1:
            return self._contract_one(nodes[0], letters[0], out)
        for k in (0, 1):
            nodes[k], letters[k] = self._plain_operand(nodes[k], letters[k], letters[1 - k], out)
        if nodes[0].order > nodes[1].order:
            nodes, letters = nodes[::-1], letters[::-1]
        names = {c: chr(ord("a") + k) for k, c in enumerate(dict.fromkeys(letters[0] + letters[1]))}
        final = ",".join("".join(names[c] for c in own) for own in letters) + "->" + "".join(names[c] for c in out)
        return self.apply("contract", nodes, kind, spec=final)

    def _diagonal(self, x: Node, own: str) -> Node:
        unique = "".join(dict.fromkeys(own))
        if unique == own:
            return x
        return self.move(lambda t: np.einsum(f"{own}->{unique}", t), x)

    def _contract_one(self, x: Node, own: str, out: str) -> Node:
        x = self.sum(x, [k for k, c in enumerate(own) if c not in out])
        left = [c for c in own if c in out]
        return self.permute(x, [left.index(c) for c in out])

    def _plain_operand(self, x: Node, own: str, other: str, out: str) -> tuple[Node, str]:
        """An operand without axes that it alone sums over, without repetition, and with its axes in their order."""
        lone = [k for k, c in enumerate(own) if c not in out and c not in other]
        if lone:
            x, own = self.sum(x, lone), "".join(c for k, c in enumerate(own) if k not in lone)
        repeated = [k for k in x["map"].repeated_axes() if own[k] in other] if x.op == "take" else []
        if x.op == "take" and x.inputs[0].op == "parameter" and x.inputs[0].rank < x.rank:
            # a parameter that was given an axis of one sample: of more samples it would repeat along it
            repeated += [k for k, n in enumerate(x.shape) if n == 1 and own[k] in other and own[k] in out]
        if repeated:
            first = self.take(x.inputs, x["map"].first_along(repeated))
            own = "".join(c for k, c in enumerate(own) if k not in repeated)
            x = self.reshape(first, [n for k, n in enumerate(first.shape) if k not in repeated])
        if x.op == "take" and len(x.inputs) == 1 and x.inputs[0].size == x.size:
            order = x["map"].permutation_of(x.inputs[0].shape)
            if order is not None:
                own = "".join(own[order.index(axis)] for axis in range(len(order)))
                x = x.inputs[0]
        return x, own

    def matmul(self, x: Node, y: Node) -> Node:
        """The matrix product; axes before the last two broadcast."""
        if x.rank == 1 or y.rank == 1:
            a = self.reshape(x, (1, *x.shape)) if x.rank == 1 else x
            b = self.reshape(y, (*y.shape, 1)) if y.rank == 1 else y
            whole = self.matmul(a, b)
            gone = ({whole.rank - 2} if x.rank == 1 else set()) | ({whole.rank - 1} if y.rank == 1 else set())
            return self.reshape(whole, [n for k, n in enumerate(whole.shape) if k not in gone])
        batch = "ABCDEFGHIJKLMNOPQRSTUVW"[: max(x.rank, y.rank) - 2]
        # an operand that repeats along a batch axis has no letter for it; where both have size 1, both have
        own = [batch[len(batch) - each.rank + 2 :] for each in (x, y)]
        sizes = [dict(zip(letters, each.shape, strict=False)) for letters, each in zip(own, (x, y), strict=True)]
        kept = ["".join(c for c in own[k] if sizes[k][c] != 1 or sizes[1 - k].get(c, 1) == 1) for k in (0, 1)]
        a, b = (
            self.reshape(each, [*(size[c] for c in letters), *each.shape[-2:]])
            for each, size, letters in zip((x, y), sizes, kept, strict=True)
        )
        return self.contract(f"{kept[0]}mk,{kept[1]}kn->{batch}mn", a, b)

    def linear(self, x: Node, weight: Node, bias: Node | None = None) -> Node:
        """x Wᵀ + b along the last axis."""
        batch = "ABCDEFGHIJKLMNOPQRSTUVW"[: x.rank - 1]
        total = self.contract(f"{batch}i,oi->{batch}o" if weight.rank == 2 else f"{batch}i,i->{batch}", x, weight)
        return total if bias is None else self.add(total, bias)

    def along(self, x: Node, axis: int, matrix: NDArray[Any]) -> Node:
        """A fixed linear map along one axis: matrix (result, given)."""
        if x.kind == "b":
            x = self.as_kind(x, "i")
        letters = "abcdefghijklmnopqrstuvw"[: x.rank]
        at = letters[axis % x.rank]
        return self.contract(f"{letters},z{at}->{letters.replace(at, 'z')}", x, self.constant(matrix, x.kind))


def _hash(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def _exact_product(a: float | int | bool | None, b: float | int | bool) -> bool:
    """Whether the floats' product is that of the reals."""
    if a is None or not (math.isfinite(a) and math.isfinite(b)) or not math.isfinite(a * b):
        return False
    return Fraction(a) * Fraction(b) == Fraction(a * b)


def _rounds_quotient(name: str, attributes: Mapping[str, Any], operands: tuple[Node, ...]) -> bool:
    """Whether floats round a reciprocal of constants: a mean by 1/3 is no mean, and what it leaves has a mean."""
    if name != "power" or attributes["exponent"] != -1:
        return False
    mantissas, _ = np.frexp(operands[0]["value"])
    return bool((np.isfinite(mantissas) & (np.abs(mantissas) != 0.5) & (mantissas != 0)).any())


def _index_of_view(view: NDArray[Any], base: NDArray[Any]) -> IndexMap:
    """Where the entries of a view lie in the array that it is a view of."""
    width = base.itemsize
    offset = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // width
    return IndexMap.affine(view.shape, [step // width for step in view.strides], offset)
