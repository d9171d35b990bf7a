"""Numbers between nodes that may change places: colours that depend on the numbers alone, and a standard order.

This is colour refinement as for isomorphism of graphs. Where colours leave ties, nodes that are true twins (changing
places changes nothing) stand in any order; of others each is tried first, and the smallest result is taken.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint64]
Nodes = NDArray[np.int64]
ROUNDS = 12
LEAVES = 64  # orders that are tried where ties are no twins
CLOSE = 2**16  # entries that are looked at together
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(eq=False)
class NodeAxis:
    """Which node each row of an axis belongs to, and which of its copies the row is."""

    nodes: Nodes
    copies: Nodes


@dataclass(eq=False)
class NumberTable:
    """A tensor: values (or residues modulo `moduli` along a last axis), and whether signs of nodes act on each axis."""

    name: str
    values: NDArray[np.float64] | NDArray[np.int64]
    axes: list[NodeAxis]
    signed: list[bool]
    moduli: Nodes | None = None

    def times(self, signs: NDArray[np.float64]) -> NDArray[np.float64] | NDArray[np.int64]:
        """The values with signs, which broadcast over the axes."""
        if self.moduli is None:
            return self.values * signs + 0.0
        return np.where(signs[..., None] < 0, -self.values % self.moduli, self.values).astype(np.int64)

    def codes(self, values: NDArray[np.float64] | NDArray[np.int64]) -> Codes:
        """A number for each entry."""
        if self.moduli is None:
            return _mix(np.ascontiguousarray(values).view(np.uint64))
        total = np.zeros(values.shape[:-1], dtype=np.uint64)
        for place in range(values.shape[-1]):
            total = _mix(total + values[..., place].astype(np.uint64) + np.uint64(place + 1))
        return total


@dataclass(eq=False)
class NodeSpace:
    """Nodes that may change places, or not."""

    name: str
    nodes: Nodes
    permutes: bool
    signed: bool


@dataclass(eq=False)
class ColouredNumbers:
    """All tensors of a checkpoint as relations between nodes."""

    relations: list[NumberTable] = field(default_factory=list)
    spaces: list[NodeSpace] = field(default_factory=list)
    colours: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    sign_ties: set[str] = field(default_factory=set)
    left: int = LEAVES

    def nodes(self, name: str, size: int, permutes: bool, signed: bool) -> Nodes:
        """New nodes, all of one colour if they may change places."""
        first = len(self.colours)
        found = np.arange(first, first + size)
        start = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
        own = _mix(np.full(size, start) + (np.uint64(0) if permutes else np.arange(size, dtype=np.uint64)))
        self.colours = np.concatenate([self.colours, own])
        self.spaces.append(NodeSpace(name, found, permutes, signed))
        return found

    def axis(self, name: str, size: int) -> NodeAxis:
        """An axis whose rows stand still."""
        return NodeAxis(self.nodes(name, size, False, False).copy(), np.zeros(size, dtype=np.int64))

    # Colours

    def _codes(self, relation: NumberTable, blind: bool) -> Codes:
        whole = np.ones([1] * len(relation.axes))
        found = relation.codes(relation.times(whole))
        return found + relation.codes(relation.times(-whole)) if blind and any(relation.signed) else found

    def _rows(self, axis: NodeAxis, colours: Codes) -> Codes:
        return _mix(colours[axis.nodes] + _ODD * (axis.copies.astype(np.uint64) + np.uint64(1)))

    def _totals(self, relation: NumberTable, code: Codes, colours: Codes) -> list[Codes]:
        """For each row of every axis the sum of what its entries are, together with the colours at their other ends;
        a few rows of the first axis at a time, as many as a processor keeps close."""
        rows = [
            (self._rows(axis, colours) * np.uint64(2 * k + 3)).reshape([-1 if d == k else 1 for d in range(code.ndim)])
            for k, axis in enumerate(relation.axes)
        ]
        if not rows:
            return []
        first = np.zeros(len(code), dtype=np.uint64)
        rest = np.zeros(code.shape[1:], dtype=np.uint64)
        step = max(CLOSE // max(rest.size, 1), 1)
        for start in range(0, len(code), step):
            few = slice(start, start + step)
            entry = _mix(code[few] + rows[0][few])
            for own in rows[1:]:
                entry = _mix(entry + own)
            first[few] = entry.reshape(len(entry), -1).sum(axis=1, dtype=np.uint64)
            rest += entry.sum(axis=0, dtype=np.uint64)
        others = [
            rest.sum(axis=tuple(e for e in range(rest.ndim) if e != d), dtype=np.uint64) for d in range(rest.ndim)
        ]
        return [first, *others]

    def refined(self, colours: Codes, blind: bool = False) -> Codes:
        """Colours that know their neighbours."""
        codes = [self._codes(relation, blind) for relation in self.relations]
        count = len(np.unique(colours))
        for _ in range(ROUNDS):
            found = _mix(colours)
            for number, (relation, code) in enumerate(zip(self.relations, codes, strict=True)):
                for k, (axis, total) in enumerate(
                    zip(relation.axes, self._totals(relation, code, colours), strict=True)
                ):
                    part = _mix(total + np.uint64(1000 * number + k) + _ODD * axis.copies.astype(np.uint64))
                    np.add.at(found, axis.nodes, part)
            colours = found
            now = len(np.unique(colours))
            if now == count:
                break
            count = now
        return colours

    # Signs

    def settle_signs(self) -> None:
        """Turn every signed node the way in which its numbers say so, from what is settled to what is not."""
        waiting = [space for space in self.spaces if space.signed]
        if not waiting:
            return
        colours = self.refined(self.colours, blind=True)
        open_nodes = np.zeros(len(self.colours), dtype=bool)
        for space in waiting:
            open_nodes[space.nodes] = True
        while waiting:
            space = max(waiting, key=lambda each: self._shown(each, open_nodes))
            self._turn(space, open_nodes, colours)
            open_nodes[space.nodes] = False
            waiting.remove(space)

    def _usable(self, relation: NumberTable, k: int, open_nodes: NDArray[np.bool_]) -> bool:
        return not any(
            sign and open_nodes[axis.nodes].any()
            for d, (axis, sign) in enumerate(zip(relation.axes, relation.signed, strict=True))
            if d != k
        )

    def _members(self, space: NodeSpace) -> list[tuple[NumberTable, int]]:
        return [
            (relation, k)
            for relation in self.relations
            for k, (axis, sign) in enumerate(zip(relation.axes, relation.signed, strict=True))
            if sign and np.isin(axis.nodes, space.nodes).any()
        ]

    def _shown(self, space: NodeSpace, open_nodes: NDArray[np.bool_]) -> int:
        return sum(self._usable(relation, k, open_nodes) for relation, k in self._members(space))

    def _turn(self, space: NodeSpace, open_nodes: NDArray[np.bool_], colours: Codes) -> None:
        sides = []
        nonzero = np.zeros(len(colours), dtype=bool)
        members = self._members(space)
        for sign in (1.0, -1.0):
            total = np.zeros(len(colours), dtype=np.uint64)
            for number, (relation, k) in enumerate(members):
                whole = np.ones([1] * len(relation.axes))
                rows = np.moveaxis(relation.values, k, 0).reshape(len(relation.axes[k].nodes), -1)
                shown = np.isin(relation.axes[k].nodes, space.nodes) & (rows != 0).any(1)
                nonzero[relation.axes[k].nodes[shown]] = True
                if not self._usable(relation, k, open_nodes):
                    continue
                entry = relation.codes(relation.times(sign * whole))
                for d, axis in enumerate(relation.axes):
                    if d != k:
                        own = self._rows(axis, colours) * np.uint64(2 * d + 3)
                        entry = _mix(entry + own.reshape([-1 if e == d else 1 for e in range(entry.ndim)]))
                others = tuple(d for d in range(entry.ndim) if d != k)
                part = entry.sum(axis=others, dtype=np.uint64) if others else entry
                part = _mix(part + np.uint64(number) + _ODD * relation.axes[k].copies.astype(np.uint64))
                np.add.at(total, relation.axes[k].nodes, part)
            sides.append(total)
        if bool(((sides[0] == sides[1]) & nonzero)[space.nodes].any()):
            self.sign_ties.add(space.name)
        signs = np.ones(len(colours))
        signs[space.nodes] = np.where(sides[0][space.nodes] >= sides[1][space.nodes], 1.0, -1.0)
        for relation, k in members:
            shape = [-1 if d == k else 1 for d in range(len(relation.axes))]
            relation.values = relation.times(signs[relation.axes[k].nodes].reshape(shape))

    # Order

    def tied_spaces(self) -> list[str]:
        """Spaces whose nodes are not all told apart."""
        colours = self.refined(self.colours)
        tied = [each.name for each in self.spaces if len(np.unique(colours[each.nodes])) < len(each.nodes)]
        return [*sorted(self.sign_ties), *tied]

    def canonical(self) -> bytes | None:
        """The digest of all numbers in the standard order; None if ties leave too many orders."""
        if self.sign_ties:
            return None
        self.left = LEAVES
        return self._best(self.refined(self.colours))

    def _best(self, colours: Codes) -> bytes | None:
        tied = self._tie(colours)
        if tied is None:
            self.left -= 1
            return self._digest(colours)
        chosen = tied[:1] if all(self._twins(int(tied[0]), int(other)) for other in tied[1:]) else tied
        found: list[bytes] = []
        for node in chosen.tolist():
            if self.left <= 0:
                return None
            marked = colours.copy()
            marked[node] = _mix(marked[node : node + 1] + np.uint64(7))[0]
            one = self._best(self.refined(marked))
            if one is None:
                return None
            found.append(one)
        return min(found)

    def _tie(self, colours: Codes) -> Nodes | None:
        """The first nodes of one space that share a colour."""
        for space in self.spaces:
            own = colours[space.nodes]
            values, counts = np.unique(own, return_counts=True)
            if space.permutes and (counts > 1).any():
                return np.asarray(space.nodes[own == values[counts > 1][0]])
        return None

    def _twins(self, one: int, two: int) -> bool:
        """Whether nothing changes when two nodes change places."""
        for relation in self.relations:
            swapped: NDArray[Any] = relation.values
            for k, axis in enumerate(relation.axes):
                first, second = (np.flatnonzero(axis.nodes == node) for node in (one, two))
                if len(first):
                    first, second = (each[np.argsort(axis.copies[each])] for each in (first, second))
                    order = np.arange(len(axis.nodes))
                    order[first], order[second] = second, first
                    swapped = np.take(swapped, order, axis=k)
            if swapped is not relation.values and not np.array_equal(swapped, relation.values):
                return False
        return True

    def _digest(self, colours: Codes) -> bytes:
        rank = np.zeros(len(colours), dtype=np.int64)
        for space in self.spaces:
            order = np.argsort(colours[space.nodes], kind="stable") if space.permutes else np.arange(len(space.nodes))
            rank[space.nodes[order]] = space.nodes
        total = hashlib.sha256()
        for relation in self.relations:
            total.update(f"{relation.name} {relation.values.shape}\n".encode())
            values: NDArray[Any] = relation.values
            for k, axis in enumerate(relation.axes):
                values = np.take(values, np.lexsort((axis.copies, rank[axis.nodes])), axis=k)
            total.update(np.ascontiguousarray(values + 0).data)
        return total.digest()


def _mix(values: Codes) -> Codes:
    """SplitMix64's finaliser."""
    found = np.asarray(values, dtype=np.uint64) + _ODD
    shifted = np.empty_like(found)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        np.right_shift(found, np.uint64(shift), out=shifted)
        found ^= shifted
        if factor > 1:
            found *= np.uint64(factor)
    return found
