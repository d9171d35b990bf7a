"""Tensors of certified modules: written in the certificate, or held by their digest and read from what was given.

A line names a tensor by its type, its sizes and SHA-256 of its bytes. Bytes that were found elsewhere count only if
they have that line: who hands in other numbers is refused.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lawful.errors import NotACertificate, Unsupported
from lawful.verify.core.schema import (
    integer,
    integers,
    items,
    number,
    object_with_keys,
    printable,
    require,
    truth,
    word,
)
from lawful.verify.core.tensors import TYPES, GivenTensors, decode, read_tensor, tensor_line

LINE = re.compile(r"(float16|bfloat16|float32|float64) \[((?:[0-9]{1,8}(?:, [0-9]{1,8}){0,7})?)\] [0-9a-f]{64}")
Finder = Callable[[str, str], bytes | None]  # the bytes of a tensor, by its name and its line


@dataclass(frozen=True)
class Tensor:
    """Numbers with their type and sizes; those that are held by their digest are read when they are asked for."""

    dtype: str
    shape: tuple[int, ...]
    line: str  # what stands for it in the digest of all weights
    load: Callable[[], Any] = field(compare=False, repr=False)

    @cached_property
    def values(self) -> Any:
        """All numbers, row after row."""
        return self.load()

    def transpose(self) -> Tensor:
        """The same with its first two axes exchanged."""
        require(len(self.shape) >= 2, "what is stored with its inputs first has rows and columns")
        rows, columns, *kernel = self.shape
        taps = prod(kernel)

        def read_transposed() -> Any:
            values = array(TYPES[self.dtype])
            for column in range(columns):
                for row in range(rows):
                    start = (row * columns + column) * taps
                    values.extend(self.values[start : start + taps])
            return values

        return Tensor(self.dtype, (columns, rows, *kernel), self.line, read_transposed)


def read_held_tensor(value: object, name: str, find: Finder) -> Tensor:
    """A tensor written in the certificate, or held by its line and read from what was given."""
    if not isinstance(value, dict) or "line" not in value:
        written = read_tensor(value)
        return Tensor(written.dtype, written.shape, written.line, lambda: written.values)
    line = object_with_keys(value, "tensor", "line")["line"]
    match = LINE.fullmatch(line) if isinstance(line, str) else None
    if match is None:
        raise NotACertificate("tensor: expected a type, sizes and a digest")
    dtype, sizes = match[1], tuple(int(size) for size in match[2].split(", ") if size)

    def load() -> Any:
        raw = find(name, line)
        if raw is None:
            words = "this certificate holds tensors by their digests: give both networks after it"
            raise Unsupported(f"{words} ({printable(name)[:80]} is missing, or another)")
        require(tensor_line(dtype, sizes, raw) == line, "a tensor is not the one that the certificate is about")
        return decode(dtype, sizes, raw)

    return Tensor(dtype, sizes, line, load)


def finder(given: Sequence[Any]) -> Finder:
    """Look for tensors in what was given: modules, and things that are or have `sources` of tensors."""
    sources = [GivenTensors(thing.state_dict()) if hasattr(thing, "state_dict") else thing for thing in given]
    sources = [part for thing in sources for part in getattr(thing, "sources", (thing,)) if hasattr(part, "raw")]

    def find(name: str, line: str) -> bytes | None:
        for source in sources:
            if name in set(source) and source.line(name) == line:
                return bytes(source.raw(name)[2])
        return None

    return find


# Attention in a program of channels: which channels are queries, keys and values, and that heads leave as wholes.

FLAGS = ("rotary", "fixed", "alike", "whole")


@dataclass(frozen=True)
class HeadTables:
    """Channels of the three sources: `queries[group][head]`, `keys[group]`, `values[group]`.

    `rotary`: something mixes the inner channels of queries and keys. `fixed`: their number must not change. `alike`:
    all heads see one mask. `whole`: every query sees some key, so that a constant value stays one.
    """

    queries: tuple[tuple[tuple[int, ...], ...], ...]
    keys: tuple[tuple[int, ...], ...]
    values: tuple[tuple[int, ...], ...]
    rotary: bool
    fixed: bool
    alike: bool
    whole: bool

    @property
    def heads(self) -> int:
        """Heads of a group."""
        return len(self.queries[0])

    @cached_property
    def written(self) -> list[int]:
        """The value's channel behind every channel of the result."""
        return [place for group in self.values for _ in range(self.heads) for place in group]


def read_heads(value: object, channels: Sequence[int], made: int) -> HeadTables:
    """Tables that fit the channels of the three sources and of the result."""
    parts = object_with_keys(value, "heads", "queries keys values " + " ".join(FLAGS))
    keys, values = (
        tuple(tuple(integers(row, name, 0, count - 1)) for row in items(parts[name], name))
        for name, count in (("keys", channels[1]), ("values", channels[2]))
    )
    queries = tuple(
        tuple(tuple(integers(row, "queries", 0, channels[0] - 1)) for row in items(group, "queries"))
        for group in items(parts["queries"], "queries")
    )
    groups = len(keys)
    require(groups > 0 and len(values) == len(queries) == groups, "an attention has other groups")
    require(len({len(row) for row in keys}) == len({len(row) for row in values}) == 1, "heads have other sizes")
    require(len({len(group) for group in queries}) == 1 and len(queries[0]) > 0, "groups have other numbers of heads")
    require(all(len(row) == len(keys[0]) for group in queries for row in group), "queries do not fit their keys")
    require(bool(keys[0]) and bool(values[0]), "an attention without channels")
    for table in (keys, values, tuple(row for group in queries for row in group)):
        flat = [place for row in table for place in row]
        require(len(set(flat)) == len(flat), "an attention takes a channel twice")
    require(made == groups * len(queries[0]) * len(values[0]), "an attention makes another number of channels")
    flags = [truth(parts[name], name) for name in FLAGS]
    require(flags[1] or not flags[0], "mixed channels must stay")
    return HeadTables(queries, keys, values, *flags)


def check_grid(heads: HeadTables, keys: Any, values: Any) -> None:
    """What is left of an attention is one: groups leave with all their channels, the others keep equally many."""
    left = list(
        zip(keys[np.array(heads.keys)].sum(1).tolist(), values[np.array(heads.values)].sum(1).tolist(), strict=True)
    )
    staying = {both for both in left if both != (0, 0)}
    require(len(staying) == 1 and all(min(both) > 0 for both in staying), "what is left of the heads has other sizes")
    require(heads.alike or (0, 0) not in left, "a head leaves, and others see another mask")
    require(not heads.fixed or staying.pop()[0] == len(heads.keys[0]), "inner channels leave that must stay")


# Operations on channels with their weights, as a certificate writes them.

KEYS = "kind sources channels tensors padded width function arguments"
ROLES = {
    "layer": ("weight", "bias"), "depthwise": ("weight", "bias"), "norm": ("weight", "bias", "mean", "variance"),
    "slopes": ("weight",), "instance": ("weight", "bias"), "scale": ("weight", "bias"),
}  # fmt: skip
TWO = ("add", "sub", "mul")
KINDS = ("input", "other", *ROLES, "same", "bend", "pool", "flat", "cat", "part", "copy", "attend", *TWO)
SAME = ("relu", "leaky_relu", "abs", "neg", "mul number", "div number")  # commute with positive factors
MOST_CHANNELS = 2_000_000  # of all operations
MOST_AT_ONCE = 200_000  # of one operation: 256 bytes each, in both networks and twice that while it is computed


class Move(NamedTuple):
    """What rows or columns of a layer take over from one that leaves.

    `column`: W[:, k] += r W[:, place] for the terms (k, r). `constant`: b += W[:, place] c with the number c that the
    channel is. `row`: W[k] += r W[place], b[k] += r b[place].
    """

    kind: str
    step: int
    place: int
    terms: tuple[tuple[int, Fraction], ...]


@dataclass(frozen=True)
class ChannelStep:
    """An operation and the channels it makes."""

    kind: str
    sources: tuple[int, ...]
    channels: int
    tensors: Mapping[str, str | None]
    padded: bool
    width: int
    function: str
    arguments: tuple[Fraction | str, ...]
    heads: HeadTables | None = None
    groups: int = 1
    first: int | None = None  # the step whose layer this one uses again

    @property
    def start(self) -> int:
        """Where a part of the channels starts."""
        return int(self.arguments[0])

    def group(self, row: int) -> int:
        """The group of a row of a layer."""
        return row // (self.channels // self.groups)


def read_program(value: object, tensors: dict[str, Tensor]) -> list[ChannelStep]:
    """Operations in order; each must fit what it reads. Weights that are stored with inputs first are turned."""
    steps: list[ChannelStep] = []
    used: dict[str, int] = {}
    turned: set[int] = set()
    total = 0
    for item in items(value, "program", most=100_000):
        parts = object_with_keys(item, "program", KEYS, "heads transposed groups")
        kind = word(parts["kind"], "program.kind", *KINDS)
        sources = tuple(integers(parts["sources"], "sources", 0, len(steps) - 1, most=1000))
        roles = ROLES.get(kind, ())
        names = object_with_keys(parts["tensors"], "tensors", " ".join(roles))
        for name in names.values():
            require(name is None or (isinstance(name, str) and name in tensors), "an operation uses an unknown tensor")
        function = parts["function"]
        require(isinstance(function, str) and len(function) < 40, "a function has no name")
        require(kind != "same" or function in SAME, "a function that does not commute with factors")
        arguments = tuple(
            part if isinstance(part, str) else Fraction(number(part, "arguments"))
            for part in items(parts["arguments"], "arguments", most=8)
        )
        if kind == "same" and (function == "neg" or function.endswith("number")):
            numbers = [part for part in arguments if isinstance(part, Fraction)]
            require(len(numbers) == len(arguments) == (function != "neg"), f"{function} of another number of arguments")
        owners = {used.get(name) for name in names.values() if name is not None}
        require(len(owners) < 2, "two operations share a tensor, and not all")
        first = owners.pop() if owners else None
        used |= {name: len(steps) for name in names.values() if name is not None and first is None}
        if "transposed" in parts:
            require(kind == "layer" and truth(parts["transposed"], "transposed"), "only a layer is transposed")
        if "transposed" in parts and first is None:
            turned.add(len(steps))
            tensors[str(names["weight"])] = tensors[str(names["weight"])].transpose()
        channels, heads = integer(parts["channels"], "channels", 1, 10**7), None
        if channels > MOST_AT_ONCE:
            raise Unsupported(f"an operation has more than {MOST_AT_ONCE:,} channels")
        total += channels
        if total > MOST_CHANNELS:
            raise Unsupported(f"the operations have more than {MOST_CHANNELS:,} channels together")
        require(("heads" in parts) is (kind == "attend"), "an attention has heads, and nothing else has")
        if kind == "attend":
            require(len(sources) == 3, "an attention has three sources")
            heads = read_heads(parts["heads"], [steps[source].channels for source in sources], channels)
        groups = integer(parts.get("groups", 1), "groups", 1, channels)
        step = ChannelStep(
            kind, sources, channels, names, truth(parts["padded"], "padded"),
            integer(parts["width"], "width", 1, 10**7), function, arguments, heads, groups, first,
        )  # fmt: skip
        if first is not None:
            require(_same_layer(step, steps[first]), "two operations share a tensor and are not one layer")
            require(("transposed" in parts) is (first in turned), "a layer is stored in two ways")
        _check_fit(step, steps, tensors)
        steps.append(step)
    require(set(used) == set(tensors), "a tensor is used nowhere")
    return steps


def _same_layer(one: ChannelStep, two: ChannelStep) -> bool:
    """Whether two steps are the same but for what they read."""
    return replace(one, sources=two.sources, first=None) == two


def _check_fit(step: ChannelStep, before: list[ChannelStep], tensors: Mapping[str, Tensor]) -> None:
    below = [before[source].channels for source in step.sources]
    count = {"input": 0, "cat": len(below), "other": len(below), "attend": 3}.get(
        step.kind, 2 if step.kind in TWO else 1
    )
    require(len(below) == count, f"a {step.kind} has another number of sources")
    require(step.groups == 1 or step.kind == "layer", "only a layer has groups")
    shapes = {role: tensors[name].shape for role, name in step.tensors.items() if name is not None}
    if step.kind in ("layer", "depthwise"):
        weight = shapes.get("weight", ())
        require(len(weight) >= 2 and weight[0] == step.channels, f"a {step.kind} has other rows than channels")
        require(step.channels % step.groups == 0, "groups of a layer have other sizes")
        read = below[0] if step.kind == "layer" else 1
        require(weight[1] * step.groups == read, f"a {step.kind} does not fit what it reads")
        require(step.kind == "layer" or step.channels == below[0], "a depthwise layer does not fit what it reads")
        require(shapes.get("bias", (step.channels,)) == (step.channels,), f"a {step.kind} has another bias")
    elif step.kind == "norm":
        require("mean" in shapes and "variance" in shapes, "a normalisation lacks its statistics")
        require(all(shape == (step.channels,) for shape in shapes.values()), "a normalisation does not fit")
        require(
            len(step.arguments) == 1 and isinstance(step.arguments[0], Fraction), "a normalisation lacks its epsilon"
        )
        require(step.channels == below[0], "a normalisation does not fit what it reads")
        spread = tensors[str(step.tensors["variance"])].values
        require(
            Fraction(min(spread)) + Fraction(step.arguments[0]) > 0,
            "a normalisation divides by the root of no positive number",
        )
    elif step.kind in ("slopes", "instance", "scale"):
        require(step.channels == below[0], f"{step.kind} do not fit what they read")
        flat = all(prod(shape) == shape[0] == step.channels for shape in shapes.values() if shape)
        require(flat and () not in shapes.values(), f"{step.kind} have another number of weights")
        if step.kind == "slopes":
            require("weight" in shapes, "slopes are missing")
        elif step.kind == "scale":
            require(bool(shapes), "a scale has neither weights nor biases")
        else:
            require(step.function == "instance_norm", "a normalisation of each channel is called something else")
            argument = step.arguments[0] if len(step.arguments) == 1 else ""
            require(isinstance(argument, Fraction) and argument > 0, "a normalisation lacks its epsilon")
    elif step.kind == "cat":
        require(step.channels == sum(below), "a concatenation does not fit")
    elif step.kind == "part":
        argument = step.arguments[0] if len(step.arguments) == 1 else ""
        require(isinstance(argument, Fraction) and argument.denominator == 1, "a part does not say where it starts")
        require(step.start >= 0, "a part starts before the first channel")
        require(step.start + step.channels <= below[0], "a part is not in what it reads")
    elif step.kind not in ("input", "other", "attend"):
        require(
            all(step.channels == channels * step.width for channels in below),
            f"a {step.kind} does not fit what it reads",
        )
        require(step.width == 1 or step.kind == "flat", "only a flattening widens")
