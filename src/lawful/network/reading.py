"""What was read of a source, and what had to be assumed: every network carries it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

ReadNetwork = TypeVar("ReadNetwork")


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
    computes the same function but trains differently. `tail` is the operation that was cut off at the end. `module` is
    the PyTorch module that was read, `template` the ONNX model, for those who need more than the graph.
    """

    format: str
    layers: tuple[TensorReading, ...] = ()
    assumed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    entangled: tuple[str, ...] = ()
    tail: str = ""
    states_activations: bool = True
    source: str = ""
    module: Any = field(default=None, repr=False, compare=False)
    template: Any = field(default=None, repr=False, compare=False)

    def assuming(self, *sentences: str) -> Reading:
        """The same with more assumptions."""
        return replace(self, assumed=(*self.assumed, *(each for each in sentences if each not in self.assumed)))


def listed(names: Iterable[str], most: int = 6) -> str:
    """A few names for a sentence.

    >>> listed(["a", "b", "c"], most=2)
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
