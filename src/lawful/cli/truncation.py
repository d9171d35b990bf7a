"""`lawful truncate`, `truncation-flow` and `separate`: training as motion of the data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.api.inputs import DrawOptions
from lawful.cli.output import bar, say, will_write, write_certificate, write_text
from lawful.cli.subcommand import ApiCall, JsonOption, SeedOption, format_options, subcommand
from lawful.errors import LawfulError
from lawful.report.plain import plain

if TYPE_CHECKING:
    from lawful.papers.truncation.clusters import Clusters
    from lawful.papers.truncation.flow.motion import Start, TruncationRun

NAMED = ("digits", "wine", "iris", "breast_cancer", "moons")
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Points and labels: .npz (x, y), .csv (a column y), or " + ", ".join(NAMED) + "."),
]
ClustersOption = Annotated[
    str | None, typer.Option("--clusters", help="Make Q Gaussian clusters of N points: Q,N,spread.")
]
ProjectOption = Annotated[
    int | None, typer.Option("--project", help="First project the data to this many principal axes.")
]
HtmlOption = Annotated[Path | None, typer.Option("--html", help="Write a page on which the data move.")]


def open_data(data: str | None, clusters: str | None, project: int | None, seed: int, scale: bool = False) -> Clusters:
    """What the user named as data."""
    from lawful.papers.truncation.clusters import Clusters, synthetic

    if (data is None) == (clusters is None):
        raise LawfulError("give either --data FILE or --clusters Q,N,spread")
    if clusters is not None:
        if not re.fullmatch(r"\d{1,4},\d{1,8},[-+.\deE]{1,20}", clusters):
            raise LawfulError(f"--clusters takes Q,N,spread such as 3,50,0.1, not {clusters[:40]!r}")
        dimension, size, spread = clusters.split(",")
        try:
            found = synthetic(int(dimension), int(size), float(spread), seed)
        except ValueError:
            raise LawfulError(f"--clusters takes Q,N,spread such as 3,50,0.1, not {clusters[:40]!r}") from None
    else:
        found = Clusters(*read_labelled(str(data)))
    found = found if project is None else found.projected(project)
    return found.scaled() if scale else found


def read_labelled(text: str) -> tuple[Any, Any]:
    """Points and labels from a file, or one of scikit-learn's small data sets by name."""
    from lawful.formats.queries.data import read_data

    if text in NAMED and not Path(text).exists():
        import sklearn.datasets

        if text == "moons":
            return sklearn.datasets.make_moons(200, noise=0.05, random_state=0)  # type: ignore[no-any-return]
        return getattr(sklearn.datasets, f"load_{text}")(return_X_y=True)  # type: ignore[no-any-return]
    found = read_data(Path(text))
    if found.classes is None:
        raise LawfulError(f"{text[:80]}: needs labels: `y` with one whole number or word per point")
    return found.x, found.classes if found.names is None else [found.names[label] for label in found.classes]


def _asked(data: str | None, clusters: str | None, project: int | None, seed: int) -> str:
    """The data as another subcommand takes them."""
    return format_options({"data": data, "clusters": clusters, "project": project, "seed": seed or None})


@subcommand(reads=DrawOptions)
def truncate(
    call: ApiCall,
    data: DataOption = None,
    clusters: ClustersOption = None,
    project: ProjectOption = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which training points each layer truncates, by class and coordinate."""
    named = call.named
    from lawful.papers.truncation.census import census
    from lawful.report.training.truncation import census_json, census_text

    will_write(html)
    points = open_data(data, clusters, project, named.seed)
    seen = census(named.network(), points)
    found = census_json(seen)
    if html is not None:
        from lawful.report.training.truncation_page import census_page

        write_text(html, census_page(seen, points, named.text, _asked(data, clusters, project, named.seed)))
    say(as_json, found, census_text(found))


def truncation_flow(
    data: DataOption = None,
    clusters: ClustersOption = None,
    project: ProjectOption = None,
    scale: Annotated[bool, typer.Option("--scale", help="Centre the data and bring them to size 1.")] = False,
    general: Annotated[bool, typer.Option("--general", help="Compose all maps on all clusters (Theorem 5.1).")] = False,
    fixed: Annotated[bool, typer.Option("--fixed", help="Keep the rotations: closed-form truncation times.")] = False,
    standard: Annotated[
        str | None, typer.Option("--standard", help="The standard cost instead: collapsed or clustered data.")
    ] = None,
    until: Annotated[float, typer.Option("--until", help="End time of the flow.")] = 10.0,
    frames: Annotated[int, typer.Option("--frames", help="Number of recorded times.")] = 61,
    images: Annotated[str | None, typer.Option("--images", help="Also save every frame: png or svg.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for run.json and report.html.")] = None,
    html: HtmlOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Let truncation maps move by gradient flow and watch the clusters collapse (exit 3 if the run ends early)."""
    from lawful.papers.truncation.flow.motion import run_flow, starting_maps
    from lawful.papers.truncation.flow.predictions import fixed_flows, predictions
    from lawful.report.training import truncation as report
    from lawful.report.training.truncation import fixed_json, run_json

    if general + fixed + (standard is not None) > 1:
        raise LawfulError("--general, --fixed and --standard exclude each other")
    if images not in (None, "png", "svg") or (images is not None and out is None):
        raise LawfulError("--images takes png or svg, and needs --out for the folder")
    if html is not None and (fixed or standard is not None):
        raise LawfulError("--html shows a flow in motion: leave out --fixed and --standard")
    will_write(html)
    points = open_data(data, clusters, project, seed, scale)
    start = starting_maps(points)
    if fixed or standard is not None:
        if fixed:
            found = fixed_json(points.names, fixed_flows(points, start))
        else:
            found = _standard(points, start, str(standard), until, frames)
        text = report.fixed_text(found) if fixed else report.standard_text(found)
        _save(found, out)
        say(as_json, found, text)
        return
    with bar("flow") as tell:
        watch = {"progress": lambda now: tell(f"s = {now:.3g}", now / until)}
        run = run_flow(points, start, general=general, until=until, frames=frames, **watch)
    found = run_json(run, [] if general else predictions(run))
    if out is not None:
        _save(found, out)
        _draw(run, found, out, images, _asked(data, clusters, project, seed) + " --scale" * scale)
    if html is not None:
        from lawful.report.training.truncation_page import flow_page

        write_text(html, flow_page(run, found, _asked(data, clusters, project, seed) + " --scale" * scale))
    say(as_json, found, report.run_text(found))
    if run.halted:
        raise typer.Exit(130 if run.interrupted else 3)


def _save(found: dict[str, Any], out: Path | None) -> None:
    import json

    from lawful.formats.io.writing import make_folder

    if out is not None:
        make_folder(out)
        write_text(out / "run.json", json.dumps(plain(found), allow_nan=False, ensure_ascii=False, indent=1) + "\n")


def _draw(run: TruncationRun, found: dict[str, Any], out: Path, images: str | None, asked: str) -> None:
    import numpy as np

    from lawful.api.figure_file import save
    from lawful.formats.io.writing import make_folder
    from lawful.report.training.truncation import frame_figure, plane
    from lawful.report.training.truncation_page import flow_page

    write_text(out / "report.html", flow_page(run, found, asked))
    axes = plane(run.data.points)
    positions = np.array([run.images(index) @ axes.T for index in range(len(run.times))])
    targets = run.start.targets @ axes.T
    if images is not None:
        make_folder(out / "frames")
        extent = np.array([positions.min(axis=(0, 1)), positions.max(axis=(0, 1))])
        for index, time in enumerate(run.times):
            figure = frame_figure(positions[index], run.data.labels, float(time), targets, extent)
            save(figure, out / "frames" / f"{index:04}.{images}")


def _standard(points: Clusters, start: Start, case: str, until: float, frames: int) -> dict[str, Any]:
    import numpy as np
    from scipy.integrate import solve_ivp

    from lawful.papers.truncation.flow.predictions import clustered_weight, collapsed_flow

    times = np.linspace(0.0, until, frames)
    one = np.eye(points.count)
    if case == "collapsed":  # every cluster sits at its target; W starts small enough for a spectral gap
        small = 0.5 * float(np.linalg.svd(start.targets, compute_uv=False)[-1])
        run = collapsed_flow(-start.targets.T, small * one, one, times)
        return {
            "case": case, "times": times, "costs": run.costs, "drift": run.drift, "gap": run.gap,
            "bounded": run.excess <= 1 + 1e-9,
        }  # fmt: skip
    if case != "clustered":
        raise LawfulError(f"--standard takes collapsed or clustered, not {case[:40]!r}")
    x, y = points.points, one[points.labels]
    solved = solve_ivp(
        lambda _, w: (-(w.reshape(one.shape) @ x.T - y.T) @ x / len(x)).ravel(),
        (0.0, until), one.ravel(), "DOP853", [until], rtol=1e-12, atol=1e-13,
    )  # fmt: skip
    weights = [clustered_weight(x, y, one, float(time)) for time in times]
    return {
        "case": case, "times": times,
        "costs": [float(((x @ w.T - y) ** 2).sum() / (2 * len(x))) for w in weights],
        "difference": float(np.abs(solved.y[:, -1].reshape(one.shape) - weights[-1]).max()),
        "distance": float(np.abs(weights[-1] - clustered_weight(x, y, one, np.inf)).max()),
    }  # fmt: skip


def separate(
    data: DataOption = None,
    clusters: ClustersOption = None,
    project: ProjectOption = None,
    aligned: Annotated[bool, typer.Option("--aligned", help="Ask for right-angled cones, R in O(Q).")] = False,
    network: Annotated[Path | None, typer.Option("--network", help="Write the zero-loss network here.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Save a certificate for `lawful verify`.")] = None,
    html: HtmlOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Can every cluster be truncated alone? If so, build a network of zero loss (exit 1 no, 3 undecided)."""
    from lawful.papers.truncation.separability import certificate, separability
    from lawful.report.training.truncation import separation_json, separation_text
    from lawful.sources.files import write

    will_write(network, out, html)
    found = separability(open_data(data, clusters, project, seed), aligned=aligned, seed=seed)
    if network is not None and found.network is not None:
        write(found.network.network, network)
    if out is not None:
        write_certificate(out, certificate(found.data, found.answers))
    if html is not None:
        from lawful.papers.truncation.census import census
        from lawful.report.training.truncation_page import separation_page

        built = None if found.network is None else census(found.network.network, found.data)
        asked = _asked(data, clusters, project, seed) + " --aligned" * aligned
        write_text(html, separation_page(found, built, str(data or f"clusters {clusters}"), asked))
    say(as_json, separation_json(found), separation_text(found))
    missing = network is not None and found.network is None
    if missing:
        typer.echo(f"lawful: no zero-loss network was found, so {network} was not written", err=True)
    code = {"yes": 3 if missing else 0, "no": 1, "undecided": 3}[found.verdict]
    if code:
        raise typer.Exit(code)
