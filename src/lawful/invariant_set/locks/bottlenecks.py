"""Bottleneck neurons, and the neurons that can only act through them (P0 Definition 2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from lawful.network import Dag, Role
from lawful.types import Indices, Mask


class _HasHidden(Protocol):
    @property
    def hidden(self) -> Indices: ...


Graph = TypeVar("Graph", bound=_HasHidden)


@dataclass(frozen=True, eq=False)
class SeenGraph(Generic[Graph]):
    """A graph seen towards its outputs (`out`), or along reversed edges towards its inputs (`in`).

    Hidden nodes are numbered as in `dag.hidden`; everything that does not scale is the one node `root`.
    """

    dag: Graph
    name: Literal["out", "in"]

    @property
    def sign(self) -> int:
        """Reversing the edges reverses the balance."""
        return 1 if self.name == "out" else -1

    @property
    def root(self) -> int:
        """The number that stands for everything that does not scale."""
        return len(self.dag.hidden)


@dataclass(frozen=True, eq=False)
class Side(SeenGraph[Dag]):
    """A graph without circles: both kinds of bottleneck are hidden nodes with a single arc in this direction.

    Arcs are the edges that leave a hidden node in this direction.
    """

    @cached_property
    def _ends(self) -> tuple[Indices, Indices, Indices]:
        number = np.full(len(self.dag.names), self.root, dtype=np.intp)
        number[self.dag.hidden] = np.arange(self.root)
        near, far = (self.dag.tails, self.dag.heads) if self.name == "out" else (self.dag.heads, self.dag.tails)
        edges = np.flatnonzero(self.dag.roles[near] == Role.HIDDEN)
        return edges, number[near[edges]], number[far[edges]]

    @property
    def edges(self) -> Indices:
        """The edge of the graph behind each arc."""
        return self._ends[0]

    @property
    def tails(self) -> Indices:
        """Where each arc leaves."""
        return self._ends[1]

    @property
    def heads(self) -> Indices:
        """Where each arc leads: a hidden node or `root`."""
        return self._ends[2]

    @cached_property
    def bottleneck(self) -> Mask:
        """Hidden nodes with exactly one arc."""
        return np.asarray(np.bincount(self.tails, minlength=self.root) == 1)

    @property
    def single(self) -> Mask:
        """The same: without circles no other edge is ever missed."""
        return self.bottleneck

    @cached_property
    def only_edge(self) -> Indices:
        """For each bottleneck its single edge; −1 elsewhere."""
        only = np.full(self.root, -1, dtype=np.intp)
        single = self.bottleneck[self.tails]
        only[self.tails[single]] = self.edges[single]
        return only

    @cached_property
    def alone(self) -> Mask:
        """Bottlenecks that no other neuron depends on: `{v}` is the only stable set.

        The pure ancestor of v that comes last has all its arcs into v, hence one arc: it is a bottleneck itself.
        """
        fed = np.zeros(self.root + 1, dtype=bool)
        fed[self.heads[self.bottleneck[self.tails]]] = True
        return self.bottleneck & ~fed[:-1]

    @cached_property
    def order(self) -> Indices:
        """Hidden nodes so that arcs lead from earlier to later ones."""
        return np.argsort(self.sign * self.dag.levels[self.dag.hidden], kind="stable")

    @cached_property
    def dominators(self) -> Indices:
        """For each hidden node the nearest node on *all* its paths to `root` (`root` itself if there is no other).

        The nodes below v in this tree are exactly the pure ancestors of v.
        """
        import rustworkx

        graph = rustworkx.PyDiGraph(multigraph=True, edge_count_hint=len(self.tails), node_count_hint=self.root + 1)
        graph.add_nodes_from(range(self.root + 1))
        graph.add_edges_from_no_data(list(zip(self.heads.tolist(), self.tails.tolist(), strict=True)))
        nearest = rustworkx.immediate_dominators(graph, self.root)
        return np.array([nearest[node] for node in range(self.root)], dtype=np.intp)

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """The dominator tree downwards, leaves and root left out."""
        found: dict[int, list[int]] = {}
        below = np.flatnonzero(self.dominators != self.root)
        for node, above in zip(below.tolist(), self.dominators[below].tolist(), strict=True):
            found.setdefault(above, []).append(node)
        return found

    def pure(self, node: int) -> list[int]:
        """Pure ancestors of a bottleneck (pure descendants on the `in` side), itself first."""
        if self.alone[node]:
            return [node]
        members = [node]
        for member in members:
            members.extend(self.children.get(member, ()))
        return members
