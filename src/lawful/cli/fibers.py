"""`lawful same` and its neighbours: which parameters are the same function."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lawful.cli.checkpoints import make_index, represent
from lawful.cli.evidence import save_evidence
from lawful.cli.output import (
    counter,
    files_only,
    print_json,
    say_rounding,
    show,
    stored_json,
    will_write,
    write_certificate,
    write_text,
)
from lawful.cli.subcommand import ApiCall, CertificateOption, HtmlOption, JsonOption, subcommand
from lawful.cli.sweep import SchedulerOption, WorkersOption
from lawful.errors import LawfulError


@subcommand()
def same(
    call: ApiCall,
    first: Annotated[str, typer.Argument(metavar="A", help="File, module:factory, or architecture.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The network to compare it with.")],
    certificate: CertificateOption = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Are two networks the same function? Exit 0 equal, 1 different or a rounded copy, 3 undecided (or no evidence to
    save)."""
    from lawful.fibers.verdict import Different, Equal

    will_write(certificate, html)
    answer = call(first, second)
    # A certificate holds graphs whole, and large checkpoints by their digests: then the checker asks for the files.
    about = () if isinstance(answer, (Equal, Different)) else (first, second)
    if certificate is not None and answer.evidence is not None:
        write_certificate(certificate, answer.certificate(), about)
    if html is not None:
        from lawful.api.two_networks import TwoNetworks
        from lawful.report.structure.fibers import same_page
        from lawful.report.views import text, to_dict

        reading = {name: call.options[name] for name in ("model", "model_b", "input", "activation", "order")}
        weights = TwoNetworks(first, second, **reading).scalar_weights(seed=call.options["seed"])
        verify = shlex.join(["lawful", "verify", "same.json", *files_only(about)])
        asked = call.format("model", "model_b", "order", "input", "activation", "box", "within", "tolerance", "exact")
        write_text(html, same_page(to_dict(answer), text(answer), (first, second), verify, asked, weights))
    show(answer, as_json)
    if certificate is not None and answer.evidence is None:
        typer.echo(f"lawful: nothing that can be re-checked, so {certificate} was not written", err=True)
        raise typer.Exit(3)
    raise typer.Exit({"equal": 0, "different": 1, "rounded": 1, "undecided": 3}[answer.verdict])


@subcommand()
def fiber(
    call: ApiCall,
    sample: Annotated[int, typer.Option(help="Write this many other parameters of the same function.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the samples.")] = None,
    as_json: JsonOption = False,
) -> None:
    """All parameters of one function: of one hidden layer or a generic bottleneck; what is known, of any other."""
    from lawful.formats.io.writing import make_folder
    from lawful.sources.files import write

    if sample < 0 or (sample > 0) != (out is not None):
        raise LawfulError("samples go to a folder: give --sample N and --out DIR together")
    answer = call()
    if out is None:
        show(answer, as_json)
        return
    members = answer.sample(sample, call.options["seed"])
    make_folder(out)
    files = [out / f"sample-{number}.safetensors" for number in range(sample)]
    for file, member in zip(files, members, strict=True):
        write(member, file)
    show(answer, as_json, {"samples": [str(file) for file in files]}, f"  wrote {sample} samples")


@subcommand()
def identifiable(call: ApiCall, certificate: CertificateOption = None, as_json: JsonOption = False) -> None:
    """Does the function determine the parameters? Exit 0 yes, 1 no, 3 undecided."""
    will_write(certificate)
    answer = call()
    show(answer, as_json)
    saved = save_evidence(certificate, answer.certificate)
    raise typer.Exit({True: 0, False: 1, None: 3}[answer.identifiable if saved else None])


@subcommand()
def regions(
    call: ApiCall,
    svg: Annotated[Path | None, typer.Option(help="Draw a network of two inputs to this file; needs --box.")] = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count the regions on which a network is affine. Exit 3 if the time limit ends the count."""
    will_write(svg, certificate)
    with counter("regions") as tick:
        count = call(tick=tick)
    if svg is not None:
        from lawful.api.figure_file import save
        from lawful.fibers.regions.count import draw_regions
        from lawful.formats.queries.box import box_of
        from lawful.report.structure.fibers import complex_figure

        network = replace(call.named, drop_useless=True).network()
        box = call.options["box"]
        save(complex_figure(*draw_regions(network, None if box is None else box_of(box, network))), svg)
    show(count, as_json)
    if not save_evidence(certificate, count.certificate) or not count.complete:
        raise typer.Exit(3)


@subcommand()
def canonical(
    call: ApiCall,
    out: Annotated[Path | None, typer.Option(help="File for the representative.")] = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the standard member of a network's fiber: same function, fewest choices."""
    from lawful.report.structure.fibers import canonical_json, canonical_text
    from lawful.sources.files import write
    from lawful.sources.modules.module_network import ModuleNetwork

    if isinstance(call.named.anything(), ModuleNetwork):
        represent(call.named, "canonical", None, out, certificate, as_json)
        return
    will_write(out, certificate)
    before = replace(call.named, drop_useless=True).network()
    member = call()
    stored = None if out is None else write(member.network, out, like=before.reading)
    result = canonical_json(member, before.parameters, None if out is None else str(out)) | stored_json(stored)
    if as_json:
        print_json(result)
    else:
        typer.echo(canonical_text(result))
        say_rounding(stored)
    if not save_evidence(certificate, lambda: member.certificate(stored=stored)):
        raise typer.Exit(3)


@subcommand(without=("drop_useless",))
def fingerprint(
    call: ApiCall,
    files: Annotated[list[str], typer.Argument(help="Networks: files, module:factory, or architectures.")],
    index: Annotated[
        Path | None, typer.Option(help="Sketch checkpoints, also in folders, into this file for `lawful find`.")
    ] = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hash networks so that equal functions get equal hashes, and group the duplicates; or index many checkpoints."""
    if index is not None:
        input = call.options["input"]
        sizes = None if input is None else [input]
        make_index(files, index, call.options["model"], sizes, as_json, scheduler, workers)
        return
    with counter("networks", len(files)) as tick:
        groups = call(files, tick=tick)
    show(groups, as_json)
