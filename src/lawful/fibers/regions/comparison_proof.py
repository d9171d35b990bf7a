"""Compare two networks region by region with a proof that rational arithmetic can re-check.

Floats only guess: which sides of a neuron have an interior point, and which half-spaces make the other side empty. A
proof is the list of these guesses in the order of the walk, each confirmed in rationals.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import Unsupported
from lawful.exact.feasibility import InnerPoint, common_point
from lawful.fibers.layers import Array, Stack, floating, input_scales, rational
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.half_spaces import Point, Polyhedron, empties, value_at, walls
from lawful.fibers.verdict import mlp_json
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.network.digest import digest
from lawful.types import Floats

MOST_NEURONS = 600  # of a certificate of regions: the walk goes one call deeper for each, and Python stops at 1000
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
    walk = RegionWalk(paired_layers(first, second), domain, deadline)
    walk.layer(WalkPlace(0, 0, identity_map(first), None), walls(domain), rational_point(domain.centre()))
    return RegionProof(walk.decisions, walk.regions)


def rational_point(point: Floats) -> tuple[Any, ...]:
    """A point of floats as the rationals that they are."""
    return tuple(rational(point))


@dataclass(frozen=True, eq=False)
class WalkPlace:
    """Network 0 or 1, its layer, the affine functions that enter it, and the first network's map once it is known."""

    network: int
    layer: int
    values: Array
    found: Array | None


@dataclass(frozen=True, eq=False)
class PairedLayers:
    """The layers of both networks, evaluated as affine functions of the input."""

    stacks: tuple[Stack, Stack]

    def enter(self, place: WalkPlace) -> Array:
        """The preactivations of a layer as affine functions `[a | c]` of the input."""
        stack = self.stacks[place.network]
        affine = stack.weights[place.layer] @ place.values if len(place.values) else place_zero(stack, place)
        affine[:, -1] = affine[:, -1] + stack.biases[place.layer]
        return affine

    def leave(self, place: WalkPlace, affine: Array, active: list[bool]) -> WalkPlace:
        """The next layer, given which neurons are active."""
        slope = rational(np.array([self.stacks[place.network].slopes[place.layer]]))[0]
        gain = np.array([slope * 0 + 1 if on else slope for on in active], dtype=object)
        return WalkPlace(place.network, place.layer + 1, affine * gain[:, None], place.found)

    def is_last(self, place: WalkPlace) -> bool:
        """Whether this layer is the output."""
        return place.layer == self.stacks[place.network].hidden


def place_zero(stack: Stack, place: WalkPlace) -> Array:
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


def paired_layers(first: Stack, second: Stack) -> PairedLayers:
    """Two networks in rationals, to be walked one after the other on each region."""
    return PairedLayers((first.rational(), second.rational()))


def identity_map(stack: Stack) -> Array:
    """The inputs as affine functions `[a | c]` of themselves."""
    count = stack.widths[0]
    return rational(np.column_stack([np.eye(count), np.zeros(count)]))


class RegionWalk:
    """Guesses with floats where points lie and which half-spaces leave none; rationals decide."""

    def __init__(self, layers: PairedLayers, domain: Domain, deadline: float) -> None:
        self.layers, self.deadline = layers, deadline
        self.scales = input_scales(*layers.stacks)
        self.polyhedron = Polyhedron(Domain(domain.low / self.scales, domain.high / self.scales))
        self.decisions: Proof = []
        self.regions = 0

    def layer(self, place: WalkPlace, rows: list[Array], point: Point) -> None:
        """One layer of one network on one region."""
        affine = self.layers.enter(place)
        if not self.layers.is_last(place):
            self.neuron(place, affine, [], rows, point)
        elif place.network == 0:
            self.layer(WalkPlace(1, 0, identity_map(self.layers.stacks[0]), affine), rows, point)
        elif (affine != place.found).any():
            raise Disagree(distinguish(affine - place.found, rows, point))
        else:
            self.regions += 1

    def neuron(self, place: WalkPlace, affine: Array, active: list[bool], rows: list[Array], point: Point) -> None:
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
            answer = self.look(row if on else -row, unit if on else -unit, rows)
            if isinstance(answer, list):
                self.decisions.append(["off" if on else "on", answer])
                self.neuron(place, affine, [*active, not on], rows, point)
                return
            known[on] = answer
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
                point = rational_point(where * self.scales)
                if all(value_at(side, point) > 0 for side in sides):
                    return point
            if empties([sides[k] for k in support]):
                return support
        meeting = common_point([list(side) for side in sides])
        return meeting.point if isinstance(meeting, InnerPoint) else sorted(meeting.multipliers)


# The evidence for a number of regions: a point inside each, and why every other pattern is empty.


class _Lister(RegionWalk):
    """The walk of a proof through one network alone; it keeps a point of every region."""

    def __init__(self, stack: Stack, domain: Domain, deadline: float) -> None:
        super().__init__(paired_layers(stack, stack), domain, deadline)
        self.points: list[Point] = []

    def layer(self, place: WalkPlace, rows: list[Array], point: Point) -> None:
        """One layer on one region."""
        affine = self.layers.enter(place)
        if self.layers.is_last(place):
            self.points.append(point)
        else:
            self.neuron(place, affine, [], rows, point)


def certificate(
    network: Mlp | Dag, box: tuple[ArrayLike, ArrayLike] | None, regions: int, seconds: float = 60.0
) -> dict[str, Any]:
    """All regions walked through once more, in rationals; refused if they are not as many as were counted.

    >>> proof = certificate(Mlp([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -1.0], None]), None, 3)
    >>> proof["decisions"], proof["points"]
    (['both', 'both', ['off', [0, 1]]], [['2'], ['1/2'], ['-1']])
    """
    mlp = network if isinstance(network, Mlp) else as_mlp(network)
    if mlp is None:
        raise Unsupported("no certificate: the regions of graphs with skips are counted, but not certified")
    stack = Stack.of(mlp)
    if sum(stack.widths[1:-1]) > MOST_NEURONS:
        raise Unsupported(f"no certificate: more than {MOST_NEURONS} hidden neurons")
    inputs = stack.widths[0]
    domain = Domain.space(inputs) if box is None else Domain.box(inputs, *box)
    walk = _Lister(stack, domain, time.perf_counter() + seconds)
    try:
        walk.layer(WalkPlace(0, 0, identity_map(stack), None), walls(domain), rational_point(domain.centre()))
    except OutOfTime:
        raise Unsupported("no certificate: the time limit ended the proof; give --seconds") from None
    if len(walk.points) != regions:
        raise Unsupported(f"no certificate: {len(walk.points)} regions were proved where {regions} were counted")
    return {
        "kind": "regions",
        "version": 1,
        "about": [digest(mlp)],
        "network": mlp_json(mlp),
        "box": None if box is None else [domain.low.tolist(), domain.high.tolist()],
        "regions": regions,
        "decisions": walk.decisions,
        "points": [[str(value) for value in point] for point in walk.points],
    }
