"""What an entry of the table of operators is, and where entries are written down.

There are two kinds of line. An *operator* is what a node of a program may hold: it has a meaning, traits and a
family. A *call* is what a framework may say, by its name in ATen or in ONNX: its entry builds nodes of operators.
`relu` is both; `hardswish` is a call alone, since a product of operators says the same.

An entry is a function whose parameters are the arguments that it knows. An argument or attribute without a parameter of
its name is accepted with its default value alone, and refused by name otherwise: whatever an entry swallowed in silence
would be wrong in silence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar

from lawful.errors import Unsupported

ValueKind = Literal["b", "i", "f", "c"]
"""Truth values, integers, reals, and complex numbers (which only opaque calls make and read)."""

INFINITY = float("inf")


class Refused(Unsupported):
    """A call that the table does not cover, or not with this argument; the message names it."""


MAX_NUMBERS = 50_000_000  # that a constant or a result whose size a file states may have


class TooLarge(Refused):
    """A call that states sizes which no memory should be asked for."""

    def __init__(self, shape: Sequence[int]) -> None:
        limit = f"more than the {MAX_NUMBERS:,} numbers that are supported"
        super().__init__(f"claims shape {tuple(shape)}, {limit}")


class TooShort(Refused):
    """A window that is longer than what it slides over: another size of the input may do."""

    def __init__(self, said: str = "a window is longer than what it slides over at this size") -> None:
        super().__init__(said)


class OperatorFamily(StrEnum):
    """What a domain must know to follow an operator: one method each."""

    LEAF = "leaf"
    MOVEMENT = "movement"
    ELEMENTWISE = "elementwise"
    ADDITION = "addition"
    PRODUCT = "product"
    CONTRACTION = "contraction"
    REDUCTION = "reduction"
    NORMALISATION = "normalisation"
    CHOICE = "choice"
    COMPARISON = "comparison"
    LOOKUP = "lookup"
    OPAQUE = "opaque"


@dataclass(frozen=True)
class Traits:
    """What is true of an operator `f` for all operands; `x` stands for all its real operands together.

    Every trait is tested by sampling, so an entry may leave one out but cannot have a wrong one for long.
    """

    degree: float | None = None  # f(s x) = s^degree f(x) for s > 0
    odd: bool = False  # f(-x) = -f(x)
    even: bool = False  # f(-x) = f(x)
    monotone: int = 0  # +1: f does not decrease when an entry of x grows; -1: does not increase
    zero: bool = False  # f(0) = 0
    kinks: tuple[float, ...] = ()  # where f is not smooth, if that is finitely often
    steps: bool = False  # f is constant but for jumps
    range: tuple[float, float] = (-INFINITY, INFINITY)  # every value of f lies in it
    linear: Literal["", "jointly", "in each"] = ""  # of all operands together, or of each while the others stay
    shift: float | None = None  # f(x + c) = f(x) + shift c for a number c
    finite: bool | None = None  # the truth value that f has wherever x is finite
    gradient: bool = True  # training differentiates through f
    noise: bool = False  # f draws independent numbers of one distribution
    # Units in the last place by which float64 may err. NumPy and SciPy test most of their functions to this.
    error: float = 4.0


def power_traits(attributes: Mapping[str, Any]) -> Traits:
    """`x ↦ x^p`: homogeneous of degree p; for whole p odd or even."""
    p = attributes["exponent"]
    whole = p == int(p)
    return Traits(
        degree=p,
        odd=whole and p % 2 == 1,
        even=whole and p % 2 == 0,
        monotone=1 if p > 0 and (not whole or p % 2 == 1) else 0,
        zero=p > 0,
        range=(0.0, INFINITY) if not whole or p % 2 == 0 else (-INFINITY, INFINITY),
        error=4.0 if whole else 4.0 + 2 * abs(p),  # halves go through the root, whose error its powers multiply
    )


@dataclass(frozen=True, eq=False)
class Operator:
    """What a node may hold. `meaning(arrays, attributes, *operands)` is written once for NumPy and PyTorch."""

    name: str
    family: OperatorFamily
    formula: str
    meaning: Callable[..., Any]
    traits: Traits | Callable[[Mapping[str, Any]], Traits] = field(default_factory=Traits)
    kind: ValueKind | None = None  # of the result; None: the widest of the operands
    shape: Callable[..., tuple[int, ...]] | None = None  # shape(attributes, *shapes); None: the operands broadcast
    attributes: tuple[str, ...] = ()
    elementary: Callable[..., Any] | None = None  # elementary(builder, *operands), in fewer functions
    onnx: str = ""  # ONNX's operator that computes the same of the same operands, if there is one

    def traits_of(self, attributes: Mapping[str, Any]) -> Traits:
        """The traits for these attributes."""
        return self.traits(attributes) if callable(self.traits) else self.traits


@dataclass(frozen=True, eq=False)
class Entry:
    """How a framework's call is written in operators: `build(builder, ...)`."""

    build: Callable[..., Any]
    # Which constants of an ONNX file are trained is decided by the calls that read them: the inputs ...
    weights: tuple[int, ...] = ()  # that are trained
    perhaps: tuple[int, ...] = ()  # that are trained if they look like it: operands of sums and products
    adds: bool = False  # of a call that may add a bias
    statistics: tuple[int, ...] = ()  # that training counts instead (BatchNorm's)
    carries: int = 0  # how many inputs are trained if the result is: of calls that move or cast
    joins: bool = False  # of a call that puts constants beside values: tokens are trained, as biases are
    regrouped: bool = False  # weights are none behind a call that moves: tools write normalisations of groups like that
    sizes_alone: bool = False  # of a call that reads the size of its input, and no entry
    states: str = ""  # sizes that stand in the second input or in this attribute: of the result, or of its parts
    states_result: bool = False  # of the result, the samples first

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The arguments that the entry knows, after the builder."""
        return dict(list(inspect.signature(self.build).parameters.items())[1:])


OPERATORS: dict[str, Operator] = {}
ATEN: dict[str, Entry] = {}
ONNX: dict[str, Entry] = {}
ATEN_MOVEMENTS: set[str] = set()  # calls that only move entries: what they do is found by running them
ATEN_FACTORIES: set[str] = set()  # calls that make tensors of numbers and sizes alone: they are run
ATEN_CASTS: set[str] = set()  # calls that change the type of numbers alone

Build = TypeVar("Build", bound=Callable[..., Any])


def define(
    name: str,
    family: OperatorFamily,
    formula: str,
    meaning: Callable[..., Any],
    traits: Traits | Callable[[Mapping[str, Any]], Traits] | None = None,
    *,
    kind: ValueKind | None = None,
    shape: Callable[..., tuple[int, ...]] | None = None,
    attributes: tuple[str, ...] = (),
    elementary: Callable[..., Any] | None = None,
    onnx: str = "",
) -> Operator:
    """Add an operator to the table."""
    if name in OPERATORS:
        raise ValueError(f"{name} stands in the table already")
    OPERATORS[name] = Operator(
        name, family, formula, meaning, traits or Traits(), kind, shape, attributes, elementary, onnx
    )
    return OPERATORS[name]


def aten(*names: str) -> Callable[[Build], Build]:
    """The entry of calls of PyTorch: `name`, or `name.overload` where overloads differ.

    Parameters have the names of the schema (`self` is `x`); the first argument is passed by its place.
    """

    def enter(build: Build) -> Build:
        for name in names:
            if name in ATEN:
                raise ValueError(f"{name} stands in the table already")
            ATEN[name] = Entry(build)
        return build

    return enter


def onnx(*names: str, **uses: Any) -> Callable[[Build], Build]:
    """The entry of operators of ONNX: inputs by place, attributes by name.

    A parameter `opset` gets the version of the file's operators, `outputs` the number of results that it uses. `uses`
    are the fields of `Entry` that say what is trained.
    """

    def enter(build: Build) -> Build:
        for name in names:
            if name in ONNX:
                raise ValueError(f"{name} stands in the table already")
            ONNX[name] = Entry(build, **uses)
        return build

    return enter
