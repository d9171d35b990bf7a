"""Data files: what is read, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lawful import LawfulError
from lawful.formats.queries.data import read_data


def test_npz_and_csv_say_the_same(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3))
    labels = np.array([0, 1, 2, 1, 0])
    np.savez(tmp_path / "d.npz", x=x, y=labels)
    lines = ["a,b,c,label"] + [
        ",".join([*(repr(float(v)) for v in row), str(k)]) for row, k in zip(x, labels, strict=True)
    ]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    for name in ("d.npz", "d.csv"):
        data = read_data(tmp_path / name, inputs=3)
        assert (data.x == x).all()
        assert data.classes is not None
        assert (data.classes == labels).all()


def test_targets_and_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((4, 2, 3)), y=np.full((4, 2), 0.5))
    data = read_data(tmp_path / "d.npz")
    assert data.x.shape == (4, 6)
    assert data.classes is None
    (tmp_path / "d.csv").write_text("y0,x,y1\n1,2,3\n")
    data = read_data(tmp_path / "d.csv")
    assert data.x.tolist() == [[2.0]]
    assert data.y is not None
    assert data.y.tolist() == [[1.0, 3.0]]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"z": np.ones(3)}, "needs an array `x`"),
        ({"x": np.ones((3, 2)), "y": np.ones(2)}, "3 samples but"),
        ({"x": np.array([[1.0, np.nan]])}, r"x\[0, 1\] is not finite"),
        ({"x": np.ones((3, 2)), "y": np.array([0.0, np.inf, 1.0])}, r"y\[1\] is not finite"),
        ({"x": np.ones((3, 5))}, "have 5 columns, but the network takes 2"),
        ({"x": np.ones((0, 2))}, "expected"),
        ({"x": np.ones((0, 1, 2))}, "expected"),
        ({"x": np.array([[1j, 1]])}, "complex"),
        ({"x": np.array([["a", "b"]])}, "`x` holds text"),
        ({"x": np.array([[1, 2**60 + 1]])}, r"x\[0, 1\] = 1152921504606846977 is no double"),
        ({"x": np.ones((2, 2)), "y": np.array([2**60, 2**60 + 1])}, r"y\[1\] = .* is no double"),
        ({"x": np.array([[object(), 1]], dtype=object)}, "unpickled"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    np.savez(tmp_path / "d.npz", allow_pickle=True, **arrays)
    with pytest.raises(LawfulError, match=words):
        read_data(tmp_path / "d.npz", inputs=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one row"),
        ("a,b\n", "at least one row"),
        ("a,b\n1\n", "line 2 has 1 cells"),
        ("a,b\n1,x\n", "line 2, column 'b': 'x' is not a number"),
        ("y,label\n1,2\n", "no input columns"),
        ("a\nnan\n", "not finite"),
        ("a,y\n1,cat\n2,\n", "line 3: the label is missing"),
        ("a,y\n9007199254740993,0\n", "line 2, column 'a': '9007199254740993' is no double"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(LawfulError, match=words):
        read_data(tmp_path / "d.csv")


def test_labels_may_be_words(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,label,b\n1,dog,2\n3,cat,4\n5,dog,6\n")
    np.savez(tmp_path / "d.npz", x=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], y=["dog", "cat", "dog"])
    for name in ("d.csv", "d.npz"):
        data = read_data(tmp_path / name)
        assert data.x.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
        assert data.classes is not None
        assert data.classes.tolist() == [1, 0, 1]
        assert data.names == ("cat", "dog")


def test_large_whole_numbers_that_are_doubles_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.array([[2**60, 2**60 + 256]]))
    (tmp_path / "d.csv").write_text("a,b\n1152921504606846976,1152921504606847232\n")
    for name in ("d.npz", "d.csv"):
        assert read_data(tmp_path / name).x.tolist() == [[2.0**60, 2.0**60 + 256]]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LawfulError, match=r"\.npz or \.csv"):
        read_data(tmp_path / "d.pickle")
