"""Numbers between nodes that may change places: colours that depend on the numbers alone, and a standard order.

Idea: colour refinement as for isomorphism of graphs (Weisfeiler and Leman 1968), with numbers on the edges. Where
colours leave ties, nodes that are true twins (changing places changes nothing) stand in any order; of others each is
individualised first, as in nauty (McKay and Piperno 2014), and the smallest result is taken. Invariant: colours only
choose an order, and all numbers are hashed in it; a collision of colours can cost a hash, never make two orbits one.
Cost: a round looks at every number once, and each tie of k nodes that are no twins multiplies the rounds by k, up to
`LEAVES` orders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lawful.errors import Unsupported
from lawful.exact import rank

# Tables of numbers between nodes: what colours need of them, entry by entry or as a product of factors.

Codes = NDArray[np.uint64]
Nodes = NDArray[np.int64]
# Entries that are looked at together: 512 KiB of 64-bit codes, which the second cache of a processor holds.
CLOSE = 2**16
# Residues have 23 bits, their products 46: the sum of 2^7 of them is at most 2^53, which float64 holds exactly.
EXACT = 128
# 2^64 divided by the golden ratio, the increment of SplitMix64: its multiples are spread evenly over 64 bits.
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(eq=False)
class NodeAxis:
    """Which node each row of an axis belongs to, and which of its copies the row is."""

    nodes: Nodes
    copies: Nodes


class Digest(Protocol):
    """What takes bytes in."""

    def update(self, data: Any, /) -> None:
        """Take them in."""


class NumberRelation(Protocol):
    """A table with an axis for each kind of node; signs of nodes act on some axes. `rows` are colours, axis by axis."""

    name: str
    axes: list[NodeAxis]
    signed: list[bool]

    def prepare(self, *, blind: bool) -> Codes | bool:
        """What does not depend on colours; `blind` does not see signs."""

    def totals(self, rows: Sequence[Codes], prepare: Any) -> list[Codes]:
        """For each row of every axis what its entries are, together with the colours at their other ends."""

    def towards(self, k: int, sign: float, rows: Sequence[Codes]) -> Codes:
        """The same for one axis whose rows have a sign."""

    def nonzero(self, k: int) -> NDArray[np.bool_]:
        """Which rows of an axis are not zero."""

    def turn(self, k: int, signs: NDArray[np.float64]) -> None:
        """Multiply the rows of an axis by signs."""

    def stays(self, orders: Mapping[int, Nodes]) -> bool:
        """Whether other orders of some axes change nothing."""

    def digest(self, total: Digest, orders: Sequence[Nodes]) -> None:
        """All of it in this order."""


@dataclass(eq=False)
class NumberTable:
    """A tensor: values (or residues modulo `moduli` along a last axis)."""

    name: str
    values: NDArray[np.float64] | NDArray[np.int64]
    axes: list[NodeAxis]
    signed: list[bool]
    moduli: Nodes | None = None

    def _times(self, signs: NDArray[np.float64]) -> NDArray[np.float64] | NDArray[np.int64]:
        if self.moduli is None:
            return self.values * signs + 0.0
        return np.where(signs[..., None] < 0, -self.values % self.moduli, self.values).astype(np.int64)

    def _codes(self, sign: float) -> Codes:
        values = self._times(np.full([1] * len(self.axes), sign))
        return mix_bits(np.ascontiguousarray(values).view(np.uint64)) if self.moduli is None else mix_residues(values)

    def _laid(self, k: int, row: Codes) -> Codes:
        return (row * np.uint64(2 * k + 3)).reshape([-1 if d == k else 1 for d in range(len(self.axes))])

    def prepare(self, *, blind: bool) -> Codes:
        """A code for each entry."""
        code = self._codes(1.0)
        return code + self._codes(-1.0) if blind and any(self.signed) else code

    def totals(self, rows: Sequence[Codes], code: Codes) -> list[Codes]:
        """A few rows of the first axis at a time, as many as a processor keeps close."""
        if not rows:
            return []
        laid = [self._laid(k, row) for k, row in enumerate(rows)]
        first = np.zeros(len(code), dtype=np.uint64)
        rest = np.zeros(code.shape[1:], dtype=np.uint64)
        step = max(CLOSE // max(rest.size, 1), 1)
        for start in range(0, len(code), step):
            few = slice(start, start + step)
            entry = mix_bits(code[few] + laid[0][few])
            for row in laid[1:]:
                entry = mix_bits(entry + row)
            first[few] = entry.reshape(len(entry), -1).sum(axis=1, dtype=np.uint64)
            rest += entry.sum(axis=0, dtype=np.uint64)
        others = [
            rest.sum(axis=tuple(e for e in range(rest.ndim) if e != d), dtype=np.uint64) for d in range(rest.ndim)
        ]
        return [first, *others]

    def towards(self, k: int, sign: float, rows: Sequence[Codes]) -> Codes:
        """One axis, its rows with a sign."""
        entry = self._codes(sign)
        for d, row in enumerate(rows):
            if d != k:
                entry = mix_bits(entry + self._laid(d, row))
        others = tuple(d for d in range(entry.ndim) if d != k)
        return np.asarray(entry.sum(axis=others, dtype=np.uint64) if others else entry)

    def nonzero(self, k: int) -> NDArray[np.bool_]:
        """Rows with an entry that is not zero."""
        rows = np.moveaxis(self.values, k, 0).reshape(len(self.axes[k].nodes), -1)
        return np.asarray((rows != 0).any(1))

    def turn(self, k: int, signs: NDArray[np.float64]) -> None:
        """Rows times signs."""
        self.values = self._times(signs.reshape([-1 if d == k else 1 for d in range(len(self.axes))]))

    def stays(self, orders: Mapping[int, Nodes]) -> bool:
        """Entry by entry."""
        swapped: NDArray[Any] = self.values
        for k, order in orders.items():
            swapped = np.take(swapped, order, axis=k)
        return bool(np.array_equal(swapped, self.values))

    def digest(self, total: Digest, orders: Sequence[Nodes]) -> None:
        """Its name, shape and numbers."""
        total.update(f"{self.name} {self.values.shape}\n".encode())
        values: NDArray[Any] = self.values
        for k, order in enumerate(orders):
            values = np.take(values, order, axis=k)
        total.update(np.ascontiguousarray(values + 0).data)


@dataclass(eq=False)
class ProductTable:
    """For each head `LᵀR` of two factors with d rows, modulo some primes: never multiplied out.

    `left[k]` (heads, d, n₁) and `right[k]` (heads, d, n₂) are residues modulo `primes[k]`. Colours are told by
    `LᵀR h`, with h made of the colours at the other end (of its squares where signs are not to be seen). A product of
    rank d is determined by d of its columns and d of its rows that cross in an invertible matrix: these are hashed.
    """

    name: str
    left: list[Nodes]
    right: list[Nodes]
    primes: tuple[int, ...]
    axes: list[NodeAxis]
    signed: list[bool]

    def _sides(self, k: int, place: int) -> tuple[Nodes, Nodes]:
        near, other = (self.left, self.right) if k == 1 else (self.right, self.left)
        return near[place], other[place]

    def _along(self, k: int, weights: Codes, *, squared: bool = False) -> Codes:
        """For each head and row along axis k one code: of the sum of the entries there, each times a weight."""
        codes = []
        for place, prime in enumerate(self.primes):
            near, other = self._sides(k, place)
            weight = (weights % np.uint64(prime)).astype(np.int64)
            if squared:
                gram = times_modulo(other * weight % prime, other.swapaxes(1, 2), prime)
                codes.append((times_modulo(gram, near, prime) * near % prime).sum(axis=1) % prime)
            else:
                sums = times_modulo(other, weight[:, None], prime)
                codes.append((near * sums % prime).sum(axis=1) % prime)
        return mix_residues(np.stack(codes, -1))

    def prepare(self, *, blind: bool) -> bool:
        """Whether squares are looked at."""
        return blind and any(self.signed)

    def totals(self, rows: Sequence[Codes], squared: bool) -> list[Codes]:
        """Rows of both sides, and heads by both."""
        codes = self._along(1, rows[2], squared=squared), self._along(2, rows[1], squared=squared)
        heads = np.zeros(len(rows[0]), dtype=np.uint64)
        sides = []
        for code, row in zip(codes, rows[1:], strict=True):
            heads = heads + mix_bits(code + row).sum(axis=1, dtype=np.uint64)
            sides.append(mix_bits(code + rows[0][:, None]).sum(axis=0, dtype=np.uint64))
        return [heads, *sides]

    def towards(self, k: int, sign: float, rows: Sequence[Codes]) -> Codes:
        """One side, its rows with a sign: minus the sums."""
        twin = self if sign > 0 else ProductTable(self.name, *self._with_signs(k, -np.ones(len(rows[k]))), self.primes,
                                                  self.axes, self.signed)  # fmt: skip
        return np.asarray(mix_bits(twin._along(k, rows[3 - k]) + rows[0][:, None]).sum(axis=0, dtype=np.uint64))

    def nonzero(self, k: int) -> NDArray[np.bool_]:
        """Rows of a side that are not zero."""
        return np.asarray(self._sides(k, 0)[0].any(axis=(0, 1)))

    def _with_signs(self, k: int, signs: NDArray[np.float64]) -> tuple[list[Nodes], list[Nodes]]:
        both = [list(self.left), list(self.right)]
        for place, prime in enumerate(self.primes):
            factor = both[k - 1][place]
            both[k - 1][place] = np.where(signs < 0, -factor % prime, factor)
        return both[0], both[1]

    def turn(self, k: int, signs: NDArray[np.float64]) -> None:
        """Rows times signs."""
        self.left, self.right = self._with_signs(k, signs)

    def stays(self, orders: Mapping[int, Nodes]) -> bool:
        """As far as products with a random vector tell: otherwise an orbit had two hashes, but never two orbits one."""
        orders = {k: orders.get(k, np.arange(len(self.axes[k].nodes))) for k in range(3)}
        vector = mix_bits(np.arange(len(orders[2]), dtype=np.uint64))
        before = self._along(1, vector)
        after = ProductTable(
            self.name,
            [part[orders[0]][..., orders[1]] for part in self.left],
            [part[orders[0]][..., orders[2]] for part in self.right],
            self.primes, self.axes, self.signed,
        )._along(1, vector)  # fmt: skip
        return bool(np.array_equal(before, after))

    def digest(self, total: Digest, orders: Sequence[Nodes]) -> None:
        """The first d columns and rows of each product; `Unsupported` if they do not cross in an invertible matrix."""
        size = self.left[0].shape[1]
        total.update(f"{self.name} {self.left[0].shape} {self.right[0].shape}\n".encode())
        for place, prime in enumerate(self.primes):
            left, right = self.left[place][orders[0]][..., orders[1]], self.right[place][orders[0]][..., orders[2]]
            columns = times_modulo(left.swapaxes(1, 2), right[..., :size], prime)
            if any(rank(product[:size], prime) < size for product in columns):
                raise Unsupported(
                    f"{self.name}: products of its heads are of deficient rank, and too large to write out"
                )
            total.update(np.ascontiguousarray(columns).data)
            total.update(np.ascontiguousarray(times_modulo(left[..., :size].swapaxes(1, 2), right, prime)).data)


def times_modulo(one: Nodes, two: Nodes, prime: int) -> Nodes:
    """A product of matrices modulo a prime of 23 bits: sums of 128 products of residues are exact in float64.

    >>> times_modulo(np.array([[2, 3]]), np.array([[5], [7]]), 11)
    array([[9]])
    """
    total: Any = 0
    for start in range(0, one.shape[-1], EXACT):
        few = slice(start, start + EXACT)
        part = one[..., few].astype(np.float64) @ two[..., few, :].astype(np.float64)
        total = total + part.astype(np.int64) % prime
    return np.asarray(total % prime, dtype=np.int64)


def mix_residues(residues: NDArray[Any]) -> Codes:
    """One code for the residues along the last axis."""
    total = np.zeros(residues.shape[:-1], dtype=np.uint64)
    for place in range(residues.shape[-1]):
        total = mix_bits(total + residues[..., place].astype(np.uint64) + np.uint64(place + 1))
    return total


def mix_bits(values: Codes) -> Codes:
    """SplitMix64's finaliser."""
    bits = np.asarray(values, dtype=np.uint64) + _ODD
    shifted = np.empty_like(bits)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        np.right_shift(bits, np.uint64(shift), out=shifted)
        bits ^= shifted
        if factor > 1:
            bits *= np.uint64(factor)
    return bits


# Colours travel one layer a round. More rounds would split no colour that an individualised node does not: stopping
# early costs ties, never a wrong hash, since the numbers themselves are hashed in the end.
ROUNDS = 12
# Orders that are tried where ties are no twins; beyond them there is no hash.
LEAVES = 64


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
        fresh = np.arange(first, first + size)
        start = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
        colours = mix_bits(np.full(size, start) + (np.uint64(0) if permutes else np.arange(size, dtype=np.uint64)))
        self.colours = np.concatenate([self.colours, colours])
        self.spaces.append(NodeSpace(name, fresh, permutes, signed))
        return fresh

    def axis(self, name: str, size: int) -> NodeAxis:
        """An axis whose rows stand still."""
        return NodeAxis(self.nodes(name, size, False, False).copy(), np.zeros(size, dtype=np.int64))

    # Colours

    def _rows(self, axis: NodeAxis, colours: Codes) -> Codes:
        return mix_bits(colours[axis.nodes] + _ODD * (axis.copies.astype(np.uint64) + np.uint64(1)))

    def refine(self, colours: Codes, blind: bool = False) -> Codes:
        """Colours that know their neighbours."""
        known = [relation.prepare(blind=blind) for relation in self.relations]
        count = len(np.unique(colours))
        for _ in range(ROUNDS):
            refine = mix_bits(colours)
            for number, (relation, prepare) in enumerate(zip(self.relations, known, strict=True)):
                totals = relation.totals([self._rows(axis, colours) for axis in relation.axes], prepare)
                for k, (axis, total) in enumerate(zip(relation.axes, totals, strict=True)):
                    part = mix_bits(total + np.uint64(1000 * number + k) + _ODD * axis.copies.astype(np.uint64))
                    np.add.at(refine, axis.nodes, part)
            colours = refine
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
        colours = self.refine(self.colours, blind=True)
        open_nodes = np.zeros(len(self.colours), dtype=bool)
        for space in waiting:
            open_nodes[space.nodes] = True
        while waiting:
            space = max(waiting, key=lambda candidate: self._count_usable(candidate, open_nodes))
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

    def _count_usable(self, space: NodeSpace, open_nodes: NDArray[np.bool_]) -> int:
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
        colours = self.refine(self.colours)
        tied = [space.name for space in self.spaces if len(np.unique(colours[space.nodes])) < len(space.nodes)]
        return [*sorted(self.sign_ties), *tied]

    def canonical(self) -> bytes | None:
        """The digest of all numbers in the standard order; None if ties leave too many orders."""
        if self.sign_ties:
            return None
        self.left = LEAVES
        return self._best(self.refine(self.colours))

    def _best(self, colours: Codes) -> bytes | None:
        tied = self._tie(colours)
        if tied is None:
            self.left -= 1
            return self._digest(colours)
        chosen = tied[:1] if all(self._twins(int(tied[0]), int(other)) for other in tied[1:]) else tied
        digests: list[bytes] = []
        for node in chosen.tolist():
            if self.left <= 0:
                return None
            marked = colours.copy()
            marked[node] = mix_bits(marked[node : node + 1] + np.uint64(7))[0]
            one = self._best(self.refine(marked))
            if one is None:
                return None
            digests.append(one)
        return min(digests)

    def _tie(self, colours: Codes) -> Nodes | None:
        """The first nodes of one space that share a colour."""
        for space in self.spaces:
            space_colours = colours[space.nodes]
            values, counts = np.unique(space_colours, return_counts=True)
            if space.permutes and (counts > 1).any():
                return np.asarray(space.nodes[space_colours == values[counts > 1][0]])
        return None

    def _twins(self, one: int, two: int) -> bool:
        """Whether nothing changes when two nodes change places."""
        for relation in self.relations:
            orders: dict[int, Nodes] = {}
            for k, axis in enumerate(relation.axes):
                first, second = (np.flatnonzero(axis.nodes == node) for node in (one, two))
                if len(first):
                    first, second = (rows[np.argsort(axis.copies[rows])] for rows in (first, second))
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
