"""`lawful prune`: the smaller network as a file, with its evidence and a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import (
    print_json,
    say_rounding,
    stored_json,
    told,
    will_write,
    write_certificate,
    write_text,
)
from lawful.cli.subcommand import ApiCall, HtmlOption, JsonOption, format_options, subcommand
from lawful.errors import LawfulError, Unsupported

if TYPE_CHECKING:
    from lawful.sources.files import Written


def _write(found: Any, source: Path, out: Path) -> Any:
    """ONNX as ONNX, a network of layers in any format, a module as its weights or its graph.

    Returns the pruning (by channels, to a target or within a tolerance) with notes on the files that were written.
    """
    from lawful.formats.io.writing import write_bytes
    from lawful.pruning.channels.model_files import graph_bytes, same_nodes
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.sources.checkpoints.save import PICKLED, write_weights
    from lawful.sources.files import write

    kind, module = out.suffix.lower(), getattr(found, "module", None)
    pruned: Any = getattr(found, "pruned", found)
    layered = getattr(found, "network", None)
    examples = getattr(found, "examples", None) or [getattr(found, "example", None)]
    if isinstance(pruned, OnnxPruning):
        if kind != ".onnx":
            raise LawfulError(f"{out}: an ONNX file is written as .onnx")
        write_bytes(out, pruned.model.SerializeToString())
    elif layered is not None and kind not in (".pt2", ".onnx"):
        write(layered, out)
    elif module is not None and kind in (".pt2", ".onnx"):
        # samples of a job are as many as one likes; a module that is pruned exactly has the inputs that were named
        kept = same_nodes(source, module, examples) if kind == source.suffix.lower() == ".onnx" else None
        write_bytes(out, kept or graph_bytes(module, examples, kind, any_batch=pruned is not found))
    elif module is not None:
        before, after = getattr(found, "parameters", (pruned.parameters_before, pruned.parameters_after))
        pickled = [file.suffix.lower() in PICKLED for file in (source, out)]
        # A checkpoint in another format than it came in has the module's own names and types.
        like = None if source.is_file() and kind and pickled[0] != pickled[1] else source
        changed, said = ({}, ()) if before == after else _changed_config(found, module, source, out, examples)
        write_weights(module.state_dict(), out, like=like, changed=changed, whole=before != after)
        return replace(found, notes=(*found.notes, *said))
    return found


def _changed_config(
    found: Any, module: Any, source: Path, out: Path, examples: Sequence[Any]
) -> tuple[dict[str, bytes | None], tuple[str, ...]]:
    """The `config.json` of a new folder, and in words: with the smaller module's sizes, or none where none fits."""
    from lawful.formats.io.reading import read_json
    from lawful.pruning.channels.model_files import updated_settings
    from lawful.sources.checkpoints.save import PICKLED

    old = (source if source.is_dir() else source.parent) / "config.json"
    if out.suffix.lower() in (".safetensors", *PICKLED) or not source.exists() or not old.is_file():
        return {}, ()
    settings = read_json(old)
    new = updated_settings(module, settings, examples)
    if new is None:
        why = f"none was found with which {type(module).__name__} computes the same"
        hint = "; --target with --even gives all layers one size" if hasattr(found, "target") else ""
        return {"config.json": None}, (f"{out} has no config.json, so from_pretrained does not load it: {why}{hint}",)
    entries = {entry: value for entry, value in new.items() if entry not in settings or settings[entry] != value}
    if not entries:
        return {}, ()
    stated = ", ".join(f"{entry}={value}" for entry, value in entries.items())
    content = (json.dumps(new, indent=2) + "\n").encode()
    return {"config.json": content}, (
        f"config.json of {out} has the new sizes, and from_pretrained loads it: {stated}",
    )


@subcommand()
def prune(
    call: ApiCall,
    out: Annotated[
        Path | None, typer.Option(help="File for the smaller network; its ending chooses the format.")
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Bounds at sizes from all to one neuron a layer.")] = False,
    plot: Annotated[Path | None, typer.Option(help="With --curve: draw it to this .svg, .png or .pdf file.")] = None,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="How many neurons any network of this depth needs for the function.")
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="File for the proof, which `lawful verify` re-checks.")
    ] = None,
    needed: Annotated[
        Path | None,
        typer.Option(help="File for the proof that neurons which are left are needed, for `lawful verify`."),
    ] = None,
    certify: Annotated[bool, typer.Option("--verify", help="Replay the pruning in rational arithmetic.")] = False,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove neurons: by default only what changes nothing for any input, with a certified bound otherwise."""
    keep, target = call.options["keep"], call.options["target"]
    if target is not None or (keep is not None and ":" in keep):
        if target is not None and keep is not None:
            raise LawfulError("--target and --keep both say how small: give one")
        only_neurons = {"--curve": curve, "--smallest": smallest, "--needed": needed, "--plot": plot, "--html": html}
        if unused := [name for name, value in only_neurons.items() if value]:
            raise LawfulError(f"{', '.join(unused)}: not with --target")
    if plot is not None and (not curve or plot.suffix.lower() not in (".svg", ".png", ".pdf")):
        raise LawfulError("--plot draws a --curve to a .svg, .png or .pdf file")
    will_write(out, certificate, needed, plot, html, call.options["plan"])
    if curve:
        _curve(call, plot, as_json)
        return
    if html is not None:
        _refuse_page(call)
    with told("looking for what can be removed") as tick:
        pruning: Any = call(tick=tick, certified=certify or certificate is not None, stored_in=out)
    # The file first: no refusal of the evidence may cost the work that is done.
    shown, stored = (pruning, None) if out is None else _store(pruning, call, out)
    if certify or certificate is not None:
        _prove(pruning, certificate, certify)
    facts, words, layers = _describe(shown, call, out, (certify, certificate is not None), smallest, needed)
    if html is not None:
        from lawful.report.structure.pruning import pruning_page

        how = call.format("keep", "box", "data", "around") if layers else ""
        tolerance = call.options["tolerance"]
        how = (format_options({"tolerance": tolerance}) if tolerance != "0" else "") + how
        write_text(html, pruning_page(facts, words, call.named.asked, call.network, layers, how))
    if as_json:
        print_json(facts | stored_json(stored))
    else:
        typer.echo(words)
        say_rounding(stored, certificate)


def _refuse_page(call: ApiCall) -> None:
    """A page of channels has no place for a tolerance: say so before the work."""
    from lawful.api.inputs import open_options
    from lawful.api.prune import WITHOUT_TOLERANCE, ByChannels, by_channels
    from lawful.sources.opening import open

    named, options = call.named, call.options
    if options["tolerance"] == "0" and all(options[name] is None for name in ("box", "data", "around", "keep")):
        return
    parts = by_channels(named.text, lambda: open(named.text, **open_options(named.read_options)), named.input_text)
    if isinstance(parts, ByChannels):
        raise LawfulError(WITHOUT_TOLERANCE)


def _store(pruning: Any, call: ApiCall, out: Path) -> tuple[Any, Written | None]:
    """Write the smaller network. Returns the pruning with notes on its files, and how neurons' weights were rounded."""
    from lawful.pruning.neurons.prune import Pruning
    from lawful.sources.files import write

    if isinstance(pruning, Pruning):
        return pruning, write(pruning.network, out, like=pruning.original.reading)
    return _write(pruning, Path(call.network), out), None


def _prove(pruning: Any, path: Path | None, certify: bool) -> None:
    """Re-check the evidence if asked, and write it."""
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.verify import verify
    from lawful.verify.core.tensors import GivenTensors

    # The verifier finds tensors that the evidence holds by their digests in the weights before and after.
    about: tuple[object, ...] = ()
    if isinstance(pruning, ChannelPruning):
        about = pruning.original, pruning.module
    elif isinstance(pruning, OnnxPruning):
        about = GivenTensors(pruning.before), GivenTensors(pruning.after)
    evidence = pruning.certificate()
    if certify:
        verify(evidence, *about)
    if path is not None:
        write_certificate(path, evidence)


def _describe(
    pruning: Any, call: ApiCall, out: Path | None, proved: tuple[bool, bool], smallest: bool, needed: Path | None
) -> tuple[dict[str, Any], str, dict[str, list[str]]]:
    """The pruning as JSON, as text, and the neurons of each layer; `proved`: re-checked, and with a certificate."""
    from lawful.pruning.neurons.prune import Pruning
    from lawful.report.structure import pruning as report

    certify, certified = proved
    if not isinstance(pruning, Pruning):  # a network of layers needs no PyTorch
        from lawful.pruning.job.bounded import BoundedPruning
        from lawful.pruning.job.job import PruningJob

        if isinstance(pruning, PruningJob):
            return report.job_json(pruning, out, certify), report.job_text(pruning, out, certify), {}
        if isinstance(pruning, BoundedPruning):
            return report.bounded_json(pruning, out, certify), report.bounded_text(pruning, out, certify), {}
        words = report.channels_text(pruning, out, certify or certified, certify)
        return report.channels_json(pruning, out, certify), words, {}
    from lawful.api.prune import needed_certificate, sample_rows, smallest_of
    from lawful.pruning.neurons.measure import measure
    from lawful.pruning.removable.decide import MOST_NEURONS

    if needed is not None:
        write_certificate(needed, needed_certificate(pruning))
    fewest = smallest_of(pruning.original, pruning) if smallest else None
    if smallest and fewest is None:
        raise Unsupported(f"--smallest is for layered networks of up to {MOST_NEURONS} hidden neurons and inputs")
    measured = measure(pruning, sample_rows(call.options["data"], pruning.original), call.options["seed"])
    facts = report.pruning_json(pruning, measured, certify, out, fewest)
    return facts, report.pruning_text(pruning, measured, out, fewest), report.hidden_layers(pruning)


def _curve(call: ApiCall, plot: Path | None, as_json: bool) -> None:
    from lawful.api.figure_file import save
    from lawful.api.prune import WITHOUT_TOLERANCE, ByChannels, by_channels, sample_rows
    from lawful.formats.queries.box import box_of
    from lawful.pruning.neurons.measure import size_curve
    from lawful.report.structure.pruning import curve_figure, curve_json, curve_text

    named, box = call.named, call.options["box"]
    if isinstance(by_channels(named.text, named.anything, named.input_text, named.seed), ByChannels):
        raise LawfulError(WITHOUT_TOLERANCE)
    graph = named.network()
    region = None if box is None else box_of(box, graph)
    data = sample_rows(call.options["data"], graph)
    with told("bounding smaller and smaller networks") as tick:
        points = size_curve(graph, box=region, data=data, around=call.options["around"], tick=tick)
    if plot is not None:
        save(curve_figure(points), plot)
    if as_json:
        print_json(curve_json(points))
    else:
        typer.echo(curve_text(points))
