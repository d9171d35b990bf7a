"""How far a program multiplies: how many products a random parameter needs, and how likely equal residues mislead.

Every value is a quotient of polynomials in the random numbers. Two of degree d that differ agree at a random point
modulo p with a chance of at most 2d/p (Schwartz and Zippel), and a prime divides an integer of h bits only if it is one
of at most h/30. Powers of powers are of any degree, and x^E is 1 modulo every p with p - 1 | E: so both are counted.

Denominators are the sums of softmax and what is inverted. A value is N/Π Q_i^k_i, where i is a node; its numerator has
the degree a + Σ k_i q_i with the degree q_i of all denominators of node i together. So a and the k_i take the larger
one in sums and add up in products.

A parameter that is drawn as a sum of few products (`weights.py`) needs as many of them as what is compared has degree
in it, between two functions that are no polynomials: these give new variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2, prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lawful.verify.checkpoints.element import Form, ListedFrame, Rotation
from lawful.verify.checkpoints.folds import Fold, tensors_of
from lawful.verify.core.residues import LANES, LOG_PRIMES, PRIMES, SIGN_BITS, NotCovered
from lawful.verify.core.schema import check_clock
from lawful.verify.relational.program import ListedNode, ListedProgram

WORD = 64  # bits of height are counted in words
MOST_DEGREE = 2.0**64  # of numbers that are still counted: larger ones are as bad
MOST_PRODUCTS = 12  # of a random parameter: each costs as much as a tensor of rank one
MOST_DENOMINATORS = 20_000_000  # entries of all tables of them

CARRIED = {"take", "add", "sum", "detach", "not", "normalise"}
EXTREMES = {"amax", "amin", "maximum", "minimum"}
SIGNED = EXTREMES | {"relu", "abs", "eq", "ne", "lt", "le", "gt", "ge"}
MULTIPLIED = {"mul", "contract", "conv", "and", "or", "xor"}


Degrees = dict[str, int]
K = TypeVar("K", str, int)
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class DegreeAndHeight:
    """The degree of a value and the words of its numbers, each without denominators; how often these are there; and its
    degree in each parameter of several products."""

    degree: float = 0.0
    height: float = 0.0
    below: Mapping[int, float] = field(default_factory=dict)
    products: Mapping[str, int] = field(default_factory=dict)


VARIABLE = DegreeAndHeight(1.0, 1.0)  # the height is that of a factor that comes out of a function


class Reach(NamedTuple):
    """Products that each parameter needs; which nodes hold no parameter of several; bits of the chance of an error."""

    products: int
    generic: list[bool]
    bits: int


def measure(
    program: ListedProgram, leaves: Mapping[str, DegreeAndHeight], held: Mapping[str, float], sides: int
) -> Reach:
    """How far it multiplies; different functions are taken for the same with a chance below 2^-bits."""
    denominators: dict[int, tuple[float, float]] = {}
    values: list[DegreeAndHeight] = []
    degree, height, most, tables, signed, products = 1.0, 1.0, 1, 0, 1, 1
    for node in program.nodes:
        check_clock()
        inside = [values[k] for k in node.operands]
        count = prod(program.nodes[node.operands[0]].shape) if node.operands else 1
        value = _growth(node, inside, leaves, held, denominators, count)
        # a mean square; or the product over all that a maximum is taken of, divided by its sum as often
        times = 2.0 * max(count // prod(node.shape), 2) if node.op in EXTREMES else 2.0
        for size in (*(_whole(one, denominators, times) for one in inside), _whole(value, denominators)):
            degree, height = max(degree, min(size[0], MOST_DEGREE)), max(height, min(size[1], MOST_DEGREE))
        tables += len(value.below)
        if tables > MOST_DENOMINATORS:
            raise NotCovered("programs with so many quotients")
        values.append(value)
        signed += prod(node.shape) if node.op in SIGNED else 0
        most = max(most, prod(node.shape) if node.op != "parameter" else 1)
        squared = 2 if node.op == "normalise" else 1
        products = max(
            products, *value.products.values(), *(squared * n for x in inside for n in x.products.values()), 1
        )
        if products > MOST_PRODUCTS:
            raise NotCovered("products of a parameter with itself of a high degree")
        if MOST_DEGREE in (degree, height):
            return Reach(products, [], 0)
    pairs = 2 * log2(sides * most)  # that are compared at a node: any of them may be the one that only looks equal
    by_points = LANES * (30 - log2(2 * degree)) - pairs
    by_primes = PRIMES * (LOG_PRIMES - log2(max(2 * height * WORD / 30, 1))) - pairs
    by_signs = SIGN_BITS - log2(sides * signed)
    bits = int(max(0, min(by_points, by_primes, by_signs) - 2))  # the chances are added
    return Reach(products, [not size.products for size in values], bits)


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
        return replace(most, degree=most.degree + (node.op == "normalise"), height=most.height + added)
    if node.op in MULTIPLIED:
        product = _total(inside)
        return replace(product, height=product.height + added)
    if node.op == "where":
        return _total([inside[0], _largest(inside[1:])])
    if node.op == "lookup":  # positions are variables of their own
        return _total([inside[0], VARIABLE])
    if node.op == "softmax":
        denominators[node.number] = count / node.shape[node.attributes["axis"]], added
        return DegreeAndHeight(1.0, 0.0, {node.number: 1.0})
    if node.op == "power" and abs(exponent := node.attributes["exponent"]) <= 64 and exponent == int(exponent):
        x, n = inside[0], int(exponent)
        if n >= 0:
            powers = {at: n * k for at, k in x.below.items()}
            return DegreeAndHeight(n * x.degree, n * x.height, powers, {name: n * k for name, k in x.products.items()})
        if not x.products:
            degree, height = _whole(x, denominators)
            denominators[node.number] = count * degree, count * height
            return DegreeAndHeight(-n * degree, -n * height, {node.number: -n})
    return VARIABLE


def _largest(several: Sequence[DegreeAndHeight]) -> DegreeAndHeight:
    """Of sums."""
    below, products = largest([one.below for one in several]), largest([one.products for one in several])
    return DegreeAndHeight(max(one.degree for one in several), max(one.height for one in several), below, products)


def _total(several: Sequence[DegreeAndHeight]) -> DegreeAndHeight:
    """Of products."""
    below, products = total([one.below for one in several]), total([one.products for one in several])
    return DegreeAndHeight(sum(one.degree for one in several), sum(one.height for one in several), below, products)


def largest(several: Sequence[Mapping[K, N]]) -> dict[K, N]:
    """The largest number of each key: of sums."""
    most: dict[K, N] = {}
    for one in several:
        for key, value in one.items():
            most[key] = max(most.get(key, value), value)
    return most


def total(several: Sequence[Mapping[K, N]]) -> dict[K, N]:
    """The sum of the numbers of each key: of products."""
    sums: dict[K, N] = {}
    for one in several:
        for key, value in one.items():
            sums[key] = sums[key] + value if key in sums else value
    return sums


# Parameters: their degree after folds, and the numbers that act on them


def parameter_growth(
    shapes: Mapping[str, tuple[int, ...]],
    folds: Sequence[Fold],
    frames: Mapping[str, list[ListedFrame]],
    shifts: Mapping[str, list[np.ndarray[Any, Any]]],
    forms: list[Form],
    products: Mapping[str, Degrees],
) -> dict[str, DegreeAndHeight]:
    """What each parameter is at most, in all runs; `products` are the degrees of those of several, after folds."""
    degrees = {name: float(max(len(shape), 1)) for name, shape in shapes.items()}
    heights = dict.fromkeys(shapes, 0.0)
    for fold in folds:  # whatever a fold does, it multiplies each of its tensors once, and takes roots of some
        names = tensors_of(fold)
        degree, height = 2 + 2 * sum(degrees[name] for name in names), 2 + 2 * sum(heights[name] for name in names)
        for name in names:
            degrees[name], heights[name] = min(degree, MOST_DEGREE), min(height, MOST_DEGREE)
    for name, listed in frames.items():
        heights[name] += sum(_words_of_frame(frame, forms) for frame in listed)
    for name, pieces in shifts.items():
        heights[name] += sum(words_of(piece) for piece in pieces)
    return {name: DegreeAndHeight(degrees[name], heights[name], {}, products.get(name, {})) for name in shapes}


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
