"""Compare two networks region by region with a proof that rational arithmetic can re-check.

Floats only guess: which sides of a neuron have an interior point, and which half-spaces make the other side empty. A
proof is the list of these guesses in the order of the walk; `check` replays it with rationals and believes nothing
else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from lawful.errors import CertificateError
from lawful.exact.half_spaces import InnerPoint, common_point
from lawful.fibers.cells import OutOfTime, Polyhedron
from lawful.fibers.domain import Domain
from lawful.fibers.stack import Array, Stack, floating, rational
from lawful.types import Floats

Point = tuple[Any, ...]
Proof = list[Any]  # "both", or ["on" | "off", support] where the support empties the other side


class Disagree(Exception):
    """The affine maps differ on a region; `point` lies inside it."""

    def __init__(self, point: Floats) -> None:
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


def check(decisions: Proof, first: Stack, second: Stack, domain: Domain) -> int:
    """Replay a proof in rational arithmetic; the number of regions on which the two affine maps are identical."""
    reader = _Checker(_layers(first, second), iter(decisions))
    reader.layer(_Place(0, 0, _inputs(first), None), walls(domain))
    if next(reader.decisions, None) is not None:
        raise CertificateError("the proof goes on after all regions were seen")
    return reader.regions


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


def _layers(first: Stack, second: Stack) -> _Layers:
    return _Layers((first.rational(), second.rational()))


def _inputs(stack: Stack) -> Array:
    count = stack.widths[0]
    return rational(np.column_stack([np.eye(count), np.zeros(count)]))


def walls(domain: Domain) -> list[Array]:
    """The sides of a box as rational rows; none for all of space."""
    rows = []
    for k in range(len(domain.low)):
        for sign, end in ((1.0, -domain.low[k]), (-1.0, domain.high[k])):
            if np.isfinite(end):
                row = np.zeros(len(domain.low) + 1)
                row[k], row[-1] = sign, end
                rows.append(rational(row))
    return rows


def empties(rows: list[Array], support: list[int]) -> bool:
    """Whether the half-spaces `row·(x, 1) > 0` of the support have no common point: Farkas, in rationals.

    `y ≥ 0`, not zero, with `Σ y_i a_i = 0` and `Σ y_i c_i ≤ 0`; the support must leave one such y up to scale.
    """
    chosen = [rows[k] for k in support]
    if not chosen:
        return False
    columns = flint.fmpq_mat([[row[k] for row in chosen] for k in range(len(chosen[0]) - 1)])
    reduced, rank = columns.rref()
    if rank != len(chosen) - 1:
        return False
    table = reduced.tolist()
    pivots = [next(k for k, item in enumerate(table[line]) if item != 0) for line in range(rank)]
    free = next(k for k in range(len(chosen)) if k not in pivots)
    weights = [flint.fmpq(0)] * len(chosen)
    weights[free] = flint.fmpq(1)
    for line, pivot in enumerate(pivots):
        weights[pivot] = -table[line][free]
    total = sum((weight * row[-1] for weight, row in zip(weights, chosen, strict=True)), flint.fmpq(0))
    return all(weight >= 0 for weight in weights) and total <= 0


class _Checker:
    """Reads decisions in the order of the walk."""

    def __init__(self, layers: _Layers, decisions: Any) -> None:
        self.layers, self.decisions, self.regions = layers, decisions, 0

    def layer(self, place: _Place, rows: list[Array]) -> None:
        """One layer of one network on one region."""
        affine = self.layers.enter(place)
        if not self.layers.is_last(place):
            self.neuron(place, affine, [], rows)
        elif place.network == 0:
            self.layer(_Place(1, 0, _inputs(self.layers.stacks[0]), affine), rows)
        elif (affine != place.found).any():
            raise CertificateError("the affine maps differ on a region")
        else:
            self.regions += 1

    def neuron(self, place: _Place, affine: Array, active: list[bool], rows: list[Array]) -> None:
        """One neuron: constant, on one side with a proof, or both sides."""
        if len(active) == len(affine):
            self.layer(self.layers.leave(place, affine, active), rows)
            return
        row = affine[len(active)]
        if all(item == 0 for item in row[:-1]):
            self.neuron(place, affine, [*active, bool(row[-1] > 0)], rows)
            return
        decision = next(self.decisions, None)
        if decision == "both":
            self.neuron(place, affine, [*active, True], [*rows, row])
            self.neuron(place, affine, [*active, False], [*rows, -row])
            return
        if not isinstance(decision, (list, tuple)) or len(decision) != 2 or decision[0] not in ("on", "off"):
            raise CertificateError("the proof stops before all regions were seen")
        on = decision[0] == "on"
        if not empties([*rows, -row if on else row], [int(k) for k in decision[1]]):
            raise CertificateError("a side that the proof calls empty is not shown to be")
        self.neuron(place, affine, [*active, on], rows)


class _Prover:
    """Guesses with floats where points lie and which half-spaces leave none; rationals decide."""

    def __init__(self, layers: _Layers, domain: Domain, deadline: float) -> None:
        self.layers, self.deadline = layers, deadline
        self.polyhedron = Polyhedron(domain)
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
            raise Disagree(floating(np.array(point, dtype=object)))
        else:
            self.regions += 1

    def neuron(self, place: _Place, affine: Array, active: list[bool], rows: list[Array], point: Point) -> None:
        """Ask on which sides of the neuron's zero set the region has an interior; `point` lies inside."""
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
        unit = floating(row)
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
                point = _rationals(where)
                if all(value_at(side, point) > 0 for side in sides):
                    return point
            if empties(sides, support):
                return support
        found = common_point([list(side) for side in sides])
        return found.point if isinstance(found, InnerPoint) else sorted(found.multipliers)


def value_at(row: Array, point: Point) -> Any:
    """`row·(x, 1)` in rationals."""
    return sum((weight * x for weight, x in zip(row[:-1], point, strict=True)), row[-1])
