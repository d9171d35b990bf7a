"""Boxes come as text, `.npz` or VNN-LIB, and what is not a box is refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lawful.errors import LawfulError
from lawful.formats.queries.box import read_box

FIRST = """; a property
(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(assert (<= X_0 0.68))
(assert (>= X_0 0.6))
(assert (and (<= -0.5 X_1) (<= X_1 0.5)))  ; a number may come first
(assert (or (and (<= Y_0 3.9)) (and (>= Y_0 4.0))))
"""
SECOND = """(vnnlib-version <2.0>)
(declare-network f
    (declare-input X float32 [1, 2])
    (declare-output Y float32 [1])
)
(assert (and (>= X[0,0] 0.6) (<= X[0, 0] 0.68)))
(assert (<= X[0,1] 0.5))
(assert (or (and (>= X[0,1] -0.5))))
(assert (or (<= Y[0] -3.0) (>= Y[0] 0.0)))
"""
WANTED = np.array([[0.6, -0.5], [0.68, 0.5]])


@pytest.mark.parametrize("text", [FIRST, SECOND])
def test_both_versions_of_the_standard(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a property.vnnlib"
    path.write_text(text)
    assert np.array_equal(np.array(read_box(str(path), 2)), WANTED)


def test_npz_with_one_number_or_one_for_each_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "each.npz", lower=WANTED[0], upper=WANTED[1].astype(np.float32))
    np.savez(tmp_path / "all.npz", lo=0.0, hi=1.0)
    assert read_box(str(tmp_path / "each.npz"), 2)[1].tolist() == [float(np.float32(0.68)), 0.5]
    assert read_box(str(tmp_path / "all.npz"), 2)[1].tolist() == [1.0, 1.0]


def test_a_coordinate_may_be_fixed() -> None:
    low, high = read_box("1e-3:2, 0.25 ,-1:-1", 3)
    assert low.tolist() == [1e-3, 0.25, -1.0]
    assert high.tolist() == [2.0, 0.25, -1.0]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("1,0", "lo <= hi"),
        ("nan,1", "finite"),
        ("0:inf,0:1", "finite"),
        ("0:1", "2 inputs"),
        ("0:1:2,0:1", "not a box"),
        ("a,b", "no number"),
        ("1,2,3", "not a box"),
        ("missing.vnnlib", "no such file"),
    ],
)
def test_what_is_no_box_is_refused(text: str, word: str) -> None:
    with pytest.raises(LawfulError, match=word):
        read_box(text, 2)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("(>= X_0 0.6)", "(or (>= X_0 0.6) (<= X_0 0.1))", "not a box"),
        ("(>= X_0 0.6)", "(>= (+ X_0 X_1) 0.6)", "not a box"),
        ("(>= X_0 0.6)", "(>= X_0 Y_0)", "together"),
        ("(assert (>= X_0 0.6))", "", "no lower and upper"),
        ("(>= X_0 0.6)", "(>= X_7 0.6)", "2 inputs"),
        ("(>= X_0 0.6)", "(>= X_0 0.6", "not closed"),
        ("(>= X_0 0.6)", "(>= X_0 0.9)", "lo <= hi"),
    ],
)
def test_specifications_that_are_no_box(tmp_path: Path, old: str, new: str, word: str) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(FIRST.replace(old, new))
    with pytest.raises(LawfulError, match=word):
        read_box(str(path), 2)


def test_an_index_outside_of_the_declared_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.vnnlib"
    path.write_text(SECOND.replace("X[0,1] 0.5", "X[1,1] 0.5"))
    with pytest.raises(LawfulError, match="no entry"):
        read_box(str(path), 2)


def test_two_networks_with_the_same_input(tmp_path: Path) -> None:
    second = "(declare-network g (isomorphic-to f) (declare-input Z float32 [1, 2]) (declare-output V float32 [1]))\n"
    equal = "(assert (== X[0,0] Z[0,0]))\n(assert (== X[0,1] Z[0,1]))\n"
    path = tmp_path / "p.vnnlib"
    path.write_text(SECOND + second + equal)
    assert np.array_equal(np.array(read_box(str(path), 2)), WANTED)
    for wrong in (equal.replace("== X[0,0]", "<= X[0,0]"), equal.replace("Z[0,1]", "Z[0,0]"), equal.split("\n")[0]):
        path.write_text(SECOND + second + wrong)
        with pytest.raises(LawfulError, match=r"together|not asserted"):
            read_box(str(path), 2)
