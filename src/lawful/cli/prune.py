"""`lawful prune` beyond single neurons: channels, a target, a tolerance; and the smaller network as a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.api.inputs import DrawOptions
from lawful.cli.output import (
    print_json,
    say_rounding,
    stored_json,
    told,
    will_write,
    working,
    write_certificate,
    write_text,
)
from lawful.cli.subcommand import ApiCall, HtmlOption, JsonOption, Named, format_options, subcommand
from lawful.errors import LawfulError, Unsupported

if TYPE_CHECKING:
    from lawful.api.prune import ByChannels
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning


def prune_by_channels(
    parts: ByChannels,
    named: Named,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
    *,
    fold: bool = False,
    html: Path | None = None,
) -> None:
    """Prune a module or an ONNX file, and write the smaller one."""
    from lawful.report.structure.pruning import channels_json, channels_text

    if parts.module is None and out is not None and out.suffix.lower() != ".onnx":
        raise LawfulError(f"{out}: an ONNX file with convolutions is written as .onnx")
    with working("looking for channels to remove"):
        found = parts.prune(fold=fold, certified=certificate is not None or certify)
    if out is not None:  # first: no refusal of the evidence may cost the work that is done
        found = _write(found, Path(named.text), out, parts.examples)
    if certificate is not None or certify:
        from lawful.pruning.channels.certificate import certificate as evidence

        _prove(evidence(found), certificate, certify, *_both(found))
    facts = channels_json(found, out, certify)
    words = channels_text(found, out, certify or certificate is not None, certify)
    if html is not None:
        from lawful.report.structure.pruning import pruning_page

        write_text(html, pruning_page(facts, words, named.asked, named.text, {}))
    if as_json:
        print_json(facts)
    else:
        typer.echo(words)


def run_job(
    named: Named,
    target: str,
    data: Path | None,
    held_out: Path | None,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Prune to a size, write the smaller network, and report."""
    from lawful.api.prune import prune_to
    from lawful.report.structure.pruning import job_json, job_text

    if data is None:
        raise LawfulError(f"{target}: give --data, samples of what the network is for (.npz with x and y, or .csv)")
    if options["tune"] is not None and (certificate is not None or certify):
        raise LawfulError("--tune changes every weight: there is nothing exact left to certify")
    will_write(out, certificate, options["plan"])
    with told("pruning") as tick:
        found = prune_to(
            named.text, named.anything, target, data,
            given=named.input_text, held_out=held_out, seed=named.seed, tick=tick, **options,
        )  # fmt: skip
    if out is not None:  # first: no refusal of the evidence may cost the work that is done
        found = _write(found, Path(named.text), out, [found.example])
    if certificate is not None or certify:
        from lawful.pruning.channels.certificate import certificate as evidence

        _prove(evidence(found.pruned), certificate, certify)
    if as_json:
        print_json(job_json(found, out, certify))
    else:
        typer.echo(job_text(found, out, certify))


def run_bounded(
    named: Named,
    tolerance: float,
    relative: bool,
    data: Path | None,
    box: str | None,
    around: float | None,
    out: Path | None,
    certificate: Path | None,
    certify: bool,
    as_json: bool,
) -> None:
    """Prune channels within a tolerance, write the smaller module, and report."""
    from lawful.api.prune import prune_bounded
    from lawful.pruning.job.bounded import certificate as evidence
    from lawful.report.structure.pruning import bounded_json, bounded_text

    if data is None:
        raise LawfulError("a tolerance on channels needs --data: weights are repaired on samples")
    will_write(out, certificate)
    with told("pruning") as tick:
        found = prune_bounded(
            named.text, named.anything, tolerance, data,
            given=named.input_text, box=box, around=around, relative=relative, seed=named.seed, tick=tick,
        )  # fmt: skip
    if out is not None:
        found = _write(found, Path(named.text), out, [found.example])
    if certificate is not None or certify:
        _prove(evidence(found), certificate, certify)
    if as_json:
        print_json(bounded_json(found, out, certify))
    else:
        typer.echo(bounded_text(found, out, certify))


def _prove(evidence: dict[str, Any], path: Path | None, certify: bool, *networks: object) -> None:
    """Re-check evidence if asked, and write it."""
    from lawful.verify import verify

    if certify:
        verify(evidence, *networks)
    if path is not None:
        write_certificate(path, evidence)


def _both(found: ChannelPruning | OnnxPruning) -> tuple[object, object]:
    """Where the verifier finds tensors that the evidence holds by their digests: the weights before and after."""
    from lawful.pruning.channels import ChannelPruning
    from lawful.verify.core.tensors import GivenTensors

    if isinstance(found, ChannelPruning):
        return found.original, found.module
    return GivenTensors(found.before), GivenTensors(found.after)


def _write(found: Any, source: Path, out: Path, examples: Sequence[Any]) -> Any:
    """ONNX as ONNX, a network of layers in any format, a module as its weights or its graph.

    Returns the pruning (by channels, to a target or within a tolerance) with notes on the files that were written.
    """
    from lawful.formats.io.writing import write_bytes
    from lawful.pruning.channels.model_files import graph_bytes, same_nodes
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.sources.checkpoints.save import write_weights
    from lawful.sources.files import write

    kind, module = out.suffix.lower(), getattr(found, "module", None)
    pruned: Any = getattr(found, "pruned", found)
    layered = getattr(found, "network", None)
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
        if before == after:
            write_weights(module.state_dict(), out, like=source)
        else:
            changed, said = _changed_config(module, source, out, examples)
            write_weights(module.state_dict(), out, like=source, changed=changed, whole=True)
            return replace(found, notes=(*found.notes, *said))
    return found


def _changed_config(
    module: Any, source: Path, out: Path, examples: Sequence[Any]
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
        return {"config.json": None}, (f"{out} has no config.json, so from_pretrained does not load it: {why}",)
    entries = {entry: value for entry, value in new.items() if entry not in settings or settings[entry] != value}
    if not entries:
        return {}, ()
    stated = ", ".join(f"{entry}={value}" for entry, value in entries.items())
    content = (json.dumps(new, indent=2) + "\n").encode()
    return {"config.json": content}, (
        f"config.json of {out} has the new sizes, and from_pretrained loads it: {stated}",
    )


@subcommand(reads=DrawOptions)
def prune(
    call: ApiCall,
    out: Annotated[
        Path | None, typer.Option(help="File for the smaller network; its ending chooses the format.")
    ] = None,
    tolerance: Annotated[
        str, typer.Option(help="Largest change of any output allowed on the box; 2% is relative to its range.")
    ] = "0",
    keep: Annotated[
        str | None,
        typer.Option(help="Leave so many hidden neurons, with the smallest bound found; or accuracy:99% with --data."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Prune and repair to a size, with --data: params:0.5, flops:40% or latency:0.7."),
    ] = None,
    criterion: Annotated[
        str, typer.Option(help="With --target: score units as replaced, dropped, magnitude or taylor.")
    ] = "replaced",
    multiple: Annotated[int, typer.Option(help="With --target: numbers of channels are multiples of this.", min=1)] = 1,
    blocks: Annotated[
        bool, typer.Option("--blocks/--no-blocks", help="With --target: whole residual blocks may leave.")
    ] = True,
    held_out: Annotated[
        Path | None, typer.Option(help="With --target: samples that only measure [default: a fifth of --data].")
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            help="With --target: train by distil (or distil:EPOCHS), module:function(small, original, x, y), "
            "or a command with {small}, {data} and {out}."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="With --target: file that keeps the order of removal, and is read if it is there."),
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Bounds at sizes from all to one neuron a layer.")] = False,
    box: Annotated[
        str | None, typer.Option(help="Inputs: lo,hi; lo:hi,lo:hi,...; .npz or .vnnlib [default: data's, or -1,1].")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Samples (.npz with x, .csv): their box, and the error on them.")
    ] = None,
    around: Annotated[
        float | None, typer.Option(help="The bound holds within this distance of each sample, not on all of the box.")
    ] = None,
    skips: Annotated[
        bool, typer.Option("--skips", help="Let edges pass layers: more neurons can go, and the result is a graph.")
    ] = False,
    fold: Annotated[
        bool, typer.Option("--fold", help="Modules: fold normalisations into layers, drop biases without effect.")
    ] = False,
    decide: Annotated[
        float,
        typer.Option(help="Seconds to decide exactly which neurons are needed (small networks; 0: do not).", min=0),
    ] = 5.0,
    smallest: Annotated[
        bool, typer.Option("--smallest", help="How many neurons any network of this depth needs for the function.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Seconds after which the search takes what it has.")
    ] = 60.0,
    plot: Annotated[Path | None, typer.Option(help="With --curve: draw it to this .svg, .png or .pdf file.")] = None,
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
    named = call.named
    if target is not None or (keep is not None and ":" in keep):
        if target is not None and keep is not None:
            raise LawfulError("--target and --keep both say how small: give one")
        unused = {
            "--curve": curve, "--box": box, "--around": around, "--fold": fold, "--smallest": smallest,
            "--needed": needed, "--plot": plot, "--html": html, "--tolerance": tolerance if tolerance != "0" else None,
        }  # fmt: skip
        if wrong := [name for name, value in unused.items() if value]:
            raise LawfulError(f"{', '.join(wrong)}: not with --target")
        run_job(named, str(target or keep), data, held_out, out, certificate, certify, as_json,
                criterion=criterion, multiple=multiple, blocks=blocks, tune=tune, plan=plan)  # fmt: skip
        return
    if any(each is not None for each in (held_out, tune, plan)) or (criterion, multiple, blocks) != (
        "replaced",
        1,
        True,
    ):
        raise LawfulError("--criterion, --multiple, --no-blocks, --held-out, --tune and --plan go with --target")
    from lawful.api.prune import CHANNELS_ONLY, ByChannels, by_channels, needed_certificate, smallest_of
    from lawful.formats.queries.box import box_of
    from lawful.formats.queries.data import read_data
    from lawful.pruning.neurons.measure import measure
    from lawful.pruning.removable.decide import MOST_NEURONS
    from lawful.report.structure.pruning import pruning_json, pruning_text

    will_write(out, certificate, needed, plot, html)
    if plot is not None and (not curve or plot.suffix.lower() not in (".svg", ".png", ".pdf")):
        raise LawfulError("--plot draws a --curve to a .svg, .png or .pdf file")
    approximate = curve or any(option is not None for option in (keep, box, data, around)) or tolerance != "0"
    parts = by_channels(named.text, named.anything, named.input_text, named.seed)
    if isinstance(parts, ByChannels):
        if approximate:
            if curve or keep is not None or fold or html is not None:
                raise LawfulError("--curve, --keep, --fold and --html: not with a tolerance on channels")
            number, relative = read_tolerance(tolerance)
            run_bounded(named, number, relative, data, box, around, out, certificate, certify, as_json)
            return
        prune_by_channels(parts, named, out, certificate, certify, as_json, fold=fold, html=html)
        return
    if fold:
        raise LawfulError(CHANNELS_ONLY)
    found = named.network()
    inputs = len(found.to_dag().inputs)
    number, relative = read_tolerance(tolerance)
    region = None if box is None else box_of(box, found)
    batch = None if data is None else read_data(data, inputs).x
    if curve:
        _curve(found, {"box": region, "data": batch, "around": around}, plot, as_json)
        return
    options: dict[str, Any] = {
        "tolerance": number,
        "relative": relative,
        "keep": read_count(keep),
        "box": region,
        "data": batch,
    }
    dtype = None
    if out is not None:
        from lawful.sources.files import stored_type, write

        dtype = stored_type(found, out, found.reading)
    with told("looking for neurons to remove") as tick:
        options |= {"around": around, "seconds": seconds, "decide": decide, "tick": tick}
        pruning = _pruned(found, options, certificate, certify, dtype)
    if needed is not None:
        write_certificate(needed, needed_certificate(pruning))
    fewest = smallest_of(found, pruning) if smallest else None
    if smallest and fewest is None:
        raise Unsupported(f"--smallest is for layered networks of up to {MOST_NEURONS} hidden neurons and inputs")
    stored = None
    if out is not None:
        stored = write(pruning.network, out, like=found.reading)
    measured = measure(pruning, batch, named.seed)
    facts, words = pruning_json(pruning, measured, certify, out, fewest), pruning_text(pruning, measured, out, fewest)
    if html is not None:
        from lawful.report.structure.pruning import hidden_layers, pruning_page

        stated = tolerance if tolerance != "0" else None
        how = format_options({"tolerance": stated, "keep": keep, "box": box, "data": data, "around": around})
        write_text(html, pruning_page(facts, words, named.asked, named.text, hidden_layers(pruning), how))
    if as_json:
        print_json(facts | stored_json(stored))
    else:
        typer.echo(words)
        say_rounding(stored, certificate)


def _pruned(found: Any, options: dict[str, Any], certificate: Path | None, certify: bool, dtype: str | None) -> Any:
    """The pruning; with its evidence, where that is asked for: about the numbers that are stored."""
    if certificate is None and not certify:
        from lawful.pruning.neurons.prune import prune as run

        return run(found, **options)
    from lawful.pruning.neurons.certificate import prune_with_certificate
    from lawful.verify import verify

    pruning, proof = prune_with_certificate(found, dtype=dtype, **options)
    if certify:
        options["tick"]("re-checking")
        verify(proof)
    if certificate is not None:
        write_certificate(certificate, proof)
    return pruning


def _curve(found: Any, options: dict[str, Any], plot: Path | None, as_json: bool) -> None:
    from lawful.api.figure_file import save
    from lawful.pruning.neurons.measure import size_curve
    from lawful.report.structure.pruning import curve_figure, curve_json, curve_text

    with told("bounding smaller and smaller networks") as tick:
        points = size_curve(found, **options, tick=tick)
    if plot is not None:
        save(curve_figure(points), plot)
    if as_json:
        print_json(curve_json(points))
    else:
        typer.echo(curve_text(points))


def read_count(text: str | None) -> int | None:
    """How many neurons to leave.

    >>> read_count("12")
    12
    """
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise LawfulError(f"--keep takes a number of neurons, or accuracy:99%, not {text[:40]!r}")
    return int(text)


def read_tolerance(text: str) -> tuple[float, bool]:
    """A number, or a percentage of each output's range.

    >>> read_tolerance("0.5"), read_tolerance("2%")
    ((0.5, False), (0.02, True))
    """
    relative = text.strip().endswith("%")
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        raise LawfulError(f"--tolerance takes a number such as 0.1, or 2%, not {text[:40]!r}") from None
    return (number / 100 if relative else number), relative
