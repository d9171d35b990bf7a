"""VNN-LIB specifications: the box that their assertions about inputs describe; outputs are not looked at.

Version 1.0 names inputs `X_3`, version 2.0 declares tensors and indexes them, `X[0,3]`. A specification about several
networks is read if it asserts that they get the same input.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lawful.errors import LawfulError
from lawful.network.formats.reading import MAX_NESTING, naming, read_text
from lawful.types import Floats

MIRRORED = {"<=": ">=", ">=": "<=", "==": "==", "=": "=="}
WORDS = re.compile(r"[()]|[^\s()\[\]]+\s*\[[^\[\]]*\]|\[[^\[\]]*\]|[^\s()\[\]]+")
Shapes = dict[str, tuple[int, ...]]  # of the declared inputs; empty in version 1.0


class Bound(NamedTuple):
    """`first operator second`, the second a number or another input."""

    operator: str
    first: str
    second: str


def input_bounds(path: Path, inputs: int) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the inputs, all of them finite."""
    with naming(path):
        return _box(re.sub(r";[^\n]*", "", read_text(path)), inputs)


def _box(text: str, inputs: int) -> tuple[Floats, Floats]:
    low, high = np.full(inputs, -np.inf), np.full(inputs, np.inf)
    shapes: Shapes = {}
    equal: set[tuple[frozenset[str], int]] = set()
    for form in forms(text):
        if form and form[0] == "declare-network":
            shapes.update(_declared(form))
        for bound in _bounds(form[1], shapes) if len(form) == 2 and form[0] == "assert" else ():
            at = _place(bound.first, shapes, inputs)
            if _is_input(bound.second, shapes):
                if bound.operator != "==" or _place(bound.second, shapes, inputs) != at:
                    raise LawfulError(f"a condition on {bound.first} and {bound.second} together is not a box")
                equal.add((frozenset({_name(bound.first), _name(bound.second)}), at))
                continue
            value = _number(bound)
            if bound.operator in ("<=", "=="):
                high[at] = min(high[at], value)
            if bound.operator in (">=", "=="):
                low[at] = max(low[at], value)
    for name in list(shapes)[1:]:
        if not all((frozenset({next(iter(shapes)), name}), at) in equal for at in range(inputs)):
            raise LawfulError(f"the inputs {', '.join(shapes)} are not asserted to be equal: a box is about one input")
    open_ends = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))
    if len(open_ends):
        raise LawfulError(f"input {int(open_ends[0])} has no lower and upper bound")
    return low, high


def forms(text: str) -> Iterator[list[Any]]:
    """The nested lists of a text, one for each outermost pair of parentheses."""
    stack: list[list[Any]] = []
    for word in WORDS.findall(text):
        if word == "(":
            stack.append([])
            if len(stack) > MAX_NESTING:
                raise LawfulError(f"is nested more than {MAX_NESTING} deep")
        elif not stack:
            raise LawfulError(f"{word[:40]!r} stands outside of parentheses")
        elif word != ")":
            stack[-1].append(re.sub(r"\s+", "", word))
        elif len(stack) > 1:
            done = stack.pop()
            stack[-1].append(done)
        else:
            yield stack.pop()
    if stack:
        raise LawfulError("a parenthesis is not closed")


def _declared(form: list[Any]) -> Shapes:
    """Names and shapes of the inputs that a network declares: `(declare-input X float32 [1,5])`."""
    found = {}
    for part in form:
        if isinstance(part, list) and len(part) > 2 and part[0] == "declare-input":
            shape = re.search(r"\[([\d,]{0,200})\]", str(part[-1]))  # the type and the shape are one word
            if shape is None:
                raise LawfulError("an input is declared without its shape")
            found[part[1]] = tuple(int(size) for size in shape[1].split(",") if size)
    return found


def _bounds(form: Any, shapes: Shapes) -> Iterator[Bound]:
    """Bounds on inputs that hold whenever the assertion does."""
    head = form[0] if isinstance(form, list) and form else ""
    if head == "and" or (head == "or" and len(form) == 2):
        for part in form[1:]:
            yield from _bounds(part, shapes)
    elif not _mentions(form, shapes):
        return
    elif head in MIRRORED and len(form) == 3 and isinstance(form[1], str) and isinstance(form[2], str):
        operator = MIRRORED[MIRRORED[head]]
        plain = _is_input(form[1], shapes)
        yield Bound(operator, form[1], form[2]) if plain else Bound(MIRRORED[operator], form[2], form[1])
    else:
        raise LawfulError(f"a condition {str(head)[:20]!r} on inputs is not a box: bounds with <= and >= are")


def _mentions(form: Any, shapes: Shapes) -> bool:
    waiting = [form]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif _is_input(part, shapes):
            return True
    return False


def _name(word: str) -> str:
    return word.split("[")[0]


def _is_input(word: str, shapes: Shapes) -> bool:
    return _name(word) in shapes if shapes else re.fullmatch(r"X_\d{1,18}", word) is not None


def _number(bound: Bound) -> float:
    try:
        return float(bound.second)
    except ValueError:
        raise LawfulError(f"a condition on {bound.first} and {bound.second[:40]!r} together is not a box") from None


def _place(word: str, shapes: Shapes, inputs: int) -> int:
    """The input's position in the flattened tensor."""
    if not shapes:
        at = int(word.removeprefix("X_"))
    else:
        shape, indices = (
            shapes[_name(word)],
            [int(index) for index in re.findall(r"\d{1,18}", word[len(_name(word)) :])],
        )
        if len(indices) != len(shape) or any(index >= size for index, size in zip(indices, shape, strict=True)):
            raise LawfulError(f"{word[:40]} is no entry of an input of shape {list(shape)}")
        at = sum(index * math.prod(shape[axis + 1 :]) for axis, index in enumerate(indices))
    if at >= inputs:
        raise LawfulError(f"it bounds {word[:40]}, but the network has {inputs} inputs")
    return at
