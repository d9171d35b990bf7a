"""Distances, properties and slopes of networks with one input, where breakpoints give the truth in fractions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
from falsification import Trial

from lawful.bounds.distance import distance
from lawful.bounds.property import check_regions
from lawful.bounds.slopes import Growth
from lawful.fibers.monotone import check_monotone
from lawful.formats.queries.specification import ForbiddenHalfSpace, ForbiddenRegion
from lawful.network import Mlp
from lawful.outward import at_most
from lawful.report.structure.distance import distance_text, monotone_text, property_text
from lawful.sentences.bounds import difference_lies_between, outputs_move_at_most

BOX = np.array([-2.0]), np.array([2.0])
NORM = "max |g − f|"


def random_network(rng: np.random.Generator, hidden: int) -> Mlp:
    """1-h-1, weights in eighths, some zero, some neurons twice."""
    first, bias, last = (rng.integers(-12, 13, hidden) / 8 for _ in range(3))
    if hidden > 1 and rng.random() < 0.3:
        first[1], bias[1] = first[0], bias[0]
    return Mlp([first[:, None].tolist(), [last.tolist()]], [bias.tolist(), [float(rng.integers(-8, 9)) / 8]])


def values_at_breakpoints(*networks: Mlp) -> list[tuple[Fraction, ...]]:
    """The outputs at the box's ends and at every kink inside, in order; between two of them all are affine."""
    low, high = Fraction(-2), Fraction(2)
    points = {low, high}
    for network in networks:
        for weight, bias in zip(network.weights[0][:, 0], network.biases[0], strict=True):
            if weight and low < (kink := -Fraction(bias) / Fraction(weight)) < high:
                points.add(kink)
    return [tuple(output(network, point) for network in networks) for point in sorted(points)]


def output(network: Mlp, point: Fraction) -> Fraction:
    total = Fraction(float(network.biases[1][0]))
    for weight, bias, out in zip(network.weights[0][:, 0], network.biases[0], network.weights[1][0], strict=True):
        total += Fraction(float(out)) * max(Fraction(0), Fraction(float(weight)) * point + Fraction(float(bias)))
    return total


def pairs() -> Iterator[tuple[Mlp, Mlp, Fraction]]:
    rng = np.random.default_rng(0)
    for _ in range(12):
        one, other = random_network(rng, 2), random_network(rng, int(rng.integers(1, 4)))
        yield one, other, max(abs(a - b) for a, b in values_at_breakpoints(one, other))


def bounded() -> Iterator[Trial]:
    for one, other, truth in pairs():
        text = distance_text(distance(one, other, BOX, seconds=0.2))
        low, high = map(Fraction, re.match(r"(\S+) <= .* <= (\S+)", text).groups())
        yield Trial(text, said=True, true=low <= truth <= high)
        narrower = difference_lies_between(NORM, truth + Fraction(1, 100), float(truth) + 1)
        yield Trial(narrower, said=narrower in text, true=False)


@cache
def limits() -> list[tuple[str, Fraction, Fraction]]:
    return list(ask_limits())


def ask_limits() -> Iterator[tuple[str, Fraction, Fraction]]:
    for one, other, truth in pairs():
        for limit in (truth * Fraction(999, 1000), truth, truth * Fraction(1001, 1000) + Fraction(1, 10**6)):
            yield distance_text(distance(one, other, BOX, within=limit, seconds=0.2)), limit, truth


def proved() -> Iterator[Trial]:
    for text, limit, truth in limits():
        yield Trial(text, said=text.startswith("PROVED"), true=truth <= limit)


def violated() -> Iterator[Trial]:
    for text, limit, truth in limits():
        yield Trial(text, said=text.startswith("VIOLATED"), true=truth > limit)


@cache
def properties() -> list[tuple[str, bool]]:
    return list(ask_properties())


def ask_properties() -> Iterator[tuple[str, bool]]:
    rng = np.random.default_rng(1)
    for _ in range(12):
        network = random_network(rng, 3)
        lowest = min(value for (value,) in values_at_breakpoints(network))
        for bound in (lowest - Fraction(1, 64), lowest, lowest + Fraction(1, 64)):
            for strict in (False, True):
                low, high = (tuple(Fraction(float(end)) for end in np.atleast_1d(ends)) for ends in BOX)
                region = ForbiddenRegion(low, high, ((ForbiddenHalfSpace((Fraction(1),), (), bound, strict),),))
                found = check_regions(network, [region], seconds=0.2)
                yield property_text(found), (lowest < bound if strict else lowest <= bound)


def property_holds() -> Iterator[Trial]:
    for text, reached in properties():
        yield Trial(text, said=text.startswith("HOLDS"), true=not reached)


def property_violated() -> Iterator[Trial]:
    for text, reached in properties():
        yield Trial(text, said=text.startswith("VIOLATED"), true=reached)


@cache
def slopes() -> list[tuple[str, bool]]:
    return list(ask_slopes())


def ask_slopes() -> Iterator[tuple[str, bool]]:
    rng = np.random.default_rng(2)
    for _ in range(25):
        network = random_network(rng, 2)
        values = [value for (value,) in values_at_breakpoints(network)]
        for rising in (True, False):
            text = monotone_text(check_monotone(network, BOX, [Growth(0, rising)], seconds=0.5))
            yield text, all(here <= there if rising else here >= there for here, there in pairwise(values))


def monotone_holds() -> Iterator[Trial]:
    for text, true in slopes():
        yield Trial(text, said=text.startswith("HOLDS"), true=true)


def monotone_violated() -> Iterator[Trial]:
    for text, true in slopes():
        yield Trial(text, said=text.startswith("VIOLATED"), true=not true)


def rebalance_bounded() -> Iterator[Trial]:
    """The digits never say less than the number: random floats, and the same digits rounded to nearest instead."""
    rng = np.random.default_rng(3)
    for value in rng.lognormal(0, 9, 200):
        text = outputs_move_at_most(float(value))
        stated = Fraction(re.search(r"more than (\S+) on", text)[1])
        yield Trial(text, said=True, true=stated >= Fraction(value))
        nearest = f"{value:.3g}"
        yield Trial(nearest, said=nearest == at_most(float(value), 3), true=Fraction(nearest) >= Fraction(value))


FALSIFIERS = {
    "distance.bounded": bounded,
    "distance.proved": proved,
    "distance.violated": violated,
    "property.holds": property_holds,
    "property.violated": property_violated,
    "monotone.holds": monotone_holds,
    "monotone.violated": monotone_violated,
    "rebalance.bounded": rebalance_bounded,
}
