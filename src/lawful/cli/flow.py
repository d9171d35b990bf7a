"""`lawful flow`, `lawful drift`, `lawful compare`: how training moves, and what discrete steps break."""

from __future__ import annotations

import shlex
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.api.inputs import DrawOptions, ModuleOptions
from lawful.cli.output import bar, print_json, say, will_write, write_certificate, write_text
from lawful.cli.subcommand import (
    ApiCall,
    JsonOption,
    Named,
    format_options,
    input_shape,
    is_module,
    open_network,
    subcommand,
)
from lawful.errors import LawfulError, Unsupported

if TYPE_CHECKING:
    from lawful.api.training import TrainingTask
    from lawful.network.dynamics import Dynamics
    from lawful.training.integration.runs import Run
    from lawful.training.problems.losses import Problem

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data: .npz with x and y, or .csv with a header and a y column.")
]
LossOption = Annotated[
    str | None, typer.Option("--loss", help="mse, bce (logistic) or ce (cross-entropy). [default: mse]")
]
UntilOption = Annotated[float | None, typer.Option("--until", help="End time of the flow, not seconds. [default: 1]")]
OldTimeOption = Annotated[float | None, typer.Option("--time", hidden=True)]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="Draw to a file: .svg, .png or .pdf.")]


def end_time(until: float | None, time: float | None) -> float | None:
    """`--until`, or its old name `--time`, which means seconds everywhere else: one of the two."""
    if time is None:
        return until
    if until is not None:
        raise LawfulError("--time is an old name of --until here: give --until alone")
    typer.echo("lawful: --time is an old name of --until here (elsewhere it means seconds): write --until", err=True)
    return time


@subcommand(reads=ModuleOptions, without=("network",))
def flow(
    call: ApiCall,
    source: Annotated[str, typer.Argument(metavar="NETWORK|CONFIG.toml", help="A network, or a file of settings.")],
    data: DataOption = None,
    loss: LossOption = None,
    until: UntilOption = None,
    time: OldTimeOption = None,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the run; killed on the way, the same command goes on.")
    ] = None,
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
    html: Annotated[Path | None, typer.Option(help="Write a page with a slider over training time.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for random weights and data. [default: 0]", min=0)] = None,
    as_json: JsonOption = False,
) -> None:
    """Integrate the gradient flow of a network on data, kinks included, and store the run (exit 1 on a blow-up)."""
    named = call.named
    from lawful.report.training.flow import flow_json, flow_text
    from lawful.training.integration.trajectory import Reason

    options = {
        "data": data, "loss": loss, "time": end_time(until, time), "out": out, "dynamics": dynamics,
        "friction": friction, "decay": decay, "snapshots": snapshots, "tolerance": tolerance, "stop_loss": stop_loss,
        "stop_gradient": stop_gradient, "max_evaluations": max_evaluations, "certificate": certificate,
        "project": project or None, "ignore_kinks": ignore_kinks or None, "metric": metric,
    }  # fmt: skip
    settings = read_settings(source, _given(named, options) | ({} if seed is None else {"seed": seed}))
    folder = None if settings["out"] is None else Path(settings["out"])
    part = None if folder is None else folder.with_name(folder.name + ".part.npz")
    if folder is not None and part is not None and folder.exists() and not (part.exists() and _is_unfinished(folder)):
        raise LawfulError(f"{folder} exists already: name a new folder for the run")
    will_write(None if settings["certificate"] is None else Path(settings["certificate"]), html)
    run = _integrate(settings, part)
    if folder is not None:
        from lawful.training.integration.runs import save

        if folder.exists():  # the same flow, stopped short: the checkpoint beside it stays until this one is written
            rmtree(folder)
        save(run, folder)
    if part is not None and run.trajectory.stop.reason not in (Reason.INTERRUPTED, Reason.EVALUATIONS):
        part.unlink(missing_ok=True)
    if html is not None:
        from lawful.report.training.flow import run_html

        write_text(html, run_html(run, str(settings["network"]), None if folder is None else str(folder)))
    say(
        as_json,
        flow_json(run) | {"out": None if folder is None else str(folder)},
        flow_text(run) + ("" if folder is None else f"\nsaved in {folder}: see `lawful drift {folder}`"),
    )
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
    from lawful.report.training.flow import drift_figure, drift_json, drift_text
    from lawful.training.integration.runs import load

    will_write(plot, html)
    if tolerance is not None and not tolerance >= 0:
        raise LawfulError(f"--tolerance is a number of at least 0, not {tolerance:g}")
    run = load(folder)
    signs = _locked_weights(run)
    if plot is not None:
        _draw(drift_figure(run), plot)
    if html is not None:
        from lawful.report.training.flow import run_html

        write_text(html, run_html(run, str(folder), str(folder)))
    say(as_json, drift_json(run, signs), drift_text(run, signs))
    if tolerance is not None and not run.max_drift <= tolerance:
        raise typer.Exit(1)


@subcommand(reads=DrawOptions, without=("drop_useless",))
def compare(
    call: ApiCall,
    network: Annotated[str, typer.Argument(metavar="NETWORK", help="File, module:factory, or architecture.")],
    optimizers: Annotated[
        str, typer.Option("--optimizers", help="Methods: flow, sgd:RATE[:momentum=M][:batch=B][:decay=D], adam:RATE.")
    ] = "flow,sgd:0.1,sgd:0.01,adam:0.001",
    data: DataOption = None,
    loss: LossOption = None,
    until: UntilOption = None,
    time: OldTimeOption = None,
    plot: PlotOption = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the curves and the table.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Optimisers beside the flow: the drift of every law, measured and predicted (exit 1 if one diverges)."""
    named = call.named
    from lawful.report.training.flow import compare_figure, compare_json, compare_text
    from lawful.training import Optimizer
    from lawful.training import compare as run_all

    will_write(plot, html)
    chosen = [Optimizer.parse(text) for text in optimizers.split(",") if text.strip()]
    problem = {"data": data, "loss": loss}
    settings = read_settings(network, _given(named, problem | {"time": end_time(until, time)}))
    at, laws, _ = _trained(settings)
    with bar("comparing") as tell:
        found = run_all(at, laws, chosen, float(settings["time"]), seed=named.seed, on_step=tell)
    if plot is not None:
        _draw(compare_figure(found), plot)
    if html is not None:
        from lawful.report.training.flow import compare_html

        asked = shlex.quote(network) + format_options(problem) + named.words
        write_text(html, compare_html(found, network, asked))
    if as_json:
        print_json(compare_json(found) | {"network": settings["network"], "data": settings["data"]})
    else:
        if settings["data"] is None:
            typer.echo("no data given: Gaussian inputs and a random teacher of the same shape")
        typer.echo(compare_text(found))
    if any(row.message for row in found.rows):
        raise typer.Exit(1)


DEFAULTS: dict[str, Any] = {
    "data": None, "loss": "mse", "time": 1.0, "dynamics": "gradient", "friction": 1.0, "decay": 0.0, "snapshots": 101,
    "tolerance": 1e-10, "stop_loss": None, "stop_gradient": None, "max_evaluations": 1_000_000, "seed": 0,
    "input": None, "activation": None, "out": None, "certificate": None, "project": False, "ignore_kinks": False,
    "metric": None, "model": None, "order": None,
}  # fmt: skip


def _given(named: Named, options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, those of reading among them."""
    reading: dict[str, Any] = {**named.read_options, "seed": named.seed or None}
    return {key: value for key, value in (options | reading).items() if value is not None and key in DEFAULTS}


def read_settings(source: str, given: dict[str, Any]) -> dict[str, Any]:
    """Defaults, then the TOML file if `source` is one, then the command line."""
    if not source.endswith(".toml"):
        return DEFAULTS | given | {"network": source}
    from lawful.formats.io.reading import read_toml

    path = Path(source)
    stored = read_toml(path)
    if "until" in stored:
        stored["time"] = stored.pop("until")
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


def _trained(settings: dict[str, Any]) -> TrainingTask:
    """The training problem that the settings describe."""
    from lawful.api.training import training_problem
    from lawful.sources.opening import open_module
    from lawful.training.problems.losses import find_loss

    settings["loss"] = find_loss(str(settings["loss"])).name
    settings["data"] = None if settings["data"] is None else str(settings["data"])
    reading = {key: settings[key] for key in ("activation", "model", "order")}
    network, seed, shape = settings["network"], int(settings["seed"]), input_shape(settings["input"])
    opened: Any
    try:
        opened = open_network(network, seed=seed, shape=shape, **reading)
    except Unsupported:
        if not is_module(network) and settings["model"] is None:
            raise
        opened = open_module(network, input_shape=shape, **reading)
    return training_problem(opened, settings["data"], settings["loss"], seed)


def _integrate(settings: dict[str, Any], part: Path | None) -> Run:
    from lawful.api.training import follow
    from lawful.formats.queries.metric import read_metric
    from lawful.training import GradientFlow, HeavyBall, Riemannian

    task = _trained(settings)
    if settings["dynamics"] not in ("gradient", "heavy-ball"):
        raise LawfulError(f"unknown dynamics {settings['dynamics']!r}: choose gradient or heavy-ball")
    ball = settings["dynamics"] == "heavy-ball"
    method: Dynamics = HeavyBall(float(settings["friction"])) if ball else GradientFlow(float(settings["decay"]))
    if settings["metric"] is not None:
        if settings["project"]:
            raise LawfulError("--project is for the plain gradient flow of a network: leave out --metric")
        if ball or settings["decay"]:
            raise LawfulError("--metric is for gradient flow without decay: leave out the other options")
        settings["metric"] = str(settings["metric"])
        method = Riemannian(read_metric(Path(settings["metric"]), len(task.problem.start)))
    total = float(settings["time"])
    about = {key: settings[key] for key in ("network", "data", "loss", "seed", "tolerance", "metric")}
    plain = {key: settings[key] for key in ("stop_loss", "stop_gradient", "project", "ignore_kinks")}
    with bar("flow") as tell:
        run = follow(
            task, method, about, until=total, snapshots=int(settings["snapshots"]),
            tolerance=float(settings["tolerance"]), max_evaluations=int(settings["max_evaluations"]), **plain,
            on_step=lambda time, loss: tell(f"loss {loss:.4g}", time / total),
            **_checkpoints(part, task.problem, settings),
        )  # fmt: skip
    if settings["certificate"] is not None:
        from lawful.training.integration.runs import certificate

        if task.network is None:
            raise LawfulError("certificates are for networks, not for other modules")
        x, y = task.problem.x, task.problem.targets  # type: ignore[attr-defined]
        decay = float(settings["decay"])
        evidence = certificate(task.network, x, y, settings["loss"], run.trajectory, decay)
        write_certificate(Path(settings["certificate"]), evidence)
    return run


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder holds a run that was interrupted, or that its budget of gradients ended."""
    from lawful.training.integration.runs import load
    from lawful.training.integration.trajectory import Reason

    return load(folder).trajectory.stop.reason in (Reason.INTERRUPTED, Reason.EVALUATIONS)


def _checkpoints(part: Path | None, at: Problem, settings: dict[str, Any]) -> dict[str, Any]:
    """Options of `integrate` that keep a checkpoint beside the folder of the run, and go on from one that is there."""
    if part is None:
        return {}
    import hashlib
    import json

    import numpy as np

    from lawful.training.integration.trajectory import read_checkpoint, write_checkpoint

    said = {key: str(value) for key, value in settings.items() if key not in ("out", "certificate", "max_evaluations")}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode() + at.start.tobytes())
    for given in (at.x, at.targets):  # type: ignore[attr-defined]
        digest.update(np.ascontiguousarray(given).tobytes())
    digest.update(np.float64(at.evaluate(at.start).loss).tobytes())  # a module's own code may have changed, too
    about = digest.hexdigest()[:32]
    resume = read_checkpoint(part, about) if part.exists() else None
    if resume is not None:
        typer.echo(f"lawful: going on from {part} at t = {resume.time:.4g}", err=True)
    return {"resume": resume, "keep": lambda found: write_checkpoint(found, part, about)}


def _locked_weights(run: Run) -> list[dict[str, Any]] | None:
    """Locked weights of the start, and whether each kept its sign."""
    if run.network is None or run.about.get("metric"):
        return None
    from lawful.invariant_set import components

    dag, theta = run.network.to_dag(), run.trajectory.theta
    return [
        {"edge": list(dag.edge_name(lock.edge)), "kept": bool((theta[:, lock.edge] * lock.sign > 0).all())}
        for lock in components(dag.with_theta(theta[0])).locked
    ]


def _draw(figure: Any, path: Path) -> None:
    from lawful.api.figure_file import save

    save(figure, path)
