"""`lawful flow`, `lawful drift`, `lawful compare`: how training moves, and what discrete steps break."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import bar, print_json, say, will_write, write_certificate, write_text
from lawful.cli.subcommand import ApiCall, CertificateOption, JsonOption, PlotOption, subcommand
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.training.integration.runs import Run

NO_SETTING = ("network", "time", "html", "as_json", "help")
PATHS = ("data", "out", "certificate", "metric")  # settings that are relative to the file that names them
TYPES = {bool: (bool,), float: (float, int), int: (int,), str: (str,)}  # what TOML may give, by an option's default


def read_settings(context: typer.Context, source: str) -> str:
    """Settings of a TOML file become the defaults of the options, so that what is typed wins."""
    if not source.endswith(".toml"):
        return source
    from lawful.formats.io.reading import read_toml

    stored = read_toml(Path(source))
    if "time" in stored:  # the old name of `until`
        stored.setdefault("until", stored.pop("time"))
    commands = getattr(context.find_root().command, "commands", {})
    options = {each.name: each for each in commands.get("flow", context.command).params if each.name not in NO_SETTING}
    network = stored.pop("network", None)
    if not isinstance(network, str):
        raise LawfulError(f'{source}: needs network = "..." (a file, module:factory or architecture)')
    for name, value in stored.items():
        if name not in options:
            raise LawfulError(f"{source}: unknown setting {name[:40]!r}; settings are network, {', '.join(options)}")
        kinds = TYPES.get(type(options[name].default), (str, float, int))
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds != (bool,)):
            raise LawfulError(f"{source}: {name} = {value!r} has the wrong type")
    beside = {name: str(Path(source).parent / stored[name]) for name in PATHS if name in stored}
    context.default_map = {**stored, **beside}
    return network


NetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK|CONFIG.toml",
        help="A network, or a file of settings.",
        callback=read_settings,
        is_eager=True,  # before the options, of which it sets the defaults
    ),
]
OldTimeOption = Annotated[float | None, typer.Option("--time", hidden=True)]
RunPageOption = Annotated[Path | None, typer.Option("--html", help="Write a page with a slider over training time.")]


def end_time(call: ApiCall, time: float | None) -> float:
    """`--until`, or its old name `--time`, which means seconds everywhere else: one of the two."""
    if time is None:
        return float(call.options["until"])
    if "until" in call.typed:
        raise LawfulError("--time is an old name of --until here: give --until alone")
    typer.echo("lawful: --time is an old name of --until here (elsewhere it means seconds): write --until", err=True)
    return time


@subcommand(without=("drop_useless",))
def flow(
    call: ApiCall,
    network: NetworkArgument,
    time: OldTimeOption = None,
    certificate: CertificateOption = None,
    html: RunPageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Integrate the gradient flow of a network on data, kinks included, and store the run (exit 1 on a blow-up)."""
    from lawful.report.training.flow import flow_json, flow_text, run_html
    from lawful.training.integration.trajectory import Reason

    folder = call.options["out"]
    will_write(certificate, html)
    with bar("flow") as tell:
        run = call(network, until=end_time(call, time), tick=tell)
    if certificate is not None:
        write_certificate(certificate, run.certificate())
    if html is not None:
        write_text(html, run_html(run, network, folder and str(folder)))
    say(
        as_json,
        flow_json(run) | {"out": folder and str(folder)},
        flow_text(run) + ("" if folder is None else f"\nsaved in {folder}: see `lawful drift {folder}`"),
    )
    codes = {Reason.BLOW_UP: 1, Reason.EVALUATIONS: 3, Reason.INTERRUPTED: 130}
    if run.trajectory.stop.reason in codes:
        raise typer.Exit(codes[run.trajectory.stop.reason])


@subcommand()
def drift(
    call: ApiCall,
    plot: PlotOption = None,
    html: RunPageOption = None,
    tolerance: Annotated[float | None, typer.Option(help="Exit 1 if a law drifts by more than this.")] = None,
    as_json: JsonOption = False,
) -> None:
    """How well a stored run kept its laws: balances, singular values of J, locked weights."""
    from lawful.api.figure_file import save
    from lawful.report.training.flow import drift_figure, drift_json, drift_text, run_html

    will_write(plot, html)
    if tolerance is not None and not tolerance >= 0:
        raise LawfulError(f"--tolerance is a number of at least 0, not {tolerance:g}")
    run, folder = call(), str(call.options["run"])
    signs = _locked_weights(run)
    if plot is not None:
        save(drift_figure(run), plot)
    if html is not None:
        write_text(html, run_html(run, folder, folder))
    say(as_json, drift_json(run, signs), drift_text(run, signs))
    if tolerance is not None and not run.max_drift <= tolerance:
        raise typer.Exit(1)


@subcommand(without=("drop_useless",))
def compare(
    call: ApiCall,
    network: NetworkArgument,
    time: OldTimeOption = None,
    plot: PlotOption = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the curves and the table.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Optimisers beside the flow: the drift of every law, measured and predicted (exit 1 if one diverges)."""
    from lawful.api.figure_file import save
    from lawful.report.training.flow import compare_figure, compare_html, compare_json, compare_text

    will_write(plot, html)
    data = call.options["data"]
    with bar("comparing") as tell:
        comparison = call(network, until=end_time(call, time), tick=tell)
    if plot is not None:
        save(compare_figure(comparison), plot)
    if html is not None:
        asked = shlex.quote(network) + call.format("data", "loss", "activation", "model", "order", "input", "seed")
        write_text(html, compare_html(comparison, network, asked))
    if as_json:
        print_json(compare_json(comparison) | {"network": network, "data": data and str(data)})
    else:
        if data is None:
            typer.echo("no data given: Gaussian inputs and a random teacher of the same shape")
        typer.echo(compare_text(comparison))
    if any(row.message for row in comparison.rows):
        raise typer.Exit(1)


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
