"""No output of a network falls, or rises, as given inputs grow within a box; or two inputs show that one does.

Two inputs of one box that differ in one coordinate: `φ(z') - φ(z) = τ (z' - z)` with τ between the two slopes of φ, and
equal to one of them where z has one sign on the box. So outputs differ by `W τ ... τ W` times the difference of the
coordinate, and intervals for every τ bound that slope. Two inputs of different boxes are joined by a segment that the
boxes cut into pieces, so slopes of the right sign on every leaf suffice.

Where intervals cannot tell, a leaf comes with a walk through its regions, on which the network is affine: half-spaces
show which regions are empty, and on all others the slopes are compared with zero in rationals.

Rounding: what pulls a slope up and what pulls it down are sums of numbers of one sign, off by a relative error that is
taken off; where nothing pulls down the slope is not negative, however it was rounded.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from lawful.verify.bounds.boxes import (
    MOST_HALVINGS,
    MOST_NUMBERS,
    Sides,
    centres_and_radii,
    halves,
    leaves_of,
    read_box,
    widest,
)
from lawful.verify.bounds.network import Floats, PackedNetwork, pack, read_weighted_network
from lawful.verify.bounds.pair import TINY, Shared, beside_nothing
from lawful.verify.bounds.relaxation import UNIT, Ends, hidden_ends
from lawful.verify.core.dag import CheckedDag
from lawful.verify.core.finding import Finding
from lawful.verify.core.layers import CheckedStack, dag_as_layers, walk_regions
from lawful.verify.core.schema import integer, integers, items, limit_cost, numbers, object_with_keys, require


def check(body: dict[str, Any]) -> Finding:
    """Which of the two holds."""
    parts = object_with_keys(body, "certificate", "network box rising falling outputs inputs tree regions")
    network = read_weighted_network(parts["network"], "network")
    count = len(network.inputs)
    box = read_box(parts["box"], count)
    rising, falling = (integers(parts[side], side, 0, count - 1, most=count) for side in ("rising", "falling"))
    require(bool(rising or falling), "no input is given in which something is monotone")
    require(len({*rising, *falling}) == len(rising) + len(falling), "an input is named twice")
    outputs = integers(parts["outputs"], "outputs", 0, len(network.outputs) - 1, most=len(network.outputs))
    require(bool(outputs) and len(set(outputs)) == len(outputs), "the outputs are not chosen once each")
    packed = pack(network)
    facts: dict[str, Any] = {"box": box, "rising": rising, "falling": falling, "outputs": outputs}
    if parts["inputs"] is not None:
        require(parts["tree"] is None and parts["regions"] == [], "a certificate shows one of the two")
        facts["input"], facts["output"] = _against(parts["inputs"], box, packed, rising, falling, outputs)
    else:
        tree = integers(parts["tree"], "tree", 0, len(box))
        leaves = leaves_of(tree, box)
        walks = _walks(parts["regions"], len(leaves))
        facts["regions"] = sum(
            _compare_regions(network, leaves[leaf], walk, rising, falling, outputs) for leaf, walk in walks.items()
        )
        rest = [leaf for number, leaf in enumerate(leaves) if number not in walks]
        _monotone(rest, len(tree), packed, rising, falling, outputs)
        facts["leaves"] = len(leaves)
    return Finding(facts, (network.digest(),))


def _against(
    value: object, box: Sides, network: PackedNetwork, rising: list[int], falling: list[int], outputs: list[int]
) -> tuple[int, int]:
    """The input that grows, and the output that goes the wrong way."""
    points = items(value, "inputs", length=2)
    first, second = (list(map(Fraction, numbers(point, "inputs", length=len(box)))) for point in points)
    for point in (first, second):
        require(all(low <= x <= high for x, (low, high) in zip(point, box, strict=True)), "an input is outside the box")
    moved = [at for at, (x, y) in enumerate(zip(first, second, strict=True)) if x != y]
    require(
        len(moved) == 1 and moved[0] in {*rising, *falling}, "the inputs do not differ in one of the directions alone"
    )
    require(first[moved[0]] < second[moved[0]], "the second input is not the larger one")
    before, after = network.evaluate(first), network.evaluate(second)
    sign = 1 if moved[0] in rising else -1
    wrong = [output for output in outputs if sign * (after[output] - before[output]) < 0]
    require(bool(wrong), "no output goes the wrong way between these inputs")
    return moved[0], wrong[0]


def _walks(value: object, leaves: int) -> dict[int, object]:
    """Which leaves are shown region by region, and how."""
    walks: dict[int, object] = {}
    for item in items(value, "regions"):
        walk = object_with_keys(item, "regions", "leaf decisions")
        leaf = integer(walk["leaf"], "regions.leaf", 0, leaves - 1)
        require(leaf not in walks, "a leaf is shown twice")
        walks[leaf] = walk["decisions"]
    return walks


def _compare_regions(
    network: CheckedDag, leaf: Sides, decisions: object, rising: list[int], falling: list[int], outputs: list[int]
) -> int:
    """Compare the slopes on every region of a leaf with zero; how many regions were looked at.

    An input that is a single number goes into the first biases, so that the others span the box.
    """
    free = [at for at, (low, high) in enumerate(leaf) if low < high]
    require(all(at in free for at in (*rising, *falling)), "nothing can grow in an input that is a single number")
    storeys = dag_as_layers(network)
    first = []
    for row in storeys.layers[0]:
        shift = sum((row[at] * _exact(low) for at, (low, high) in enumerate(leaf) if low == high), row[-1])
        first.append([*(row[at] for at in free), shift])
    reduced = CheckedStack(len(free), (first, *storeys.layers[1:]), storeys.slopes)
    regions = 0
    for _, (affine,) in walk_regions(
        decisions, (reduced,), [(_exact(leaf[at][0]), _exact(leaf[at][1])) for at in free]
    ):
        for some, sign in ((rising, 1), (falling, -1)):
            wrong = any(sign * affine[output][free.index(at)] < 0 for at in some for output in outputs)
            require(not wrong, "a slope has the wrong sign on a region")
        regions += 1
    return regions


def _exact(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)


def _monotone(
    leaves: list[Sides], nodes: int, network: PackedNetwork, rising: list[int], falling: list[int], outputs: list[int]
) -> None:
    """Bound the slopes on every leaf."""
    if not leaves:
        return
    box = leaves[0]
    directions = len(rising) + len(falling)
    weights = network.weights
    limit_cost(20.0 * weights + 0.1 * nodes * weights * (len(network.layers) + 4 * directions))
    shared = beside_nothing(network.layers, len(box))
    width = max(max(layer.W.shape) for layer in shared)
    many = max(1, min(16, MOST_NUMBERS // (width * (1 + len(box) + directions))))
    open_, deeper = leaves, MOST_HALVINGS
    while open_:
        left = []
        for start in range(0, len(open_), many):
            chunk = open_[start : start + many]
            right = _right(shared, chunk, rising, falling, outputs)
            left += [leaf for leaf, fine in zip(chunk, right, strict=True) if not fine]
        require(not left or deeper > 0, f"on {len(left)} of the boxes a slope may have the wrong sign")
        open_, deeper = [half for leaf in left for half in halves(leaf, widest(leaf))], deeper - 1


def _right(
    shared: list[Shared], boxes: list[Sides], rising: list[int], falling: list[int], outputs: list[int]
) -> list[bool]:
    """Whether all slopes have the right sign, box by box."""
    centre, radius = centres_and_radii(boxes)
    with np.errstate(all="ignore"):
        low, high = _slopes(shared, hidden_ends(shared, centre, radius), [*rising, *falling], len(boxes))
    low, high = low[:, :, outputs], high[:, :, outputs]
    right = (low[:, : len(rising)] >= 0).all(axis=(1, 2)), (high[:, len(rising) :] <= 0).all(axis=(1, 2))
    return [bool(up) and bool(down) for up, down in zip(*map(np.atleast_1d, right), strict=True)]


def _slopes(shared: list[Shared], ends: list[Ends], inputs: list[int], boxes: int) -> tuple[Floats, Floats]:
    """Lower and upper bounds of slopes, of shape (boxes, directions, outputs); a NaN bounds nothing.

    What underflows is taken off too: weights above may be as large as doubles are.
    """
    low = np.repeat(shared[0].V[:, inputs].T[None], boxes, axis=0)
    low, high = low - 4 * UNIT * np.abs(low), low + 4 * UNIT * np.abs(low)
    for here, known, above in zip(shared[:-1], ends, shared[1:], strict=True):
        slopes = here.slopes
        least = np.where(known.z_low >= 0, 1.0, slopes)[:, None, :]
        most = np.where(known.z_high <= 0, slopes, 1.0)[:, None, :]
        low, high = _gate_below(low, least, most), -_gate_below(-high, least, most)
        low, high = _below(above.V, low, high), -_below(above.V, -high, -low)
    return low, high


def _gate_below(low: Floats, least: Floats, most: Floats) -> Floats:
    """Lower bounds of `τ v` for `v >= low` and τ between two numbers that are not negative."""
    factor = np.where(low < 0, most, least)
    product = low * factor
    product = product - 4 * UNIT * np.abs(product)
    return np.where((low < 0) & (factor > 0), np.minimum(product, -TINY), np.maximum(product - TINY, 0.0))


def _below(matrix: Floats, low: Floats, high: Floats) -> Floats:
    """Lower bounds of the sums `matrix v` for v between two vectors."""
    plus, minus = np.where(matrix > 0, matrix, 0.0).T, np.where(matrix < 0, -matrix, 0.0).T
    up = np.maximum(low, 0.0) @ plus + np.maximum(-high, 0.0) @ minus
    down = np.maximum(-low, 0.0) @ plus + np.maximum(high, 0.0) @ minus
    some = (low < 0).astype(float) @ (plus > 0) + (high > 0).astype(float) @ (minus > 0)
    slack = 8 * (matrix.shape[1] + 8) * UNIT
    return np.asarray(
        np.where(some > 0, up - down - slack * (up + down) - TINY, np.maximum(up * (1 - slack) - TINY, 0.0))
    )
