"""A specification: unions of boxes of inputs with linear conditions, which describe what must *not* occur.

Bounds of single inputs make a box, all other conditions are rows over outputs, or over inputs and outputs together.
Numbers are exact; `outward` rounds a box to float64 so that it contains the one that was written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming
from lawful.formats.queries.vnnlib import (
    Case,
    Condition,
    DeclaredTensor,
    Text,
    Variable,
    mentions,
    normal_form,
    read_vnnlib,
)
from lawful.types import Floats


class InputRange(NamedTuple):
    """Where one input may be; None is no bound, and an open end is not in it."""

    low: Fraction | None = None
    high: Fraction | None = None
    open_low: bool = False
    open_high: bool = False

    def cut(self, other: InputRange) -> InputRange:
        """The common part."""
        low, open_low = _inner(self.low, self.open_low, other.low, other.open_low, 1)
        high, open_high = _inner(self.high, self.open_high, other.high, other.open_high, -1)
        return InputRange(low, high, open_low, open_high)

    def holds(self, value: Fraction) -> bool:
        """Whether a number is in it."""
        above = self.low is None or value > self.low or (value == self.low and not self.open_low)
        return above and (self.high is None or value < self.high or (value == self.high and not self.open_high))

    @property
    def is_empty(self) -> bool:
        """Whether no number is in it."""
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.open_low or self.open_high))


def _inner(
    one: Fraction | None, open_one: bool, two: Fraction | None, open_two: bool, sign: int
) -> tuple[Fraction | None, bool]:
    if one is None or two is None:
        return (two, open_two) if one is None else (one, open_one)
    if one == two:
        return one, open_one or open_two
    return (one, open_one) if sign * one > sign * two else (two, open_two)


Box = Mapping[Variable, InputRange]


class Disjunct(NamedTuple):
    """A box and conditions, all of which hold together."""

    box: Box
    conditions: tuple[Condition, ...]

    def holds(self, values: Mapping[Variable, Fraction]) -> bool:
        """Whether numbers are what it describes, exactly."""
        inside = all(interval.holds(values[variable]) for variable, interval in self.box.items())
        return inside and all(condition.holds(values) for condition in self.conditions)


@dataclass(frozen=True)
class Specification:
    """What must not occur: one of the disjuncts. Those that contradict themselves are left out and counted."""

    text: Text
    disjuncts: tuple[Disjunct, ...]
    contradictory: int

    def holds(self, values: Mapping[Variable, Fraction]) -> bool:
        """Whether numbers are what the file describes, exactly."""
        return any(disjunct.holds(values) for disjunct in self.disjuncts)

    def describes(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        """The same of all inputs and outputs of the one network that it is about."""
        sides = zip((self.text.of(side)[0].name for side in ("input", "output")), (x, y), strict=True)
        return self.holds(
            {Variable(name, place): value for name, values in sides for place, value in enumerate(values)}
        )


class ForbiddenHalfSpace(NamedTuple):
    """`Σ outputs · y + Σ inputs · x ≤ bound`, without its boundary if strict; `inputs` is empty where none counts."""

    outputs: tuple[Fraction, ...]
    inputs: tuple[Fraction, ...]
    bound: Fraction
    strict: bool

    def holds(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        """Whether an input and its outputs lie in it, exactly."""
        total = sum((a * v for a, v in zip(self.outputs, y, strict=True) if a), Fraction(0))
        total += sum((a * v for a, v in zip(self.inputs, x, strict=False) if a), Fraction(0))
        return total < self.bound if self.strict else total <= self.bound

    def whole(self) -> ForbiddenHalfSpace:
        """The same half-space with whole coefficients."""
        scale = math.lcm(*(a.denominator for a in (*self.outputs, *self.inputs)))
        return ForbiddenHalfSpace(
            tuple(a * scale for a in self.outputs),
            tuple(a * scale for a in self.inputs),
            self.bound * scale,
            self.strict,
        )


class ForbiddenRegion(NamedTuple):
    """A box, exactly, and the cases that are forbidden on it."""

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    forbidden: tuple[tuple[ForbiddenHalfSpace, ...], ...]

    def outward(self) -> tuple[Floats, Floats]:
        """The least box of doubles that contains it."""
        return np.array([below(end) for end in self.low]), np.array([above(end) for end in self.high])

    def move_inside(self, point: Floats) -> tuple[Fraction, ...]:
        """The input, moved to the exact end where rounding outward let it leave the box; that may be no double."""
        ends = zip(point, self.low, self.high, strict=True)
        return tuple(min(max(Fraction(float(value)), low), high) for value, low, high in ends)

    def holds(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        """Whether an input is in it and leads into one of its cases, exactly."""
        inside = all(low <= value <= high for low, value, high in zip(self.low, x, self.high, strict=True))
        return inside and any(all(space.holds(x, y) for space in case) for case in self.forbidden)


def read_specification(path: Path) -> Specification:
    """What a `.vnnlib` or `.vnnlib.gz` file forbids."""
    with naming(path):
        return specification_of(read_vnnlib(path))


def specification_of(text: Text) -> Specification:
    """The disjuncts of a parsed file."""
    formula = normal_form(text, text.asserted)
    common, rows = _split(formula.shared, {}, text)
    disjuncts = [disjunct_of(case, text, common, rows) for case in formula.cases]
    consistent = tuple(disjunct for disjunct in disjuncts if disjunct is not None)
    return Specification(text, consistent, len(disjuncts) - len(consistent))


def disjunct_of(case: Case, text: Text, box: Box, rows: Case) -> Disjunct | None:
    """All of a case, and a box and rows that it shares with others; None if that contradicts itself."""
    # Only new bounds can empty a box whose shared part is not empty, but the shared part may be.
    box, further = _split(case, box, text)
    conditions = tuple(condition for condition in (*rows, *further) if condition.terms)
    false = any(not condition.terms and not condition.holds({}) for condition in (*rows, *further))
    return None if false or _is_empty(box) or _contradict(conditions) else Disjunct(box, conditions)


def _split(case: Case, box: Box, text: Text) -> tuple[Box, Case]:
    """The box with the bounds of single inputs, the same object if there are none, and the other conditions."""
    cut: dict[Variable, InputRange] = {}
    rows = []
    for condition in case:
        if len(condition.terms) == 1 and text.tensors[(variable := next(iter(condition.terms))).tensor].side == "input":
            factor = condition.terms[variable]
            end = condition.bound / factor
            side = (
                InputRange(high=end, open_high=condition.strict)
                if factor > 0
                else InputRange(end, None, condition.strict)
            )
            cut[variable] = cut.get(variable, InputRange()).cut(side)
        else:
            rows.append(condition)
    if not cut:
        return box, rows
    return {**box, **{key: side.cut(box.get(key, InputRange())) for key, side in cut.items()}}, rows


def _is_empty(box: Box) -> bool:
    return any(interval.is_empty for interval in box.values())


def _contradict(conditions: Iterable[Condition]) -> bool:
    """Whether two of them exclude each other: `a ≤ b` and `-a ≤ c` with `b + c < 0`."""
    least: dict[frozenset[tuple[Variable, Fraction]], tuple[Fraction, bool]] = {}
    for condition in conditions:
        lead = abs(condition.terms[min(condition.terms)])
        key = frozenset((variable, factor / lead) for variable, factor in condition.terms.items())
        new = condition.bound / lead, not condition.strict  # a strict one of the same bound is the smaller set
        least[key] = min(least.get(key, new), new)
    for key, (bound, closed) in least.items():
        other = least.get(frozenset((variable, -factor) for variable, factor in key))
        if other is not None and (bound + other[0] < 0 or (bound + other[0] == 0 and not (closed and other[1]))):
            return True
    return False


def regions(specification: Specification, inputs: int, outputs: int) -> list[ForbiddenRegion]:
    """The disjuncts about one network by their boxes; every input needs finite bounds in each of them."""
    text = specification.text
    if len(text.networks) > 1:
        names = ", ".join(text.networks)
        raise LawfulError(f"the specification is about the networks {names[:80]}: give a file for each")
    for tensor, count in ((text.of("input")[0], inputs), (text.of("output")[0], outputs)):
        _check_size(tensor, count, specification)
    X, Y = (text.of(side)[0].name for side in ("input", "output"))
    boxes: dict[tuple[tuple[Fraction, ...], tuple[Fraction, ...]], list[tuple[ForbiddenHalfSpace, ...]]] = {}
    ends: dict[int, tuple[tuple[Fraction, ...], tuple[Fraction, ...]]] = {}
    for box, conditions in specification.disjuncts:
        # Disjuncts that share their bounds share the object: a thousand cases about one picture are one box.
        if id(box) not in ends:
            low: list[Fraction] = []
            high: list[Fraction] = []
            for place in range(inputs):
                side = box.get(Variable(X, place), InputRange())
                if side.low is None or side.high is None:
                    raise LawfulError(f"input {place} has no lower and upper bound")
                low.append(side.low)
                high.append(side.high)
            ends[id(box)] = tuple(low), tuple(high)
        case = tuple(_half_space(condition, X, inputs, Y, outputs) for condition in conditions)
        boxes.setdefault(ends[id(box)], []).append(case)
    return [ForbiddenRegion(*sides, tuple(cases)) for sides, cases in boxes.items()]


def _half_space(condition: Condition, X: str, inputs: int, Y: str, outputs: int) -> ForbiddenHalfSpace:
    terms, bound, strict = condition
    on_outputs, on_inputs = (
        tuple(terms.get(Variable(name, place), Fraction(0)) for place in range(count))
        for name, count in ((Y, outputs), (X, inputs))
    )
    return ForbiddenHalfSpace(on_outputs, on_inputs if any(on_inputs) else (), bound, strict)


def _check_size(tensor: DeclaredTensor, count: int, specification: Specification) -> None:
    used = [
        variable.place
        for box, conditions in specification.disjuncts
        for variable in (*box, *(variable for condition in conditions for variable in condition.terms))
        if variable.tensor == tensor.name
    ]
    if max(used, default=0) >= count:
        raise LawfulError(f"it is about {tensor.side} {max(used)}, but the network has {count} {tensor.side}s")
    if tensor.size is not None and tensor.size != count:
        raise LawfulError(f"it declares {tensor.size} {tensor.side}s, but the network has {count} {tensor.side}s")


def input_bounds(path: Path, inputs: int) -> tuple[Floats, Floats]:
    """The box of inputs that a file describes, whatever it says of outputs, rounded outward.

    A file about several networks is read if it asserts that they get the same input.
    """
    with naming(path):
        text = read_vnnlib(path)
        formula = normal_form(text, [form for form in text.asserted if mentions(form, text, "input")])
        about = [
            _split([condition for condition in case if not _only_outputs(condition, text)], {}, text)
            for case in ([*formula.shared, *case] for case in formula.cases)
        ]
        names = [tensor.name for tensor in text.of("input")]
        if any(box != about[0][0] for box, _ in about):
            raise LawfulError(f"an `or` on inputs: a union of {len(about)} boxes is not a box")
        if not about:
            raise LawfulError("an `or` without alternatives is not a box")
        every = [_sides(box, rows, names, inputs) for box, rows in about]  # refuses what is no box in any of them
        sides = every[0]
    return np.array([below(low) for low, _ in sides]), np.array([above(high) for _, high in sides])


def _only_outputs(condition: Condition, text: Text) -> bool:
    return all(text.tensors[variable.tensor].side == "output" for variable in condition.terms)


def _sides(box: Box, rows: Case, names: list[str], inputs: int) -> list[tuple[Fraction, Fraction]]:
    """The bounds of every input, which all networks share."""
    strays = [variable for variable in (*box, *(key for row in rows for key in row.terms)) if variable.place >= inputs]
    for variable in strays:
        if variable.tensor in names:
            raise LawfulError(f"it bounds {variable}, but the network has {inputs} inputs")
    stated = {(row.bound, row.strict, frozenset(row.terms.items())) for row in rows}
    equal = set()
    for row in rows:
        back = frozenset((variable, -factor) for variable, factor in row.terms.items())
        places, values = {variable.place for variable in row.terms}, sorted(row.terms.values())
        if row.bound or row.strict or len(places) != 1 or values != [-1, 1] or (Fraction(0), False, back) not in stated:
            words = " and ".join(map(str, row.terms))
            raise LawfulError(f"a condition on {words} together is not a box")
        equal.add((frozenset(variable.tensor for variable in row.terms), places.pop()))
    for name in names[1:]:
        if not all((frozenset({names[0], name}), place) in equal for place in range(inputs)):
            raise LawfulError(f"the inputs {', '.join(names)} are not asserted to be equal: a box is about one input")
    bounds = []
    for place in range(inputs):
        side = InputRange()
        for name in names:
            side = side.cut(box.get(Variable(name, place), InputRange()))
        if side.low is None or side.high is None:
            raise LawfulError(f"input {place} has no lower and upper bound")
        bounds.append((side.low, side.high))
    return bounds


def below(value: Fraction) -> float:
    """The largest double that is at most a fraction.

    >>> below(Fraction("0.7")) < Fraction("0.7") <= above(Fraction("0.7")), below(Fraction(1, 2))
    (True, 0.5)
    """
    # The nearest double may lie on either side; the next one down cannot lie above.
    near = _nearest(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def above(value: Fraction) -> float:
    """The least double that is at least a fraction."""
    return -below(-value)


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise LawfulError("a bound of the specification is larger than doubles can be") from None
