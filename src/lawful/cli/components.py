"""`lawful components`, `path`, `rebalance`, `singular`: where training can go (paper 0)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.checkpoints import represent
from lawful.cli.evidence import save_evidence
from lawful.cli.output import print_json, say, say_rounding, show, stored_json, will_write, working, write_certificate
from lawful.cli.subcommand import ApiCall, CertificateOption, JsonOption, subcommand
from lawful.errors import LawfulError
from lawful.sentences.bounds import outputs_move_at_most

if TYPE_CHECKING:
    from lawful.invariant_set import EntryGraph, Rebalanced
    from lawful.network import Dag, Mlp
    from lawful.sources.files import Written

BalanceOption = Annotated[
    Path | None, typer.Option("--balance", help='Another balance: JSON, {"node": number} or a list in node order.')
]


@subcommand()
def components(
    call: ApiCall,
    balance: BalanceOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Print balances and minima as fractions.")] = False,
    certificate: Annotated[Path | None, typer.Option(help="Save the proof for `lawful verify`.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Connected components of the invariant set: which weights can never change sign, and why."""
    from lawful.invariant_set import locked_outputs
    from lawful.report.structure.components import components_json, components_text

    will_write(certificate)
    prescribed = None if balance is None else read_balance(balance)
    with working("looking for locked weights"):
        answer = call(balance=prescribed, certified=certificate is not None)
    if certificate is not None:
        with working("writing the proof"):
            write_certificate(certificate, answer.certificate())
    meanings = locked_outputs(answer)
    say(as_json, components_json(answer, meanings, exact), components_text(answer, meanings))
    if answer.connected and (answer.marginal or answer.beyond):
        raise typer.Exit(3)


@subcommand(without=("drop_useless", "seed"))
def path(
    call: ApiCall,
    start: Annotated[str, typer.Argument(metavar="A", help="Network at the start.")],
    stop: Annotated[str, typer.Argument(metavar="B", help="Network at the end, of the same shape.")],
    points: Annotated[
        int, typer.Option(help="How many points of the path to sample and check.", min=2, max=1_000_000)
    ] = 50,
    out: Annotated[Path | None, typer.Option(help="Save the points: .npz with `time` and `theta`.")] = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """A path between two networks that training could take, or the signs that forbid it (exit 1; 3: undecided)."""
    from lawful.api.invariant_set import balanced_graph
    from lawful.invariant_set import Apart, WeightPath
    from lawful.report.structure.components import path_json, path_text

    will_write(out, certificate)
    first, last = (balanced_graph(each, call.reading) for each in (start, stop))
    with working("looking for a path"):
        answer = call.ask(first, last, certified=certificate is not None)
    if out is not None and isinstance(answer, WeightPath):
        import numpy as np

        from lawful.formats.io.writing import write_bytes
        from lawful.formats.tensors.npz import dump

        times = np.linspace(0, 1, points)
        write_bytes(out, dump({"time": times, "theta": np.stack([answer.at(time) for time in times])}, None))
    if certificate is not None and answer.evidence is not None:
        write_certificate(certificate, answer.certificate())
    say(as_json, path_json(answer, points), path_text(answer, points))
    if not isinstance(answer, WeightPath):
        raise typer.Exit(1 if isinstance(answer, Apart) else 3)


@subcommand()
def rebalance(
    call: ApiCall,
    balance: Annotated[str, typer.Option("--balance", help="zero, unlock, or a JSON file of balances.")] = "zero",
    out: Annotated[Path | None, typer.Option(help="File to write; its ending chooses the format.")] = None,
    certificate: CertificateOption = None,
    box: Annotated[
        str | None, typer.Option("--box", help="Bound what rounding changes on these inputs: lo,hi or as for distance.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rescale neurons to a prescribed balance without changing the function (exit 1 if out of reach)."""
    from lawful.api.invariant_set import balanced_graph
    from lawful.invariant_set import components as find_components
    from lawful.report.structure.components import rebalance_json, rebalance_text

    objective = call.options["objective"]
    if objective is not None:
        if balance != "zero" or box is not None:
            raise LawfulError("--objective chooses the balance itself: leave out --balance and --box")
        if objective not in ("norm", "range"):
            raise LawfulError(f"--objective is norm or range, not {objective[:40]!r}")
        represent(call.named, objective, call.options["data"], out, certificate, as_json)
        return
    will_write(out, certificate)
    graph = balanced_graph(call.network, call.reading)
    target = {"zero": 0.0, "unlock": "unlock"}.get(balance)
    if target is None:
        target = read_balance(Path(balance))
    with working("rebalancing"):
        rescaled = call.ask(graph, balance=target, certified=certificate is not None)
    locked = find_components(graph).log2_components, rescaled.locked
    stored = None if out is None else write(graph, rescaled, out, Path(call.network))
    if certificate is not None:
        write_certificate(certificate, rescaled.certificate())
    change = function_change(graph.to_dag(), rescaled.dag, call.options["input"])
    most = None if box is None else change_bound(graph, rescaled, box)
    if as_json:
        print_json(rebalance_json(rescaled, locked, change, out) | {"output_change_bound": most} | stored_json(stored))
    else:
        typer.echo(rebalance_text(rescaled, locked, change, out))
        if most is not None:
            typer.echo(outputs_move_at_most(most))
        say_rounding(stored, certificate)
    if not rescaled.reached:
        raise typer.Exit(1)


@subcommand()
def singular(
    call: ApiCall,
    certificate: Annotated[Path | None, typer.Option(help="Save the evidence of --exist for `lawful verify`.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Rank of the invariant set's Jacobian, cut-off neurons, and singular values (exit 3: --exist is undecided)."""
    if certificate is not None and not call.options["exist"]:
        raise LawfulError("--certificate saves the answer to --exist: give both")
    will_write(certificate)
    answer = call()
    if answer.evidence is not None:
        save_evidence(certificate, answer.certificate)
    show(answer, as_json)
    if answer.exist is not None and answer.exist.exist is None:
        raise typer.Exit(3)


def read_balance(file: Path) -> Any:
    """A balance file: an object by node name, or a list in node order; decimals are read as the fractions they are."""
    from lawful.formats.io.reading import read_json

    if not file.exists():
        raise LawfulError(f"--balance: {file} is not a file (zero, unlock, or a JSON file of balances)")
    content = read_json(file, number=str)
    if not isinstance(content, (dict, list)):
        raise LawfulError(f'{file}: a balance is {{"node": number, ...}} or a list of numbers')
    return content


def write(source: Mlp | Dag | EntryGraph, rescaled: Rebalanced, out: Path, like: Path) -> Written | None:
    """The rescaled network in the form it came in."""
    from lawful.invariant_set import EntryGraph
    from lawful.network import Mlp

    if isinstance(rescaled.dag, EntryGraph):
        from lawful.sources.checkpoints.save import write_weights

        write_weights(rescaled.dag.state(), out, like=like)
        return None
    from lawful.sources.files import write as write_network

    return write_network(source.with_theta(rescaled.dag.theta) if isinstance(source, Mlp) else rescaled.dag, out)


def change_bound(source: Mlp | Dag | EntryGraph, rescaled: Rebalanced, box: str) -> float:
    """A certified bound of what the rescaled network changes on a box."""
    from lawful.bounds.distance import bound_of_difference
    from lawful.formats.queries.box import box_of
    from lawful.invariant_set import EntryGraph

    if isinstance(source, EntryGraph) or isinstance(rescaled.dag, EntryGraph):
        raise LawfulError("--box bounds networks of layers and graphs, not modules with shared weights")
    return bound_of_difference(source, rescaled.dag, box_of(box, rescaled.dag))


def function_change(before: Dag | EntryGraph, after: Dag | EntryGraph, input_text: str | None = None) -> float:
    """The largest relative change of the outputs on a batch of random inputs."""
    import numpy as np

    from lawful.invariant_set import EntryGraph

    if isinstance(before, EntryGraph) or isinstance(after, EntryGraph):
        from lawful.symmetry.orbit import output_difference

        return output_difference(before.module, after.filled, input_text)  # type: ignore[union-attr]
    batch = np.random.default_rng(0).normal(size=(64, len(before.inputs)))
    outputs = before.evaluate(batch)
    return float(np.abs(after.evaluate(batch) - outputs).max() / max(float(np.abs(outputs).max()), 1e-300))
