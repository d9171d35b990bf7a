"""What a VNN-LIB specification asserts of outputs: linear conditions, joined by `and` and `or`.

The convention of the format: the file describes inputs that should *not* exist. `Y_2` is an output in version 1.0,
`Y[0,2]` in version 2.0, where tensors of outputs are declared per network.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from lawful.errors import LawfulError
from lawful.network.formats.reading import naming, read_text
from lawful.network.formats.vnnlib import forms

MOST_CASES = 1000
Terms = dict[tuple[str, int], Fraction]  # coefficient of each output: name of its tensor, flat place
Shapes = dict[str, tuple[int, ...]]


class Condition(NamedTuple):
    """`Σ coefficient · output ≤ bound`, or `<` if strict."""

    terms: Terms
    bound: Fraction
    strict: bool


Cases = list[list[Condition]]  # one of the cases, with all its conditions


class Equivalence(NamedTuple):
    """A specification that two networks agree within a number, and what the file literally describes."""

    within: Fraction
    literally: str


def output_cases(path: Path) -> Cases:
    """The asserted conditions on outputs as a disjunction of conjunctions."""
    with naming(path):
        return _cases(re.sub(r";[^\n]*", "", read_text(path)))


def equivalence(path: Path) -> Equivalence | None:
    """The tolerance of a specification that compares two networks output by output, if it is one.

    Files differ in polarity: some describe inputs at which the outputs differ by more, some those at which they do
    not, and some contradict themselves. All of them are about the question whether `|g − f|` is at most a number.
    """
    with naming(path):
        text = re.sub(r";[^\n]*", "", read_text(path))
        if len(_output_shapes(text)) != 2:
            return None
        cases = _cases(text)
    conditions = [condition for case in cases for condition in case]
    if not conditions or any(sorted(each.terms.values()) != [-1, 1] for each in conditions):
        return None
    if any(len({place for _, place in each.terms}) != 1 for each in conditions):
        return None
    sizes = {abs(each.bound) for each in conditions}
    if len(sizes) != 1:
        return None
    within = next(iter(sizes))
    if all(each.bound == within for each in conditions):
        return Equivalence(within, "inputs at which all outputs differ by at most that")
    pairs = [{(tuple(sorted(each.terms.items())), each.bound) for each in case} for case in cases]
    opposite = any(
        (tuple((name, -size) for name, size in terms), bound) in case for case in pairs for terms, bound in case
    )
    words = "nothing: its conditions contradict each other" if opposite else "inputs at which outputs differ by more"
    return Equivalence(within, words)


def _cases(text: str) -> Cases:
    shapes = _output_shapes(text)
    cases: Cases = [[]]
    for form in forms(text):
        if len(form) == 2 and form[0] == "assert" and _mentions(form[1], shapes):
            cases = _joined(cases, _of(form[1], shapes))
    return cases


def _output_shapes(text: str) -> Shapes:
    found: Shapes = {}
    for form in forms(text):
        for part in form if form and form[0] == "declare-network" else ():
            if isinstance(part, list) and len(part) > 2 and part[0] == "declare-output":
                shape = re.search(r"\[([\d,]*)\]", part[-1])
                if shape is None:
                    raise LawfulError("an output is declared without its shape")
                found[part[1]] = tuple(int(size) for size in shape[1].split(",") if size)
    return found


def _joined(one: Cases, other: Cases) -> Cases:
    if len(one) * len(other) > MOST_CASES:
        raise LawfulError(f"more than {MOST_CASES} cases of conditions on outputs")
    return [[*first, *second] for first, second in product(one, other)]


def _of(form: Any, shapes: Shapes) -> Cases:
    if not isinstance(form, list) or not form:
        raise LawfulError("a condition on outputs is no list")
    if form[0] == "and":
        cases: Cases = [[]]
        for part in form[1:]:
            cases = _joined(cases, _of(part, shapes))
        return cases
    if form[0] == "or":
        found = [case for part in form[1:] for case in _of(part, shapes)]
        if len(found) > MOST_CASES:
            raise LawfulError(f"more than {MOST_CASES} cases of conditions on outputs")
        return found
    if len(form) == 3 and form[0] not in ("<=", ">=", "<", ">") and form[1] in ("<=", ">=", "<", ">"):
        form = [form[1], form[0], form[2]]  # some files write (a < b)
    if len(form) != 3 or form[0] not in ("<=", ">=", "<", ">"):
        raise LawfulError(f"{str(form[0])[:20]!r} is no condition on outputs that is understood: <=, >=, <, > are")
    left, right = _linear(form[1], shapes), _linear(form[2], shapes)
    sign = 1 if form[0] in ("<=", "<") else -1
    terms = {
        name: sign * (left[0].get(name, Fraction(0)) - right[0].get(name, Fraction(0)))
        for name in {*left[0], *right[0]}
    }
    return [[Condition({k: v for k, v in terms.items() if v}, sign * (right[1] - left[1]), form[0] in ("<", ">"))]]


def _linear(form: Any, shapes: Shapes) -> tuple[Terms, Fraction]:
    """A linear expression: terms and a constant."""
    if isinstance(form, str):
        return ({_output(form, shapes): Fraction(1)}, Fraction(0)) if _is_output(form, shapes) else ({}, _number(form))
    parts = [_linear(part, shapes) for part in form[1:]] if form else []
    if form and form[0] in ("+", "-") and parts:
        signs = [1 if form[0] == "+" or (at == 0 and len(parts) > 1) else -1 for at in range(len(parts))]
        terms: Terms = {}
        for sign, (each, _) in zip(signs, parts, strict=True):
            for name, size in each.items():
                terms[name] = terms.get(name, Fraction(0)) + sign * size
        return terms, sum((sign * constant for sign, (_, constant) in zip(signs, parts, strict=True)), Fraction(0))
    if form and form[0] == "*" and len(parts) == 2 and not (parts[0][0] and parts[1][0]):
        (scaled, constant), factor = (parts[1], parts[0][1]) if not parts[0][0] else (parts[0], parts[1][1])
        return {name: factor * size for name, size in scaled.items()}, factor * constant
    raise LawfulError(f"{str(form[0] if form else form)[:20]!r} makes no linear expression of outputs")


def _is_output(word: str, shapes: Shapes) -> bool:
    return word.split("[")[0] in shapes if shapes else re.fullmatch(r"Y_\d+", word) is not None


def _mentions(form: Any, shapes: Shapes) -> bool:
    return any(_mentions(part, shapes) for part in form) if isinstance(form, list) else _is_output(form, shapes)


def _output(word: str, shapes: Shapes) -> tuple[str, int]:
    if not shapes:
        return "Y", int(word.removeprefix("Y_"))
    name = word.split("[")[0]
    shape, indices = shapes[name], [int(index) for index in re.findall(r"\d+", word[len(name) :])]
    if len(indices) != len(shape) or any(index >= size for index, size in zip(indices, shape, strict=True)):
        raise LawfulError(f"{word[:40]} is no entry of an output of shape {list(shape)}")
    return name, sum(index * math.prod(shape[axis + 1 :]) for axis, index in enumerate(indices))


def _number(word: str) -> Fraction:
    try:
        return Fraction(word)
    except (ValueError, ZeroDivisionError):
        raise LawfulError(f"{word[:40]!r} is neither an output nor a number") from None
