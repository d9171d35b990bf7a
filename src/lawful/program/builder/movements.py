"""Movements: reshapes, transposes, slices, padding and concatenation are one node each, however they are spelled.

Entry i of a movement is entry `map[i]` of its sources, laid end to end. Invariant: no movement reads a movement (maps
are composed), none moves nothing, and constants among the sources are pooled, so that one map is one function.
Elementwise operators stand here too, because an axis along which all operands only repeat is repeated *after* them.
Composing costs nothing for strides and O(entries of the result) for other maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.program.arrays import NUMPY
from lawful.program.builder.nodes import NodeBuilder, Operand
from lawful.program.index_map import IndexMap, row_major
from lawful.program.program import Node, widest
from lawful.program.table import Refused, ValueKind


class MovementBuilder(NodeBuilder):
    """What moves entries, and what works entry by entry."""

    def contract(self, spec: str, *operands: Node) -> Node:
        """An Einstein sum, where contractions are built: a product whose axes are permuted is a product."""
        raise NotImplementedError

    def elementwise(
        self, name: str, *operands: Operand, kind: ValueKind | None = None, commutes: bool = False, **attributes: Any
    ) -> Node:
        """An operator entry by entry; its operands broadcast, and stand in order if it `commutes`.

        An axis along which all operands only repeat is repeated *after* the operator: `relu(expand(x))` and
        `expand(relu(x))` are one.
        """
        first = next((operand for operand in operands if isinstance(operand, Node)), None)
        nodes = [self.operand(operand, first) for operand in operands]
        whole = np.broadcast_shapes(*(node.shape for node in nodes))
        small = [self.align(node, len(whole)) for node in nodes]
        if commutes:  # by what they are now: a reshape that broadcasting adds changes what a node computes
            small.sort(key=lambda operand: (self.number(operand) is None, operand.order))
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

    def align(self, x: Node, rank: int) -> Node:
        """A value as elementwise operators take it: of a rank, and of size 1 along axes where it only repeats."""
        x = self.reshape(x, (1,) * (rank - x.rank) + x.shape)
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
        self.bound_shape(index.shape)
        sources = tuple(sources)
        if len(sources) == 1:
            source = sources[0]
            if source.op == "take":
                return self.take(source.inputs, index.after(source["map"]))
            # Sizes must agree too: a prefix of a source keeps its order, and is not the source.
            if source.shape == index.shape and index.keeps_order:
                return source
            order = index.permutation_of(source.shape) if source.op == "contract" else None
            if order is not None:  # a permutation of the result belongs to the contraction
                operand_letters, out = source["spec"].split("->")
                return self.contract(f"{operand_letters}->{''.join(out[axis] for axis in order)}", *source.inputs)
        else:
            sources, index = self._merge_sources(sources, index)
            if len(sources) == 1:
                return self.take(sources, index)
        kind = widest(*(part.kind for part in sources))
        if all(part.op == "constant" for part in sources):
            self.check_size(index.size)
            arrays = [NUMPY.cast(part["value"], kind) for part in sources]
            return self.constant(NUMPY.take(arrays, index), kind)
        return self._emit(
            "take", tuple(self.as_kind(part, kind) for part in sources), {"map": index}, index.shape, kind
        )

    def _merge_sources(self, sources: tuple[Node, ...], index: IndexMap) -> tuple[tuple[Node, ...], IndexMap]:
        """Sources of sources; each once, in the order of their first use; unused ones go; constants become one."""
        kind = widest(*(part.kind for part in sources))
        start: dict[Node, int] = {}  # where each source of sources begins among all of them
        total = 0
        parts = []
        for source in sources:
            source = self.as_kind(source, kind)
            inner = source.inputs if source.op == "take" else (source,)
            at = source["map"].positions.ravel() if source.op == "take" else np.arange(source.size)
            before = 0  # of the source's own sources
            shift = []
            for part in inner:
                if part not in start:
                    start[part] = total
                    total += part.size
                shift.append(start[part] - before)
                before += part.size
            # A table of all entries, looked up: several times faster than a search among the sources' ends.
            parts.append(at + (shift[0] if len(inner) == 1 else np.repeat(shift, [part.size for part in inner])[at]))
        at = np.concatenate(parts)[index.positions]
        flat = tuple(start)
        bounds = np.array(list(start.values()))
        owner = np.repeat(np.arange(len(flat)), [part.size for part in flat])[at.ravel()]
        order = _in_order_of_use(owner, len(flat))
        # An empty result still has a source, which says of what kind its entries would be.
        if not order:
            return (flat[0],), IndexMap.of(at)
        constants = [k for k in order if flat[k].op == "constant"]
        if not constants and order == list(range(len(flat))):
            return flat, IndexMap.of(at)
        position = at.ravel() - bounds[owner]
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
        fixed = np.flatnonzero(np.isin(np.arange(len(flat)), constants)[owner])
        values = np.concatenate([NUMPY.cast(flat[k]["value"], kind).ravel() for k in constants])
        begins = np.zeros(len(flat), dtype=np.int64)
        begins[constants] = np.cumsum([0, *(flat[k].size for k in constants[:-1])])
        picked = values[position[fixed] + begins[owner[fixed]]]
        if bool((picked == picked[0]).all()):
            pool, ranks = picked[:1], np.zeros(len(picked), dtype=np.int64)  # a mask: nothing to sort
        else:
            distinct, first, inverse = np.unique(picked, return_index=True, return_inverse=True)
            by_use = np.argsort(first)
            rank = np.empty_like(by_use)
            rank[by_use] = np.arange(len(by_use))
            pool, ranks = distinct[by_use], rank[inverse]
        owner[fixed], position[fixed] = len(flat), ranks
        where = next(k for k, leaf in enumerate(order) if leaf in constants)
        order = [leaf for leaf in order if leaf not in constants]
        order.insert(where, len(flat))
        return order, owner, position, self.constant(pool, kind)

    def move(self, function: Callable[..., Any], *sources: Node, fill: Operand = 0) -> Node:
        """A movement that a function of arrays carries out: found by running it on labels.

        Labels start at 1; where the function leaves 0, the result is `fill`. A function that returns views says where
        entries come from by their strides, and is run on memory that is never touched.
        """
        self.bound_shape((sum(source.size for source in sources),))  # some eight labels are made of each entry
        if len(sources) == 1 and sources[0].size:
            blank = np.empty(sources[0].shape, dtype=np.int64)
            view = _carry_out(function, blank)
            # Only a view has strides in the source; an empty one shares no memory with anything.
            if view.size and np.may_share_memory(view, blank):
                return self.take(sources, _index_of_view(view, blank))
        labels, total = [], 1
        for source in sources:
            labels.append(np.arange(total, total + source.size, dtype=np.int64).reshape(source.shape))
            total += source.size
        return self.take_labels(_carry_out(function, *labels), sources, fill)

    def take_labels(self, labels: NDArray[np.int64], sources: Sequence[Node], fill: Operand = 0) -> Node:
        """The entries that labels name: 1, 2, ... through the sources laid end to end, 0 for `fill`."""
        empty = labels == 0
        if not bool(empty.any()):
            return self.take(sources, IndexMap.of(labels - 1))
        outside = self.as_kind(self.reshape(self.operand(fill, sources[0]), (1,)), sources[0].kind)
        total = sum(source.size for source in sources)
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
        self.bound_shape((*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :]))
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


def _carry_out(function: Callable[..., Any], *labels: NDArray[np.int64]) -> Any:
    """A movement of labels; positions of a file or buffer may lie outside, and are refused."""
    try:
        return function(*labels)
    except IndexError as error:
        raise Refused(f"a movement from outside: {error}") from None


def _in_order_of_use(owner: NDArray[np.int64], count: int) -> list[int]:
    """The sources that entries have, by their first entry; without sorting all entries for the usual few sources."""
    if count <= 8:
        order = [(int(mine.argmax()), k) for k in range(count) if (mine := owner == k).any()]
        return [k for _, k in sorted(order)]
    used, first = np.unique(owner, return_index=True)
    return [int(k) for k in used[np.argsort(first)]]


def _index_of_view(view: NDArray[Any], base: NDArray[Any]) -> IndexMap:
    """Where the entries of a view lie in the array that it is a view of."""
    width = base.itemsize
    offset = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // width
    return IndexMap.affine(view.shape, [step // width for step in view.strides], offset)
