"""Run a `Dag` on a batch, one sparse product per level, in NumPy or PyTorch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from lawful.errors import LawfulError
from lawful.types import Floats, Indices

if TYPE_CHECKING:
    import torch


class Graph(Protocol):
    """What evaluation reads of a graph."""

    @property
    def names(self) -> tuple[str, ...]:
        """Node names."""

    @property
    def tails(self) -> Indices:
        """Where each edge starts."""

    @property
    def heads(self) -> Indices:
        """Where each edge ends."""

    @property
    def slopes(self) -> Floats:
        """Activation of each node."""

    @property
    def inputs(self) -> Indices:
        """Input nodes."""

    @property
    def constant(self) -> int | None:
        """The node that is always 1."""

    @property
    def theta(self) -> Floats:
        """Weights in edge order."""

    @property
    def layers(self) -> tuple[Indices, ...]:
        """Nodes by level."""

    @property
    def schedule(self) -> Schedule:
        """The order of work."""


@dataclass(frozen=True)
class Level:
    """The rows of one level: which weights enter, and the sorted position of the nodes they read."""

    nodes: Indices
    edges: Indices
    indices: Indices
    indptr: Indices


@dataclass(frozen=True)
class Schedule:
    """Nodes sorted by level, so that a level is a slice that reads only the slices before it."""

    place: Indices
    levels: tuple[Level, ...]


def schedule(dag: Graph) -> Schedule:
    """The order of work for a graph, independent of its weights."""
    order = np.concatenate(dag.layers)
    place = np.argsort(order)
    edges = np.lexsort((place[dag.tails], place[dag.heads]))
    reads = place[dag.tails[edges]]
    ends = np.concatenate([[0], np.cumsum(np.bincount(place[dag.heads], minlength=len(order)))])
    levels, start = [], len(dag.layers[0])
    for nodes in dag.layers[1:]:
        stop = start + len(nodes)
        rows = slice(ends[start], ends[stop])
        levels.append(Level(nodes, edges[rows], reads[rows], ends[start : stop + 1] - ends[start]))
        start = stop
    return Schedule(place, tuple(levels))


def activations(dag: Graph, inputs: Any, weights: Any = None) -> Any:
    """The value of every node for a batch; PyTorch and differentiable if `inputs` or `weights` is a tensor."""
    torch = sys.modules.get("torch")  # a tensor can only exist if torch was imported
    if torch is not None and (isinstance(inputs, torch.Tensor) or isinstance(weights, torch.Tensor)):
        return _torch_activations(dag, inputs, weights)
    return _numpy_activations(dag, inputs, weights)


def _check_width(dag: Graph, shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[1] != len(dag.inputs):
        raise LawfulError(f"a batch for this network has shape (samples, {len(dag.inputs)}), not {tuple(shape)}")


def _numpy_activations(dag: Graph, inputs: ArrayLike, weights: ArrayLike | None) -> NDArray[np.float64]:
    batch = np.asarray(inputs, dtype=np.float64)
    _check_width(dag, batch.shape)
    theta = dag.theta if weights is None else np.asarray(weights, dtype=np.float64)
    plan = dag.schedule
    values = np.zeros((len(dag.names), len(batch)))
    values[plan.place[dag.inputs]] = batch.T
    if dag.constant is not None:
        values[plan.place[dag.constant]] = 1.0
    start = len(dag.layers[0])
    for level in plan.levels:
        stop = start + len(level.nodes)
        matrix = sparse.csr_array((theta[level.edges], level.indices, level.indptr), shape=(len(level.nodes), start))
        summed = matrix @ values[:start]
        slope = dag.slopes[level.nodes]
        if (slope == 0).all():
            np.maximum(summed, 0.0, out=values[start:stop])
        elif (slope == 1).all():
            values[start:stop] = summed
        else:
            values[start:stop] = np.where(summed > 0, summed, slope[:, None] * summed)
        start = stop
    return np.asarray(values[plan.place].T)


def _torch_activations(dag: Graph, inputs: Any, weights: Any) -> torch.Tensor:
    import torch

    theta = torch.as_tensor(dag.theta.copy() if weights is None else weights)
    batch = torch.as_tensor(inputs, dtype=theta.dtype)
    _check_width(dag, tuple(batch.shape))
    plan = dag.schedule
    samples = len(batch)
    first = torch.zeros((len(dag.layers[0]), samples), dtype=theta.dtype, device=theta.device)
    first = first.index_copy(0, torch.as_tensor(plan.place[dag.inputs]), batch.T)
    if dag.constant is not None:
        first = first.index_fill(0, torch.tensor([plan.place[dag.constant]]), 1.0)
    values = first
    for level in plan.levels:
        rows = np.repeat(np.arange(len(level.nodes)), np.diff(level.indptr))
        messages = values[torch.as_tensor(level.indices)] * theta[torch.as_tensor(level.edges)][:, None]
        empty = torch.zeros((len(level.nodes), samples), dtype=theta.dtype, device=theta.device)
        summed = empty.index_add(0, torch.as_tensor(rows), messages)
        slope = torch.tensor(dag.slopes[level.nodes], dtype=theta.dtype, device=theta.device)[:, None]
        values = torch.cat([values, torch.where(summed > 0, summed, slope * summed)])
    return values[torch.as_tensor(plan.place)].T
