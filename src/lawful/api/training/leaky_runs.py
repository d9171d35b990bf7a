"""Runs of Leaky ResNets over effective depths, kept in a folder that can be resumed (`leaky_files`)."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from lawful.api.training.leaky_files import (
    leg_arrays,
    load_leg,
    load_network,
    load_recipe,
    load_task,
    network_arrays,
    read_object,
    recipe_arrays,
    write_arrays,
)
from lawful.errors import LawfulError
from lawful.formats.io.writing import make_folder, write_bytes, write_text
from lawful.papers.leaky import (
    Geodesic,
    LeakyResNet,
    SolverProgress,
    TeacherTask,
    change_grid,
    deepen,
    equidistant,
    irregular,
    parse_teacher,
    recipe,
    solve,
    teacher,
)
from lawful.papers.leaky.solver.geodesic import ADAPT_AFTER, Leg
from lawful.papers.leaky.solver.learned_maps import solve_with_maps
from lawful.types import Floats

ADAPTATIONS = 4  # of the steps on the first grid; one on each that follows
COARSE = 3.0  # times the tolerance is enough on a coarser grid
NEAR = 0.6  # of an effective depth: from here on upwards another path is no better a start
LARGE = 100_000  # numbers in a representation from which on effective depths are solved side by side
BUDGET = ("tolerance", "evaluations")  # what may change when a run is taken up again
Watch = Callable[[float, SolverProgress], None]
Tell = Callable[[SolverProgress], None]
Store = Callable[[dict[str, Any]], None]


def run_leaky(
    plan: LeakyPlan,
    effective_depths: tuple[float, ...],
    folder: Path,
    watch: Watch | None = None,
    task: TeacherTask | None = None,
) -> list[dict[str, Any]]:
    """Train what is missing, each effective depth from the path of a smaller one (`_start`).

    Large networks are trained side by side, as far as there are cores; the bytes do not depend on their number.
    `task` are the user's own data, if the plan has no teacher (`own_data`).
    """
    plan.check(effective_depths)
    if task is not None:
        plan.fits(task.inputs.shape[1], task.targets.shape[1])
    train = _prepare(plan, folder, task)
    depths = sorted(set(effective_depths))
    stopped = Event()

    def listen(depth: float, progress: SolverProgress) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        if watch is not None:
            watch(depth, progress)

    def train_from(depth: float, earlier: Future[LeakyResNet] | None) -> LeakyResNet:
        start, stem = None if earlier is None else earlier.result(), folder / f"depth-{depth:g}"
        if _wanting(plan, stem.with_name(f"{stem.name}.json")):
            _train(plan, depth, start, train, stem, listen)
        return load_network(stem.with_name(f"{stem.name}.npz"))

    large = plan.width * len(train) >= LARGE
    futures: dict[float, Future[LeakyResNet]] = {}
    with (
        threadpool_limits(limits=1 if large else None, user_api="blas"),
        ThreadPoolExecutor(min(len(depths), os.cpu_count() or 1) if large else 1) as pool,
    ):
        try:
            for depth in depths:  # a network waits for one that was given to the pool before it
                futures[depth] = pool.submit(train_from, depth, futures.get(_start(depths, depth)))
            for future in futures.values():
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [read_object(folder / f"depth-{depth:g}.json") for depth in depths]


def _start(depths: list[float], depth: float) -> float:
    """The effective depth whose path a network starts from: the deepest that is not near; NaN for the first.

    >>> [_start([4.0, 7.0, 11.0, 16.0, 22.0], depth) for depth in (7.0, 11.0, 16.0, 22.0)]
    [4.0, 4.0, 7.0, 11.0]
    >>> _start([3.0, 3.5, 4.0], 4.0)
    3.5
    """
    smaller = [other for other in depths if other < depth]
    return max((other for other in smaller if other <= NEAR * depth), default=max(smaller, default=float("nan")))


def _wanting(plan: LeakyPlan, file: Path) -> bool:
    """Whether a network is still to be trained, or stopped short with a smaller budget than the plan now has."""
    if not file.exists():
        return True
    done = read_object(file)
    return not done["stationarity"] <= plan.tolerance and done["evaluations"] < plan.evaluations


def _train(
    plan: LeakyPlan, depth: float, before: LeakyResNet | None, train: TeacherTask, stem: Path, watch: Watch
) -> None:
    """One network, from its last checkpoint if there is one; killed and taken up again it ends at the same bytes.

    Its seconds are the sum over all sessions, up to the last checkpoint of each: they have a file of their own.
    """
    part, whole, done = (stem.with_name(stem.name + end) for end in (".part.npz", ".npz", ".json"))
    spent = part.with_suffix(".json")
    earlier = next((file for file, of in ((spent, part), (done, whole)) if file.exists() and of.exists()), None)
    started = time.thread_time() - (0.0 if earlier is None else float(read_object(earlier)["seconds"]))

    def store(arrays: dict[str, Any]) -> None:
        write_text(spent, json.dumps({"seconds": time.thread_time() - started}) + "\n")
        write_arrays(part, arrays)

    def tell(progress: SolverProgress) -> None:
        watch(depth, progress)

    def start() -> LeakyResNet:
        layers = plan.layer_counts(depth)[0] if plan.method == "solver" else plan.layers
        if before is None:
            return _random(plan, layers, depth, train)
        return deepen(_on_grid(plan, before, layers, train), depth, train)

    if plan.method == "paper":
        solution = _by_recipe(plan, start, train, part, store, tell)
        write_arrays(whole, network_arrays(solution.network))
    else:
        solution = _by_solver(plan, depth, start, train, (part, whole), store, tell)
        write_bytes(whole, part.read_bytes())  # with what it needs to go on, should more be asked of it
    write_text(done, _summary(solution, time.thread_time() - started))
    for file in (part, spent):
        file.unlink(missing_ok=True)


def _by_recipe(
    plan: LeakyPlan, start: Callable[[], LeakyResNet], train: TeacherTask, part: Path, store: Store, tell: Tell
) -> Geodesic:
    adam = 2 * plan.evaluations // 3
    return recipe(
        load_recipe(part) if part.exists() else start(), train, plan.ridge, adam=adam, sgd=plan.evaluations - adam,
        adapt_every=10 if plan.steps == "adaptive" else 0, tolerance=plan.tolerance, watch=tell,
        keep=lambda state: store(recipe_arrays(state)),
    )  # fmt: skip


def _by_solver(
    plan: LeakyPlan,
    depth: float,
    start: Callable[[], LeakyResNet],
    train: TeacherTask,
    files: tuple[Path, Path],
    store: Store,
    tell: Tell,
) -> Geodesic:
    """Geodesics of more and more layers, each started from the one before; the last has as many as the plan says."""
    counts = plan.layer_counts(depth)
    rounds = {count: (1 if number else ADAPTATIONS) * (plan.steps == "adaptive") for number, count in enumerate(counts)}
    adaptations = rounds[plan.layers]
    part, whole = files
    if part.exists():
        leg = load_leg(part)
    elif whole.exists():  # it stopped short: go on from there
        leg = load_leg(whole)
        leg = replace(leg, stage=min(leg.stage, adaptations) if plan.maps == "fixed" else 0)
    else:
        leg = Leg(start())

    def keep(leg: Leg) -> None:
        store(leg_arrays(leg))

    common: dict[str, Any] = {"evaluations": plan.evaluations, "seed": plan.seed}
    while leg.network.layers < plan.layers:
        coarse = solve(
            leg, train, plan.ridge, tolerance=COARSE * plan.tolerance, watch=tell, keep=keep, **common,
            adaptations=rounds.get(leg.network.layers, 0),
        )  # fmt: skip
        finer = next(count for count in counts if count > leg.network.layers)
        leg = Leg(_on_grid(plan, coarse.network, finer, train))
    if plan.maps == "fixed":
        return solve(
            leg, train, plan.ridge, tolerance=plan.tolerance, adaptations=adaptations, watch=tell, keep=keep, **common
        )
    if not leg.spent:  # first the steps, with the maps as they are
        spent = min(adaptations * ADAPT_AFTER, plan.evaluations - 1)
        first = solve(
            leg,
            train,
            plan.ridge,
            tolerance=plan.tolerance,
            adaptations=adaptations,
            watch=tell,
            **common | {"evaluations": spent},
        )
        leg = Leg(first.network, spent)
    return solve_with_maps(
        leg, train, plan.ridge, plan.penalty, tolerance=plan.tolerance, watch=tell, keep=keep, **common
    )


def _on_grid(plan: LeakyPlan, network: LeakyResNet, layers: int, train: TeacherTask) -> LeakyResNet:
    """The network's path on another number of layers; irregular steps stay those of the rule."""
    other = plan.steps == "irregular" and layers != network.layers
    return change_grid(network, layers, train, plan.grid(layers) if other else None)


def _random(plan: LeakyPlan, layers: int, depth: float, train: TeacherTask) -> LeakyResNet:
    """A random network to start from."""
    return LeakyResNet.random(
        width=plan.width, layers=layers, effective_depth=depth, inputs=train.inputs.shape[1],
        outputs=train.targets.shape[1], steps=plan.grid(layers), softness=plan.softness,
        seed=plan.seed,
    )  # fmt: skip


def _summary(found: Geodesic, seconds: float) -> str:
    summary = {
        "effective_depth": found.network.effective_depth,
        "stationarity": found.stationarity,
        "converged": found.converged,
        "cost": found.cost,
        "data_cost": found.data_cost,
        "evaluations": found.evaluations,
        "seconds": round(seconds, 2),
    }
    return json.dumps(summary, indent=1) + "\n"


def _prepare(plan: LeakyPlan, folder: Path, task: TeacherTask | None) -> TeacherTask:
    """Write the plan and its data once; a folder that holds another plan is refused, another budget is not."""
    described = {"kind": "leaky run", **asdict(plan)}
    file = folder / "run.json"
    if file.exists():
        stored = read_object(file)
        stored = {"data": "", "grids": 1, "maps": "fixed", "penalty": 0.0} | stored
        changed = [name for name, value in described.items() if stored.get(name) != value and name not in BUDGET]
        if changed:
            name = changed[0]
            raise LawfulError(
                f"{folder} holds another run ({name} is {stored.get(name)!r} there, {described[name]!r} here): "
                "choose another folder"
            )
    else:
        make_folder(folder)
        names = ("train", "test") if task is None else ("train",)
        tasks = teacher(parse_teacher(plan.teacher), plan.samples, seed=plan.seed) if task is None else (task,)
        for name, part_task in zip(names, tasks, strict=True):
            write_arrays(folder / f"{name}.npz", {"x": part_task.inputs, "y": part_task.targets})
        write_text(file, json.dumps(described, indent=1) + "\n")
    return load_task(folder / "train.npz")


@dataclass(frozen=True)
class LeakyPlan:
    """What to train; everything but the effective depths, which may be added later."""

    teacher: str  # or "" for the user's own data
    samples: int = 1000
    layers: int = 50
    width: int = 200
    steps: str = "adaptive"
    a: float = 0.9
    ridge: float = 0.04
    softness: float = 0.01
    method: str = "solver"
    tolerance: float = 1e-3
    evaluations: int = 5000
    seed: int = 0
    data: str = ""  # the digest of the user's own inputs and targets
    grids: int = 1  # numbers of layers to solve on, each twice the one before; the last is `layers`
    maps: str = "fixed"  # in and out; or "learned", with a penalty
    penalty: float = 0.0

    def check(self, effective_depths: tuple[float, ...]) -> None:
        """Refuse what cannot run, before anything is written."""
        if bool(self.teacher) == bool(self.data):
            raise LawfulError("a run has a teacher or data of its own: give one of the two")
        if not 1 <= self.grids <= 5 or self.layers >> (self.grids - 1) < 2:
            raise LawfulError(
                f"{self.grids} grids need at least {2 << (self.grids - 1)} layers, and at most 5 are used"
            )
        sizes = self.sizes(None)
        if self.maps not in ("fixed", "learned"):
            raise LawfulError(f"the maps in and out are fixed or learned, not {self.maps!r}")
        learned = self.maps == "learned"
        if not np.isfinite(self.penalty) or (self.penalty > 0) != learned:
            raise LawfulError("learned maps need a positive penalty, and fixed ones have none")
        if learned and self.method != "solver":
            raise LawfulError("maps are learned with a penalty by the solver: leave out the method")
        if self.steps not in ("equidistant", "irregular", "adaptive"):
            raise LawfulError(f"steps are equidistant, irregular or adaptive, not {self.steps!r}")
        if self.method not in ("solver", "paper"):
            raise LawfulError(f"the method is solver or paper, not {self.method!r}")
        if min(self.samples, self.layers, self.evaluations) < 2:
            raise LawfulError("samples, depth and evaluations must be at least 2")
        if sizes is not None:
            self.fits(*sizes)
        if not all(depth > 0 and depth * max(self.grid()) < 1 for depth in effective_depths):
            raise LawfulError(
                f"effective depths must be positive and below {1 / max(self.grid()):.4g}, "
                f"so that no layer of {self.layers} forgets its input"
            )
        if not (0 < self.ridge < np.inf and 0 < self.tolerance < np.inf and 0 <= self.softness < np.inf):
            raise LawfulError("ridge and tolerance must be positive numbers, softness not negative")

    def layer_counts(self, effective_depth: float) -> tuple[int, ...]:
        """Numbers of layers to solve on, the coarsest first: on average a layer keeps at least half of its input.

        >>> LeakyPlan("20-5-20", grids=3).layer_counts(7.0)
        (25, 50)
        """
        counts = [self.layers >> halvings for halvings in reversed(range(self.grids))]
        return (*(count for count in counts[:-1] if count >= 2 * effective_depth), self.layers)

    def sizes(self, task: TeacherTask | None) -> tuple[int, int] | None:
        """Numbers of inputs and outputs."""
        if self.teacher:
            return parse_teacher(self.teacher)[0], parse_teacher(self.teacher)[-1]
        return None if task is None else (task.inputs.shape[1], task.targets.shape[1])

    def fits(self, inputs: int, outputs: int) -> None:
        """Refuse data that are wider than the network."""
        if self.width < max(inputs, outputs):
            raise LawfulError(f"the width {self.width} is smaller than the data's {max(inputs, outputs)}")

    def grid(self, layers: int | None = None) -> Floats:
        """The layer steps to start from."""
        count = self.layers if layers is None else layers
        return irregular(count, self.a) if self.steps == "irregular" else equidistant(count)


def own_data(data: TeacherTask) -> tuple[str, TeacherTask]:
    """The user's data with every column centred and brought to variance 1, as teachers' are; and their digest."""
    columns = [
        (table - table.mean(axis=0)) / np.where(table.std(axis=0) > 0, table.std(axis=0), 1.0)
        for table in (data.inputs, data.targets)
    ]
    task = TeacherTask(*columns)
    return hashlib.sha256(task.inputs.tobytes() + task.targets.tobytes()).hexdigest()[:16], task
