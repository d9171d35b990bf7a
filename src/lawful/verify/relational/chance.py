"""How likely equal residues of different functions are: from the degrees and the heights that a program reaches.

Every value is a quotient of polynomials in the random numbers. Two of degree d that differ agree at a random point
modulo p with a chance of at most 2d/p (Schwartz and Zippel), and a prime divides an integer of h bits only if it is one
of at most h/30. Powers of powers are of any degree, and x^E is 1 modulo every p with p - 1 | E: so both are counted.

Denominators are the sums of softmax and what is inverted. A value is N/Π Q_i^k_i, where i is a node; its numerator has
the degree a + Σ k_i q_i with the degree q_i of all denominators of node i together. So a and the k_i take the larger
one in sums and add up in products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2, prod
from typing import Any

import numpy as np

from lawful.verify.checkpoints.element import Form, ListedFrame, Rotation
from lawful.verify.checkpoints.folds import Fold, tensors_of
from lawful.verify.core.schema import require
from lawful.verify.relational.degree import largest, total
from lawful.verify.relational.program import ListedNode, ListedProgram
from lawful.verify.relational.residues import LANES, LOG_PRIMES, PRIMES, SIGN_BITS, NotCovered

WORD = 64  # bits of height are counted in words
MOST_DEGREE = 2.0**64  # of numbers that are still counted: larger ones are as bad
MOST_DENOMINATORS = 20_000_000  # entries of all tables of them

CARRIED = {"take", "add", "sum", "detach", "not", "normalise"}
EXTREMES = {"amax", "amin", "maximum", "minimum"}
SIGNED = EXTREMES | {"relu", "abs", "eq", "ne", "lt", "le", "gt", "ge"}
MULTIPLIED = {"mul", "contract", "conv", "and", "or", "xor"}


@dataclass(frozen=True)
class DegreeAndHeight:
    """The degree of a value and the words of its numbers, each without denominators; how often these are there."""

    degree: float = 0.0
    height: float = 0.0
    below: Mapping[int, float] = field(default_factory=dict)


VARIABLE = DegreeAndHeight(1.0, 1.0)  # the height is that of a factor that comes out of a function


def bits_of_chance(
    program: ListedProgram,
    leaves: Mapping[str, DegreeAndHeight],
    held: Mapping[str, float],
    generic: list[bool],
    sides: int,
) -> int:
    """A number k so that different functions are taken for the same with a chance below 2^-k."""
    denominators: dict[int, tuple[float, float]] = {}
    values: list[DegreeAndHeight] = []
    degree, height, most, tables, signed = 1.0, 1.0, 1, 0, 1
    for node in program.nodes:
        require(True, "")
        inside = [values[k] for k in node.operands]
        count = prod(program.nodes[node.operands[0]].shape) if node.operands else 1
        inverted = node.op == "power" and node.attributes["exponent"] < 0 and generic[node.operands[0]]
        made = _growth(node, inside, leaves, held, denominators, count, inverted)
        # a mean square; or the product over all that a maximum is taken of, divided by its sum as often
        times = 2.0 * max(count // prod(node.shape), 2) if node.op in EXTREMES else 2.0
        for each in (*(_whole(one, denominators, times) for one in inside), _whole(made, denominators)):
            degree, height = max(degree, each[0]), max(height, each[1])
        if degree > MOST_DEGREE or height > MOST_DEGREE:
            return 0
        tables += len(made.below)
        if tables > MOST_DENOMINATORS:
            raise NotCovered("programs with so many quotients")
        values.append(made)
        signed += prod(node.shape) if node.op in SIGNED else 0
        most = max(most, prod(node.shape) if node.op != "parameter" else 1)
    pairs = 2 * log2(sides * most)  # that are compared at a node: any of them may be the one that only looks equal
    by_points = LANES * (30 - log2(2 * degree)) - pairs
    by_primes = PRIMES * (LOG_PRIMES - log2(max(2 * height * WORD / 30, 1))) - pairs
    by_signs = SIGN_BITS - log2(sides * signed)
    return int(max(0, min(by_points, by_primes, by_signs) - 2))  # the chances are added


def _whole(
    value: DegreeAndHeight, denominators: Mapping[int, tuple[float, float]], times: float = 1.0
) -> tuple[float, float]:
    """With denominators."""
    degree = value.degree + sum(k * denominators[at][0] for at, k in value.below.items())
    height = value.height + sum(k * denominators[at][1] for at, k in value.below.items())
    return times * degree, times * height


def _growth(
    node: ListedNode,
    inside: list[DegreeAndHeight],
    leaves: Mapping[str, DegreeAndHeight],
    held: Mapping[str, float],
    denominators: dict[int, tuple[float, float]],
    count: int,
    inverted: bool,
) -> DegreeAndHeight:
    added = log2(count + 1) / WORD  # a sum of n terms has log n bits more
    if node.op == "parameter":
        return leaves[node.attributes["name"]]
    if node.op == "held":
        return DegreeAndHeight(0.0, held[node.attributes["name"]])
    if node.op == "constant":
        return DegreeAndHeight(0.0, words_of(node.attributes["value"]))
    if node.op in CARRIED or (node.op == "cast" and node.attributes["to"] == "f"):
        most = _largest(inside)
        return DegreeAndHeight(most.degree + (node.op == "normalise"), most.height + added, most.below)
    if node.op in MULTIPLIED:
        product = _total(inside)
        return DegreeAndHeight(product.degree, product.height + added, product.below)
    if node.op == "where":
        return _total([inside[0], _largest(inside[1:])])
    if node.op == "lookup":
        return _total([inside[0], VARIABLE])
    if node.op == "softmax":
        denominators[node.number] = count / node.shape[node.attributes["axis"]], added
        return DegreeAndHeight(1.0, 0.0, {node.number: 1.0})
    if node.op == "power" and abs(exponent := node.attributes["exponent"]) <= 64 and exponent == int(exponent):
        if inverted:
            degree, height = _whole(inside[0], denominators)
            denominators[node.number] = count * degree, count * height
            return DegreeAndHeight(-exponent * degree, -exponent * height, {node.number: -exponent})
        if exponent >= 0:
            powers = {at: exponent * k for at, k in inside[0].below.items()}
            return DegreeAndHeight(exponent * inside[0].degree, exponent * inside[0].height, powers)
    return VARIABLE


def _largest(several: list[DegreeAndHeight]) -> DegreeAndHeight:
    below = largest([each.below for each in several])
    return DegreeAndHeight(max(each.degree for each in several), max(each.height for each in several), below)


def _total(several: list[DegreeAndHeight]) -> DegreeAndHeight:
    below = total([each.below for each in several])
    return DegreeAndHeight(sum(each.degree for each in several), sum(each.height for each in several), below)


# Parameters: their degree after folds, and the numbers that act on them


def grown(
    shapes: Mapping[str, tuple[int, ...]],
    folds: Sequence[Fold],
    frames: Mapping[str, list[ListedFrame]],
    shifts: Mapping[str, list[np.ndarray[Any, Any]]],
    forms: list[Form],
) -> dict[str, DegreeAndHeight]:
    """What each parameter is at most, in all runs."""
    degrees = {name: float(max(len(shape), 1)) for name, shape in shapes.items()}
    heights = dict.fromkeys(shapes, 0.0)
    for fold in folds:  # whatever a fold does, it multiplies each of its tensors once, and takes roots of some
        names = tensors_of(fold)
        degree, height = 2 + 2 * sum(degrees[name] for name in names), 2 + 2 * sum(heights[name] for name in names)
        for name in names:
            degrees[name], heights[name] = min(degree, MOST_DEGREE), min(height, MOST_DEGREE)
    for name, own in frames.items():
        heights[name] += sum(_words_of_frame(frame, forms) for frame in own)
    for name, pieces in shifts.items():
        heights[name] += sum(words_of(piece) for piece in pieces)
    return {name: DegreeAndHeight(degrees[name], heights[name]) for name in shapes}


def _words_of_frame(frame: ListedFrame, forms: list[Form]) -> float:
    top, divisor = frame.quotient
    total = 0.0 if bool((top == divisor).all()) else words_of(top) + words_of(divisor)
    return total + max((_words_of_form(forms[number], forms) for number, _ in frame.numbers), default=0.0)


def _words_of_form(form: Form, forms: list[Form]) -> float:
    """An inverse is a quotient of determinants: n numbers are multiplied in each."""
    if isinstance(form, int):
        inner = forms[form]
        return 0.0 if isinstance(inner, int) else len(inner) * words_of(np.asarray(inner))
    if isinstance(form, Rotation):
        return len(form.skew) * words_of(form.skew)
    return words_of(form)


def words_of(values: np.ndarray[Any, Any]) -> float:
    """The words of the largest of some numbers, as whole multiples of the last bit of the smallest."""
    if values.dtype.kind == "i":
        return log2(1 + float(np.abs(values.astype(np.float64)).max(initial=0.0))) / WORD
    exact = np.asarray(values, dtype=np.float64)
    share, exponent = np.frexp(exact[np.isfinite(exact) & (exact != 0)])
    if not share.size:
        return 0.0
    whole = np.ldexp(share, 53).astype(np.int64)
    last = np.frexp((whole & -whole).astype(np.float64))[1] - 54 + exponent
    return float(exponent.max() - last.min()) / WORD
