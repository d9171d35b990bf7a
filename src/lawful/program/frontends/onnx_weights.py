"""Which numbers of an ONNX file are trained: the file does not say, but the calls that read them do.

It is decided by use, never by value (a fresh scale of ones is trained, a mask of random numbers is not). A constant of
reals is *trained* if an entry of the table says that calls of its kind train the input where it is used (a kernel, a
matrix, a scale, a table of embeddings), perhaps behind calls that only move or cast it. Operands of sums, products and
concatenations may be either: they are trained if they act on what weights have made, and have several entries, all
finite; or one entry along an axis that is added to the result of a call with weights, a bias of width 1. What scales or
shifts the bare input belongs to its preparation: it is *kept* beside the weights, as statistics are, and not trained.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lawful.program.table import ONNX, Entry

DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
REALS = (1, 10, 11, 16)  # TensorProto.DataType: of 32, 16, 64 bits, and bfloat16


@dataclass(frozen=True)
class OnnxWeights:
    """Constants by what they are, in the order of use; `shared` are trained ones that several calls read."""

    trained: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()


def read_weights(graph: Any, load: Callable[[Any], Any]) -> OnnxWeights:
    """The weights among the constants of a graph and of those inside its nodes; `load` gives a tensor's numbers."""
    walk = _Uses(load)
    initializers = {tensor.name for tensor in graph.initializer}
    walk.graph(graph, {entry.name for entry in graph.input if entry.name not in initializers})
    known = {*walk.trained, *walk.statistics}
    return OnnxWeights(
        tuple(walk.trained),
        (*walk.statistics, *(name for name in walk.kept if name not in known)),
        tuple(walk.statistics),
        tuple(name for name, times in walk.trained.items() if times > 1),
    )


def held_tensors(graph: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a graph by name: its initializers, and those that stand in nodes."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    yield node.output[0], attribute.t
        for inner in inner_graphs(node):
            yield from held_tensors(inner)


def entry_of(node: Any) -> Entry | None:
    """The entry of the table for a node; operators of a runtime stand there with their domain before a colon."""
    return ONNX.get(node.op_type if node.domain in DOMAINS else f"{node.domain}:{node.op_type}")


def inner_graphs(node: Any) -> list[Any]:
    """The graphs inside a node: the branches of a condition, the body of a loop."""
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


@dataclass
class _Uses:
    load: Callable[[Any], Any]
    tensors: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the constants of which a value is moved
    touched: set[str] = field(default_factory=set)  # what weights have made
    mapped: set[str] = field(default_factory=set)  # what a call with weights has just made
    moved: set[str] = field(default_factory=set)
    live: set[str] = field(default_factory=set)
    trained: Counter[str] = field(default_factory=Counter)
    statistics: dict[str, None] = field(default_factory=dict)
    kept: dict[str, None] = field(default_factory=dict)

    def graph(self, graph: Any, inputs: set[str]) -> None:
        for name, tensor in held_tensors(graph):
            self.tensors[name] = tensor
            if tensor.data_type in REALS:
                self.origins[name] = (name,)
        self.live |= inputs
        for node in graph.node:
            inner = inner_graphs(node)
            for body in inner:
                # What a loop hands to its body stands at the same places of both; its results come last.
                self.same(zip(node.input, (formal.name for formal in body.input), strict=False))
                self.graph(body, {formal.name for formal in body.input})  # a loop's state is data after its first step
                results = [output.name for output in body.output][-len(node.output) :]
                self.same(zip(results, node.output, strict=False))
            entry = entry_of(node)
            if not inner and entry is not None:
                self.node(node, entry)
            elif not inner:  # what it makes of data is data
                self.same((name, result) for name in node.input for result in node.output)

    def same(self, pairs: Iterable[tuple[str, str]]) -> None:
        """What holds of the first of two names holds of the second."""
        for one, other in pairs:
            for names in (self.live, self.touched, self.mapped):
                names |= {other} if one in names else set()

    def node(self, node: Any, entry: Entry) -> None:
        sources = {name for name in node.input if name in self.live}
        if not sources:
            self.carry(node, entry)
            return
        for place, name in enumerate(node.input):
            for origin in self.origins.get(name, ()):
                self.note(origin, place, entry, sources)
        outputs = set(node.output)
        if not entry.sizes_alone:
            self.live |= outputs
        weights = {origin for name in node.input for origin in self.origins.get(name, ())}
        if sources & self.touched or weights & set(self.trained):
            self.touched |= outputs
        if entry.weights or (entry.carries and sources & self.mapped):
            self.mapped |= outputs
        if entry.carries:
            self.moved |= outputs

    def carry(self, node: Any, entry: Entry) -> None:
        """A call of constants alone: what it moves keeps its name."""
        parts = [name for name in node.input[: entry.carries] if name]
        for name in node.output:
            self.origins[name] = tuple(origin for part in parts for origin in self.origins.get(part, ()))

    def note(self, origin: str, place: int, entry: Entry, sources: set[str]) -> None:
        tensor = self.tensors[origin]
        size = math.prod(tensor.dims)
        if place in entry.weights and not (entry.regrouped and sources & self.moved):
            self.trained[origin] += 1
        elif place in entry.statistics:
            self.statistics[origin] = None
        elif place in entry.weights:
            return  # ones and zeros with which tools write a normalisation of groups
        elif place in entry.perhaps or entry.joins:
            bias = entry.adds and len(tensor.dims) > 0 and bool(sources & self.mapped)
            if size <= 1 and not bias:
                return
            if not bool(np.isfinite(np.asarray(self.load(tensor), dtype=np.float64)).all()):
                return  # a mask
            if sources & self.touched:
                self.trained[origin] += 1
            else:
                self.kept[origin] = None
