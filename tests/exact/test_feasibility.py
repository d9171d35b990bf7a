"""Exact linear feasibility: every answer is checked by its own definition, and one of the two always comes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lawful.exact.feasibility import Farkas, Solution, feasible, integers

entries = st.integers(-4, 4) | st.integers(-(10**30), 10**30)


@given(st.data(), st.integers(1, 5), st.integers(1, 8))
def test_a_solution_or_multipliers(data: st.DataObject, rows: int, columns: int) -> None:
    """Farkas' lemma: exactly one of the two exists."""
    table = data.draw(st.lists(st.lists(entries, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    matrix, wanted = np.array(table, dtype=object), data.draw(st.lists(entries, min_size=rows, max_size=rows))
    guess = data.draw(st.lists(st.integers(0, columns - 1), unique=True))
    answer = feasible(matrix, wanted, guess)
    match answer:
        case Solution(found):
            x = [found.get(column, Fraction(0)) for column in range(columns)]
            assert min(x) >= 0
            assert [sum(a * b for a, b in zip(row, x, strict=True)) for row in table] == wanted
        case Farkas(y):
            assert min(sum(a * b for a, b in zip(column, y, strict=True)) for column in zip(*table, strict=True)) >= 0
            assert sum(a * b for a, b in zip(wanted, y, strict=True)) < 0
        case None:
            raise AssertionError("small systems are always decided")


def test_degenerate_systems_do_not_cycle() -> None:
    """Beale's example: the steepest column alone would go round in circles."""
    matrix = np.array([[1, 0, 0, 1, -32, -4, 36], [0, 1, 0, 1, -24, -1, 6], [0, 0, 1, 0, 0, 1, 0]], dtype=object)
    assert isinstance(feasible(matrix, [0, 0, 1]), Solution)


def test_the_number_of_steps_is_bounded() -> None:
    rng = np.random.default_rng(0)
    assert feasible(rng.integers(-9, 9, size=(6, 12)).astype(object), [1] * 6, most=1) is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_integers_keep_ratios(values: list[float]) -> None:
    found = integers(np.array(values)[:, None])[:, 0]
    first, whole = Fraction(values[0]), Fraction(int(found[0]))
    assert all(first * int(b) == Fraction(a) * whole for a, b in zip(values, found, strict=True))
