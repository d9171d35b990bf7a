"""Claims of paper 3 about layer steps in training: Figure 2, test errors, what adapting costs."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import torch
from scipy import stats

from lawful.figure import Figure, Panel, Series
from lawful.leaky import (
    Energies,
    LeakyResNet,
    TeacherTask,
    adapted,
    energies,
    equidistant,
    irregular,
    solve,
    teacher,
    trace,
)
from lawful.leaky.objective import Objective
from lawful.leaky.steps import positions
from lawful.study.claim import Erratum, Outcome, claim
from lawful.study.leaky_files import load_network, load_task
from lawful.study.leaky_plan import LeakyPlan
from lawful.study.leaky_runs import run_leaky
from lawful.study.long_runs import long_run

TEACHERS = 12  # for a test of a mean
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
    "Figure 2",
    "adaptive steps spread the representations evenly along the path, with more layers near input and output",
)
def figure_two(full: bool) -> Outcome:
    """Train every rule at every depth; measure the evenness of moves, and draw test errors, spectra and paths."""
    runs = _rules(full, 1)
    errors = _test_errors(runs)
    uneven = {
        rule: float(np.mean([_unevenness(run[0], run[1], run[3]) for run in by.values()])) for rule, by in runs.items()
    }
    deepest = max(runs["adaptive"])
    network, train, _, ridge = runs["adaptive"][deepest]
    steps = network.steps.numpy()
    outer = float((steps[0] + steps[-1]) / 2 * len(steps))
    figure = _figure_two(
        errors, {rule: by[deepest] for rule, by in runs.items()}, energies(trace(network, train, ridge))
    )
    return Outcome(
        uneven["adaptive"] < uneven["irregular"] < uneven["equidistant"] and outer < 1,
        {"largest_over_smallest_move": uneven, "outer_steps_times_layers": outer},
        figure=figure,
    )


@claim(
    "p3-step-rules",
    "Section 4, Figure 2a",
    "at geodesics of the sizes run here, step rules change the mean test error over teachers by less than the noise",
    erratum=Erratum(
        "adaptive and irregular steps have a small but consistent advantage in the test error",
        "which rule is best depends on the teacher: neither rule's mean ratio to equidistant steps is below 1 at the "
        "5% level (one-sided t-test over twelve teachers; the paper's own size was not run)",
        "test errors of geodesics for twelve teachers and several depths",
    ),
)
def step_rules(full: bool) -> Outcome:
    """Mean ratio of test errors to those of equidistant steps, teacher by teacher, and Student's t of its mean."""
    means: dict[str, list[float]] = {"irregular": [], "adaptive": []}
    for seed in range(1, 1 + TEACHERS):
        errors = _test_errors(_rules(full, seed))
        for rule, found in means.items():
            found.append(float(np.mean([errors[rule][n] / errors["equidistant"][n] for n in errors[rule]])))
    student = {rule: advantage(found) for rule, found in means.items()}
    level = float(stats.t.ppf(0.95, TEACHERS - 1))
    return Outcome(
        max(abs(value) for value in student.values()) < float(stats.t.ppf(0.975, TEACHERS - 1)),
        {"mean_ratio_to_equidistant": {rule: float(np.mean(found)) for rule, found in means.items()},
         "students_t": student, "needed_t": level, "ratios": means},
        printed_holds=min(student.values()) > level,
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
    "updating the steps every ten training steps costs a few percent of the training time",
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
        steps = adapted(objective.steps, objective.states, 3.0)
        gradient, update = min(gradient, middle - start), min(update, time.process_time() - middle)
    share = update / (10 * gradient)
    return Outcome(
        share < 0.05 and abs(float(steps.sum()) - 1) < 1e-12,
        {"share_of_training_time": share, "gradient_seconds": gradient, "update_seconds": update},
    )


CLAIMS = (figure_two, step_rules, adaptive_cost)
