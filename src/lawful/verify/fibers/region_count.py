"""Exactly how many regions a network has: a point inside each, and a proof that all other patterns are empty.

A region is an open set of inputs on which every hidden neuron that bends keeps its side. The walk meets every pattern
that is not shown to be empty; a point strictly inside shows that a region is there.
"""

from __future__ import annotations

from typing import Any

from lawful.verify.core.dag import read_dag, read_network
from lawful.verify.core.finding import Finding
from lawful.verify.core.layers import CheckedStack, compose, read_box, read_layers, walk_regions
from lawful.verify.core.numbers import fraction
from lawful.verify.core.schema import integer, items, limit_sums, object_with_keys, require


def check(body: dict[str, Any]) -> Finding:
    """The number of regions on the whole space or a box."""
    parts = object_with_keys(body, "certificate", "network box regions decisions points")
    net, digest = read_layers(parts["network"], read_network)
    _require_no_skips(parts["network"], net)
    box, sides = read_box(parts["box"], net.inputs)
    points = iter(items(parts["points"], "points"))
    regions = 0
    for rows, _ in walk_regions(parts["decisions"], (net,), box):
        point = [fraction(value, "points") for value in items(next(points, []), "points", length=net.inputs)]
        limit_sums(point, 10.0 * len(rows) * net.inputs)
        inside = all(value > 0 for (value,) in compose(rows, [[x] for x in point], 0))
        require(inside, f"point {regions} does not lie inside its region")
        regions += 1
    require(next(points, None) is None, "there are more points than regions")
    stated = integer(parts["regions"], "regions", 0)
    require(stated == regions, f"there are {regions} regions, not the {stated} stated")
    facts = {"regions": regions, "inputs": net.inputs, "box": sides}
    return Finding(facts, (digest,))


def _require_no_skips(value: object, net: CheckedStack) -> None:
    """No neuron but those of the network: a pair that carries a value past a layer bends where the network does not."""
    if isinstance(value, dict) and "roles" in value:
        require(
            sum(net.widths[1:-1]) == len(read_dag(value).hidden), "the regions of graphs with skips are not checked"
        )
