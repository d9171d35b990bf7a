"""Intervals enclose: every operator, and whole models, at random points of random boxes."""

from __future__ import annotations

import inspect

import mpmath
import numpy as np
import pytest
import torch
from program.models import make
from program.test_traits import FULL, OPERATED, SAMPLES, _draw

from lawful.program import Builder, Refused
from lawful.program.arrays import NUMPY
from lawful.program.domains.evaluate import evaluate
from lawful.program.domains.intervals import bounds
from lawful.program.frontends.torch_export import read_module
from lawful.program.table import OPERATORS, Operator, OperatorFamily


@pytest.mark.parametrize("operator", OPERATED, ids=lambda each: each.name)
def test_every_operator_is_enclosed_or_refused(operator: Operator) -> None:
    rng = np.random.default_rng(0)
    arity = len(inspect.signature(operator.meaning).parameters) - 2
    for attributes, specs in SAMPLES.get(operator.name, [({}, [FULL] * arity)]):
        for width in (0.0, 1e-9, 0.3, 5.0):
            b = Builder()
            middles = [_draw(spec, rng) for spec in specs]
            names = [f"x{k}" for k in range(len(specs))]
            nodes = [b.input(n, m.shape, m.dtype.kind) for n, m in zip(names, middles, strict=True)]
            program = b.finish([b.apply(operator.name, nodes, **attributes)])
            radii = [width * rng.random(m.shape) if m.dtype.kind == "f" else 0 * m.astype(float) for m in middles]
            boxes = {n: (m - r, m + r) for n, m, r in zip(names, middles, radii, strict=True)}
            try:
                low, high = bounds(program, boxes)[0]
            except Refused:
                assert width > 0 or operator.family is OperatorFamily.LOOKUP
                continue
            for _ in range(20):
                point = [
                    m + r * rng.uniform(-1, 1, r.shape) if m.dtype.kind == "f" else m
                    for m, r in zip(middles, radii, strict=True)
                ]
                value = evaluate(program, *point)[0].astype(float)
                inside = np.isnan(value) | ((low <= value) & (value <= high))
                assert inside.all(), (attributes, width)


@pytest.mark.parametrize("name", ["mlp", "tanh", "lenet", "attention"])
def test_models_are_enclosed(name: str) -> None:
    module, x = make(name)
    program = read_module(module, [x])
    x = x.numpy()
    rng = np.random.default_rng(0)
    name = program.inputs[0]["name"]
    for width in (0.0, 1e-6, 0.1):
        low, high = bounds(program, {name: (x - width, x + width)})[0]
        assert np.isfinite(low).all()
        for _ in range(5):
            with torch.no_grad():
                value = evaluate(program, x + width * rng.uniform(-1, 1, x.shape))[0]
            assert ((low <= value) & (value <= high)).all()
    wide = np.abs(high - low).max()
    assert wide > 0


def test_parameters_may_move_too() -> None:
    module, x = make("mlp")
    program = read_module(module, [x])
    name = program.inputs[0]["name"]
    weight = module[0].weight.detach().numpy()
    low, high = bounds(program, {name: (x.numpy(), x.numpy()), "0.weight": (weight - 0.1, weight + 0.1)})[0]
    moved = {**program.tensors, "0.weight": weight + 0.1 * np.sign(weight)}
    with torch.no_grad():
        value = evaluate(program, x.numpy(), tensors=moved)[0]
    assert ((low <= value) & (value <= high)).all()
    assert (high - low).max() > 1e-3


def test_overflow_and_open_ends_are_sound() -> None:
    b = Builder()
    x = b.input("x", (1,))
    for build in (
        lambda: b.function("exp", x),
        lambda: b.mul(b.function("exp", x), b.function("exp", x)),
        lambda: b.sub(b.function("exp", x), b.function("exp", x)),
        lambda: b.sum(b.expand(b.function("exp", x), (3,))),
        lambda: b.contract("i,i->", b.function("exp", x), b.function("exp", x)),
        lambda: b.div(1.0, x),
        lambda: b.power(x, -2.0),
        lambda: b.function("log", x),
    ):
        program = b.finish([build()])
        for ends in ((700.0, 800.0), (-1.0, 2.0), (0.0, 0.0), (-800.0, -700.0), (0.0, 1e-300)):
            low, high = bounds(program, {"x": (np.array([ends[0]]), np.array([ends[1]]))})[0]
            assert not np.isnan(low).any() and not np.isnan(high).any()  # noqa: PT018
            assert (low < np.inf).all() and (high > -np.inf).all()  # noqa: PT018
            for point in np.linspace(*ends, 7):
                value = evaluate(program, np.array([point]))[0]
                assert (np.isnan(value) | ((low <= value) & (value <= high))).all()


SAME = [
    "exp",
    "expm1",
    "log",
    "log1p",
    "erf",
    "erfc",
    "tanh",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
]
EXACT = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "power": mpmath.power,
    **{name: getattr(mpmath, name) for name in (*SAME, "asinh", "acosh", "atanh")},
}
POWERS = (2.0, 0.5, -0.5, 1.5, 7.0, 20.5, -50.5, 1 / 3)


@pytest.mark.parametrize(
    ("name", "exponent"), [*((n, None) for n in EXACT if n != "power"), *(("power", p) for p in POWERS)]
)
def test_a_point_holds_the_true_value(name: str, exponent: float | None) -> None:
    """In 50 digits: erfc is off by hundreds of units in the last place at 22, lgamma by all of them near its roots."""
    rng = np.random.default_rng(0)
    scales = (1e-8, 1e-3, 0.3, 1.0, 3.0, 8.0, 20.0, 300.0)
    points = np.concatenate(
        [*(rng.normal(size=40) * s for s in scales), rng.normal(-2.4570247382208, 1e-9, 20), [0.0, 1.0]]
    )
    points = np.abs(points) + 1e-3 if exponent is not None else points
    b = Builder()
    x = b.input("x", points.shape)
    attributes = {} if exponent is None else {"exponent": exponent}
    low, high = bounds(b.finish([b.elementwise(name, x, **attributes)]), {"x": (points, points)})[0]
    computed = OPERATORS[name].meaning(NUMPY, attributes, points)
    with mpmath.workdps(50):
        for point, value, least, most in zip(
            points.tolist(), computed.tolist(), low.tolist(), high.tolist(), strict=True
        ):
            if np.isfinite(value):
                true = EXACT[name](mpmath.mpf(point), *(() if exponent is None else (exponent,)))
                assert least <= true <= most, (point, least, true, most)
