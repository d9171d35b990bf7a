"""Leaky ResNets: our solver against the paper's recipe, our gradient against autograd, energies against pinv."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from benchmarks.harness import Row, best_of, compare
from lawful.papers.leaky import (
    LeakyResNet,
    RepresentationPath,
    TeacherTask,
    adapt_steps,
    change_grid,
    energies,
    read_blocks,
    recipe,
    solve,
    teacher,
    trace,
)
from lawful.papers.leaky.mechanics import lift
from lawful.papers.leaky.solver.objective import Objective

STATIONARITY = 1e-3


def rows() -> Iterator[Row]:
    """All rows, in about a minute."""
    yield _solver_against_recipe()
    yield _solver_against_adam()
    yield _grids()
    yield _stream()
    train, _ = teacher((20, 5, 20), 1000)
    net = LeakyResNet.random(width=200, layers=50, effective_depth=5.0, inputs=20, outputs=20, softness=0.01)
    objective = Objective(net, train, 0.04)
    point = net.weights.detach().numpy() * objective.roots
    yield _gradient(net, train, objective, point)
    yield _adaptation(objective, point)
    yield _energies(net, train)


def _solver_against_recipe() -> Row:
    """Same start, same cost, same corner of ReLU; both counted in gradient evaluations."""
    train, _ = teacher((5, 2, 5), 30)
    net = LeakyResNet.random(width=9, layers=16, effective_depth=3.0, inputs=5, outputs=5, softness=0.01)
    start = time.perf_counter()
    ours = solve(net, train, 0.06, tolerance=STATIONARITY)
    middle = time.perf_counter()
    theirs = recipe(net, train, 0.06)
    seconds = time.perf_counter() - middle
    reached, needed = theirs.evaluations_to(STATIONARITY), ours.evaluations_to(STATIONARITY)
    spent = theirs.evaluations if reached is None else reached
    ratio = "not reached" if needed is None else f"{spent / needed:.3g}x fewer{' at least' if reached is None else ''}"
    return Row(
        f"geodesic to stationarity {STATIONARITY:g}, 5-2-5, width 9, 16 layers",
        middle - start,
        "Adam 20000 + SGD 10000",
        seconds * spent / theirs.evaluations,
        f"{needed} evaluations against {spent}: {ratio}; costs {ours.cost:.4f}, {theirs.cost:.4f}",
    )


def _solver_against_adam(steps: int = 2000) -> Row:
    """Same start: how soon the solver passes the cost that Adam ends at."""
    train, _ = teacher((20, 5, 20), 150)
    net = LeakyResNet.random(width=60, layers=20, effective_depth=4.0, inputs=20, outputs=20, softness=0.01)
    start = time.perf_counter()
    theirs = recipe(net, train, 0.04, adam=steps, sgd=0)
    middle = time.perf_counter()
    ours = solve(net, train, 0.04, evaluations=steps // 4)
    seconds = time.perf_counter() - middle
    needed = next((entry.evaluations for entry in ours.history if entry.cost <= theirs.cost), None)
    return Row(
        f"the cost of {steps} steps of Adam, 20-5-20, width 60, 20 layers",
        seconds if needed is None else seconds * needed / ours.evaluations,
        f"Adam, {steps} steps",
        middle - start,
        f"not reached in {ours.evaluations}"
        if needed is None
        else f"{needed} evaluations: {steps / needed:.3g}x fewer",
    )


def _grids(layers: int = 40, grids: int = 3) -> Row:
    """Few layers first, doubled twice, against all layers from the start; counted in evaluations of one layer."""
    train, _ = teacher((20, 5, 20), 200)

    def start(count: int) -> LeakyResNet:
        return LeakyResNet.random(
            width=40, layers=count, effective_depth=4.0, inputs=20, outputs=20, softness=0.01
        )  # fmt: skip

    begin = time.process_time()
    flat = solve(start(layers), train, 0.04, tolerance=1e-2, evaluations=4000, adaptations=4)
    middle = time.process_time()
    network, spent = start(layers >> (grids - 1)), 0
    for number in reversed(range(grids)):
        found = solve(
            network, train, 0.04, tolerance=3e-2 if number else 1e-2, evaluations=4000,
            adaptations=4 if number == grids - 1 else 0,
        )  # fmt: skip
        spent += found.evaluations * found.network.layers
        if number:
            network = change_grid(found.network, 2 * found.network.layers, train)
    return Row(
        f"geodesic to stationarity 0.01 by {grids} grids, 20-5-20, width 40, {layers} layers",
        time.process_time() - middle,
        "one grid",
        middle - begin,
        f"{spent} evaluations of a layer against {flat.evaluations * layers}; costs {found.cost:.4f}, {flat.cost:.4f}",
    )


class _Block(torch.nn.Module):
    """A pre-norm residual MLP of GPT-2's width."""

    def __init__(self, width: int = 768) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the two layers say."""
        found: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return found


def _stream(blocks: int = 2) -> Row:
    """The instrument on blocks of GPT-2's width with 4096 tokens; the model's own pass beside it."""
    model = torch.nn.Sequential(*(_Block() for _ in range(blocks))).eval()
    tokens = torch.randn(8, 512, 768)
    begin = time.process_time()
    with torch.no_grad():
        model(tokens)
    middle = time.process_time()
    read_blocks(model, tokens)
    seconds = (time.process_time() - middle) / blocks
    return Row("instrument, a block of width 768, 4096 tokens", seconds, "its forward pass", (middle - begin) / blocks,
               f"24 such blocks are GPT-2 small: {24 * seconds:.0f} s of processor time")  # fmt: skip


def _gradient(net: LeakyResNet, train: TeacherTask, objective: Objective, point: np.ndarray) -> Row:
    inputs, targets = torch.from_numpy(train.inputs.copy()), torch.from_numpy(train.targets.copy())

    def autograd() -> None:
        net.zero_grad()
        net.cost(inputs, targets, 0.04).backward()  # type: ignore[no-untyped-call]

    single = Objective(net, train, 0.04, np.float32)
    return compare(
        "one gradient, width 200, 50 layers, 1000 samples",
        lambda: single(point),
        "autograd, double",
        autograd,
        note=f"single precision, as the solver; ours in double {best_of(lambda: objective(point)):.3g} s",
    )


def _adaptation(objective: Objective, point: np.ndarray) -> Row:
    gradients = 10 * best_of(lambda: objective(point), 2)
    seconds = best_of(lambda: adapt_steps(objective.steps, objective.states, 5.0))
    return Row("adapting the steps, same size", seconds, "10 gradients", gradients, f"{100 * seconds / gradients:.2g}%")


def _energies(net: LeakyResNet, train: TeacherTask) -> Row:
    path = trace(net, train, 0.04)

    def one_layer_by_pseudo_inverse() -> None:
        sigma, A = lift(path.A[25]), path.A[25]
        inverse = np.linalg.pinv(sigma.T @ sigma)
        for M in (A, path.velocity[25]):
            np.trace(M @ inverse @ M.T)

    return Row(
        "all energies, width 200, 50 layers, 1000 samples",
        best_of(lambda: energies(_fresh(path)), 2),
        "pseudo-inverse of K",
        50 * best_of(one_layer_by_pseudo_inverse, 1),
        "baseline: one layer measured, times 50, two norms only",
    )


def _fresh(path: RepresentationPath) -> RepresentationPath:
    """Without cached arrays."""
    return RepresentationPath(path.states, path.momenta, path.weights, path.steps, path.effective_depth, path.softness)
