"""Parameters as sums of few products of vectors: a random tensor that is never written out.

A tensor with axes in groups is Σ_k u_k ⊗ v_k ⊗ ..., a random vector for each group. A polynomial of degree at most r in
the entries of a tensor that vanishes on all sums of r such products vanishes everywhere: in T = Σ λ_j t_j with any
number of products t_j its coefficients belong to monomials in at most r of the λ_j, and each of those is seen by a sum
of r products; and sums of products are all tensors. `growth.py` says which r a program needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lawful.verify.relational.residues import LANES, Lanes, NotCovered, Residues

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
