"""Coordinates of size 1, in which truncation maps are built, and how a network takes the change into its layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.network import Mlp
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class Levelled:
    """`u = (x − centre) 2^−exponents`, of size 1: no unit of a column changes what is built there.

    With `floor` the network gets a layer of its own for it, `h = σ((x − floor) 2^−exponents)`. The floor is below all
    data and a number of single precision, so products are exact there, and differences are, too, in columns that are
    far from zero: a column of timestamps loses nothing that it did not lose when it was stored.
    """

    centre: Floats
    exponents: Indices
    floor: Floats | None = None

    @classmethod
    def of(cls, points: Floats, *, ahead: bool = False) -> Levelled:
        """The level of some points; `ahead` asks for the layer of its own."""
        low, high = points.min(axis=0), points.max(axis=0)
        centre = low / 2 + high / 2
        sizes = np.where(high > low, high - centre, np.maximum(np.abs(centre), 1.0))  # constants carry nothing
        return cls(centre, np.frexp(sizes)[1], _below(low) if ahead else None)

    def down(self, points: Floats) -> Floats:
        """Points in these coordinates."""
        return np.asarray(np.ldexp(points - self.centre, -self.exponents))

    def up(self, points: Floats) -> Floats:
        """Back from these coordinates."""
        return np.asarray(np.ldexp(points, self.exponents) + self.centre)

    def taken_in(self, network: Mlp) -> Mlp:
        """The network of `u` as one of `x`: the change of coordinates is part of its first layer, or one before it."""
        first, bias = network.weights[0], network.biases[0]
        assert bias is not None  # noqa: S101 (for the type checker: chains have biases)
        if self.floor is None:
            first = np.ldexp(first, -self.exponents)
            return Mlp([first, *network.weights[1:]], [bias - first @ self.centre, *network.biases[1:]], network.slopes)
        scale = np.ldexp(np.ones(len(self.floor)), -self.exponents)
        lifted = bias - first @ np.ldexp(self.centre - self.floor, -self.exponents)
        biases = [-np.ldexp(self.floor, -self.exponents), lifted, *network.biases[1:]]
        return Mlp([np.diag(scale), *network.weights], biases, [0.0, *network.slopes])


def _below(low: Floats) -> Floats:
    """The largest numbers of single precision that are not above these."""
    nearest = low.astype(np.float32)
    return np.where(nearest > low, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(np.float64)
