"""What all functions of `lawful` have in common: options with help, sizes of inputs as users say them, old names."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, ParamSpec, TypedDict, TypeVar

from lawful.errors import LawfulError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from lawful.formats.queries.data import Data

    Samples = Data | str | Path | ArrayLike | tuple[ArrayLike, ArrayLike]
    Box = str | tuple[ArrayLike, ArrayLike]
else:  # what a command line can give: it reads these annotations, and loads no NumPy for that
    Samples, Box = Path, str

Options = ParamSpec("Options")
Result = TypeVar("Result")

BOX = "-1,1"  # where a question that needs a box is asked if nobody says where
BOX_ASSUMED = "every input between -1 and 1 (say where with --box)"


def input_size(input: Any) -> tuple[int, ...] | None:
    """The size of one input of real numbers, if that is what was given: as a size, as text or as an example."""
    if hasattr(input, "shape"):
        return tuple(input.shape[1:]) if "float" in str(input.dtype) else None
    if isinstance(input, str) and re.fullmatch(r"\d{1,6}(,\d{1,6})*", input):
        return tuple(int(size) for size in input.split(","))
    if isinstance(input, tuple) and all(isinstance(size, int) for size in input):
        return input
    return input_size(input[0]) if isinstance(input, list) and len(input) == 1 else None


class Help(NamedTuple):
    """What the command line says of a parameter, and the least number that it takes.

    With an `argument` it is typed by its place, and called so in the usage line. A parameter without `Help` is for
    Python alone, or the subcommand spells it in another way.
    """

    text: str
    least: float | None = None
    argument: str = ""


Seconds = Annotated[float, Help("Seconds before a search gives up.")]
Seed = Annotated[int, Help("Seed for random weights and random choices.", least=0)]
Scheduler = Annotated[str | None, Help("Address of a Dask scheduler that bounds the boxes.")]
BOX_HELP = "lo,hi for all inputs; lo:hi,lo:hi,... for each; an .npz or .vnnlib file."
LOSS_HELP = "full (mse, bce, or any whose output gradients span), or ce (cross-entropy)."
AskedBox = Annotated[Box | None, Help(f"Ask on a box: {BOX_HELP}")]


class ModuleOptions(TypedDict, total=False):
    """How to read networks, the same for every function: what `lawful.open` takes, with an `input` as users say it.

    In Python `model` may also be a module or a function that makes one, and `input` a size `(3, 8, 8)` or an example
    tensor.
    """

    model: Annotated[Any, Help("module:factory of the module into which a checkpoint is loaded.")]
    input: Annotated[
        Any,
        Help("Input size of a module or ONNX file, without the batch: 3,8,8, or 8:int for ids; several: 3,8,8;8:int."),
    ]
    activation: Annotated[str | None, Help("For weights alone: relu, leaky_relu(SLOPE), linear, tanh, ...")]
    order: Annotated[
        str | Sequence[str] | None, Help("For weights alone: names of the layers from input to output, by commas.")
    ]


class PairOptions(ModuleOptions, total=False):
    """How to read two networks."""

    model_b: Annotated[Any, Help("module:factory for B, where B's module is written in another way.")]


class ReadOptions(ModuleOptions, total=False):
    """How to read a network that may become a graph of scalar weights."""

    drop_useless: Annotated[bool, Help("Remove hidden nodes on no path from input to output instead of refusing.")]


class DrawOptions(ReadOptions, total=False):
    """The same, with the seed of the random weights that an architecture gets."""

    seed: Seed


class UnknownOption(LawfulError, TypeError):
    """An option that a function does not take: a `TypeError`, as Python raises for parameters that are spelled out."""


def refuse_unknown(function: str, options: Iterable[str], accepted: Iterable[str]) -> None:
    """Refuse options that a function does not take, by name, with those that it does."""
    taken = sorted(accepted)
    if unknown := sorted(set(options) - set(taken)):
        raise UnknownOption(f"{function} has no option {', '.join(unknown)}: it takes {', '.join(taken)}")


def takes(kind: type) -> Callable[[Callable[Options, Result]], Callable[Options, Result]]:
    """Let a function refuse options that neither its parameters nor the dictionary `kind` of its options name.

    Without it they reach `lawful.open`, whose other words (`input_shape`) would be taken and lead to nothing.

    >>> @takes(ReadOptions)
    ... def count(network: str, *, level: str = "phi", **reading: Any) -> int:
    ...     return 0
    >>> count("3-4-2 relu", input_shape=(3,))
    Traceback (most recent call last):
    lawful.api.inputs.UnknownOption: count has no option input_shape: it takes activation, drop_useless, input, level, \
model, network, order
    """

    def decorate(function: Callable[Options, Result]) -> Callable[Options, Result]:
        parameters = inspect.signature(function).parameters.values()
        named = {parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD}
        accepted = named | set(kind.__annotations__)

        @functools.wraps(function)
        def call(*given: Options.args, **options: Options.kwargs) -> Result:
            refuse_unknown(function.__name__, options, accepted)
            return function(*given, **options)

        return call

    return decorate


def open_options(reading: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the words of `lawful.open`, which knows an input by its shape; `open_graph` takes a seed too."""
    options: dict[str, Any] = {**reading}
    if "input" in options:
        options["input_shape"] = input_size(options.pop("input"))
    return options


def input_shape(input: Any) -> tuple[int, ...] | tuple[tuple[int, ...], ...] | None:
    """The size of one input of numbers or token ids, or the sizes of several.

    >>> input_shape("3,8,8"), input_shape("8:int"), input_shape(["3", (2, 4)]), input_shape(None)
    ((3, 8, 8), (8,), ((3,), (2, 4)), None)
    """
    if input is None:
        return None
    texts = input.split(";") if isinstance(input, str) else input
    several = isinstance(texts, list) or (isinstance(texts, tuple) and any(not isinstance(size, int) for size in texts))
    sizes = [_size_of_numbers_or_ids(text) for text in (texts if several else [texts])]
    known = tuple(size for size in sizes if size)
    if not known or len(known) < len(sizes):
        raise LawfulError(f"an input is a size such as (3, 8, 8), not {str(input)[:60]}")
    return known if len(known) > 1 else known[0]


def asks_for_ids(input: Any) -> bool:
    """Whether the one input of a module is given as ids, by text or by an example.

    >>> asks_for_ids("8:int"), asks_for_ids("8"), asks_for_ids((8,))
    (True, False, False)
    """
    if isinstance(input, str):
        return input.strip().endswith(":int") and ";" not in input
    return hasattr(input, "is_floating_point") and not input.is_floating_point()


def _size_of_numbers_or_ids(input: Any) -> tuple[int, ...] | None:
    if hasattr(input, "shape"):
        return tuple(input.shape[1:])
    return input_size(input.removesuffix(":int") if isinstance(input, str) else input)


def rename(**old: str) -> Callable[[Callable[Options, Result]], Callable[Options, Result]]:
    """Let a function take `old="new"` names as well; Python shows the warning once for each line that uses one.

    >>> @rename(most="top")
    ... def find(top: int = 10) -> int:
    ...     return top
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     find(most=3), str(caught[0].message)
    (3, '`most` is now called `top` (the old name still works)')
    """

    def decorate(function: Callable[Options, Result]) -> Callable[Options, Result]:
        @functools.wraps(function)
        def call(*given: Options.args, **named: Options.kwargs) -> Result:
            words: dict[str, Any] = dict(named)
            for was, now in old.items():
                if was not in words:
                    continue
                if now in words:
                    raise LawfulError(f"`{was}` is the old name of `{now}`: give one of them")
                warnings.warn(
                    f"`{was}` is now called `{now}` (the old name still works)", DeprecationWarning, stacklevel=2
                )
                words[now] = words.pop(was)
            return function(*given, **words)

        return call

    return decorate
