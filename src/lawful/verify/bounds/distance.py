"""How far apart two networks are on a box: an exact difference from below, a tree of boxes from above.

The certificate holds the networks, the box, which neurons resemble which, and where boxes were halved: no slopes and no
bounds. Each leaf is bounded here anew, in float64 with errors that `distance_bounds` accounts for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.outward import at_least, at_most
from lawful.verify.bounds.layers import Floats, Places, Plain, Shared, deepened, plain_layers, shared_layers
from lawful.verify.bounds.relaxation import bounds, hidden_ends
from lawful.verify.bounds.spectral import Weights, spectral_gaps
from lawful.verify.core.dag import CheckedDag, read_dag, read_mlp
from lawful.verify.core.finding import Finding, digest_of, in_full, short
from lawful.verify.core.schema import (
    afford,
    exactly,
    listed,
    matrix,
    need,
    number,
    numbers,
    rational,
    record,
    wholes,
    word,
)

MOST_HALVINGS = 3  # of a leaf that does not quite close here
MOST_NUMBERS = 4_000_000  # in the forms of the boxes that are bounded together
Sides = list[tuple[Fraction, Fraction]]


def check(body: dict[str, Any]) -> Finding:
    """The bounds that hold."""
    given = record(body, "certificate", "networks box outputs norm upper lower matching tree spectral", "near")
    networks = [
        read_network(each, f"networks[{at}]") for at, each in enumerate(listed(given["networks"], "networks", length=2))
    ]
    inputs = len(networks[0].inputs)
    need(inputs == len(networks[1].inputs), "the networks have different numbers of inputs")
    count = len(networks[0].outputs)
    need(count == len(networks[1].outputs), "the networks have different numbers of outputs")
    need(all(each.weights is not None for each in networks), "a network has no weights")
    box = read_box(given["box"], inputs)
    outputs = wholes(given["outputs"], "outputs", 0, count - 1, most=count)
    need(bool(outputs) and len(set(outputs)) == len(outputs), "the outputs are not chosen once each")
    norm = word(given["norm"], "norm", "inf", "1", "2")
    first, second = (plain_layers(each) for each in networks)
    facts: dict[str, Any] = {"outputs": outputs, "norm": norm, "box": box}
    on = shown(box)
    near: list[Sides] | None = None
    data: tuple[str, ...] = ()
    if "near" in given:
        need(given["lower"] is None and not given["tree"], "boxes around samples are bounded from above, each whole")
        near, radius, data = around_samples(given["near"], box)
        on = f"what of {on} is within {at_least(radius, 9)} of one of {len(near)} samples"
        facts["near"] = {"samples": len(near), "radius": radius}
    said = []
    if given["lower"] is not None:
        facts["lower"] = _lower(given["lower"], box, first, second, outputs, norm)
        said.append(f"is more than {at_least(facts['lower'], 9)} at one input (exact)")
    if given["upper"] is not None:
        facts["upper"] = rational(given["upper"], "upper")
        depth = max(len(first), len(second))
        pair = deepened(first, depth, inputs), deepened(second, depth, inputs)
        matches = _matching(given["matching"], depth - 1)
        facts["leaves"] = _upper(facts["upper"], given, pair, matches, box, outputs, norm, near)
        said.append(f"is at most {at_most(facts['upper'], 9)} on {on} ({facts['leaves']} boxes re-computed)")
    need(bool(said), "the certificate states nothing")
    what = {"inf": "|g - f|", "1": "the 1-norm of g - f", "2": "the 2-norm of g - f"}[norm]
    where = "" if len(outputs) == count else f" in outputs {', '.join(map(str, outputs[:20]))}"
    digests = tuple(each.digest() for each in networks)
    names = f"for f = {short(digests[0])} and g = {short(digests[1])}, "
    return Finding(f"{names}{what}{where} {', and '.join(said)}", facts, digests, data)


def read_network(value: object, where: str) -> CheckedDag:
    """A network as layers or as a graph."""
    if isinstance(value, dict) and "biases" in value:
        return read_mlp(value, where).to_dag()
    return read_dag(value, where)


def read_box(value: object, inputs: int) -> Sides:
    """The sides of a box."""
    found = []
    for side in listed(value, "box", length=inputs):
        low, high = (rational(end, "box") for end in listed(side, "box", length=2))
        need(low <= high, "a side of the box is inverted")
        found.append((low, high))
    return found


def around_samples(value: object, box: Sides) -> tuple[list[Sides], Fraction, tuple[str, ...]]:
    """The part of a box near each sample, how near, and the samples' digest."""
    given = record(value, "near", "samples radius")
    radius = rational(given["radius"], "near.radius")
    need(radius >= 0, "a distance from samples is negative")
    samples = matrix(given["samples"], "near.samples", columns=len(box))
    need(bool(samples), "there are no samples")
    found = []
    for sample in samples:
        point = exactly(sample)
        need(all(low <= x <= high for x, (low, high) in zip(point, box, strict=True)), "a sample is outside the box")
        found.append([(max(low, x - radius), min(high, x + radius)) for x, (low, high) in zip(point, box, strict=True)])
    return found, radius, (digest_of("data", samples),)


def shown(box: Sides) -> str:
    """A box in words: it is part of the question, so it is repeated whole, or named by its digest where it is long."""
    sides = [f"[{low}, {high}]" for low, high in box]
    return f"{sides[0]}^{len(sides)}" if len(set(sides)) == 1 else in_full(" x ".join(sides))


# From below


def _lower(
    value: object, box: Sides, first: list[Plain], second: list[Plain], outputs: list[int], norm: str
) -> Fraction:
    given = record(value, "lower", "input above")
    point = exactly(numbers(given["input"], "lower.input", length=len(box)))
    above = rational(given["above"], "lower.above")
    need(above >= 0, "a bound from below is negative")
    need(all(low <= x <= high for x, (low, high) in zip(point, box, strict=True)), "the input is outside the box")
    afford(100.0 * sum(len(row) for layers in (first, second) for layer in layers for row in layer.rows))
    ours, theirs = (evaluated(layers, point) for layers in (first, second))
    sizes = [abs(theirs[which] - ours[which]) for which in outputs]
    need(not within(sizes, above, norm), "the networks do not differ by more than stated at this input")
    return above


def evaluated(layers: list[Plain], point: list[Fraction]) -> list[Fraction]:
    """The outputs at a point, exactly."""
    values = point
    for layer in layers:
        sums = [
            sum((weight * values[place] for place, weight in row.items()), shift)
            for row, shift in zip(layer.rows, layer.bias, strict=True)
        ]
        values = [total if total > 0 else slope * total for total, slope in zip(sums, layer.slopes, strict=True)]
    return values


def within(sizes: Sequence[Fraction | float], most: Fraction, norm: str) -> bool:
    """Whether a norm of nonnegative numbers is at most a number."""
    if norm == "inf":
        return max(sizes) <= most
    if norm == "1":
        return sum(sizes) <= most
    return sum(size * size for size in sizes) <= most * most


# From above


def _matching(value: object, hidden: int) -> list[Places]:
    found = []
    for item in listed(value, "matching", length=hidden):
        given = record(item, "matching", "first second scale")
        scale = exactly([number(each, "matching.scale") for each in listed(given["scale"], "matching.scale")])
        first, second = (wholes(given[side], f"matching.{side}", -1, length=len(scale)) for side in ("first", "second"))
        found.append(Places(first, second, scale))
    return found


def _upper(
    most: Fraction,
    given: dict[str, Any],
    pair: tuple[list[Plain], list[Plain]],
    matches: list[Places],
    box: Sides,
    outputs: list[int],
    norm: str,
    near: list[Sides] | None,
) -> int:
    """Bound every leaf of the tree, or every box around a sample; how many there are."""
    tree = wholes(given["tree"], "tree", 0, len(box))
    weights = sum(len(row) for layers in pair for layer in layers for row in layer.rows)
    afford(20.0 * weights + 0.1 * len(near or tree) * weights * max(1, len(pair[0]) - 1))
    need(most >= 0, "a bound from above is negative")
    layers = shared_layers(*pair, matches, len(box))
    if all(layer.same for layer in layers):
        return 0
    leaves = leaves_of(tree, box) if near is None else near
    cap = _cap(given["spectral"], layers, box, outputs)
    open_, deeper = leaves, MOST_HALVINGS
    while open_:
        open_ = [
            leaf for leaf, gaps in zip(open_, _gaps(layers, open_), strict=True)
            if not within([min(gaps[which], top) for which, top in zip(outputs, cap, strict=True)], most, norm)
        ]  # fmt: skip
        need(not open_ or deeper > 0, f"{len(open_)} of the boxes are not bounded as stated")
        open_, deeper = [half for leaf in open_ for half in halves(leaf, widest(leaf))], deeper - 1
    return len(leaves)


def _cap(value: object, layers: list[Shared], box: Sides, outputs: list[int]) -> list[Fraction | float]:
    """What singular values say of the gaps on the whole box, with the weights of the certificate."""
    if value is None:
        return [math.inf] * len(outputs)
    need(len(layers) > 1, "a network without hidden layers has no bilinear form")
    given = record(value, "spectral", "rows columns")
    below = layers[-2].W.shape
    rows = np.array(matrix(given["rows"], "spectral.rows", rows=len(outputs), columns=1 + below[0]))
    columns = np.array(matrix(given["columns"], "spectral.columns", rows=len(outputs), columns=1 + 2 * below[1]))
    afford(40.0 * rows.size * columns.shape[1])
    need(bool((rows > 0).all() and (columns > 0).all()), "a weight of the bilinear form is not positive")
    middle = np.array([_middle(*side) for side in box])
    centre, radius = middle[:, 0], middle[:, 1]
    ends = hidden_ends(layers, centre[None], radius[None])
    found = spectral_gaps(layers, ends, (centre, radius), outputs, Weights(rows, columns))
    return [Fraction(float(gap)) if np.isfinite(gap) else math.inf for gap in found]


def leaves_of(tree: list[int], box: Sides) -> list[Sides]:
    """The boxes of a tree in preorder: 0 is a leaf, `1 + k` a box that is halved along input k."""
    waiting, leaves = [box], []
    for node in tree:
        need(bool(waiting), "the tree goes on after its end")
        here = waiting.pop()
        if node:
            waiting += reversed(halves(here, node - 1))
        else:
            leaves.append(here)
    need(not waiting, "the tree ends too early")
    return leaves


def halves(box: Sides, along: int) -> list[Sides]:
    """Both halves of a box."""
    low, high = box[along]
    middle = (low + high) / 2
    return [[*box[:along], side, *box[along + 1 :]] for side in ((low, middle), (middle, high))]


def widest(box: Sides) -> int:
    """The longest side."""
    return max(range(len(box)), key=lambda side: box[side][1] - box[side][0])


def bounded(layers: list[Shared], boxes: list[Sides]) -> Iterator[tuple[Floats, Floats]]:
    """For each box lower and upper bounds of the outputs of `g - f`, computed many boxes at a time."""
    width = max(max(layer.W.shape) for layer in layers)
    many = max(1, min(16, MOST_NUMBERS // (width * (1 + layers[0].W.shape[1]))))
    for start in range(0, len(boxes), many):
        yield from zip(*bounds(layers, *centred(boxes[start : start + many])), strict=True)


def centred(boxes: list[Sides]) -> tuple[Floats, Floats]:
    """Centres and radii of boxes."""
    ends = np.array([[_middle(*side) for side in box] for box in boxes], dtype=np.float64)
    return ends[:, :, 0], ends[:, :, 1]


def _middle(low: Fraction, high: Fraction) -> tuple[float, float]:
    """A float near the middle of an interval, and one that is at least the distance to both ends."""
    middle = float((low + high) / 2)
    reach = max(high - Fraction(middle), Fraction(middle) - low)
    radius = float(reach)
    return middle, radius if Fraction(radius) >= reach else float(np.nextafter(radius, np.inf))


def _gaps(layers: list[Shared], boxes: list[Sides]) -> Iterator[list[Fraction | float]]:
    """For each box an upper bound of the size of each output's difference; an infinity stays one."""
    for low, high in bounded(layers, boxes):
        sizes = np.maximum(np.maximum(high, -low), 0.0)
        yield [Fraction(float(size)) if np.isfinite(size) else math.inf for size in sizes]
