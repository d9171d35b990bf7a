"""VNN-LIB as the competition writes it: the disjuncts are true exactly where the formula is."""

from __future__ import annotations

import gzip
import operator
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful import LawfulError, Mlp, write
from lawful.formats.queries.box import read_box
from lawful.formats.queries.specification import regions, specification_of
from lawful.formats.queries.vnnlib import Variable, parse_vnnlib, read_number

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne
}  # fmt: skip


def write_form(form: Any) -> str:
    return form if isinstance(form, str) else f"({' '.join(map(write_form, form))})"


def value_of(form: Any, at: dict[str, Fraction]) -> Any:
    """An evaluator of s-expressions that knows nothing of normal forms."""
    if isinstance(form, str):
        return at[form] if form in at else Fraction(form)
    head, *parts = form
    values = [value_of(part, at) for part in parts]
    if head in ("and", "or"):
        return all(values) if head == "and" else any(values)
    if head in COMPARE:
        return COMPARE[head](*values)
    if head == "*":
        return values[0] * values[1]
    return sum(values, Fraction(0)) if head == "+" else -values[0] if len(values) == 1 else values[0] - sum(values[1:])


def draw(rng: np.random.Generator, depth: int) -> Any:
    if depth and rng.random() < 0.6:
        return [str(rng.choice(["and", "or"])), *(draw(rng, depth - 1) for _ in range(rng.integers(1, 4)))]
    side = lambda: expression(rng, 2)  # noqa: E731
    return [str(rng.choice(list(COMPARE))), side(), side()]


def expression(rng: np.random.Generator, depth: int) -> Any:
    kind = rng.integers(5) if depth else rng.integers(2)
    number = str(rng.choice(["0", "1", "-1.5", "2e-1", "1/3"]))
    if kind == 0:
        return number
    if kind == 1:
        return str(rng.choice(["X_0", "X_1", "Y_0", "Y_1"]))
    if kind == 2:
        return ["*", number, expression(rng, depth - 1)]
    return [str(rng.choice(["+", "-"])), *(expression(rng, depth - 1) for _ in range(rng.integers(1, 3)))]


@pytest.mark.parametrize("seed", range(40))
def test_disjuncts_are_true_exactly_where_the_formula_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    asserted = [draw(rng, 3) for _ in range(2)]
    try:
        found = specification_of(parse_vnnlib("".join(f"(assert {write_form(form)})" for form in asserted)))
    except LawfulError as error:
        assert "1000 cases" in str(error)  # noqa: PT017
        return
    for _ in range(60):
        at = {
            name: Fraction(int(rng.integers(-6, 7)), int(rng.choice([1, 2, 3, 5])))
            for name in ("X_0", "X_1", "Y_0", "Y_1")
        }
        values = {Variable(name[0], int(name[2])): value for name, value in at.items()}
        assert found.holds(values) == all(value_of(form, at) for form in asserted)


def test_ends_are_rounded_outward(tmp_path: Path) -> None:
    ends = ["0.1", "0.3", "0.679857769", "-0.129289109", "1e-3", "1/3"]
    for low, high in zip(ends, ends, strict=True):
        (tmp_path / "p.vnnlib").write_text(f"(assert (>= X_0 {low}))(assert (<= X_0 {high}))")
        below, above = (float(end[0]) for end in read_box(str(tmp_path / "p.vnnlib"), 1))
        assert Fraction(below) <= Fraction(low) <= Fraction(above)
        assert above <= np.nextafter(below, np.inf)


UNION = "(assert (or (and (>= X_0 -1) (<= X_0 0)) (and (>= X_0 2) (<= X_0 3))))"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (UNION + "(assert (<= Y_0 -0.5))", "holds"),
        (UNION + "(assert (>= Y_0 2.5))", "violated"),  # in the second box only
        (UNION + "(assert (and (>= Y_0 1.25) (<= Y_0 1.75)))", "holds"),  # between the boxes
        ("(assert (or (and (>= X_0 -1) (<= X_0 1) (>= Y_0 100))))", "holds"),  # test_tiny of the competition
        ("(assert (and (>= X_0 -1) (<= X_0 1)))(assert (>= Y_0 (+ X_0 2.5)))", "holds"),
        ("(assert (and (>= X_0 -1) (<= X_0 1)))(assert (>= Y_0 (+ X_0 0.5)))", "violated"),
        ("(assert (and (>= X_0 1) (<= X_0 0)))(assert (>= Y_0 0))", "holds"),  # nothing is described
        ("(assert (== X_0 0.1))(assert (>= Y_0 0))", "violated"),  # 0.1 is no double: the input is 1/10
    ],
)
def test_verdicts(lawful: Callable[..., Any], tmp_path: Path, text: str, status: str) -> None:
    write(Mlp([[[1.0], [-1.0]], [[1.0, 0.0]]]), tmp_path / "relu.json")  # max(x, 0)
    (tmp_path / "p.vnnlib.gz").write_bytes(gzip.compress(text.encode()))
    code = {"holds": 0, "violated": 1, "undecided": 3}[status]
    said = lawful("check", tmp_path / "relu.json", tmp_path / "p.vnnlib.gz", "--seconds", 2, "--json", code=code)
    assert said.json["status"] == status
    assert (said.json["why"] or "").startswith("vacuous") == ("(>= X_0 1)" in text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(declare-const X_0 Int)", "Int"),
        ("(declare-const X-0-0 Real)", "X_0, X_1"),
        ("(define-fun f () Real 1)", "define-fun"),
        ("(assert (=> (<= X_0 1) (<= Y_0 1)))", "=>"),
        ("(assert (<= (* X_0 Y_0) 1))", "product of X_0 and Y_0"),
        ("(assert (<= X_0 1e999))", "larger than doubles"),
        ("(assert (<= X_0 1e99999))", "1e99999"),
        ("(assert (<= X_0 1_0))", "1_0"),
        ("(assert (<= X_0 1)) ]", "outside"),
        ("(assert (<= Y_3 1))", "output 3"),
        ("(assert (<= Y_0 1))", "input 0 has no lower"),
        ("(declare-const X_0 Real)(declare-const X_1 Real)(assert (<= X_0 1))", "declares 2 inputs"),
    ],
)
def test_refusals_name_what_is_not_understood(text: str, words: str) -> None:
    bounds = "(assert (>= X_0 0))" if "no lower" not in words else ""
    with pytest.raises(LawfulError, match=words):
        [region.outward() for region in regions(specification_of(parse_vnnlib(bounds + text)), 1, 1)]


def test_packed_files_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "bomb.vnnlib.gz").write_bytes(gzip.compress(b" " * (65 * 2**20)))
    with pytest.raises(LawfulError, match="unpacked file takes"):
        read_box(str(tmp_path / "bomb.vnnlib.gz"), 1)
    (tmp_path / "cut.vnnlib.gz").write_bytes(gzip.compress(b"(assert (<= X_0 1))" * 50)[:30])
    with pytest.raises(LawfulError, match="truncated"):
        read_box(str(tmp_path / "cut.vnnlib.gz"), 1)


def test_numbers_are_exact() -> None:
    assert read_number("0.1") == Fraction(1, 10) != Fraction(0.1)
