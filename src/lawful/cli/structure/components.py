"""`lawful components`, `lawful path`, `lawful rebalance`: where training can go (paper 0)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.cli.checkpoints.representatives import represent
from lawful.cli.output import print_json, say, say_rounding, stored_json, will_write, write_certificate
from lawful.cli.progress import working
from lawful.cli.source import CertificateOption, JsonOption, Named, reads, takes_network
from lawful.errors import LawfulError
from lawful.sentences.bounds import outputs_move_at_most

if TYPE_CHECKING:
    from lawful.invariant_set import EntryGraph, Rebalanced
    from lawful.network import Dag, Mlp
    from lawful.sources.files import Written

BalanceOption = Annotated[
    Path | None, typer.Option("--balance", help='Another balance: JSON, {"node": number} or a list in node order.')
]


@takes_network
def components(
    named: Named,
    balance: BalanceOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Print balances and minima as fractions.")] = False,
    tolerance: Annotated[
        float, typer.Option(help="Total error of the balance to allow for; what it leaves open is exit 3.")
    ] = 0.0,
    certificate: Annotated[Path | None, typer.Option(help="Save the proof for `lawful verify`.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Connected components of the invariant set: which weights can never change sign, and why."""
    from lawful.invariant_set import components as decide
    from lawful.invariant_set import locked_outputs
    from lawful.invariant_set.certificate import certificate as evidence
    from lawful.invariant_set.certificate import refuse_large
    from lawful.network import Architecture
    from lawful.report.structure.components import components_json, components_text

    will_write(certificate)
    source = named.balanced()
    if isinstance(source, Architecture):
        source = source.initialise(seed=named.seed) if balance is None else source.to_dag()
    given = None if balance is None else read_balance(balance)
    if certificate is not None:
        refuse_large(source)
    with working("looking for locked weights"):
        found = decide(source, given, tolerance=tolerance)
    if certificate is not None:
        with working("writing the proof"):
            write_certificate(certificate, evidence(found))
    meanings = locked_outputs(found)
    say(as_json, components_json(found, meanings, exact), components_text(found, meanings))
    if found.connected and (found.marginal or found.beyond):
        raise typer.Exit(3)


@reads("activation", "model", "order", "input")
def path(
    named: Named,
    start: Annotated[str, typer.Argument(metavar="A", help="Network at the start.")],
    stop: Annotated[str, typer.Argument(metavar="B", help="Network at the end, of the same shape.")],
    points: Annotated[
        int, typer.Option(help="How many points of the path to sample and check.", min=2, max=1_000_000)
    ] = 50,
    out: Annotated[Path | None, typer.Option(help="Save the points: .npz with `time` and `theta`.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Total difference of balance to allow for [default: rounding of weights].")
    ] = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """A path between two networks that training could take, or the signs that forbid it (exit 1; 3: undecided)."""
    import numpy as np

    from lawful.formats.io.writing import write_bytes
    from lawful.formats.tensors.npz import dump
    from lawful.invariant_set import Apart, Unsettled, WeightPath, find_path, path_certificate
    from lawful.invariant_set.certificate import refuse_large
    from lawful.report.structure.components import path_json, path_text

    will_write(out, certificate)
    first, last = (_graph(named.of(each)) for each in (start, stop))
    if certificate is not None:
        refuse_large(first)
    with working("looking for a path"):
        found = find_path(first, last, tolerance=tolerance)
    if out is not None and isinstance(found, WeightPath):
        times = np.linspace(0, 1, points)
        arrays = {"time": times, "theta": np.stack([found.at(time) for time in times])}
        write_bytes(out, dump(arrays, None))
    if certificate is not None and not isinstance(found, Unsettled):
        write_certificate(certificate, path_certificate(first, last, found))
    say(as_json, path_json(found, first.to_dag(), points), path_text(found, first.to_dag(), points))
    if not isinstance(found, WeightPath):
        raise typer.Exit(1 if isinstance(found, Apart) else 3)


@takes_network
def rebalance(
    named: Named,
    balance: Annotated[str, typer.Option("--balance", help="zero, unlock, or a JSON file of balances.")] = "zero",
    objective: Annotated[
        str | None, typer.Option(help="norm: the smallest weights; range: those that quantise best; heads used too.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="With --objective: data on which rounded outputs count.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write; its ending chooses the format.")] = None,
    certificate: CertificateOption = None,
    box: Annotated[
        str | None, typer.Option("--box", help="Bound what rounding changes on these inputs: lo,hi or as for distance.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rescale neurons to a prescribed balance without changing the function (exit 1 if out of reach)."""
    if objective is not None:
        if balance != "zero" or box is not None:
            raise LawfulError("--objective chooses the balance itself: leave out --balance and --box")
        if objective not in ("norm", "range"):
            raise LawfulError(f"--objective is norm or range, not {objective[:40]!r}")
        represent(named, objective, data, out, certificate, as_json)
        return
    if data is not None:
        raise LawfulError("--data goes with --objective")
    from lawful.invariant_set import components as decide
    from lawful.invariant_set import rebalance_certificate, unlock
    from lawful.invariant_set.module_graph import as_dag
    from lawful.invariant_set.rebalance import rebalance as balanced_at
    from lawful.report.structure.components import rebalance_json, rebalance_text

    will_write(out, certificate)
    found = _graph(named)
    if certificate is not None:
        as_dag(found.to_dag())  # a certificate is about graphs of scalar weights: known before the work
    target = read_balance(Path(balance)) if balance not in ("zero", "unlock") else 0.0
    with working("rebalancing"):
        done = unlock(found) if balance == "unlock" else balanced_at(found, target)
    locked = decide(found).log2_components, done.locked
    stored = None if out is None else write(found, done, out, Path(named.text))
    if certificate is not None:
        write_certificate(certificate, rebalance_certificate(found, done))
    change = function_change(found.to_dag(), done.dag, named.input_text)
    most = None if box is None else change_bound(found, done, box)
    if as_json:
        print_json(rebalance_json(done, locked, change, out) | {"output_change_bound": most} | stored_json(stored))
    else:
        typer.echo(rebalance_text(done, locked, change, out))
        if most is not None:
            typer.echo(outputs_move_at_most(most))
        say_rounding(stored, certificate)
    if not done.reached:
        raise typer.Exit(1)


def read_balance(file: Path) -> Any:
    """A balance file: an object by node name, or a list in node order; decimals are read as the fractions they are."""
    from lawful.formats.io.reading import read_json

    if not file.exists():
        raise LawfulError(f"--balance: {file} is not a file (zero, unlock, or a JSON file of balances)")
    found = read_json(file, number=str)
    if not isinstance(found, (dict, list)):
        raise LawfulError(f'{file}: a balance is {{"node": number, ...}} or a list of numbers')
    return found


def _graph(named: Named) -> Mlp | Dag | EntryGraph:
    """The graph of its balances, with weights."""
    from lawful.network import Architecture

    found = named.balanced()
    return named.network() if isinstance(found, Architecture) else found


def write(source: Mlp | Dag | EntryGraph, done: Rebalanced, out: Path, like: Path) -> Written | None:
    """The rescaled network in the form it came in."""
    from lawful.invariant_set import EntryGraph
    from lawful.network import Mlp

    if isinstance(done.dag, EntryGraph):
        from lawful.sources.checkpoints.save import write_weights

        write_weights(done.dag.state(), out, like=like)
        return None
    from lawful.sources.files import write as write_network

    return write_network(source.with_theta(done.dag.theta) if isinstance(source, Mlp) else done.dag, out)


def change_bound(source: Mlp | Dag | EntryGraph, done: Rebalanced, box: str) -> float:
    """A certified bound of what the rescaled network changes on a box."""
    from lawful.bounds.distance import bound_of_difference
    from lawful.formats.queries.box import box_of
    from lawful.invariant_set import EntryGraph

    if isinstance(source, EntryGraph) or isinstance(done.dag, EntryGraph):
        raise LawfulError("--box bounds networks of layers and graphs, not modules with shared weights")
    return bound_of_difference(source, done.dag, box_of(box, done.dag))


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
