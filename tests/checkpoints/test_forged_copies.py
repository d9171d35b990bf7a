"""Certificates of copies about files that are none: folds, factors, matrices and constants that hide a change."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from lawful.errors import CertificateError
from lawful.verify import verify
from lawful.verify.core.checkpoint import tensors_digest

Tensors = dict[str, np.ndarray]
RNG = np.random.default_rng(0)
A: Tensors = {
    "w": RNG.normal(size=(6, 6)), "k": RNG.normal(size=(6, 6)), "c": RNG.normal(size=(4, 6, 1, 1)),
    "b": RNG.normal(size=6), "z": np.zeros(6), "g": np.ones(6), "m": RNG.normal(size=6), "v": RNG.random(6) + 0.5,
}  # fmt: skip
OTHER: Tensors = {name: RNG.normal(size=array.shape) for name, array in A.items()}
ALL = sum(array.size for array in A.values())


def packed(values: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()


def checked(second: Tensors, first: Tensors = A, *, compared: tuple[str, ...] = (), **parts: list[Any]) -> Any:
    """The finding about a pair; all tensors but those `compared` up to rounding are said to be moved only."""
    body = {
        "kind": "checkpoint-copy", "version": 2, "about": [tensors_digest(first), tensors_digest(second)],
        "tensors": [[name, name, name] for name in first], "folds": [], "matrices": [], "frames": [], "shifts": [],
        "moved": [name for name in first if name not in compared],
    }  # fmt: skip
    return verify(json.dumps(body | parts), first, second)


def gain(name: str | None, *readers: tuple[str, int], plus: float = 0.0, centred: bool = False) -> dict[str, Any]:
    reading = [{"weight": weight, "axis": axis, "bias": None} for weight, axis in readers]
    return {"fold": "gain", "gain": name, "offset": None, "plus": plus, "readers": reading, "centred": centred}


def statistics(epsilon: float) -> dict[str, Any]:
    writer = {"weight": "w", "axis": 0, "bias": None}
    named = {"gain": "g", "offset": "b", "mean": "m", "variance": "v"}
    return {"fold": "statistics", **named, "epsilon": epsilon, "writer": writer}


def frame(tensor: str, dims: list[int], factor: Any, matrix: int | None = None) -> dict[str, Any]:
    count = int(np.prod([A[tensor].shape[d] for d in dims]))
    blocks = [] if matrix is None else [{"rows": [0], "matrix": matrix}]
    factors = packed(np.broadcast_to(np.ravel(factor), count))
    return {"tensor": tensor, "dims": dims, "source": list(range(count)), "factor": factors, "blocks": blocks}


def pair(matrix: np.ndarray) -> list[dict[str, Any]]:
    both = matrix, np.linalg.inv(matrix).T
    return [{"size": len(each), "values": packed(each), "partner": 1 - k} for k, each in enumerate(both)]


@pytest.mark.parametrize(
    ("changed", "folds", "compared"),
    [
        (("w", "c"), [gain("z", ("w", 0), ("c", 1))], "wcz"),  # a bias of zero as a gain
        (("w", "c"), [gain("g", ("w", 0), ("c", 1), plus=-1.0)], "wcg"),  # a gain of one that is called zero
        (("w",), [gain("g", ("k", 0), plus=1.0), gain("g", ("w", 0))], "wkg"),  # what a fold left, folded again
        (("c",), [gain(None, ("c", 2), centred=True)], "c"),  # means along an axis of one number
        (("v",), [statistics(1e30)], "gbmvw"),  # an epsilon beyond all variances
    ],
)
def test_numbers_that_folds_hide_do_not_count(changed: tuple[str, ...], folds: list[Any], compared: str) -> None:
    found = checked({**A, **{name: np.abs(OTHER[name]) for name in changed}}, compared=tuple(compared), folds=folds)
    hidden = sum(A[name].size for name in changed)
    assert found.statement.split(" holds ")[1].startswith(f"{ALL - hidden} of the {ALL} ")


def test_matrices_act_with_their_inverse_and_on_more_than_they_hold() -> None:
    stranger, matrix = {**A, "w": OTHER["w"]}, A["w"] @ np.linalg.inv(OTHER["w"])
    acting = [frame("w", [0], 1.0, 0)]
    with pytest.raises(CertificateError, match="without its inverse"):
        checked(stranger, compared=("w",), matrices=pair(matrix), frames=acting)
    with pytest.raises(CertificateError, match="as many numbers as it acts on"):
        checked(stranger, compared=("w",), matrices=pair(matrix), frames=[*acting, frame("z", [0], 1.0, 1)])
    copy = {**stranger, "k": matrix.T @ A["k"]}
    assert checked(copy, compared=("w", "k"), matrices=pair(matrix), frames=[*acting, frame("k", [0], 1.0, 1)])


def test_partners_are_inverse_however_large_they_are() -> None:
    """The product is off by 3, little beside terms of 1e7."""
    large = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-7]])
    wrong = 4 * np.linalg.inv(large).T
    listed = [{"size": 2, "values": packed(each), "partner": 1 - k} for k, each in enumerate((large, wrong))]
    with pytest.raises(CertificateError, match="inverse"):
        checked(A, matrices=listed)


def test_mixing_in_which_rounding_explains_everything_is_refused() -> None:
    turns = [np.linalg.qr(RNG.normal(size=(6, 6)))[0] for _ in range(2)]
    first = {name: array.astype(np.float32).astype(np.float64) for name, array in A.items()}

    def hidden(condition: float) -> Any:
        matrix = turns[0] * np.geomspace(condition, 1, 6) @ turns[1]
        second = {**first, "w": np.linalg.inv(matrix) @ first["w"], "k": matrix.T @ first["k"]}
        second = {name: array.astype(np.float32).astype(np.float64) for name, array in second.items()}
        frames = [frame("w", [0], 1.0, 0), frame("k", [0], 1.0, 1)]
        return checked(second, first, compared=("w", "k"), matrices=pair(matrix), frames=frames)

    assert hidden(1e3).facts["relative"] < 1e-4
    with pytest.raises(CertificateError, match="explains any others"):
        hidden(1e8)


def test_a_number_with_a_factor_or_a_constant_of_its_own_does_not_count() -> None:
    for name in ("b", "w"):
        second, dims = {**A, name: OTHER[name]}, list(range(A[name].ndim))
        own = {"tensor": name, "shape": list(A[name].shape), "values": packed(A[name] - OTHER[name])}
        many: dict[str, Any]
        for many in ({"frames": [frame(name, dims, A[name] / OTHER[name])]}, {"shifts": [own]}):
            found = checked(second, compared=(name,), **many)
            assert found.facts["own"] == A[name].size
            assert f" {ALL - A[name].size} of the {ALL} " in found.statement
    with pytest.raises(CertificateError, match="moved twice"):
        checked(A, frames=[frame("w", [0], 1.0), frame("w", [1, 0], 1.0)])
    scaled = {**A, "w": A["w"] / 3, "b": A["b"] / 3}  # a bias that is scaled like its layer is compared
    found = checked(scaled, compared=("w", "b"), frames=[frame("w", [0], 3.0), frame("b", [0], 3.0)])
    assert found.facts["own"] == 0


def test_numbers_of_any_size_are_compared() -> None:
    """Squares of them are zero or infinite."""
    for size in (1e-310, 1e200):
        first = {**A, "w": size * A["w"]}
        assert checked(first, first, compared=("w",)).facts["entry"] < 1e-14
        with pytest.raises(CertificateError, match="explains"):
            checked({**A, "w": size * OTHER["w"]}, first, compared=("w",))
    far = np.where(np.eye(6) > 0, 1e200, 1.0)
    with pytest.raises(CertificateError, match=r"explains|too far apart"):
        checked(
            {**A, "w": far * np.where(np.eye(6) > 0, A["w"], OTHER["w"])}, {**A, "w": far * A["w"]}, compared=("w",)
        )


def test_fewer_bits_excuse_only_what_is_stored_in_them() -> None:
    second = {**A, "w": A["w"] * np.where(np.arange(36).reshape(6, 6) == 7, 1 + 1e-4, 1.0)}
    with pytest.raises(CertificateError, match="another one"):
        checked(second)
    with pytest.raises(CertificateError, match="explains"):
        checked(second, compared=("w",))
    cast = {**A, "w": A["w"].astype(np.float32).astype(np.float64)}
    assert 0 < checked(cast).facts["entry"] < 2**-23


def test_a_constant_for_each_number_of_some_rows_does_not_count() -> None:
    """Rows that are other ones but for 24 constants: two rows of zeros beside them made these look shared."""
    added = np.where(np.arange(6)[:, None] < 4, OTHER["w"], 0.0)
    shift = {"tensor": "w", "shape": [6, 6], "values": packed(added)}
    found = checked({**A, "w": A["w"] - added}, compared=("w",), shifts=[shift])
    assert found.statement.split(" holds ")[1].startswith(f"{ALL - 24} of the {ALL} ")
    shift = {"tensor": "w", "shape": [1, 6], "values": packed(added[:1])}
    found = checked({**A, "w": A["w"] - added[:1]}, compared=("w",), shifts=[shift])
    assert found.statement.split(" holds ")[1].startswith(f"the {ALL} ")


def test_factors_of_rows_of_zeros_are_not_shared() -> None:
    """Any vector is another one times factors, which a matrix of zeros does not confirm."""
    first = {**A, "zeros": np.zeros((6, 6))}
    factor = A["b"] / OTHER["b"]
    rows = {"tensor": "zeros", "dims": [0], "source": list(range(6)), "factor": packed(factor), "blocks": []}
    found = checked({**first, "b": OTHER["b"]}, first, compared=("b",), frames=[frame("b", [0], factor), rows])
    assert found.statement.split(" holds ")[1].startswith(f"{ALL + 30} of the {ALL + 36} ")
    scaled = {**first, "b": OTHER["b"], "w": A["w"] / factor[:, None]}
    both = [frame("b", [0], factor), frame("w", [0], factor)]
    found = checked(scaled, first, compared=("b", "w"), frames=both)
    assert found.statement.split(" holds ")[1].startswith(f"the {ALL + 36} ")


def test_factors_of_rows_with_one_number_beside_zeros_do_not_count() -> None:
    """A column beside one of zeros is any other column times factors."""
    first, second = ({**A, "two": np.stack([each["b"], np.zeros(6)], axis=1)} for each in (A, OTHER))
    second = {**A, "two": second["two"]}
    rows = {"tensor": "two", "dims": [0], "source": list(range(6)), "factor": packed(A["b"] / OTHER["b"]), "blocks": []}
    found = checked(second, first, compared=("two",), frames=[rows])
    assert found.statement.split(" holds ")[1].startswith(f"{ALL + 6} of the {ALL + 12} ")
