"""What the user typed for NETWORK becomes a network: a file, a `module:factory`, or an architecture."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from lawful.errors import InvalidNetwork, LawfulError

if TYPE_CHECKING:
    import torch

    from lawful.network import Architecture, Dag, Mlp

Options = ParamSpec("Options")
NetworkArgument = Annotated[str, typer.Argument(metavar="NETWORK", help="File, module:factory, or architecture.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed for random weights and random choices.")]
ActivationOption = Annotated[
    str | None, typer.Option("--activation", help="For files that name none: relu, leaky_relu(SLOPE) or linear.")
]
DropOption = Annotated[
    bool,
    typer.Option("--drop-useless", help="Remove hidden nodes on no path from input to output instead of refusing."),
]
InputOption = Annotated[
    str | None, typer.Option("--input", help="Input size of a module or ONNX file, without the batch: 3,8,8.")
]


def input_shape(text: str | None) -> tuple[int, ...] | None:
    """Read `3,8,8`."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", text):
        raise LawfulError(f"--input takes sizes like 3,8,8, not {text[:40]!r}")
    return tuple(int(size) for size in text.split(","))


def is_module(text: str) -> bool:
    """Whether the text names a factory, such as `package.module:make`."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text) is not None and not Path(text).exists()


def open_module(text: str) -> torch.nn.Module:
    """Import `module:factory` (the current folder counts) and call it for a `torch.nn.Module`."""
    import torch

    where, name = text.split(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        factory = getattr(importlib.import_module(where), name)
    except (ImportError, AttributeError) as error:
        raise LawfulError(f"cannot import {text}: {error}") from None
    module = factory() if not isinstance(factory, torch.nn.Module) else factory
    if not isinstance(module, torch.nn.Module):
        raise LawfulError(f"{text} gave a {type(module).__name__}, not a torch.nn.Module")
    return module


def open_source(
    text: str, *, activation: str | None = None, drop_useless: bool = False, shape: tuple[int, ...] | None = None
) -> Architecture | Mlp | Dag:
    """The network that the user named; an architecture string stays without weights."""
    if is_module(text):
        from lawful.network.modules.convert import from_module

        return from_module(open_module(text), shape, drop_useless=drop_useless)
    if re.match(r"\s*\d+-", text) and not Path(text).exists():
        from lawful.network import Architecture

        return Architecture.parse(text)
    from lawful.network.formats.files import FORMATS, read

    path = Path(text)
    if path.suffix.lower() not in FORMATS:
        raise InvalidNetwork(
            f"{text[:80]!r} is neither a file ({', '.join(FORMATS)}), nor module:factory, "
            "nor an architecture like '3-4-2 relu'"
        )
    return read(path, activation=activation, drop_useless=drop_useless, input_shape=shape)


def open_network(
    text: str,
    *,
    seed: int = 0,
    activation: str | None = None,
    drop_useless: bool = False,
    shape: tuple[int, ...] | None = None,
) -> Mlp | Dag:
    """Like `open_source`, but an architecture string gets PyTorch's default weights from `seed`."""
    source = open_source(text, activation=activation, drop_useless=drop_useless, shape=shape)
    from lawful.network import Architecture

    return source.initialise(seed=seed) if isinstance(source, Architecture) else source


@dataclass(frozen=True)
class Named:
    """The NETWORK that a user named, and how the options say to read it."""

    text: str
    activation: str | None
    drop_useless: bool
    shape: tuple[int, ...] | None
    seed: int

    def source(self) -> Architecture | Mlp | Dag:
        """The network; an architecture string stays without weights."""
        return open_source(self.text, activation=self.activation, drop_useless=self.drop_useless, shape=self.shape)

    def network(self) -> Mlp | Dag:
        """The network with weights."""
        return open_network(
            self.text, seed=self.seed, activation=self.activation, drop_useless=self.drop_useless, shape=self.shape
        )


def _named(
    network: NetworkArgument,
    activation: ActivationOption = None,
    drop_useless: DropOption = False,
    input_size: InputOption = None,
    seed: SeedOption = 0,
) -> Named:
    return Named(network, activation, drop_useless, input_shape(input_size), seed)


def takes_network(verb: Callable[Concatenate[Named, Options], None]) -> Callable[..., None]:
    """Give a verb whose first parameter is a `Named` the argument NETWORK and the options that go with it."""
    network, *reading = inspect.signature(_named, eval_str=True).parameters.values()
    _, *own, as_json = inspect.signature(verb, eval_str=True).parameters.values()
    parameters = [network, *own, *reading, as_json]

    def command(**given: Any) -> None:
        named = _named(**{each.name: given.pop(each.name) for each in (network, *reading)})
        verb(named, **given)  # type: ignore[call-arg]

    command.__name__, command.__doc__, command.__module__ = verb.__name__, verb.__doc__, verb.__module__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
