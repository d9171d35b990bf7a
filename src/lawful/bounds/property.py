"""Does a network satisfy a specification: no input of a box leads to outputs that a file forbids."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import numpy as np

from lawful.bounds.attack import Candidates
from lawful.bounds.box_bounds import boxes_together
from lawful.bounds.branch_and_bound import Measure, Splitting, corners, run
from lawful.bounds.exact import exact_outputs
from lawful.bounds.layers import Layer, evaluate, layers_of, silent
from lawful.bounds.pair import align
from lawful.bounds.split.certificate import ForbiddenRegion, Proof
from lawful.bounds.workers import workers
from lawful.errors import LawfulError
from lawful.formats.queries.vnnlib_outputs import Cases
from lawful.network import Dag, Mlp
from lawful.result import Shown
from lawful.types import Floats


@dataclass(frozen=True)
class Forbidden:
    """A half-space of outputs `Σ coefficients · y ≤ bound`, without its boundary if strict."""

    coefficients: tuple[Fraction, ...]
    bound: Fraction
    strict: bool

    def holds(self, outputs: Sequence[Fraction]) -> bool:
        """Whether outputs lie in it, exactly."""
        total = sum((a * y for a, y in zip(self.coefficients, outputs, strict=True)), Fraction(0))
        return total < self.bound if self.strict else total <= self.bound

    def whole(self) -> Forbidden:
        """The same half-space with whole coefficients."""
        scale = math.lcm(*(a.denominator for a in self.coefficients))
        return Forbidden(tuple(a * scale for a in self.coefficients), self.bound * scale, self.strict)


@dataclass(frozen=True, eq=False)
class PropertyCheck(Shown):
    """Whether an input of the box leads into one of the forbidden intersections of half-spaces.

    *holds*: none does (float64, rounded outwards); *violated*: `input` does, replayed in rationals.
    """

    status: Literal["holds", "violated", "undecided"]
    input: Floats | None
    outputs: tuple[Fraction, ...] | None
    boxes: int
    seconds: float
    interrupted: bool
    box: tuple[Floats, Floats]
    forbidden: tuple[tuple[Forbidden, ...], ...]
    tree: tuple[int, ...] = (0,)  # the splitting that shows that it holds, in preorder
    regions: tuple[ForbiddenRegion, ...] = ()  # all that a specification forbids, exactly
    proofs: tuple[Proof, ...] = ()  # one for each of them, if it holds
    why: str = ""  # nothing was decided, or nothing had to be


def check_property(
    network: Mlp | Dag,
    box: tuple[Floats, Floats],
    forbidden: Sequence[Sequence[Forbidden]],
    *,
    seconds: float = 60.0,
    scheduler: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    most_boxes: float = math.inf,
) -> PropertyCheck:
    """Search the box from both sides; `forbidden` is a union of intersections.

    >>> relu = Mlp([[[1.0]], [[1.0]]])
    >>> negative = Forbidden((Fraction(1),), Fraction(-1, 10), False)
    >>> check_property(relu, (np.array([-1.0]), np.array([1.0])), [[negative]]).status
    'holds'
    """
    started = time.monotonic()
    layers = layers_of(network)
    box = corners(box, layers[0].weight.shape[1])
    question = tuple(tuple(case) for case in forbidden)
    conditions = [condition for case in question for condition in case]
    if any(len(condition.coefficients) != len(layers[-1].weight) for condition in conditions):
        raise LawfulError(f"the specification is not about {len(layers[-1].weight)} outputs")
    if not all(forbidden):  # a case without conditions: every input of the box is in it
        point = box[0] / 2 + box[1] / 2
        return PropertyCheck("violated", point, tuple(exact_outputs(layers, point)), 0, 0.0, False, box, question)
    if not conditions:
        return PropertyCheck("holds", None, None, 0, 0.0, False, box, question)
    whole = [condition.whole() for condition in conditions]
    rows = Layer(
        np.array([[float(a) for a in condition.coefficients] for condition in whole]),
        np.array([-_above(condition.bound) for condition in whole]),
        np.ones(len(conditions)),
    )
    if any(Fraction(float(a)) != a for condition in whole for a in condition.coefficients):
        raise LawfulError("a coefficient of the specification has too many digits for float64")
    margins = (*layers, rows)  # at most 0 where a condition holds
    ends = np.cumsum([0, *(len(case) for case in forbidden)])

    def cases(values: Floats) -> Floats:
        return np.column_stack([-values[:, start:end].max(axis=1) for start, end in pairwise(ends)])

    candidates = Candidates(*box, lambda points: cases(evaluate(margins, points)).max(axis=1, keepdims=True))
    rng, deadline = np.random.default_rng(seed), started + seconds
    found: list[Floats] = []

    def refuted() -> bool:
        point = candidates.points[-1]
        if candidates.values[-1] >= -1e-9 * max(1.0, abs(candidates.values[-1])) and not found:
            outputs = exact_outputs(layers, point)
            if any(all(condition.holds(outputs) for condition in case) for case in forbidden):
                found.append(point.copy())
        return bool(found)

    pair = align(silent(margins), margins)
    with workers(pair, scheduler, threads) as bounder:
        measure = Measure(lambda bounds: cases(bounds.low), lambda gaps: np.asarray(gaps.max(axis=1)), True)
        splitting = Splitting(*box, measure, bounder, boxes_together(pair))
        splitting.settle(-math.ulp(0.0))
        ended = "closed"
        if len(splitting.open.value):
            candidates.sample(rng, min(deadline, started + max(2.0, 0.1 * seconds)))
            ended = run(
                splitting,
                lambda: -math.ulp(0.0),
                refuted,
                candidates.offer,
                deadline,
                lambda: splitting.bounded > most_boxes,
            )
    closed = ended == "closed" and splitting.stuck == -math.inf
    status: Literal["holds", "violated", "undecided"] = "violated" if found else "holds" if closed else "undecided"
    witness = found[0] if found else None
    values = None if witness is None else tuple(exact_outputs(layers, witness))
    return PropertyCheck(
        status, witness, values, splitting.bounded, time.monotonic() - started, ended == "interrupted", box, question,
        tuple(splitting.preorder()),
    )  # fmt: skip


def forbidden_by(cases: Cases, outputs: int) -> list[list[Forbidden]]:
    """The conditions of a specification file about one network."""
    names = {name for case in cases for condition in case for name, _ in condition.terms}
    if len(names) > 1:
        raise LawfulError("the specification is about several networks: `lawful distance` compares two")
    found = []
    for case in cases:
        rows = []
        for terms, bound, strict in case:
            places = {place: size for (_, place), size in terms.items()}
            if any(place >= outputs for place in places):
                raise LawfulError(f"it is about output {max(places)}, but the network has {outputs}")
            rows.append(Forbidden(tuple(places.get(at, Fraction(0)) for at in range(outputs)), bound, strict))
        found.append(rows)
    return found


def _above(value: Fraction) -> float:
    """The least float that is at least a fraction: a larger half-space, so that excluding it excludes the other."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
