"""The evidence for a number of regions: a point inside each, and why every other pattern is empty."""

from __future__ import annotations

import time
from typing import Any

from numpy.typing import ArrayLike

from lawful.errors import Unsupported
from lawful.fibers.layers import Array, Stack
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.comparison_proof import _inputs, _layers, _Place, _Prover, _rationals
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.half_spaces import Point, walls
from lawful.fibers.verdict import mlp_json
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.network.digest import digest

MOST_NEURONS = 600  # the walk goes one call deeper for each


class _Lister(_Prover):
    """The walk of a proof through one network alone; it keeps a point of every region."""

    def __init__(self, stack: Stack, domain: Domain, deadline: float) -> None:
        super().__init__(_layers(stack, stack), domain, deadline)
        self.points: list[Point] = []

    def layer(self, place: _Place, rows: list[Array], point: Point) -> None:
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
        walk.layer(_Place(0, 0, _inputs(stack), None), walls(domain), _rationals(domain.centre()))
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
