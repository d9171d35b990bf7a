"""Claims of paper 3 about layer steps in training: Figure 2, test errors, what adapting costs."""

from __future__ import annotations

import time
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from scipy import stats

from lawful.api.training.leaky_files import load_network, load_task
from lawful.api.training.leaky_runs import LeakyPlan, run_leaky
from lawful.figure import Figure, Panel, Series
from lawful.papers.leaky import (
    Energies,
    LeakyResNet,
    TeacherTask,
    adapt_steps,
    energies,
    equidistant,
    irregular,
    solve,
    teacher,
    trace,
)
from lawful.papers.leaky.model import positions
from lawful.papers.leaky.solver.objective import Objective
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import smallest
from reproduction.long_runs import long_run

TEACHERS, FEW_TEACHERS = 12, 5  # for a test of a mean: t must exceed 1.80 of twelve, 2.13 of five
RULES = ("equidistant", "irregular", "adaptive")
PAPER_LAYERS = (6, 9, 12, 18, 25)


Run = tuple[LeakyResNet, TeacherTask, TeacherTask, float]  # with its data, test data and ridge


@cache
def _rules(full: bool, seed: int) -> dict[str, dict[int, Run]]:
    """Networks of several depths under the three step rules for one teacher (P3 Figure 2)."""
    return {rule: {layers: _run(full, rule, layers, seed) for layers in (PAPER_LAYERS if full else (6, 10))}
            for rule in RULES}  # fmt: skip


def _run(full: bool, rule: str, layers: int, seed: int) -> Run:
    """One network: 30-6-3-30 at the paper's size, 8-4-2-8 in a second."""
    if full:
        plan = LeakyPlan(
            "30-6-3-30", layers=layers, steps=rule, ridge=0.06, tolerance=0.01, evaluations=2000, seed=seed
        )
        with long_run(f"p3-rules/teacher-{seed}/{rule}-{layers}") as folder:
            run_leaky(plan, (3.0,), folder)
            train, test = (load_task(folder / f"{name}.npz") for name in ("train", "test"))
            return load_network(folder / "depth-3.npz"), train, test, plan.ridge
    train, test = teacher((8, 4, 2, 8), 60, seed=seed)
    start = LeakyResNet.random(
        width=14, layers=layers, effective_depth=3.0, inputs=8, outputs=8, softness=0.01,
        steps=irregular(layers, 0.9) if rule == "irregular" else equidistant(layers),
    )  # fmt: skip
    adaptations = 4 if rule == "adaptive" else 0
    found = solve(start, train, 0.08, tolerance=1e-2, evaluations=500, adaptations=adaptations)
    return found.network, train, test, 0.08


def _test_errors(runs: dict[str, dict[int, Run]]) -> dict[str, dict[int, float]]:
    return {rule: {n: _test_error(run[0], run[2]) for n, run in by.items()} for rule, by in runs.items()}


def _test_error(network: LeakyResNet, test: TeacherTask) -> float:
    with torch.no_grad():
        output = network(torch.from_numpy(test.inputs.copy())).numpy()
    return float(np.square(output - test.targets).sum() / len(test))


def _unevenness(network: LeakyResNet, task: TeacherTask, ridge: float) -> float:
    """Largest over smallest relative move of a layer."""
    path = trace(network, task, ridge)
    sizes = np.linalg.norm(path.states[1:], axis=(1, 2))
    moves = np.linalg.norm(np.diff(path.states, axis=0), axis=(1, 2)) / sizes
    return float(moves.max() / moves.min())


@claim(
    "p3-figure-2",
    "Figure 2, Section 4, Appendix B",
    "(a) at every depth irregular and adaptive steps have a lower test error than equidistant ones, and more layers "
    "lower it; (b) the spectra of the adaptive network show the inner dimension around p = 0.7 and an intermediate one "
    "around p = 0.3; (c) adaptive steps spread the representations better, with more layers near input and output",
    size=Size(
        "one teacher 8-4-2-8, width 14, 6 and 10 layers, 60 samples",
        "one teacher 30-6-3-30, width 200, 6 to 25 layers, 1000 samples",
        "one teacher 30-6-3-30, width 200, spectra at 18 layers",
    ),
    criterion="ours: the order of single test errors; singular values above half of the largest at p = 0.7 and 0.3; "
    "the largest over the smallest move of a layer; our teachers have one hidden layer a map (the paper does not say)",
    experiment=True,
)
def figure_two(full: bool) -> Outcome:
    """Train every rule at every depth; compare the three panels one by one, and draw them."""
    runs = _rules(full, 1)
    errors = _test_errors(runs)
    uneven = {
        rule: float(np.mean([_unevenness(run[0], run[1], run[3]) for run in by.values()])) for rule, by in runs.items()
    }
    drawn = 18 if full else max(runs["adaptive"])  # the paper draws 18 layers
    network, train, _, ridge = runs["adaptive"][drawn]
    steps = network.steps.numpy()
    outer = float((steps[0] + steps[-1]) / 2 * len(steps))
    spectra = energies(trace(network, train, ridge))
    dimensions = [_dimension(spectra, p) for p in (0.3, 0.7)]
    inner, wide = (3, 6) if full else (2, 4)
    shown = {
        "a: lower test errors": all(
            errors[rule][n] < error for rule in ("irregular", "adaptive") for n, error in errors["equidistant"].items()
        ),
        "a: more layers, lower errors": all(
            later < before for by in errors.values() for before, later in pairwise(by.values())
        ),
        "b: the inner dimension at 0.7": dimensions[1] == inner,
        "b: an intermediate one at 0.3": inner < dimensions[0] <= wide,
        "c: adaptive steps spread best": uneven["adaptive"] < uneven["irregular"] < uneven["equidistant"],
        "c: more layers at both ends": outer < 1,
    }
    return Outcome(
        all(shown.values()),
        {"shown": shown, "test_errors": errors, "large_singular_values_at_0.3_and_0.7": dimensions,
         "largest_over_smallest_move": uneven, "outer_steps_times_layers": outer},
        figure=_figure_two(errors, {rule: by[drawn] for rule, by in runs.items()}, spectra),
    )  # fmt: skip


def _dimension(spectra: Energies, p: float) -> int:
    """How many singular values of W exceed half of the largest at the layer nearest to p."""
    values = spectra.singular_values[int(np.argmin(np.abs(spectra.p - p)))]
    return int((values > 0.5 * values[0]).sum())


@claim(
    "p3-step-rules",
    "Section 4, Figure 2a",
    "adaptive and irregular steps have a small but consistent advantage in the test error",
    size=Size(
        "five teachers 8-4-2-8, width 14, 6 and 10 layers, 60 samples",
        "twelve teachers 30-6-3-30, width 200, 6 to 25 layers, 1000 samples",
        "one teacher 30-6-3-30, width 200",
    ),
    criterion="ours: over all teachers the mean ratio of test errors to those of equidistant steps lies below 1 at "
    "the 5% level, for both rules (one-sided t-test); the paper gives no error bars",
    experiment=True,
)
def step_rules(full: bool) -> Outcome:
    """Mean ratio of test errors to those of equidistant steps, teacher by teacher, and Student's t of its mean."""
    means: dict[str, list[float]] = {"irregular": [], "adaptive": []}
    teachers = TEACHERS if full else FEW_TEACHERS
    for seed in range(1, 1 + teachers):
        errors = _test_errors(_rules(full, seed))
        for rule, found in means.items():
            found.append(float(np.mean([errors[rule][n] / errors["equidistant"][n] for n in errors[rule]])))
    student = {rule: advantage(found) for rule, found in means.items()}
    level = float(stats.t.ppf(0.95, teachers - 1))
    return Outcome(
        smallest(student.values()) > level,
        {"mean_ratio_to_equidistant": {rule: float(np.mean(found)) for rule, found in means.items()},
         "students_t": student, "needed_t": level, "ratios": means},
    )  # fmt: skip


def advantage(ratios: list[float]) -> float:
    """Student's t for a mean below 1: positive if the rule is better than equidistant steps."""
    return float((1 - np.mean(ratios)) / (np.std(ratios, ddof=1) / np.sqrt(len(ratios))))


def _figure_two(
    errors: dict[str, dict[int, float]],
    deepest: dict[str, Run],
    spectra: Energies,
) -> Figure:
    paths = {rule: trace(run[0], run[1], run[3]).states for rule, run in deepest.items()}
    flat = np.concatenate([states.reshape(len(states), -1) for states in paths.values()])
    centre = flat.mean(axis=0)
    plane = np.linalg.svd(flat - centre, full_matrices=False)[2][:2]
    projected = {rule: (states.reshape(len(states), -1) - centre) @ plane.T for rule, states in paths.items()}
    return Figure(
        "Test error by number of layers; spectra of W with the adaptive steps; paths projected to their main plane.",
        [
            Panel([Series(list(by.values()), list(by), rule) for rule, by in errors.items()], "test error", "layers L"),
            Panel([Series(values, spectra.p) for values in spectra.singular_values.T], "singular values of W", "p",
                  vertical=positions(spectra.steps).tolist()),
            Panel([Series(xy[:, 1], xy[:, 0], rule, "points") for rule, xy in projected.items()], "paths"),
        ],
    )  # fmt: skip


@claim(
    "p3-adaptive-cost",
    "Section 4, adaptive",
    "updating the steps every few training steps costs about 2% of the training time in some experiments",
    size=Size(
        "width 100, 12 layers, 400 samples",
        "width 200, 50 layers, 1000 samples",
        "not stated; its networks have width 200, 6 to 50 layers, 1000 samples",
    ),
    criterion="ours: an update every ten gradient evaluations takes less than 5% of their processor time",
    experiment=True,
)
def adaptive_cost(full: bool) -> Outcome:
    """Processor time of one update against ten gradient evaluations, the best of several."""
    width, layers, samples = (200, 50, 1000) if full else (100, 12, 400)
    train, _ = teacher((20, 5, 20), samples)
    net = LeakyResNet.random(width=width, layers=layers, effective_depth=3.0, inputs=20, outputs=20)
    objective = Objective(net, train, 0.04)
    point = net.weights.detach().numpy() * objective.roots
    gradient = update = np.inf
    for _ in range(5):
        start = time.process_time()
        objective(point)
        middle = time.process_time()
        steps = adapt_steps(objective.steps, objective.states, 3.0)
        gradient, update = smallest(gradient, middle - start), smallest(update, time.process_time() - middle)
    share = update / (10 * gradient)
    return Outcome(
        share < 0.05 and abs(float(steps.sum()) - 1) < 1e-12,
        {"share_of_training_time": share, "gradient_seconds": gradient, "update_seconds": update},
    )


CLAIMS = (figure_two, step_rules, adaptive_cost)
