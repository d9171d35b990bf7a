"""Runs of Leaky ResNets over effective depths, kept in a folder of plain files that can be resumed.

RUN/run.json          what was asked for
RUN/train.npz, test.npz   the data: x and y
RUN/depth-3.npz       weights, steps and maps of the network of effective depth 3
RUN/depth-3.json      its evidence: stationarity, costs, evaluations
RUN/depth-3.part.npz  an unfinished one
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import InvalidNetwork, LawfulError
from lawful.leaky import (
    Geodesic,
    LeakyResNet,
    SolverProgress,
    TeacherTask,
    deepened,
    equidistant,
    irregular,
    parse_teacher,
    recipe,
    refined,
    solve,
    teacher,
)
from lawful.leaky.learned import solve_with_maps
from lawful.leaky.solver import ADAPT_AFTER
from lawful.network.formats import npz as npz_format
from lawful.network.formats.data import read_data
from lawful.network.formats.reading import naming, read_json
from lawful.network.formats.writing import make_folder, write_bytes, write_text

CHECKPOINT = 100  # evaluations between two checkpoints
ADAPTATIONS = 4
BUDGET = ("tolerance", "evaluations")  # what may change when a run is taken up again
Watch = Callable[[float, SolverProgress], None]


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

    def sizes(self, task: TeacherTask | None) -> tuple[int, int] | None:
        """Numbers of inputs and outputs."""
        if self.teacher:
            return parse_teacher(self.teacher)[0], parse_teacher(self.teacher)[-1]
        return None if task is None else (task.inputs.shape[1], task.targets.shape[1])

    def fits(self, inputs: int, outputs: int) -> None:
        """Refuse data that are wider than the network."""
        if self.width < max(inputs, outputs):
            raise LawfulError(f"the width {self.width} is smaller than the data's {max(inputs, outputs)}")

    def grid(self) -> Any:
        """The layer steps to start from."""
        return irregular(self.layers, self.a) if self.steps == "irregular" else equidistant(self.layers)


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
        summaries.append(_read_json(folder / f"{name}.json"))
    return summaries


def _wanting(plan: LeakyPlan, file: Path) -> bool:
    """Whether a network is still to be trained, or stopped short with a smaller budget than the plan now has."""
    if not file.exists():
        return True
    done = _read_json(file)
    return not done["stationarity"] <= plan.tolerance and done["evaluations"] < plan.evaluations


def _train(
    plan: LeakyPlan, depth: float, before: LeakyResNet | None, train: TeacherTask, stem: Path, watch: Watch | None
) -> None:
    started = time.perf_counter()
    part, spent = stem.with_name(stem.name + ".part.npz"), 0
    if part.exists():
        network, spent = load_network(part), _spent(part)
    elif (done_before := stem.with_name(stem.name + ".json")).exists():  # it stopped short: go on from there
        network, spent = load_network(stem.with_name(stem.name + ".npz")), int(_read_json(done_before)["evaluations"])
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
                _write(part, _arrays(make()) | {"spent": np.array(float(spent))})

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


def _spent(part: Path) -> int:
    """Evaluations that an unfinished network has behind it."""
    found = npz_format.load_arrays(part).get("spent")
    if found is None or found.shape != () or not 0 <= found <= 2**53:
        raise InvalidNetwork(f"{part}: damaged: delete it to start this network again")
    return int(found)


def _shifted(tell: Callable[[SolverProgress], None], spent: int) -> Callable[[SolverProgress], None]:
    return lambda entry: tell(SolverProgress(entry.evaluations + spent, entry.cost, entry.stationarity))


def _finish(found: Geodesic, spent: int, seconds: float, stem: Path) -> None:
    _write(stem.with_name(stem.name + ".npz"), _arrays(found.network))
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


def own_data(data: TeacherTask) -> tuple[str, TeacherTask]:
    """The user's data with every column centred and brought to variance 1, as teachers' are; and their digest."""
    columns = [(each - each.mean(axis=0)) / np.where(each.std(axis=0) > 0, each.std(axis=0), 1.0)
               for each in (data.inputs, data.targets)]  # fmt: skip
    task = TeacherTask(*columns)
    return hashlib.sha256(task.inputs.tobytes() + task.targets.tobytes()).hexdigest()[:16], task


def _prepare(plan: LeakyPlan, folder: Path, task: TeacherTask | None) -> TeacherTask:
    """Write the plan and its data once; a folder that holds another plan is refused, another budget is not."""
    described = {"kind": "leaky run", **asdict(plan)}
    file = folder / "run.json"
    if file.exists():
        found = _read_json(file)
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
            _write(folder / f"{name}.npz", {"x": each.inputs, "y": each.targets})
        write_text(file, json.dumps(described, indent=1) + "\n")
    return load_task(folder / "train.npz")


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / "run.json").is_file()


def read_run(folder: Path) -> tuple[float, Iterator[tuple[LeakyResNet, dict[str, Any]]]]:
    """The ridge of a run, and its finished networks with their summaries, smallest effective depth first."""
    plan = _read_json(folder / "run.json")
    ridge = plan.get("ridge")
    if plan.get("kind") != "leaky run" or not isinstance(ridge, (int, float)):
        raise InvalidNetwork(f"{folder}: run.json does not describe a run of `lawful leaky`")
    names = [path.stem for path in folder.glob("depth-*.json") if re.fullmatch(r"depth-[\d.e+-]+", path.stem)]
    if not names:
        raise LawfulError(f"{folder}: no network of this run is finished yet")
    names.sort(key=lambda name: float(name.removeprefix("depth-")))
    return float(ridge), ((load_network(folder / f"{name}.npz"), _read_json(folder / f"{name}.json")) for name in names)


def load_task(path: Path) -> TeacherTask:
    """Inputs and targets of a data file."""
    data = read_data(path)
    if data.y is None:
        raise LawfulError(f"{path}: needs targets `y` beside the inputs `x`")
    return TeacherTask(data.x, data.y[:, None] if data.y.ndim == 1 else data.y)


def load_network(path: Path) -> LeakyResNet:
    """Read a network that `lawful leaky` wrote."""
    with naming(path):
        arrays = npz_format.load_arrays(path, kinds="f")
        missing = [name for name in ("weights", "steps", "effective_depth", "softness") if name not in arrays]
        if missing:
            raise InvalidNetwork(f"not a Leaky ResNet, it has no array {missing[0]!r}")
        return LeakyResNet(
            arrays["weights"],
            _number(arrays, "effective_depth"),
            arrays["steps"],
            into=arrays.get("into"),
            out=arrays.get("out"),
            softness=_number(arrays, "softness"),
        )


def _number(arrays: dict[str, Any], name: str) -> float:
    if arrays[name].shape != ():
        raise InvalidNetwork(f"{name!r} is not one number")
    return float(arrays[name])


def _arrays(network: LeakyResNet) -> dict[str, Any]:
    found: dict[str, Any] = {
        "weights": network.weights.detach().numpy(),
        "steps": network.steps.numpy(),
        "effective_depth": np.array(network.effective_depth),
        "softness": np.array(network.softness),
    }
    for name in ("into", "out"):
        if (matrix := getattr(network, name)) is not None:
            found[name] = matrix.detach().numpy()
    return found


def _write(path: Path, arrays: dict[str, Any]) -> None:
    write_bytes(path, npz_format.dump(arrays, None))


def _read_json(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise InvalidNetwork(f"{path}: not a JSON object")
    return found
