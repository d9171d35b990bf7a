"""`lawful align`, `find`, `merge`, and `rebalance` and `canonical` of modules: checkpoints as members of an orbit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.api.inputs import ModuleOptions
from lawful.cli.evidence import save_evidence
from lawful.cli.output import print_json, say, will_write, write_text
from lawful.cli.subcommand import ApiCall, HtmlOption, InputsOption, JsonOption, Named, format_options, subcommand

FirstArgument = Annotated[str, typer.Argument(metavar="A", help="A checkpoint, to which B is brought.")]
SecondArgument = Annotated[str, typer.Argument(metavar="B", help="Another checkpoint of the same architecture.")]


@subcommand()
def align(
    call: ApiCall,
    first: FirstArgument,
    second: SecondArgument,
    out: Annotated[Path | None, typer.Option(help="Write B, aligned, to this file.")] = None,
    input: InputsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring B as near to A as its function allows: order of units and heads, scales, rotations."""
    from lawful.report.checkpoints.checkpoints import aligned_json, aligned_text
    from lawful.sources.checkpoints.save import write_weights

    will_write(out)
    aligned = call(first, second, input=input)
    if out is not None:
        write_weights(aligned.weights, out, like=Path(second))
    written = None if out is None else str(out)
    say(as_json, aligned_json(aligned, written), aligned_text(aligned, written))


class FloatTensors(Mapping[str, Any]):
    """The floating tensors of a file, each in float64 when it is asked for; its pages are let go then.

    `others` names all other tensors by their numbers: a certificate says nothing of them.
    """

    def __init__(self, path: Path) -> None:
        from lawful.formats.io.reading import naming, read_json
        from lawful.sources.checkpoints.save import translated_state
        from lawful.verify.core.tensors import GivenTensors

        with naming(path):
            state = translated_state(path)
            config = path / "config.json"
            self.settings = read_json(config) if config.is_file() else None
        self._held = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
        given = GivenTensors(state)
        self.others = {name: given.line(name) for name in state if name not in self._held}

    def __getitem__(self, name: str) -> Any:
        import torch

        from lawful.formats.io.reading import let_go

        tensor = self._held[name]
        wide = tensor.to(torch.float64, copy=True).numpy()
        let_go(tensor)
        return wide

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


IndexOption = Annotated[
    Path, typer.Option("--index", help="The index file that `lawful fingerprint DIR --index` made.")
]


@subcommand(reads=ModuleOptions, without=("network", "activation", "order"))
def find(
    call: ApiCall,
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A file or folder with weights.")],
    index: IndexOption,
    input: InputsOption = None,
    top: Annotated[int, typer.Option(help="How many to list.")] = 10,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the checkpoints of an index that are most alike to one (exit 3: none has its architecture)."""
    from lawful.api.checkpoints.index import find as find_relatives
    from lawful.report.checkpoints.relatives import found_json, found_text, relatives_page

    will_write(html)
    model = call.options["model"]
    found = find_relatives(checkpoint, index, model=model, input=input, top=top)
    result = found_json(found)
    if html is not None:
        sizes = None if input is None else ";".join(input)
        write_text(html, relatives_page(found, checkpoint, format_options({"model": model, "input": sizes})))
    if as_json:
        print_json(result)
    else:
        typer.echo(found_text(result))
    if not result["relatives"]:
        raise typer.Exit(3)


def make_index(
    places: list[str],
    index: Path,
    model: str | None,
    sizes: list[str] | None,
    as_json: bool,
    scheduler: str | None = None,
    workers: int | None = None,
) -> None:
    """`lawful fingerprint DIR --index FILE`."""
    from lawful.api.checkpoints.index import checkpoints_in, index_folder
    from lawful.cli.output import counter
    from lawful.report.checkpoints.relatives import indexed_json, indexed_text

    with counter("checkpoints", len(checkpoints_in(places))) as tick:
        done = index_folder(
            places, index, model=model, input=sizes, scheduler=scheduler, workers=workers, progress=tick
        )
    result = indexed_json(done)
    if as_json:
        print_json(result)
    else:
        typer.echo(indexed_text(result))
    if done.failed and not done.added and not done.kept:
        raise typer.Exit(2)


@subcommand()
def merge(
    call: ApiCall,
    first: FirstArgument,
    second: SecondArgument,
    out: Annotated[Path | None, typer.Option(help="Write the mean to this file.")] = None,
    input: InputsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the mean of two checkpoints after bringing B's units into A's order, scale and axes."""
    from lawful.report.checkpoints.relatives import merged_json, merged_text
    from lawful.sources.checkpoints.save import write_weights

    will_write(out)
    mean = call(first, second, input=input)
    if out is not None:
        write_weights(mean.weights, out, like=Path(second))
    result = merged_json(mean, None if out is None else str(out))
    say(as_json, result, merged_text(result))


def represent(
    named: Named, purpose: str, data: Path | None, out: Path | None, certificate: Path | None, as_json: bool
) -> None:
    """Choose another member of the orbit, say what it is worth, write it. Exit 3 if its function is undecided."""
    from lawful.api.checkpoints.orbits import representative
    from lawful.checkpoints.compare.certificate import copy_certificate
    from lawful.report.checkpoints.relatives import representative_json, representative_text
    from lawful.sources.checkpoints.save import write_weights

    will_write(out, certificate)
    found = representative(
        named.text, purpose, data=data, model=named.model, input=named.input_text, seed=named.seed,
        activation=named.activation, order=named.order,
    )  # fmt: skip
    written = None if out is None else str(out)
    if out is not None:
        write_weights(found.weights, out, like=Path(named.text))
    print_json(representative_json(found, written)) if as_json else typer.echo(representative_text(found, written))
    saved = save_evidence(certificate, lambda: copy_certificate(found.pair, found.verdict))
    if not saved or not found.verdict.is_copy:
        raise typer.Exit(3)
