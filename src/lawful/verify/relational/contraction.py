"""Values of several runs of one program: Einstein sums, convolutions and tables, a parameter vector by vector."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from lawful.verify.core.schema import require
from lawful.verify.relational.functions import FunctionVariables, SideValues
from lawful.verify.relational.program import ListedNode, ListedProgram
from lawful.verify.relational.residues import LANES, Lanes, NotCovered, Residues
from lawful.verify.relational.weights import Weight

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
        found = []
        for arrays in zip(*(value.sides for value in values), strict=True):
            key = tuple(map(id, arrays))
            if key not in done:
                done[key] = change(*arrays)
            found.append(done[key])
        return found

    def dense(self, value: SideValues) -> SideValues:
        """Parameters written out."""
        if not any(isinstance(side, Weight) for side in value.sides):
            return value
        made = self.each(lambda w: w.write_out(self.field) if isinstance(w, Weight) else w, value)
        return SideValues(made, value.below, value.positions)

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
        counts = [prod(size[c] for c in each) for each in (batch, left, inner, right)]
        one = a.transpose(0, *(1 + la.index(c) for c in batch + left + inner)).reshape(
            LANES, counts[0], counts[1], counts[2]
        )
        two = b.transpose(0, *(1 + lb.index(c) for c in batch + inner + right)).reshape(
            LANES, counts[0], counts[2], counts[3]
        )
        made = field.matmul(one, two).reshape(LANES, *(size[c] for c in batch + left + right))
        have = batch + left + right
        return made.transpose(0, *(1 + have.index(c) for c in out))

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
            found: Residues = a[(Ellipsis, *cut)]  # type: ignore[arg-type]
            return found

        uvw = "uvw"[:rank]
        if isinstance(w, Weight) and kernel in w.groups and groups == 1 and {(0,), (1,)} <= set(w.groups):
            outer, inner, inside = (w.factors[w.groups.index(axes)] for axes in ((0,), (1,), kernel))
            met = self.einstein(wide, inner, "nc" + uvw, "*c", "n*" + uvw)
            total = field.zeros((node.shape[0], w.terms, *places))
            for at in offsets:
                require(True, "")  # the clock
                share = inside[(slice(None), slice(None), *at)][(slice(None), None, ..., *(None,) * rank)]
                total = field.reduce(total + field.times(window(met, at), share))
            return self.einstein(total, outer, "n*" + uvw, "*o", "no" + uvw)
        array = w.write_out(field) if isinstance(w, Weight) else w
        split = wide.reshape(LANES, wide.shape[1], groups, -1, *wide.shape[3:])
        kernels = array.reshape(LANES, groups, shape[0] // groups, *shape[1:])
        total = field.zeros((node.shape[0], groups, shape[0] // groups, *places))
        for at in offsets:
            require(True, "")
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
            keys = np.concatenate([each.reshape(LANES, -1) for each in self.distinct(index.sides)], axis=1)
            first, kinds = self.field.groups(keys)
            self.note_parting(index.sides, kinds)
            if count * len(first) > MOST_COEFFICIENTS:
                raise NotCovered("tables that are read at so many positions")
            chosen = self.field.draw((len(first), count))
            # One of the entries is picked: whatever else is not known of the combination, its coefficients add up to 1.
            chosen[:, :, -1] = self.field.reduce(1 - chosen[:, :, :-1].sum(-1))
            weights, start, made = [], 0, {}
            for each in self.distinct(index.sides):
                size = prod(each.shape[1:])
                made[id(each)] = chosen[:, kinds[start : start + size]]
                start += size
            weights = [made[id(each)] for each in index.sides]
        letters = "abcdefghijkl"[: len(shape)]
        mine = letters[axis]
        out = letters.replace(mine, "y")
        found = self.contract(table, SideValues(weights), letters, "y" + mine, out)
        return SideValues(self.each(lambda a: np.ascontiguousarray(a).reshape(LANES, *node.shape), found))
