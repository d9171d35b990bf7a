"""`lawful flow`, `lawful drift`, `lawful compare`: how training moves, and what discrete steps break."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import print_json
from lawful.cli.source import InputOption, JsonOption, SeedOption, input_shape, is_module, open_module, open_network
from lawful.errors import LawfulError, Unsupported

if TYPE_CHECKING:
    from lawful.flow.dynamics import Dynamics
    from lawful.flow.problem import Problem
    from lawful.flow.quantities import Quantities
    from lawful.flow.runs import Run
    from lawful.network import Dag, Mlp
    from lawful.network.metric import Metric

DEFAULTS: dict[str, Any] = {
    "data": None, "loss": "mse", "time": 1.0, "dynamics": "gradient", "friction": 1.0, "decay": 0.0, "snapshots": 101,
    "tolerance": 1e-10, "stop_loss": None, "stop_gradient": None, "max_evaluations": 1_000_000, "seed": 0,
    "input": None, "activation": None, "out": None, "certificate": None, "project": False, "ignore_kinks": False,
    "metric": None,
}  # fmt: skip
SAMPLES = 32  # drawn when no data are given
DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data: .npz with x and y, or .csv with a header and a y column.")
]
LossOption = Annotated[str | None, typer.Option("--loss", help="mse, bce (logistic) or ce (softmax). [default: mse]")]
TimeOption = Annotated[float | None, typer.Option("--time", help="Time of the flow. [default: 1]")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="Draw to a file: .svg, .png or .pdf.")]
ActivationChoice = Annotated[
    str | None, typer.Option("--activation", help="For files that name none: relu, leaky_relu(SLOPE) or linear.")
]


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command()(flow)
    app.command()(drift)
    app.command()(compare)


def flow(
    source: Annotated[str, typer.Argument(metavar="NETWORK|CONFIG.toml", help="A network, or a file of settings.")],
    data: DataOption = None,
    loss: LossOption = None,
    time: TimeOption = None,
    out: Annotated[Path | None, typer.Option(help="New folder for the run.")] = None,
    dynamics: Annotated[str | None, typer.Option(help="gradient or heavy-ball. [default: gradient]")] = None,
    friction: Annotated[float | None, typer.Option(help="Friction of the heavy ball. [default: 1]")] = None,
    decay: Annotated[float | None, typer.Option(help="Weight decay of the gradient flow. [default: 0]")] = None,
    metric: Annotated[
        Path | None,
        typer.Option(help="Follow θ' = −M∇L for the diagonal or block metric M in this .npz or .json file."),
    ] = None,
    snapshots: Annotated[int | None, typer.Option(help="Snapshots to keep. [default: 101]")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Relative error of a step. [default: 1e-10]")] = None,
    stop_loss: Annotated[float | None, typer.Option(help="Stop when the loss falls below this.")] = None,
    stop_gradient: Annotated[float | None, typer.Option(help="Stop when the gradient's norm falls below this.")] = None,
    project: Annotated[bool, typer.Option("--project", help="Project onto the invariant set at each step.")] = False,
    ignore_kinks: Annotated[bool, typer.Option("--ignore-kinks", help="Do not locate ReLU kinks.")] = False,
    max_evaluations: Annotated[int | None, typer.Option(help="Most gradients to compute. [default: 1000000]")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Save evidence for `lawful verify`.")] = None,
    activation: ActivationChoice = None,
    input_size: InputOption = None,
    seed: Annotated[int | None, typer.Option(help="Seed for random weights and data. [default: 0]")] = None,
    as_json: JsonOption = False,
) -> None:
    """Integrate the gradient flow of a network on data, kinks included, and store the run (exit 1 on a blow-up)."""
    from lawful.flow.trajectory import Reason
    from lawful.report.flow import flow_json, flow_text

    given = {
        "data": data, "loss": loss, "time": time, "out": out, "dynamics": dynamics, "friction": friction,
        "decay": decay, "snapshots": snapshots, "tolerance": tolerance, "stop_loss": stop_loss,
        "stop_gradient": stop_gradient, "max_evaluations": max_evaluations, "certificate": certificate,
        "activation": activation, "input": input_size, "seed": seed, "project": project or None,
        "ignore_kinks": ignore_kinks or None, "metric": metric,
    }  # fmt: skip
    settings = _settings(source, {key: value for key, value in given.items() if value is not None})
    folder = None if settings["out"] is None else Path(settings["out"])
    if folder is not None and folder.exists():
        raise LawfulError(f"{folder} exists already: name a new folder for the run")
    run = _integrated(settings)
    if folder is not None:
        from lawful.flow.runs import save

        save(run, folder)
    if as_json:
        print_json(flow_json(run) | {"out": None if folder is None else str(folder)})
    else:
        typer.echo(flow_text(run) + ("" if folder is None else f"\nsaved in {folder}: see `lawful drift {folder}`"))
    codes = {Reason.BLOW_UP: 1, Reason.EVALUATIONS: 3, Reason.INTERRUPTED: 130}
    if run.trajectory.stop.reason in codes:
        raise typer.Exit(codes[run.trajectory.stop.reason])


def drift(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that `lawful flow` wrote.")],
    plot: PlotOption = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with a slider over training time.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Exit 1 if a law drifts by more than this.")] = None,
    as_json: JsonOption = False,
) -> None:
    """How well a stored run kept its laws: balances, singular values of J, locked weights."""
    from lawful.flow.runs import load
    from lawful.report.flow import drift_figure, drift_json, drift_text

    run = load(folder)
    signs = _locked(run)
    if plot is not None:
        _draw(drift_figure(run), plot)
    if html is not None:
        from lawful.report.run_page import run_html

        html.write_text(run_html(run, str(folder)), encoding="utf-8")
    if as_json:
        print_json(drift_json(run, signs))
    else:
        typer.echo(drift_text(run, signs))
    if tolerance is not None and not run.max_drift <= tolerance:
        raise typer.Exit(1)


def compare(
    network: Annotated[str, typer.Argument(metavar="NETWORK", help="File, module:factory, or architecture.")],
    optimizers: Annotated[
        str, typer.Option("--optimizers", help="Methods: flow, sgd:RATE[:momentum=M][:batch=B][:decay=D], adam:RATE.")
    ] = "flow,sgd:0.1,sgd:0.01,adam:0.001",
    data: DataOption = None,
    loss: LossOption = None,
    time: TimeOption = None,
    plot: PlotOption = None,
    activation: ActivationChoice = None,
    input_size: InputOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Optimisers beside the flow: the drift of every law, measured and predicted (exit 1 if one diverges)."""
    from lawful.flow import Optimizer
    from lawful.flow import compare as run_all
    from lawful.report.flow import compare_figure, compare_json, compare_text

    chosen = [Optimizer.parse(text) for text in optimizers.split(",") if text.strip()]
    given = {"data": data, "loss": loss, "time": time, "activation": activation, "input": input_size, "seed": seed}
    settings = _settings(network, {key: value for key, value in given.items() if value is not None})
    at, laws, _ = _problem(settings)
    with _bar("comparing") as tell:
        found = run_all(at, laws, chosen, float(settings["time"]), seed=seed, on_step=tell)
    if plot is not None:
        _draw(compare_figure(found), plot)
    if as_json:
        print_json(compare_json(found) | {"network": settings["network"], "data": settings["data"]})
    else:
        if settings["data"] is None:
            typer.echo("no data given: Gaussian inputs and a random teacher of the same shape")
        typer.echo(compare_text(found))
    if any(row.message for row in found.rows):
        raise typer.Exit(1)


def _settings(source: str, given: dict[str, Any]) -> dict[str, Any]:
    """Defaults, then the TOML file if `source` is one, then the command line."""
    if not source.endswith(".toml"):
        return DEFAULTS | given | {"network": source}
    path = Path(source)
    try:
        stored = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LawfulError(f"{source}: not a TOML file ({error})") from None
    unknown = sorted(set(stored) - set(DEFAULTS) - {"network"})
    if unknown:
        known = ", ".join(["network", *DEFAULTS])
        raise LawfulError(f"{source}: unknown setting {unknown[0][:40]!r}; settings are {known}")
    if not isinstance(stored.get("network"), str):
        raise LawfulError(f'{source}: needs network = "..." (a file, module:factory or architecture)')
    for key, value in stored.items():
        default = DEFAULTS.get(key)
        kinds = {bool: (bool,), float: (float, int), int: (int,), str: (str,)}.get(type(default), (str, float, int))
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds != (bool,)):
            raise LawfulError(f"{source}: {key} = {value!r} has the wrong type")
    for key in ("data", "out", "certificate", "metric"):  # paths are relative to the file that names them
        if stored.get(key) is not None:
            stored[key] = str(path.parent / str(stored[key]))
    return DEFAULTS | stored | given


def _problem(settings: dict[str, Any]) -> tuple[Problem, Quantities, Mlp | Dag | None]:
    """The training problem, its known laws, and the network if it is one."""
    from lawful.flow import known_laws, named, problem
    from lawful.network.data import read_data

    shape = input_shape(settings["input"])
    seed = int(settings["seed"])
    network: Mlp | Dag | None
    try:
        network = open_network(settings["network"], seed=seed, activation=settings["activation"], shape=shape)
    except Unsupported:
        if not is_module(settings["network"]):
            raise
        network = None
    inputs = None if network is None else len(network.to_dag().inputs)
    if settings["data"] is None:
        if network is None:
            raise LawfulError("this module needs --data: its input size is not known")
        x, y = _drawn(network, str(settings["loss"]), seed)
    else:
        settings["data"] = str(settings["data"])
        found = read_data(Path(settings["data"]), inputs)
        if found.y is None:
            raise LawfulError(f"{settings['data']}: has no targets `y`")
        x, y = found.x, found.y
    if network is not None:
        return problem(network, x, y, settings["loss"]), known_laws(network), network
    if shape is not None:
        x = x.reshape(len(x), *shape)
    return problem(open_module(settings["network"]), x, y, settings["loss"]), named({}), None


def _drawn(network: Mlp | Dag, loss: str, seed: int) -> tuple[Any, Any]:
    """Gaussian inputs and the answers of a random network of the same shape."""
    import numpy as np

    from lawful.flow.losses import find_loss
    from lawful.network import initialise

    dag = network.to_dag()
    x = np.random.default_rng(seed).normal(size=(SAMPLES, len(dag.inputs)))
    y = initialise(dag, "he", seed + 1).evaluate(x)
    find_loss(loss)
    return x, {"bce": (y > 0).astype(float), "ce": y.argmax(axis=1)}.get(loss, y)


def _integrated(settings: dict[str, Any]) -> Run:
    from lawful.flow import GradientFlow, HeavyBall, Riemannian, balance_projection, integrate, named
    from lawful.flow.runs import record
    from lawful.network.metric import read_metric

    at, laws, network = _problem(settings)
    if settings["dynamics"] not in ("gradient", "heavy-ball"):
        raise LawfulError(f"unknown dynamics {settings['dynamics']!r}: choose gradient or heavy-ball")
    ball = settings["dynamics"] == "heavy-ball"
    method: Dynamics = HeavyBall(float(settings["friction"])) if ball else GradientFlow(float(settings["decay"]))
    if settings["project"] and (network is None or ball or settings["decay"] or settings["metric"]):
        raise LawfulError("--project is for the plain gradient flow of a network")
    metric = None
    if settings["metric"] is not None:
        if ball or settings["decay"]:
            raise LawfulError("--metric is for gradient flow without decay: leave out the other options")
        settings["metric"] = str(settings["metric"])
        metric = read_metric(Path(settings["metric"]), len(at.start))
        method, laws = Riemannian(metric), named({}) if network is None else _laws_under(metric, network)
    if int(settings["snapshots"]) < 2:
        raise LawfulError("a run needs at least 2 snapshots: its start and its end")
    with _bar("flow") as tell:
        total = float(settings["time"])
        trajectory = integrate(
            at,
            total,
            method,
            snapshots=int(settings["snapshots"]),
            relative=float(settings["tolerance"]),
            absolute=0.01 * float(settings["tolerance"]),
            loss_below=settings["stop_loss"],
            gradient_below=settings["stop_gradient"],
            locate_kinks=not settings["ignore_kinks"],
            project=balance_projection(network) if settings["project"] and network is not None else None,
            max_evaluations=int(settings["max_evaluations"]),
            on_step=lambda time, loss: tell(f"loss {loss:.4g}", time / total),
        )
    keys = ("network", "data", "loss", "time", "dynamics", "decay", "seed", "tolerance", "metric")
    about = {key: settings[key] for key in keys} | {"samples": at.samples}
    about["kinks_not_located"] = list(getattr(at, "unlocated", ()))
    if ball:
        about |= {"friction": settings["friction"], "decay": 0.0}
    if settings["certificate"] is not None:
        from lawful.flow.certificate import certificate

        if network is None:
            raise LawfulError("certificates are for networks, not for other modules")
        x, y = at.x, at.targets  # type: ignore[attr-defined]
        evidence = certificate(network, x, y, settings["loss"], trajectory, float(settings["decay"]), metric)
        Path(settings["certificate"]).write_text(json.dumps(evidence) + "\n", encoding="utf-8")
    return record(trajectory, laws, network, about)


def _laws_under(metric: Metric, network: Mlp | Dag) -> Quantities:
    """The laws of the network that survive the metric."""
    from lawful.flow import Quantities
    from lawful.laws import known_laws
    from lawful.laws.flow import under_metric

    dag = network.to_dag()
    laws = under_metric(known_laws(dag), metric)
    names = ("*".join(dag.names[node] for node in law.nodes) or f"law {number}" for number, law in enumerate(laws))
    return Quantities(tuple(names), laws.values)


def _locked(run: Run) -> list[dict[str, Any]] | None:
    """Locked weights of the start, and whether each kept its sign."""
    if run.network is None or run.about.get("metric"):
        return None
    from lawful.invariant import components

    dag, theta = run.network.to_dag(), run.trajectory.theta
    return [
        {"edge": list(dag.edge_name(lock.edge)), "kept": bool((theta[:, lock.edge] * lock.sign > 0).all())}
        for lock in components(dag.with_weights(theta[0])).locked
    ]


def _draw(figure: Any, path: Path) -> None:
    from lawful.report.figure import save

    if path.suffix not in (".svg", ".png", ".pdf"):
        raise LawfulError(f"{path}: figures end in .svg, .png or .pdf")
    save(figure, path)


@contextmanager
def _bar(name: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar on a terminal's stderr; silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda words, part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda words, part: progress.update(task, completed=part, description=f"{name} {words}")
