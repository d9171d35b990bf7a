"""Architectures as text: `"3-4-4-2 relu bias skip(1,2)"` prints and parses itself; and random weights for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp, layered_nodes
from lawful.network.reading import Reading, TensorReading
from lawful.network.validity import Role
from lawful.types import Floats

Draw = Callable[[np.random.Generator, Floats, Floats, NDArray[np.bool_]], Floats]


def _torch(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return rng.uniform(-1.0, 1.0, len(fan_in)) / np.sqrt(fan_in)


def _he(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return np.where(bias, 0.0, rng.normal(size=len(fan_in)) * np.sqrt(2.0 / fan_in))


def _xavier(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return np.where(bias, 0.0, rng.uniform(-1.0, 1.0, len(fan_in)) * np.sqrt(6.0 / (fan_in + fan_out)))


def _uniform(rng: np.random.Generator, fan_in: Floats, fan_out: Floats, bias: NDArray[np.bool_]) -> Floats:
    return rng.uniform(-1.0, 1.0, len(fan_in))


SCHEMES: dict[str, Draw] = {"torch": _torch, "he": _he, "xavier": _xavier, "uniform": _uniform}


def initialise(dag: Dag, scheme: str = "torch", seed: int = 0) -> Dag:
    """The graph with random weights: `torch` (PyTorch's default for Linear), `he`, `xavier` or `uniform` on [−1, 1].

    Fan-in of an edge is the number of weights into its head, fan-out the number out of its tail, biases not counted.
    """
    if scheme not in SCHEMES:
        raise LawfulError(f"unknown initialisation {scheme!r}: choose from {', '.join(SCHEMES)}")
    bias = dag.roles[dag.tails] == Role.CONSTANT
    into = np.bincount(dag.heads[~bias], minlength=len(dag.names))
    fan_in = np.maximum(into[dag.heads], 1).astype(np.float64)
    fan_out = np.maximum(dag.out_degree[dag.tails], 1).astype(np.float64)
    return dag.with_theta(SCHEMES[scheme](np.random.default_rng(seed), fan_in, fan_out, bias))


MAX_EDGES = 50_000_000  # beyond this the edge arrays alone take over a gigabyte
GRAMMAR = 'write it like "3-4-4-2 relu bias skip(1,2)"; activations: relu, leaky_relu(0.01), linear'


@dataclass(frozen=True)
class Architecture:
    """Widths of a layered network, its activation, its biases and its skip connections.

    `skip(i,j)` joins the output of layer i to the output of layer j: both feed layer j + 1, each with its own weights
    (layer 0 is the input; P0 A.9.2 has a skip from the first hidden layer to the second).

    >>> Architecture.parse("2-3-3-1 relu bias skip(1,2)")
    Architecture('2-3-3-1 relu bias skip(1,2)')
    >>> Architecture.parse("30-20-1").parameters
    620
    """

    widths: tuple[int, ...]
    slope: float = 0.0
    bias: bool = False
    skips: tuple[tuple[int, int], ...] = ()
    says_activation: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        if len(self.widths) < 2:
            raise InvalidNetwork("an architecture needs at least an input and an output layer: " + GRAMMAR)
        if min(self.widths) < 1:
            raise InvalidNetwork(f"layer {self.widths.index(min(self.widths))} has width 0: every layer needs a neuron")
        if not np.isfinite(self.slope):
            raise InvalidNetwork("the activation's slope must be finite")
        for skip in self.skips:
            if not 0 <= skip[0] < skip[1] < len(self.widths) - 1:
                last = len(self.widths) - 2
                raise InvalidNetwork(f"skip{skip}: goes from a layer to a later hidden layer, at most {last}")
        if len(set(self.skips)) < len(self.skips):
            raise InvalidNetwork("the same skip appears twice")
        if self.parameters > MAX_EDGES:
            raise InvalidNetwork(f"{self.parameters:,} parameters are more than the {MAX_EDGES:,} that fit in memory")

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read an architecture; words after the widths may come in any order, and ReLU is the default."""
        words = re.sub(r"\s*,\s*", ",", text.strip()).split()
        if not words or not re.fullmatch(r"\d{1,9}(-\d{1,9})*", words[0]):
            raise InvalidNetwork(f"{text[:60]!r} is not an architecture: " + GRAMMAR)
        widths = tuple(int(width) for width in words[0].split("-"))
        slopes: list[float] = []
        skips: list[tuple[int, int]] = []
        bias = False
        for word in words[1:]:
            if word == "bias":
                bias = True
            elif skip := re.fullmatch(r"skip\((\d+),(\d+)\)", word):
                skips.append((int(skip[1]), int(skip[2])))
            else:
                slopes.append(parse_activation(word))
        if len(slopes) > 1:
            raise InvalidNetwork(f"{text[:60]!r} names two activations: " + GRAMMAR)
        return cls(widths, slopes[0] if slopes else 0.0, bias, tuple(skips), bool(slopes))

    @property
    def reading(self) -> Reading:
        """What the text says, and that ReLU was assumed if it names no activation."""
        pairs = enumerate(pairwise(self.widths), 1)
        layers = tuple(TensorReading(f"layer {number}", "none", (out, into)) for number, (into, out) in pairs)
        unsaid = not self.says_activation and len(layers) > 1
        assumed = ("ReLU at every hidden neuron: the architecture names no activation",) if unsaid else ()
        return Reading("architecture", layers, assumed, source=str(self))

    def __str__(self) -> str:
        words = ["-".join(map(str, self.widths)), activation_name(self.slope)]
        return " ".join(words + ["bias"] * self.bias + [f"skip({i},{j})" for i, j in self.skips])

    def __repr__(self) -> str:
        return f"Architecture({str(self)!r})"

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        pairs = [*((layer, layer + 1) for layer in range(len(self.widths) - 1)), *((i, j + 1) for i, j in self.skips)]
        weights = sum(self.widths[below] * self.widths[above] for below, above in pairs)
        return weights + self.bias * sum(self.widths[1:])

    def to_dag(self) -> Dag:
        """The graph without weights; edges layer by layer as in `Mlp.to_dag`, skips into a layer before its biases."""
        starts = np.concatenate([[0], np.cumsum(self.widths)])
        spans = [np.arange(starts[layer], starts[layer + 1]) for layer in range(len(self.widths))]
        tails, heads = [], []
        for layer in range(1, len(self.widths)):
            for below in [layer - 1, *(i for i, j in self.skips if j + 1 == layer)]:
                tails.append(np.tile(spans[below], len(spans[layer])))
                heads.append(np.repeat(spans[layer], len(spans[below])))
            if self.bias:
                tails.append(np.full(len(spans[layer]), starts[-1]))
                heads.append(spans[layer])
        names, roles = layered_nodes(self.widths, self.bias)
        return Dag(names, roles, np.concatenate(tails), np.concatenate(heads), None, self.slope)

    def initialise(self, scheme: str = "torch", seed: int = 0) -> Mlp | Dag:
        """Random weights: an `Mlp`, or a `Dag` if there are skips."""
        dag = initialise(self.to_dag(), scheme, seed)
        return dag if self.skips else Mlp.from_dag(dag)


def parse_activation(word: str) -> float:
    """The slope on the negative side that an activation's name stands for.

    >>> parse_activation("relu"), parse_activation("leaky_relu(0.1)"), parse_activation("linear")
    (0.0, 0.1, 1.0)
    """
    if word in ("relu", "linear"):
        return float(word == "linear")
    match = re.fullmatch(r"leaky_relu(?:\(([-+.\deE]+)\))?", word)
    try:
        if match:
            return 0.01 if match[1] is None else float(match[1])
    except ValueError:
        pass
    raise InvalidNetwork(f"unknown word {word[:40]!r}: homogeneous activations are relu, leaky_relu(SLOPE) and linear")


def is_homogeneous(word: str) -> bool:
    """Whether `parse_activation` reads the word."""
    try:
        parse_activation(word)
    except InvalidNetwork:
        return False
    return True


def activation_name(slope: float) -> str:
    """The name that `parse_activation` reads back."""
    return {0.0: "relu", 1.0: "linear"}.get(slope, f"leaky_relu({slope!r})")
