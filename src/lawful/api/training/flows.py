"""How a network trains: its flow on data, real optimisers beside it, and what a stored run kept."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Unpack

from lawful.api.inputs import Help, ReadOptions, Samples, Seed, open_options, takes
from lawful.errors import LawfulError
from lawful.result import with_evidence

if TYPE_CHECKING:
    from lawful.network import Dag, Mlp
    from lawful.network.dynamics import Dynamics, Metric
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import Source
    from lawful.training import Optimizer
    from lawful.training.comparison import Comparison
    from lawful.training.integration.runs import Run
    from lawful.training.problems.losses import Problem
    from lawful.training.quantities import Quantities
    from lawful.types import Floats

    DynamicsLike = str | Dynamics
    MetricLike = str | Path | Metric
    Optimizers = str | Sequence[str | Optimizer]
    StoredRun = Run | str | Path
else:  # what a command line can give
    DynamicsLike, MetricLike, Optimizers, StoredRun = str, Path, str, Path

FRICTION = 1.0
DRAWN = 32  # samples when no data are given
TrainingData = Annotated[Samples | None, Help("Data: .npz with x and y, or .csv with a header and a y column.")]
Loss = Annotated[str, Help("mse, bce (logistic) or ce (cross-entropy).")]
Until = Annotated[float, Help("End time of the flow, not seconds.")]
Tick = Callable[[str, float], None]  # what is being done, and which part of all is finished


@takes(ReadOptions)
def flow(
    network: Source,
    data: TrainingData = None,
    *,
    loss: Loss = "mse",
    until: Until = 1.0,
    out: Annotated[
        str | Path | None, Help("New folder for the run; killed on the way, the same command goes on.")
    ] = None,
    dynamics: Annotated[DynamicsLike, Help("gradient or heavy-ball.")] = "gradient",
    friction: Annotated[float, Help("Friction of the heavy ball.")] = FRICTION,
    decay: Annotated[float, Help("Weight decay of the gradient flow.")] = 0.0,
    metric: Annotated[
        MetricLike | None, Help("Follow θ' = −M∇L for the diagonal or block metric M in this .npz or .json file.")
    ] = None,
    snapshots: Annotated[int, Help("Snapshots to keep.")] = 101,
    tolerance: Annotated[float, Help("Relative error of a step.")] = 1e-10,
    stop_loss: Annotated[float | None, Help("Stop when the loss falls below this.")] = None,
    stop_gradient: Annotated[float | None, Help("Stop when the gradient's norm falls below this.")] = None,
    project: Annotated[bool, Help("Project onto the invariant set at each step.")] = False,
    ignore_kinks: Annotated[bool, Help("Do not locate ReLU kinks.")] = False,
    max_evaluations: Annotated[int, Help("Most gradients to compute.")] = 1_000_000,
    seed: Seed = 0,
    tick: Tick = lambda words, part: None,
    **reading: Unpack[ReadOptions],
) -> Run:
    """Integrate the gradient flow of a network on data, kinks included; without data, those of a random teacher.

    It ends early where the loss falls below `stop_loss`, or the gradient's norm below `stop_gradient`. With `out` the
    run is stored in a folder, and one that was killed or ran out of `max_evaluations` goes on from its checkpoint.

    >>> run = flow("2-3-1 relu", until=0.5)
    >>> run.max_drift < 1e-8, len(run.law_names)
    (True, 3)
    """
    from lawful.network.dynamics import GradientFlow, HeavyBall, Metric, Riemannian
    from lawful.sources.provenance import with_provenance
    from lawful.training.integration import runs
    from lawful.training.integration.integrate import integrate
    from lawful.training.problems.losses import find_loss
    from lawful.training.quantities import balance_projection, quantities_of

    folder = None if out is None else RunFolder(Path(out))
    opened = _with_weights(network, seed, reading)
    at, laws, graph = training_problem(opened, data, loss, seed)
    if snapshots < 2:
        raise LawfulError("a run needs at least 2 snapshots: its start and its end")
    plain = metric is None and not decay and dynamics in ("gradient", GradientFlow())
    if project and (graph is None or not plain):
        raise LawfulError("project is for the plain gradient flow of a network, not of another module or flow")
    method = _dynamics(dynamics, friction, decay, metric, len(at.start))
    used = method.metric if isinstance(method, Riemannian) else method if isinstance(method, Metric) else None
    if used is not None:  # other laws are kept, and they are known for constant metrics of networks
        laws = quantities_of({}) if graph is None or not isinstance(used, Metric) else laws_under(used, graph)
    options: dict[str, Any] = {
        "snapshots": snapshots, "relative": tolerance, "absolute": 0.01 * tolerance, "loss_below": stop_loss,
        "gradient_below": stop_gradient, "locate_kinks": not ignore_kinks,
    }  # fmt: skip
    trajectory = integrate(
        at,
        until,
        method,
        project=balance_projection(graph) if project and graph is not None else None,
        max_evaluations=max_evaluations,
        on_step=lambda time, value: tick(f"loss {value:.4g}", time / until),
        **options,
        **({} if folder is None else folder.checkpoints(at, method, [until, project, loss, sorted(options.items())])),
    )
    words: dict[str, Any] = {
        "network": _name(network, type(network).__name__), "data": _name(data, "given"), "loss": find_loss(loss).name,
        "samples": at.samples, "seed": seed, "time": until, "tolerance": tolerance,
        "dynamics": "heavy-ball" if isinstance(method, HeavyBall) else "gradient",
        "decay": getattr(method, "decay", 0.0),
        "metric": _name(metric if isinstance(metric, (str, Path)) else used, "a metric of one's own"),
        "kinks_not_located": list(getattr(at, "unlocated", ())),
    }  # fmt: skip
    if isinstance(method, HeavyBall):
        words["friction"] = "a function of time" if callable(method.friction) else method.friction
    run = runs.record(trajectory, laws, graph, words)
    if folder is not None:
        folder.save(run)

    def certificate() -> Mapping[str, Any]:
        if graph is None:
            raise LawfulError("certificates are for networks, not for other modules")
        x, y = at.x, at.targets  # type: ignore[attr-defined]
        return runs.certificate(graph, x, y, words["loss"], trajectory, words["decay"])

    return with_evidence(with_provenance(run, opened, trained=""), certificate)


def _name(source: object, otherwise: str) -> str | None:
    """How a run calls what it was made of: as it was typed, if it was."""
    from lawful.network.dynamics import Metric

    return None if source is None else str(source) if isinstance(source, (str, Path, Metric)) else otherwise


def _dynamics(
    dynamics: DynamicsLike, friction: float, decay: float, metric: MetricLike | None, parameters: int
) -> Dynamics:
    """The equation that the words describe."""
    from lawful.formats.queries.metric import read_metric
    from lawful.network.dynamics import GradientFlow, HeavyBall, Metric

    if not isinstance(dynamics, str):
        if decay or metric is not None or friction != FRICTION:
            raise LawfulError("dynamics that are given as an object have their own friction, decay and metric")
        return dynamics
    if dynamics not in ("gradient", "heavy-ball"):
        raise LawfulError(f"unknown dynamics {dynamics!r}: choose gradient or heavy-ball")
    if friction != FRICTION and dynamics == "gradient":
        raise LawfulError("friction is for the heavy ball: give its dynamics, or leave it out")
    if (metric is not None or decay) and dynamics == "heavy-ball":
        raise LawfulError("a metric and decay are for the gradient flow: leave them out for a heavy ball")
    if metric is not None and decay:
        raise LawfulError("a metric is for gradient flow without decay: leave out the decay")
    if metric is not None:
        return metric if isinstance(metric, Metric) else read_metric(Path(metric), parameters)
    return HeavyBall(friction) if dynamics == "heavy-ball" else GradientFlow(decay)


class RunFolder:
    """The folder of a run, and the checkpoint beside it, FOLDER.part.npz, from which a run that was killed goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.part = folder, folder.with_name(folder.name + ".part.npz")
        if folder.exists() and not (self.part.exists() and self._is_unfinished()):
            raise LawfulError(f"{folder} exists already: name a new folder for the run")

    def _is_unfinished(self) -> bool:
        """Whether it holds a run that was interrupted, or that its budget of gradients ended."""
        from lawful.training.integration.runs import load

        return load(self.folder).trajectory.stop.resumable

    def checkpoints(self, at: Problem, method: Dynamics, settings: Sequence[Any]) -> dict[str, Any]:
        """Options of `integrate` that keep a checkpoint, and go on from one that is there and of the same flow."""
        import numpy as np

        from lawful.network.dynamics import HeavyBall
        from lawful.training.integration import trajectory

        first = at.evaluate(at.start)  # a module's own code may have changed, too
        moves = first.gradient if isinstance(method, HeavyBall) else method.velocity(at.start, first.gradient)
        digest = hashlib.sha256(json.dumps([repr(method), *settings]).encode())
        for array in (at.start, at.x, at.targets, np.float64(first.loss), moves):  # type: ignore[attr-defined]
            digest.update(np.ascontiguousarray(array).tobytes())
        about = digest.hexdigest()[:32]
        resume = trajectory.read_checkpoint(self.part, about) if self.part.exists() else None
        if resume is not None:
            print(f"lawful: going on from {self.part} at t = {resume.time:.4g}", file=sys.stderr)
        return {"resume": resume, "keep": lambda state: trajectory.write_checkpoint(state, self.part, about)}

    def save(self, run: Run) -> None:
        """Store the run; the checkpoint stays until that is done, and longer if the run stopped short."""
        from lawful.training.integration.runs import save

        if self.folder.exists():
            rmtree(self.folder)
        save(run, self.folder)
        if not run.trajectory.stop.resumable:
            self.part.unlink(missing_ok=True)


def laws_under(metric: Metric, network: Mlp | Dag) -> Quantities:
    """The laws of the network that survive the metric."""
    from lawful.conservation import known_laws
    from lawful.conservation.fields.flows import under_metric
    from lawful.training.quantities import Quantities

    dag = network.to_dag()
    laws = under_metric(known_laws(dag), metric)
    names = ("*".join(dag.names[node] for node in law.nodes) or f"law {number}" for number, law in enumerate(laws))
    return Quantities(tuple(names), laws.values)


@takes(ReadOptions)
def compare(
    network: Source,
    optimizers: Annotated[
        Optimizers, Help("Methods: flow, sgd:RATE[:momentum=M][:batch=B][:decay=D], adam:RATE.")
    ] = "flow,sgd:0.1,sgd:0.01,adam:0.001",
    data: TrainingData = None,
    *,
    loss: Loss = "mse",
    until: Until = 1.0,
    seed: Seed = 0,
    tick: Tick | None = None,
    **reading: Unpack[ReadOptions],
) -> Comparison:
    """Optimisers beside the flow: the drift of every law, measured and predicted.

    >>> [row.max_drift < 1e-6 for row in compare("2-3-1 relu", "flow,sgd:0.1", until=0.5).rows]
    [True, False]
    """
    from lawful.sources.provenance import with_provenance
    from lawful.training.comparison import Optimizer
    from lawful.training.comparison import compare as compare_all

    words = [word for word in optimizers.split(",") if word.strip()] if isinstance(optimizers, str) else optimizers
    chosen = [word if isinstance(word, Optimizer) else Optimizer.parse(word) for word in words]
    opened = _with_weights(network, seed, reading)
    at, laws, _ = training_problem(opened, data, loss, seed)
    return with_provenance(compare_all(at, laws, chosen, until, seed=seed, on_step=tick), opened, trained="")


def drift(run: Annotated[StoredRun, Help("A run folder that `lawful flow` wrote.", argument="RUN")]) -> Run:
    """A stored run: how well it kept its laws is in its `drift`, `ranks` and `max_drift`."""
    from lawful.training.integration.runs import Run, load

    return run if isinstance(run, Run) else load(Path(run))


def _with_weights(network: Source, seed: int, reading: ReadOptions) -> Mlp | Dag | ModuleNetwork:
    """The network with weights: a module, or a graph."""
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import open, open_graph

    opened = open(network, **open_options(reading))
    return opened if isinstance(opened, ModuleNetwork) else open_graph(opened, seed=seed)


class TrainingTask(NamedTuple):
    """A training problem, its known laws, and the network if it is a graph whose weights train one by one."""

    problem: Problem
    laws: Quantities
    network: Mlp | Dag | None


def training_problem(network: Source, data: Samples | None, loss: str, seed: int) -> TrainingTask:
    """What is trained on what; without data, on those of a random teacher."""
    from lawful.api.training.samples import with_targets
    from lawful.network import Dag, Mlp
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import open, open_free
    from lawful.training import known_laws, problem
    from lawful.training.problems.losses import find_loss

    loss = find_loss(loss).name
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
        samples, targets = with_targets(data)
        at = ModuleProblem(opened.module, samples.reshape(opened.input_shape), targets, loss)
        return TrainingTask(at, module_laws(opened.module, at.x), None)
    graph = open_free(opened, seed=seed)
    if data is None:
        x, y = drawn_data(graph, loss, seed)
    else:
        samples, y = with_targets(data, len(graph.to_dag().inputs))
        x = samples.x
    return TrainingTask(problem(graph, x, y, loss), known_laws(graph), graph)


def drawn_data(network: Mlp | Dag, loss: str, seed: int) -> tuple[Floats, Any]:
    """Gaussian inputs and the answers of a random network of the same shape."""
    import numpy as np

    from lawful.network import initialise

    dag = network.to_dag()
    x = np.random.default_rng(seed).normal(size=(DRAWN, len(dag.inputs)))
    y = initialise(dag, "he", seed + 1).evaluate(x)
    return x, {"bce": (y > 0).astype(float), "ce": y.argmax(axis=1)}.get(loss, y)
