"""What was read of a source, and what had to be assumed: every network carries it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

ReadNetwork = TypeVar("ReadNetwork")
IN_EVAL = "batch normalisation in eval mode, by its running statistics"
COMPUTED = "weights that reading computes (batch normalisation folded, weights made of others) are as it rounds them"
IN_TRAIN = "batch normalisation in train mode, by the statistics of each batch"


@dataclass(frozen=True)
class TensorReading:
    """A tensor as its source holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """Where a network comes from; `assumed` is empty exactly if its source says all that the answers rest on.

    `layers` are the source's tensors in the order of computation. `ignored` are parts of the source that were not
    used. `entangled` says why the weights of the graph are not the source's parameters one by one, so that the graph
    computes the same function but trains differently. `computed`: some of them were worked out while reading, in
    floating point, so that exact answers are about what that gave. `normalised` says that batch normalisation has two
    modes, and `in_training_only` what answers about training assume besides. `tail`
    is the operation that was cut off at the end. `module` is the PyTorch module that was read, `template` the ONNX
    model, for those who need more than the graph; `metadata` are texts in a file, and `size` its bytes. `changed`:
    the weights are no longer those of the source.
    """

    format: str
    layers: tuple[TensorReading, ...] = ()
    assumed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    entangled: tuple[str, ...] = ()
    tail: str = ""
    states_activations: bool = True
    normalised: bool = False
    in_training_only: tuple[str, ...] = ()
    computed: bool = False
    source: str = ""
    module: Any = field(default=None, repr=False, compare=False)
    template: Any = field(default=None, repr=False, compare=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    size: int = field(default=0, repr=False, compare=False)
    changed: bool = field(default=False, repr=False, compare=False)

    def of_other_weights(self) -> Reading:
        """The same for a network made of the one that was read: answers about it are not answers about the module."""
        return replace(self, module=None, changed=True)

    def assuming(self, *sentences: str) -> Reading:
        """The same with more assumptions."""
        return replace(
            self, assumed=(*self.assumed, *(sentence for sentence in sentences if sentence not in self.assumed))
        )

    def in_exact_terms(self) -> Reading:
        """The same for an answer that roundings of the network's own weights could change."""
        return self.assuming(COMPUTED) if self.computed else self

    def in_training(self, mode: str) -> Reading:
        """The same for an answer about training: in the mode that was asked for, or in train mode if none was ("")."""
        reading = replace(self, assumed=tuple(sentence for sentence in self.assumed if sentence != IN_EVAL))
        reading = reading.assuming(*self.in_training_only)
        return reading.assuming(IN_TRAIN) if self.normalised and not mode else reading


def rounded_inside(layers: Iterable[TensorReading], casts: Iterable[str]) -> tuple[str, ...]:
    """What is assumed of casts to a type with fewer bits than the weights: that they round nothing.

    >>> rounded_inside([TensorReading("w", "float32", (2, 2))], ["float64", "float16"])
    ('casts to float16 inside round nothing',)
    """
    bits = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}
    widest = max((bits.get(layer.dtype, 0) for layer in layers), default=0)
    coarser = sorted(cast for cast in set(casts) if bits.get(cast, 0) < widest)
    return tuple(f"casts to {cast} inside round nothing" for cast in coarser)


def assumed_in_training(shared: Iterable[str], kinds: Iterable[str]) -> tuple[str, ...]:
    """What training a graph of ONNX operators assumes besides, of tensors that several read and of normalisations.

    >>> assumed_in_training([], ["Gemm", "BatchNormalization"])
    ('batch normalisation by its stored statistics, which training keeps',)
    """
    reasons = [f"{name} is one parameter wherever it is read (tools may store equal tensors once)" for name in shared]
    if "BatchNormalization" in kinds:
        reasons.append("batch normalisation by its stored statistics, which training keeps")
    return tuple(reasons)


def list_names(names: Iterable[str], most: int = 6) -> str:
    """A few names for a sentence.

    >>> list_names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    every = list(names)
    rest = len(every) - most
    return ", ".join(every[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def carrying(network: ReadNetwork, reading: Reading | None) -> ReadNetwork:
    """The same network with another reading."""
    twin = copy.copy(network)
    object.__setattr__(twin, "reading", reading)
    return twin
