"""VNN-LIB text: the tensors that it declares, and what it asserts, as cases of linear conditions in exact rationals.

Version 1.0 names numbers `X_3` and `Y_0`; version 2.0 declares networks with tensors and indexes them, `X[0,3]`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lawful.errors import LawfulError
from lawful.formats.io.reading import MAX_NESTING, naming, read_text

# A name with its index, or a type with its shape, is one word; the last alternative is a bracket that stands alone.
WORDS = re.compile(r"[()]|[^\s()\[\]]+\s*\[[^\[\]]*\]|\[[^\[\]]*\]|[^\s()\[\]]+|\S")
REAL = {"real", "float16", "float32", "float64", "bfloat16", "float", "double"}
QUIET = {"vnnlib-version", "set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"}  # no condition


class Variable(NamedTuple):
    """One number of a tensor: `X_3` is entry 3 of X; several indices are flattened, the last runs fastest."""

    tensor: str
    place: int

    def __str__(self) -> str:
        return f"{self.tensor}_{self.place}"


class DeclaredTensor(NamedTuple):
    """An input or an output; `shape` is None where version 1.0 leaves it open."""

    name: str
    network: str
    side: Literal["input", "output"]
    shape: tuple[int, ...] | None

    @property
    def size(self) -> int | None:
        """How many numbers."""
        return None if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True)
class Text:
    """What a file declares, and its assertions as nested lists; `equal` maps a network to the one it equals."""

    tensors: dict[str, DeclaredTensor]
    equal: dict[str, str]
    isomorphic: dict[str, str]
    asserted: list[Any]

    @property
    def networks(self) -> tuple[str, ...]:
        """Their names in order."""
        return tuple(dict.fromkeys(tensor.network for tensor in self.tensors.values()))

    def of(self, side: str) -> list[DeclaredTensor]:
        """The inputs, or the outputs, in order."""
        return [tensor for tensor in self.tensors.values() if tensor.side == side]

    def variable(self, word: str) -> Variable | None:
        """The variable that a word names; None if its beginning is no tensor's name."""
        matched = re.fullmatch(r"([XY])_(\d{1,9})", word) if "X" in self.tensors and not self.is_second else None
        if matched is not None:
            return Variable(matched[1], int(matched[2]))
        name, bracket, rest = word.partition("[")
        tensor = self.tensors.get(name)
        if not self.is_second or tensor is None:
            return None
        inside = rest.removesuffix("]")
        if not re.fullmatch(r"(\d{1,9}(,\d{1,9})*)?", inside) or rest.count("]") != (1 if bracket else 0):
            raise LawfulError(f"{word[:40]} is no entry of {name[:40]}")
        shape = tensor.shape or ()
        indices = [int(index) for index in inside.split(",") if index]
        if len(indices) != len(shape) or any(index >= size for index, size in zip(indices, shape, strict=True)):
            raise LawfulError(f"{word[:40]} is no entry of an {tensor.side} of shape {list(shape)}")
        return Variable(name, sum(index * math.prod(shape[axis + 1 :]) for axis, index in enumerate(indices)))

    @property
    def is_second(self) -> bool:
        """Whether it is of version 2.0: networks are declared."""
        return any(tensor.network for tensor in self.tensors.values())


def read_vnnlib(path: Path) -> Text:
    """The text of a `.vnnlib` file, or of a `.vnnlib.gz`."""
    with naming(path):
        return parse_vnnlib(read_text(path))


def parse_vnnlib(text: str) -> Text:
    """Declarations and assertions; any other form is refused by its name.

    >>> parse_vnnlib("(declare-const X_0 Real) (assert (<= X_0 1))").asserted
    [['<=', 'X_0', '1']]
    """
    tensors: dict[str, DeclaredTensor] = {}
    equal: dict[str, str] = {}
    isomorphic: dict[str, str] = {}
    asserted: list[Any] = []
    places: dict[str, set[int]] = {"X": set(), "Y": set()}
    for form in forms(text):
        head = form[0] if form and isinstance(form[0], str) else ""
        if head == "assert":
            if len(form) != 2:
                raise LawfulError("an assert has one condition")
            asserted.append(form[1])
        elif head in ("declare-const", "declare-fun"):
            _declare_number(form, places)
        elif head == "declare-network":
            _declare_network(form, tensors, equal, isomorphic)
        elif head not in QUIET:
            raise LawfulError(f"{head[:40]!r} is not understood: assert, declare-const and declare-network are")
    if not (tensors or asserted or any(places.values())):
        raise LawfulError("the specification is empty: it declares no input and no output, and asserts nothing")
    if not tensors:
        for name, side in (("X", "input"), ("Y", "output")):
            tensors[name] = DeclaredTensor(name, "", side, _dense(name, places[name]))  # type: ignore[arg-type]
    elif any(places.values()):
        raise LawfulError("it declares networks, and numbers beside them")
    for relation, pairs in (("equal-to", equal), ("isomorphic-to", isomorphic)):
        for name, other in pairs.items():
            if other == name or other not in {tensor.network for tensor in tensors.values()}:
                raise LawfulError(f"the network {name[:40]} is {relation} {other[:40]}, which is not another one here")
    return Text(tensors, equal, isomorphic, asserted)


def forms(text: str) -> Iterator[list[Any]]:
    """The nested lists of a text, one for each outermost pair of parentheses; comments go to the end of their line."""
    stack: list[list[Any]] = []
    for word in WORDS.findall(re.sub(r";[^\n]*", "", text)):
        if word == "(":
            stack.append([])
            if len(stack) > MAX_NESTING:
                raise LawfulError(f"is nested more than {MAX_NESTING} deep")
        elif not stack:
            raise LawfulError(f"{word[:40]!r} stands outside of parentheses")
        elif word in ("[", "]"):
            raise LawfulError("a bracket is not closed, or not opened")
        elif word != ")":
            stack[-1].append(re.sub(r"\s+", "", word))
        elif len(stack) > 1:
            done = stack.pop()
            stack[-1].append(done)
        else:
            yield stack.pop()
    if stack:
        raise LawfulError("a parenthesis is not closed")


def _declare_number(form: list[Any], places: dict[str, set[int]]) -> None:
    """`(declare-const X_0 Real)`, or `(declare-fun X_0 () Real)`."""
    matched = re.fullmatch(r"([XY])_(\d{1,9})", form[1]) if len(form) > 2 and isinstance(form[1], str) else None
    if matched is None:
        raise LawfulError(f"{str(form[1:2])[:40]} is declared: numbers are named X_0, X_1, ... and Y_0, Y_1, ...")
    if form[2:] not in (["Real"], [[], "Real"]):
        raise LawfulError(f"{form[1]} is declared as {str(form[-1])[:20]}: only Real numbers are understood")
    places[matched[1]].add(int(matched[2]))


def _dense(name: str, places: set[int]) -> tuple[int, ...] | None:
    if not places:
        return None
    if len(places) != max(places) + 1:
        missing = next(place for place in range(len(places) + 1) if place not in places)
        raise LawfulError(f"{name}_{max(places)} is declared, but {name}_{missing} is not")
    return (len(places),)


def _declare_network(
    form: list[Any], tensors: dict[str, DeclaredTensor], equal: dict[str, str], isomorphic: dict[str, str]
) -> None:
    """`(declare-network f (declare-input X float32 [1,5]) (declare-output Y float32 [5]))`."""
    if len(form) < 2 or not isinstance(form[1], str):
        raise LawfulError("a network is declared without a name")
    if any(tensor.network == form[1] for tensor in tensors.values()):
        raise LawfulError(f"the network {form[1][:40]} is declared twice")
    sides: list[str] = []
    for part in form[2:]:
        head = part[0] if isinstance(part, list) and part else part
        if head in ("equal-to", "isomorphic-to") and len(part) == 2:
            (equal if head == "equal-to" else isomorphic)[form[1]] = str(part[1])
            continue
        if head not in ("declare-input", "declare-output"):
            raise LawfulError(f"{str(head)[:40]!r} in the declaration of a network is not understood")
        side: Literal["input", "output"] = "input" if head == "declare-input" else "output"
        shape = re.fullmatch(r"([^\[]*)\[((?:\d{1,9}(?:,\d{1,9})*)?)\]", "".join(map(str, part[2:])))
        if shape is None:
            raise LawfulError(f"an {side} is declared without its shape")
        if shape[1].lower() not in REAL:
            raise LawfulError(f"{part[1][:40]} is declared as {shape[1][:20]}: only real numbers are understood")
        if part[1] in tensors:
            raise LawfulError(f"{part[1][:40]} is declared twice")
        tensors[part[1]] = DeclaredTensor(
            part[1], form[1], side, tuple(int(size) for size in shape[2].split(",") if size)
        )
        sides.append(side)
    for side in ("input", "output"):
        if sides.count(side) != 1:
            raise LawfulError(f"the network {form[1][:40]} has {sides.count(side)} {side}s: one is supported")


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
    # Conditions without alternatives stay apart: multiplied out, 6,000 bounds would be copied into each case.
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
