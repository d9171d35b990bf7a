"""What a VNN-LIB file asserts, as a disjunction of conjunctions of linear conditions, all in exact rationals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

from lawful.errors import LawfulError
from lawful.formats.queries.vnnlib import Text, Variable

MOST_CASES = 1000  # that multiplying out may make; a union that the file itself writes out may be longer
LONGEST_NUMBER = 400  # characters: a double has at most 326 digits before its point
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
RATIO = re.compile(r"[+-]?\d+/\d+")
COMPARISONS = ("<=", ">=", "<", ">", "==", "=", "!=")
Terms = dict[Variable, Fraction]


class Condition(NamedTuple):
    """`Σ coefficient · variable ≤ bound`, or `<` if strict; no coefficient is zero."""

    terms: Terms
    bound: Fraction
    strict: bool

    def holds(self, values: Mapping[Variable, Fraction]) -> bool:
        """Whether it is true, exactly."""
        total = sum((factor * values[variable] for variable, factor in self.terms.items()), Fraction(0))
        return total < self.bound if self.strict else total <= self.bound

    def __str__(self) -> str:
        terms = [f"{'' if factor == 1 else f'{factor}·'}{variable}" for variable, factor in self.terms.items()]
        return f"{' + '.join(terms) or '0'} {'<' if self.strict else '<='} {self.bound}"


Case = list[Condition]


class Formula(NamedTuple):
    """All of the shared conditions, and all of one of the cases."""

    shared: Case
    cases: list[Case]


def normal_form(text: Text, asserted: Iterable[Any]) -> Formula:
    """The conjunction of assertions; conditions that all cases share, such as 6,000 bounds of pixels, stand once."""
    return _conjoin(_cases(form, text) for form in asserted)


def mentions(form: Any, text: Text, side: str) -> bool:
    """Whether an input, or an output, occurs in a form."""
    if isinstance(form, list):
        return any(mentions(part, text, side) for part in form)
    variable = None if form in COMPARISONS else text.variable(form)
    return variable is not None and text.tensors[variable.tensor].side == side


def _conjoin(parts: Iterable[list[Case]]) -> Formula:
    shared: Case = []
    alternatives: list[Case] = [[]]
    for cases in parts:
        if len(cases) == 1:
            shared += cases[0]
        else:
            if len(alternatives) > 1 and len(alternatives) * len(cases) > MOST_CASES:
                raise LawfulError(f"more than {MOST_CASES} cases if its `or`s are multiplied out")
            alternatives = [[*first, *second] for first, second in product(alternatives, cases)]
    return Formula(shared, alternatives)


def _cases(form: Any, text: Text) -> list[Case]:
    if not isinstance(form, list) or not form:
        raise LawfulError(f"{str(form)[:40]!r} is no condition")
    head = form[0]
    if head == "and":
        formula = _conjoin(_cases(part, text) for part in form[1:])
        return [[*formula.shared, *case] for case in formula.cases]
    if head == "or":
        return [case for part in form[1:] for case in _cases(part, text)]
    operator, left, right = _comparison(form)
    terms, constant = _difference(_linear(left, text), _linear(right, text))  # left - right
    negated = {key: -factor for key, factor in terms.items()}
    strict = operator in ("<", ">", "!=")
    below, above = Condition(terms, -constant, strict), Condition(negated, constant, strict)
    if operator in ("<=", "<"):
        return [[below]]
    if operator in (">=", ">"):
        return [[above]]
    return [[below], [above]] if operator == "!=" else [[below, above]]


def _comparison(form: list[Any]) -> tuple[str, Any, Any]:
    """`(<= a b)`; public files also write `(a < b)` and `(<= (a b))`."""
    head = form[0]
    if head not in COMPARISONS and len(form) == 3 and form[1] in COMPARISONS:
        return form[1], head, form[2]
    if head in COMPARISONS and len(form) == 2 and isinstance(form[1], list) and len(form[1]) == 2:
        first = form[1][0]
        if not (isinstance(first, str) and first in ("+", "-", "*", "/")):
            return head, form[1][0], form[1][1]
    if head not in COMPARISONS:
        known = ", ".join(("and", "or", *COMPARISONS))
        raise LawfulError(f"{str(head)[:20]!r} is no condition that is understood: {known} are")
    if len(form) != 3:
        raise LawfulError(f"{head} compares two expressions, not {len(form) - 1}")
    return head, form[1], form[2]


def _linear(form: Any, text: Text) -> tuple[Terms, Fraction]:
    """A linear expression: terms and a constant."""
    if isinstance(form, str):
        variable = text.variable(form)
        return ({}, read_number(form)) if variable is None else ({variable: Fraction(1)}, Fraction(0))
    head, parts = (form[0], [_linear(part, text) for part in form[1:]]) if form else ("", [])
    if head == "+" and parts:
        total: tuple[Terms, Fraction] = ({}, Fraction(0))
        for part in parts:
            total = _difference(total, _scale(part, Fraction(-1)))
        return total
    if head == "-" and parts:
        first, *rest = parts
        if not rest:
            return _scale(first, Fraction(-1))
        for part in rest:
            first = _difference(first, part)
        return first
    if head == "*" and parts:
        result: tuple[Terms, Fraction] = ({}, Fraction(1))
        for part in parts:
            if result[0] and part[0]:
                names = [str(next(iter(factor[0]))) for factor in (result, part)]
                raise LawfulError(f"the product of {names[0]} and {names[1]} is not linear")
            result = _scale(part, result[1]) if part[0] else _scale(result, part[1])
        return result
    if head == "/" and len(parts) == 2 and not parts[1][0] and parts[1][1]:
        return _scale(parts[0], 1 / parts[1][1])
    raise LawfulError(f"{str(head)[:20]!r} makes no linear expression: +, - and * by numbers do")


def _scale(part: tuple[Terms, Fraction], factor: Fraction) -> tuple[Terms, Fraction]:
    return {key: factor * value for key, value in part[0].items() if factor}, factor * part[1]


def _difference(one: tuple[Terms, Fraction], other: tuple[Terms, Fraction]) -> tuple[Terms, Fraction]:
    terms = dict(one[0])
    for key, value in other[0].items():
        terms[key] = terms.get(key, Fraction(0)) - value
    return {key: value for key, value in terms.items() if value}, one[1] - other[1]


def read_number(word: str) -> Fraction:
    """A decimal or a ratio, exactly as it is written.

    >>> read_number("-1.5e-3"), read_number("1/3")
    (Fraction(-3, 2000), Fraction(1, 3))
    """
    if len(word) <= LONGEST_NUMBER and (NUMBER.fullmatch(word) or (RATIO.fullmatch(word) and int(word.split("/")[1]))):
        return Fraction(word)
    raise LawfulError(f"{word[:40]!r} is neither an output nor a number, nor an input")
