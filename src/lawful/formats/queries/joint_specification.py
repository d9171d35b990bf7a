"""A specification of several networks as one of the network that runs them side by side.

Its inputs X are those of all networks, where inputs that are asserted to be equal are one; its outputs Y are all
outputs, network after network. Nothing is added or lost: an input of the joint network is described if and only if the
inputs of the single ones are. Two forms are also recognised, since methods exist that decide them better: outputs that
differ by more than a number, and an output of one network that goes the wrong way as inputs grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming
from lawful.formats.queries.specification import Box, Disjunct, Specification, disjunct_of
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

Places = dict[Variable, int]


@dataclass(frozen=True)
class JointSpecification:
    """What a file about several networks forbids, as a specification of X and Y, and where its own variables are."""

    text: Text
    specification: Specification
    places: Places

    @property
    def input_places(self) -> Places:
        """Where the inputs of all networks are."""
        sides = {tensor.name: tensor.side for tensor in self.text.tensors.values()}
        return {variable: place for variable, place in self.places.items() if sides[variable.tensor] == "input"}

    @property
    def inputs(self) -> int:
        """How many there are together."""
        return int(self.specification.text.of("input")[0].size or 0)

    @property
    def outputs(self) -> int:
        """How many there are together."""
        return int(self.specification.text.of("output")[0].size or 0)

    def of(self, network: str, side: str) -> list[int]:
        """Which of the joint inputs, or outputs, those of one network are."""
        tensor = next(candidate for candidate in self.text.of(side) if candidate.network == network)
        return [self.places[Variable(tensor.name, place)] for place in range(int(tensor.size or 0))]

    def tolerance(self) -> Fraction | None:
        """A number such that nothing is described if two networks differ by at most that; None if none is seen.

        Every disjunct must ask that some output differs by *more* than a number, at one common input.
        """
        if len(self.text.networks) != 2:
            return None
        (f, g) = self.text.networks
        if self.of(f, "input") != self.of(g, "input"):
            return None
        least = []
        for _, conditions in self.specification.disjuncts:
            gaps = [-gap.bound for row in conditions if (gap := self._difference(row, "output")) and gap.strict]
            if max(gaps, default=Fraction(-1)) < 0:
                return None
            least.append(max(gaps))
        return min(least, default=None)

    def growth(self) -> tuple[dict[int, bool], tuple[int, ...]] | None:
        """Nothing is described if some outputs never fall (True), or rise, as some inputs grow, for one network twice.

        Every disjunct must order all inputs in which the two differ, and ask that an output is ordered otherwise.
        """
        if len(self.text.networks) != 2:
            return None
        sides = [self.of(name, "input") for name in self.text.networks]
        if len(sides[0]) != len(sides[1]):
            return None
        apart = [place for place, (one, other) in enumerate(zip(*sides, strict=True)) if one != other]
        directions: dict[int, bool] | None = None
        outputs: set[int] = set()
        for _, conditions in self.specification.disjuncts:
            below: dict[int, bool] = {}  # whether the first network's input is at most the second's
            wrong: tuple[int, bool] | None = None  # an output, and whether the first network's is below the second's
            for row in conditions:
                if (order := self._difference(row, "input")) is not None and order.bound <= 0:
                    below[order.place] = order.first_is_less
                gap = self._difference(row, "output")
                if gap is not None and (gap.bound < 0 or (gap.strict and gap.bound == 0)):
                    wrong = gap.place, gap.first_is_less
            if wrong is None or set(apart) - set(below):
                return None
            # f(x) < f(x') is wrong where x >= x' and outputs must not fall, or x <= x' and they must not rise.
            rising = {place: below[place] != wrong[1] for place in apart}
            if directions is not None and directions != rising:
                return None
            directions = rising
            outputs.add(wrong[0])
        return (directions, tuple(sorted(outputs))) if directions else None

    def _difference(self, row: Condition, side: str) -> _Difference | None:
        """`first - second <= bound`, or `second - first <= bound`, of one place of two networks."""
        if len(row.terms) != 2 or sum(row.terms.values(), Fraction(0)):
            return None
        first, second = (self.of(name, side) for name in self.text.networks)
        tensor = self.specification.text.of(side)[0].name
        for place, ends in enumerate(zip(first, second, strict=False)):
            one, other = (Variable(tensor, end) for end in ends)
            if {one, other} == set(row.terms):
                return _Difference(place, row.terms[one] > 0, row.bound / abs(row.terms[one]), row.strict)
        return None


@dataclass(frozen=True)
class _Difference:
    place: int
    first_is_less: bool
    bound: Fraction
    strict: bool


def join(specification: Specification) -> JointSpecification:
    """The question about the joint network; tensors have the sizes that the file declares."""
    text = specification.text
    networks = text.networks
    for relation in (text.equal, text.isomorphic):
        for name, other in relation.items():
            for side in ("input", "output"):
                sizes = [tensor.size for tensor in text.of(side) if tensor.network in (name, other)]
                if sizes[0] != sizes[1]:
                    raise LawfulError(f"{name[:40]} and {other[:40]} have {sizes[1]} and {sizes[0]} {side}s")
    same = _equal_inputs(specification)
    places: Places = {}
    counts = {"input": 0, "output": 0}
    for network in networks:
        for tensor in (candidate for candidate in text.tensors.values() if candidate.network == network):
            for place in range(int(tensor.size or 0)):
                variable = Variable(tensor.name, place)
                if (first := same.get(variable, variable)) != variable:
                    places[variable] = places[first]
                else:
                    places[variable] = counts[tensor.side]
                    counts[tensor.side] += 1
    joint = Text(
        {
            "X": DeclaredTensor("X", "joint", "input", (counts["input"],)),
            "Y": DeclaredTensor("Y", "joint", "output", (counts["output"],)),
        },
        {},
        {},
        [],
    )
    names = {
        variable: Variable("X" if text.tensors[variable.tensor].side == "input" else "Y", place)
        for variable, place in places.items()
    }
    renamed = [_rename_variables(disjunct, names, joint) for disjunct in specification.disjuncts]
    disjuncts = tuple(disjunct for disjunct in renamed if disjunct is not None)
    dropped = specification.contradictory + len(renamed) - len(disjuncts)
    return JointSpecification(text, Specification(joint, disjuncts, dropped), places)


def _equal_inputs(specification: Specification) -> dict[Variable, Variable]:
    """The first of the inputs of several networks that every disjunct asserts to be equal, for each of the others."""
    text = specification.text
    order = [
        Variable(tensor.name, place)
        for network in text.networks
        for tensor in text.of("input")
        if tensor.network == network
        for place in range(int(tensor.size or 0))
    ]
    asserted: set[frozenset[Variable]] | None = None
    for _, conditions in specification.disjuncts:
        rows = {
            (next(v for v, a in row.terms.items() if a > 0), next(v for v, a in row.terms.items() if a < 0))
            for row in conditions
            if len(row.terms) == 2 and not sum(row.terms.values(), Fraction(0)) and not row.bound and not row.strict
        }
        pairs = {
            frozenset(pair)
            for pair in rows
            if pair[::-1] in rows and all(text.tensors[variable.tensor].side == "input" for variable in pair)
        }
        asserted = pairs if asserted is None else asserted & pairs
    known = set(order)
    first = {variable: variable for variable in order}
    for one, other in sorted(map(sorted, asserted or ())):  # in a fixed order: who verifies joins them again
        if one in known and other in known:
            ends = sorted({first[one], first[other]}, key=order.index)
            tensors = [variable.tensor for variable, end in first.items() if end in ends]
            # Two inputs of one network stay two, and that they are equal a condition: a graph has no edge twice.
            if len(ends) == 2 and len(set(tensors)) == len(tensors):
                first = {variable: ends[0] if end == ends[1] else end for variable, end in first.items()}
    return {variable: end for variable, end in first.items() if variable != end}


def _rename_variables(disjunct: Disjunct, names: dict[Variable, Variable], text: Text) -> Disjunct | None:
    """The same in joint variables, with bounds of inputs that follow from others."""
    case: Case = []
    for row in (*_bounds(disjunct.box), *disjunct.conditions):
        terms: dict[Variable, Fraction] = {}
        for variable, factor in row.terms.items():
            terms[names[variable]] = terms.get(names[variable], Fraction(0)) + factor
        case.append(Condition({key: factor for key, factor in terms.items() if factor}, row.bound, row.strict))
    joined = disjunct_of(case, text, {}, [])
    if joined is None:
        return None
    implied = _implications(joined)
    return disjunct_of([*_bounds(joined.box), *implied, *joined.conditions], text, {}, []) if implied else joined


def _bounds(box: Box) -> Iterable[Condition]:
    for variable, side in box.items():
        if side.low is not None:
            yield Condition({variable: Fraction(-1)}, -side.low, side.open_low)
        if side.high is not None:
            yield Condition({variable: Fraction(1)}, side.high, side.open_high)


def _implications(disjunct: Disjunct) -> Case:
    """Bounds that inputs lack and that follow from `a x + b x' <= c` and a bound of the other."""
    ends: dict[Variable, list[Fraction | None]] = {
        variable: [side.low, side.high] for variable, side in disjunct.box.items()
    }
    rows = [
        row
        for row in disjunct.conditions
        if len(row.terms) == 2 and {variable.tensor for variable in row.terms} == {"X"}
    ]
    implied: Case = []
    for _ in range(len(rows)):  # each pass but the last finds at least one
        before = len(implied)
        for row in rows:
            for one, other in (pair[::way] for pair in combinations(row.terms, 2) for way in (1, -1)):
                factor, against = row.terms[one], row.terms[other]
                least = ends.get(other, [None, None])[0 if against > 0 else 1]
                mine = ends.setdefault(one, [None, None])
                side = 1 if factor > 0 else 0
                if least is not None and mine[side] is None:
                    end = mine[side] = (row.bound - against * least) / factor
                    sign = Fraction(1 if side else -1)
                    implied.append(Condition({one: sign}, sign * end, False))
        if len(implied) == before:
            break
    return implied


Cases = list[Case]  # one of the cases, with all its conditions


class Equivalence(NamedTuple):
    """A specification that two networks agree within a number, and what the file literally describes."""

    within: Fraction
    literally: str


def equivalence(path: Path) -> Equivalence | None:
    """The tolerance of a specification that compares two networks output by output, if it is one.

    Files differ in polarity: some describe inputs at which the outputs differ by more, some those at which they do
    not, and some contradict themselves. All of them are about the question whether `|g − f|` is at most a number.
    """
    with naming(path):
        text = read_vnnlib(path)
        if len(text.networks) != 2:
            return None
        formula = normal_form(text, [form for form in text.asserted if mentions(form, text, "output")])
    cases = [[*formula.shared, *case] for case in formula.cases]
    conditions = [condition for case in cases for condition in case]
    if not conditions or any(sorted(condition.terms.values()) != [-1, 1] for condition in conditions):
        return None
    if any(len({variable.place for variable in condition.terms}) != 1 for condition in conditions):
        return None
    if any(text.tensors[variable.tensor].side != "output" for condition in conditions for variable in condition.terms):
        return None
    sizes = {abs(condition.bound) for condition in conditions}
    if len(sizes) != 1:
        return None
    within = next(iter(sizes))
    if all(condition.bound == within for condition in conditions):
        return Equivalence(within, "inputs at which all outputs differ by at most that")
    pairs = [{(frozenset(condition.terms.items()), condition.bound) for condition in case} for case in cases]
    opposite = any(
        (frozenset((name, -size) for name, size in terms), bound) in case for case in pairs for terms, bound in case
    )
    words = "nothing: its conditions contradict each other" if opposite else "inputs at which outputs differ by more"
    return Equivalence(within, words)
