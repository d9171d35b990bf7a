"""`lawful truncate`, `truncation-flow` and `separate`: training as motion of the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import bar, say, show, will_write, write_certificate, write_text
from lawful.cli.subcommand import ApiCall, JsonOption, subcommand
from lawful.errors import LawfulError
from lawful.report.plain import plain

if TYPE_CHECKING:
    from lawful.papers.truncation.flow.motion import TruncationRun

HtmlOption = Annotated[Path | None, typer.Option("--html", help="Write a page on which the data move.")]


def _asked(call: ApiCall) -> str:
    """The data as another subcommand takes them."""
    return call.format("data", "clusters", "project", "seed", "scale", "aligned")


@subcommand()
def truncate(call: ApiCall, html: HtmlOption = None, as_json: JsonOption = False) -> None:
    """Which training points each layer truncates, by class and coordinate."""
    from lawful.api.training.truncation import labelled_data
    from lawful.report.training.truncation_page import census_page

    will_write(html)
    points = labelled_data(*(call.options[name] for name in ("data", "clusters", "project", "seed")))
    census = call(call.network, points, clusters=None, project=None)
    if html is not None:
        write_text(html, census_page(census, points, call.network, _asked(call)))
    show(census, as_json)


@subcommand()
def truncation_flow(
    call: ApiCall,
    fixed: Annotated[bool, typer.Option("--fixed", help="Keep the rotations: closed-form truncation times.")] = False,
    standard: Annotated[
        str | None, typer.Option("--standard", help="The standard cost instead: collapsed or clustered data.")
    ] = None,
    images: Annotated[str | None, typer.Option("--images", help="Also save every frame: png or svg.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for run.json and report.html.")] = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let truncation maps move by gradient flow and watch the clusters collapse (exit 3 if the run ends early)."""
    from lawful.report.training import truncation as report
    from lawful.report.training.truncation_page import flow_page
    from lawful.report.views import to_dict

    if call.options["general"] + fixed + (standard is not None) > 1:
        raise LawfulError("--general, --fixed and --standard exclude each other")
    if images not in (None, "png", "svg") or (images is not None and out is None):
        raise LawfulError("--images takes png or svg, and needs --out for the folder")
    if html is not None and (fixed or standard is not None):
        raise LawfulError("--html shows a flow in motion: leave out --fixed and --standard")
    will_write(html)
    if fixed or standard is not None:
        found = _solve(call, standard)
        _save(found, out)
        say(as_json, found, report.fixed_text(found) if fixed else report.standard_text(found))
        return
    with bar("flow") as tell:
        run = call(tick=tell)
    found = to_dict(run)
    if out is not None:
        _save(found, out)
        write_text(out / "report.html", flow_page(run, found, _asked(call)))
        if images is not None:
            _draw(run, out / "frames", images)
    if html is not None:
        write_text(html, flow_page(run, found, _asked(call)))
    say(as_json, found, report.run_text(found))
    if run.halted:
        raise typer.Exit(130 if run.interrupted else 3)


def _solve(call: ApiCall, standard: str | None) -> dict[str, Any]:
    """What has a closed form: the flow at fixed rotations, or the standard cost in one of two cases."""
    from lawful.api.training.truncation import labelled_data
    from lawful.papers.truncation.flow.motion import starting_maps
    from lawful.papers.truncation.flow.predictions import fixed_flows, solve_standard
    from lawful.report.training.truncation import fixed_json

    points = labelled_data(*(call.options[name] for name in ("data", "clusters", "project", "seed", "scale")))
    start = starting_maps(points)
    if standard is None:
        return fixed_json(points.names, fixed_flows(points, start))
    return solve_standard(points, start, standard, call.options["until"], call.options["frames"])


def _save(found: dict[str, Any], out: Path | None) -> None:
    from lawful.formats.io.writing import make_folder

    if out is not None:
        make_folder(out)
        write_text(out / "run.json", json.dumps(plain(found), allow_nan=False, ensure_ascii=False, indent=1) + "\n")


def _draw(run: TruncationRun, folder: Path, images: str) -> None:
    """Every frame as a picture, all on the same axes."""
    import numpy as np

    from lawful.api.figure_file import save
    from lawful.formats.io.writing import make_folder
    from lawful.report.training.truncation import frame_figure, plane

    axes = plane(run.data.points)
    positions = np.array([run.images(index) @ axes.T for index in range(len(run.times))])
    extent = np.array([positions.min(axis=(0, 1)), positions.max(axis=(0, 1))])
    make_folder(folder)
    for index, time in enumerate(run.times):
        figure = frame_figure(positions[index], run.data.labels, float(time), run.start.targets @ axes.T, extent)
        save(figure, folder / f"{index:04}.{images}")


@subcommand()
def separate(
    call: ApiCall,
    network: Annotated[Path | None, typer.Option("--network", help="Write the zero-loss network here.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save a certificate for `lawful verify`.")] = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Can every cluster be truncated alone? If so, build a network of zero loss (exit 1 no, 3 undecided)."""
    from lawful.papers.truncation.census import census
    from lawful.report.training.truncation_page import separation_page
    from lawful.sources.files import write

    will_write(network, out, html)
    answer = call()
    if network is not None and answer.network is not None:
        write(answer.network.network, network)
    if out is not None:
        write_certificate(out, answer.certificate())
    if html is not None:
        built = None if answer.network is None else census(answer.network.network, answer.data)
        data = str(call.options["data"] or f"clusters {call.options['clusters']}")
        write_text(html, separation_page(answer, built, data, _asked(call)))
    show(answer, as_json)
    missing = network is not None and answer.network is None
    if missing:
        typer.echo(f"lawful: no zero-loss network was found, so {network} was not written", err=True)
    code = {"yes": 3 if missing else 0, "no": 1, "undecided": 3}[answer.verdict]
    if code:
        raise typer.Exit(code)
