"""The graph of a module's balances in a certificate: entries of its tensors as edges between what scales.

The weights are those of the tensors written beside it, which their digest names. That scaling the entries into a node
up and those out of it down leaves the module's function alone is a statement about the module's program, which is not
in the certificate: it is not checked here, and every statement says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from lawful.verify.core.dag import HIDDEN, INPUT, OUTPUT, CheckedDag, read_dag
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require, truth
from lawful.verify.core.tensors import Tensor, read_tensor, weights_digest


@dataclass(frozen=True, eq=False)
class CheckedEntries(CheckedDag):
    """Nodes that scale between two ends that do not; parallel edges and circles are allowed.

    `places` says which entry of which tensor each edge is. With `others`, the module has more laws than these balances.
    """

    places: tuple[tuple[str, int], ...] = ()
    others: bool = False
    name: str = ""
    rest: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        last = len(self.roles) - 1
        for tail, head in zip(self.tails, self.heads, strict=True):
            require(tail < last and 0 < head <= last and (tail > 0 or head < last), "an edge points the wrong way")

    def digest(self, *, weights: bool = True) -> str:
        """The name of all weights of the module."""
        return self.name

    def same_graph(self, other: CheckedDag) -> bool:
        """Whether two graphs have the same edges, as the same entries."""
        return super().same_graph(other) and isinstance(other, CheckedEntries) and self.places == other.places

    def besides(self, other: CheckedDag) -> int:
        """How many tensors that are no edges differ: nothing is said of those."""
        theirs = other.rest if isinstance(other, CheckedEntries) else ()
        return len({name for name, _ in set(self.rest) ^ set(theirs)})

    def must_be_settled(self, edge: int) -> bool:
        """Whether an edge is not free by itself: here each needs its evidence."""
        return True


def read_entries(value: object, where: str) -> CheckedEntries:
    """Tensors with their edges (positions, tails and heads), the names of other tensors, and the number of nodes."""
    given = object_with_keys(value, where, "nodes tensors others other_laws")
    nodes = integer(given["nodes"], f"{where}.nodes", 0, 5_000_000)
    tails: list[int] = []
    heads: list[int] = []
    places: list[tuple[str, int]] = []
    weights: list[float] = []
    tensors: dict[str, Tensor] = {}
    for item in items(given["tensors"], f"{where}.tensors", most=100_000):
        part = object_with_keys(item, f"{where}.tensors", "name tensor positions tails heads")
        name = part["name"]
        require(isinstance(name, str) and name not in tensors, "a tensor has no name, or one twice")
        tensors[name] = read_tensor(part["tensor"])
        values = tensors[name].values
        spots = integers(part["positions"], f"{where}.positions", 0, len(values) - 1)
        require(len(set(spots)) == len(spots), "an entry is an edge twice")
        tails += integers(part["tails"], f"{where}.tails", 0, nodes + 1, length=len(spots))
        heads += integers(part["heads"], f"{where}.heads", 0, nodes + 1, length=len(spots))
        places += [(name, spot) for spot in spots]
        weights += [float(values[spot]) for spot in spots]
    others = {str(name): line for name, line in record_of(given["others"], f"{where}.others").items()}
    require(not set(others) & set(tensors), "a tensor is named twice")
    require(nodes <= 2 * len(tails) + 1000, "there are more nodes than ends of edges")
    roles = (INPUT, *(HIDDEN,) * nodes, OUTPUT)
    name = weights_digest({name: tensor.line for name, tensor in tensors.items()} | others)
    more = truth(given["other_laws"], f"{where}.other_laws")
    ends = tuple(tails), tuple(heads)
    rest = tuple(sorted(others.items()))
    return CheckedEntries(roles, *ends, (0.0,) * nodes, tuple(weights), tuple(places), more, name, rest)


def record_of(value: object, where: str) -> dict[str, str]:
    """Names and short texts."""
    require(isinstance(value, dict), f"{where}: expected an object")
    found: dict[str, str] = dict(value)  # type: ignore[call-overload]
    require(all(isinstance(line, str) and len(line) < 400 for line in found.values()), f"{where}: expected texts")
    return found


def read_graph(value: object, where: str = "network") -> CheckedDag:
    """A graph of neurons, or of the entries of a module."""
    entries = isinstance(value, dict) and "tensors" in value
    return read_entries(value, where) if entries else read_dag(value, where)
