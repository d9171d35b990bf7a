"""Truncation: the velocity beside one matrix product, events beside fixed steps, a million times in closed form."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import sklearn.datasets

from benchmarks.harness import Row, best_of, compare
from lawful.papers.truncation.clusters import Clusters, synthetic
from lawful.papers.truncation.construction import ZeroLoss, zero_loss_network
from lawful.papers.truncation.flow.field import Maps, Separated, cayley
from lawful.papers.truncation.flow.integrate import integrate
from lawful.papers.truncation.flow.predictions import schedule
from lawful.papers.truncation.separability import separability
from lawful.types import Floats


def rotation(rng: np.random.Generator, size: int) -> Floats:
    """A random orthogonal matrix."""
    return np.asarray(np.linalg.qr(rng.normal(size=(size, size)))[0])


def right_hand_side() -> Iterator[Row]:
    """Q = 50, N = 10^5: seconds beside one product of the data with a Q × Q matrix, and beside autodiff."""
    rng = np.random.default_rng(0)
    points, target = rng.normal(size=(100_000, 50)), rng.normal(size=50)
    maps = Maps(0.3 * rng.normal(size=(1, 50)), rotation(rng, 50)[None])
    field = Separated(points, target)
    yield compare(
        "velocity, Q = 50, N = 1e5",
        lambda: field.velocity(maps),
        "one product X R'",
        lambda: points @ maps.rotations[0].T,
        note="two products and three passes over the data: the ratio's inverse is how many products it costs",
    )
    import torch

    data, goal = torch.tensor(points), torch.tensor(target)

    def by_autodiff() -> None:
        shift, turn = (torch.tensor(array[0], requires_grad=True) for array in maps)
        image = torch.relu((data + shift) @ turn.T) @ turn - shift
        torch.autograd.grad(0.5 * ((image - goal) ** 2).sum(dim=1).mean(), (shift, turn))

    yield compare("velocity, Q = 50, N = 1e5", lambda: field.velocity(maps), "PyTorch autodiff", by_autodiff)


def error(run: Maps, exact: Maps) -> float:
    """Largest difference of two states."""
    return max(float(np.abs(a - b).max()) for a, b in zip(run, exact, strict=True))


def events_against_steps() -> Iterator[Row]:
    """How long do fixed steps take, and how accurate are they then?"""
    rng = np.random.default_rng(1)
    field = Separated(rng.normal(size=(40, 3)), rng.normal(size=3))
    start = Maps(0.3 * rng.normal(size=(1, 3)), rotation(rng, 3)[None])
    exact = integrate(field, start, [0.0, 1.0], tolerance=1e-13).maps[-1]
    ours = integrate(field, start, [0.0, 1.0], tolerance=1e-8)
    seconds = best_of(lambda: integrate(field, start, [0.0, 1.0], tolerance=1e-8))
    for steps in (100, 1000, 10_000):
        reached = error(fixed_steps(field, start, steps), exact)
        yield Row(
            f"events to s = 1, error {error(ours.maps[-1], exact):.0e}",
            seconds,
            f"{steps} fixed steps, error {reached:.0e}",
            best_of(lambda steps=steps: fixed_steps(field, start, steps), 1),  # type: ignore[misc]
            "sign changes spoil the order of fixed steps",
        )


def fixed_steps(field: Separated, maps: Maps, steps: int) -> Maps:
    """The midpoint rule on the group, blind to sign changes."""
    step = 1.0 / steps
    for _ in range(steps):
        velocity = field.velocity(maps)
        half = Maps(maps.shifts + step / 2 * velocity.shifts, cayley(step / 2 * velocity.generators) @ maps.rotations)
        velocity = field.velocity(half)
        maps = Maps(maps.shifts + step * velocity.shifts, cayley(step * velocity.generators) @ maps.rotations)
    return maps


def rows() -> Iterator[Row]:
    """All rows."""
    yield from right_hand_side()
    yield from events_against_steps()
    values = np.random.default_rng(2).normal(size=1_000_000)
    low, high = float(values.min()), float(values.max()) + 1
    yield compare("1e6 truncation times", lambda: schedule(values, low, high), "np.sort alone", lambda: np.sort(values))
    data = synthetic(10, 100, 0.3)
    yield compare("zero-loss network, Q = 10, N = 1000", lambda: zero_loss_network(data))
    digits = Clusters(*sklearn.datasets.load_digits(return_X_y=True))
    begin = time.process_time()
    found = separability(digits)
    single = found.built.loss_single if isinstance(found.built, ZeroLoss) else float("nan")
    yield Row("exact separation of digits, ten classes", time.process_time() - begin, note=f"float32 loss {single:.0e}")
