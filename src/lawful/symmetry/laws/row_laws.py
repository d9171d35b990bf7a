"""Laws made of rows of parameters: weighted sums of squares, of entries, and column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse
import torch

from lawful.symmetry.laws.families import Axis, Parameters, SpaceLaws
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class ScaleLaws(SpaceLaws):
    """`Σ weights · θ²`: each law is a combination of the sums of squares of rows.

    `rows` lists axes; row i of axis a has number `offsets[a] + i`, and `weights` (laws × rows) is their share.
    """

    axes: tuple[Axis, ...]
    picked: tuple[Indices, ...]
    weights: sparse.csr_array
    count: int

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the parameters in it."""
        return tuple(dict.fromkeys(axis.parameter for axis in self.axes))

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
        shares = 2.0 * (self.weights.T @ weights)
        start = 0
        for axis, picked in zip(self.axes, self.picked, strict=True):
            tensor = theta[axis.parameter]
            rows = axis.centred(tensor)
            found = torch.zeros_like(rows)
            chosen = torch.as_tensor(picked)
            found[chosen] = torch.as_tensor(shares[start : start + len(picked)])[:, None] * rows[chosen]
            start += len(picked)
            yield axis.parameter, axis.back(found, tensor.shape)


@dataclass(frozen=True, eq=False)
class SumLaws(SpaceLaws):
    """`Σ weights · θ` over rows of parameters: each law is a combination of the sums of rows."""

    axes: tuple[Axis, ...]
    picked: tuple[Indices, ...]
    weights: sparse.csr_array
    count: int

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the parameters in it."""
        return tuple(dict.fromkeys(axis.parameter for axis in self.axes))

    def _sums(self, theta: Parameters) -> Floats:
        parts = (axis.rows(theta[axis.parameter], picked).sum(1)
                 for axis, picked in zip(self.axes, self.picked, strict=True))  # fmt: skip
        return np.concatenate([part.numpy() for part in parts])

    def values(self, theta: Parameters) -> Floats:
        """All laws at θ."""
        return np.asarray(self.weights @ self._sums(theta))

    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """Their values at the step: they are linear."""
        return self.values(step)

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        return np.asarray(abs(self.weights) @ self._sums({name: step[name].abs() for name in self.parameters}))

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """Constant along each row."""
        shares = self.weights.T @ weights
        start = 0
        for axis, picked in zip(self.axes, self.picked, strict=True):
            tensor = theta[axis.parameter]
            rows = torch.zeros_like(axis.rows(tensor))
            rows[torch.as_tensor(picked)] = torch.as_tensor(shares[start : start + len(picked)])[:, None]
            start += len(picked)
            yield axis.parameter, axis.back(rows, tensor.shape)


@dataclass(frozen=True, eq=False)
class ColumnLaws(SpaceLaws):
    """`Σ weights · W[row, k]` for every column k: rows may move by one vector, together or one against another.

    With `contrast`, differences to the first column: the common part of all columns is a law only together with other
    parameters.
    """

    axes: tuple[Axis, ...]
    picked: tuple[Indices, ...]
    weights: sparse.csr_array
    columns: int
    contrast: bool

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the parameters in it."""
        return tuple(dict.fromkeys(axis.parameter for axis in self.axes))

    @property
    def count(self) -> int:  # type: ignore[override]
        """All of them are independent."""
        return int(self.weights.shape[0]) * (self.columns - int(self.contrast))

    def _rows(self, theta: Parameters) -> Floats:
        return np.concatenate(
            [
                axis.rows(theta[axis.parameter], picked).numpy()
                for axis, picked in zip(self.axes, self.picked, strict=True)
            ]
        )

    def values(self, theta: Parameters) -> Floats:
        """All laws at θ."""
        found = np.asarray(self.weights @ self._rows(theta))
        return (found[:, 1:] - found[:, :1] if self.contrast else found).reshape(-1)

    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """Their values at the step: they are linear."""
        return self.values(step)

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        found = np.asarray(abs(self.weights) @ np.abs(self._rows(step)))
        return (found[:, 1:] + found[:, :1] if self.contrast else found).reshape(-1)

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """Each row moves by its share of the vectors."""
        table = weights.reshape(self.weights.shape[0], -1)
        if self.contrast:
            table = np.concatenate([-table.sum(1, keepdims=True), table], axis=1)
        shares = torch.as_tensor(self.weights.T @ table)
        start = 0
        for axis, picked in zip(self.axes, self.picked, strict=True):
            tensor = theta[axis.parameter]
            rows = torch.zeros_like(axis.rows(tensor))
            rows[torch.as_tensor(picked)] = shares[start : start + len(picked)]
            start += len(picked)
            yield axis.parameter, axis.back(rows, tensor.shape)
