"""`lawful align`: one checkpoint brought into the place of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.cli.output import note_readings, print_json, will_write
from lawful.cli.source import (
    ActivationOption,
    InputsOption,
    JsonOption,
    ModelBOption,
    ModelOption,
    OrderOption,
)


def align(
    first: Annotated[str, typer.Argument(metavar="A", help="The checkpoint to which B is brought.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another checkpoint of the same architecture.")],
    out: Annotated[Path | None, typer.Option(help="Write B, aligned, to this file.")] = None,
    model: ModelOption = None,
    model_b: ModelBOption = None,
    input_size: InputsOption = None,
    activation: ActivationOption = None,
    order: OrderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring B as near to A as its function allows: order of units and heads, scales, rotations."""
    from lawful.api.two_networks import TwoNetworks
    from lawful.checkpoints.pair import align_pair
    from lawful.report.checkpoints.checkpoints import aligned_json, aligned_text
    from lawful.sources.checkpoints.save import write_weights

    will_write(out)
    pair, readings = TwoNetworks(first, second, model, model_b, input_size, activation, order).one_form()
    note_readings(readings)
    found = align_pair(pair)
    if out is not None:
        write_weights(found.weights, out, like=Path(second))
    written = None if out is None else str(out)
    if as_json:
        print_json(aligned_json(found, written))
    else:
        typer.echo(aligned_text(found, written))


class FloatTensors(Mapping[str, Any]):
    """The floating tensors of a file, each in float64 when it is asked for; its pages are let go then."""

    def __init__(self, path: Path) -> None:
        from lawful.formats.io.reading import naming, read_json
        from lawful.sources.checkpoints.save import translated_state

        with naming(path):
            state = translated_state(path)
            config = path / "config.json"
            self.settings = read_json(config) if config.is_file() else None
        self._held = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}

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
