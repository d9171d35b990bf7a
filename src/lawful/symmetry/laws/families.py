"""Explicit laws, one family for each space: values, and derivatives along a direction, at any parameters.

A symmetric generator X acts on parameters by `ρ(X)`; `⟨θ, ρ(X)θ⟩` is conserved by gradient flow for every data set and
loss, and so is `⟨t, θ⟩` for a shift t. Each family evaluates all its laws at once, in float64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sparse
import torch

from lawful.types import Floats, Indices

Parameters = Mapping[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Axis:
    """A parameter seen as rows: those along the dimensions `dims`, in order; every row holds the other entries."""

    parameter: str
    dims: tuple[int, ...]
    centre: Floats | None = None  # the gauge acts on the parameter plus this: a number, or one for each entry

    def centred_rows(self, tensor: torch.Tensor, picked: Indices | None = None) -> torch.Tensor:
        """Rows of what the gauge acts on."""
        return self.rows(
            tensor if self.centre is None else tensor.detach().cpu() + torch.as_tensor(self.centre), picked
        )

    def restore(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """The parameter whose rows, with the centre, are these."""
        result = self.back(rows, shape)
        return (result if self.centre is None else result - torch.as_tensor(self.centre)).contiguous()

    def rows(self, tensor: torch.Tensor, picked: Indices | None = None) -> torch.Tensor:
        """Some rows of the parameter (all by default), in float64."""
        moved = tensor.detach().movedim(self.dims, tuple(range(len(self.dims)))) if self.dims else tensor.detach()
        if len(self.dims) == 1 and picked is not None:  # nothing but the chosen rows is copied
            result = moved[torch.as_tensor(picked)]
            return result.reshape(*picked.shape, -1).to(torch.float64).cpu()
        count = int(np.prod([tensor.shape[d] for d in self.dims], dtype=int))
        result = moved.reshape(count, -1)
        return (result if picked is None else result[torch.as_tensor(picked)]).to(torch.float64).cpu()

    def back(self, rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Rows put back into the parameter's shape."""
        if not self.dims:
            return rows.reshape(shape)
        moved = [shape[d] for d in self.dims] + [size for d, size in enumerate(shape) if d not in self.dims]
        return rows.reshape(moved).movedim(tuple(range(len(self.dims))), self.dims)


class SpaceLaws:
    """Laws that belong together. `count` of them are independent; `len(values)` may be more."""

    count: int
    parameters: tuple[str, ...]

    @abstractmethod
    def values(self, theta: Parameters) -> Floats:
        """All laws at θ."""

    @abstractmethod
    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """The derivative of every law at θ along a step."""

    @abstractmethod
    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The sum of the absolute values of the terms of `along`: what rounding errors are relative to."""

    @abstractmethod
    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """The gradient at θ of a weighted sum of the laws, in pieces to be added up by parameter."""


@dataclass(frozen=True, eq=False)
class Member:
    """Rows of a parameter that a block moves: `places[c]` are the rows of copy c, in the block's order."""

    axis: Axis
    places: Indices
    sign: int


@dataclass(frozen=True, eq=False)
class MatrixLaws(SpaceLaws):
    """`Σ_written P Pᵀ − Σ_read P Pᵀ`, a symmetric matrix: all of GL(m) acts on a hidden space of size m.

    With fewer columns k than rows in all, only `k(2m + 1 − k)/2` of the entries are independent.
    """

    size: int
    members: tuple[Member, ...]
    count: int

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the parameters in it."""
        return tuple(dict.fromkeys(member.axis.parameter for member in self.members))

    def _pairs(self, theta: Parameters, step: Parameters) -> Iterator[tuple[Member, torch.Tensor, torch.Tensor]]:
        for member in self.members:
            name = member.axis.parameter
            left = member.axis.centred_rows(theta[name], member.places)
            yield member, left, left if step is theta else member.axis.rows(step[name], member.places)

    def _matrix(self, theta: Parameters, step: Parameters, absolute: bool = False) -> Floats:
        result = torch.zeros(self.size, self.size, dtype=torch.float64)
        for member, left, right in self._pairs(theta, step):
            sign = 1 if absolute else member.sign
            result += sign * torch.einsum("cik,cjk->ij", *((left.abs(), right.abs()) if absolute else (left, right)))
        return np.asarray(result.numpy())

    @cached_property
    def _upper(self) -> tuple[Indices, Indices]:
        return np.triu_indices(self.size)

    def values(self, theta: Parameters) -> Floats:
        """The upper triangle, row by row."""
        return np.asarray(self._matrix(theta, theta)[self._upper])

    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """`P Gᵀ + G Pᵀ`."""
        result = self._matrix(theta, step)
        return np.asarray((result + result.T)[self._upper])

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        result = self._matrix(theta, step, absolute=True)
        return np.asarray((result + result.T)[self._upper])

    def turning(self, theta: Parameters, step: Parameters) -> tuple[Floats, Floats]:
        """`⟨step, ρ(X)θ⟩` for every X = E_ij, and the size of its terms: zero for a gradient if GL(m) acts."""
        result = torch.zeros(self.size, self.size, dtype=torch.float64)
        for member, left, right in self._pairs(theta, step):
            part = torch.einsum("cik,cjk->ij", right, left)
            result += part if member.sign > 0 else -part.T
        size = self._matrix(theta, step, absolute=True)
        return np.asarray(result.numpy()), size + size.T

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """`± 2 S P` with S the symmetric matrix of weights."""
        upper = np.zeros((self.size, self.size))
        upper[self._upper] = weights
        symmetric = torch.as_tensor(upper + upper.T)
        for member in self.members:
            tensor = theta[member.axis.parameter]
            rows = member.axis.centred_rows(tensor)
            result = torch.zeros_like(rows)
            for copy in member.places:
                result[copy] = member.sign * (symmetric @ rows[copy])
            yield member.axis.parameter, member.axis.back(result, tensor.shape)


@dataclass(frozen=True, eq=False)
class MeanLaw(SpaceLaws):
    """`Σ_written ‖1ᵀP‖² − Σ_read ‖1ᵀP‖²`, one law: only the mean of a hidden space's coordinates can be scaled."""

    members: tuple[Member, ...]
    count: int = 1

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of the parameters in it."""
        return tuple(dict.fromkeys(member.axis.parameter for member in self.members))

    def _sums(self, theta: Parameters, *, centred: bool) -> Iterator[tuple[int, torch.Tensor]]:
        for member in self.members:
            tensor = theta[member.axis.parameter]
            rows = (
                member.axis.centred_rows(tensor, member.places) if centred else member.axis.rows(tensor, member.places)
            )
            yield member.sign, rows.sum(dim=1)

    def values(self, theta: Parameters) -> Floats:
        """The law at θ."""
        return np.array([sum(sign * float((row**2).sum()) for sign, row in self._sums(theta, centred=True))])

    def along(self, theta: Parameters, step: Parameters) -> Floats:
        """Twice the products of the sums."""
        pairs = zip(self._sums(theta, centred=True), self._sums(step, centred=False), strict=True)
        return np.array([2.0 * sum(sign * float((row * moved).sum()) for (sign, row), (_, moved) in pairs)])

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        pairs = zip(self._sums(theta, centred=True), self._sums(step, centred=False), strict=True)
        return np.array([2.0 * sum(float((row * moved).abs().sum()) for (_, row), (_, moved) in pairs)])

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """`± 2 · 1 (1ᵀP)`."""
        for member, rows, sums in self._rows(theta):
            result = torch.zeros_like(rows)
            for copy, total in zip(member.places, sums, strict=True):
                result[copy] = 2.0 * float(weights[0]) * member.sign * total
            yield member.axis.parameter, member.axis.back(result, theta[member.axis.parameter].shape)

    def scale_means(self, theta: Parameters, factor: float) -> Iterator[tuple[Member, torch.Tensor]]:
        """Rows with their mean multiplied where they are written, divided where they are read."""
        for member, rows, sums in self._rows(theta):
            power = factor if member.sign > 0 else 1.0 / factor
            for copy, total in zip(member.places, sums, strict=True):
                rows[copy] += (power - 1.0) / member.places.shape[1] * total
            yield member, rows

    def _rows(self, theta: Parameters) -> Iterator[tuple[Member, torch.Tensor, list[torch.Tensor]]]:
        for member in self.members:
            rows = member.axis.centred_rows(theta[member.axis.parameter]).clone()
            yield member, rows, [rows[copy].sum(dim=0) for copy in member.places]


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
            result = torch.zeros_like(axis.rows(tensor))
            result[chosen] = piece(axis, chosen, torch.as_tensor(shares[start : start + len(picked)]))
            start += len(picked)
            yield axis.parameter, axis.back(result, tensor.shape)


@dataclass(frozen=True, eq=False)
class ScaleLaws(RowLaws):
    """`Σ weights · θ²`: each law is a combination of the sums of squares of rows."""

    count: int

    def _products(self, theta: Parameters, step: Parameters, absolute: bool = False) -> Floats:
        result = []
        for axis, picked in zip(self.axes, self.picked, strict=True):
            left = axis.centred_rows(theta[axis.parameter], picked)
            right = left if step is theta else axis.rows(step[axis.parameter], picked)
            pair = (left.abs(), right.abs()) if absolute else (left, right)
            result.append(torch.linalg.vecdot(*pair).numpy())
        return np.concatenate(result)

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
            lambda axis, chosen, shares: shares[:, None] * axis.centred_rows(theta[axis.parameter])[chosen],
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
        result = np.asarray(self.weights @ np.concatenate([rows.numpy() for rows in self._rows(theta)]))
        return (result[:, 1:] - result[:, :1] if self.contrast else result).reshape(-1)

    def size_along(self, theta: Parameters, step: Parameters) -> Floats:
        """The same in absolute values."""
        result = np.asarray(abs(self.weights) @ np.concatenate([rows.abs().numpy() for rows in self._rows(step)]))
        return (result[:, 1:] + result[:, :1] if self.contrast else result).reshape(-1)

    def pull(self, theta: Parameters, weights: Floats) -> Iterator[tuple[str, torch.Tensor]]:
        """Each row moves by its share of the vectors."""
        table = weights.reshape(self.weights.shape[0], -1)
        if self.contrast:
            table = np.concatenate([-table.sum(1, keepdims=True), table], axis=1)
        return self._spread(theta, self.weights.T @ table, lambda axis, chosen, shares: shares)
