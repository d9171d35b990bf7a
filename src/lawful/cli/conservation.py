"""`lawful laws` and `lawful symmetries`: what training conserves, and what leaves the function alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.api.inputs import ModuleOptions
from lawful.cli.output import (
    bar,
    note_assumed,
    note_reading,
    print_json,
    will_write,
    write_certificate,
    write_json,
    write_text,
)
from lawful.cli.subcommand import (
    ApiCall,
    InputsOption,
    JsonOption,
    Named,
    NetworkArgument,
    subcommand,
)
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.conservation import LawCount
    from lawful.conservation.known.logarithmic import LogarithmicLaws
    from lawful.conservation.known.polynomial import PolynomialLaws
    from lawful.conservation.near_random_weights import TrainingLaws
    from lawful.conservation.reduction import NetworkReduction
    from lawful.network import Architecture, Dag, Mlp
    from lawful.network.dynamics import Metric
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.symmetry import Symmetries


@subcommand()
def laws(
    call: ApiCall,
    near: Annotated[bool, typer.Option("--near", help="Near the given weights, for any data.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Near the given weights, for the inputs in this .npz or .csv file.")
    ] = None,
    momentum: Annotated[bool, typer.Option("--momentum", help="Heavy-ball flow instead of gradient flow.")] = False,
    friction: Annotated[float, typer.Option(help="Friction of the heavy ball.")] = 1.0,
    autonomous: Annotated[
        bool, typer.Option("--autonomous", help="Momentum: only laws that do not name time.")
    ] = False,
    decay: Annotated[
        float, typer.Option(help="Weight decay λ of the gradient flow: which laws become c(t) = e^(−dλt) c(0)?")
    ] = 0.0,
    metric: Annotated[
        Path | None,
        typer.Option(help="Flow θ' = −M∇E under the diagonal or block metric M in this .npz or .json file."),
    ] = None,
    degree: Annotated[int | None, typer.Option(help="Also find all polynomial laws up to this degree.")] = None,
    logarithms: Annotated[
        bool,
        typer.Option(
            "--logarithms",
            help="Also find all laws Σ c·log|p| + polynomial of --degree (1), p a weight or a sum of two.",
        ),
    ] = False,
    reduction: Annotated[
        bool, typer.Option("--reduction", help="Also: does φ(θ) follow a flow of its own, and with which metric?")
    ] = False,
    inputs: Annotated[str | None, typer.Option(hidden=True, help="The same as --input '3;2,4'.")] = None,
    weights: Annotated[
        int | None,
        typer.Option(
            help="Random weights near which laws are counted too, to compare with any weights (default: a few)."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With --json: list every explicit law.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write every explicit law to this JSON file.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page: the laws, and level sets of those without a formula.")
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print the laws as LaTeX.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="Save the proof to this JSON file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Count, find and prove the conservation laws of a network's training (exit 3: undecided, or no proof to save)."""
    from lawful.api.conservation import laws as count_laws
    from lawful.api.inputs import input_shape
    from lawful.network.dynamics import GradientFlow, HeavyBall, output_gradients
    from lawful.report.structure.laws import listed_laws
    from lawful.sources.checkpoints.load import make_module

    will_write(certificate, out, html)
    asked = {name: call.options[name] for name in ("loss", "mode", "classes_axis", "seconds", "seed")}
    loss, mode, seed = output_gradients(asked["loss"]), asked["mode"], asked["seed"]
    elsewhere = near or data is not None or momentum or metric is not None or decay > 0
    if near and data is not None:
        raise LawfulError("--near is for any data: leave out --data, or leave out --near")
    if (degree is not None or logarithms) and elsewhere:
        raise LawfulError(
            "--degree and --logarithms find laws of gradient flow for any weights and data: leave out the other options"
        )
    if momentum + (metric is not None) + (decay != 0) > 1:
        raise LawfulError("choose one of --momentum, --metric and --decay")
    if reduction and (elsewhere or loss != "full"):
        raise LawfulError("--reduction is of gradient flow for any weights and data: leave out the other options")
    named, input = call.named, inputs if inputs is not None else call.options["input"]
    shape: Any = input_shape(input)
    source: Any
    if shape is not None and isinstance(shape[0], tuple):
        source, shape = make_module(named.text), None
    elif near or data is not None:
        source = named.weighed(mode or "")
    else:
        source = named.trained(mode or "")
    flow = HeavyBall(friction, autonomous) if momentum else GradientFlow(decay)
    with bar("laws") as tell:
        count = count_laws(
            source,
            level="near" if near else "phi" if data is None else "data",
            data=None if data is None else _inputs(data, shape),
            flow=flow if metric is None else _metric(metric, source),
            progress=lambda what, done, total: tell(what, done / total),
            input=input,
            **asked,
        )
        note_assumed(count.reading, count.assumed)
        training = _training(count, weights, seed, tell)
        searched = _Searched(source, shape, mode or "train", asked["classes_axis"], loss, seed)
        found = None if degree is None else searched.polynomials(degree, tell)
        beyond = searched.logarithmic(degree or 1) if logarithms else None
    reduced = searched.reduction(count) if reduction else None
    listed = listed_laws(count) if every or out is not None else None
    _print(count, training, found, reduced, as_json, latex, listed if every else None, beyond)
    if html is not None:
        write_text(html, _page(count, training, seed, named.text, named.asked))
    if out is not None:
        write_json(out, {"laws": listed, "parameters": count.parameters})
    best = count if training is None or training.witness is None else training.witness
    saved = certificate is None or _save_proof(best, certificate)
    if count.status == "undecided" or not saved:
        raise typer.Exit(3)


@dataclass(frozen=True)
class _Searched:
    """What is searched for laws of a form: a graph where the network is one, else the module itself."""

    source: Any
    shape: tuple[int, ...] | None
    mode: str
    classes_axis: int | None
    loss: str
    seed: int

    @property
    def graph(self) -> Architecture | Mlp | Dag | None:
        from lawful.conservation.count import as_graph
        from lawful.network import Architecture, Dag, Mlp

        is_graph = isinstance(self.source, (Architecture, Dag, Mlp))
        return self.source if is_graph else as_graph(self.source, self.shape, self.mode)

    @property
    def _of_module(self) -> dict[str, Any]:
        return {"loss": self.loss, "mode": self.mode, "classes_axis": self.classes_axis, "seed": self.seed}

    def polynomials(self, degree: int, tell: Callable[[str, float], None]) -> PolynomialLaws:
        """`--degree`."""
        if (graph := self.graph) is None:
            from lawful.conservation.known.module_polynomial import module_polynomial_laws

            return module_polynomial_laws(self.source, self.shape, degree, **self._of_module)
        from lawful.conservation.known.polynomial import polynomial_laws

        watch = lambda what, done, total: tell(what, done / total)  # noqa: E731
        return polynomial_laws(graph, degree, loss=self.loss, seed=self.seed, progress=watch)

    def logarithmic(self, degree: int) -> LogarithmicLaws:
        """`--logarithms`."""
        if (graph := self.graph) is None:
            from lawful.conservation.known.module_polynomial import module_logarithmic_laws

            return module_logarithmic_laws(self.source, self.shape, degree, **self._of_module)
        from lawful.conservation.known.logarithmic import logarithmic_laws

        return logarithmic_laws(graph, degree, loss=self.loss, seed=self.seed)

    def reduction(self, count: LawCount) -> NetworkReduction:
        """`--reduction`, at the network's weights, or at PyTorch's default ones for an architecture."""
        from lawful.conservation.reduction import reduce_network
        from lawful.network import Architecture

        if count.dag is None:
            from lawful.conservation.reduction import reduce_module

            return reduce_module(self.source, self.shape, mode=self.mode, seed=self.seed)
        graph = self.graph
        if graph is None or isinstance(graph, Architecture):
            graph = Architecture.parse(str(self.source)).initialise(seed=self.seed)
        return reduce_network(count, graph.to_dag().theta)


def _page(count: LawCount, training: TrainingLaws | None, seed: int, source: str, asked: str) -> str:
    """The page; laws without a formula are drawn at the network's weights, or at PyTorch's default ones."""
    from lawful.conservation.known.flow_box import level_sets
    from lawful.network.architecture import initialise
    from lawful.report.structure.laws import count_json, laws_page, listed_laws

    pictures = []
    dag = count.dag
    if dag is not None:
        theta = dag.theta if dag.weights is not None else initialise(dag, "torch", seed).theta
        pictures = [level_sets(count, theta, part) for part in range(len(count.parts))]
    return laws_page(count, count_json(count, training), listed_laws(count), pictures, source, asked)


def _save_proof(count: LawCount, path: Path) -> bool:
    """Write the proof, or say why there is none."""
    from lawful.conservation.certificate import certificate, why_uncertified

    missing = why_uncertified(count)
    if missing:
        typer.echo(f"lawful: {path} was not written: {missing}", err=True)
    else:
        write_certificate(path, certificate(count))
    return not missing


def _training(
    count: LawCount, weights: int | None, seed: int, tell: Callable[[str, float], None]
) -> TrainingLaws | None:
    """Near random weights, where that is another question."""
    from lawful.conservation.near_random_weights import training_laws

    if weights is not None and not 0 <= weights <= 10_000:
        raise LawfulError(f"--weights takes a number from 0 to 10000, not {weights}")
    return training_laws(count, weights=weights, seed=seed, progress=lambda what, done, total: tell(what, done / total))


def _print(
    count: LawCount,
    training: TrainingLaws | None,
    found: PolynomialLaws | None,
    reduced: NetworkReduction | None,
    as_json: bool,
    latex: bool,
    listed: list[dict[str, Any]] | None,
    beyond: LogarithmicLaws | None,
) -> None:
    from lawful.conservation.wording import Wording
    from lawful.report.structure.laws import (
        count_json,
        logarithmic_json,
        logarithmic_text,
        polynomials_json,
        polynomials_text,
        reduction_json,
        reduction_text,
        text,
    )

    result = count_json(count, training)
    if listed is not None:
        result["explicit"] = listed
    if found is not None:
        result["polynomial"] = polynomials_json(found)
    if beyond is not None:
        result["logarithmic"] = logarithmic_json(beyond)
    if reduced is not None:
        result["reduction"] = reduction_json(reduced)
    if as_json:
        print_json(result)
        return
    exact = Wording(count.dag) if latex and count.dag is not None else None
    words = count.summary() if exact is None else [exact.latex(law) for law in count.known]
    typer.echo(text(result, words))
    if found is not None:
        typer.echo("\n" + polynomials_text(found, latex))
    if beyond is not None:
        typer.echo("\n" + logarithmic_text(beyond))
    if reduced is not None:
        typer.echo("\n" + reduction_text(reduced))


def _inputs(path: Path, shape: tuple[int, ...] | None) -> Any:
    """The inputs of a data file, in the shape that a module takes."""
    from lawful.formats.queries.data import read_data

    found = read_data(path).x
    if shape is None:
        return found
    if prod(shape) != found.shape[1]:
        raise LawfulError(f"{path}: {found.shape[1]} numbers per sample do not fill an input of size {shape}")
    return found.reshape(len(found), *shape)


def _metric(path: Path, source: Any) -> Metric:
    """The metric in a file, for the parameters of a network or the trainable ones of a module."""
    from lawful.formats.queries.metric import read_metric

    sizes = getattr(source, "parameters", None)
    if callable(sizes):  # a torch module
        sizes = sum(parameter.numel() for parameter in sizes() if parameter.requires_grad)
    return read_metric(path, int(sizes or 0))


@subcommand(reads=ModuleOptions)
def symmetries(
    call: ApiCall,
    network: NetworkArgument,
    input: InputsOption = None,
    mode: Annotated[
        str | None, typer.Option(help="train (what training does, and assumed) or eval (what the function is).")
    ] = None,
    check: Annotated[
        bool | None, typer.Option("--check/--no-check", help="Hold every generator against gradients.")
    ] = None,
    values: Annotated[Path | None, typer.Option(help="Write the values of all laws to this .npz file.")] = None,
    apply: Annotated[int | None, typer.Option(help="Seed of a random member of the group to apply.")] = None,
    out: Annotated[Path | None, typer.Option(help="With --apply: write the moved weights to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the spaces, largest first.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The symmetries of a network, read from its graph at any size, and the laws that training therefore conserves."""
    named = call.named
    from lawful.report.structure.symmetries import symmetries_json, symmetries_text
    from lawful.sources.checkpoints.save import write_weights
    from lawful.symmetry import symmetries as read

    if (apply is None) != (out is None):
        raise LawfulError("--apply SEED and --out FILE go together")
    if html is not None:
        will_write(html)
    if mode not in (None, "train", "eval"):
        raise LawfulError(f"--mode is train or eval, not {mode[:20]!r}")
    opened = _open(named.of(network), mode, values is not None or apply is not None)
    module = opened.module
    given = [part for each in input or () for part in each.split(";")] or opened.input_shape
    found = read(module, given, mode=mode or "train", check=check)  # type: ignore[arg-type]
    if values is not None:
        _write_values(found, module, values)
    moved = None
    if apply is not None and out is not None:
        from lawful.symmetry.orbit import disguise

        moved = disguise(module, given, found, seed=apply)
        write_weights(moved.weights, out, like=Path(network))
    if html is not None:
        from lawful.report.structure.symmetries import symmetries_page

        sizes = "".join(f" --input {shlex.quote(size)}" for size in input or ())
        write_text(html, symmetries_page(found, network, named.of(network).asked + sizes))
    if as_json:
        print_json(symmetries_json(found) | ({} if moved is None else {"applied": moved.difference}))
    else:
        typer.echo(symmetries_text(found))
        if html is not None:
            typer.echo(f"page: {html}")
        if moved is not None:
            typer.echo(f"\n{out}: another member of the orbit; outputs differ by {moved.difference:.1e} of their size")


def _open(named: Named, mode: str | None, weighed: bool) -> ModuleNetwork:
    """The module that the user named, with its weights."""
    from lawful.sources.opening import open_module

    found = open_module(named.text, model=named.model, activation=named.activation, order=named.order)
    told = found.reading.in_training(mode or "")
    drawn = weighed and told.format == "architecture"
    note_reading(told.assuming("random weights: PyTorch's default initialisation, seed 0") if drawn else told)
    return found


def _write_values(found: Symmetries, module: Any, out: Path) -> None:
    """All values of the laws at the module's weights, space by space: arrays `law00000`, ... and their `names`."""
    import zipfile

    import numpy as np

    from lawful.formats.io.writing import replacing

    theta = dict(module.named_parameters())
    if any(tensor.is_meta for tensor in theta.values()):
        raise LawfulError("a module on the meta device has no weights: its laws have no values")
    with replacing(out) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        names = []
        for number, (laws, values) in enumerate(found.laws.stream(theta)):
            names.append(" ".join(laws.parameters))
            with archive.open(f"law{number:05}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)
        with archive.open("names.npy", "w") as stream:
            np.lib.format.write_array(stream, np.array(names or [""]), allow_pickle=False)
