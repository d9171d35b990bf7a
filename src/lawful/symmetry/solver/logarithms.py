"""Logarithms of scales, one for each entry of a value, and the linear equations that they satisfy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import connected_components

from lawful.symmetry.demands.gauges import Relation
from lawful.symmetry.demands.labels import on, squeeze_fields, varying
from lawful.symmetry.solver.nullspace import Nullspace, nullspace
from lawful.types import Residues

MOST_ROWS = 500_000  # equations of one call


class Logarithms:
    """Labels of the logarithms, and what is demanded of them; label 0 is zero."""

    def __init__(self) -> None:
        self.count = 1
        self.equal: list[tuple[Residues, Residues]] = []
        self.relations: list[Relation] = []

    def fresh(self, count: int) -> torch.Tensor:
        """New labels."""
        self.count += count
        return torch.arange(self.count - count, self.count)

    def same(self, one: torch.Tensor, other: torch.Tensor) -> None:
        """Demand that labels have equal logarithms."""
        left, right = (part.reshape(-1).numpy() for part in squeeze_fields(one, other)[0])
        self.equal.append((left, right))

    def pin(self, labels: torch.Tensor) -> None:
        """Demand that labels do not move."""
        self.same(labels, torch.zeros((), dtype=torch.int64).expand(labels.shape))

    def level(self, labels: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """Demand that labels do not change along dimensions; returned with size 1 there."""
        for d in dims:
            first = labels.narrow(d, 0, 1)
            if d in varying(labels):
                self.same(labels, first.expand(labels.shape))
            labels = first
        return labels

    def total(
        self, one: torch.Tensor, other: torch.Tensor, factor: float = 1.0, summed: Sequence[int] = ()
    ) -> torch.Tensor:
        """Labels of `t_one + factor · t_other`, broadcast; along `summed` they must be one number, with size 1 then."""
        shape = torch.broadcast_shapes(one.shape, other.shape)  # type: ignore[no-untyped-call]
        (left, right), kept = squeeze_fields(one.expand(shape), other.expand(shape))
        if left.numel() > MOST_ROWS:
            raise MemoryError
        inside = [d for d in kept if d not in summed]
        size = int(np.prod([shape[d] for d in inside], dtype=int))
        result = on(inside, shape, self.fresh(size))
        wide = result
        for d in reversed(range(len(shape))):
            if d not in kept:
                wide = wide.select(d, 0)
        rows, first, second = (part.reshape(-1).numpy() for part in (wide.expand(left.shape), left, right))
        self.relations.append(Relation(rows, first, second, factor))
        for d in summed:
            result = result.narrow(d, 0, 1)
        return result

    def solved(self) -> tuple[Residues, Nullspace]:
        """The label that stands for each label, and all solutions."""
        left = np.concatenate([np.zeros(0, np.int64), *(pair[0] for pair in self.equal)])
        right = np.concatenate([np.zeros(0, np.int64), *(pair[1] for pair in self.equal)])
        graph = sparse.coo_array((np.ones(len(left), np.int8), (left, right)), shape=(self.count, self.count))
        component = connected_components(graph, directed=False)[1]
        first = np.full(int(component.max()) + 1, self.count, dtype=np.int64)
        np.minimum.at(first, component, np.arange(self.count))
        root = first[component]
        free = (root == np.arange(self.count)) & (root != 0)
        return root, nullspace(self.relations, root, np.ones(self.count, np.int64), free)
