"""Numbers between nodes that may change places: colours that depend on the numbers alone, and a standard order.

This is colour refinement as for isomorphism of graphs. Where colours leave ties, nodes that are true twins (changing
places changes nothing) stand in any order; of others each is tried first, and the smallest result is taken.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lawful.checkpoints.identity.weighted_incidence import Codes, NodeAxis, Nodes, NumberRelation, mix_bits

ROUNDS = 12
LEAVES = 64  # orders that are tried where ties are no twins
_ODD = np.uint64(0x9E3779B97F4A7C15)


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

    relations: list[NumberRelation] = field(default_factory=list)
    spaces: list[NodeSpace] = field(default_factory=list)
    colours: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    sign_ties: set[str] = field(default_factory=set)
    left: int = LEAVES

    def nodes(self, name: str, size: int, permutes: bool, signed: bool) -> Nodes:
        """New nodes, all of one colour if they may change places."""
        first = len(self.colours)
        found = np.arange(first, first + size)
        start = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
        own = mix_bits(np.full(size, start) + (np.uint64(0) if permutes else np.arange(size, dtype=np.uint64)))
        self.colours = np.concatenate([self.colours, own])
        self.spaces.append(NodeSpace(name, found, permutes, signed))
        return found

    def axis(self, name: str, size: int) -> NodeAxis:
        """An axis whose rows stand still."""
        return NodeAxis(self.nodes(name, size, False, False).copy(), np.zeros(size, dtype=np.int64))

    # Colours

    def _rows(self, axis: NodeAxis, colours: Codes) -> Codes:
        return mix_bits(colours[axis.nodes] + _ODD * (axis.copies.astype(np.uint64) + np.uint64(1)))

    def refined(self, colours: Codes, blind: bool = False) -> Codes:
        """Colours that know their neighbours."""
        known = [relation.prepared(blind=blind) for relation in self.relations]
        count = len(np.unique(colours))
        for _ in range(ROUNDS):
            found = mix_bits(colours)
            for number, (relation, prepared) in enumerate(zip(self.relations, known, strict=True)):
                totals = relation.totals([self._rows(axis, colours) for axis in relation.axes], prepared)
                for k, (axis, total) in enumerate(zip(relation.axes, totals, strict=True)):
                    part = mix_bits(total + np.uint64(1000 * number + k) + _ODD * axis.copies.astype(np.uint64))
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

    def _usable(self, relation: NumberRelation, k: int, open_nodes: NDArray[np.bool_]) -> bool:
        return not any(
            sign and open_nodes[axis.nodes].any()
            for d, (axis, sign) in enumerate(zip(relation.axes, relation.signed, strict=True))
            if d != k
        )

    def _members(self, space: NodeSpace) -> list[tuple[NumberRelation, int]]:
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
                shown = np.isin(relation.axes[k].nodes, space.nodes) & relation.nonzero(k)
                nonzero[relation.axes[k].nodes[shown]] = True
                if not self._usable(relation, k, open_nodes):
                    continue
                part = relation.towards(k, sign, [self._rows(axis, colours) for axis in relation.axes])
                part = mix_bits(part + np.uint64(number) + _ODD * relation.axes[k].copies.astype(np.uint64))
                np.add.at(total, relation.axes[k].nodes, part)
            sides.append(total)
        if bool(((sides[0] == sides[1]) & nonzero)[space.nodes].any()):
            self.sign_ties.add(space.name)
        signs = np.ones(len(colours))
        signs[space.nodes] = np.where(sides[0][space.nodes] >= sides[1][space.nodes], 1.0, -1.0)
        for relation, k in members:
            relation.turn(k, signs[relation.axes[k].nodes])

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
            marked[node] = mix_bits(marked[node : node + 1] + np.uint64(7))[0]
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
            orders: dict[int, Nodes] = {}
            for k, axis in enumerate(relation.axes):
                first, second = (np.flatnonzero(axis.nodes == node) for node in (one, two))
                if len(first):
                    first, second = (each[np.argsort(axis.copies[each])] for each in (first, second))
                    orders[k] = np.arange(len(axis.nodes))
                    orders[k][first], orders[k][second] = second, first
            if orders and not relation.stays(orders):
                return False
        return True

    def _digest(self, colours: Codes) -> bytes:
        rank = np.zeros(len(colours), dtype=np.int64)
        for space in self.spaces:
            order = np.argsort(colours[space.nodes], kind="stable") if space.permutes else np.arange(len(space.nodes))
            rank[space.nodes[order]] = space.nodes
        total = hashlib.sha256()
        for relation in self.relations:
            relation.digest(total, [np.lexsort((axis.copies, rank[axis.nodes])) for axis in relation.axes])
        return total.digest()
