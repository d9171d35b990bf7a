"""`lawful verify`: re-check a saved certificate with code that did not make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.cli.checkpoints.align import FloatTensors
from lawful.cli.output import print_json
from lawful.cli.source import (
    ActivationOption,
    DropOption,
    InputOption,
    JsonOption,
    ModelOption,
    OrderOption,
    SeedOption,
    input_shape,
    is_module,
    open_anything,
    open_network,
)
from lawful.errors import CertificateError, LawfulError, NotACertificate, Unsupported


def add_to(app: typer.Typer) -> None:
    """Register the subcommand."""
    app.command()(verify)


def verify(
    file: Annotated[Path, typer.Argument(help="A certificate that another subcommand saved.")],
    networks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NETWORK|DATA]...", help="Networks, data and runs that it should be about."),
    ] = None,
    activation: ActivationOption = None,
    model: ModelOption = None,
    order: OrderOption = None,
    drop_useless: DropOption = False,
    input_size: InputOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Re-check a saved certificate with separate code: 0 verified, 1 rejected, 2 not a certificate."""
    from lawful.formats.io.reading import read_bytes
    from lawful.report.verify import rejected_json, rejected_text, verified_json, verified_text
    from lawful.verify import speaks_of_files
    from lawful.verify import verify as check
    from lawful.verify.schema import MOST_BYTES

    reading = {"activation": activation, "model": model, "order": order, "shape": input_shape(input_size)}
    content = read_bytes(file, MOST_BYTES)
    try:
        of_files = speaks_of_files(content)
    except NotACertificate as error:
        raise NotACertificate(f"{file}: {error}") from None
    given: list[Any] = (
        [FloatTensors(Path(text)) for text in networks or []]
        if of_files
        else [_named(text, seed, reading | {"drop_useless": drop_useless}) for text in networks or []]
    )
    try:
        found = check(content, *given)
    except CertificateError as error:
        print_json(rejected_json(error)) if as_json else typer.echo(rejected_text(error))
        raise typer.Exit(1) from None
    except (NotACertificate, Unsupported) as error:
        raise type(error)(f"{file}: {error}") from None
    print_json(verified_json(found)) if as_json else typer.echo(verified_text(found, networks or []))


@dataclass(frozen=True)
class Names:
    """All digests that what a user named can have: one file may hold a network, or data."""

    digests: tuple[str, ...]


def _named(text: str, seed: int, reading: dict[str, Any]) -> Names:
    """Read it in every way that fits; if none does, the reason is that of a network."""
    from lawful.verify.binding import names_of

    ways: tuple[Callable[[], Iterator[Any]], ...] = (
        lambda: _data(Path(text)),
        lambda: _run(Path(text)),
        lambda: _channels(Path(text)),
        lambda: _module(text, reading),
    )
    found: list[str] = []
    for way in ways:
        try:
            for thing in way():
                found += names_of(thing)
        except LawfulError:
            continue
    try:
        found += names_of(open_network(text, seed=seed, **reading))
    except LawfulError:
        if not found:
            raise
    return Names(tuple(dict.fromkeys(found)))


def _data(path: Path) -> Iterator[Any]:
    """Points, with their targets or with labels as clusters number them."""
    from lawful.formats.queries.data import FORMATS, read_data
    from lawful.papers.truncation.clusters import Clusters

    if path.suffix.lower() in FORMATS and path.exists():
        data = read_data(path)
        yield data.x, data.y
        if data.classes is not None:
            clusters = Clusters(data.x, data.classes)
            yield clusters.points, clusters.labels


def _run(path: Path) -> Iterator[Any]:
    """The networks and the data of a run of Leaky ResNets, or one network of it."""
    from lawful.api.leaky.files import is_run, load_network, load_task, read_run

    if path.is_dir() and is_run(path):
        for network, _ in read_run(path)[1]:
            yield network
        task = load_task(path / "train.npz")
        yield task.inputs, task.targets
    elif path.suffix == ".npz" and path.exists():
        yield load_network(path)


def _channels(path: Path) -> Iterator[Any]:
    """An ONNX file as the weights of its channels."""
    from lawful.api.prune import channel_file, convolutional_file

    if (model := convolutional_file(path) or channel_file(path)) is not None:
        import torch

        from lawful.pruning.channels.certificate import weights_digest
        from lawful.pruning.files.onnx_channels import weights_of

        held = {name: torch.from_numpy(array.copy()) for name, array in weights_of(model).items()}
        yield Names((weights_digest(held),))


def _module(text: str, reading: dict[str, Any]) -> Iterator[Any]:
    """A module as its weights, and as the program that its laws are about."""
    from torch import nn

    from lawful.conservation.programs.digest import file_digest, program_digests
    from lawful.sources.opening import open_trained
    from lawful.verify.channel_program import digest_of as weights_digest_of

    if not is_module(text) and reading["model"] is None and Path(text).suffix.lower() != ".onnx":
        return
    if Path(text).suffix.lower() == ".onnx":
        with suppress(LawfulError):  # a file of which no proof speaks
            yield Names((file_digest(text),))
    module = open_trained(open_anything(text, **reading))
    if isinstance(module, nn.Module):
        name = weights_digest_of(module)
        yield Names(() if name is None else (name,))
        yield Names(program_digests(module, reading["shape"]))
