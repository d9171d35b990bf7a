"""Arithmetic modulo a prime, against FLINT, plain integers and SymPy."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import sympy
from effort import trials
from flint import nmod_mat
from hypothesis import given, settings
from hypothesis import strategies as st

from lawful import LawfulError
from lawful.exact import PRIME, Dual, batched_nullities, check_prime, nullspace, rank, rational, residues, to_residues


def low_rank(seed: int, rows: int, columns: int, inner: int, prime: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    left, right = rng.integers(0, prime, (rows, inner)), rng.integers(0, prime, (inner, columns))
    return np.array((left.astype(object) @ right.astype(object)) % prime, dtype=np.int64)


@settings(max_examples=trials(20, 60), deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 70), st.integers(1, 70), st.integers(0, 70), st.sampled_from([PRIME, 1009])
)
def test_rank_agrees_with_flint(seed: int, rows: int, columns: int, inner: int, prime: int) -> None:
    matrix = low_rank(seed, rows, columns, inner, prime)
    assert rank(matrix, prime) == nmod_mat(rows, columns, matrix.ravel().tolist(), prime).rank()


def test_rank_with_many_zeros_and_repeated_columns() -> None:
    """Pivots are missing in whole panels: the elimination must step over them."""
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, PRIME, (300, 300)) * (rng.random((300, 300)) < 0.02)
    matrix[:, 40:140] = matrix[:, 20:21]
    assert rank(matrix, PRIME) == nmod_mat(300, 300, matrix.ravel().tolist(), PRIME).rank()


def test_rank_of_entries_at_the_edge_of_exactness() -> None:
    """All residues near ±p/2: the largest sums that float64 has to hold."""
    rng = np.random.default_rng(1)
    matrix = (PRIME // 2 + rng.integers(-3, 4, (600, 600))) % PRIME
    assert rank(matrix, PRIME) == nmod_mat(600, 600, matrix.ravel().tolist(), PRIME).rank()


@settings(max_examples=trials(10, 30), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12), st.integers(0, 12))
def test_nullspace_is_the_whole_kernel(seed: int, rows: int, columns: int, inner: int) -> None:
    matrix = low_rank(seed, rows, columns, inner, PRIME)
    basis = nullspace(matrix, PRIME)
    assert not ((matrix.astype(object) @ basis.T.astype(object)) % PRIME).any()
    assert len(basis) == columns - rank(matrix, PRIME)
    assert not len(basis) or rank(basis, PRIME) == len(basis)


def test_batched_nullities_agree_with_one_by_one() -> None:
    matrices = np.array([low_rank(seed, 7, 5, seed % 6, PRIME) for seed in range(40)])
    assert batched_nullities(matrices, PRIME).tolist() == [5 - rank(matrix, PRIME) for matrix in matrices]


@given(st.integers(-2000, 2000), st.integers(1, 2000))
def test_rational_reconstruction_inverts_the_residue(top: int, bottom: int) -> None:
    fraction = Fraction(top, bottom)
    assert rational(fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME) == fraction


def test_some_residues_stand_for_no_small_fraction() -> None:
    found = [rational(residue, 1009) for residue in range(1009)]
    assert None in found
    assert all(f is None or f.numerator * pow(f.denominator, -1, 1009) % 1009 == r for r, f in enumerate(found))


@given(st.floats(-1e6, 1e6))
def test_floats_become_the_residue_of_their_fraction(value: float) -> None:
    fraction = Fraction(value)
    assert to_residues([value])[0] == fraction.numerator * pow(fraction.denominator, -1, PRIME) % PRIME


def test_random_residues_are_spread_and_depend_on_every_label() -> None:
    table = residues(0, (1, 2), np.arange(100), 50, PRIME)
    assert 0.48 < table.mean() / PRIME < 0.52
    assert len(np.unique(table)) > 4990
    for other in (residues(1, (1, 2), np.arange(100), 50, PRIME), residues(0, (1, 3), np.arange(100), 50, PRIME)):
        assert (other != table).mean() > 0.99


@settings(max_examples=trials(8, 20), deadline=None)
@given(st.lists(st.integers(0, 100), min_size=3, max_size=3), st.integers(0, 10**6))
def test_nested_duals_are_mixed_derivatives(point: list[int], seed: int) -> None:
    """∂²/∂s∂t of xyz·x at the point + s·a + t·b, from SymPy and from two nested infinitesimals."""
    a, b = np.random.default_rng(seed).integers(0, 50, (2, 3))
    s, t = sympy.symbols("s t")
    x, y, z = (point[i] + s * int(a[i]) + t * int(b[i]) for i in range(3))
    expected = int(sympy.diff(x * x * y * z, s, t).subs({s: 0, t: 0}))
    state = Dual.constant(np.array(point), PRIME).moved_along(Dual.constant(a, PRIME))
    still = Dual(np.stack([b, np.zeros(3, dtype=np.int64)]), PRIME)
    state = state.moved_along(still)
    parts = [Dual(state.parts[:, i : i + 1], PRIME) for i in range(3)]
    product = parts[0] * parts[0] * parts[1] * parts[2]
    assert product.derivative().derivative().real[0] == expected % PRIME
    assert product.order == 2


def test_a_prime_that_is_none_is_refused() -> None:
    with pytest.raises(LawfulError, match="prime between"):
        check_prime(PRIME - 1)
    with pytest.raises(LawfulError, match="prime between"):
        check_prime(2**31 - 1)
    with pytest.raises(LawfulError, match="finite"):
        to_residues([np.inf])


def test_residues_of_numbers_of_any_size_are_those_of_their_fractions() -> None:
    rng = np.random.default_rng(0)
    many = np.concatenate(
        [rng.normal(size=200) * np.exp2(rng.integers(-1000, 1000, 200)), [0.0, -0.0, 5e-324, -1.7e308]]
    )
    for prime in (101, PRIME, 2**31 - 1, 2**61 - 1):
        exact = [each.numerator * pow(each.denominator, -1, prime) % prime for each in map(Fraction, many.tolist())]
        assert to_residues(many, prime).tolist() == exact
