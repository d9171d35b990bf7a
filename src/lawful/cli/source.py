"""What the user typed for NETWORK becomes a network, and what was assumed about it is said."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from lawful.api.inputs import BOX_HELP, DrawOptions, ReadOptions
from lawful.cli.output import note_reading
from lawful.errors import LawfulError

if TYPE_CHECKING:
    import torch

    from lawful.invariant_set.module_graph import EntryGraph
    from lawful.network import Architecture, Dag, Mlp
    from lawful.sources.modules.module_network import ModuleNetwork

Options = ParamSpec("Options")
Verb = Callable[Concatenate["Named", Options], None]
# What reading a network takes is named and explained once, where Python takes it.
HELP = {name: hint.__metadata__[0].text for name, hint in get_type_hints(DrawOptions, include_extras=True).items()}
NetworkArgument = Annotated[
    str, typer.Argument(metavar="NETWORK", help="File, folder, module:factory, architecture, or - for standard input.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
SeedOption = Annotated[int, typer.Option("--seed", help=HELP["seed"], min=0)]
ActivationOption = Annotated[str | None, typer.Option("--activation", help=HELP["activation"])]
ModelOption = Annotated[str | None, typer.Option("--model", help=HELP["model"])]
ModelBOption = Annotated[
    str | None, typer.Option("--model-b", help="module:factory for B, where B's module is written in another way.")
]
OrderOption = Annotated[str | None, typer.Option("--order", help=HELP["order"])]
DropOption = Annotated[bool, typer.Option("--drop-useless", help=HELP["drop_useless"])]


def with_commas(text: Any) -> Any:
    """`3x8x8` as `3,8,8`: both are written for sizes; of an option that is given several times, each.

    >>> with_commas("3x8x8;8:int"), with_commas(["x=8:int"]), with_commas(None)
    ('3,8,8;8:int', ['x=8:int'], None)
    """
    if isinstance(text, list):
        return [with_commas(each) for each in text]
    return re.sub(r"(?<=\d)[x×](?=\d)", ",", text) if isinstance(text, str) else text


InputOption = Annotated[str | None, typer.Option("--input", help=HELP["input"], callback=with_commas)]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", help="Size of an input without the batch: 3,8,8, or 8:int for token ids.", callback=with_commas
    ),
]
CertificateOption = Annotated[Path | None, typer.Option("--certificate", help="Save the evidence for `lawful verify`.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", help="Write a page to this file.")]
BoxOption = Annotated[str | None, typer.Option("--box", help=f"Ask on a box: {BOX_HELP}")]


def format_options(options: Mapping[str, object]) -> str:
    """Options that were given, as a command takes them again: what a page prints must work as printed.

    >>> format_options({"model": "nets:gpt", "model_b": None, "box": "-1,1"})
    ' --model nets:gpt --box=-1,1'
    """
    words = []
    for name, value in options.items():
        flag, text = f" --{name.replace('_', '-')}", shlex.quote(str(value))
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words.append(f"{flag}{'=' if text.startswith('-') else ' '}{text}")
    return "".join(words)


def input_shape(text: str | None) -> tuple[int, ...] | None:
    """Read `3,8,8`; token ids (`8:int`) and several inputs (`3;8:int`) are no shape of real numbers."""
    one = r"\d{1,6}(,\d{1,6})*"
    named = rf"[\w.]+={one}(:int)?([;,][\w.]+={one}(:int)?)*"
    if text is None or re.fullmatch(rf"{one}:int|{one}(:int)?(;{one}(:int)?)+|{named}", text):
        return None
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", text):
        raise LawfulError(f"--input takes sizes like 3,8,8, or 8:int for token ids, not {text[:40]!r}")
    return tuple(int(size) for size in text.split(","))


def is_module(text: str) -> bool:
    """Whether the text names a factory, such as `package.module:make`."""
    from lawful.sources.checkpoints.load import is_factory

    return is_factory(text)


def open_module(text: str) -> torch.nn.Module:
    """Import `module:factory` (the current folder counts) and call it for a `torch.nn.Module`."""
    from lawful.sources.checkpoints.load import make_module

    return make_module(text)


def open_anything(
    text: str,
    *,
    activation: str | None = None,
    drop_useless: bool = False,
    shape: tuple[int, ...] | None = None,
    model: str | None = None,
    order: str | None = None,
) -> Architecture | Mlp | Dag | ModuleNetwork:
    """The network that the user named, whatever it is; what was assumed is said once."""
    from lawful.sources.opening import open as open_any

    chosen: dict[str, Any] = {"activation": activation, "model": model, "order": order, "input_shape": shape}
    found = open_any(text, drop_useless=drop_useless, **chosen)
    if found.reading is not None:
        note_reading(found.reading)
    return found


def open_source(text: str, **options: Any) -> Architecture | Mlp | Dag:
    """The network as a graph; an architecture string stays without weights, other modules are refused with a reason."""
    from lawful.sources.modules.module_network import ModuleNetwork

    found = open_anything(text, **options)
    if isinstance(found, ModuleNetwork):
        found.to_dag()
    return found


def open_network(text: str, *, seed: int = 0, **options: Any) -> Mlp | Dag:
    """Like `open_source`, but an architecture string gets PyTorch's default weights from `seed`."""
    from lawful.network import Architecture
    from lawful.sources.opening import open_graph

    found = open_source(text, **options)
    if not isinstance(found, Architecture):
        return found
    drawn = open_graph(found, seed=seed)
    if drawn.reading is not None:
        note_reading(drawn.reading, instead_of=found.reading)
    return drawn


@dataclass(frozen=True)
class Named:
    """The NETWORK that a user named, and how the options say to read it."""

    text: str = ""
    activation: str | None = None
    model: str | None = None
    order: str | None = None
    drop_useless: bool = False
    input_text: str | None = None
    seed: int = 0

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The size of one input of real numbers, if that is what was given."""
        return input_shape(self.input_text)

    def of(self, text: str) -> Named:
        """Another network, read in the same way."""
        return replace(self, text=text)

    @property
    def words(self) -> str:
        """The options that were given, as a command takes them again."""
        given = {"activation": self.activation, "model": self.model, "order": self.order, "input": self.input_text}
        useless = " --drop-useless" * self.drop_useless
        return format_options(given | {"seed": self.seed or None}) + useless

    @property
    def asked(self) -> str:
        """NETWORK and every option that reading it took, as another subcommand takes them."""
        return shlex.quote(self.text) + self.words

    @property
    def read_options(self) -> ReadOptions:
        """The same for a function of `lawful`."""
        return {
            "model": self.model,
            "input": self.input_text,
            "activation": self.activation,
            "order": self.order,
            "drop_useless": self.drop_useless,
        }

    @property
    def _options(self) -> dict[str, Any]:
        names = ("activation", "drop_useless", "shape", "model", "order")
        return {name: getattr(self, name) for name in names}

    def anything(self) -> Architecture | Mlp | Dag | ModuleNetwork:
        """The network, whatever it is."""
        return open_anything(self.text, **self._options)

    def weighed(self, mode: str = "") -> Mlp | Dag | torch.nn.Module:
        """The network as it trains, with weights: an architecture's are drawn, and that is said."""
        from lawful.network import Architecture

        found = self.trained(mode)
        return self.network() if isinstance(found, Architecture) else found

    def trained(self, mode: str = "") -> Architecture | Mlp | Dag | torch.nn.Module:
        """The network as it trains: the module itself where a graph would have other parameters.

        The `mode` of normalisation is what the user chose, or assumed if nobody did.
        """
        from lawful.sources.opening import open_trained

        found = self.anything()
        if found.reading is not None:
            note_reading(found.reading.in_training(mode), instead_of=found.reading)
        return open_trained(found)

    def source(self) -> Architecture | Mlp | Dag:
        """The network; an architecture string stays without weights."""
        return open_source(self.text, **self._options)

    def balanced(self) -> Architecture | Mlp | Dag | EntryGraph:
        """The graph of its balances: its own weights, or the entries of the module that it is."""
        from lawful.invariant_set.module_graph import graph_of
        from lawful.network import Architecture

        found = self.anything()
        if found.reading is not None and found.reading.in_training_only:
            note_reading(found.reading.assuming(*found.reading.in_training_only), instead_of=found.reading)
        return found if isinstance(found, Architecture) else graph_of(found, self.input_text, shared=True)

    def network(self) -> Mlp | Dag:
        """The network with weights."""
        return open_network(self.text, seed=self.seed, **self._options)


def _read(
    activation: ActivationOption = None,
    model: ModelOption = None,
    order: OrderOption = None,
    drop_useless: DropOption = False,
    input: InputOption = None,
    seed: SeedOption = 0,
) -> Named:
    found = Named("", activation, model, order, drop_useless, input, seed)
    found.shape  # noqa: B018  # a size that is none is refused before anything is read
    return found


def takes_network(verb: Verb[Options]) -> Callable[..., None]:
    """Give a subcommand whose first parameter is a `Named` the argument NETWORK and the options that go with it."""
    network = inspect.Parameter("network", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=NetworkArgument)
    return _with_reading(verb, [network], tuple(inspect.signature(_read).parameters))


def reads(*names: str) -> Callable[[Verb[Options]], Callable[..., None]]:
    """Give a subcommand whose first parameter is a `Named` these options of reading, or all of them.

    `named.of(A)` is then a network that is read so.
    """
    return lambda verb: _with_reading(verb, [], names or tuple(inspect.signature(_read).parameters))


def _with_reading(verb: Verb[Options], first: list[inspect.Parameter], names: tuple[str, ...]) -> Callable[..., None]:
    every = inspect.signature(_read, eval_str=True).parameters
    _, *own, as_json = inspect.signature(verb, eval_str=True).parameters.values()
    parameters = [*first, *own, *(every[name] for name in names), as_json]

    def command(**given: Any) -> None:
        text = given.pop("network") if first else ""
        named = _read(**{name: given.pop(name) for name in names}).of(text)
        verb(named, **given)  # type: ignore[call-arg]

    command.__name__, command.__doc__, command.__module__ = verb.__name__, verb.__doc__, verb.__module__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command
