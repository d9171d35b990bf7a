"""What a network is for the verifier: who hears whom, with doubles as exact rationals, and the digest that names it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from lawful.errors import NotACertificate
from lawful.verify.core.finding import little_endian
from lawful.verify.core.numbers import ZERO, Rational, exact
from lawful.verify.core.schema import integer, integers, items, matrix, numbers, object_with_keys, require

INPUT, HIDDEN, OUTPUT, CONSTANT = range(4)
MOST_NODES = 1_000_000  # each takes about 500 bytes here and 2 in a file, if it is an input that nothing reads
Edges = list[list[tuple[int, int]]]


@dataclass(frozen=True, eq=False)
class CheckedDag:
    """Roles of nodes, edges in a fixed order, a slope per hidden node, and a weight per edge unless it has none."""

    roles: tuple[int, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    slopes: tuple[float, ...]
    weights: tuple[float, ...] | None

    def __post_init__(self) -> None:
        count = len(self.roles)
        ends = (*self.tails, *self.heads)
        _must(all(0 <= end < count for end in ends), "an edge names a node that does not exist")
        _must(self.roles.count(CONSTANT) <= 1, "two nodes are constant")
        _must(INPUT in self.roles and OUTPUT in self.roles, "there is no input or no output")
        _must(len(self.slopes) == len(self.hidden), "the slopes are not one per hidden node")
        pairs = list(zip(self.tails, self.heads, strict=True))
        _must(len(set(pairs)) == len(pairs), "an edge appears twice")
        for tail, head in pairs:
            _must(self.roles[head] in (HIDDEN, OUTPUT) and self.roles[tail] != OUTPUT, "an edge points the wrong way")
        _must(set(self.hidden) <= set(self.tails) & set(self.heads), "a hidden node has no way in or no way out")
        _must(len(self.order) == count, "the graph has a cycle")

    @cached_property
    def inputs(self) -> list[int]:
        """Input nodes in order, without the constant."""
        return [node for node, role in enumerate(self.roles) if role == INPUT]

    @cached_property
    def hidden(self) -> list[int]:
        """Hidden nodes in order."""
        return [node for node, role in enumerate(self.roles) if role == HIDDEN]

    @cached_property
    def outputs(self) -> list[int]:
        """Output nodes in order."""
        return [node for node, role in enumerate(self.roles) if role == OUTPUT]

    @cached_property
    def constant(self) -> int | None:
        """The node fixed to 1, if there is one."""
        return self.roles.index(CONSTANT) if CONSTANT in self.roles else None

    @cached_property
    def slope(self) -> dict[int, Fraction]:
        """The slope of each hidden node."""
        return {node: Fraction(slope) for node, slope in zip(self.hidden, self.slopes, strict=True)}

    @cached_property
    def into(self) -> Edges:
        """For each node its edges as (tail, edge)."""
        return self._collect(self.heads, self.tails)

    @cached_property
    def out_of(self) -> Edges:
        """For each node its edges as (head, edge)."""
        return self._collect(self.tails, self.heads)

    def _collect(self, near: Sequence[int], far: Sequence[int]) -> Edges:
        edges: Edges = [[] for _ in self.roles]
        for edge, (here, there) in enumerate(zip(near, far, strict=True)):
            edges[here].append((there, edge))
        return edges

    @cached_property
    def levels(self) -> list[int]:
        """Length of the longest path that ends at each node."""
        level, waiting = [0] * len(self.roles), [len(edges) for edges in self.into]
        done = [node for node, count in enumerate(waiting) if not count]
        for node in done:  # grows while it is read
            for head, _ in self.out_of[node]:
                level[head] = max(level[head], level[node] + 1)
                waiting[head] -= 1
                if not waiting[head]:
                    done.append(head)
        return level if len(done) == len(self.roles) else []

    @cached_property
    def order(self) -> list[int]:
        """Nodes by level, so that tails come before heads; empty if there is a cycle."""
        return sorted(range(len(self.levels)), key=lambda node: self.levels[node])

    @property
    def growth(self) -> float:
        """How much longer than a double the numbers become on the longest path: a factor of the cost."""
        return 1 + max(self.levels, default=0) / 20

    @cached_property
    def exact(self) -> list[Fraction]:
        """The weights as rationals."""
        return [Fraction(weight) for weight in self.weights or ()]

    def balance_of(self, squares: Mapping[int, Any]) -> dict[int, Any]:
        """`B̃x` at the hidden nodes that the squares touch: what comes in less what goes out."""
        total: dict[int, Any] = {}
        for edge, square in squares.items():
            for node, gain in ((self.heads[edge], square), (self.tails[edge], -square)):
                if self.roles[node] == HIDDEN:
                    total[node] = total.get(node, 0) + gain
        return total

    @cached_property
    def squares(self) -> dict[int, Rational]:
        """`x = θ²`, edge by edge."""
        return {edge: exact(weight) ** 2 for edge, weight in enumerate(self.weights or ())}

    @cached_property
    def balance(self) -> dict[int, Rational]:
        """`c = B̃θ²` of each hidden node."""
        total = self.balance_of(self.squares)
        return {node: total.get(node, ZERO) for node in self.hidden}

    @property
    def graph(self) -> tuple[Any, ...]:
        """Everything but the weights."""
        return self.roles, self.tails, self.heads, self.slopes

    @cached_property
    def numbering(self) -> dict[int, int]:
        """The number that each node has in digests: inputs, hidden nodes by level, outputs, a constant with edges."""
        biased = [self.constant] if self.constant is not None and self.out_of[self.constant] else []
        hidden = sorted(self.hidden, key=lambda node: self.levels[node])
        return {node: place for place, node in enumerate([*self.inputs, *hidden, *self.outputs, *biased])}

    @cached_property
    def numbered_edges(self) -> list[tuple[int, int, int]]:
        """`(head, tail, edge)` in the order of digests, by the places of both ends."""
        ends = zip(self.heads, self.tails, range(len(self.tails)), strict=True)
        return sorted((self.numbering[head], self.numbering[tail], edge) for head, tail, edge in ends)

    def digest(self, *, weights: bool = True) -> str:
        """A name that depends on nothing but the network: neither on names, nor the order of edges, nor a file format.

        Counts, slopes and edges by head and tail go into SHA-256 as little-endian 64-bit numbers, with weights or
        without.
        """
        edges, places = self.numbered_edges, self.numbering
        biased = len(places) - len(self.inputs) - len(self.hidden) - len(self.outputs)
        slopes = sorted(zip((places[node] for node in self.hidden), self.slopes, strict=True))
        total = hashlib.sha256(b"lawful network 1\n")
        total.update(little_endian("q", [len(self.inputs), len(self.hidden), len(self.outputs), biased, len(edges)]))
        total.update(little_endian("d", (slope + 0.0 for _, slope in slopes)))
        total.update(little_endian("q", (end for head, tail, _ in edges for end in (head, tail))))
        if weights and self.weights is not None:
            values = self.weights
            total.update(little_endian("d", (values[edge] + 0.0 for _, _, edge in edges)))
            return f"network:{total.hexdigest()}"
        return f"architecture:{total.hexdigest()}"


def _must(condition: bool, otherwise: str) -> None:
    if not condition:
        raise NotACertificate(f"network: {otherwise}")


def read_dag(value: object, where: str = "network") -> CheckedDag:
    """A graph in a certificate: roles, edges, slopes of hidden nodes, and weights or null."""
    parts = object_with_keys(value, where, "roles edges slopes weights")
    roles = integers(parts["roles"], f"{where}.roles", 0, 3, most=MOST_NODES)
    edges = [integers(pair, f"{where}.edges", 0, length=2) for pair in items(parts["edges"], f"{where}.edges")]
    weights = parts["weights"]
    return CheckedDag(
        tuple(roles),
        tuple(tail for tail, _ in edges),
        tuple(head for _, head in edges),
        tuple(numbers(parts["slopes"], f"{where}.slopes")),
        None if weights is None else tuple(numbers(weights, f"{where}.weights", length=len(edges))),
    )


def read_squares(value: object, where: str, dag: CheckedDag, read: Callable[[object, str], Any]) -> dict[int, Any]:
    """Squares `[edge, amount]` of some edges, none twice; those of the others are 0."""
    squares: dict[int, Any] = {}
    for item in items(value, where, most=len(dag.tails)):
        number, amount = items(item, where, length=2)
        edge = integer(number, where, 0, len(dag.tails) - 1)
        require(edge not in squares, f"{where}: edge {edge} appears twice")
        squares[edge] = read(amount, where)
        require(squares[edge] >= 0, f"{where}: edge {edge} has a negative square")
    return squares


def read_mlp(value: object, where: str = "network") -> CheckedDag:
    """A layered network in a certificate, edge by edge: weights, biases (null for a layer without) and slopes."""
    parts = object_with_keys(value, where, "weights biases slopes")
    layers = [matrix(rows, f"{where}.weights") for rows in items(parts["weights"], f"{where}.weights")]
    _must(len(layers) > 0 and all(rows and rows[0] for rows in layers), "a layer is empty")
    for lower, upper in pairwise(layers):
        _must(len(lower) == len(upper[0]), "layers do not fit")
    biases = items(parts["biases"], f"{where}.biases", length=len(layers))
    slopes = numbers(parts["slopes"], f"{where}.slopes", length=len(layers) - 1)
    widths = [len(layers[0][0]), *map(len, layers)]
    nodes = [range(end - width, end) for width, end in zip(widths, accumulate(widths), strict=True)]
    constant = sum(widths)
    tails: list[int] = []
    heads: list[int] = []
    weights: list[float] = []
    for rows, bias, below, above in zip(layers, biases, nodes[:-1], nodes[1:], strict=True):
        for neuron, row in zip(above, rows, strict=True):
            tails += below
            heads += [neuron] * len(row)
            weights += row
        if bias is not None:
            tails += [constant] * len(rows)
            heads += above
            weights += numbers(bias, f"{where}.biases", length=len(rows))
    roles = [INPUT] * widths[0] + [HIDDEN] * sum(widths[1:-1]) + [OUTPUT] * widths[-1]
    roles += [CONSTANT] * (constant in tails)
    bends = [slope for slope, width in zip(slopes, widths[1:-1], strict=True) for _ in range(width)]
    return CheckedDag(tuple(roles), tuple(tails), tuple(heads), tuple(bends), tuple(weights))


def read_network(value: object, where: str = "network") -> CheckedDag:
    """A network as a graph or as layers."""
    return (read_dag if isinstance(value, dict) and "roles" in value else read_mlp)(value, where)


def dag_of(network: Any) -> CheckedDag:
    """A network given in Python: anything whose `to_dag()` has roles, tails, heads, slopes and weights."""
    try:
        graph = network.to_dag()
        roles = tuple(int(role) for role in graph.roles)
        slopes = (float(slope) for slope, role in zip(graph.slopes, roles, strict=True) if role == HIDDEN)
        weights = None if graph.weights is None else tuple(float(weight) for weight in graph.weights)
        return CheckedDag(roles, tuple(map(int, graph.tails)), tuple(map(int, graph.heads)), tuple(slopes), weights)
    except (AttributeError, TypeError, ValueError) as error:
        raise NotACertificate(f"a {type(network).__name__} is no network that a certificate can be about") from error
