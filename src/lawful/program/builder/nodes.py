"""Nodes that are made once: hash-consing, and folding of constants.

Every node has an *identity*, a hash of its operator, its operands' identities and its attributes, and a dictionary from
identities to nodes makes equal nodes the same object. Invariant: two nodes of one builder are `is`-equal if and only if
they are spelled alike, so ties, repeated subexpressions and equal constants need no search later. The cost is one hash
for each call of the source, O(number of operands) each. A node whose operands are all constants is its value. (Ershov,
On programming of arithmetic operations, 1958; Filliâtre and Conchon, Type-safe modular hash-consing, 2006.)
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.program.arrays import NUMPY
from lawful.program.index_map import Shape
from lawful.program.program import Node, attribute_key, widest
from lawful.program.table import OPERATORS, OperatorFamily, Refused, TooLarge, ValueKind

Operand = Node | bool | int | float
_KIND_OF_TYPE: dict[str, ValueKind] = {"b": "b", "i": "i", "u": "i", "f": "f", "c": "c"}
OPAQUE = "opaque: "
FOLDED = "constants are folded in float64"


class NodeBuilder:
    """Leaves, nodes and constants."""

    def __init__(
        self,
        source: str = "",
        tensors: Mapping[str, Any] | None = None,
        *,
        exact: bool = False,
        trains: bool = False,
    ) -> None:
        """`exact` programs are for exact arithmetic: quotients of constants stay quotients where floats round them.

        If the program `trains`, it says where values are detached from training, and 0 x is 0: x is taken to be finite.
        """
        self.source: str = source
        self.exact: bool = exact
        self.trains: bool = trains
        self.tensors: dict[str, Any] = dict(tensors or {})
        self.inputs: list[Node] = []
        self.notes: Counter[str] = Counter()
        # A few bytes of a file must not become gigabytes: entries that a call of constants makes, and that a value has.
        self.most: float = math.inf
        self.largest: float = math.inf
        self.place = ""  # the call of the source that is being read
        self.places: dict[Node, str] = {}
        self._known: dict[bytes, Node] = {}
        self._masks: dict[tuple[bytes, Shape, bool], Any] = {}  # index maps of masks, which layers share
        self._opaque_calls = 0
        self.step = 0  # of the source: whoever reads one counts its calls here
        self.parts: dict[int, str] = {}  # of the source, by step

    # Leaves

    def input(self, name: str, shape: Sequence[int], kind: ValueKind = "f") -> Node:
        """A value that is given when the program runs."""
        self.bound_shape(shape)
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

    def bound_shape(self, shape: Sequence[int]) -> None:
        """Refuse a value of this shape, before anything of its size is made."""
        if math.prod(max(size, 0) for size in shape) > self.largest:
            raise TooLarge(shape)

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
        self.bound_shape(shape)
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
        if any(operand.kind == "c" for operand in operands):
            raise Refused(f"{name} of complex numbers")
        kind = kind or operator.kind or widest(*(operand.kind for operand in operands))
        shapes = [operand.shape for operand in operands]
        shape = operator.shape(attributes, *shapes) if operator.shape else np.broadcast_shapes(*shapes)
        self.bound_shape(shape)
        # Without operands there is nothing to fold: what is random is made anew each time.
        folds = bool(operands) and all(operand.op == "constant" for operand in operands)
        if folds and not (self.exact and _rounds_quotient(name, attributes, operands)):
            if operator.shape is None:
                self.check_size(math.prod(shape))
            if kind == "f":
                self.notes[FOLDED] += 1
            with np.errstate(all="ignore"):
                value = operator.meaning(NUMPY, attributes, *(operand["value"] for operand in operands))
            return self.constant(np.asarray(value), kind)
        # No gradient passes a product with zeros: what is behind it is not read.
        if self.trains and operator.traits_of(attributes).linear == "in each" and any(map(self._is_zero, operands)):
            return self.constant(np.zeros(shape), kind)
        return self._emit(name, operands, attributes, shape, kind)

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
        identity = _hash(name, [operand.identity for operand in operands], keys, sizes, kind)
        node = self._known.get(identity)
        if node is None:
            if operator.family is OperatorFamily.LEAF:
                # Operands of a sum stand by structure first: other names of parameters must not change their order.
                keys.pop("name", None)  # of inputs, parameters and buffers
            structure = _hash(name, [operand.structure for operand in operands], keys, sizes, kind)
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

    def _is_zero(self, x: Node) -> bool:
        value = self.value(x)
        return value is not None and value.size > 0 and not value.any()

    def numbers(self, x: Node, what: str) -> list[Any]:
        """The entries of an operand that must be known: sizes, axes, positions."""
        value = self.value(x)
        if value is None:
            raise Refused(f"{what} that depend on data")
        return value.ravel().tolist()


def _hash(*parts: Any) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def _rounds_quotient(name: str, attributes: Mapping[str, Any], operands: tuple[Node, ...]) -> bool:
    """Whether floats round a reciprocal of constants: a mean by 1/3 is no mean, and what it leaves has a mean."""
    if name != "power" or attributes["exponent"] != -1:
        return False
    mantissas, _ = np.frexp(operands[0]["value"])
    return bool((np.isfinite(mantissas) & (np.abs(mantissas) != 0.5) & (mantissas != 0)).any())
