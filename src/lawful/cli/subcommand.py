"""Subcommands out of the functions of `lawful`: one signature says names, types, defaults and help of options.

`@subcommand` makes a command of the function of that name in `lawful`. Each parameter of the function that has a
`Help` (`api/inputs.py`) is an option, and so are the ways to read a network that it takes. The command itself spells
what only a command line has (--json, --html, files to write) and what Python takes as an object; it calls the function
with `call(...)` and hands the result to `report`.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lawful.api import load
from lawful.api.inputs import DrawOptions, Help
from lawful.cli.output import note_readings
from lawful.cli.source import Named, NetworkArgument, format_options, with_commas

READING = tuple(typing.get_type_hints(DrawOptions))  # options that say how to read a network
# Of several types that Python takes, what a command line can give: a file before text before a number.
TYPES = (Path, str, float, int, bool)


@dataclass(frozen=True)
class ApiCall:
    """The function behind a subcommand, and what the user typed for its options."""

    name: str
    options: Mapping[str, Any]

    def __call__(self, *sources: Any, **more: Any) -> Any:
        """The function's result; how its networks were read is said with it."""
        result = load(self.name)(*sources, **{**self.options, **more})
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
        """These options as they were typed: what a page prints must work as printed."""
        return format_options({name: self.options[name] for name in names})


def subcommand(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of the function of its name in `lawful`, all but those `without` which it does."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *spelled, as_json = inspect.signature(command, eval_str=True).parameters.values()
        names = {each.name for each in spelled} | set(without)
        ours = [each for each in _parameters(command.__name__) if each.name not in names]
        arguments = [each for each in ours if each.name == "network"]
        spelled_first = [each for each in spelled if _is_argument(each)]
        options = [each for each in [*spelled, *ours] if each not in (*arguments, *spelled_first)]
        ordered = [*arguments, *spelled_first, *options, as_json]
        signature = inspect.Signature([each.replace(kind=each.KEYWORD_ONLY) for each in ordered])

        @functools.wraps(command)
        def run(**typed: Any) -> None:
            call = ApiCall(command.__name__, {each.name: typed.pop(each.name) for each in ours})
            command(call, **typed)

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        return run

    return decorate


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(type(each) is type(typer.Argument()) for each in getattr(parameter.annotation, "__metadata__", ()))


def _parameters(name: str) -> Iterator[inspect.Parameter]:
    """The parameters of a function of `lawful` as Typer takes them."""
    function = inspect.unwrap(load(name))
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "network":
            yield _keyword("network", NetworkArgument)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = typing.get_args(eval(parameter.annotation, function.__globals__))  # noqa: S307  # Unpack[...]
            for option, hint in typing.get_type_hints(options, include_extras=True).items():
                yield _option(option, hint, 0 if option == "seed" else False if option == "drop_useless" else None)
        else:
            try:
                hint = eval(parameter.annotation, function.__globals__)  # noqa: S307  # our own annotations, as text
            except NameError:  # of a type that is imported for the type checker alone: nothing that one could type
                continue
            if any(isinstance(each, Help) for each in getattr(hint, "__metadata__", ())):
                yield _option(parameter.name, hint, parameter.default)


def _option(name: str, hint: Any, default: Any) -> inspect.Parameter:
    kinds = (hint.__origin__, *typing.get_args(hint.__origin__))
    kind = next((each for each in TYPES if each in kinds), str)
    says: Help = next(each for each in hint.__metadata__ if isinstance(each, Help))
    flag = f"--{name.replace('_', '-')}"
    spellings = (f"{flag}/--no-{flag[2:]}",) if kind is bool and default is not False else (flag,)
    option = typer.Option(*spellings, help=says.text, min=says.least, callback=with_commas if name == "input" else None)
    return _keyword(name, Annotated[kind | None if default is None else kind, option], default)


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
