"""What the operations of a graph demand of its gauges, collected while the graph is read.

Coordinate i of a parameter's axis has a label. A gauge generator is one matrix X over labels; a value with the field f
moves by `δx[s] = Σ X[f(s), f(s')] x[s']` (s' runs over the positions that differ from s where f changes), a value with
several fields by the sum. X starts as anything within each axis; the constraints below shrink it. Where a label comes
more than once in a field, the k-th copies move together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from lawful.symmetry.demands.labels import broadcast, flat, number_rows, occurrences, on, squeeze_fields, varying
from lawful.types import Floats, Residues

PINNED = 0  # the label whose gauge is the identity


@dataclass(frozen=True, eq=False)
class Link:
    """`M_f = M_g` (sign 1) or `M_f = −M_gᵀ` (sign −1), position by position, within each group of positions."""

    left: Residues
    right: Residues
    sign: int
    group: Residues


@dataclass(frozen=True, eq=False)
class Relation:
    """Logarithms of scales: `t_result = t_first + factor · t_second`, one row per label."""

    result: Residues
    first: Residues
    second: Residues
    factor: float


@dataclass(frozen=True, eq=False)
class Pin:
    """Labels whose gauge is the identity, and the operation that demands it; `permutes`: permutations pass it."""

    labels: Residues
    operation: str
    permutes: bool


class AttentionLabels(NamedTuple):
    """The labels (head, coordinate) of queries, keys and values, and the parameters that are added to scores."""

    query: Residues
    key: Residues
    value: Residues
    tables: tuple[str, ...] = ()


class Gauges:
    """The labels made so far, and what is demanded of their matrices."""

    def __init__(self, *, means: bool = False) -> None:
        """If `means`, only generators `1 1ᵀ` are asked for, which act on the mean of a space's coordinates."""
        self.means: bool = means
        self.centrings: list[Link] = []
        self.count: int = 1
        self.axes: list[tuple[int, int]] = [(0, 1)]
        self.links: list[Link] = []
        self.relations: list[Relation] = []
        self.diagonals: list[Residues] = []
        self.pins: list[Pin] = []
        self.ones: list[Residues] = []
        self.centres: dict[str, Floats] = {}
        self.told_apart: list[tuple[Residues, Residues]] = []
        self.heads: list[tuple[int, list[tuple[Residues, Residues]]]] = []
        self.attentions: list[AttentionLabels] = []

    def fresh(self, count: int) -> torch.Tensor:
        """Labels of a new axis: X may be any matrix on them."""
        start = self.count
        self.axes.append((start, count))
        self.count += count
        return torch.arange(start, start + count)

    def share_axis(self, f: torch.Tensor, dim: int) -> bool:
        """Whether labels along a dimension are of one axis anywhere."""
        starts = np.array([start for start, _ in self.axes])
        numbers = np.sort(
            np.searchsorted(starts, f.movedim(dim, 0).reshape(f.shape[dim], -1).numpy(), side="right"), axis=0
        )
        return bool((numbers[1:] == numbers[:-1]).any())

    def same(self, f: torch.Tensor, g: torch.Tensor, *, dual: bool = False, line: Sequence[int] | None = None) -> None:
        """Demand `M_f = M_g`, or `M_f = −M_gᵀ` if dual.

        Matrices act along the dimensions `line` (all of them by default): along any other dimension where a field
        changes, M is block-diagonal, and the demand holds in each block.
        """
        (left, right), dimensions = squeeze_fields(f, g)
        inside = [place for place, d in enumerate(dimensions) if line is None or d in line]
        group = [place for place in range(len(dimensions)) if place not in inside]
        key = on(group, left.shape, torch.arange(int(np.prod([left.shape[place] for place in group], dtype=int))))
        one, two, third = (part.reshape(-1).numpy() for part in (left, right, key))
        self.links.append(_link(one, two, third, -1 if dual else 1))

    def whole(self, f: torch.Tensor) -> None:
        """Demand that M does not leave the field: its labels do not mix with others of their axis."""
        self.same(f, f)

    def blocks(self, f: torch.Tensor, line: Sequence[int]) -> None:
        """Demand that M acts along the dimensions `line` alone."""
        if set(varying(f)) - set(line):
            self.same(f, f, line=line)

    def orthogonal(self, f: torch.Tensor, line: Sequence[int]) -> None:
        """Demand that M is skew and acts along `line`: it keeps `Σ x²` over those dimensions."""
        self.same(f, f, dual=True, line=line)

    def keep_ones(self, f: torch.Tensor) -> None:
        """Note that group elements have to fix the vector of ones along this field."""
        self.ones.append(flat(f))

    def centre(self, f: torch.Tensor, line: Sequence[int]) -> None:
        """Note that x is centred along `line`: of all M, those that only move the mean there are not seen."""
        self.same(f, f, line=line)
        self.centrings.append(self.links.pop())

    def recentre(self, parameter: str, constant: float | Floats) -> None:
        """Note that the gauge acts on a parameter plus a constant, not on the parameter itself."""
        self.centres[parameter] = self.centres.get(parameter, np.zeros(())) + np.asarray(constant, dtype=np.float64)

    def diagonal(self, f: torch.Tensor) -> None:
        """Demand that M is diagonal."""
        self.diagonals.append(flat(f))

    def tell_apart(self, f: torch.Tensor, dims: Iterable[int]) -> None:
        """Note that the operation treats indices along dimensions differently: permutations do not pass, scales may."""
        inside = sorted(set(varying(f)) & set(dims))
        if inside:
            size = int(np.prod([f.shape[d] for d in inside], dtype=int))
            labels, place = squeeze_fields(f, on(inside, f.shape, torch.arange(size)))[0]
            self.told_apart.append((labels.reshape(-1).numpy(), place.reshape(-1).numpy()))

    def tie_heads(self, heads: int, fields: Sequence[torch.Tensor], dim: int) -> None:
        """Note that fields belong together, in equal runs of indices along a dimension: all change places, or none."""
        result = []
        for field in fields:
            number = on([dim], field.shape, torch.arange(field.shape[dim]) // (field.shape[dim] // heads))
            labels, place = (part.reshape(-1).numpy() for part in squeeze_fields(field, number)[0])
            result.append((labels, place))
        self.heads.append((heads, result))

    def pin(self, f: torch.Tensor, operation: str, *, permutes: bool = False) -> None:
        """Demand that M vanishes."""
        self.pins.append(Pin(flat(f), operation, permutes))

    def product(self, f: torch.Tensor, g: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        """The field of `x · y^factor`: diagonal, and logarithms of scales add up."""
        self.diagonal(f)
        self.diagonal(g)
        (first, second), dimensions = squeeze_fields(f, g)
        a, b = first.reshape(-1).numpy(), second.reshape(-1).numpy()
        number = number_rows(a, b)
        representative = np.unique(number, return_index=True)[1]
        result = self.fresh(len(representative))
        self.diagonals.append(result.numpy())
        self.relations.append(Relation(result.numpy(), a[representative], b[representative], factor))
        shape = broadcast(f.shape, g.shape)
        return on(dimensions, shape, result[torch.as_tensor(number)])

    def power(self, f: torch.Tensor, degree: float) -> torch.Tensor:
        """The field of `x^degree`."""
        if degree == 1:
            self.diagonal(f)
            return f
        return self.product(torch.zeros((), dtype=torch.int64).expand(f.shape), f, degree)


def _link(left: Residues, right: Residues, key: Residues, sign: int) -> Link:
    """A link with its copies made explicit; repeated rows are dropped."""
    if len(left) > 1:
        group = number_rows(key, occurrences(number_rows(left, key)), occurrences(number_rows(right, key)))
        order = np.argsort(group, kind="stable")
        left, right, group = left[order], right[order], group[order]
    else:
        group = np.zeros(len(left), dtype=np.int64)
    return Link(left, right, sign, group)
