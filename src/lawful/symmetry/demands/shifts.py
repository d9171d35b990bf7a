"""Constant directions of parameter space, followed forward through the graph until something makes them invisible.

A shift field says how a value moves when parameters move along constant vectors: entry s moves by
`factor · u[labels(s)] · (something that depends on the data, the same where phases agree)`. u are unknowns, one for
each label (a vector of `width` unknowns if the label stands for many entries of a parameter: what the data multiply it
by is a vector too). Two weights that read the same value have the same phases, so that one can move against the other.
Layer normalisation, softmax and batch normalisation do not see what is constant along their dimensions; every other
function sees all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.csgraph import connected_components

from lawful.symmetry.demands.gauges import Relation
from lawful.symmetry.demands.labels import compact, flat, narrow, number_rows, on, squeeze_fields, varying
from lawful.types import Residues

ZERO = 0  # the label of what does not move
MOST_PHASES = 4_000_000  # places of one value at which the data may do different things
LARGEST = 2_000_000  # a parameter with more entries is followed by its axes alone


@dataclass(frozen=True, eq=False)
class Shift:
    """How a value moves; see the module. `masked`: entries that a softmax will ignore were left out."""

    labels: torch.Tensor
    phases: torch.Tensor
    factor: float = 1.0
    masked: bool = False

    @property
    def constant(self) -> bool:
        """Whether it is the same for all data."""
        return not self.masked and not varying(self.phases) and int(self.phases.reshape(-1)[0]) == 0

    def move(self, labels: torch.Tensor, phases: torch.Tensor) -> Shift:
        """The same shift after an operation that moves entries."""
        return replace(self, labels=compact(labels), phases=compact(phases))


@dataclass(frozen=True, eq=False)
class Direction:
    """Labels that stand for entries of a parameter.

    Entry e of the parameter belongs to `labels(e)`. If `weight` is more than 1 the entries with a label make a vector
    of that many unknowns; a `mean` direction moves them all alike, and where a parameter has one the others have mean
    zero.
    """

    parameter: str
    labels: torch.Tensor
    weight: int
    mean: bool = False


def _is_nested(one: Shift, other: Shift) -> bool:
    """Whether two shifts depend on the same data, and one changes along no dimension that the other does not."""
    mine, their = set(varying(one.labels)), set(varying(other.labels))
    return not (one.masked or other.masked) and (mine <= their or their <= mine) and _same_data(one, other)


def _same_data(one: Shift, other: Shift) -> bool:
    if varying(one.phases) != varying(other.phases):
        return False
    return torch.equal(narrow(one.phases), narrow(other.phases))


class Shifts:
    """Labels of shifts made so far, and what is demanded of them."""

    def __init__(self) -> None:
        self.count = 1
        self.leader = np.arange(1024)  # of labels whose unknowns are equal, one stands for all
        self.zero: list[Residues] = []
        self.relations: list[Relation] = []
        self.parts: list[tuple[Residues, Residues]] = []  # labels made of others: (whole, part)
        self.directions: dict[str, list[Direction]] = {}
        self.read: list[Residues] = []  # labels of entries that the graph did read
        self.width = np.ones(1024, dtype=np.int64)  # how many numbers the unknown of a label is
        self._choice: dict[str, object] = {}
        self._dead = np.zeros(1024, dtype=bool)
        self._phase = 1
        self._sources: dict[tuple[object, ...], torch.Tensor] = {}
        self._names: WeakKeyDictionary[object, int] = WeakKeyDictionary()  # of values, which are not kept for it
        self._named = 0

    def fresh(self, count: int) -> torch.Tensor:
        """New labels."""
        start = self.count
        self.count += count
        return torch.arange(start, start + count)

    def vectors(self, count: int, width: int) -> torch.Tensor:
        """New labels whose unknowns are vectors."""
        result = self.fresh(count)
        self._grow()
        self.width[result.numpy()] = width
        return result

    def phase(self, shape: Sequence[int], dims: Iterable[int]) -> torch.Tensor:
        """Phases that differ at every index of some dimensions: what the data do there is not known."""
        inside = [d for d in dims if shape[d] > 1]
        start, size = self._phase, int(np.prod([shape[d] for d in inside], dtype=int))
        self._phase += size
        # NumPy's memory: PyTorch aligns its own, and the C library hardly ever finds room again where such a block was
        return on(inside, shape, torch.from_numpy(np.arange(start, start + size)))

    def phase_of(self, source: tuple[object, ...], shape: Sequence[int], dims: Iterable[int]) -> torch.Tensor:
        """The phases of what the data do in a place that has a name: the same each time it is named."""
        inside = sorted(d for d in dims if shape[d] > 1)
        names = (part if isinstance(part, (str, int, tuple)) else self._name(part) for part in source)
        key = (*names, tuple((d, shape[d]) for d in inside), len(shape))
        if key not in self._sources:
            self._sources[key] = narrow(self.phase(shape, inside))
        return self._sources[key].expand(tuple(shape))

    def _name(self, value: object) -> tuple[int]:
        """A number that no other value ever has."""
        if value not in self._names:
            self._named += 1
            self._names[value] = self._named
        return (self._names[value],)

    def parameter(self, name: str, shape: Sequence[int], key: object, axis: Sequence[int]) -> list[Direction] | None:
        """The directions of a parameter by its indices along `axis`; None if it was looked at otherwise before."""
        if self._choice.setdefault(name, key) != key:
            self.forbid(name)
            return None
        if name not in self.directions:
            size = int(np.prod([shape[d] for d in axis], dtype=int))
            weight = int(np.prod(shape, dtype=int)) // max(size, 1)
            self.directions[name] = [Direction(name, on(axis, shape, self.vectors(size, weight)), weight)]
        return self.directions[name]

    def common(self, rest: Direction, axes: Sequence[int], shape: Sequence[int]) -> Direction:
        """Beside vectors, one direction for each label that moves all its entries alike."""
        size = int(np.prod([shape[d] for d in axes], dtype=int))
        result = Direction(rest.parameter, on(axes, shape, self.fresh(size)), rest.weight, mean=True)
        self.read += [flat(rest.labels), flat(result.labels)]
        return result

    def forbid(self, name: str) -> None:
        """Demand that a parameter does not shift at all."""
        self._choice[name] = None
        for direction in self.directions.get(name, []):
            self.vanish(direction.labels)

    def vanish(self, labels: torch.Tensor) -> None:
        """Demand that these unknowns are zero."""
        result = flat(labels)
        self.zero.append(result)
        self._grow()
        self._dead[result] = True

    def drop(self, shifts: Iterable[Shift]) -> None:
        """Demand that all these shifts vanish: the operation sees them."""
        for shift in shifts:
            self.vanish(shift.labels)

    def alive(self, shifts: Iterable[Shift]) -> tuple[Shift, ...]:
        """Those that were not demanded to vanish, equal labels replaced by one of them."""
        self._grow()
        result = []
        for shift in shifts:
            small = narrow(shift.labels)
            labels = torch.as_tensor(self.leaders(small.numpy()))
            if not self._dead[labels.numpy()].all():
                result.append(replace(shift, labels=compact(labels).expand(shift.labels.shape)))
        return tuple(result)

    def leaders(self, labels: Residues) -> Residues:
        """For each label the one that stands for it."""
        self._grow()
        while True:
            above = self.leader[labels]
            if (above == labels).all():
                return labels
            labels = above

    def _grow(self) -> None:
        if len(self._dead) < self.count:
            grown = np.zeros(2 * self.count, dtype=bool)
            grown[: len(self._dead)] = self._dead
            self._dead = grown
            self.leader = np.r_[self.leader, np.arange(len(self.leader), 2 * self.count)]
            self.width = np.r_[self.width, np.ones(2 * self.count - len(self.width), dtype=np.int64)]
        self._dead[ZERO] = True

    def _unite(self, left: Residues, right: Residues) -> None:
        """Make unknowns equal; what must vanish stays so."""
        members, place = np.unique(np.r_[left, right], return_inverse=True)
        tails, heads = place[: len(left)], place[len(left) :]
        ones = np.ones(len(left), dtype=np.int8)
        graph = sparse.coo_array((ones, (tails, heads)), shape=(len(members), len(members)))
        component = connected_components(graph, directed=False)[1]
        first = np.full(len(members), self.count)
        np.minimum.at(first, component, members)
        self.leader[members] = first[component]
        self._dead[first[component[self._dead[members]]]] = True

    def unseen(self, shifts: Iterable[Shift], dims: Iterable[int], *, softmax: bool = False) -> None:
        """Demand that shifts are constant along dimensions (the operation does not see such), or else vanish.

        Those that are the same for all data may also be constant together.
        """
        inside = set(dims)
        result = self.alive(shifts)
        steady = [shift for shift in result if shift.constant and inside & set(varying(shift.labels))]
        while len(steady) > 1:
            steady.append(self._sum(steady.pop(), steady.pop()))
        for shift in (*steady, *(shift for shift in result if not shift.constant)):
            labels = shift.labels
            if inside & set(varying(shift.phases)) or (shift.masked and not softmax):
                self.vanish(labels)
                continue
            for d in inside & set(varying(labels)):
                (one, other), _ = squeeze_fields(labels, labels.narrow(d, 0, 1).expand(labels.shape))
                self._unite(*(self.leaders(part.reshape(-1).numpy()) for part in (one, other)))

    def plus(self, left: Sequence[Shift], right: Sequence[Shift]) -> tuple[Shift, ...]:
        """Shifts of a sum stand side by side; two that are the same for all data add up if one changes no further."""
        result: list[Shift] = []
        for shift in self.alive((*left, *right)):
            place = next(
                (n for n, other in enumerate(result) if _is_nested(shift, other) and self._fits(shift, other)), None
            )
            result.append(shift if place is None else self._sum(result.pop(place), shift))
        return tuple(result)

    def _fits(self, one: Shift, other: Shift) -> bool:
        """Whether all unknowns of two shifts are vectors of one length."""
        labels = np.concatenate([flat(one.labels), flat(other.labels)])
        return len(np.unique(self.width[labels[labels != ZERO]])) <= 1

    def _sum(self, a: Shift, b: Shift) -> Shift:
        """The sum of two shifts of the same data: `u = u_a + (factor b / factor a) u_b`, times factor a."""
        (first, second), dimensions = squeeze_fields(a.labels, b.labels)
        one, two = first.reshape(-1).numpy(), second.reshape(-1).numpy()
        number = number_rows(one, two)
        place = np.unique(number, return_index=True)[1]
        width = int(self.width[np.concatenate([one, two])].max(initial=1))
        result = self.vectors(len(place), width)
        self.relations.append(Relation(result.numpy(), one[place], two[place], b.factor / a.factor))
        return Shift(on(dimensions, a.labels.shape, result[torch.as_tensor(number)]), a.phases, a.factor, a.masked)

    def scale(self, shifts: Iterable[Shift], factor: float) -> tuple[Shift, ...]:
        """Shifts of a multiple."""
        if factor == 0:
            return ()
        return tuple(replace(shift, factor=shift.factor * factor) for shift in self.alive(shifts))

    def weigh(self, shifts: Iterable[Shift], dims: Iterable[int]) -> tuple[Shift, ...]:
        """Shifts of a product with something unknown that changes along dimensions; too long ones are given up."""
        result = []
        for shift in self.alive(shifts):
            changing = {*varying(shift.phases), *dims}
            if int(np.prod([shift.labels.shape[d] for d in changing], dtype=float)) > MOST_PHASES:
                self.vanish(shift.labels)
                continue
            phases = self.phase(shift.labels.shape, changing)
            result.append(replace(shift, phases=phases))
        return tuple(result)

    def sum_along(self, shift: Shift, dim: int) -> Shift:
        """The shift of `Σ_s x[.., s, ..] y[s, ..]`: one unknown that vanishes only if all its parts do.

        The result has size 1 in the dimension; its phases still have to be weighted.
        """
        labels, phases = shift.labels, shift.phases
        if dim in varying(labels):
            rest = labels.narrow(dim, 0, 1)
            other = [d for d in varying(labels) if d != dim]
            size = int(np.prod([labels.shape[d] for d in other], dtype=int))
            whole = on(other, rest.shape, self.fresh(size))
            (wide, part), _ = squeeze_fields(whole.expand(labels.shape), labels)
            self.parts.append((wide.reshape(-1).numpy(), part.reshape(-1).numpy()))
            labels = whole
        else:
            labels = labels.narrow(dim, 0, 1)
        dims = [d for d in varying(phases) if d != dim]
        phases = self.phase(labels.shape, dims) if dim in varying(phases) else phases.narrow(dim, 0, 1)
        return replace(shift, labels=labels, phases=phases)
