"""`lawful verify`: re-check a saved certificate with code that did not make it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.api.inputs import DrawOptions
from lawful.cli.checkpoints import FloatTensors
from lawful.cli.output import print_json, say
from lawful.cli.subcommand import ApiCall, BoxOption, JsonOption, Named, subcommand
from lawful.errors import CertificateError, LawfulError, NotACertificate, Unsupported

BalanceOption = Annotated[
    Path | None, typer.Option("--balance", help="A JSON file of balances that it should be about.")
]


@subcommand(reads=DrawOptions, without=("network",))
def verify(
    call: ApiCall,
    file: Annotated[Path, typer.Argument(help="A certificate that another subcommand saved.")],
    networks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK|DATA|SPEC.vnnlib]...", help="Networks, data, runs and questions that it should be about."
        ),
    ] = None,
    box: BoxOption = None,
    balance: BalanceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-check a saved certificate with separate code: 0 verified, 1 rejected, 2 not a certificate."""
    named = call.named
    from lawful.api.binding import need_balance, need_box, need_specification
    from lawful.api.specifications import is_about_several
    from lawful.cli.components import read_balance
    from lawful.formats.io.reading import read_bytes
    from lawful.report.verify import rejected_json, rejected_text, verified_json, verified_text
    from lawful.verify import speaks_of_files
    from lawful.verify import verify as check
    from lawful.verify.core.schema import MOST_BYTES

    content = read_bytes(file, MOST_BYTES)
    try:
        of_files = speaks_of_files(content)
    except NotACertificate as error:
        raise NotACertificate(f"{file}: {error}") from None
    asked = [Path(text) for text in networks or [] if text.lower().endswith((".vnnlib", ".vnnlib.gz"))]
    things = [text for text in networks or [] if Path(text) not in asked]
    several = next((each for each in asked if is_about_several(each)), None)
    given: list[Any]
    if of_files:
        given = [FloatTensors(Path(text)) for text in things]
    elif several is not None and things:
        things, given = _read_several(content, things, several, named)
    else:
        given = [_read_named(named.of(text)) for text in things]
    try:
        found = check(content, *given)
        bound = named.model if found.kind == "checkpoint-copy" else None
        if bound is not None and len(things) == 2:
            from lawful.api.binding import need_model

            need_model(content, found.facts, (Path(things[0]), Path(things[1])), bound, named.input_text)
        answered = [need_specification(found.kind, found.facts, specification) for specification in asked]
        if box is not None:
            need_box(found.facts, box)
        if balance is not None:
            names = _node_names(named.of(things[0])) if things else None
            need_balance(found.facts, read_balance(balance), names, balance)
    except CertificateError as error:
        say(as_json, rejected_json(error), rejected_text(error))
        raise typer.Exit(1) from None
    except (NotACertificate, Unsupported) as error:
        raise type(error)(f"{file}: {error}") from None
    print_json(verified_json(found)) if as_json else typer.echo(
        verified_text(found, things, dict(zip(map(str, asked), answered, strict=True)), model=bound)
    )


@dataclass(frozen=True)
class Names:
    """All digests that what a user named can have: one file may hold a network, or data."""

    digests: tuple[str, ...]
    text: str = ""
    sources: tuple[Any, ...] = ()  # where tensors are that a certificate holds by their digests


def _node_names(named: Named) -> list[str]:
    """The names of the hidden nodes of a network, in order."""
    graph = named.network().to_dag()
    return [graph.names[node] for node in graph.hidden]


def _read_named(named: Named) -> Names:
    """Read it in every way that fits; if none does, the reason is that of a network."""
    from lawful.verify.core.binding import digests_of
    from lawful.verify.core.tensors import GivenTensors

    path = Path(named.text)
    ways: tuple[Callable[[], Iterator[Any]], ...] = (
        lambda: _data(path),
        lambda: _run(path),
        lambda: _channels(path),
        lambda: _tensors(path),
        lambda: _module(named),
    )
    found: list[str] = []
    sources: list[Any] = []
    for way in ways:
        try:
            for thing in way():
                found += digests_of(thing)
                sources += [thing] if isinstance(thing, GivenTensors) else []
        except LawfulError:
            continue
    try:
        found += digests_of(named.network())
    except LawfulError:
        if not found:
            raise
    return Names(tuple(dict.fromkeys(found)), named.text, tuple(sources))


def _read_several(content: bytes, things: list[str], file: Path, named: Named) -> tuple[list[str], list[Names]]:
    """The networks that a file declares, or if the certificate is about that the one that runs them side by side."""
    from lawful.api.specifications import assign, joint_network, joint_question, split_name
    from lawful.formats.queries.vnnlib import read_vnnlib
    from lawful.verify.core.binding import digests_of

    sources = assign(read_vnnlib(file), [split_name(each) for each in things], file)
    opened = {each: named.of(each).network() for each in dict.fromkeys(sources.values())}
    networks = {name: opened[source] for name, source in sources.items()}
    question = joint_question(file, networks)
    kind = json.loads(content).get("kind")
    if kind == "specification":
        joint = joint_network(networks, question)
        return [" and ".join(opened)], [Names(tuple(digests_of(joint)))]
    about = list(sources.values()) if kind == "distance" else list(opened)
    return about, [Names(tuple(digests_of(opened[each])), each) for each in about]


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
    from lawful.api.training.leaky_files import is_run, load_network, load_task, read_run

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
        from lawful.pruning.channels.onnx_file import weights_of
        from lawful.verify.core.tensors import GivenTensors

        yield GivenTensors(weights_of(model))


def _tensors(path: Path) -> Iterator[Any]:
    """A file of weights as it is, whatever module they belong to."""
    from lawful.verify.core.tensors import SafeTensors

    if path.suffix.lower() == ".safetensors" and path.is_file():
        yield SafeTensors(path)


def _module(named: Named) -> Iterator[Any]:
    """A module as its weights, and as the program that its laws are about."""
    from torch import nn

    from lawful.conservation.programs.digest import file_digest, program_digests
    from lawful.sources.checkpoints.load import is_factory
    from lawful.sources.opening import open_trained
    from lawful.verify.core.tensors import GivenTensors

    is_onnx = Path(named.text).suffix.lower() == ".onnx"
    if not is_factory(named.text) and named.model is None and not is_onnx:
        return
    if is_onnx:
        with suppress(LawfulError):  # a file of which no proof speaks
            yield Names((file_digest(named.text),))
    module = open_trained(named.anything())
    if isinstance(module, nn.Module):
        yield GivenTensors(module.state_dict())
        yield Names(program_digests(module, named.shape))
