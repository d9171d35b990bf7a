"""Certificates about files, forged by machine: whatever is accepted is compared with another evaluation of both files.

Copies are carried out again in fractions, networks of smooth units and lists of steps in mpmath with 60 digits.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from forging import REFUSED

from lawful.errors import CertificateError
from lawful.verify import verify
from lawful.verify.core.checkpoint import tensors_digest
from lawful.verify.core.finding import Verified

Tensors = dict[str, Any]


def packed(values: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()


def checked(kind: str, first: Tensors, second: Tensors, **parts: Any) -> Verified:
    about = [tensors_digest(first), tensors_digest(second)]
    return verify(json.dumps({"kind": kind, "version": 2, "about": about} | parts), first, second)


# Copies

NOTHING: dict[str, Any] = {"folds": [], "matrices": [], "frames": [], "shifts": [], "moved": []}


def copied(first: Tensors, second: Tensors, **parts: Any) -> Verified:
    return checked("checkpoint-copy", first, second, **NOTHING | {"tensors": [[n, n, n] for n in first]} | parts)


def frame(tensor: str, dims: list[int], factors: Any, source: list[int] | None = None, **more: Any) -> dict[str, Any]:
    rows = list(range(len(factors))) if source is None else source
    return {"tensor": tensor, "dims": dims, "source": rows, "factor": packed(factors), "blocks": []} | more


@pytest.mark.parametrize("large", [1e308, 2.0**900])
def test_numbers_far_below_the_largest_are_not_called_equal(large: float) -> None:
    """Divided by the largest number of their tensor they are 0 in doubles: so are all others of that size."""
    small = 2.0**-1074 * large
    first = {"w": np.array([large, 0.25 * small, 0.3 * small])}
    second = {"w": np.array([large, 0.125 * small, -0.3 * small])}
    with pytest.raises(CertificateError, match="too far apart"):
        copied(first, second)
    assert copied(first, first, moved=["w"]).facts["moved_only"] == 3


def test_a_factor_that_makes_a_number_vanish_is_refused() -> None:
    first = {"w": np.array([[1.0, 0.0], [1.0, 1.0]])}
    second = {"w": np.array([[2.0**600, 2.0**-200], [1.0, 1.0]])}
    factors = frame("w", [0], [2.0**-600, 1.0])
    with pytest.raises(CertificateError, match=r"too far apart|more than rounding"):
        copied(first, second, frames=[factors, frame("w", [1], [1.0, 2.0**-900])])


def test_products_that_are_rounded_are_not_exact() -> None:
    """0.1 times a double is no double: the numbers are near, and the sentence must not say more."""
    second = {"w": np.random.default_rng(0).normal(size=(3, 3))}
    first = {"w": 0.1 * second["w"]}
    found = copied(first, second, frames=[frame("w", [0], [0.1] * 3)], moved=["w"])
    assert found.facts["moved_only"] == 0
    assert "exactly" not in found.statement
    assert copied(first, {"w": -first["w"]}, frames=[frame("w", [0], [-1.0] * 3)], moved=["w"]).facts["moved_only"] == 9


def test_factors_whose_squares_overflow_explain_nothing() -> None:
    first = {"w": np.ones((3, 3)), "v": np.ones((3, 3))}
    with pytest.raises(CertificateError, match="more than rounding"):
        copied(first, first, frames=[frame("w", [0], [1.0, 1.0, 2.0**600])], moved=["v"])


class Folder(dict[str, Any]):
    """The tensors of a folder, and what its `config.json` says."""

    settings: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"sliding_window": None}, {}),  # none there; the default, which may be some, here
        ({"text": {"hidden_act": "relu"}}, {"text.hidden_act": "relu"}),  # a key that looks like a path
        ({"rope_scaling": {}}, {"rope_scaling": None}),
        ({f"a{k}": k for k in range(60)} | {"window": 3}, {}),  # more than a sentence lists
    ],
)
def test_settings_that_one_folder_lacks_are_said_to_be_unchecked(one: Any, two: Any) -> None:
    folders = [Folder(w=np.arange(4.0)) for _ in range(2)]
    for folder, settings in zip(folders, (one, two), strict=True):
        folder.settings = settings
    try:
        statement = copied(folders[0], folders[1], moved=["w"]).statement
    except CertificateError:
        return
    assert "the same settings" not in statement
    assert "which only one folder states" in statement
    assert "window" not in one or "51 more" in statement


DTYPES: tuple[Callable[[Any], Any], ...] = (
    lambda x: x, lambda x: x.astype(np.float32).astype(np.float64), lambda x: x.astype(np.float16).astype(np.float64),
    lambda x: (np.ascontiguousarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64),
)  # fmt: skip
SIZES = [0.0, -0.0, 1.0, -1.0, 3.0, 1e-3, 1e300, -1e300, 1e-300, 5e-324, 1e-8, 65504.0, 6e-8, 1e38]


def random_copy(rng: random.Random) -> tuple[Tensors, Tensors, dict[str, Any]]:
    """Two files, of which one is made of the other, changed a little, or not what is listed."""
    draw = np.random.default_rng(rng.randrange(2**32))
    second: Tensors = {}
    first: Tensors = {}
    parts: dict[str, Any] = {"frames": [], "shifts": [], "moved": []}
    for name in "abc"[: rng.randint(1, 3)]:
        shape = rng.choice([(2,), (3,), (2, 3), (3, 3), (2, 2, 2), (1, 4), (0, 3), (4, 1), ()])
        values = draw.normal(size=shape)
        if rng.random() < 0.4:
            for place in np.ndindex(*shape):
                values[place] = rng.choice([values[place], values[place], rng.choice(SIZES)])
        store = rng.choice(DTYPES)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.nan_to_num(store(values), posinf=1.0, neginf=-1.0)
        made = values.copy()
        for axis in rng.sample(range(len(shape)), rng.randint(0, len(shape))):
            count = shape[axis]
            source = rng.sample(range(count), count)
            factors = [rng.choice([1.0, 1.0, -1.0, 2.0, 0.1, -3.0, 2.0**-600, 2.0**500]) for _ in range(count)]
            laid = [-1 if d == axis else 1 for d in range(len(shape))]
            with np.errstate(over="ignore", under="ignore"):
                made = np.take(made, source, axis) * np.array(factors).reshape(laid)
            if rng.random() < 0.1 and count > 1:
                source = source[1:] + source[:1]
            parts["frames"].append(frame(name, [axis], factors, source))
        if rng.random() < 0.15 and shape:
            constant = np.array(rng.choice([1.0, 1e9, 1e-9])).reshape([1] * len(shape))
            made = made + constant
            parts["shifts"].append({"tensor": name, "shape": [1] * len(shape), "values": packed(constant)})
        if rng.random() < 0.5:
            with np.errstate(over="ignore", invalid="ignore"):
                made = np.asarray(rng.choice(DTYPES)(made))
        if rng.random() < 0.5 and made.size:
            place = tuple(rng.randrange(count) for count in shape)
            made = np.array(made)
            made[place] = rng.choice([made[place] * (1 + 10.0 ** rng.randint(-16, 0)), rng.choice(SIZES), -made[place]])
        second[name], first[name] = values, made
        parts["moved"] += [name] * (rng.random() < 0.6)
    if rng.random() < 0.2 and len(first) > 1 and rng.choice("ab") in first:
        first["a"], first["b"] = first["b"], first["a"]
    return first, second, parts


def terms_in_fractions(name: str, tensor: Any, parts: dict[str, Any]) -> Iterator[tuple[Any, Fraction, Fraction]]:
    """What is listed, carried out exactly: places of a tensor of A, with the number that B has there then."""
    frames = [each for each in parts["frames"] if each["tensor"] == name]
    shift = sum(
        (Fraction(float(np.frombuffer(base64.b64decode(each["values"]))[0]))
         for each in parts["shifts"] if each["tensor"] == name), Fraction(0),
    )  # fmt: skip
    for place in np.ndindex(*tensor.shape):
        origin, factor = list(place), Fraction(1)
        for each in frames:
            (axis,) = each["dims"]
            factor *= Fraction(float(np.frombuffer(base64.b64decode(each["factor"]))[place[axis]]))
            origin[axis] = each["source"][place[axis]]
        yield place, factor * Fraction(float(tensor[tuple(origin)])), shift


@pytest.mark.parametrize("seed", range(8))
def test_no_forged_copy_says_what_is_false(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    seen = 0
    for _ in range(250):
        first, second, parts = random_copy(rng)
        try:
            facts = copied(first, second, **parts).facts
        except REFUSED:
            continue
        seen += 1
        equal, worst = 0, Fraction(0)
        for name, tensor in second.items():
            entries = list(terms_in_fractions(name, tensor, parts))
            gaps = [abs(Fraction(float(first[name][place])) - value - shift) for place, value, shift in entries]
            if name in parts["moved"] and not any(gaps):
                equal += len(gaps)
                continue
            for gap, (place, value, shift) in zip(gaps, entries, strict=True):
                size = max(abs(value), abs(Fraction(float(first[name][place])))) + abs(shift)
                worst = max(worst, gap / size if size else Fraction(0))
        assert facts["moved_only"] <= equal
        assert worst <= Fraction(facts["entry"]) or (worst == 0 and facts["moved_only"] == facts["numbers"])
    assert seen > 20
