"""`lawful laws`: what training conserves."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.output import print_json, will_write, write_certificate, write_json
from lawful.cli.progress import bar
from lawful.cli.source import JsonOption, Named, open_module, takes_network
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from lawful.laws import LawCount
    from lawful.laws.factorisation import NetworkReduction
    from lawful.laws.module_wording import ModuleWording
    from lawful.laws.polynomial import PolynomialLaws
    from lawful.laws.training import TrainingLaws
    from lawful.laws.wording import Wording
    from lawful.network.dynamics import Metric

LossOption = Annotated[
    str, typer.Option("--loss", help="full (mse, bce, or any whose output gradients span), or ce (cross-entropy).")
]


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command()(laws)


@takes_network
def laws(
    named: Named,
    near: Annotated[bool, typer.Option("--near", help="Near the given weights, for any data.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="Near the given weights, for the inputs in this .npz or .csv file.")
    ] = None,
    loss: LossOption = "full",
    momentum: Annotated[bool, typer.Option("--momentum", help="Heavy-ball flow instead of gradient flow.")] = False,
    friction: Annotated[float, typer.Option(help="Friction of the heavy ball.")] = 1.0,
    autonomous: Annotated[
        bool, typer.Option("--autonomous", help="Momentum: only laws that do not name time.")
    ] = False,
    metric: Annotated[
        Path | None,
        typer.Option(help="Flow θ' = −M∇E under the diagonal or block metric M in this .npz or .json file."),
    ] = None,
    degree: Annotated[int | None, typer.Option(help="Also find all polynomial laws up to this degree.")] = None,
    reduction: Annotated[
        bool, typer.Option("--reduction", help="Also: does φ(θ) follow a flow of its own, and with which metric?")
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(help="Batch norms of a module: train (statistics of the batch; assumed) or eval (stored ones)."),
    ] = None,
    inputs: Annotated[str | None, typer.Option(help="Sizes of a module's several inputs: '3;2,4'.")] = None,
    weights: Annotated[
        int | None,
        typer.Option(
            help="Random weights near which laws are counted too, to compare with any weights (default: a few)."
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="With --json: list every explicit law.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write every explicit law to this JSON file.")] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print the laws as LaTeX.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="Save the proof to this JSON file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Count, find and prove the conservation laws of a network's training (exit 3: undecided, or no proof to save)."""
    from lawful.laws import GradientFlow, HeavyBall, count_laws
    from lawful.network.losses import output_gradients
    from lawful.report.laws import listed_laws

    will_write(certificate, out)
    loss = output_gradients(loss)
    elsewhere = near or data is not None or momentum or metric is not None
    if near and data is not None:
        raise LawfulError("--near is for any data: leave out --data, or leave out --near")
    if degree is not None and elsewhere:
        raise LawfulError("--degree finds laws of gradient flow for any weights and data: leave out the other options")
    if momentum and metric is not None:
        raise LawfulError("choose one of --momentum and --metric")
    if reduction and (elsewhere or loss != "full"):
        raise LawfulError("--reduction is of gradient flow for any weights and data: leave out the other options")
    shape, seed = _token_sizes(named) or named.shape, named.seed
    source: Any = open_module(named.text) if inputs is not None else None
    if source is None:
        source = named.trained(mode or "") if not near and data is None else named.weighed(mode or "")
    flow = HeavyBall(friction, autonomous) if momentum else GradientFlow()
    with bar("laws") as tell:
        count = count_laws(
            source,
            level="near" if near else "phi" if data is None else "data",
            data=None if data is None else _inputs(data, shape),
            loss=loss,
            flow=flow if metric is None else _metric(metric, source),
            seed=seed,
            input_shape=shape if inputs is None else _sizes(inputs),
            mode=mode,
            progress=lambda what, done, total: tell(what, done / total),
        )
        training = _training(count, weights, seed, tell)
        found = None if degree is None else _polynomials(source, degree, loss, seed, shape, mode, tell)
    reduced = _reduction(source, count, seed, shape, mode) if reduction else None
    listed = listed_laws(count) if every or out is not None else None
    _print(count, training, found, reduced, as_json, latex, listed if every else None)
    if out is not None:
        write_json(out, {"laws": listed, "parameters": count.parameters})
    best = count if training is None or training.witness is None else training.witness
    saved = certificate is None or _saved(best, certificate)
    if count.status == "undecided" or not saved:
        raise typer.Exit(3)


def _saved(count: LawCount, path: Path) -> bool:
    """Write the proof, or say why there is none."""
    from lawful.laws.certificate import certificate, uncertified

    missing = uncertified(count)
    if missing:
        typer.echo(f"lawful: {path} was not written: {missing}", err=True)
    else:
        write_certificate(path, certificate(count))
    return not missing


def _token_sizes(named: Named) -> tuple[int, ...] | None:
    """How many token ids `--input 8:int` asks for; which ids there are, the module's embedding says."""
    if named.input_text is not None and ";" in named.input_text:
        raise LawfulError("several inputs of a module are named by --inputs, like --inputs '3;2,4'")
    tokens = named.input_text is not None and named.input_text.endswith(":int")
    return tuple(int(size) for size in str(named.input_text).removesuffix(":int").split(",")) if tokens else None


def _sizes(text: str) -> tuple[tuple[int, ...], ...]:
    """Read `3;2,4`."""
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*(;\d{1,6}(,\d{1,6})*)+", text):
        raise LawfulError(f"--inputs takes sizes like '3;2,4', not {text[:40]!r}")
    return tuple(tuple(int(size) for size in part.split(",")) for part in text.split(";"))


def _training(
    count: LawCount, weights: int | None, seed: int, tell: Callable[[str, float], None]
) -> TrainingLaws | None:
    """Near random weights, where that is another question."""
    from lawful.laws.training import training_laws

    if weights is not None and not 0 <= weights <= 10_000:
        raise LawfulError(f"--weights takes a number from 0 to 10000, not {weights}")
    return training_laws(count, weights=weights, seed=seed, progress=lambda what, done, total: tell(what, done / total))


def _polynomials(
    source: Any,
    degree: int,
    loss: str,
    seed: int,
    shape: tuple[int, ...] | None,
    mode: str | None,
    tell: Callable[[str, float], None],
) -> PolynomialLaws:
    from lawful.laws.polynomial import polynomial_laws
    from lawful.network import Architecture, Dag, Mlp

    if not isinstance(source, (Architecture, Dag, Mlp)):
        from lawful.laws.count import as_graph

        graph = as_graph(source, shape, mode or "train")
        if graph is None:
            from lawful.laws.module_polynomial import module_polynomial_laws

            return module_polynomial_laws(source, shape, degree, loss=loss, mode=mode or "train", seed=seed)
        source = graph
    watch = lambda what, done, total: tell(what, done / total)  # noqa: E731
    return polynomial_laws(source, degree, loss=loss, seed=seed, progress=watch)


def _reduction(
    source: Any, count: LawCount, seed: int, shape: tuple[int, ...] | None, mode: str | None
) -> NetworkReduction:
    """At the network's weights, or at PyTorch's default ones for an architecture."""
    from lawful.laws.count import as_graph
    from lawful.laws.factorisation import reduce_network
    from lawful.network import Architecture, Dag, Mlp

    if count.dag is None:
        from lawful.laws.module_reduction import reduce_module

        return reduce_module(source, shape, mode=mode or "train", seed=seed)
    graph = source if isinstance(source, (Architecture, Dag, Mlp)) else as_graph(source, shape)
    if graph is None or isinstance(graph, Architecture):
        graph = Architecture.parse(str(source)).initialise(seed=seed)
    return reduce_network(count, graph.to_dag().theta)


def _print(
    count: LawCount,
    training: TrainingLaws | None,
    found: PolynomialLaws | None,
    reduced: NetworkReduction | None,
    as_json: bool,
    latex: bool,
    listed: list[dict[str, Any]] | None,
) -> None:
    from lawful.laws.wording import Wording
    from lawful.report.laws import count_json, reduction_json, reduction_text, text

    result = count_json(count, training)
    if listed is not None:
        result["explicit"] = listed
    if found is not None:
        result["polynomial"] = _described(found)
    if reduced is not None:
        result["reduction"] = reduction_json(reduced)
    if as_json:
        print_json(result)
        return
    exact = Wording(count.dag) if latex and count.dag is not None else None
    words = count.summary() if exact is None else [exact.latex(law) for law in count.known]
    typer.echo(text(result, words))
    if found is not None:
        wording = _wording(found)
        typer.echo(f"\nPolynomial laws of degree at most {found.degree}: {len(found)}, {found.independent} independent")
        lines = result["polynomial"]["latex"] if latex else wording.summary(found.laws)
        for line in lines:
            typer.echo(f"  {line}")
    if reduced is not None:
        typer.echo("\n" + reduction_text(reduced))


def _wording(found: PolynomialLaws) -> Wording | ModuleWording:
    from lawful.laws.module_wording import ModuleWording
    from lawful.laws.wording import Wording

    return ModuleWording(found.places) if found.dag is None else Wording(found.dag)


def _described(found: PolynomialLaws) -> dict[str, Any]:
    wording = _wording(found)
    return {
        "degree": found.degree,
        "count": len(found),
        "independent": found.independent,
        "laws": [wording.law(law) for law in found.laws],
        "expressions": [wording.expression(law) for law in found.laws],
        "latex": [wording.latex(law) for law in found.laws],
        "monomials": found.monomials,
        "blocks": found.blocks,
    }


def _inputs(path: Path, shape: tuple[int, ...] | None) -> Any:
    """The inputs of a data file, in the shape that a module takes."""
    from lawful.network.formats.data import read_data

    found = read_data(path).x
    if shape is None:
        return found
    if prod(shape) != found.shape[1]:
        raise LawfulError(f"{path}: {found.shape[1]} numbers per sample do not fill an input of size {shape}")
    return found.reshape(len(found), *shape)


def _metric(path: Path, source: Any) -> Metric:
    """The metric in a file, for the parameters of a network or the trainable ones of a module."""
    from lawful.network.formats.metric import read_metric

    sizes = getattr(source, "parameters", None)
    if callable(sizes):  # a torch module
        sizes = sum(parameter.numel() for parameter in sizes() if parameter.requires_grad)
    return read_metric(path, int(sizes or 0))
