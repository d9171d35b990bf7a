"""A feed-forward network on any directed acyclic graph, held in arrays."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import evaluation, topology
from lawful.network.reading import Reading, carrying
from lawful.network.validity import Role, check_graph, check_numbers
from lawful.types import Floats, Indices, Mask


@dataclass(frozen=True, eq=False, repr=False)
class Dag:
    """A network: nodes in a fixed order, edges in a fixed order, one weight per edge.

    A hidden node v computes `h_v = max(z, 0) + slope_v min(z, 0)` of `z = Σ_{u→v} θ_uv h_u`, so its activation *is*
    its slope: 0 is ReLU, 1 is linear, anything between is a leaky ReLU. Outputs are linear. Biases are edges from one
    node of role `CONSTANT`. Every hidden node lies on a path to an output from an input or the constant (P0 Section 2).

    >>> dag = Dag(("x", "h", "y"), [Role.INPUT, Role.HIDDEN, Role.OUTPUT], [0, 1], [1, 2], [2.0, -1.0])
    >>> dag
    Dag(inputs=1, hidden=1, outputs=1, edges=2)
    >>> dag.evaluate([[3.0], [-3.0]])
    array([[-6.],
           [ 0.]])
    >>> dag.hidden_incidence.toarray()
    array([[ 1., -1.]])
    """

    names: tuple[str, ...]
    roles: NDArray[np.int8]
    tails: Indices
    heads: Indices
    weights: Floats | None = None
    slopes: Floats = field(default_factory=lambda: np.zeros(0))
    reading: Reading | None = None

    def __init__(
        self,
        names: Iterable[str],
        roles: ArrayLike,
        tails: ArrayLike,
        heads: ArrayLike,
        weights: ArrayLike | None = None,
        slopes: ArrayLike = 0.0,
        reading: Reading | None = None,
    ) -> None:
        """Copy, check and freeze; `slopes` is one number or one per node (read at hidden nodes only)."""
        store = object.__setattr__
        store(self, "reading", reading)
        store(self, "names", tuple(names))
        store(self, "roles", _frozen(roles, np.int8))
        store(self, "tails", _frozen(tails, np.intp))
        store(self, "heads", _frozen(heads, np.intp))
        store(self, "weights", None if weights is None else _frozen(weights, np.float64))
        hidden = self.roles == Role.HIDDEN
        store(self, "slopes", _frozen(np.where(hidden, slopes, 1.0), np.float64))
        check_graph(self.names, self.roles, self.tails, self.heads, lambda: self.levels)
        self._check_numbers()

    def __repr__(self) -> str:
        bias = ", biases" if self.constant is not None else ""
        return (
            f"Dag(inputs={len(self.inputs)}, hidden={len(self.hidden)}, outputs={len(self.outputs)}, "
            f"edges={len(self.tails)}{bias})"
        )

    # Nodes

    @cached_property
    def inputs(self) -> Indices:
        """The input nodes, in the order of the columns of a batch (the constant is not one of them)."""
        return np.flatnonzero(self.roles == Role.INPUT)

    @cached_property
    def hidden(self) -> Indices:
        """The hidden nodes, in the order of the rows of B̃."""
        return np.flatnonzero(self.roles == Role.HIDDEN)

    @cached_property
    def outputs(self) -> Indices:
        """The output nodes, in the order of the columns of the answer."""
        return np.flatnonzero(self.roles == Role.OUTPUT)

    @cached_property
    def constant(self) -> int | None:
        """The virtual input fixed to 1, if the network has biases."""
        places = np.flatnonzero(self.roles == Role.CONSTANT)
        return int(places[0]) if len(places) else None

    @cached_property
    def index(self) -> dict[str, int]:
        """Node number by name."""
        return {name: number for number, name in enumerate(self.names)}

    @property
    def parameters(self) -> int:
        """Number of trainable weights, biases included: |E|."""
        return len(self.tails)

    @cached_property
    def theta(self) -> Floats:
        """The weights, or an error that says there are none."""
        if self.weights is None:
            raise Unsupported("this network has no weights: give a file with weights, or initialise it from a seed")
        return self.weights

    def edge_name(self, edge: int) -> tuple[str, str]:
        """Names of the two ends of an edge."""
        return self.names[self.tails[edge]], self.names[self.heads[edge]]

    def to_dag(self) -> Dag:
        """Itself: `Mlp` and `Dag` both have this."""
        return self

    # Structure

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """`B`, a row per node and a column per edge: +1 where the edge enters, −1 where it leaves (P0 Section 2)."""
        edges = np.arange(self.parameters)
        entries = np.concatenate([np.ones(self.parameters), -np.ones(self.parameters)])
        rows = np.concatenate([self.heads, self.tails])
        shape = (len(self.names), self.parameters)
        return sparse.csr_array((entries, (rows, np.concatenate([edges, edges]))), shape=shape)

    @cached_property
    def hidden_incidence(self) -> sparse.csr_array:
        """`B̃`: the rows of `B` at the hidden nodes."""
        return self.incidence[self.hidden]

    @cached_property
    def in_degree(self) -> Indices:
        """Edges entering each node, its bias included."""
        return np.bincount(self.heads, minlength=len(self.names))

    @cached_property
    def out_degree(self) -> Indices:
        """Edges leaving each node."""
        return np.bincount(self.tails, minlength=len(self.names))

    @cached_property
    def levels(self) -> Indices:
        """Length of the longest path that ends at each node (0 for inputs)."""
        return topology.levels(len(self.names), self.tails, self.heads)

    @cached_property
    def layers(self) -> tuple[Indices, ...]:
        """Nodes grouped by level, so that every edge goes from an earlier group to a later one."""
        order = np.argsort(self.levels, kind="stable")
        return tuple(np.split(order, np.cumsum(np.bincount(self.levels))[:-1]))

    def descendants(self, nodes: int | Sequence[int] | Indices) -> Mask:
        """Mask of the nodes that a path from `nodes` reaches, `nodes` excluded unless one is below another."""
        return topology.reachable(len(self.names), self.tails, self.heads, nodes)

    def ancestors(self, nodes: int | Sequence[int] | Indices) -> Mask:
        """Mask of the nodes from which a path leads to `nodes`."""
        return topology.reachable(len(self.names), self.heads, self.tails, nodes)

    # Evaluation

    def evaluate(self, inputs: Any, weights: Any = None) -> Any:
        """Outputs for a batch (rows), as NumPy; or as PyTorch, differentiable, if `inputs` or `weights` is a tensor."""
        return self.activations(inputs, weights)[:, self.outputs]

    def activations(self, inputs: Any, weights: Any = None) -> Any:
        """The value of every node for a batch: one row per sample, one column per node in node order."""
        return evaluation.activations(self, inputs, weights)

    @cached_property
    def schedule(self) -> evaluation.Schedule:
        """The order in which levels are evaluated, found once per graph."""
        return evaluation.schedule(self)

    # Changed copies

    def with_theta(self, weights: ArrayLike) -> Dag:
        """The same graph with other weights, in edge order; the graph is shared and not checked again."""
        twin = copy.copy(self)
        twin.__dict__.pop("theta", None)
        object.__setattr__(twin, "weights", _frozen(weights, np.float64))
        object.__setattr__(twin, "reading", None if self.reading is None else self.reading.of_other_weights())
        twin._check_numbers()
        return twin

    def rescaled(self, factors: ArrayLike) -> Dag:
        """Each hidden neuron's output times a positive factor, its outgoing weights divided by it: the same function.

        `θ_uv → θ_uv α_v / α_u` with `α = 1` on inputs and outputs (P0 Section 2). One factor per hidden node.
        """
        scale = np.ones(len(self.names))
        scale[self.hidden] = factors
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise LawfulError("rescaling factors must be positive and finite")
        return self.with_theta(self.theta * scale[self.heads] / scale[self.tails])

    def without_edges(self, edges: ArrayLike, *, drop_useless: bool = False) -> Dag:
        """The graph less some edges (numbers or a mask); optionally less the hidden nodes that this disconnects."""
        keep = np.ones(self.parameters, dtype=bool)
        keep[np.asarray(edges)] = False
        return self._restrict(np.ones(len(self.names), dtype=bool), keep, drop_useless)

    def without_nodes(self, nodes: ArrayLike, *, drop_useless: bool = False) -> Dag:
        """The graph less some hidden nodes (numbers or a mask) and all their edges."""
        keep = np.ones(len(self.names), dtype=bool)
        keep[np.asarray(nodes)] = False
        removed = np.flatnonzero(~keep)
        if not (self.roles[removed] == Role.HIDDEN).all():
            raise LawfulError("only hidden neurons can be removed")
        return self._restrict(keep, keep[self.tails] & keep[self.heads], drop_useless)

    def merged(self, keep: int, drop: int, scale: float = 1.0) -> Dag:
        """Remove hidden node `drop`, letting `keep` speak for it: `θ_keep,j += scale θ_drop,j`.

        The function is kept when `h_drop = scale · h_keep` everywhere, as for duplicate neurons (equal input rays).
        """
        if keep == drop or self.roles[keep] != Role.HIDDEN or self.roles[drop] != Role.HIDDEN:
            raise LawfulError("merging needs two different hidden neurons")
        weights = self.theta.copy()
        leaving = np.flatnonzero(self.tails == drop)
        present = {int(self.heads[edge]): int(edge) for edge in np.flatnonzero(self.tails == keep)}
        added = [edge for edge in leaving if int(self.heads[edge]) not in present]
        for edge in leaving:
            if (twin := present.get(int(self.heads[edge]))) is not None:
                weights[twin] += scale * weights[edge]
        whole = Dag(
            self.names,
            self.roles,
            np.concatenate([self.tails, np.full(len(added), keep, dtype=np.intp)]),
            np.concatenate([self.heads, self.heads[added]]),
            np.concatenate([weights, scale * weights[added]]),
            self.slopes,
        )
        return whole.without_nodes([drop])

    def _check_numbers(self) -> None:
        check_numbers(self.names, self.tails, self.heads, self.weights, self.slopes)

    def _restrict(self, nodes: Mask, edges: Mask, drop_useless: bool) -> Dag:
        number = np.cumsum(nodes) - 1
        parts = (
            [name for name, is_useful in zip(self.names, nodes, strict=True) if is_useful],
            self.roles[nodes],
            number[self.tails[edges]],
            number[self.heads[edges]],
            None if self.weights is None else self.weights[edges],
            self.slopes[nodes],
        )
        reading = None if self.reading is None else self.reading.of_other_weights()
        return carrying(useful_dag(*parts) if drop_useless else Dag(*parts), reading)


def useful_dag(
    names: Sequence[str],
    roles: ArrayLike,
    tails: ArrayLike,
    heads: ArrayLike,
    weights: ArrayLike | None = None,
    slopes: ArrayLike = 0.0,
) -> Dag:
    """Build a `Dag` less the hidden nodes that are on no path from input to output; the function is the same."""
    roles, tails, heads = np.asarray(roles), np.asarray(tails, dtype=np.intp), np.asarray(heads, dtype=np.intp)
    keep = ~topology.useless(roles == Role.HIDDEN, tails, heads)
    edges = keep[tails] & keep[heads]
    number = np.cumsum(keep) - 1
    return Dag(
        [name for name, is_useful in zip(names, keep, strict=True) if is_useful],
        roles[keep],
        number[tails[edges]],
        number[heads[edges]],
        None if weights is None else np.asarray(weights)[edges],
        np.broadcast_to(slopes, roles.shape)[keep],
    )


def _frozen(values: ArrayLike, kind: type) -> Any:
    try:
        array: NDArray[Any] = np.array(values, dtype=kind)
    except OverflowError as error:
        raise InvalidNetwork(f"a number is too large: {error}") from None
    array.setflags(write=False)
    return array
