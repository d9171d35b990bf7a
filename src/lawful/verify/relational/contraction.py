"""Parameters as sums of few products of vectors: a random tensor that is never written out.

A tensor with axes in groups is Σ_k u_k ⊗ v_k ⊗ ..., a random vector for each group. A polynomial of degree at most r in
the entries of a tensor that vanishes on all sums of r such products vanishes everywhere: in T = Σ λ_j t_j with any
number of products t_j its coefficients belong to monomials in at most r of the λ_j, and each of those is seen by a sum
of r products; and sums of products are all tensors. `growth.py` says which r a program needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lawful.verify.core.residues import LANES, FunctionVariables, Lanes, NotCovered, Residues, SideValues
from lawful.verify.core.schema import check_clock, require
from lawful.verify.relational.program import ListedNode, ListedProgram

WRITTEN_OUT = 4_000_000  # entries that a parameter may have where it has to be written out


@dataclass(frozen=True, eq=False)
class ExactFrame:
    """What happens along some dimensions: rows permuted, multiplied, then mixed by matrices, all modulo the primes."""

    dims: tuple[int, ...]
    source: np.ndarray[Any, Any]
    factor: Residues | None
    blocks: tuple[tuple[np.ndarray[Any, Any], Residues], ...]

    def act(self, field: Lanes, rows: Residues) -> Residues:
        """On rows `(LANES, terms, count)`."""
        rows = rows[:, :, self.source]
        if self.factor is not None:
            rows = field.times(rows, self.factor[:, None])
        for table, matrix in self.blocks:
            for line in table:
                rows[:, :, line] = field.matmul(rows[:, :, line], matrix.swapaxes(1, 2))
        return rows


@dataclass(frozen=True, eq=False)
class Weight:
    """A parameter: for each group of axes an array `(LANES, terms, *sizes of the group)`."""

    shape: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    factors: tuple[Residues, ...]

    @property
    def terms(self) -> int:
        """How many products are added."""
        return int(self.factors[0].shape[1])

    def place(self, axis: int) -> tuple[int, int]:
        """The group that an axis is in, and where in it."""
        for number, axes in enumerate(self.groups):
            if axis in axes:
                return number, axes.index(axis)
        raise NotCovered("an axis that a parameter does not have")

    def with_factor(self, number: int, factor: Residues) -> Weight:
        """Another array for one group."""
        return Weight(self.shape, self.groups, (*self.factors[:number], factor, *self.factors[number + 1 :]))

    def multiply(self, field: Lanes, axis: int, vector: Residues) -> Weight:
        """Times a vector along an axis."""
        number, inside = self.place(axis)
        laid = [LANES, 1, *(-1 if k == inside else 1 for k in range(len(self.groups[number])))]
        return self.with_factor(number, field.times(self.factors[number], vector.reshape(laid)))

    def centre(self, field: Lanes, axis: int) -> Weight:
        """Without its mean along an axis."""
        number, inside = self.place(axis)
        factor = self.factors[number]
        share = field.rational(self.shape[axis])
        total = field.reduce(factor.sum(2 + inside, keepdims=True))
        mean = field.times(total, field.inverse(share).reshape((LANES,) + (1,) * (factor.ndim - 1)))
        return self.with_factor(number, field.reduce(factor - mean))

    def apply(self, field: Lanes, axis: int, vector: Residues) -> Residues:
        """Σ W[.., c, ..] v[c] along an axis, written out."""
        number, inside = self.place(axis)
        factor = np.moveaxis(self.factors[number], 2 + inside, -1)
        flat = factor.reshape(LANES, -1, self.shape[axis])
        summed = field.matmul(flat, vector[:, :, None])[..., 0].reshape(factor.shape[:-1])
        rest = tuple(k for k in self.groups[number] if k != axis)
        groups = (*self.groups[:number], rest, *self.groups[number + 1 :])
        lower = [tuple(k - (k > axis) for k in axes) for axes in groups]
        shape = tuple(n for k, n in enumerate(self.shape) if k != axis)
        return Weight(shape, tuple(lower), self.with_factor(number, summed).factors).write_out(field)

    def act(self, field: Lanes, frame: ExactFrame) -> Weight:
        """After a frame, whose dimensions are one of the groups."""
        if not frame.dims:  # no dimension: the whole tensor is one row
            flat = self.factors[0].reshape(LANES, -1, 1)
            return self.with_factor(0, frame.act(field, flat).reshape(self.factors[0].shape))
        number = self.groups.index(frame.dims)
        factor = self.factors[number]
        rows = frame.act(field, factor.reshape(LANES, factor.shape[1], -1))
        return self.with_factor(number, rows.reshape(factor.shape))

    def add(self, field: Lanes, piece: np.ndarray[Any, Any]) -> Weight:
        """Plus numbers: one product more where they change along one group of axes, else all is written out."""
        along = [n for n, axes in enumerate(self.groups) if any(piece.shape[k] > 1 for k in axes)]
        if len(self.groups) < 2 or len(along) > 1:
            whole = self.write_out(field)
            total = field.reduce(whole + np.broadcast_to(field.floats(piece), whole.shape))
            axes = tuple(range(len(self.shape)))
            return Weight(self.shape, (axes,), (total[:, None],))
        factors = []
        for number, axes in enumerate(self.groups):
            sizes = tuple(self.shape[k] for k in axes)
            values: Any = np.ones(sizes)
            if along == [number]:
                order = (*axes, *(k for k in range(piece.ndim) if k not in axes))
                values = np.broadcast_to(piece.transpose(order).reshape([piece.shape[k] for k in axes]), sizes)
            elif not along and number == 0:
                values = np.full(sizes, piece.reshape(-1)[0])
            factors.append(np.concatenate([self.factors[number], field.floats(values)[:, None]], axis=1))
        return Weight(self.shape, self.groups, tuple(factors))

    def write_out(self, field: Lanes) -> Residues:
        """All entries: `(LANES, *shape)`."""
        if prod(self.shape) > WRITTEN_OUT:
            raise NotCovered("a large parameter that would have to be written out")
        total = self.factors[0].reshape(LANES, self.terms, -1)
        for number, factor in enumerate(self.factors[1:], 1):
            flat = factor.reshape(LANES, self.terms, -1)
            if number == len(self.factors) - 1:
                total = field.matmul(total.swapaxes(1, 2), flat)
            else:
                total = field.times(total[:, :, :, None], flat[:, :, None, :]).reshape(LANES, self.terms, -1)
        if len(self.factors) == 1:
            total = field.reduce(total.sum(1))
        order = [k for axes in self.groups for k in axes]
        return np.ascontiguousarray(
            total.reshape(LANES, *(self.shape[k] for k in order)).transpose(
                0, *(1 + order.index(k) for k in range(len(order)))
            )
        )


def draw_weight(field: Lanes, shape: tuple[int, ...], moved: list[tuple[int, ...]], terms: int) -> Weight:
    """A random tensor: axes that move together are a group, so are all axes of a kernel that do not move."""
    rest = [k for k in range(len(shape)) if not any(k in axes for axes in moved)]
    groups = [axes for axes in moved if axes]
    groups += [(k,) for k in rest if k < 2]
    kernel = tuple(k for k in rest if k >= 2)
    groups += [kernel] if kernel else []
    if len(groups) <= 1:
        terms = 1
    groups = sorted(groups) or [()]
    if any(prod(shape[k] for k in axes) > WRITTEN_OUT for axes in groups):
        raise NotCovered("a large parameter that would have to be written out")
    return Weight(shape, tuple(groups), tuple(field.draw((terms, *(shape[k] for k in axes))) for axes in groups))


# Values of several runs of one program: Einstein sums, convolutions and tables, a parameter vector by vector.

Leaf = Residues | Weight
MOST_COEFFICIENTS = 20_000_000  # of the combinations that stand for entries of one table


class Variables(FunctionVariables):
    """What runs of one program share: the lanes, and the variables that functions have got."""

    def __init__(
        self,
        field: Lanes,
        program: ListedProgram,
        leaves: list[dict[str, Leaf]],
        generic: list[bool],
        held: Callable[[str], np.ndarray[Any, Any]],
    ) -> None:
        super().__init__(field)
        self.program, self.leaves, self.generic, self.held = program, leaves, generic, held
        self.node: ListedNode = program.nodes[0]

    def each(self, change: Callable[..., Any], *values: SideValues) -> list[Any]:
        """A function of the arrays of each side, computed once for the same arrays."""
        done: dict[tuple[int, ...], Any] = {}
        results = []
        for arrays in zip(*(value.sides for value in values), strict=True):
            key = tuple(map(id, arrays))
            if key not in done:
                done[key] = change(*arrays)
            results.append(done[key])
        return results

    def dense(self, value: SideValues) -> SideValues:
        """Parameters written out."""
        if not any(isinstance(side, Weight) for side in value.sides):
            return value
        written = self.each(lambda w: w.write_out(self.field) if isinstance(w, Weight) else w, value)
        return SideValues(written, value.below, value.positions)

    def finite(self, *values: SideValues) -> None:
        """Refuse minus infinity where no rule speaks of it."""
        if any(value.below is not None for value in values):
            raise NotCovered(f"minus infinity in {self.node.op}")


class Contractions(Variables):
    """Products of two operands, summed."""

    def contract(self, x: SideValues, y: SideValues, lx: str, ly: str, out: str) -> SideValues:
        """An Einstein sum; a parameter is used vector by vector."""
        self.finite(x, y)

        def once(a: Any, b: Any) -> Residues:
            if isinstance(a, Weight) and isinstance(b, Weight):
                a = a.write_out(self.field)
            if isinstance(a, Weight):
                return self.through(b, a, ly, lx, out)
            if isinstance(b, Weight):
                return self.through(a, b, lx, ly, out)
            return self.einstein(a, b, lx, ly, out)

        return SideValues(self.each(once, x, y))

    def through(self, x: Residues, w: Weight, lx: str, lw: str, out: str) -> Residues:
        """A parameter of few products: one vector after the other, those that are summed first."""
        letters = ["".join(lw[k] for k in axes) for axes in w.groups]
        order = sorted(range(len(letters)), key=lambda n: sum(c in out for c in letters[n]))
        have, inside = lx, x
        for turn, number in enumerate(order):
            later = set(out).union(*(letters[n] for n in order[turn + 1 :]))
            last = turn == len(order) - 1
            mine = "*" + letters[number]
            keep = [c for c in dict.fromkeys(have + mine) if c in later or (c == "*" and not last)]
            inside = self.einstein(inside, w.factors[number], have, mine, "".join(keep))
            have = "".join(keep)
        return np.ascontiguousarray(inside.transpose(0, *(1 + have.index(c) for c in out)))

    def einstein(self, a: Residues, b: Residues, la: str, lb: str, out: str) -> Residues:
        """An Einstein sum of two arrays, as matrix products."""
        field = self.field
        for letters, other in ((la, lb), (lb, la)):
            alone = tuple(k for k, c in enumerate(letters) if c not in other and c not in out)
            if alone and letters is la:
                a = field.reduce(a.sum(tuple(1 + k for k in alone)))
                la = "".join(c for k, c in enumerate(la) if k not in alone)
            elif alone:
                b = field.reduce(b.sum(tuple(1 + k for k in alone)))
                lb = "".join(c for k, c in enumerate(lb) if k not in alone)
        size = {**dict(zip(la, a.shape[1:], strict=True)), **dict(zip(lb, b.shape[1:], strict=True))}
        batch = [c for c in la if c in lb and c in out]
        inner = [c for c in la if c in lb and c not in out]
        left, right = [c for c in la if c not in lb], [c for c in lb if c not in la]
        counts = [prod(size[c] for c in letters_of) for letters_of in (batch, left, inner, right)]
        one = a.transpose(0, *(1 + la.index(c) for c in batch + left + inner)).reshape(
            LANES, counts[0], counts[1], counts[2]
        )
        two = b.transpose(0, *(1 + lb.index(c) for c in batch + inner + right)).reshape(
            LANES, counts[0], counts[2], counts[3]
        )
        product = field.matmul(one, two).reshape(LANES, *(size[c] for c in batch + left + right))
        have = batch + left + right
        return product.transpose(0, *(1 + have.index(c) for c in out))

    def convolve(self, node: ListedNode, x: SideValues, w: SideValues) -> SideValues:
        """Padding is 0; for each place of the kernel an Einstein sum with what lies there."""
        x = self.dense(x)
        self.finite(x, w)
        return SideValues(self.each(lambda a, b: self.convolution(node, a, b), x, w))

    def convolution(self, node: ListedNode, x: Residues, w: Any) -> Residues:
        """One run of it."""
        attributes, field = node.attributes, self.field
        groups, rank = attributes["groups"], len(node.shape) - 2
        shape = self.program.nodes[node.operands[1]].shape
        kernel = tuple(range(2, 2 + rank))
        places, offsets = node.shape[2:], list(np.ndindex(*shape[2:]))
        pad = [(p, p) for p in attributes["padding"]]
        wide = np.pad(x, [(0, 0)] * 3 + pad) if any(attributes["padding"]) else x

        def window(a: Residues, at: tuple[int, ...]) -> Residues:
            """What the kernel's place `at` meets, for every place of the result (the last axes)."""
            cut = tuple(
                slice(k * d, k * d + s * (n - 1) + 1, s)
                for k, d, s, n in zip(at, attributes["dilation"], attributes["stride"], places, strict=True)
            )
            part: Residues = a[(Ellipsis, *cut)]  # type: ignore[arg-type]
            return part

        uvw = "uvw"[:rank]
        if isinstance(w, Weight) and kernel in w.groups and groups == 1 and {(0,), (1,)} <= set(w.groups):
            outer, inner, inside = (w.factors[w.groups.index(axes)] for axes in ((0,), (1,), kernel))
            met = self.einstein(wide, inner, "nc" + uvw, "*c", "n*" + uvw)
            total = field.zeros((node.shape[0], w.terms, *places))
            for at in offsets:
                check_clock()
                share = inside[(slice(None), slice(None), *at)][(slice(None), None, ..., *(None,) * rank)]
                total = field.reduce(total + field.times(window(met, at), share))
            return self.einstein(total, outer, "n*" + uvw, "*o", "no" + uvw)
        array = w.write_out(field) if isinstance(w, Weight) else w
        split = wide.reshape(LANES, wide.shape[1], groups, -1, *wide.shape[3:])
        kernels = array.reshape(LANES, groups, shape[0] // groups, *shape[1:])
        total = field.zeros((node.shape[0], groups, shape[0] // groups, *places))
        for at in offsets:
            check_clock()
            part = kernels[(..., *at)]
            total = field.reduce(total + self.einstein(window(split, at), part, "ngc" + uvw, "goc", "ngo" + uvw))
        return total.reshape(LANES, *node.shape)

    def lookup(self, node: ListedNode, table: SideValues, index: SideValues) -> SideValues:
        """Entries at known positions; at positions that are data, the same combination of all entries in every run."""
        axis, shape = node.attributes["axis"], self.program.nodes[node.operands[0]].shape
        self.finite(table, index)
        count = shape[axis]
        if index.positions is not None:
            at = index.positions
            require(bool((at >= -count).all() and (at < count).all()), "a table is read outside of it")
            at = np.where(at < 0, at + count, at)
            index = SideValues([self.field.integers(at)] * len(self.leaves))
            line = at.reshape(-1)
            weights = [self.field.integers((line[:, None] == np.arange(count)).astype(np.int64))] * len(self.leaves)
        else:
            index = self.dense(index)
            keys = np.concatenate([array.reshape(LANES, -1) for array in self.distinct(index.sides)], axis=1)
            first, kinds = self.field.groups(keys)
            self.note_parting(index.sides, kinds)
            if count * len(first) > MOST_COEFFICIENTS:
                raise NotCovered("tables that are read at so many positions")
            chosen = self.field.draw((len(first), count))
            # One of the entries is picked: whatever else is not known of the combination, its coefficients add up to 1.
            chosen[:, :, -1] = self.field.reduce(1 - chosen[:, :, :-1].sum(-1))
            weights, start, by_array = [], 0, {}
            for array in self.distinct(index.sides):
                size = prod(array.shape[1:])
                by_array[id(array)] = chosen[:, kinds[start : start + size]]
                start += size
            weights = [by_array[id(array)] for array in index.sides]
        letters = "abcdefghijkl"[: len(shape)]
        mine = letters[axis]
        out = letters.replace(mine, "y")
        picked = self.contract(table, SideValues(weights), letters, "y" + mine, out)
        return SideValues(self.each(lambda a: np.ascontiguousarray(a).reshape(LANES, *node.shape), picked))
