"""Runs of Leaky ResNets over effective depths, kept in a folder that can be resumed (`leaky_files`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.leaky import (
    Geodesic,
    LeakyResNet,
    SolverProgress,
    TeacherTask,
    deepened,
    parse_teacher,
    recipe,
    refined,
    solve,
    teacher,
)
from lawful.leaky.learned import solve_with_maps
from lawful.leaky.solver import ADAPT_AFTER
from lawful.network.formats.writing import make_folder, write_text
from lawful.study.leaky_files import (
    evaluations_spent,
    load_network,
    load_task,
    network_arrays,
    read_object,
    write_arrays,
)
from lawful.study.leaky_plan import LeakyPlan

CHECKPOINT = 100  # evaluations between two checkpoints
ADAPTATIONS = 4
BUDGET = ("tolerance", "evaluations")  # what may change when a run is taken up again
Watch = Callable[[float, SolverProgress], None]


def run_leaky(
    plan: LeakyPlan,
    effective_depths: tuple[float, ...],
    folder: Path,
    watch: Watch | None = None,
    task: TeacherTask | None = None,
) -> list[dict[str, Any]]:
    """Train what is missing, smallest effective depth first, each started from the one before.

    `task` are the user's own data, if the plan has no teacher (`own_data`).
    """
    plan.check(effective_depths)
    if task is not None:
        plan.fits(task.inputs.shape[1], task.targets.shape[1])
    train = _prepare(plan, folder, task)
    network: LeakyResNet | None = None
    summaries = []
    for depth in sorted(set(effective_depths)):
        name = f"depth-{depth:g}"
        if _wanting(plan, folder / f"{name}.json"):
            _train(plan, depth, network, train, folder / name, watch)
        network = load_network(folder / f"{name}.npz")
        summaries.append(read_object(folder / f"{name}.json"))
    return summaries


def _wanting(plan: LeakyPlan, file: Path) -> bool:
    """Whether a network is still to be trained, or stopped short with a smaller budget than the plan now has."""
    if not file.exists():
        return True
    done = read_object(file)
    return not done["stationarity"] <= plan.tolerance and done["evaluations"] < plan.evaluations


def _train(
    plan: LeakyPlan, depth: float, before: LeakyResNet | None, train: TeacherTask, stem: Path, watch: Watch | None
) -> None:
    started = time.perf_counter()
    part, spent = stem.with_name(stem.name + ".part.npz"), 0
    if part.exists():
        network, spent = load_network(part), evaluations_spent(part)
    elif (done_before := stem.with_name(stem.name + ".json")).exists():  # it stopped short: go on from there
        network, spent = load_network(stem.with_name(stem.name + ".npz")), int(read_object(done_before)["evaluations"])
    else:
        network = _start(plan, depth, train) if before is None else deepened(before, depth, train)
    tell = None if watch is None else lambda progress: watch(depth, progress)
    if plan.method == "paper":
        steps = plan.evaluations
        found = recipe(
            network, train, plan.ridge, adam=2 * steps // 3, sgd=steps - 2 * steps // 3,
            adapt_every=10 if plan.steps == "adaptive" else 0, tolerance=plan.tolerance, watch=tell,
        )  # fmt: skip
        spent = found.evaluations
    else:
        done = spent

        def keep(make: Callable[[], LeakyResNet], evaluations: int) -> None:
            nonlocal spent
            if done + evaluations >= spent + CHECKPOINT:
                spent = done + evaluations
                write_arrays(part, network_arrays(make()) | {"spent": np.array(float(spent))})

        adaptations = max(0, ADAPTATIONS - done // ADAPT_AFTER) if plan.steps == "adaptive" else 0
        learned, ahead = plan.maps == "learned", 0
        if learned and adaptations and before is None:  # first the steps, with the maps as they are
            network = solve(
                network, train, plan.ridge, tolerance=plan.tolerance, adaptations=adaptations, seed=plan.seed,
                evaluations=max(min(adaptations * ADAPT_AFTER, plan.evaluations - done), 1),
            ).network  # fmt: skip
            ahead = min(adaptations * ADAPT_AFTER, plan.evaluations - done)
        method = partial(solve_with_maps, penalty=plan.penalty) if learned else partial(solve, adaptations=adaptations)
        found = method(
            network, train, plan.ridge, tolerance=plan.tolerance, seed=plan.seed,
            evaluations=max(plan.evaluations - done - ahead, 1),
            watch=None if tell is None else _shifted(tell, done + ahead), keep=keep,
        )  # fmt: skip
        spent = done + ahead + found.evaluations
    _finish(found, spent, time.perf_counter() - started, stem)
    part.unlink(missing_ok=True)


def _shifted(tell: Callable[[SolverProgress], None], spent: int) -> Callable[[SolverProgress], None]:
    return lambda entry: tell(SolverProgress(entry.evaluations + spent, entry.cost, entry.stationarity))


def _finish(found: Geodesic, spent: int, seconds: float, stem: Path) -> None:
    write_arrays(stem.with_name(stem.name + ".npz"), network_arrays(found.network))
    summary = {
        "effective_depth": found.network.effective_depth,
        "stationarity": found.stationarity,
        "converged": found.converged,
        "cost": found.cost,
        "data_cost": found.data_cost,
        "evaluations": spent,
        "seconds": round(seconds, 2),
    }
    write_text(stem.with_name(stem.name + ".json"), json.dumps(summary, indent=1) + "\n")


def _start(plan: LeakyPlan, depth: float, train: TeacherTask) -> LeakyResNet:
    """A random network; with several grids, the geodesic of few layers carried over to more and more."""
    inputs, outputs = train.inputs.shape[1], train.targets.shape[1]
    layers = plan.layers >> (plan.grids - 1)
    network = LeakyResNet.random(
        width=plan.width, layers=layers, effective_depth=depth, inputs=inputs, outputs=outputs,
        steps=plan.grid() if plan.grids == 1 else None, softness=plan.softness, seed=plan.seed,
    )  # fmt: skip
    for number in range(1, plan.grids):
        coarse = solve(
            network, train, plan.ridge, tolerance=3 * plan.tolerance, evaluations=plan.evaluations, seed=plan.seed,
            adaptations=ADAPTATIONS if plan.steps == "adaptive" and number == 1 else 0,
        )  # fmt: skip
        network = refined(coarse.network, plan.layers >> (plan.grids - 1 - number), train)
    return network


def _prepare(plan: LeakyPlan, folder: Path, task: TeacherTask | None) -> TeacherTask:
    """Write the plan and its data once; a folder that holds another plan is refused, another budget is not."""
    described = {"kind": "leaky run", **asdict(plan)}
    file = folder / "run.json"
    if file.exists():
        found = read_object(file)
        found = {"data": "", "grids": 1, "maps": "fixed", "penalty": 0.0} | found
        changed = [name for name, value in described.items() if found.get(name) != value and name not in BUDGET]
        if changed:
            name = changed[0]
            raise LawfulError(
                f"{folder} holds another run ({name} is {found.get(name)!r} there, {described[name]!r} here): "
                "choose another folder"
            )
    else:
        make_folder(folder)
        names = ("train", "test") if task is None else ("train",)
        made = teacher(parse_teacher(plan.teacher), plan.samples, seed=plan.seed) if task is None else (task,)
        for name, each in zip(names, made, strict=True):
            write_arrays(folder / f"{name}.npz", {"x": each.inputs, "y": each.targets})
        write_text(file, json.dumps(described, indent=1) + "\n")
    return load_task(folder / "train.npz")
