"""A ReLU network read as a chain of truncation maps in input space (P2 Section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.types import Floats


@dataclass(frozen=True, eq=False)
class TruncationMap:
    """`τ(x) = x + W⁺(σ(Wx + b) − (Wx + b))`, the activation pulled back to input space along `a(x) = Wx + b`.

    For a square `W` this is `W⁻¹(σ(Wx + b) − b)` of (2.9). For fewer rows than columns (full rank) `W⁺` is the right
    inverse: then `a(τ(x)) = σ(a(x))` and `τ(x) = x` on the positive sector still hold, but the negative sector is sent
    to the affine space `a⁻¹(0)` instead of the point `−β`.
    """

    weight: Floats
    bias: Floats
    slope: float = 0.0

    @cached_property
    def inverse(self) -> Floats:
        """`W⁺`: the inverse or a right inverse; where there is none, the pseudo-inverse."""
        rows, columns = self.weight.shape
        if rows == columns and self.condition < 1 / (rows * np.finfo(np.float64).eps):
            return np.asarray(np.linalg.inv(self.weight), dtype=np.float64)
        return np.asarray(np.linalg.pinv(self.weight))

    @cached_property
    def shift(self) -> Floats:
        """`β = W⁺b`."""
        return self.inverse @ self.bias

    @cached_property
    def condition(self) -> float:
        """Condition number of `W`."""
        return float(np.linalg.cond(self.weight))

    def preactivations(self, points: ArrayLike) -> Floats:
        """`a(x) = Wx + b`: its signs say in which sector a point lies."""
        return np.asarray(np.asarray(points, dtype=np.float64) @ self.weight.T + self.bias)

    def __call__(self, points: ArrayLike) -> Floats:
        """`τ(x)` for a batch of points (rows)."""
        batch = np.asarray(points, dtype=np.float64)
        below = np.minimum(self.preactivations(batch), 0.0)
        return np.asarray(batch - (1.0 - self.slope) * (below @ self.inverse.T))

    @cached_property
    def polar(self) -> tuple[Floats, Floats]:
        """`(|W|, R)` with `W = |W|R`, `|W| = (WWᵀ)^{1/2}` and `RRᵀ = 1` (2.28)."""
        left, values, right = np.linalg.svd(self.weight, full_matrices=False)
        return (left * values) @ left.T, left @ right

    @cached_property
    def misalignment(self) -> float:
        """How far `|W|` is from diagonal: the norm of its off-diagonal part over its norm; 0 is Definition 2.2."""
        size = self.polar[0]
        return float(np.linalg.norm(size - np.diag(np.diag(size))) / np.linalg.norm(size))

    @cached_property
    def aligned(self) -> TruncationMap:
        """The aligned map nearest in angle: the rotation of the polar decomposition about the same `β` (6.2)."""
        rotation = self.polar[1]
        return TruncationMap(rotation, rotation @ self.shift, self.slope)


@dataclass(frozen=True, eq=False)
class Chain:
    """`f(x) = W^{(L+1)} (τ^{(L)} ∘ … ∘ τ^{(1)})(x) + b^{(L+1)}`: truncations, then one affine map.

    `x^{(ℓ)} = W^{(ℓ)}τ^{(ℓ,1)}(x) + b^{(ℓ)}`; the bias is missing in the paper's (2.17) and (2.18).

    >>> network = Mlp([[[1.0, 1.0], [0.0, 1.0]], [[1.0, 2.0]]], [[0.0, -1.0], [3.0]])
    >>> chain = Chain.of(network)
    >>> chain.maps[0].shift
    array([ 1., -1.])
    >>> chain([[2.0, 0.5]]), network.evaluate([[2.0, 0.5]])
    (array([[5.5]]), array([[5.5]]))
    """

    maps: tuple[TruncationMap, ...]
    weight: Floats
    bias: Floats

    @classmethod
    def of(cls, network: Mlp | Dag) -> Chain:
        """Read a network; `Unsupported` unless widths never grow, `LawfulError` at a layer without full rank."""
        mlp = network if isinstance(network, Mlp) else Mlp.from_dag(network)
        weight, bias = np.eye(mlp.widths[0]), np.zeros(mlp.widths[0])
        maps: list[TruncationMap] = []
        for number, (layer_weight, layer_bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True), 1):
            weight, bias = layer_weight @ weight, layer_weight @ bias + (0.0 if layer_bias is None else layer_bias)
            if number == len(mlp.weights):
                break
            _check_rank(number, layer_weight, weight)
            maps.append(TruncationMap(weight, bias, mlp.slopes[number - 1]))
        return cls(tuple(maps), weight, bias)

    def images(self, points: ArrayLike) -> list[Floats]:
        """The points as each layer leaves them in input space: x, τ¹(x), τ²τ¹(x), …"""
        images = [np.asarray(points, dtype=np.float64)]
        for map_ in self.maps:
            images.append(map_(images[-1]))
        return images

    def __call__(self, points: ArrayLike) -> Floats:
        """The network's outputs, by truncations."""
        return self.images(points)[-1] @ self.weight.T + self.bias

    def to_mlp(self) -> Mlp:
        """The network with these cumulative parameters: `W_ℓ = W^{(ℓ)}(W^{(ℓ−1)})⁺`."""
        weights, biases = [], []
        before = TruncationMap(np.eye(self.weight.shape[1]), np.zeros(self.weight.shape[1]))
        for map_ in (*self.maps, TruncationMap(self.weight, self.bias)):
            weights.append(_solve_right(map_.weight, before.weight))
            biases.append(map_.bias - weights[-1] @ before.bias)
            before = map_
        return Mlp(weights, biases, [map_.slope for map_ in self.maps])


def _solve_right(above: Floats, below: Floats) -> Floats:
    """`above · below⁺`, solved rather than inverted."""
    return np.asarray(np.linalg.lstsq(below.T, above.T, rcond=None)[0].T)


def _check_rank(number: int, own: Floats, total: Floats) -> None:
    if own.shape[0] > own.shape[1]:
        raise Unsupported(
            f"layer {number} has {own.shape[0]} neurons after {own.shape[1]}: its cumulative weights have no right "
            "inverse, so there is no truncation map in input space; widths must not grow before the output"
        )
    for name, matrix in (("weights", own), ("cumulative weights", total)):
        values = np.linalg.svd(matrix, compute_uv=False)
        if values[-1] <= values[0] * max(matrix.shape) * np.finfo(np.float64).eps:
            condition = values[0] / values[-1] if values[-1] else np.inf
            raise LawfulError(
                f"layer {number}: the {name} are singular (condition number {condition:.1e}), so no truncation map "
                "exists; every hidden layer needs full rank"
            )
