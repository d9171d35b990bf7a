"""Sums of a module's parameters that no sample of a data set moves: linear laws, exact over the rationals.

On given inputs, with the sides of all choices fixed, many arrays of a program are linear in the parameters, up to
constants: a first layer, the sum of two, a bias before a norm's mean. The output depends on the parameters through the
linear forms that enter something else, a product of two such arrays or a function. A sum Σ aᵢθᵢ on which all these
forms vanish as vectors, ⟨form, a⟩ = 0, is conserved: the output does not change along a.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import flint
import numpy as np

from lawful.conservation.known.law import Law
from lawful.conservation.regions.module_data import SeenData
from lawful.program.core.steps import FUNCTIONS, ONE, STEPS
from lawful.program.core.straight_line import ProgramStep, StraightLineProgram

Form = dict[int, Any]  # parameter: coefficient
Value = Any  # a fmpq (a constant), a Form (linear, up to a constant), or OPAQUE
MOST_WORK = 2_000_000  # products of entries, over all samples
MOST_DIGITS = 4e6
OPAQUE = None


def still_laws(program: StraightLineProgram, seen: SeenData) -> list[Law]:
    """A basis of the linear laws that the samples leave, found as above; none where that would take too long.

    >>> from lawful.program.core.straight_line import Writer
    >>> write = Writer(4, 2)  # two weights from the inputs, a bias, and an outer weight
    >>> first = write.matmul(write.take((0,), np.array([0, 1])), 1, (1, 1, 2, 1))
    >>> hidden = write.pair("add", first, write.take((0,), np.array([2])))
    >>> program = write.finish(write.pair("mul", write.function("erf", hidden), write.take((0,), np.array([3]))))
    >>> [law.terms for law in still_laws(program, SeenData(np.array([[2.0, 3.0], [4.0, 6.0]]), {}))]
    [{(0,): Fraction(-3, 1), (1,): Fraction(2, 1)}]
    """
    work = sum(np.prod(step.sizes) if step.kind == "matmul" else step.length for step in program.steps)
    if work * len(seen.inputs) > MOST_WORK:
        return []
    forms: dict[tuple[tuple[int, Any], ...], Form] = {}
    for row in range(len(seen.inputs)):
        for form in _Sample(program, seen, row).felt():
            lead = form[min(form)]
            scaled = {place: factor / lead for place, factor in form.items()}
            forms[tuple(sorted((place, (factor.p, factor.q)) for place, factor in scaled.items()))] = scaled
    return [
        Law("still", (), {(place,): factor for place, factor in sorted(law.items())})
        for law in _null_space(list(forms.values()), program.parameters)
    ]


class _Sample:
    """One input: every entry of every array as a constant, a linear form of the parameters, or neither."""

    def __init__(self, program: StraightLineProgram, seen: SeenData, row: int) -> None:
        self.steps = program.steps
        self.gates = {number: gates[row] for number, gates in seen.gates.items()}
        self.values: list[list[Value]] = []
        self.terms = [
            STEPS[step.kind].terms(step, [self.steps[source].length for source in step.sources], self.gates.get(number))
            if step.sources
            else None
            for number, step in enumerate(self.steps)
        ]
        self.entering: dict[tuple[int, int], list[Form]] = {}  # what an entry that is neither depends on
        for number, step in enumerate(self.steps):
            if step.kind == "parameters":
                self.values.append([{place: flint.fmpq(1)} for place in range(step.length)])
            elif step.kind == "input":
                self.values.append(_constants(seen.inputs[row].tolist()))
            elif step.values is not None:
                self.values.append(_constants(step.values.tolist()))
            else:
                entries = self._entries(number, step)
                self.values.append([self._merged(number, place, terms) for place, terms in enumerate(entries)])

    def _entries(self, number: int, step: ProgramStep) -> Iterator[list[tuple[Value, Value]]]:
        """For each entry the products that it is the sum of."""
        whole = [value for source in step.sources for value in self.values[source]] + [flint.fmpq(1), flint.fmpq(0)]
        terms = self.terms[number]
        if terms is not None:
            for first, second in zip(terms.first.tolist(), terms.second.tolist(), strict=True):
                yield [(whole[a], whole[b]) for a, b in zip(first, second, strict=True)]
        elif FUNCTIONS[step.kind].rational:
            yield from ([(whole[ONE], _inverse(x))] if _is_known(x) else [(OPAQUE, x)] for x in whole[:-2])
        else:  # a function of 0 need not be 0
            yield from ([(OPAQUE, OPAQUE if _is_known(x) else x)] for x in whole[:-2])

    def _merged(self, number: int, place: int, terms: Sequence[tuple[Value, Value]]) -> Value:
        """The sum of products: linear if every one is; else what is linear in it enters something that is not."""
        total, opaque = flint.fmpq(0), False
        linear: Form = {}
        entering: list[Form] = []
        for a, b in terms:
            if (_is_known(a) and a == 0) or (_is_known(b) and b == 0):
                continue
            if _is_known(a) and _is_known(b):
                total += a * b
            elif (_is_known(a) and isinstance(b, dict)) or (_is_known(b) and isinstance(a, dict)):
                factor, form = (a, b) if isinstance(b, dict) else (b, a)
                for at, value in form.items():
                    linear[at] = linear.get(at, flint.fmpq(0)) + factor * value
            else:
                opaque = True
                entering += [part for part in (a, b) if isinstance(part, dict)]
        linear = {at: value for at, value in linear.items() if value != 0}
        if not opaque:
            return linear or total
        self.entering[number, place] = entering + ([linear] if linear else [])
        return OPAQUE

    def felt(self) -> Iterator[Form]:
        """The forms that reach an output."""
        read = [np.zeros(step.length, dtype=bool) for step in self.steps]
        read[-1][:] = True
        for number in range(len(self.steps) - 1, 1, -1):
            step = self.steps[number]
            for place in np.flatnonzero(read[number]):
                yield from self.entering.get((number, int(place)), ())
            if read[number].any():
                self._mark_read(number, step, read)
        yield from (value for value in self.values[-1] if isinstance(value, dict))

    def _mark_read(self, number: int, step: ProgramStep, read: list[Any]) -> None:
        """Mark what the read entries of a step are made of; a factor of 0 hides the other."""
        here, terms = read[number], self.terms[number]
        if terms is None:
            for source in step.sources:  # a function of one array, or a leaf
                read[source] |= here
            return
        nonzero = np.concatenate([*(~self._zero(source) for source in step.sources), [True, False]])
        marked = np.zeros(len(nonzero), dtype=bool)
        for one, other in ((terms.first[here], terms.second[here]), (terms.second[here], terms.first[here])):
            marked[one[nonzero[other]]] = True
        start = 0
        for source in step.sources:
            read[source] |= marked[start : start + self.steps[source].length]
            start += self.steps[source].length

    def _zero(self, number: int) -> Any:
        return np.array([_is_known(value) and value == 0 for value in self.values[number]], dtype=bool)


def _is_known(value: Value) -> bool:
    return isinstance(value, flint.fmpq)


def _inverse(value: Any) -> Value:
    return OPAQUE if value == 0 else 1 / value


def _constants(values: Iterable[float]) -> list[Value]:
    return [flint.fmpq(*float(value).as_integer_ratio()) for value in values]


def _null_space(forms: Sequence[Form], size: int) -> Iterator[dict[int, Fraction]]:
    """Vectors on which all forms vanish, a basis, one set of parameters that share forms after another."""
    owner = list(range(size))

    def root(place: int) -> int:
        while owner[place] != place:
            owner[place] = owner[owner[place]]
            place = owner[place]
        return place

    for form in forms:
        first, *rest = form
        for place in rest:
            owner[root(place)] = root(first)
    groups: dict[int, tuple[list[int], list[Form]]] = {}
    for place in range(size):
        groups.setdefault(root(place), ([], []))[0].append(place)
    for form in forms:
        groups[root(next(iter(form)))][1].append(form)
    for places, rows in groups.values():
        yield from _one_null_space(places, rows)


def _one_null_space(places: Sequence[int], forms: Sequence[Form]) -> Iterator[dict[int, Fraction]]:
    if not forms:
        yield from ({place: Fraction(1)} for place in places)
        return
    if len(forms) * len(places) ** 2 > MOST_DIGITS:
        return
    zero = flint.fmpq(0)
    reduced, rank = flint.fmpq_mat([[form.get(place, zero) for place in places] for form in forms]).rref()
    pivots = [next(c for c in range(len(places)) if reduced[r, c] != 0) for r in range(rank)]
    for free in sorted(set(range(len(places))) - set(pivots)):
        entries = {places[free]: Fraction(1)}
        for row, pivot in enumerate(pivots):
            if reduced[row, free] != 0:
                entries[places[pivot]] = -Fraction(int(reduced[row, free].p), int(reduced[row, free].q))
        scale = lcm(*(value.denominator for value in entries.values()))
        yield {place: value * scale for place, value in entries.items()}
