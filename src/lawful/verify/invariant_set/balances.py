"""Graphs whose balances training keeps, and edges that are zero at no weights of these balances.

A graph of neurons, or the entries of a module's tensors as edges between what scales. The weights of the latter are in
the tensors written beside it, which their digest names. That scaling the entries into a node up and those out of it
down leaves the module's function alone is a statement about the module's program, which is not in the certificate: it
is not checked here, and every statement says so.

A lock is a set T of hidden nodes with one edge out, e: summing `B̃x = c` over T gives `x_e ≥ −Σ_T c > 0`. Or the mirror
image, with one edge in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lawful.verify.core.dag import HIDDEN, INPUT, OUTPUT, CheckedDag, read_dag
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require, spend, truth, word
from lawful.verify.core.tensors import read_tensor, weights_digest

Number = Any  # a rational, or an integer in units of a common denominator


@dataclass(frozen=True, eq=False)
class CheckedEntries(CheckedDag):
    """Nodes that scale between two ends that do not; parallel edges and circles are allowed.

    `places` says which entry of which tensor each edge is, `rest` holds the tensors without edges. With `other_laws`,
    the module has more laws than these balances.
    """

    places: tuple[tuple[str, int], ...] = ()
    other_laws: bool = False
    name: str = ""
    rest: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        last = len(self.roles) - 1
        for tail, head in zip(self.tails, self.heads, strict=True):
            require(tail < last and 0 < head <= last and (tail > 0 or head < last), "an edge points the wrong way")

    @property
    def graph(self) -> tuple[Any, ...]:
        """The edges, as the entries that they are."""
        return *super().graph, self.places

    def digest(self, *, weights: bool = True) -> str:
        """The name of all weights of the module."""
        return self.name


def read_graph(value: object, where: str = "network") -> CheckedDag:
    """A graph of neurons, or of the entries of a module: tensors with their edges, and lines of the other tensors."""
    if not isinstance(value, dict) or "tensors" not in value:
        return read_dag(value, where)
    parts = object_with_keys(value, where, "nodes tensors others other_laws")
    nodes = integer(parts["nodes"], f"{where}.nodes", 0, 5_000_000)
    tails: list[int] = []
    heads: list[int] = []
    places: list[tuple[str, int]] = []
    weights: list[float] = []
    lines: dict[str, str] = {}
    for item in items(parts["tensors"], f"{where}.tensors", most=100_000):
        part = object_with_keys(item, f"{where}.tensors", "name tensor positions tails heads")
        name, tensor = part["name"], read_tensor(part["tensor"])
        require(isinstance(name, str) and name not in lines, "a tensor has no name, or one twice")
        lines[name] = tensor.line
        spots = integers(part["positions"], f"{where}.positions", 0, len(tensor.values) - 1)
        require(len(set(spots)) == len(spots), "an entry is an edge twice")
        tails += integers(part["tails"], f"{where}.tails", 0, nodes + 1, length=len(spots))
        heads += integers(part["heads"], f"{where}.heads", 0, nodes + 1, length=len(spots))
        places += [(name, spot) for spot in spots]
        weights += [float(tensor.values[spot]) for spot in spots]
    require(nodes <= 2 * len(tails) + 1000, "there are more nodes than ends of edges")
    others = parts["others"]
    texts = isinstance(others, dict) and all(isinstance(line, str) and len(line) < 400 for line in others.values())
    require(texts and not set(others) & set(lines), f"{where}.others: a tensor is named twice, or has no line")
    return CheckedEntries(
        (INPUT, *(HIDDEN,) * nodes, OUTPUT), tuple(tails), tuple(heads), (0.0,) * nodes, tuple(weights), tuple(places),
        truth(parts["other_laws"], f"{where}.other_laws"), weights_digest(lines | others), frozenset(others.items()),
    )  # fmt: skip


def check_locks(value: object, dag: CheckedDag, balance: Mapping[int, Number], slack: Number) -> dict[int, Number]:
    """The least value of `x_e` for each edge that is locked at every balance within `slack` of the stated one."""
    least: dict[int, Number] = {}
    for item in items(value, "locked", most=len(dag.tails)):
        lock = object_with_keys(item, "locked", "edge side nodes")
        edge = integer(lock["edge"], "locked.edge", 0, len(dag.tails) - 1)
        nodes = set(integers(lock["nodes"], "locked.nodes", 0, len(dag.roles) - 1))
        require(edge not in least, f"edge {edge} is locked twice")
        require(nodes <= balance.keys(), f"edge {edge}: a node of its set is not hidden")
        out = word(lock["side"], "locked.side", "out", "in") == "out"
        near = dag.out_of if out else dag.into
        spend(sum(len(near[node]) for node in nodes))
        # Summed over the set, an inner edge enters once and leaves once: B̃x = c keeps the crossing edge alone.
        crossing = {other for node in nodes for end, other in near[node] if end not in nodes}
        require(crossing == {edge}, f"edge {edge}: other edges cross its set, or none does")
        # x_e = ∓Σ c, and another balance within the slack moves that sum by no more: x_e stays above 0.
        total = sum(balance[node] for node in nodes)
        least[edge] = (-total if out else total) - slack
        require(least[edge] > 0, f"edge {edge}: the minimum is not above the tolerance")
    return least
