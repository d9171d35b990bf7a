"""The jobs that a sweep can run: each is one call of a public function, scalars in, a flat row out."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from lawful.api.sweeps.plan import Task
from lawful.api.sweeps.store import Finished
from lawful.errors import LawfulError
from lawful.network import Architecture, Mlp

Row = Mapping[str, Any]


def claim(id: str, full: bool = False, figures: str = "") -> Row:
    """Run one claim of the papers; its figure goes to the folder `figures`, if given."""
    from lawful.api.figure_file import save
    from reproduction.claims import find

    entry = find(id)
    outcome = entry.run(full)
    if figures and outcome.figure is not None:
        save(outcome.figure, Path(figures) / f"{id}.svg")
    return {
        "paper": entry.paper,
        "reference": entry.reference,
        "verdict": entry.verdict(outcome).value,
        "stand_in": outcome.stand_in or "",
        **{f"measured.{name}": value for name, value in outcome.measured.items()},
    }


def laws(architecture: str, level: str = "phi", loss: str = "full", seed: int = 0) -> Row:
    """Count the laws of an architecture and compare with the closed-form prediction."""
    from lawful.conservation import count_laws
    from lawful.conservation.theorems import predicted_laws

    network = Architecture.parse(architecture)
    count = count_laws(network if level == "phi" else network.initialise(seed=seed), level=level, loss=loss, seed=seed)
    predicted = predicted_laws(network)
    return {
        "parameters": count.parameters,
        "laws": count.laws,
        "predicted": predicted,
        "matches": None if predicted is None else predicted == count.laws,
        "status": count.status,
        "dimensions": list(count.dimensions),
    }


def training(architecture: str, weights: int = 4, seed: int = 0) -> Row:
    """The laws of φ beside those of training: near random weights, near well-chosen ones, and near all if known."""
    from lawful.conservation import count_laws
    from lawful.conservation.near_random_weights import training_laws

    count = count_laws(architecture, seed=seed)
    estimate = training_laws(count, weights=weights, seed=seed)
    row: dict[str, Any] = {"parameters": count.parameters, "laws": count.laws, "status": count.status}
    if estimate is None:
        return row | {"fewest": None, "usual": None, "witness": None, "always": None, "least": None}
    return row | {
        "fewest": min(estimate.near),
        "usual": estimate.shares.get(count.laws, 0.0),
        "witness": estimate.witness is not None,
        "always": None if estimate.always is None else list(estimate.always),
        "least": estimate.least,
    }


def components(architecture: str, scheme: str = "torch", seed: int = 0) -> Row:
    """Locked weights of a random initialisation."""
    from lawful.invariant_set import components as find

    network = Architecture.parse(architecture).initialise(scheme, seed)
    answer = find(network)
    barrier = max((lock.barrier for lock in answer.locked), default=0.0)
    return {
        "parameters": network.parameters,
        "connected": answer.connected,
        "log2_components": answer.log2_components,
        "largest_barrier": barrier,
    }


def train_and_prune(strength: float = 0.015, seed: int = 0) -> Row:
    """Train 64-32-10 on handwritten digits with the nuclear norm, prune what changes nothing."""
    from lawful.api import demo
    from lawful.pruning.neurons.prune import prune

    train, test = demo.digits(seed)
    network = demo.train_singular(train, seed, strength)
    pruned = prune(network)
    return {
        "neurons_before": pruned.neurons_before,
        "neurons_after": pruned.neurons_after,
        "bound": pruned.bound,
        "accuracy_before": demo.accuracy(network, test),
        "accuracy_after": demo.accuracy(pruned.network, test),
    }


def identifiable(architecture: str, seed: int = 0) -> Row:
    """Whether a random three-layer bottleneck network is identifiable, and the exact share of those that are."""
    from lawful.fibers.deep.bottleneck import identifiable_volume
    from lawful.fibers.deep.identifiability import identifiable as decide

    network = _gaussian(architecture, seed)
    answer = decide(network)
    share = identifiable_volume(*network.widths[1:3])
    return {"identifiable": answer.identifiable, "reasons": "; ".join(answer.reasons), "exact_share": float(share)}


def same(architecture: str, seed: int = 0, seconds: float = 60.0) -> Row:
    """Is a network the same function as its permuted and rescaled copy? And as one with a changed weight?"""
    from lawful.fibers.same import same as decide

    network = _gaussian(architecture, seed)
    rng = np.random.default_rng(seed)
    disguised = Mlp.from_dag(network.to_dag().rescaled(np.exp(rng.normal(size=sum(network.widths[1:-1])))))
    for layer in range(len(network.weights) - 1):
        disguised = _permute(disguised, layer, rng.permutation(network.widths[layer + 1]))
    other = disguised.with_theta(disguised.theta * np.where(np.arange(disguised.parameters) == 0, 1.01, 1.0))
    answers = [decide(network, copy, seconds=seconds, seed=seed) for copy in (disguised, other)]
    return {
        "parameters": network.parameters,
        "copy": answers[0].verdict,
        "changed": answers[1].verdict,
        "method": answers[0].method,
    }


def leaky(
    teacher: str, effective_depth: float, layers: int = 24, width: int = 12, samples: int = 40, seed: int = 0
) -> Row:
    """Train a Leaky ResNet to a geodesic and estimate the bottleneck rank of its teacher."""
    from lawful.api.training.leaky_runs import LeakyPlan, run_leaky
    from lawful.papers.leaky.model import parse_teacher

    ridge = 0.01 * parse_teacher(teacher)[-1]
    plan = LeakyPlan(teacher, samples=samples, layers=layers, width=width, ridge=ridge, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        (run,) = run_leaky(plan, (float(effective_depth),), Path(folder) / "run")
    scalars = {name: value for name, value in run.items() if isinstance(value, (bool, int, float, str))}
    return {name: value for name, value in scalars.items() if name != "seconds"}  # the sweep keeps durations apart


def sketch(file: str, model: str = "", input: str = "") -> Row:
    """A checkpoint's sketch, for an index of many: its path, size and time of change, with tabs between."""
    from lawful.api.checkpoints.sketches import sketch_row

    return sketch_row(file, model, input)


def _gaussian(architecture: str, seed: int) -> Mlp:
    """A layered network with independent Gaussian parameters."""
    network = Architecture.parse(architecture).initialise(seed=seed)
    if not isinstance(network, Mlp):
        raise LawfulError(f"{architecture}: this job takes a layered network without skips")
    return network.with_theta(np.random.default_rng(seed).normal(size=network.parameters))


def _permute(network: Mlp, layer: int, order: np.ndarray) -> Mlp:
    weights, biases = list(network.weights), list(network.biases)
    bias = biases[layer]
    weights[layer], weights[layer + 1] = weights[layer][order], weights[layer + 1][:, order]
    biases[layer] = None if bias is None else bias[order]
    return Mlp(weights, biases, network.slopes)


JOBS: dict[str, Callable[..., Row]] = {
    "claim": claim,
    "count_laws": laws,
    "training_laws": training,
    "components": components,
    "train_and_prune": train_and_prune,
    "leaky": leaky,
    "identifiable": identifiable,
    "same": same,
    "sketch": sketch,
}


def find_job(name: str) -> Callable[..., Row]:
    """A job of ours by name, or a user's own as `module:function` (the current folder counts)."""
    if name in JOBS:
        return JOBS[name]
    where, _, function = name.partition(":")
    if not function:
        raise LawfulError(f"no job is called {name[:60]!r}: choose from {', '.join(JOBS)}, or give module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        target = getattr(importlib.import_module(where), function)
    except Exception as error:  # whatever somebody's module does when it is loaded
        raise LawfulError(f"cannot import the job {name[:60]}: {type(error).__name__}: {error}") from None
    if not callable(target):
        raise LawfulError(f"{name[:60]} is not a function")
    return target  # type: ignore[no-any-return]


def check_inputs(job: str, names: Sequence[str]) -> None:
    """Refuse a sweep whose parameters the job does not take, before anything runs."""
    target = find_job(job)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        raise LawfulError(f"job {job[:60]} does not say which parameters it takes") from None
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise LawfulError(f"job {job[:60]} takes {', '.join(signature.parameters)}: {error}") from None


def run_task(task: Task) -> dict[str, Any]:
    """Call the job; its row holds JSON's own types, so that it is the same wherever it ran."""
    row = find_job(task.job)(**task.inputs)
    if not isinstance(row, Mapping):
        raise LawfulError(f"job {task.job} returned a {type(row).__name__}, not a mapping of names to values")
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()  # half a surrogate pair is no text


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ALONE = Lock()  # a worker with several threads still runs one call at a time: limits and results are per process


def run_chunk(tasks: tuple[Task, ...]) -> list[Finished]:
    """Run calls one after another; an exception is a failed row, not a lost one."""
    from lawful.version import __version__

    rows = []
    with _ALONE, _one_thread():
        for task in tasks:
            start = time.perf_counter()
            try:
                outputs = run_task(task)
                seconds = time.perf_counter() - start
                rows.append(Finished(task.key, task.job, dict(task.inputs), "ok", outputs, "", __version__, seconds))
            except Exception as error:  # whatever a job raises belongs in its row
                rows.append(failure(task, f"{type(error).__name__}: {error}", time.perf_counter() - start))
    return rows


def failure(task: Task, error: str, seconds: float = 0.0) -> Finished:
    """The record of a call that gave no answer."""
    from lawful.version import __version__

    line = " ".join(error.split())[:500].encode("utf-8", "backslashreplace").decode()
    return Finished(task.key, task.job, dict(task.inputs), "failed", {}, line, __version__, seconds)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One BLAS thread, as at home: sums in another order would differ in their last bits."""
    if all(os.environ.get(name) == "1" for name in THREADS):  # our own workers were started so
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
