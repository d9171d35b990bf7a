"""Subcommands out of the functions of `lawful`: one signature says names, types, defaults and help of options.

`@subcommand()` makes a command of the function of that name in `lawful`. Each parameter of the function that has a
`Help` (`api/inputs.py`) is an option, and so are the ways to read a network that it takes. The command itself spells
what only a command line has (--json, --html, files to write) and what Python takes as an object; it calls the function
with `call(...)` and hands the result to `report`. A command that asks more than one function gets the options of
reading alone, `@subcommand(reads=DrawOptions)`, and opens `call.named` itself.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lawful.api import load
from lawful.api.inputs import BOX_HELP, DrawOptions, Help, ReadOptions
from lawful.cli.output import note_reading, note_readings
from lawful.errors import LawfulError

if TYPE_CHECKING:
    import torch

    from lawful.network import Architecture, Dag, Mlp
    from lawful.sources.modules.module_network import ModuleNetwork

READING = typing.get_type_hints(DrawOptions, include_extras=True)  # how to read a network, with help
# Of several types that Python takes, what a command line can give: a file before text before a number.
TYPES = (Path, str, float, int, bool)

NetworkArgument = Annotated[
    str, typer.Argument(metavar="NETWORK", help="File, folder, module:factory, architecture, or - for standard input.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed for random weights and random choices.", min=0)]
CertificateOption = Annotated[Path | None, typer.Option("--certificate", help="Save the evidence for `lawful verify`.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", help="Write a page to this file.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="Draw to a file: .svg, .png or .pdf.")]
BoxOption = Annotated[str | None, typer.Option("--box", help=f"Ask on a box: {BOX_HELP}")]


def with_commas(text: Any) -> Any:
    """`3x8x8` as `3,8,8`: both are written for sizes; of an option that is given several times, each.

    >>> with_commas("3x8x8;8:int"), with_commas(["x=8:int"]), with_commas(None)
    ('3,8,8;8:int', ['x=8:int'], None)
    """
    if isinstance(text, list):
        return [with_commas(each) for each in text]
    return re.sub(r"(?<=\d)[x×](?=\d)", ",", text) if isinstance(text, str) else text


InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", help="Size of an input without the batch: 3,8,8, or 8:int for token ids.", callback=with_commas
    ),
]


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


@dataclass(frozen=True)
class ApiCall:
    """The function behind a subcommand, its options, and the names of those that the user gave a value."""

    name: str
    options: Mapping[str, Any]
    typed: frozenset[str] = frozenset()

    def __call__(self, *sources: Any, **more: Any) -> Any:
        """The function's result; how its networks were read is said with it.

        `sources` stand for the parameters that come first, whatever was typed for them.
        """
        names = list(inspect.signature(load(self.name)).parameters)[: len(sources)]
        options = {name: value for name, value in self.options.items() if name not in names}
        result = load(self.name)(*sources, **{**options, **more})
        note_readings(result.readings)
        return result

    def ask(self, *networks: Any, **more: Any) -> Any:
        """The same of networks that are open already: how to read them has been said."""
        others = {name: value for name, value in self.options.items() if name not in ("network", *READING)}
        return ApiCall(self.name, others)(*networks, **more)

    @property
    def network(self) -> str:
        """What was typed for NETWORK."""
        return str(self.options["network"])

    @property
    def reading(self) -> dict[str, Any]:
        """The options that say how to read a network."""
        return {name: self.options[name] for name in READING if name in self.options}

    @property
    def named(self) -> Named:
        """NETWORK, and how the options say to read it, for commands that open it themselves."""
        taken = {name: self.options[name] for name in ("activation", "model", "order", "drop_useless", "seed")
                 if name in self.options}  # fmt: skip
        return Named(self.options.get("network", ""), **taken, input_text=self.options.get("input"))

    def format(self, *names: str) -> str:
        """Those of these options that were given, as they were typed: what a page prints must work as printed."""
        return format_options({name: self.options[name] for name in names if name in self.typed})


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
        names = ("activation", "model", "order")
        typed = {name: getattr(self, name) for name in names} | {"input": self.input_text, "seed": self.seed or None}
        return format_options(typed | {"drop_useless": self.drop_useless})

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
    def opening(self) -> dict[str, Any]:
        """The same for `lawful.open`."""
        names = ("activation", "drop_useless", "model", "order")
        return {name: getattr(self, name) for name in names} | {"input_shape": self.shape}

    def anything(self) -> Architecture | Mlp | Dag | ModuleNetwork:
        """The network, whatever it is; what was assumed is said once."""
        from lawful.sources.opening import open

        network = open(self.text, **self.opening)
        if network.reading is not None:
            note_reading(network.reading)
        return network

    def weighed(self, mode: str = "") -> Mlp | Dag | torch.nn.Module:
        """The network as it trains, with weights: an architecture's are drawn, and that is said."""
        from lawful.network import Architecture

        network = self.trained(mode)
        return self.network() if isinstance(network, Architecture) else network

    def trained(self, mode: str = "") -> Architecture | Mlp | Dag | torch.nn.Module:
        """The network as it trains: the module itself where a graph would have other parameters.

        The `mode` of normalisation is what the user chose, or assumed if nobody did.
        """
        from lawful.sources.opening import open_trained

        network = self.anything()
        if network.reading is not None:
            note_reading(network.reading.in_training(mode), instead_of=network.reading)
        return open_trained(network)

    def source(self) -> Architecture | Mlp | Dag:
        """The network as a graph; an architecture stays without weights, other modules are refused with a reason."""
        from lawful.sources.modules.module_network import ModuleNetwork

        network = self.anything()
        if isinstance(network, ModuleNetwork):
            network.to_dag()
        return network

    def network(self) -> Mlp | Dag:
        """The same with weights: an architecture gets PyTorch's default ones from the seed."""
        from lawful.network import Architecture
        from lawful.sources.opening import open_graph

        network = self.source()
        if not isinstance(network, Architecture):
            return network
        drawn = open_graph(network, seed=self.seed)
        if drawn.reading is not None:
            note_reading(drawn.reading, instead_of=network.reading)
        return drawn


def subcommand(
    *, reads: type | None = None, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of the function of its name in `lawful`, or those that say how a network is read.

    What the command spells itself, and what it does `without`, is left out.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *spelled, as_json = inspect.signature(command, eval_str=True).parameters.values()
        names = {each.name for each in spelled} | set(without)
        every = [_keyword("network", NetworkArgument), *_reading(reads)] if reads else _parameters(command.__name__)
        ours = [each for each in every if each.name not in names]
        # Arguments first: those of the function, then those that the command spells.
        ordered = sorted([*ours[:1], *spelled, *ours[1:]], key=lambda each: not _is_argument(each))
        parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in [*ordered, as_json]]
        signature = inspect.Signature([_keyword("context", typer.Context), *parameters])

        @functools.wraps(command)
        def run(context: typer.Context, **typed: Any) -> None:
            sources = {name: context.get_parameter_source(name) for name in typed}
            given = frozenset(name for name, source in sources.items() if source and source.name != "DEFAULT")
            call = ApiCall(command.__name__, {each.name: typed.pop(each.name) for each in ours}, given)
            input_shape(call.options.get("input"))  # a size that is none is refused before anything is read
            command(call, **typed)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        return run

    return decorate


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(
        isinstance(each, typer.models.ArgumentInfo) for each in getattr(parameter.annotation, "__metadata__", ())
    )


def _parameters(name: str) -> Iterator[inspect.Parameter]:
    """The parameters of a function of `lawful` as Typer takes them."""
    function = inspect.unwrap(load(name))
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "network":
            yield _keyword("network", NetworkArgument)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = typing.get_args(eval(parameter.annotation, function.__globals__))  # noqa: S307  # Unpack[...]
            yield from _reading(options)
        else:
            try:
                hint = eval(parameter.annotation, function.__globals__)  # noqa: S307  # our own annotations, as text
            except NameError:  # of a type that is imported for the type checker alone: nothing that one could type
                if "Help(" in parameter.annotation:  # meant as an option, which must not vanish
                    raise
                continue
            if any(isinstance(each, Help) for each in getattr(hint, "__metadata__", ())):
                yield _option(parameter.name, hint, parameter.default)


def _reading(options: type) -> Iterator[inspect.Parameter]:
    """The options in a dictionary of them."""
    for name, hint in typing.get_type_hints(options, include_extras=True).items():
        yield _option(name, hint, {"seed": 0, "drop_useless": False}.get(name))


def _option(name: str, hint: Any, default: Any) -> inspect.Parameter:
    kinds = (hint.__origin__, *typing.get_args(hint.__origin__))
    kind = next((each for each in TYPES if each in kinds), str)
    says: Help = next(each for each in hint.__metadata__ if isinstance(each, Help))
    if says.argument:
        return _keyword(name, Annotated[kind, typer.Argument(metavar=says.argument, help=says.text)], default)
    if default is inspect.Parameter.empty and type(None) in kinds:  # Python wants it said, a command line may leave it
        default = None
    flag = f"--{name.replace('_', '-')}"
    spellings = (f"{flag}/--no-{flag[2:]}",) if kind is bool and default is not False else (flag,)
    option = typer.Option(*spellings, help=says.text, min=says.least, callback=with_commas if name == "input" else None)
    return _keyword(name, Annotated[kind | None if default is None else kind, option], default)


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
