"""Compare two networks region by region with a proof that rational arithmetic can re-check.

Floats only guess: which sides of a neuron have an interior point, and which half-spaces make the other side empty. A
proof is the list of these guesses in the order of the walk, each confirmed in rationals.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from lawful.exact.half_spaces import InnerPoint, common_point
from lawful.fibers.layers import Array, Stack, floating, rational
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.half_spaces import Point, Polyhedron, empties, value_at, walls
from lawful.fibers.scales import input_scales
from lawful.types import Floats

Proof = list[Any]  # "both", or ["on" | "off", support] where the support empties the other side


class Disagree(Exception):
    """The affine maps differ on a region; `point`, in rationals, lies inside it and the outputs differ there."""

    def __init__(self, point: Array) -> None:
        super().__init__("the affine maps differ")
        self.point = point


@dataclass(frozen=True, eq=False)
class RegionProof:
    """Decisions of the walk through the common regions of two networks, and how many regions there are."""

    decisions: Proof
    regions: int


def prove_by_regions(first: Stack, second: Stack, domain: Domain, deadline: float) -> RegionProof:
    """Walk all common regions; raises `Disagree` if the maps of one differ, `OutOfTime` when time is up."""
    walk = _Prover(_layers(first, second), domain, deadline)
    walk.layer(_Place(0, 0, _inputs(first), None), walls(domain), _rationals(domain.centre()))
    return RegionProof(walk.decisions, walk.regions)


def _rationals(point: Floats) -> tuple[Any, ...]:
    return tuple(rational(point))


@dataclass(frozen=True, eq=False)
class _Place:
    """Network 0 or 1, its layer, the affine functions that enter it, and the first network's map once it is known."""

    network: int
    layer: int
    values: Array
    found: Array | None


@dataclass(frozen=True, eq=False)
class _Layers:
    stacks: tuple[Stack, Stack]

    def enter(self, place: _Place) -> Array:
        """The preactivations of a layer as affine functions `[a | c]` of the input."""
        stack = self.stacks[place.network]
        affine = stack.weights[place.layer] @ place.values if len(place.values) else place_zero(stack, place)
        affine[:, -1] = affine[:, -1] + stack.biases[place.layer]
        return affine

    def leave(self, place: _Place, affine: Array, active: list[bool]) -> _Place:
        """The next layer, given which neurons are active."""
        slope = rational(np.array([self.stacks[place.network].slopes[place.layer]]))[0]
        gain = np.array([slope * 0 + 1 if on else slope for on in active], dtype=object)
        return _Place(place.network, place.layer + 1, affine * gain[:, None], place.found)

    def is_last(self, place: _Place) -> bool:
        """Whether this layer is the output."""
        return place.layer == self.stacks[place.network].hidden


def place_zero(stack: Stack, place: _Place) -> Array:
    """Zeros, for a layer that has lost all its inputs."""
    return rational(np.zeros((len(stack.biases[place.layer]), stack.widths[0] + 1)))


def distinguish(difference: Array, rows: list[Array], point: Point) -> Array:
    """A point of the open region `rows > 0` at which an affine map that is not zero does not vanish.

    Where it vanishes at the given inner point, its gradient leads away from the zero set; half the way to the nearest
    side stays inside.
    """
    here = np.array(point, dtype=object)
    if any(value_at(row, point) != 0 for row in difference):
        return here
    way = next(row[:-1] for row in difference if any(item != 0 for item in row))
    slopes = [(value_at(row, point), sum(a * w for a, w in zip(row[:-1], way, strict=True))) for row in rows]
    room = min((-value / slope for value, slope in slopes if slope < 0), default=way[0] * 0 + 2)
    return np.asarray(here + way * (room / 2))


def _layers(first: Stack, second: Stack) -> _Layers:
    return _Layers((first.rational(), second.rational()))


def _inputs(stack: Stack) -> Array:
    count = stack.widths[0]
    return rational(np.column_stack([np.eye(count), np.zeros(count)]))


class _Prover:
    """Guesses with floats where points lie and which half-spaces leave none; rationals decide."""

    def __init__(self, layers: _Layers, domain: Domain, deadline: float) -> None:
        self.layers, self.deadline = layers, deadline
        self.scales = input_scales(*layers.stacks)
        self.polyhedron = Polyhedron(Domain(domain.low / self.scales, domain.high / self.scales))
        self.decisions: Proof = []
        self.regions = 0

    def layer(self, place: _Place, rows: list[Array], point: Point) -> None:
        """One layer of one network on one region."""
        affine = self.layers.enter(place)
        if not self.layers.is_last(place):
            self.neuron(place, affine, [], rows, point)
        elif place.network == 0:
            self.layer(_Place(1, 0, _inputs(self.layers.stacks[0]), affine), rows, point)
        elif (affine != place.found).any():
            raise Disagree(distinguish(affine - place.found, rows, point))
        else:
            self.regions += 1

    def neuron(self, place: _Place, affine: Array, active: list[bool], rows: list[Array], point: Point) -> None:
        """Ask on which sides of the neuron's zero set the region has an interior; `point` lies inside."""
        if self.layers.stacks[place.network].slopes[place.layer] == 1.0:  # neurons that do not bend have no sides
            active = [True] * len(affine)
        if len(active) == len(affine):
            self.layer(self.layers.leave(place, affine, active), rows, point)
            return
        row = affine[len(active)]
        if all(item == 0 for item in row[:-1]):
            self.neuron(place, affine, [*active, bool(row[-1] > 0)], rows, point)
            return
        if time.perf_counter() > self.deadline:
            raise OutOfTime
        here = value_at(row, point)
        known = {here > 0: point} if here != 0 else {}
        unit = floating(row) * np.append(self.scales, 1.0)
        unit = unit / np.linalg.norm(unit[:-1])
        for on in (True, False):
            if on in known:
                continue
            found = self.look(row if on else -row, unit if on else -unit, rows)
            if isinstance(found, list):
                self.decisions.append(["off" if on else "on", found])
                self.neuron(place, affine, [*active, not on], rows, point)
                return
            known[on] = found
        self.decisions.append("both")
        for on in (True, False):
            self.polyhedron.push(unit if on else -unit)
            self.neuron(place, affine, [*active, on], [*rows, row if on else -row], known[on])
            self.polyhedron.pop()

    def look(self, row: Array, unit: Floats, rows: list[Array]) -> Point | list[int]:
        """A point of the region on one side, or the rows that leave none; floats guess, rationals decide."""
        sides = [*rows, row]
        if np.isfinite(unit).all():
            self.polyhedron.push(unit)
            radius, where = self.polyhedron.widest()
            support = self.polyhedron.support()
            self.polyhedron.pop()
            if radius > 0 and np.isfinite(where).all():
                point = _rationals(where * self.scales)
                if all(value_at(side, point) > 0 for side in sides):
                    return point
            if empties([sides[k] for k in support]):
                return support
        found = common_point([list(side) for side in sides])
        return found.point if isinstance(found, InnerPoint) else sorted(found.multipliers)
