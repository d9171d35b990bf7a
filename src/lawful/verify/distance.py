"""How far apart two networks are on a box: an exact difference from below, a tree of boxes from above.

The certificate holds the networks, the box, which neurons resemble which, and where boxes were halved: no slopes and no
bounds. Each leaf is bounded here anew, in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lawful.verify.distance_bounds import gaps
from lawful.verify.distance_layers import Places, Plain, Shared, deepened, plain_layers, shared_layers
from lawful.verify.finding import Finding, at_least, at_most, short
from lawful.verify.schema import afford, exactly, listed, need, number, numbers, rational, record, wholes, word
from lawful.verify.wiring import Wiring, read_tower, read_wiring

PLACES = 48  # binary places beyond the smallest weights
MOST_HALVINGS = 3  # of a leaf that does not quite close here
Sides = list[tuple[Fraction, Fraction]]


def check(body: dict[str, Any]) -> Finding:
    """The bounds that hold."""
    given = record(body, "certificate", "networks box outputs norm upper lower matching tree")
    networks = [_network(each, at) for at, each in enumerate(listed(given["networks"], "networks", length=2))]
    inputs = len(networks[0].inputs)
    need(inputs == len(networks[1].inputs), "the networks have different numbers of inputs")
    count = len(networks[0].outputs)
    need(count == len(networks[1].outputs), "the networks have different numbers of outputs")
    need(all(each.weights is not None for each in networks), "a network has no weights")
    box = _box(given["box"], inputs)
    outputs = wholes(given["outputs"], "outputs", 0, count - 1, most=count)
    need(bool(outputs) and len(set(outputs)) == len(outputs), "the outputs are not chosen once each")
    norm = word(given["norm"], "norm", "inf", "1", "2")
    first, second = (plain_layers(each) for each in networks)
    facts: dict[str, Any] = {"outputs": outputs, "norm": norm, "box": box}
    said = []
    if given["lower"] is not None:
        facts["lower"] = _lower(given["lower"], box, first, second, outputs, norm)
        said.append(f"is more than {at_least(facts['lower'], 9)} at one input (exact)")
    if given["upper"] is not None:
        facts["upper"] = rational(given["upper"], "upper")
        depth = max(len(first), len(second))
        pair = deepened(first, depth, inputs), deepened(second, depth, inputs)
        matches = _matching(given["matching"], depth - 1)
        facts["leaves"] = _upper(facts["upper"], given["tree"], pair, matches, box, outputs, norm)
        said.append(f"is at most {at_most(facts['upper'], 9)} on {_where(box)} ({facts['leaves']} boxes re-computed)")
    need(bool(said), "the certificate states nothing")
    what = {"inf": "|g - f|", "1": "the 1-norm of g - f", "2": "the 2-norm of g - f"}[norm]
    where = "" if len(outputs) == count else f" in outputs {', '.join(map(str, outputs[:20]))}"
    digests = tuple(each.digest() for each in networks)
    names = f"for f = {short(digests[0])} and g = {short(digests[1])}, "
    return Finding(f"{names}{what}{where} {', and '.join(said)}", facts, digests)


def _network(value: object, at: int) -> Wiring:
    where = f"networks[{at}]"
    if isinstance(value, dict) and "biases" in value:
        return read_tower(value, where).wiring()
    return read_wiring(value, where)


def _box(value: object, inputs: int) -> Sides:
    found = []
    for side in listed(value, "box", length=inputs):
        low, high = (rational(end, "box") for end in listed(side, "box", length=2))
        need(low <= high, "a side of the box is inverted")
        found.append((low, high))
    return found


def _where(box: Sides) -> str:
    sides = [f"[{low}, {high}]" for low, high in box]
    return f"{sides[0]}^{len(sides)}" if len(set(sides)) == 1 else " x ".join(sides[:4]) + " x ..." * (len(sides) > 4)


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
    ours, theirs = (_evaluated(layers, point) for layers in (first, second))
    sizes = [abs(theirs[which] - ours[which]) for which in outputs]
    need(not _within(sizes, above, norm), "the networks do not differ by more than stated at this input")
    return above


def _evaluated(layers: list[Plain], point: list[Fraction]) -> list[Fraction]:
    values = point
    for layer in layers:
        sums = [
            sum((weight * values[place] for place, weight in row.items()), shift)
            for row, shift in zip(layer.rows, layer.bias, strict=True)
        ]
        values = [total if total > 0 else slope * total for total, slope in zip(sums, layer.slopes, strict=True)]
    return values


def _within(sizes: Sequence[Fraction | int], most: Fraction, norm: str) -> bool:
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
    value: object,
    pair: tuple[list[Plain], list[Plain]],
    matches: list[Places],
    box: Sides,
    outputs: list[int],
    norm: str,
) -> int:
    """Walk through the tree, written in preorder (0 a leaf, 1 + k: halved along input k); how many leaves it has."""
    tree = wholes(value, "tree", 0, len(box))
    weights = sum(len(row) for layers in pair for layer in layers for row in layer.rows)
    afford(4.0 * len(tree) * weights)
    need(most >= 0, "a bound from above is negative")
    point = PLACES + _extra(most, pair)
    layers = shared_layers(*pair, matches, len(box), point)
    if all(layer.same for layer in layers):
        return 0
    threshold = most * (1 << point)
    waiting, leaves = [box], 0
    for node in tree:
        need(bool(waiting), "the tree goes on after its end")
        here = waiting.pop()
        if node:
            waiting += reversed(_halves(here, node - 1))
        else:
            leaves += 1
            need(_closes(layers, here, point, threshold, outputs, norm), f"leaf {leaves} is not bounded as stated")
    need(not waiting, "the tree ends too early")
    return leaves


def _extra(most: Fraction, pair: tuple[list[Plain], list[Plain]]) -> int:
    """More binary places where the bound is small or a weight is large."""
    sizes = (abs(weight) for layers in pair for layer in layers for row in layer.rows for weight in row.values())
    wanted = max(max(sizes, default=Fraction(1)), 1 / most if most else Fraction(1))
    return max(0, wanted.numerator.bit_length() - wanted.denominator.bit_length() + 1)


def _halves(box: Sides, along: int) -> list[Sides]:
    low, high = box[along]
    middle = (low + high) / 2
    return [[*box[:along], side, *box[along + 1 :]] for side in ((low, middle), (middle, high))]


def _closes(
    layers: list[Shared],
    box: Sides,
    point: int,
    most: Fraction,
    outputs: list[int],
    norm: str,
    deeper: int = MOST_HALVINGS,
) -> bool:
    """Whether a leaf's bound is small enough, or those of its halves are."""
    found = gaps(layers, box, point)
    if _within([found[which] for which in outputs], most, norm):
        return True
    if not deeper:
        return False
    along = max(range(len(box)), key=lambda side: box[side][1] - box[side][0])
    return all(_closes(layers, half, point, most, outputs, norm, deeper - 1) for half in _halves(box, along))
