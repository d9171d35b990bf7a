"""The subcommands that train or watch training, as functions that take whatever `lawful.open` takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from lawful.api.inputs import ReadOptions, open_options, takes
from lawful.errors import LawfulError
from lawful.formats.queries.data import Data, read_data
from lawful.network import Dag, Mlp, initialise
from lawful.network.dynamics import Dynamics, Metric
from lawful.papers.truncation.census import Census, census
from lawful.papers.truncation.clusters import Clusters
from lawful.papers.truncation.flow.motion import TruncationRun, run_flow, starting_maps
from lawful.papers.truncation.separability import Separability, separability
from lawful.result import Shown
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source, open, open_free, open_graph
from lawful.sources.provenance import with_provenance
from lawful.training import (
    GradientFlow,
    HeavyBall,
    Optimizer,
    Riemannian,
    balance_projection,
    integrate,
    known_laws,
    problem,
    quantities_of,
)
from lawful.training.comparison import Comparison
from lawful.training.comparison import compare as compare_all
from lawful.training.integration.runs import Run, load, record
from lawful.training.problems.losses import Problem
from lawful.training.quantities import Quantities
from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.papers.leaky import BlockReadings

SAMPLES = 32  # drawn when no data are given
Samples = Data | str | Path | ArrayLike | tuple[ArrayLike, ArrayLike]


def as_data(data: Samples, inputs: int | None = None) -> Data:
    """Samples from a file, a `Data`, the pair (x, y), or x alone.

    >>> as_data(([[0.0, 1.0]], [1.0])).y
    array([1.])
    """
    if isinstance(data, Data):
        return data
    if isinstance(data, (str, Path)):
        return read_data(Path(data), inputs)
    x, y = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim < 2 or not np.isfinite(rows).all() or (inputs is not None and rows[0].size != inputs):
        raise LawfulError(f"data are finite rows of {inputs or 'input'} numbers, not an array of shape {rows.shape}")
    sample = rows.shape[1:] if rows.ndim > 2 else None
    return Data(rows.reshape(len(rows), -1), None if y is None else np.asarray(y, dtype=np.float64), sample=sample)


@takes(ReadOptions)
def flow(
    network: Source,
    data: Samples | None = None,
    *,
    loss: str = "mse",
    until: float = 1.0,
    dynamics: Dynamics | None = None,
    snapshots: int = 101,
    tolerance: float = 1e-10,
    stop_loss: float | None = None,
    stop_gradient: float | None = None,
    project: bool = False,
    ignore_kinks: bool = False,
    max_evaluations: int = 1_000_000,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> Run:
    """Integrate the gradient flow of a network on data, kinks included; without data, those of a random teacher.

    It ends early where the loss falls below `stop_loss`, or the gradient's norm below `stop_gradient`.

    >>> run = flow("2-3-1 relu", until=0.5)
    >>> run.max_drift < 1e-8, len(run.law_names)
    (True, 3)
    """
    opened = _with_weights(network, seed, reading)
    task = training_problem(opened, data, loss, seed)
    words = {"loss": loss, "data": None if data is None else "given"}
    run = follow(
        task, GradientFlow() if dynamics is None else dynamics, words, until=until, snapshots=snapshots,
        tolerance=tolerance, stop_loss=stop_loss, stop_gradient=stop_gradient, project=project,
        ignore_kinks=ignore_kinks, max_evaluations=max_evaluations,
    )  # fmt: skip
    return with_provenance(run, opened, trained="")


class TrainingTask(NamedTuple):
    """A training problem, its known laws, and the network if it is a graph whose weights train one by one."""

    problem: Problem
    laws: Quantities
    network: Mlp | Dag | None


def follow(
    task: TrainingTask, method: Dynamics, about: Mapping[str, Any], *, until: float, snapshots: int, tolerance: float,
    stop_loss: float | None, stop_gradient: float | None, project: bool, ignore_kinks: bool, max_evaluations: int,
    **watch: Any,
) -> Run:  # fmt: skip
    """Integrate a flow and record it with its laws; `watch` are the options of `integrate` that see every step."""
    at, laws, graph = task
    if snapshots < 2:
        raise LawfulError("a run needs at least 2 snapshots: its start and its end")
    if project and (graph is None or method != GradientFlow()):
        raise LawfulError("project is for the plain gradient flow of a network, not of another module or flow")
    metric = method.metric if isinstance(method, Riemannian) else method if isinstance(method, Metric) else None
    if metric is not None:  # other laws are kept, and they are known for constant metrics of networks
        laws = quantities_of({}) if graph is None or not isinstance(metric, Metric) else laws_under(metric, graph)
    trajectory = integrate(
        at,
        until,
        method,
        snapshots=snapshots,
        relative=tolerance,
        absolute=0.01 * tolerance,
        loss_below=stop_loss,
        gradient_below=stop_gradient,
        locate_kinks=not ignore_kinks,
        project=balance_projection(graph) if project and graph is not None else None,
        max_evaluations=max_evaluations,
        **watch,
    )
    words: dict[str, Any] = {
        "time": until, "decay": getattr(method, "decay", 0.0), "samples": at.samples,
        "dynamics": "heavy-ball" if isinstance(method, HeavyBall) else "gradient",
        "metric": None if metric is None else str(metric) if isinstance(metric, Metric) else "a metric of one's own",
        "kinks_not_located": list(getattr(at, "unlocated", ())),
    }  # fmt: skip
    if isinstance(method, HeavyBall):
        words["friction"] = method.friction
    return record(trajectory, laws, graph, words | dict(about))


def laws_under(metric: Metric, network: Mlp | Dag) -> Quantities:
    """The laws of the network that survive the metric."""
    from lawful.conservation import known_laws as all_known_laws
    from lawful.conservation.fields.flows import under_metric

    dag = network.to_dag()
    laws = under_metric(all_known_laws(dag), metric)
    names = ("*".join(dag.names[node] for node in law.nodes) or f"law {number}" for number, law in enumerate(laws))
    return Quantities(tuple(names), laws.values)


@takes(ReadOptions)
def compare(
    network: Source,
    optimizers: str | Sequence[str | Optimizer] = "flow,sgd:0.1,sgd:0.01,adam:0.001",
    data: Samples | None = None,
    *,
    loss: str = "mse",
    until: float = 1.0,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> Comparison:
    """Optimisers beside the flow: the drift of every law, measured and predicted.

    >>> [row.max_drift < 1e-6 for row in compare("2-3-1 relu", "flow,sgd:0.1", until=0.5).rows]
    [True, False]
    """
    words = optimizers.split(",") if isinstance(optimizers, str) else optimizers
    chosen = [word if isinstance(word, Optimizer) else Optimizer.parse(word) for word in words]
    opened = _with_weights(network, seed, reading)
    at, laws, _ = training_problem(opened, data, loss, seed)
    return with_provenance(compare_all(at, laws, chosen, until, seed=seed), opened, trained="")


def _with_weights(network: Source, seed: int, reading: ReadOptions) -> Mlp | Dag | ModuleNetwork:
    """The network with weights: a module, or a graph."""
    opened = open(network, **open_options(reading))
    return opened if isinstance(opened, ModuleNetwork) else open_graph(opened, seed=seed)


def drift(run: Run | str | Path) -> Run:
    """A stored run: how well it kept its laws is in its `drift`, `ranks` and `max_drift`."""
    return run if isinstance(run, Run) else load(Path(run))


def training_problem(network: Source, data: Samples | None, loss: str, seed: int) -> TrainingTask:
    """What is trained on what; without data, on those of a random teacher."""
    opened = open(network)
    reading = opened.reading
    is_graph = isinstance(opened, Mlp | Dag)
    if is_graph and reading is not None and (reading.entangled or reading.tail) and reading.module is not None:
        opened = ModuleNetwork(reading.module, "", reading)  # a graph's weights do not train one by one: a module's do
    if isinstance(opened, ModuleNetwork):
        from lawful.training.monitor.watch import module_laws
        from lawful.training.problems.module_problem import ModuleProblem

        if data is None:
            raise LawfulError("this module needs --data: its input size is not known")
        samples, targets = _with_targets(data)
        at = ModuleProblem(opened.module, samples.reshape(opened.input_shape), targets, loss)
        return TrainingTask(at, module_laws(opened.module, at.x), None)
    graph = open_free(opened, seed=seed)
    if data is None:
        x, y = drawn_data(graph, loss, seed)
    else:
        samples, y = _with_targets(data, len(graph.to_dag().inputs))
        x = samples.x
    return TrainingTask(problem(graph, x, y, loss), known_laws(graph), graph)


def _with_targets(data: Samples, inputs: int | None = None) -> tuple[Data, Floats]:
    samples = as_data(data, inputs)
    if samples.y is None:
        named = f"{data}: has" if isinstance(data, (str, Path)) else "data have"
        raise LawfulError(f"{named} no targets: training needs targets `y` beside x")
    return samples, samples.y


def drawn_data(network: Mlp | Dag, loss: str, seed: int) -> tuple[Floats, Any]:
    """Gaussian inputs and the answers of a random network of the same shape."""
    dag = network.to_dag()
    x = np.random.default_rng(seed).normal(size=(SAMPLES, len(dag.inputs)))
    y = initialise(dag, "he", seed + 1).evaluate(x)
    return x, {"bce": (y > 0).astype(float), "ce": y.argmax(axis=1)}.get(loss, y)


@takes(ReadOptions)
def truncate(network: Source, data: Samples | Clusters, *, seed: int = 0, **reading: Unpack[ReadOptions]) -> Census:
    """Which training points each layer truncates, by class and coordinate (P2)."""
    graph = open_graph(network, seed=seed, **open_options(reading))
    return with_provenance(census(graph, _clusters(data)), graph)


def truncation_flow(
    data: Samples | Clusters, *, general: bool = False, until: float = 10.0, frames: int = 61
) -> TruncationRun:
    """Let truncation maps move by gradient flow and watch the clusters collapse (P2 Theorem 3.2)."""
    points = _clusters(data)
    return run_flow(points, starting_maps(points), general=general, until=until, frames=frames)


def separate(data: Samples | Clusters, *, aligned: bool = False, seed: int = 0) -> Separability:
    """Can every cluster be truncated alone? If so, `built` is a network of zero loss (P2 Theorem 3.4)."""
    return separability(_clusters(data), aligned=aligned, seed=seed)


def _clusters(data: Samples | Clusters) -> Clusters:
    if isinstance(data, Clusters):
        return data
    samples = as_data(data)
    if samples.classes is None:
        raise LawfulError("needs labels: give the pair (x, y), y with one integer per point")
    return Clusters(samples.x, samples.classes)


@dataclass(frozen=True)
class LeakyRuns(Shown):
    """What training Leaky ResNets reached, one row per effective depth; the networks are in the folder."""

    folder: str
    networks: tuple[Mapping[str, Any], ...]

    @property
    def converged(self) -> bool:
        """Whether all of them are geodesics to the tolerance."""
        return all(bool(network["converged"]) for network in self.networks)


class LeakyOptions(TypedDict, total=False):
    """What a run may choose; `LeakyPlan` has the defaults, and calls the depth `layers`."""

    samples: int
    depth: int
    width: int
    steps: str
    a: float
    ridge: float
    softness: float
    method: str
    tolerance: float
    evaluations: int
    grids: int
    maps: str
    penalty: float
    seed: int


@takes(LeakyOptions)
def leaky(teacher: str, effective_depth: Sequence[float], out: str | Path, **plan: Unpack[LeakyOptions]) -> LeakyRuns:
    """Train Leaky ResNets to geodesics in a folder; the same call resumes it (P3)."""
    from lawful.api.leaky.runs import LeakyPlan, run_leaky
    from lawful.papers.leaky.model import parse_teacher

    fields: dict[str, Any] = {"ridge": 0.002 * parse_teacher(teacher)[-1], **plan}
    if "depth" in fields:
        fields["layers"] = fields.pop("depth")
    return LeakyRuns(str(out), tuple(run_leaky(LeakyPlan(teacher, **fields), tuple(effective_depth), Path(out))))


@takes(ReadOptions)
def bottleneck(
    network: Source,
    data: Samples,
    *,
    blocks: Sequence[str] | None = None,
    gamma: float | None = None,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> BlockReadings:
    """Effective dimension and movement of any network's blocks on data, token ids if it takes those (P3)."""
    from lawful.papers.leaky.streams.instruments import GAMMA, read_blocks
    from lawful.papers.leaky.streams.stream import as_inputs
    from lawful.sources.modules.convert import to_module

    opened = _with_weights(network, seed, reading)
    if isinstance(opened, ModuleNetwork):
        module = opened.module
    else:  # a graph that was read from a module has lost its blocks: those of the module are asked
        behind = getattr(opened.reading, "module", None)
        module = to_module(opened) if behind is None else behind
    shape = opened.input_shape if isinstance(opened, ModuleNetwork) else None
    samples, where = as_data(data), f"{data}: " if isinstance(data, (str, Path)) else ""
    if shape is not None and math.prod(shape) != samples.x.shape[1]:
        raise LawfulError(f"an input of size {shape} does not fit the {samples.x.shape[1]} columns of the data")
    inputs = as_inputs(module, samples.reshape(shape), where, " (see --input)")
    names, ratio = None if blocks is None else tuple(blocks), GAMMA if gamma is None else gamma
    try:
        answer = read_blocks(module, inputs, blocks=names, gamma_ratio=ratio, seed=seed)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise LawfulError(f"the network does not run on these samples: {str(error)[:150]} (see --input)") from None
    return with_provenance(answer, opened)
