"""Every operator: its two meanings agree, and every trait that it claims holds on samples."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lawful.program.arrays import NUMPY, TorchArrays
from lawful.program.index_map import IndexMap
from lawful.program.table import OPERATORS, Operator, OperatorFamily, Traits

TORCH = TorchArrays()
CONV = {
    "stride": (2, 1),
    "padding": (1, 0),
    "dilation": (1, 2),
    "groups": 2,
    "transposed": False,
    "output_padding": (0, 0),
}
TRANSPOSED = {**CONV, "transposed": True, "output_padding": (1, 0)}
FULL = (3, 4)
MAPS = (IndexMap.of(np.array([[5, 0], [9, 2]])), IndexMap.affine((4, 3), (1, 4)))
# operators with attributes, or with operands that are not all reals of one size: attributes, and a size or kind of each
SAMPLES: dict[str, list[tuple[dict[str, Any], list[Any]]]] = {
    "take": [({"map": index}, [FULL]) for index in MAPS],
    "power": [({"exponent": p}, [FULL]) for p in (2.0, 3.0, 0.5, -1.0, -0.5, 1.5, 0.0)],
    "cast": [({"to": "i"}, [FULL]), ({"to": "f"}, ["b"])],
    "contract": [({"spec": "ab,cb->ca"}, [(3, 4), (2, 4)]), ({"spec": "abc,acd->abd"}, [(2, 3, 4), (2, 4, 5)])],
    "conv": [(CONV, [(2, 4, 6, 7), (6, 2, 3, 2)]), (TRANSPOSED, [(2, 6, 4, 5), (6, 2, 3, 2)])],
    "softmax": [({"axis": 1}, [FULL])],
    "normalise": [({"axes": (1,), "centre": c, "epsilon": e}, [FULL]) for c in (True, False) for e in (0.0, 1e-5)],
    "sorted": [({"axis": 1, "descending": d}, [FULL]) for d in (True, False)],
    "argsort": [({"axis": 1, "descending": d}, [FULL]) for d in (True, False)],
    "argmax": [({"axis": 0}, [FULL])],
    "argmin": [({"axis": 0}, [FULL])],
    "where": [({}, ["b", FULL, FULL])],
    "any": [({"axes": (0,)}, ["b"])],
    "all": [({"axes": (0, 1)}, ["b"])],
    "and": [({}, ["b", "b"])],
    "or": [({}, ["b", "b"])],
    "xor": [({}, ["b", "b"])],
    "not": [({}, ["b"])],
    "lookup": [({"axis": 1}, [FULL, "i"])],
    "gather": [({"axis": 0}, [FULL, "i"])],
    "scatter": [({"axis": 0, "reduce": r}, [FULL, "i", FULL]) for r in ("none", "add", "mul", "max", "min")],
    **{name: [({"axes": axes}, [FULL]) for axes in ((0,), (0, 1))] for name in ("sum", "amax", "amin", "prod")},
}  # fmt: skip
OPERATED = [each for each in OPERATORS.values() if each.family not in (OperatorFamily.LEAF, OperatorFamily.OPAQUE)]


def _samples(operator: Operator) -> list[tuple[dict[str, Any], list[Any]]]:
    arity = len(inspect.signature(operator.meaning).parameters) - 2
    assert operator.name in SAMPLES or not operator.attributes, f"{operator.name} needs a sample of its attributes"
    return SAMPLES.get(operator.name, [({}, [FULL] * arity)])


def _draw(spec: Any, rng: np.random.Generator) -> np.ndarray:
    if spec == "b":
        return rng.random(FULL) < 0.5
    if spec == "i":  # each position once along the axis: what several writes to one place do is not promised
        return rng.permuted(np.tile(np.arange(3), (4, 1)), axis=1).T
    return rng.normal(size=spec) * 1.3


def _run(operator: Operator, attributes: dict[str, Any], operands: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(operator.meaning(NUMPY, attributes, *operands))


def _on_reals(change: Any, *groups: list[np.ndarray]) -> list[np.ndarray]:
    return [change(*parts) if parts[0].dtype.kind == "f" else parts[0] for parts in zip(*groups, strict=True)]


def check_traits(
    operator: Operator, traits: Traits, attributes: dict[str, Any], x: list[np.ndarray], y: list[np.ndarray]
) -> None:
    """Whoever adds an operator may call this with samples of it."""

    def f(operands: list[np.ndarray]) -> np.ndarray:
        return _run(operator, attributes, operands)

    def same(one: Any, other: Any) -> None:
        one, other = (np.asarray(each, dtype=float) for each in (one, other))
        numbers = ~(np.isnan(one) | np.isnan(other))  # outside of a function's domain there is nothing to compare
        np.testing.assert_allclose(one[numbers], other[numbers], rtol=1e-9, atol=1e-9)

    value = f(x).astype(float)
    if not any(each.dtype.kind == "f" for each in x):
        return
    if traits.degree is not None:
        for s in (0.25, 8.0):  # powers of 2: products with them are exact, and so are ties
            same(f(_on_reals(lambda t, s=s: s * t, x)), s**traits.degree * value)
    if traits.odd or traits.even:
        same(f(_on_reals(np.negative, x)), -value if traits.odd else value)
    if traits.monotone:
        more = f(_on_reals(lambda t, u: t + np.abs(u), x, y)).astype(float)
        rises = (more - value) * traits.monotone
        assert (rises[~np.isnan(rises)] >= -1e-12).all()
    if traits.zero:
        assert (f(_on_reals(np.zeros_like, x)) == 0).all()
    low, high = traits.range
    assert ((value >= low) & (value <= high))[~np.isnan(value)].all()
    if traits.linear == "jointly":
        same(f(_on_reals(np.add, x, y)), value + f(y))
        same(f(_on_reals(lambda t: -1.5 * t, x)), -1.5 * value)
    if traits.linear == "in each":
        for k, (a, b) in enumerate(zip(x, y, strict=True)):
            parts = [[*x[:k], t, *x[k + 1 :]] for t in (2.5 * a + b, b)]
            same(f(parts[0]), 2.5 * value + f(parts[1]))
    if traits.shift is not None:
        same(f(_on_reals(lambda t: t + 0.75, x)), value + traits.shift * 0.75)
    if traits.steps:  # samples lie on no jump
        assert (f(_on_reals(lambda t: t + 1e-9, x)) == value).all()
    for kink in traits.kinks:
        left, right = ((f([np.array(kink + s)]) - f([np.array(kink + s / 2)])) / (s / 2) for s in (-1e-6, 1e-6))
        jump = f([np.array(kink + 1e-9)]) - f([np.array(kink - 1e-9)])
        assert abs(left - right) > 1e-3 or abs(jump) > 1e-3


@pytest.mark.parametrize("operator", OPERATED, ids=lambda each: each.name)
def test_traits_hold_and_both_meanings_agree(operator: Operator) -> None:
    rng = np.random.default_rng(0)
    for attributes, specs in _samples(operator):
        for _ in range(3):
            x, y = ([_draw(spec, rng) for spec in specs] for _ in range(2))
            y = [b if b.dtype.kind == "f" else a for a, b in zip(x, y, strict=True)]  # the same choices and positions
            check_traits(operator, operator.traits_of(attributes), attributes, x, y)
            ours = _run(operator, attributes, x)
            theirs = operator.meaning(TORCH, attributes, *(torch.from_numpy(np.array(each)) for each in x)).numpy()
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=1e-10, atol=1e-12)
            shape = (
                operator.shape(attributes, *(t.shape for t in x))
                if operator.shape
                else np.broadcast_shapes(*(t.shape for t in x))
            )
            assert shape == ours.shape


EXTREMES = np.array([0.0, 1e-300, -1e-300, 1e150, -1e150, 1e16, 1.0, -1.0, 0.5, -2.5, 3.5, np.inf, -np.inf, 1e-8])


@pytest.mark.parametrize("operator", OPERATED, ids=lambda each: each.name)
def test_what_no_rounding_changes_holds_at_extremes(operator: Operator) -> None:
    """Ties, zeros, halves, infinities; scales are powers of 2. (Sums that lose a term, and casts, are left out.)"""
    rng = np.random.default_rng(0)
    for attributes, specs in _samples(operator):
        claimed = operator.traits_of(attributes)
        exact = replace(claimed, shift=None, linear="", steps=False, kinks=())
        for _ in range(20 if operator.name != "cast" else 0):
            x, y = ([_draw(spec, rng) for spec in specs] for _ in range(2))
            y = [b if b.dtype.kind == "f" else a for a, b in zip(x, y, strict=True)]
            x, y = (
                [np.where(rng.random(t.shape) < 0.6, rng.choice(EXTREMES, t.shape), t) if t.dtype.kind == "f" else t
                 for t in operands]
                for operands in (x, y)
            )  # fmt: skip
            with np.errstate(all="ignore"):
                check_traits(operator, exact, attributes, x, y)


def test_positions_of_extremes_with_ties_and_nan() -> None:
    x = np.array([[1.0, 3.0, 3.0], [np.nan, 2.0, np.nan], [0.0, -np.inf, np.inf]])
    for name in ("argmax", "argmin"):
        ours, theirs = (getattr(arrays, name)(each, 1) for arrays, each in ((NUMPY, x), (TORCH, torch.from_numpy(x))))
        assert ours.tolist() == theirs.tolist()


def test_a_wrong_trait_is_found() -> None:
    rng = np.random.default_rng(1)
    x, y = ([rng.normal(size=FULL)] for _ in range(2))
    for wrong in (
        Traits(degree=1), Traits(even=True), Traits(monotone=-1), Traits(range=(-0.1, 0.1)), Traits(linear="jointly"),
        Traits(shift=1), Traits(kinks=(0.0,)), Traits(steps=True),
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            check_traits(OPERATORS["tanh"], wrong, {}, x, y)
