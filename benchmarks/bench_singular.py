"""The nuclear-norm penalty beside the plain step, the eigendecomposition and the dense SVD; pruning at size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from benchmarks.harness import Row, best_of, compare
from lawful.invariant_set.singular.laplacian import layered_edge_weights
from lawful.invariant_set.singular.regulariser import NuclearPenalty
from lawful.network import Architecture, Mlp
from lawful.pruning.neurons.certificate import certificate
from lawful.pruning.neurons.prune import prune
from lawful.verify import verify

LARGE = (100, *[240] * 9, 10)  # ten layers, 0.49 million parameters; J would have 2160 × 489 370 entries, 8.5 GB
EVERY = 100


def rows() -> Iterator[Row]:
    """One thread, so that ratios are of work done."""
    torch.set_num_threads(1)
    yield from training_step()
    yield from refresh()
    yield from dense()
    yield from pruning()


def training_step() -> Iterator[Row]:
    """A step with the lazy penalty, its share of a refresh included, beside the plain step."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for below, above in pairwise(LARGE):
        parts += [nn.Linear(below, above), nn.ReLU()]
    model = nn.Sequential(*parts[:-1])
    inputs, labels = torch.randn(256, LARGE[0]), torch.randint(0, LARGE[-1], (256,))
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()
    penalty = NuclearPenalty(model, every=EVERY)
    penalty.refresh()
    penalty.calls = 1

    def step(strength: float) -> None:
        optimiser.zero_grad()
        loss(model(inputs), labels).backward()
        if strength:
            penalty.add_gradient(strength)
        optimiser.step()

    plain, lazy = processor_seconds(lambda: step(0.0), 40), processor_seconds(lambda: step(1e-4), 40)
    share = processor_seconds(penalty.refresh, 5) / EVERY
    name = f"regularised step, 10 layers, 0.49 M parameters, refreshed every {EVERY} (processor time)"
    yield Row(name, lazy + share, "plain step", plain, f"{(lazy + share) / plain:.2f}x the plain step; goal 1.2x")


def processor_seconds(job: Callable[[], object], repeat: int) -> float:
    """The least processor time of several runs: a refresh is too long to find a quiet moment on a shared machine."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        job()
        times.append(time.process_time() - start)
    return min(times)


def refresh() -> Iterator[Row]:
    """All edge weights at that size: block solves beside one eigendecomposition."""
    mlp = Architecture(LARGE, bias=True).initialise(seed=1)
    assert isinstance(mlp, Mlp)
    for tolerance in (1e-2, 1e-6):
        found = layered_edge_weights(mlp.weights, mlp.biases, floor=1e-2, tolerance=tolerance)
        yield compare(
            f"edge weights of 0.49 M parameters to {tolerance:g}",
            partial(layered_edge_weights, mlp.weights, mlp.biases, floor=1e-2, tolerance=tolerance),
            "eigendecomposition" if tolerance < 1e-3 else "",
            (lambda: layered_edge_weights(mlp.weights, mlp.biases, floor=1e-2, eigen=True))
            if tolerance < 1e-3
            else None,
            repeat=1 if tolerance < 1e-3 else 3,
            note=f"stated error {found.error:.1g}",
        )


def dense() -> Iterator[Row]:
    """Value and gradient beside the singular value decomposition of the dense J."""
    for width in (60, 100):
        mlp = Architecture((width, *[width] * 4, 10), bias=True).initialise(seed=2)
        assert isinstance(mlp, Mlp)
        dag = mlp.to_dag()
        jacobian = 2 * dag.hidden_incidence.toarray() * dag.theta
        norm = layered_edge_weights(mlp.weights, mlp.biases, tolerance=1e-8).norm
        expected = float(np.linalg.svd(jacobian, compute_uv=False).sum()) if width == 60 else norm
        assert abs(norm / expected - 1) < 1e-6
        size = jacobian.nbytes / 1e6
        yield compare(
            f"norm and gradient, {4 * width} neurons, {dag.parameters:,} edges",
            partial(layered_edge_weights, mlp.weights, mlp.biases, tolerance=1e-8),
            "dense SVD",
            partial(np.linalg.svd, jacobian, full_matrices=False),
            repeat=1,
            note=f"the dense matrix has {size:.0f} MB",
        )


def pruning() -> Iterator[Row]:
    """Lossless pruning of a layered network with redundant neurons, and its replay in rational arithmetic."""
    for width, text in ((256, "64-256-256-10"), (40, "64-40-40-10")):
        mlp = Architecture((64, width, width, 10), bias=True).initialise(seed=3)
        assert isinstance(mlp, Mlp)
        weights, biases = [weight.copy() for weight in mlp.weights], [np.array(bias) for bias in mlp.biases]
        weights[0][: width // 4] = 0.0
        half, eighth = width // 2, width // 8
        weights[1][half : half + eighth], biases[1][half : half + eighth] = (
            2 * weights[1][:eighth],
            2 * biases[1][:eighth],
        )
        network = Mlp(weights, biases)
        found = prune(network)
        note = f"{found.neurons_before} -> {found.neurons_after} neurons, bound {found.bound:g}"
        yield Row(f"prune {text}, {network.parameters:,} parameters", best_of(partial(prune, network), 2), note=note)
    yield Row(
        f"verify the pruning of {text}", best_of(lambda: verify(certificate(found)), 1), note="rational arithmetic"
    )
