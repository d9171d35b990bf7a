"""Laws made of rows of parameters: weighted sums of squares, of entries, and column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
import torch

from lawful.symmetry.laws.families import Axis, Parameters, SpaceLaws
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class RowLaws(SpaceLaws):
    """Combinations of rows of parameters: `weights` (laws × rows) is the share of each row in each law.

    Row i of `picked[a]`, of the parameter of `axes[a]`, comes after all rows of the axes before.
    """

    axes: tuple[Axis, ...]
    picked: tuple[Indices, ...]
    weights: sparse.csr_array

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the parameters in it."""
        return tuple(dict.fromkeys(axis.parameter for axis in self.axes))

    def _rows(self, theta: Parameters) -> Iterator[torch.Tensor]:
        for axis, picked in zip(self.axes, self.picked, strict=True):
            yield axis.rows(theta[axis.parameter], picked)

    def _spread(
        self, theta: Parameters, shares: Floats, piece: Callable[[Axis, torch.Tensor, torch.Tensor], torch.Tensor]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """A gradient in pieces: what `piece` makes of each axis, its rows and their shares, back in its shape."""
        start = 0
        for axis, picked in zip(self.axes, self.picked, strict=True):
            tensor, chosen = theta[axis.parameter], torch.as_tensor(picked)
            found = torch.zeros_like(axis.rows(tensor))
            found[chosen] = piece(axis, chosen, torch.as_tensor(shares[start : start + len(picked)]))
            start += len(picked)
            yield axis.parameter, axis.back(found, tensor.shape)


@dataclass(frozen=True, eq=False)
class ScaleLaws(RowLaws):
    """`Σ weights · θ²`: each law is a combination of the sums of squares of rows."""

    count: int

    def _products(self, theta: Parameters, step: Parameters, absolute: bool = False) -> Floats:
        found = []
        for axis, picked in zip(self.axes, self.picked, strict=True):
            left = axis.centred(theta[axis.parameter], picked)
            right = left if step is theta else axis.rows(step[axis.parameter], picked)
            pair = (left.abs(), right.abs()) if absolute else (left, right)
            found.append(torch.linalg.vecdot(*pair).numpy())
        return np.concatenate(found)

    def values(self, theta: Parameters) -> Floats:
        """All laws at θ."""
        return np.asarray(self.weights @ self._products(theta, theta))

    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """Twice the weighted products."""
        return np.asarray(2.0 * (self.weights @ self._products(theta, step)))

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        return np.asarray(2.0 * (abs(self.weights) @ self._products(theta, step, absolute=True)))

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """Each row times twice its share."""
        return self._spread(
            theta,
            2.0 * (self.weights.T @ weights),
            lambda axis, chosen, shares: shares[:, None] * axis.centred(theta[axis.parameter])[chosen],
        )


class LinearLaws(RowLaws):
    """Laws that are linear in the parameters: their derivative along a step is their value there."""

    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """Their values at the step."""
        return self.values(step)


@dataclass(frozen=True, eq=False)
class SumLaws(LinearLaws):
    """`Σ weights · θ` over rows of parameters: each law is a combination of the sums of rows."""

    count: int

    def _sums(self, theta: Parameters) -> Floats:
        return np.concatenate([rows.sum(1).numpy() for rows in self._rows(theta)])

    def values(self, theta: Parameters) -> Floats:
        """All laws at θ."""
        return np.asarray(self.weights @ self._sums(theta))

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        return np.asarray(abs(self.weights) @ self._sums({name: step[name].abs() for name in self.parameters}))

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """Constant along each row."""
        return self._spread(theta, self.weights.T @ weights, lambda axis, chosen, shares: shares[:, None])


@dataclass(frozen=True, eq=False)
class ColumnLaws(LinearLaws):
    """`Σ weights · W[row, k]` for every column k: rows may move by one vector, together or one against another.

    With `contrast`, differences to the first column: the common part of all columns is a law only together with other
    parameters.
    """

    columns: int
    contrast: bool

    @property
    def count(self) -> int:  # type: ignore[override]
        """All of them are independent."""
        return int(self.weights.shape[0]) * (self.columns - int(self.contrast))

    def values(self, theta: Parameters) -> Floats:
        """All laws at θ."""
        found = np.asarray(self.weights @ np.concatenate([rows.numpy() for rows in self._rows(theta)]))
        return (found[:, 1:] - found[:, :1] if self.contrast else found).reshape(-1)

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        found = np.asarray(abs(self.weights) @ np.concatenate([rows.abs().numpy() for rows in self._rows(step)]))
        return (found[:, 1:] + found[:, :1] if self.contrast else found).reshape(-1)

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """Each row moves by its share of the vectors."""
        table = weights.reshape(self.weights.shape[0], -1)
        if self.contrast:
            table = np.concatenate([-table.sum(1, keepdims=True), table], axis=1)
        return self._spread(theta, self.weights.T @ table, lambda axis, chosen, shares: shares)
