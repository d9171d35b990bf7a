"""What an ONNX operator is given: tensors that depend on the input, constants, and samples to keep apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.network.assemble import Assembly, Value, fixed_value, join, sizes
from lawful.network.formats.arrays import as_float64
from lawful.network.operations import finite
from lawful.types import Floats

Constant = NDArray[Any]
Operand = Value | Constant | None  # None is an optional input left out
Options = dict[str, Any]


@dataclass
class Reader:
    """What operators need besides their operands.

    `batch` is the size of the batch with which sizes are computed, 0 if the file has no batch: then tensors are whole.
    `entangled` collects why the weights of the graph are not those of the file one by one.
    """

    assembly: Assembly
    folder: Path
    batch: int
    opset: int
    entangled: list[str] = field(default_factory=list)
    computed: bool = False  # whether weights were worked out from others
    outputs: frozenset[str] = frozenset()  # names that the file gives its results
    integers: set[str] = field(default_factory=set)  # names of tensors of whole numbers: divided, they are rounded

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a tensor as the file sees it."""
        return (self.batch, *shape) if self.batch else shape

    def regroup(self, values: Sequence[Value], run: Callable[[list[NDArray[np.intp]]], Any]) -> Any:
        """Entries of the values, put where the operation puts their labels; samples must stay apart."""
        total, labels, start = sum(value.size for value in values), [], 0
        for value in values:
            one = np.arange(start, start + value.size).reshape(value.shape)
            labels.append(np.stack([one + k * total for k in range(self.batch)]) if self.batch else one)
            start += value.size
        found = run(labels)
        held = values[0] if len(values) == 1 else join(values)
        return (
            [self._taken(held, part, total) for part in found]
            if isinstance(found, list)
            else self._taken(held, found, total)
        )

    def _taken(self, held: Value, labels: NDArray[np.intp], total: int) -> Value:
        if not self.batch:
            return held.take(labels.ravel(), labels.shape)
        apart = labels.ndim > 0 and len(labels) == self.batch
        if not apart or any((labels[k] != labels[0] + k * total).any() for k in range(1, self.batch)):
            raise Unsupported("does not keep the batch apart")
        return held.take(labels[0].ravel(), labels.shape[1:])


def value_of(operand: Operand) -> Value:
    """The operand, which must depend on the network's input."""
    if not isinstance(operand, Value):
        raise Unsupported("its first operand must depend on the network's input")
    return operand


def fixed(what: str, operand: Operand) -> Floats:
    """The operand's numbers, which must not depend on the input."""
    if operand is None or isinstance(operand, Value):
        raise Unsupported(f"its {what} must be a constant")
    return finite(what, as_float64(what, operand))


def whole_numbers(what: str, operand: Operand) -> list[int]:
    """The operand as sizes or axes."""
    return [int(number) for number in fixed(what, operand).ravel()]


def rows(reader: Reader, constant: Floats, shape: tuple[int, ...]) -> Floats:
    """A constant that is the same for every sample, in the shape of one."""
    try:
        both = np.broadcast_to(constant, reader.whole(shape))
    except ValueError:
        raise InvalidNetwork(f"a constant of {sizes(constant.shape)} does not fit {sizes(shape)}") from None
    if reader.batch and not (both == both[:1]).all():
        raise Unsupported("a constant differs from sample to sample")
    return np.asarray(both[0] if reader.batch else both)


def alike(reader: Reader, first: Operand, second: Operand) -> tuple[Value, Value]:
    """Two operands in the shape that their sum has."""
    if first is None or second is None:
        raise Unsupported("an operand is missing")
    shapes = [reader.whole(each.shape) if isinstance(each, Value) else each.shape for each in (first, second)]
    try:
        whole = np.broadcast_shapes(*shapes)
    except ValueError:
        raise InvalidNetwork(f"shapes {sizes(shapes[0])} and {sizes(shapes[1])} cannot be added") from None
    found = []
    for each in (first, second):
        if isinstance(each, Value):
            same = reader.whole(each.shape) == whole
            found.append(each if same else reader.regroup([each], lambda labels: np.broadcast_to(labels[0], whole)))
        else:
            inner = whole[1:] if reader.batch else whole
            found.append(fixed_value(rows(reader, fixed("operand", each), inner)))
    return found[0], found[1]
