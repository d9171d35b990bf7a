"""`lawful same` and its neighbours: which parameters are the same function."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.checkpoints.find import make_index
from lawful.cli.checkpoints.representatives import represent
from lawful.cli.evidence import save_evidence
from lawful.cli.output import (
    files_only,
    note_readings,
    print_json,
    say_rounding,
    stored_json,
    will_write,
    write_certificate,
    write_text,
)
from lawful.cli.progress import counter
from lawful.cli.source import (
    ActivationOption,
    BoxOption,
    HtmlOption,
    InputOption,
    JsonOption,
    ModelBOption,
    ModelOption,
    Named,
    OrderOption,
    SeedOption,
    format_options,
    input_shape,
    open_network,
    takes_network,
)
from lawful.cli.training.sweep import SchedulerOption, WorkersOption
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.network import Dag, Mlp

CertificateOption = Annotated[Path | None, typer.Option(help="Save the evidence for `lawful verify`.")]
TimeOption = Annotated[float, typer.Option("--seconds", help="Seconds before a search gives up.")]


def _open(text: str, seed: int, activation: str | None, **options: Any) -> Mlp | Dag:
    return open_network(text, seed=seed, activation=activation, drop_useless=True, **options)


def _reduced(named: Named) -> Mlp | Dag:
    """The network that was named, without hidden nodes that change nothing."""
    return replace(named, drop_useless=True).network()


def same(
    first: Annotated[str, typer.Argument(metavar="A", help="File, module:factory, or architecture.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The network to compare it with.")],
    box: BoxOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Weights are the rationals that floats are.")] = False,
    tolerance: Annotated[float | None, typer.Option(help="Relative rounding of weights that is excused.")] = None,
    within: Annotated[float | None, typer.Option(help="Ask for outputs this close on the box instead.")] = None,
    time: TimeOption = 60.0,
    certificate: Annotated[Path | None, typer.Option(help="Save the evidence for `lawful verify`.")] = None,
    model: ModelOption = None,
    model_b: ModelBOption = None,
    order: OrderOption = None,
    input_size: InputOption = None,
    activation: ActivationOption = None,
    seed: SeedOption = 0,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Are two networks the same function? Exit 0 equal, 1 different or a rounded copy, 3 undecided (or no evidence to
    save)."""
    from lawful.api.same import same_with_evidence
    from lawful.api.two_networks import TwoNetworks
    from lawful.fibers.verdict import Different, Equal
    from lawful.report.views import text, to_dict

    will_write(certificate, html)
    networks = TwoNetworks(first, second, model, model_b, input_size, activation, order)
    question = {"box": box, "exact": exact, "tolerance": tolerance, "within": within}
    found, evidence = same_with_evidence(networks, seconds=time, seed=seed, **question)
    note_readings(found.readings)
    # A certificate holds graphs whole, and large checkpoints by their digests: then the checker asks for the files.
    about = () if isinstance(found, (Equal, Different)) else (first, second)
    if certificate is not None and evidence is not None:
        write_certificate(certificate, evidence(), about)
    if html is not None:
        from lawful.report.structure.same_page import same_page

        options = {"model": model, "model_b": model_b, "order": order, "input": input_size,
                   "activation": activation, "box": box, "within": within, "tolerance": tolerance}  # fmt: skip
        reading = format_options(options)
        weights = networks.scalar_weights(seed=seed)
        reading += " --exact" * exact
        words, verify = text(found), shlex.join(["lawful", "verify", "same.json", *files_only(about)])
        write_text(html, same_page(to_dict(found), words, (first, second), verify, reading, weights))
    if as_json:
        print_json(to_dict(found))
    else:
        typer.echo(text(found))
    if certificate is not None and evidence is None:
        typer.echo(f"lawful: nothing that can be re-checked, so {certificate} was not written", err=True)
        raise typer.Exit(3)
    raise typer.Exit({"equal": 0, "different": 1, "rounded": 1, "undecided": 3}[found.verdict])


@takes_network
def fiber(
    named: Named,
    domain: Annotated[str, typer.Option(help="For one hidden layer: space, or orthant.")] = "space",
    sample: Annotated[int, typer.Option(help="Write this many other parameters of the same function.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the samples.")] = None,
    as_json: JsonOption = False,
) -> None:
    """All parameters of one function: of one hidden layer or a generic bottleneck; what is known, of any other."""
    from lawful.fibers.summary import describe_fiber
    from lawful.formats.io.writing import make_folder
    from lawful.report.structure.fibers import fiber_json, fiber_text
    from lawful.sources.files import write

    if sample < 0 or (sample > 0) != (out is not None):
        raise LawfulError("samples go to a folder: give --sample N and --out DIR together")
    found = describe_fiber(_reduced(named), domain, named.seed)
    samples = None
    if out is not None:
        members = found.sample(sample, named.seed)
        make_folder(out)
        files = [out / f"sample-{number}.safetensors" for number in range(sample)]
        for file, mlp in zip(files, members, strict=True):
            write(mlp, file)
        samples = [str(file) for file in files]
    result = fiber_json(found.summary, samples)
    if as_json:
        print_json(result)
    else:
        typer.echo(fiber_text(result))


@takes_network
def identifiable(named: Named, certificate: CertificateOption = None, as_json: JsonOption = False) -> None:
    """Does the function determine the parameters? Exit 0 yes, 1 no, 3 undecided."""
    from lawful.fibers.deep.identifiability import identifiable as decide
    from lawful.fibers.deep.identifiability_certificate import certificate as evidence
    from lawful.report.structure.fibers import identifiable_json, identifiable_text

    will_write(certificate)
    network = _reduced(named)
    found = decide(network, seed=named.seed)
    result = identifiable_json(found)
    if as_json:
        print_json(result)
    else:
        typer.echo(identifiable_text(result))
    saved = save_evidence(certificate, lambda: evidence(network, found))
    raise typer.Exit({True: 0, False: 1, None: 3}[found.identifiable if saved else None])


@takes_network
def regions(
    named: Named,
    box: BoxOption = None,
    facets: Annotated[bool, typer.Option("--facets", help="Facets, gradient jumps and the balance at ridges.")] = False,
    each: Annotated[bool, typer.Option("--each", help="List every region in the JSON.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Draw a network of two inputs to this file; needs --box.")] = None,
    certificate: CertificateOption = None,
    time: TimeOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Count the regions on which a network is affine. Exit 3 if the time limit ends the count."""
    from lawful.api.figure_file import save
    from lawful.fibers.regions.comparison_proof import certificate as evidence
    from lawful.fibers.regions.count import count_regions, draw_regions
    from lawful.formats.queries.box import box_of
    from lawful.report.structure.fibers import complex_figure, regions_json, regions_text

    will_write(svg, certificate)
    found = _reduced(named)
    place = None if box is None else box_of(box, found)
    with counter("regions") as tick:
        counted = count_regions(found, place, facets=facets, each=each, seconds=time, tick=tick)
    result = regions_json(counted)
    if svg is not None:
        save(complex_figure(*draw_regions(found, place)), svg)
    if as_json:
        print_json(result)
    else:
        typer.echo(regions_text(result))
    if not result["complete"] or not save_evidence(certificate, lambda: evidence(found, place, counted.regions, time)):
        raise typer.Exit(3)


@takes_network
def canonical(
    named: Named,
    out: Annotated[Path | None, typer.Option(help="File for the representative.")] = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the standard member of a network's fiber: same function, fewest choices."""
    from lawful.sources.modules.module_network import ModuleNetwork

    if isinstance(named.anything(), ModuleNetwork):
        represent(named, "canonical", None, out, certificate, as_json)
        return
    from lawful.fibers.fingerprint import canonical as standard
    from lawful.fibers.fingerprint import certificate as canonical_certificate
    from lawful.report.structure.fibers import canonical_json, canonical_text
    from lawful.sources.files import write

    will_write(out, certificate)
    before = _reduced(named)
    found = standard(before)
    stored = None if out is None else write(found.network, out, like=before.reading)
    result = canonical_json(found, before.parameters, None if out is None else str(out)) | stored_json(stored)
    if as_json:
        print_json(result)
    else:
        typer.echo(canonical_text(result))
        say_rounding(stored)
    if not save_evidence(certificate, lambda: canonical_certificate(before, found, stored)):
        raise typer.Exit(3)


def fingerprint(
    files: Annotated[list[str], typer.Argument(help="Networks: files, module:factory, or architectures.")],
    activation: ActivationOption = None,
    index: Annotated[
        Path | None, typer.Option(help="Sketch checkpoints, also in folders, into this file for `lawful find`.")
    ] = None,
    model: ModelOption = None,
    order: OrderOption = None,
    input_size: InputOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Hash exact numbers, as for modules: order, signs, powers of two do not count."),
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Hash networks so that equal functions get equal hashes, and group the duplicates; or index many checkpoints."""
    if index is not None:
        sizes = None if input_size is None else [input_size]
        make_index(files, index, model, sizes, as_json, scheduler, workers)
        return
    from lawful.api.two_networks import TwoNetworks
    from lawful.fibers.regions.count import group_networks
    from lawful.report.structure.fibers import fingerprint_json, fingerprint_text

    reading = {"model": model, "order": order, "shape": input_shape(input_size)}
    read = {"model": model, "input": input_size, "activation": activation, "order": order}
    modules = exact or any(TwoNetworks(each, each, **read).are_checkpoints() for each in files)
    with counter("networks", len(files)) as tick:
        if modules:
            from lawful.api.checkpoints.orbit_hashes import orbit_fingerprints

            found = orbit_fingerprints(files, files, tick=tick, **read)
        else:
            found = group_networks(files, lambda text: _open(text, seed, activation, **reading), tick)
    result = fingerprint_json(found)
    if as_json:
        print_json(result)
    else:
        typer.echo(fingerprint_text(result))
