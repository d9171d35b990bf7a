"""The flow's gradients and kinks beside the obvious ways, and what a monitor costs a real training step."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Row, best_of, compare
from lawful.network import Architecture
from lawful.sources.modules.convert import to_module
from lawful.training import integrate, problem
from lawful.training.problems.losses import Problem


def _data(text: str, samples: int, seed: int = 0) -> tuple[Any, Any, Any]:
    network = Architecture.parse(text).initialise(seed=seed)
    rng = np.random.default_rng(seed)
    dag = network.to_dag()
    return network, rng.normal(size=(samples, len(dag.inputs))), rng.normal(size=(samples, len(dag.outputs)))


def _gradients() -> Iterator[Row]:
    def often(at: Problem) -> None:
        for _ in range(100):
            at.evaluate(at.start)

    for text, samples in (("30-20-1 relu", 569), ("64-128-128-10 relu bias", 256)):
        network, x, y = _data(text, samples)
        ours, torch = problem(network, x, y), problem(to_module(network), x, y)
        name = f"100 gradients of {text}, {samples} samples"
        yield compare(name, partial(often, ours), "torch autograd", partial(often, torch))


def _flows() -> Iterator[Row]:
    network, x, y = _data("3-8-2 relu bias", 12)
    ours, torch = problem(network, x, y), problem(to_module(network), x, y)
    kinks = len(integrate(ours, 2.0).kinks)
    yield compare(
        "flow of 3-8-2 relu bias, time 2",
        lambda: integrate(ours, 2.0),
        "the same solver on torch gradients",
        lambda: integrate(torch, 2.0),
        repeat=2,
        note=f"{kinks} kinks",
    )
    # At the same accuracy: kinks located, or met by ever smaller steps. No neuron is pinned here; where one is, the
    # second way does not get past it.
    network, x, y = _data("2-6-1 relu", 6, seed=3)
    at = problem(network, x, y)
    true = integrate(at, 4.0, relative=1e-13, absolute=1e-15, snapshots=2).end
    located = {"relative": 1e-8, "absolute": 1e-10}
    blind = {"relative": 1e-10, "absolute": 1e-12, "locate_kinks": False}
    errors = [
        float(np.abs(integrate(at, 4.0, snapshots=2, **options).end - true).max())  # type: ignore[arg-type]
        for options in (located, blind)
    ]
    yield compare(
        "flow of 2-6-1 relu, kinks located",
        lambda: integrate(at, 4.0, snapshots=2, **located),  # type: ignore[arg-type]
        "smaller steps instead",
        lambda: integrate(at, 4.0, snapshots=2, **blind),  # type: ignore[arg-type]
        note=f"errors {errors[0]:.0e} and {errors[1]:.0e}",
    )


def _monitor() -> Iterator[Row]:
    import torch
    from torch import nn

    from lawful.training.monitor.monitor import Monitor

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(128, 784), torch.randint(10, (128,))

    every = 25

    def plain_steps(monitor: Monitor | None = None) -> None:
        for _ in range(every):
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            if monitor is not None:
                monitor.step(0.0)

    def records(monitor: Monitor) -> None:
        for _ in range(5):
            monitor._record(0.0)

    with (
        tempfile.TemporaryDirectory() as folder,
        Monitor(model, every=every, file=Path(folder) / "run.jsonl", live=False) as monitor,
    ):
        plain = best_of(plain_steps, 5) / every
        alone = best_of(partial(records, monitor), 5) / 5
        with_it = best_of(partial(plain_steps, monitor), 5) / every
    parameters = sum(value.numel() for value in model.parameters())
    share = alone / every / plain
    yield Row(
        f"monitored step, {parameters:,} parameters, every {every}", with_it, "plain step", plain,
        note=f"a record takes {1e3 * alone:.2f} ms: {100 * share:.2f}% of {every} steps",
    )  # fmt: skip


def rows() -> Iterator[Row]:
    """All rows of this room."""
    yield from _gradients()
    yield from _flows()
    yield from _monitor()
